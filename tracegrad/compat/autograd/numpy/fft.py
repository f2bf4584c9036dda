"""NumPy's own Fourier transforms."""

from tracegrad.utils.lazy_import import mirrored

__getattr__, __dir__ = mirrored(globals(), "numpy.fft")
