"""Runge-Kutta methods as loops of a graph: SciPy's solutions, with as many steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import integrate

import tracegrad as tg
from tracegrad.avals import Aval
from tracegrad.ir import build
from tracegrad.ops.elementwise.table import multiply, negative, sin
from tracegrad.ops.shape.linear import concatenate, slice
from tracegrad.runtime.execution.program import compile_program, conformed, machine_code_count
from tracegrad.settings import settings
from tracegrad.solvers import ode_sensitivity
from tracegrad.solvers.ode_sensitivity import NUMBER
from tracegrad.solvers.runge_kutta import METHODS, fits, integrator, tables, tolerances

PAIR, SINGLE = (Aval((n,), np.dtype(np.float64)) for n in (2, 1))
P, START, TIMES = np.array([0.9]), np.array([1.0, 0.3]), np.linspace(0.0, 6.0, 7)


def swing(t: Any, z: Any, p: Any) -> Any:
    return np.array([z[1], -np.sin(z[0]) * p[0] * t])


def burst(t: Any, z: Any, p: Any) -> Any:
    return z * z * p


def _swing(t: Any, z: Any, y: Any, p: Any) -> Any:
    place, speed = (slice(z, start=(k,), stop=(k + 1,), step=(1,)) for k in range(2))
    return [concatenate(speed, negative(multiply(multiply(sin(place), p), t)), axis=0)]


GRAPHS = {
    f: build(fn, [NUMBER, PAIR, PAIR, SINGLE])
    for f, fn in ((swing, _swing), (burst, lambda t, z, y, p: [multiply(multiply(z, z), p)]))
}
BEGIN = build(lambda t, y, p: [y], [NUMBER, PAIR, SINGLE])


def solved(derivative: Any, method: str, ends: Any, times: Any, options: Any) -> Any:
    """The solution, how often the slope was called and the status: by the loop, and by SciPy."""
    assert fits(options, 2, ends, times)
    graph = integrator(BEGIN, GRAPHS[derivative], method, options, len(times))
    kinds = ("float", "float", *["array"] * (len(graph.inputs) - 2))
    args = map(conformed, [np.asarray(times), *tolerances(options), *tables(method), START, P])
    with np.errstate(all="ignore"):
        result = integrate.solve_ivp(derivative, ends, START, method, times, args=(P,), **options)
    return compile_program(graph, kinds, False).run([*map(float, ends), *args]), result


OPTIONS: dict[str, Any] = {
    "as usual": {},
    "tight": {"rtol": 1e-10, "atol": 1e-12},
    "of each element": {"rtol": np.array([1e-5, 1e-8]), "atol": np.array([1e-6, 1e-9])},
    "short steps": {"max_step": 0.05},
    "a first step that is too long": {"first_step": 2.5, "rtol": 1e-8},
}
TIMINGS: dict[str, Any] = {
    "forwards": ((0.0, 6.0), TIMES),
    "backwards": ((6.0, -1.0), TIMES[::-1] - 0.5),
    "many within a step": ((0.0, 6.0), np.linspace(1.0, 3.0, 301)),
    "one": ((0.0, 6.0), [6.0]),
    "only the first": ((0.5, 6.0), [0.5]),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("times", TIMINGS)
def test_steps_are_scipys(method: str, options: str, times: str) -> None:
    (rows, calls, status), result = solved(swing, method, *TIMINGS[times], OPTIONS[options])
    np.testing.assert_allclose(rows, result.y.T, rtol=1e-9, atol=1e-11)
    assert (calls, status) == (result.nfev, 0)


@pytest.mark.parametrize("method", METHODS)
def test_where_steps_become_too_short_the_rest_is_nan(method: str) -> None:
    (rows, calls, status), result = solved(burst, method, (0.0, 6.0), TIMES, {})
    assert (status, result.status) == (-1, -1)
    # Next to the pole, the last bits decide how many steps are tried.
    assert calls == pytest.approx(result.nfev, rel=0.05)
    reached = result.y.shape[1]
    assert 0 < reached < len(TIMES)
    np.testing.assert_allclose(rows[:reached], result.y.T, rtol=1e-9)
    assert np.isnan(rows[reached:]).all()


@pytest.mark.parametrize("method", METHODS)
def test_a_system_that_rests_takes_few_steps(method: str) -> None:
    still = build(lambda t, z, y, p: [multiply(z, 0.0)], [NUMBER, PAIR, PAIR, SINGLE])
    GRAPHS[rests] = still
    (rows, calls, status), result = solved(rests, method, (0.0, 6.0), TIMES, {})
    np.testing.assert_array_equal(rows, result.y.T)
    assert (calls, status) == (result.nfev, 0)


def rests(t: Any, z: Any, p: Any) -> Any:
    return z * 0.0


@pytest.mark.parametrize(
    ("options", "ends", "times"),
    [
        ({"rtol": 1e-15}, (0.0, 1.0), [0.5]),
        ({"atol": -1.0}, (0.0, 1.0), [0.5]),
        ({"atol": np.ones(3)}, (0.0, 1.0), [0.5]),
        ({"first_step": 2.0}, (0.0, 1.0), [0.5]),
        ({"max_step": 0.0}, (0.0, 1.0), [0.5]),
        ({"min_step": 0.1}, (0.0, 1.0), [0.5]),
        ({}, (0.0, 0.0), [0.0]),
        ({}, (0.0, 1.0), []),
        ({}, (0.0, 1.0), [0.5, 0.5]),
        ({}, (0.0, 1.0), [0.5, 1.5]),
        ({}, (1.0, 0.0), [0.2, 0.5]),
        ({}, (0.0, np.nan), [0.5]),
        ({}, (0.0, np.inf), [0.5]),
    ],
)
def test_what_scipy_warns_of_refuses_or_does_without_a_step_is_left_to_it(options: Any, ends: Any, times: Any) -> None:
    assert not fits(options, 2, ends, np.array(times))


def fitted(p: Any, times: Any = TIMES, **options: Any) -> Any:
    return integrate.solve_ivp(swing, (0.0, 6.0), START, t_eval=times, args=(p,), **options).y


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The methods by which SciPy has solved."""
    results: list[str] = []
    run = ode_sensitivity.System.run

    def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
        results.append(self.method)
        return run(self, *args, **kwargs)

    monkeypatch.setattr(ode_sensitivity.System, "run", watched)
    return results


