"""Methods of the class of arrays as functions: `np.ndarray.sum(x)`, `map(np.ndarray.copy, rows)`, held in variables."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from along import named

import tracegrad as tg

X = np.array([1.0, 2.0])
SUM, ADD, TABLE = np.ndarray.sum, np.ndarray.__add__, {"copy": np.ndarray.copy}
PARTIAL = functools.partial(np.ndarray.sum, axis=0)
CALLER, GETTER = operator.methodcaller("sum", axis=0), operator.attrgetter("T")


def assigned(x: Any) -> Any:
    y = x * 1.0
    np.ndarray.__setitem__(y, 0, 5.0)
    return y * x


def filled(x: Any) -> Any:
    y = np.zeros(2)
    np.ndarray.fill(y, x[0])
    return y


CASES: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: np.ndarray.sum(x * x),
    "in a global": lambda x: SUM(x * x),
    "add": lambda x: np.ndarray.__add__(x, x * 2),
    "add, in a global": lambda x: ADD(x, 2.0) * x,
    "of a constant": lambda x: np.ndarray.__mul__(np.ones(2), x),
    "mapped": lambda x: sum(map(np.ndarray.copy, [x, x])),
    "in a dict": lambda x: TABLE["copy"](x) * x,
    "in a partial": lambda x: PARTIAL(x * x),
    "methodcaller": lambda x: CALLER(x * x),
    "attrgetter": lambda x: GETTER(x) * x,
    "getattr": lambda x: getattr(np.ndarray, "me" + "an")(x),
    "of rows": lambda x: np.stack(list(map(np.ndarray.sum, np.outer(x, x)))),
    "setitem": assigned,
    "getitem": lambda x: np.ndarray.__getitem__(x, 0) * x,
    "fill": filled,
    "of type": lambda x: type(x).sum(x),
    "of the class": lambda x: x.__class__.sum(x),
    "matmul": lambda x: np.ndarray.__matmul__(x, x),
    "reduced": lambda x: functools.reduce(np.ndarray.__mul__, [x, x, x]),
    "as a key": lambda x: np.stack(sorted([x, 2 * x], key=np.ndarray.sum)),
    "astype": lambda x: np.ndarray.astype(x, float) * x,
    "argmax": lambda x: x[np.ndarray.argmax(x)],
    "in place": lambda x: np.ndarray.__iadd__(x * 1, 2.0) * x,
}


@pytest.mark.parametrize("name", CASES)
def test_they_take_what_is_traced(name: str) -> None:
    f = CASES[name]
    traced = tg.trace(named(lambda x: f(x), name))
    for x in (X, X + 1.0, np.array([3.0, -0.0])):
        result = traced(x)
        assert type(result) is type(f(x))
        np.testing.assert_array_equal(result, f(x))
    assert traced.cache_info().traces

    total = named(lambda x: np.sum(f(x)), name)
    expected = [(total(X + e) - total(X - e)) / 2e-6 for e in np.eye(2) * 1e-6]
    np.testing.assert_allclose(tg.grad(total)(X), expected, rtol=1e-8)
    np.testing.assert_allclose([tg.jvp(total, (X,), (e,))[1] for e in np.eye(2)], expected, rtol=1e-8)
    if name != "as a key":  # whose order depends on values
        np.testing.assert_allclose(tg.vmap(total)(np.stack([X, X + 1.0])), [total(X), total(X + 1.0)])
    with tg.disable_jit():
        np.testing.assert_allclose(tg.grad(total)(X), expected, rtol=1e-8)


@pytest.mark.parametrize("x", [np.float64(3.0), 3.0])
def test_numbers_are_no_arrays(x: Any) -> None:
    traced = tg.trace(lambda x: np.ndarray.sum(x))
    for _ in range(2):
        with pytest.raises(TypeError, match=r"descriptor 'sum' for 'numpy.ndarray' objects doesn't apply to a '"):
            traced(x)


def test_one_that_the_tape_is_given_is_refused_by_name() -> None:
    def fails_after_it(x: Any) -> Any:
        total = np.ndarray.sum(x)
        return iter([total]).throw(ValueError)  # type: ignore[attr-defined]

    for derivative in (tg.grad(fails_after_it), lambda x: tg.jvp(fails_after_it, (x,), (x,))):
        with pytest.raises(
            tg.UnsupportedError, match=r"np\.ndarray\.sum\(x\) .* say x\.sum\(\): .*no attribute 'throw'"
        ):
            derivative(np.ones(2))
    with pytest.raises(AttributeError, match="throw"):
        tg.trace(fails_after_it)(np.ones(2))
