"""What a function remembers by a value: a derivative goes through what was computed, or a LostDerivativeError says that
it cannot; without a derivative, what is remembered is remembered as in Python."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from meaning import program

import tracegrad as tg

X = np.array([1.3, -2.1, 3.7])
Table = dict[Any, Any]


def worth(v: Any) -> Any:
    return np.sum(np.sin(v) * v)


def recall(table: Table, key: Any, v: Any) -> Any:
    if key not in table:
        table[key] = worth(v)
    return table[key]


def recall_by_get(table: Table, key: Any, v: Any) -> Any:
    result = table.get(key)
    if result is None:
        result = worth(v)
        table[key] = result
    return result


def recall_or_catch(table: Table, key: Any, v: Any) -> Any:
    try:
        return table[key]
    except KeyError:
        pass
    table[key] = worth(v)
    return table[key]


def by_list(table: Table, v: Any) -> Any:
    known = table.setdefault("all", [])
    for key, value in known:
        if np.array_equal(key, v):
            return value
    known.append((v.copy(), worth(v)))
    return known[-1][1]


KEYS: dict[str, Callable[[Any], Any]] = {
    "elements": tuple,
    "a list": lambda v: tuple(v.tolist()),
    "rounded": lambda v: tuple(np.round(v, 4)),
    "rounded numbers": lambda v: tuple([round(float(x), 4) for x in v]),
    "whole numbers": lambda v: int(v[0] * 1000),
    "a hash": lambda v: hash(tuple(v.tolist())),
    "a text": str,
    "a text that rounds": lambda v: f"{v[0]:.3f}",
    "a text by %": lambda v: "%.3f" % v[0],  # noqa: UP031
    "JSON": lambda v: json.dumps(v.tolist()),
}
WAYS = {"in": recall, "get": recall_by_get, "except": recall_or_catch}


def gradients_of(f: Callable[[Any], Any], disabled: bool) -> list[Any]:
    """The gradients of two calls, or what was raised."""
    gradient, result = tg.grad(f), list[Any]()
    for _ in range(2):
        with tg.disable_jit() if disabled else warnings.catch_warnings():
            try:
                result.append(gradient(X))
            except tg.LostDerivativeError as error:
                result.append(error)
    return result


def differences(f: Callable[[Any], Any]) -> Any:
    steps = 1e-6 * np.eye(3)
    return np.array([(f(X + h) - f(X - h)) / 2e-6 for h in steps])


@pytest.mark.parametrize("disabled", [False, True])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("key", KEYS)
def test_a_row_is_remembered_within_a_call_and_not_across_calls(key: str, way: str, disabled: bool) -> None:
    def within(x: Any) -> Any:
        rows, table = np.stack([x, x * 2]), Table()
        return sum([WAYS[way](table, KEYS[key](rows[i]), rows[i]) for i in (0, 1, 0)])

    for result in gradients_of(within, disabled):
        np.testing.assert_allclose(result, differences(within), rtol=1e-6)

    table = Table()

    def across(x: Any) -> Any:
        rows = np.stack([x, x * 2])
        return sum([WAYS[way](table, KEYS[key](rows[i]), rows[i]) for i in (0, 1, 0)]) + np.sum(x * x)

    expected = differences(lambda x: within(x) + np.sum(x * x))
    first, second = gradients_of(across, disabled)
    np.testing.assert_allclose(first, expected, rtol=1e-6)
    assert isinstance(second, tg.LostDerivativeError)
    assert "stop_gradient" in str(second)


class Last:
    key: Any = None
    value: Any = None


def near(last: Any, v: Any) -> Any:
    return abs(last - v.sum()) < 1e-12


@pytest.mark.parametrize("disabled", [False, True])
@pytest.mark.parametrize(
    ("key", "is_last"),
    [
        (lambda v: v.copy(), lambda last, v: np.array_equal(last, v)),
        (lambda v: v.copy(), lambda last, v: last is not None and not (last != v).any()),
        (lambda v: v.copy(), lambda last, v: last is not None and np.allclose(last, v)),
        (lambda v: v.sum(), lambda last, v: last is not None and last == v.sum()),
        (lambda v: v.sum(), lambda last, v: last is not None and near(last, v)),
    ],
)
def test_the_last_result_alone_has_no_derivative(key: Any, is_last: Any, disabled: bool) -> None:
    class Held(Last):
        pass

    def f(x: Any) -> Any:
        if not is_last(Held.key, x):
            Held.key, Held.value = key(x), worth(x)
        return Held.value

    first, second = gradients_of(f, disabled)
    np.testing.assert_allclose(first, differences(worth), rtol=1e-6)
    assert isinstance(second, tg.LostDerivativeError)


def test_a_table_and_a_count_are_no_memories() -> None:
    table, counts = {1: 1.5, -2: 2.5, 3: 3.5}, dict[int, int]()

    def f(x: Any) -> Any:
        for v in x:
            k = int(v)
            counts[k] = counts.get(k, 0) + 1
        return sum([table[int(v)] * v for v in x])

    for result in gradients_of(f, False):
        np.testing.assert_array_equal(result, [1.5, 2.5, 3.5])
    assert counts == {1: 2, -2: 2, 3: 2}


@pytest.mark.parametrize(
    "key",
    [lambda v: hashlib.sha1(repr(v).encode()).digest(), lambda v: v.tobytes(), lambda v: np.round(v, 2).tobytes()],
)
def test_a_digest_and_bytes_of_what_is_differentiated_are_refused(key: Any) -> None:
    with pytest.raises(tg.LostDerivativeError):
        tg.grad(lambda x: recall({}, key(x), x))(X)
    assert np.all(tg.grad(lambda x: recall({}, key(tg.stop_gradient(x)), x))(X) == tg.grad(worth)(X))


@program
def test_bytes_are_keys(trace: Any) -> Any:
    table: Any = {}

    @trace
    def f(x: Any, z: Any) -> Any:
        for row in np.stack([z, z * 2, z]):
            key = row.tobytes(), row.T.tobytes("F")
            if key not in table:
                table[key] = len(table) + 1
            x = x * table[key]
        return x

    for z in (X, X, X + 1, X, X * 2):
        yield f(X, z), list(table)


@program
def test_a_digest_of_a_text(trace: Any) -> Any:
    @trace
    def f(x: Any) -> Any:
        result = hashlib.md5(usedforsecurity=False)
        result.update(str(x).encode())
        return (
            x * len(result.hexdigest()),
            result.copy().digest(),
            result.name,
            hashlib.sha256(repr(x).encode()).hexdigest(),
        )

    yield f(X), f(X), f(X + 1)


@program
def test_what_an_array_has(trace: Any) -> Any:
    @trace
    def f(x: Any) -> Any:
        has = [hasattr(x, name) for name in ("data", "ctypes", "__array_interface__", "nothing")]
        return x * sum(has) + len(x.device), np.array_equal(None, x)

    yield f(X), f(X)
