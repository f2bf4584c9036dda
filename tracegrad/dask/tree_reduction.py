"""Tree reduction of the partial results of chunks, in an order that is fixed by the chunks' order.

Floating-point sums depend on the order of their terms. Here neither the workers nor their completion times affect it:
neighbours are added in groups of eight, from the first to the last. The sums are added in groups of eight again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from tracegrad import tree

__all__ = ["GROUP", "ChunkResult", "along_tree", "finished", "mean_of", "sum_of"]

GROUP = 8  # neighbours that one task adds, which needs fewer tasks than pairs

T = TypeVar("T")


class ChunkResult(NamedTuple):
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
        partials = [below(i, step) for i in range(first, min(first + width, count), step)]
        return together(partials) if len(partials) > 1 else partials[0]

    return below(0, width)


def sum_of(partials: Sequence[ChunkResult]) -> ChunkResult:
    """Sum over the rows of all parts.

    >>> sum_of([ChunkResult(None, 1.0, (2.0,), []), ChunkResult(None, 10.0, (20.0,), [])])
    ChunkResult(rows=None, value=11.0, gradient=(22.0,), aux=[])
    """
    value, gradient = partials[0].value, partials[0].gradient
    for partial in partials[1:]:
        value, gradient = value + partial.value, tree.map(_plus, gradient, partial.gradient)
    return ChunkResult(None, value, gradient, _all_aux(partials))


def mean_of(partials: Sequence[ChunkResult]) -> ChunkResult:
    """Average over the rows of all parts, weighted by their rows.

    >>> mean_of([ChunkResult(1, 1.0, (2.0,), []), ChunkResult(3, 5.0, (6.0,), [])])
    ChunkResult(rows=4, value=4.0, gradient=(5.0,), aux=[])
    """
    full = [partial for partial in partials if partial.rows]
    rows = sum(partial.rows or 0 for partial in full)
    if len(full) < 2:
        return (full or partials)[0]._replace(aux=_all_aux(partials))
    # Weighted values, because undivided sums may exceed the range of float16.
    shared = [_times(partial, (partial.rows or 0) / rows) for partial in full]
    return sum_of(shared)._replace(rows=rows, aux=_all_aux(partials))


def finished(partial: ChunkResult, has_aux: bool) -> tuple[Any, Any]:
    """Return the result for the caller; ValueError for the mean over no rows."""
    if partial.rows == 0:
        raise ValueError("the chunks have no rows, and nothing has no mean")
    return (partial.value, partial.aux) if has_aux else partial.value, partial.gradient


def _times(partial: ChunkResult, share: float) -> ChunkResult:
    return partial._replace(value=partial.value * share, gradient=tree.map(lambda x: x * share, partial.gradient))


def _plus(x: Any, y: Any) -> object:
    return x + y


def _all_aux(partials: Sequence[ChunkResult]) -> list[object]:
    return [aux for partial in partials for aux in partial.aux]
