"""Pad ragged iterations (`A[i, :i]`) to the maximal size of all iterations.

The padding repeats a valid element, so any computation on it also happens for that element: it raises no new error and
leaves derivatives correct. Sums, contractions and writes are masked. The padded iterations differ only in
numbers, and are rerolled like others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracegrad.avals import is_literal, name_of
from tracegrad.ir import Node
from tracegrad.ops.core.elementwise_op import Elementwise
from tracegrad.ops.elementwise.table import add, where
from tracegrad.ops.ragged.masked_semantics import Part, Parted, Unknown, applied, belongs, clamped, whole
from tracegrad.ops.shape.fill import arange
from tracegrad.ops.shape.linear import concatenate, full, pad, slice, stop_gradient
from tracegrad.reroll.build_scan import Uses
from tracegrad.reroll.iterations import Iterations
from tracegrad.reroll.offset_slices import Window, read_again, window_of
from tracegrad.trace.builder.builder import TraceBuilder

__all__ = ["levelled"]

Shape = tuple[int, ...]


def levelled(builder: TraceBuilder, iterations: Iterations, used: Uses) -> dict[Node, Node] | str:
    """Replace padded iterations by a scan. Returns the replacements of the nodes that are `used` later, or the reason
    why there are none."""
    try:
        levels = Levels(builder, iterations)
    except Unknown as error:
        return str(error)
    wanted = [iterations.of(place)[k] for place, which in used.items() for k in sorted(which)]
    return {node: levels.of(node) for node in wanted}


class Levels:
    """Padded iterations; `of` a node is its original value, sliced out of the padded value."""

    def __init__(self, builder: TraceBuilder, iterations: Iterations):
        self.builder, self.iterations = builder, iterations
        self.made: dict[Node, Parted] = {}
        greatest = [
            _greatest([x.aval.shape for x in iterations.of(k)]) if not iterations.nodes[k].several else ()
            for k in range(iterations.period)
        ]
        for number, node in enumerate(iterations.nodes):
            builder.location = node.location
            place = number % iterations.period
            self.made[node] = self._level(node, place, greatest[place])

    def of(self, node: Node) -> Node:
        value, parts = self.made[node].value, self.made[node].parts
        if isinstance(value, Node):
            return value
        if any(parts) or value.shape != node.aval.shape:  # a longer axis without a part repeats one element
            start = [n - p.count if p is not None and p.last else 0 for p, n in zip(parts, value.shape)]
            stop = [a + n for a, n in zip(start, node.aval.shape)]
            value = slice(value, start=tuple(start), stop=tuple(stop), step=(1,) * len(start))
        return value.node  # type: ignore[no-any-return]

    def _level(self, node: Node, place: int, shape: Shape) -> Parted:
        window = window_of(node)
        if window is not None:
            return self._window(window, place)
        assert node.op is not None
        args = [self._given(x) for x in node.inputs]
        if node.several or (node.aval.shape == shape and not any(any(x.parts) for x in args)):
            inputs = tuple(
                [x.value if is_literal(x.value) or isinstance(x.value, Node) else x.value.node for x in args]
            )
            result = self.builder.number(node.op, inputs, node.params)
            return Parted(result) if node.several else whole(self.builder.value(result))
        if node.op is arange:
            return _counted(dict(node.params), shape)
        if isinstance(node.op, Elementwise):
            args = [_fitting(x, shape) for x in args]
        return applied(node.op, dict(node.params), args, shape)

    def _given(self, x: Any) -> Parted:
        if is_literal(x):
            return Parted(x)
        known = self.made.get(x)
        return known or (Parted(x) if x.several else whole(self.builder.value(x)))

    # -- windows -------------------------------------------------------------------------------------
    def _window(self, window: Window, place: int) -> Parted:
        """The window of the maximal size that contains the windows of all iterations."""
        base = self._given(window.array)
        alike = [w for x in self.iterations.of(place) if (w := window_of(x)) is not None]
        sizes = _greatest([w.sizes for w in alike])
        if any(base.parts):
            return self._piece(window, base, alike, sizes)
        starts, parts = list(window.starts), list[Part | None]()
        for axis, size in enumerate(sizes):
            part = None
            if any(w.sizes[axis] != size for w in alike):
                part = _part(window, alike, axis)
                starts[axis] -= size - part.count if part.last else 0
            parts.append(part)
        level = window._replace(starts=tuple(starts), sizes=sizes)
        if window.mask is None:
            return Parted(clamped(read_again(level, [base.value]), tuple(parts)), tuple(parts))
        return whole(self._written(window, level, parts, base.value))

    def _piece(self, window: Window, base: Parted, alike: Sequence[Window], sizes: Shape) -> Parted:
        """A window of an array with a valid part, the first elements along an axis: a slice of the maximal size of all
        iterations, with a valid part if sizes differ."""
        if window.mask is not None or any(set(w.step) != {1} for w in alike):
            raise Unknown("a window that is written, or has steps, in an array that has another size in each turn")
        value, parts = base.value, list[Part | None]()
        for axis, (start, size, part) in enumerate(zip(window.starts, sizes, base.parts)):
            if part is not None and part.last:
                raise Unknown("a piece of the last elements of an axis")
            uneven = any(w.sizes[axis] != size for w in alike)
            if uneven and len({w.starts[axis] for w in alike}) > 1:
                raise Unknown("a piece that begins elsewhere in each turn, of an array that has another size in each")
            value = _reaching(value, axis, start, size)
            parts.append(Part.of(window.sizes[axis], last=False) if uneven else None)
        return Parted(clamped(value, tuple(parts)), tuple(parts))

    def _written(self, window: Window, level: Window, parts: Sequence[Part | None], array: Any) -> Any:
        """The array with the values written to the part of the window that belongs to the iteration."""
        values = self._given(window.values)
        new = values.value
        if is_literal(new):
            new = full(shape=level.sizes, value=new, dtype=name_of(array.dtype))
        elif new.shape != level.sizes or any(p != q for p, q in zip(values.parts, parts) if p is not None):
            raise Unknown("values that do not lie as the window that they are written to")
        before = read_again(level._replace(mask=None, values=None), [array])
        for axis, part in enumerate(parts):
            if part is not None:
                new = where(belongs(level.sizes, axis, part), new, before)
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


def _counted(params: dict[str, Any], shape: Shape) -> Parted:
    """The maximal number of consecutive numbers, from the iteration's start on."""
    if np.dtype(params["dtype"]).kind != "i":
        raise Unknown("numbers between bounds of each turn that are no integers")
    numbers = arange(start=0, step=params["step"], length=shape[0], dtype=params["dtype"])
    part = Part.of(params["length"], last=False)
    return Parted(clamped(add(numbers, params["start"]), (part,)), (part,))


