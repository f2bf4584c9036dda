"""The methods of `scipy.stats.t`."""

from tracegrad.later import mirrored

__getattr__, __dir__ = mirrored(globals(), "scipy.stats", "t")
