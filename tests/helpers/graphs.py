"""Graphs for the tests: of one op of the table on its samples, and random ones drawn by hypothesis."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from tracegrad.avals import SUPPORTED, Aval, aval_of
from tracegrad.ir import Builder, Graph, build
from tracegrad.ops import TABLE, lazy
from tracegrad.ops.elementwise import table as elementwise
from tracegrad.ops.indexing import gather_scatter
from tracegrad.ops.linalg import contraction
from tracegrad.ops.reduce import reductions
from tracegrad.ops.shape import linear
from tracegrad.transforms.vjp_graph import vjp

# The dtypes that kernels know.
REAL = [dtype for dtype in SUPPORTED if dtype.kind != "c"]
# Every test starts from its first state, whatever ran before.
rng = np.random.default_rng(0)
START = rng.bit_generator.state


def several(x: Any) -> tuple[Any, ...]:
    """The results of an op, or their avals, whether it has one or several."""
    return x if isinstance(x, tuple) else (x,)


assert lazy.lfilter.lfilter.name in TABLE  # which is imported late, as those beside it are
SAMPLES = [
    pytest.param(op, operands, params, id=f"{op.name}-{i}")
    for op in list(TABLE.values())
    for i, (operands, params) in enumerate(op.sample_cases())
]
every_op = pytest.mark.parametrize(("op", "operands", "params"), SAMPLES)


def graph_of(op: Any, operands: Any, params: Any) -> Graph:
    """One application of `op` to inputs like `operands`."""
    builder = Builder()
    values = [builder.input(aval_of(x)) for x in operands]
    return builder.build(several(op(*values, **params) if values else builder.emit(op, (), params)))


def vjp_of(graph: Graph) -> Graph | None:
    """The vjp of the float outputs of `graph` with respect to its float inputs; None if either are missing."""
    wrt = [i for i, a in enumerate(graph.avals) if a.is_float]
    seeded = [i for i, x in enumerate(graph.outputs) if x.aval.is_float]
    return vjp(graph, wrt, seeded) if wrt and seeded else None


def like(aval: Aval) -> Any:
    """A random array of `aval`; zeros where it is not of floats."""
    return rng.uniform(-2, 2, aval.shape).astype(aval.dtype) if aval.is_float else np.zeros(aval.shape, aval.dtype)


def f64(*shape: int) -> Aval:
    return Aval(shape, np.dtype("float64"))


def f32(*shape: int) -> Aval:
    return Aval(shape, np.dtype("float32"))


def i64(*shape: int) -> Aval:
    return Aval(shape, np.dtype("int64"))


# -- random graphs ---------------------------------------------------------------------------------------
UNARY = [
    elementwise.sin,
    elementwise.tanh,
    elementwise.negative,
    elementwise.square,
    elementwise.absolute,
    elementwise.sigmoid,
    linear.stop_gradient,
]
BINARY = [elementwise.add, elementwise.subtract, elementwise.multiply, elementwise.maximum, elementwise.minimum]
LITERALS = [0.0, -0.0, 1.0, -1.0, 2.0, 0.5, 3, True, -1.25]


def _binary(draw: Any, x: Any, y: Any) -> Any:
    return draw(st.sampled_from(BINARY))(x, y)


def _literal(draw: Any, x: Any, y: Any) -> Any:
    c = draw(st.sampled_from(LITERALS))
    op = draw(st.sampled_from(BINARY))
    return op(x, c) if draw(st.booleans()) else op(c, x)


def _divide(draw: Any, x: Any, y: Any) -> Any:
    return elementwise.divide(x, draw(st.sampled_from([1, -1, 2.0, 3.0, -0.25])))


def _power(draw: Any, x: Any, y: Any) -> Any:
    return elementwise.power(elementwise.sin(x), draw(st.sampled_from([1, 2, 3])))


def _where(draw: Any, x: Any, y: Any) -> Any:
    condition = draw(st.sampled_from([elementwise.greater, elementwise.less_equal]))(x, 0.25)
    condition = elementwise.logical_not(condition) if draw(st.booleans()) else condition
    return elementwise.where(condition, x, draw(st.sampled_from([x, y, 0.0, 1.0])))


def _full(draw: Any, x: Any, y: Any) -> Any:
    value = draw(st.sampled_from(LITERALS))
    return _binary(draw, x, x.builder.emit(linear.full, (), {"shape": x.shape, "value": value, "dtype": x.dtype.name}))


def _reshape(draw: Any, x: Any, y: Any) -> Any:
    n = x.aval.size
    shapes = [(n,), (1, n), (n, 1), (*x.shape, 1), (1, *x.shape), (n // 2, 2) if n % 2 == 0 else (n, 1, 1)]
    return linear.reshape(x, shape=draw(st.sampled_from(shapes)))


def _transpose(draw: Any, x: Any, y: Any) -> Any:
    return linear.transpose(x, perm=tuple(draw(st.permutations(range(len(x.shape))))))


def _broadcast(draw: Any, x: Any, y: Any) -> Any:
    if x.aval.size > 500:
        return x
    lead = draw(st.sampled_from([(), (1,), (2,), (3, 1)]))
    return linear.broadcast_to(x, shape=(*lead, *(3 if n == 1 and draw(st.booleans()) else n for n in x.shape)))


def _axes(draw: Any, x: Any) -> tuple[int, ...]:
    return tuple(a for a in range(len(x.shape)) if draw(st.booleans()))


def _reduce(draw: Any, x: Any, y: Any) -> Any:
    ops = [linear.reduce_sum, linear.reduce_sum, reductions.mean, reductions.reduce_max, reductions.logsumexp]
    op = draw(st.sampled_from(ops if x.aval.size else [linear.reduce_sum]))
    return op(x, axes=_axes(draw, x))


def _softmax(draw: Any, x: Any, y: Any) -> Any:
    return reductions.softmax(x, axes=(len(x.shape) - 1,)) if x.shape and x.aval.size else x


def _slice(draw: Any, x: Any, y: Any) -> Any:
    start = tuple(draw(st.integers(0, min(n, 2))) for n in x.shape)
    step = tuple(draw(st.sampled_from([1, 1, 2, 3])) for _ in x.shape)
    stop = tuple(draw(st.sampled_from([n, n, max(n - 1, a)])) for n, a in zip(x.shape, start))
    return linear.slice(x, start=start, stop=stop, step=step)


def _pad(draw: Any, x: Any, y: Any) -> Any:
    if x.aval.size > 300:
        return x
    widths = [tuple(draw(st.sampled_from([0, 0, 1, 2])) for _ in x.shape) for _ in range(3)]
    value = draw(st.sampled_from([0, 0.0, 1.5]))
    return linear.pad(x, low=widths[0], high=widths[1], interior=widths[2], value=value)


def _flip(draw: Any, x: Any, y: Any) -> Any:
    return linear.flip(x, axes=_axes(draw, x))


def _concatenate(draw: Any, x: Any, y: Any) -> Any:
    if not x.shape or x.aval.size > 300:
        return x
    return linear.concatenate(x, elementwise.negative(x), x, axis=draw(st.integers(0, len(x.shape) - 1)))


def _matmul(draw: Any, x: Any, y: Any) -> Any:
    if not x.shape or not x.shape[-1]:
        return x
    return contraction.matmul_any(
        elementwise.sin(x), elementwise.tanh(contraction.matrix_transpose(x) if len(x.shape) > 1 else x)
    )


def _gather(draw: Any, x: Any, y: Any) -> Any:
    if not x.shape or not x.shape[0]:
        return x
    params = {"start": 0, "step": 1, "length": x.shape[0], "dtype": "int64"}
    along = x.builder.emit(linear.arange, (), params)
    return gather_scatter.gather(x, elementwise.negative(along), axes=(0,))


def _cast(draw: Any, x: Any, y: Any) -> Any:
    name = draw(st.sampled_from(["float32", "float64"]))
    return linear.cast(linear.cast(x, dtype=name), dtype=draw(st.sampled_from([name, x.dtype.name])))


STEPS = [
    _binary,
    _binary,
    _literal,
    _literal,
    _divide,
    _power,
    _where,
    _full,
    _reshape,
    _transpose,
    _broadcast,
    _broadcast,
    _reduce,
    _reduce,
    _softmax,
    _slice,
    _pad,
    _flip,
    _concatenate,
    _matmul,
    _gather,
    _cast,
]
SHAPES = [(), (1,), (3,), (2, 3), (4, 1), (2, 1, 3), (17,), (5, 9), (0, 3), (33,)]


@st.composite
def graphs(draw: Any, steps: int = 8) -> Graph:
    """A graph of a chain of `steps` ops of every sort, with one or two outputs."""
    shape = draw(st.sampled_from(SHAPES))
    dtype = np.dtype(draw(st.sampled_from(["float64", "float64", "float32"])))

    def chain(x: Any, y: Any) -> list[Any]:
        first, values = draw(st.sampled_from(UNARY))(x), []
        for _ in range(draw(st.integers(1, steps))):
            other = y if y.shape == first.shape else first
            values.append(first)
            if draw(st.booleans()):
                first = draw(st.sampled_from(UNARY))(first)
            first = draw(st.sampled_from(STEPS))(draw, first, other)
        return [first, draw(st.sampled_from(values))] if draw(st.booleans()) else [first]

    return build(chain, [Aval(shape, dtype)] * 2)
