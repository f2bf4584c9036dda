"""The engine: what arrives where, in which order, what errors leave behind, and how fast a long chain is."""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.autograd import backward, grad, graph


def _leaf(*values: float) -> Any:
    return tg.tensor(values, requires_grad=True)


# -- order and paths -------------------------------------------------------------------------------------------------
def test_nodes_run_latest_first_and_leaves_as_soon_as_nothing_more_can_arrive() -> None:
    x, w = _leaf(1.0), _leaf(2.0)
    order: list[str] = []
    a, b = x * 2.0, w * 3.0
    for name, t in (("a", a), ("b", b), ("x", x), ("w", w)):
        t.register_hook(lambda g, name=name: order.append(name))
    (a + b).backward()
    assert order == ["b", "w", "a", "x"]


def test_gradients_add_up_over_paths_and_passes() -> None:
    x = _leaf(2.0)
    y = x
    for _ in range(40):
        y = y + y
    y.backward()
    assert x.grad.item() == 2.0**40
    (x * 3.0).backward()
    assert x.grad.item() == 2.0**40 + 3.0


def test_a_pass_reaches_only_what_leads_to_what_is_wanted() -> None:
    x, w = _leaf(1.0), _leaf(2.0)
    side = w.exp()
    ran: list[int] = []
    side.grad_fn.register_hook(lambda ins, outs: ran.append(1))
    (x * side).backward(inputs=[x])
    assert x.grad.item() == pytest.approx(math.exp(2.0))
    assert w.grad is None
    assert ran == []


def test_derivatives_with_respect_to_results_and_edges() -> None:
    x = _leaf(2.0)
    h = x * 3.0
    edge = graph.get_gradient_edge(h)
    y = h * h
    assert grad(y, edge, retain_graph=True)[0].item() == 12.0
    assert [g.item() for g in grad(y, [x, h, edge], retain_graph=True)] == [36.0, 12.0, 12.0]
    backward(graph.get_gradient_edge(y))
    assert x.grad.item() == 36.0
    (x * x).backward(inputs=[graph.get_gradient_edge(x)])
    assert x.grad.item() == 40.0


def test_results_as_inputs_of_backward_receive_gradients() -> None:
    x = _leaf(2.0)
    h = x * 3.0
    (h * h).backward(inputs=[h])
    assert (h.grad.item(), x.grad) == (12.0, None)


def test_one_of_several_outputs_is_differentiated() -> None:
    x = tg.arange(1.0, 7.0, requires_grad=True)
    a, b, c = x.split(2)
    g = grad((a * c).sum(), [x, c, a])
    assert g[0].tolist() == [5.0, 6.0, 0.0, 0.0, 1.0, 2.0]
    assert (g[1].tolist(), g[2].tolist()) == ([1.0, 2.0], [5.0, 6.0])
    assert b.requires_grad


def test_batched_weights_give_a_row_for_each() -> None:
    x = _leaf(0.5, 1.0)
    (rows,) = grad(x.sin(), x, tg.eye(2), is_grads_batched=True)
    np.testing.assert_allclose(rows.numpy(), np.diag(np.cos([0.5, 1.0])))
    (none,) = grad(x.sin(), x, tg.zeros(0, 2), is_grads_batched=True)
    assert none.shape == (0, 2)
    with pytest.raises(RuntimeError, match="If `is_grads_batched=True`"):
        grad(x.sin(), x, tg.ones(2, 3), is_grads_batched=True)


# -- errors ----------------------------------------------------------------------------------------------------------
def _fails(g: Any) -> None:
    raise KeyError("in the middle")


def test_an_error_in_the_middle_leaves_every_gradient_as_it_was() -> None:
    x, w, u = _leaf(1.0), _leaf(2.0), _leaf(3.0)
    (x * u).backward()
    before = (x.grad.item(), u.grad.item())
    h = x * 5.0
    h.retain_grad()
    h.register_hook(_fails)
    with pytest.raises(KeyError, match="in the middle"):
        (h * 2.0 + w * u).backward()
    assert (x.grad.item(), u.grad.item(), w.grad, h.grad) == (*before, None, None)


