"""Pad ragged iterations (`A[i, :i]`) to the maximal size of all iterations.

The padding repeats a valid element, so any computation on it also happens for that element: it raises no new error and
leaves derivatives correct. Sums, contractions and writes are masked. The padded iterations differ only in
numbers, and are rerolled like others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import is_literal, name_of
from tracegrad.ir import GraphNode
from tracegrad.ir.builder import node_of
from tracegrad.ops.core.elementwise_op import Elementwise
from tracegrad.ops.elementwise.table import add, where
from tracegrad.ops.ragged.masked_semantics import (
    NoMaskedSemantics,
    PaddedValue,
    ValidExtent,
    applied,
    clamped,
    element_mask,
    whole,
)
from tracegrad.ops.shape.fill import arange
from tracegrad.ops.shape.linear import concatenate, full, pad, slice, stop_gradient
from tracegrad.reroll.build_scan import Uses
from tracegrad.reroll.iterations import RecordedIterations
from tracegrad.reroll.offset_slices import SliceWindow, apply_window, window_of
from tracegrad.trace.builder.builder import TraceBuilder

if TYPE_CHECKING:
    from tracegrad.typing import Array


Shape = tuple[int, ...]


def pad_iterations(
    builder: TraceBuilder, iterations: RecordedIterations, used: Uses
) -> dict[GraphNode, GraphNode] | str:
    """Replace padded iterations by a scan. Returns the replacements of the nodes that are `used` later, or the reason
    why there are none."""
    try:
        padded = PaddedIterations(builder, iterations)
    except NoMaskedSemantics as error:
        return str(error)
    wanted = [iterations.of(position)[k] for position, numbers in used.items() for k in sorted(numbers)]
    return {node: padded.of(node) for node in wanted}


class PaddedIterations:
    """Padded iterations; `of` a node is its original value, sliced out of the padded value."""

    def __init__(self, builder: TraceBuilder, iterations: RecordedIterations):
        self.builder, self.iterations = builder, iterations
        self.padded: dict[GraphNode, PaddedValue] = {}
        greatest = [
            _greatest([x.aval.shape for x in iterations.of(k)]) if not iterations.nodes[k].is_multi_result else ()
            for k in range(iterations.period)
        ]
        for number, node in enumerate(iterations.nodes):
            builder.location = node.location
            position = number % iterations.period
            self.padded[node] = self._pad_node(node, position, greatest[position])

    def of(self, node: GraphNode) -> GraphNode:
        value, extents = self.padded[node].value, self.padded[node].extents
        if isinstance(value, GraphNode):
            return value
        if any(extents) or value.shape != node.aval.shape:  # a longer axis without a part repeats one element
            start = [n - p.count if p is not None and p.last else 0 for p, n in zip(extents, value.shape)]
            stop = [a + n for a, n in zip(start, node.aval.shape)]
            value = slice(value, start=tuple(start), stop=tuple(stop), step=(1,) * len(start))
        return value.node  # type: ignore[no-any-return]

    def _pad_node(self, node: GraphNode, position: int, shape: Shape) -> PaddedValue:
        window = window_of(node)
        if window is not None:
            return self._window(window, position)
        assert node.op is not None
        args = [self._padded_operand(x) for x in node.inputs]
        if node.is_multi_result or (node.aval.shape == shape and not any(any(x.extents) for x in args)):
            inputs = tuple(
                [x.value if is_literal(x.value) or isinstance(x.value, GraphNode) else x.value.node for x in args]
            )
            result = self.builder.number(node.op, inputs, node.params)
            return PaddedValue(result) if node.is_multi_result else whole(self.builder.value(result))
        if node.op is arange:
            return _counted(dict(node.params), shape)
        if isinstance(node.op, Elementwise):
            args = [_fitting(x, shape) for x in args]
        return applied(node.op, dict(node.params), args, shape)

    def _padded_operand(self, x: GraphNode | float) -> PaddedValue:
        if is_literal(x):
            return PaddedValue(x)
        known = self.padded.get(x)
        return known or (PaddedValue(x) if x.is_multi_result else whole(self.builder.value(x)))

    # -- windows -------------------------------------------------------------------------------------
    def _window(self, window: SliceWindow, position: int) -> PaddedValue:
        """The window of the maximal size that contains the windows of all iterations."""
        base = self._padded_operand(window.array)
        alike = [w for x in self.iterations.of(position) if (w := window_of(x)) is not None]
        sizes = _greatest([w.sizes for w in alike])
        if any(base.extents):
            return self._padded_slice(window, base, alike, sizes)
        starts, extents = list(window.starts), list[ValidExtent | None]()
        for axis, size in enumerate(sizes):
            extent = None
            if any(w.sizes[axis] != size for w in alike):
                extent = _extent_of(window, alike, axis)
                starts[axis] -= size - extent.count if extent.last else 0
            extents.append(extent)
        padded_window = window._replace(starts=tuple(starts), sizes=sizes)
        if window.mask is None:
            return PaddedValue(clamped(apply_window(padded_window, [base.value]), tuple(extents)), tuple(extents))
        return whole(self._written(window, padded_window, extents, base.value))

    def _padded_slice(
        self, window: SliceWindow, base: PaddedValue, alike: Sequence[SliceWindow], sizes: Shape
    ) -> PaddedValue:
        """A window of an array with a valid part, the first elements along an axis: a slice of the maximal size of all
        iterations, with a valid part if sizes differ."""
        if window.mask is not None or any(set(w.step) != {1} for w in alike):
            raise NoMaskedSemantics(
                "a window that is written, or has steps, in an array that has another size in each iteration"
            )
        value, extents = base.value, list[ValidExtent | None]()
        for axis, (start, size, extent) in enumerate(zip(window.starts, sizes, base.extents)):
            if extent is not None and extent.last:
                raise NoMaskedSemantics("a piece of the last elements of an axis")
            uneven = any(w.sizes[axis] != size for w in alike)
            if uneven and len({w.starts[axis] for w in alike}) > 1:
                raise NoMaskedSemantics(
                    "a piece that begins elsewhere in each iteration, of an array that has another size in each"
                )
            value = _reaching(value, axis, start, size)
            extents.append(ValidExtent.of(window.sizes[axis], last=False) if uneven else None)
        return PaddedValue(clamped(value, tuple(extents)), tuple(extents))

    def _written(
        self, window: SliceWindow, padded_window: SliceWindow, extents: Sequence[ValidExtent | None], array: Array
    ) -> Any:
        """The array with the values written to the part of the window that belongs to the iteration."""
        values = self._padded_operand(window.values)
        new = values.value
        if is_literal(new):
            new = full(shape=padded_window.sizes, value=new, dtype=name_of(array.dtype))
        elif new.shape != padded_window.sizes or any(p != q for p, q in zip(values.extents, extents) if p is not None):
            raise NoMaskedSemantics("values that do not lie as the window that they are written to")
        before = apply_window(padded_window._replace(mask=None, values=None), [array])
        for axis, extent in enumerate(extents):
            if extent is not None:
                new = where(element_mask(padded_window.sizes, axis, extent), new, before)
        stop = tuple(
            a + (n - 1) * s + 1 for a, n, s in zip(padded_window.starts, padded_window.sizes, padded_window.step)
        )
        high = tuple(n - b for n, b in zip(array.shape, stop))
        mask: dict[str, Any] = {
            "low": padded_window.starts,
            "high": high,
            "interior": tuple(s - 1 for s in padded_window.step),
            "value": False,
        }
        padding = node_of(pad(full(shape=padded_window.sizes, value=True, dtype="bool"), **mask))
        return apply_window(padded_window._replace(mask=padding), [array, new])


def _counted(params: dict[str, Any], shape: Shape) -> PaddedValue:
    """The maximal number of consecutive numbers, from the iteration's start on."""
    if np.dtype(params["dtype"]).kind != "i":
        raise NoMaskedSemantics("numbers between bounds of each iteration that are no integers")
    numbers = arange(start=0, step=params["step"], length=shape[0], dtype=params["dtype"])
    extent = ValidExtent.of(params["length"], last=False)
    return PaddedValue(clamped(add(numbers, params["start"]), (extent,)), (extent,))


