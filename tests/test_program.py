"""Programs: what they accept, what they raise, what they share, and that no thread count and no cut changes a bit."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from graphs import f32, f64, graph_of, i64, vjp_of

from tracegrad.avals import SUPPORTED, Aval, aval_of
from tracegrad.codegen.plan import RELEASE_GIL_COST, Launch
from tracegrad.errors import TracegradError
from tracegrad.ir import Graph, build, run
from tracegrad.ops import contraction, elementwise, indexing, linear, reduction
from tracegrad.ops.elementwise import add, exp, maximum, minimum, multiply, sin, square, subtract, tanh, where
from tracegrad.ops.indexing import gather, scatter_add
from tracegrad.ops.linear import (
    broadcast_to,
    cast,
    concatenate,
    cumsum,
    flip,
    pad,
    reduce_sum,
    reshape,
    slice,
    transpose,
)
from tracegrad.runtime import program, threads
from tracegrad.runtime.program import MISS, Program, compile_program, machine_code_count

rng = np.random.default_rng(0)


def compiled(graph: Graph) -> Program:
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
    """Whole numbers, so that sums and products are exact in every order."""
    return rng.integers(low, high, shape).astype(dtype)


def full_slice(x: Any, **changed: Any) -> Any:
    """`slice` of all of `x` but for what is changed."""
    given = {"start": (0,) * len(x.shape), "stop": x.shape, "step": (1,) * len(x.shape)} | changed
    return slice(x, **given)


# -- what a program accepts ----------------------------------------------------------------------------------
class Subclass(np.ndarray[Any, Any]):
    pass


def misaligned(n: int) -> Any:
    x = np.frombuffer(bytearray(8 * n + 1), np.uint8)[1:].view(np.float64)
    assert not x.flags.aligned
    return x


GOOD = np.zeros((3, 4))
BAD_ARRAYS = {
    "another dtype": GOOD.astype("float32"),
    "integers of the same width": GOOD.astype("int64"),
    "another byte order": GOOD.astype(">f8"),
    "a longer axis": np.zeros((3, 5)),
    "a shorter axis": np.zeros((2, 4)),
    "exchanged axes": np.zeros((4, 3)),
    "one axis more": np.zeros((3, 4, 1)),
    "one axis less": np.zeros(12),
    "no axes": np.array(1.0),
    "column-major": np.asfortranarray(GOOD),
    "a strided view": np.zeros((3, 8))[:, ::2],
    "a reversed view": GOOD[::-1],
    "repeated rows": np.broadcast_to(np.zeros(4), (3, 4)),
    "misaligned": misaligned(12).reshape(3, 4),
    "a subclass": GOOD.view(Subclass),
    "a masked array": np.ma.array(GOOD),
    "a list": GOOD.tolist(),
    "a NumPy scalar": np.float64(1),
    "a float": 1.0,
    "None": None,
}


@pytest.fixture(scope="module")
def two_arguments() -> Program:
    """(array of (3, 4), float) -> the sum of both."""
    return compile_program(build(lambda x, c: [add(x, c)], [f64(3, 4), f64()]), ("array", "float"), True)


@pytest.mark.parametrize("bad", BAD_ARRAYS.values(), ids=BAD_ARRAYS)
def test_any_array_that_does_not_match_is_a_miss(two_arguments: Program, bad: Any) -> None:
    assert two_arguments.entry(bad, 1.0) is MISS
    np.testing.assert_array_equal(two_arguments.entry(GOOD, 1.0), GOOD + 1)


@pytest.mark.parametrize("bad", [1, True, np.float64(1), np.float32(1), np.array(1.0), "1", None, 1j])
def test_only_a_float_is_a_float(two_arguments: Program, bad: Any) -> None:
    assert two_arguments.entry(GOOD, bad) is MISS


def test_a_wrong_number_of_arguments_is_a_miss_and_keywords_are_an_error(two_arguments: Program) -> None:
    for args in ((), (GOOD,), (GOOD, 1.0, 1.0), (1.0, GOOD)):
        assert two_arguments.entry(*args) is MISS
    with pytest.raises(TypeError):
        two_arguments.entry(GOOD, c=1.0)


def test_read_only_arrays_and_one_array_given_twice_match() -> None:
    x = np.arange(20.0)
    x.flags.writeable = False
    found = compiled(build(lambda a, b: [multiply(a, b)], [f64(20)] * 2))
    np.testing.assert_array_equal(found.entry(x, x)[0], x * x)


def test_run_names_leaves_that_the_program_does_not_take(two_arguments: Program) -> None:
    with pytest.raises(TracegradError, match=r"takes f64\[3,4\], f64\[\] and was given ndarray of float32\[3, 4\], float"):
        two_arguments.run([GOOD.astype("float32"), 1.0])
    with pytest.raises(TracegradError, match="not in row-major order"):
        two_arguments.run([np.asfortranarray(GOOD), 1.0])


# -- indices out of range ----------------------------------------------------------------------------------------
def raised(call: Callable[[], Any]) -> tuple[type, str] | None:
    try:
        call()
    except Exception as error:
        return type(error), str(error)
    return None


def gathered_in_part(x: Any, i: Any) -> list[Any]:
    return [slice(gather(x, i, axes=(0,)), start=(1, 0), stop=(2, 3), step=(1, 1))]


def gathered_twice(x: Any, i: Any) -> list[Any]:
    three = x.builder.emit(linear.full, (), {"shape": (2,), "value": 1, "dtype": "int64"})
    return [gather(gather(x, i, axes=(0,)), three, axes=(0,))]


INDEXED = {
    "gather": lambda x, i: [gather(x, i, axes=(0,))],
    "gather of a gather": gathered_twice,
    "gather read in part": gathered_in_part,
    "gather between other kernels": lambda x, i: [tanh(gather(cumsum(x, axis=0), i, axes=(0,))), reduce_sum(x, axes=(1,))],
    "gather along the last axis": lambda x, i: [gather(transpose(x, perm=(1, 0)), i, axes=(1,))],
    "gather under a guard": lambda x, i: [pad(gather(x, i, axes=(0,)), low=(1, 0), high=(0, 2), interior=(1, 0), value=0)],
    "gather that is not chosen": lambda x, i: [where(elementwise.isnan(x_ := gather(x, i, axes=(0,))), x_, 1.0)],
    "scatter": lambda x, i: [scatter_add(slice(x, start=(0, 0), stop=(3, 3), step=(1, 1)), i, shape=(5, 3), axes=(0,))],
    "scatter in the middle": lambda x, i: [
        scatter_add(broadcast_to(i_ := cast(i, dtype="float64"), shape=(3,)), i, i, shape=(5, 5), axes=(1, 0)), i_],
}  # fmt: skip


@pytest.mark.parametrize("fn", INDEXED.values(), ids=INDEXED)
def test_indices_out_of_range_raise_as_the_reference_does(fn: Any) -> None:
    graph = build(fn, [f64(5, 3), i64(3)])
    found, x = compiled(graph), whole(5, 3)
    for index in ([0, 4, -5], [-1, 1, 2], [5, 0, 0], [0, 0, -6], [2**62, 0, 0], [0, -(2**63), 0], [4, 4, 5]):
        i = np.array(index)
        want = raised(lambda i=i: run(graph, [x, i]))
        assert raised(lambda i=i: found.run([x, i])) == want
        if want is None:
            for got, expected in zip(found.run([x, i]), run(graph, [x, i])):
                np.testing.assert_allclose(got, expected, rtol=1e-14)
        else:
            assert want[0] is IndexError
            assert found.entry(x, i) is MISS


@pytest.mark.parametrize("dtype", sorted(d.name for d in SUPPORTED if d.kind in "iu"))
def test_indices_of_every_integer_dtype(dtype: str) -> None:
    x, low = whole(20, 4), -20 if dtype[0] == "i" else 0
    i = np.array([0, 19, 7, low, low + 3]).astype(dtype)
    graph = build(lambda v, k: [gather(v, k, axes=(0,))], [aval_of(x), aval_of(i)])
    found = compiled(graph)
    np.testing.assert_array_equal(found.run([x, i])[0], x[i])
    i[2] = 20
    assert raised(lambda: found.run([x, i])) == raised(lambda: run(graph, [x, i])) != None  # noqa: E711


def test_one_bad_index_in_a_parallel_kernel_is_found() -> None:
    n = 1_000_000
    found = compiled(build(lambda v, k: [sin(gather(v, k, axes=(0,)))], [f64(1000), i64(n)]))
    (launch,) = found.report.plan.steps
    assert isinstance(launch, Launch)
    assert launch.parallel
    x, i = rng.random(1000), rng.integers(-1000, 1000, n)
    for place in (0, n // 2, n - 1):
        broken = i.copy()
        broken[place] = 1000
        with pytest.raises(IndexError, match="1000 is out of bounds"):
            found.run([x, broken])
        np.testing.assert_allclose(found.run([x, i])[0], np.sin(x[i]), rtol=1e-15)


# -- machine code is shared ----------------------------------------------------------------------------------------
def softmax_loss(w: Any, x: Any, y: Any) -> list[Any]:
    return [reduction.mean(multiply(reduction.softmax(contraction.matmul(x, w), axes=(1,)), y), axes=(0, 1))]


def batch_norm(x: Any) -> list[Any]:
    shape = x.shape
    mean = reduction.mean(x, axes=(0,))
    spread = reduction.var(x, axes=(0,), ddof=1)
    return [elementwise.divide(subtract(x, broadcast_to(mean, shape=shape)), broadcast_to(spread, shape=shape))]


def neighbours(x: Any) -> list[Any]:
    n = x.shape[0]
    inner = subtract(full_slice(x, start=(1, 0)), full_slice(x, stop=(n - 1, x.shape[1])))
    return [pad(square(inner), low=(1, 0), high=(0, 0), interior=(0, 0), value=0), reduce_sum(x, axes=(1,))]


BATCHED: dict[str, tuple[Any, Callable[[int], list[Aval]]]] = {
    "softmax loss": (softmax_loss, lambda n: [f64(12, 10), f64(n, 12), f64(n, 10)]),
    "batch norm": (batch_norm, lambda n: [f64(n, 13)]),
    "neighbours": (neighbours, lambda n: [f64(n, 10)]),
    "many axes": (lambda x: [reduction.logsumexp(x, axes=(0, 2)), flip(x, axes=(0,))], lambda n: [f32(n, 3, n, 11)]),
    "rows": (lambda x, i: [gather(x, i, axes=(0,)), cumsum(x, axis=0)], lambda n: [f64(n, 4), i64(n)]),
    "concatenated": (lambda x, y: [concatenate(x, exp(y), x, axis=0)], lambda n: [f64(n, 2), f64(n + 5, 2)]),
    "flattened": (lambda x: [reduce_sum(reshape(x, shape=(x.aval.size,)), axes=(0,))], lambda n: [f64(n, 20)]),
}


@pytest.mark.parametrize(("fn", "avals"), BATCHED.values(), ids=BATCHED)
@pytest.mark.parametrize("derivative", [False, True])
def test_a_new_batch_size_never_recompiles(fn: Any, avals: Any, derivative: bool) -> None:
    def at(n: int) -> tuple[Graph, Program]:
        graph = build(fn, avals(n))
        if derivative:
            pulled = vjp_of(graph)
            assert pulled is not None
            graph = pulled
        return graph, compiled(graph)

    at(21)
    count = machine_code_count()
    for n in (9, 10, 16, 31, 32, 33, 64, 100, 257):  # powers of two among them, and sizes met elsewhere in the graph
        graph, found = at(n)
        assert found.report.cache == "memory"
        values = [whole(*a.shape, dtype=a.dtype, low=0, high=4 if a.dtype.kind == "f" else min(n, 9)) for a in graph.avals]
        for got, want in zip(found.run(values), run(graph, values), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4 if want.dtype == np.float32 else 1e-10, atol=1e-6)
    assert machine_code_count() == count


def test_functions_with_equal_graphs_share_machine_code() -> None:
    def one(x: Any) -> list[Any]:
        return [multiply(add(x, 0.123), tanh(x))]

    def other(y: Any) -> list[Any]:
        unused = exp(y)
        left = tanh(y)
        del unused
        return [multiply(add(y, 0.456), left)]

    first = compile_program(build(one, [f64(30)]), ("array",), True, "one")
    count = machine_code_count()
    second = compile_program(build(other, [f64(40)]), ("array",), True, "other")
    assert (second.report.key, second.report.cache) == (first.report.key, "memory")
    assert machine_code_count() == count
    x = rng.random(30)
    np.testing.assert_allclose(first.run([x]), (x + 0.123) * np.tanh(x), rtol=1e-14)
    x = rng.random(40)
    np.testing.assert_allclose(second.run([x]), (x + 0.456) * np.tanh(x), rtol=1e-14)


def test_sizes_that_merely_coincide_stay_apart() -> None:
    def fn(x: Any, w: Any) -> list[Any]:
        hidden = tanh(contraction.matmul(x, w))
        return [reduce_sum(hidden, axes=(0,)), reduce_sum(hidden, axes=(1,)), transpose(hidden, perm=(1, 0))]

    square_first = compiled(build(fn, [f64(20, 20), f64(20, 20)]))
    count = machine_code_count()
    oblong = compiled(build(fn, [f64(20, 30), f64(30, 25)]))
    assert machine_code_count() == count
    assert oblong.report.key == square_first.report.key
    x, w = rng.random((20, 30)), rng.random((30, 25))
    hidden = np.tanh(x @ w)
    for got, want in zip(oblong.run([x, w]), (hidden.sum(0), hidden.sum(1), hidden.T)):
        np.testing.assert_allclose(got, want, rtol=1e-13)


def test_other_constants_are_other_values_of_the_same_code() -> None:
    programs = [compiled(build(lambda x, c=c: [multiply(add(x, c), c)], [f64(10)])) for c in (0.1, 1e300, -7.25, 5e-324)]
    assert len({p.report.key for p in programs}) == 1
    x = rng.random(10)
    for p, c in zip(programs, (0.1, 1e300, -7.25, 5e-324)):
        np.testing.assert_array_equal(p.run([x])[0], (x + c) * c)


# -- threads ---------------------------------------------------------------------------------------------------------
def in_threads(count: int, call: Callable[[int], Any]) -> list[Any]:
    """The results of `call(i)` in `count` threads that start together."""
    start = threading.Barrier(count)

    def work(i: int) -> Any:
        start.wait()
        return call(i)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(work, range(count)))


def test_threads_that_meet_a_new_graph_together_compile_it_once() -> None:
    graph = build(lambda x, y: [exp(add(x, y)), reduce_sum(sin(multiply(x, y)), axes=(0,))], [f64(1000), f64(1000)])
    count = machine_code_count()
    found = in_threads(8, lambda _: compiled(graph))
    assert machine_code_count() == count + 1
    assert sorted(p.report.cache for p in found) == ["compiled"] + ["memory"] * 7
    x, y = rng.random(1000), rng.random(1000)
    for p in found:
        np.testing.assert_allclose(p.run([x, y])[0], np.exp(x + y), rtol=1e-15)


def test_threads_that_compile_different_graphs_do_not_disturb_each_other() -> None:
    def fn(k: int) -> Any:
        return lambda x: [reduce_sum(multiply(x, float(k + 9)), axes=(0,)), *[sin(x)] * (k % 3), cumsum(x, axis=0)]

    graphs = [build(fn(k), [f64(3, 500)]) for k in range(8)]
    x = whole(3, 500)
    for graph, outputs in zip(graphs, in_threads(8, lambda k: compiled(graphs[k]).run([x]))):
        for got, want in zip(outputs, run(graph, [x])):
            np.testing.assert_allclose(got, want, rtol=1e-15)


def test_one_program_called_from_many_threads() -> None:
    """With a large arena, kernels in chunks, and the GIL released."""

    def fn(x: Any) -> list[Any]:
        centred = subtract(x, broadcast_to(reduction.mean(x, axes=(0,)), shape=x.shape))
        table = scatter_add(reshape(centred, shape=(x.aval.size,)), index, shape=(50,), axes=(0,)) if index is not None else x
        return [reduce_sum(square(centred), axes=(0,)), cumsum(transpose(centred, perm=(1, 0)), axis=1), table]

    index = None
    found = compiled(build(fn, [f64(300, 400)]))
    assert found.report.plan.cost >= RELEASE_GIL_COST
    assert found.report.plan.arena_bytes > 2**17
    inputs = [rng.random((300, 400)) + i for i in range(4)]
    want = [found.run([x]) for x in inputs]

    def calls(i: int) -> bool:
        for k in range(20):
            x = (i + k) % 4
            if not all(np.array_equal(a, b) for a, b in zip(found.entry(inputs[x]), want[x])):
                return False
        return True

    assert all(in_threads(6, calls))


@pytest.fixture
def thread_counts() -> Iterator[tuple[int, ...]]:
    before = threads.num_threads()
    yield 1, 2, 3, 4
    threads.set_num_threads(before)


def reductions(x: Any) -> list[Any]:
    every = tuple(range(len(x.shape)))
    outputs = [op(x, axes=every) for op in (reduce_sum, reduction.reduce_max, reduction.reduce_min)]
    outputs.append(reduce_sum(square(x), axes=every))
    for axis in every[: len(every) - 1] + every[1:]:
        outputs += [reduce_sum(exp(x), axes=(axis,)), reduction.reduce_max(x, axes=(axis,)), reduction.argmax(x, axis=axis)]
    return outputs


SHAPES = [(100_000,), (1_000_003,), (1000, 700), (70_001, 9), (9, 70_001), (100_000, 3), (3, 200_000), (50, 60, 70)]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_bits_do_not_depend_on_the_number_of_threads(shape: Any, dtype: str, thread_counts: tuple[int, ...]) -> None:
    x = rng.standard_normal(shape).astype(dtype)
    graph = build(reductions, [aval_of(x)])
    found = compiled(graph)
    if x.size > 500_000:
        assert any(isinstance(s, Launch) and s.parallel for s in found.report.plan.steps)
    results = []
    for n in thread_counts:
        threads.set_num_threads(n)
        results += [found.run([x]) for _ in range(2)]
    for other in results[1:]:
        for a, b in zip(results[0], other):
            np.testing.assert_array_equal(a, b)
    true = [run(graph, [x.astype(np.longdouble)]) if dtype == "float32" else run(graph, [x])][0]
    eps = np.finfo(dtype).eps
    for got, want in zip(results[0], true):
        scale = np.sqrt(x.size) * 8
        np.testing.assert_allclose(got, np.asarray(want, np.float64), rtol=eps * 200, atol=eps * scale)


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
        return [add(a, wide), transpose(maximum(a, wide), perm=(1, 0)), flip(a, axes=(0, 1)), cumsum(a, axis=0),
                pad(a, low=(3, 0), high=(0, 5), interior=(0, 1), value=7.0), concatenate(a, a, wide, axis=0),
                full_slice(a, start=(1, 2), step=(3, 2))]  # fmt: skip

    assert_same(fn, x, y)


# -- zero-size arrays and arrays of no axes ----------------------------------------------------------------------------
EMPTY: dict[str, tuple[Any, list[Any]]] = {
    "elementwise": (lambda x: [sin(x), add(x, x)], [np.zeros((0, 12))]),
    "reductions": (lambda x: [op(x, axes=a) for op in (reduce_sum, reduction.reduce_prod)
                              for a in ((0,), (1,), (2,), (0, 2), (0, 1, 2))], [np.zeros((20, 0, 11))]),
    "extrema of nothing": (lambda x: [reduction.reduce_max(x, axes=(1,)), reduction.argmin(x, axis=1)], [np.zeros((0, 9))]),
    "gather nothing": (lambda x, i: [gather(x, i, axes=(0,))], [np.zeros((9, 3)), np.zeros(0, int)]),
    "gather from nothing": (lambda x, i: [gather(x, i, axes=(1,))], [np.zeros((9, 0)), np.zeros((0, 2), int)]),
    "gather empty rows": (lambda x, i: [gather(x, i, axes=(0,))], [np.zeros((9, 0)), np.zeros(4, int)]),
    "scatter nothing": (lambda x, i: [scatter_add(x, i, shape=(12, 3), axes=(0,))], [np.zeros((0, 3)), np.zeros(0, int)]),
    "scatter to nothing": (lambda x, i: [scatter_add(x, i, shape=(3, 0), axes=(0,))], [np.zeros((4, 0)), np.zeros(4, int)]),
    "cumsum": (lambda x: [cumsum(x, axis=0), cumsum(x, axis=1)], [np.zeros((0, 12))]),
    "matmul": (lambda x, y: [contraction.matmul(x, y), tanh(contraction.matmul(x, y))], [np.zeros((20, 0)), np.zeros((0, 12))]),
    "views": (lambda x: [transpose(x, perm=(1, 0)), flip(x, axes=(0,)), pad(x, low=(2, 3), high=(0, 9), interior=(2, 2), value=4),
                         concatenate(x, x, axis=1), full_slice(x, step=(2, 3)), broadcast_to(x, shape=(3, 0, 12)),
                         reshape(x, shape=(12, 0))], [np.zeros((0, 12))]),
    "called": (lambda x: [elementwise.power(x, x)], [np.zeros((0, 3), int)]),
    "joined to something": (lambda x, y: [concatenate(x, y, axis=0), concatenate(y, x, y, axis=0)], [np.zeros((0, 3)), np.ones((9, 3))]),
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
        return [exp(x), reduce_sum(row, axes=(0,)), gather(table, i, axes=(0,)), scatter_add(x, i, shape=(12,), axes=(0,)),
                cumsum(row, axis=0), pad(row, low=(3,), high=(9,), interior=(4,), value=1), reduction.argmax(row, axis=0),
                transpose(x, perm=()), flip(x, axes=()), slice(x, start=(), stop=(), step=()), cast(x, dtype="int8"),
                contraction.matmul(reshape(x, shape=(1, 1)), reshape(table, shape=(1, 12))),
                elementwise.power(i, i)]  # fmt: skip

    assert_same(fn, np.array(2.0), np.array(3), rtol=1e-15)


# -- dtypes ------------------------------------------------------------------------------------------------------------
DTYPES = sorted(d.name for d in SUPPORTED)
COMPARISONS = [elementwise.less, elementwise.less_equal, elementwise.equal, elementwise.not_equal, elementwise.greater,
               elementwise.greater_equal]  # fmt: skip


def edges(dtype: str) -> Any:
    """The values where arithmetic of a dtype wraps, or stops being exact."""
    if dtype == "bool":
        return np.array([False, True])
    if dtype[0] == "f":
        return np.array([0.0, -0.0, 1, -1, 2.5, -7, 2.0**24 + 2, 1e30, np.inf, -np.inf, np.nan], dtype)
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
    binary = [add, subtract, multiply, maximum, minimum, elementwise.floor_divide, elementwise.remainder, elementwise.divide,
              elementwise.logical_and, elementwise.logical_or, elementwise.logical_xor, *COMPARISONS]  # fmt: skip
    unary = [elementwise.negative, elementwise.absolute, elementwise.sign, square, elementwise.logical_not, elementwise.isnan,
             elementwise.isfinite, elementwise.isinf, elementwise.floor, elementwise.rint]  # fmt: skip
    binary = [op for op in binary if defined(op, dtype, dtype)]
    unary = [op for op in unary if defined(op, dtype)]

    def fn(a: Any, b: Any) -> list[Any]:
        chosen = where(elementwise.less(a, b), b, a)
        return [op(a, b) for op in binary] + [op(a) for op in unary] + [chosen, reduce_sum(a, axes=(0,)), cumsum(a, axis=0)]

    got, want = outputs_of(fn, x, y)
    for a, b in zip(got, want, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("dtype", DTYPES)
def test_comparisons_of_unlike_dtypes_compare_values(dtype: str) -> None:
    for other in DTYPES:
        x, y = (v.ravel().copy() for v in np.meshgrid(edges(dtype), edges(other)))
        assert_same(lambda a, b: [op(a, b) for op in COMPARISONS], x, y)


@pytest.mark.parametrize("source", DTYPES)
def test_casts_to_every_dtype(source: str) -> None:
    x = edges(source)
    if source[0] == "f":
        x = np.array([0, -0.0, 0.5, -0.5, 1.99, -1.99, 127.5, -127.5, 100], source)
        wide = np.array([2.0**63, 1.5 * 2.0**63, 2.0**40], source)
        assert_same(lambda v: [cast(v, dtype="uint64")], wide)
    assert_same(lambda v: [cast(v, dtype=d) for d in DTYPES if not (source[0] == "f" and d[:2] == "ui")], x)
    if source[0] == "f":
        assert_same(lambda v: [cast(v, dtype=d) for d in DTYPES if d[:2] == "ui"], np.abs(x))
        assert_same(lambda v: [cast(v, dtype="uint64")], -np.abs(x))


@pytest.mark.parametrize("dtype", DTYPES)
def test_constants_of_every_dtype(dtype: str) -> None:
    def fn(x: Any) -> list[Any]:
        filled = [x.builder.emit(linear.full, (), {"shape": (3, 11), "value": v.item(), "dtype": dtype}) for v in edges(dtype)]
        return [*filled, *(where(elementwise.equal(x, x), x, v.item()) for v in edges(dtype))]

    assert_same(fn, np.resize(edges(dtype), (40,)))


# -- reductions over every subset of axes -----------------------------------------------------------------------------------
SPACES = [(9,), (3,), (1,), (12, 3), (3, 12), (1, 20), (20, 1), (10, 11), (2, 3, 4), (9, 2, 17), (17, 9, 2), (2, 17, 9), (9, 1, 10),
          (2, 3, 2, 3), (9, 10, 11, 12), (3, 9, 1, 10), (1, 9, 5, 1), (12, 1, 4, 9)]  # fmt: skip


@pytest.mark.parametrize("shape", SPACES, ids=str)
def test_reductions_over_every_subset_of_axes(shape: tuple[int, ...]) -> None:
    subsets = [a for k in range(len(shape) + 1) for a in itertools.combinations(range(len(shape)), k)]

    def fn(x: Any, y: Any) -> list[Any]:
        turned = transpose(y, perm=tuple(reversed(range(len(shape)))))
        sums = [reduce_sum(x, axes=a) for a in subsets] + [reduce_sum(multiply(x, turned), axes=a) for a in subsets]
        return sums + [reduction.reduce_max(x, axes=a) for a in subsets]

    assert_same(fn, whole(*shape), whole(*reversed(shape)))


# -- views ------------------------------------------------------------------------------------------------------------------
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
    z = reshape(flip(reshape(full_slice(x, stop=(n - n % 2, m)), shape=(n // 2, 2, m)), axes=(1,)), shape=(n // 2, 2 * m))
    z = reshape(transpose(z, perm=(1, 0)), shape=(z.aval.size,))
    return [z, reshape(full_slice(z, step=(3,)), shape=(-(-z.aval.size // 3), 1, 1)), reshape(exp(z), shape=(2 * m, n // 2))]


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


CHAINS = [slice_of_flip_of_pad_of_transpose, pads_of_pads, many_pieces, interleaved, reshaped_between, broadcast_and_back, triangle]


@pytest.mark.parametrize("fn", CHAINS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("shape", [(5, 4), (11, 20)], ids=str)
def test_chains_of_views(fn: Any, shape: tuple[int, int]) -> None:
    assert_same(fn, whole(*shape), whole(shape[0] * 2), rtol=1e-15)


@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (3,), (0, 2), (2, 0), (1, 2), (3, 1), (0, 1, 2), (2, 3, 0), (3, 2, 1, 0)], ids=str)
def test_gather_and_scatter_along_any_axes(axes: tuple[int, ...]) -> None:
    shape = (4, 10, 3, 9)
    for head in ((), (6,), (2, 11)):
        indices = [rng.integers(-shape[a], shape[a], head) for a in axes]
        updates = whole(*head, *(n for a, n in enumerate(shape) if a not in axes))

        def fn(x: Any, u: Any, *i: Any, axes: Any = axes) -> list[Any]:
            return [gather(x, *i, axes=axes), scatter_add(u, *i, shape=shape, axes=axes),
                    gather(scatter_add(u, *i, shape=shape, axes=axes), *i, axes=axes)]  # fmt: skip

        assert_same(fn, whole(*shape), updates, *indices)


def test_indices_that_are_computed_on_the_way() -> None:
    def fn(x: Any, y: Any) -> list[Any]:
        order = reduction.argmax(x, axis=1)
        places = elementwise.remainder(cast(y, dtype="int32"), x.shape[0])
        picked = gather(x, places, axes=(0,))
        return [gather(x, order, axes=(1,)), picked, scatter_add(picked, places, shape=x.shape, axes=(0,)),
                gather(exp(multiply(x, 0.1)), places, order, axes=(0, 1))]  # fmt: skip

    assert_same(fn, whole(12, 11), whole(12, low=0, high=50), rtol=1e-15)


@pytest.mark.parametrize("dtype", ["float64", "float32", "int32", "uint8", "bool"])
def test_cumulative_sums_along_every_axis(dtype: str) -> None:
    for shape in ((20,), (9, 2), (3, 11, 4), (1, 10, 1), (2, 3, 4, 5)):
        x = whole(*shape, dtype=dtype, low=0)
        assert_same(lambda v: [cumsum(v, axis=a) for a in range(len(v.shape))], x)  # noqa: B023
        assert_same(lambda v: [flip(cumsum(flip(add(v, v), axes=(0,)), axis=0), axes=(0,))], x)


def test_positions_of_extrema_with_ties_nans_and_infinities() -> None:
    rows = [[1, 3, 3, 2, 3], [2, np.nan, 3, np.nan, 4], [np.nan] * 5, [-np.inf] * 5, [np.inf] * 5, [0.0, -0.0, 0, -0.0, 0],
            [np.inf, 1, np.inf, 2, np.nan], [5, 4, 3, 2, 1], [1, 2, 3, 4, 5]]  # fmt: skip
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
        return [maximum(a, b), minimum(a, b), maximum(a, 0.0), where(elementwise.less(a, b), a, b), masked,
                *(op(v, axes=(0,)) for op in (reduction.reduce_max, reduction.reduce_min) for v in (a, b, masked)),
                reduce_sum(where(elementwise.isfinite(a), a, 0.0), axes=(0,)), elementwise.logical_not(elementwise.less(a, b))]  # fmt: skip

    assert_same(fn, x, y)


# -- outputs ----------------------------------------------------------------------------------------------------------------
def test_outputs_that_are_inputs_reshapes_or_repeated_share_no_memory() -> None:
    def fn(x: Any) -> list[Any]:
        y = exp(x)
        flat = reshape(y, shape=(36,))
        twice = linear.fresh(reshape(linear.fresh(flat, tag=1), shape=(2, 18)), tag=2)
        return [x, y, y, flat, reshape(y, shape=(3, 12)), reshape(flat, shape=(2, 18)), twice, reshape(x, shape=(36,)), x, flat]

    x = whole(4, 9) / 10
    graph = build(fn, [aval_of(x)])
    found = compiled(graph)
    outputs = found.run([x])
    for got, want in zip(outputs, run(graph, [x]), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-15)
    for a, b in itertools.combinations([x, *outputs], 2):
        assert not np.shares_memory(a, b)


# -- ops that are called in NumPy ----------------------------------------------------------------------------------------------
def powers(x: Any, y: Any) -> list[Any]:
    z = elementwise.power(add(x, 1), y)
    return [multiply(z, 2), reduce_sum(z, axes=(1,)), cast(tanh(cast(z, dtype="float64")), dtype="float32")]


def test_an_op_without_codegen_data_is_called_between_kernels() -> None:
    x, y = rng.integers(0, 4, (12, 10)), rng.integers(0, 5, (12, 10))
    found = compiled(build(powers, [aval_of(x), aval_of(y)]))
    assert [type(s).__name__ for s in found.report.plan.steps].count("Call") == 1
    assert_same(powers, x, y, rtol=1e-7)


def test_what_a_called_op_raises_arrives_and_nothing_is_poisoned() -> None:
    x, y = rng.integers(0, 4, (12, 10)), rng.integers(0, 5, (12, 10))
    found = compiled(build(powers, [aval_of(x), aval_of(y)]))
    want = found.run([x, y])
    for _ in range(3):
        with pytest.raises(ValueError, match="Integers to negative integer powers"):
            found.run([x, -1 - y])
        for a, b in zip(found.run([x, y]), want):
            np.testing.assert_array_equal(a, b)


def test_an_error_that_only_the_compiled_call_meets_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    x = rng.integers(1, 4, 10)
    found = compiled(build(lambda a: [elementwise.power(a, a)], [aval_of(x)]))
    impl, errors = elementwise.power.impl, [MemoryError("once"), ZeroDivisionError("twice")]

    def fails(*args: Any) -> Any:
        if errors:
            raise errors.pop(0)
        return impl(*args)

    monkeypatch.setattr(elementwise.power, "impl", fails)
    with pytest.raises(MemoryError, match="once"):
        errors[1:] = []
        found.run([x])
    np.testing.assert_array_equal(found.run([x])[0], x**x)


def test_an_interrupt_in_a_called_op_reaches_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    x = rng.integers(1, 4, 10)
    found = compiled(build(lambda a: [elementwise.power(a, a)], [aval_of(x)]))
    impl, pending = elementwise.power.impl, [KeyboardInterrupt]

    def interrupted(*args: Any) -> Any:
        if pending:
            raise pending.pop()
        return impl(*args)

    monkeypatch.setattr(elementwise.power, "impl", interrupted)
    with pytest.raises(KeyboardInterrupt):
        found.run([x])
    np.testing.assert_array_equal(found.run([x])[0], x**x)


def test_called_ops_run_in_many_threads_and_inside_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    x = rng.integers(1, 4, (200, 300))
    found = compiled(build(lambda a: [reduce_sum(elementwise.power(a, a), axes=(0,)), tanh(cast(a, dtype="float64"))], [aval_of(x)]))
    assert found.report.plan.cost >= RELEASE_GIL_COST
    want = (x**x).sum(0)
    assert all(np.array_equal(found.run([x])[0], want) for _ in range(2))
    assert all(in_threads(4, lambda _: all(np.array_equal(found.run([x])[0], want) for _ in range(5))))

    impl, depth = elementwise.power.impl, [3]

    def nested(*args: Any) -> Any:
        if depth[0]:
            depth[0] -= 1
            np.testing.assert_array_equal(found.run([x])[0], want)
        return impl(*args)

    monkeypatch.setattr(elementwise.power, "impl", nested)
    np.testing.assert_array_equal(found.run([x])[0], want)
    assert depth == [0]


def test_shared_loops_are_loaded_once_by_many_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs keep no more than the addresses of these loops: a second copy that replaced the first would free it."""
    loads: list[str] = []
    load = program.native.load_ir

    def counted(text: Any, name: str) -> Any:
        loads.append(name)
        return load(text, name)

    monkeypatch.setattr(program, "_support", {})
    monkeypatch.setattr(program.native, "load_ir", counted)
    graph = build(lambda x: [reduction.reduce_min(x, axes=(0,)), reduce_sum(x, axes=(0,))], [f64(5000, 30)])
    x = whole(5000, 30)
    for outputs in in_threads(6, lambda _: compiled(graph).run([x])):
        np.testing.assert_array_equal(outputs[1], x.sum(0))
    assert sorted(loads) == sorted(set(loads))


# -- every row of the table once more, at sizes that are run-time arguments ------------------------------------------------------
def test_graphs_of_one_op_at_large_sizes() -> None:
    for op in (elementwise.logaddexp, elementwise.arctan2, elementwise.hypot, elementwise.power):
        x, y = rng.uniform(0.5, 2, (37, 41)), rng.uniform(0.5, 2, (37, 41))
        graph = graph_of(op, [x, y], {})
        np.testing.assert_allclose(compiled(graph).run([x, y])[0], op.impl(x, y), rtol=1e-14)
