"""Indexing and assignment mean what they mean for ndarrays, on every index NumPy accepts and on those it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from index_strategies import _array, arrays_and_indices

import tracegrad as tg
from tracegrad.avals import Aval
from tracegrad.errors import UnsupportedError
from tracegrad.ir import Builder, GraphValue, run
from tracegrad.numpy_api import ArrayMethods
from tracegrad.numpy_api.indexing import setitem
from tracegrad.ops.core.recorders import RECORDERS
from tracegrad.torch.tape import TapeArray, grad


def _check_read(x: np.ndarray, index: Any) -> None:
    try:
        expected = x[index]
    except IndexError:
        with pytest.raises(IndexError):
            TapeArray(x)[index]
        return
    result = TapeArray(x)[index]
    assert isinstance(result, TapeArray)
    assert result.dtype == x.dtype
    np.testing.assert_array_equal(result.array, expected, strict=True)


@settings(max_examples=300, deadline=None)
@given(arrays_and_indices(advanced=False))
def test_basic_indexing_is_numpys(case: tuple[np.ndarray, Any]) -> None:
    _check_read(*case)


@settings(max_examples=500, deadline=None)
@given(arrays_and_indices(advanced=True))
def test_advanced_indexing_is_numpys(case: tuple[np.ndarray, Any]) -> None:
    _check_read(*case)


@settings(max_examples=400, deadline=None)
@given(arrays_and_indices(advanced=True), st.data())
def test_assignment_is_numpys(case: tuple[np.ndarray, Any], data: Any) -> None:
    x, index = case
    try:
        target = x[index].shape
    except IndexError:
        with pytest.raises(IndexError):
            TapeArray(x)[index] = 0.0
        return
    scalar = data.draw(st.booleans())
    drop = data.draw(st.integers(0, len(target)))
    value: Any = -0.0 if scalar else -_array(target[drop:])
    expected, result = x.copy(), TapeArray(x.copy())
    expected[index] = value
    result[index] = value
    np.testing.assert_array_equal(result.array, expected, strict=True)
    np.testing.assert_array_equal(np.signbit(result.array), np.signbit(expected))
    np.testing.assert_array_equal(x, _array(x.shape))


@settings(max_examples=150, deadline=None)
@given(arrays_and_indices(advanced=True))
def test_the_derivative_of_indexing_adds_into_the_places_read(case: tuple[np.ndarray, Any]) -> None:
    x, index = case
    try:
        read = np.asarray(x[index])
    except IndexError:
        return
    weights = _array(read.shape)
    t = TapeArray(np.asarray(x), requires_grad=True)
    (result,) = grad((t[index] * weights).sum(), t)
    expected = np.zeros_like(x)
    np.add.at(expected, index, weights)
    np.testing.assert_allclose(result.array, expected, rtol=1e-14)


def test_add_at_adds_equal_indices_up() -> None:
    x, v = np.zeros((4, 3)), np.arange(6.0).reshape(2, 3)
    t = TapeArray(x.copy())
    np.add.at(t, [1, 1], v)
    np.subtract.at(t, (slice(None), 0), 2.0)
    np.add.at(x, [1, 1], v)
    np.subtract.at(x, (slice(None), 0), 2.0)
    np.testing.assert_array_equal(t.array, x)


def test_a_mask_of_the_whole_array_selects_and_assigns() -> None:
    x = _array((3, 4))
    t = TapeArray(x.copy())
    np.testing.assert_array_equal(t[t > 5].array, x[x > 5])
    t[t > 5] = 0.0
    np.testing.assert_array_equal(t.array, np.where(x > 5, 0.0, x))
    u = TapeArray(x.copy())
    u[np.array([True, False, True])] = np.array(7.0)
    assert u.array.sum() == 4 * (7 + 7) + x[1].sum()


def test_the_last_of_several_assignments_to_one_place_counts() -> None:
    t = TapeArray(np.asarray([0.0, 0.0, 0.0]))
    v = TapeArray(np.asarray([1.0, 2.0, 3.0]), requires_grad=True)
    t[[1, 0, 1]] = v
    np.testing.assert_array_equal(t.array, [2.0, 3.0, 0.0])
    (g,) = grad((t * TapeArray(np.asarray([10.0, 20.0, 30.0]))).sum(), v)
    np.testing.assert_array_equal(g.array, [0.0, 10.0, 20.0])


def test_the_last_assignment_counts_for_indices_that_are_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    class Traced(GraphValue, ArrayMethods):
        __slots__ = ()
        _concrete_masks = False

        def _lift(self, x: Any) -> Any:
            raise AssertionError("nothing here needs lifting")

    class TracedBuilder(Builder):
        def value(self, node: Any) -> Any:
            return Traced(self, node)

    builder = TracedBuilder()
    x, i, v = (builder.input(Aval(s, np.dtype(d))) for s, d in (((5,), "float64"), ((4,), "int64"), ((4,), "float64")))
    with monkeypatch.context() as during:
        during.setattr(RECORDERS, "current", builder)
        graph = builder.build([setitem(x, i, v)])
    x0, v0 = np.zeros(5), np.array([1.0, 2.0, 3.0, 4.0])
    for i0 in ([0, 1, 2, 3], [1, 1, 1, 1], [-1, 4, 0, -5], [2, 3, 2, 3]):
        expected = x0.copy()
        expected[i0] = v0
        np.testing.assert_array_equal(run(graph, [x0, np.array(i0), v0])[0], expected)
    with pytest.raises(IndexError):
        run(graph, [x0, np.array([0, 1, 2, 5]), v0])


def test_any_number_of_traced_indices_may_be_assigned_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tg.settings, "first_call", "compile")
    rng = np.random.default_rng(0)
    x, v, i = rng.standard_normal(700), rng.standard_normal(1000), rng.integers(-700, 700, 1000)

    def written(x: Any, v: Any, i: Any) -> Any:
        z = 2.0 * x
        z[i] = v
        return z

    np.testing.assert_array_equal(tg.trace(written)(x, v, i), written(x, v, i))
    last = np.full(700, -1)
    last[i] = np.arange(1000)
    of_x, of_v = tg.grad(lambda x, v: np.sum(written(x, v, i) * x), argnums=(0, 1))(x, v)
    np.testing.assert_allclose(of_x, np.where(last < 0, 4.0 * x, v[last]), rtol=1e-15)
    np.testing.assert_array_equal(of_v, np.bincount(last[last >= 0], x[last >= 0], 1000))


def test_indices_may_be_tensors() -> None:
    x = _array((4, 3))
    i = TapeArray(np.asarray([2, 0]))
    np.testing.assert_array_equal(TapeArray(x)[i].array, x[[2, 0]])
    np.testing.assert_array_equal(TapeArray(x)[i, 1:].array, x[[2, 0], 1:])
    np.testing.assert_array_equal(TapeArray(x)[TapeArray(np.asarray(1))].array, x[1])
    np.testing.assert_array_equal(TapeArray(x)[[TapeArray(np.asarray(1)), 2]].array, x[[1, 2]])
    np.testing.assert_array_equal(TapeArray(x)[: TapeArray(np.asarray(2))].array, x[:2])


@pytest.mark.parametrize(
    ("index", "error"),
    [
        (7, IndexError),
        ((0, -4), IndexError),
        ((0, 0, 0), IndexError),
        ((..., 0, ...), IndexError),
        ([0, 9], IndexError),
        ([0.5], IndexError),
        ("a", IndexError),
        (1.0, IndexError),
        (([0, 1], [0, 1, 2]), IndexError),
        (np.ones(2, bool), IndexError),
        (slice(0, 1.5), TypeError),
    ],
)
def test_a_wrong_index_raises_numpys_class_of_error(index: Any, error: type[Exception]) -> None:
    x = _array((4, 3))
    if error is not UnsupportedError:
        with pytest.raises(error):
            x[index]
    with pytest.raises(error):
        TapeArray(x)[index]


def test_assigning_a_wrong_shape_raises() -> None:
    t = TapeArray(_array((4, 3)))
    with pytest.raises(ValueError, match="could not broadcast"):
        t[0] = np.ones(2)


def test_an_element_is_a_scalar_that_later_updates_leave_alone():
    def exchange(x):
        y = x.copy()
        y[0], y[2] = y[2], y[0]
        return y

    def scan(x):
        y, seen = x * 1, []
        for i, v in enumerate(y):
            y[i] = 0.0
            seen.append(v)
        return np.stack(seen) + y

    def kept(x):
        y = x * 1
        element, row = y[1], y[1:2]
        y *= 10
        return np.stack([element, row[0], y[()][1]])

    x = np.array([1.0, -2.0, 3.0])
    for f in (exchange, scan, kept):
        np.testing.assert_array_equal(tg.trace(f)(x), f(x))
    weights = np.array([1.0, 10.0, 100.0])
    gradient = tg.grad(lambda x: np.sum(exchange(x) * weights))
    np.testing.assert_array_equal(gradient(x), [100, 10, 1])
    with tg.disable_jit():
        np.testing.assert_array_equal(gradient(x), [100, 10, 1])


MASK = np.array([True, False, True, True])


def test_masks_that_no_argument_has_a_part_in_are_indices(monkeypatch):
    def whole(x):
        y = x * 1
        y[~MASK] = x[MASK][:1] * 3
        return np.sum(y[MASK] ** 2) + np.sum(np.outer(x, x)[~np.eye(4, dtype=bool)]) + y[np.arange(4) % 2 == 0][0]

    x = np.arange(1.0, 5.0)
    f = tg.trace(whole)
    np.testing.assert_allclose(f(x), whole(x), rtol=1e-14)
    np.testing.assert_allclose(f(x * 2), whole(x * 2), rtol=1e-14)
    assert f.cache_info().traces == 1
    for mask in (np.array([True, True, False, False]), np.ones(4, bool)):
        monkeypatch.setitem(globals(), "MASK", mask)
        np.testing.assert_allclose(f(x), whole(x), rtol=1e-14)
    assert f.cache_info().traces == 3
    np.testing.assert_array_equal(tg.grad(lambda x: np.sum(x[MASK]))(x), MASK)
    for function in (lambda x: x[x > 2], lambda x: x[(x > 2) | MASK]):
        np.testing.assert_array_equal(tg.trace(function)(x), function(x))
