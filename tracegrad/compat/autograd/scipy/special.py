"""SciPy's own special functions."""

from tracegrad.later import mirrored

__getattr__, __dir__ = mirrored(globals(), "scipy.special")
