"""Floats that a value decides to be Python's or NumPy's: traced code does with them what plain code does."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracegrad as tg

MADE: dict[str, Callable[[Any], Any]] = {
    "min": lambda x: min(1.0, x[0]),
    "max": lambda x: max(x[0], 1.0),
    "three": lambda x: min(x[1], float(x[0]), 1.0),
}
USED: dict[str, Callable[[Any, Any], Any]] = {
    "as it is": lambda m, x: m,
    "by zero": lambda m, x: 1.0 / (m - m),
    "by a number": lambda m, x: m / 3.0,
    "an array by zero": lambda m, x: x[0] / (m - m),
    "beside float32": lambda m, x: m * np.ones(2, np.float32),
    "behind float32": lambda m, x: np.float32(2) + m,
    "beside an array": lambda m, x: m * x - m,
    "a ufunc": lambda m, x: np.sqrt(m),
    "a ufunc beside float32": lambda m, x: np.add(m, np.float32(1)),
    "in an array": lambda m, x: np.array([m, 2 * m]),
    "power": lambda m, x: m**-1.5,
    "exponent": lambda m, x: 2.0**m,
    "power of a negative": lambda m, x: (-m) ** 0.5,
    "power of zero": lambda m, x: (m - m) ** -1,
    "less": lambda m, x: m < 2.0,
    "not less": lambda m, x: ~(m < 2.0),
    "both": lambda m, x: (m < 2.0) & (m > 0),
    "type": lambda m, x: type(m).__name__,
    "is NumPy's": lambda m, x: isinstance(m, np.floating),
    "dtype": lambda m, x: str(getattr(m, "dtype", "none")),
    "item": lambda m, x: m.item() if hasattr(m, "item") else "no",
    "round": lambda m, x: (round(m, 1), round(m)),
    "int": lambda m, x: (int(m), float(m)),
    "signs": lambda m, x: (-m, abs(m), +m),
    "divmod": lambda m, x: divmod(m, 0.375),
    "again": lambda m, x: max(m, 1.5, x[0]),
    "beside integers": lambda m, x: (m + 1, m + 2**60, m == 2),
    "truth": lambda m, x: 1 if m else 2,
    "sum": lambda m, x: sum([m, 1.0]),
    "math": lambda m, x: math.floor(m),
    "where": lambda m, x: np.where(x > 1, m, x),
    "methods": lambda m, x: (m.is_integer(), m.hex()),
}
AT = [np.array(x) for x in ([0.5, 3.0], [2.0, 0.25], [1.0, 1.0], [-2.0, -0.0], [0.0, 4.0], [np.nan, 1.0])]


def answer(f: Any, x: Any) -> Any:
    """What the function gives, with types, or which error it raises."""
    try:
        with np.errstate(all="ignore"):
            result = f(x)
    except (ArithmeticError, AttributeError, TypeError, ValueError) as error:
        return type(error)
    return [(type(y), getattr(y, "dtype", None), y) for y in (result if type(result) is tuple else (result,))]


@pytest.mark.filterwarnings("ignore:Bitwise inversion:DeprecationWarning")  # since Python 3.12
@pytest.mark.parametrize("output", MADE)
@pytest.mark.parametrize("used", USED)
def test_they_are_what_python_has(output: str, used: str) -> None:
    def f(x: Any) -> Any:
        return USED[used](MADE[output](x), x)

    g = tg.trace(f)
    for x in AT:
        result, expected = answer(g, x), answer(f, x)
        if type(expected) is not list:
            assert result is expected
            continue
        assert [y[:2] for y in result] == [y[:2] for y in expected]
        for (*_, y), (*_, z) in zip(result, expected):
            if type(z) in (str, bool, int):
                assert y == z
            else:
                np.testing.assert_allclose(y, z, rtol=1e-15)


def test_they_have_derivatives_and_ask_nothing() -> None:
    g = tg.value_and_grad(lambda x: np.sum(x * min(1.0, x[0])))
    for x, derivative in (([0.5, 3.0], [4.0, 0.5]), ([2.0, 3.0], [1.0, 1.0])):
        value, result = g(np.array(x))
        assert value == min(1.0, x[0]) * sum(x)
        np.testing.assert_allclose(result, derivative)
    assert g.cache_info().traces == 1


class Holder:
    last: Any = None


@pytest.mark.parametrize("first_call", ["replay", "compile"])
def test_a_result_is_of_the_kind_that_its_call_gives_it_and_nothing_is_asked(first_call: str) -> None:
    holder = Holder()

    def f(x: Any) -> Any:
        total = 0.0  # stays a number of Python's where no branch is taken
        for i in range(400):
            y = np.sin(i * 0.1) * x
            if y > 0:
                total = total + y
        holder.last = total
        return total, [total, total + 1], {"total": total}

    with tg.settings.override(first_call=first_call):
        traced = tg.trace(f)
        for x in (1.0, 0.0, 0.0, 2.0, 0.0, 2.0, 2.0, 0.0, 0.0):
            results = [*tg.tree.leaves(traced(x)), holder.last]
            wanted = [*tg.tree.leaves(f(x)), holder.last]
            assert [type(y) for y in results] == [type(y) for y in wanted]
            np.testing.assert_allclose(results, wanted, rtol=1e-12)
        assert traced.cache_info().traces == 1
