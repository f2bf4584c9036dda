"""Graphs of small whole numbers, whose results are exact in any order of computation and so are compared to the bit.

`graph_from(seed)` draws such a graph from the whole op table: every dtype, axes of size zero, one, a few (constants of
a kernel) and many (its arguments), chains of views, scatters into the middle, values used at several places.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from graphs import REAL

from tracegrad.avals import Aval, aval_of
from tracegrad.ir import Graph, build, run
from tracegrad.ops.elementwise import table as elementwise
from tracegrad.ops.indexing import gather_scatter
from tracegrad.ops.linalg import contraction
from tracegrad.ops.reduce import reductions, scans
from tracegrad.ops.shape import linear
from tracegrad.runtime.execution.program import Program, compile_program

__all__ = ["assert_same", "compiled", "full_slice", "graph_from", "outputs_of", "values_for", "whole"]

rng = np.random.default_rng(0)


def compiled(graph: Graph) -> Program:
    """The program of `graph`, of arrays, returning a tuple."""
    return compile_program(graph, ("array",) * len(graph.inputs), False)


def outputs_of(fn: Callable[..., Any], *arrays: Any) -> tuple[list[Any], list[Any]]:
    """What the compiled and what the interpreted graph of `fn` give."""
    graph = build(fn, [aval_of(x) for x in arrays])
    return [np.asarray(x) for x in compiled(graph).run(list(arrays))], run(graph, arrays)


def assert_same(fn: Callable[..., Any], *arrays: Any, rtol: float = 0) -> None:
    """The compiled graph of `fn` gives what the interpreted one gives: dtype, shape and every element."""
    for got, want in zip(*outputs_of(fn, *arrays), strict=True):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol)


def whole(*shape: int, dtype: Any = "float64", low: int = -9, high: int = 10) -> Any:
    """Small whole numbers."""
    return rng.integers(low, high, shape).astype(dtype)


def full_slice(x: Any, **changed: Any) -> Any:
    """`slice` of all of `x` but for what is changed."""
    args = {"start": (0,) * len(x.shape), "stop": x.shape, "step": (1,) * len(x.shape)} | changed
    return linear.slice(x, **args)


# -- random graphs ---------------------------------------------------------------------------------------------------
SIZES = (1, 1, 2, 3, 5, 8, 9, 12, 17, 33)
DTYPES = ("float64", "float64", *sorted(d.name for d in REAL))
LARGEST = 6000  # elements


class Unsuitable(Exception):
    """A drawn op does not apply to the drawn operand."""


class Draw:
    """Draws one graph; every value is reduced modulo 7, so that products and sums stay exact in float32."""

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)
        self.pool: list[Any] = []

    def graph(self, steps: int) -> Graph:
        avals = [Aval(self.shape(), np.dtype(self.one(DTYPES))) for _ in range(self.upto(3) + 1)]
        return build(self.body(steps), avals)

    def body(self, steps: int) -> Callable[..., list[Any]]:
        def fn(*xs: Any) -> list[Any]:
            self.pool = [self.small(x) for x in xs]
            for _ in range(self.upto(steps) + 1):
                x = self.pick()
                try:
                    value = self.one(STEPS)(self, x)
                except Unsuitable:
                    continue
                if value.aval.size <= LARGEST:
                    self.pool.append(self.small(value))
            outputs = [self.pool[-1], *(self.one(self.pool) for _ in range(self.upto(3)))]
            return outputs + ([xs[0], outputs[0]] if self.chance(0.1) else [])

        return fn

    # -- choices
    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def upto(self, n: int) -> int:
        return int(self.rng.integers(n))

    def one(self, of: Any) -> Any:
        return of[self.upto(len(of))]

    def pick(self) -> Any:
        """Most often the last value."""
        return self.pool[-1] if self.chance(0.6) else self.one(self.pool)

    def shape(self, rank: int = 4, most: int = 2500) -> tuple[int, ...]:
        while True:
            shape = tuple(0 if self.chance(0.01) else self.one(SIZES) for _ in range(self.upto(rank + 1)))
            if math.prod(shape) <= most:
                return shape

    def axes(self, x: Any) -> tuple[int, ...]:
        return tuple(a for a in range(len(x.shape)) if self.chance(0.5))

    # -- operands made suitable
    def small(self, x: Any) -> Any:
        return x if x.dtype.kind == "b" else elementwise.remainder(x, 7.0 if x.dtype.kind == "f" else 7)

    def finite(self, x: Any) -> Any:
        return elementwise.where(elementwise.isfinite(x), x, 1.0) if x.dtype.kind == "f" else x

    def cast(self, x: Any, dtype: str) -> Any:
        if x.dtype.name == dtype:
            return x
        return linear.cast(self.finite(x) if np.dtype(dtype).kind in "iu" else x, dtype=dtype)

    def floating(self) -> Any:
        x = self.pick()
        return x if x.dtype.kind == "f" else self.cast(x, self.one(("float64", "float32")))

    def fitted(self, x: Any, shape: tuple[int, ...]) -> Any:
        """`x` with another shape: repeated, reshaped, cut, padded or gathered."""
        have, want = x.aval.size, math.prod(shape)
        if x.shape == shape:
            return x
        if len(x.shape) <= len(shape) and all(n in (1, m) for n, m in zip(x.shape[::-1], shape[::-1])):
            return linear.broadcast_to(x, shape=shape)
        if not have:
            return x.builder.emit(linear.full, (), {"shape": shape, "value": 1, "dtype": x.dtype.name})
        flat = linear.reshape(x, shape=(have,))
        if have > want:
            flat = linear.slice(flat, start=(0,), stop=(want,), step=(1,))
        elif have < want and want < 3 * have and self.chance(0.5):
            low = self.upto(want - have + 1)
            flat = linear.pad(flat, low=(low,), high=(want - have - low,), interior=(0,), value=2)
        elif have < want:
            flat = gather_scatter.gather(flat, self.indices(x, (want,), have), axes=(0,))
        return linear.reshape(flat, shape=shape)

    def indices(self, near: Any, shape: tuple[int, ...], size: int, dtype: str = "") -> Any:
        """Indices of an axis of `size`, some of them negative."""
        dtype = dtype or (self.one(("int64", "int32", "int8", "uint8", "uint64")) if size <= 100 else "int64")
        params = {"start": self.upto(5), "step": self.upto(3) + 1, "length": math.prod(shape), "dtype": "int64"}
        result = elementwise.remainder(near.builder.emit(linear.arange, (), params), size)
        if dtype[0] == "i" and self.chance(0.4):
            result = elementwise.subtract(result, size)
        return self.cast(linear.reshape(result, shape=shape), dtype)


ARITHMETIC = (elementwise.add, elementwise.multiply, elementwise.maximum, elementwise.minimum)
NOT_OF_BOOLEANS = (elementwise.subtract, elementwise.floor_divide, elementwise.remainder)
OF_BOOLEANS = (elementwise.logical_and, elementwise.logical_or, elementwise.logical_xor)
COMPARISONS = (
    elementwise.less,
    elementwise.less_equal,
    elementwise.equal,
    elementwise.not_equal,
    elementwise.greater,
    elementwise.greater_equal,
)


def _binary(draw: Draw, x: Any) -> Any:
    y = draw.fitted(draw.pick(), x.shape)
    dtype = np.result_type(x.dtype, y.dtype).name
    x, y = draw.cast(x, dtype), draw.cast(y, dtype)
    if dtype != "bool" and draw.chance(0.3):
        number = draw.one((0, 1, 2, 3, 9, 13))
        y = float(number) if x.dtype.kind == "f" else number
    op = draw.one(ARITHMETIC + (OF_BOOLEANS if dtype == "bool" else NOT_OF_BOOLEANS))
    return op(x, y) if draw.chance(0.7) else op(y, x)


def _compare(draw: Draw, x: Any) -> Any:
    return draw.one(COMPARISONS)(x, draw.fitted(draw.pick(), x.shape))


def _where(draw: Draw, x: Any) -> Any:
    condition = draw.fitted(draw.pick(), x.shape)
    condition = condition if condition.dtype.kind == "b" else elementwise.not_equal(condition, 0)
    return elementwise.where(condition, x, draw.fitted(draw.cast(draw.pick(), x.dtype.name), x.shape))


def _cast(draw: Draw, x: Any) -> Any:
    return draw.cast(x, draw.one(DTYPES))


def _dear(draw: Draw, x: Any) -> Any:
    """Something dear to compute, whose rounding leaves no trace."""
    x = draw.floating()
    if draw.chance(0.5):
        return elementwise.sqrt(elementwise.square(x))
    bent = elementwise.sin(draw.cast(x, "float64"))
    return elementwise.rint(elementwise.add(elementwise.multiply(bent, 3.0), 0.1))


def _transpose(draw: Draw, x: Any) -> Any:
    return linear.transpose(x, perm=tuple(int(i) for i in draw.rng.permutation(len(x.shape))))


def _flip(draw: Draw, x: Any) -> Any:
    return linear.flip(x, axes=draw.axes(x))


def _slice(draw: Draw, x: Any) -> Any:
    start = tuple(draw.upto(min(n, 4) + 1) if draw.chance(0.5) else 0 for n in x.shape)
    stop = tuple(n - draw.upto(min(n - a, 2) + 1) if draw.chance(0.9) else a for a, n in zip(start, x.shape))
    return linear.slice(x, start=start, stop=stop, step=tuple(draw.one((1, 1, 1, 2, 3)) for _ in start))


def _pad(draw: Draw, x: Any) -> Any:
    low, high = (tuple(draw.one((0, 0, 1, 2, 10)) for _ in x.shape) for _ in range(2))
    interior = tuple(draw.one((0, 0, 0, 1, 2, 11)) for _ in x.shape)
    if math.prod(linear.padded_shape(x.shape, low, high, interior)) > LARGEST:
        raise Unsuitable
    value = x.dtype.type(draw.one((0, 1, 5))).item()
    return linear.pad(x, low=low, high=high, interior=interior, value=value)


def _concatenate(draw: Draw, x: Any) -> Any:
    if not x.shape:
        raise Unsuitable
    axis, pieces = draw.upto(len(x.shape)), [x]
    for _ in range(draw.upto(3) + 1):
        size = draw.one((0, 1, 2, 9, x.shape[axis]))
        shape = (*x.shape[:axis], size, *x.shape[axis + 1 :])
        pieces.append(draw.fitted(draw.cast(draw.pick(), x.dtype.name), shape))
    return linear.concatenate(*pieces, axis=axis)


def _broadcast(draw: Draw, x: Any) -> Any:
    shape = tuple(draw.one(SIZES) if n == 1 and draw.chance(0.5) else n for n in x.shape)
    shape = (*(draw.one(SIZES) for _ in range(draw.upto(2))), *shape)
    if math.prod(shape) > LARGEST:
        raise Unsuitable
    return linear.broadcast_to(x, shape=shape)


def _reshape(draw: Draw, x: Any) -> Any:
    n = x.aval.size
    if not n:
        raise Unsuitable
    a = draw.one([d for d in range(1, n + 1) if n % d == 0])
    b = draw.one([d for d in range(1, n // a + 1) if n // a % d == 0])
    return linear.reshape(x, shape=draw.one(((a, n // a), (a, b, n // a // b), (n,), (1, n), (a, 1, n // a))))


def _reduce(draw: Draw, x: Any) -> Any:
    axes = draw.axes(x)
    empty = any(x.shape[a] == 0 for a in axes)
    return draw.one(
        (linear.reduce_sum,) if empty else (linear.reduce_sum, reductions.reduce_max, reductions.reduce_min)
    )(x, axes=axes)


def _product(draw: Draw, x: Any) -> Any:
    """Of zeros and ones."""
    signs = elementwise.greater(x, 3) if x.dtype.kind != "b" else x
    return reductions.reduce_prod(draw.cast(signs, x.dtype.name), axes=draw.axes(x))


def _arg_extremum(draw: Draw, x: Any) -> Any:
    if not x.shape or 0 in x.shape:
        raise Unsuitable
    return draw.one((reductions.argmax, reductions.argmin))(x, axis=draw.upto(len(x.shape)))


def _cumsum(draw: Draw, x: Any) -> Any:
    if not x.shape:
        raise Unsuitable
    return scans.cumsum(x, axis=draw.upto(len(x.shape)))


def _gather(draw: Draw, x: Any) -> Any:
    shape = draw.shape(2, 60)
    if not x.shape or 0 in x.shape or math.prod(shape) * x.aval.size > 50 * LARGEST:
        raise Unsuitable
    axes = tuple(int(a) for a in draw.rng.permutation(len(x.shape))[: draw.upto(2) + 1])
    return gather_scatter.gather(x, *(draw.indices(x, shape, x.shape[a], "int64") for a in axes), axes=axes)


def _scatter(draw: Draw, x: Any) -> Any:
    if not x.shape or 0 in x.shape:
        raise Unsuitable
    depth = draw.upto(min(len(x.shape), 2) + 1)
    shape, axes = list(x.shape[depth:]), list[int]()
    for _ in range(draw.upto(2) + 1):
        at = draw.upto(len(shape) + 1)
        shape.insert(at, draw.one((1, 2, 5, 9, 12)))
        axes = [a + (a >= at) for a in axes] + [at]
    if math.prod(shape) > LARGEST:
        raise Unsuitable
    indices = [draw.indices(x, x.shape[:depth], shape[a], "int64") for a in axes]
    return gather_scatter.scatter_add(x, *indices, shape=tuple(shape), axes=tuple(axes))


def _matmul(draw: Draw, x: Any) -> Any:
    x = draw.finite(draw.floating())
    if not x.shape:
        raise Unsuitable
    x = x if len(x.shape) > 1 else linear.reshape(x, shape=(x.shape[0], 1))
    columns = draw.one(SIZES)
    y = draw.finite(draw.cast(draw.pick(), x.dtype.name))
    if x.aval.size * columns > 100 * LARGEST:
        raise Unsuitable
    if draw.chance(0.5):
        return contraction.matmul_any(x, draw.fitted(y, (x.shape[-1], columns)))
    return contraction.matmul_any(x, linear.transpose(draw.fitted(y, (columns, x.shape[-1])), perm=(1, 0)))


def _fresh(draw: Draw, x: Any) -> Any:
    return linear.fresh(x, tag=draw.upto(9)) if draw.chance(0.5) else linear.stop_gradient(x)


STEPS = (
    *[_binary] * 5,
    _compare,
    _where,
    _cast,
    _dear,
    _transpose,
    _flip,
    *[_slice] * 2,
    *[_pad] * 2,
    *[_concatenate] * 2,
    _broadcast,
    _reshape,
    *[_reduce] * 2,
    _product,
    _arg_extremum,
    _cumsum,
    *[_gather] * 2,
    *[_scatter] * 2,
    _matmul,
    _fresh,
)


def graph_from(seed: int, steps: int = 14) -> Graph:
    """The graph of up to `steps` ops that `seed` stands for."""
    return Draw(seed).graph(steps)


def values_for(graph: Graph, seed: int) -> list[Any]:
    """Whole numbers for the inputs of `graph`, now and then with a nan or an infinity."""
    draw = np.random.default_rng(seed)
    arrays = []
    for a in graph.avals:
        low, high = (0, 2) if a.dtype.kind == "b" else (0 if a.dtype.kind == "u" else -9, 10)
        x = draw.integers(low, high, a.shape).astype(a.dtype)
        if a.is_float and a.size and draw.random() < 0.15:
            x.reshape(-1)[draw.integers(a.size)] = draw.choice([np.nan, np.inf, -np.inf])
        arrays.append(x)
    return arrays
