"""How long does a gradient through SciPy's integrators take? Lotka-Volterra equations, four rates, 21 years.

The program is the sum of squares and its gradient by the rates. tracegrad uses `solve_ivp` and `odeint` as they are.
SciPy uses finite differences, five solutions for each. JAX uses its own integrator, `jax.experimental.ode.odeint`
(Dormand and Prince's method, and its adjoint). Each call changes the rates by a billionth, so no cache has the
solution. The expected gradient is by central differences of solutions of order 8 with a tolerance of 1e-12.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.harness import Case, Factory, Run, Settings
from benchmarks.peers import need

PACKAGES = ("tracegrad", "jax")
RATES, START, YEARS = np.array([0.55, 0.028, 0.80, 0.024]), np.array([30.0, 4.0]), np.linspace(0.0, 20.0, 21)
TOLERANCE = 1e-7
COMPILED = ("RK45", "DOP853")
SOLVERS = (*COMPILED, "LSODA", "BDF", "Radau", "odeint")


def growth(t: Any, y: Any, p: Any) -> Any:
    return np.array([(p[0] - p[1] * y[1]) * y[0], (p[3] * y[0] - p[2]) * y[1]])


def solution(solver: str, p: Any, tolerance: float = TOLERANCE) -> Any:
    from scipy import integrate

    exact = {"rtol": tolerance, "atol": tolerance}
    if solver == "odeint":
        return integrate.odeint(growth, START, YEARS, (p,), tfirst=True, **exact)
    return integrate.solve_ivp(growth, (0.0, 20.0), START, solver, YEARS, args=(p,), **exact).y.T


@functools.cache
def measured() -> Any:
    """What is fitted: the solution for other rates."""
    return solution("DOP853", RATES * 1.05, 1e-12)


def misfit(solver: str, p: Any, tolerance: float = TOLERANCE) -> Any:
    return np.sum((solution(solver, p, tolerance) - measured()) ** 2)


def by_differences(f: Callable[[Any], Any], p: Any) -> tuple[Any, Any]:
    value = f(p)
    steps = 1e-5 * p
    return value, np.array([(f(p + steps * row) - value) / step for step, row in zip(steps, np.eye(p.size))])


def expected() -> tuple[Any, Any]:
    f, steps = functools.partial(misfit, "DOP853", tolerance=1e-12), 1e-4 * RATES
    derivatives = [(f(RATES + d) - f(RATES - d)) / (2.0 * d.sum()) for d in np.diag(steps)]
    return f(RATES), np.array(derivatives)


def moving(both: Callable[[Any], Any]) -> Run:
    """A call for rates that no call before has had."""
    count = itertools.count()
    return lambda: both(RATES * (1.0 + 1e-9 * next(count)))


def tracegrad(solver: str) -> Run:
    return moving(need("tracegrad").value_and_grad(functools.partial(misfit, solver)))


def differences(solver: str) -> Run:
    return moving(functools.partial(by_differences, functools.partial(misfit, solver)))


def jax() -> Run:
    module = need("jax")
    xp, odeint = module.numpy, need("jax.experimental.ode").odeint
    start, years, pelts = xp.asarray(START), xp.asarray(YEARS), xp.asarray(measured())

    def slope(y: Any, t: Any, p: Any) -> Any:
        return xp.array([(p[0] - p[1] * y[1]) * y[0], (p[3] * y[0] - p[2]) * y[1]])

    def loss(p: Any) -> Any:
        return xp.sum((odeint(slope, start, years, p, rtol=TOLERANCE, atol=TOLERANCE) - pelts) ** 2)

    both = module.jit(module.value_and_grad(loss))
    return moving(lambda p: module.block_until_ready(both(p)))


def cases(settings: Settings) -> Iterator[Case]:
    for solver in SOLVERS:
        makers: dict[str, Factory] = {
            "tracegrad": functools.partial(tracegrad, solver),
            "scipy, differences": functools.partial(differences, solver),
            "jax, odeint of its own": jax,
        }
        name = f"fit of a differential equation, {solver}, value and gradient"
        why = "" if solver in COMPILED else "the steps of SciPy's integrator are Python's, or one by one"
        yield Case(name, makers, expected, tolerance=1e-2, why=why)
