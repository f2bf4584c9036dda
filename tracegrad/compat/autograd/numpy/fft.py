"""NumPy's own Fourier transforms."""

from tracegrad.later import mirrored

__getattr__, __dir__ = mirrored(globals(), "numpy.fft")
