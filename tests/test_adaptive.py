"""Integrators that choose their own steps, as people write them: one program for every pattern of steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracegrad as tg

END, TOLERANCE = 2.0, 1e-3
RATES = np.array([0.55, 0.028, 0.80, 0.024, 30.0, 4.0])


def slope(p: Any, y: Any) -> Any:
    """Lotka and Volterra's."""
    hares, lynxes = y
    return np.array([(p[0] - p[1] * lynxes) * hares, (p[3] * hares - p[2]) * lynxes])


def step_from(p: Any, y: Any, h: Any, k1: Any) -> Any:
    """Bogacki and Shampine's step, how far it may be off in units of the tolerance, and the slope behind it."""
    k2 = slope(p, y + h * k1 / 2)
    k3 = slope(p, y + h * 0.75 * k2)
    new = y + h * (2 / 9 * k1 + 1 / 3 * k2 + 4 / 9 * k3)
    k4 = slope(p, new)
    off = h * (-5 / 72 * k1 + k2 / 12 + k3 / 9 - k4 / 8)
    scale = TOLERANCE * (1 + np.maximum(np.abs(y), np.abs(new)))
    return new, np.sqrt(np.mean((off / scale) ** 2)), k4


def step(p: Any, y: Any, h: Any) -> Any:
    """As `step_from`, from the slope there."""
    return step_from(p, y, h, slope(p, y))[:2]


def factor(error: Any) -> Any:
    """By what the next step is longer."""
    return min(5.0, max(0.2, 0.9 * max(error, 1e-10) ** -0.33))


def rejected_without_else(p: Any) -> Any:
    t, y, h = 0.0, p[4:], 0.1
    while t < END:
        h = min(h, END - t)
        new, error = step(p, y, h)
        if error <= 1:
            t, y = t + h, new
        h *= factor(error)
    return np.sum(y)


def accepted_or_else(p: Any) -> Any:
    t, y, h = 0.0, p[4:], 0.1
    while t < END:
        if t + h > END:
            h = END - t
        new, error = step(p, y, h)
        if error <= 1:
            t += h
            y = new
            h = h * min(5.0, 0.9 * error**-0.33)
        else:
            h = h * max(0.2, 0.9 * error**-0.33)
    return np.sum(y)


def clipped_by_numpy(p: Any) -> Any:
    t, y, h = 0.0, p[4:], 0.1
    while t < END:
        h = np.minimum(h, END - t)
        new, error = step(p, y, h)
        if error <= 1:
            t, y = t + h, new
        h = h * np.clip(0.9 * (error + 1e-10) ** -0.33, 0.2, 5.0)
    return np.sum(y)


def first_slope_is_the_last(p: Any) -> Any:
    t, y, h, k = 0.0, p[4:], 0.1, slope(p, p[4:])
    while t < END:
        h = min(h, END - t)
        new, error, after = step_from(p, y, h, k)
        if error <= 1:
            t, y, k = t + h, new, after
        h *= factor(error)
    return np.sum(y)


def tried_until_accepted(p: Any) -> Any:
    t, y, h = 0.0, p[4:], 0.1
    while t < END:
        h = min(h, END - t)
        while True:
            new, error = step(p, y, h)
            if error <= 1:
                break
            h *= factor(error)
        t, y, h = t + h, new, h * factor(error)
    return np.sum(y)


def state_in_a_tuple(p: Any) -> Any:
    state = 0.0, p[4:], 0.1
    while state[0] < END:
        t, y, h = state
        h = min(h, END - t)
        new, error = step(p, y, h)
        longer = h * factor(error)
        state = (t + h, new, longer) if error <= 1 else (t, y, longer)
    return np.sum(state[1])


ALL = (
    rejected_without_else, accepted_or_else, clipped_by_numpy, first_slope_is_the_last, tried_until_accepted,
    state_in_a_tuple,
)  # fmt: skip


@pytest.mark.parametrize("integrated", ALL, ids=lambda f: f.__name__)
def test_one_program_takes_any_steps(integrated: Callable[[Any], Any]) -> None:
    value_and_grad = tg.value_and_grad(integrated)
    for scale in (1.0, 1.02, 0.7, 1.2, 2.0):
        p = scale * RATES
        value, gradient = value_and_grad(p)
        assert value == pytest.approx(integrated(p), rel=1e-12)
        near = 1e-6 * np.diag(p)
        along = [(integrated(p + d) - integrated(p - d)) / 2e-6 for d in near]
        np.testing.assert_allclose(gradient * p, along, rtol=1e-5, atol=1e-6 * np.max(np.abs(along)))
    assert value_and_grad.cache_info().traces <= 2
