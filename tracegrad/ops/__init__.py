"""The table of ops. Importing this package fills it."""

from tracegrad.ops import (
    activations,
    bits,
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
from tracegrad.ops.carriers import TapeCarrier, TensorCarrier
from tracegrad.ops.op import TABLE, Carrier, Level, Op, bind

__all__ = [
    "TABLE",
    "Carrier",
    "Level",
    "Op",
    "TapeCarrier",
    "TensorCarrier",
    "activations",
    "bind",
    "bits",
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
