"""Eager mode: Tensors that compute at once and record a tape, with PyTorch's autograd semantics."""

from tracegrad.torch.modes import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from tracegrad.torch.tape.backward.engine import backward, grad
from tracegrad.torch.tape.backward.functional import eager_vjp
from tracegrad.torch.tape.tensors.tape_array import TapeArray
from tracegrad.torch.tape.tensors.tensor import Tensor
from tracegrad.torch.tape.tensors.tensor_methods import ROWS
from tracegrad.torch.tape.tensors.traced_tensor import TracedTensor

__all__ = [
    "ROWS",
    "TapeArray",
    "Tensor",
    "TracedTensor",
    "backward",
    "eager_vjp",
    "enable_grad",
    "grad",
    "inference_mode",
    "is_grad_enabled",
    "is_inference_mode_enabled",
    "no_grad",
    "set_grad_enabled",
]
