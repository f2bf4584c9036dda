"""Registry of functions by two classes, which also serves their subclasses (multiple dispatch)."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

Pair = tuple[type, type]


class PairRegistry:
    """Keys of a dict of functions by pairs of classes; a lookup prefers the class that comes first in the order of
    resolution.

    >>> functions = {(int, object): str}
    >>> registry = PairRegistry(functions)
    >>> registry.find(bool, str), registry.find(str, bool)
    ((<class 'int'>, <class 'object'>), None)
    """

    def __init__(self, functions: dict[Pair, Callable[..., Any]]) -> None:
        self._functions = functions
        self._results: dict[Pair, Pair | None] = {}

    def add(self, left: type, right: type, function: Callable[..., Any]) -> None:
        """Register a function."""
        self._functions[left, right] = function
        self._results.clear()

    def find(self, left: type, right: type) -> Pair | None:
        """Return the key of two classes, or None. RuntimeWarning if the second class prefers another function."""
        pair = left, right
        if pair not in self._results:
            self._results[pair] = self._search(left, right)
        return self._results[pair]

    def _search(self, left: type, right: type) -> Pair | None:
        near = {
            (left.__mro__.index(p), right.__mro__.index(q)): (p, q)
            for p, q in self._functions
            if issubclass(left, p) and issubclass(right, q)
        }
        if not near:
            return None
        by_left, by_right = near[min(near)], near[min(near, key=lambda places: places[::-1])]
        if self._functions[by_left] is not self._functions[by_right]:
            names = f"{left.__name__}, {right.__name__}"
            warnings.warn(f"Ambiguous registration for ({names}). Please register it", RuntimeWarning, stacklevel=4)
        return by_left
