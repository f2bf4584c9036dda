"""`solve_ivp` and `odeint` in traced code: SciPy's values, and slopes of solutions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from along import differences, named, replayed, weighted
from scipy import integrate

import tracegrad as tg
from tracegrad.errors import TraceError, UnsupportedError

P, V = np.array([0.7, 1.2]), np.array([0.3, -0.5])
TIMES = np.linspace(0.0, 1.5, 3)
EXACT: dict[str, Any] = {"rtol": 1e-10, "atol": 1e-12}
STEP = 5e-3


def pendulum(t: Any, y: Any, p: Any) -> Any:
    return [y[1], -p[0] * np.sin(y[0]) - 0.1 * y[1] * p[1] + np.cos(t * p[1])]


def decay(y: Any, t: Any, a: Any, b: Any) -> Any:
    return -a * y**2 + b * np.cos(t)


def falls(t: Any, y: Any, p: Any) -> Any:
    return [y[1], -9.81 * p[0] - 0.1 * y[1]]


def ground(t: Any, y: Any, p: Any) -> Any:
    return y[0]


def highest(t: Any, y: Any, p: Any) -> Any:
    return y[1]


ground.terminal, ground.direction = True, -1  # type: ignore[attr-defined]


def swing_by(p: Any) -> Any:
    """Crossings of a line that moves, of which the third ends it."""

    def line(t: Any, y: Any) -> Any:
        return y[0] - 0.1 * p[1] * t

    line.terminal = 3  # type: ignore[attr-defined]
    result = integrate.solve_ivp(lambda t, y: [y[1], -p[0] * y[0]], (0.0, 99.0), [p[1], 0.0], events=line, **EXACT)
    return np.concatenate([result.t_events[0], result.y_events[0][:, 1], result.t[-1:], result.y[:, -1]])


def thrown(p: Any, **options: Any) -> Any:
    return integrate.solve_ivp(falls, (0.0, 5.0), [p[1], 3.0], events=[ground, highest], args=(p,), **options, **EXACT)


def all_of(found: Any) -> Any:
    parts = [found.t, found.y, *found.t_events, *found.y_events]
    return np.concatenate([np.reshape(x, -1) for x in parts])


CASES: dict[str, Callable[[Any], Any]] = {
    "events, the last terminal": lambda p: thrown(p, method="DOP853").y[:, -1] * thrown(p, method="DOP853").t[-1],
    "events, times and states": lambda p: np.concatenate(
        [*thrown(p).t_events, *np.reshape(thrown(p).y_events, (2, 2))]),
    "events, at times": lambda p: all_of(thrown(p, t_eval=np.linspace(0.0, 5.0, 9))),
    "events, the third terminal": swing_by,
    "events, backwards": lambda p: integrate.solve_ivp(
        lambda t, y: decay(y, t, p[0], p[1]), (p[0], -2.0), [0.3], events=lambda t, y: y[0] + 0.1 * p[1] * t - 0.1,
        **EXACT).t_events[0],
    "parameters": lambda p: integrate.solve_ivp(
        pendulum, (0.0, 1.5), [1.0, 0.3], t_eval=TIMES, args=(p,), **EXACT).y,
    "initial value": lambda p: integrate.solve_ivp(
        lambda t, y: pendulum(t, y, [1.0, 2.0]), (0.0, 1.5), p, "DOP853", TIMES, **EXACT).y,
    "its own steps": lambda p: integrate.solve_ivp(
        lambda t, y: pendulum(t, y, p), (0.0, 1.5), p, atol=np.array([1e-10, 1e-11]), rtol=1e-9).y[:, -1],
    "ends": lambda p: integrate.solve_ivp(
        lambda t, y: pendulum(t, y, p), (p[0] - 1.0, p[1]), [1.0, 0.5], "DOP853", **EXACT).y[:, -1],
    "backwards, times": lambda p: integrate.solve_ivp(
        lambda t, y: decay(y, t, p, p[0]), (p[0], -p[1] / 4.0), p * 0.3,
        t_eval=p[0] - np.array([0.0, 0.6]) * p[1], **EXACT).y,
    "LSODA": lambda p: integrate.solve_ivp(pendulum, (0.0, 1.5), p, "LSODA", TIMES, args=(p,), **EXACT).y,
    "Radau, jac": lambda p: integrate.solve_ivp(
        lambda t, y: -p * y**2 + np.cos(t), (0.0, 0.3), [1.0, 0.3], "Radau", 0.1 * TIMES,
        jac=lambda t, y: np.diag(-2.0 * p * y), **EXACT).y,
    "odeint": lambda p: integrate.odeint(decay, p[0], TIMES, args=(p[0], p[1]), **EXACT),
    "odeint, tfirst": lambda p: integrate.odeint(
        lambda t, y: decay(y, t, *p), p, [0.0, p[0]], tfirst=True, **EXACT)[-1],
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_values_are_scipys_and_derivatives_those_of_differences(name: str) -> None:
    f = named(CASES[name], name)
    np.testing.assert_allclose(tg.trace(f)(P), f(P), rtol=1e-12, atol=1e-13)
    of = weighted(f, name)
    derivative = tg.grad(of)
    assert np.sum(derivative(P) * V) == pytest.approx(differences(of, P, V, STEP), rel=2e-7, abs=1e-8)
    want = differences(lambda p: np.sum(derivative(p) * V), P, V, STEP)
    with replayed():
        assert tg.jvp(of, (P,), (V,))[1] == pytest.approx(np.sum(derivative(P) * V), rel=1e-7, abs=1e-9)
        second = tg.grad(named(lambda p: np.sum(derivative(p) * V), name))(P)
        assert np.sum(second * V) == pytest.approx(want, rel=1e-6, abs=1e-8)
        assert V @ tg.hessian(of)(P) @ V == pytest.approx(np.sum(second * V), rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("name", ["parameters", "its own steps", "odeint", "events, times and states"])
def test_derivatives_without_jit_are_the_same(name: str) -> None:
    compiled = tg.jacrev(CASES[name])(P)
    with tg.disable_jit():
        np.testing.assert_allclose(CASES[name](P), tg.trace(CASES[name])(P), rtol=1e-12)
        np.testing.assert_allclose(tg.jacrev(CASES[name])(P), compiled, rtol=1e-9, atol=1e-12)


def test_events_of_which_there_are_none_are_empty_and_their_number_is_asked_at_each_call() -> None:
    def times(p: Any) -> Any:
        return integrate.solve_ivp(
            lambda t, y: [y[1], -p[0] * y[0]],
            (0.0, 9.0),
            [1.0, 0.0],
            events=[lambda t, y: y[0] - p[1], beyond],
            **EXACT,
        )

    def beyond(t: Any, y: Any) -> Any:
        return y[0] + 1.2

    f = tg.trace(lambda p: (times(p).t_events, times(p).y_events, times(p).status))
    for p in (np.array([0.7, 0.2]), np.array([2.7, 0.4]), np.array([0.7, 1.5]), np.array([0.7, 0.3])):
        result = times(p)
        ours = f(p)
        assert [x.shape for x in ours[0]] == [x.shape for x in result.t_events]
        assert [x.shape for x in ours[1]] == [x.shape for x in result.y_events]
        np.testing.assert_allclose(np.concatenate(ours[0]), np.concatenate(result.t_events), rtol=1e-12)
        assert ours[2] == result.status


def test_the_compiled_program_solves_at_each_call() -> None:
    f = tg.trace(CASES["parameters"], tiered=False)
    derivative = tg.grad(lambda p: np.sum(CASES["parameters"](p)))
    for p in (P, P + 0.1, P + 0.2):
        np.testing.assert_allclose(f(p), CASES["parameters"](p), rtol=1e-12)
        want = differences(lambda q: np.sum(CASES["parameters"](q)), p, V, STEP)
        assert derivative(p) @ V == pytest.approx(want, rel=2e-7)


def test_each_of_a_batch_is_solved() -> None:
    derivative = tg.jacobian(CASES["parameters"])
    points = np.stack([P, P + 0.01])
    np.testing.assert_allclose(tg.vmap(derivative)(points), [derivative(p) for p in points], rtol=1e-9)


def test_another_number_of_steps_is_noticed() -> None:
    def f(p: Any) -> Any:
        result = integrate.solve_ivp(lambda t, y: -p[0] * y, (0.0, 1.0), [1.0, 2.0])
        return result.t, result.y, result.nfev, result.success

    traced = tg.trace(f)
    for scale in (1.0, 30.0, 1.0):
        for got, want in zip(traced(P * scale), f(P * scale)):
            np.testing.assert_allclose(got, want, rtol=1e-14)


def test_a_law_of_many_parameters_has_the_derivatives_of_its_closed_form() -> None:
    a = np.arange(9.0).reshape(3, 3) / 7.0 - 0.5
    scales = np.linspace(-0.4, 0.6, 50)

    def solved(a: Any, s: Any) -> Any:
        return np.sum(integrate.solve_ivp(lambda t, y: a @ y * np.sum(s), (0.0, 1.0), np.ones(3), **EXACT).y[:, -1])

    def closed(a: Any, s: Any) -> Any:
        from scipy.linalg import expm

        return np.sum(expm(a * np.sum(s)) @ np.ones(3))

    for got, want in zip(tg.grad(solved, argnums=(0, 1))(a, scales), tg.grad(closed, argnums=(0, 1))(a, scales)):
        np.testing.assert_allclose(got, want, rtol=1e-8)


def test_what_the_solver_did_not_reach_is_nan() -> None:
    result = tg.trace(lambda p: integrate.solve_ivp(lambda t, y: p[0] * y**2, (0.0, 3.0), [1.0], t_eval=[1.0, 2.5]))(P)
    assert not result.success
    assert result.status == -1
    assert np.isfinite(result.y[0, 0])
    assert np.isnan(result.y[0, 1])


@pytest.mark.parametrize(
    ("f", "what"),
    [
        (lambda p: integrate.solve_ivp(lambda t, y: 1j * y, (0, 1), p + 0j, events=highest), r"events= of scipy"),
        (lambda p: integrate.solve_ivp(pendulum, (0, 1), p, args=(p,)).message, r"the field 'message'"),
        (lambda p: integrate.solve_ivp(pendulum, (0, 1), p, args=(p,), rtol=p[0]), r"traced value for rtol="),
        (lambda p: integrate.odeint(decay, p, TIMES, full_output=True), r"full_output= of scipy\.integrate\.odeint"),
    ],
)
def test_what_is_not_known_is_refused_by_name(f: Any, what: str) -> None:
    with pytest.raises(UnsupportedError, match=what):
        tg.trace(f)(P)


def test_inside_a_loop_the_times_have_to_be_given() -> None:
    def turn(y: Any, x: Any) -> Any:
        return integrate.solve_ivp(lambda t, y: -x * y, (0.0, 1.0), y).y[:, -1], x

    with pytest.raises(TraceError, match=r"the number of steps of scipy\.integrate\.solve_ivp without"):
        tg.trace(lambda p: tg.scan(turn, p, TIMES)[0])(P)
