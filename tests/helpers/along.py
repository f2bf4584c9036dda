"""What tests of SciPy's functions share: slopes by differences, and functions that count apart."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from finite_differences import derivative_along

import tracegrad as tg
from tracegrad.settings import settings

__all__ = ["HALF", "check_along", "check_found", "differences", "named", "replayed", "weighted"]


def named(f: Any, name: str) -> Any:
    """A function of its own: those of one code share the number of paths they may have."""
    return types.FunctionType(f.__code__.replace(co_name=name), f.__globals__, name, f.__defaults__, f.__closure__)


def weighted(f: Callable[[Any], Any], name: str) -> Any:
    """The sum of the results of `f`, each with a weight of its own, as a function of its own."""

    def total(x: Any) -> Any:
        y = f(x)
        return np.sum(y * np.cos(np.arange(np.size(y))).reshape(np.shape(y)))

    return named(total, name)


def replayed() -> Any:
    """Within the block NumPy answers first calls, op by op: for derivatives whose kernels are those of other tests."""
    return settings.override(first_call="replay")


def differences(f: Callable[[Any], Any], x: Any, v: Any, step: float = 1e-4) -> float:
    """The derivative of `f` at `x` along `v`, by central differences of fourth order."""
    return float(derivative_along(f, [x], [v], step))


# Half of the digits, and some: functions that are rounded otherwise have their minima there.
HALF = 3e-7


def check_found(f: Callable[[Any], Any], x: Any) -> None:
    """What a minimizer finds is what the plain function gives: where NumPy computes, and of compiled functions to half
    of the digits."""
    want = f(x)
    with tg.disable_jit():
        np.testing.assert_allclose(tg.vjp(f, x)[0], want, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(tg.trace(f)(x), want, rtol=HALF, atol=1e-9)


def check_along(
    f: Callable[[Any], Any],
    x: Any,
    name: str,
    values: tuple[float, float],
    first: tuple[float, float],
    second: tuple[float, float] | None = None,
) -> None:
    """Values of `f` at `x` are those of the plain function; the first derivative in both modes, and the second by
    reverse mode, are those of differences along a direction: each within a relative and an absolute bound."""
    of, v = weighted(f, name), np.sin(1.0 + np.arange(x.size)).reshape(x.shape)
    derivative, want = tg.grad(of), differences(of, x, v)
    with replayed():
        got = tg.trace(f)(x)
        assert np.shape(got) == np.shape(f(x))
        np.testing.assert_allclose(got, f(x), *values)
        assert np.sum(derivative(x) * v) == pytest.approx(want, *first)
        assert tg.jvp(of, (x,), (v,))[1] == pytest.approx(want, *first)
        if second is None:
            return
        twice = tg.grad(named(lambda x: np.sum(derivative(x) * v), name))(x)
        want = differences(lambda x: np.sum(derivative(x) * v), x, v)
    assert np.sum(twice * v) == pytest.approx(want, *second)
