"""The same lines in four ways: NumPy, a traced function, that without jit, and Tensors outside of any function.

Values are NumPy's and derivatives those of differences. On Tensors they may be refused, or a number may be taken with a
warning, only where PyTorch 2.13 refuses or takes a number too: Python gives `math.sin` and `a[0] = x[0]` no other way.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.fft
import scipy.integrate
import scipy.linalg
import scipy.ndimage
import scipy.signal
import scipy.special
import scipy.stats

import tracegrad as tg

X = np.array([1.3, 0.7, 2.1])
EYE = np.eye(3)
KEPT, REFUSED, WARNED = "kept", "refused", "warned"


def filled(x: Any) -> Any:
    a = np.zeros(3)
    for i in range(3):
        a[i] = x[i] ** 2
    return a.sum() * x[0]


def rows(x: Any) -> Any:
    a = np.zeros((2, 3))
    a[0] = x * x
    return a.sum()


def added(x: Any) -> Any:
    a = np.ones(3)
    a += x * x
    return np.sum(a * a)


def added_at(x: Any) -> Any:
    a = np.zeros(3)
    np.add.at(a, [0, 1, 1], x)
    return np.sum(a * a)


def copied(x: Any) -> Any:
    a = np.zeros(3)
    np.copyto(a, x)
    return np.sum(a * a)


def written(x: Any) -> Any:
    a = np.zeros(3)
    np.exp(x, out=a)
    return np.sum(a * a)


def updated(x: Any) -> Any:
    y = x * 2.0
    y *= x
    y[1:] += x[:-1]
    return np.sum(y * y)


# What a line does to Tensors outside of traced functions.
LINES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "np.array": (lambda x: np.sum(np.array([x[0], x[1] ** 2]) * x[2]), REFUSED),
    "np.asarray": (lambda x: np.sum(np.asarray(x) ** 2), REFUSED),
    "np.full": (lambda x: np.full(3, x[0]).sum(), REFUSED),
    "np.r_": (lambda x: np.sum(np.r_[x, x[0] * 2] ** 2), REFUSED),
    "np.vectorize": (lambda x: np.vectorize(lambda v: v * v)(x).sum(), REFUSED),
    "elements": (filled, WARNED),
    "rows": (rows, REFUSED),
    "a += x": (added, REFUSED),
    "np.add.at": (added_at, REFUSED),
    "np.copyto": (copied, REFUSED),
    "out=": (written, REFUSED),
    "updates": (updated, KEPT),
    "math": (lambda x: math.sin(x[0]) * x[1], WARNED),
    "math.pow": (lambda x: math.pow(x[0], 2) * x[1], WARNED),
    "math.prod": (lambda x: math.prod(x), KEPT),
    "builtins": (lambda x: max(x) * min(x) + sum(x) * abs(x[0]), KEPT),
    "constants": (lambda x: (np.diag([1.0, 2.0, 3.0]) @ x) @ x + np.float64(2.0) * x[0], KEPT),
    "np.stack": (lambda x: np.stack([x, x * x]).prod(), KEPT),
    "np.concatenate": (lambda x: np.sum(np.concatenate([x, np.ones(2), x * x]) ** 2), KEPT),
    "np.where": (lambda x: np.where(x > 1, x * x, x).sum(), KEPT),
    "np.linalg": (lambda x: np.linalg.solve(np.diag(x), np.ones(3)).sum() * np.linalg.norm(x), KEPT),
    "np.linspace": (lambda x: np.sum(np.linspace(x[0], x[1], 5) ** 2) + np.logspace(x[1], x[0], 3).sum(), KEPT),
    "np.interp": (lambda x: np.interp(x, [0.0, 1.0, 3.0], [0.0, 2.0, 1.0]).sum(), KEPT),
    "np.einsum": (lambda x: np.einsum("i,i->", x, x), KEPT),
    "np.polyval": (lambda x: np.polyval([1.0, 2.0, 3.0], x).sum(), KEPT),
    "gammaln": (lambda x: scipy.special.gammaln(x).sum() + scipy.special.xlogy(x, x).sum(), KEPT),
    "softmax": (lambda x: scipy.special.softmax(x)[0], REFUSED),
    "logsumexp": (lambda x: scipy.special.logsumexp(x), REFUSED),
    "linalg.solve": (lambda x: scipy.linalg.solve(EYE + np.ones(3), x).sum(), REFUSED),
    "linalg.expm": (lambda x: scipy.linalg.expm(x[0] * np.ones((2, 2))).sum(), REFUSED),
    "stats": (lambda x: scipy.stats.norm.logpdf(x).sum(), REFUSED),
    "simpson": (lambda x: scipy.integrate.simpson(x), REFUSED),
    "signal": (lambda x: np.sum(scipy.signal.convolve(x, np.ones(2)) ** 2), REFUSED),
    "fft": (lambda x: np.sum(np.abs(scipy.fft.rfft(x)) ** 2), REFUSED),
    "images": (lambda x: np.sum(scipy.ndimage.gaussian_filter(x, 1.0) ** 2), REFUSED),
}


def _differences(f: Callable[[Any], Any], h: float = 1e-6) -> Any:
    return np.array([(f(X + h * e) - f(X - h * e)) / (2 * h) for e in EYE])


@pytest.mark.parametrize("name", LINES)
def test_values_and_derivatives_are_numpys_and_those_of_differences(name: str) -> None:
    f = LINES[name][0]
    value, derivatives = f(X), _differences(f)
    results = [tg.value_and_grad(f)(X)]
    with tg.disable_jit():
        results.append(tg.value_and_grad(f)(X))
    for got, derivative in results:
        np.testing.assert_allclose(got, value, rtol=1e-12)
        np.testing.assert_allclose(derivative, derivatives, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", LINES)
def test_on_tensors_they_are_the_same_or_it_is_said_that_they_are_not(name: str) -> None:
    f, told = LINES[name]
    x = tg.tensor(X, requires_grad=True)
    if told == REFUSED:
        with pytest.raises(RuntimeError, match=r"requires? grad.*@trace.*test_four_ways\.py:\d+") as refused:
            f(x)
        assert "numpy()" in str(refused.value) or "which holds no derivative" in str(refused.value)
    elif told == WARNED:
        with pytest.warns(tg.DerivativeWarning, match=r"constant.*test_four_ways\.py:\d+"):
            y = f(x)
        np.testing.assert_allclose(y.item(), f(X))
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            y = f(x)
            y.backward()
        np.testing.assert_allclose(y.item(), f(X), rtol=1e-12)
        np.testing.assert_allclose(x.grad.numpy(), _differences(f), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", LINES)
def test_on_tensors_that_require_no_grad_they_are_numpys(name: str) -> None:
    f = LINES[name][0]
    np.testing.assert_allclose(f(tg.tensor(X)), f(X), rtol=1e-12)


def test_the_function_of_scipys_is_named() -> None:
    x = tg.tensor(X, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"call scipy\.special\.softmax in a function that is decorated with @trace"):
        scipy.special.softmax(x)
    softmax = tg.trace(scipy.special.softmax)
    softmax(x)[0].backward()
    np.testing.assert_allclose(x.grad.numpy(), _differences(lambda v: scipy.special.softmax(v)[0]), rtol=1e-6)


UPDATES: dict[str, Callable[[Any, Any], Any]] = {
    "np.exp": lambda a, x: np.exp(x, out=a),
    "np.sum": lambda a, x: np.sum(x[None], axis=0, out=a),
    "np.matmul": lambda a, x: np.matmul(EYE, x, out=a),
    "np.add.at": lambda a, x: np.add.at(a, [0, 1, 1], x),
    "np.maximum.at": lambda a, x: np.maximum.at(a, [0, 1, 1], x),
    "np.copyto": lambda a, x: np.copyto(a, x),
    "np.put": lambda a, x: np.put(a, [0, 1], x[:2]),
    "np.place": lambda a, x: np.place(a, x > 1, x),
    "np.putmask": lambda a, x: np.putmask(a, x > 1, x),
    "np.put_along_axis": lambda a, x: np.put_along_axis(a, np.array([0, 1, 1]), x, 0),
}


@pytest.mark.parametrize("name", UPDATES)
def test_an_ndarray_takes_the_numbers_of_a_tensor_and_no_derivative(name: str) -> None:
    update = UPDATES[name]
    x, got, want = tg.tensor(X, requires_grad=True), np.zeros(3), np.zeros(3)
    update(want, X)
    update(got, x.detach())
    np.testing.assert_array_equal(got, want)
    with pytest.raises(tg.UnsupportedError, match=rf"{name}.* holds no derivative.*give x.detach\(\)"):
        update(got, x)
    np.testing.assert_array_equal(got, want)
    with tg.no_grad():
        update(got, x)


@pytest.mark.parametrize("f", [added_at, copied, written], ids=lambda f: f.__name__)
def test_what_a_traced_function_writes_of_tensors_is_no_silent_constant(f: Callable[[Any], Any]) -> None:
    x = tg.tensor(X, requires_grad=True)
    with pytest.warns(tg.DerivativeWarning, match=r"assigning to an array.*test_four_ways\.py:\d+"):
        tg.trace(f)(x)
    with tg.disable_jit(), pytest.raises(tg.UnsupportedError, match="holds no derivative"):
        tg.trace(f)(x)
