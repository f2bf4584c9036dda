"""`scipy.optimize` and `scipy.integrate.quad` in traced code: SciPy's values, and slopes of what is defined by them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from along import check_found, differences, named, replayed, weighted
from scipy import integrate, optimize

import tracegrad as tg
from tracegrad.errors import TraceError, UnsupportedError

P, V = np.array([0.7, 1.2]), np.array([0.3, -0.5])
COST = np.array([[1.0, 3.0, 2.0], [4.0, 1.0, 0.0], [2.0, 2.0, 5.0]])
TIMES = np.arange(5.0)
STEP = 2e-3


def pair(x: Any, p: Any) -> Any:
    return [x[0] ** 2 + p[0] * x[1] - 3.0, x[1] ** 3 - p[1] * x[0]]


def slopes(x: Any, p: Any) -> Any:
    return np.array([[2.0 * x[0], p[0]], [-p[1], 3.0 * x[1] ** 2]])


def fitted(p: Any, jac: Any) -> Any:
    y = np.exp(-p[0] * TIMES) * p[1] + 1e-3 * np.sin(3.0 * TIMES)
    result = optimize.least_squares(
        lambda x: x[1] * np.exp(-x[0] * TIMES) - y,
        np.array([0.5, 1.0]),
        jac=jac,
        method="lm",
        xtol=1e-15,
        ftol=1e-15,
        gtol=1e-15,
    )
    return result.x[0] + 2.0 * result.x[1] + result.cost + np.sum(result.fun[:2])


def bounded(p: Any) -> Any:
    centre = np.array([1.0, -2.0, 3.0])
    return optimize.minimize(
        lambda x: (
            np.sum((x - p[0] * centre) ** 4 + (x - p[1]) ** 2),
            4.0 * (x - p[0] * centre) ** 3 + 2.0 * (x - p[1]),
        ),
        np.zeros(3),
        jac=True,
        bounds=[(0.0, None), (p[0] * 0.5, None), (None, 1.5)],
        options={"gtol": 1e-12},
        tol=1e-15,
    ).x


CASES: dict[str, Callable[[Any], Any]] = {
    **{f"{f.__name__}": (lambda p, f=f: f(lambda x: x**3 + p[0] * x - p[1], 0.0, 2.0, xtol=1e-14)) for f in (
        optimize.brentq, optimize.brenth, optimize.bisect, optimize.ridder, optimize.toms748)},
    "brentq, ends": lambda p: optimize.brentq(lambda x: np.cos(x) * p[1] - p[0] * x, 0.0, p[0] + 2.0),
    "brentq, args": lambda p: optimize.brentq(lambda x, a, b: x * a - b, 0.0, 3.0, args=(p[0], p[1])),
    "brentq, full": lambda p: optimize.brentq(lambda x: x**3 - p[1], 0.0, 3.0, full_output=True)[1].root,
    "newton": lambda p: optimize.newton(lambda x: x**3 + p[0] * x - p[1], 1.0, tol=1e-14),
    "newton, slope": lambda p: optimize.newton(
        lambda x, c: x**3 + p[0] * x - c, p[0], fprime=lambda x, c: 3.0 * x * x + p[0], args=(p[1],)),
    "newton, several": lambda p: optimize.newton(lambda x: x**3 + p[0] * x - p, np.array([1.0, 0.7]), tol=1e-14),
    "root_scalar": lambda p: optimize.root_scalar(
        lambda x: x**3 + p[0] * x - p[1], bracket=[0.0, p[1] + 3.0], xtol=1e-14).root,
    "root_scalar, newton": lambda p: optimize.root_scalar(
        lambda x: x**3 + p[0] * x - p[1], x0=1.0, fprime=lambda x: 3.0 * x * x + p[0], method="newton").root,
    "root": lambda p: optimize.root(pair, np.ones(2), args=(p,), tol=1e-14).x,
    "root, jac": lambda p: optimize.root(pair, p * 0.1 + 1.0, args=(p,), jac=slopes, method="lm", tol=1e-14)["x"],
    "fixed_point": lambda p: optimize.fixed_point(lambda x: np.cos(p[0] * x) * p[1], 0.5, xtol=1e-13),
    "fixed_point, several": lambda p: optimize.fixed_point(
        lambda x: np.sqrt(p / (x + p[::-1])), np.array([1.2, 1.3]), xtol=1e-13),
    "minimize": lambda p: optimize.minimize(
        lambda x: np.sum((x - p) ** 4 + x**2), [0.0, 0.0], jac=lambda x: 4.0 * (x - p) ** 3 + 2.0 * x, tol=1e-13).x,
    "minimize, its value": lambda p: optimize.minimize(
        lambda x: np.sum((x - p) ** 4 + x**2), [0.0, 0.0], jac="3-point", tol=1e-10).fun,
    "minimize, bounds": bounded,
    "least_squares": lambda p: fitted(p, lambda x: np.stack(
        [-x[1] * TIMES * np.exp(-x[0] * TIMES), np.exp(-x[0] * TIMES)], axis=1)),
    "linear_sum_assignment": lambda p: (lambda cost: cost[optimize.linear_sum_assignment(cost)])(
        COST * p[0] + p[1] ** 2 * np.eye(3)),
    "quad": lambda p: integrate.quad(lambda x: np.exp(-p[0] * x * x) * np.cos(p[1] * x), 0.0, 2.0)[0],
    "quad, to infinity": lambda p: integrate.quad(
        lambda x, q: np.exp(-q * x * x) * np.cos(p[1] * x), -np.inf, np.inf, args=(p[0],))[0],
    "quad, ends": lambda p: integrate.quad(
        lambda x: np.exp(-p[0] * x * x) * np.cos(p[1] * x), p[0] - 1.0, p[1] ** 2)[0],
    "quad, points": lambda p: integrate.quad(
        lambda x: np.abs(x - 0.3) * np.exp(-p[0] * x) * p[1], 0.0, p[0] + 1.0, points=[0.3])[0],
    "quad, weight cos": lambda p: integrate.quad(
        lambda x, c: np.exp(-p[0] * x * x) * c, p[0] * 0.1, p[1], (p[1],), weight="cos", wvar=3.0)[0],
    "quad, weight sin": lambda p: integrate.quad(
        lambda x: np.exp(-p[0] * x) / p[1], p[0], np.inf, weight="sin", wvar=2.0, epsabs=1e-12)[0],
    "quad, weight cauchy": lambda p: integrate.quad(
        lambda x: np.exp(-p[0] * x) * p[1], -1.0, p[1], weight="cauchy", wvar=0.3)[0],
    "quad, weight alg": lambda p: integrate.quad(
        lambda x: np.exp(-p[0] * x) * p[1], 0.0, 1.5, weight="alg", wvar=(-0.5, 0.2))[0],
    "quad, complex": lambda p: np.abs(integrate.quad(
        lambda x: np.exp(1j * p[0] * x) * p[1], 0.0, p[1], complex_func=True)[0]) ** 2,
    "quad in quad": lambda p: integrate.quad(
        lambda x: integrate.quad(lambda y: np.sin(x * y * p[0]), 0.0, x)[0] * p[1], 0.0, 1.0)[0],
    "dblquad": lambda p: integrate.dblquad(
        lambda y, x, c: np.exp(-p[0] * x * y) * c, p[0], p[1], 0.0, lambda x: x * p[1], args=(p[1],))[0],
    "nquad": lambda p: integrate.nquad(
        lambda x, z: np.exp(x * p[0]) + z * p[1], [lambda z: (0.0, p[1] * z), (0.0, 1.0)])[0],
    "quad_vec": lambda p: integrate.quad_vec(
        lambda x: np.exp(-p[:, None] * np.stack([x, x * x])), 0.0, p[1], epsrel=1e-12)[0],
    "fixed_quad": lambda p: integrate.fixed_quad(lambda x, c: np.exp(-p[0] * x) * c, p[0], p[1] * 2.0, (p[1],), n=4)[0],
    "quad in brentq": lambda p: optimize.brentq(
        lambda x: integrate.quad(lambda y: np.exp(-y * y * p[0]), 0.0, x)[0] - p[1] / 3.0, 0.0, 2.0, xtol=1e-14),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_values_are_scipys_and_derivatives_those_of_differences(name: str) -> None:
    f = named(CASES[name], name)
    if name in ("minimize", "least_squares"):
        check_found(f, P)
    else:
        np.testing.assert_allclose(tg.trace(f)(P), f(P), rtol=1e-12, atol=1e-14)
    of = weighted(f, name)
    derivative = tg.grad(of)
    assert np.sum(derivative(P) * V) == pytest.approx(differences(of, P, V, STEP), rel=1e-7, abs=1e-9)
    want = differences(lambda p: np.sum(derivative(p) * V), P, V, STEP)
    with replayed():
        assert tg.jvp(of, (P,), (V,))[1] == pytest.approx(np.sum(derivative(P) * V), rel=1e-12)
        second = tg.grad(named(lambda p: np.sum(derivative(p) * V), name))(P)
        assert np.sum(second * V) == pytest.approx(want, rel=1e-6, abs=1e-8)
        assert V @ tg.hessian(of)(P) @ V == pytest.approx(np.sum(second * V), rel=1e-10, abs=1e-12)


def test_estimates_of_the_errors_of_integrals_are_scipys() -> None:
    def errors(p: Any) -> Any:
        box, cube = [(0.0, 1.0), lambda x: (0.0, x)], (lambda z, y, x: x * y * np.exp(p[0] * z), 0.0, 1.0, 0.0, 1.0)
        results = [
            integrate.nquad(lambda y, x: np.sin(p[0] * y * x), box[::-1]),
            integrate.tplquad(*cube, 0.0, lambda x, y: x + 2.0 * y),
            integrate.quad_vec(lambda x: np.sin(x * p), 0.0, 1.0),
        ]
        return np.stack([np.sum(value) for value, _ in results]), np.stack([error for _, error in results])

    for got, want in zip(tg.trace(errors)(P), errors(P)):
        np.testing.assert_allclose(got, want, rtol=1e-12)


def test_derivatives_of_least_squares_are_those_of_the_root_of_the_gradient() -> None:
    def rest(x: Any, p: Any) -> Any:
        return x[1] * np.exp(-x[0] * TIMES) - np.exp(-p[0] * TIMES) * p[1] - 0.1 * np.sin(3.0 * TIMES)

    def jac(x: Any, p: Any) -> Any:
        return np.stack([-x[1] * TIMES * np.exp(-x[0] * TIMES), np.exp(-x[0] * TIMES)], axis=1)

    def least(p: Any) -> Any:
        exact = {"xtol": 1e-15, "ftol": 1e-15, "gtol": 1e-15}
        return np.sum(V * optimize.least_squares(rest, [0.5, 1.0], jac, args=(p,), method="lm", **exact).x)

    def root(p: Any) -> Any:
        return np.sum(V * optimize.root(lambda x: np.sum(jac(x, p).T * rest(x, p), axis=1), [0.7, 1.2], tol=1e-15).x)

    assert tg.grad(root)(P) @ V == pytest.approx(differences(root, P, V, STEP), rel=1e-9)
    np.testing.assert_allclose(tg.grad(least)(P), tg.grad(root)(P), rtol=1e-8)
    np.testing.assert_allclose(tg.hessian(least)(P), tg.hessian(root)(P), rtol=1e-7)


@pytest.mark.parametrize("name", CASES)
def test_derivatives_without_jit_are_the_same(name: str) -> None:
    compiled = tg.jacrev(CASES[name])(P)
    with tg.disable_jit():
        np.testing.assert_allclose(tg.jacrev(CASES[name])(P), compiled, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["brentq", "root", "minimize", "quad, ends"])
def test_each_of_a_batch_is_solved(name: str) -> None:
    derivative = tg.jacobian(named(CASES[name], name))
    points = np.stack([P, P + 0.01, P - 0.02])
    np.testing.assert_allclose(tg.vmap(derivative)(points), [derivative(p) for p in points], rtol=1e-9)


def test_a_solver_runs_in_each_iteration_of_a_loop() -> None:
    def turn(c: Any, x: Any) -> Any:
        return optimize.brentq(lambda y: y**3 + c * y - x, 0.0, 3.0), c

    def looped(t: Any) -> Any:
        return tg.scan(turn, t, np.array([1.0, 2.0, 3.0]))[0]

    def written(t: Any) -> Any:
        for x in (1.0, 2.0, 3.0):
            t = turn(t, x)[0]
        return t

    assert tg.trace(looped)(1.5) == pytest.approx(written(1.5))
    assert tg.grad(looped)(1.5) == pytest.approx(differences(written, 1.5, 1.0, STEP), rel=1e-6)
    assert tg.grad(written)(1.5) == pytest.approx(tg.grad(looped)(1.5))


def test_what_a_solver_found_can_be_asked() -> None:
    asked = []

    def f(t: Any) -> Any:
        result = optimize.root_scalar(lambda x: x**3 + t * x - 2.0, bracket=[0.0, 2.0])
        asked.append(result.converged)
        return result.root * 2.0 if result.converged and result.iterations > 3 else result.root

    plain = f(1.5)
    assert tg.trace(f)(1.5) == plain
    assert tg.grad(f)(1.5) == pytest.approx(differences(f, 1.5, 1.0, STEP), rel=1e-6)


def test_the_numbers_of_a_result_are_scipys() -> None:
    def f(p: Any) -> Any:
        result = optimize.minimize(lambda x: np.sum((x - p) ** 4 + x**2), [0.0, 0.0])
        fit = optimize.least_squares(lambda x: np.stack([x[0] - p[0], x[0] ** 2 - p[1]]), [0.5])
        root = optimize.root(pair, [1.0, 1.0], args=(p,))
        return result.nfev, result.nit, result.status, result.fun, fit.nfev, fit.cost, root.nfev, root.fun

    for got, want in zip(tg.trace(f)(P), f(P)):
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)


def test_a_result_can_be_returned() -> None:
    def f(p: Any) -> Any:
        return optimize.root(pair, [1.0, 1.0], args=(p,)), optimize.brentq(lambda x: x - p[0], 0, 2, full_output=True)

    for g in (tg.trace(f), f):
        result, (root, facts) = g(P)
        assert result.x is result["x"]
        assert result.success
        assert facts.root == root == pytest.approx(0.7)
        assert not hasattr(facts, "unknown")
    np.testing.assert_array_equal(tg.trace(f)(P)[0].x, f(P)[0].x)


def test_what_the_function_reads_from_outside_may_change() -> None:
    held = {"level": 2.0}
    f = tg.trace(lambda t: optimize.brentq(lambda x: x**3 + t * x - held["level"], 0.0, 2.0))
    before = f(1.5)
    held["level"] = 1.0
    assert f(1.5) == pytest.approx(optimize.brentq(lambda x: x**3 + 1.5 * x - 1.0, 0.0, 2.0))
    assert f(1.5) != before


def test_a_process_that_finds_the_program_stored_solves_with_its_own_numbers() -> None:
    program = (
        "import sys\nimport tracegrad as tg\nfrom scipy import optimize\nK = float(sys.argv[1])\n"
        "def f(t):\n    return optimize.brentq(lambda x: x**3 + t * x - K, 0.0, 2.0)\n"
        "print(tg.trace(f)(1.5) == f(1.5), tg.grad(f)(1.5) + 1.0 / (3.0 * f(1.5) ** 2 + 1.5) * f(1.5))"
    )
    for level in ("2.0", "2.5", "2.0"):
        run = subprocess.run([sys.executable, "-c", program, level], capture_output=True, text=True, check=True)
        same, off = run.stdout.split()
        assert same == "True"
        assert abs(float(off)) < 1e-12


@pytest.mark.parametrize(
    ("f", "what"),
    [
        (lambda t: optimize.root(lambda x: x - t, [1.0]).message, r"the field 'message' .* scipy\.optimize\.root"),
        (lambda t: optimize.brentq(lambda x: x - t, 0.0, 3.0, xtol=t), r"scipy\.optimize\.brentq .* for xtol="),
        (lambda t: integrate.quad(lambda x: x, 0.0, 3.0, weight="cos", wvar=t)[0], r"a traced wvar= of"),
        (
            lambda t: integrate.quad(lambda x: x, 0.0, t, weight="alg", wvar=(0.5, 0.5))[0],
            r"traced ends with weight='alg'",
        ),
        (lambda t: tg.grad(lambda t: optimize.brentq(lambda x: t - 1.0, 0.0, 3.0))(t), r"brentq has no derivative"),
    ],
)
def test_what_is_not_known_is_refused_by_name(f: Any, what: str) -> None:
    with pytest.raises(UnsupportedError, match=what):
        tg.trace(f)(1.5)


def test_a_function_that_branches_on_its_argument_is_refused() -> None:
    with pytest.raises(TraceError, match=r"a function that scipy\.optimize\.brentq calls, which has no value yet"):
        tg.trace(lambda t: optimize.brentq(lambda x: x - t if x > 1.0 else -t, 0.0, 3.0))(1.5)


def test_errors_of_the_solver_are_raised() -> None:
    f = tg.trace(lambda t: optimize.brentq(lambda x: x**3 - t, 0.0, 1.0))
    assert f(0.5) == pytest.approx(0.5 ** (1 / 3))
    with pytest.raises(ValueError, match="must have different signs"):
        f(2.0)


def test_a_solver_of_a_function_that_reads_nothing_runs_beside_what_is_traced() -> None:
    f = tg.trace(lambda t: optimize.brentq(lambda x: x * x - 2.0, 0.0, 2.0) * t)
    assert f(2.0) == pytest.approx(2.0 * 2.0**0.5)
    assert tg.grad(lambda t: optimize.brent(lambda x: (x - 1.0) ** 2) * t)(2.0) == pytest.approx(1.0)


def test_where_a_solver_begins_and_ends_may_change_outside() -> None:
    begin, ends = np.array([1.0]), np.array([1.0, 2.0])
    root = tg.trace(lambda t: optimize.root(lambda x: x**2 - t, begin).x)
    bracketed = tg.trace(lambda t: optimize.brentq(lambda x: x**2 - t, ends[0], ends[1]))
    area = tg.trace(lambda t: integrate.quad(lambda x: x**2 - t * ends[0], ends[0], ends[1])[0])
    np.testing.assert_allclose([root(2.0)[0], bracketed(2.0), area(2.0)], [2.0**0.5, 2.0**0.5, 1.0 / 3.0])
    begin[:], ends[:] = -1.0, [-3.0, 0.0]
    np.testing.assert_allclose([root(2.0)[0], bracketed(2.0), area(2.0)], [-(2.0**0.5), -(2.0**0.5), 27.0])
