"""`scipy.optimize.minimize` with constraints in traced code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from along import check_found, differences, named, replayed
from scipy.optimize import LinearConstraint, NonlinearConstraint, minimize

import tracegrad as tg
from tracegrad.errors import UnsupportedError

P, V = np.array([0.7, 1.2]), np.array([0.3, -0.5])
BEGIN = [0.5, 0.5]
# Solvers find minima to some 1e-8, and differences are off by that over their step.
STEP, NOISE = 1e-2, 2e-6


def cost(x: Any, p: Any) -> Any:
    return (x[0] - 1.0 - p[0]) ** 2 + (x[1] - 2.5 * p[1]) ** 2 + 0.1 * x[0] ** 4


def steepness(x: Any, p: Any) -> Any:
    return np.array([2.0 * (x[0] - 1.0 - p[0]) + 0.4 * x[0] ** 3, 2.0 * (x[1] - 2.5 * p[1])])


def below(p: Any) -> dict[str, Any]:
    return {"type": "ineq", "fun": lambda x: p[0] - x[0] * x[1]}


CASES: dict[str, Callable[[Any], Any]] = {
    "one holds": lambda p: minimize(cost, BEGIN, args=(p,), method="SLSQP", constraints=below(p), tol=1e-14).x,
    "none holds": lambda p: minimize(
        cost, BEGIN, (p,), jac=steepness, tol=1e-14,
        constraints={"type": "ineq", "fun": lambda x, q: 50.0 * q - x[0] * x[1], "args": (p[0],)}).x,
    "equal and not less": lambda p: minimize(
        cost, BEGIN, args=(p,), tol=1e-14, constraints=[
            {"type": "eq", "fun": lambda x: p[0] + 1.0 - x[0] - x[1], "jac": lambda x: -np.ones(2)},
            {"type": "ineq", "fun": lambda x: x + 5.0}]).x,
    "bounds": lambda p: minimize(
        cost, BEGIN, args=(p,), bounds=[(None, 0.3 * p[1]), (0.0, None)], constraints=below(p), tol=1e-14).x,
    "LinearConstraint": lambda p: minimize(
        cost, BEGIN, args=(p,), method="SLSQP", constraints=LinearConstraint([[1.0, 0.7], [1.0, -1.0]], -9.0, 1.0),
        tol=1e-14).x,
    "NonlinearConstraint": lambda p: minimize(
        cost, BEGIN, args=(p,), method="SLSQP", tol=1e-14,
        constraints=NonlinearConstraint(lambda x: x[0] ** 2 + p[0] * x[1] ** 2, 0.1, 1.0)).fun,
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_values_are_scipys_and_derivatives_those_of_differences(name: str) -> None:
    f = named(CASES[name], name)
    check_found(f, P)
    of = named(lambda p: np.sum(f(p) * np.array([1.0, 0.4])[: np.size(f(p))]), name)
    derivative = tg.grad(of)
    assert derivative(P) @ V == pytest.approx(differences(of, P, V, STEP), rel=1e-6, abs=NOISE)
    want = differences(lambda p: derivative(p) @ V, P, V, STEP)
    with replayed():
        assert tg.jvp(of, (P,), (V,))[1] == pytest.approx(derivative(P) @ V, rel=1e-9)
        assert V @ tg.hessian(of)(P) @ V == pytest.approx(want, rel=1e-5, abs=NOISE)


@pytest.mark.filterwarnings("ignore:delta_grad == 0.0:UserWarning")
def test_a_solver_that_stays_inside_finds_the_same_derivatives() -> None:
    exact = {"gtol": 1e-12, "xtol": 1e-14, "barrier_tol": 1e-12}

    def inside(p: Any) -> Any:
        return minimize(cost, BEGIN, args=(p,), method="trust-constr", constraints=below(p), options=exact).x

    np.testing.assert_allclose(tg.jacrev(inside)(P), tg.jacrev(CASES["one holds"])(P), rtol=1e-5)


def test_derivatives_are_those_of_what_is_left_when_a_constraint_is_solved_for() -> None:
    def free(p: Any) -> Any:
        return minimize(lambda x: cost([x[0], p[0] + 1.0 - x[0]], p), [0.5], tol=1e-12).x[0]

    def kept(p: Any) -> Any:
        return CASES["equal and not less"](p)[0]

    np.testing.assert_allclose(tg.grad(kept)(P), tg.grad(free)(P), rtol=1e-6)
    np.testing.assert_allclose(tg.hessian(kept)(P), tg.hessian(free)(P), rtol=1e-5, atol=1e-8)


def test_what_is_not_known_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match=r"scipy\.optimize\.minimize with traced bounds of a constraint"):
        tg.trace(lambda p: minimize(cost, BEGIN, (p,), constraints=NonlinearConstraint(lambda x: x[0], 0.0, p[0])).x)(P)
