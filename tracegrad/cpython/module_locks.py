"""Locks of imports: which modules a thread imports now, and that no thread begins another import."""

from __future__ import annotations

import _imp
import importlib
import threading
from collections.abc import Iterator
from typing import Any

_bootstrap: Any = importlib._bootstrap
_locks: dict[str, Any] = _bootstrap._module_locks  # names of modules: weak references to their locks


def modules_being_imported() -> Iterator[str]:
    """The names of the modules that other threads import now, also of those that they still look for.

    >>> [*modules_being_imported()]
    []
    """
    here = threading.get_ident()
    for name, reference in list(_locks.items()):
        owner = getattr(reference(), "owner", None)
        if owner is not None and owner != here:
            yield name


def pause_imports() -> None:
    """Let no other thread begin an import; one that goes on waits where it imports another module."""
    _imp.acquire_lock()


def resume_imports() -> None:
    """Let other threads begin imports again."""
    _imp.release_lock()
