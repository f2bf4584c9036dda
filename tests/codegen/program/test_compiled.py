"""Compiled code against the reference: every op, its derivatives, special values, awkward sizes, random graphs."""

from __future__ import annotations

import ast
import itertools
from typing import Any

import numpy as np
import pytest
from graphs import SAMPLES, every_op, f32, f64, graph_of, graphs, i64, like, rng, several, vjp_of
from hypothesis import HealthCheck, given, settings

import tracegrad as tg
from tracegrad import passes
from tracegrad.avals import Aval, aval_of
from tracegrad.codegen.loopir.steps import CallStep
from tracegrad.codegen.plan.planner import plan
from tracegrad.ir import Graph, build, replay, run
from tracegrad.ops import TABLE
from tracegrad.ops.core.elementwise_op import Elementwise
from tracegrad.ops.elementwise import number_parts
from tracegrad.ops.elementwise import table as elementwise
from tracegrad.ops.elementwise.table import add, exp, maximum, multiply, sin, square, subtract, tanh, where
from tracegrad.ops.indexing import gather_scatter
from tracegrad.ops.linalg import contraction, factorizations
from tracegrad.ops.reduce import reductions
from tracegrad.ops.reduce.scans import cumsum
from tracegrad.ops.shape import linear
from tracegrad.ops.shape.linear import (
    broadcast_to,
    concatenate,
    flip,
    full,
    pad,
    reduce_sum,
    reshape,
    slice,
    transpose,
)
from tracegrad.platform.processes import instruction_set
from tracegrad.runtime.execution.program import compile_program

pytestmark = pytest.mark.usefixtures("optimized")


def compiled(graph: Graph, arrays: Any) -> list[Any]:
    """The outputs of the compiled graph, by its entry and by `run`, which must agree to the bit."""
    program = compile_program(graph, ("array",) * len(graph.inputs), False)
    leaves = [np.ascontiguousarray(x).reshape(np.shape(x)) for x in arrays]
    outputs = [np.asarray(x) for x in program.run(leaves)]
    for x, out in zip(outputs, program.entry(*leaves)):
        np.testing.assert_array_equal(x, np.asarray(out))
    return outputs


def ulps(a: Any, b: Any) -> Any:
    """Distance in units in the last place, element by element; 0 for two nans."""
    integer = np.dtype(f"int{8 * a.dtype.itemsize}")
    x, y = (np.abs(v).view(integer).astype(object) * np.where(np.signbit(v), -1, 1) for v in (a, b))
    distance = np.abs(x - y)
    return np.where(np.isnan(a) & np.isnan(b), 0, np.where(np.isnan(a) | np.isnan(b), 1 << 62, distance))


def assert_close(graph: Graph, arrays: Any, ulps_allowed: float = 64) -> None:
    """Compiled and reference results agree to rounding, measured by the largest value computed on the way."""
    outputs, tape = replay(graph, [np.asarray(x) for x in arrays])
    got = compiled(graph, arrays)
    assert len(got) == len(outputs)
    floats = [x for answer, *_ in tape for x in several(answer) if x.dtype.kind in "fc"]
    scale = max([1.0, *(float(np.abs(x[np.isfinite(x)]).max(initial=0)) for x in floats)])
    for a, b in zip(got, outputs):
        assert aval_of(a) == aval_of(b)
        if b.dtype.kind not in "fc":
            np.testing.assert_array_equal(a, b)
            continue
        eps = max(float(np.finfo(x.dtype).eps) for x in [b, *floats])
        np.testing.assert_allclose(a, b, rtol=ulps_allowed * eps, atol=ulps_allowed * eps * scale)


# -- every op ------------------------------------------------------------------------------------------------
@every_op
def test_compiled_op_agrees_with_the_reference(op: Any, operands: Any, params: Any) -> None:
    assert_close(graph_of(op, operands, params), operands)


@every_op
def test_compiled_derivatives_agree_with_the_reference(op: Any, operands: Any, params: Any) -> None:
    first = vjp_of(graph_of(op, operands, params))
    if first is None:
        pytest.skip("has no float operand or result")
    second = vjp_of(first)  # its first outputs are the answer and the first derivatives
    assert second is not None
    assert_close(second, [*operands, *(like(a) for a in second.avals[len(operands) :])])


