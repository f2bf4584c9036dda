"""SciPy's own functions of linear algebra."""

from tracegrad.later import mirrored

__getattr__, __dir__ = mirrored(globals(), "scipy.linalg")
