"""Namespace of `torch.accelerator` without a device: tracegrad computes on the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from tracegrad.errors import located

if TYPE_CHECKING:
    from tracegrad.typing import DeviceLike


__all__ = [
    "current_accelerator",
    "current_device_index",
    "device_count",
    "is_available",
    "set_device_index",
    "synchronize",
]


def is_available() -> bool:
    """Return whether there is a device other than the CPU, which there never is.

    Returns
    -------
    bool
        False.

    Examples
    --------
    >>> is_available()
    False
    """
    return False


def device_count() -> int:
    """Return the number of devices other than the CPU, which is 0.

    Returns
    -------
    int
        0.

    Examples
    --------
    >>> device_count()
    0
    """
    return 0


def current_accelerator(check_available: bool = False) -> None:
    """Return the device other than the CPU, which is None.

    Parameters
    ----------
    check_available : bool, default False
        Without effect.

    Returns
    -------
    None
        None.

    Examples
    --------
    >>> current_accelerator() is None
    True
    """
    return


def current_device_index() -> int:
    """Raise RuntimeError: there is no device other than the CPU.

    Returns
    -------
    int
        Never.

    Raises
    ------
    RuntimeError
        Always.

    Examples
    --------
    >>> current_device_index()  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    RuntimeError: Cannot access accelerator device when none is available...
    """
    _refuse()


def set_device_index(device: DeviceLike, /) -> None:
    """Raise RuntimeError: there is no device other than the CPU.

    Parameters
    ----------
    device : device, str or int
        Device.

    Raises
    ------
    RuntimeError
        Always.

    Examples
    --------
    >>> set_device_index(0)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    RuntimeError: Cannot access accelerator device when none is available...
    """
    _refuse()


def synchronize(device: DeviceLike = None, /) -> None:
    """Raise RuntimeError: there is no device other than the CPU.

    Parameters
    ----------
    device : device, str or int, optional
        Device.

    Raises
    ------
    RuntimeError
        Always.

    Examples
    --------
    >>> synchronize()  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    RuntimeError: Cannot access accelerator device when none is available...
    """
    _refuse()


def _refuse() -> NoReturn:
    raise RuntimeError(
        located("Cannot access accelerator device when none is available: tracegrad computes on the CPU")
    )