def test_the_modes_are_restored_after_an_error() -> None:
    x = _leaf(1.0)
    y = x * 2.0
    y.register_hook(_fails)
    for create_graph in (False, True):
        with tg.set_grad_enabled(not create_graph), pytest.raises(KeyError):
            grad(y, x, create_graph=create_graph, retain_graph=True)
        assert tg.is_grad_enabled()
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        np.ones(1) / np.zeros(1)


def test_what_a_pass_must_be_given() -> None:
    x = _leaf(1.0, 2.0)
    with pytest.raises(RuntimeError, match=r"`inputs` argument to `grad\(\)` cannot be empty"):
        grad(x.sum(), [])
    with pytest.raises(RuntimeError, match=r"`inputs` argument to `backward\(\)` cannot be empty"):
        x.sum().backward(inputs=[])
    with pytest.raises(RuntimeError, match="got 2 tensors and 1 gradients"):
        backward([x, x], [None])
    with pytest.raises(TypeError, match="gradients can be either Tensors or None, but got float"):
        backward([x.sum()], [1.0])
    with pytest.raises(ValueError, match="Expected allow_unused to be True or not passed when materialize_grads=True"):
        grad(x.sum(), x, allow_unused=False, materialize_grads=True)
    with pytest.raises(RuntimeError, match="The differentiated Tensor at index 1 appears to not have been used"):
        grad(x.sum(), [x, _leaf(1.0)])
    assert x.grad is None


# -- memory ----------------------------------------------------------------------------------------------------------
PASSING: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda x, y: x + y,
    "difference": lambda x, y: x - y,
    "view": lambda x, y: x.reshape(1, 2) + y.view(2).t(),
    "part": lambda x, y: x[...] + y[:],
    "joined": lambda x, y: tg.cat([x, y]).reshape(2, 2),
    "copied": lambda x, y: x.clone() + y.contiguous(),
}


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("name", PASSING)
def test_gradients_share_memory_with_nothing_else(name: str, create_graph: bool) -> None:
    x, y = _leaf(1.0, 2.0), _leaf(1.0, 2.0)
    z = PASSING[name](x, y)
    z.retain_grad()
    seen: list[Any] = []
    z.register_hook(seen.append)
    weight = tg.ones(z.shape)
    result = grad(z, [x, y, z], weight, retain_graph=True, create_graph=create_graph)
    z.backward(weight)
    arrays = [t.numpy(force=True) for t in (x.grad, y.grad)]
    others = [t.numpy(force=True) for t in (weight, z, x, y, *seen, *result, z.grad)]
    for k, array in enumerate(arrays):
        assert array.flags.writeable
        assert not any(np.shares_memory(array, other) for other in (*others, *arrays[k + 1 :]))
    x.grad.zero_()
    assert y.grad.tolist() in ([1.0, 1.0], [-1.0, -1.0])
    assert weight.tolist() == np.ones(z.shape).tolist()


def test_a_gradient_that_was_set_by_hand_is_added_to_in_place() -> None:
    x = _leaf(1.0, 2.0)
    x.grad = tg.tensor([10.0, 20.0])
    held = x.grad
    x.sum().backward()
    assert x.grad is held
    assert held.tolist() == [11.0, 21.0]


def test_gradients_keep_shape_dtype_and_order() -> None:
    x = tg.from_numpy(np.asfortranarray(np.ones((2, 3), np.float32))).requires_grad_()
    (x.t().double() * tg.ones(3, 2)).sum().backward()
    assert (x.grad.dtype, x.grad.shape) == (np.float32, (2, 3))
    empty = tg.zeros(0, 3, requires_grad=True)
    (empty * 2.0).sum().backward()
    assert empty.grad.shape == (0, 3)
    scalar = tg.tensor(2.0, requires_grad=True)
    (scalar * tg.ones(3)).sum().backward()
    assert (scalar.grad.shape, scalar.grad.item()) == ((), 3.0)


