"""What a `try` of traced code catches although nothing of what was tried is used: in any order of calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracegrad as tg

pytestmark = pytest.mark.filterwarnings("ignore::tracegrad.PerformanceWarning")

TABLE, NUMBERS = {1: 2.0, 2: 3.0}, [1.0, 2.0, 3.0]

# Statements that raise where `k` is 7, and not where it is 1; and what they raise.
TRIED = {
    "y[k]": "IndexError", "u = y[k]": "IndexError", "t[k] = 5.0": "IndexError", "t[k] += 1.0": "IndexError",
    "y[[k, 0]]": "IndexError", "y[np.array([k])]": "IndexError", "np.take(y, k)": "IndexError",
    "y.take([k])": "IndexError", "y.item(k)": "IndexError", "t.flat[k]": "IndexError", "t.flat[k] = 2.0": "IndexError",
    "np.put(t, [k], 1.0)": "IndexError", "np.add.at(t, k, 1.0)": "IndexError", "np.insert(y, k, 1.0)": "IndexError",
    "NUMBERS[k]": "IndexError", "'abc'[k]": "IndexError", "[1, 2].pop(k)": "IndexError", "TABLE[k]": "KeyError",
    "(1, 2)[k]": "LookupError", "1 / (k - 7)": "ZeroDivisionError", "1 // (k - 7)": "ZeroDivisionError",
    "1.0 % (k - 7)": "ZeroDivisionError", "0.0 ** (6 - k)": "ZeroDivisionError", "math.log(7 - k)": "ValueError",
    "math.sqrt(6 - k)": "ValueError", "2.0 ** (k * 1000.0 - 1000.0)": "OverflowError",
    "range(1, 3, 7 - k)": "ValueError", "1 << (6 - k)": "ValueError", "chr(6 - k)": "ValueError",
    "np.linalg.inv(np.eye(2) * (k - 7.0))": "np.linalg.LinAlgError",
    "np.random.default_rng(6 - k)": "ValueError", "next(iter(range(7 - k)))": "StopIteration",
    "assert k < 5": "AssertionError", "np.unravel_index(k, (3,))": "ValueError",
}  # fmt: skip


def tried(statement: str) -> Callable[[Any, int], Any]:
    lines = [
        "def f(y, k):",
        "    t = y.copy()",
        "    try:",
        f"        {statement}",
        f"    except {TRIED[statement]}:",
        "        return y * 3.0",
        "    return y * 2.0",
    ]
    space = {"np": np, "math": __import__("math"), "TABLE": TABLE, "NUMBERS": NUMBERS}
    exec("\n".join(lines), space)
    result: Callable[[Any, int], Any] = space["f"]
    return result


@pytest.mark.parametrize("order", [(1, 7, 1, 7), (7, 1, 7)], ids=str)
@pytest.mark.parametrize("statement", TRIED)
def test_the_branch_is_that_of_plain_python(statement: str, order: tuple[int, ...]) -> None:
    f = tried(statement)
    traced, derivative = tg.trace(f), tg.grad(lambda y, k: np.sum(f(y, k)))
    for k in order:
        expected = {1: 2.0, 7: 3.0}[k]
        y = np.arange(1.0, 4.0)
        np.testing.assert_array_equal(f(y, k), y * expected)
        np.testing.assert_array_equal(traced(y, k), y * expected)
        np.testing.assert_array_equal(derivative(y, k), np.full(3, expected))
        with tg.disable_jit():
            np.testing.assert_array_equal(traced(y, k), y * expected)
            np.testing.assert_array_equal(derivative(y, k), np.full(3, expected))


@pytest.mark.parametrize("statement", ["y[k]", "t[k] = 5.0", "np.take(y, k)", "np.add.at(t, k, 1.0)"])
def test_an_index_out_of_bounds_raises_in_derivatives_too(statement: str) -> None:
    space: dict[str, Any] = {"np": np}
    exec(f"def f(y, k):\n    t = y.copy()\n    {statement}\n    return np.sum(y * 2.0)", space)
    derivative = tg.grad(space["f"])
    for k in (1, 7, 2, 8, 7):
        if k > 2:
            with pytest.raises(IndexError, match=f"{k} is out of bounds for axis 0 with size 3"):
                derivative(np.ones(3), k)
        else:
            np.testing.assert_array_equal(derivative(np.ones(3), k), np.full(3, 2.0))


def test_indices_that_the_derivative_is_summed_at_are_checked_once() -> None:
    def f(w: Any, k: Any) -> Any:
        return np.sum(w[k])

    derivative = tg.grad(f)
    assert not derivative.explain(np.ones((4, 2)), np.array([1, 1, 3])).value_guards
    np.testing.assert_array_equal(derivative(np.ones(4), np.array([1, 1, 3])), [0.0, 2.0, 0.0, 1.0])
    with pytest.raises(IndexError, match="4 is out of bounds"):
        derivative(np.ones(4), np.array([4]))


# -- floating-point errors that NumPy is asked to raise ----------------------------------------------------------------
TRAPPED = {
    "divide": (lambda x: np.sum(1.0 / x), [0.0, 1.0]),
    "log": (lambda x: np.log(x).sum(), [0.0, 1.0]),
    "overflow": (lambda x: np.sum(np.exp(x)), [800.0, 1.0]),
    "a matrix": (lambda x: np.sum((x[:, None] * 1e308) @ np.full((1, 2), 1e3)), [1.0, 2.0]),
    "a sum": (lambda x: np.sum(x * 1e308), [1.0, 1.5]),
    "a scalar": (lambda x: x[0] / x[1], [1.0, 0.0]),
    "again": (lambda x: _twice(x), [0.0, 1.0]),
    "nothing of it": (lambda x: np.sum(np.sqrt(x)), [0.0, 4.0]),  # whose slope is infinite, as nobody computes it
    "of Python's": (lambda x: np.sum(float(x[0]) * x), [0.0, 1.0]),
}


def _twice(x: Any) -> Any:
    with np.errstate(all="ignore"):
        y = 1.0 / x
    return np.sum(1.0 / x + y)


def _outcome(f: Callable[..., Any]) -> Any:
    try:
        with np.errstate(divide="raise", over="raise", invalid="raise"):
            return f()
    except FloatingPointError:
        return "raised"


@pytest.mark.parametrize("name", TRAPPED)
def test_derivatives_raise_the_floating_point_errors_of_the_function_where_numpy_is_asked_to(name: str) -> None:
    f, point = TRAPPED[name]
    x = np.array(point)
    values: dict[str, Callable[[], Any]] = {
        "grad": lambda: tg.value_and_grad(f)(x)[0],
        "jvp": lambda: tg.jvp(f, (x,), (np.ones(2),))[0],
        "vjp": lambda: tg.vjp(f, x)[0],
        "vmap": lambda: tg.vmap(f)(x[None])[0],
        "trace": lambda: tg.trace(f)(x),
    }
    for call in values.values():
        for _ in range(2):
            assert _outcome(call) == _outcome(lambda: f(x))
        with tg.disable_jit():
            assert _outcome(call) == _outcome(lambda: f(x))


def test_what_catches_a_floating_point_error_has_the_derivative_of_what_it_does_instead() -> None:
    def safe(x: Any) -> Any:
        try:
            with np.errstate(all="raise"):
                return np.sum(1.0 / x)
        except FloatingPointError:
            return np.sum(x) * 3

    for f in (tg.grad(safe), lambda x: tg.jacfwd(safe)(x), lambda x: tg.grad(tg.trace(safe))(x)):
        for x in ([0.0, 1.0], [1.0, 2.0], [0.0, 5.0]):
            np.testing.assert_allclose(f(np.array(x)), [3.0, 3.0] if x[0] == 0 else -1 / np.square(x))


def test_a_number_of_pythons_overflows_as_it_does_in_python() -> None:
    with np.errstate(all="raise"):
        assert tg.value_and_grad(lambda a: a * 1e308 * 10.0)(10.0)[0] == np.inf
