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
    number_parts,
    pieces,
    reduction,
    scans,
    sorting,
    special,
)
from tracegrad.ops.op import TABLE, Carrier, Level, Op, bind

__all__ = [
    "TABLE",
    "Carrier",
    "Level",
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
    "number_parts",
    "pieces",
    "reduction",
    "scans",
    "sorting",
    "special",
]
