"""The ops that are imported when one of them is made, or read in the text of a graph."""

from __future__ import annotations

from tracegrad.ops import (
    eigen,
    estimates,
    filters,
    fourier,
    joined,
    lambert,
    least_squares,
    matrix_functions,
    membership,
)  # fmt: skip
from tracegrad.ops import row_order as row_order

__all__ = [
    "eigen", "estimates", "filters", "fourier", "joined", "lambert", "least_squares", "matrix_functions", "membership",
    "row_order",
]  # fmt: skip
