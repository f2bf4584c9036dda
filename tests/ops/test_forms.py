"""Forms of ops: what an op declares is what NumPy does, and an op that nobody lists is treated by what it declares."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from exact import compiled
from graphs import SAMPLES, graph_of, several, vjp_of

import tracegrad as tg
from tracegrad.avals import Aval, aval_of
from tracegrad.codegen.lower.form_rules import HANDLERS, handler
from tracegrad.codegen.lower.index_map_analysis import moved
from tracegrad.codegen.lower.symbolic_shapes import Dims
from tracegrad.ir import Graph, build, parse, run
from tracegrad.ops import TABLE
from tracegrad.ops.core.forms import Along, Form, Map, Move
from tracegrad.ops.core.index_maps import OperandRead
from tracegrad.ops.core.op import Op, bind, primitive
from tracegrad.ops.core.samples import uniform
from tracegrad.ops.elementwise.table import add, sqrt, where
from tracegrad.ops.shape import linear, stack_split
from tracegrad.passes import optimize


def forms_below(form: type[Form]) -> set[type[Form]]:
    return {form}.union(*map(forms_below, form.__subclasses__()))


def test_each_form_has_a_handler() -> None:
    assert set(HANDLERS) == forms_below(Form) - {Form}


# -- what is declared is so ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("op", TABLE.values(), ids=lambda op: op.name)
def test_an_op_that_shares_memory_with_its_operand_says_so(op: Op) -> None:
    for operands, params in op.sample_cases():
        answers = several(op.impl(*operands, **params))
        shared = [any(np.shares_memory(y, x) for y in answers) for x in operands]
        if op.name not in ("custom_call", "cond"):  # whose results may be operands
            assert not any(shared[1:])
            assert op.aliases or not any(shared)


def _aval(x: Any) -> Any:
    return Aval(x.shape, x.dtype) if isinstance(x, np.ndarray) else x


def test_an_op_that_can_be_written_through_is_a_view() -> None:
    assert [op.name for op in TABLE.values() if op.view_update is not None and not op.aliases] == []


ALIASING = [case for case in SAMPLES if case.values[0].view_update is not None]


@pytest.mark.parametrize(("op", "operands", "params"), ALIASING)
def test_put_is_what_numpy_writes(op: Op, operands: Any, params: Any) -> None:
    answer = op.impl(operands[0], **params)
    for k, y in enumerate(several(answer)):
        base, new = operands[0].copy(), np.arange(1.0, 1.0 + y.size, dtype=y.dtype).reshape(y.shape)
        number = {"number": k} if isinstance(answer, tuple) else {}
        got = op.view_update(base, new, **params, **number)  # type: ignore[misc]
        several(op.impl(base, **params))[k][...] = new
        np.testing.assert_array_equal(got, base)


MOVES = [case for case in SAMPLES if isinstance(case.values[0].form, Move)]


@pytest.mark.parametrize(("op", "operands", "params"), MOVES)
def test_a_move_that_leaves_elements_out_says_so(op: Op, operands: Any, params: Any) -> None:
    numbers = np.arange(1, 1 + sum(x.size for x in operands))
    split = np.split(numbers, np.cumsum([x.size for x in operands])[:-1])
    result = op.impl(*(n.reshape(x.shape) for n, x in zip(split, operands)), **params)
    assert op.form.partial or set(numbers) <= set(result.ravel().tolist())  # type: ignore[attr-defined]


def test_what_a_move_does_to_axes() -> None:
    text = """
