"""Loops whose iterations ask for values are closed while they are recorded: one program for every number of
iterations."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.runtime.execution.program import machine_code_count

STARTS = tuple([(10.0**k,) for k in (6, -9, 0, 0.5, 3, -3, 12)])
POINTS = np.linspace(0.5, 2.0, 5)
SCALES = tuple([(POINTS * scale, a) for scale, a in ((1, 3.0), (2, 1e4), (1, 1e-3), (1, 1e8), (3, 7.0))])


class Program(NamedTuple):
    """A function, arguments of several calls that take other numbers of iterations, and how many traces that may
    take."""

    fun: Callable[..., Any]
    calls: tuple[tuple[Any, ...], ...]
    traces: int


PROGRAMS: dict[str, Program] = {}


def program(traces: int, calls: tuple[tuple[Any, ...], ...] = STARTS) -> Callable[[Any], Any]:
    """Enter a function into the table."""

    def enter(fun: Any) -> Any:
        PROGRAMS[fun.__name__] = Program(fun, calls, traces)
        return fun

    return enter


def wrong(x: Any, a: Any) -> Any:
    """Whether x is not yet the square root of a."""
    return abs(x * x - a) > 1e-12 * a


def better(x: Any, a: Any) -> Any:
    """One step of Newton's method."""
    return 0.5 * (x + a / x)


@program(2)
def newton(a: Any) -> Any:
    x = a
    while wrong(x, a):
        x = better(x, a)
    return x


@program(4)
def iterations_counted(a: Any) -> Any:
    x, n = a, 0
    while wrong(x, a):
        x, n = better(x, a), n + 1
    return x, n


@program(5)
def iterations_bounded(a: Any) -> Any:
    x, n = a, 0
    while wrong(x, a) and n < 20:
        x, n = better(x, a), n + 1
    return x, n


@program(3)
def left_by_break(a: Any) -> Any:
    x = a
    while True:
        y = better(x, a)
        if abs(y - x) < 1e-12 * y:
            break
        x = y
    return y


@program(3)
def an_else_of_while(a: Any) -> Any:
    x, n = a, 0
    while n < 12:
        y = better(x, a)
        if abs(y - x) < 1e-12 * y:
            break
        x, n = y, n + 1
    else:
        return -1.0, n
    return y, n


@program(4)
def raised_after_too_many(a: Any) -> Any:
    x, n = a, 0
    while wrong(x, a):
        x, n = better(x, a), n + 1
        if n > 18:
            raise ArithmeticError(f"{n} iterations")
    return x


@program(4)
def another_body_at_iteration_seven(a: Any) -> Any:
    x, n = a, 0
    while wrong(x, a):
        x, n = better(x, a), n + 1
        if n == 7:
            x = x * 1.5
    return x, n


@program(7)
def a_list_that_grows(a: Any) -> Any:
    x, seen = a, []
    while wrong(x, a):
        x = better(x, a)
        seen.append(x)
    return x, len(seen), sum(seen)


@program(7)
def a_list_that_grows_behind_a_method(a: Any) -> Any:
    x, push = a, [a].append
    while wrong(x, a):
        x = better(x, a)
        push(x)
    return x, len(push.__self__)


class Counter:
    """Something with attributes."""

    def __init__(self, x: Any):
        self.n, self.x = 0, x


@program(4)
def attributes_of_an_object(a: Any) -> Any:
    counter = Counter(a)
    while wrong(counter.x, a):
        counter.n += 1
        counter.x = better(counter.x, a)
    return counter.x, counter.n


@program(4)
def variables_of_a_closure(a: Any) -> Any:
    n, x = 0, a

    def step() -> None:
        nonlocal n, x
        n, x = n + 1, better(x, a)

    while wrong(x, a):
        step()
    return x, n


STATE = {"n": 0}


@program(4)
def an_item_from_outside(a: Any) -> Any:
    x = a
    STATE["n"] = 0
    while wrong(x, a):
        x = better(x, a)
        STATE["n"] += 1
    return x, STATE["n"]


