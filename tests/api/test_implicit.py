"""`tg.implicit`: derivatives of solutions, whatever found them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad import implicit
from tracegrad.errors import ShapeError

A = np.array([2.0, 3.0])
START = {"p": 1.0, "q": np.ones(2)}


def equation(x: Any, a: Any) -> Any:
    return {"square": x["p"] ** 2 - a[0], "product": x["q"] - x["p"] * a}


def known(a: Any) -> Any:
    p = np.sqrt(a[0])
    return {"p": p, "q": p * a}


def by_hand(x0: Any, a: Any) -> Any:
    """As a solver in another language: it needs ndarrays."""
    assert type(x0["p"]) is float
    assert type(a) is np.ndarray
    return known(a)


SOLVERS = {"scipy": implicit.root(equation, tol=1e-14), "the user's": implicit.root(equation, solver=by_hand)}


def weighed(x: Any) -> Any:
    return x["p"] + 2.0 * x["q"][0] - 3.0 * x["q"][1]


@pytest.mark.parametrize("name", SOLVERS)
def test_derivatives_of_roots_are_those_of_the_known_solution(name: str) -> None:
    solve = SOLVERS[name]
    result = solve(START, A)
    np.testing.assert_allclose(result["q"], known(A)["q"], rtol=1e-12)

    def of(a: Any) -> Any:
        return weighed(solve(START, a))

    def wanted(a: Any) -> Any:
        return weighed(known(a))

    np.testing.assert_allclose(tg.grad(of)(A), tg.grad(wanted)(A), rtol=1e-10)
    np.testing.assert_allclose(tg.jvp(of, (A,), (A[::-1],))[1], tg.jvp(wanted, (A,), (A[::-1],))[1], rtol=1e-10)
    np.testing.assert_allclose(tg.hessian(of)(A), tg.hessian(wanted)(A), rtol=1e-9, atol=1e-12)
    with tg.disable_jit():
        np.testing.assert_allclose(tg.grad(of)(A), tg.grad(wanted)(A), rtol=1e-10)


def test_a_users_solver_runs_at_each_call_of_the_compiled_function() -> None:
    calls = []

    def solver(x0: Any, a: Any) -> Any:
        calls.append(a.copy())
        return known(a)

    derivative = tg.grad(lambda a: weighed(implicit.root(equation, solver=solver)(START, a)))
    for k in range(4):
        calls.clear()
        np.testing.assert_allclose(derivative(A + k), tg.grad(lambda a: weighed(known(a)))(A + k), rtol=1e-12)
        np.testing.assert_array_equal(calls[-1], A + k)


def test_fixed_points_are_roots_of_the_gap() -> None:
    solves = [
        implicit.fixed_point(lambda x, a: {"x": np.cos(a * x["x"])}, **options)
        for options in ({"xtol": 1e-14}, {"solver": lambda x0, a: {"x": iterated(x0["x"], a)}})
    ]
    a, start = np.array([0.7, 0.9]), {"x": np.array([0.5, 0.6])}
    x = iterated(start["x"], a)
    want = -np.sin(a * x) * x / (1.0 + a * np.sin(a * x))
    for solve in solves:
        np.testing.assert_allclose(solve(start, a)["x"], x, rtol=1e-12)
        np.testing.assert_allclose(tg.grad(lambda a, solve=solve: np.sum(solve(start, a)["x"]))(a), want, rtol=1e-10)


def iterated(x: Any, a: Any) -> Any:
    for _ in range(400):
        x = np.cos(a * x)
    return x


def test_minimizers_are_roots_of_the_gradient_and_may_have_bounds() -> None:
    def ridge(w: Any, a: Any) -> Any:
        return np.sum((w - 1.0) ** 2) + np.sum(a * w**2)

    exact = implicit.minimizer(ridge, solver=lambda w, a: 1.0 / (1.0 + a))
    for solve in (exact, implicit.minimizer(ridge, tol=1e-12)):
        np.testing.assert_allclose(solve(np.zeros(2), A), 1.0 / (1.0 + A), rtol=1e-6)
        np.testing.assert_allclose(tg.jacrev(solve, 1)(np.zeros(2), A), -np.diag(1.0 / (1.0 + A) ** 2), rtol=1e-5)
    third = tg.grad(lambda a: tg.grad(lambda a: np.sum(exact(np.zeros(2), a)))(a)[0])(A)
    np.testing.assert_allclose(third, [2.0 / (1.0 + A[0]) ** 3, 0.0], rtol=1e-8)
    bounded = implicit.minimizer(ridge, tol=1e-12, bounds=[(0.3, None), (None, None)])
    np.testing.assert_allclose(bounded(np.zeros(2), A), [1.0 / 3.0, 0.25], rtol=1e-6)
    high = implicit.minimizer(ridge, tol=1e-12, bounds=[(0.5, None), (None, None)])
    np.testing.assert_allclose(tg.jacrev(high, 1)(np.zeros(2), A), [[0.0, 0.0], [0.0, -1.0 / 16.0]], atol=1e-6)


def test_a_batch_is_solved_example_by_example() -> None:
    cube = implicit.root(lambda x, a: x**3 - a, tol=1e-14)
    a = np.array([1.0, 8.0, 27.0])
    np.testing.assert_allclose(tg.vmap(lambda a: cube(1.0, a))(a), [1.0, 2.0, 3.0], rtol=1e-10)
    np.testing.assert_allclose(tg.vmap(tg.grad(cube, 1), (None, 0))(1.0, a), a ** (-2.0 / 3.0) / 3.0, rtol=1e-8)


def test_it_is_made_once_for_a_function_and_its_options() -> None:
    assert implicit.root(equation, tol=1e-8) is implicit.root(equation, tol=1e-8)
    assert implicit.root(equation, tol=1e-8) is not implicit.root(equation, tol=1e-9)


def test_errors_name_what_is_wrong() -> None:
    with pytest.raises(TypeError, match="root takes a function, got a int"):
        implicit.root(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="minimizer: solver= takes a function"):
        implicit.minimizer(equation, solver=3)  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match="does not fit x0"):
        implicit.root(equation, solver=lambda x0, a: 3.0)(START, A)
    with pytest.raises(ZeroDivisionError):
        implicit.root(equation, solver=lambda x0, a: 1 // 0)(START, A)
    with pytest.raises(tg.UnsupportedError, match="does not depend on what is solved for"):
        tg.grad(implicit.root(lambda x, a: a, solver=lambda x0, a: x0), 1)(1.0, 2.0)
