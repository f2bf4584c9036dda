"""Checkpoints of functions on Tensors: the gradients of the function, from values that are computed again."""

from __future__ import annotations

import warnings
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

import tracegrad as tg
from tracegrad.torch.utils.checkpoint import (
    CheckpointError,
    checkpoint,
    checkpoint_sequential,
    set_checkpoint_early_stop,
)


def model() -> Any:
    tg.manual_seed(0)
    return tg.nn.Sequential(tg.nn.Linear(3, 4), tg.nn.Tanh(), tg.nn.Dropout(0.3), tg.nn.Linear(4, 2))


def gradients(net: Any, call: Any) -> list[Any]:
    net.zero_grad()
    tg.manual_seed(1)
    x = tg.linspace(-1.0, 1.0, 15).reshape(5, 3).requires_grad_()
    call(x).pow(2).sum().backward()
    return [x.grad.tolist(), *(p.grad.tolist() for p in net.parameters()), tg.rand(1).item()]


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_gradients_and_random_numbers_are_those_without_a_checkpoint(use_reentrant: bool) -> None:
    net = model()
    expected = gradients(net, net)
    assert gradients(net, lambda x: checkpoint(net, x, use_reentrant=use_reentrant)) == expected
    for segments in (1, 2, 4):
        call = lambda x, n=segments: checkpoint_sequential(net, n, x, use_reentrant=use_reentrant)  # noqa: E731
        assert gradients(net, call) == expected


def test_the_backward_pass_runs_the_function_again_and_saves_nothing_before() -> None:
    calls: list[tuple[bool, int]] = []
    saved: list[Any] = []

    def function(x: Any) -> Any:
        calls.append((tg.is_grad_enabled(), len(saved)))
        return x.sin().exp()

    x = tg.tensor([1.0, 2.0], requires_grad=True)
    with tg.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        y = checkpoint(function, x, use_reentrant=False).sum()
    assert calls == [(True, 0)]
    assert saved == []
    y.backward(retain_graph=True)
    assert calls == [(True, 0)] * 2
    y.backward()
    assert len(calls) == 3
    assert tg.allclose(x.grad, 2 * x.sin().exp() * x.cos())


def test_checkpoints_nest_and_have_second_derivatives() -> None:
    def f(x: Any) -> Any:
        return (x.sin() * x).exp()

    def inner(x: Any) -> Any:
        return checkpoint(f, x, use_reentrant=False)

    def outer(x: Any) -> Any:
        return checkpoint(lambda x: f(inner(x)), x, use_reentrant=False)

    for plain, recomputed in ((f, inner), (lambda x: f(f(x)), outer)):
        results = []
        for function in (plain, recomputed):
            x = tg.tensor([0.3, 0.4], requires_grad=True)
            (first,) = tg.autograd.grad(function(x).sum(), x, create_graph=True)
            (second,) = tg.autograd.grad((first**2).sum(), x)
            results.append((first.tolist(), second.tolist()))
        assert results[0] == results[1]


def test_keyword_arguments_and_contexts() -> None:
    entered = []

    @contextmanager
    def context(name: str) -> Any:
        entered.append(name)
        yield

    x, scale = tg.tensor([1.0], requires_grad=True), tg.tensor(3.0, requires_grad=True)
    y = checkpoint(
        lambda x, *, scale: (x * scale).exp(),
        x,
        use_reentrant=False,
        context_fn=lambda: (context("forward"), context("again")),
        scale=scale,
    )
    y.backward()
    assert entered == ["forward", "again"]
    assert x.grad.item() == pytest.approx(3 * y.item())
    assert scale.grad.item() == pytest.approx(y.item())


def test_other_values_in_the_recomputation_are_an_error() -> None:
    counts = iter([3, 1])
    y = checkpoint(
        lambda x: tg.stack([x.exp() for _ in range(next(counts))]), tg.ones(3, requires_grad=True), use_reentrant=False
    )
    with pytest.raises(CheckpointError, match=r"A different number of tensors was saved .* 3 during forward, 1 during"):
        y.sum().backward()
    sizes = iter([2, 3, 2, 1])
    x = tg.ones(3, requires_grad=True)
    y = checkpoint(lambda x: x[: next(sizes)].exp().sum(), x, use_reentrant=False)
    with pytest.raises(CheckpointError, match=r"different metadata .* tensor 0 has shape \(2,\) .* shape \(3,\)"):
        y.backward()


def test_recomputation_ends_early_unless_it_must_not() -> None:
    runs: list[int] = []

    def function(x: Any) -> Any:
        y = x.exp()
        runs.append(0)
        return y.clone()

    for contexts, early_stop, expected in (
        ((), True, 1),
        ((), False, 2),
        ((False,), True, 2),
        ((False, True), False, 1),
    ):
        x = tg.ones(1, requires_grad=True)
        with ExitStack() as stack:
            for each in contexts:
                stack.enter_context(set_checkpoint_early_stop(each))
            y = checkpoint(function, x, use_reentrant=False, early_stop=early_stop)
        runs.clear()
        y.backward()
        assert len(runs) == expected - 1


def test_without_a_gradient_of_the_inputs_reentrant_checkpoints_have_none() -> None:
    w = tg.ones(2, requires_grad=True)
    with pytest.warns(UserWarning, match="None of the inputs have requires_grad=True"):
        y = checkpoint(lambda x: x * w, tg.ones(2), use_reentrant=True)
    assert not y.requires_grad
    assert checkpoint(lambda x: x * w, tg.ones(2), use_reentrant=False).requires_grad


def test_what_is_unsaid_or_unknown() -> None:
    x = tg.ones(2, requires_grad=True)
    with pytest.warns(UserWarning, match="use_reentrant parameter should be passed explicitly"):
        checkpoint(tg.exp, x)
    with pytest.raises(ValueError, match="Unexpected keyword arguments: scale"):
        checkpoint(tg.exp, x, use_reentrant=True, scale=1)
    with pytest.raises(ValueError, match="only supported when use_reentrant=False"):
        checkpoint(tg.exp, x, use_reentrant=True, debug=True)
    with pytest.raises(ValueError, match="Unexpected keyword arguments: scale"):
        checkpoint_sequential([tg.exp], 1, x, use_reentrant=False, scale=1)
    with tg.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not checkpoint(tg.exp, x, use_reentrant=True).requires_grad


def test_a_traced_step_has_the_values_of_the_eager_one() -> None:
    def step(net: Any, x: Any) -> Any:
        loss = checkpoint(net, x, use_reentrant=False).pow(2).mean()
        loss.backward()
        with tg.no_grad():
            for p in net.parameters():
                p -= 0.1 * p.grad
                p.grad = None
        return loss.detach()

    losses = []
    for wrap in (lambda f: f, tg.trace):
        net = model()
        compiled = wrap(lambda x, net=net: step(net, x))
        tg.manual_seed(2)
        losses.append([compiled(tg.ones(4, 3)).item() for _ in range(4)])
    assert losses[0] == pytest.approx(losses[1], rel=1e-12)
    assert losses[0][-1] < losses[0][0]