# -- higher orders ---------------------------------------------------------------------------------------------------
def test_gradients_of_gradients_through_leaves() -> None:
    x = _leaf(1.5)
    with pytest.warns(UserWarning, match="will create a reference cycle"):
        (x**4).backward(create_graph=True)
    first = x.grad
    assert first.requires_grad
    x.grad = None
    first.backward()
    assert x.grad.item() == pytest.approx(12 * 1.5**2)


@pytest.mark.parametrize(
    ("function", "derivatives"),
    [
        (lambda x: x.exp() * x.sin(), lambda n, x: 2 ** (n / 2) * math.exp(x) * math.sin(x + n * math.pi / 4)),
        (lambda x: (x * tg.ones(2)).prod(), lambda n, x: [x * x, 2 * x, 2.0, 0.0, 0.0][n]),
        (lambda x: 1 / x, lambda n, x: (-1) ** n * math.factorial(n) / x ** (n + 1)),
        (lambda x: tg.stack([x, x]).logsumexp(0), lambda n, x: [x + math.log(2), 1.0, 0.0, 0.0, 0.0][n]),
    ],
    ids=["waves", "product", "reciprocal", "several ops"],
)
def test_derivatives_of_any_order(function: Any, derivatives: Any) -> None:
    x = tg.tensor(0.7, requires_grad=True)
    y = function(x)
    for n in range(5):
        assert y.item() == pytest.approx(derivatives(n, 0.7), rel=1e-10, abs=1e-12)
        (y,) = grad(y, x, create_graph=True, materialize_grads=True) if y.requires_grad else (tg.tensor(0.0),)


def test_the_gradient_of_a_rectifier_can_be_differentiated_and_gives_zeros() -> None:
    x = _leaf(-1.0, 2.0)
    for function in (tg.relu, tg.nn.functional.leaky_relu, tg.abs):
        (g,) = grad(function(x).sum(), x, create_graph=True)
        assert grad(g.sum(), x)[0].tolist() == [0.0, 0.0]


def test_each_number_of_an_operation_counts() -> None:
    x = _leaf(0.0, 0.5, 1.0, 2.0)
    for low, high in ((0.0, 1.0), (0.0, 0.5), (0.0, -0.0), (0.0, 2.0), (0.5, 2.0)):
        (g,) = grad(x.clamp(low, high).sum(), x)
        assert g.tolist() == [float(low <= v <= high) for v in x.tolist()]


def test_a_pass_within_a_hook_has_its_own_state() -> None:
    x, w = _leaf(2.0), _leaf(3.0)

    def inner(g: Any) -> Any:
        with tg.enable_grad():
            (result,) = grad(w**3, w)
        return g * result

    y = x * 2.0
    y.register_hook(inner)
    y.backward()
    assert x.grad.item() == 2.0 * 27.0


# -- threads ---------------------------------------------------------------------------------------------------------
def test_threads_differentiate_one_retained_graph_at_once() -> None:
    x = tg.tensor(np.linspace(0.5, 1.5, 64), requires_grad=True)
    y = (x.sin() * x.exp()).std() * x.reshape(8, 8).unbind()[1].softmax(0).prod() + x.cumprod(0).sum()
    # With a graph, the derivative by way of an answer is computed from that answer, which rounds otherwise.
    expected = [grad(y, x, retain_graph=True, create_graph=c)[0].numpy(force=True) for c in (True, False)]
    np.testing.assert_allclose(*expected, rtol=1e-13)
    start, wrong = threading.Barrier(6), []

    def work() -> None:
        start.wait()
        for k in range(20):
            (g,) = grad(y, x, retain_graph=True, create_graph=k % 2 == 0)
            if not np.array_equal(g.numpy(force=True), expected[k % 2]):
                wrong.append(k)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_threads_add_to_one_gradient_and_lose_nothing() -> None:
    x = tg.zeros(3, requires_grad=True)
    start = threading.Barrier(8)

    def work() -> None:
        start.wait()
        for _ in range(50):
            (x * 2.0).sum().backward()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert x.grad.tolist() == [800.0] * 3


