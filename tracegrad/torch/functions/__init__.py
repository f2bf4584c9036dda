"""PyTorch's face of a carried value: its functions and a Tensor's methods over the ops."""

from tracegrad.torch.functions import bitwise as bits
from tracegrad.torch.functions import complex as complex_numbers
from tracegrad.torch.functions import cumulative as running
from tracegrad.torch.functions import (
    extrema,
    indexing,
    joining,
    linalg,
    nn_functional,
    pointwise,
    reductions,
    shapes,
    sorting,
    special,
    statistics,
)
from tracegrad.torch.functions import index_update as writing
from tracegrad.torch.functions import matmul as products
from tracegrad.torch.functions import scatter_reduce as meeting
from tracegrad.torch.functions import slicing as parts

__all__ = [
    "bits", "complex_numbers", "extrema", "indexing", "joining", "linalg", "meeting", "nn_functional", "parts",
    "pointwise", "products", "reductions", "running", "shapes", "sorting", "special", "statistics", "writing",
]  # fmt: skip