# -- special values of elementwise ops -----------------------------------------------------------------------
# Functions that are rounded correctly, or not at all; the others may be off by `LAST_PLACES`, as NumPy's may.
EXACT_FUNCTIONS = {
    "absolute",
    "sign",
    "floor",
    "ceil",
    "trunc",
    "rint",
    "maximum",
    "minimum",
    "where",
    "isfinite",
    "isinf",
    "sqrt",
    "logical_and",
    "logical_or",
    "logical_not",
    "remainder",
    "floor_divide",
}
LAST_PLACES = 5


def is_exact(op: Any) -> bool:
    """Whether the template rounds once at most."""
    nodes = list(ast.walk(ast.parse(op.form.scalar or "x", mode="eval")))
    called = [n.func.id for n in nodes if isinstance(n, ast.Call)]
    rounded = sum(isinstance(n, ast.BinOp) for n in nodes) + called.count("sqrt")
    return set(called) <= EXACT_FUNCTIONS and rounded <= 1


def special_values(dtype: np.dtype[Any], binary: bool) -> Any:
    if dtype.kind != "f":
        return np.array([False, True]) if dtype.kind == "b" else np.array([0, 1, -1, 2, 7, -7, 100]).astype(dtype)
    info = np.finfo(dtype)
    positive = [0.0, float(info.smallest_subnormal), float(info.smallest_normal), 0.5, 1.0, 2.0, 3.0, np.inf]
    if not binary:
        more = [float(info.eps), 1e-8, 0.1, 0.99, 1.01, 1.5, np.pi, 5.5, 10, 20, 80, 88, 100, 700, 708.5, 710, 745, 1e6]
        more += [float(info.smallest_subnormal) * 1000, float(info.smallest_normal) / 2, 1e22, float(info.max)]
        positive += [v for v in more if v <= float(info.max)]
    return np.array([s * v for v in positive for s in (1, -1)] + [np.nan], dtype)


def elementwise_cases() -> Any:
    for op in TABLE.values():
        if isinstance(op, Elementwise) and op.name != "complex":  # which has `test_complex_compiled`
            for operands in [case.values[1] for case in SAMPLES if case.values[0] is op]:
                dtypes = [x.dtype for x in operands]
                yield pytest.param(op, dtypes, id=f"{op.name}-{'-'.join(d.name for d in dtypes)}")


def undecided(op: Any, operands: Any, want: Any) -> Any:
    """Where the reference is no judge: which of 0.0 and -0.0 is the larger, on machines other than x86."""
    if op.name in ("maximum", "minimum") and instruction_set() != "x86_64":
        return (operands[0] == 0) & (operands[1] == 0)
    return np.zeros(want.shape, bool)


@pytest.mark.parametrize(("op", "dtypes"), list(elementwise_cases()))
def test_special_values_survive_compilation(op: Any, dtypes: Any) -> None:
    domains = [special_values(d, len(dtypes) > 1) for d in dtypes]
    operands = [g.ravel().copy() for g in np.meshgrid(*domains)]
    graph = graph_of(op, operands, {})
    (want,), (got,) = run(graph, operands), compiled(graph, operands)
    if want.dtype.kind != "f":
        wrong = got != want
    else:
        # An infinity is no neighbour of the largest number, nor 0.0 of -0.0.
        kinds = (np.isinf(got) != np.isinf(want)) | (np.signbit(got) != np.signbit(want)) & ~np.isnan(want)
        wrong = kinds | (ulps(got, want) > (0 if is_exact(op) else LAST_PLACES))
        wrong &= ~undecided(op, operands, want)
    listed = [(*tuple(x[i] for x in operands), got[i], want[i]) for i in np.flatnonzero(wrong)[:8]]
    assert not wrong.any(), f"{op.name}: (operands, got, want) {listed}"


