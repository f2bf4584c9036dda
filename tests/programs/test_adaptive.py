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


def first_derivative_is_the_last(p: Any) -> Any:
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


def state_in_an_object(p: Any) -> Any:
    state = State()
    state.t, state.y, state.h = 0.0, p[4:], 0.1
    while state.t < END:
        state.h = min(state.h, END - state.t)
        new, error = step(p, state.y, state.h)
        if error <= 1:
            state.t, state.y = state.t + state.h, new
        state.h *= factor(error)
    return np.sum(state.y)


def at_most_so_many_steps(p: Any) -> Any:
    t, y, h = 0.0, p[4:], 0.1
    for _ in range(500):
        if t >= END:
            break
        h = min(h, END - t)
        new, error = step(p, y, h)
        if error <= 1:
            t, y = t + h, new
        h *= factor(error)
    return np.sum(y)


def steps_are_counted(p: Any) -> Any:
    t, y, h, steps, rejected = 0.0, p[4:], 0.1, 0, 0
    while t < END and steps < 1000:
        h = min(h, END - t)
        new, error = step(p, y, h)
        steps += 1
        if error > 1:
            rejected += 1
            h *= factor(error)
            continue
        t, y = t + h, new
        h *= factor(error)
    return np.sum(y) + 0.0 * steps * rejected


def counts_are_returned(p: Any) -> Any:
    t, y, h, accepted, rejected, calls = 0.0, p[4:], 0.1, 0, 0, 0
    while t < END:
        h = min(h, END - t)
        new, error = step(p, y, h)
        calls += 4
        if error <= 1:
            t, y = t + h, new
            accepted += 1
        else:
            rejected += 1
        h *= factor(error)
    return np.sum(y) + 0.0 * accepted * rejected * calls


def flagged_as_scipy_does(p: Any) -> Any:
    t, y, h_abs = 0.0, p[4:], 0.1
    while True:
        accepted, rejected = False, False
        while not accepted:
            h = h_abs
            t_new = t + h
            if t_new - END > 0:
                t_new = END
            h = t_new - t
            h_abs = np.abs(h)
            new, error = step(p, y, h)
            if error < 1:
                longer = 10.0 if error == 0 else min(10.0, 0.9 * error**-0.33)
                if rejected:
                    longer = min(1.0, longer)
                h_abs *= longer
                accepted = True
            else:
                h_abs *= max(0.2, 0.9 * error**-0.33)
                rejected = True
        t, y = t_new, new
        if t - END >= 0:
            break
    return np.sum(y)


def of_limited_steps(p: Any) -> Any:
    t, y, h, longest = 0.0, p[4:], 0.1, 0.3
    while t < END:
        if t + h > END:
            h = END - t
        new, error = step(p, y, h)
        if error <= 1:
            t, y = t + h, new
        h = 0.1 * h if error > 100 else 4 * h if error < 1e-3 else h / error**0.33
        if h > longest:
            h = longest
        if h < 1e-6:
            raise RuntimeError("the steps are too short")
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


class State:
    t: Any
    y: Any
    h: Any


ALL = (
    rejected_without_else,
    accepted_or_else,
    clipped_by_numpy,
    first_derivative_is_the_last,
    tried_until_accepted,
    state_in_a_tuple,
    state_in_an_object,
    at_most_so_many_steps,
    steps_are_counted,
    counts_are_returned,
    flagged_as_scipy_does,
    of_limited_steps,
)


@pytest.mark.parametrize("integrated", ALL, ids=lambda f: f.__name__)
def test_one_program_takes_any_steps(integrated: Callable[[Any], Any]) -> None:
    value_and_grad = tg.value_and_grad(integrated)
    for scale in (1.0, 1.02, 0.7, 1.2, 2.0):
        p = scale * RATES
        value, gradient = value_and_grad(p)
        assert value == pytest.approx(integrated(p), rel=1e-12)
        wanted = along(lambda x, p=p: integrated(x * p), np.ones(6))  # type: ignore[misc]
        np.testing.assert_allclose(gradient * p, wanted, rtol=1e-5, atol=1e-6 * np.max(np.abs(wanted)))
    # Some ways through an iteration are met with later inputs.
    assert value_and_grad.cache_info().traces <= (3 if integrated is of_limited_steps else 2)


