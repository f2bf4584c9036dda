"""The tape: its nodes, what they save, what they give when called by hand, and when they die."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.autograd import graph
from tracegrad.avals import Aval
from tracegrad.ops import TABLE
from tracegrad.ops.core.op import Op, ResultAvals
from tracegrad.ops.elementwise.table import add, cos, multiply, sin
from tracegrad.ops.shape.linear import broadcast_to
from tracegrad.torch.functions.core.operands import as_node


def _leaf(*values: float) -> Any:
    return tg.tensor(values, requires_grad=True)


@pytest.fixture
def _no_gc() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


# -- the graph -------------------------------------------------------------------------------------------------------
def test_nodes_lead_to_the_nodes_of_their_operands_and_to_leaves() -> None:
    x, w = _leaf(1.0, 2.0), _leaf(3.0, 4.0)
    y = (x * w).exp() + x
    assert y.grad_fn.name() == "AddBackward0"
    (exp, _), (leaf, _) = y.grad_fn.next_functions
    assert exp.name() == "ExpBackward0"
    assert leaf.variable is x
    assert [n.variable is t for (n, _), t in zip(exp.next_functions[0][0].next_functions, (x, w))] == [True, True]
    assert isinstance(exp, graph.Node)
    assert isinstance(leaf, graph.Node)


def test_operands_without_a_gradient_have_an_empty_edge_and_indices_and_conditions_have_none() -> None:
    x, c = _leaf(1.0, 2.0), tg.tensor([1.0, 2.0])
    assert (x * c).grad_fn.next_functions[1] == (None, 0)
    assert (x + 1.0).grad_fn.next_functions[1] == (None, 0)
    assert len((x**2.0).grad_fn.next_functions) == 1
    assert len(tg.where(c > 1, x, c).grad_fn.next_functions) == 2
    assert len(x[tg.tensor([0, 1])].grad_fn.next_functions) == 1


def test_outputs_of_one_node_have_their_numbers() -> None:
    x = tg.arange(6.0, requires_grad=True).view(2, 3) * 1.0
    for parts in (x.unbind(1), x.split(2, 1), x.topk(2), x.sort(0)):
        floating = [part for part in parts if part.requires_grad]
        assert len({id(part.grad_fn) for part in floating}) == 1
        assert [part.output_nr for part in floating] == list(range(len(floating)))
        assert (floating[-1] * 1.0).grad_fn.next_functions[0] == (floating[-1].grad_fn, len(floating) - 1)


def test_the_accumulating_node_of_a_leaf_is_one_while_it_lives() -> None:
    x = _leaf(1.0)
    y, z = x * 2.0, x * 3.0
    assert y.grad_fn.next_functions[0][0] is z.grad_fn.next_functions[0][0]


# -- what is saved ---------------------------------------------------------------------------------------------------
def test_saved_values_are_tensors_on_the_tape_and_leaves_are_themselves() -> None:
    x = _leaf(1.0, 2.0)
    y = x * x
    assert y.grad_fn._saved_self is x
    z = y.exp()
    assert z.grad_fn._saved_result.grad_fn is z.grad_fn
    assert (y.sin().grad_fn._saved_self).grad_fn is y.grad_fn
    assert (x @ x).grad_fn._saved_self is x


def test_what_was_not_saved_is_none_and_what_is_unknown_raises() -> None:
    x = _leaf(1.0, 2.0)
    node = (x * 3.0).grad_fn
    assert node._saved_self is None
    with pytest.raises(AttributeError, match="'MulBackward0' object has no attribute '_saved_nothing'"):
        _ = node._saved_nothing


def test_saved_values_go_with_the_backward_pass() -> None:
    x = _leaf(1.0, 2.0)
    for y in (x * x, x.std(), x.softmax(0)):
        y.sum().backward()
        with pytest.raises(RuntimeError, match="directly access saved tensors after they have already been freed"):
            _ = y.grad_fn._saved_self if y.grad_fn.name() != "SoftmaxBackward0" else y.grad_fn._saved_result


def test_a_linear_operation_saves_nothing_and_can_run_again() -> None:
    x = _leaf(1.0, 2.0)
    y = ((x + 1.0) - x).reshape(1, 2).sum(0).mean() + x.unbind()[0] + x.split(1)[1].squeeze() + x.cumsum(0)[1]
    for _ in range(3):
        y.backward()
    assert x.grad.tolist() == [6.0, 6.0]


# -- by hand ---------------------------------------------------------------------------------------------------------
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "chain": lambda x: (x.sin() * x).exp().sum(),
    "reductions": lambda x: x.std(0).sum() * x.norm() + x.logsumexp(1).prod(),
    "views": lambda x: (x.t()[1:, :2] * x[:2, None, 0]).reshape(-1)[2:].sum(),
    "parts": lambda x: x.unbind(0)[1].dot(x.split(1, 1)[0].flatten()[:3].tanh()),
    "updates": lambda x: (x * 1.0)[1].mul_(x[0]).exp_().sum() + x.sum(),
    "order": lambda x: x.sort(1).values[0].sum() * x.max(0).values.prod(),
}


def _by_hand(y: Any) -> dict[Any, Any]:
    """The cotangents of the nodes behind `y`, by calling them in the order of their numbers."""
    arrived: dict[Any, dict[int, Any]] = {y.grad_fn: {y.output_nr: tg.ones(())}}
    table = {}
    while arrived:
        node = max(arrived, key=lambda n: n._sequence_nr() if n.next_functions else 0)
        slots = arrived.pop(node)
        table[node] = slots
        if node.name() == "torch::autograd::AccumulateGrad":
            continue
        results = node(*(slots.get(k) for k in range(node.count)))
        results = results if isinstance(results, tuple) else (results,)
        for (following, number), ct in zip(node.next_functions, results):
            if following is not None and ct is not None:
                place = arrived.setdefault(following, {})
                place[number] = place[number] + ct if number in place else ct
    return table


@pytest.mark.parametrize("name", FUNCTIONS)
def test_calling_the_nodes_by_hand_gives_what_the_engine_gives(name: str) -> None:
    x = tg.tensor(np.random.default_rng(5).uniform(0.5, 1.5, (3, 3)), requires_grad=True)
    y = FUNCTIONS[name](x)
    for mode in (tg.enable_grad(), tg.no_grad()):
        with mode:
            result = _by_hand(y)
        (ct,) = [slots[0] for node, slots in result.items() if getattr(node, "variable", None) is x]
        np.testing.assert_allclose(
            ct.numpy(force=True), tg.autograd.grad(y, x, retain_graph=True)[0].numpy(), rtol=1e-14
        )


def test_the_last_node_adds_to_the_gradient() -> None:
    x = _leaf(1.0, 2.0)
    node = graph.get_gradient_edge(x).node
    assert node(tg.ones(2)) == ()
    node(tg.ones(2) * 2.0)
    assert x.grad.tolist() == [3.0, 3.0]


def test_a_node_takes_one_cotangent_for_each_output() -> None:
    x = _leaf(1.0, 2.0)
    with pytest.raises(TypeError, match="expected 1 arguments, got 2"):
        x.exp().grad_fn(tg.ones(2), tg.ones(2))
    with pytest.raises(TypeError, match="expected 2 arguments, got 1"):
        x.unbind()[0].grad_fn(tg.ones(()))


# -- how long things live --------------------------------------------------------------------------------------------
LIVES: dict[str, Callable[[Any], Any]] = {
    **FUNCTIONS,
    "index": lambda x: x[[0, 1], [1, 0]].sum() + x[x > 1].sum(),
    "base and view": lambda x: (lambda y: (y[0].mul_(2.0), y[1:].add_(y[:1]), y)[2])(x * 1.0).sum(),
    "entropy": lambda x: tg.nn.functional.cross_entropy(x, tg.tensor([1, 0, 2])),
    "joined": lambda x: tg.cat([x, x]).std() + tg.stack([x, x * 2.0]).amax(),
}


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("name", LIVES)
@pytest.mark.usefixtures("_no_gc")
def test_nodes_and_arrays_die_with_the_last_tensor_without_the_collector(name: str, create_graph: bool) -> None:
    x = tg.tensor(np.random.default_rng(5).uniform(0.5, 1.5, (3, 3)), requires_grad=True)
    h = x * 2.0
    y = LIVES[name](h)
    watched = [weakref.ref(each) for each in (y.grad_fn, y.array, h.grad_fn, h.array, y)]
    g = tg.autograd.grad(y, x, create_graph=create_graph)
    del y, h, g
    assert [each() for each in watched] == [None] * 5


@pytest.mark.usefixtures("_no_gc")
def test_a_training_loop_leaves_nothing_behind() -> None:
    w = tg.tensor(np.ones((20, 20)) / 20, requires_grad=True)
    counts = []
    for _ in range(6):
        ((tg.ones(5, 20) @ w).tanh().std(0) ** 2).sum().backward()
        with tg.no_grad():
            w -= 0.1 * w.grad
        w.grad = None
        counts.append(len(gc.get_objects()))
    assert counts[-1] == counts[2]
    assert w._views is None or len(w._views) < 3


READS_NOTHING: dict[str, Callable[[Any], Any]] = {
    "sum": lambda h: (h + 1.0).sum(),
    "mean": lambda h: h.mean(),
    "parts": lambda h: h.reshape(2, 5).unbind()[1],
    "joined": lambda h: tg.cat([h, h]),
    "scan": lambda h: h.cumsum(0),
    "softmax": lambda h: h.softmax(0),
    "result": lambda h: h.exp(),
}


@pytest.mark.parametrize("name", READS_NOTHING)
@pytest.mark.usefixtures("_no_gc")
def test_operands_that_no_rule_reads_are_not_kept(name: str) -> None:
    h = tg.tensor(np.linspace(0.5, 1.5, 10), requires_grad=True) * 2.0
    y = READS_NOTHING[name](h).clone()
    memory = weakref.ref(h.array)
    del h
    assert memory() is None
    y.sum().backward()


def test_a_chain_of_a_hundred_thousand_is_freed_without_recursion() -> None:
    x = _leaf(1.0)
    y = x
    for _ in range(100_000):
        y = y * 1.0
    z = y.std(unbiased=False)
    for _ in range(20_000):
        z = z.reshape(1).sum()
    del y, z
    assert x.grad is None


# -- what is saved ---------------------------------------------------------------------------------------------------
def test_what_is_saved_follows_from_the_parameters_of_the_call_and_not_from_samples() -> None:
    power = Op("power_of", ("x",), lambda x, *, n: x**n, "x to the power n, 1 or 2", variadic=False, listed=False)
    power.def_aval(lambda x, *, n: x)
    power.def_samples(lambda: [((np.ones(2),), {"n": 1})])

    @power.def_vjp("x")
    def _(ct: Any, ans: Any, x: Any, *, n: int) -> Any:
        return ct if n == 1 else multiply(ct, multiply(x, 2.0))

    x = tg.tensor([1.0, 3.0], requires_grad=True)
    first, second = power(x, n=1), power(x, n=2)
    assert [hasattr(y.grad_fn, "_raw_saved_self") for y in (first, second)] == [False, True]
    (first.sum() + second.sum()).backward()
    assert x.grad.tolist() == [3.0, 7.0]


def test_a_rule_that_looks_at_shapes_saves_what_it_reads_for_the_shape_at_hand() -> None:
    op = Op("squares_of_vectors", ("x",), lambda x: x * x if x.ndim == 1 else x + 0, "", variadic=False, listed=False)
    op.def_aval(lambda x: x)

    @op.def_vjp("x")
    def _(ct: Any, ans: Any, x: Any) -> Any:
        return multiply(ct, multiply(x, 2.0)) if len(x.shape) == 1 else ct

    for values, expected in (([[2.0]], [[1.0]]), ([2.0], [4.0])):
        x = tg.tensor(values, requires_grad=True)
        op(x).sum().backward()
        assert x.grad.tolist() == expected


def test_an_op_of_several_results_is_one_node_with_an_output_for_each() -> None:
    op = Op("sine_and_sum", ("x",), lambda x: (np.sin(x), x.sum(), x.argmax()), "", variadic=False, listed=False)
    float64, int64 = np.dtype(np.float64), np.dtype(np.int64)
    op.def_aval(lambda x: ResultAvals((x, Aval((), float64), Aval((), int64))))

    @op.def_vjp_all
    def _(wanted: Any, cts: Any, ans: Any, x: Any) -> Any:
        of_sine = 0.0 if cts[0] is None else multiply(cts[0], cos(x))
        return [add(of_sine, 0.0 if cts[1] is None else broadcast_to(cts[1], shape=x.shape))]

    x = tg.tensor([0.5, 2.0], requires_grad=True)
    sine, total, place = op(x)
    assert sine.grad_fn is total.grad_fn
    assert [sine.output_nr, total.output_nr, place.requires_grad] == [0, 1, False]
    (derivative,) = tg.autograd.grad(sine.sum() + 3.0 * total, x, create_graph=True)
    np.testing.assert_allclose(derivative.detach().numpy(), np.cos([0.5, 2.0]) + 3.0)
    (second,) = tg.autograd.grad(derivative.sum(), x)
    np.testing.assert_allclose(second.numpy(), -np.sin([0.5, 2.0]))
    sine, total, _ = op(x)
    np.testing.assert_allclose(tg.autograd.grad(total, x, retain_graph=True)[0].numpy(), [1.0, 1.0])
    x.detach().mul_(2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        sine.sum().backward()


def test_of_several_results_those_that_the_rule_reads_are_saved() -> None:
    def parts() -> Any:
        x = tg.tensor([3.0, 5.0], requires_grad=True)
        return x, *TABLE["frexp"](x)

    x, mantissa, exponent = parts()
    exponent.add_(1)
    mantissa.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [0.25, 0.125])
    _, mantissa, _ = parts()
    node = mantissa.grad_fn
    assert [name for name in dir(node) if name.startswith("_saved_")] == ["_saved_result0", "_saved_self"]
    assert node._saved_result0.grad_fn is node
    with tg.no_grad():
        mantissa.mul_(2.0)
    with pytest.raises(RuntimeError, match="which is output 0 of Frexp, is at version 1; expected version 0"):
        mantissa.sum().backward()


def test_functions_of_several_ops_do_again_what_they_did_for_other_values_and_nothing_else() -> None:
    def slope(fn: Callable[..., Any], *values: Any) -> Any:
        x = tg.tensor(values[0], requires_grad=True)
        fn(x, *values[1:]).sum().backward()
        return x.grad.numpy()

    def wave(x: Any, scale: float) -> Any:
        return as_node("WaveBackward0", lambda v: multiply(sin(v), multiply(v, scale)), x)

    def chosen(x: Any) -> Any:
        return as_node("ChosenBackward0", lambda v: multiply(v, 2.0) if v[0] > 0 else multiply(v, v), x)

    for values in ([0.5, 1.0], [0.1, 3.0]):
        x = np.array(values)
        for scale in (2.0, 3.0):
            expected = scale * (np.sin(x) + x * np.cos(x))
            np.testing.assert_allclose(slope(wave, values, scale), expected)
            np.testing.assert_allclose(slope(wave, [values], scale), [expected])
    for _ in range(2):
        assert slope(chosen, [1.0, 3.0]).tolist() == [2.0, 2.0]
        assert slope(chosen, [-1.0, 3.0]).tolist() == [-2.0, 6.0]
    drops = {tuple(slope(tg.nn.functional.dropout, [1.0] * 32).tolist()) for _ in range(4)}
    assert len(drops) > 1


def test_a_leaf_that_is_two_operands_of_a_function_gets_each_derivative_once() -> None:
    x, y = tg.tensor([1.0, 2.0], requires_grad=True), tg.tensor([3.0, 5.0], requires_grad=True)
    tg.lerp(x, y, 0.25).sum().backward()
    for create_graph in (False, True):
        (result,) = tg.autograd.grad(tg.lerp(x, x * 1.0, 0.25).sum() + tg.dist(x, x, 1.0), x, create_graph=create_graph)
        assert result.tolist() == [1.0, 1.0]
        (result,) = tg.autograd.grad(tg.addcmul(x, x, x).sum(), x, create_graph=create_graph)
        assert result.tolist() == [3.0, 5.0]
    (result,) = tg.autograd.grad(tg.addcmul(x, x, y).sum(), x, create_graph=True)
    assert result.tolist() == [4.0, 6.0]
    (result,) = tg.autograd.grad(tg.addcmul(y, x, x).sum(), x, create_graph=True)
    assert result.tolist() == [2.0, 4.0]
