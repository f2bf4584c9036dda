"""Methods of `scipy.stats.chi2`."""

from tracegrad.utils.lazy_import import mirrored

__getattr__, __dir__ = mirrored(globals(), "scipy.stats", "chi2")
