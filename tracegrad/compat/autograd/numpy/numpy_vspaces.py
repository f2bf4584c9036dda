"""Vector spaces of arrays."""

from tracegrad.compat.autograd.spaces import ArrayVSpace, ComplexArrayVSpace

__all__ = ["ArrayVSpace", "ComplexArrayVSpace"]
