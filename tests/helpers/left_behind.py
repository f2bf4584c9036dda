"""What a module of tests must leave as it found it: what is registered, what is switched, and the environment."""

from __future__ import annotations

import gc
import os
import re
import threading
import types
from collections.abc import Iterable
from typing import Any

import numpy as np

import tracegrad as tg
from tracegrad.numpy_api.registry import FUNCTIONS, UFUNC_METHODS, UFUNCS
from tracegrad.ops import TABLE
from tracegrad.settings import jit_disabled, settings
from tracegrad.trace.builder.gc_pause import thresholds

__all__ = ["state"]

REGISTRIES: tuple[dict[Any, Any], ...] = (FUNCTIONS, UFUNCS, UFUNC_METHODS)


def state() -> dict[str, Any]:
    """What there is, by name. What the package itself registers when it is needed does not count, nor does what is
    still compiled beside calls that have been answered."""
    for thread in threading.enumerate():
        if thread.name == "tracegrad compiler":
            thread.join(timeout=60)
    return {
        "ops": _foreign((op.name, op.impl_unchecked) for op in TABLE.values()),
        "functions": _foreign((repr(key), f) for table in REGISTRIES for key, f in table.items()),
        "settings": re.sub("num_threads=None", f"num_threads={settings.thread_count()}", repr(settings)),
        "jit": not jit_disabled(),
        "gradients": (tg.is_grad_enabled(), tg.is_inference_mode_enabled()),
        "dtype": repr(tg.get_default_dtype()),
        "errors": np.geterr(),
        "collector": (gc.isenabled(), thresholds()),  # not those of a thread that still traces
        "threads": sorted(thread.name for thread in threading.enumerate() if not thread.daemon),
        **{name: x for name, x in os.environ.items() if name.startswith("TRACEGRAD_")},
    }


def _foreign(rows: Iterable[tuple[str, Any]]) -> list[str]:
    return sorted(name for name, f in rows if isinstance(f, types.FunctionType) and not _ours(f))


def _ours(f: types.FunctionType) -> bool:
    return f.__module__.startswith("tracegrad.")
