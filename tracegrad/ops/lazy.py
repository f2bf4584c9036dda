"""The ops that are imported when one of them is made, or read in the text of a graph."""

from __future__ import annotations

from tracegrad.ops.calls import complex_call as joined
from tracegrad.ops.linalg import eig as eigen
from tracegrad.ops.linalg import lstsq as least_squares
from tracegrad.ops.linalg import matrix_functions
from tracegrad.ops.reduce import bin_count as estimates
from tracegrad.ops.reduce import isin as membership  # fmt: skip
from tracegrad.ops.reduce import row_order
from tracegrad.ops.signal import fft as fourier
from tracegrad.ops.signal import lfilter as filters
from tracegrad.ops.special import lambertw as lambert

__all__ = [
    "eigen", "estimates", "filters", "fourier", "joined", "lambert", "least_squares", "matrix_functions", "membership",
    "row_order",
]  # fmt: skip
