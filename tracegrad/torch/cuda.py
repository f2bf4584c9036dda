"""Namespace of `torch.cuda` without a device: tracegrad computes on the CPU."""

from __future__ import annotations

__all__ = ["device_count", "is_available"]


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
