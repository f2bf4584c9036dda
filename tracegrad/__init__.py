"""tracegrad: a JIT-compiled, static-graph autograd compiler for NumPy code, with an eager mode like PyTorch's.

>>> import numpy as np
>>> import tracegrad as tg
>>> @tg.trace
... def loss(w, x, y):
...     return np.mean((np.tanh(x @ w) - y) ** 2)
>>> value, gradient = tg.value_and_grad(loss)(np.zeros(2), np.eye(2), np.ones(2))
>>> print(value, gradient)
1.0 [-1. -1.]

>>> x = tg.tensor([1.0, 2.0], requires_grad=True)
>>> (x * x).sum().backward()
>>> x.grad
tensor([2., 4.])

The names of PyTorch's tensor functions and dtypes are here too (`tg.sin`, `tg.float32`), those of `torch.autograd` in
`tg.autograd`. `tg.grad` and `tg.vjp` transform functions; `tg.trace` compiles.
"""

import sys
from typing import Any

from tracegrad import errors, func, tree
from tracegrad.api import (
    grad,
    hessian,
    hvp,
    jacfwd,
    jacobian,
    jacrev,
    jvp,
    linearize,
    stop_gradient,
    trace,
    value_and_grad,
    vjp,
    vmap,
)
from tracegrad.control.associative import associative_scan
from tracegrad.control.checkpoint import checkpoint, checkpoint_name, checkpoint_policies
from tracegrad.control.choice import cond, switch
from tracegrad.control.loops import fori_loop, map, scan, while_loop
from tracegrad.errors import (
    CacheWarning,
    CapacityError,
    DerivativeWarning,
    DTypeError,
    ShapeError,
    TraceError,
    TracegradError,
    UnsupportedError,
    VerifyError,
)
from tracegrad.settings import disable_jit, settings
from tracegrad.torch import autograd, cuda, linalg, nn, special
from tracegrad.torch.autograd.anomaly import is_anomaly_check_nan_enabled, is_anomaly_enabled
from tracegrad.torch.functions.registry import FUNCTIONS
from tracegrad.torch.tape import (
    Tensor,
    conversion,
    dtypes,
    enable_grad,
    factories,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    printing,
    random,
    set_grad_enabled,
)
from tracegrad.torch.tape.factories import from_numpy, tensor
from tracegrad.transforms.custom import custom_jvp, custom_vjp
from tracegrad.tree import register_pytree_node
from tracegrad.visualize import visualize

__version__ = "0.1.0"

# PyTorch's namespaces are found where PyTorch has them: `import tracegrad.nn.functional as F`.
for _name, _module in list(sys.modules.items()):
    if _name.split(".")[:2] == ["tracegrad", "torch"] and _name.split(".")[2:3] in (
        ["autograd"], ["cuda"], ["linalg"], ["nn"], ["special"],
    ):  # fmt: skip
        sys.modules[_name.replace("tracegrad.torch.", "tracegrad.", 1)] = _module

__all__ = [
    "CacheWarning",
    "CapacityError",
    "DTypeError",
    "DerivativeWarning",
    "ShapeError",
    "Tensor",
    "TraceError",
    "TracegradError",
    "UnsupportedError",
    "VerifyError",
    "associative_scan",
    "autograd",
    "checkpoint",
    "checkpoint_name",
    "checkpoint_policies",
    "cond",
    "cuda",
    "custom_jvp",
    "custom_vjp",
    "disable_jit",
    "enable_grad",
    "errors",
    "fori_loop",
    "from_numpy",
    "func",
    "grad",
    "hessian",
    "hvp",
    "inference_mode",
    "is_anomaly_check_nan_enabled",
    "is_anomaly_enabled",
    "is_grad_enabled",
    "is_inference_mode_enabled",
    "jacfwd",
    "jacobian",
    "jacrev",
    "jvp",
    "linalg",
    "linearize",
    "map",
    "nn",
    "no_grad",
    "register_pytree_node",
    "scan",
    "set_grad_enabled",
    "settings",
    "special",
    "stop_gradient",
    "switch",
    "tensor",
    "trace",
    "tree",
    "value_and_grad",
    "visualize",
    "vjp",
    "vmap",
    "while_loop",
]  # fmt: skip

# PyTorch's names of tensor functions, of what makes Tensors, and of dtypes; tracegrad's own names come first.
_torch: dict[str, Any] = {**dtypes.DTYPES, "Size": tuple, "numel": Tensor.numel}
_torch |= {"get_printoptions": printing.get_printoptions, "set_printoptions": printing.set_printoptions}
for _module in (dtypes, factories, random, conversion):
    _torch.update({name: getattr(_module, name) for name in _module.__all__})
_torch.update(FUNCTIONS)
_torch = {name: value for name, value in _torch.items() if name not in __all__}
globals().update(_torch)
__all__.extend(_torch)


def __getattr__(name: str) -> Any:
    near = [known for known in __all__ if name.lower() in known.lower() or known.lower() in name.lower()]
    hint = f"; similar names are {', '.join(near[:8])}" if near else ""
    raise AttributeError(f"tracegrad has no {name!r}{hint}")
