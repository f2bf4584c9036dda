"""What draws by Python's `random`, or within an opaque function, draws what plain Python does, and derives the same."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracegrad as tg

X = np.array([1.0, -2.0, 3.0])
GENERATOR = random.Random(3)


def by_module(x: Any) -> Any:
    y = x * x
    for _ in range(5):
        y = y * 1.2 if random.random() < 0.5 else y + x * random.gauss(1, 2)
    return y


def by_value(x: Any) -> Any:
    y = x * 1.0
    for _ in range(5):
        y = y * 1.2 if y[0] < random.random() * 3 else y - 0.5 * x
    return y


def by_instance(x: Any) -> Any:
    y = x * x
    while GENERATOR.random() < 0.7:
        y = y + x * GENERATOR.uniform(0, 1)
    return y


def by_choice(x: Any) -> Any:
    several = [1, 2, 3]
    random.shuffle(several)
    return x * x * random.choice(several) + sum(random.sample(range(10), 3)) * x[random.randint(0, 2)]


def by_seed(x: Any) -> Any:
    random.seed(3)
    return x * x * random.random() + random.Random(4).random()


def restart() -> None:
    random.seed(1)
    GENERATOR.seed(3)


@pytest.mark.parametrize("disabled", [False, True])
@pytest.mark.parametrize("f", [by_module, by_value, by_instance, by_choice, by_seed])
def test_values_derivatives_and_what_is_drawn_next_are_pythons(f: Callable[[Any], Any], disabled: bool) -> None:
    def drawn(called: Callable[[Any], Any]) -> list[Any]:
        restart()
        with warnings.catch_warnings(), tg.disable_jit() if disabled else warnings.catch_warnings():
            warnings.simplefilter("ignore", tg.PerformanceWarning)
            return [called(X), called(X), random.random(), GENERATOR.random()]

    for result, expected in zip(drawn(tg.trace(f)), drawn(f)):
        np.testing.assert_allclose(result, expected, rtol=1e-14)
    result = drawn(tg.grad(lambda x: np.sum(f(x))))
    moved = [drawn(lambda x, h=h: slope(f, x, h)) for h in 1e-6 * np.eye(3)]
    for k in range(2):
        np.testing.assert_allclose(result[k], [each[k] for each in moved], rtol=1e-6)
    assert result[2:] == moved[0][2:]


def slope(f: Callable[[Any], Any], x: Any, h: Any) -> Any:
    """The difference between two calls that draw the same numbers."""
    states = random.getstate(), GENERATOR.getstate()
    below = np.sum(f(x - h))
    random.setstate(states[0])
    GENERATOR.setstate(states[1])
    return (np.sum(f(x + h)) - below) / 2e-6


@pytest.mark.parametrize("disabled", [False, True])
def test_an_opaque_function_draws_in_order_with_the_code_around_it(disabled: bool) -> None:
    def answers(decorate: Callable[..., Any], opaque: Callable[..., Any]) -> list[Any]:
        rng = np.random.default_rng(0)

        def noise(x: Any) -> Any:
            return x * 2.0 + rng.normal()

        noisy, normal = opaque(noise), opaque(rng.normal)

        def f(x: Any) -> Any:
            y = x * x + noisy(x)
            for _ in range(4):
                y = y + noisy(x) if rng.random() < 0.5 else y * 1.1
            return y + noisy(x) + normal(x) + rng.random()

        called = decorate(f)
        return [called(X), called(X), called(X + 1), rng.random()]

    expected = answers(lambda f: f, lambda f: f)
    with warnings.catch_warnings(), tg.disable_jit() if disabled else warnings.catch_warnings():
        warnings.simplefilter("ignore", tg.PerformanceWarning)
        for result, wanted in zip(answers(tg.trace, tg.opaque), expected):
            np.testing.assert_allclose(result, wanted, rtol=1e-14)


def test_an_opaque_function_that_draws_is_said_to() -> None:
    rng = np.random.default_rng(0)
    noise = tg.opaque(lambda x: x + rng.normal())
    with pytest.warns(tg.PerformanceWarning, match="is opaque and draws random numbers"):
        tg.trace(lambda x: noise(x))(X)


@pytest.mark.parametrize("name", ["normal", "exponential", "gamma", "laplace", "lognormal", "gumbel", "rayleigh"])
def test_a_draw_by_complex_numbers_is_numpys_error(name: str) -> None:
    rng = np.random.default_rng(0)
    f = tg.trace(lambda x: getattr(rng, name)(x + 1j))
    for call in (f, lambda x: getattr(rng, name)(x + 1j)):
        with pytest.raises(TypeError, match="Cannot cast array data from dtype"):
            call(X)
    with pytest.raises((tg.UnsupportedError, TypeError, np.exceptions.ComplexWarning)):
        tg.trace(lambda x: getattr(rng, name)(x[0] + 1j))(X)
