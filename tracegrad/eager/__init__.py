"""Eager mode: Tensors that compute at once and leave a tape, with PyTorch's autograd semantics."""

from tracegrad.eager.engine import backward, grad
from tracegrad.eager.functional import eager_vjp
from tracegrad.eager.modes import enable_grad, is_grad_enabled, no_grad, set_grad_enabled
from tracegrad.eager.tensor import Tensor, from_numpy, tensor

__all__ = [
    "Tensor", "backward", "eager_vjp", "enable_grad", "from_numpy", "grad", "is_grad_enabled", "no_grad",
    "set_grad_enabled", "tensor",
]  # fmt: skip