@pytest.mark.parametrize(
    "integrated", [rejected_without_else, clipped_by_numpy, first_derivative_is_the_last, at_most_so_many_steps]
)
def test_what_accepted_and_rejected_steps_do_alike_is_in_the_program_once(integrated: Callable[[Any], Any]) -> None:
    graph = str(tg.trace(integrated).explain(RATES).graph)
    assert graph.count("= power(") == graph.count("= mean(") == 1


def test_steps_that_are_continued_end_as_others_do() -> None:
    # They are one way around the loop, as the others are.
    assert str(tg.trace(steps_are_counted).explain(RATES).graph).count("= mean(") <= 2


def rosenbrock(k: Any) -> Any:
    """Robertson's reactions by a method that solves for each slope, and whose steps are rejected by what it finds."""
    y, t, h, steps = np.array([1.0, 0.0, 0.0]), 0.0, 1e-3, 0
    gamma = 1 + 1 / np.sqrt(2)
    while t < 1.0:
        h = min(h, 1.0 - t)
        system = np.eye(3) - gamma * h * reactions_jacobian(k, y)
        k1 = np.linalg.solve(system, reactions(k, y))
        k2 = np.linalg.solve(system, reactions(k, y + h * k1) - 2 * k1)
        new = y + 1.5 * h * k1 + 0.5 * h * k2
        error = np.linalg.norm((new - (y + h * k1)) / (1e-3 + 1e-2 * np.abs(new)))
        if error <= 1:
            t, y, steps = t + h, new, steps + 1
        h *= min(3.0, max(0.3, 0.9 / np.sqrt(error + 1e-12)))
    return np.sum(y**2) + steps


def reactions(k: Any, y: Any) -> Any:
    a, b, c = k[0] * y[0], k[1] * y[1] * y[2], k[2] * y[1] ** 2
    return np.array([b - a, a - b - c, c])


def reactions_jacobian(k: Any, y: Any) -> Any:
    first, last = [-k[0], k[1] * y[2], k[1] * y[1]], [0.0, 2 * k[2] * y[1], 0.0]
    return np.array([first, [k[0], -k[1] * y[2] - 2 * k[2] * y[1], -k[1] * y[1]], last])


def test_what_is_asked_may_be_found_by_solving_systems() -> None:
    value_and_grad = tg.value_and_grad(rosenbrock)
    for scale in (1.0, 1.1, 0.3, 3.0, 5.0):
        k = scale * np.array([0.04, 1e2, 3e3])
        value, gradient = value_and_grad(k)
        assert value == pytest.approx(rosenbrock(k), rel=1e-10)
        wanted = along(lambda x, k=k: rosenbrock(x * k), np.ones(3))  # type: ignore[misc]
        np.testing.assert_allclose(gradient * k, wanted, rtol=1e-5, atol=1e-6 * np.max(np.abs(wanted)))
    assert value_and_grad.cache_info().traces <= 2


def solved(x: Any, checked: bool) -> Any:
    """Steps of which what a system answers decides how long they are; one that has no answer ends it, if checked."""
    y, h, n = np.array([2.0, 1.0]), 1.0, 0
    while h > 1e-3 and n < 30:
        system = x[0] * np.eye(2) + x[1] * (1 - np.eye(2)) + (y[1] - 0.512) * np.diag([0.0, 1.0])
        if checked and np.abs(system[0, 0] * system[1, 1] - x[1] ** 2) < 1e-9:
            break
        step = np.linalg.solve(system, y)
        if step[0] ** 2 + step[1] ** 2 < h:
            y, h = y - 0.3 * step, h * 0.7
        else:
            y, h = y * 0.8, h * 1.3
        n += 1
    return np.sum(y**2) + h + n


def test_a_system_without_an_answer_raises_where_it_does_in_python() -> None:
    both = [tg.trace(solved), tg.value_and_grad(solved)]
    for x in ([4.0, 0.5], [0.0, 0.0], [3.1, -0.9], [1e-9, 0.0], [0.0, 0.0], [9.0, 2.0], [2.2, 1.1], [0.0, 0.3]):
        for checked in (False, True):
            args = np.array(x)
            try:
                wanted = solved(args, checked)
            except np.linalg.LinAlgError:
                for fun in both:
                    with pytest.raises(np.linalg.LinAlgError):
                        fun(args, checked)
                continue
            value, gradient = both[1](args, checked)
            assert both[0](args, checked) == pytest.approx(wanted, rel=1e-9)
            assert value == pytest.approx(wanted, rel=1e-9)
            if np.max(args) > 1e-3:
                derivatives = along(lambda x, checked=checked: solved(x, checked), args)  # type: ignore[misc]
                np.testing.assert_allclose(gradient, derivatives, rtol=1e-4, atol=1e-5)