# -- size ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("op", [lambda y: y * 1.0, lambda y: y + 1.0])
def test_a_chain_of_a_hundred_thousand_runs_backward_and_is_freed_without_recursion(op: Any) -> None:
    x = tg.tensor(1.0, requires_grad=True)
    y = x
    for _ in range(100_000):
        y = op(y)
    y.backward()
    assert x.grad.item() == 1.0
    node = weakref.ref(y.grad_fn)
    del y
    assert node() is None


# -- branches not taken ----------------------------------------------------------------------------------------------
BRANCHES: dict[str, Callable[[Any], Any]] = {
    "op": lambda x: tg.where(x > 0, x.sqrt(), 0.0),
    "several ops": lambda x: tg.where(x > 0, tg.hypot(x.sqrt(), x.sqrt()), 0.0),
    "softmax": lambda x: tg.where(x > 0, (x.log() * 2.0).exp(), 0.0),
    "index": lambda x: tg.where(x > 0, x.sqrt()[...][:, None][:, 0], 0.0),
    "picked": lambda x: tg.where(x > 0, x.sqrt()[[0, 1, 2]], 0.0),
    "parts": lambda x: tg.stack([tg.where(v > 0, v.sqrt(), 0.0) for v in x.unbind()]),
    "joined": lambda x: tg.where(x > 0, tg.cat([x[:1].sqrt(), x[1:].log()]), 0.0),
    "reduced": lambda x: tg.where(x > 0, x.sqrt().reshape(3, 1).sum(1), 0.0),
}


@pytest.mark.parametrize("name", BRANCHES)
def test_where_lets_no_nan_out_of_the_branch_not_taken(name: str) -> None:
    x = tg.tensor([-1.0, 0.0, 4.0], requires_grad=True)
    y = BRANCHES[name](x).sum()
    (plain,) = grad(y, x, retain_graph=True)
    (recorded,) = grad(y, x, create_graph=True)
    assert np.isfinite(plain.numpy()).all()
    np.testing.assert_allclose(recorded.numpy(force=True), plain.numpy(), rtol=1e-14)
    assert plain.tolist()[:2] == [0.0, 0.0]
    (second,) = grad(recorded.sum(), x)
    assert np.isfinite(second.numpy()).all()


_BY_ANSWER = {  # the second derivative by the answer: what PyTorch, which saves that alone, gives for a weight of 1
    "tanh": (tg.tanh, lambda y: -2.0 * y),
    "sigmoid": (tg.sigmoid, lambda y: 1.0 - 2.0 * y),
    "expm1": (tg.expm1, np.ones_like),
}


