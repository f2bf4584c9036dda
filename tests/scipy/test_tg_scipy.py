"""`tg.scipy`: SciPy's solvers on functions of pytrees, with derivatives that are compiled."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import integrate, optimize

import tracegrad as tg
from tracegrad.errors import ShapeError
from tracegrad.scipy import (
    curve_fit,
    least_squares,
    minimize,
    quad,
    root,
    root_scalar,
    solve_bvp,
    solve_ivp,
)
from tracegrad.scipy.progress import Progress
from tracegrad.scipy.ravel_pytree import Vector
from tracegrad.scipy.vector_functions import Both, OfVector
from tracegrad.trace.builder.inlinable import DERIVED

TIMES = np.linspace(0.0, 1.0, 20)
SAMPLES = 3.0 * np.exp(-2.0 * TIMES) + 0.01 * np.cos(50.0 * TIMES)


def rosenbrock(x: Any) -> Any:
    return np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


def slope(x: Any) -> Any:
    inner, result = 400.0 * x[:-1] * (x[:-1] ** 2 - x[1:]) - 2.0 * (1.0 - x[:-1]), np.zeros_like(x)
    result[:-1] += inner
    result[1:] += 200.0 * (x[1:] - x[:-1] ** 2)
    return result


def bends(x: Any) -> Any:
    result = np.zeros((x.size, x.size))
    for i in range(x.size - 1):
        result[i, i] += 1200.0 * x[i] ** 2 - 400.0 * x[i + 1] + 2.0
        result[i, i + 1] = result[i + 1, i] = -400.0 * x[i]
        result[i + 1, i + 1] += 200.0
    return result


START = np.linspace(0.8, 1.2, 6)
BENT = ("Newton-CG", "trust-ncg", "trust-krylov", "trust-exact", "dogleg")


@pytest.mark.parametrize("method", [None, "CG", "BFGS", "L-BFGS-B", "TNC", "SLSQP", *BENT])
def test_each_method_goes_scipys_way_with_derivatives_by_hand(method: str | None) -> None:
    by_hand = {"hess": bends} if method in BENT else {}
    few = {"maxfun": 6} if method == "TNC" else {"maxiter": 4}
    result = minimize(rosenbrock, START, method=method, options=few)
    wanted = optimize.minimize(rosenbrock, START, method=method, jac=slope, options=few, **by_hand)
    assert (result.nit, result.nfev) == (wanted.nit, wanted.nfev)
    np.testing.assert_allclose(result.x, wanted.x, rtol=1e-6)
    np.testing.assert_allclose(result.jac, wanted.jac, rtol=1e-5, atol=1e-5)
    if method != "dogleg":  # it wants a Hessian that is positive everywhere
        assert minimize(rosenbrock, START, method=method).fun < 1e-5


@pytest.mark.parametrize("method", ["Nelder-Mead", "Powell", "COBYLA", "COBYQA"])
def test_methods_without_derivatives_get_none(method: str) -> None:
    def bowl(x: Any) -> Any:
        return np.sum((x - 1.0) ** 2)

    result = minimize(bowl, np.zeros(2), method=method)
    np.testing.assert_allclose(result.x, 1.0, atol=1e-3)
    assert not result.get("njev")


def network(p: Any, x: Any, y: Any) -> Any:
    return np.mean((np.tanh(x @ p["w"] + p["b"]) @ p["v"] - y) ** 2)


def weights() -> dict[str, Any]:
    draws = np.random.default_rng(0)
    return {"w": draws.normal(size=(3, 2)), "b": 0.5, "v": draws.normal(size=2).astype(np.float32)}


def data() -> tuple[Any, Any]:
    draws = np.random.default_rng(1)
    return draws.normal(size=(30, 3)), draws.normal(size=30)


def test_results_have_the_structure_shapes_and_dtypes_of_the_start() -> None:
    p = weights()
    result = minimize(network, p, data(), method="L-BFGS-B")
    assert list(result.x) == list(p)
    for part in (result.x, result.jac):
        assert [np.shape(x) for x in part.values()] == [(3, 2), (), (2,)]
        assert [np.asarray(x).dtype for x in part.values()] == ["float64", "float64", "float32"]
    assert result.fun == pytest.approx(network(result.x, *data()), rel=1e-6)
    gradient = tg.grad(network)(result.x, *data())
    np.testing.assert_allclose(result.jac["w"], gradient["w"], atol=1e-6)
    assert result.fun < network(p, *data())


def test_lists_of_numbers_and_numbers_are_vectors_as_scipys_and_matrices_stay_matrices() -> None:
    assert minimize(lambda x: np.sum((x - 2.0) ** 2), [0.0, 1.0]).x.shape == (2,)
    result = minimize(lambda x: np.trace(x @ x.T) - 2.0 * np.sum(x), np.zeros((2, 3)))
    np.testing.assert_allclose(result.x, np.ones((2, 3)), atol=1e-6)


def test_a_second_solver_of_a_function_traces_nothing() -> None:
    def bowl(p: Any, k: Any) -> Any:
        return np.sum((p["a"] - k) ** 2)

    start = {"a": np.zeros(2)}
    for k in (1.0, 2.0, 3.0):
        np.testing.assert_allclose(minimize(bowl, start, k, method="BFGS").x["a"], k)
    saved = OfVector(bowl, Vector("tracegrad.scipy.minimize", "x0", start)).value_and_gradient()
    assert saved.cache_info().traces == 1


def test_bounds_are_scipys_for_arrays_and_pairs_of_pytrees_for_pytrees() -> None:
    limits = [(None, 0.5), (0.7, None), (-2.0, 2.0)]
    result = minimize(rosenbrock, np.zeros(3) + 0.4, bounds=limits)
    wanted = optimize.minimize(rosenbrock, np.zeros(3) + 0.4, jac=slope, bounds=limits)
    np.testing.assert_allclose(result.x, wanted.x, rtol=1e-6)

    def bowl(p: Any) -> Any:
        return np.sum((p["a"] - 3.0) ** 2) + (p["b"] + 3.0) ** 2

    start = {"a": np.zeros(2), "b": 0.0}
    x = minimize(bowl, start, bounds=({"a": None, "b": -1.0}, 2.0)).x
    np.testing.assert_allclose([*x["a"], x["b"]], [2.0, 2.0, -1.0])
    matrix = minimize(lambda x: np.sum((x - 3.0) ** 2), np.zeros((2, 2)), bounds=optimize.Bounds(0.0, np.eye(2)))
    np.testing.assert_allclose(matrix.x, np.eye(2))
    for args in ([(0.0, 1.0)] * 3, optimize.Bounds(0.0, 1.0)):
        with pytest.raises(ValueError, match="bounds for a pytree must be a pair"):
            minimize(bowl, start, bounds=args)
    with pytest.raises(ValueError, match="c"):
        minimize(bowl, start, bounds=({"a": 0.0, "c": 1.0}, None))


@pytest.mark.parametrize("method", ["SLSQP", "trust-constr", "COBYLA"])
def test_constraints_get_pytrees_and_compiled_derivatives(method: str) -> None:
    def cost(p: Any) -> Any:
        return np.sum((p["a"] - 3.0) ** 2) + p["b"] ** 2

    def room(p: Any) -> Any:
        return {"sum": 4.0 - np.sum(p["a"]), "square": 2.0 - p["a"][0] ** 2}

    start = {"a": np.ones(2), "b": 1.0}
    within: tuple[Any, ...] = ({"type": "ineq", "fun": room}, optimize.NonlinearConstraint(room, 0.0, np.inf))
    for constraint in within:
        x = minimize(cost, start, method=method, constraints=constraint, tol=1e-9).x
        np.testing.assert_allclose(x["a"], [np.sqrt(2.0), 4.0 - np.sqrt(2.0)], rtol=1e-4)
    with pytest.raises(TypeError, match="NonlinearConstraint"):
        minimize(cost, start, constraints=optimize.LinearConstraint(np.ones((1, 3)), 0.0, 1.0))


def test_a_function_may_be_the_cost_and_a_constraint() -> None:
    def square(x: Any) -> Any:
        return np.sum(x**2)

    assert minimize(square, START, method="trust-exact").fun == pytest.approx(0.0, abs=1e-12)
    limit = optimize.NonlinearConstraint(square, 2.0, np.inf)
    start = np.array([1.5, 1.0])
    result = minimize(square, start, method="trust-constr", constraints=limit)
    by_hand = optimize.NonlinearConstraint(
        square, 2.0, np.inf, lambda x: [2.0 * x], lambda x, v: 2.0 * v[0] * np.eye(2)
    )
    wanted = optimize.minimize(
        square, start, method="trust-constr", constraints=by_hand, jac=lambda x: 2.0 * x, hess=lambda x: 2.0 * np.eye(2)
    )
    assert result.nit == wanted.nit
    np.testing.assert_allclose(result.x, wanted.x, rtol=1e-6)


def test_derivatives_that_are_given_are_used() -> None:
    calls = []

    def gradient(p: Any) -> Any:
        calls.append(sorted(p))
        return {"a": 2.0 * (p["a"] - 1.0)}

    def product(p: Any, q: Any) -> Any:
        calls.append("product")
        return {"a": 2.0 * q["a"]}

    result = minimize(
        lambda p: np.sum((p["a"] - 1.0) ** 2), {"a": np.zeros(3)}, method="trust-ncg", jac=gradient, hessp=product
    )
    np.testing.assert_allclose(result.x["a"], 1.0)
    assert ["a"] in calls
    assert "product" in calls
    both = minimize(lambda p: (np.sum((p["a"] - 1.0) ** 2), gradient(p)), {"a": np.zeros(3)}, jac=True)
    np.testing.assert_allclose(both.x["a"], 1.0)


@pytest.mark.parametrize("method", ["trust-ncg", "Newton-CG", "trust-exact", "trust-constr"])
@pytest.mark.parametrize("start", [START, {"a": START[:2], "b": START[2:].reshape(2, 2)}], ids=["array", "pytree"])
def test_second_derivatives_of_a_function_with_its_gradient_are_those_of_the_gradient(method: str, start: Any) -> None:
    def fun(x: Any, scale: float) -> Any:
        return scale * rosenbrock(np.concatenate([np.ravel(leaf) for leaf in tg.tree.leaves(x)]))

    result = minimize(tg.value_and_grad(fun), start, 2.0, jac=True, method=method, tol=1e-10)
    wanted = minimize(fun, start, 2.0, method=method, tol=1e-10)
    assert (result.nit, result.nfev) == (wanted.nit, wanted.nfev)
    for x, y in zip(tg.tree.leaves(result.x), tg.tree.leaves(wanted.x)):
        np.testing.assert_allclose(x, y, rtol=1e-12)
        np.testing.assert_allclose(x, 1.0, rtol=1e-6)


@pytest.mark.parametrize("method", ["BFGS", "L-BFGS-B", "CG", "TNC", "SLSQP"])
def test_a_function_with_its_gradient_is_called_as_often_as_by_scipy(method: str) -> None:
    calls: list[Any] = []

    def both(x: Any) -> Any:
        calls.append(x)
        return rosenbrock(x), slope(x)

    result, own = minimize(both, START, jac=True, method=method), len(calls)
    wanted = optimize.minimize(both, START, jac=True, method=method)
    np.testing.assert_array_equal(result.x, wanted.x)
    assert own == len(calls) - own == result.nfev


def test_a_place_is_asked_again_after_an_error() -> None:
    places: list[Any] = []

    def both(x: Any) -> Any:
        places.append(x)
        if len(places) == 2:
            raise KeyError
        return np.sum(x**2), 2.0 * x

    apart = Both(both)
    assert apart.value(np.ones(2)) == 2.0
    with pytest.raises(KeyError):
        apart.gradient(np.zeros(2))
    np.testing.assert_array_equal(apart.gradient(np.zeros(2)), 0.0)
    np.testing.assert_array_equal(apart.gradient(np.ones(2)), 2.0)
    assert apart.value(np.ones(2)) == 2.0
    assert len(places) == 4


@pytest.mark.parametrize("method", ["BFGS", "trust-constr"])
def test_callbacks_get_what_scipy_gives_with_pytrees(method: str) -> None:
    seen: list[Any] = []

    def of_result(intermediate_result: Any) -> None:
        seen.append(intermediate_result.x["a"].copy())
        if len(seen) == 2:
            raise StopIteration

    def of_place(x: Any, *more: Any) -> None:
        seen.append(x["a"].copy())

    def cost(p: Any) -> Any:
        return np.sum((p["a"] - 3.0) ** 4)

    minimize(cost, {"a": np.zeros(3)}, method=method, callback=of_result)
    assert len(seen) == 2
    seen.clear()
    result = minimize(cost, {"a": np.zeros(3)}, method=method, callback=of_place)
    assert len(seen) >= 3
    np.testing.assert_allclose(seen[-1], result.x["a"], rtol=0.1)


def test_a_line_tells_of_iterations(capsys: pytest.CaptureFixture[str]) -> None:
    result = minimize(rosenbrock, START, method="BFGS", disp=True)
    told = capsys.readouterr().err
    assert told == f"minimize, BFGS: {result.nit} iterations, {result.nfev} evaluations, f = {told.split()[-1]}\n"
    minimize(rosenbrock, START)
    assert capsys.readouterr().err == ""


def test_a_line_tells_of_jacobians_and_the_cost_of_least_squares(capsys: pytest.CaptureFixture[str]) -> None:
    result = least_squares(lambda p, y: [p["a"] ** 2 - y, p["a"]], {"a": 1.0}, args=(2.0,), disp=True)
    cost = f"{result.cost:.6g}"
    told = capsys.readouterr().err
    assert told == f"least_squares: {result.njev} iterations, {result.nfev} evaluations, f = {cost}\n"
    assert cost == "0.875"
    least_squares(lambda p: [p["a"], 1.0], {"a": 1.0})
    assert capsys.readouterr().err == ""


def test_the_line_of_a_terminal_is_written_over() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    with Progress("minimize", True, stream) as progress:
        f = progress.counting(lambda x: 2.0 * x)
        for k in range(3):
            f(float(k))
            progress.iterated()
    assert stream.getvalue().startswith("\rminimize: 1 iterations, 1 evaluations, f = 0")
    assert stream.getvalue().endswith("\rminimize: 3 iterations, 3 evaluations, f = 4\n")


def test_errors_name_what_is_wrong_and_where() -> None:
    start = {"a": np.zeros(2), "s": 2.0}
    with pytest.raises(FloatingPointError, match=r"nan at x0\['a'\]\[0\] and at 1 more elements, where the value is 4"):
        minimize(lambda p: np.sum(p["s"] * np.sqrt(p["a"] - p["a"])) + p["s"] ** 2, start)
    with pytest.raises(ShapeError, match="scalar"):
        minimize(lambda p: p["a"], start)
    with pytest.raises(TypeError, match="takes a function, got a int"):
        minimize(3, start)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"x0\['a'\] must be a real number"):
        minimize(lambda p: p["a"], {"a": 1j})
    with pytest.raises(ValueError, match="x0 has no elements"):
        minimize(lambda p: 0.0, {"a": np.zeros(0)})
    with pytest.raises(ShapeError, match="does not fit y0"):
        solve_ivp(lambda t, y: {"a": y["a"][:1], "s": y["s"]}, (0.0, 1.0), start)
    with pytest.raises(KeyError, match="user"):
        minimize(raises, np.ones(2))


def raises(x: Any) -> Any:
    raise KeyError("user's own")


ROOTS: dict[str, dict[str, Any]] = {
    "newton": {"x0": 1.0},
    "halley": {"x0": 1.0, "method": "halley"},
    "brentq": {"bracket": (0.0, 3.0)},
    "secant": {"x0": 1.0, "x1": 1.5},
}


@pytest.mark.parametrize("method", ROOTS)
def test_roots_of_functions_of_numbers_are_scipys(method: str) -> None:
    result = root_scalar(lambda x, a: x**3 - a, 8.0, **ROOTS[method])
    derivatives = {"newton": {"fprime": cubes}, "halley": {"fprime": cubes, "fprime2": lambda x, a: 6.0 * x}}
    wanted = optimize.root_scalar(lambda x, a: x**3 - a, (8.0,), **derivatives.get(method, {}), **ROOTS[method])
    assert (result.method, result.iterations, result.converged) == (method, wanted.iterations, True)
    assert result.root == pytest.approx(wanted.root, rel=1e-14)


def cubes(x: Any, a: Any) -> Any:
    return 3.0 * x**2


@pytest.mark.parametrize("method", ["hybr", "lm", "broyden1", "df-sane", "krylov"])
def test_roots_of_pytrees_are_roots(method: str) -> None:
    result = root(lambda p: [p["a"] ** 2 + p["b"] - 3.0, p["b"] - np.sin(p["a"])], {"a": 1.3, "b": 1.0}, method=method)
    a, b = result.x["a"], result.x["b"]
    np.testing.assert_allclose([a**2 + b, b - np.sin(a)], [3.0, 0.0], atol=1e-5)
    if method in ("hybr", "lm"):
        assert result.nfev < 12


def test_the_jacobian_of_a_root_may_be_given() -> None:
    def f(x: Any) -> Any:
        return np.stack([x[0] ** 2 + x[1] - 3.0, x[0] * x[1] - 1.0])

    def jacobian(x: Any) -> Any:
        return np.array([[2.0 * x[0], 1.0], [x[1], x[0]]])

    wanted = optimize.root(f, [1.0, 1.0], jac=jacobian)
    for result in (
        root(f, [1.0, 1.0]),
        root(f, [1.0, 1.0], jac=jacobian),
        root(lambda x: (f(x), jacobian(x)), [1.0, 1.0], jac=True),
    ):
        np.testing.assert_allclose(result.x, wanted.x, rtol=1e-12)
        assert result.njev == wanted.njev


def decay(p: Any) -> Any:
    return p["a"] * np.exp(-p["k"] * TIMES) - SAMPLES


@pytest.mark.parametrize("method", ["trf", "dogbox", "lm"])
def test_least_squares_are_scipys(method: str) -> None:
    result = least_squares(decay, {"a": 1.0, "k": 0.0}, method=method)

    def of_list(x: Any) -> Any:
        return decay({"a": x[0], "k": x[1]})

    def by_hand(x: Any) -> Any:
        return np.stack([np.exp(-x[1] * TIMES), -x[0] * TIMES * np.exp(-x[1] * TIMES)], 1)

    wanted = optimize.least_squares(of_list, [1.0, 0.0], by_hand, method=method)
    assert result.nfev == wanted.nfev
    np.testing.assert_allclose([result.x["a"], result.x["k"]], wanted.x, rtol=1e-9)
    np.testing.assert_allclose(result.jac, wanted.jac, rtol=1e-7)
    if method != "lm":
        limited = least_squares(decay, {"a": 1.0, "k": 0.0}, bounds=(0.0, {"a": 2.0, "k": None}), method=method)
        assert limited.x["a"] == pytest.approx(2.0)


def kept_with(f: Any) -> list[str]:
    """What has been derived of a function, as text."""
    return [str(key) for key in vars(f)[DERIVED].known]


def test_the_mode_of_a_jacobian_follows_from_its_shape() -> None:
    for rows, name in ((2, "jacrev"), (20, "jacfwd")):
        matrix = np.random.default_rng(0).normal(size=(rows, 5))

        def residuals(x: Any, matrix: Any = matrix) -> Any:
            return matrix @ np.sin(x)

        result = least_squares(residuals, np.full(5, 0.1))
        np.testing.assert_allclose(result.jac, matrix * np.cos(result.x), rtol=1e-10)
        assert any(name in key for key in kept_with(residuals))


def test_curves_are_fitted_as_scipy_does() -> None:
    def model(t: Any, a: Any, k: Any) -> Any:
        return a * np.exp(-k * t)

    wanted, spread = optimize.curve_fit(model, TIMES, SAMPLES)
    result, covariance = curve_fit(model, TIMES, SAMPLES)
    np.testing.assert_allclose(result, wanted, rtol=1e-6)
    np.testing.assert_allclose(covariance, spread, rtol=1e-4)
    tree, same = curve_fit(lambda t, p: model(t, p["a"], p["k"]), TIMES, SAMPLES, {"a": 1.0, "k": 1.0})
    np.testing.assert_allclose([tree["a"], tree["k"]], wanted, rtol=1e-6)
    np.testing.assert_allclose(same, spread, rtol=1e-4)
    limited, _ = curve_fit(
        lambda t, p: model(t, p["a"], p["k"]), TIMES, SAMPLES, {"a": 1.0, "k": 1.0}, bounds=(0.0, {"a": 2.0, "k": None})
    )
    assert limited["a"] == pytest.approx(2.0)
    *_, info, _, _ = curve_fit(model, TIMES, SAMPLES, full_output=True)
    assert info["nfev"] < 20


def test_the_data_of_a_fit_may_be_a_pytree() -> None:
    def model(x: Any, p: Any) -> Any:
        return {"falls": p["a"] * np.exp(-p["k"] * x["early"]), "rises": [p["a"] + p["k"] * x["late"]]}

    def by_hand(x: Any, a: Any, k: Any) -> Any:
        return np.concatenate([a * np.exp(-k * TIMES), a + k * TIMES[:7]])

    x = {"early": TIMES, "late": TIMES[:7]}
    y = {"falls": SAMPLES, "rises": [3.0 + 2.0 * TIMES[:7] + 0.01 * np.sin(40.0 * TIMES[:7])]}
    rows = np.concatenate([y["falls"], y["rises"][0]])
    sigma = np.linspace(0.1, 0.3, rows.size)
    for args in (sigma, {"falls": sigma[:20], "rises": [sigma[20:]]}, np.diag(sigma**2)):
        result, covariance = curve_fit(model, x, y, {"a": 1.0, "k": 1.0}, args)
        wanted, expected = optimize.curve_fit(by_hand, TIMES, rows, [1.0, 1.0], sigma)
        np.testing.assert_allclose([result["a"], result["k"]], wanted, rtol=1e-6)
        np.testing.assert_allclose(covariance, expected, rtol=1e-4)
    with pytest.raises(ShapeError, match="does not fit ydata"):
        curve_fit(lambda x, p: model(x, p)["falls"], x, y, {"a": 1.0, "k": 1.0})


def swinging(t: Any, y: Any, mu: Any) -> Any:
    return {"x": y["v"], "v": mu * (1.0 - y["x"] ** 2) * y["v"] - y["x"]}


def as_list(t: Any, y: Any, mu: Any) -> Any:
    return [y[1], mu * (1.0 - y[0] ** 2) * y[1] - y[0]]


@pytest.mark.parametrize("method", ["RK45", "DOP853", "Radau", "BDF", "LSODA"])
def test_differential_equations_of_pytrees_are_solved_as_scipy_does(method: str) -> None:
    options: dict[str, Any] = {
        "method": method,
        "args": (5.0,),
        "rtol": 1e-7,
        "atol": 1e-9,
        "dense_output": True,
    }

    def crossing(t: Any, y: Any, mu: Any) -> Any:
        return np.sum(y["x"])

    crossing.direction = -1.0  # type: ignore[attr-defined]
    result = solve_ivp(swinging, (0.0, 8.0), {"x": np.array([2.0]), "v": np.zeros(1)}, events=crossing, **options)
    wanted = integrate.solve_ivp(as_list, (0.0, 8.0), [2.0, 0.0], **options)
    assert result.y["x"].shape == (1, len(result.t))
    assert result.y["x"][0, -1] == pytest.approx(wanted.y[0, -1], abs=1e-4)
    assert result.sol(3.0)["v"][0] == pytest.approx(wanted.sol(3.0)[1], abs=1e-4)
    assert result.sol([3.0, 4.0])["v"].shape == (1, 2)
    assert result.y_events[0]["v"].shape == (1, len(result.t_events[0]))
    np.testing.assert_allclose(result.y_events[0]["x"], 0.0, atol=1e-5)
    if method in ("Radau", "BDF"):
        assert result.njev > 0
        assert result.nfev <= wanted.nfev


def test_a_vectorized_law_is_taken_as_it_is() -> None:
    times = [0.0, 1.0]
    result = solve_ivp(lambda t, y: -y * (1.0 + 0.0 * y), (0.0, 1.0), [1.0, 2.0], "BDF", times, vectorized=True)
    wanted = integrate.solve_ivp(lambda t, y: -y, (0.0, 1.0), [1.0, 2.0], "BDF", times)
    np.testing.assert_allclose(result.y, wanted.y, rtol=1e-6)


@pytest.mark.parametrize("parameters", [False, True])
def test_boundary_value_problems_are_solved_as_scipy_does(parameters: bool) -> None:
    def law(x: Any, y: Any, *p: Any) -> Any:
        return np.stack([y[1], -(p[0][0] ** 2) * y[0] if p else -np.exp(y[0])])

    def ends(a: Any, b: Any, *p: Any) -> Any:
        return np.stack([a[0], b[0], a[1] - p[0][0]] if p else [a[0], b[0]])

    x, y = np.linspace(0.0, 1.0, 5), np.zeros((2, 5))
    y[0, 1], y[0, 3] = parameters, -parameters
    args = {"p": [6.0]} if parameters else {}
    result, wanted = (f(law, ends, x, y, tol=1e-6, **args) for f in (solve_bvp, integrate.solve_bvp))
    assert result.success
    np.testing.assert_allclose(result.sol(TIMES), wanted.sol(TIMES), atol=1e-6)
    if parameters:
        assert result.p[0] == pytest.approx(2.0 * np.pi, rel=1e-6)


@pytest.mark.parametrize("jacobians", [False, True])
def test_boundary_value_problems_of_pytrees_are_solved_as_those_of_their_vectors(jacobians: bool) -> None:
    x = np.linspace(0.0, 1.0, 9)
    rows = np.stack([np.sin(np.pi * x), np.pi * np.cos(np.pi * x)])
    y, p = {"u": rows[:1], "v": rows[1:].reshape(1, 9)}, {"tension": [8.0], "scale": 1.0}

    def law(x: Any, y: Any, p: Any) -> Any:
        return {"u": y["v"], "v": np.cos(x) - p["tension"][0] * y["u"]}

    def ends(a: Any, b: Any, p: Any) -> Any:
        return {"left": a["u"], "right": [b["u"][0], a["v"][0] - p["scale"]], "norm": p["scale"] - 1.0}

    def slopes(x: Any, y: Any, p: Any) -> Any:  # parameters in the order of the leaves: scale, tension
        nothing, one = np.zeros(x.size), np.ones(x.size)
        by_y = np.array([[nothing, one], [-p["tension"][0] * one, nothing]])
        return by_y, np.array([[nothing, nothing], [nothing, -y["u"][0]]])

    def law_by_hand(x: Any, y: Any, p: Any) -> Any:
        return np.stack([y[1], np.cos(x) - p[1] * y[0]])

    def ends_by_hand(a: Any, b: Any, p: Any) -> Any:
        return np.array([a[0], p[0] - 1.0, b[0], a[1] - p[0]])

    args = {"fun_jac": slopes} if jacobians else {}
    result = solve_bvp(law, ends, x, y, p, tol=1e-8, **args)
    wanted = integrate.solve_bvp(law_by_hand, ends_by_hand, x, rows, [1.0, 8.0], tol=1e-8)
    assert result.success
    assert result.p["tension"][0] == pytest.approx(wanted.p[1], rel=1e-7)
    assert result.p["scale"] == pytest.approx(1.0)
    assert result.y["u"].shape == result.yp["v"].shape == (1, result.x.size)
    assert result.sol(0.3)["u"].shape == (1,)
    np.testing.assert_allclose(result.sol(TIMES)["u"][0], wanted.sol(TIMES)[0], atol=1e-7)
    np.testing.assert_allclose(result.sol(TIMES)["v"][0], wanted.sol(TIMES)[1], atol=1e-7)


def test_the_derivatives_of_boundary_value_problems_are_those_of_differences() -> None:
    seen = []

    def law(x: Any, y: Any, p: Any) -> Any:
        return {"u": y["u"] * y["v"][0, 1] * p["k"], "v": np.sin(y["v"]) * np.cos(x) + y["u"] ** 2}

    def ends(a: Any, b: Any, p: Any) -> Any:
        return {"all": a["v"] * b["u"], "k": [p["k"] * a["u"]]}

    def solver(fun: Any, bc: Any, x: Any, y: Any, p: Any, S: Any, fun_jac: Any, bc_jac: Any) -> Any:
        seen.extend([fun, bc, fun_jac, bc_jac])
        return optimize.OptimizeResult(x=x, y=y, yp=y, p=p, sol=None)

    patch = pytest.MonkeyPatch()
    with patch.context() as args:
        args.setattr(integrate, "solve_bvp", solver)
        x, rng = np.linspace(0.0, 1.0, 4), np.random.default_rng(3)
        y = {"u": np.zeros(4), "v": np.zeros((1, 2, 4))}
        solve_bvp(law, ends, x, y, {"k": 2.0})
    fun, bc, fun_jac, bc_jac = seen
    rows, moved, p, step = rng.normal(size=(3, 4)), rng.normal(size=(3, 4)), np.array([2.0]), 1e-6
    by_y, by_p = fun_jac(x, rows, p)
    derivative = (fun(x, rows + step * moved, p) - fun(x, rows - step * moved, p)) / (2 * step)
    np.testing.assert_allclose(np.einsum("ijm,jm->im", by_y, moved), derivative, rtol=1e-7, atol=1e-9)
    derivative = (fun(x, rows, p + step) - fun(x, rows, p - step)) / (2 * step)
    np.testing.assert_allclose(by_p[:, 0], derivative, rtol=1e-7, atol=1e-9)
    a, b = rows[:, 0], rows[:, 1]
    for k, by in enumerate(bc_jac(a, b, p)):
        low, high = ([*(a, b, p)] for _ in range(2))
        direction = rng.normal(size=low[k].shape)
        low[k], high[k] = low[k] - step * direction, high[k] + step * direction
        np.testing.assert_allclose(by @ direction, (bc(*high) - bc(*low)) / (2 * step), rtol=1e-7, atol=1e-9)


def test_lists_stand_for_arrays_as_in_scipy() -> None:
    result = solve_ivp(as_list, (0.0, 2.0), np.array([2.0, 0.0]), "Radau", args=(5.0,))
    wanted = integrate.solve_ivp(as_list, (0.0, 2.0), [2.0, 0.0], "Radau", args=(5.0,))
    np.testing.assert_allclose(result.y[:, -1], wanted.y[:, -1], rtol=1e-3)
    x = np.linspace(0.0, 1.0, 5)
    for start in (np.zeros((2, 5)), [np.zeros(5), np.zeros(5)], np.zeros((2, 5)).tolist()):
        solved = solve_bvp(lambda x, y: [y[1], -y[0]], lambda a, b: [a[0], b[0] - 1.0], x, start)
        assert solved.sol(0.5).shape == (2,)
        assert solved.sol(0.5)[0] == pytest.approx(np.sin(0.5) / np.sin(1.0), rel=1e-5)
    with pytest.raises(ShapeError, match=r"does not fit y0: y0 has \(2,\)"):
        solve_ivp(lambda t, y: [y[0]], (0.0, 1.0), np.ones(2))


def test_a_boundary_value_problem_that_does_not_fit_is_refused() -> None:
    x, y = np.linspace(0.0, 1.0, 5), {"u": np.zeros(5), "v": np.zeros((2, 4))}
    with pytest.raises(ShapeError, match=r"y\['v'\] of shape \(2, 4\) has no last axis for the mesh x"):
        solve_bvp(lambda x, y: y, lambda a, b: a, x, y)
    with pytest.raises(ShapeError, match=r"\['u'\] of shape \(2, 5\) does not fit y: y\['u'\] has \(5,\)"):
        solve_bvp(lambda x, y: {"u": np.stack([y["u"], y["u"]])}, lambda a, b: a, x, {"u": np.zeros(5)})
    with pytest.raises(ValueError, match=r"`bc` return is expected to have shape \(1,\)"):
        solve_bvp(lambda x, y: y, lambda a, b: (a, b), x, {"u": np.zeros(5)})


def test_integrals_are_scipys() -> None:
    def bell(x: Any, k: Any) -> Any:
        return np.exp(-k * x**2)

    assert quad(bell, -np.inf, np.inf, 2.0)[0] == pytest.approx(np.sqrt(np.pi / 2.0), rel=1e-12)
    assert (
        quad(bell, 0.0, 1.0, (2.0,), full_output=True)[2]["neval"]
        == integrate.quad(bell, 0.0, 1.0, (2.0,), full_output=True)[2]["neval"]
    )


# What a traced function computes with a solver, and the value that this has.
SOLVED: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "minimize": (
        lambda k: minimize(
            lambda p: np.sum((p["a"] - k) ** 2) + p["s"] ** 2 - p["s"] * k[1], {"a": np.zeros(2), "s": 0.0}, tol=1e-12
        ).x["s"],
        lambda k: 0.5 * k[1],
    ),
    "minimize, a bound": (
        lambda k: (
            minimize(lambda p: np.sum((p["a"] - k) ** 2), {"a": np.zeros(2)}, bounds=(None, {"a": 2.5}), tol=1e-12).x[
                "a"
            ]
            @ np.array([1.0, 10.0])
        ),
        lambda k: k[0] + 25.0,
    ),
    "minimize, a constraint": (
        lambda k: minimize(
            lambda p: np.sum((p["a"] - k) ** 2),
            {"a": np.zeros(2)},
            method="SLSQP",
            tol=1e-12,
            constraints={"type": "eq", "fun": lambda p: np.sum(p["a"]) - 1.0},
        ).x["a"][0],
        lambda k: 0.5 * (1.0 + k[0] - k[1]),
    ),
    "root_scalar": (lambda k: root_scalar(lambda x: x**3 - k[0], x0=1.0).root, lambda k: np.cbrt(k[0])),
    "root": (
        lambda k: root(lambda p: {"u": p["a"] ** 2 - k[1], "v": p["b"] - p["a"]}, {"a": 1.0, "b": 1.0}).x["b"],
        lambda k: np.sqrt(k[1]),
    ),
    "least_squares": (
        lambda k: least_squares(lambda p: p["a"] * np.exp(-TIMES) - k[0] ** 2 * np.exp(-TIMES), {"a": 1.0}).x["a"],
        lambda k: k[0] ** 2,
    ),
    "curve_fit": (
        lambda k: curve_fit(lambda t, p: p["a"] * np.exp(-t), TIMES, k[0] ** 2 * np.exp(-TIMES), {"a": 1.0})[0]["a"],
        lambda k: k[0] ** 2,
    ),
    "solve_ivp": (
        lambda k: solve_ivp(lambda t, y: {"x": -k[0] * y["x"]}, (0.0, 1.0), {"x": k[1]}, rtol=1e-9, atol=1e-11).y["x"][
            -1
        ],
        lambda k: k[1] * np.exp(-k[0]),
    ),
    "quad": (lambda k: quad(lambda x: np.exp(-k[0] * x), 0.0, k[1])[0], lambda k: (1.0 - np.exp(-k[0] * k[1])) / k[0]),
}


@pytest.mark.parametrize("name", SOLVED)
def test_results_in_traced_functions_have_the_derivatives_of_what_they_are(name: str) -> None:
    f, is_known = SOLVED[name]
    k = np.array([2.0, 3.0])
    traced = tg.trace(f)
    np.testing.assert_allclose(traced(k), is_known(k), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(tg.grad(f)(k), tg.grad(is_known)(k), rtol=1e-5, atol=1e-7)
    other = np.array([1.5, 3.5])
    np.testing.assert_allclose(traced(other), is_known(other), rtol=1e-6, atol=1e-9)
