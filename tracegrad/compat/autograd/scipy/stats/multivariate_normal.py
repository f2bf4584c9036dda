"""Methods of `scipy.stats.multivariate_normal`."""

from tracegrad.utils.lazy_import import mirrored

__getattr__, __dir__ = mirrored(globals(), "scipy.stats", "multivariate_normal")
