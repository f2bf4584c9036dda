"""User-defined derivative rules: `primitive`, `defvjp`, `defjvp` and the like."""

from tracegrad.compat.autograd.rules import (
    def_linear,
    defjvp,
    defjvp_argnum,
    defjvp_argnums,
    defvjp,
    defvjp_argnum,
    defvjp_argnums,
    notrace_primitive,
    primitive,
    register_notrace,
)
from tracegrad.compat.autograd.spaces import VSpace, vspace
from tracegrad.compat.autograd.tracer import Box

__all__ = [
    "Box",
    "VSpace",
    "def_linear",
    "defjvp",
    "defjvp_argnum",
    "defjvp_argnums",
    "defvjp",
    "defvjp_argnum",
    "defvjp_argnums",
    "notrace_primitive",
    "primitive",
    "register_notrace",
    "vspace",
]
