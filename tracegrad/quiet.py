"""NumPy's floating-point traps: off for one op, and whether they are on.

Off, that is `np.errstate(all="ignore")` at a fifth of its cost.

`errstate` builds its state anew and is entered through Python; an eager op of 2 microseconds cannot afford the one it
costs. The state is a context variable, which is set and reset here directly; where NumPy keeps it elsewhere, `errstate`
is what is used.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["QUIET", "USUAL", "reset_traps", "set_traps", "sprung", "traps"]

QUIET: Any
traps: Callable[[], Any]
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
    set_traps, reset_traps, traps = _extobj_contextvar.set, _extobj_contextvar.reset, _extobj_contextvar.get
except (ImportError, TypeError):
    QUIET, set_traps, reset_traps, traps = None, _enter, _leave, np.geterr


# NumPy's state as it begins, in which floating-point errors warn.
USUAL = contextvars.Context().run(traps)
_harmless: Any = USUAL


def sprung() -> bool:
    """Whether NumPy is asked to do more about floating-point errors than to warn.

    `traps() is not USUAL and sprung()` says the same, mostly by a comparison.

    >>> sprung()
    False
    >>> with np.errstate(over="raise"):
    ...     sprung()
    True
    """
    global _harmless
    now = traps()
    if now is not _harmless:
        if not {"ignore", "warn"}.issuperset(np.geterr().values()):
            return True
        _harmless = now  # and is kept alive, so that there can be no other at its address
    return False
