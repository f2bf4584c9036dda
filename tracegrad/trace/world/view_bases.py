"""Trace captured arrays as views of a common base, if the trace writes one and reads another (aliasing).

A trace first assumes that each array from outside has its own memory, which usually holds. If a call shows that a
written array shares memory, it is traced again with the facts of `views_of`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from tracegrad.numpy_api.joining import picked
from tracegrad.numpy_api.operands import constant, peer_of, raveled, read_only
from tracegrad.ops.core.memory_order import stand_in
from tracegrad.trace.builder.facts import Fact, ViewFact
from tracegrad.trace.builder.value_guards import Capture
from tracegrad.trace.sources.sources import Attribute, Names, Source

Array = np.ndarray[Any, Any]


class Position(Source):
    """The position of the parent's array in its base, as a text; empty if it has none."""

    __slots__ = ()

    def read(self) -> str:
        return _position(self.parent.read())

    def text(self, name: Names) -> str:
        return f"{name(_position)}({self.parent.text(name)})"

    @property
    def path(self) -> str:
        return f"the position of {self.parent.path} in its base"


def _position(x: Any) -> str:
    base = x.base
    if not type(x) is type(base) is np.ndarray:
        return ""
    layout = f"{x.shape}{x.strides}{_offset(x)}{x.dtype.str}{x.flags.writeable}"
    return f"{layout} of {base.shape}{base.strides}{base.dtype.str}"


def _is_view(x: object) -> bool:
    """Whether an array consists of elements of its base, a contiguous array of the same dtype."""
    base = getattr(x, "base", None)
    if not type(x) is type(base) is np.ndarray or not x.size or x.dtype != base.dtype or base.base is not None:
        return False
    low, high = np.lib.array_utils.byte_bounds(base)
    byte_steps = (_offset(x), *x.strides)
    return bool(high - low == base.nbytes and not any(n % x.itemsize for n in byte_steps))


def _offset(x: Any) -> int:
    """The byte offset of the first element in the base."""
    return int(x.__array_interface__["data"][0] - x.base.__array_interface__["data"][0])


def views_of(captures: Iterable[Capture], captured: Iterable[Any]) -> frozenset[Fact]:
    """The facts with which another trace treats captured arrays that share memory as views."""
    arrays = [(c.source, x) for c, x in zip(captures, captured) if c.source is not None and isinstance(x, np.ndarray)]
    return frozenset(
        ViewFact(source.key)
        for source, x in arrays
        if _is_view(x) and any(x is not y and np.may_share_memory(x, y) for _, y in arrays)
    )


class Views:
    """Captured arrays that are views of their bases in one trace."""

    def __init__(self, world: Any):
        self._world = world
        self._known: dict[int, tuple[Array, Any, Source]] = {}

    def of(self, x: Array, source: Source) -> Any:
        """The tracer of an array that shares memory with another outside array; None for others."""
        known = self._known.get(id(x))
        if known is not None:
            if known[2].key != source.key:
                self._world.assume(source, "same", known[2])
            return known[1]
        result = _as_view(self._world, x, source) if ViewFact(source.key) in self._world.facts else None
        if result is not None:
            self._world.writes.array(result, source)
            self._known[id(x)] = x, result, source
        return result

    def clear(self) -> None:
        """Release all references at the end of the trace."""
        self._known.clear()


def _as_view(world: Any, x: Array, source: Source) -> Any:
    """The tracer of the array at `source`, as a view of its base's tracer; None if it is no view."""
    world.assume(Position(source, None), "equals", _position(x))
    if not _is_view(x):
        return None
    base = world.translate(x.base, Attribute(source, "base"))
    cut = _cut(x) if x.flags.writeable else None
    if cut is not None:
        index, order, axes = cut
        return base[index].transpose(order)[axes]
    shape, strides, offset = x.shape, x.strides, _offset(x)
    indices = _base_indices(x)

    def layout_of_view(base: Array) -> Array:
        return stand_in(shape, base.dtype, strides, base.__array_interface__["data"][0] + offset)

    from tracegrad.numpy_api.lazy.stride_tricks import view_of_indices

    result = picked(raveled(base), constant(indices, peer_of(base)), 0)
    return (
        view_of_indices(base, result, indices, layout_of_view)
        if x.flags.writeable
        else read_only(base, result, layout_of_view)
    )


def _cut(x: Array) -> tuple[tuple[Any, ...], list[int], tuple[Any, ...]] | None:
    """The index of integers and slices, the axis order, and the index for unit axes that make the view from its base;
    None if there are none."""
    base, rest = x.base, _offset(x)
    assert base is not None
    falling = sorted(range(base.ndim), key=lambda k: -base.strides[k])
    starts = {}
    for k in falling:
        starts[k] = min(rest // base.strides[k], base.shape[k] - 1)
        rest -= starts[k] * base.strides[k]
    index: list[Any] = [starts[k] for k in range(base.ndim)]
    used_axes: list[int] = []
    for n, s in zip(x.shape, x.strides):
        if n == 1:
            continue
        axis = next((k for k in falling if k not in used_axes and s and s % base.strides[k] == 0), None)
        if axis is None:
            return None
        stride = s // base.strides[axis]
        last = starts[axis] + stride * (n - 1)
        if not 0 <= last < base.shape[axis]:
            return None
        used_axes.append(axis)
        end = last + (1 if stride > 0 else -1)
        index[axis] = slice(starts[axis], end if end >= 0 else None, stride)
    if rest:
        return None
    order = [sorted(used_axes).index(k) for k in used_axes]
    axes = tuple([None if n == 1 else slice(None) for n in x.shape])
    return (*index, ...), order, (*axes, ...)


def _base_indices(x: Array) -> Array:
    """The number of each element of a view in its base, in row-major order."""
    base, size = x.base, x.itemsize
    assert base is not None
    numbers = np.empty(base.size, np.int64)  # indexed by the position of the element in memory
    numbered = np.lib.stride_tricks.as_strided(numbers, base.shape, [s // size * 8 for s in base.strides])
    numbered[...] = np.arange(base.size).reshape(base.shape)
    strides = [s // size * 8 for s in x.strides]
    return np.ascontiguousarray(np.lib.stride_tricks.as_strided(numbers[_offset(x) // size :], x.shape, strides))