@pytest.mark.parametrize(("first_call", "most"), [("replay", 2), ("compile", 0)])
def test_scipy_solves_no_more_from_the_second_solution_on(
    first_call: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_scipy = counted(monkeypatch)
    with settings.override(first_call=first_call):
        derivative = tg.value_and_grad(lambda p: np.sum(fitted(p) ** 2))
        derivative(P)
        assert len(by_scipy) == most
        derivative(P * 1.1)
        before = machine_code_count()
        for p in (P * 1.2, P * 1.3):
            value, _ = derivative(p)
            assert value == pytest.approx(np.sum(fitted(p) ** 2), rel=1e-9)
        assert len(by_scipy) == most
        assert machine_code_count() == before


def test_errors_of_scipys_are_raised() -> None:
    f = tg.trace(lambda p, t: fitted(p, t))
    for _ in range(2):
        f(P, TIMES)
    with pytest.raises(ValueError, match="not within"):
        f(P, TIMES + 1.0)
    with pytest.raises(ValueError, match="not properly sorted"):
        f(P, TIMES[::-1].copy())


def test_a_derivative_with_an_integral_in_it_is_solved_for_too() -> None:
    def f(p: Any) -> Any:
        def slope(t: Any, y: Any) -> Any:
            return -y * integrate.quad(lambda x: x * p[0] + t, 0.0, 1.0)[0]

        return integrate.solve_ivp(slope, (0.0, 1.0), START, t_eval=[0.5, 1.0]).y

    traced: Callable[..., Any] = tg.trace(f)
    for p in (P, 2.0 * P):
        np.testing.assert_allclose(traced(p), f(p), rtol=1e-10)


def test_an_error_in_the_loop_is_raised_at_the_users_line() -> None:
    factors = np.array([1.0, 0.5])

    def f(k: Any) -> Any:
        def slope(t: Any, y: Any) -> Any:
            return y * factors[k + 0 * np.int64(t)]

        return integrate.solve_ivp(slope, (0.0, 1.0), START, t_eval=[0.5, 1.0]).y

    traced = tg.trace(f)
    for k in (0, 1):
        np.testing.assert_allclose(traced(np.array(k)), f(np.array(k)), rtol=1e-10)
    with pytest.raises(IndexError, match="2 is out of bounds") as told:
        traced(np.array(2))
    assert "slope" in [each.name for each in told.traceback]
