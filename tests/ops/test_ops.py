"""Every op in the table is tested by what it declares. There is nothing here to edit when an op is added."""

from __future__ import annotations

import itertools
import math
from typing import Any

import mpmath
import numpy as np
import pytest
from graphs import SAMPLES, every_op, graph_of, like, rng, several, vjp_of

from tracegrad.avals import aval_of
from tracegrad.ir import build, parse, run, to_text, verify
from tracegrad.ops import TABLE
from tracegrad.ops.core.forms import Compose, Form, Move
from tracegrad.ops.elementwise import table as elementwise
from tracegrad.ops.elementwise.table import add, greater, sqrt, where
from tracegrad.ops.reduce import reductions
from tracegrad.ops.shape.stack_split import split, unbind
from tracegrad.torch.autograd import backward
from tracegrad.torch.tape.tensors.factories import tensor
from tracegrad.transforms.vjp_graph import vjp


def every(form: type[Form]) -> Any:
    """The samples of every op of this form."""
    cases = [case for case in SAMPLES if type(case.values[0].form) is form]
    return pytest.mark.parametrize(("op", "operands", "params"), cases)


def meaning(op: Any, operands: Any, params: Any) -> tuple[Any, ...]:
    with np.errstate(all="ignore"):
        return tuple(map(np.asarray, several(op.impl(*operands, **params))))


def test_every_op_has_samples_and_a_description() -> None:
    for op in TABLE.values():
        assert next(iter(op.sample_cases()), None) is not None, f"{op.name} has no samples"
        assert op.__doc__, f"{op.name} has no description"


@every_op
def test_shape_rule_agrees_with_numpy(op: Any, operands: Any, params: Any) -> None:
    assert several(op.aval(*map(aval_of, operands), **params)) == tuple(map(aval_of, meaning(op, operands, params)))


@every_op
def test_graph_computes_what_the_op_does(op: Any, operands: Any, params: Any) -> None:
    graph = verify(graph_of(op, operands, params))
    for got, want in zip(run(graph, operands), meaning(op, operands, params), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("op", "operands", "params"), [case for case in SAMPLES if case.values[0].impl_out is not None]
)
def test_what_is_written_into_an_array_is_the_answer(op: Any, operands: Any, params: Any) -> None:
    (want,) = meaning(op, operands, params)
    out = np.empty_like(want)
    op.impl_out(out, *operands, **params)
    np.testing.assert_array_equal(np.sort(out, params["axis"]), np.sort(want, params["axis"]))


@every_op
def test_text_round_trip(op: Any, operands: Any, params: Any) -> None:
    graph = graph_of(op, operands, params)
    for g in (graph, vjp_of(graph)):
        if g is not None:
            assert to_text(verify(parse(to_text(g)))) == to_text(g)


@every(Compose)
def test_decomposition_agrees_with_the_op(op: Any, operands: Any, params: Any) -> None:
    result = several(op.form.decomposition(*operands, **params))
    for got, want in zip(result, meaning(op, operands, params), strict=True):
        tolerance = 100 * np.finfo(want.dtype).eps if want.dtype.kind == "f" else 0
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


# -- derivatives -------------------------------------------------------------------------------------------
def check_vjp(graph: Any, operands: list[Any]) -> None:
    """The cotangents of `graph` against central differences of its outputs, along a random direction."""
    pulled = vjp_of(graph)
    if pulled is None:
        return
    floats = [i for i, a in enumerate(graph.avals) if a.is_float]
    outputs = [i for i, x in enumerate(graph.outputs) if x.aval.is_float]
    every = [a.dtype for n in (*graph.inputs, *graph.nodes) for a in several(n.aval) if a.is_float]
    eps = max(float(np.finfo(d).eps) for d in every)
    weights = [like(graph.outputs[i].aval) for i in outputs]
    direction = {i: like(graph.avals[i]) for i in floats}
    step = eps ** (1 / 3)

    def shifted(by: float) -> float:
        moved = [x + by * direction[i].astype(x.dtype) if i in direction else x for i, x in enumerate(operands)]
        results = run(graph, moved)
        return sum(float(np.vdot(w, results[i])) for w, i in zip(weights, outputs))

    want = (shifted(step) - shifted(-step)) / (2 * step)
    cts = run(verify(pulled), [*operands, *weights])[len(graph.outputs) :]
    got = sum(float(np.vdot(ct, direction[i])) for ct, i in zip(cts, floats))
    scale = 1 + sum(float(np.abs(np.asarray(ct)).sum()) for ct in cts)
    assert got == pytest.approx(want, rel=0, abs=200 * eps ** (2 / 3) * scale)


