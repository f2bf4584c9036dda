"""Functions that solvers call: compiled once for all values, and errors at the user's line."""

from __future__ import annotations

from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import pytest
from scipy import integrate

import tracegrad as tg
from tracegrad.avals import Aval
from tracegrad.ir import build
from tracegrad.ops.elementwise.table import multiply, sin
from tracegrad.ops.shape.linear import reduce_sum
from tracegrad.runtime.compile import code_store
from tracegrad.runtime.execution import tiers
from tracegrad.runtime.execution.program import machine_code_count
from tracegrad.settings import settings
from tracegrad.solvers.callbacks import Callback

TIMES, FACTORS = np.linspace(0.0, 2.0, 5), np.array([1.0, 0.5, 0.25])
SCALAR, VECTOR = Aval((), np.dtype(np.float64)), Aval((3,), np.dtype(np.float64))


def scaled() -> Callback:
    """y * p * sin(t)"""
    return Callback(build(lambda t, y, p: [multiply(multiply(y, p), sin(t))], [SCALAR, VECTOR, SCALAR]), "a test", 2)


def total() -> Callback:
    """The sum of what is given."""
    return Callback(build(lambda y: [reduce_sum(y, axes=(0,))], [VECTOR]), "a test")


def test_arguments_may_lie_in_any_way_and_be_of_any_kind_of_number() -> None:
    call, y = scaled().at([np.array(2.0)]), np.arange(12.0).reshape(3, 4)
    for args in (y[:, 1], y[:, 1].copy(), [1.0, 5.0, 9.0], np.array([1, 5, 9])):
        for t in (0.5, np.float64(0.5), np.array(0.5)):
            np.testing.assert_allclose(call(t, args), 2.0 * y[:, 1] * np.sin(0.5), rtol=1e-15)


@pytest.mark.parametrize("first_call", ["replay", "compile", "background"])
def test_what_is_given_is_of_its_own_and_a_number_where_there_are_no_axes(first_call: str) -> None:
    with settings.override(first_call=first_call):
        y = np.ones(3)
        for _ in range(3):
            same = Callback(build(lambda y: [y], [VECTOR]), "a test").at([])(y)
            assert not np.shares_memory(same, y)
            assert isinstance(total().at([])(y), float)


def test_values_are_those_of_each_solution_and_are_compiled_once() -> None:
    callback = scaled()
    callback.at([np.array(1.0)])(0.5, np.ones(3))
    before = machine_code_count()
    for p in (2.0, -3.0):
        np.testing.assert_allclose(callback.at([np.array(p)])(0.5, np.ones(3)), p * np.sin(0.5), rtol=1e-15)
    assert machine_code_count() == before


def test_numpy_answers_until_that_has_taken_as_long_as_compiling_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    body = build(lambda t, y, p: [multiply(sin(multiply(y, 0.875)), multiply(t, p))], [SCALAR, VECTOR, SCALAR])
    monkeypatch.setattr(code_store, "_loaded", WeakValueDictionary())
    monkeypatch.setattr(tiers, "_seen_units", set())
    with settings.override(first_call="replay", cache=False):
        callback, y = Callback(body, "a test", 2), np.ones(3)
        call = callback.at([np.array(2.0)])
        want = call(0.5, y)
        assert callback.program.tier is not None
        iterations = 0
        while callback.program.tier is not None:
            assert iterations < 100_000
            assert np.array_equal(call(0.5, y), want) or callback.program.tier is None
            iterations += 1
        assert iterations > 100
        np.testing.assert_allclose(call(0.5, y), want, rtol=1e-15)


def test_nothing_is_compiled_while_jit_is_disabled() -> None:
    callback = scaled()
    with tg.disable_jit():
        np.testing.assert_allclose(callback.at([np.array(1.0)])(0.5, np.ones(3)), np.sin(0.5), rtol=1e-15)
    assert "program" not in vars(callback)


def place(k: Any) -> Any:
    return FACTORS[k]


@pytest.mark.parametrize(
    "f",
    [
        lambda k: integrate.quad(lambda x: x * place(k), 0.0, 1.0)[0],
        lambda k: integrate.solve_ivp(lambda t, y: y * place(k), (0.0, 2.0), np.ones(2), t_eval=TIMES).y,
        lambda k: integrate.odeint(lambda y, t: y * place(k), np.ones(2), TIMES),
    ],
)
def test_errors_in_a_function_are_raised_at_the_users_line(f: Any) -> None:
    traced = tg.trace(f)
    for k in (1, 2):
        np.testing.assert_allclose(traced(np.array(k)), f(np.array(k)), rtol=1e-12)
    with pytest.raises(IndexError, match="3 is out of bounds") as result:
        traced(np.array(3))
    assert "place" in [each.name for each in result.traceback]
    np.testing.assert_allclose(traced(np.array(0)), f(np.array(0)), rtol=1e-12)
