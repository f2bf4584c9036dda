"""Namespace of `torch.autograd`: derivatives on the eager tape, operations with user-defined rules, and checks."""

from tracegrad.torch import modes as grad_mode
from tracegrad.torch.autograd import forward_ad, functional, graph
from tracegrad.torch.autograd.anomaly_mode import detect_anomaly, set_detect_anomaly
from tracegrad.torch.autograd.function import Function
from tracegrad.torch.autograd.gradcheck import gradcheck, gradgradcheck
from tracegrad.torch.autograd.variable import Variable
from tracegrad.torch.modes import (
    enable_grad,
    inference_mode,
    is_multithreading_enabled,
    no_grad,
    set_grad_enabled,
    set_multithreading_enabled,
)
from tracegrad.torch.tape.backward.engine import backward, grad

__all__ = [
    "Function",
    "Variable",
    "backward",
    "detect_anomaly",
    "enable_grad",
    "forward_ad",
    "functional",
    "grad",
    "grad_mode",
    "gradcheck",
    "gradgradcheck",
    "graph",
    "inference_mode",
    "is_multithreading_enabled",
    "no_grad",
    "set_detect_anomaly",
    "set_grad_enabled",
    "set_multithreading_enabled",
]
