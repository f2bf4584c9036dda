"""Import modules above the value layer by name on first use (late binding)."""

from __future__ import annotations

import functools
import importlib
from types import ModuleType

__all__ = ["ragged_arrays", "tensors"]


@functools.cache
def ragged_arrays() -> ModuleType:
    """The module of arrays with symbolic sizes."""
    return importlib.import_module("tracegrad.trace.ragged.ragged_array")


@functools.cache
def tensors() -> ModuleType:
    """The module of Tensors in a trace."""
    return importlib.import_module("tracegrad.trace.driver.tensors")
