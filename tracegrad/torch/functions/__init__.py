"""PyTorch's face of a carried value: its functions and a Tensor's methods over the ops."""

from tracegrad.torch.functions import (
    complex_numbers,
    extrema,
    indexing,
    joining,
    linalg,
    nn_functional,
    parts,
    pointwise,
    products,
    reductions,
    running,
    shapes,
    sorting,
    special,
    writing,
)

__all__ = [
    "complex_numbers", "extrema", "indexing", "joining", "linalg", "nn_functional", "parts", "pointwise", "products",
    "reductions", "running", "shapes", "sorting", "special", "writing",
]  # fmt: skip
