"""Namespace of `torch.cuda` without a device: tracegrad computes on the CPU."""

from __future__ import annotations

__all__ = ["device_count", "is_available"]


def is_available() -> bool:
    """False.

    >>> is_available()
    False
    """
    return False


def device_count() -> int:
    """0.

    >>> device_count()
    0
    """
    return 0
