"""`is_grads_batched` and `vectorize`: one backward pass for a batch of cotangents, wherever the tape allows it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracegrad as tg
import tracegrad.nn.functional as F
from tracegrad import autograd
from tracegrad.torch.tape.backward import engine

rng = np.random.default_rng(0)
X, W = rng.normal(size=(4, 3)), rng.normal(size=(3, 5))
FUNCTIONS: dict[str, Any] = {
    "product": lambda x, w: (x @ w).tanh(),
    "broadcast": lambda x, w: x[0] * x + x.sum(0, keepdim=True) - x.mean(),
    "index": lambda x, w: x[1:, [0, 2]] * x[tg.tensor([0, 1, 2]), 1:],
    "parts": lambda x, w: x.unbind(0)[1] * x.chunk(2, 1)[0].sum() + x.split(2)[0][1],
    "composite": lambda x, w: x.std(0) * x.logsumexp(1).sum() + x.var(),
    "where": lambda x, w: tg.where(x > 0, x.abs().log(), (-x).exp()),
    "extrema": lambda x, w: x.max(1).values * x.min() + x.relu().amax(0).sum(),
    "linalg": lambda x, w: tg.linalg.solve(w[:, :3] @ w[:, :3].mT + tg.eye(3), x.mT),
    "eigh": lambda x, w: tg.linalg.eigh(x.mT @ x)[0],
    "conv": lambda x, w: F.conv1d(x[None], w.reshape(5, 3, 1)[:, :, :].expand(5, 3, 2)[:, :1].expand(5, 4, 2)),
    "softmax": lambda x, w: F.log_softmax(x @ w, dim=1).exp() * F.gelu(x @ w),
    "cumulative": lambda x, w: x.cumsum(0) * x.cumprod(1),
    "complex": lambda x, w: tg.view_as_real(tg.complex(x, x.sin()) * tg.complex(w[0, 0], w[0, 1])),
    "step": lambda x, w: x.sign() * x + x.floor(),
    "leaf": lambda x, w: x,
}
named = pytest.mark.parametrize("name", FUNCTIONS)


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many backward passes were made."""
    results: list[int] = []
    run = engine.run

    def counted(*args: Any, **kwargs: Any) -> Any:
        results.append(1)
        return run(*args, **kwargs)

    monkeypatch.setattr(engine, "run", counted)
    return results


def leaves() -> Any:
    return tg.tensor(X, requires_grad=True), tg.tensor(W, requires_grad=True)


def each(out: Any, inputs: Any, weights: Any, **options: Any) -> list[Any]:
    rows = [autograd.grad(out, inputs, w, retain_graph=True, allow_unused=True, **options) for w in weights]
    return [None if column[0] is None else tg.stack(list(column)) for column in zip(*rows)]


def assert_equal(got: Any, want: Any) -> None:
    for x, y in zip(got, want, strict=True):
        assert (x is None) == (y is None)
        if x is not None:
            np.testing.assert_allclose(x.detach().numpy(), y.detach().numpy(), rtol=1e-10, atol=1e-12)


@named
def test_one_pass_gives_what_one_for_each_weight_gives(name: str, passes: list[int]) -> None:
    x, w = leaves()
    out = FUNCTIONS[name](x, w)
    weights = tg.tensor(rng.normal(size=(6, *out.shape)))
    want = each(out, (x, w), weights)
    passes.clear()
    got = autograd.grad(out, (x, w), weights, allow_unused=True, is_grads_batched=True)
    assert len(passes) == 1
    assert_equal(got, want)


@named
def test_gradients_can_be_differentiated_again(name: str, passes: list[int]) -> None:
    x, w = leaves()
    out = FUNCTIONS[name](x, w)
    weights = tg.tensor(rng.normal(size=(6, *out.shape)), requires_grad=True)
    options: dict[str, Any] = {"create_graph": True, "allow_unused": True}
    (want,) = each(out, (x,), weights, create_graph=True)
    passes.clear()
    (got,) = autograd.grad(out, (x,), weights, is_grads_batched=True, **options)
    assert len(passes) == 1
    assert_equal([got], [want])
    factor = tg.tensor(rng.normal(size=got.shape))
    second = [autograd.grad((g * factor).sum(), (x, w, weights), **options) for g in (got, want)]
    assert_equal(*second)