def _fitting(x: PaddedValue, shape: Shape) -> PaddedValue:
    """An operand of elementwise ops padded to this shape, if its first elements are valid."""
    if is_literal(x.value) or len(x.extents) != len(shape) or any(p is not None and p.last for p in x.extents):
        return x
    value, extents = x.value, list(x.extents)
    for axis, size in enumerate(shape):
        if value.shape[axis] != size:
            extents[axis] = extents[axis] or ValidExtent.of(value.shape[axis], last=False)
            value = _reaching(value, axis, 0, size)
    return PaddedValue(value, tuple(extents))


def _reaching(x: Any, axis: int, start: int, size: int) -> Any:
    """A window of an axis from `start` on, in which elements past the end are copies of the last one."""
    ends = [(start, min(start + size, x.shape[axis])), (x.shape[axis] - 1, x.shape[axis])]
    slices = []
    for low, high in ends:
        begin, stop = (
            [n if a == axis else m for a, m in enumerate(rest)]
            for n, rest in ((low, [0] * len(x.shape)), (high, x.shape))
        )
        slices.append(slice(x, start=tuple(begin), stop=tuple(stop), step=(1,) * len(begin)))
    missing = size - (ends[0][1] - start)
    return concatenate(slices[0], *[stop_gradient(slices[1])] * missing, axis=axis) if missing else slices[0]


def _extent_of(window: SliceWindow, alike: Sequence[SliceWindow], axis: int) -> ValidExtent:
    if any(w.step[axis] != 1 for w in alike):
        raise NoMaskedSemantics("a window with steps, of another size in each iteration")
    if len({w.starts[axis] for w in alike}) == 1:
        return ValidExtent.of(window.sizes[axis], last=False)
    if len({w.starts[axis] + w.sizes[axis] for w in alike}) == 1:
        return ValidExtent.of(window.sizes[axis], last=True)
    raise NoMaskedSemantics("a window that begins and ends elsewhere in each iteration")


def _greatest(shapes: Sequence[Shape]) -> Shape:
    return tuple([max(sizes) for sizes in zip(*shapes)])
