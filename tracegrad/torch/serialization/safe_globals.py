"""Safe globals: classes and functions that a file may name although `weights_only` loads it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["add_safe_globals", "clear_safe_globals", "get_safe_globals", "safe_globals"]

_safe: list[Any] = []


def add_safe_globals(safe_globals: Iterable[object]) -> None:
    """Let files name classes and functions.

    Parameters
    ----------
    safe_globals : iterable
        Classes and functions, or pairs of one of them and the name that files have for it.

    Examples
    --------
    >>> from fractions import Fraction
    >>> add_safe_globals([Fraction])
    >>> get_safe_globals()
    [<class 'fractions.Fraction'>]
    >>> clear_safe_globals()
    """
    _safe.extend(each for each in safe_globals if each not in _safe)


def clear_safe_globals() -> None:
    """Forget what `add_safe_globals` has added.

    Examples
    --------
    >>> clear_safe_globals()
    >>> get_safe_globals()
    []
    """
    _safe.clear()


def get_safe_globals() -> list[object]:
    """Return what `add_safe_globals` has added.

    Returns
    -------
    list
        Classes, functions, and pairs with names.

    Examples
    --------
    >>> get_safe_globals()
    []
    """
    return list(_safe)


class safe_globals:
    """Context manager in which files may name classes and functions.

    Parameters
    ----------
    safe_globals : iterable
        As for `add_safe_globals`.

    Examples
    --------
    >>> from fractions import Fraction
    >>> with safe_globals([Fraction]):
    ...     get_safe_globals()
    [<class 'fractions.Fraction'>]
    """

    def __init__(self, safe_globals: Iterable[object]):
        self.safe_globals = list(safe_globals)

    def __enter__(self) -> None:
        self.before = get_safe_globals()
        add_safe_globals(self.safe_globals)

    def __exit__(self, *_: object) -> None:
        _safe[:] = self.before


def by_name() -> dict[str, Any]:
    """Return the safe classes and functions by the names that files have for them."""
    pairs = (each if isinstance(each, tuple) else (each, _name(each)) for each in _safe)
    return {name: value for value, name in pairs}


def _name(value: type) -> str:
    return f"{value.__module__}.{value.__qualname__}"
