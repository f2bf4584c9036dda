"""What kernels compute, against NumPy, to the bit wherever the result is exact.

Large and empty arrays, every dtype, every subset of axes, chains of views, and random graphs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from exact import assert_same, compiled, full_slice, graph_from, outputs_of, values_for, whole
from graphs import REAL, graph_of

import tracegrad as tg
from tracegrad.avals import aval_of
from tracegrad.codegen.loopir import blocking as blocking_module
from tracegrad.codegen.loopir.steps import Launch
from tracegrad.codegen.plan import partition as chunks_module
from tracegrad.codegen.plan import planner as plan_module
from tracegrad.codegen.program.encode import products_in_chunk
from tracegrad.ir import build, run
from tracegrad.ops.elementwise import bits
from tracegrad.ops.elementwise import table as elementwise
from tracegrad.ops.elementwise.table import add, exp, maximum, minimum, multiply, sin, square, subtract, tanh, where
from tracegrad.ops.indexing.gather_scatter import gather, scatter_add
from tracegrad.ops.linalg import contraction
from tracegrad.ops.reduce import reductions as reduction
from tracegrad.ops.reduce.scans import cumsum
from tracegrad.ops.shape import linear
from tracegrad.ops.shape.linear import (
    broadcast_to,
    cast,
    concatenate,
    flip,
    pad,
    reduce_sum,
    reshape,
    slice,
    transpose,
)
from tracegrad.platform.processes import instruction_set
from tracegrad.runtime.threads import pool
from tracegrad.settings import settings

pytestmark = pytest.mark.usefixtures("optimized")

rng = np.random.default_rng(0)


# -- large arrays, in chunks and in threads --------------------------------------------------------------------------
@pytest.fixture
def thread_counts() -> Iterator[tuple[int, ...]]:
    before = settings.thread_count()
    yield 1, 2, 3, 4
    pool.set_num_threads(before)


def reductions(x: Any) -> list[Any]:
    every = tuple(range(len(x.shape)))
    outputs = [op(x, axes=every) for op in (reduce_sum, reduction.reduce_max, reduction.reduce_min)]
    outputs.append(reduce_sum(square(x), axes=every))
    for axis in every[: len(every) - 1] + every[1:]:
        outputs += [
            reduce_sum(exp(x), axes=(axis,)),
            reduction.reduce_max(x, axes=(axis,)),
            reduction.argmax(x, axis=axis),
        ]
    return outputs


SHAPES = [(100_000,), (1_000_003,), (1000, 700), (70_001, 9), (9, 70_001), (100_000, 3), (3, 200_000), (50, 60, 70)]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_bits_do_not_depend_on_the_number_of_threads(shape: Any, dtype: str, thread_counts: tuple[int, ...]) -> None:
    x = rng.standard_normal(shape).astype(dtype)
    graph = build(reductions, [aval_of(x)])
    result = compiled(graph)
    if x.size > 500_000:
        assert any(isinstance(s, Launch) and s.blocks.parallel for s in result.report.plan.steps)
    results = []
    for n in thread_counts:
        pool.set_num_threads(n)
        results += [result.run([x]) for _ in range(2)]
    for other in results[1:]:
        for a, b in zip(results[0], other):
            np.testing.assert_array_equal(a, b)
    true = [run(graph, [x.astype(np.longdouble)]) if dtype == "float32" else run(graph, [x])][0]
    eps = np.finfo(dtype).eps
    for got, want in zip(results[0], true):
        scale = np.sqrt(x.size) * 8
        np.testing.assert_allclose(got, np.asarray(want, np.float64), rtol=eps * 200, atol=eps * scale)


@pytest.mark.parametrize(("m", "k", "n"), [(300, 400, 300), (37, 5000, 41), (1, 2000, 900), (2000, 900, 1)])
def test_products_keep_their_bits_whatever_the_number_of_threads(
    m: int, k: int, n: int, thread_counts: tuple[int, ...]
) -> None:
    x, y = rng.standard_normal((m, k)), rng.standard_normal((k, n))
    result = compiled(build(lambda a, b: [contraction.matmul(a, b)], [aval_of(x), aval_of(y)]))
    results = []
    for count in thread_counts:
        pool.set_num_threads(count)
        results.append(result.run([x, y])[0])
    assert all(np.array_equal(results[0], other) for other in results)
    np.testing.assert_allclose(results[0], x @ y, rtol=0, atol=1e-15 * k * 10)


@pytest.mark.parametrize(("count", "m", "k", "n"), [(1000, 9, 17, 10), (30, 70, 40, 90), (3, 200, 150, 160)])
def test_stacks_of_products_keep_their_bits_whatever_the_number_of_threads(
    count: int, m: int, k: int, n: int, thread_counts: tuple[int, ...]
) -> None:
    x, y = rng.standard_normal((count, m, k)), rng.standard_normal((count, k, n))
    result = compiled(build(lambda a, b: [contraction.matmul(a, b)], [aval_of(x), aval_of(y)]))
    results = []
    for threads_used in thread_counts:
        pool.set_num_threads(threads_used)
        results.append(result.run([x, y])[0])
    assert all(np.array_equal(results[0], other) for other in results)
    np.testing.assert_allclose(results[0], x @ y, rtol=0, atol=1e-14 * k)


@pytest.mark.parametrize(
    ("count", "work", "chunks"),
    [(0, 8, 1), (1, 1 << 22, 1), (10, 1000, 1), (1000, 4096, 16), (7, 1 << 21, 1), (8, 1 << 21, 8), (9, 0, 1)],
)
def test_threads_share_products_that_are_worth_it(count: int, work: int, chunks: int) -> None:
    share = products_in_chunk(count, work)
    assert max(1, -(-count // share)) == chunks


@pytest.mark.parametrize("dtype", ["int64", "int32", "int8", "uint16", "bool"])
def test_large_arrays_of_integers_are_exact(dtype: str) -> None:
    x = rng.integers(0, 2 if dtype == "bool" else 100, (1201, 1003)).astype(dtype)
    ops = [reduce_sum, reduction.reduce_max, reduction.reduce_min, reduction.reduce_prod]
    ops += [reduction.reduce_any, reduction.reduce_all] if dtype == "bool" else []
    assert_same(lambda v: [op(v, axes=a) for op in ops for a in ((0,), (1,), (0, 1))], x)


def test_large_arrays_are_cut_without_a_seam() -> None:
    x, y = whole(1501, 700), whole(700)

    def fn(a: Any, b: Any) -> list[Any]:
        wide = broadcast_to(b, shape=a.shape)
        return [
            add(a, wide),
            transpose(maximum(a, wide), perm=(1, 0)),
            flip(a, axes=(0, 1)),
            cumsum(a, axis=0),
            pad(a, low=(3, 0), high=(0, 5), interior=(0, 1), value=7.0),
            concatenate(a, a, wide, axis=0),
            full_slice(a, start=(1, 2), step=(3, 2)),
        ]

    assert_same(fn, x, y)


# -- zero-size arrays and arrays of no axes --------------------------------------------------------------------------
EMPTY: dict[str, tuple[Any, list[Any]]] = {
    "elementwise": (lambda x: [sin(x), add(x, x)], [np.zeros((0, 12))]),
    "reductions": (lambda x: [op(x, axes=a) for op in (reduce_sum, reduction.reduce_prod)
                              for a in ((0,), (1,), (2,), (0, 2), (0, 1, 2))], [np.zeros((20, 0, 11))]),
    "extrema of nothing": (lambda x: [reduction.reduce_max(x, axes=(1,)), reduction.argmin(x, axis=1)],
                           [np.zeros((0, 9))]),
    "gather nothing": (lambda x, i: [gather(x, i, axes=(0,))], [np.zeros((9, 3)), np.zeros(0, int)]),
    "gather from nothing": (lambda x, i: [gather(x, i, axes=(1,))], [np.zeros((9, 0)), np.zeros((0, 2), int)]),
    "gather empty rows": (lambda x, i: [gather(x, i, axes=(0,))], [np.zeros((9, 0)), np.zeros(4, int)]),
    "scatter nothing": (lambda x, i: [scatter_add(x, i, shape=(12, 3), axes=(0,))],
                        [np.zeros((0, 3)), np.zeros(0, int)]),
    "scatter to nothing": (lambda x, i: [scatter_add(x, i, shape=(3, 0), axes=(0,))],
                           [np.zeros((4, 0)), np.zeros(4, int)]),
    "cumsum": (lambda x: [cumsum(x, axis=0), cumsum(x, axis=1)], [np.zeros((0, 12))]),
    "matmul": (lambda x, y: [contraction.matmul(x, y), tanh(contraction.matmul(x, y))],
               [np.zeros((20, 0)), np.zeros((0, 12))]),
    "views": (lambda x: [transpose(x, perm=(1, 0)), flip(x, axes=(0,)),
                         pad(x, low=(2, 3), high=(0, 9), interior=(2, 2), value=4),
                         concatenate(x, x, axis=1), full_slice(x, step=(2, 3)), broadcast_to(x, shape=(3, 0, 12)),
                         reshape(x, shape=(12, 0))], [np.zeros((0, 12))]),
    "called": (lambda x: [elementwise.power(x, x)], [np.zeros((0, 3), int)]),
    "joined to something": (lambda x, y: [concatenate(x, y, axis=0), concatenate(y, x, y, axis=0)],
                            [np.zeros((0, 3)), np.ones((9, 3))]),
}  # fmt: skip


@pytest.mark.parametrize(("fn", "arrays"), EMPTY.values(), ids=EMPTY)
def test_arrays_of_no_elements_in_every_kind_of_kernel(fn: Any, arrays: list[Any]) -> None:
    assert_same(fn, *arrays)
    for got, want in zip(*outputs_of(fn, *arrays)):
        if want.dtype.kind == "f":
            np.testing.assert_array_equal(np.signbit(got), np.signbit(want))


def test_arrays_of_no_axes_in_every_kind_of_kernel() -> None:
    def fn(x: Any, i: Any) -> list[Any]:
        row = reshape(x, shape=(1,))
        table = broadcast_to(add(x, 1.0), shape=(12,))
        return [
            exp(x),
            reduce_sum(row, axes=(0,)),
            gather(table, i, axes=(0,)),
            cumsum(row, axis=0),
            scatter_add(x, i, shape=(12,), axes=(0,)),
            reduction.argmax(row, axis=0),
            pad(row, low=(3,), high=(9,), interior=(4,), value=1),
            transpose(x, perm=()),
            flip(x, axes=()),
            slice(x, start=(), stop=(), step=()),
            cast(x, dtype="int8"),
            contraction.matmul(reshape(x, shape=(1, 1)), reshape(table, shape=(1, 12))),
            elementwise.power(i, i),
        ]

    assert_same(fn, np.array(2.0), np.array(3), rtol=1e-15)


# -- dtypes ----------------------------------------------------------------------------------------------------------
DTYPES = sorted(d.name for d in REAL)
UNARY = [
    elementwise.negative,
    elementwise.absolute,
    elementwise.sign,
    square,
    elementwise.logical_not,
    elementwise.isnan,
    elementwise.isfinite,
    elementwise.isinf,
    elementwise.floor,
    elementwise.rint,
]
COMPARISONS = [
    elementwise.less,
    elementwise.less_equal,
    elementwise.equal,
    elementwise.not_equal,
    elementwise.greater,
    elementwise.greater_equal,
]

BINARY = [
    add,
    subtract,
    multiply,
    maximum,
    minimum,
    elementwise.floor_divide,
    elementwise.remainder,
    elementwise.divide,
    elementwise.logical_and,
    elementwise.logical_or,
    elementwise.logical_xor,
    *COMPARISONS,
]


def edges(dtype: str) -> Any:
    """The values where arithmetic of a dtype wraps, or stops being exact."""
    if dtype == "bool":
        return np.array([False, True])
    if dtype[0] == "f":
        large = [2.0**11 + 2, 6e4] if dtype == "float16" else [2.0**24 + 2, 1e30]
        return np.array([0.0, -0.0, 1, -1, 2.5, -7, *large, np.inf, -np.inf, np.nan], dtype)
    info = np.iinfo(dtype)
    values = {0, 1, 2, 3, 7, 100, info.max, info.max - 1, info.max // 2 + 1, info.min, info.min + 1, -1, -2, -7}
    return np.array(sorted(v for v in values if info.min <= v <= info.max), dtype)


def defined(op: Any, *dtypes: Any) -> bool:
    try:
        op.loop_dtypes(*map(np.dtype, dtypes))
    except TypeError:
        return False
    return True


@pytest.mark.parametrize("dtype", DTYPES)
def test_arithmetic_of_every_dtype(dtype: str) -> None:
    x, y = (v.ravel().copy() for v in np.meshgrid(edges(dtype), edges(dtype)))
    binary = [op for op in BINARY if defined(op, dtype, dtype)]
    unary = [op for op in UNARY if defined(op, dtype)]

    def fn(a: Any, b: Any) -> list[Any]:
        chosen = where(elementwise.less(a, b), b, a)
        return (
            [op(a, b) for op in binary]
            + [op(a) for op in unary]
            + [chosen, reduce_sum(a, axes=(0,)), cumsum(a, axis=0)]
        )

    got, want = outputs_of(fn, x, y)
    for a, b in zip(got, want, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("dtype", DTYPES)
def test_comparisons_of_unlike_dtypes_compare_values(dtype: str) -> None:
    for other in DTYPES:
        x, y = (v.ravel().copy() for v in np.meshgrid(edges(dtype), edges(other)))
        assert_same(lambda a, b: [op(a, b) for op in COMPARISONS], x, y)


def test_bits_and_roundings_of_booleans_are_kernels() -> None:
    x, y = np.array([False, False, True, True]), np.array([False, True, False, True])

    def fn(a: Any, b: Any) -> list[Any]:
        both = [op(a, b) for op in (bits.bitwise_and, bits.bitwise_or, bits.bitwise_xor)]
        names = ("absolute", "floor", "ceil", "trunc", "isfinite", "isinf")
        return both + [getattr(elementwise, name)(a) for name in names]

    assert_same(fn, x, y)
    assert all(isinstance(step, Launch) for step in plan_module.plan(build(fn, [aval_of(x), aval_of(y)])).steps)


def test_what_integers_cannot_be_is_not_asked() -> None:
    for dtype in ("int64", "uint8", "bool"):
        x = np.arange(20).astype(dtype)
        result = tg.trace(lambda x: (np.isfinite(x), np.isinf(x), np.isnan(x))).explain(x)
        assert {node.name for node in result.optimized.nodes if node.op is not None} == {"full"}
    sums = tg.trace(lambda x: (np.sum(x), np.sum(x > 3), np.sum(x, axis=0)))
    for dtype, end in [
        ("int8", -128),
        ("int16", -(2**15)),
        ("uint8", 255),
        ("uint16", 2**16 - 1),
        ("int32", 2**31 - 1),
    ]:
        x = np.full((70_000, 2), end, dtype)
        for got, want in zip(sums(x), (np.sum(x), np.sum(x > 3), np.sum(x, axis=0))):
            assert got.dtype == want.dtype
            np.testing.assert_array_equal(got, want)


def test_what_windows_read_again_and_again_is_stored() -> None:
    result = tg.trace(lambda x, w: np.convolve(x, w)).explain(np.ones(1000), np.ones(9))
    padding, products = map(str, result.kernels)
    assert "guard" in padding
    assert "guard" not in products


def test_a_number_that_is_put_to_places_needs_no_number_for_each() -> None:
    def put(x: Any, places: Any) -> Any:
        z = np.copy(x)
        np.put_along_axis(z, places, 1.0, 0)
        return z

    x, places = np.zeros((9, 40)), np.arange(40)[None] % 9
    assert "u8[9,40]" in str(tg.trace(put).explain(x, places).optimized)
    np.testing.assert_array_equal(tg.trace(put)(x, places), put(x, places))


@pytest.mark.skipif(instruction_set() != "x86_64", reason="what is out of range is the machine's")
@pytest.mark.parametrize("source", ["float64", "float32"])
@pytest.mark.filterwarnings("ignore:invalid value")
def test_what_no_integer_is_becomes_what_it_becomes_for_numpy(source: str) -> None:
    x = np.array([300, -129, 7e4, 2.0**31, 3e9 + 1, -3e9 - 1, 1e10 + 3, -1e10, 1e20, np.inf, -np.inf, np.nan], source)
    assert_same(
        lambda v: [cast(v, dtype=d) for d in ("int8", "int16", "int32", "int64", "uint8", "uint16")], np.tile(x, 9)
    )


@pytest.mark.parametrize("source", DTYPES)
def test_casts_to_every_dtype(source: str) -> None:
    x = edges(source)
    if source[0] == "f":
        x = np.array([0, -0.0, 0.5, -0.5, 1.99, -1.99, 127.5, -127.5, 100], source)
        wide = np.array([2.0**15, 6e4] if source == "float16" else [2.0**63, 1.5 * 2.0**63, 2.0**40], source)
        assert_same(lambda v: [cast(v, dtype="uint64")], wide)
    assert_same(lambda v: [cast(v, dtype=d) for d in DTYPES if not (source[0] == "f" and d[:2] == "ui")], x)
    if source[0] == "f":
        assert_same(lambda v: [cast(v, dtype=d) for d in DTYPES if d[:2] == "ui"], np.abs(x))
        assert_same(lambda v: [cast(v, dtype="uint64")], -np.abs(x))


@pytest.mark.parametrize("dtype", DTYPES)
def test_constants_of_every_dtype(dtype: str) -> None:
    def fn(x: Any) -> list[Any]:
        filled = [
            x.builder.emit(linear.full, (), {"shape": (3, 11), "value": v.item(), "dtype": dtype}) for v in edges(dtype)
        ]
        return [*filled, *(where(elementwise.equal(x, x), x, v.item()) for v in edges(dtype))]

    assert_same(fn, np.resize(edges(dtype), (40,)))


def test_a_sum_of_repeated_booleans_asks_for_any() -> None:
    def fn(x: Any) -> list[Any]:
        wide = broadcast_to(reshape(x, shape=(12, 1)), shape=(3, 12, 10))
        return [reduce_sum(wide, axes=a) for a in ((0,), (2,), (0, 2), (0, 1, 2))]

    assert_same(fn, np.arange(12) % 3 == 0)


# -- reductions over every subset of axes ----------------------------------------------------------------------------
SPACES = [
    (9,),
    (3,),
    (1,),
    (12, 3),
    (3, 12),
    (1, 20),
    (20, 1),
    (10, 11),
    (2, 3, 4),
    (9, 2, 17),
    (17, 9, 2),
    (2, 17, 9),
    (9, 1, 10),
    (2, 3, 2, 3),
    (9, 10, 11, 12),
    (3, 9, 1, 10),
    (1, 9, 5, 1),
    (12, 1, 4, 9),
]


@pytest.mark.parametrize("shape", SPACES, ids=str)
def test_reductions_over_every_subset_of_axes(shape: tuple[int, ...]) -> None:
    subsets = [a for k in range(len(shape) + 1) for a in itertools.combinations(range(len(shape)), k)]

    def fn(x: Any, y: Any) -> list[Any]:
        transposed = transpose(y, perm=tuple(reversed(range(len(shape)))))
        sums = [reduce_sum(x, axes=a) for a in subsets] + [reduce_sum(multiply(x, transposed), axes=a) for a in subsets]
        return sums + [reduction.reduce_max(x, axes=a) for a in subsets]

    assert_same(fn, whole(*shape), whole(*reversed(shape)))


# -- views -----------------------------------------------------------------------------------------------------------
def slice_of_flip_of_pad_of_transpose(x: Any, y: Any) -> list[Any]:
    z = pad(transpose(x, perm=(1, 0)), low=(2, 9), high=(1, 0), interior=(2, 1), value=-1.0)
    z = full_slice(flip(z, axes=(0, 1)), start=(1, 3), step=(2, 3))
    return [z, reduce_sum(z, axes=(0,)), add(z, z), transpose(z, perm=(1, 0))]


def pads_of_pads(x: Any, y: Any) -> list[Any]:
    z = x
    for k in range(3):
        z = pad(z, low=(k, 1), high=(1, k), interior=(k, 1), value=float(k))
    return [z, flip(z, axes=(1,))]


def many_pieces(x: Any, y: Any) -> list[Any]:
    pieces = [multiply(full_slice(x, start=(k % 5, 0), stop=(k % 5 + 1, x.shape[1])), float(k)) for k in range(40)]
    z = concatenate(*pieces, axis=0)
    return [z, concatenate(z, z, axis=1), full_slice(z, start=(10, 1), step=(7, 2))]


def interleaved(x: Any, y: Any) -> list[Any]:
    a = pad(y, low=(0,), high=(1,), interior=(1,), value=0)
    b = pad(sin(y), low=(1,), high=(0,), interior=(1,), value=0)
    return [add(a, b), full_slice(add(a, b), step=(2,)), full_slice(add(a, b), start=(1,), step=(2,))]


def reshaped_between(x: Any, y: Any) -> list[Any]:
    n, m = x.shape
    z = reshape(
        flip(reshape(full_slice(x, stop=(n - n % 2, m)), shape=(n // 2, 2, m)), axes=(1,)), shape=(n // 2, 2 * m)
    )
    z = reshape(transpose(z, perm=(1, 0)), shape=(z.aval.size,))
    return [
        z,
        reshape(full_slice(z, step=(3,)), shape=(-(-z.aval.size // 3), 1, 1)),
        reshape(exp(z), shape=(2 * m, n // 2)),
    ]


def broadcast_and_back(x: Any, y: Any) -> list[Any]:
    z = broadcast_to(reshape(y, shape=(1, y.shape[0], 1)), shape=(3, y.shape[0], 10))
    z = full_slice(transpose(z, perm=(2, 0, 1)), start=(0, 1, 2), step=(3, 1, 4))
    return [z, reduce_sum(z, axes=(0, 2)), flip(z, axes=(0, 2))]


def triangle(x: Any, y: Any) -> list[Any]:
    """Rows shifted one further each, by padding and cutting the flat array."""
    n, m = x.shape
    wide = pad(x, low=(0, 0), high=(0, n), interior=(0, 0), value=0)
    flat = full_slice(reshape(wide, shape=(n * (m + n),)), stop=(n * (m + n - 1),))
    return [reshape(flat, shape=(n, m + n - 1)), reduce_sum(reshape(flat, shape=(n, m + n - 1)), axes=(0,))]


CHAINS = [
    slice_of_flip_of_pad_of_transpose,
    pads_of_pads,
    many_pieces,
    interleaved,
    reshaped_between,
    broadcast_and_back,
    triangle,
]


@pytest.mark.parametrize("fn", CHAINS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("shape", [(5, 4), (11, 20)], ids=str)
def test_chains_of_views(fn: Any, shape: tuple[int, int]) -> None:
    assert_same(fn, whole(*shape), whole(shape[0] * 2), rtol=1e-15)


@pytest.mark.parametrize(
    "axes", [(0,), (1,), (2,), (3,), (0, 2), (2, 0), (1, 2), (3, 1), (0, 1, 2), (2, 3, 0), (3, 2, 1, 0)], ids=str
)
def test_gather_and_scatter_along_any_axes(axes: tuple[int, ...]) -> None:
    shape = (4, 10, 3, 9)
    for head in ((), (6,), (2, 11)):
        indices = [rng.integers(-shape[a], shape[a], head) for a in axes]
        updates = whole(*head, *(n for a, n in enumerate(shape) if a not in axes))

        def fn(x: Any, u: Any, *i: Any, axes: Any = axes) -> list[Any]:
            return [
                gather(x, *i, axes=axes),
                scatter_add(u, *i, shape=shape, axes=axes),
                gather(scatter_add(u, *i, shape=shape, axes=axes), *i, axes=axes),
            ]

        assert_same(fn, whole(*shape), updates, *indices)


def test_indices_that_are_computed_on_the_way() -> None:
    def fn(x: Any, y: Any) -> list[Any]:
        order = reduction.argmax(x, axis=1)
        places = elementwise.remainder(cast(y, dtype="int32"), x.shape[0])
        picked = gather(x, places, axes=(0,))
        return [
            gather(x, order, axes=(1,)),
            picked,
            scatter_add(picked, places, shape=x.shape, axes=(0,)),
            gather(exp(multiply(x, 0.1)), places, order, axes=(0, 1)),
        ]

    assert_same(fn, whole(12, 11), whole(12, low=0, high=50), rtol=1e-15)


@pytest.mark.parametrize("dtype", ["float64", "float32", "int32", "uint8", "bool"])
def test_cumulative_sums_along_every_axis(dtype: str) -> None:
    for shape in ((20,), (9, 2), (3, 11, 4), (1, 10, 1), (2, 3, 4, 5)):
        x = whole(*shape, dtype=dtype, low=0)
        assert_same(lambda v: [cumsum(v, axis=a) for a in range(len(v.shape))], x)
        assert_same(lambda v: [flip(cumsum(flip(add(v, v), axes=(0,)), axis=0), axes=(0,))], x)


def test_positions_of_extrema_with_ties_nans_and_infinities() -> None:
    rows = [
        [1, 3, 3, 2, 3],
        [2, np.nan, 3, np.nan, 4],
        [np.nan] * 5,
        [-np.inf] * 5,
        [np.inf] * 5,
        [0.0, -0.0, 0, -0.0, 0],
        [np.inf, 1, np.inf, 2, np.nan],
        [5, 4, 3, 2, 1],
        [1, 2, 3, 4, 5],
    ]
    for dtype in ("float64", "float32"):
        x = np.tile(np.array(rows, dtype), (3, 4))
        assert_same(lambda v: [op(v, axis=a) for op in (reduction.argmax, reduction.argmin) for a in (0, 1)], x)
    for dtype in ("int8", "uint64", "bool"):
        x = rng.integers(0, 2, (13, 4, 9)).astype(dtype)
        assert_same(lambda v: [op(v, axis=a) for op in (reduction.argmax, reduction.argmin) for a in (0, 1, 2)], x)


@pytest.mark.parametrize("n", [1, 5, 8, 9, 40])
def test_nan_spreads_or_does_not_as_in_numpy(n: int) -> None:
    x = np.resize([1.0, np.nan, -np.inf, 3.0, np.inf], n)
    y = np.resize([np.nan, 2.0, 2.0, 3.0, -1.0, 0.0], n)

    def fn(a: Any, b: Any) -> list[Any]:
        masked = where(elementwise.isnan(a), 0.0, a)
        return [
            maximum(a, b),
            minimum(a, b),
            maximum(a, 0.0),
            where(elementwise.less(a, b), a, b),
            masked,
            *(op(v, axes=(0,)) for op in (reduction.reduce_max, reduction.reduce_min) for v in (a, b, masked)),
            reduce_sum(where(elementwise.isfinite(a), a, 0.0), axes=(0,)),
            elementwise.logical_not(elementwise.less(a, b)),
        ]

    assert_same(fn, x, y)


def test_graphs_of_one_op_at_large_sizes() -> None:
    for op in (elementwise.logaddexp, elementwise.arctan2, elementwise.hypot, elementwise.power):
        x, y = rng.uniform(0.5, 2, (37, 41)), rng.uniform(0.5, 2, (37, 41))
        graph = graph_of(op, [x, y], {})
        np.testing.assert_allclose(compiled(graph).run([x, y])[0], op.impl(x, y), rtol=1e-14)


# -- random graphs ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("seeds", [range(k, k + 20) for k in range(0, 100, 20)], ids=str)
def test_random_graphs_of_the_whole_table_are_exact(seeds: range) -> None:
    for seed in seeds:
        graph = graph_from(seed, steps=10)
        arrays = values_for(graph, seed)
        for got, want in zip(compiled(graph).run(arrays), run(graph, arrays), strict=True):
            assert aval_of(got) == aval_of(want), f"seed {seed}"
            np.testing.assert_array_equal(got, want, err_msg=f"seed {seed}")


@pytest.mark.parametrize("seeds", [range(k, k + 15) for k in range(500, 545, 15)], ids=str)
def test_random_graphs_cut_into_small_chunks_are_exact(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (
        ("CHUNK_COST", 64),
        ("LEAST_ELEMENTS", 1),
        ("MIN_SPLIT_ROW", 9),
        ("RUN", 16),
        ("TOGETHER", 2),
    ):
        monkeypatch.setattr(chunks_module, name, value)
    monkeypatch.setattr(blocking_module, "PARALLEL_COST", 100)
    monkeypatch.setattr(plan_module, "RELEASE_GIL_COST", 500)
    chunks = 0
    for seed in seeds:
        graph = graph_from(seed, steps=8)
        arrays = values_for(graph, seed)
        result = compiled(graph)
        chunks += sum(step.blocks.number for step in result.report.plan.steps if isinstance(step, Launch))
        for got, want in zip(result.run(arrays), run(graph, arrays), strict=True):
            np.testing.assert_array_equal(got, want, err_msg=f"seed {seed}")
    assert chunks > 200