@pytest.mark.skipif(instruction_set() != "x86_64", reason="elsewhere NumPy tells zeros apart")
@pytest.mark.parametrize("name", ["maximum", "minimum"])
@pytest.mark.parametrize("number", [0.0, -0.0, 3.0, np.nan, np.inf])
def test_extrema_with_a_number_are_numpys_to_the_bit(name: str, number: float) -> None:
    extremum = getattr(np, name)
    graph = build(lambda v: [TABLE[name](v, number), TABLE[name](number, v)], [f64(40)])
    x = np.resize([0.0, -0.0, np.nan, 1.0, -np.inf], 40)
    for got, want in zip(compiled(graph, [x]), (extremum(x, number), extremum(number, x))):
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(np.signbit(got)[want == 0], np.signbit(want)[want == 0])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_unary_functions_are_accurate_on_their_whole_range(dtype: str) -> None:
    info = np.finfo(dtype)
    exponents = np.linspace(np.log2(float(info.smallest_normal)), info.maxexp - 0.01, 3000)
    wide = (np.exp2(exponents) * np.where(np.arange(3000) % 2, 1, -1)).astype(dtype)
    narrow = rng.uniform(-10, 10, 3000).astype(dtype)
    ops = [op for op in TABLE.values() if isinstance(op, Elementwise) and op._floating and len(op.operands) == 1]
    x = np.concatenate([wide, narrow])
    graph = build(lambda v: [op(v) for op in ops], [aval_of(x)])
    for op, got, want in zip(ops, compiled(graph, [x]), run(graph, [x])):
        if want.dtype.kind == "f":
            worst = np.where(undecided(op, [x], want), 0, ulps(got, want))
            at = int(np.argmax(worst))
            limit = 0 if is_exact(op) else LAST_PLACES
            assert worst[at] <= limit, f"{op.name}({x[at]!r}) is {got[at]!r}, should be {want[at]!r}"
        else:
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("value", [0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324, 1e-310])
@pytest.mark.parametrize("name", ["reduce_sum", "reduce_max", "reduce_min", "reduce_prod"])
def test_reductions_see_special_values(name: str, value: float) -> None:
    for n in (1, 2, 9, 40):
        for x in (np.full((3, n), value), np.where(np.arange(3 * n).reshape(3, n) % n == n // 2, value, 1.0)):
            for axes in ((0,), (1,), (0, 1)):
                graph = graph_of(TABLE[name], [x], {"axes": axes})
                got, want = compiled(graph, [x])[0], run(graph, [x])[0]
                np.testing.assert_allclose(got, want, rtol=1e-14)
                np.testing.assert_array_equal(np.signbit(got) | np.isnan(got), np.signbit(want) | np.isnan(want))


def test_denormals_are_not_flushed() -> None:
    x = np.array([5e-324, -5e-324, 1e-310, 2.2e-308] * 5)
    graph = build(lambda v: [multiply(v, 1.0), add(v, v), reduce_sum(v, axes=(0,)), multiply(v, 0.5)], [aval_of(x)])
    for got, want in zip(compiled(graph, [x]), run(graph, [x])):
        np.testing.assert_array_equal(got, want)


def test_argreductions_return_the_first_extremum_or_nan() -> None:
    rows = [[1, 3, 3, 2], [np.nan, 1, 2, 3], [1, np.nan, 5, np.nan], [-np.inf] * 4, [0.0, -0.0, 0.0, -0.0]]
    x = np.array(rows)
    for op, axis in itertools.product((reductions.argmax, reductions.argmin), (0, 1)):
        graph = graph_of(op, [x], {"axis": axis})
        np.testing.assert_array_equal(compiled(graph, [x])[0], run(graph, [x])[0])


# -- sizes and shapes ------------------------------------------------------------------------------------------
SIZES = [*range(1, 21), 31, 33, 64, 65, 1000]


def many_ops(x: Any, y: Any) -> list[Any]:
    powers = exp(multiply(x, y))
    return [
        powers,
        reduce_sum(powers, axes=(0,)),
        reductions.reduce_max(x, axes=(0,)),
        cumsum(y, axis=0),
        reductions.argmin(y, axis=0),
        flip(tanh(x), axes=(0,)),
        where(elementwise.less(x, y), x, 0.0),
    ]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_sizes_around_vector_widths(dtype: str) -> None:
    for n in SIZES:
        aval = Aval((n,), np.dtype(dtype))
        assert_close(build(many_ops, [aval, aval]), [like(aval), like(aval)])


@pytest.mark.parametrize("rows", [1, 3, 9, 70])
@pytest.mark.parametrize("columns", [1, 2, 8, 33])
def test_rows_and_columns_of_every_size(rows: int, columns: int) -> None:
    def fn(x: Any) -> list[Any]:
        means = broadcast_to(reshape(reductions.mean(x, axes=(1,)), shape=(rows, 1)), shape=(rows, columns))
        return [
            subtract(x, means),
            reduce_sum(x, axes=(0,)),
            reduce_sum(square(x), axes=(1,)),
            reductions.softmax(x, axes=(1,)),
            reductions.logsumexp(x, axes=(0,)),
            transpose(sin(x), perm=(1, 0)),
            reduce_sum(x, axes=(0, 1)),
        ]

    graph = build(fn, [f64(rows, columns)])
    x = [like(graph.avals[0])]
    assert_close(graph, x)
    pulled = vjp_of(graph)
    assert pulled is not None
    assert_close(pulled, [like(a) for a in pulled.avals])


def test_middle_axes_reduce_alone_and_together() -> None:
    x = rng.uniform(-1, 1, (3, 4, 5, 6))
    for count in range(5):
        for axes in itertools.combinations(range(4), count):
            assert_close(graph_of(reduce_sum, [x], {"axes": axes}), [x])
            assert_close(graph_of(reductions.reduce_max, [x], {"axes": axes}), [x])


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 4)])
def test_arrays_of_no_elements(shape: tuple[int, ...]) -> None:
    def fn(x: Any, y: Any) -> list[Any]:
        last = len(shape) - 1
        return [
            add(x, exp(y)),
            reduce_sum(x, axes=(last,)),
            reduce_sum(x, axes=tuple(range(len(shape)))),
            x,
            concatenate(x, y, axis=last),
            flip(x, axes=(0,)),
            cumsum(x, axis=0),
            reshape(x, shape=(0, 7)),
            pad(x, low=(1,) * len(shape), high=(0,) * len(shape), interior=(0,) * len(shape), value=2.0),
            reductions.reduce_prod(x, axes=(0,)),
            elementwise.isnan(x),
        ]

    graph = build(fn, [f64(*shape)] * 2)
    assert_close(graph, [np.zeros(shape)] * 2)