def along(fun: Callable[[Any], Any], x: Any, scale: float = 1e-6) -> Any:
    """The derivative by differences."""
    return np.array([(fun(x + d) - fun(x - d)) / (2 * scale) for d in scale * np.eye(len(x))])


def integrated(y: Any, p: Any, span: Any, h: Any) -> Any:
    """From an argument, over a span of time that is one, beginning with a step that is one."""
    start, t, accepted = y, 0.0, 0
    while t < span:
        h = min(h, span - t)
        new, error = step(p, y, h)
        if error <= 1:
            t, y = t + h, new
            accepted += 1
        h *= factor(error)
    return np.sum(y * start) + accepted


def test_the_first_step_is_no_other_than_the_rest() -> None:
    value_and_grad = tg.value_and_grad(integrated)
    # Rejected at first, accepted at first, in one step, in none.
    for span, h in [(2.0, 5.0), (2.0, 1e-3), (1e-3, 1.0), (0.0, 0.1), (-1.0, 1.0), (3.0, 0.05), (1.5, 9.0)]:
        for scale in (1.0, 1.3):
            y, p = scale * RATES[4:], RATES / scale
            value, gradient = value_and_grad(y, p, span, h)
            assert value == pytest.approx(integrated(y, p, span, h), rel=1e-12)
            wanted = along(lambda y, p=p, span=span, h=h: integrated(y, p, span, h), y)  # type: ignore[misc]
            np.testing.assert_allclose(gradient, wanted, rtol=1e-5)
    assert value_and_grad.cache_info().traces <= 2


def test_an_argument_that_steps_update_is_updated() -> None:
    def advanced(y: Any, h: Any) -> Any:
        t, z = 0.0, y
        while t < END:
            h = min(h, END - t)
            new, error = step(RATES, z, h)
            if error <= 1:
                t = t + h
                z[:] = new
            h *= factor(error)
        return np.sum(y**2)

    value_and_grad = tg.value_and_grad(advanced)
    for h in (0.1, 5.0, 0.01):
        mine, theirs = RATES[4:].copy(), RATES[4:].copy()
        value, gradient = value_and_grad(mine, h)
        assert value == pytest.approx(advanced(theirs, h), rel=1e-12)
        np.testing.assert_allclose(mine, theirs, rtol=1e-12)
        wanted = along(lambda y, h=h: advanced(y.copy(), h), RATES[4:])  # type: ignore[misc]
        np.testing.assert_allclose(gradient, wanted, rtol=1e-5)


def test_what_python_knows_of_the_first_iteration_stays_known() -> None:
    def integrated(p: Any) -> Any:
        t, y, h, first = 0.0, p[4:], p[0], True
        while t < END:
            h = min(h, END - t)
            new, error = step(p, y, h)
            if error <= 1:
                t, y = t + h, new * 1.01 if first else new
            elif first:
                h = h / 3
            first = False
            h *= factor(error)
        return np.sum(y)

    value_and_grad = tg.value_and_grad(integrated)
    for scale, h in [(1.0, 0.1), (1.0, 4.0), (1.2, 0.05), (0.8, 3.0), (1.0, 0.2)]:
        p = np.array([h, *(scale * RATES[1:])])
        value, gradient = value_and_grad(p)
        assert value == pytest.approx(integrated(p), rel=1e-12)
        np.testing.assert_allclose(gradient, along(integrated, p, 1e-7), rtol=2e-4, atol=1e-4)


def by_years(p: Any) -> Any:
    y, h, result = p[4:], 0.1, np.empty((7, 2))
    result[0] = y
    for year in range(1, 7):
        t, end, h = year - 1.0, float(year), 3 * h
        while t < end:
            h = min(h, end - t)
            new, error = step(p, y, h)
            if error <= 1:
                t, y = t + h, new
            h *= factor(error)
        result[year] = y
    return np.sum(np.log(result) ** 2)


def by_calls(p: Any) -> Any:
    y, h, total = p[4:], 0.1, 0.0
    for year in range(8):
        y, h = over(p, y, float(year), year + 1.0, h)
        total = total + np.sum(np.log(y) ** 2)
    return total


def over(p: Any, y: Any, t: Any, end: Any, h: Any) -> Any:
    while t < end:
        h = min(h, end - t)
        new, error = step(p, y, h)
        if error <= 1:
            t, y = t + h, new
        h *= factor(error)
    return y, h


