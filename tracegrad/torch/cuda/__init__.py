"""Namespace of `torch.cuda` without a device: tracegrad computes on the CPU.

Questions are answered, and what would have no effect has none. All that needs a device raises RuntimeError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracegrad.torch.functions.core.device import check_device

if TYPE_CHECKING:
    from tracegrad.typing import DeviceLike


__all__ = [
    "current_device",
    "device_count",
    "empty_cache",
    "get_device_name",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "memory_allocated",
    "set_device",
    "synchronize",
]


def is_available() -> bool:
    """Return whether CUDA is available, which it never is.

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


def is_initialized() -> bool:
    """Return whether CUDA has been initialized, which it never is.

    Returns
    -------
    bool
        False.

    Examples
    --------
    >>> is_initialized()
    False
    """
    return False


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Return whether the device computes in bfloat16, for which there is no device.

    Parameters
    ----------
    including_emulation : bool, default True
        Without effect.

    Returns
    -------
    bool
        False.

    Examples
    --------
    >>> is_bf16_supported()
    False
    """
    return False


def device_count() -> int:
    """Return the number of CUDA devices, which is 0.

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


def manual_seed(seed: int) -> None:
    """Do nothing: there is no generator of a CUDA device.

    Parameters
    ----------
    seed : int
        Seed.

    Examples
    --------
    >>> manual_seed(0)
    """


def manual_seed_all(seed: int) -> None:
    """Do nothing: there are no generators of CUDA devices.

    Parameters
    ----------
    seed : int
        Seed.

    Examples
    --------
    >>> manual_seed_all(0)
    """


def empty_cache() -> None:
    """Do nothing: there is no memory of a CUDA device.

    Examples
    --------
    >>> empty_cache()
    """


def memory_allocated(device: DeviceLike = None) -> int:
    """Return the number of bytes of Tensors on a CUDA device, which is 0.

    Parameters
    ----------
    device : device or int, optional
        Without effect.

    Returns
    -------
    int
        0.

    Examples
    --------
    >>> memory_allocated()
    0
    """
    return 0


def max_memory_allocated(device: DeviceLike = None) -> int:
    """Return the largest number of bytes of Tensors on a CUDA device, which is 0.

    Parameters
    ----------
    device : device or int, optional
        Without effect.

    Returns
    -------
    int
        0.

    Examples
    --------
    >>> max_memory_allocated()
    0
    """
    return 0


def current_device() -> int:
    """Raise RuntimeError: there is no CUDA device.

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
    >>> current_device()  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    RuntimeError: tracegrad computes on the CPU: there is no device ...
    """
    check_device("cuda")
    return 0


def get_device_name(device: DeviceLike = None) -> str:
    """Raise RuntimeError: there is no CUDA device.

    Parameters
    ----------
    device : device or int, optional
        Device.

    Returns
    -------
    str
        Never.

    Raises
    ------
    RuntimeError
        Always.

    Examples
    --------
    >>> get_device_name(0)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    RuntimeError: tracegrad computes on the CPU: there is no device ...
    """
    check_device("cuda")
    return ""


def set_device(device: DeviceLike) -> None:
    """Raise RuntimeError: there is no CUDA device.

    Parameters
    ----------
    device : device or int
        Device; a negative number does nothing.

    Raises
    ------
    RuntimeError
        If the number is not negative.

    Examples
    --------
    >>> set_device(-1)
    """
    if not isinstance(device, int) or device >= 0:
        check_device("cuda")


def synchronize(device: DeviceLike = None) -> None:
    """Raise RuntimeError: there is no CUDA device.

    Parameters
    ----------
    device : device or int, optional
        Device.

    Raises
    ------
    RuntimeError
        Always.

    Examples
    --------
    >>> synchronize()  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    RuntimeError: tracegrad computes on the CPU: there is no device ...
    """
    check_device("cuda")