def double(x: Any) -> Any:
    return x.astype(np.float64) if x.dtype == np.float32 else x


# Ops whose derivative is meant to differ from that of their values; ops that run regions have none, nor those that a
# pass makes, when all derivatives have been taken.
DECLARED = {
    "stop_gradient",
    "symmetric",
    "complement",
    "added_by_svd",
    "null_basis",
    "cond",
    "scan",
    "while_loop",
    "lu",
    "lu_solve",
    "round_to_half",
    "with_derivatives",
}


@every_op
@pytest.mark.parametrize("order", [1, 2])
def test_vjp_agrees_with_finite_differences(op: Any, operands: Any, params: Any, order: int) -> None:
    if op.name in DECLARED:
        pytest.skip("has another derivative by definition")
    operands = [double(x) for x in operands]
    graph = graph_of(op, operands, params)
    for _ in range(order - 1):
        pulled = vjp_of(graph)
        if pulled is None:
            pytest.skip("has no float operand or result")
        operands = [*operands, *(like(a) for a in pulled.avals[len(operands) :])]
        graph = pulled
    check_vjp(graph, operands)


@every_op
def test_cotangents_have_the_avals_of_float_operands_and_integers_get_none(op: Any, operands: Any, params: Any) -> None:
    from tracegrad.transforms.vjp_graph import vjp

    graph = graph_of(op, operands, params)
    cts = vjp(graph).outputs[len(graph.outputs) :]
    assert [ct.aval for ct in cts] == [aval_of(x) for x in operands]
    for ct, x in zip(cts, operands):
        if x.dtype.kind not in "fc":
            assert ct.name == "full"
            assert dict(ct.params)["value"] == 0


@every_op
def test_eager_and_graph_gradients_agree(op: Any, operands: Any, params: Any) -> None:
    graph = graph_of(op, operands, params)
    pulled = vjp_of(graph)
    if pulled is None or not op.differentiable:
        pytest.skip("has no derivative")
    tensors = [tensor(x, requires_grad=True) if x.dtype.kind == "f" else tensor(x) for x in operands]
    answers = several(op(*tensors, **params))
    weights = {i: like(x.aval) for i, x in enumerate(graph.outputs) if x.aval.is_float}
    want = run(pulled, [*operands, *weights.values()])[len(answers) :]
    backward([answers[i] for i in weights], [tensor(w) for w in weights.values()])
    got = [t.grad for t, x in zip(tensors, operands) if x.dtype.kind == "f"]
    eps = max(float(np.finfo(w.dtype).eps) for w in weights.values())
    for g, w in zip(got, want):
        assert g is not None
        assert g.dtype == w.dtype
        np.testing.assert_allclose(g.detach().numpy(), w, rtol=50 * eps, atol=50 * eps)


# -- index maps --------------------------------------------------------------------------------------------
class PlainSize:
    """Index expressions as plain integers."""

    def __call__(self, n: int) -> int:
        return n

    def divide(self, x: int, by: int) -> int:
        return x // by

    def is_one(self, n: int) -> bool:
        return n == 1


def read_element(op: Any, operands: Any, params: Any, index: tuple[int, ...], result: tuple[int, ...]) -> Any:
    for read in op.form.reads(index, PlainSize(), [x.shape for x in operands], result, **params):
        if all(r.low <= r.value < r.high and (r.value - r.low) % r.step == 0 for r in read.ranges):
            assert all(0 <= i < n for i, n in zip(read.indices, operands[read.operand].shape))
            return operands[read.operand][read.indices]
    return params.get("value", 0)


@every(Move)
def test_index_map_reads_what_the_op_does(op: Any, operands: Any, params: Any) -> None:
    (want,) = meaning(op, operands, params)
    got = np.empty_like(want)
    for index in np.ndindex(want.shape):
        got[index] = read_element(op, operands, params, index, want.shape)
    np.testing.assert_array_equal(got, want)


