"""Namespace of `torch.serialization`: save and load Tensors, and what a file may name."""

from __future__ import annotations

from tracegrad.torch.serialization.files import load, save
from tracegrad.torch.serialization.safe_globals import (
    add_safe_globals,
    clear_safe_globals,
    get_safe_globals,
    safe_globals,
)

__all__ = ["add_safe_globals", "clear_safe_globals", "get_safe_globals", "load", "safe_globals", "save"]
