"""Remove all fast paths when `settings.disable` changes, because a fast path reads no setting.

The slow path then looks for a specialization in the table of the new value (`specializations.SpecializationStore`). A
function that runs as plain Python, because that was faster or because it was retraced too often, is compiled again.
"""

from __future__ import annotations

import weakref
from typing import Any

from tracegrad.locks import new_lock
from tracegrad.settings import settings

_functions: weakref.WeakSet[Any] = weakref.WeakSet()
_lock = new_lock()


def register(function: object) -> None:
    """Add a traced function, as long as it lives."""
    with _lock:
        _functions.add(function)


def _setting_changed() -> None:
    with _lock:
        functions = list(_functions)
    for function in functions:
        function.cool()


settings.watch("disable", _setting_changed)
