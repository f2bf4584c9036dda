"""The class of traced arrays."""

from tracegrad.compat.autograd.tracer import Box

__all__ = ["ArrayBox"]


class ArrayBox(Box):
    """The class of all values that are being differentiated."""
