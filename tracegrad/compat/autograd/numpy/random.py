"""NumPy's own random numbers."""

from tracegrad.utils.lazy_import import mirrored

__getattr__, __dir__ = mirrored(globals(), "numpy.random")