class Solver:
    """Something from outside that counts its iterations."""

    def __init__(self) -> None:
        self.n, self.x = 0, 1.0

    def solve(self, a: Any) -> None:
        """Leave the root in an attribute."""
        self.n, self.x = 0, a
        while wrong(self.x, a):
            self.n += 1
            self.x = better(self.x, a)


SOLVER, ITERATIONS = Solver(), 0


@program(4)
def attributes_from_outside(a: Any) -> Any:
    SOLVER.solve(a)
    return SOLVER.x, SOLVER.n


@program(4)
def a_global_variable(a: Any) -> Any:
    global ITERATIONS
    x = a
    ITERATIONS = 0
    while wrong(x, a):
        x = better(x, a)
        ITERATIONS += 1
    return x, ITERATIONS


@program(7)
def an_iterator(a: Any) -> Any:
    x, numbers, total = a, iter([1.0, 2.0, 4.0] * 20), 0.0
    while wrong(x, a):
        x, total = better(x, a), total + next(numbers)
    return x, total


@program(7)
def a_generator(a: Any) -> Any:
    def approximations() -> Any:
        x = a
        while wrong(x, a):
            x = better(x, a)
            yield x

    total = 0.0
    for y in approximations():
        total = total + y
    return total


@program(3)
def a_for_loop(a: Any) -> Any:
    x = a
    for k in range(30):  # noqa: B007
        y = better(x, a)
        if abs(y - x) < 1e-12 * y:
            break
        x = y
    return y, k


@program(4)
def loops_in_loops(a: Any) -> Any:
    total = 0.0
    while total < 3.5:
        x = a
        while wrong(x, a):
            x = better(x, a)
        total = total + 1.0
    return x + total


@program(3)
def both_branches(a: Any) -> Any:
    low, high = 0.0, a + 1.0
    while high - low > 1e-3 * high:
        middle = 0.5 * (low + high)
        if middle * middle > a:
            high = middle
        else:
            low = middle
    return low


@program(3)
def an_else_of_for(a: Any) -> Any:
    x = a
    for k in range(12):  # noqa: B007
        y = better(x, a)
        if abs(y - x) < 1e-12 * y:
            break
        x = y
    else:
        return -1.0, k
    return y, k


@program(5)
def iterations_cut_short(a: Any) -> Any:
    x = total = a
    n = 0
    while wrong(x, a):
        x, n = better(x, a), n + 1
        if x * x > 4.0 * a:
            continue
        total = total + x + np.sum(np.ones(3) * n)
    return x, total, n


@program(10, tuple([(np.sin(k * np.arange(12.0)),) for k in range(1, 20)]))
def signs_of_elements(v: Any) -> Any:
    total = last = v[0] * 1.0
    for i in range(1, 12):
        if v[i] > 0:
            last = v[i] * v[i - 1]
            total = total + last
        else:
            total = total - 0.5 * i * last
    return total


@program(7)
def lists_indexed_by_a_counter(a: Any) -> Any:
    x, weights, total = a, [1.0, 2.0, 4.0] * 20, 0.0
    for k in range(60):
        if not wrong(x, a):
            break
        x, total = better(x, a), total + weights[k]
    return x, total


@program(3)
def a_function_called_twice(a: Any) -> Any:
    def solve(a: Any) -> Any:
        x = a
        while wrong(x, a):
            x = better(x, a)
        return x

    return solve(solve(a) + 1.0)


@program(3)
def equal_values_of_several_iterations(a: Any) -> Any:
    u = v = w = x = a
    while wrong(x, a):
        x, u, v, w = better(x, a), np.sin(v), w, 0.5 * w + np.cos(w)
    return x, u, v, w


@program(3)
def a_list_in_iteration(a: Any) -> Any:
    x, last = a, [a, 2.0 * a, 3.0 * a]
    while wrong(x, a):
        x = better(x, a)
        last = [*last[1:], x * last[0]]
    return x, last[0], last[1]