# -- special functions at hard points, against 50 digits -----------------------------------------------------
HARD = [-745.0, -100.0, -40.0, -20.0, -1.0, -1e-8, -1e-300, 0.0, 1e-300, 1e-8, 0.5, 1.0, 6.0, 20.0, 40.0, 100.0, 700.0]

SLOPES = {
    "sigmoid": lambda x: mpmath.exp(-x) / (1 + mpmath.exp(-x)) ** 2,
    "erf": lambda x: 2 / mpmath.sqrt(mpmath.pi) * mpmath.exp(-x * x),
    "tanh": lambda x: mpmath.sech(x) ** 2,
    "expm1": mpmath.exp,
    "log1p": lambda x: 1 / (1 + x),
    "arcsinh": lambda x: 1 / mpmath.sqrt(1 + x * x),
    "arctan": lambda x: 1 / (1 + x * x),
}


@pytest.mark.parametrize("name", SLOPES)
def test_derivatives_at_hard_points_agree_with_mpmath(name: str) -> None:
    x = np.array([v for v in HARD if name != "log1p" or v > -1])
    op = TABLE[name]
    _, got = run(vjp_of(graph_of(op, [x], {})), [x, np.ones_like(x)])
    with mpmath.workdps(50):
        want = np.array([float(SLOPES[name](mpmath.mpf(v))) for v in x])
    # 1 - ans**2 and the like lose relative precision where the slope vanishes, never absolute precision.
    np.testing.assert_allclose(got, want, rtol=2e-13, atol=4e-16)


@pytest.mark.parametrize("shift", [0.0, 1e4, -1e4, 700.0, -745.0])
def test_logsumexp_and_its_derivative_neither_overflow_nor_vanish(shift: float) -> None:
    x = np.array([[0.0, 1.0, -2.0, 3.0]]) + shift
    value, derivative = run(vjp_of(graph_of(reductions.logsumexp, [x], {"axes": (1,)})), [x, np.ones(1)])
    with mpmath.workdps(50):
        total = mpmath.fsum(mpmath.exp(mpmath.mpf(v)) for v in x[0])
        want = float(mpmath.log(total))
        weights = [float(mpmath.exp(mpmath.mpf(v)) / total) for v in x[0]]
    np.testing.assert_allclose(value, [want], rtol=1e-15)
    np.testing.assert_allclose(derivative, [weights], rtol=1e-14)


@pytest.mark.parametrize("op", [elementwise.maximum, elementwise.minimum])
def test_equal_extrema_share_the_cotangent(op: Any) -> None:
    x = np.array([1.0, 2.0, 3.0])
    y = np.array([1.0, 0.0, 4.0])
    _, dx, dy = run(vjp_of(graph_of(op, [x, y], {})), [x, y, np.ones(3)])
    np.testing.assert_array_equal(dx + dy, np.ones(3))
    assert dx[0] == dy[0] == 0.5


def test_where_never_leaks_nan_from_the_branch_not_taken() -> None:
    from tracegrad.ir import build

    x = np.array([-1.0, 0.0, 4.0])
    graph = build(
        lambda v: [
            elementwise.where(
                elementwise.greater(v, 0), elementwise.sqrt(elementwise.where(elementwise.greater(v, 0), v, 1.0)), 0.0
            )
        ],
        [aval_of(x)],
    )
    _, ct = run(vjp_of(graph), [x, np.ones(3)])
    np.testing.assert_array_equal(ct, [0, 0, 0.25])


@pytest.mark.parametrize("y", [0.0, 1.0, 2.0, 3.0])
def test_integer_powers_have_finite_derivatives_at_zero(y: float) -> None:
    x = np.array([0.0, -0.0, 2.0])
    _, dx, dy = run(vjp_of(graph_of(elementwise.power, [x, x], {})), [x, np.full(3, y), np.ones(3)])
    np.testing.assert_array_equal(
        dx, [y * 0.0 ** (y - 1) if y else 0.0, y * 0.0 ** (y - 1) if y else 0.0, y * 2 ** (y - 1)]
    )
    assert np.isfinite(dy).all()
    assert math.isclose(dy[2], 2**y * math.log(2))


