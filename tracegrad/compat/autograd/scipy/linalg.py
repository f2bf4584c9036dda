"""SciPy's own linear algebra."""

from tracegrad.utils.lazy_import import mirrored

__getattr__, __dir__ = mirrored(globals(), "scipy.linalg")
