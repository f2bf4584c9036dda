"""The ops that are imported when one of them is made, or read in the text of a graph."""

from __future__ import annotations

from tracegrad.ops import filters, fourier, joined, matrix_functions

__all__ = ["filters", "fourier", "joined", "matrix_functions"]