def _fitting(x: Parted, shape: Shape) -> Parted:
    """An operand of elementwise ops padded to this shape, if its first elements are valid."""
    if is_literal(x.value) or len(x.parts) != len(shape) or any(p is not None and p.last for p in x.parts):
        return x
    value, parts = x.value, list(x.parts)
    for axis, size in enumerate(shape):
        if value.shape[axis] != size:
            parts[axis] = parts[axis] or Part.of(value.shape[axis], last=False)
            value = _reaching(value, axis, 0, size)
    return Parted(value, tuple(parts))


def _reaching(x: Any, axis: int, start: int, size: int) -> Any:
    """A window of an axis from `start` on, in which elements past the end are copies of the last one."""
    ends = [(start, min(start + size, x.shape[axis])), (x.shape[axis] - 1, x.shape[axis])]
    pieces = []
    for low, high in ends:
        begin, stop = (
            [n if a == axis else m for a, m in enumerate(rest)]
            for n, rest in ((low, [0] * len(x.shape)), (high, x.shape))
        )
        pieces.append(slice(x, start=tuple(begin), stop=tuple(stop), step=(1,) * len(begin)))
    missing = size - (ends[0][1] - start)
    return concatenate(pieces[0], *[stop_gradient(pieces[1])] * missing, axis=axis) if missing else pieces[0]


def _part(window: Window, alike: Sequence[Window], axis: int) -> Part:
    if any(w.step[axis] != 1 for w in alike):
        raise Unknown("a window with steps, of another size in each turn")
    if len({w.starts[axis] for w in alike}) == 1:
        return Part.of(window.sizes[axis], last=False)
    if len({w.starts[axis] + w.sizes[axis] for w in alike}) == 1:
        return Part.of(window.sizes[axis], last=True)
    raise Unknown("a window that begins and ends elsewhere in each turn")


def _greatest(shapes: Sequence[Shape]) -> Shape:
    return tuple([max(sizes) for sizes in zip(*shapes)])
