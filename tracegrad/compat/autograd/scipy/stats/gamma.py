"""The methods of `scipy.stats.gamma`."""

from tracegrad.later import mirrored

__getattr__, __dir__ = mirrored(globals(), "scipy.stats", "gamma")
