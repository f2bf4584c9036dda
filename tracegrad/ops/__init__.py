"""The table of ops. Importing this package fills it."""

from tracegrad.ops import contraction, elementwise, indexing, linear, reduction
from tracegrad.ops.op import TABLE, Carrier, Op, bind

__all__ = ["TABLE", "Carrier", "Op", "bind", "contraction", "elementwise", "indexing", "linear", "reduction"]
