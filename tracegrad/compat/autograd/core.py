"""Names of `autograd.core`: derivatives of functions of one argument, rules of primitives, vector spaces."""

from tracegrad.compat.autograd.rules import (
    def_linear,
    defjvp,
    defjvp_argnum,
    defjvp_argnums,
    defvjp,
    defvjp_argnum,
    defvjp_argnums,
    primitive,
    primitive_jvps,
    primitive_vjps,
)
from tracegrad.compat.autograd.spaces import VSpace, vspace
from tracegrad.compat.autograd.tracer import getval, isbox
from tracegrad.compat.autograd.transforms import make_jvp, make_vjp

__all__ = [
    "VSpace",
    "def_linear",
    "defjvp",
    "defjvp_argnum",
    "defjvp_argnums",
    "defvjp",
    "defvjp_argnum",
    "defvjp_argnums",
    "getval",
    "isbox",
    "make_jvp",
    "make_vjp",
    "primitive",
    "primitive_jvps",
    "primitive_vjps",
    "vspace",
]
