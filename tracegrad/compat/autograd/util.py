"""Tuple utilities: replace items of a tuple."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["subval", "subvals"]


def subvals(x: Sequence[object], ivs: Iterable[tuple[int, object]]) -> tuple[Any, ...]:
    """Return the items as a tuple, with others at some positions.

    >>> subvals((1, 2, 3), [(0, 7), (2, 9)])
    (7, 2, 9)
    """
    items = list(x)
    for i, v in ivs:
        items[i] = v
    return tuple(items)


def subval(x: Sequence[object], i: int, v: object) -> tuple[Any, ...]:
    """Return the items as a tuple, with another at one position.

    >>> subval((1, 2, 3), 1, 7)
    (1, 7, 3)
    """
    return subvals(x, [(i, v)])
