"""Utilities independent of derivatives: logging, formatting, lazy imports, pickling.

PyTorch has a namespace of this name. Its modules are found here too.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

OF_PYTORCH = ("checkpoint", "data")


def __getattr__(name: str) -> ModuleType:
    if name in OF_PYTORCH:
        return import_module(f"tracegrad.torch.utils.{name}")
    raise AttributeError(f"{__name__} has no {name!r}", name=name)
