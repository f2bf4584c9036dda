"""Functions that Numba compiles, in traced code: traced as the functions that they were made of."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest
from along import differences
from scipy import integrate, optimize

import tracegrad as tg

X, V, FACTOR = np.array([0.3, -0.7, 1.1]), np.array([0.4, 1.0, -0.5]), 2.0


@numba.njit
def square(x):  # type: ignore[no-untyped-def]
    return x * x


@numba.njit
def energy(x, k):  # type: ignore[no-untyped-def]
    total = 0.0
    for i in range(x.shape[0]):
        total += np.sin(x[i]) * k + square(x[i])
    return total


@numba.njit
def chosen(x):  # type: ignore[no-untyped-def]
    return np.exp(x[0]) if x[1] > 0.0 else np.cos(x[0])


@numba.njit
def oscillation(t, y, k):  # type: ignore[no-untyped-def]
    return np.array([y[1], -k * y[0] - 0.1 * t])


@numba.jit(nopython=True)
def filled(x):  # type: ignore[no-untyped-def]
    result = np.empty(x.size)
    for i in range(x.size):
        result[i] = x[i] ** 2 * FACTOR
    return result


class Model:
    """Holds a function of Numba's as an attribute."""

    def __init__(self) -> None:
        self.own = energy

    def loss(self, x: Any) -> Any:
        return self.own(x, 3.0)


def solved(x: Any) -> Any:
    result = integrate.solve_ivp(oscillation, (0.0, 1.0), x[:2], t_eval=[0.5, 1.0], args=(x[2],), rtol=1e-9, atol=1e-9)
    return np.sum(result.y**2)


CASES = {
    "called": lambda x: energy(x, 2.0) ** 2,
    "given to a transform": lambda x: tg.grad(energy)(x, 2.0) @ x,
    "branches": lambda x: chosen(x) + chosen(-x),
    "fills an array": lambda x: np.sum(np.sin(filled(x))),
    "held by an object": Model().loss,
    "in a list": lambda x: sum([f(x, 2.0) for f in [energy, energy]]),
    "a slope": solved,
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("error")
def test_values_are_numbas_and_derivatives_those_of_differences(name: str) -> None:
    f: Any = CASES[name]
    derivative = tg.value_and_grad(f)
    for x in (X, X + 0.1):
        value, gradient = derivative(x)
        assert value == pytest.approx(f(x), rel=1e-9)
        assert gradient @ V == pytest.approx(differences(f, x, V, 1e-3), rel=1e-7)
        assert tg.jvp(f, (x,), (V,))[1] == pytest.approx(gradient @ V, rel=1e-7)


def test_a_function_of_numbas_is_traced_itself() -> None:
    f, derivative = tg.trace(energy), tg.grad(energy)
    for k in (2.0, 3.0):
        assert f(X, k) == pytest.approx(energy(X, k))
        np.testing.assert_allclose(derivative(X, k), np.cos(X) * k + 2.0 * X)
    assert f.cache_info().traces == 1


def test_another_function_in_its_place_is_noticed() -> None:
    space: dict[str, Any] = {"law": square}
    f = tg.trace(eval("lambda x: law(x) * 2.0", space))
    np.testing.assert_allclose(f(X), X**2 * 2.0)
    space["law"] = numba.njit(lambda x: x + 1.0)
    np.testing.assert_allclose(f(X), (X + 1.0) * 2.0)


def test_without_jit_derivatives_are_there_too() -> None:
    with tg.disable_jit():
        np.testing.assert_allclose(tg.grad(CASES["called"])(X), tg.grad(lambda x: energy(x, 2.0) ** 2)(X))
        assert tg.trace(CASES["called"])(X) == CASES["called"](X)


def test_solvers_of_scipys_take_it() -> None:
    f = tg.trace(lambda a: optimize.brentq(lambda x: square(x) - a, 0.0, 9.0))
    assert f(2.0) == pytest.approx(2.0**0.5)
    assert tg.grad(lambda a: optimize.brentq(lambda x: square(x) - a, 0.0, 9.0))(2.0) == pytest.approx(0.5 / 2.0**0.5)