graph(%0: f64[4,5], %1: f64[3,5]) {
  %2 = transpose(%0) {perm=(1, 0)} : f64[5,4]
  %3 = flip(%0) {axes=(1,)} : f64[4,5]
  %4 = broadcast_to(%0) {shape=(2, 4, 5)} : f64[2,4,5]
  %5 = slice(%0) {start=(1, 0), stop=(4, 5), step=(1, 1)} : f64[3,5]
  %6 = pad(%0) {high=(0, 1), interior=(1, 0), low=(0, 0), value=0} : f64[7,6]
  %7 = concatenate(%0, %1) {axis=0} : f64[7,5]
  return %2, %3, %4, %5, %6, %7
}"""
    assert [tuple(moved(node)) for node in parse(text).nodes] == [
        ((((0, 1),), ((0, 0),)), False, 0),
        ((((0, 0),), ((0, 1),)), False, 0),
        (((), ((0, 0),), ((0, 1),)), True, 0),
        (((), ((0, 1),)), False, 0),
        (((), ()), False, 1),
        (((), ((0, 1), (1, 1))), False, 2),
    ]


@pytest.mark.parametrize(("op", "operands", "params"), [c for c in MOVES if isinstance(c.values[0].form, Along)])
def test_what_a_move_along_axes_says_is_what_its_index_map_does(op: Op, operands: Any, params: Any) -> None:
    graph = build(lambda x: [op(x, **params)], [_aval(operands[0])])
    (x,), (node,) = graph.inputs, graph.nodes
    result, dims = moved(node), Dims(graph)
    for n, own, runs in zip(node.aval.shape, handler(node).axes(dims, node, [range(len(x.aval.shape))]), result.axes):  # type: ignore[list-item, arg-type]
        assert n == 1 or ([(0, own)] if own < len(x.aval.shape) else []) == [*runs]
    assert (handler(node).repeats(node), handler(node).cost(node)) == (result.repeats, 2 * result.guards)


# -- masks -----------------------------------------------------------------------------------------------------------
def masked(op: Op, params: Any, avals: list[Aval], floats: list[int]) -> Graph:
    """The vjp of `where(mask, op(x + sqrt(u), ...), 0)`, for each floating result, with respect to the `x` and `u` of
    the floating operands of `op`."""
    answers = several(op.aval(*avals, **params))
    smooth = [k for k, a in enumerate(answers) if a.is_float]

    def fn(*args: Any) -> list[Any]:
        masks, operands, roots = args[: len(smooth)], args[len(smooth) : -len(floats)], iter(args[-len(floats) :])
        inside = [add(x, sqrt(next(roots))) if i in floats else x for i, x in enumerate(operands)]
        result = several(op(*inside, **params))
        return [where(mask, result[k], 0.0) for mask, k in zip(masks, smooth)]

    masks = [Aval(answers[k].shape, np.dtype(bool)) for k in smooth]
    result = vjp_of(build(fn, [*masks, *avals, *(avals[i] for i in floats)]))
    assert result is not None
    return result


KEEPING = [
    case
    for case in SAMPLES
    for op in [case.values[0]]
    if (op.form.moves or isinstance(op.form, Map))
    and op.differentiable
    and all(x.dtype.kind in "fiu" for x in case.values[1])
    and case.values[1][0].dtype.kind == "f"
    and any(a.is_float for a in several(op.aval(*map(aval_of, case.values[1]), **case.values[2])))
]


@pytest.mark.parametrize(("op", "operands", "params"), KEEPING)
def test_masks_of_where_are_kept(op: Op, operands: Any, params: Any) -> None:
    """Where nothing that was taken depends on u, the derivative is 0, whatever the slope of sqrt is there."""
    avals = [_aval(x) for x in operands]
    floats = [i for i, x in enumerate(operands) if x.dtype.kind == "f" and op.differentiable_in(i)]
    with np.errstate(all="ignore"):
        ans = bind(op, tuple(operands), params)
    rng, answers = np.random.default_rng(0), [y for y in several(ans) if y.dtype.kind == "f"]
    masks = [rng.random(y.shape) < 0.3 for y in answers]
    ones = [np.ones(y.shape, y.dtype) for y in answers]
    supply = iter(zip(masks, ones))
    cts = tuple([np.multiply(*next(supply)) if y.dtype.kind == "f" else None for y in several(ans)])
    ct = cts if isinstance(ans, tuple) else cts[0]
    roots = []
    for i in floats:
        reached = masks[0] if isinstance(op.form, Map) else op.pull(i, ct, ans, operands, params) != 0
        roots.append(np.where(reached, 1e-30, 0.0).astype(operands[i].dtype))
    graph, args = masked(op, params, avals, floats), [*masks, *operands, *roots, *ones]
    with np.errstate(all="ignore"):
        for result in (run(graph, args), run(optimize(graph), args)):
            for i, u, ct in zip(floats, roots, result[-len(floats) :]):
                assert not np.any(ct[u == 0]), f"operand {i}"


# -- an op that nobody lists -----------------------------------------------------------------------------------------
@pytest.fixture
def thinning() -> Iterator[Op]:
    """An op that is listed nowhere."""

    @primitive(Move(partial=True), aliases=True)
    def thinned(x: Any, *, by: int) -> Any:
        """Every `by`-th element, from the last one on."""
        return x[::-by]

    @thinned.def_aval
    def _(x: Aval, *, by: int) -> Aval:
        return Aval((-(-x.shape[0] // by),), x.dtype)

    @thinned.def_vjp("x")
    def _(ct: Any, ans: Any, x: Any, *, by: int) -> Any:
        return _spread(ct, x.shape[0], by)

    def _spread(new: Any, n: int, by: int) -> Any:
        m = new.shape[0]
        low = n - 1 - (m - 1) * by
        return linear.pad(linear.flip(new, axes=(0,)), low=(low,), high=(0,), interior=(by - 1,), value=0)

    @thinned.def_view_update
    def _(base: Any, new: Any, *, by: int) -> Any:
        inside = _spread(linear.full(shape=new.shape, value=True, dtype="bool"), base.shape[0], by)
        return where(inside, _spread(new, base.shape[0], by), base)

    @thinned.def_reads
    def _(index: Any, size: Any, shapes: Any, result: Any, *, by: int) -> Any:
        return [OperandRead(0, (shapes[0][0] - size(1) - index[0] * size(by),))]

    @thinned.def_samples
    def _() -> Any:
        yield (uniform((20,)),), {"by": 3}

    yield thinned
    del TABLE["thinned"]


def test_a_new_move_is_compiled(thinning: Op) -> None:
    x = np.arange(20.0)
    graph = graph_of(thinning, [x], {"by": 3})
    np.testing.assert_array_equal(compiled(optimize(graph)).run([x])[0], x[::-3])


def test_a_new_move_keeps_masks(thinning: Op) -> None:
    x = np.array([0.0, 4.0, 0.0, 0.0, 1.0])
    graph = masked(thinning, {"by": 3}, [_aval(x)], [0])
    with np.errstate(all="ignore"):
        result = run(graph, [np.array([True, True]), np.zeros(5), x, np.ones(2)])[-1]
    np.testing.assert_array_equal(result, [0.0, 0.25, 0.0, 0.0, 0.5])


def test_a_new_move_is_a_view_on_the_tape(thinning: Op) -> None:
    x = tg.tensor(np.arange(6.0), requires_grad=True)
    y = x * 2.0
    view = thinning(y, by=2)
    y.mul_(10.0)
    np.testing.assert_array_equal(view.detach().numpy(), [100.0, 60.0, 20.0])
    view.add_(1.0)
    assert y.grad_fn.name() == "CopySlices"
    (view * view).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [0.0, 20 * 42.0, 0.0, 20 * 122.0, 0.0, 20 * 202.0])


def test_a_new_move_is_a_view_in_a_trace(thinning: Op) -> None:
    def fn(x: Any) -> Any:
        y = x * 2.0
        view = thinning(y, by=2)
        y[:] = y * 10.0
        view += 1.0
        return view * 1.0, y

    view, base = tg.trace(fn)(np.arange(6.0))
    np.testing.assert_array_equal(view, [101.0, 61.0, 21.0])
    np.testing.assert_array_equal(base, [0.0, 21.0, 40.0, 61.0, 80.0, 101.0])


# -- flip, which NumPy computes as a view ----------------------------------------------------------------------------
def test_a_flip_is_a_view_on_the_tape() -> None:
    x = tg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = x * 1.0
    view = linear.flip(y, axes=(0,))
    y.mul_(2.0)
    (view * np.array([1.0, 10.0, 100.0])).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [200.0, 20.0, 2.0])
    saved = tg.exp(linear.flip(y, axes=(0,)))
    product = saved * view
    view.mul_(3.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


def test_a_flip_is_a_view_in_a_trace() -> None:
    def fn(x: Any) -> Any:
        y = x * 1.0
        view = linear.flip(y, axes=(0,))
        y[0] = 5.0
        view[0] = 7.0
        return view * 1.0, y

    view, base = tg.trace(fn)(np.array([1.0, 2.0, 3.0]))
    np.testing.assert_array_equal(view, [7.0, 2.0, 5.0])
    np.testing.assert_array_equal(base, [5.0, 2.0, 7.0])


# -- parts of an array, which are views too --------------------------------------------------------------------------
def test_parts_are_views_in_a_trace() -> None:
    def fn(x: Any) -> Any:
        y = x * 1.0
        first, second = stack_split.unbind(y, axis=0)
        left, right = stack_split.split(y, axis=1, bounds=(0, 1, 3))
        y[0, 0] = 5.0
        second[1] = 7.0
        right[0] = 9.0
        return first * 1.0, second * 1.0, left * 1.0, right * 1.0, y

    def plain(x: Any) -> Any:
        y = x * 1.0
        y[0, 0], y[1, 1], y[0, 1:] = 5.0, 7.0, 9.0
        return y[0], y[1], y[:, :1], y[:, 1:], y

    x = np.arange(6.0).reshape(2, 3)
    for got, want in zip(tg.trace(fn)(x), plain(x)):
        np.testing.assert_array_equal(got, want)


def test_parts_are_views_on_the_tape() -> None:
    x = tg.tensor(np.arange(4.0), requires_grad=True)
    y = x * 1.0
    parts = stack_split.split(y, axis=0, bounds=(0, 1, 4))
    assert [p._base is y for p in parts] == [True, True]
    with pytest.raises(RuntimeError, match="is the output of a function that returns multiple views"):
        parts[1].mul_(2.0)
    z = tg.tensor(np.arange(4.0))
    first, second = stack_split.unbind(z.reshape(2, 2), axis=0)
    z.mul_(10.0)
    assert [first.tolist(), second.tolist()] == [[0.0, 10.0], [20.0, 30.0]]
    second.add_(1.0)
    assert z.tolist() == [0.0, 10.0, 21.0, 31.0]


def test_results_that_are_operands_have_memory_of_their_own_on_the_tape() -> None:
    x = tg.tensor([1.0, 2.0])
    same = build(lambda v: [v, linear.reshape(v, shape=(2, 1))], [Aval((2,), x.dtype)])
    for y in TABLE["cond"](np.array(0), x, branches=(same,)):
        y.mul_(3.0)
    assert x.tolist() == [1.0, 2.0]
