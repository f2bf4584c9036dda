"""PyTorch's face of a carried value: its functions and a Tensor's methods over the ops."""

from tracegrad.torch.functions.indexing import index_update as writing
from tracegrad.torch.functions.indexing import joining, shapes, sorting
from tracegrad.torch.functions.indexing import scatter_reduce as meeting
from tracegrad.torch.functions.indexing import select as indexing
from tracegrad.torch.functions.indexing import slicing as parts
from tracegrad.torch.functions.linalg import matmul as products
from tracegrad.torch.functions.linalg import matrices as linalg
from tracegrad.torch.functions.math import bitwise as bits
from tracegrad.torch.functions.math import complex as complex_numbers
from tracegrad.torch.functions.math import cumulative as running
from tracegrad.torch.functions.math import extrema, pointwise, reductions, special, statistics
from tracegrad.torch.functions.nn import nn_functional

__all__ = [
    "bits", "complex_numbers", "extrema", "indexing", "joining", "linalg", "meeting", "nn_functional", "parts",
    "pointwise", "products", "reductions", "running", "shapes", "sorting", "special", "statistics", "writing",
]  # fmt: skip
