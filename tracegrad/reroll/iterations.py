"""Model the iterations of a loop: the nodes of one iteration, and the origin of each operand.

The origin of an operand is a node of the same iteration; a node of an earlier iteration, at a fixed position and
distance; one value or literal from outside; or one value from outside per iteration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tracegrad.avals import LITERALS
from tracegrad.ir import GraphNode
from tracegrad.reroll.offset_slices import reads
from tracegrad.utils.lazy_dataclass import record

# Maximal distance, in iterations, between the computation of a value and a read of it in a later iteration.
FARTHEST = 8


@record(frozen=True, slots=True)
class LocalOperand:
    """Origin of an operand: node number `position` of the same iteration."""

    position: int


@record(frozen=True, slots=True)
class CarriedOperand:
    """Origin of an operand: node number `position` of the iteration `distance` earlier; `first` has the values for the
    first `distance` iterations."""

    position: int
    distance: int
    first: tuple[GraphNode, ...]


@record(frozen=True, slots=True)
class InvariantOperand:
    """Origin of an operand: one literal or outside value."""

    value: Any


@record(frozen=True, slots=True)
class VaryingOperand:
    """Origin of an operand: a literal or outside value per iteration."""

    values: tuple[Any, ...]


Origin = LocalOperand | CarriedOperand | InvariantOperand | VaryingOperand


@record(frozen=True, slots=True)
class RecordedIterations:
    """Iterations: the nodes `start` to `stop` of a sequence, `period` nodes each, and the origins of the operands of
    one iteration."""

    nodes: tuple[GraphNode, ...]
    start: int
    period: int
    origins: tuple[tuple[Origin, ...], ...]

    @property
    def count(self) -> int:
        return len(self.nodes) // self.period

    @property
    def stop(self) -> int:
        return self.start + len(self.nodes)

    @property
    def size(self) -> int:
        """The number of nodes of an iteration, including nodes in regions, and nodes that slice arrays per
        iteration."""
        n_slices = sum(isinstance(x, VaryingOperand) for origins in self.origins for x in origins)
        regions = [region for node in self.nodes[: self.period] for region in node.regions]
        inner = sum(1 for region in regions for _ in region.everywhere())
        return self.count * (self.period + inner + 4 * n_slices)

    @property
    def is_uneven(self) -> bool:
        """Whether array sizes differ between iterations."""
        return any(len({x.aval for x in self.of(position)}) > 1 for position in range(self.period))

    def with_elements(self, least: int) -> RecordedIterations | str:
        """The last iterations without empty arrays, at least `least`."""
        empty = [k for k, x in enumerate(self.nodes) if not x.is_multi_result and 0 in x.aval.shape]
        skipped = empty[-1] // self.period + 1 if empty else 0
        if not skipped:
            return self
        if self.count - skipped < least:
            return "arrays without elements"
        return replace(self, nodes=self.nodes[skipped * self.period :], start=self.start + skipped * self.period)

    def moved(self, new: Mapping[GraphNode, GraphNode]) -> RecordedIterations:
        """The iterations with other outside values."""
        return replace(self, origins=tuple([tuple([_moved(x, new) for x in at]) for at in self.origins]))

    def of(self, position: int) -> tuple[GraphNode, ...]:
        """The node at this position of each iteration."""
        return self.nodes[position :: self.period]


def _moved(origin: Origin, new: Mapping[GraphNode, GraphNode]) -> Origin:
    if isinstance(origin, CarriedOperand):
        return replace(origin, first=tuple([new.get(x, x) for x in origin.first]))
    if isinstance(origin, InvariantOperand):
        return origin if type(origin.value) in LITERALS else InvariantOperand(new.get(origin.value, origin.value))
    if isinstance(origin, VaryingOperand) and type(origin.values[0]) not in LITERALS:
        return VaryingOperand(tuple([new.get(x, x) for x in origin.values]))
    return origin


def iterations_of(
    sequence: Sequence[GraphNode],
    positions: Mapping[GraphNode, int],
    start: int,
    period: int,
    count: int,
    least: int,
    loose: bool = False,
) -> RecordedIterations | str:
    """The last of `count` iterations of `period` nodes from `start` on, at least `least`, that do the same; earlier
    iterations that read other values are excluded. Returns the reason if there are too few. `loose`: array sizes may
    differ."""
    why = ""
    while count >= least:
        outputs: list[tuple[Origin, ...]] = []
        for position in range(period):
            columns = zip(*[reads(sequence[start + k * period + position]) for k in range(count)])
            results = [_origin(column, positions, start, period, count, loose) for column in columns]
            mismatches = [x for x in results if isinstance(x, int)]
            if mismatches:
                first = max(mismatches) + 1
                why = f"{sequence[start + position].name} does not read the same of the iteration before in each"
                start, count = start + first * period, count - first
                break
            outputs.append(tuple(results))  # type: ignore[arg-type]
        else:
            return RecordedIterations(tuple(sequence[start : start + count * period]), start, period, tuple(outputs))
    return why


def _origin(
    column: Sequence[Any], positions: Mapping[GraphNode, int], start: int, period: int, count: int, loose: bool
) -> Origin | int:
    """The origin of an operand with these values per iteration; or the last iteration at which another origin
    begins."""
    last = column[-1]
    if type(last) in LITERALS:
        return InvariantOperand(last) if all(repr(x) == repr(last) for x in column) else VaryingOperand(tuple(column))
    at = positions.get(last, -1)
    if at < start:
        return _from_outside(column, positions, start)
    nodes_back = (count - 1) * period + start - at
    distance = max(-(-nodes_back // period), 0)
    position = (at - start) % period
    for k in range(count - 1, distance - 1, -1):
        if positions.get(column[k], -1) != start + (k - distance) * period + position:
            return k
    if not distance:
        return LocalOperand(position)
    first = tuple(column[:distance])
    wrong = [k for k, x in enumerate(first) if positions.get(x, -1) >= start or not _is_like(x, last, loose)]
    if distance > FARTHEST or last.is_multi_result:
        return count - 1
    return max(wrong) if wrong else CarriedOperand(position, distance, first)


def _is_like(x: GraphNode, y: GraphNode, loose: bool) -> bool:
    if x.is_multi_result or not loose:
        return x.aval == y.aval and not x.is_multi_result
    return len(x.aval.shape) == len(y.aval.shape) and x.aval.dtype == y.aval.dtype


def _from_outside(column: Sequence[Any], positions: Mapping[GraphNode, int], start: int) -> Origin | int:
    last = column[-1]
    inside = [k for k, x in enumerate(column) if positions.get(x, -1) >= start]
    if inside:
        return max(inside)
    if all(x is last for x in column):
        return InvariantOperand(last)
    other = [k for k, x in enumerate(column) if x.aval != last.aval or x.is_multi_result]
    return max(other) if other else VaryingOperand(tuple(column))