def test_several_outputs_and_weights_that_are_absent() -> None:
    x, _ = leaves()
    outs = [(x * x).sum(), x.sin(), x[0]]
    weights = [None, tg.tensor(rng.normal(size=(2, 4, 3))), tg.tensor(rng.normal(size=(2, 3)))]
    (got,) = autograd.grad(outs, x, weights, retain_graph=True, is_grads_batched=True)
    rows = [autograd.grad(outs, x, [None, weights[1][k], weights[2][k]], retain_graph=True)[0] for k in range(2)]
    assert_equal([got], [tg.stack(rows)])


def test_edges_stand_for_outputs_and_inputs() -> None:
    x, _ = leaves()
    y = x * 2.0
    out = y.sin()
    weights = rng.normal(size=(3, 4, 3))
    ends = autograd.graph.get_gradient_edge(out), autograd.graph.get_gradient_edge(y)
    (got,) = autograd.grad(ends[0], ends[1], weights, retain_graph=True, is_grads_batched=True)
    assert_equal([got], each(out, (y,), weights))


def test_options_are_those_of_grad() -> None:
    x, w = leaves()
    weights = np.ones((2, 4, 3))
    with pytest.raises(RuntimeError, match="appears to not have been used in the graph"):
        autograd.grad(x * 2.0, (x, w), weights, is_grads_batched=True)
    _, zero = autograd.grad(x * 2.0, (x, w), weights, is_grads_batched=True, materialize_grads=True)
    np.testing.assert_array_equal(zero.numpy(), np.zeros((2, 3, 5)))
    out = x.exp()
    autograd.grad(out, x, weights, is_grads_batched=True)
    with pytest.raises(RuntimeError, match="second time"):
        autograd.grad(out, x, weights, is_grads_batched=True)
    (result,) = autograd.grad(x.exp(), x, np.ones((0, 4, 3)), is_grads_batched=True)
    assert result.shape == (0, 4, 3)


class Tripled(autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 3.0

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        return ct * 3.0 if float(ct.sum()) > 0 else ct * 30.0


def _hooked(x: Any) -> Any:
    y = x * 2.0
    y.register_hook(lambda ct: ct * ct)
    return y


def _updated(x: Any) -> Any:
    y = x * 2.0
    y[1:].mul_(x[:3])
    return y


CODE: dict[str, Any] = {
    "function": Tripled.apply,
    "hook": _hooked,
    "update": _updated,
    "compiled": tg.trace(lambda x: (x * x).sin()),
}


@pytest.mark.parametrize("name", CODE)
def test_code_that_knows_no_batches_runs_for_each(name: str, passes: list[int]) -> None:
    x, _ = leaves()
    out = CODE[name](x)
    weights = tg.tensor(rng.normal(size=(3, 4, 3)))
    want = each(out, (x,), weights)
    passes.clear()
    got = autograd.grad(out, (x,), weights, is_grads_batched=True)
    assert len(passes) == 3
    assert_equal(got, want)


@pytest.mark.parametrize("name", ["product", "composite", "where", "softmax"])
def test_vectorized_jacobians_are_one_pass_for_each_output(name: str, passes: list[int]) -> None:
    f = FUNCTIONS[name]
    x, w = tg.tensor(X), tg.tensor(W)
    want = autograd.functional.jacobian(lambda x: f(x, w), x)
    passes.clear()
    got = autograd.functional.jacobian(lambda x: f(x, w), x, vectorize=True)
    assert len(passes) == 1
    assert_equal([got], [want])
    passes.clear()
    forward = autograd.functional.jacobian(lambda x: f(x, w), x, vectorize=True, strategy="forward-mode")
    assert len(passes) <= 3
    assert_equal([forward], [want])


def test_vectorized_hessians_are_two_passes(passes: list[int]) -> None:
    x = tg.tensor(X)
    want = autograd.functional.hessian(lambda x: (x.tanh() * x.sum()).sum(), x)
    passes.clear()
    got = autograd.functional.hessian(lambda x: (x.tanh() * x.sum()).sum(), x, vectorize=True)
    assert len(passes) == 2
    assert_equal([got], [want])


def test_batched_gradients_inside_traced_functions() -> None:
    @tg.trace
    def f(x: Any, weights: Any) -> Any:
        (result,) = autograd.grad(x.sin() * x.sum(), x, weights, is_grads_batched=True, create_graph=True)
        return result

    x, _ = leaves()
    weights = tg.tensor(rng.normal(size=(2, 4, 3)))
    want = each(x.sin() * x.sum(), (x,), weights, create_graph=True)[0]
    got = f(x, weights)
    assert_equal([got], [want])
    assert_equal(autograd.grad(got.sum(), x), autograd.grad(want.sum(), x))