@pytest.mark.parametrize(("m", "k", "n"), [(0, 3, 2), (3, 0, 2), (3, 2, 0), (0, 0, 0), (20, 0, 30), (0, 20, 30)])
def test_products_with_no_elements(m: int, k: int, n: int) -> None:
    graph = build(lambda x, y: [contraction.matmul(x, y)], [f64(m, k), f64(k, n)])
    assert_close(graph, [np.ones((m, k)), np.ones((k, n))])


def test_arrays_of_no_axes() -> None:
    def fn(x: Any, y: Any) -> list[Any]:
        return [
            add(x, y),
            x,
            exp(multiply(x, 2.0)),
            reshape(x, shape=(1, 1)),
            broadcast_to(y, shape=(2, 3)),
            elementwise.less(x, y),
            reduce_sum(x, axes=()),
        ]

    graph = build(fn, [f64(), f64()])
    assert_close(graph, [np.array(0.3), np.array(-2.0)])


def test_broadcasting_of_every_pair_of_ranks() -> None:
    shapes = [(), (1,), (3,), (2, 1), (1, 3), (2, 3), (4, 1, 3), (4, 2, 1), (1, 1, 1), (17,), (5, 17)]
    for a, b in itertools.product(shapes, repeat=2):
        try:
            np.broadcast_shapes(a, b)
        except ValueError:
            continue
        pulled = vjp_of(build(lambda x, y: [multiply(x, y)], [f64(*a), f64(*b)]))
        assert pulled is not None
        assert_close(pulled, [like(v) for v in pulled.avals])


PRODUCTS = [
    (3, 4, 5),
    (9, 9, 9),
    (30, 40, 20),
    (64, 64, 64),
    (1, 33, 50),
    (50, 33, 1),
    (17, 1, 23),
    (1, 1, 1),
    (100, 3, 100),
]


@pytest.mark.parametrize(("m", "k", "n"), PRODUCTS)
@pytest.mark.parametrize("make", [f64, f32])
def test_products_of_every_shape_and_layout(make: Any, m: int, k: int, n: int) -> None:
    def fn(x: Any, y: Any, xt: Any, yt: Any) -> list[Any]:
        flipped = [transpose(v, perm=(1, 0)) for v in (xt, yt)]
        product = contraction.matmul(x, y)
        return [
            product,
            contraction.matmul(flipped[0], y),
            contraction.matmul(x, flipped[1]),
            contraction.matmul(*flipped),
            tanh(add(product, 1.0)),
            transpose(contraction.matmul(x, multiply(y, 2.0)), perm=(1, 0)),
        ]

    graph = build(fn, [make(m, k), make(k, n), make(k, m), make(n, k)])
    assert_close(graph, [like(a) for a in graph.avals])


