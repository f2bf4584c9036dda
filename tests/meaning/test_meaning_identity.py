"""Truths are compared by identity, as Python code does with `is True`, `is not False` and `match`."""

from __future__ import annotations

import operator
import warnings
from typing import Any

import numpy as np
import pytest
from meaning import compare, program

import tracegrad as tg

X = np.array([1.0, -2.0, 3.0])


def _by_match(x: Any, n: Any) -> Any:
    match n > 0:
        case True:
            return x
        case False:
            return -x
    return x * 7


def _is_true(flag: Any) -> bool:
    return flag is True


def _in_a_dict(x: Any, n: Any) -> Any:
    table = {"positive": n > 0}
    return x if table["positive"] is True else -x


FORMS = {
    "is True": lambda x, n: x if (n > 0) is True else -x,
    "is not False": lambda x, n: x if (n > 0) is not False else -x,
    "not": lambda x, n: x if (not n) is True else -x,
    "and": lambda x, n: x if ((n > 0) & True) is True else -x,
    "two truths": lambda x, n: x if (n > 0) is (n > -1) else -x,
    "a method": lambda x, n: x if isinstance(n, float) and n.is_integer() is True else -x,
    "with itself": lambda x, n: x if (n == n) is True and n is n else -x,
    "a helper": lambda x, n: x if _is_true(n > 0) else -x,
    "a comprehension": lambda x, n: x * sum(v is True for v in [n > 0, n > 1]),
    "match": _by_match,
    "an item": _in_a_dict,
    "operator.is_": lambda x, n: x if operator.is_(n > 0, True) and operator.is_not(n > 2, True) else -x,
    "an answer": lambda x, n: (n > 0) is True,
    "None": lambda x, n: x if (n > 0) is not None and n is not None else -x,
    "a type": lambda x, n: x if type(n > 0) is bool else -x,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("mode", ["traced", "disabled"])
def test_booleans_of_numbers(form: str, mode: str) -> None:
    def script(trace: Any) -> Any:
        f = trace(FORMS[form])
        for n in (3, 0, 5, -3, 3.0, 2.5, True, False):
            yield f(X, n)

    compare(script, mode)


@program
def test_flags_that_are_arguments(trace: Any) -> Any:
    @trace
    def f(x: Any, flag: Any, scale: Any = True) -> Any:
        y = x if flag is True else -x if flag is False else 3 * x
        return y * 2 if scale is True else y

    for flag in (True, False, 1, 0, None, "a", True):
        yield f(X, flag), f(X, flag, scale=False), f(X, flag, True)


@program
def test_a_helper_that_is_met_late(trace: Any) -> Any:
    @trace
    def f(x: Any, flag: Any) -> Any:
        if np.sum(x) > 0:
            return x
        return x * 2 if _is_true(flag) else x * 3

    for flag in (True, False, True):
        for sign in (1.0, -1.0):
            yield f(X * sign, flag)


@program
def test_flags_that_the_function_sets(trace: Any) -> Any:
    class Model:
        training: Any = True
        steps = 0

    m = Model()

    @trace
    def f(x: Any) -> Any:
        y = x if m.training is True else -x
        m.steps += 1
        m.training = m.steps % 2 == 0
        return y

    for _ in range(5):
        yield f(X), m.training, m.steps


@pytest.mark.parametrize("flag", [True, False])
def test_derivatives_of_functions_that_compare_booleans(flag: bool) -> None:
    def f(x: Any, flag: Any) -> Any:
        return np.sum(x**2 if flag is True else x)

    np.testing.assert_array_equal(tg.grad(f)(X, flag), 2 * X if flag else np.ones(3))


def test_a_function_that_compares_no_booleans_does_not_ask_for_its_flags() -> None:
    @tg.trace
    def f(x: Any, flag: Any) -> Any:
        return x * flag if x is not None else x

    np.testing.assert_array_equal(f(X, True), X)
    np.testing.assert_array_equal(f(X, False), X * 0)
    assert f.cache_info().traces == 1


# The compiler warns of literals.
_LITERALS: dict[str, Any] = {}
with warnings.catch_warnings():
    warnings.simplefilter("ignore", SyntaxWarning)
    exec("def is_three(x, n): return x if n is 3 else -x", _LITERALS)
    exec(
        "def in_a_turn(x): return tg.fori_loop(0, 3, lambda i, c: c + (1 if i is 1 else 2), x)",
        {"tg": tg},
        _LITERALS,
    )


@program
def test_numbers_that_are_literals(trace: Any) -> Any:
    f = trace(_LITERALS["is_three"])
    for n in (3, 4, 3, True, 3.0, 1000):
        yield f(X, n)


@pytest.mark.parametrize(
    ("body", "asked"),
    [
        (lambda i, c: c + (1 if (i > 1) is True else 2), "bool"),
        (lambda i, c: c + (1 if _is_true(i > 1) else 2), "bool"),
        (lambda i, c: c + (1 if (i > 1) is not False else 2), "bool"),
    ],
)
def test_booleans_in_a_region_are_refused_at_the_line(body: Any, asked: str) -> None:
    with pytest.raises(tg.TraceError, match=rf"{asked}\(\) of a value inside .*test_meaning_identity.py:\d+"):
        tg.trace(lambda x: tg.fori_loop(0, 3, body, x))(X)
    with pytest.raises(tg.TraceError, match=r"int\(\) of a value inside"):
        tg.trace(_LITERALS["in_a_turn"])(X)


def test_booleans_outside_of_a_region_are_compared_within_it() -> None:
    f = tg.trace(lambda x, n, flag: tg.fori_loop(0, 3, lambda i, c: c + (1 if (n > 2) is flag is True else 2), x))
    for n, flag in ((3, True), (1, True), (3, False)):
        np.testing.assert_array_equal(f(X, n, flag), X + (3 if (n > 2) is flag is True else 6))


# -- arrays ------------------------------------------------------------------------------------------------------------
def _updated(x: Any, y: Any) -> Any:
    x += 1
    return y * 2, x is y


def _looked_up(x: Any, y: Any) -> Any:
    known = {id(x): 1}
    return id(y) in known, x * 1.0


def _distinct(*xs: Any) -> Any:
    seen: list[Any] = []
    for x in xs:
        if not any(x is s for s in seen):
            seen.append(x)
    return len(seen), sum(seen)


def _written(x: Any, y: Any) -> Any:
    np.multiply(x, y, out=y)
    return y is x, x.sum()


ARRAYS = {
    "is": lambda x, y: x + 1 if x is y else x + y,
    "itself": lambda x, y: (x if x is y else x + y) is x,
    "asarray": lambda x, y: (np.asarray(y) is x, np.asarray(y) is y, x * 1.0),
    "updated": _updated,
    "id": _looked_up,
    "distinct": _distinct,
    "written": _written,
    "in a dict": lambda x, y: (lambda p: (p["a"] is p["b"], p["a"] + p["b"]))({"a": x, "b": y}),
}


@pytest.mark.filterwarnings("ignore:.*shares memory with something else:tracegrad.PerformanceWarning")
@pytest.mark.parametrize("form", ARRAYS)
@pytest.mark.parametrize("mode", ["traced", "disabled"])
@pytest.mark.parametrize("order", [(0, 0, 0, 1, 1, 1, 1, 0), (0, 1, 0, 0, 1, 1, 0, 1)])
def test_an_array_that_is_passed_twice(form: str, mode: str, order: Any) -> None:
    def script(trace: Any) -> Any:
        f, arrays = trace(ARRAYS[form]), [X.copy(), X + 1]
        for i, k in zip(order[::2], order[1::2]):
            yield f(arrays[i], arrays[k]), arrays

    compare(script, mode)


@program
def test_an_array_that_is_passed_and_read_from_outside(trace: Any) -> Any:
    class Model: ...

    m, w = Model(), np.ones(2)
    m.w = w

    @trace
    def f(x: Any, p: Any) -> Any:
        return x is w, x is m.w, w is m.w, p["b"] is w, x + w + p["a"]

    p = {"a": np.zeros(2), "b": np.ones(2)}
    yield f(w, p), f(np.ones(2), p)
    m.w = np.ones(2)
    yield f(w, p), f(m.w, p)
    p["b"] = w
    yield f(w, p), f(np.ones(2), p)


def test_a_tensor_that_is_passed_twice() -> None:
    f = tg.trace(lambda x, y: x * 2 if x is y else x + 10 * y)
    x, y = tg.ones(2), tg.ones(2)
    for _ in range(2):
        assert f(x, y).tolist() == [11.0, 11.0]
        assert f(x, x).tolist() == [2.0, 2.0]


def test_traces_that_do_not_compare_serve_both() -> None:
    f = tg.trace(lambda x, y: x @ y)
    f(X, X), f(X, X + 1)
    assert f.cache_info().traces == 1


def _is_numpys_true(flag: Any) -> bool:
    return np.True_ is flag


def _of_either(x: Any) -> Any:
    return x[0] * 2 if (x[0] > 0) is (np.True_ if x[1] > 0 else np.False_) else x[1] * 3


YES, SENTINEL = True, object()

OF_NUMPY = {
    "is np.True_": lambda x: x[0] * 2 if (x[0] > 0) is np.True_ else x[1] * 3,
    "is not np.False_": lambda x: x[0] * 2 if (x[0] > 0) is not np.False_ else x[1] * 3,
    "on the left": lambda x: x[0] * 2 if _is_numpys_true(x[0] > 0) else x[1] * 3,
    "an answer": lambda x: ((x[0] > 0) is np.True_) * x[1],
    "Python's": lambda x: x[0] * 2 if (x[0] > 0) is True else x[1] * 3,
    "an array": lambda x: x[0] * 2 if (x > 0) is np.True_ else x[1] * 3,
    "chosen": _of_either,
    "a comprehension": lambda x: x[0] * sum(v is np.True_ for v in x > 0),
    "two comparisons": lambda x: x[0] * 2 if (x[0] > 0) is (x[1] < 9) else x[1] * 3,
    "two that are not": lambda x: x[0] * 2 if (x[0] > 0) is not (x[1] > 0) else x[1] * 3,
    "a variable": lambda x: (lambda flag: x[0] * 2 if (x[0] > 0) is flag else x[1] * 3)(x[1] > 0),
    "a constant or another": lambda x: x[0] * 2 if bool(x[0] > 0) is (True if x[1] > 0 else None) else x[1] * 3,
    "a global truth": lambda x: x[0] * 2 if bool(x[0] > 0) is YES else x[1] * 3,
    "a sentinel": lambda x: x[0] * 2 if (x[0] > 0) is SENTINEL else x[1] * 3,
    "operator.is_": lambda x: x[0] * 2 if operator.is_(x[0] > 0, np.True_) else x[1] * 3,
    "operator.is_not": lambda x: x[0] * 2 if operator.is_not(x[0] > 0, np.True_) else x[1] * 3,
}


@pytest.mark.parametrize("form", OF_NUMPY)
def test_booleans_of_numpy(form: str) -> None:
    f = OF_NUMPY[form]
    traced, derivative = tg.trace(f), tg.grad(f)
    for x in (X, -X, X, abs(X), -X):
        assert traced(x) == f(x)
        differences = [(f(x + h) - f(x - h)) / 2e-6 for h in 1e-6 * np.eye(3)]
        np.testing.assert_allclose(derivative(x), differences, atol=1e-8)
        assert tg.jvp(f, (x,), (np.ones(3),))[0] == f(x)
        with tg.disable_jit():
            assert tg.trace(f)(x) == f(x)


def test_an_argument_that_is_a_boolean_of_numpys() -> None:
    f = tg.trace(lambda x: [x is np.True_, x is np.False_, x is True])
    for x in (np.True_, np.False_, np.True_, True, 1):
        assert f(x) == [x is np.True_, x is np.False_, x is True]
