"""Tree reduction of the partial results of chunks, in an order that is fixed by the chunks' order.

Floating-point sums depend on the order of their terms. Here neither the workers nor their completion times affect it:
neighbours are added in groups of eight, from the first to the last. The sums are added in groups of eight again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from tracegrad import tree

__all__ = ["GROUP", "Partial", "along_tree", "finished", "mean_of", "sum_of"]

GROUP = 8  # neighbours that one task adds, which needs fewer tasks than pairs

T = TypeVar("T")


class Partial(NamedTuple):
    """Partial result of some chunks: their rows (None if unused), value, gradient, and the aux of each.

    Chunks without rows have no mean: value and gradient are None.
    """

    rows: int | None
    value: Any
    gradient: Any
    aux: list[Any]


def along_tree(count: int, leaf: Callable[[int], T], together: Callable[[list[T]], T]) -> T:
    """Combine `leaf(i)` for all `i` below `count`, group by group; only a few results exist at a time.

    >>> along_tree(10, str, "+".join)
    '0+1+2+3+4+5+6+7+8+9'
    >>> along_tree(10, str, lambda group: f"({' '.join(group)})")
    '((0 1 2 3 4 5 6 7) (8 9))'
    """
    width = 1
    while width < count:
        width *= GROUP

    def below(first: int, width: int) -> T:
        if width == 1:
            return leaf(first)
        step = width // GROUP
        parts = [below(i, step) for i in range(first, min(first + width, count), step)]
        return together(parts) if len(parts) > 1 else parts[0]

    return below(0, width)


def sum_of(parts: Sequence[Partial]) -> Partial:
    """Sum over the rows of all parts.

    >>> sum_of([Partial(None, 1.0, (2.0,), []), Partial(None, 10.0, (20.0,), [])])
    Partial(rows=None, value=11.0, gradient=(22.0,), aux=[])
    """
    value, gradient = parts[0].value, parts[0].gradient
    for part in parts[1:]:
        value, gradient = value + part.value, tree.map(_plus, gradient, part.gradient)
    return Partial(None, value, gradient, _all_aux(parts))


def mean_of(parts: Sequence[Partial]) -> Partial:
    """Average over the rows of all parts, weighted by their rows.

    >>> mean_of([Partial(1, 1.0, (2.0,), []), Partial(3, 5.0, (6.0,), [])])
    Partial(rows=4, value=4.0, gradient=(5.0,), aux=[])
    """
    full = [part for part in parts if part.rows]
    rows = sum(part.rows or 0 for part in full)
    if len(full) < 2:
        return (full or parts)[0]._replace(aux=_all_aux(parts))
    # Weighted values, because undivided sums may exceed the range of float16.
    shared = [_times(part, (part.rows or 0) / rows) for part in full]
    return sum_of(shared)._replace(rows=rows, aux=_all_aux(parts))


def finished(part: Partial, has_aux: bool) -> tuple[Any, Any]:
    """Return the result for the caller; ValueError for the mean over no rows."""
    if part.rows == 0:
        raise ValueError("the chunks have no rows, and nothing has no mean")
    return (part.value, part.aux) if has_aux else part.value, part.gradient


def _times(part: Partial, share: float) -> Partial:
    return part._replace(value=part.value * share, gradient=tree.map(lambda x: x * share, part.gradient))


def _plus(x: Any, y: Any) -> Any:
    return x + y


def _all_aux(parts: Sequence[Partial]) -> list[Any]:
    return [aux for part in parts for aux in part.aux]
