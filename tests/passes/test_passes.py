"""Passes keep the meaning of a graph; golden files show what they make of it, evaluated as well as compared."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from graphs import SAMPLES, every_op, f32, f64, graph_of, graphs, like, several, vjp_of
from hypothesis import HealthCheck, given, settings
from paths import TESTS

from tracegrad import passes
from tracegrad.avals import Aval
from tracegrad.ir import Graph, build, parse, replay, run, to_text, verify
from tracegrad.ops.core.forms import Compose, IdentityForm
from tracegrad.ops.elementwise import table as elementwise
from tracegrad.ops.elementwise.table import accumulate, add, exp, multiply, negative, square, subtract, tanh, where
from tracegrad.ops.indexing import gather_scatter
from tracegrad.ops.linalg import contraction
from tracegrad.ops.reduce import reductions
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
from tracegrad.passes.core.constant_folding import constant

BY_NAME: dict[str, Callable[[Graph], Graph]] = {run.__name__: run for run, _ in passes.PIPELINE}
BY_NAME["optimize"] = lambda graph: passes.optimize(graph, verify=True)


def examples(n: int) -> Any:
    return settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), max_examples=n)


def names(graph: Graph) -> list[str]:
    return [node.name for node in graph.nodes]


def assert_same_meaning(before: Graph, after: Graph, arrays: Any, meant: Any = None, name: str = "") -> None:
    """Equal results but for rounding; the scale is that of the largest value computed on the way."""
    verify(after)
    assert after.avals == before.avals
    assert [x.aval for x in after.outputs] == [x.aval for x in before.outputs]
    outputs, tape = meant or replay(before, arrays)
    for got, want in zip(run(after, arrays), outputs):
        if want.dtype.kind != "f":
            np.testing.assert_array_equal(got, want, err_msg=name)
            continue
        floats = [x for answer, *_ in tape for x in several(answer) if x.dtype.kind == "f"]
        eps = max([0.0, *(float(np.finfo(x.dtype).eps) for x in floats)])
        finite = [np.abs(x[np.isfinite(x)]).max(initial=0) for x in floats]
        scale = max([1.0, *map(float, finite)])
        np.testing.assert_allclose(got, want, rtol=100 * eps, atol=100 * eps * scale, err_msg=name)


# -- every op, random graphs -------------------------------------------------------------------------------
@every_op
def test_passes_keep_the_meaning_of_every_op_and_its_derivatives(op: Any, operands: Any, params: Any) -> None:
    graph, arrays = graph_of(op, operands, params), list(operands)
    for _order in range(3):
        meant = replay(graph, arrays)
        for name, of in BY_NAME.items():
            after = of(graph)
            if after is not graph:  # which is what a pass returns that finds nothing
                assert_same_meaning(graph, after, arrays, meant, name)
        pulled = vjp_of(graph)
        if pulled is None:
            return
        arrays += [like(a) for a in pulled.avals[len(arrays) :]]
        graph = pulled


@examples(250)
@given(graph=graphs())
def test_pipeline_keeps_the_meaning_of_random_graphs(graph: Graph) -> None:
    arrays = [like(a) for a in graph.avals]
    assert_same_meaning(graph, BY_NAME["optimize"](graph), arrays)


@examples(100)
@given(graph=graphs(steps=5))
def test_pipeline_keeps_the_meaning_of_random_derivatives(graph: Graph) -> None:
    pulled = vjp_of(graph)
    assert pulled is not None
    arrays = [like(a) for a in pulled.avals]
    assert_same_meaning(pulled, BY_NAME["optimize"](pulled), arrays)


@examples(150)
@given(graph=graphs())
def test_simplify_reaches_its_normal_form_at_once(graph: Graph) -> None:
    once = passes.simplify(passes.decompose(graph))
    twice = passes.simplify(once)
    assert len(twice.nodes) == len(once.nodes)


@every_op
def test_optimized_graphs_have_only_ops_the_compiler_knows(op: Any, operands: Any, params: Any) -> None:
    for node in passes.optimize(graph_of(op, operands, params)).nodes:
        assert node.op is not None
        assert not isinstance(node.op.form, Compose | IdentityForm) or node.regions


# -- golden ------------------------------------------------------------------------------------------------
def layer(w: Any, b: Any, x: Any) -> list[Any]:
    return [reductions.mean(square(tanh(add(contraction.matmul_any(x, w), b))), axes=(0, 1))]


def cross_entropy(x: Any, labels: Any) -> list[Any]:
    chosen = reduce_sum(multiply(x, labels), axes=(1,))
    return [reductions.mean(subtract(reductions.logsumexp(x, axes=(1,)), chosen), axes=(0,))]


def layer_norm(x: Any) -> list[Any]:
    column = (x.shape[0], 1)
    centred = subtract(x, reshape(reductions.mean(x, axes=(1,)), shape=column))
    spread = elementwise.sqrt(add(reductions.var(x, axes=(1,), ddof=0.0), 1e-5))
    return [elementwise.divide(centred, reshape(spread, shape=column))]


def logistic(w: Any, x: Any, y: Any) -> list[Any]:
    margin = multiply(contraction.dot(x, w), y)
    return [reductions.mean(elementwise.log1p(exp(negative(margin))), axes=(0,))]


PROGRAMS = {
    "layer": (layer, [f64(40, 20), f64(20), f64(30, 40)], 20),
    "cross_entropy": (cross_entropy, [f32(16, 10), f32(16, 10)], 28),
    "layer_norm": (layer_norm, [f64(4, 8)], 34),
    "logistic": (logistic, [f64(5), f64(30, 5), f64(30)], 24),
}


SIZED = {
    "layer": lambda n: (layer, [f64(40, 20), f64(20), f64(n, 40)]),
    "cross_entropy": lambda n: (cross_entropy, [f32(n, 10), f32(n, 10)]),
    "layer_norm": lambda n: (layer_norm, [f64(n, 2 * n)]),
    "logistic": lambda n: (logistic, [f64(5), f64(n, 5), f64(n)]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_golden_gradient(name: str, golden: Any) -> None:
    fn, avals, most = PROGRAMS[name]
    graph = vjp_of(build(fn, avals))
    assert graph is not None
    optimized = passes.optimize(graph, verify=True)
    assert_same_meaning(graph, optimized, [like(a) for a in graph.avals])
    assert len(optimized.nodes) <= most
    assert f"{to_text(graph)}\n\n{to_text(optimized)}" == golden


@pytest.mark.parametrize("name", PROGRAMS)
def test_golden_files_are_graphs_that_mean_the_same(name: str) -> None:
    path = TESTS / "golden" / "test_passes" / f"test_golden_gradient-{name}.txt"
    before, after = map(parse, path.read_text().split("\n\n"))
    assert_same_meaning(before, verify(after), [like(a) for a in before.avals])


# -- decompose and the contractions ------------------------------------------------------------------------
def test_decompose_returns_a_graph_without_composites_itself() -> None:
    graph = build(lambda x: [exp(x)], [f64(3)])
    assert passes.decompose(graph) is graph
    assert passes.unroll_small_contractions(graph) is graph


def test_decompose_reaches_composites_inside_composites() -> None:
    graph = passes.decompose(build(lambda x: [reductions.var(x, axes=(0,), ddof=1.0)], [f64(9)]))
    assert "mean" not in names(graph)
    assert "var" not in names(graph)


@pytest.mark.parametrize(
    ("m", "k", "n", "unrolled"),
    [
        (3, 3, 3, True),
        (8, 8, 8, True),
        (9, 8, 8, False),
        (300, 50, 1, True),
        (1, 50, 300, True),
        (40, 1, 30, True),
        (1, 70, 1, True),
        (100, 100, 100, False),
        (3, 0, 2, True),
        (0, 20, 1, True),
    ],
)
@pytest.mark.parametrize("lead", [(), (2,)])
def test_products_that_a_loop_computes_better_leave_blas(lead: Any, m: int, k: int, n: int, unrolled: bool) -> None:
    graph = build(lambda x, y: [contraction.matmul(x, y)], [f64(*lead, m, k), f64(*lead, k, n)])
    after = passes.unroll_small_contractions(graph)
    assert ("matmul" not in names(after)) == unrolled
    assert_same_meaning(graph, after, [like(a) for a in graph.avals])
    assert_same_meaning(graph, passes.optimize(graph), [like(a) for a in graph.avals])


@pytest.mark.parametrize(("count", "size", "unrolled"), [(15, 8, True), (16, 8, False), (16, 4, True), (16, 5, False)])
def test_a_large_stack_of_small_products_is_one_call(count: int, size: int, unrolled: bool) -> None:
    graph = build(lambda x, y: [contraction.matmul(x, y)], [f64(count, size, size)] * 2)
    assert ("matmul" not in names(passes.optimize(graph))) == unrolled


def test_thresholds_are_options() -> None:
    graph = build(lambda x, y: [contraction.matmul(x, y)], [f64(300, 50), f64(50, 1)])
    options = passes.Thresholds(small=0, vector_elements=100)
    assert names(passes.unroll_small_contractions(graph, options)) == ["matmul"]


# -- structure: text in, names out ---------------------------------------------------------------------------
def no_ops(shape: tuple[int, ...]) -> Any:
    return {"low": (0,) * len(shape), "high": (0,) * len(shape), "interior": (0,) * len(shape)}


def window(x: Any, *parts: tuple[int, int, int]) -> Any:
    start, stop, step = zip(*parts)
    return slice(x, start=start, stop=stop, step=step)


def filled(x: Any, value: float, shape: tuple[int, ...] | None = None) -> Any:
    params = {"shape": x.shape if shape is None else shape, "value": value, "dtype": x.dtype.name}
    return x.builder.emit(full, (), params)


def in_zeros(x: Any, k: int) -> Any:
    """Element k of five in its place, and 0 elsewhere."""
    return pad(window(x, (k, k + 1, 1)), low=(k,), high=(4 - k,), interior=(0,), value=0.0)


def flat(x: Any) -> Any:
    return reshape(x, shape=(6,))


def of_both(x: Any, y: Any, with_y: bool = False) -> Any:
    chosen = where(elementwise.greater(x, 0), exp(y), y)
    return (y, chosen) if with_y else chosen


X = f64(2, 3)
STRUCTURE: dict[str, tuple[Callable[[Any], Any], Any, list[str]]] = {
    "reshape of reshape": (lambda x: reshape(reshape(x, shape=(6,)), shape=(3, 2)), X, ["reshape"]),
    "reshape back": (lambda x: reshape(reshape(x, shape=(6,)), shape=(2, 3)), X, []),
    "transpose twice": (lambda x: transpose(transpose(x, perm=(1, 0)), perm=(1, 0)), X, []),
    "transpose of transpose": (
        lambda x: transpose(transpose(x, perm=(1, 2, 0)), perm=(1, 2, 0)), f64(2, 3, 4), ["transpose"],
    ),
    "transpose of a column": (lambda x: transpose(x, perm=(1, 0)), f64(5, 1), ["reshape"]),
    "broadcast to the same shape": (lambda x: broadcast_to(x, shape=(2, 3)), X, []),
    "broadcast of broadcast": (
        lambda x: broadcast_to(broadcast_to(x, shape=(4, 2, 3)), shape=(5, 4, 2, 3)), X, ["broadcast_to"],
    ),
    "broadcast that adds axes of size one": (lambda x: broadcast_to(x, shape=(1, 1, 2, 3)), X, ["reshape"]),
    "reshape of a repeated number": (
        lambda x: reshape(broadcast_to(x, shape=(4, 6)), shape=(3, 8)), f64(1), ["reshape", "broadcast_to"],
    ),
    "reshape of broadcast by axes of size one": (
        lambda x: reshape(broadcast_to(x, shape=(4, 3)), shape=(1, 4, 1, 3)), f64(3), ["broadcast_to"],
    ),
    "full slice": (lambda x: window(x, (0, 2, 1), (0, 3, 1)), X, []),
    "slice of slice": (lambda x: window(window(x, (1, 20, 2)), (1, 9, 3)), f64(20), ["slice"]),
    "slice of pad": (
        lambda x: window(pad(x, low=(2,), high=(3,), interior=(0,), value=0), (2, 7, 1)), f64(5), [],
    ),
    "slice between the elements of pad": (
        lambda x: window(pad(x, low=(2,), high=(0,), interior=(1,), value=0), (2, 11, 2)), f64(5), [],
    ),
    "slice of the fill of pad": (
        lambda x: window(pad(x, low=(2,), high=(3,), interior=(0,), value=0), (1, 4, 1)), f64(5), ["pad", "slice"],
    ),
    "slice of one piece": (
        lambda x: window(concatenate(x, negative(x), axis=0), (2, 4, 1), (0, 3, 1)), X, ["negative"],
    ),
    "pad of nothing": (lambda x: pad(x, **no_ops((2, 3)), value=0), X, []),
    "flip twice": (lambda x: flip(flip(x, axes=(0, 1)), axes=(1,)), X, ["flip"]),
    "flip back": (lambda x: flip(flip(x, axes=(0,)), axes=(0,)), X, []),
    "flip of axes of size one": (lambda x: flip(x, axes=(0,)), f64(1, 3), []),
    "concatenate of one": (lambda x: concatenate(x, axis=0), X, []),
    "concatenate with nothing": (lambda x: concatenate(x, window(x, (0, 0, 1), (0, 3, 1)), axis=0), X, []),
    "concatenate of neighbours": (
        lambda x: concatenate(*[window(x, (0, 2, 1), (k, k + 1, 1)) for k in (1, 2, 0)], axis=1), X,
        ["slice", "slice", "concatenate"],
    ),
    "concatenate of all pieces": (
        lambda x: concatenate(*[window(x, (0, 2, 1), (k, k + 1, 1)) for k in range(3)], axis=1), X, [],
    ),
    "concatenate of neighbours in other rows": (
        lambda x: concatenate(window(x, (0, 1, 1), (0, 1, 1)), window(x, (1, 2, 1), (1, 2, 1)), axis=1), X,
        ["slice", "slice", "concatenate"],
    ),
    "concatenate of every other column": (
        lambda x: concatenate(*[window(x, (0, 2, 1), (k, 6, 3)) for k in (0, 1)], axis=1), f64(2, 6),
        ["slice", "slice", "concatenate"],
    ),
    "concatenate of the same row": (
        lambda x: concatenate(*[reshape(x, shape=(1, 6))] * 5, axis=0), X, ["reshape", "broadcast_to"],
    ),
    "concatenate of the same rows": (lambda x: concatenate(x, x, x, axis=0), X, ["concatenate"]),
    "sum of pieces in their places": (
        lambda x: functools.reduce(accumulate, [in_zeros(x, k) for k in range(1, 4)]), f64(5), ["slice", "pad"],
    ),
    "sum of all pieces": (
        lambda x: functools.reduce(accumulate, [in_zeros(x, k) for k in range(4, -1, -1)]), f64(5), [],
    ),
    "sum of pieces in other places": (
        lambda x: accumulate(in_zeros(x, 1), in_zeros(x, 3)), f64(5), ["slice", "pad", "slice", "pad", "add"],
    ),
    "sum of pieces in one place": (
        lambda x: accumulate(in_zeros(x, 1), in_zeros(negative(x), 1)), f64(5),
        ["slice", "pad", "negative", "slice", "pad", "add"],
    ),
    "sum of constant pieces": (
        lambda x: multiply(x, accumulate(in_zeros(filled(x, 2.0), 1), in_zeros(filled(x, 2.0), 2))), f64(5),
        ["full", "pad", "multiply"],
    ),
    "a sum of pieces that a user wrote": (
        lambda x: add(in_zeros(x, 1), in_zeros(x, 2)), f64(5), ["slice", "pad", "slice", "pad", "add"],
    ),
    "sum over no axes": (lambda x: reduce_sum(x, axes=()), X, ["add"]),
    "sum over axes of size one": (lambda x: reduce_sum(x, axes=(1,)), f64(3, 1), ["reshape", "add"]),
    "sum of sum": (lambda x: reduce_sum(reduce_sum(x, axes=(1,)), axes=(0,)), X, ["reduce_sum"]),
    "sum of all of a reshape": (lambda x: reduce_sum(reshape(x, shape=(6,)), axes=(0,)), X, ["reduce_sum"]),
    "sum of repeats": (
        lambda x: reduce_sum(broadcast_to(x, shape=(4, 2, 3)), axes=(0,)), X, ["multiply", "add"],
    ),
    "sum of repeats and others": (
        lambda x: reduce_sum(broadcast_to(x, shape=(4, 2, 3)), axes=(0, 1)), X, ["reduce_sum", "multiply"],
    ),
    "maximum of repeats": (lambda x: reductions.reduce_max(broadcast_to(x, shape=(4, 2, 3)), axes=(0,)), X, []),
    "cast to the same dtype": (lambda x: cast(x, dtype="float64"), X, []),
    "cast there and back": (lambda x: cast(cast(x, dtype="float64"), dtype="float32"), f32(3), []),
    "cast that loses bits stays": (lambda x: cast(cast(x, dtype="float32"), dtype="float64"), X, ["cast", "cast"]),
    "op on repeats": (
        lambda x: multiply(exp(broadcast_to(x, shape=(4, 2, 3))), 2.0), X, ["exp", "multiply", "broadcast_to"],
    ),
    "op on repeats of different shapes": (
        lambda x: add(broadcast_to(x, shape=(9, 2, 3)), broadcast_to(reduce_sum(x, axes=(0,)), shape=(9, 2, 3))),
        X, ["reduce_sum", "broadcast_to", "add", "broadcast_to"],
    ),
    "constant operand becomes a literal": (lambda x: add(x, filled(x, 3.0)), X, ["add"]),
    "constant behind a broadcast": (
        lambda x: multiply(x, broadcast_to(reshape(filled(x, 2.0, ()), shape=(1, 1)), shape=(2, 3))), X, ["multiply"],
    ),
    "times one": (lambda x: multiply(x, filled(x, 1.0)), X, []),
    "constants alone": (lambda x: add(x, exp(add(filled(x, 1.0), filled(x, -1.0)))), X, ["add"]),
    "sum of a constant": (lambda x: add(x, reduce_sum(filled(x, 0.5, (8, 2, 3)), axes=(0,))), X, ["add"]),
    "choice among constants keeps an array": (
        lambda x: where(elementwise.greater(x, 0), filled(x, 1.0), filled(x, 0.0)), X, ["greater", "full", "where"],
    ),
    "choice of equal constants": (
        lambda x: multiply(x, where(elementwise.greater(x, 0), filled(x, 1.0), 1.0)), X, [],
    ),
    "choice already made": (
        lambda x: where(elementwise.equal(filled(x, 1.0), 1.0), x, negative(x)), X, [],
    ),
    "choice of a literal already made": (
        lambda x: add(x, where(elementwise.equal(filled(x, 1.0), 1.0), 2.0, x)), X, ["add"],
    ),
    "choice within a choice of one mask": (
        lambda x: where(elementwise.greater(x, 0), exp(where(elementwise.greater(x, 0), negative(x), 1.0)), x), X,
        ["greater", "negative", "exp", "where"],
    ),
    "choice within the other side of a choice": (
        lambda x: where(elementwise.less(x, 0), x, exp(where(elementwise.less(x, 0), 1.0, negative(x)))), X,
        ["less", "negative", "exp", "where"],
    ),
    "choice within a choice, in another shape": (
        lambda x: where(
            elementwise.greater(x, 0),
            reshape(exp(where(flat(elementwise.greater(x, 0)), flat(x), 2.0)), shape=(2, 3)), 1.0,
        ), X, ["greater", "reshape", "exp", "reshape", "where"],
    ),
    "choice within both sides of a choice": (
        lambda x: of_both(x, where(elementwise.greater(x, 0), negative(x), 1.0)), X,
        ["greater", "negative", "exp", "where"],
    ),
    "choice within a choice of another mask stays": (
        lambda x: where(elementwise.greater(x, 0), exp(where(elementwise.less(x, 9), x, 1.0)), x), X,
        ["greater", "less", "where", "exp", "where"],
    ),
    "choice within what is used elsewhere stays": (
        lambda x: add(*of_both(x, exp(where(elementwise.greater(x, 0), x, 1.0)), True)), X,
        ["greater", "where", "exp", "exp", "where", "add"],
    ),
    "choice of what integers are divided by stays": (
        lambda x: where(
            elementwise.greater(x, 0), elementwise.floor_divide(7, where(elementwise.greater(x, 0), x, 1)), 0
        ), Aval((2, 3), np.dtype(np.int64)), ["greater", "where", "floor_divide", "where"],
    ),
    "zeros stay where they are added": (lambda x: add(x, filled(x, 0.0)), X, ["add"]),
    "common subexpressions": (lambda x: add(exp(negative(negative(x))), exp(x)), X, ["exp", "add"]),
}  # fmt: skip


@pytest.mark.parametrize("name", STRUCTURE)
def test_structure(name: str) -> None:
    fn, aval, left = STRUCTURE[name]
    graph = build(lambda x: [fn(x)], [aval])
    after = passes.simplify(graph)
    assert names(after) == left
    assert_same_meaning(graph, after, [like(aval)])


def test_every_elementwise_op_keeps_an_array_of_each_dtype() -> None:
    choice = STRUCTURE["choice among constants keeps an array"][0]
    graph = passes.simplify(build(lambda x: [choice(x)], [f32(2, 3)]))
    (chosen,) = graph.outputs
    assert chosen.aval == f32(2, 3)
    assert len(chosen.operands) == 2


def test_a_shared_sum_is_not_computed_twice() -> None:
    def fn(x: Any) -> list[Any]:
        rows = reduce_sum(x, axes=(1,))
        return [rows, reduce_sum(rows, axes=(0,))]

    graph = passes.simplify(build(fn, [X]))
    assert graph.nodes[1].inputs == (graph.nodes[0],)


def test_constants_keep_their_dtype_and_sign() -> None:
    graph = build(lambda x: [linear.zeros_like(x), filled(x, -0.0), multiply(filled(x, -0.0), 2.0)], [f32(3)])
    after = passes.simplify(graph)
    assert names(after) == ["full", "full"]
    assert all(
        np.array_equal(np.signbit(a), np.signbit(b)) for a, b in zip(run(graph, [np.ones(3)]), run(after, [np.ones(3)]))
    )
    assert constant(1.0) is None


def test_sums_of_constants_keep_their_dtype_and_begin_with_zero() -> None:
    for dtype, value, total in (("bool", True, True), ("int64", 3, 12), ("float64", -0.0, 0.0), ("float32", 0.5, 2.0)):

        def fn(x: Any, dtype: str = dtype, value: Any = value) -> list[Any]:
            output = x.builder.emit(full, (), {"shape": (4,), "value": value, "dtype": dtype})
            return [reduce_sum(output, axes=(0,))]

        after = passes.simplify(build(fn, [X]))
        (result,) = run(after, [np.ones(X.shape)])
        assert names(after) == ["full"]
        assert result.dtype == dtype
        assert result == total
        assert not np.signbit(np.float64(result))


def test_integer_division_of_constants_is_left_to_run_time() -> None:
    def fn(x: Any) -> list[Any]:
        return [add(x, cast(elementwise.floor_divide(cast(filled(x, 1.0), dtype="int64"), 0), dtype="float64"))]

    assert "floor_divide" in names(passes.simplify(build(fn, [X])))


def test_indices_out_of_range_still_raise() -> None:
    def fn(x: Any) -> list[Any]:
        index = x.builder.emit(full, (), {"shape": (4,), "value": 9, "dtype": "int64"})
        return [gather_scatter.gather(filled(x, 1.0), index, axes=(0,))]

    graph = passes.optimize(build(fn, [X]))
    with pytest.raises(IndexError):
        run(graph, [np.ones((2, 3))])


# -- the pipeline --------------------------------------------------------------------------------------------
def test_record_holds_the_graph_after_every_pass() -> None:
    stages: list[tuple[str, Graph]] = []
    graph = vjp_of(build(layer, PROGRAMS["layer"][1]))
    assert graph is not None
    result = passes.optimize(graph, record=stages)
    assert [name for name, _ in stages] == [run.__name__ for run, _ in passes.PIPELINE]
    assert stages[-1][1] is result


@pytest.mark.parametrize("name", ["layer", "cross_entropy", "layer_norm", "logistic"])
def test_the_form_of_a_graph_does_not_depend_on_large_sizes(name: str) -> None:
    def form(n: int) -> list[tuple[str, int]]:
        graph = vjp_of(build(SIZED[name](n)[0], SIZED[name](n)[1]))
        assert graph is not None
        return [(node.name, len(node.inputs)) for node in passes.optimize(graph).nodes]

    assert all(form(n) == form(9) for n in (10, 16, 31, 32, 64, 100))


def test_every_pass_states_its_contract_and_its_reason() -> None:
    for run_pass, reason in passes.PIPELINE:
        assert run_pass.__doc__
        assert reason


def test_unused_inputs_and_repeated_outputs_stay() -> None:
    graph = build(lambda x, y: [x, negative(negative(x)), exp(x), exp(x)], [X, X])
    after = passes.optimize(graph)
    assert len(after.inputs) == 2
    assert after.outputs[0] is after.outputs[1] is after.inputs[0]
    assert after.outputs[2] is after.outputs[3]


def test_locations_survive_the_pipeline() -> None:
    from tracegrad.ir import Builder

    builder = Builder()
    x = builder.input(X)
    builder.location = "model.py:7"
    y = reductions.softmax(x, axes=(1,))
    after = passes.optimize(builder.build([y]))
    assert {node.location for node in after.nodes} == {"model.py:7"}


def test_samples_cover_the_table() -> None:
    assert len(SAMPLES) > 100


def test_a_choice_of_one_boolean_is_that() -> None:
    before = parse("""
graph(p: bool[], q: bool[]) {
  %1 = where(p, True, True) : bool[]
  %2 = logical_and(%1, q) : bool[]
  return %1, %2
}
""")
    result = passes.simplify(before)
    assert names(result) == ["full"]
    p, q = np.array(True), np.array(False)
    np.testing.assert_array_equal(run(result, [p, q]), run(before, [p, q]))
