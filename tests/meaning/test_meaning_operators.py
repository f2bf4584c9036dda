"""Operators of arrays and objects that NumPy knows nothing of: sequences are arrays, others are elements."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from meaning import attempt, program

import tracegrad as tg


class Vector:
    """A sequence with operators of its own."""

    def __init__(self, a: Any):
        self.a = a

    def __mul__(self, k: Any) -> Any:
        return Vector(self.a * k)

    __rmul__ = __mul__

    def __radd__(self, k: Any) -> Any:
        return "added"

    def __gt__(self, k: Any) -> Any:
        return "greater"

    def __len__(self) -> int:
        return len(self.a)

    def __getitem__(self, k: Any) -> Any:
        return self.a[k]


class State:
    """No sequence; a number times it is one of its kind."""

    def __init__(self, a: Any):
        self.a = a

    def __rmul__(self, k: Any) -> Any:
        return State(self.a * k)

    def __rsub__(self, k: Any) -> Any:
        return k - self.a


class Chosen(Vector):
    """It says what operators with it mean."""

    __array_ufunc__ = None


@program
def test_a_sequence_with_operators_is_an_array_beside_one(trace):
    @trace
    def f(x):
        v = Vector(x * 2)
        return x * v, x[0] * v, x.sum() + v, x[0] < v, np.float64(2.0) * v, (2.0 * v).a, (v * x[1]).a

    for k in range(3):
        yield f(np.array([1.0, -2.0, 3.0]) + k)


@program
def test_a_number_leaves_its_operator_to_an_object(trace):
    @trace
    def f(x):
        return (x[0] * State(x)).a, x.sum() - State(x), (x.mean() * State(x[1])).a

    for k in range(2):
        yield f(np.array([1.0, -2.0, 3.0]) + k)


@program
def test_an_object_that_has_the_operators_to_itself_is_asked(trace):
    @trace
    def f(x):
        return (x * Chosen(x)).a, (x[0] * Chosen(x)).a, x + Chosen(x)

    for k in range(2):
        yield f(np.array([1.0, -2.0, 3.0]) + k)


@pytest.mark.filterwarnings("ignore:.*gives an array of objects:tracegrad.PerformanceWarning")
@program
def test_an_array_beside_an_object_gives_an_array_of_objects(trace):
    @trace
    def f(x):
        result = x * State(3.0)
        return result.dtype == object, [each.a for each in result], x * Fraction(1, 2)

    for k in range(2):
        yield attempt(f, np.array([1.0, -2.0]) + k)


def test_the_derivative_goes_through_a_sequence_and_is_refused_by_name_for_objects() -> None:
    x = np.array([1.0, -2.0, 3.0])
    np.testing.assert_allclose(tg.grad(lambda x: (x * Vector(x)).sum())(x), 2 * x)
    np.testing.assert_allclose(tg.disable_jit()(tg.grad(lambda x: (x[0] * Vector(x)).sum()))(x), [3.0, 1.0, 1.0])
    with pytest.raises(tg.UnsupportedError, match=r"a State gives an array of objects.*__array_ufunc__ = None"):
        tg.grad(lambda x: (x * State(x))[0].a.sum())(x)