@program(3)
def none_at_first(a: Any) -> Any:
    x, before = a, None
    while before is None or abs(x - before) > 1e-13 * x:
        before, x = x, better(x, a)
    return x


@program(3)
def a_choice_within_an_expression(a: Any) -> Any:
    x = a
    while wrong(x, a):
        x = x * 1.0 + (0.5 * (a / x - x) if x > 0 else 3.0)
    return x


@program(4)
def a_flag_and_a_step_that_shrinks(a: Any) -> Any:
    x, step, done = a, 1.0, False
    while not done:
        x, step = x - step * (x * x - a) / (2 * x), 0.9 * step
        done = abs(x * x - a) <= 1e-6 * a or step < 1e-3
    return x, step


@program(5, SCALES)
def a_mask_of_a_counter(v: Any, a: Any) -> Any:
    x, n = a, 0
    while wrong(x, a):
        x, n = better(x, a), n + 1
    return np.sum(v[np.arange(5) < n % 5]) + x


@program(1, SCALES)
def arrays(v: Any, a: Any) -> Any:
    x = v * 1.0
    while np.max(np.abs(x * x - a)) > 1e-10 * a:
        x = better(x, a)
    return x


@program(1, SCALES)
def slices_of_an_array(v: Any, a: Any) -> Any:
    x = v.copy()
    while np.max(np.abs(x * x - a)) > 1e-10 * a:
        x[1:] = better(x[1:], a)
        x[:1] = better(x[:1], a)
    return x


@program(1, SCALES)
def an_argument_in_place(x: Any, a: Any) -> Any:
    while np.max(np.abs(x * x - a)) > 1e-10 * a:
        x += 0.5 * (a / x - x)
    return np.sum(x)


def copied(args: Any) -> Any:
    return [x.copy() if isinstance(x, np.ndarray) else x for x in args]


def result_of(fun: Any, args: Any) -> Any:
    try:
        return fun(*args)
    except ArithmeticError as error:
        return repr(error)


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_number_of_iterations_gives_what_python_gives(name: str) -> None:
    fun, calls, most = PROGRAMS[name]
    traced = tg.trace(fun)
    for args in calls * 2:
        mine, theirs = copied(args), copied(args)
        result, wanted = result_of(traced, mine), result_of(fun, theirs)
        assert type(result) is type(wanted)
        if isinstance(wanted, str):
            assert result == wanted
            continue
        for x, y in zip(result, wanted) if isinstance(wanted, tuple) else [(result, wanted)]:
            assert type(x) is type(y)
            np.testing.assert_allclose(x, y, rtol=1e-8, atol=0)
        for x, y in zip(mine, theirs):
            np.testing.assert_allclose(x, y, rtol=1e-8)
    assert traced.cache_info().traces <= most


def test_one_machine_code_serves_all_numbers_of_iterations() -> None:
    root, derivative = tg.trace(newton), tg.grad(newton)
    curvature = tg.grad(derivative)
    values = 10.0 ** np.random.default_rng(0).uniform(-15, 15, 200)
    for k, a in enumerate(values.tolist()):
        assert root(a) == pytest.approx(np.sqrt(a), rel=1e-12)
        assert derivative(a) == pytest.approx(0.5 / np.sqrt(a), rel=1e-6)
        assert curvature(a) == pytest.approx(-0.25 * a**-1.5, rel=1e-3)
        if k == 1:
            compiled = machine_code_count()
    assert machine_code_count() == compiled
    assert max(f.cache_info().traces for f in (root, derivative, curvature)) <= 2


def test_what_derivatives_keep_of_iterations_grows() -> None:
    def decayed(x: Any) -> Any:
        y = x
        while y > 1.0:
            y = y * 0.99 + 0.001 * np.sin(y)
        return y

    derivative = tg.grad(decayed)
    for x in (1.5, 50.0, 1e4):
        assert derivative(x) == pytest.approx((decayed(x + 1e-6 * x) - decayed(x - 1e-6 * x)) / (2e-6 * x), rel=1e-5)