@pytest.mark.parametrize("name", _BY_ANSWER)
def test_a_recorded_derivative_depends_on_the_answer_of_what_saves_that(name: str) -> None:
    function, by_answer = _BY_ANSWER[name]
    x = tg.tensor([0.4, -3.0, 0.0], requires_grad=True)
    y = function(x)
    y.retain_grad()
    (g,) = tg.autograd.grad(y.sum(), x, create_graph=True)
    y.grad = None
    g.sum().backward()
    np.testing.assert_allclose(y.grad.numpy(), by_answer(y.detach().numpy()), rtol=1e-12)
    h = 1e-5
    first = [tg.autograd.grad(function(z := (x.detach() + d).requires_grad_()).sum(), z)[0] for d in (h, -h)]
    np.testing.assert_allclose(x.grad.numpy(), (first[0] - first[1]).numpy() / (2 * h), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", _BY_ANSWER)
def test_second_derivatives_by_the_answer_are_the_same_in_traces_and_have_all_digits(name: str) -> None:
    function, _ = _BY_ANSWER[name]

    def second(x: tg.Tensor) -> tg.Tensor:
        y = (x * 1.0).requires_grad_()
        (g,) = tg.autograd.grad(function(y).sum(), y, create_graph=True)
        return tg.autograd.grad((g * g).sum(), y)[0]

    x = tg.tensor([0.4, -30.0, 30.0, 400.0, 0.0])
    np.testing.assert_allclose(tg.trace(second)(x).numpy(), second(x).numpy(), rtol=1e-14)
    if name == "tanh":
        assert second(x)[1].item() == pytest.approx(2 * 4**2 * 2 * math.exp(-120.0), rel=1e-12)


def _recorded_then_overwritten(function: Any, overwritten: int) -> Any:
    x = tg.tensor([0.3, 0.5], requires_grad=True)
    values = [inner := x * 1.0, function(inner)]
    (g,) = tg.autograd.grad(values[1].sum(), x, create_graph=True)
    with tg.no_grad():
        values[overwritten].mul_(3.0)
    return tg.autograd.grad(g.sum(), x)[0].tolist()


class _Cubed(tg.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        (x,) = ctx.saved_tensors
        return ct * 3.0 * x * x


@pytest.mark.parametrize(
    ("function", "overwritten"),
    [
        (tg.sin, 0),
        (lambda x: x**3, 0),
        (_Cubed.apply, 0),
        (lambda x: tg.var(x) ** 2, 0),
        (tg.tanh, 1),
        (tg.exp, 1),
    ],
)
def test_an_update_after_a_recorded_pass_is_an_error_in_the_next(function: Any, overwritten: int) -> None:
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        _recorded_then_overwritten(function, overwritten)


def test_an_update_after_a_recorded_pass_of_what_it_does_not_read_is_none() -> None:
    assert _recorded_then_overwritten(tg.tanh, 0) == pytest.approx([-0.5331818782014544, -0.7268619813835874])


def test_backward_to_inputs_runs_the_hooks_of_their_nodes() -> None:
    seen: list[str] = []
    a = tg.ones(2, requires_grad=True)
    b = a.clone()
    b.register_hook(lambda g: seen.append("tensor"))
    b.grad_fn.register_prehook(lambda g: seen.append("before"))
    b.grad_fn.register_hook(lambda g, h: seen.append("after"))
    b.sum().backward(inputs=[b])
    assert seen == ["tensor", "before", "after"]
    assert (b.grad.tolist(), a.grad) == ([1.0, 1.0], None)


def test_backward_to_inputs_adds_to_leaves_after_their_hooks() -> None:
    a, b = tg.ones(2, requires_grad=True), tg.ones(2, requires_grad=True)
    a.register_hook(lambda g: g * 3.0)
    (a * b).sum().backward(inputs=[a])
    assert (a.grad.tolist(), b.grad) == ([3.0, 3.0], None)


def test_zeros_for_unused_inputs_can_be_differentiated_if_the_pass_is_recorded() -> None:
    x, y = _leaf(1.0), _leaf(2.0)
    (result,) = grad(y * y, x, create_graph=True, materialize_grads=True)
    assert result.requires_grad
    assert grad(result.sum(), x, materialize_grads=True)[0].tolist() == [0.0]
    assert not grad(y * y, x, materialize_grads=True)[0].requires_grad


def test_zeros_cannot_stand_for_an_edge() -> None:
    x, y = _leaf(1.0), _leaf(2.0)
    edge = graph.get_gradient_edge(y.clone())
    with pytest.raises(RuntimeError, match="materialize_grads cannot be used when the given input is a GradientEdge"):
        grad(x * 2.0, (x, edge), materialize_grads=True)


def test_a_leaf_that_is_frozen_before_the_pass_gets_no_gradient() -> None:
    x, y = _leaf(1.0), _leaf(2.0)
    z = x * y
    x.requires_grad_(False)
    z.backward()
    assert (x.grad, y.grad.tolist()) == (None, [1.0])


@pytest.mark.parametrize("name", ["t_", "squeeze_", "unsqueeze_", "swapaxes_"])
def test_becoming_a_view_in_no_grad_loses_no_history(name: str) -> None:
    x = tg.tensor([[1.0, 2.0]], requires_grad=True)
    y = x * 3.0
    with tg.no_grad():
        getattr(y, name)(*{"unsqueeze_": (0,), "swapaxes_": (0, 1)}.get(name, ()))
    assert not y.is_leaf
    (y.flatten() * tg.tensor([1.0, 10.0])).sum().backward()
    assert x.grad.tolist() == [[3.0, 30.0]]


@pytest.mark.parametrize("alias", [lambda x: x, lambda x: x.data, lambda x: x.detach()])
def test_where_windows_of_unfold_overlap_no_alias_of_them_is_written_to(alias: Any) -> None:
    windows = tg.arange(4.0).unfold(0, 2, 1)
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor refers to a single"):
        alias(windows).mul_(2.0)


# PyTorch's gradients.
@pytest.mark.parametrize(
    ("size", "step", "gradient"),
    [
        (2, 3, [0.0, 18.0, 4.0, 54.0, 72.0, 10.0]),
        (1, 2, [0.0, 2.0, 36.0, 6.0, 72.0, 10.0]),
    ],
)
def test_an_update_of_windows_of_unfold_is_one_of_their_base(size: int, step: int, gradient: list[float]) -> None:
    x = tg.arange(6.0).requires_grad_()
    y = x * 1
    y.unfold(0, size, step).mul_(3.0)
    (y * y).sum().backward()
    assert x.grad.tolist() == gradient


def test_windows_of_unfold_have_what_their_base_is_updated_to_and_its_gradient() -> None:
    x = tg.arange(6.0).requires_grad_()
    y = x * 1
    windows = y.unfold(0, 3, 1)
    y.mul_(2.0)
    (windows * windows).sum().backward()
    assert windows[0].tolist() == [0.0, 2.0, 4.0]
    assert x.grad.tolist() == [0.0, 16.0, 48.0, 72.0, 64.0, 40.0]


def test_one_of_overlapping_windows_is_updated() -> None:
    x = tg.arange(4.0)
    windows = x.unfold(0, 2, 1)
    windows[1].mul_(10.0)
    assert x.tolist() == [0.0, 10.0, 20.0, 3.0]
    assert windows.tolist() == [[0.0, 10.0], [10.0, 20.0], [20.0, 3.0]]


def test_the_derivative_of_a_power_by_an_exponent_below_0_is_infinite_at_0() -> None:
    x, y = tg.tensor([0.0, 0.0, 0.0, 2.0]), _leaf(-1.0, 0.0, 1.0, -1.0)
    (x**y).sum().backward()
    assert y.grad.tolist() == [-math.inf, 0.0, 0.0, pytest.approx(math.log(2.0) / 2)]


def test_asking_for_the_gradient_of_a_view_that_cannot_be_used_is_no_error() -> None:
    part = tg.ones(2, requires_grad=True).chunk(1)[0]
    with tg.no_grad():
        part.mul_(2.0)
    assert part.grad is None


@pytest.mark.parametrize("inputs", [3, [None], "x"])
def test_inputs_must_be_tensors_or_edges(inputs: Any) -> None:
    y = _leaf(1.0) * 2.0
    for call in (lambda: tg.autograd.grad(y, inputs), lambda: y.backward(inputs=inputs)):
        with pytest.raises(RuntimeError, match="all inputs have to be Tensors or GradientEdges, but got"):
            call()
