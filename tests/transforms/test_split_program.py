"""`vjp` and `linearize` in two programs: the derivative is that of the call, and the function does not run again."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import tracegrad as tg

X, CT = np.array([0.5, 1.0, 2.0]), np.array([1.0, -2.0, 3.0])
TRANSFORMS = {"vjp": lambda f, x: _first(*tg.vjp(f, x)), "linearize": tg.linearize}
transforms = pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
modes = pytest.mark.parametrize("mode", [nullcontext, tg.disable_jit], ids=["compiled", "disabled"])


def _first(out: Any, pull: Any) -> Any:
    return out, lambda ct: pull(ct)[0]


@modes
@transforms
def test_what_changes_after_the_call_does_not_matter(transform: Any, mode: Any) -> None:
    class Model:
        rate = 2.0
        calls = 0
        w = np.array([1.0, 2.0, 3.0])

    model, log = Model(), [1.0]

    def f(x: Any) -> Any:
        model.calls += 1
        log.append(0.0)
        x = x * 1.0
        x *= model.w
        return np.exp(x) * model.rate * log[0]

    with mode():
        for k in range(3):
            x = X + k
            want = np.exp(x * model.w) * model.rate * log[0] * model.w * CT
            out, derivative = transform(f, x)
            assert (model.calls, len(log)) == (k + 1, k + 2)
            x[:] = out[:] = 0.0
            model.w += 1.0
            model.rate, log[0] = model.rate + 1.0, log[0] + 1.0
            for _ in range(2):
                np.testing.assert_allclose(derivative(CT), want, rtol=1e-13)
            assert (model.calls, len(log)) == (k + 1, k + 2)


@modes
@transforms
def test_an_argument_that_is_updated_in_place(transform: Any, mode: Any) -> None:
    def f(x: Any) -> Any:
        x *= 2.0
        return x * x

    with mode():
        for k in range(2):
            x = X + k
            out, derivative = transform(f, x)
            np.testing.assert_allclose(out, 4 * (X + k) ** 2)
            np.testing.assert_allclose(derivative(CT), 8 * (X + k) * CT)


@transforms
def test_what_the_derivative_may_raise_is_not_asked_of_the_call(transform: Any) -> None:
    a = np.diag([2.0, 4.0, 5.0])

    def f(x: Any) -> Any:
        try:
            return np.linalg.solve(a, x)
        except np.linalg.LinAlgError:
            return x

    _, derivative = transform(f, X)
    np.testing.assert_allclose(derivative(CT), CT / np.diag(a))


@pytest.mark.filterwarnings("ignore:.*runs as plain Python:tracegrad.errors.PerformanceWarning")
@transforms
def test_a_call_that_runs_as_plain_python_has_a_derivative(transform: Any, tmp_path: Any) -> None:
    def f(x: Any) -> Any:
        with (tmp_path / "log").open("a") as log:
            log.write("x")
        return x * x

    for k in range(2):
        _, derivative = transform(f, X + k)
        np.testing.assert_allclose(derivative(CT), 2 * (X + k) * CT)
        assert (tmp_path / "log").read_text() == "x" * (k + 1)


def test_a_rule_that_asks_for_the_cotangent_or_changes_something_runs_when_the_pullback_does() -> None:
    calls = []

    @tg.custom_vjp
    def g(x: Any) -> Any:
        return x * 2

    g.defvjp(lambda x: (x * 2, x), lambda x, ct: (x * ct * (3 if ct[0] > 0 else 5),))
    _, pull = tg.vjp(lambda x: g(x * 1.0), X)
    np.testing.assert_allclose(pull(CT)[0], 3 * X * CT)
    np.testing.assert_allclose(pull(-CT)[0], -5 * X * CT)

    @tg.custom_vjp
    def h(x: Any) -> Any:
        return x * 2

    def back(x: Any, ct: Any) -> Any:
        calls.append(1)
        return (x * ct,)

    h.defvjp(lambda x: (x * 2, x), back)
    x = X.copy()
    _, pull = tg.vjp(h, x)
    x[:] = 0.0
    assert calls == []
    for k in range(3):
        np.testing.assert_allclose(pull(CT)[0], X * CT)
        assert len(calls) == k + 1


def test_a_rule_for_tangents_that_asks_for_one_is_refused() -> None:
    @tg.custom_jvp
    def g(x: Any) -> Any:
        return x * 2

    @g.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        return g(primals[0]), tangents[0] * (2 if tangents[0][0] > 0 else 3)

    with pytest.raises(tg.UnsupportedError, match=r"of a tangent of .* \(.*test_split_program.py:\d+\)"):
        tg.linearize(g, X)


def test_pullbacks_in_a_trace_and_on_tensors() -> None:
    _, pull = tg.vjp(lambda x: np.sin(x) * x, X)
    want = (np.cos(X) * X + np.sin(X)) * CT
    traced = tg.trace(lambda ct: pull(ct)[0] * 2.0)
    for _ in range(2):
        np.testing.assert_allclose(traced(CT), 2 * want, rtol=1e-14)
    ct = tg.tensor(CT, requires_grad=True)
    pull(ct)[0].sum().backward()
    np.testing.assert_allclose(ct.grad.numpy(), want / CT, rtol=1e-14)
