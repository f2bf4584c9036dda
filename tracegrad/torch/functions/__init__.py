"""PyTorch's face of a carried value: its functions and a Tensor's methods over the ops."""

from tracegrad.torch.functions import (
    bits,
    complex_numbers,
    extrema,
    indexing,
    joining,
    linalg,
    meeting,
    nn_functional,
    parts,
    pointwise,
    products,
    reductions,
    running,
    shapes,
    sorting,
    special,
    statistics,
    writing,
)

__all__ = [
    "bits", "complex_numbers", "extrema", "indexing", "joining", "linalg", "meeting", "nn_functional", "parts",
    "pointwise", "products", "reductions", "running", "shapes", "sorting", "special", "statistics", "writing",
]  # fmt: skip
