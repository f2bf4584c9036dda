"""Eager mode: Tensors that compute at once and leave a tape, with PyTorch's autograd semantics."""

from tracegrad.eager.engine import backward, grad
from tracegrad.eager.functional import eager_vjp
from tracegrad.eager.modes import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from tracegrad.eager.tensor import TapeArray, Tensor
from tracegrad.eager.traced import TracedTensor

__all__ = [
    "TapeArray", "Tensor", "TracedTensor", "backward", "eager_vjp", "enable_grad", "grad", "inference_mode",
    "is_grad_enabled", "is_inference_mode_enabled", "no_grad", "set_grad_enabled",
]  # fmt: skip
