"""Model the iterations of a loop: the nodes of one iteration, and the origin of each operand.

The origin of an operand is a node of the same iteration; a node of an earlier iteration, at a fixed position and
distance; one value or literal from outside; or one value from outside per iteration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tracegrad.avals import LITERALS
from tracegrad.ir import Node
from tracegrad.reroll.offset_slices import reads
from tracegrad.utils.lazy_dataclass import record

__all__ = ["Before", "Each", "Inside", "Iterations", "Same", "iterations_of"]

# Maximal distance, in iterations, between the computation of a value and a read of it in a later iteration.
FARTHEST = 8


@record(frozen=True, slots=True)
class Inside:
    """Origin of an operand: node number `place` of the same iteration."""

    place: int


@record(frozen=True, slots=True)
class Before:
    """Origin of an operand: node number `place` of the iteration `distance` earlier; `first` has the values for the
    first `distance` iterations."""

    place: int
    distance: int
    first: tuple[Node, ...]


@record(frozen=True, slots=True)
class Same:
    """Origin of an operand: one literal or outside value."""

    value: Any


@record(frozen=True, slots=True)
class Each:
    """Origin of an operand: a literal or outside value per iteration."""

    values: tuple[Any, ...]


Origin = Inside | Before | Same | Each


@record(frozen=True, slots=True)
class Iterations:
    """Iterations: the nodes `start` to `stop` of a sequence, `period` nodes each, and the origins of the operands of
    one iteration."""

    nodes: tuple[Node, ...]
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
        pieces = sum(isinstance(x, Each) for origins in self.origins for x in origins)
        regions = [region for node in self.nodes[: self.period] for region in node.regions]
        inner = sum(1 for region in regions for _ in region.everywhere())
        return self.count * (self.period + inner + 4 * pieces)

    @property
    def is_uneven(self) -> bool:
        """Whether array sizes differ between iterations."""
        return any(len({x.aval for x in self.of(place)}) > 1 for place in range(self.period))

    def with_elements(self, least: int) -> Iterations | str:
        """The last iterations without empty arrays, at least `least`."""
        empty = [k for k, x in enumerate(self.nodes) if not x.several and 0 in x.aval.shape]
        skipped = empty[-1] // self.period + 1 if empty else 0
        if not skipped:
            return self
        if self.count - skipped < least:
            return "arrays without elements"
        return replace(self, nodes=self.nodes[skipped * self.period :], start=self.start + skipped * self.period)

    def moved(self, new: Mapping[Node, Node]) -> Iterations:
        """The iterations with other outside values."""
        return replace(self, origins=tuple([tuple([_moved(x, new) for x in at]) for at in self.origins]))

    def of(self, place: int) -> tuple[Node, ...]:
        """The node at this position of each iteration."""
        return self.nodes[place :: self.period]


def _moved(origin: Origin, new: Mapping[Node, Node]) -> Origin:
    if isinstance(origin, Before):
        return replace(origin, first=tuple([new.get(x, x) for x in origin.first]))
    if isinstance(origin, Same):
        return origin if type(origin.value) in LITERALS else Same(new.get(origin.value, origin.value))
    if isinstance(origin, Each) and type(origin.values[0]) not in LITERALS:
        return Each(tuple([new.get(x, x) for x in origin.values]))
    return origin


def iterations_of(
    sequence: Sequence[Node],
    places: Mapping[Node, int],
    start: int,
    period: int,
    count: int,
    least: int,
    loose: bool = False,
) -> Iterations | str:
    """The last of `count` iterations of `period` nodes from `start` on, at least `least`, that do the same; earlier
    iterations that read other values are excluded. Returns the reason if there are too few. `loose`: array sizes may
    differ."""
    why = ""
    while count >= least:
        outputs: list[tuple[Origin, ...]] = []
        for place in range(period):
            columns = zip(*[reads(sequence[start + k * period + place]) for k in range(count)])
            results = [_origin(column, places, start, period, count, loose) for column in columns]
            bad = [x for x in results if isinstance(x, int)]
            if bad:
                first = max(bad) + 1
                why = f"{sequence[start + place].name} does not read the same of the turn before in each"
                start, count = start + first * period, count - first
                break
            outputs.append(tuple(results))  # type: ignore[arg-type]
        else:
            return Iterations(tuple(sequence[start : start + count * period]), start, period, tuple(outputs))
    return why


def _origin(
    column: Sequence[Any], places: Mapping[Node, int], start: int, period: int, count: int, loose: bool
) -> Origin | int:
    """The origin of an operand with these values per iteration; or the last iteration at which another origin
    begins."""
    last = column[-1]
    if type(last) in LITERALS:
        return Same(last) if all(repr(x) == repr(last) for x in column) else Each(tuple(column))
    at = places.get(last, -1)
    if at < start:
        return _from_outside(column, places, start)
    behind = (count - 1) * period + start - at
    distance = max(-(-behind // period), 0)
    place = (at - start) % period
    for k in range(count - 1, distance - 1, -1):
        if places.get(column[k], -1) != start + (k - distance) * period + place:
            return k
    if not distance:
        return Inside(place)
    first = tuple(column[:distance])
    wrong = [k for k, x in enumerate(first) if places.get(x, -1) >= start or not _is_like(x, last, loose)]
    if distance > FARTHEST or last.several:
        return count - 1
    return max(wrong) if wrong else Before(place, distance, first)


def _is_like(x: Node, y: Node, loose: bool) -> bool:
    if x.several or not loose:
        return x.aval == y.aval and not x.several
    return len(x.aval.shape) == len(y.aval.shape) and x.aval.dtype == y.aval.dtype


def _from_outside(column: Sequence[Any], places: Mapping[Node, int], start: int) -> Origin | int:
    last = column[-1]
    inside = [k for k, x in enumerate(column) if places.get(x, -1) >= start]
    if inside:
        return max(inside)
    if all(x is last for x in column):
        return Same(last)
    other = [k for k, x in enumerate(column) if x.aval != last.aval or x.several]
    return max(other) if other else Each(tuple(column))