def integrated(rate: Any, tolerance: Any) -> Any:
    """exp(-rate) by Heun's method, with steps that are taken again if they were too long."""
    y, t, h, rejected = 1.0, 0.0, 0.3, 0
    while t < 1.0:
        h = min(h, 1.0 - t)
        derivative = -rate * y
        other = -rate * (y + h * derivative)
        if abs(0.5 * h * (other - derivative)) < tolerance:
            y, t = y + 0.5 * h * (derivative + other), t + h
            h = 1.5 * h
        else:
            h, rejected = 0.5 * h, rejected + 1
    return y, rejected


def shot(p: Any, length: Any) -> Any:
    """Lotka and Volterra's rates by Heun's method, as people write it: floats of Python's and NumPy's, and a view."""

    def rates(y: Any) -> Any:
        hares, lynxes = y
        return np.array([(p[0] - 0.1 * lynxes) * hares, (0.05 * hares - p[1]) * lynxes])

    t, y, h = 0.0, p[2:], 0.1
    while t < length:
        h = min(h, length - t)
        first = rates(y)
        new = y + h * first
        error = np.sqrt(np.mean((h * (rates(new) - first) / (1e-3 * (1.0 + np.maximum(np.abs(y), np.abs(new))))) ** 2))
        if error <= 1:
            t, y = t + h, new
        h *= min(5.0, max(0.2, 0.9 * max(error, 1e-10) ** -0.5))
    return np.sum(y)


def shot_by_years(p: Any, years: Any) -> Any:
    """As `shot`, to the end of each year, with a step that is kept from one to the next."""
    states = np.empty((3, 2))
    y, h = p[2:], 0.1
    for year in range(3):
        t = 0.0
        while t < 1.0:
            h = min(h, 1.0 - t)
            new = y + h * np.array([p[0], -p[1]]) * y * (1.0 + 0.1 * np.sin(y))
            error = np.max(np.abs(new - y)) / years
            if error <= 1:
                t, y = t + h, new
            h *= min(2.0, max(0.5, 0.9 / max(error, 1e-10)))
        states[year] = y
    return np.sum(states)


@pytest.mark.parametrize(("f", "given"), [(shot, 2.0), (shot_by_years, 3.0)])
def test_steps_of_either_kind_of_float_make_two_programs_at_most(f: Any, given: float) -> None:
    traced = tg.value_and_grad(f)
    p = np.array([0.55, 0.8, 30.0, 4.0])
    for scale in (1.0, 1.03, 0.9, 1.2, 0.97):
        value, derivative = traced(p * scale, given)
        assert value == pytest.approx(f(p * scale, given), rel=1e-12)
        for k in range(4):
            e = 1e-7 * p * (np.arange(4) == k)
            along = (f(p * scale + e, given) - f(p * scale - e, given)) / (2 * e[k])
            assert derivative[k] == pytest.approx(along, rel=1e-5)
    assert traced.cache_info().traces <= 2


def descended(a: Any) -> Any:
    """The least value of a function, by descent with a line search, in at most 30 steps."""

    def height(x: Any) -> Any:
        return np.cosh(x - a) + x * x

    x = np.float64(3.0)
    for _ in range(30):
        down = -np.sinh(x - a) - 2.0 * x
        if down * down < 1e-12:
            break
        length = 1.0
        while height(x + length * down) > height(x) - 0.1 * length * down * down:
            length = 0.5 * length
        x = x + length * down
    return height(x)


def test_a_line_search_within_a_descent_is_one_program() -> None:
    derivative = tg.grad(descended)
    for a in (1.0, 0.1, 3.0, -2.0):
        along = (descended(a + 1e-6) - descended(a - 1e-6)) / 2e-6
        assert derivative(a) == pytest.approx(along, rel=1e-4)
    assert derivative.cache_info().traces <= 4