def test_derivative_of_reduce_prod_is_right_with_zeros() -> None:
    x = np.array([0.0, 2.0, 3.0, 0.0])
    for zeros, want in ((1, [6.0 * 5.0, 0, 0, 0]), (2, [0, 0, 0, 0])):
        v = x.copy()
        if zeros == 1:
            v[3] = 5.0
        _, ct = run(vjp_of(graph_of(reductions.reduce_prod, [v], {"axes": (0,)})), [v, np.array(1.0)])
        np.testing.assert_array_equal(ct, want)


def test_broadcasting_of_every_pair_of_ranks() -> None:
    shapes = [(), (1,), (3,), (2, 1), (1, 3), (2, 3), (4, 1, 3), (4, 2, 1), (1, 1, 1)]
    for a, b in itertools.product(shapes, repeat=2):
        x, y = rng.uniform(-1, 1, a), rng.uniform(-1, 1, b)
        graph = graph_of(elementwise.multiply, [x, y], {})
        np.testing.assert_array_equal(run(verify(graph), [x, y])[0], x * y)
        weight = rng.uniform(-1, 1, np.broadcast_shapes(a, b))
        _, dx, dy = run(vjp_of(graph), [x, y, weight])
        assert dx.shape == a
        assert dy.shape == b
        assert float(np.vdot(dx, x)) == pytest.approx(float(np.vdot(weight, x * y)))


# -- several results ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("take", [lambda v: unbind(v, axis=0), lambda v: split(v, axis=0, bounds=(0, 1, 2, 3))])
def test_masks_go_through_ops_that_take_arrays_apart(take: Any) -> None:
    x = np.array([0.0, 4.0, 9.0])

    def fn(v: Any) -> list[Any]:
        first, second, _ = take(sqrt(v))
        return [add(where(greater(first, 0.0), first, 1.0), second)]

    graph = build(fn, [aval_of(x)])
    weight = like(graph.outputs[0].aval)
    _, ct = run(vjp_of(graph), [x, weight])
    np.testing.assert_array_equal(ct, [0.0, np.ravel(weight)[0] / 4, 0.0])  # the slope at 0 is inf, and not taken


SEVERAL = [
    pytest.param(*case.values, i, id=f"{case.id}-{i}")
    for case in SAMPLES
    for graph in [graph_of(*case.values)]
    for i, x in enumerate(graph.outputs)
    if len(graph.outputs) > 1 and x.aval.is_float and case.values[0].differentiable
]


@pytest.mark.parametrize(("op", "operands", "params", "i"), SEVERAL)
def test_the_derivative_of_one_result_is_that_of_all_with_zeros(op: Any, operands: Any, params: Any, i: int) -> None:
    graph = graph_of(op, operands, params)
    wrt = [k for k, a in enumerate(graph.avals) if a.is_float]
    seeded = [k for k, x in enumerate(graph.outputs) if x.aval.is_float]
    weights = {k: np.zeros(graph.outputs[k].aval.shape, graph.outputs[k].aval.dtype) for k in seeded}
    weights[i] = like(graph.outputs[i].aval)
    alone = run(verify(vjp(graph, wrt, [i])), [*operands, weights[i]])[len(graph.outputs) :]
    whole = run(vjp(graph, wrt, seeded), [*operands, *weights.values()])[len(graph.outputs) :]
    for got, want in zip(alone, whole, strict=True):
        eps = 1000 * float(np.finfo(want.dtype).eps)
        np.testing.assert_allclose(got, want, rtol=eps, atol=eps * (1 + np.abs(want).max(initial=0)))


@pytest.mark.parametrize(
    ("name", "seeded", "unwanted"), [("eigh", 0, "divide"), ("svd", 1, "divide"), ("slogdet", 0, "inv")]
)
def test_a_rule_does_the_work_for_the_cotangents_that_there_are(name: str, seeded: int, unwanted: str) -> None:
    operands, params = next(iter(TABLE[name].sample_cases()))
    graph = graph_of(TABLE[name], operands, params)
    assert unwanted in [node.name for node in vjp(graph).nodes]
    assert unwanted not in [node.name for node in vjp(graph, [0], [seeded]).nodes]
