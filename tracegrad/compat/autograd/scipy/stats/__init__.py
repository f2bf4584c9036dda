"""SciPy's own distributions, each importable as a module: `import autograd.scipy.stats.norm as norm`."""

from tracegrad.utils.lazy_import import mirrored

__getattr__, __dir__ = mirrored(globals(), "scipy.stats")
