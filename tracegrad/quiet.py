"""Floating-point traps off for one op: `np.errstate(all="ignore")` at a fifth of its cost.

`errstate` builds its state anew and is entered through Python; an eager op of 2 microseconds cannot afford the one it
costs. The state is a context variable, which is set and reset here directly; where NumPy keeps it elsewhere, `errstate`
is what is used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["QUIET", "reset_traps", "set_traps"]

QUIET: Any
set_traps: Callable[[Any], Any]
reset_traps: Callable[[Any], None]


def _enter(state: Any) -> Any:
    context = np.errstate(all="ignore")
    context.__enter__()
    return context


def _leave(context: Any) -> None:
    context.__exit__(None, None, None)


try:
    from numpy._core.umath import _extobj_contextvar, _make_extobj

    QUIET = _make_extobj(all="ignore")
    set_traps, reset_traps = _extobj_contextvar.set, _extobj_contextvar.reset
except (ImportError, TypeError):
    QUIET, set_traps, reset_traps = None, _enter, _leave
