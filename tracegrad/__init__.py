"""tracegrad: a JIT-compiled, static-graph autograd compiler for NumPy code.

>>> import numpy as np
>>> import tracegrad as tg
>>> @tg.trace
... def loss(w, x, y):
...     return np.mean((np.tanh(x @ w) - y) ** 2)
>>> value, gradient = tg.value_and_grad(loss)(np.zeros(2), np.eye(2), np.ones(2))
>>> print(value, gradient)
1.0 [-1. -1.]
"""

from typing import Any

from tracegrad import errors, tree
from tracegrad.api import grad, stop_gradient, trace, value_and_grad, vjp
from tracegrad.eager import Tensor, enable_grad, from_numpy, is_grad_enabled, no_grad, set_grad_enabled, tensor
from tracegrad.errors import (
    CacheWarning,
    DerivativeWarning,
    DTypeError,
    ShapeError,
    TraceError,
    TracegradError,
    UnsupportedError,
    VerifyError,
)
from tracegrad.settings import disable_jit, settings
from tracegrad.tree import register_pytree_node

__version__ = "0.1.0"

__all__ = [
    "CacheWarning",
    "DTypeError",
    "DerivativeWarning",
    "ShapeError",
    "Tensor",
    "TraceError",
    "TracegradError",
    "UnsupportedError",
    "VerifyError",
    "disable_jit",
    "enable_grad",
    "errors",
    "from_numpy",
    "grad",
    "is_grad_enabled",
    "no_grad",
    "register_pytree_node",
    "set_grad_enabled",
    "settings",
    "stop_gradient",
    "tensor",
    "trace",
    "tree",
    "value_and_grad",
    "vjp",
]


def __getattr__(name: str) -> Any:
    raise AttributeError(f"tracegrad has no {name!r}; it offers {', '.join(__all__)}")
