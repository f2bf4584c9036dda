"""What an op that moves data does to axes, found by asking its index map where it reads a few elements.

The first element of the answer and the last one along each axis tell along which axes of the operands that axis runs.
Nothing that has to be right rests on it: what runs along one axis shares the name of its size, and an operand that is
read again and again had better be stored.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from tracegrad.ir import Node

__all__ = ["Moved", "moved"]

Shape = tuple[int, ...]


class Moved(NamedTuple):
    """`axes`: for each axis of the answer, the axes (operand, axis) that it runs along from end to end, whatever the
    other axes do. `repeats`: some elements of an operand are read several times. `guards`: how many reads depend on
    the index being in a range."""

    axes: tuple[tuple[tuple[int, int], ...], ...]
    repeats: bool
    guards: int


class _Plain:
    """Sizes as they are."""

    def __call__(self, value: int) -> int:
        return int(value)

    @staticmethod
    def is_one(size: int) -> bool:
        return size == 1

    @staticmethod
    def divide(value: int, divisor: int) -> int:
        return value // divisor


_PLAIN = _Plain()


def moved(node: Node) -> Moved:
    """What `node`, of an op of the form `Move`, does to axes."""
    form: Any = node.op.form  # type: ignore[union-attr]
    return _moved(form.reads, tuple([x.aval.shape for x in node.operands]), node.aval.shape, node.params)


@lru_cache(maxsize=4096)
def _moved(reads: Callable[..., Any], shapes: tuple[Shape, ...], result: Shape, params: tuple[Any, ...]) -> Moved:
    options = dict(params)
    origin = (0,) * len(result)
    first = reads(origin, _PLAIN, shapes, result, **options)
    changes = [
        _changes(first, reads((*origin[:k], n - 1, *origin[k + 1 :]), _PLAIN, shapes, result, **options))
        if n > 1
        else {}
        for k, n in enumerate(result)
    ]
    runs: list[tuple[tuple[int, int], ...]] = []
    for k, (n, own) in enumerate(zip(result, changes)):
        others = set().union(*(c for j, c in enumerate(changes) if j != k))
        runs.append(
            tuple(
                [
                    (first[r].operand, axis)
                    for (r, axis), change in own.items()
                    if abs(change) == n - 1 == shapes[first[r].operand][axis] - 1
                    and (r, axis) not in others
                    and (r, None) not in own
                ]
            )
        )
    repeats = any(n > 1 and not own for n, own in zip(result, changes))
    return Moved(tuple(runs), repeats, sum(bool(read.ranges) for read in first))


def _changes(first: Any, last: Any) -> dict[tuple[int, int | None], int]:
    """By how much the place of each read changes, by its number and the axis; None stands for its ranges."""
    found: dict[tuple[int, int | None], int] = {}
    for r, (a, b) in enumerate(zip(first, last)):
        for axis, (p, q) in enumerate(zip(a.place, b.place)):
            if p != q:
                found[r, axis] = q - p
        if any(x.value != y.value for x, y in zip(a.ranges, b.ranges)):
            found[r, None] = 0
    return found
