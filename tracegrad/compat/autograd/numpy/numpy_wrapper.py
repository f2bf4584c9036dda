"""NumPy itself, whose functions are traced directly."""

from tracegrad.utils.lazy_import import mirrored

__getattr__, __dir__ = mirrored(globals(), "numpy")
