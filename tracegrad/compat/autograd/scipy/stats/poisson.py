"""The methods of `scipy.stats.poisson`."""

from tracegrad.later import mirrored

__getattr__, __dir__ = mirrored(globals(), "scipy.stats", "poisson")
