"""Iterators and files from outside where a call is recorded alone: nothing is taken from them twice."""

from __future__ import annotations

import inspect
import io
import itertools
import os
import types
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.errors import UnsupportedError

X = np.array([1.0, 2.0, 3.0])


def _numbers() -> Any:
    for k in itertools.count(1):
        sent = yield float(k)
        if sent is not None:
            yield sent * 100.0


def _restarted(a: Any) -> Any:
    """What is recorded once more from the beginning: elements of an array that is iterated over and zipped."""
    return np.array([x * k for x, k in zip(a, [3, 1, 2])])


@pytest.mark.parametrize("make", [lambda: iter([0.5, 0.25, 2.0, 4.0]), _numbers, lambda: itertools.count(2)])
def test_a_call_that_is_recorded_again_takes_each_item_once(make):
    source, plain = make(), make()

    def f(x):
        first = next(source)
        return (_restarted(x * next(source)) * first).sum()

    gradient = tg.disable_jit()(tg.value_and_grad(f))
    for _ in range(2):
        first, second = next(plain), next(plain)
        value, derivative = gradient(X)
        assert value == pytest.approx(first * second * np.dot(X, [3, 1, 2]))
        np.testing.assert_allclose(derivative, first * second * np.array([3.0, 1.0, 2.0]))


def test_an_iterator_that_is_passed_is_taken_from_once():
    source = iter([0.5, 0.25, 2.0])

    def f(x, numbers):
        return (_restarted(x) * next(numbers)).sum()

    with pytest.warns(tg.errors.PerformanceWarning, match="numbers is of type list_iterator"):
        value, _ = tg.value_and_grad(f)(X, source)
    assert value == pytest.approx(0.5 * np.dot(X, [3, 1, 2]))
    assert list(source) == [0.25, 2.0]


def test_what_generators_are_sent_and_asked_is_as_in_python():
    source = _numbers()

    def f(x):
        results = (inspect.isgenerator(source), type(source) is types.GeneratorType, source.gi_running)
        assert results == (True, True, False)
        return (_restarted(x) * (next(source) + source.send(2.0))).sum()

    value, _ = tg.disable_jit()(tg.value_and_grad(f))(X)
    assert value == pytest.approx(201.0 * np.dot(X, [3, 1, 2]))
    assert next(source) == 2.0


def test_what_an_iterator_raises_at_its_end_is_raised_again():
    source = iter([0.5])

    def f(x):
        return (_restarted(x) * (next(source, 2.0) + next(source, 3.0) + sum(source))).sum()

    value, _ = tg.disable_jit()(tg.value_and_grad(f))(X)
    assert value == pytest.approx(3.5 * np.dot(X, [3, 1, 2]))
    with pytest.raises(StopIteration):
        tg.disable_jit()(tg.grad(lambda x: (_restarted(x) * next(source)).sum()))(X)


def test_a_file_is_read_once():
    lines = io.StringIO("1.5\n2.5\n3.5\n")

    def f(x):
        return (_restarted(x) * float(lines.readline())).sum()

    gradient = tg.disable_jit()(tg.value_and_grad(f))
    assert [gradient(X)[0] for _ in range(2)] == pytest.approx([k * np.dot(X, [3, 1, 2]) for k in (1.5, 2.5)])
    assert lines.read() == "3.5\n"


def test_an_iterator_that_leaves_is_the_same_object():
    source, world = iter([1.0, 2.0]), {}

    def f(x):
        world["source"] = source
        return (x * next(source)).sum(), source

    _, (_, result) = tg.disable_jit()(tg.value_and_grad(lambda x: (lambda r: (r[0], r))(f(x)), has_aux=True))(X)[0]
    assert result is source is world["source"]
    assert next(source) == 2.0


def test_a_call_that_cannot_be_recorded_after_an_item_was_taken_is_refused_by_name():
    source = iter([1.0, 2.0])

    def f(x):
        scale = next(source)
        np.array([x[0], 1.0]).tofile(os.devnull)
        return (x * scale).sum()

    with pytest.raises(UnsupportedError, match=r"list_iterator from outside has been taken .*test_consumed_iterators"):
        tg.disable_jit()(tg.grad(f))(X)
