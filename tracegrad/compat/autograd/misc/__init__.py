"""Names of `autograd.misc`: `flatten`, optimizers, fixed points."""

from tracegrad.compat.autograd.misc import fixed_points, optimizers, tracers
from tracegrad.compat.autograd.misc.flatten import flatten
from tracegrad.compat.autograd.misc.tracers import const_graph

__all__ = ["const_graph", "fixed_points", "flatten", "optimizers", "tracers"]
