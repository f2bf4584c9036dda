"""Transforms of functions (`trace`, `grad`, `vjp`, `vmap`, ...): nested ones make one graph and one program."""

from tracegrad.api.batching import vmap, vmap_of_dims
from tracegrad.api.compilation import trace
from tracegrad.api.derivative_matrices import hessian, hvp, jacfwd, jacobian, jacrev
from tracegrad.api.forward import jvp, linearize
from tracegrad.api.reverse import grad, stop_gradient, value_and_grad, vjp

__all__ = [
    "grad",
    "hessian",
    "hvp",
    "jacfwd",
    "jacobian",
    "jacrev",
    "jvp",
    "linearize",
    "stop_gradient",
    "trace",
    "value_and_grad",
    "vjp",
    "vmap",
    "vmap_of_dims",
]
