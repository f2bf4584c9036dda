"""NumPy protocol of Tensors: operations of NumPy and SciPy that mix Tensors with ndarrays.

An ndarray has no derivative. A Tensor that does not require grad is written into an ndarray as numbers. A Tensor that
requires grad raises an error that names the alternative. No derivative is lost silently.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from tracegrad.cpython.frames import frame_at
from tracegrad.errors import WARNED, UnsupportedError, is_installed, located, user_file
from tracegrad.numpy_api.registry import public_name, public_ufunc
from tracegrad.ops.core.dispatch import DispatchLevel
from tracegrad.ops.core.op import Carrier, dispatch_operand
from tracegrad.torch.modes import STATE

# Result for a call that does not write into ndarrays.
NOT_HANDLED = object()

_WRITING = frozenset({np.put, np.place, np.putmask, np.copyto, np.put_along_axis})


def of_ufunc(ufunc: np.ufunc, method: str, inputs: tuple[object, ...], kwargs: dict[str, object]) -> object:
    """Compute a ufunc that writes into ndarrays; `NOT_HANDLED` for other calls."""
    if not _writes(kwargs.get("out")) and not (method == "at" and isinstance(inputs[0], np.ndarray)):
        return NOT_HANDLED
    name = public_ufunc(ufunc) + ("" if method == "__call__" else f".{method}")
    return _by_numpy(name, getattr(ufunc, method), inputs, kwargs)


def of_function(function: object, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
    """Compute a NumPy function that writes into ndarrays; `NOT_HANDLED` for other calls."""
    target = kwargs.get("out") if function not in _WRITING else args[0] if args else next(iter(kwargs.values()))
    return _by_numpy(public_name(function), function, args, kwargs) if _writes(target) else NOT_HANDLED


def _writes(out: object) -> bool:
    args = out if isinstance(out, tuple) else (out,)
    return any(isinstance(x, np.ndarray) for x in args) and not any(isinstance(x, Carrier) for x in args)


def _by_numpy(name: str, function: Any, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
    first = dispatch_operand((*args, *kwargs.values()))
    if first is not None and first.level is not DispatchLevel.TENSOR:
        return NOT_HANDLED
    return function(*[_numbers(name, x) for x in args], **{k: _numbers(name, x) for k, x in kwargs.items()})


def _numbers(name: str, x: object) -> object:
    if isinstance(x, list | tuple):
        return type(x)([_numbers(name, v) for v in x])
    if not isinstance(x, Carrier):
        return x
    if x.requires_grad and STATE.enabled:  # type: ignore[attr-defined]
        WARNED.refused += 1
        raise UnsupportedError(
            located(
                f"{name} writing a Tensor that requires grad into an ndarray, which holds no derivative, is not "
                "supported; use the result, write into a Tensor (tg.zeros), or make the array in a function that is "
                "decorated with @trace; or give x.detach() if the number is meant"
            )
        )
    return x.array  # type: ignore[attr-defined]


def no_ndarray() -> str:
    """Return the advice for a Tensor that requires grad and is converted to an ndarray."""
    return (
        f"To keep the derivative, {_asking()} in a function that is decorated with @trace, or use tracegrad's own "
        "functions, as tg.stack for np.array of Tensors."
    )


def _asking() -> str:
    """Name the calling SciPy function, by its public name if the user has called it."""
    result, frame = "", frame_at(1)
    while frame is not None:
        home = frame.f_globals.get("__name__", "")
        if user_file(frame.f_code.co_filename) and not is_installed(frame.f_code.co_filename):
            break
        if home.startswith("scipy."):
            package = home.partition("._")[0]
            name = frame.f_code.co_name
            public = callable(getattr(sys.modules.get(package), name, None))
            result = f"{package}.{name}" if public else result or "SciPy's function"
        frame = frame.f_back  # type: ignore[assignment]
    return f"call {result}" if result else "do this"
