"""Training steps as PyTorch's tutorials write them: eager, and compiled whole, with the same values."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad import nn


@pytest.fixture(autouse=True)
def strictly() -> Iterator[None]:
    """No part of a step may fall back to plain Python, or lose a derivative: both are told by warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


class Net(nn.Module):
    """A layer, a normalization, dropout and another layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 8)
        self.norm = nn.BatchNorm1d(8)
        self.drop = nn.Dropout(0.25)
        self.last = nn.Linear(8, 1)

    def forward(self, x: Any) -> Any:
        """(N, 3) to (N, 1)."""
        return self.last(self.drop(self.norm(self.first(x)).relu()))


def made(wrap: Callable[[Any], Any]) -> tuple[Any, Any]:
    """A model whose parameters are always the same ones, and a step of training."""
    tg.manual_seed(1)
    net, loss_of = Net(), nn.MSELoss()

    def step(x: Any, y: Any) -> Any:
        net.zero_grad()
        loss = loss_of(net(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        with tg.no_grad():
            for p in net.parameters():
                p -= 0.1 * p.grad
        return loss

    return net, wrap(step)


def data() -> tuple[Any, Any]:
    x = np.cos(np.arange(60.0)).reshape(20, 3)
    return tg.tensor(x), tg.tensor(x.sum(1, keepdims=True) ** 2)


def run(wrap: Callable[[Any], Any], steps: int = 4) -> tuple[list[float], dict[str, Any]]:
    net, step = made(wrap)
    x, y = data()
    tg.manual_seed(2)
    losses = [step(x, y).item() for _ in range(steps)]
    net.eval()
    losses += [step(x, y).item() for _ in range(2)]
    net.train()
    losses += [step(x, y).item() for _ in range(2)]
    return losses, {name: x.numpy() for name, x in net.state_dict().items()}


def test_a_compiled_step_does_what_the_eager_one_does() -> None:
    losses, state = run(lambda f: f)
    compiled, updated = run(tg.trace)
    np.testing.assert_allclose(compiled, losses, rtol=1e-9)
    for name, x in state.items():
        np.testing.assert_allclose(updated[name], x, rtol=1e-9, atol=1e-12, err_msg=name)
    assert updated["norm.num_batches_tracked"] == 6
    assert losses[-1] < losses[0]
    with tg.disable_jit():
        uncompiled, _ = run(tg.trace)
    np.testing.assert_allclose(uncompiled, losses, rtol=1e-9)


def test_dropout_draws_anew_at_each_compiled_call_and_as_eager_code_does() -> None:
    drop = nn.Dropout(0.5)
    compiled = tg.trace(drop.forward)
    x = tg.ones(64)
    tg.manual_seed(5)
    eager = [drop(x).tolist() for _ in range(3)]
    tg.manual_seed(5)
    assert [compiled(x).tolist() for _ in range(3)] == eager
    assert eager[0] != eager[1] != eager[2]
    drop.eval()
    assert compiled(x).tolist() == [1.0] * 64


def test_a_second_derivative_through_dropout_is_of_what_was_drawn() -> None:
    x = tg.ones(16, requires_grad=True)
    compiled = tg.trace(lambda x: (nn.functional.dropout(x, 0.5) ** 3).sum())
    (first,) = tg.autograd.grad(compiled(x), x, create_graph=True)
    state = tg.get_rng_state()
    (second,) = tg.autograd.grad(first.sum(), x)
    saved = first.detach().numpy() > 0
    np.testing.assert_allclose(second.numpy(), np.where(saved, 48.0, 0.0))
    assert bool((state == tg.get_rng_state()).all())


def test_a_step_sees_new_parameters_and_modes_and_is_traced_anew_only_for_what_is_new() -> None:
    net, step = made(tg.trace)
    x, y = data()
    for _ in range(4):
        step(x, y)
    traces = step.cache_info().traces  # without gradients from the call before, and with them
    net.last.bias = nn.Parameter(tg.tensor([100.0]))
    assert step(x, y).item() > 1000
    net.eval()
    step(x, y)
    net.train()
    step(x, y)
    assert step.cache_info().traces <= traces + 3


def test_a_module_can_be_traced_itself() -> None:
    net, _ = made(lambda f: f)
    net.eval()
    x, _ = data()
    compiled = tg.trace(net)
    np.testing.assert_allclose(compiled(x).detach().numpy(), net(x).detach().numpy(), rtol=1e-12)
    with tg.no_grad():
        net.last.bias += 1.0
    np.testing.assert_allclose(compiled(x).detach().numpy(), net(x).detach().numpy(), rtol=1e-12)


def test_hooks_run_in_a_compiled_step() -> None:
    layer = nn.Linear(2, 1)
    layer.register_forward_pre_hook(lambda m, args: (args[0] * 2,))
    layer.register_forward_hook(lambda m, args, out: out + 1)
    x = tg.ones(3, 2)
    expected = layer(x).detach().numpy()
    np.testing.assert_allclose(tg.trace(lambda x: layer(x))(x).detach().numpy(), expected, rtol=1e-12)


def test_gradients_of_plain_dicts_of_parameters_are_dicts() -> None:
    layer = nn.Linear(3, 2)
    params = {name: p.detach().numpy() for name, p in layer.named_parameters()}
    x = np.arange(3.0)
    result = tg.grad(lambda p: np.sum((x @ p["weight"].T + p["bias"]) ** 2))(params)
    out = 2 * (x @ params["weight"].T + params["bias"])
    np.testing.assert_allclose(result["weight"], np.outer(out, x))
    np.testing.assert_allclose(result["bias"], out)
