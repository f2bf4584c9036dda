"""Namespace of `torch.cuda.amp`, the older names of `torch.amp`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracegrad.torch import amp
from tracegrad.torch.amp import custom_bwd, custom_fwd

if TYPE_CHECKING:
    from tracegrad.typing import DTypeLike


__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]


def autocast(enabled: bool = True, dtype: DTypeLike = None, cache_enabled: bool = True) -> amp.autocast:
    """Return `torch.amp.autocast("cuda")`, which changes no dtype.

    Parameters
    ----------
    enabled : bool, default True
        True gives a UserWarning: there is no CUDA device.
    dtype : dtype, optional
        Without effect.
    cache_enabled : bool, default True
        Without effect.

    Returns
    -------
    autocast
        Context manager and decorator.

    Examples
    --------
    >>> with autocast(enabled=False):
    ...     pass
    """
    return amp.autocast("cuda", dtype, enabled, cache_enabled)


def GradScaler(
    init_scale: float = 2.0**16,
    growth_factor: float = 2.0,
    backoff_factor: float = 0.5,
    growth_interval: int = 2000,
    enabled: bool = True,
) -> amp.GradScaler:
    """Return `torch.amp.GradScaler("cuda")`, which is not enabled.

    Parameters
    ----------
    init_scale : float, default 65536.0
        First factor.
    growth_factor : float, default 2.0
        Factor by which the factor grows.
    backoff_factor : float, default 0.5
        Factor by which the factor shrinks.
    growth_interval : int, default 2000
        Number of steps after which the factor grows.
    enabled : bool, default True
        True gives a UserWarning: there is no CUDA device.

    Returns
    -------
    GradScaler
        Scaler.

    Examples
    --------
    >>> GradScaler(enabled=False).is_enabled()
    False
    """
    return amp.GradScaler("cuda", init_scale, growth_factor, backoff_factor, growth_interval, enabled)
