"""Context of `autocast`, which changes no dtype: computations are in the dtype of their operands."""

from __future__ import annotations

import threading
import warnings
from contextlib import ContextDecorator
from typing import Any

from tracegrad.errors import located
from tracegrad.torch.tape.tensors.dtypes import DTYPES, bfloat16
from tracegrad.typing import DTypeLike

__all__ = [
    "autocast",
    "custom_bwd",
    "custom_fwd",
    "get_autocast_dtype",
    "is_autocast_available",
    "is_autocast_enabled",
]

# Types of devices for which PyTorch has the context.
_TYPES = ("cpu", "cuda", "hpu", "ipu", "maia", "meta", "mps", "mtia", "xla", "xpu", "privateuseone")


class _AutocastState(threading.local):
    """Whether the context of the CPU is enabled in this thread, and its dtype."""

    enabled = False
    dtype: Any = bfloat16


_STATE = _AutocastState()


class autocast(ContextDecorator):
    """Context manager or decorator around code of mixed precision, which computes in the dtypes that it has here.

    Parameters
    ----------
    device_type : str
        Type of the device. Without effect; for another one than the CPU, a UserWarning.
    dtype : dtype, optional
        Dtype that PyTorch would compute in; without effect.
    enabled : bool, default True
        Whether `is_autocast_enabled("cpu")` is True inside.
    cache_enabled : bool, optional
        Without effect.

    Raises
    ------
    ValueError
        If `device_type` is not a str.
    RuntimeError
        If there is no such type of devices.

    Examples
    --------
    >>> from tracegrad import ones, float32
    >>> with autocast("cpu"):
    ...     (ones(2, dtype=float32) * 2).dtype
    torch.float32
    """

    def __init__(
        self, device_type: str, dtype: DTypeLike = None, enabled: bool = True, cache_enabled: bool | None = None
    ):
        if not isinstance(device_type, str):
            text = f"Expected `device_type` of type `str`, got: `{type(device_type)}`"
            raise ValueError(located(text))
        self.device = str(device_type)
        if not is_autocast_available(self.device):
            raise RuntimeError(located(f"User specified an unsupported autocast device_type '{self.device}'"))
        if enabled and self.device != "cpu":
            text = f"User provided device_type of '{self.device}', but it is not available. Disabling"
            warnings.warn(located(text), UserWarning, stacklevel=2)
            enabled = False
        self.enabled, self.dtype = enabled, bfloat16 if dtype is None else dtype
        self._before: list[tuple[bool, Any]] = []

    def __enter__(self) -> autocast:
        self._before.append((_STATE.enabled, _STATE.dtype))
        if self.device == "cpu":
            _STATE.enabled, _STATE.dtype = self.enabled, self.dtype
        return self

    def __exit__(self, *_: object) -> None:
        _STATE.enabled, _STATE.dtype = self._before.pop()


def is_autocast_available(device_type: str) -> bool:
    """Return whether `autocast` knows a type of devices.

    Parameters
    ----------
    device_type : str
        Type of the device.

    Returns
    -------
    bool
        Answer.

    Examples
    --------
    >>> is_autocast_available("cpu")
    True
    """
    return device_type in _TYPES


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Return whether this thread is inside of an enabled `autocast` of a type of devices.

    Parameters
    ----------
    device_type : str, default "cuda"
        Type of the device.

    Returns
    -------
    bool
        Answer, which is False for other devices than the CPU.

    Examples
    --------
    >>> with autocast("cpu"):
    ...     is_autocast_enabled("cpu"), is_autocast_enabled()
    (True, False)
    """
    return device_type == "cpu" and _STATE.enabled


def get_autocast_dtype(device_type: str) -> Any:
    """Return the dtype of `autocast` for a type of devices, which is without effect.

    Parameters
    ----------
    device_type : str
        Type of the device.

    Returns
    -------
    dtype
        Dtype.

    Examples
    --------
    >>> get_autocast_dtype("cuda")
    torch.float16
    """
    return _STATE.dtype if device_type == "cpu" else DTYPES["float16"]


def custom_fwd(fwd: object = None, *, device_type: str = "cuda", cast_inputs: object = None) -> Any:
    """Decorate `forward` of a `Function` for `autocast`; the function itself, which has no other dtypes here.

    Parameters
    ----------
    fwd : callable, optional
        Function; without it, the result is the decorator.
    device_type : str, default "cuda"
        Without effect.
    cast_inputs : dtype, optional
        Without effect.

    Returns
    -------
    callable
        Function or decorator.

    Examples
    --------
    >>> custom_fwd(abs) is custom_fwd(device_type="cpu")(abs) is abs
    True
    """
    return (lambda function: function) if fwd is None else fwd


def custom_bwd(bwd: object = None, *, device_type: str = "cuda") -> Any:
    """Decorate `backward` of a `Function` for `autocast`; the function itself, which has no other dtypes here.

    Parameters
    ----------
    bwd : callable, optional
        Function; without it, the result is the decorator.
    device_type : str, default "cuda"
        Without effect.

    Returns
    -------
    callable
        Function or decorator.

    Examples
    --------
    >>> custom_bwd(abs) is custom_bwd(device_type="cpu")(abs) is abs
    True
    """
    return (lambda function: function) if bwd is None else bwd
