"""`scipy.integrate.solve_bvp` in traced functions: SciPy's solution, with derivatives of the exact one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import integrate

import tracegrad as tg
from tracegrad.errors import UnsupportedError

MESH = np.linspace(0.0, 1.0, 7)


def hanging(k: Any, end: Any, height: Any) -> Any:
    """y'' = k**2 y, from 0 to a height at the end: height sinh(k x) / sinh(k end)."""
    return integrate.solve_bvp(
        lambda x, y: np.vstack([y[1], k**2 * y[0]]),
        lambda a, b: np.array([a[0], b[0] - height]),
        MESH * end,
        np.zeros((2, MESH.size)),
        tol=1e-9,
    )


def at_a_third(k: Any, end: Any, height: Any) -> Any:
    return hanging(k, end, height).sol(0.3)[0]


def exactly(k: Any, end: Any, height: Any) -> Any:
    return height * np.sinh(0.3 * k) / np.sinh(k * end)


POINT = (1.7, 1.2, 0.8)
WHERE = (0, 1, 2)


def test_a_traced_solution_is_scipys() -> None:
    def fields(*given: Any) -> Any:
        result = hanging(*given)
        names = ("x", "y", "yp", "rms_residuals", "niter", "status", "success")
        return {k: result[k] for k in names} | {
            "sol": result.sol(np.array([[0.1], [2.0]])),
            "slope": result.sol(0.2, 1),
        }

    result, wanted = tg.trace(fields)(*POINT), fields(*POINT)
    assert result["y"].shape == wanted["y"].shape
    for name, value in wanted.items():
        np.testing.assert_allclose(result[name], value, rtol=1e-12, atol=1e-12)


def test_its_derivatives_are_those_of_the_exact_solution() -> None:
    wanted = tg.grad(exactly, WHERE)(*POINT)
    np.testing.assert_allclose(tg.grad(at_a_third, WHERE)(*POINT), wanted, rtol=1e-7)
    np.testing.assert_allclose(tg.jacfwd(at_a_third, WHERE)(*POINT), wanted, rtol=1e-7)
    bends = tg.hessian(exactly, WHERE)(*POINT)
    np.testing.assert_allclose(tg.hessian(at_a_third, WHERE)(*POINT), bends, rtol=1e-6, atol=1e-8)


def test_another_mesh_is_another_trace_with_its_own_solution() -> None:
    step = tg.value_and_grad(at_a_third)
    for k in (0.5, 9.0, 0.5, 6.0):
        value, derivative = step(k, *POINT[1:])
        np.testing.assert_allclose(value, exactly(k, *POINT[1:]), rtol=1e-6)
        np.testing.assert_allclose(derivative, tg.grad(exactly)(k, *POINT[1:]), rtol=1e-5)
    assert step.cache_info().traces > 1


def frequency(c: Any) -> Any:
    """The least p with y'' = -c p**2 y, which is 0 at 0 and 1: pi / sqrt(c)."""
    return integrate.solve_bvp(
        lambda x, y, p: np.vstack([y[1], -c * p[0] ** 2 * y[0]]),
        lambda a, b, p: np.array([a[0], b[0], a[1] - p[0]]),
        MESH,
        np.vstack([np.sin(np.pi * MESH), np.cos(np.pi * MESH)]),
        p=[3.0],
        tol=1e-9,
    ).p[0]


def test_unknown_parameters_have_derivatives() -> None:
    c = 1.1
    np.testing.assert_allclose(tg.trace(frequency)(c), np.pi * c**-0.5, rtol=1e-8)
    np.testing.assert_allclose(tg.grad(frequency)(c), -0.5 * np.pi * c**-1.5, rtol=1e-7)
    np.testing.assert_allclose(tg.grad(tg.grad(frequency))(c), 0.75 * np.pi * c**-2.5, rtol=1e-6)


def test_pytrees_go_through_traces() -> None:
    def middle(p: Any) -> Any:
        result = tg.scipy.solve_bvp(
            lambda x, y, q: {"u": y["v"], "v": -q["k"] * np.exp(y["u"]) * p["weight"]},
            lambda a, b, q: {"ends": [a["u"], b["u"]], "k": q["k"] - p["k"] ** 2},
            MESH,
            {"u": np.zeros(7), "v": np.zeros(7)},
            {"k": 1.0},
            tol=1e-9,
        )
        return result.sol(0.5)["u"] + result.y["v"][0] + result.yp["v"][-1] * result.p["k"]

    point, step = {"k": 0.9, "weight": 1.1}, 1e-4
    derivatives, traced = tg.grad(middle)(point), tg.trace(middle)
    np.testing.assert_allclose(traced(point), middle(point), rtol=1e-9)
    for name in point:
        high, low = ({**point, name: point[name] + sign * step} for sign in (1, -1))
        np.testing.assert_allclose(derivatives[name], (traced(high) - traced(low)) / (2 * step), rtol=1e-6)


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda x: integrate.solve_bvp(lambda x, y: y, lambda a, b: a, x, np.ones((1, 7)), S=np.eye(1)), "argument S="),
        (lambda x: integrate.solve_bvp(lambda x, y: y, lambda a, b: a, x, np.ones((1, 6))), "a column for each x"),
        (lambda x: integrate.solve_bvp(lambda x, y: y, lambda a, b: a, x, np.ones((1, 7)), tol=x[0]), "value for tol="),
    ],
)
def test_what_is_not_known_is_refused_by_name(call: Callable[..., Any], what: str) -> None:
    with pytest.raises(UnsupportedError, match=what):
        tg.trace(call)(MESH)
