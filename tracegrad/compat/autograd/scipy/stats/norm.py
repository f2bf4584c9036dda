"""The methods of `scipy.stats.norm`."""

from tracegrad.later import mirrored

__getattr__, __dir__ = mirrored(globals(), "scipy.stats", "norm")
