"""Class of traced arrays, by autograd's name."""

from tracegrad.compat.autograd.tracer import Box

__all__ = ["ArrayBox"]


class ArrayBox(Box):
    """The class of all values that are being differentiated."""