def in_one_loop(p: Any) -> Any:
    y, t, h, year, result = p[4:], 0.0, 0.1, 1, np.ones((7, 2))
    while year < 7:
        h = min(h, year - t)
        new, error = step(p, y, h)
        if error <= 1:
            t, y = t + h, new
        h *= factor(error)
        if t >= year:
            result[year] = y
            t, year = float(year), year + 1
    return np.sum(np.log(result) ** 2)


def test_one_loop_over_years_is_two_programs() -> None:
    value_and_grad = tg.value_and_grad(in_one_loop)
    for scale in (1.0, 1.1, 0.8, 1.7, 0.5):
        value, gradient = value_and_grad(scale * RATES)
        assert value == pytest.approx(in_one_loop(scale * RATES), rel=1e-12)
        wanted = along(lambda x, p=scale * RATES: in_one_loop(x * p), np.ones(6))  # type: ignore[misc]
        np.testing.assert_allclose(gradient * scale * RATES, wanted, rtol=1e-5, atol=1e-6 * np.max(np.abs(wanted)))
    assert value_and_grad.cache_info().traces <= 2


@pytest.mark.parametrize("fitted", [by_years, by_calls])
def test_a_loop_within_a_loop_is_there_once(fitted: Callable[[Any], Any]) -> None:
    value_and_grad = tg.value_and_grad(fitted)
    for scale in (1.0, 1.1, 0.8):
        value, gradient = value_and_grad(scale * RATES)
        assert value == pytest.approx(fitted(scale * RATES), rel=1e-12)
        wanted = along(lambda x, p=scale * RATES: fitted(x * p), np.ones(6))  # type: ignore[misc]
        np.testing.assert_allclose(gradient * scale * RATES, wanted, rtol=1e-5)
    assert value_and_grad.cache_info().traces <= 2
    assert str(tg.trace(fitted).explain(RATES).graph).count("= mean(") == 1


def neural_ode(weights: Any, y: Any, span: float = 4.0) -> Any:
    """Dormand and Prince's steps along the slopes of a network."""
    (inner, shift), (outer, drift) = weights

    def slope(y: Any) -> Any:
        return np.tanh(y @ inner + shift) @ outer + drift

    t, h = 0.0, 0.5
    while t < span:
        h = min(h, span - t)
        k = [slope(y)]
        for row in TABLEAU:
            k.append(slope(y + h * sum(a * b for a, b in zip(row, k))))
        new = y + h * sum(a * b for a, b in zip(TABLEAU[-1], k))
        off = h * sum(a * b for a, b in zip(OFF, k))
        error = np.sqrt(np.mean((off / (1e-5 * (1 + np.maximum(np.abs(y), np.abs(new))))) ** 2))
        if error <= 1:
            t, y = t + h, new
        h *= min(5.0, max(0.2, 0.9 * max(error, 1e-10) ** -0.2))
    return np.sum(y**2)


TABLEAU = [
    [1 / 5],
    [3 / 40, 9 / 40],
    [44 / 45, -56 / 15, 32 / 9],
    [19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729],
    [9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656],
    [35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84],
]
OFF = [71 / 57600, 0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40]


def test_a_neural_differential_equation_is_two_programs_for_any_weights() -> None:
    rng = np.random.default_rng(0)
    value_and_grad = tg.value_and_grad(neural_ode)
    for scale in (1.0, 0.3, 2.0, 1.0, 4.0):
        weights = [(scale * rng.normal(size=(4, 16)), rng.normal(size=16)), (rng.normal(size=(16, 4)) / 4, np.zeros(4))]
        y = rng.normal(size=4)
        value, gradient = value_and_grad(weights, y)
        assert value == pytest.approx(neural_ode(weights, y), rel=1e-10)
        flat, derivatives = (np.concatenate([x.ravel() for layer in x for x in layer]) for x in (weights, gradient))
        for direction in rng.normal(size=(3, len(flat))):
            low, high = (neural_ode(unflat(flat + d * direction), y) for d in (-1e-6, 1e-6))
            assert derivatives @ direction == pytest.approx((high - low) / 2e-6, rel=1e-5, abs=1e-5)
    assert value_and_grad.cache_info().traces <= 2


def unflat(x: Any) -> Any:
    inner, shift, outer, drift = np.split(x, [64, 80, 144])
    return [(inner.reshape(4, 16), shift), (outer.reshape(16, 4), drift)]
