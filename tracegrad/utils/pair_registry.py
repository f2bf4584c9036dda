"""Registry of functions by two classes, which also serves their subclasses (multiple dispatch)."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any


class PairRegistry:
    """Functions by pairs of classes; a lookup prefers the class that comes first in the order of resolution.

    >>> registry = PairRegistry()
    >>> registry.add(int, object, str)
    >>> registry.find(bool, str) is str, registry.find(str, bool)
    (True, None)
    """

    def __init__(self) -> None:
        self._rows: dict[tuple[type, type], Callable[..., Any]] = {}
        self._results: dict[tuple[type, type], Callable[..., Any] | None] = {}

    def add(self, left: type, right: type, function: Callable[..., Any]) -> None:
        """Register a function."""
        self._rows[left, right] = function
        self._results.clear()

    def find(self, left: type, right: type) -> Callable[..., Any] | None:
        """Return the function of two classes, or None. RuntimeWarning if the second class prefers another one."""
        pair = left, right
        if pair not in self._results:
            self._results[pair] = self._search(left, right)
        return self._results[pair]

    def _search(self, left: type, right: type) -> Callable[..., Any] | None:
        near = {
            (left.__mro__.index(p), right.__mro__.index(q)): function
            for (p, q), function in self._rows.items()
            if issubclass(left, p) and issubclass(right, q)
        }
        if not near:
            return None
        by_left, by_right = near[min(near)], near[min(near, key=lambda places: places[::-1])]
        if by_left is not by_right:
            names = f"{left.__name__}, {right.__name__}"
            warnings.warn(f"Ambiguous registration for ({names}). Please register it", RuntimeWarning, stacklevel=4)
        return by_left