def test_steps_are_accepted_or_rejected_by_one_program() -> None:
    traced, derivative = tg.trace(integrated), tg.grad(lambda rate, tolerance: integrated(rate, tolerance)[0])
    for rate, tolerance in ((1.0, 1e-3), (30.0, 1e-4), (5.0, 1e-2), (0.1, 1e-5), (12.0, 1e-3), (60.0, 1e-3)):
        wanted = integrated(rate, tolerance)
        assert traced(rate, tolerance) == pytest.approx(wanted, rel=1e-9)
        along = [integrated(rate * (1 + e), tolerance)[0] for e in (1e-7, -1e-7)]
        assert derivative(rate, tolerance) == pytest.approx((along[0] - along[1]) / (2e-7 * rate), rel=1e-4, abs=1e-9)
    assert max(traced.cache_info().traces, derivative.cache_info().traces) <= 4


def test_gradients_of_programs_that_converge_are_those_of_their_answers() -> None:
    def sinkhorn(cost: Any) -> Any:
        kernel = np.exp(-cost)
        u = np.ones(4)
        before = u * 2.0
        while np.max(np.abs(u - before)) > 1e-10:
            before = u
            u = 0.25 / (kernel @ (0.25 / (kernel.T @ u)))
        return np.sum(u[:, None] * kernel * (0.25 / (kernel.T @ u)) * cost)

    cost, direction = np.random.default_rng(1).uniform(0, 2, (2, 4, 4))
    derivative = tg.grad(sinkhorn)
    for c in (cost, cost**2, 3 * cost):
        along = (sinkhorn(c + 1e-5 * direction) - sinkhorn(c - 1e-5 * direction)) / 2e-5
        assert np.sum(derivative(c) * direction) == pytest.approx(along, rel=1e-5)
    assert derivative.cache_info().traces == 1


def _with_history(x: Any) -> Any:
    seen: list[Any] = []
    table = {"seen": seen}
    while x < 100.0:
        x = 1.2 * x + 1.0
        seen.append(x)
    return x + table["seen"][0]


def _items() -> list[float]:
    return [0.5 * k for k in range(12)]


def _over_items(x: Any) -> Any:
    for k in _items():
        if x > 100.0:
            break
        x = 1.1 * x + k
    return x


def _long(x: Any) -> Any:
    return tg.scan(lambda c, _: (np.sin(c * x), None), x, length=1000)[0].sum()


@pytest.mark.parametrize(
    ("f", "why"),
    [
        (
            tg.trace(_with_history),
            r"unrolled at .*test_loop_closing.py:\d+: it asks for values, and the list seen grows",
        ),
        (tg.trace(_over_items), r"unrolled at .*test_loop_closing.py:\d+: 12 questions, a guard each: .*"),
        (tg.grad(_long), r"in segments at .*test_loop_closing.py:\d+: 1000 iterations would keep .*"),
    ],
)
def test_explain_says_why_a_loop_was_not_closed_and_that_one_was_divided(f: Any, why: str) -> None:
    with tg.settings.override(loop_memory=2000):
        result = f.explain(1.7).loops
    assert any(re.fullmatch(why, line) for line in result), result


def test_questions_on_the_way_may_be_about_means() -> None:
    def shrunk(x: Any) -> Any:
        while np.max(x) > 0.01:
            x = 0.9 * x
            if np.mean(x) > 5.0:
                x = x - 0.1
        return np.sum(x)

    traced = tg.trace(shrunk)
    for scale in (50.0, 400.0, 90.0, 70.0, 1000.0, 60.0):
        np.testing.assert_allclose(traced(scale * POINTS), shrunk(scale * POINTS), rtol=1e-12)
    assert traced.cache_info().traces <= 2


