"""Namespace of `torch.amp`: names for mixed precision."""

from __future__ import annotations

from tracegrad.torch.amp.autocast_mode import autocast, custom_bwd, custom_fwd, is_autocast_available
from tracegrad.torch.amp.grad_scaler import GradScaler

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]
