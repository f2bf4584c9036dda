"""The methods of `scipy.stats.dirichlet`."""

from tracegrad.later import mirrored

__getattr__, __dir__ = mirrored(globals(), "scipy.stats", "dirichlet")
