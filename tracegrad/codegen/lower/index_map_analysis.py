"""Analyze which axes an index map moves, by probing it at a few elements.

The first and the last element of the result along each axis show along which operand axes that axis runs. The analysis
decides which axes share the symbol of their size, and which operands to store because they are read repeatedly.
Correctness does not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from tracegrad.ir import GraphNode

if TYPE_CHECKING:
    from tracegrad.ops.core.index_maps import OperandRead


Shape = tuple[int, ...]


class AxisMap(NamedTuple):
    """The result of the analysis. `axes`: for each axis of the result, the operand axes (operand, axis) that it runs
    along from end to end, independently of the other axes. `repeats`: some elements of an operand are read several
    times. `guards`: the number of reads that depend on a range of the index."""

    axes: tuple[tuple[tuple[int, int], ...], ...]
    repeats: bool
    guards: int


class _ConcreteSizes:
    """Concrete sizes."""

    def __call__(self, value: int) -> int:
        return int(value)

    @staticmethod
    def is_one(size: int) -> bool:
        return size == 1

    @staticmethod
    def divide(value: int, divisor: int) -> int:
        return value // divisor


_CONCRETE_SIZES = _ConcreteSizes()


def moved(node: GraphNode) -> AxisMap:
    """Analyze the axes of `node`, of an op of the form `Move`."""
    form: Any = node.op.form  # type: ignore[union-attr]
    return _moved(form.reads, tuple([x.aval.shape for x in node.operands]), node.aval.shape, node.params)


@lru_cache(maxsize=4096)
def _moved(
    reads: Callable[..., object],
    shapes: tuple[Shape, ...],
    result: Shape,
    params: tuple[tuple[str, tuple[int, ...] | int], ...],
) -> AxisMap:
    options = dict(params)

    def at(index: Shape) -> Any:
        return reads(index, _CONCRETE_SIZES, shapes, result, **options)

    origin = (0,) * len(result)
    first = at(origin)
    changes = [
        _change(first, at((*origin[:k], n - 1, *origin[k + 1 :]))) if n > 1 else _NONE for k, n in enumerate(result)
    ]
    runs = []
    for n, current in zip(result, changes):
        others = {coordinate for change in changes if change is not current for coordinate in change.coordinates}
        along = []
        for (r, axis), by in current.coordinates.items():
            operand = first[r].operand
            if abs(by) == n - 1 == shapes[operand][axis] - 1 and (r, axis) not in others and r not in current.ranges:
                along.append((operand, axis))
        runs.append(tuple(along))
    repeats = any([n > 1 and not (current.coordinates or current.ranges) for n, current in zip(result, changes)])  # noqa: C419
    return AxisMap(tuple(runs), repeats, sum([bool(read.ranges) for read in first]))


class _Change(NamedTuple):
    """The effect of the index along one axis: the changed coordinates of reads, and the reads with changed ranges. A
    coordinate is known by the number of the read and the axis of its operand."""

    coordinates: dict[tuple[int, int], int]
    ranges: set[int]


_NONE = _Change({}, set())


def _change(first: list[OperandRead], last: list[OperandRead]) -> _Change:
    result = _Change({}, set())
    for r, (a, b) in enumerate(zip(first, last)):
        for axis, (p, q) in enumerate(zip(a.indices, b.indices)):
            if p != q:
                result.coordinates[r, axis] = q - p
        if a.ranges and any(x.value != y.value for x, y in zip(a.ranges, b.ranges)):
            result.ranges.add(r)
    return result
