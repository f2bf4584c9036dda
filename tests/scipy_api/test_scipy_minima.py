"""Minimizers and roots of `scipy.optimize` with derivatives that are given, by their old names, and everywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from along import check_found, differences, named, weighted
from scipy import optimize

import tracegrad as tg
from tracegrad.errors import UnsupportedError

P, V = np.array([0.7, 1.2]), np.array([0.3, -0.5])
BEGIN, STEP = [0.0, 0.0], 1e-2
TABLE = np.array([[1.0, 2.0], [0.5, -1.0], [2.0, 0.3]])


def cost(x: Any, p: Any) -> Any:
    return np.sum((x - p) ** 4 + (x - 0.5 * p) ** 2)


def slope(x: Any, p: Any) -> Any:
    return 4.0 * (x - p) ** 3 + 2.0 * (x - 0.5 * p)


def both(x: Any, p: Any) -> Any:
    return cost(x, p), slope(x, p)


def bends(x: Any, p: Any) -> Any:
    return np.diag(12.0 * (x - p) ** 2 + 2.0)


def product(x: Any, v: Any, p: Any) -> Any:
    return (12.0 * (x - p) ** 2 + 2.0) * v


def limits(p: Any) -> Any:
    return [(-1.0, p[1] * 0.3), (-1.0, 2.0)]


def line(x: Any, p: Any) -> Any:
    return (x - p[0]) ** 2 + 0.1 * x**4 * p[1]


def joined(*xs: Any) -> Any:
    return np.concatenate([np.reshape(x, -1) for x in xs])


def bounded_fit(p: Any) -> Any:
    result = optimize.lsq_linear(TABLE * p[0], np.array([1.0, 2.0, 3.0]) * p[1] + p[0], bounds=(0.1 * p[0], [9.0, 2.0]))
    return joined(result.x, result.cost)


def program(p: Any) -> Any:
    matrix = np.array([[1.0, 2.0], [3.0, 1.0]]) * np.array([[1.0], [0.5]]) * p[1]
    result = optimize.linprog([-1.0, -p[0]], A_ub=matrix, b_ub=[4.0 * p[0], 3.0])
    return joined(result.x, result.fun, result.slack)


def cubes(p: Any) -> Any:
    return lambda x: x**3 + p * x - 1.0


FINE = {"gtol": 1e-12, "xtol": 1e-14}
CASES: dict[str, Callable[[Any], Any]] = {
    "root, jac": lambda p: optimize.root(
        lambda x: (cubes(p)(x), np.diag(3.0 * x * x + p)), [1.0, 1.0], jac=True, tol=1e-14).x,
    "root_scalar, slope": lambda p: optimize.root_scalar(
        lambda x: (x**3 + p[0] * x - p[1], 3.0 * x * x + p[0]), x0=1.0, fprime=True, method="newton").root,
    "root_scalar, slopes": lambda p: optimize.root_scalar(
        lambda x: (x**3 + p[0] * x - p[1], 3.0 * x * x + p[0], 6.0 * x), x0=1.0, fprime=True, fprime2=True,
        method="halley").root,
    **{name: (lambda p, name=name: getattr(optimize, name)(cubes(p), np.array([0.5, 0.5]), f_tol=1e-13))
       for name in ("anderson", "broyden1", "newton_krylov")},
    "linearmixing": lambda p: optimize.linearmixing(cubes(p), np.array([0.5, 0.5]), f_tol=1e-13, alpha=-0.4),
    "hess": lambda p: optimize.minimize(both, BEGIN, (p,), "trust-exact", True, bends, options={"gtol": 1e-12}).x,
    "hessp": lambda p: optimize.minimize(
        cost, BEGIN, (p,), "Newton-CG", slope, hessp=product, options={"xtol": 1e-13}).x,
    "Nelder-Mead, bounds": lambda p: optimize.minimize(
        cost, BEGIN, (p,), "Nelder-Mead", bounds=limits(p), options={"xatol": 1e-10, "fatol": 1e-15}).x,
    "fmin": lambda p: optimize.fmin(cost, BEGIN, (p,), xtol=1e-10, ftol=1e-15, disp=0),
    "fmin_powell": lambda p: optimize.fmin_powell(cost, BEGIN, (p,), xtol=1e-12, ftol=1e-15, disp=0),
    "fmin_bfgs": lambda p: optimize.fmin_bfgs(cost, BEGIN, slope, (p,), gtol=1e-10, disp=0),
    "fmin_cg": lambda p: joined(*optimize.fmin_cg(
        cost, BEGIN, slope, (p,), gtol=1e-10, disp=0, full_output=True)[:2]),
    "fmin_ncg": lambda p: optimize.fmin_ncg(cost, BEGIN, slope, product, args=(p,), avextol=1e-13, disp=0),
    "fmin_l_bfgs_b": lambda p: optimize.fmin_l_bfgs_b(
        both, BEGIN, args=(p,), bounds=limits(p), pgtol=1e-12, factr=1.0)[0],
    "fmin_tnc": lambda p: optimize.fmin_tnc(
        cost, BEGIN, slope, (p,), bounds=limits(p), pgtol=1e-12, ftol=1e-16, xtol=1e-14, messages=0)[0],
    "fmin_slsqp": lambda p: optimize.fmin_slsqp(
        cost, BEGIN, [lambda x, p: x[0] - 0.3 * x[1] - p[0] * 0.1], fprime=slope, args=(p,), acc=1e-15, iprint=0),
    "brent": lambda p: optimize.brent(line, args=(p,), tol=1e-10),
    "golden": lambda p: optimize.golden(line, args=(p,), tol=1e-10),
    "fminbound": lambda p: optimize.fminbound(line, -1.0, p[1], args=(p,), xtol=1e-10),
    "minimize_scalar, at a bound": lambda p: optimize.minimize_scalar(
        line, bounds=(-1.0, p[1] * 0.3), args=(p,), options={"xatol": 1e-11}).x,
    "leastsq": lambda p: optimize.leastsq(
        lambda x: np.stack([x[0] - p[0], x[1] * x[0] - p[1], 0.1 * x[1]]), [1.0, 1.0], xtol=1e-15, ftol=1e-15)[0],
    "lsq_linear": bounded_fit,
    "linprog": program,
    "linprog, equal": lambda p: optimize.linprog(
        -p, A_eq=[[1.0, p[0]]], b_eq=p[1:], bounds=[(0, None), (0.1 * p[1], 2.0)]).x,
    "basinhopping": lambda p: optimize.basinhopping(
        cost, BEGIN, niter=2, minimizer_kwargs={"args": (p,), "jac": slope, "tol": 1e-12}, rng=1).x,
    "differential_evolution": lambda p: optimize.differential_evolution(
        cost, limits(p), (p,), rng=1, popsize=5, tol=1e-13).x,
    "dual_annealing": lambda p: optimize.dual_annealing(
        cost, [(-1.0, 2.0)] * 2, (p,), rng=1, maxiter=3, minimizer_kwargs={"method": "BFGS", "tol": 1e-9}).x,
    "shgo": lambda p: optimize.shgo(
        cost, [(-1.0, 2.0)] * 2, (p,), {"type": "ineq", "fun": lambda x: 0.5 * p[0] - x[0] * p[1]}, n=20,
        options={"ftol": 1e-14}).x,
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_values_are_scipys_and_derivatives_those_of_differences(name: str) -> None:
    f = named(CASES[name], name)
    check_found(f, P)
    of = weighted(f, name)
    derivative = tg.grad(of)
    assert derivative(P) @ V == pytest.approx(differences(of, P, V, STEP), rel=1e-6, abs=1e-6)
    assert tg.jvp(of, (P,), (V,))[1] == pytest.approx(derivative(P) @ V, rel=1e-9)
    want = differences(lambda p: derivative(p) @ V, P, V, STEP)
    assert V @ tg.hessian(of)(P) @ V == pytest.approx(want, rel=1e-5, abs=1e-6)
    if name in ("hessp", "linprog", "shgo", "brent"):
        with tg.disable_jit():
            np.testing.assert_allclose(tg.grad(of)(P), derivative(P), rtol=1e-9, atol=1e-12)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("f", "rtol"),
    [
        (lambda p: optimize.brute(cost, [(-1.0, 2.0)] * 2, (p,), Ns=5), 1e-3),
        (lambda p: optimize.direct(cost, [(-1.0, 2.0)] * 2, args=(p,), vol_tol=1e-20, len_tol=1e-10).x, 1e-3),
        (lambda p: optimize.minimize(cost, BEGIN, (p,), "trust-constr", slope, bends, bounds=limits(p)).x, 1e-3),
        (lambda p: optimize.fmin_cobyla(cost, BEGIN, [lambda x, p: p[1] * 0.3 - x[0]], (p,)), 1e-2),
    ],
)
def test_what_is_found_roughly_moves_as_what_is_found_exactly(f: Any, rtol: float) -> None:
    # The last bits of the cost decide on the last steps of COBYLA, which ends within 1e-4.
    np.testing.assert_allclose(tg.trace(f)(P), f(P), rtol=1e-12 if rtol < 1e-2 else 1e-3)
    held = float(f(P)[0]) <= 0.3 * P[1] * 1.01
    exact = optimize.minimize(cost, BEGIN, (P,), jac=slope, tol=1e-12).x
    moved = np.diag((12.0 * (exact - P) ** 2 + 1.0) / (12.0 * (exact - P) ** 2 + 2.0))
    if held:
        moved[0] = [0.0, 0.3]
    np.testing.assert_allclose(tg.jacrev(f)(P), moved, rtol=rtol, atol=1e-3)


@pytest.mark.parametrize(
    ("f", "what"),
    [
        (lambda p: optimize.minimize(cost, BEGIN, (p,), "Newton-CG", slope, "cs").x, r"minimize with hess='cs'"),
        (lambda p: optimize.fmin_bfgs(cost, BEGIN, args=(p,), full_output=True), r"full_output= of .*fmin_bfgs"),
        (lambda p: optimize.fmin(cost, BEGIN, (p,), retall=True), r"retall= of scipy\.optimize\.fmin"),
        (lambda p: optimize.basinhopping(cost, p, take_step=np.sin), r"take_step= of scipy\.optimize\.basinhopping"),
        (lambda p: optimize.shgo(cost, limits(p), (p,), workers=2), r"workers= of scipy\.optimize\.shgo"),
        (
            lambda p: optimize.dual_annealing(cost, limits(p), (p,), rng=np.random.default_rng(0)),
            r"dual_annealing .* for rng=",
        ),
        (lambda p: optimize.brute(cost, limits(p), (p,), finish=np.sin), r"scipy\.optimize\.brute with finish="),
    ],
)
def test_what_is_not_known_is_refused_by_name(f: Any, what: str) -> None:
    with pytest.raises(UnsupportedError, match=what):
        tg.trace(f)(P)
