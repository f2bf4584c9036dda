"""SciPy's own distributions, each by `import` too: `import autograd.scipy.stats.norm as norm`."""

from tracegrad.utils.lazy_import import mirrored

__getattr__, __dir__ = mirrored(globals(), "scipy.stats")
