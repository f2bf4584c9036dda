"""JIT-compiled, static-graph autograd compiler for NumPy code, with an eager mode like PyTorch's.

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

The package also has PyTorch's names of tensor functions and dtypes (`tg.sin`, `tg.float32`), and the names of
`torch.autograd` in `tg.autograd`. `tg.grad` and `tg.vjp` transform functions; `tg.trace` compiles.
"""

from typing import TYPE_CHECKING, Any

from tracegrad.trace.builder.gc_pause import at_rest

with at_rest():
    from tracegrad import errors, tree
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
    from tracegrad.control.associative_scan import associative_scan
    from tracegrad.control.checkpoint import checkpoint, checkpoint_name, checkpoint_policies
    from tracegrad.control.conditional import cond, switch
    from tracegrad.control.loops import fori_loop, map, scan, while_loop
    from tracegrad.errors import (
        CacheWarning,
        CapacityError,
        DerivativeWarning,
        DTypeError,
        LostDerivativeError,
        PerformanceWarning,
        ShapeError,
        TraceError,
        TracegradError,
        UnsupportedError,
        VerifyError,
    )
    from tracegrad.settings import disable_jit, settings
    from tracegrad.tree import register_pytree_node
    from tracegrad.utils import OF_PYTORCH as _IN_UTILS
    from tracegrad.utils import lazy_import

if TYPE_CHECKING:
    from tracegrad import compiler, dask, func, implicit, random, scipy
    from tracegrad.audit import check
    from tracegrad.compiler import compile
    from tracegrad.torch import (
        accelerator,
        amp,
        array_api,
        autograd,
        cuda,
        distributions,
        fft,
        linalg,
        masked,
        multiprocessing,
        nn,
        optim,
        serialization,
        signal,
        special,
        testing,
    )
    from tracegrad.torch.autograd.anomaly_mode import is_anomaly_check_nan_enabled, is_anomaly_enabled
    from tracegrad.torch.modes import (
        enable_grad,
        inference_mode,
        is_grad_enabled,
        is_inference_mode_enabled,
        no_grad,
        set_grad_enabled,
    )
    from tracegrad.torch.serialization import load, save
    from tracegrad.torch.tape import Tensor
    from tracegrad.torch.tape.tensors.factories import from_numpy, tensor
    from tracegrad.transforms.custom_rules import custom_jvp, custom_vjp
    from tracegrad.transforms.opaque import opaque
    from tracegrad.visualization import visualize

__version__ = "0.1.0"

__all__ = [
    "CacheWarning",
    "CapacityError",
    "DTypeError",
    "DerivativeWarning",
    "LostDerivativeError",
    "PerformanceWarning",
    "ShapeError",
    "Tensor",
    "TraceError",
    "TracegradError",
    "UnsupportedError",
    "VerifyError",
    "accelerator",
    "amp",
    "array_api",
    "associative_scan",
    "autograd",
    "check",
    "checkpoint",
    "checkpoint_name",
    "checkpoint_policies",
    "compile",
    "compiler",
    "cond",
    "cuda",
    "custom_jvp",
    "custom_vjp",
    "dask",
    "disable_jit",
    "distributions",
    "enable_grad",
    "errors",
    "fft",
    "fori_loop",
    "from_numpy",
    "func",
    "grad",
    "hessian",
    "hvp",
    "implicit",
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
    "load",
    "map",
    "masked",
    "multiprocessing",
    "nn",
    "no_grad",
    "opaque",
    "optim",
    "random",
    "register_pytree_node",
    "save",
    "scan",
    "scipy",
    "serialization",
    "set_grad_enabled",
    "settings",
    "signal",
    "special",
    "stop_gradient",
    "switch",
    "tensor",
    "testing",
    "trace",
    "tree",
    "value_and_grad",
    "visualize",
    "vjp",
    "vmap",
    "while_loop",
]

# Names that a gradient of a NumPy function does not need are imported at their first use: the names below, PyTorch's
# namespaces under PyTorch's paths (`import tracegrad.nn.functional as F`), and PyTorch's names of tensor functions,
# factories and dtypes. tracegrad's own names come first.
_find, _names = lazy_import.names(
    globals(),
    modules={
        "compiler": "tracegrad.compiler",
        "dask": "tracegrad.dask",
        "func": "tracegrad.func",
        "implicit": "tracegrad.implicit",
        "random": "tracegrad.random",
        "scipy": "tracegrad.scipy",
        **{
            name: f"tracegrad.torch.{name}"
            for name in (
                "accelerator",
                "amp",
                "array_api",
                "autograd",
                "cuda",
                "distributions",
                "fft",
                "linalg",
                "masked",
                "multiprocessing",
                "nn",
                "optim",
                "serialization",
                "signal",
                "special",
                "testing",
                *(f"utils.{name}" for name in _IN_UTILS),
            )
        },
    },
    members={
        "check": "tracegrad.audit",
        "compile": "tracegrad.compiler",
        "custom_jvp": "tracegrad.transforms.custom_rules",
        "custom_vjp": "tracegrad.transforms.custom_rules",
        "load": "tracegrad.torch.serialization",
        "opaque": "tracegrad.transforms.opaque",
        "save": "tracegrad.torch.serialization",
        "visualize": "tracegrad.visualization",
    },
    others="tracegrad.torch.exports",
    absent={
        "backends": "computations are by NumPy and LLVM on the CPU, and `tracegrad.settings` is in place of backends",
        "distributed": "`tracegrad.dask` computes gradients over chunks of data, in processes and on clusters",
        "fx": "`tracegrad.trace(f).graph(*args)` is the graph of a function",
        "jit": "`tracegrad.trace(f)` compiles a function or a module",
    },
)


def __getattr__(name: str) -> Any:
    return _find(name)


def __dir__() -> list[str]:
    return _names()
