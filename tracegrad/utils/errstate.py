"""Floating-point error state of NumPy: ignore errors during one op, and query the state.

Ignoring errors equals `np.errstate(all="ignore")` at a fraction of its cost. `errstate` builds its state anew and is
entered through Python, which is too expensive for a small eager op. The state is a context variable, which is set and
reset here directly. If NumPy stores it elsewhere, `errstate` is used.
"""

from __future__ import annotations

import contextvars
import types
from collections.abc import Callable
from typing import Any

import numpy as np

QUIET: Any
TRAPS: Any
traps: Callable[[], Any]
set_traps: Callable[[Any], Any]
restore_traps: Callable[[Any], Any]


def _enter(state: object) -> None:
    np.seterr(all="ignore")


def _restore(errors: Any) -> None:
    np.seterr(**errors)


try:
    from numpy._core.umath import _extobj_contextvar, _make_extobj

    QUIET, TRAPS = _make_extobj(all="ignore"), _extobj_contextvar
    set_traps, traps = TRAPS.set, TRAPS.get
    restore_traps = set_traps
except (ImportError, TypeError):
    QUIET, TRAPS, set_traps, traps = None, None, _enter, np.geterr
    restore_traps = _restore


# NumPy's initial state, in which floating-point errors warn.
USUAL = contextvars.Context().run(traps)
# The last other state seen in which errors at most warn. The cell keeps it alive, so that its address stays unique.
HARMLESS = types.CellType(USUAL)


def sprung() -> bool:
    """Whether NumPy is configured to do more about floating-point errors than to warn.

    `traps() is not USUAL and sprung()` is equivalent, mostly by a comparison.

    >>> sprung()
    False
    >>> with np.errstate(over="raise"):
    ...     sprung()
    True
    """
    now = traps()
    if now is not HARMLESS.cell_contents:
        if not {"ignore", "warn"}.issuperset(np.geterr().values()):
            return True
        HARMLESS.cell_contents = now
    return False


_last: tuple[Any, str] = (None, "")


def handling() -> str:
    """Describe NumPy's handling of floating-point errors.

    >>> "'over': 'warn'" in handling()
    True
    """
    global _last
    now, last = traps(), _last
    if now is not last[0]:
        last = _last = now, str(np.geterr())
    return last[1]


def noted() -> bool:
    """Whether NumPy's state is harmless but was not known to be; from now on it is known.

    >>> with np.errstate(over="ignore"):
    ...     noted(), noted()
    (True, False)
    """
    now = traps()
    return now is not USUAL and now is not HARMLESS.cell_contents and not sprung()
