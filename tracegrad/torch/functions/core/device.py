"""Devices: the class `device`, whose only usable value is the CPU, and the default device.

A device of another type can be named, so that programs can compare it. `check_device` refuses it when a Tensor is to
be there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from tracegrad.errors import located

if TYPE_CHECKING:
    from tracegrad.typing import DeviceLike


__all__ = ["device", "get_default_device", "set_default_device"]

F = TypeVar("F", bound=Callable[..., Any])

# Types of devices of PyTorch, in the order of its error text.
_TYPES = (
    *("cpu", "cuda", "ipu", "xpu", "mkldnn", "opengl", "opencl", "ideep", "hip", "ve", "fpga", "maia", "xla", "lazy"),
    *("vulkan", "mps", "meta", "hpu", "mtia", "privateuseone"),
)


class device(str):
    """Device: a type and an index. Tensors are on the CPU, and other devices can only be named.

    It is a text such as "cpu", to which it compares equal. As a context manager or decorator, it is the device of new
    Tensors.

    Parameters
    ----------
    type : str or int
        Type, such as "cpu", also with an index, such as "cpu:0". A number is the index of a CUDA device.
    index : int, optional
        Number of the device.

    Raises
    ------
    RuntimeError
        If the type is unknown or the index is none. As a context manager, if the device is not the CPU.

    Examples
    --------
    >>> device("cuda", 0), device("cpu").type, device("cpu").index
    (device(type='cuda', index=0), 'cpu', None)
    """

    __slots__ = ("index", "type")
    type: str
    index: Any

    def __new__(cls, type: str | int, index: int | None = None) -> device:
        kind, number = _parsed(type, index)
        self = super().__new__(cls, kind if number is None else f"{kind}:{number}")
        self.type, self.index = kind, number
        return self

    def __repr__(self) -> str:
        index = "" if self.index is None else f", index={self.index}"
        return f"device(type={self.type!r}{index})"

    def __reduce__(self) -> tuple[Any, ...]:
        return device, (self.type,) if self.index is None else (self.type, self.index)

    def __enter__(self) -> device:
        check_device(self)
        return self

    def __exit__(self, *_: object) -> None: ...

    def __call__(self, fn: F) -> F:
        @functools.wraps(fn)
        def call(*args: object, **kwargs: object) -> Any:
            with self:
                return fn(*args, **kwargs)

        return call  # type: ignore[return-value]


def _parsed(type: Any, index: int | None) -> tuple[str, int | None]:
    """Return the type and the index of a device that is written as in PyTorch: `"cuda:1"`, or `"cuda", 1`, or 1."""
    if isinstance(type, int) and not isinstance(type, bool):
        type, index = "cuda", type
    if not isinstance(type, str):
        kind = type.__class__.__name__
        raise TypeError(located(f"device(): argument 'type' (position 1) must be str, not {kind}"))
    kind, colon, number = str(type).partition(":")
    if kind not in _TYPES:
        expected = f"Expected one of {', '.join(_TYPES)} device type at start of device string: {kind}"
        raise RuntimeError(located(expected))
    if colon and not number.isdecimal():
        raise RuntimeError(located(f"Invalid device string: '{type}'"))
    if colon and index is not None:
        text = "type (string) must not include an index because index was passed explicitly"
        raise RuntimeError(located(f"{text}: {type}"))
    if index is not None and index < 0:
        raise RuntimeError(located("Device index must not be negative"))
    return kind, int(number) if colon else index


CPU = device("cpu")


def is_device(x: object) -> bool:
    """Whether an argument of `to` is a device: an object, a text that begins with a type, or the number of one."""
    if isinstance(x, int):
        return not isinstance(x, bool)
    return isinstance(x, str) and x.partition(":")[0] in _TYPES


def check_device(device: object) -> None:
    """Raise RuntimeError unless `device` is None or the CPU."""
    if device is None or device is CPU:
        return
    kind, index = _parsed(device if isinstance(device, int) else str(device), None)
    if kind != "cpu":
        name = kind if index is None else f"{kind}:{index}"
        text = f"tracegrad computes on the CPU: there is no device {name!r}; leave it out, or pass 'cpu'"
        raise RuntimeError(located(text))


def get_default_device() -> device:
    """Return the device of new Tensors: the CPU.

    Returns
    -------
    device
        Device.

    Examples
    --------
    >>> get_default_device()
    device(type='cpu')
    """
    return CPU


def set_default_device(device: DeviceLike) -> None:
    """Set the device of new Tensors, which can only be the CPU.

    Parameters
    ----------
    device : str or device
        Device, or None for the CPU.

    Raises
    ------
    RuntimeError
        If it is not the CPU.

    Examples
    --------
    >>> set_default_device("cpu")
    """
    check_device(device)
