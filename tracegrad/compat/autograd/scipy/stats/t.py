"""Methods of `scipy.stats.t`."""

from tracegrad.utils.lazy_import import mirrored

__getattr__, __dir__ = mirrored(globals(), "scipy.stats", "t")
