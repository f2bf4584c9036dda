"""PyTorch's functions and Tensor methods, implemented with ops."""

from tracegrad.torch.functions.indexing import (
    index_update,
    joining,
    scatter_reduce,
    select,
    shapes,
    slicing,
    sorting,
    strided,
)
from tracegrad.torch.functions.linalg import factorizations, lapack, matmul, matrices
from tracegrad.torch.functions.math import (
    bitwise,
    complex,
    cumulative,
    extrema,
    pointwise,
    reductions,
    special,
    statistics,
)
from tracegrad.torch.functions.nn import nn_functional
from tracegrad.torch.functions.signal import short_time_fourier

__all__ = [
    "bitwise",
    "complex",
    "cumulative",
    "extrema",
    "factorizations",
    "index_update",
    "joining",
    "lapack",
    "matmul",
    "matrices",
    "nn_functional",
    "pointwise",
    "reductions",
    "scatter_reduce",
    "select",
    "shapes",
    "short_time_fourier",
    "slicing",
    "sorting",
    "special",
    "statistics",
    "strided",
]
