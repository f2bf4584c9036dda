"""Methods of `scipy.stats.gamma`."""

from tracegrad.utils.lazy_import import mirrored

__getattr__, __dir__ = mirrored(globals(), "scipy.stats", "gamma")
