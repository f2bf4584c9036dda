"""Turns whose arrays have sizes of their own (`A[i, :i]`), levelled: all get the size of the greatest.

What is read beyond the size of a turn is a copy of an element that belongs to it, so whatever is computed with it is
computed for that element too: it raises nothing of its own and spoils no derivative. What is added up, contracted or
written is masked. The turns then do the same but for numbers, and are rolled as others are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tracegrad.avals import is_literal, name_of
from tracegrad.ir import Node
from tracegrad.ops.contraction import matmul
from tracegrad.ops.declare import Elementwise
from tracegrad.ops.elementwise import greater_equal, less, multiply, where
from tracegrad.ops.fills import arange
from tracegrad.ops.linear import broadcast_to, cast, flip, full, pad, reduce_sum, reshape, slice, transpose
from tracegrad.ops.op import Op
from tracegrad.ops.reduction import mean, reduce_max, reduce_min
from tracegrad.rolling.scanned import Uses
from tracegrad.rolling.turns import Turns
from tracegrad.rolling.windows import Window, read_again, window_of
from tracegrad.trace.builder import TraceBuilder

__all__ = ["levelled"]

Shape = tuple[int, ...]


def levelled(builder: TraceBuilder, turns: Turns, used: Uses) -> dict[Node, Node] | str:
    """What stands for the nodes of the turns that are `used` later when all are of one size; or why that cannot be."""
    try:
        levels = Levels(builder, turns)
    except Unlevelled as error:
        return str(error)
    wanted = [turns.of(place)[k] for place, which in used.items() for k in sorted(which)]
    return {node: levels.of(node) for node in wanted}


class Unlevelled(Exception):
    """Why turns cannot be levelled."""


@dataclass(frozen=True, slots=True)
class Part:
    """Of an axis, so many elements belong to a turn: the first, or the last."""

    count: int
    last: bool


@dataclass(frozen=True, slots=True)
class Level:
    """A value of the greatest size (or a literal, or a node of several results), and for each axis the part of it that
    belongs to the turn, if not all does."""

    value: Any
    parts: tuple[Part | None, ...] = ()


class Levels:
    """The levelled turns; `of` a node of theirs is what it was, taken out of the level."""

    def __init__(self, builder: TraceBuilder, turns: Turns):
        self.builder, self.turns = builder, turns
        self.made: dict[Node, Level] = {}
        greatest = [
            _greatest([x.aval.shape for x in turns.of(k)]) if not turns.nodes[k].several else ()
            for k in range(turns.period)
        ]
        for number, node in enumerate(turns.nodes):
            builder.location = node.location
            place = number % turns.period
            self.made[node] = self._level(node, place, greatest[place])

    def of(self, node: Node) -> Node:
        value, parts = self.made[node].value, self.made[node].parts
        if isinstance(value, Node):
            return value
        if any(parts):
            start = [n - p.count if p is not None and p.last else 0 for p, n in zip(parts, value.shape)]
            stop = [a + n for a, n in zip(start, node.aval.shape)]
            value = slice(value, start=tuple(start), stop=tuple(stop), step=(1,) * len(start))
        return value.node  # type: ignore[no-any-return]

    def _level(self, node: Node, place: int, shape: Shape) -> Level:
        window = window_of(node)
        if window is not None:
            return self._window(window, place)
        assert node.op is not None
        given = [self._given(x) for x in node.inputs]
        if node.several or (node.aval.shape == shape and not any(any(x.parts) for x in given)):
            inputs = tuple(
                [x.value if is_literal(x.value) or isinstance(x.value, Node) else x.value.node for x in given]
            )
            made = self.builder.number(node.op, inputs, node.params)
            return Level(made) if node.several else _whole(self.builder.value(made))
        rule = _elementwise if isinstance(node.op, Elementwise) else _RULES.get(node.op)
        if rule is None:
            raise Unlevelled(f"{node.name} of another size in each turn")
        return rule(node, given, shape)

    def _given(self, x: Any) -> Level:
        if is_literal(x):
            return Level(x)
        known = self.made.get(x)
        return known or (Level(x) if x.several else _whole(self.builder.value(x)))

    # -- windows -------------------------------------------------------------------------------------
    def _window(self, window: Window, place: int) -> Level:
        """The window of the greatest size that lies in the array as those of all turns do."""
        base = self._given(window.array)
        if any(base.parts):
            raise Unlevelled("a piece of an array that has another size in each turn")
        alike = [w for x in self.turns.of(place) if (w := window_of(x)) is not None]
        sizes = _greatest([w.sizes for w in alike])
        starts, parts = list(window.starts), list[Part | None]()
        for axis, size in enumerate(sizes):
            part = None
            if any(w.sizes[axis] != size for w in alike):
                part = _part(window, alike, axis)
                starts[axis] -= size - part.count if part.last else 0
            parts.append(part)
        level = window._replace(starts=tuple(starts), sizes=sizes)
        if window.mask is None:
            return Level(_clamped(read_again(level, [base.value]), parts), tuple(parts))
        return _whole(self._written(window, level, parts, base.value))

    def _written(self, window: Window, level: Window, parts: Sequence[Part | None], array: Any) -> Any:
        """The array with the values in the part of the window that belongs to the turn."""
        values = self._given(window.values)
        new = values.value
        if is_literal(new):
            new = full(shape=level.sizes, value=new, dtype=name_of(array.dtype))
        elif new.shape != level.sizes or any(p != q for p, q in zip(values.parts, parts) if p is not None):
            raise Unlevelled("values that do not lie as the window that they are written to")
        before = read_again(level._replace(mask=None, values=None), [array])
        for axis, part in enumerate(parts):
            if part is not None:
                new = where(_belongs(level.sizes, axis, part), new, before)
        stop = tuple(a + (n - 1) * s + 1 for a, n, s in zip(level.starts, level.sizes, level.step))
        high = tuple(n - b for n, b in zip(array.shape, stop))
        mask: dict[str, Any] = {
            "low": level.starts,
            "high": high,
            "interior": tuple(s - 1 for s in level.step),
            "value": False,
        }
        padding = pad(full(shape=level.sizes, value=True, dtype="bool"), **mask).node
        return read_again(level._replace(mask=padding), [array, new])


def _part(window: Window, alike: Sequence[Window], axis: int) -> Part:
    if any(w.step[axis] != 1 for w in alike):
        raise Unlevelled("a window with steps, of another size in each turn")
    if len({w.starts[axis] for w in alike}) == 1:
        return Part(window.sizes[axis], last=False)
    if len({w.starts[axis] + w.sizes[axis] for w in alike}) == 1:
        return Part(window.sizes[axis], last=True)
    raise Unlevelled("a window that begins and ends elsewhere in each turn")


def _greatest(shapes: Sequence[Shape]) -> Shape:
    return tuple([max(sizes) for sizes in zip(*shapes)])


def _whole(value: Any) -> Level:
    return Level(value, (None,) * len(value.shape))


def _belongs(shape: Shape, axis: int, part: Part) -> Any:
    """Of each element of an array, whether it belongs to the turn."""
    n = shape[axis]
    row = reshape(
        arange(start=0, step=1, length=n, dtype="int64"), shape=tuple(n if a == axis else 1 for a in range(len(shape)))
    )
    row = broadcast_to(row, shape=shape)
    return greater_equal(row, n - part.count) if part.last else less(row, part.count)


def _clamped(x: Any, parts: Sequence[Part | None]) -> Any:
    """With copies of the first or the last element in the place of those that do not belong to the turn."""
    for axis, part in enumerate(parts):
        if part is not None:
            start = [0] * len(x.shape)
            start[axis] = x.shape[axis] - 1 if part.last else 0
            stop = [start[a] + 1 if a == axis else n for a, n in enumerate(x.shape)]
            one = slice(x, start=tuple(start), stop=tuple(stop), step=(1,) * len(start))
            x = where(_belongs(x.shape, axis, part), x, broadcast_to(one, shape=x.shape))
    return x


def _masked(level: Level, axes: Sequence[int], neutral: Any) -> Any:
    """With a neutral element in the place of those along these axes that do not belong to the turn."""
    x = level.value
    for axis in axes:
        part = level.parts[axis]
        if part is not None:
            x = where(_belongs(x.shape, axis, part), x, neutral)
    return x


def _zero(x: Any) -> Any:
    return 0.0 if x.dtype.kind == "f" else 0


# -- what ops make of levels -----------------------------------------------------------------------------
def _elementwise(node: Node, given: Sequence[Level], shape: Shape) -> Level:
    arrays = [x for x in given if not is_literal(x.value)]
    if any(x.value.shape != shape for x in arrays):
        raise Unlevelled(f"{node.name} of arrays from outside, of another size in each turn")
    parts: list[Part | None] = []
    for each in zip(*[x.parts for x in arrays]):
        known = {p for p in each if p is not None}
        if len(known) > 1:
            raise Unlevelled(f"{node.name} of parts that lie in other places")
        parts.append(next(iter(known), None))
    return Level(node.op(*[x.value for x in given], **dict(node.params)), tuple(parts))  # type: ignore[misc]


def _reshape(node: Node, given: Sequence[Level], shape: Shape) -> Level:
    (x,) = given
    kept = [(n, p) for n, p in zip(x.value.shape, x.parts) if n != 1]
    if [n for n, _ in kept] != [n for n in shape if n != 1]:
        raise Unlevelled("reshape of another size in each turn")
    rest = iter([p for _, p in kept])
    return Level(reshape(x.value, shape=shape), tuple([None if n == 1 else next(rest) for n in shape]))


def _broadcast(node: Node, given: Sequence[Level], shape: Shape) -> Level:
    (x,) = given
    missing = len(shape) - len(x.parts)
    return Level(broadcast_to(x.value, shape=shape), (None,) * missing + x.parts)


def _full(node: Node, given: Sequence[Level], shape: Shape) -> Level:
    return _whole(full(**{**dict(node.params), "shape": shape}))


def _transpose(node: Node, given: Sequence[Level], shape: Shape) -> Level:
    (x,), perm = given, dict(node.params)["perm"]
    return Level(transpose(x.value, perm=perm), tuple([x.parts[p] for p in perm]))


def _flip(node: Node, given: Sequence[Level], shape: Shape) -> Level:
    (x,), axes = given, dict(node.params)["axes"]
    parts = [Part(p.count, not p.last) if p is not None and a in axes else p for a, p in enumerate(x.parts)]
    return Level(flip(x.value, axes=axes), tuple(parts))


def _cast(node: Node, given: Sequence[Level], shape: Shape) -> Level:
    (x,) = given
    return Level(cast(x.value, **dict(node.params)), x.parts)


def _reduced(node: Node, given: Sequence[Level], shape: Shape) -> Level:
    (x,), axes = given, dict(node.params)["axes"]
    low: dict[Any, float] = {reduce_max: -float("inf"), reduce_min: float("inf")}
    if node.op in low and x.value.dtype.kind != "f":
        raise Unlevelled(f"{node.name} of integers")
    masked = _masked(x, axes, low.get(node.op, _zero(x.value)))
    kept = tuple([p for a, p in enumerate(x.parts) if a not in axes])
    if node.op is not mean:
        return Level(node.op(masked, axes=axes), kept)  # type: ignore[misc]
    count = 1
    for a in axes:
        part = x.parts[a]
        count *= x.value.shape[a] if part is None else part.count
    return Level(multiply(reduce_sum(masked, axes=axes), 1.0 / count), kept)


def _matmul(node: Node, given: Sequence[Level], shape: Shape) -> Level:
    x, y = given
    last, row = len(x.parts) - 1, len(y.parts) - 2
    if x.parts[last] != y.parts[row] and None not in (x.parts[last], y.parts[row]):
        raise Unlevelled("matmul of parts that lie in other places")
    left, right = _masked(x, [last], _zero(x.value)), _masked(y, [row], _zero(y.value))
    return Level(matmul(left, right), (*x.parts[:-1], y.parts[-1]))


_RULES: dict[Op, Callable[[Node, Sequence[Level], Shape], Level]] = {
    reshape: _reshape, broadcast_to: _broadcast, full: _full, transpose: _transpose, flip: _flip, cast: _cast,
    reduce_sum: _reduced, reduce_max: _reduced, reduce_min: _reduced, mean: _reduced, matmul: _matmul,
}  # fmt: skip
