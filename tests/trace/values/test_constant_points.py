"""Derivatives that traced code takes at points which are constants of the trace are those of the function there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracegrad as tg


def doubled(a: Any) -> Any:
    return np.sum(np.array([a, 2 * a]))


def crossed(x: Any) -> Any:
    return np.sum(np.array([x[1], 3 * x[0]]))


def newton(start: Any) -> Any:
    return start - (start * start - 2) / tg.grad(lambda a: np.sum(np.array([a * a, -2.0])))(start)


# What traced code computes without an argument, and the derivative by hand.
POINTS: dict[str, tuple[Callable[[], Any], Any]] = {
    "a number": (lambda: tg.grad(doubled)(3.0), 3.0),
    "a number of NumPy's": (lambda: tg.grad(doubled)(np.float64(3.0)), 3.0),
    "zero": (lambda: tg.grad(doubled)(0.0), 3.0),
    "minus zero": (lambda: tg.grad(doubled)(-0.0), 3.0),
    "asarray": (lambda: tg.grad(lambda a: np.sum(np.asarray([a, 2 * a])))(3.0), 3.0),
    "a product": (lambda: tg.grad(lambda a: np.sum(a * np.array([a, 1.0])))(3.0), 7.0),
    "zeros": (lambda: tg.grad(crossed)(np.zeros(2)), [3.0, 1.0]),
    "full": (lambda: tg.grad(crossed)(np.full(2, 0.5)), [3.0, 1.0]),
    "linspace": (lambda: tg.grad(crossed)(np.linspace(0, 1, 2)), [3.0, 1.0]),
    "an array": (lambda: tg.grad(crossed)(np.array([0.1, 0.2])), [3.0, 1.0]),
    "one element": (lambda: tg.grad(lambda x: np.sum(np.array([x[0], 3 * x[0]])))(np.zeros(1)), [4.0]),
    "jvp": (lambda: tg.jvp(crossed, (np.zeros(2),), (np.ones(2),))[1], 4.0),
    "vmap": (lambda: tg.vmap(tg.grad(doubled))(np.zeros(2)), [3.0, 3.0]),
    "hessian": (lambda: tg.hessian(lambda x: np.sum(np.array([x[0] * x[1]])))(np.zeros(2)), [[0, 1], [1, 0]]),
    "a step of Newton's": (lambda: newton(1.0), 1.5),
    "derivative of a derivative": (lambda: tg.grad(tg.grad(lambda a: np.sum(np.array([a**3, a]))))(2.0), 12.0),
}


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("way", ["traced", "beside an argument", "disabled", "alone"])
def test_a_derivative_at_a_constant_is_that_of_the_function(point: str, way: str) -> None:
    derivative, expected = POINTS[point]
    if way == "beside an argument":
        f = tg.trace(lambda y: np.multiply(y, derivative()))
        for _ in range(2):
            np.testing.assert_allclose(f(2.0), 2.0 * np.array(expected))
    elif way == "disabled":
        with tg.disable_jit():
            np.testing.assert_allclose(tg.trace(lambda: derivative())(), expected)
    else:
        f = tg.trace(lambda: derivative()) if way == "traced" else derivative
        for _ in range(2):
            np.testing.assert_allclose(f(), expected)


def step(x: Any, u: Any) -> Any:
    return x + 0.05 * np.array([x[1], u[0] - 0.1 * x[1] * np.abs(x[1])])


def test_a_loop_over_constants_that_join_the_graph_goes_on() -> None:
    def controlled() -> Any:
        jacobian_in_x = tg.jacobian(step, argnums=0)
        us = np.zeros((3, 1))
        xs = [np.zeros(2)]
        for u in us:
            xs.append(step(xs[-1], u))
        value = 200 * np.eye(2)
        for x, u in zip(xs[-2::-1], us[::-1]):
            a = jacobian_in_x(x, u)
            value = a.T @ value @ a
        return value

    a = np.array([[1.0, 0.05], [0.0, 1.0]])
    expected = np.linalg.matrix_power(a, 3).T @ (200 * np.eye(2)) @ np.linalg.matrix_power(a, 3)
    np.testing.assert_allclose(tg.trace(controlled)(), expected, rtol=1e-12)


def test_a_program_without_arguments_meets_constants_in_a_backward_loop() -> None:
    def gains() -> Any:
        jacobian_in_u = tg.jacobian(step, argnums=1)
        x, value = np.zeros(2), np.eye(2)
        for u in np.zeros((3, 1)):
            b = jacobian_in_u(x, u)
            value = value + b @ b.T
        return value

    np.testing.assert_allclose(tg.trace(gains)(), np.diag([1.0, 1.0 + 3 * 0.05**2]), rtol=1e-12)


@pytest.mark.parametrize("make", [np.tanh, np.exp], ids=["tanh", "exp"])
def test_the_hessian_of_a_function_of_an_element_times_an_array(make: Any) -> None:
    x = np.array([0.3, -0.2, 0.7])

    def f(p: Any) -> Any:
        return np.sum(make(p[1] * x) * p[0])

    p, h = np.array([0.8, 0.5]), 1e-5
    hessian = tg.hessian(f)(p)
    for i, e in enumerate(np.eye(2) * h):
        column = (tg.grad(f)(p + e) - tg.grad(f)(p - e)) / (2 * h)
        np.testing.assert_allclose(hessian[i], column, rtol=1e-7, atol=1e-8)


def test_the_hessian_where_a_weight_is_a_python_number() -> None:
    x = np.array([0.3, -0.2, 0.7])

    def f(p: Any) -> Any:
        return np.sum(np.tanh(p[1] * x))

    p = np.array([0.8, 0.5])
    t = np.tanh(p[1] * x)
    expected = np.array([[0.0, 0.0], [0.0, np.sum(-2 * t * (1 - t**2) * x**2)]])
    np.testing.assert_allclose(tg.hessian(f)(p), expected, rtol=1e-12, atol=1e-15)
