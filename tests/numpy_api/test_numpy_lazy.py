"""Functions of `numpy_api.lazy`: NumPy's values on Tensors and compiled, and derivatives by differences."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from along import replayed
from finite_differences import derivative_along
from numpy_calls import IN_PLACE, MORE, RARE_ROUGH, RARE_SMOOTH, ROUGH, SMOOTH, calls
from numpy_expressions import ARRAYS

import tracegrad as tg
from tracegrad.torch.tape import TapeArray

A = ARRAYS | MORE
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::DeprecationWarning")


def function_of(expression: str) -> tuple[Callable[..., Any], list[str]]:
    """A function that computes `expression` from the arrays it names."""
    names = [name for name in A if re.search(rf'(?<![\w.]){name}(?![\w(="])', expression)]
    scope: dict[str, Any] = {"np": np}
    exec(f"def function({', '.join(names)}):\n    return ({expression})\n", scope)
    return scope["function"], names


def same(ours: Any, theirs: Any) -> None:
    if isinstance(theirs, tuple | list):
        assert len(ours) == len(theirs)
        for x, y in zip(ours, theirs):
            same(x, y)
    elif isinstance(theirs, np.ndarray | np.generic):
        result = ours.array if isinstance(ours, TapeArray) else ours
        assert result.shape == theirs.shape
        assert result.dtype == theirs.dtype
        single = theirs.dtype == np.float32
        np.testing.assert_allclose(result, theirs, rtol=2e-6 if single else 1e-13, atol=1e-6 if single else 1e-14)
    else:
        assert ours == theirs


def total(values: Any) -> Any:
    """A number of all floating values, each with a weight of its own."""
    if isinstance(values, tuple | list):
        parts = [part for part in map(total, values) if part is not None]
        return sum(parts[1:], parts[0]) if parts else None
    if not hasattr(values, "dtype") or values.dtype.kind not in "fc":
        return None
    if values.dtype.kind == "c":
        return total(values.real) + 0.7 * total(values.imag)
    weights = np.cos(np.arange(float(values.size))).reshape(values.shape)
    return np.sum(np.sin(values) * weights)


@pytest.mark.parametrize("expression", calls(SMOOTH + RARE_SMOOTH + ROUGH + RARE_ROUGH))
def test_tensors_and_compiled_functions_have_numpys_values(expression: str) -> None:
    function, names = function_of(expression)
    arrays = [A[name] for name in names]
    theirs = function(*arrays)
    same(function(*map(TapeArray, arrays)), theirs)
    same(tg.trace(function)(*arrays), theirs)


def changed(statement: str) -> tuple[Callable[..., Any], list[str]]:
    """A function that gives what `a` becomes by the statement."""
    names = [name for name in A if name == "a" or re.search(rf'(?<![\w.]){name}(?![\w(="])', statement)]
    scope: dict[str, Any] = {"np": np}
    exec(f"def function({', '.join(names)}):\n    y = a.copy()\n    {statement}\n    return y\n", scope)
    return scope["function"], names


@pytest.mark.parametrize("statement", calls(IN_PLACE))
def test_what_is_changed_in_place_is_what_numpy_makes_of_it(statement: str) -> None:
    function, names = changed(statement)
    arrays = [A[name] for name in names]
    same(tg.trace(function)(*arrays), function(*arrays))
    real = [k for k, name in enumerate(names) if A[name].dtype == np.float64]
    e = [np.random.default_rng(k).normal(size=A[name].shape) if k in real else None for k, name in enumerate(names)]
    gradient = tg.grad(lambda *xs: total(function(*xs)), argnums=tuple(real))(*arrays)
    result = sum(np.sum(g * e[k]) for k, g in zip(real, gradient))
    np.testing.assert_allclose(
        result, derivative_along(lambda *xs: total(function(*xs)), arrays, e), rtol=1e-7, atol=1e-8
    )


def is_of_floats(expression: str) -> bool:
    function, names = function_of(expression)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return total(function(*[A[name] for name in names])) is not None


SMOOTH_REALS = [e for e in calls(SMOOTH + RARE_SMOOTH) if is_of_floats(e)]


@pytest.mark.parametrize("expression", SMOOTH_REALS)
def test_first_and_second_derivatives_in_both_modes_are_differences(expression: str) -> None:
    function, names = function_of(expression)
    real = [name for name in names if A[name].dtype == np.float64]
    fixed = {name: A[name] for name in names if name not in real}

    def number(*xs: Any) -> Any:
        options = dict(zip(real, xs), **fixed)
        return total(function(*[options[name] for name in names]))

    rng = np.random.default_rng(3)
    point, (d, e) = [A[name] for name in real], [[rng.normal(size=A[name].shape) for name in real] for _ in range(2)]
    argnums = tuple(range(len(real)))
    gradient = tg.grad(number, argnums=argnums)

    def along(*xs: Any) -> Any:
        return sum(np.sum(g * v) for g, v in zip(gradient(*xs), e))

    wanted = derivative_along(number, point, e)
    np.testing.assert_allclose(along(*point), wanted, rtol=1e-7, atol=1e-8)
    with replayed():
        np.testing.assert_allclose(tg.jvp(number, tuple(point), tuple(e))[1], wanted, rtol=1e-7, atol=1e-8)
        second = tg.jvp(along, tuple(point), tuple(d))[1]
    np.testing.assert_allclose(second, derivative_along(along, point, d), rtol=1e-6, atol=1e-7)
    with tg.disable_jit():
        np.testing.assert_allclose(along(*point), wanted, rtol=1e-7, atol=1e-8)


# Whether edges, orders and counts fit is asked of the values, which a batch has several of.
ASKS = "histogram|bincount|delete|insert.*> 0|full=True"


@pytest.mark.parametrize("expression", [e for e in SMOOTH_REALS if not re.search(ASKS, e)])
def test_a_batch_is_a_loop_over_examples(expression: str) -> None:
    function, names = function_of(expression)
    real = [name for name in names if A[name].dtype == np.float64]
    fixed = {name: A[name] for name in names if name not in real}

    def one(*xs: Any) -> Any:
        options = dict(zip(real, xs), **fixed)
        return function(*[options[name] for name in names])

    batch = [np.stack([A[name], A[name] * 1.125]) for name in real]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = tg.vmap(one)(*batch)
    for k in range(2):
        wanted = one(*[x[k] for x in batch])
        several = isinstance(wanted, tuple | list)
        for ours, theirs in zip(result if several else [result], wanted if several else [wanted]):
            np.testing.assert_allclose(ours[k], theirs, rtol=1e-11, atol=1e-12)


def test_views_by_strides_are_those_of_numpy() -> None:
    from numpy.lib.stride_tricks import as_strided

    def windows(x: Any) -> Any:
        return as_strided(x, (3, 2), (8, 8)) * np.lib.stride_tricks.as_strided(x, shape=(3, 2), strides=(16, 0))

    x = A["h"]
    np.testing.assert_array_equal(tg.trace(windows)(x), windows(x))
    gradient = tg.grad(lambda x: total(windows(x)))
    e = np.cos(np.arange(6.0))
    np.testing.assert_allclose(gradient(x) @ e, derivative_along(lambda x: total(windows(x)), [x], [e]), rtol=1e-8)
    with pytest.raises(IndexError, match="beyond the elements"):
        tg.trace(lambda x: as_strided(x, (7,), (8,)))(x)


def written_by_strides(x: Any) -> Any:
    strided = np.lib.stride_tricks.as_strided
    y = x * 1.0
    rows, ends, one = strided(y, (2, 2), (8, 16)), strided(y, (2,), (24,)), strided(y, (), ())
    rows[0] = 5 * x[3]
    rows.T[1][1] *= x[0]
    ends += y[1]
    y[2] = rows[1, 0] * one
    one[...] = ends[1] + rows[0, 1]
    strided(y, (0,), (8,))[:] = 7.0
    return y, rows, rows.flags.writeable, strided(y, (2,), (8,), writeable=False).flags.writeable


def test_views_by_strides_are_written_to_as_those_of_numpy() -> None:
    x, e = np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, -2.0, 3.0, 0.5])
    wanted, traced = written_by_strides(x), tg.trace(written_by_strides)
    for _ in range(2):
        answer = traced(x)
        np.testing.assert_array_equal(answer[0], wanted[0])
        np.testing.assert_array_equal(answer[1], wanted[1])
        assert (answer[1].strides, answer[2:]) == (wanted[1].strides, (True, False))
        assert np.shares_memory(answer[0], answer[1])
    outcome = lambda x: total(np.sin(written_by_strides(x)[0]))  # noqa: E731
    expected = derivative_along(outcome, [x], [e])
    np.testing.assert_allclose(tg.grad(outcome)(x) @ e, expected, rtol=1e-7)
    np.testing.assert_allclose(tg.jvp(outcome, (x,), (e,))[1], expected, rtol=1e-7)
    rows = tg.vmap(lambda x: written_by_strides(x)[0])(np.stack([x, e]))
    np.testing.assert_array_equal(rows, [written_by_strides(x)[0], written_by_strides(e)[0]])


def test_what_is_written_to_a_view_by_strides_of_an_argument_is_in_the_argument() -> None:
    def halved(x: Any) -> None:
        np.lib.stride_tricks.as_strided(x, (2,), (16,))[:] /= 2

    x = np.array([2.0, 3.0, 4.0, 5.0])
    tg.trace(halved)(x)
    np.testing.assert_array_equal(x, [1.0, 3.0, 2.0, 5.0])


def test_views_by_strides_whose_elements_overlap_follow_the_array_and_refuse_updates_by_name() -> None:
    def windows(x: Any) -> Any:
        y = x * 2
        view = np.lib.stride_tricks.as_strided(y, (3, 2), (8, 8))
        y[1] = 7 * x[0]
        return view.T

    def written(x: Any) -> Any:
        np.lib.stride_tricks.as_strided(x, (3, 2), (8, 8))[0] = 1.0

    x = np.array([1.0, 2.0, 3.0, 4.0])
    answer = tg.trace(windows)(x)
    np.testing.assert_array_equal(answer, windows(x))
    assert (answer.strides, answer.flags.writeable) == ((8, 8), True)
    with pytest.raises(NotImplementedError, match="as_strided whose elements overlap"):
        tg.trace(written)(x)


REFUSED: dict[str, Callable[[Any], Any]] = {
    "np.maximum.at with a traced mask": lambda x: np.maximum.at(x * 1.0, x > 1, 1.0),
    "np.maximum.at with 600 traced": lambda x: np.maximum.at(x * 1.0, np.floor(np.tile(x, 100)).astype(int), 1.0),
    "np.linalg.qr with mode='raw'.* use mode='reduced'": lambda x: np.linalg.qr(np.outer(x, x), mode="raw"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_not_supported_is_refused_by_name(what: str) -> None:
    with pytest.raises(NotImplementedError, match=what):
        tg.trace(REFUSED[what])(A["h"])


def test_what_is_asked_is_asked_at_every_call() -> None:
    counts = tg.trace(lambda k, w: np.bincount(k, w, minlength=3))
    w = np.array([1.0, 2.0, 4.0])
    for k in ([0, 1, 1], [2, 0, 2], [0, 5, 1], [2, 5, 5], [0, 0, 3]):
        np.testing.assert_array_equal(counts(np.array(k), w), np.bincount(k, w, minlength=3))
    assert counts.cache_info().traces == 3
    with pytest.raises(ValueError, match="negative"):
        counts(np.array([0, -1, 1]), w)
    choices = tg.trace(lambda k: np.choose(k, [w, 2 * w]))
    np.testing.assert_array_equal(choices(np.array([0, 1, 0])), [1.0, 4.0, 4.0])
    with pytest.raises(ValueError, match="invalid entry in choice array"):
        choices(np.array([0, 1, 2]))


# Statements that change `y`, zeros that the traced function has made.
OF_CONSTANTS = """
np.put(y, [0, 5], [1.0, 2.0]) | np.put(y, [0, 5], x[:2]) | np.place(y, np.eye(4) > 0, [1.0, 2.0]) | y.put([3], 4.0)
np.place(y, np.eye(4) > 0, x) | np.putmask(y, np.eye(4) > 0, 3.0) | np.putmask(y, np.eye(4) > 0, x)
np.fill_diagonal(y, 2.0) | np.fill_diagonal(y[1:, 1:], x[1]) | np.fill_diagonal(y, x) | np.copyto(y[1], x)
np.copyto(y, np.ones(4)) | np.copyto(y, x, where=np.eye(4) > 0) | np.put_along_axis(y, np.array([[0, 1, 2, 3]]), x, 0)
np.multiply.at(y, ([0, 0], [1, 1]), 3.0) | np.maximum.at(y, ([0, 0], [1, 1]), x[:2]) | np.add(y, 1, out=y)
np.add(y, x, out=y, where=np.eye(4) > 0) | np.exp(y, out=y, where=np.eye(4) > 0) | y.T.put([1, 2], x[:2])
np.cumsum(y + 1, axis=0, out=y) | np.cumsum(y + x, axis=0, out=y) | np.put(y[2], [1], x[1]) | y.flat[3] = x[0]
"""


@pytest.mark.parametrize("statement", calls(OF_CONSTANTS))
def test_what_is_made_inside_is_changed_when_it_is_said(statement: str) -> None:
    scope: dict[str, Any] = {"np": np}
    lines = ["y = np.zeros((4, 4))", "before = y * x", statement, "between = y * x", "y[1, 1] += 2"]
    body = "\n    ".join([*lines, "return before + between + y * x"])
    exec(f"def function(x):\n    {body}\n", scope)
    x = A["v"]
    np.testing.assert_allclose(tg.trace(scope["function"])(x), scope["function"](x), rtol=1e-15, atol=1e-15)


def test_counts_of_nothing_are_integers_whatever_the_weights() -> None:
    nothing, weights = np.zeros(0, int), np.zeros(0)
    got, wanted = tg.trace(lambda k, w: np.bincount(k, w, 3))(nothing, weights), np.bincount(nothing, weights, 3)
    np.testing.assert_array_equal(got, wanted)
    assert got.dtype == wanted.dtype


def test_the_average_along_an_axis_of_no_means_is_numpys_error() -> None:
    for average in (np.average, tg.trace(np.average), tg.trace(lambda x, axis: np.average(x, axis))):
        with pytest.raises(ZeroDivisionError):
            average(np.zeros((0, 2)), 1)


def test_the_class_of_arrays_makes_empty_ones_and_stays_a_class() -> None:
    def filled(x: Any) -> Any:
        y, z = np.ndarray((2, x.size), order="F"), np.ndarray(3, dtype=np.float32)
        y[0], y[1], z[...] = x**2, x.view(np.ndarray), 2
        kinds = (
            type(x) is np.ndarray,
            type(y) in (np.ndarray, list),
            isinstance(y, np.ndarray),
            {np.ndarray: 1}[type(x)] == 1,
        )
        return y, z, np.array(kinds), type(x)

    x = np.array([1.0, 2.0, 4.0])
    y, z, kinds, kind = tg.trace(filled)(x)
    np.testing.assert_array_equal(y, [x**2, x])
    assert y.flags.f_contiguous
    assert (z.dtype, z.tolist(), kinds.tolist()) == (np.float32, [2.0, 2.0, 2.0], [True] * 4)
    assert kind is np.ndarray
    np.testing.assert_array_equal(tg.grad(lambda x: np.sum(filled(x)[0]))(x), 2 * x + 1)
    with pytest.raises(NotImplementedError, match="as_strided"):
        tg.trace(lambda x: np.ndarray((2,), buffer=x))(x)


def test_rows_that_are_unique_have_the_cotangent_of_the_first() -> None:
    x = np.array([[1.0, 2.0], [0.0, 5.0], [1.0, 2.0]])
    gradient = tg.grad(lambda x: np.sum(np.unique(x, axis=0) ** 2 * np.array([[1.0], [3.0]])))(x)
    np.testing.assert_array_equal(gradient, [[6.0, 12.0], [0.0, 10.0], [0.0, 0.0]])


def test_numbers_are_put_at_many_places_that_are_traced() -> None:
    rng = np.random.default_rng(5)
    places, x = rng.integers(-500, 500, 2000), rng.normal(size=2000)

    def put(x: Any, places: Any) -> Any:
        y = np.zeros(500)
        np.put(y, places, x)
        return y

    np.testing.assert_array_equal(tg.trace(put)(x, places), put(x, places))
    last = np.zeros(2000)
    last[[np.flatnonzero(places % 500 == k)[-1] for k in set(places % 500)]] = 1.0
    np.testing.assert_array_equal(tg.grad(lambda x: np.sum(put(x, places)))(x), last)


def test_geometric_sequences_of_a_batch_are_nan_where_there_are_none() -> None:
    result = tg.vmap(lambda a: np.geomspace(a, 8.0, 4))(np.array([1.0, -1.0]))
    np.testing.assert_allclose(result[0], [1.0, 2.0, 4.0, 8.0], rtol=1e-14)
    assert np.isnan(result[1, 1:3]).all()


@pytest.mark.parametrize("mode", ["edge", "reflect", "symmetric", "wrap"])
@pytest.mark.parametrize("n", [1, 2, 3, 10])
def test_arrays_are_padded_with_their_own_elements(n: int, mode: str) -> None:
    """By pieces of the array where these are few, as rows, or one by one."""
    x = np.arange(3.0 * n).reshape(n, 3)
    for widths in ((0, 0), (1, 1), (0, 2), (3, 7), (25, 31), (200, 3)):

        def padded(x: Any, widths: tuple[int, int] = widths) -> Any:
            return np.pad(x, (widths, (2, 1)), mode=mode)

        same(tg.trace(padded)(x), padded(x))
        counts = 1.0 * np.bincount(padded(x).astype(int).ravel(), minlength=x.size).reshape(x.shape)
        same(tg.grad(lambda x, padded=padded: np.sum(padded(x)))(x), counts)
