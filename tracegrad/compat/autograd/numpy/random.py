"""NumPy's own random numbers."""

from tracegrad.later import mirrored

__getattr__, __dir__ = mirrored(globals(), "numpy.random")
