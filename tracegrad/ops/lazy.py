"""Import the op modules that are loaded late: at the first use of an op, or by the parser of graphs."""

from __future__ import annotations

from tracegrad.ops.calls import complex_call
from tracegrad.ops.linalg import eig, lstsq, matrix_functions
from tracegrad.ops.reduce import bin_count, isin, row_order
from tracegrad.ops.signal import fft, lfilter
from tracegrad.ops.special import lambertw

__all__ = [
    "bin_count",
    "complex_call",
    "eig",
    "fft",
    "isin",
    "lambertw",
    "lfilter",
    "lstsq",
    "matrix_functions",
    "row_order",
]
