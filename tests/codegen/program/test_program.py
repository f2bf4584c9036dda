"""Programs: what they accept, what they raise, what they share, and calls from many threads."""

from __future__ import annotations

import gc
import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exact import assert_same, compiled, full_slice, whole
from graphs import REAL, f32, f64, i64, vjp_of
from plans import sources
from threads import together

from tracegrad.avals import Aval, aval_of
from tracegrad.codegen.loopir.steps import Launch
from tracegrad.codegen.plan.planner import RELEASE_GIL_COST
from tracegrad.codegen.program.encode import encode_program, units_of
from tracegrad.errors import TracegradError
from tracegrad.ir import Graph, build, parse, run
from tracegrad.ops import TABLE
from tracegrad.ops.core.op import primitive
from tracegrad.ops.elementwise import table as elementwise
from tracegrad.ops.elementwise.table import add, exp, less, multiply, sin, square, subtract, tanh, where
from tracegrad.ops.indexing.gather_scatter import gather, scatter_add
from tracegrad.ops.linalg import contraction
from tracegrad.ops.reduce import reductions
from tracegrad.ops.reduce.scans import cumsum
from tracegrad.ops.shape import linear
from tracegrad.ops.shape.linear import (
    broadcast_to,
    cast,
    concatenate,
    flip,
    full,
    pad,
    reduce_sum,
    reshape,
    slice,
    transpose,
)
from tracegrad.runtime.compile import jit
from tracegrad.runtime.execution import plan_cache, program
from tracegrad.runtime.execution.program import MISS, Program, compile_program, machine_code_count
from tracegrad.settings import settings

rng = np.random.default_rng(0)


# -- what a program accepts ------------------------------------------------------------------------------------------
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


@pytest.mark.parametrize("single", [False, True])
def test_a_program_fails_where_its_check_does_and_does_not_return_it(single: bool) -> None:
    graph = build(lambda x, c: [add(x, c), less(c, 2.0)], [f64(3, 4), f64()])
    program = compile_program(graph, ("array", "float"), single, checked=True)
    result = program.entry(GOOD, 1.0)
    np.testing.assert_array_equal(result if single else result[0], GOOD + 1)
    assert single or len(result) == 1
    assert program.entry(GOOD, 2.0) is MISS
    assert program.entry(GOOD, 1.0) is not MISS


def test_a_wrong_number_of_arguments_is_a_miss_and_keywords_are_an_error(two_arguments: Program) -> None:
    for args in ((), (GOOD,), (GOOD, 1.0, 1.0), (1.0, GOOD)):
        assert two_arguments.entry(*args) is MISS
    with pytest.raises(TypeError):
        two_arguments.entry(GOOD, c=1.0)


def test_read_only_arrays_and_one_array_given_twice_match() -> None:
    x = np.arange(20.0)
    x.flags.writeable = False
    result = compiled(build(lambda a, b: [multiply(a, b)], [f64(20)] * 2))
    np.testing.assert_array_equal(result.entry(x, x)[0], x * x)


def test_run_names_leaves_that_the_program_does_not_take(two_arguments: Program) -> None:
    with pytest.raises(
        TracegradError, match=r"takes f64\[3,4\], f64\[\] and was given ndarray of float32\[3, 4\], float"
    ):
        two_arguments.run([GOOD.astype("float32"), 1.0])
    with pytest.raises(TracegradError, match="not in row-major order"):
        two_arguments.run([np.asfortranarray(GOOD), 1.0])


# -- indices out of range --------------------------------------------------------------------------------------------
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
    "gather between other kernels": lambda x, i: [
        tanh(gather(cumsum(x, axis=0), i, axes=(0,))),
        reduce_sum(x, axes=(1,)),
    ],
    "gather along the last axis": lambda x, i: [gather(transpose(x, perm=(1, 0)), i, axes=(1,))],
    "gather under a guard": lambda x, i: [
        pad(gather(x, i, axes=(0,)), low=(1, 0), high=(0, 2), interior=(1, 0), value=0)
    ],
    "gather that is not chosen": lambda x, i: [where(elementwise.isnan(x_ := gather(x, i, axes=(0,))), x_, 1.0)],
    "scatter": lambda x, i: [scatter_add(full_slice(x, stop=(3, 3)), i, shape=(5, 3), axes=(0,))],
    "scatter in the middle": lambda x, i: [
        scatter_add(broadcast_to(i_ := cast(i, dtype="float64"), shape=(3,)), i, i, shape=(5, 5), axes=(1, 0)),
        i_,
    ],
}


