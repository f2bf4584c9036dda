"""What does not dispatch in NumPy (`vectorize`, `nditer`, `r_`, ...) in traced code: values and derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from finite_differences import derivative_along

import tracegrad as tg
from tracegrad.errors import UnsupportedError

X = np.array([0.5, -1.5, 2.5, 1.0])


@np.vectorize
def damped(u: Any, rate: Any = 2.0) -> Any:
    return u * rate if u > 0 else u * u


norms = np.vectorize(lambda u, v: np.sqrt(np.sum(u * v)), signature="(n),(n)->()")


def by_places(x: Any) -> Any:
    y = np.zeros((2, 2))
    for place, value in np.ndenumerate(y):
        y[place] = x[place[0]] * x[3 - place[1]] + value
    return y


def by_elements(x: Any) -> Any:
    total = 0.0
    for (row, column), value in np.ndenumerate(np.outer(x, x)):
        total = total + value * (row - 2 * column)
    return total


def in_memory_order(x: Any) -> Any:
    result, scale = 0.0, 1.0
    for value in np.nditer(np.outer(x, x**2).T):
        result, scale = result + scale * value, scale * 1.25
    return result


def written_by_an_iterator(x: Any) -> Any:
    y = x * 1.0
    with np.nditer(y, op_flags=["readwrite"]) as it:
        for value in it:
            value[...] = value * value
    return y


def by_an_iterators_places(x: Any) -> Any:
    it, total = np.nditer(x * x, flags=["multi_index"]), 0.0
    while not it.finished:
        total = total + it[0] * x[it.multi_index] * it.multi_index[0]
        it.iternext()
    return total


def side_by_side(x: Any) -> Any:
    return sum(u * v for u, v in np.nditer([x * 2.0, np.outer(x, x)]))


def flat(x: Any) -> Any:
    y, total = np.outer(x, x), 0.0
    y.flat[1] = 3.0
    y.flat[::5] = x
    for value in y.flat:
        total = total + value**2
    return y * total + y.flat[6]


CASES: dict[str, Callable[[Any], Any]] = {
    "r_": lambda x: np.r_[x, 0.0, x[::-1] ** 2],
    "r_ with ranges": lambda x: np.r_[0:3, x, 5, -1:1:3j],
    "r_ with axes": lambda x: np.r_["0,2", x, x**2],
    "r_ with places": lambda x: np.r_["1,2,0", x, x**2, [1, 2, 3, 4]],
    "r_ of matrices": lambda x: np.r_[np.outer(x, x), [x]],
    "c_": lambda x: np.c_[x, x**2],
    "c_ of matrices": lambda x: np.c_[np.outer(x, x), x],
    "mgrid": lambda x: np.mgrid[0:2, 0:3] * x[0],
    "vectorize": lambda x: np.vectorize(lambda u: u**2 if u > 0 else -u)(x),
    "vectorize outside": lambda x: damped(x) + damped(x, rate=x[0]),
    "vectorize broadcast": lambda x: damped(x[:, None], x[:2]),
    "vectorize by signature": lambda x: norms(np.outer(x**2, x**2), np.exp(x)),
    "vectorize with types": lambda x: np.vectorize(lambda u: 2 * u, otypes=[np.float32])(x).astype(float),
    "vectorize as decorator": lambda x: np.vectorize(otypes=[float])(lambda u: u * 3)(x),
    "vectorize excluded": lambda x: np.vectorize(lambda p, u: p[0] * u + p[1], excluded=[0])([x[0], 2.0], x),
    "ndenumerate": by_places,
    "ndenumerate of traced": by_elements,
    "nditer": in_memory_order,
    "nditer writing": written_by_an_iterator,
    "nditer by places": by_an_iterators_places,
    "nditer of several": side_by_side,
    "flat": flat,
    "fromiter": lambda x: np.fromiter((v * 2 for v in x), float),
    "fromfunction": lambda x: np.fromfunction(lambda i, j: x[0] * i + j * x[1], (2, 3)),
    "fromfunction of indices": lambda x: np.fromfunction(lambda i, j: x[i] * x[j], (4, 3), dtype=int),
    "broadcast": lambda x: np.stack([u * v for u, v in np.broadcast(x, x[:2, None])]),
    "asarray_chkfinite": lambda x: np.asarray_chkfinite(x) * x,
    "indices": lambda x: np.indices((2, 2)) * x[0],
    "poly1d": lambda x: np.poly1d([1.0, -2.0, 3.0])(x) + np.polyval(np.poly1d([2.0, 1.0]), x),
    "poly1d of traced": lambda x: np.poly1d(x)(x[:2]) * np.polyval(np.poly1d(x[:3]), x[0]),
    "poly1d of traced roots": lambda x: np.poly1d(x[:3], True).coeffs,
    "poly1d arithmetic": lambda x: ((np.poly1d(x[:3]) ** 2 - 2.0 * np.poly1d(x) + x[1]) * x[2]).coeffs,
    "poly1d quotients": lambda x: np.concatenate([p.coeffs for p in np.poly1d(x) / np.poly1d(x[:2])]),
    "poly1d in functions": lambda x: np.polymul(np.poly1d(x), [1.0, 2.0])(x) + np.polyder(np.poly1d(x))(x[0]),
    "poly1d of poly1d": lambda x: np.poly1d(x[:2])(np.poly1d(x[1:3])).coeffs,
    "poly1d integrated": lambda x: np.poly1d(x).integ(2, [1.0, 2.0]).deriv()(x),
    "frompyfunc": lambda x: np.frompyfunc(lambda u, v: u * v if u > 0 else v, 2, 1)(x, x[::-1]).astype(float),
    "frompyfunc of several": lambda x: np.frompyfunc(lambda u: (u, u * u), 1, 2)(x)[1].astype(float),
    "where and out": lambda x: np.log(x, out=np.zeros_like(x), where=x > 0),
}


@pytest.mark.parametrize("case", CASES)
def test_values_and_derivatives_are_those_of_plain_python(case: str) -> None:
    function = CASES[case]
    wanted = function(X)
    result = tg.trace(function)(X)
    np.testing.assert_allclose(result, wanted, rtol=1e-13, strict=isinstance(wanted, np.ndarray))
    rng = np.random.default_rng(2)
    weights, e = rng.normal(size=np.shape(wanted)), rng.normal(size=4)

    def number(x: Any) -> Any:
        return np.sum(np.sin(function(x)) * weights)

    if "types" in case:  # float32
        return
    result = tg.grad(number)(X) @ e
    np.testing.assert_allclose(result, derivative_along(number, [X], [e]), rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(tg.jvp(number, (X,), (e,))[1], result, rtol=1e-12)
    gradient = tg.grad(number)
    twice = tg.grad(lambda x: gradient(x) @ e)(X) @ e
    np.testing.assert_allclose(twice, derivative_along(lambda x: gradient(x) @ e, [X], [e]), rtol=1e-6, atol=1e-7)


def test_what_a_vectorized_function_reads_is_read_at_each_call() -> None:
    k = 2.0
    scaled = np.vectorize(lambda v: v * k)
    traced = tg.trace(lambda x: scaled(x))
    np.testing.assert_array_equal(traced(X), 2.0 * X)
    k = 3.0
    np.testing.assert_array_equal(traced(X), 3.0 * X)


def test_another_function_in_a_vectorized_one_is_another_trace() -> None:
    traced = tg.trace(lambda x: damped(x, 1.0))
    np.testing.assert_array_equal(traced(X), damped(X, 1.0))
    np.testing.assert_array_equal(traced(-X), damped(-X, 1.0))
    np.testing.assert_array_equal(traced(X), damped(X, 1.0))


REFUSED: dict[str, Callable[[Any], Any]] = {
    "np.matrix": lambda x: np.matrix(x),
    "np.asmatrix": lambda x: np.asmatrix(x),
    "np.bmat": lambda x: np.bmat([[x]]),
    "np.ma.masked_where": lambda x: np.ma.masked_where(x > 0, x),
    "np.ma.array": lambda x: np.ma.array(x, mask=[0, 1, 0, 0]),
    "np.nditer with external_loop": lambda x: list(np.nditer(x, flags=["external_loop"])),
    "np.nditer that makes its outputs": lambda x: np.nditer([x, None]),
}


@pytest.mark.parametrize("what", REFUSED)
def test_matrices_and_masked_arrays_are_refused_by_name(what: str) -> None:
    with pytest.raises(UnsupportedError, match=f"{what} is not supported.*; "):
        tg.trace(REFUSED[what])(X)


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
def test_matrices_and_masked_arrays_of_constants_are_what_they_are() -> None:
    def function(x: Any) -> Any:
        table = np.asarray(np.matrix([[1.0, 2.0], [3.0, 4.0]]) * np.matrix([[1.0], [1.0]]))
        saved = np.ma.array([1.0, 2.0, 3.0], mask=[0, 1, 0]).mean()
        return x[:2] * table[:, 0] * saved if not isinstance(x, np.matrix) else 0

    np.testing.assert_array_equal(tg.trace(function)(X), function(X))
