"""What every op of the table does to tangents: it is the adjoint of what it does to cotangents, and the derivative.

There is nothing here to edit when an op is added.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from graphs import graphs
from hypothesis import HealthCheck, given, settings

from tracegrad.avals import Aval, aval_of
from tracegrad.ir import Graph, build, replay, run, verify
from tracegrad.ops import TABLE, bind
from tracegrad.ops.core.dispatch import Term
from tracegrad.ops.core.op import SymbolicCotangent, transposed
from tracegrad.ops.elementwise import table as elementwise
from tracegrad.ops.linalg import solve
from tracegrad.ops.reduce import reductions
from tracegrad.ops.shape import linear
from tracegrad.runtime.execution.program import compile_program
from tracegrad.torch.tape.tensors.factories import tensor
from tracegrad.transforms.jvp_graph import pushed as push_graph
from tracegrad.transforms.vjp_graph import vjp

rng = np.random.default_rng(0)
WIDE = {"float32": "float64", "complex64": "complex128"}


def wide(op: Any, operands: Any, params: Any) -> tuple[Any, ...]:
    """The operands in double precision, where no region says in which they are."""
    arrays = tuple([np.asarray(x) for x in operands])
    if any(isinstance(g, Graph) for v in params.values() for g in (v if isinstance(v, tuple) else (v,))):
        return arrays
    return tuple([x.astype(WIDE[x.dtype.name]) if x.dtype.name in WIDE else x for x in arrays])


def like(x: Any) -> Any:
    """A random array of the aval of `x`, which is floating."""
    t = rng.uniform(-1, 1, x.shape)
    return (t + 1j * rng.uniform(-1, 1, x.shape) if x.dtype.kind == "c" else t).astype(x.dtype)


def several(answer: Any) -> tuple[Any, ...]:
    return answer if isinstance(answer, tuple) else (answer,)


def moves(op: Any, operands: Any, params: Any) -> list[int]:
    """The operands that have tangents, if the answer has one."""
    answers = several(bind(op, operands, params))
    if not any(y.dtype.kind in "fc" for y in answers):
        return []
    return [i for i, x in enumerate(operands) if x.dtype.kind in "fc" and op.differentiable_in(i)]


CASES = [
    pytest.param(op, wide(op, operands, params), params, id=f"{op.name}-{i}")
    for op in TABLE.values()
    if op.differentiable
    for i, (operands, params) in enumerate(op.sample_cases())
]
CASES = [case for case in CASES if moves(*case.values)]
every_differentiable = pytest.mark.parametrize(("op", "operands", "params"), CASES)

# Ops whose derivative is meant to differ from that of their values.
DECLARED = {"with_derivatives", "symmetric", "complement", "added_by_svd"}
with_differences = pytest.mark.parametrize(
    ("op", "operands", "params"), [case for case in CASES if case.values[0].name not in DECLARED]
)


def dot(x: Any, y: Any) -> float:
    """The inner product over the real numbers."""
    return float(np.vdot(x, y).real)


def pushed(op: Any, tangents: Any, operands: Any, params: Any) -> tuple[Any, ...]:
    answer = bind(op, operands, params)
    answers, result = several(answer), several(op.push(tangents, answer, operands, params))
    assert len(result) == len(answers)
    for t, y in zip(result, answers):
        assert t is None or aval_of(t) == aval_of(y)
    return tuple([np.zeros(y.shape, y.dtype) if t is None else np.asarray(t) for t, y in zip(result, answers)])


def test_every_differentiable_op_is_tested() -> None:
    tested = {case.values[0] for case in CASES}
    without = {op.name for op in TABLE.values() if op.differentiable} - {op.name for op in tested}
    assert without <= {"custom_call"}, without


def check_adjoint(op: Any, operands: Any, params: Any) -> None:
    """<ct, J t> == <J^T ct, t>, for each operand by itself and for all at once."""
    answer = bind(op, operands, params)
    answers, places = several(answer), moves(op, operands, params)
    cts = tuple([like(y) if y.dtype.kind in "fc" else None for y in answers])
    ct = cts if isinstance(answer, tuple) else cts[0]
    pulled = dict(zip(places, op.pull_all(places, ct, answer, operands, params)))
    eps = max(float(np.finfo(x.dtype).eps) for x in (*operands, *answers) if x.dtype.kind in "fc")
    for chosen in [places, *([i] for i in places if len(places) > 1)]:
        tangents = tuple([like(x) if i in chosen else None for i, x in enumerate(operands)])
        result = pushed(op, tangents, operands, params)
        forward = sum(dot(c, t) for c, t in zip(cts, result) if c is not None)
        backward = sum(dot(pulled[i], tangents[i]) for i in chosen if pulled[i] is not None)
        assert np.isfinite(forward) == np.isfinite(backward)
        if np.isfinite(forward):
            size = 1 + abs(forward) + sum(float(np.abs(t).sum()) for t in result)
            assert forward == pytest.approx(backward, rel=0, abs=5000 * eps * size)


@every_differentiable
def test_tangents_and_cotangents_are_adjoint(op: Any, operands: Any, params: Any) -> None:
    check_adjoint(op, operands, params)


@every_differentiable
def test_they_are_adjoint_at_ties_zeros_and_edges(op: Any, operands: Any, params: Any) -> None:
    whole = tuple([np.round(x) if x.dtype.kind in "fc" else x for x in operands])
    with np.errstate(all="ignore"), contextlib.suppress(np.linalg.LinAlgError):
        check_adjoint(op, whole, params)


@with_differences
def test_tangents_agree_with_differences(op: Any, operands: Any, params: Any) -> None:
    places = moves(op, operands, params)
    tangents = tuple([like(x) if i in places else None for i, x in enumerate(operands)])
    result = pushed(op, tangents, operands, params)

    def at(step: float) -> Any:
        moved = [x if t is None else x + step * t for x, t in zip(operands, tangents)]
        return several(bind(op, tuple(moved), params))

    eps = max(float(np.finfo(x.dtype).eps) for x in (*operands, *result) if x.dtype.kind in "fc")
    h = eps**0.2 / 8
    one, two = ([(a - b) / (2 * s) for a, b in zip(at(s), at(-s))] for s in (h, 2 * h))
    for a, b, t, value in zip(one, two, result, at(0.0)):
        if t.dtype.kind in "fc":
            want = (4 * a - b) / 3  # of fourth order
            # A difference of values has their roundings.
            scale = 1 + max(np.abs(want).max(initial=0), np.abs(value).max(initial=0))
            np.testing.assert_allclose(t, want, rtol=0, atol=50 * eps / h * scale)


# -- on other carriers ---------------------------------------------------------------------------------------------
def graph_of_push(op: Any, operands: Any, params: Any, moving: Sequence[int]) -> Graph:
    """From operands and tangents to the tangents of all results."""

    def fn(*values: Any) -> list[Any]:
        inputs, args = values[: len(operands)], dict(zip(moving, values[len(operands) :]))
        answer = op(*inputs, **params)
        result = several(op.push(tuple(map(args.get, range(len(operands)))), answer, inputs, params))
        return [linear.zeros_like(y) if t is None else t for t, y in zip(result, several(answer))]

    return build(fn, [aval_of(x) for x in (*operands, *(operands[i] for i in moving))])


@pytest.mark.parametrize(("op", "operands", "params"), CASES)
def test_in_a_graph_they_are_what_they_are_for_arrays(op: Any, operands: Any, params: Any) -> None:
    places = moves(op, operands, params)
    tangents = tuple([like(x) if i in places else None for i, x in enumerate(operands)])
    want = pushed(op, tangents, operands, params)
    graph = verify(graph_of_push(op, operands, params, places))
    for a, b in zip(run(graph, [*operands, *(tangents[i] for i in places)]), want):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("part", range(8))
def test_compiled_they_are_what_they_are_in_a_graph(part: int) -> None:
    """For the first sample of each op; several of them are one program."""
    first = {case.values[0]: case.values for case in reversed(CASES)}
    parts, arrays = [], []
    for op, operands, params in list(first.values())[part::8]:
        places = moves(op, operands, params)
        parts.append(graph_of_push(op, operands, params, places))
        arrays.append([*operands, *(like(operands[i]) for i in places)])

    def fn(*values: Any) -> list[Any]:
        supply = iter(values)
        return [y for g, xs in zip(parts, arrays) for y in replay(g, [next(supply) for _ in xs])[0]]

    flat = [x for xs in arrays for x in xs]
    whole = build(fn, [aval_of(x) for x in flat])
    for a, b in zip(compile_program(whole, ("array",) * len(flat), False).run(flat), run(whole, flat)):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(
    ("op", "operands", "params"), [case for case in CASES if not isinstance(bind(*case.values), tuple)]
)
def test_on_tensors_they_are_on_the_tape(op: Any, operands: Any, params: Any) -> None:
    places = moves(op, operands, params)
    tangents = tuple([like(x) if i in places else None for i, x in enumerate(operands)])
    want = pushed(op, tangents, operands, params)
    inputs = tuple([tensor(x) for x in operands])
    moved = tuple([None if t is None else tensor(t, requires_grad=True) for t in tangents])
    result = several(op.push(moved, op(*inputs, **params), inputs, params))
    for t, b in zip(result, want):
        if t is not None:
            np.testing.assert_array_equal(t.detach().numpy(), b)
    assert any(t is not None and t.requires_grad for t in result)


# -- conventions -----------------------------------------------------------------------------------------------------
def test_equal_extrema_share_the_tangent() -> None:
    x, t = np.array([1.0, 3.0, 3.0]), np.array([10.0, 1.0, 3.0])
    (result,) = pushed(reductions.reduce_max, (t,), (x,), {"axes": (0,)})
    assert result == 2.0
    (result,) = pushed(elementwise.maximum, (t, 2 * t), (x, x), {})
    np.testing.assert_array_equal(result, 1.5 * t)
    (result,) = pushed(reductions.reduce_max, (t,), (np.array([1.0, np.nan, 3.0]),), {"axes": (0,)})
    assert result == 1.0  # that of the nan, which is the maximum


def test_where_passes_nothing_of_the_branch_not_taken() -> None:
    taken, t = np.array([True, False]), np.array([np.nan, np.inf])
    (result,) = pushed(elementwise.where, (None, t, np.ones(2)), (taken, np.ones(2), np.ones(2)), {})
    np.testing.assert_array_equal(result, [np.nan, 1.0])
    (result,) = pushed(elementwise.where, (None, None, t), (taken, np.ones(2), np.ones(2)), {})
    np.testing.assert_array_equal(result, [0.0, np.inf])


def test_a_rule_that_is_not_linear_in_the_cotangent_cannot_be_transposed() -> None:
    x = np.ones((2, 2))
    with pytest.raises(TypeError, match=r"vjp rule of matrix_exp is not linear.*def_jvp"):
        transposed(solve.matrix_exp, (x,), solve.matrix_exp(x), (x,), {})
    with pytest.raises(TypeError, match="equal is not linear"):
        elementwise.equal(SymbolicCotangent(aval_of(x), []), 0.0)


def test_terms_record_the_ops_of_a_rule_in_order() -> None:
    tape: list[Any] = []
    x = Term(Aval((2, 3), np.dtype("float64")), tape)
    y = elementwise.multiply(x, 2.0)
    assert elementwise.equal(y, 0.0).dtype == bool
    assert [(op.name, operands[0]) for _, op, operands, _ in tape] == [("multiply", x), ("equal", y)]
    assert y.aval == x.aval


@pytest.mark.parametrize("name", ["linear_scan", "solve", "cumprod", "where", "matmul", "gather", "pad"])
def test_rules_by_hand_are_the_transposed_ones(name: str) -> None:
    op = TABLE[name]
    operands, params = next(iter(op.sample_cases()))
    places = moves(op, operands, params)
    tangents = tuple([like(x) if i in places else None for i, x in enumerate(operands)])
    (want,) = pushed(op, tangents, operands, params)
    got = transposed(op, tangents, op(*operands, **params), operands, params)
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(graphs())
def test_of_random_graphs_too_they_are_adjoint(graph: Graph) -> None:
    inputs = [rng.uniform(-2, 2, a.shape).astype(a.dtype) for a in graph.avals]
    tangents = [like(x) for x in inputs]
    both, result = push_graph(graph, range(len(inputs)))
    results = run(verify(both), [*inputs, *tangents])
    moved = dict(zip(result, results[len(graph.outputs) :]))
    cts = [like(y) for y in results[: len(graph.outputs)]]
    pulled = run(vjp(graph), [*inputs, *cts])[len(graph.outputs) :]
    forward = sum(dot(ct, moved[k]) for k, ct in enumerate(cts) if k in moved)
    backward = sum(dot(ct, t) for ct, t in zip(pulled, tangents))
    every = [x.aval.dtype for x in (*graph.inputs, *graph.nodes) if x.aval.is_float]
    eps = max(float(np.finfo(dtype).eps) for dtype in every)
    size = 1 + sum(float(np.abs(t).sum()) for t in (*moved.values(), *pulled))
    assert forward == pytest.approx(backward, rel=0, abs=5000 * eps * size)