@pytest.mark.parametrize("fn", INDEXED.values(), ids=INDEXED)
def test_indices_out_of_range_raise_as_the_reference_does(fn: Any) -> None:
    graph = build(fn, [f64(5, 3), i64(3)])
    result, x = compiled(graph), whole(5, 3)
    for index in ([0, 4, -5], [-1, 1, 2], [5, 0, 0], [0, 0, -6], [2**62, 0, 0], [0, -(2**63), 0], [4, 4, 5]):
        i = np.array(index)
        want = raised(lambda i=i: run(graph, [x, i]))
        assert raised(lambda i=i: result.run([x, i])) == want
        if want is None:
            for got, expected in zip(result.run([x, i]), run(graph, [x, i])):
                np.testing.assert_allclose(got, expected, rtol=1e-14)
        else:
            assert want[0] is IndexError
            assert result.entry(x, i) is MISS


@pytest.mark.parametrize("dtype", sorted(d.name for d in REAL if d.kind in "iu"))
def test_indices_of_every_integer_dtype(dtype: str) -> None:
    x, low = whole(20, 4), -20 if dtype[0] == "i" else 0
    i = np.array([0, 19, 7, low, low + 3]).astype(dtype)
    graph = build(lambda v, k: [gather(v, k, axes=(0,))], [aval_of(x), aval_of(i)])
    result = compiled(graph)
    np.testing.assert_array_equal(result.run([x, i])[0], x[i])
    i[2] = 20
    assert raised(lambda: result.run([x, i])) == raised(lambda: run(graph, [x, i])) != None  # noqa: E711


