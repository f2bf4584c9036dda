"""Padding, `np.pad`: with a constant, with elements of the array, or with values computed from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tracegrad.errors import located
from tracegrad.numpy_api import reductions
from tracegrad.numpy_api.creation import linspace
from tracegrad.numpy_api.joining import along, concatenate, picked
from tracegrad.numpy_api.lazy.quantiles import median
from tracegrad.numpy_api.memory_layout import in_memory_order
from tracegrad.numpy_api.operands import alias, arrays, constant, peer_of, to_dtype
from tracegrad.numpy_api.registry import implements, refuse
from tracegrad.numpy_api.shapes import moveaxis
from tracegrad.ops.core.op import normalize_axis
from tracegrad.ops.elementwise.table import multiply, rint, subtract, where
from tracegrad.ops.shape import linear
from tracegrad.ops.shape.linear import broadcast_to, flip, reshape
from tracegrad.typing import Array, ArrayLike

_BY_INDEX = frozenset({"edge", "reflect", "symmetric", "wrap"})
MAX_SLICES = 8  # slices that are concatenated; for more, the elements are gathered
_STATISTICS: dict[str, Callable[..., Any]] = {
    "maximum": reductions.max,
    "minimum": reductions.min,
    "mean": reductions.mean,
    "median": median,
}


def _one(a: object) -> Array:
    return arrays(a)[0]


# -- with computed values --------------------------------------------------------------------------------------------
def _ends(x: Array, axis: int) -> tuple[Array, Array]:
    n = x.shape[axis]
    return along(x, axis, 0, 1), along(x, axis, n - 1, n)


def _ramps(x: Array, axis: int, widths: tuple[int, int], ends: tuple[Array, Array]) -> list[Array]:
    first, last = _ends(x, axis)

    def ramp(end: ArrayLike, edge: Array, width: int) -> Array:
        steps = linspace(
            end,
            reshape(edge, shape=tuple(n for k, n in enumerate(edge.shape) if k != axis)),
            width,
            endpoint=False,
            dtype=x.dtype,
        )
        return moveaxis(steps, 0, axis)

    return [ramp(ends[0], first, widths[0]), x, flip(ramp(ends[1], last, widths[1]), axes=(axis,))]


def _statistic(of: Callable[..., Array]) -> Callable[..., list[Array]]:
    def padded(x: Array, axis: int, widths: tuple[int, int], lengths: tuple[Array, Array]) -> list[Array]:
        n = x.shape[axis]
        low, high = (n if m is None else min(int(m), n) for m in lengths)
        if not low or not high:
            raise ValueError(located("stat_length of 0 yields no value for padding"))
        results = []
        for part, width in ((along(x, axis, 0, low), widths[0]), (along(x, axis, n - high, n), widths[1])):
            value = of(part, axis, keepdims=True)
            value = to_dtype(rint(value), x.dtype) if x.dtype.kind in "iu" and value.dtype.kind == "f" else value
            shape = tuple(width if k == axis else m for k, m in enumerate(x.shape))
            results.append(broadcast_to(value, shape=shape))
        return [results[0], x, results[1]]

    return padded


def _odd(mode: str) -> Callable[..., list[Array]]:
    """Make the padding of `reflect_type="odd"`: reflected about the points at the edges."""
    skip = 1 if mode == "reflect" else 0

    def padded(x: Array, axis: int, widths: tuple[int, int], _: object) -> list[Array]:
        n = x.shape[axis]
        if max(widths) > n - skip:
            raise refuse("np.pad with reflect_type='odd' by more elements than there are", "pad twice")
        first, last = _ends(x, axis)
        low, high = along(x, axis, skip, skip + widths[0]), along(x, axis, n - skip - widths[1], n - skip)
        low, high = (flip(part, axes=(axis,)) for part in (low, high))
        return [subtract(multiply(first, 2), low), x, subtract(multiply(last, 2), high)]

    return padded


def _pad_by_index(x: Array, axis: int, indices: list[int]) -> Array:
    """Return the elements at `indices` along an axis: concatenated slices of `x`, or a gather if there are many runs.

    A slice goes forwards, backwards, or repeats one element.
    """
    runs = list(_runs(indices))
    if len(runs) > MAX_SLICES:
        return picked(x, constant(np.array(indices), peer_of(x)), axis)
    return concatenate([_run(x, axis, *run) for run in runs], axis)


def _runs(indices: list[int]) -> Iterator[tuple[int, int, int]]:
    """Return runs of positions with the steps 1, 0 or -1: the first of each, and their number."""
    low = 0
    while low < len(indices):
        step = next((k for k in (1, 0, -1) if indices[low + 1 : low + 2] == [indices[low] + k]), 0)
        high = low + 1
        while indices[high : high + 1] == [indices[high - 1] + step]:
            high += 1
        yield indices[low], step, high - low
        low = high


def _run(x: Array, axis: int, first: int, step: int, count: int) -> Array:
    last = first + step * (count - 1)
    section = along(x, axis, min(first, last), max(first, last) + 1)
    if step == 0:
        return broadcast_to(section, shape=tuple(count if k == axis else n for k, n in enumerate(x.shape)))
    return section if step > 0 else flip(section, axes=(axis,))


_BY_VALUE: dict[str, Callable[..., Any]] = {
    "linear_ramp": _ramps,
    "odd reflect": _odd("reflect"),
    "odd symmetric": _odd("symmetric"),
} | {mode: _statistic(of) for mode, of in _STATISTICS.items()}


# -- np.pad ------------------------------------------------------------------------------------------------------------
@implements(np.pad)
def pad(array: Any, pad_width: Any, mode: Any = "constant", **kwargs: Any) -> Array:
    """`np.pad` with the modes that have a name; the new elements of mode empty are zeros."""
    x = _one(array)
    rank = len(x.shape)
    if isinstance(pad_width, dict):
        full = {normalize_axis("pad", k, rank): v for k, v in pad_width.items()}
        pad_width = [(w, w) if np.ndim(w) == 0 else w for w in (full.get(k, 0) for k in range(rank))]
    widths = _pairs(pad_width, rank)
    if any(w < 0 for pair in widths for w in pair):
        raise ValueError(located("index can't contain negative values"))
    if mode in ("constant", "empty"):
        return _padded_constant(x, widths, kwargs)
    if mode in ("reflect", "symmetric") and kwargs.pop("reflect_type", "even") == "odd":
        mode = f"odd {mode}"
    argument = "end_values" if mode == "linear_ramp" else "stat_length" if mode in _STATISTICS else ""
    args = kwargs.pop(argument, 0 if mode == "linear_ramp" else None)
    if kwargs or not (mode in _BY_INDEX or mode in _BY_VALUE):
        raise refuse(f"np.pad with mode={mode!r} and {sorted(kwargs) or 'these arguments'}")
    out, value_pairs = x, [(args, args)] * rank if args is None else _pairs(args, rank)
    for k, pair in enumerate(widths):
        if any(pair) and mode in _BY_INDEX:
            out = _pad_by_index(out, k, np.pad(np.arange(x.shape[k]), pair, mode=mode).tolist())
        elif any(pair):
            out = concatenate(_BY_VALUE[mode](out, k, pair, value_pairs[k]), k)
    return in_memory_order(out if out is not x else alias(x), "A", x)


def _pairs(values: ArrayLike, rank: int) -> list[tuple[Any, Any]]:
    pairs = np.broadcast_to(np.asarray(values), (rank, 2)).tolist() if rank else []
    return [(a, b) for a, b in pairs]


def _padded_constant(x: Array, widths: list[tuple[int, int]], kwargs: dict[str, Any]) -> Array:
    values = kwargs.pop("constant_values", 0)
    if kwargs:
        raise refuse(f"the argument {sorted(kwargs)[0]}= of np.pad with mode='constant'")
    if (peer := peer_of(values)) is not None:
        if peer is not values or peer.shape:
            return _padded_traced(x, widths, values)
        inside = _pad_once(_true_like(x), widths, False)
        return where(inside, _pad_once(x, widths, 0), values)
    pairs = _pairs(values, len(x.shape))
    if len({v for pair in pairs for v in pair}) <= 1:
        return _pad_once(x, widths, pairs[0][0] if pairs else 0)
    for k, ((a, b), (u, v)) in enumerate(zip(widths, pairs)):
        for low, high, value in ((a, 0, u), (0, b, v)):
            x = _pad_once(x, [(low, high) if i == k else (0, 0) for i in range(len(widths))], value)
    return x


def _padded_traced(x: Array, widths: list[tuple[int, int]], values: ArrayLike) -> Array:
    (args,) = arrays(values)
    args = broadcast_to(args, shape=(len(x.shape), 2))
    for k, pair in enumerate(widths):
        ends = []
        for side, width in enumerate(pair):
            shape = tuple(width if i == k else n for i, n in enumerate(x.shape))
            ends.append(broadcast_to(to_dtype(args[k, side], x.dtype), shape=shape))
        x = concatenate([ends[0], x, ends[1]], k)
    return x


def _true_like(x: Array) -> Array:
    return linear.full(shape=x.shape, value=True, dtype="bool")


def _pad_once(x: Array, widths: list[tuple[int, int]], value: float) -> Array:
    kind = {"b": bool, "f": float, "c": complex}.get(x.dtype.kind, int)
    low, high = (tuple(int(pair[side]) for pair in widths) for side in (0, 1))
    return linear.pad(x, low=low, high=high, interior=(0,) * len(low), value=kind(value))