@pytest.mark.parametrize("kind", ["while", "for"])
def test_a_history_of_residuals_costs_a_iteration_of_code(kind: str) -> None:
    def descend(p: Any) -> Any:
        x, residuals = np.zeros(6), []
        matrix = np.diag(np.linspace(1.0, 3.0, 6)) + 0.1 * np.outer(p, p)
        if kind == "while":
            size = np.sqrt(np.sum(p * p))
            while size > 1e-6:
                x = x + 0.1 * (p - matrix @ x)
                size = np.sqrt(np.sum((p - matrix @ x) ** 2))
                residuals.append(size)
        else:
            for _ in range(400):
                rest = p - matrix @ x
                residuals.append(np.sqrt(np.sum(rest * rest)))
                if residuals[-1] <= 1e-6:
                    break
                x = x + 0.1 * rest
        return np.sum(x**2) + np.sum(np.array(residuals)) + 0.1 * sum(residuals)

    p = np.linspace(0.5, 1.5, 6)
    value_and_grad = tg.value_and_grad(descend)
    value, gradient = value_and_grad(p)
    np.testing.assert_allclose(value, descend(p), rtol=1e-12)
    near = [(descend(p + d) - descend(p - d)) / 2e-6 for d in 1e-6 * np.eye(6)]
    np.testing.assert_allclose(gradient, near, rtol=1e-5)
    kernels = value_and_grad.explain(p).kernels
    assert max(str(kernel).count("guard") for kernel in kernels) < 10


def test_a_loop_that_cannot_be_made_is_recorded_iteration_by_iteration_and_raises_where_graphs_are_verified(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tracegrad.reroll.online.close.fold_around", len)  # a TypeError, of two arguments

    @tg.trace
    def root(a: Any) -> Any:
        x = np.zeros(3)
        x[0] = a
        while wrong(x[0], a):
            x[0] = better(x[0], a)
        return x

    with pytest.raises(TypeError, match="len"):
        root(2.0)
    with tg.settings.override(verify=False):
        for a in (2.0, 1e8):
            np.testing.assert_allclose(root(a)[0], np.sqrt(a), rtol=1e-12)
            np.testing.assert_allclose(tg.grad(lambda a: np.sum(root(a)))(a), 0.5 / np.sqrt(a), rtol=1e-9)
        assert "while_loop" not in str(root.explain(2.0).graph)


def _merged(p: Any) -> Any:
    a, b = p[:12], p[12:]
    i = j = 0
    s = 0.0
    while i < 12 and j < 12:
        if a[i] < b[j]:
            s = s + a[i] * (i + j)
            i += 1
        else:
            s = s + b[j] * (i + 2 * j)
            j += 1
    return s


def _until_enough(p: Any) -> Any:
    i = 0
    s = 0.0
    while i < len(p) and s < 2.0:
        s = s + (p[i] if p[i] > 0.5 else 0.1 * p[i])
        i += 1
    return s * i


@pytest.mark.parametrize("f", [_merged, _until_enough])
def test_counters_that_branches_move_end_loops(f: Any) -> None:
    value_and_grad = tg.value_and_grad(f)
    for seed in range(6):
        p = np.random.default_rng(seed).random(24)
        value, gradient = value_and_grad(p)
        assert value == pytest.approx(f(p), rel=1e-12)
        steps = 1e-7 * np.eye(24)
        np.testing.assert_allclose(gradient, [(f(p + e) - f(p - e)) / 2e-7 for e in steps], rtol=1e-5, atol=1e-6)
    assert value_and_grad.cache_info().traces <= 2


def test_a_loop_may_use_a_derivative_that_was_made_before_it() -> None:
    def descended(x: Any) -> Any:
        derivative = tg.grad(lambda v: np.sum((v * v - 2.0) ** 2))
        while np.sum(np.abs(derivative(x))) > 1e-3:
            x = x - 0.05 * derivative(x)
        return np.sum(x)

    f = tg.trace(descended)
    for first in (1.0, 2.0, 0.3):
        x = np.array([first, 1.0])
        assert f(x) == pytest.approx(descended(x), rel=1e-12)
    assert f.cache_info().traces == 1