@pytest.mark.parametrize("lead", [(1,), (5,), (2, 3), (0,)])
def test_stacks_of_products(lead: tuple[int, ...]) -> None:
    for m, k, n in ((3, 4, 5), (20, 30, 10), (20, 30, 1)):
        graph = build(lambda x, y: [contraction.matmul(x, y)], [f64(*lead, m, k), f64(*lead, k, n)])
        pulled = vjp_of(graph)
        assert pulled is not None
        assert_close(pulled, [like(a) for a in pulled.avals])


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64", "uint32", "uint64", "bool"])
def test_integers_of_every_width_wrap_as_numpy_does(dtype: str) -> None:
    kind = np.dtype(dtype)
    x, y = (np.arange(12).astype(dtype), np.arange(12)[::-1].astype(dtype))
    if kind.kind in "iu":
        x[:2] = np.iinfo(kind).min, np.iinfo(kind).max
    ops = [add, multiply, maximum, elementwise.less, elementwise.equal]
    ops += [subtract, elementwise.floor_divide, elementwise.remainder] if kind.kind in "iu" else []
    graph = build(lambda a, b: [op(a, b) for op in ops] + [reduce_sum(a, axes=(0,))], [aval_of(x), aval_of(y)])
    for got, want in zip(compiled(graph, [x, y]), run(graph, [x, y])):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("source", ["float64", "float32", "int64", "int32", "int8", "uint8", "bool"])
def test_casts_between_all_dtypes(source: str) -> None:
    x = np.array([0, 1, 2, 3, 100, 127, 5, 0, 1]).astype(source)
    targets = ["float64", "float32", "int64", "int32", "int16", "int8", "uint64", "uint32", "uint8", "bool"]
    graph = build(lambda v: [linear.cast(v, dtype=t) for t in targets], [aval_of(x)])
    for got, want in zip(compiled(graph, [x]), run(graph, [x])):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


# -- indexing ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("index", [[5, 0], [0, -6], [2**40, 1], [-(2**62), 0]])
def test_indices_out_of_range_raise(index: list[int]) -> None:
    i = np.array(index)
    x = np.arange(5.0)
    gathered = build(lambda v, k: [exp(gather_scatter.gather(v, k, axes=(0,)))], [f64(5), i64(2)])
    scattered = build(lambda v, k: [gather_scatter.scatter_add(v, k, shape=(5,), axes=(0,))], [f64(2), i64(2)])
    for graph, v in ((gathered, x), (scattered, x[:2].copy())):
        program = compile_program(graph, ("array", "array"), True)
        with pytest.raises(IndexError):
            program.run([v, i])


def test_repeated_indices_add_up() -> None:
    i = np.array([1, 1, 1, -1, 0, -5] * 20)
    graph = build(lambda v, k: [gather_scatter.scatter_add(v, k, shape=(5, 3), axes=(0,))], [f64(120, 3), i64(120)])
    assert_close(graph, [rng.uniform(-1, 1, (120, 3)), i])


def test_index_maps_compose_inside_a_kernel() -> None:
    def fn(x: Any, y: Any) -> list[Any]:
        z = concatenate(
            pad(x, low=(1, 2), high=(0, 1), interior=(1, 0), value=0.5), broadcast_to(y, shape=(4, 8)), axis=0
        )
        z = flip(slice(z, start=(1, 0), stop=(9, 8), step=(2, 3)), axes=(1,))
        return [exp(transpose(z, perm=(1, 0))), reduce_sum(concatenate(z, z, axis=1), axes=(1,))]

    pulled = vjp_of(build(fn, [f64(3, 5), f64(8)]))
    assert pulled is not None
    assert_close(pulled, [like(a) for a in pulled.avals])


# -- programs --------------------------------------------------------------------------------------------------
def test_outputs_are_fresh_arrays() -> None:
    x = np.arange(6.0)
    graph = build(lambda v: [v, v, reshape(v, shape=(2, 3)), exp(v)], [f64(6)])
    program = compile_program(graph, ("array",), False)
    outputs = [*program.run([x]), *program.run([x])]
    for a, b in itertools.combinations([x, *outputs], 2):
        assert not np.shares_memory(a, b)
    assert all(out.flags.writeable and out.flags.c_contiguous and out.flags.owndata for out in outputs)


def test_programs_without_inputs_and_of_constants_alone() -> None:
    def fn(x: Any) -> list[Any]:
        emit = x.builder.emit
        ones = emit(full, (), {"shape": (3,), "value": 1.5, "dtype": "float64"})
        count = emit(linear.arange, (), {"start": 0.5, "step": 2, "length": 4, "dtype": "float64"})
        return [ones, exp(ones), count, reduce_sum(count, axes=(0,)), linear.zeros_like(x)]

    assert_close(build(fn, [f64(2)]), [np.ones(2)])