def test_one_bad_index_in_a_parallel_kernel_is_found() -> None:
    n = 1_000_000
    result = compiled(build(lambda v, k: [sin(gather(v, k, axes=(0,)))], [f64(1000), i64(n)]))
    (launch,) = result.report.plan.steps
    assert isinstance(launch, Launch)
    assert launch.blocks.parallel
    x, i = rng.random(1000), rng.integers(-1000, 1000, n)
    for place in (0, n // 2, n - 1):
        broken = i.copy()
        broken[place] = 1000
        with pytest.raises(IndexError, match="1000 is out of bounds"):
            result.run([x, broken])
        np.testing.assert_allclose(result.run([x, i])[0], np.sin(x[i]), rtol=1e-15)


# -- machine code is shared ------------------------------------------------------------------------------------------
def softmax_loss(w: Any, x: Any, y: Any) -> list[Any]:
    return [reductions.mean(multiply(reductions.softmax(contraction.matmul(x, w), axes=(1,)), y), axes=(0, 1))]


def batch_norm(x: Any) -> list[Any]:
    shape = x.shape
    mean = reductions.mean(x, axes=(0,))
    spread = reductions.var(x, axes=(0,), ddof=1)
    return [elementwise.divide(subtract(x, broadcast_to(mean, shape=shape)), broadcast_to(spread, shape=shape))]


def neighbours(x: Any) -> list[Any]:
    n = x.shape[0]
    inner = subtract(full_slice(x, start=(1, 0)), full_slice(x, stop=(n - 1, x.shape[1])))
    return [pad(square(inner), low=(1, 0), high=(0, 0), interior=(0, 0), value=0), reduce_sum(x, axes=(1,))]


BATCHED: dict[str, tuple[Any, Callable[[int], list[Aval]]]] = {
    "softmax loss": (softmax_loss, lambda n: [f64(12, 10), f64(n, 12), f64(n, 10)]),
    "batch norm": (batch_norm, lambda n: [f64(n, 13)]),
    "neighbours": (neighbours, lambda n: [f64(n, 10)]),
    "many axes": (lambda x: [reductions.logsumexp(x, axes=(0, 2)), flip(x, axes=(0,))], lambda n: [f32(n, 3, n, 11)]),
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

    _, first = at(21)  # machine code lives as long as a program that runs it
    count = machine_code_count()
    for n in (
        11,
        12,
        13,
        16,
        31,
        32,
        33,
        64,
        100,
        257,
    ):  # powers of two among them, and sizes met elsewhere in the graph
        graph, result = at(n)
        assert (result.report.cache, result.report.key) == ("memory", first.report.key)
        values = [
            whole(*a.shape, dtype=a.dtype, low=0, high=4 if a.dtype.kind == "f" else min(n, 9)) for a in graph.avals
        ]
        for got, want in zip(result.run(values), run(graph, values), strict=True):
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


def passes_run(monkeypatch: pytest.MonkeyPatch) -> list[Graph]:
    """The graphs that are optimised from now on."""
    results: list[Graph] = []
    usual = program.passes.optimize
    monkeypatch.setattr(program.passes, "optimize", lambda graph: results.append(graph) or usual(graph))
    plan_cache.forget()
    return results


def test_equal_graphs_are_planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    result = passes_run(monkeypatch)
    x = rng.random(30)

    def made(factor: Any = 2.0, n: int = 30, **how: Any) -> Program:
        graph = build(lambda x: [add(multiply(x, factor), tanh(x))], [f64(n)])
        return compile_program(graph, ("array",), True, "made", **how)

    first, second = made(), made()
    assert len(result) == 1
    assert second.image is first.image
    assert np.array_equal(first.run([x]), second.run([x]))
    assert second.cache == "memory"
    others = [made(-0.0), made(0.0), made(2.5), made(n=31), made(optimize=1), made(donated=(0,))]
    assert len(result) == 1 + len(others)
    zeros = -np.zeros(30)
    assert not np.signbit(made(-0.0).run([zeros])).any()
    assert np.signbit(made(0.0).run([zeros])).all()


def test_literals_of_other_types_are_other_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    result = passes_run(monkeypatch)
    for value in (1, True, 1.0):
        graph = build(lambda: [full(shape=(3,), value=value, dtype="float64")], [])  # noqa: B023
        compile_program(graph, (), True, "ones")
    assert len(result) == 3


def test_a_plan_is_made_again_for_who_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    result = passes_run(monkeypatch)
    graph = build(lambda x: [cumsum(add(x, 0.987), axis=0), reduce_sum(exp(x), axes=(0,))], [f64(300)])
    results = [compile_program(graph, ("array",), False, "made") for _ in range(2)]
    assert len(result) == 1
    for each in results:
        assert each.cache == each.report.cache
        assert each.report is each.report
        assert {piece.text for piece in each.image.uses} == {piece.text for piece in results[0].image.uses}
    assert len(result) == 3
    assert results[1].cache == "memory"
    x = rng.random(300)
    for got, want in zip(results[1].run([x]), run(graph, [x]), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)


def test_a_graph_with_an_object_in_it_is_planned_each_time(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    runs = passes_run(monkeypatch)
    request.addfinalizer(lambda: TABLE.pop("applied_to"))

    @primitive()
    def applied_to(x: Any, *, function: Any) -> Any:
        return function(x)

    applied_to.def_aval(lambda x, *, function: x)
    for each in (np.sin, np.cos, np.cos):
        (result,) = compiled(build(lambda x: [applied_to(x, function=each)], [f64(5)])).run([np.ones(5)])  # noqa: B023
        assert np.array_equal(result, each(np.ones(5)))
    assert len(runs) == 3


def test_plans_that_were_not_asked_for_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    result = passes_run(monkeypatch)
    graphs = [build(lambda x: [add(x, float(k))], [f64(5)]) for k in range(3)]  # noqa: B023
    (_, size), *_ = [plan_cache.key_of(graph, ("array",), True, False, 2, ()) for graph in graphs]
    monkeypatch.setattr(plan_cache, "MAX_BYTES", 2 * size)
    for graph in (graphs[0], graphs[1], graphs[0], graphs[2], graphs[0], graphs[1]):
        compile_program(graph, ("array",), True)
    assert result == [graphs[0], graphs[1], graphs[2], graphs[1]]
    plan_cache.forget()


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
    programs = [
        compiled(build(lambda x, c=c: [multiply(add(x, c), c)], [f64(10)])) for c in (0.1, 1e150, -7.25, 5e-324)
    ]
    assert len({p.report.key for p in programs}) == 1
    x = rng.random(10)
    for p, c in zip(programs, (0.1, 1e150, -7.25, 5e-324)):
        np.testing.assert_array_equal(p.run([x])[0], (x + c) * c)


def test_machine_code_from_disk_calls_what_it_needs() -> None:
    """BLAS, shared loops, the thread pool and NumPy: their addresses are not those of the process that compiled it."""

    def fn(x: Any, y: Any, k: Any) -> list[Any]:
        product = contraction.matmul(x, y)
        table = scatter_add(product, k, shape=(40, 300), axes=(0,))
        return [reduce_sum(sin(product), axes=(0,)), table, reduce_sum(elementwise.power(k, k), axes=(0,))]

    graph = build(fn, [f64(900, 20), f64(20, 300), i64(900)])
    arrays = [whole(900, 20), whole(20, 300), whole(900, dtype="int64", low=0, high=9)]
    want = compiled(graph).run(arrays)
    count = machine_code_count()
    gc.collect()  # machine code dies with the last program that runs it
    again = compiled(graph)
    assert (again.report.cache, machine_code_count()) == ("disk", count)
    for a, b in zip(again.run(arrays), want):
        np.testing.assert_array_equal(a, b)


@pytest.fixture
def own_cache(tmp_path: Path) -> Iterator[None]:
    """A disk cache that no other test has filled, and no machine code in memory but that of programs in use."""
    gc.collect()
    settings.cache_dir = tmp_path / "cache"
    yield
    settings.reload()


def layers(count: int, activation: Any = tanh) -> Any:
    def fn(x: Any, w: Any) -> list[Any]:
        for k in range(count):
            x = activation(add(contraction.matmul(x, w), 0.3 + k))
        return [x]

    return fn


@pytest.mark.usefixtures("own_cache")
def test_equal_layers_share_their_machine_code() -> None:
    avals = [f64(20, 30), f64(30, 30)]
    first = compiled(build(layers(2), avals))
    assert [steps for steps, _ in first.report.units] == [[1, 3]]
    count = machine_code_count()
    deep = compiled(build(layers(12), avals))
    assert (sources(deep), machine_code_count()) == (["memory"], count)
    assert [len(steps) for steps, _ in deep.report.units] == [12]
    x, w = rng.random((20, 30)), rng.random((30, 30)) / 30
    want = x
    for k in range(12):
        want = np.tanh(want @ w + (0.3 + k))
    np.testing.assert_allclose(deep.run([x, w])[0], want, rtol=1e-13)


@pytest.mark.usefixtures("own_cache")
def test_a_derivative_compiles_only_what_its_function_has_not() -> None:
    def loss(x: Any, w: Any) -> list[Any]:
        (y,) = layers(3, exp)(x, w)  # of which the slope reads the answer
        return [reduce_sum(multiply(y, sin(y)), axes=(0, 1))]

    graph = build(loss, [f64(20, 30), f64(30, 30)])
    value = compiled(graph)
    pulled = vjp_of(graph)
    assert pulled is not None
    count = machine_code_count()
    derivative = compiled(pulled)
    result = sources(derivative)
    assert result.count("memory") >= 1
    assert machine_code_count() - count == result.count("compiled") < len(result)
    arrays = [whole(*a.shape, low=-1, high=1) for a in pulled.avals]
    for got, want in zip(derivative.run(arrays), run(pulled, arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)
    assert sources(value) != []


@pytest.mark.usefixtures("own_cache")
def test_kernels_of_one_text_serve_programs_that_have_them_at_other_places() -> None:
    """Other buffers, other sizes, other constants, other steps around."""

    def alone(x: Any) -> list[Any]:
        return [tanh(multiply(x, 0.3))]

    def among(y: Any, x: Any, i: Any) -> list[Any]:
        rows = reduce_sum(square(tanh(multiply(x, 0.7))), axes=(0,))
        return [rows, cumsum(gather(y, i, axes=(0,)), axis=0), tanh(multiply(y, -0.4))]

    first = compiled(build(alone, [f64(50)]))
    second = compiled(build(among, [f64(31), f64(40, 60), i64(17)]))
    assert sources(second).count("memory") == 1
    x, y, i = rng.random((40, 60)), rng.random(31), rng.integers(0, 31, 17)
    got = second.run([y, x, i])
    np.testing.assert_allclose(got[0], (np.tanh(x * 0.7) ** 2).sum(0), rtol=1e-13)
    np.testing.assert_allclose(got[1], np.cumsum(y[i]), rtol=1e-13)
    np.testing.assert_allclose(got[2], np.tanh(y * -0.4), rtol=1e-14)
    np.testing.assert_allclose(first.run([y[:1].repeat(50)])[0], np.tanh(y[0] * 0.3).repeat(50), rtol=1e-14)


LOOP = """
graph(%0: f64[3], %1: f64[7,3]{more}) {{
  {before}%8, %9 = scan(%0, %1) {{carries=1, length=7, reverse=False, xs=1}} : f64[3], f64[7,3]
    body(%0: f64[3], %1: f64[3]) {{
      %2 = multiply(%0, 0.5) : f64[3]
      %3 = sin(%2) : f64[3]
      %4 = add(%3, %1) : f64[3]
      return %4, %3
    }}
  return %8, %9{results}
}}
"""


@pytest.mark.usefixtures("own_cache")
def test_a_loop_of_one_text_serves_programs_that_have_it_at_other_places() -> None:
    first = compiled(parse(LOOP.format(more="", before="", results="")))
    count = machine_code_count()
    # A kernel that nothing else in this process has: functions like `np.exp` keep what was compiled for them.
    before = "%5 = cosh(%2) : f64[40]\n  %6 = arctan(%5) : f64[40]\n  %7 = tanh(%6) : f64[40]\n  "
    second = compiled(parse(LOOP.format(more=", %2: f64[40]", before=before, results=", %7")))
    assert sorted(sources(second)) == ["compiled", "memory"]
    assert machine_code_count() == count + 1
    x, rows, other = rng.random(3), rng.random((7, 3)), rng.random(40)
    for a, b in zip(
        second.run([x, rows, other]), (*first.run([x, rows]), np.tanh(np.arctan(np.cosh(other)))), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-15)


ITERATIONS = """
graph(%0: f64[], %1: f64[7,300]) {
  %8, %9 = scan(%0, %1) {carries=1, length=7, reverse=False, xs=1} : f64[], f64[7,300]
    body(%0: f64[], %1: f64[300]) {
      %2 = multiply(%1, 0.5) : f64[300]
      %3 = sin(%2) : f64[300]
      %4 = reduce_sum(%3) {axes=(0,)} : f64[]
      %5 = add(%0, %4) : f64[]
      return %5, %3
    }
  return %8, %9
}
"""


@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize("loop_first", [False, True])
def test_kernels_of_loops_serve_other_programs(loop_first: bool) -> None:
    def turn(row: Any) -> list[Any]:
        row = sin(multiply(row, 0.5))
        return [row, reduce_sum(row, axes=(0,))]

    graphs = [build(turn, [f64(200)]), parse(ITERATIONS)]
    count = machine_code_count()
    first = compiled(graphs[loop_first])
    assert machine_code_count() - count == len(first.report.units) == 1 + loop_first
    second = compiled(graphs[not loop_first])
    assert sources(second) == (["memory"] if loop_first else ["memory", "compiled"])
    del first  # what the other has of it stays
    gc.collect()
    again = compiled(graphs[loop_first])
    assert sources(again) == (["memory", "disk"] if loop_first else ["memory"])
    rows = rng.random((7, 300))
    loop, straight = (again, second) if loop_first else (second, again)
    total, sines = loop.run([np.array(1.0), rows])
    np.testing.assert_allclose(sines, np.sin(rows * 0.5), rtol=1e-14)
    np.testing.assert_allclose(total, 1.0 + np.sin(rows * 0.5).sum(), rtol=1e-13)
    np.testing.assert_allclose(straight.run([rows[0, :200]])[0], np.sin(rows[0, :200] * 0.5), rtol=1e-14)


def test_another_process_compiles_only_what_is_new(tmp_path: Path) -> None:
    source = """
import sys, numpy as np, tracegrad as tg
from tracegrad.runtime.execution.program import machine_code_count
def loss(x, w):
    for k in range(3):
        x = np.exp(x @ w - 0.5)
    return np.sum(x * x)
fun = tg.grad(loss, argnums=1) if sys.argv[1] == "gradient" else tg.trace(loss)
x, w = np.full((20, 30), 0.1), np.full((30, 30), 0.01)
fun(x, w)
print(machine_code_count())
assert "numba" not in sys.modules
"""

    def run_process(what: str) -> int:
        environment = {**os.environ, "TRACEGRAD_CACHE_DIR": str(tmp_path / "cache"), "TRACEGRAD_CACHE": "1"}
        command = [sys.executable, "-c", source, what]
        return int(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)

    value, gradient = run_process("value"), run_process("gradient")
    assert value >= 2
    assert run_process("value") == run_process("gradient") == 0
    shutil.rmtree(tmp_path / "cache")
    assert run_process("gradient") > gradient


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_that_is_forked_while_a_thread_compiles_can_compile() -> None:
    source = """
import itertools, os, signal, threading, warnings
import numpy as np, tracegrad as tg
warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads

def right(k):
    x = np.linspace(1.0, 2.0, 50)
    def f(x):
        for bit in f"{k:b}":
            x = np.sin(x) if bit == "1" else x * x
        return x
    return np.allclose(tg.trace(f)(x), f(x))

assert right(1)
stop = threading.Event()
def work():
    for k in itertools.count(2):
        if stop.is_set():
            return
        right(k)
thread = threading.Thread(target=work, daemon=True)
thread.start()
for k in range(10):
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # ends a child that waits for ever
        os._exit(0 if right(5000 + k) else 1)
    assert os.waitpid(child, 0)[1] == 0
stop.set()
thread.join()
print("fine")
"""
    environment = {**os.environ, "TRACEGRAD_CACHE": "0"}
    command = [sys.executable, "-c", source]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert (result.stdout.strip(), result.returncode) == ("fine", 0), result.stderr


@pytest.mark.usefixtures("own_cache")
def test_a_compilation_that_fails_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: Any) -> Any:
        raise RuntimeError("no memory for machine code")

    graph = build(lambda x: [multiply(add(sin(x), 0.25), square(x))], [f64(30)])
    with monkeypatch.context() as broken:
        broken.setattr(program.jit, "compile_ir", fails)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="no memory for machine code"):
                compiled(graph)
    x = rng.random(30)
    np.testing.assert_allclose(compiled(graph).run([x])[0], (np.sin(x) + 0.25) * x * x, rtol=1e-14)


# -- threads ---------------------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("own_cache")
def test_threads_that_meet_a_new_graph_together_compile_it_once() -> None:
    graph = build(lambda x, y: [exp(add(x, y)), reduce_sum(sin(multiply(x, y)), axes=(0,))], [f64(1000), f64(1000)])
    count = machine_code_count()
    result = together(8, lambda _: compiled(graph))
    assert machine_code_count() == count + 1
    assert sorted(p.report.cache for p in result) == ["compiled"] + ["memory"] * 7
    x, y = rng.random(1000), rng.random(1000)
    for p in result:
        np.testing.assert_allclose(p.run([x, y])[0], np.exp(x + y), rtol=1e-15)


@pytest.mark.usefixtures("own_cache")
def test_threads_that_need_some_of_the_same_pieces_compile_each_once() -> None:
    def fn(k: int) -> Any:
        return lambda x, w: [*layers(k + 1)(x, w), reduce_sum(elementwise.power(x, 1.5 + k % 2), axes=(1,))]

    graphs = [build(fn(k), [f64(20, 40), f64(40, 40)]) for k in range(6)]
    count = machine_code_count()
    result = together(6, lambda k: compiled(graphs[k]))
    kinds = {piece.text for p in result for order in encode_program(p.report.plan) for piece in units_of(order)}
    assert machine_code_count() - count <= len(kinds)
    assert [source for p in result for source in sources(p)].count("compiled") == machine_code_count() - count
    x, w = rng.random((20, 40)), rng.random((40, 40)) / 40
    for graph, p in zip(graphs, result):
        for got, want in zip(p.run([x, w]), run(graph, [x, w]), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-13)


def test_threads_that_compile_different_graphs_do_not_disturb_each_other() -> None:
    def fn(k: int) -> Any:
        return lambda x: [reduce_sum(multiply(x, float(k + 9)), axes=(0,)), *[sin(x)] * (k % 3), cumsum(x, axis=0)]

    graphs = [build(fn(k), [f64(3, 500)]) for k in range(8)]
    x = whole(3, 500)
    for graph, outputs in zip(graphs, together(8, lambda k: compiled(graphs[k]).run([x]))):
        for got, want in zip(outputs, run(graph, [x])):
            np.testing.assert_allclose(got, want, rtol=1e-15)


def test_one_program_called_from_many_threads() -> None:
    """With a large arena, kernels in chunks, and the GIL released."""

    def fn(x: Any) -> list[Any]:
        sums = reduce_sum(cumsum(sin(x), axis=0), axes=(1,))
        return [multiply(sums, reduce_sum(x, axes=(1,))), cumsum(transpose(x, perm=(1, 0)), axis=1)]

    result = compiled(build(fn, [f64(300, 400)]))
    assert result.report.plan.cost >= RELEASE_GIL_COST
    assert result.report.plan.arena_bytes > 2**17
    inputs = [rng.random((300, 400)) + i for i in range(4)]
    want = [result.run([x]) for x in inputs]

    def calls(i: int) -> bool:
        for k in range(20):
            x = (i + k) % 4
            if not all(np.array_equal(a, b) for a, b in zip(result.entry(inputs[x]), want[x])):
                return False
        return True

    assert all(together(6, calls))


# -- outputs ---------------------------------------------------------------------------------------------------------
def test_outputs_that_are_inputs_reshapes_or_repeated_share_no_memory() -> None:
    def fn(x: Any) -> list[Any]:
        y = exp(x)
        flat = reshape(y, shape=(36,))
        twice = linear.fresh(reshape(linear.fresh(flat, tag=1), shape=(2, 18)), tag=2)
        return [
            x,
            y,
            y,
            flat,
            reshape(y, shape=(3, 12)),
            reshape(flat, shape=(2, 18)),
            twice,
            reshape(x, shape=(36,)),
            x,
            flat,
        ]

    x = whole(4, 9) / 10
    graph = build(fn, [aval_of(x)])
    result = compiled(graph)
    outputs = result.run([x])
    for got, want in zip(outputs, run(graph, [x]), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-15)
    for a, b in itertools.combinations([x, *outputs], 2):
        assert not np.shares_memory(a, b)


# -- ops that are called in NumPy ------------------------------------------------------------------------------------
def powers(x: Any, y: Any) -> list[Any]:
    z = elementwise.power(add(x, 1), y)
    return [multiply(z, 2), reduce_sum(z, axes=(1,)), cast(tanh(cast(z, dtype="float64")), dtype="float32")]


def test_an_op_without_codegen_data_is_called_between_kernels() -> None:
    x, y = rng.integers(0, 4, (12, 10)), rng.integers(0, 5, (12, 10))
    result = compiled(build(powers, [aval_of(x), aval_of(y)]))
    assert [type(s).__name__ for s in result.report.plan.steps].count("CallStep") == 1
    assert_same(powers, x, y, rtol=1e-7)


def test_what_a_called_op_raises_arrives_and_nothing_is_poisoned() -> None:
    x, y = rng.integers(0, 4, (12, 10)), rng.integers(0, 5, (12, 10))
    result = compiled(build(powers, [aval_of(x), aval_of(y)]))
    want = result.run([x, y])
    for _ in range(3):
        with pytest.raises(ValueError, match="Integers to negative integer powers"):
            result.run([x, -1 - y])
        for a, b in zip(result.run([x, y]), want):
            np.testing.assert_array_equal(a, b)


def test_an_error_that_only_the_compiled_call_meets_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    x = rng.integers(1, 4, 10)
    result = compiled(build(lambda a: [elementwise.power(a, a)], [aval_of(x)]))
    impl, errors = elementwise.power.impl, [MemoryError("once")]

    def fails(*args: Any) -> Any:
        if errors:
            raise errors.pop(0)
        return impl(*args)

    monkeypatch.setattr(elementwise.power, "impl", fails)
    with pytest.raises(MemoryError, match="once"):
        result.run([x])
    np.testing.assert_array_equal(result.run([x])[0], x**x)


def test_an_interrupt_in_a_called_op_reaches_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    x = rng.integers(1, 4, 10)
    result = compiled(build(lambda a: [elementwise.power(a, a)], [aval_of(x)]))
    impl, pending = elementwise.power.impl, [KeyboardInterrupt]

    def interrupted(*args: Any) -> Any:
        if pending:
            raise pending.pop()
        return impl(*args)

    monkeypatch.setattr(elementwise.power, "impl", interrupted)
    with pytest.raises(KeyboardInterrupt):
        result.run([x])
    np.testing.assert_array_equal(result.run([x])[0], x**x)


def test_called_ops_run_in_many_threads_and_inside_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    x = rng.integers(1, 4, (200, 300))
    result = compiled(
        build(lambda a: [reduce_sum(elementwise.power(a, a), axes=(0,)), tanh(cast(a, dtype="float64"))], [aval_of(x)])
    )
    assert result.report.plan.cost >= RELEASE_GIL_COST
    want = (x**x).sum(0)
    assert all(np.array_equal(result.run([x])[0], want) for _ in range(2))
    assert all(together(4, lambda _: all(np.array_equal(result.run([x])[0], want) for _ in range(5))))

    impl, depth = elementwise.power.impl, [3]

    def nested(*args: Any) -> Any:
        if depth[0]:
            depth[0] -= 1
            np.testing.assert_array_equal(result.run([x])[0], want)
        return impl(*args)

    monkeypatch.setattr(elementwise.power, "impl", nested)
    np.testing.assert_array_equal(result.run([x])[0], want)
    assert depth == [0]


def test_shared_loops_are_loaded_once_by_many_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs keep no more than the addresses of these loops: a second copy that replaced the first would free it."""
    loads: list[str] = []
    load = jit._load_ir

    def counted(make: Any, name: str, *how: Any) -> Any:
        loads.append(name)
        return load(make, name, *how)

    monkeypatch.setattr(jit, "_loaded_modules", {})
    monkeypatch.setattr(jit, "_load_ir", counted)
    graph = build(lambda x: [reductions.reduce_min(x, axes=(0,)), reduce_sum(x, axes=(0,))], [f64(5000, 30)])
    x = whole(5000, 30)
    for outputs in together(6, lambda _: compiled(graph).run([x])):
        np.testing.assert_array_equal(outputs[1], x.sum(0))
    assert sorted(loads) == sorted(set(loads))
