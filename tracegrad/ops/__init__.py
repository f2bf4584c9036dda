"""The table of ops. Importing this package fills it."""

from tracegrad.ops import (
    activations,
    complex_numbers,
    contraction,
    custom,
    elementwise,
    factorizations,
    indexing,
    linalg,
    linear,
    reduction,
    scans,
    sorting,
    special,
)
from tracegrad.ops.op import TABLE, Carrier, Op, bind

complex_numbers.settle()

__all__ = [
    "TABLE",
    "Carrier",
    "Op",
    "activations",
    "bind",
    "complex_numbers",
    "contraction",
    "custom",
    "elementwise",
    "factorizations",
    "indexing",
    "linalg",
    "linear",
    "reduction",
    "scans",
    "sorting",
    "special",
]