def test_long_chains_and_many_outputs() -> None:
    def fn(x: Any) -> list[Any]:
        values = [x]
        for k in range(25):
            values.append(sin(add(multiply(values[-1], 0.9), values[k // 2])))
        return values[1::3]

    pulled = vjp_of(build(fn, [f64(37)]))
    assert pulled is not None
    assert_close(pulled, [like(a) for a in pulled.avals])


def test_runs_are_repeatable_and_leave_inputs_alone() -> None:
    graph = build(lambda x: [reduce_sum(exp(x), axes=(0,)), cumsum(x, axis=1)], [f64(50, 70)])
    program = compile_program(graph, ("array",), False)
    x = rng.uniform(-1, 1, (50, 70))
    before = x.copy()
    first = program.run([x])
    for _ in range(5):
        for a, b in zip(program.run([x]), first):
            np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(x, before)


def examples(n: int) -> Any:
    return settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), max_examples=n)


@examples(30)
@given(graph=graphs())
def test_random_graphs_compiled(graph: Graph) -> None:
    assert_close(graph, [like(a) for a in graph.avals], ulps_allowed=200)


@examples(25)
@given(graph=graphs(steps=5))
def test_random_derivatives_compiled(graph: Graph) -> None:
    pulled = vjp_of(graph)
    assert pulled is not None
    assert_close(pulled, [like(a) for a in pulled.avals], ulps_allowed=200)


# -- several results -----------------------------------------------------------------------------------------
def test_results_that_nothing_uses_have_no_buffer() -> None:
    def fn(x: Any) -> list[Any]:
        u, s, _ = factorizations.svd(sin(x))
        w, v = factorizations.eigh(contraction.matmul(x, transpose(x, perm=(1, 0))), lower=True)
        return [add(s, 1.0), add(u, 1.0), w, broadcast_to(w, shape=(2, 9)), v, v]

    graph = build(fn, [f64(9, 9)])
    result = plan(passes.optimize(graph))
    calls = [step for step in result.steps if isinstance(step, CallStep)]
    assert [[bool(b) for b in step.outs] for step in calls] == [[True, True, False], [True, True]]
    assert sum(not result.is_temporary(name) for name in result.memory) == 7
    assert_close(graph, [rng.uniform(-1, 1, (9, 9))])


def test_what_reads_results_fuses_and_what_makes_them_is_one_call() -> None:
    def fn(x: Any) -> list[Any]:
        values, vectors = factorizations.eigh(exp(x), lower=True)
        rest, whole = number_parts.modf(multiply(x, 3.0))
        scaled = multiply(vectors, linear.broadcast_to(values, shape=(12, 12)))
        return [add(add(scaled, rest), multiply(whole, 0.5))]

    graph = build(fn, [f64(12, 12)])
    result = plan(passes.optimize(graph))
    assert [type(step).__name__ for step in result.steps] == ["Launch", "CallStep", "Launch"]
    assert_close(graph, [np.diag(rng.uniform(-4, 4, 12)) + rng.uniform(-0.1, 0.1, (12, 12))])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_parts_and_neighbours_of_floats_are_those_of_numpy_to_the_bit(dtype: str) -> None:
    kind, limits = np.dtype(dtype), np.finfo(dtype)
    bits = np.random.default_rng(0).integers(0, 2**63, 120).astype(f"u{kind.itemsize}") * 2
    ends = [0.0, 1.0, 0.5, np.inf, limits.max, limits.tiny, limits.smallest_subnormal, limits.tiny / 4]
    x = np.concatenate([np.array(ends, dtype), -np.array(ends, dtype), bits.view(dtype), np.array([np.nan], dtype)])
    pairs = [v.ravel() for v in np.meshgrid(x, x)]

    def written(x: Any, y: Any, z: Any) -> Any:
        return *np.frexp(x), np.spacing(x), np.nextafter(y, z)

    with np.errstate(all="ignore"), tg.settings.override(first_call="compile"):
        for got, want in zip(tg.trace(written)(x, *pairs), written(x, *pairs)):
            assert got.dtype == want.dtype
            np.testing.assert_array_equal(got, want)
            np.testing.assert_array_equal(np.signbit(got[~np.isnan(got)]), np.signbit(want[~np.isnan(want)]))
