"""Modules that a trace imports on first use: arrays with symbolic sizes, and Tensors."""

from __future__ import annotations

import functools
import importlib
from typing import Any

from tracegrad.trace.builder.builder import TraceBuilder
from tracegrad.trace.builder.hooks import HOOKS, RaggedArrays


@functools.cache
def _ragged_arrays() -> RaggedArrays:
    return importlib.import_module("tracegrad.trace.ragged.ragged_array")


def _tensors(builder: TraceBuilder) -> Any:
    from tracegrad.trace.driver.tensors import Tensors

    return Tensors(builder)


HOOKS.ragged_arrays = _ragged_arrays
HOOKS.tensors = _tensors
