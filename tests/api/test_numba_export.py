"""Compiled functions called from code of Numba's, and from C."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numba
import numpy as np
import pytest
from scipy import LowLevelCallable, integrate

import tracegrad as tg
from tracegrad.errors import UnsupportedError

rng = np.random.default_rng(11)


def rosenbrock(x: Any) -> Any:
    return np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


def by_hand(x: Any) -> Any:
    g = np.zeros_like(x)
    g[:-1] += -400.0 * x[:-1] * (x[1:] - x[:-1] ** 2) - 2.0 * (1.0 - x[:-1])
    g[1:] += 200.0 * (x[1:] - x[:-1] ** 2)
    return g


def test_a_gradient_is_called_by_a_loop_of_numbas() -> None:
    derivative = tg.grad(rosenbrock).as_numba(np.ones(10))

    @numba.njit
    def descend(x: Any, steps: int) -> Any:
        for _ in range(steps):
            x = x - 1e-3 * derivative(x)
        return x

    x = rng.random(10)
    want = x
    for _ in range(50):
        want = want - 1e-3 * by_hand(want)
    np.testing.assert_allclose(descend(x, 50), want, rtol=1e-12)


def test_value_and_gradient_of_several_arguments() -> None:
    def loss(w: Any, x: Any, y: Any, decay: Any) -> Any:
        return np.mean((np.tanh(x @ w) - y) ** 2) + decay * np.sum(w * w)

    w, x, y = rng.random((5, 3)), rng.random((20, 5)), rng.random((20, 3))
    both = tg.value_and_grad(loss, argnums=(0, 3))
    inside = both.as_numba(w, x, y, 0.5)
    value, (dw, dd) = numba.njit(lambda w, x, y, decay: inside(w, x, y, decay))(w, x, y, 0.25)
    assert value == pytest.approx(loss(w, x, y, 0.25), rel=1e-13)
    assert dd == pytest.approx(np.sum(w * w), rel=1e-13)
    z = np.tanh(x @ w)
    np.testing.assert_allclose(dw, x.T @ ((z - y) * (1 - z * z)) * 2 / y.size + 0.5 * w, rtol=1e-12)


def test_numbers_and_dtypes() -> None:
    def f(x: Any, n: Any, flag: Any, t: Any) -> Any:
        return x * n + t, np.where(flag, x, -x), n + 1

    x = np.arange(5, dtype=np.float32)
    inside = tg.trace(f).as_numba(x, 3, True, np.float32(2))
    first, second, third = inside(x, 4, False, np.float32(1.5))
    np.testing.assert_array_equal(first, x * 4 + 1.5)
    np.testing.assert_array_equal(second, -x)
    assert third == 5
    assert first.dtype == np.float32


def test_arrays_come_new_from_each_call() -> None:
    double = tg.trace(lambda x: 2.0 * x).as_numba(np.ones(4))

    @numba.njit
    def both(x: Any) -> Any:
        a, b = double(x), double(x + 1.0)
        a[0] = 7.0
        return a, b, double(x)

    a, b, c = both(np.ones(4))
    np.testing.assert_array_equal(a, [7.0, 2.0, 2.0, 2.0])
    np.testing.assert_array_equal(b, np.full(4, 4.0))
    np.testing.assert_array_equal(c, np.full(4, 2.0))


def test_loops_products_and_calls_of_numpy() -> None:
    def f(a: Any, x: Any) -> Any:
        for _ in range(20):
            x = np.tanh(a @ x)
        return np.sort(x), np.linalg.eigvalsh(a @ a.T)

    a, x = rng.normal(size=(12, 12)) / 3, rng.normal(size=12)
    inside = tg.trace(f).as_numba(a, x)
    ordered, values = numba.njit(lambda a, x: inside(a, x), nogil=True)(a, x)
    for want, result in zip(f(a, x), (ordered, values)):
        np.testing.assert_allclose(result, want, rtol=1e-10, atol=1e-12)


def test_what_is_captured_is_as_it_was() -> None:
    scale = np.array([1.0, 2.0])
    inside = tg.trace(lambda x: x * scale).as_numba(np.ones(2))
    scale[:] = 100.0
    np.testing.assert_array_equal(inside(np.ones(2)), [1.0, 2.0])


def test_the_code_outlives_the_function() -> None:
    def make() -> Any:
        inside = tg.grad(lambda x: np.sum(np.exp(x) * 1.71875)).as_numba(np.ones(3))
        return numba.njit(lambda x: inside(x) + 1.0)

    function = make()
    function(np.ones(3))
    gc.collect()
    np.testing.assert_allclose(function(np.zeros(3)), np.full(3, 2.71875))


def test_threads_call_it_at_once_without_the_gil() -> None:
    def f(x: Any) -> Any:
        return np.sum(np.cumsum(np.sin(x) ** 2) * x)

    inside = tg.grad(f).as_numba(np.ones(3000))

    @numba.njit(nogil=True)
    def repeated(x: Any, out: Any) -> None:
        for k in range(out.shape[0]):
            out[k] = inside(x + k)

    args = [rng.random(3000) for _ in range(4)]
    results = [np.empty((20, 3000)) for _ in args]
    threads = [threading.Thread(target=repeated, args=pair) for pair in zip(args, results)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    derivative = tg.grad(f)
    for x, rows in zip(args, results):
        for k, row in enumerate(rows):
            np.testing.assert_allclose(row, derivative(x + k), rtol=1e-12)


def test_another_shape_or_type_is_an_error() -> None:
    inside = tg.trace(lambda x: x + 1).as_numba(np.ones(3))
    with pytest.raises(ValueError, match=r"as_numba of .*argument 0 must be of shape \(3,\)"):
        inside(np.ones(4))
    with pytest.raises(TypeError, match="No matching definition"):
        inside(np.ones((3, 3)))
    with pytest.raises(TypeError, match="No matching definition"):
        inside(np.ones(3, np.complex128))


def test_what_fails_is_an_error() -> None:
    inside = tg.trace(lambda x, i: x[i]).as_numba(np.arange(4.0), 2)
    assert inside(np.arange(4.0), -1) == 3.0
    with pytest.raises(ArithmeticError, match="the function raises"):
        inside(np.arange(4.0), 4)


def asks(x: Any) -> Any:
    return x if x[0] > 0 else -x


counts = {"n": 0}


def counting(x: Any) -> Any:
    counts["n"] += 1
    return x + 1


@pytest.mark.parametrize(
    ("function", "args", "message"),
    [
        (asks, (np.ones(2),), "what it does depends on values"),
        (counting, (np.ones(2),), "it changes something outside"),
        (lambda x: {"a": x}, (np.ones(2),), "results are arrays and numbers"),
        (lambda x: None, (np.ones(2),), "results are arrays and numbers"),
        (lambda x: x["a"], ({"a": np.ones(2)},), "arguments are arrays and numbers, but x is a dict"),
        (lambda x: x, (tg.tensor([1.0]),), "arguments are arrays and numbers, but x is a Tensor"),
    ],
)
def test_what_cannot_be_called_so_is_refused(function: Any, args: Any, message: str) -> None:
    with pytest.raises(UnsupportedError, match=f"as_numba of .*{message}.*test_numba_export"):
        tg.trace(function).as_numba(*args)


def test_a_c_function_for_quadrature() -> None:
    function = tg.grad(lambda x: np.sin(x) * x**2)
    compiled = function.as_cfunc("float64(float64)")
    assert compiled.ctypes(0.75) == function(0.75)
    total, _ = integrate.quad(LowLevelCallable(compiled.ctypes), 0.0, 2.0)
    assert total == pytest.approx(np.sin(2.0) * 4.0, rel=1e-12)


def test_a_c_function_takes_numbers_alone() -> None:
    f = tg.trace(lambda x, n: x * n)
    assert f.as_cfunc("float32(float32, int32)").ctypes(1.5, 4) == 6.0
    with pytest.raises(UnsupportedError, match=r"as_cfunc of .*arguments are numbers, but the signature has array"):
        f.as_cfunc("float64(float64[:], int64)")
    with pytest.raises(UnsupportedError, match="depends on values"):
        tg.trace(lambda x: x if x > 0 else -x).as_cfunc("float64(float64)")
