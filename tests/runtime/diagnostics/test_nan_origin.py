"""`detect_anomaly` in compiled functions: nan in a result is an error that names the line where it arose."""

from __future__ import annotations

import inspect
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.settings import unusual

ROOTS = np.zeros(2)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def line_of(function: Any, part: str) -> str:
    """The place of the line of a function that has this in it."""
    lines, first = inspect.getsourcelines(function)
    return f"test_nan_origin.py:{first + next(k for k, line in enumerate(lines) if part in line)}"


def found(call: Any) -> str:
    with tg.autograd.detect_anomaly(), pytest.raises(RuntimeError) as caught:
        call()
    return str(caught.value)


def logs(x):
    y = x * 2
    z = np.log(y)
    return np.sum(z * z)


def cancelled_root(x):
    y = x + 0.0
    return np.sum(np.sqrt(y) * 0)


@pytest.mark.parametrize("hot", [False, True])
def test_a_value_names_the_line_and_the_operands(hot: bool) -> None:
    f = tg.trace(logs)
    if hot:
        for _ in range(4):
            f(np.ones(3))
    told = found(lambda: f(np.array([1.0, -1.5, -2.0])))
    assert "Function 'log' of logs returned nan values in its 0th output, first at index (1,), of -3.0" in told
    assert line_of(logs, "np.log") in told


@pytest.mark.parametrize(
    "derived",
    [
        lambda: tg.grad(cancelled_root)(ROOTS),
        lambda: tg.value_and_grad(cancelled_root)(ROOTS),
        lambda: tg.grad(tg.trace(cancelled_root))(ROOTS),
        lambda: tg.vjp(cancelled_root, ROOTS)[1](np.float64(1.0)),
        lambda: tg.jvp(cancelled_root, (ROOTS,), (np.ones(2),)),
    ],
)
def test_a_derivative_names_the_line_of_the_function(derived: Any) -> None:
    told = found(derived)
    assert "returned nan values" in told
    assert line_of(cancelled_root, "np.sqrt") in told
    with tg.disable_jit():
        assert line_of(cancelled_root, "np.sqrt") in found(lambda: tg.grad(cancelled_root)(ROOTS))


def test_in_a_loop_the_line_is_that_in_the_iteration() -> None:
    def f(x):
        y = x
        for _ in range(100):
            y = y - 0.01
            y = np.sqrt(y) + y * 0.1
        return np.sum(y)

    x = np.array([0.3, 0.0])
    assert "scan" in str(tg.trace(f).graph(x))
    told = found(lambda: tg.trace(f)(x))
    assert "Function 'sqrt' of " in told
    assert line_of(f, "np.sqrt") in told
    assert line_of(f, "np.sqrt") in found(lambda: tg.grad(f)(x))


def test_of_tensors_forward_and_backward() -> None:
    def value(t):
        return t.log().sum()

    def slope(t):
        root = t.sqrt()
        return (root * 0).sum()

    def step(t):
        loss = slope(t)
        loss.backward()
        return loss

    traced_step = tg.trace(step)
    t = tg.tensor([-1.0, 2.0], requires_grad=True)
    assert line_of(value, "log()") in found(lambda: tg.trace(value)(t))
    zero = tg.tensor([0.0], requires_grad=True)
    traced = tg.trace(slope)
    for call in (
        lambda: slope(zero).backward(),
        lambda: traced(zero).backward(),
        lambda: tg.grad(slope)(zero),
        lambda: step(zero),
        lambda: traced_step(zero),
    ):
        told = found(call)
        assert "Function 'SqrtBackward0' returned nan values in its 0th output." in told
        assert line_of(slope, "sqrt()") in told
    assert zero.grad is None


def test_nothing_outside_has_changed_where_it_raises() -> None:
    seen = np.zeros(3)
    w = tg.tensor([0.0], requires_grad=True)

    @tg.trace
    def f(x):
        seen[0] += 1.0
        return np.log(x)

    @tg.trace
    def step():
        (w.sqrt() * 0).sum().backward()

    found(lambda: f(np.array([-1.0])))
    assert seen[0] == 0
    assert line_of(step.fun, "sqrt()") in found(step)
    assert w.grad is None


def test_nan_that_is_left_out_is_no_anomaly_and_nan_that_was_given_is_named() -> None:
    def masked(x):
        return np.sum(np.where(x > 0, np.log(x), 0.0))

    x = np.array([1.0, -1.0])
    with tg.autograd.detect_anomaly():
        assert tg.trace(masked)(x) == 0
        assert np.array_equal(tg.grad(masked)(x), [1.0, 0.0])
        assert tg.trace(np.nanmax)(np.array([np.nan, 2.0])) == 2
    assert "was given nan values in x, first at (1,)" in found(lambda: tg.trace(logs)(np.array([1.0, np.nan])))


def test_without_the_mode_or_the_check_results_are_as_ever() -> None:
    f, x = tg.trace(logs), np.array([-1.0])
    with tg.autograd.detect_anomaly(check_nan=False):
        assert np.isnan(f(x))
    assert np.isnan(f(x))
    found(lambda: f(x))
    assert np.isnan(f(x))


def test_the_mode_is_of_its_thread_and_leaves_nothing_behind() -> None:
    f, results = tg.trace(logs), []

    def other() -> None:
        results.append(f(np.array([-1.0])))
        tg.autograd.set_detect_anomaly(True)

    with tg.autograd.detect_anomaly(), tg.autograd.detect_anomaly():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert np.isnan(results[0])
    assert not unusual
    tg.autograd.set_detect_anomaly(True)
    assert len(unusual) == 1
    tg.autograd.set_detect_anomaly(False)
    assert not unusual
