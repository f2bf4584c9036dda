"""The methods of `scipy.stats.beta`."""

from tracegrad.later import mirrored

__getattr__, __dir__ = mirrored(globals(), "scipy.stats", "beta")
