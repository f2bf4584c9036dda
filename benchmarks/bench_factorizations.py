"""How fast are factorizations and sweeps with explicit loops, element by element or row by row?

Inner loops have another number of iterations each time (`for j in range(i)`), and rows have other sizes (`l[i, :j]`).
JAX needs other code for them. The peers are the same code in NumPy, value only, and Numba with a derivative by hand.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.harness import Case, Factory, Settings
from benchmarks.peers import need

PACKAGES = ("tracegrad", "numba")
ROWS, SIDE, SWEEPS = 100, 100, 10


# -- factorizations: the logarithm of the determinant ---------------------------------------------------------
def lu_by_elements(a: Any) -> Any:
    a, n = a.copy(), a.shape[0]
    for k in range(n):
        for i in range(k + 1, n):
            a[i, k] = a[i, k] / a[k, k]
            for j in range(k + 1, n):
                a[i, j] -= a[i, k] * a[k, j]
    return np.sum(np.log(np.abs(np.diag(a))))


def lu_by_rows(a: Any) -> Any:
    a, n = a.copy(), a.shape[0]
    for k in range(n):
        for i in range(k + 1, n):
            a[i, k] /= a[k, k]
            a[i, k + 1 :] -= a[i, k] * a[k, k + 1 :]
    return np.sum(np.log(np.abs(np.diag(a))))


def lu_by_outer_products(a: Any) -> Any:
    a, n = a.copy(), a.shape[0]
    for k in range(n - 1):
        a[k + 1 :, k] /= a[k, k]
        a[k + 1 :, k + 1 :] -= np.outer(a[k + 1 :, k], a[k, k + 1 :])
    return np.sum(np.log(np.abs(np.diag(a))))


def cholesky_by_elements(a: Any) -> Any:
    factor = np.zeros_like(a)
    for i in range(a.shape[0]):
        for j in range(i + 1):
            s = a[i, j]
            for k in range(j):
                s = s - factor[i, k] * factor[j, k]
            if i == j:
                factor[i, j] = np.sqrt(s)
            else:
                factor[i, j] = s / factor[j, j]
    return np.sum(np.log(np.diag(factor)))


def cholesky_by_rows(a: Any) -> Any:
    factor = np.zeros_like(a)
    for i in range(a.shape[0]):
        for j in range(i + 1):
            s = a[i, j] - factor[i, :j] @ factor[j, :j]
            if i == j:
                factor[i, j] = np.sqrt(s)
            else:
                factor[i, j] = s / factor[j, j]
    return np.sum(np.log(np.diag(factor)))


def of_determinant(a: Any) -> Any:
    """The logarithm of the determinant, and its gradient: the transposed inverse."""
    return np.linalg.slogdet(a)[1], np.linalg.inv(a).T


def of_lower_half(a: Any) -> Any:
    """Half of that, of a symmetric matrix of which the lower half is read."""
    value, gradient = of_determinant(a)
    return value / 2, np.tril(gradient) - np.diag(np.diag(gradient)) / 2


# -- sweeps ---------------------------------------------------------------------------------------------------
def gauss_seidel(u: Any) -> Any:
    u, (n, m) = u.copy(), u.shape
    for _ in range(SWEEPS):
        for i in range(1, n - 1):
            for j in range(1, m - 1):
                u[i, j] = 0.25 * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1])
    return np.sum(u**2)


def gauss_seidel_by_hand(u: Any) -> Any:
    """Value and gradient: each iteration is linear, so the gradient goes through the transposed ones, backwards."""
    u, (n, m) = u.copy(), u.shape
    for _ in range(SWEEPS):
        for i in range(1, n - 1):
            for j in range(1, m - 1):
                u[i, j] = 0.25 * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1])
    value, derivative = np.sum(u**2), 2 * u
    for _ in range(SWEEPS):
        for i in range(n - 2, 0, -1):
            for j in range(m - 2, 0, -1):
                quarter = 0.25 * derivative[i, j]
                derivative[i, j] = 0.0
                derivative[i - 1, j] += quarter
                derivative[i + 1, j] += quarter
                derivative[i, j - 1] += quarter
                derivative[i, j + 1] += quarter
    return value, derivative


# -- loops that values end ------------------------------------------------------------------------------------
NUMBERS = 10.0 ** np.random.default_rng(0).uniform(-12, 12, 1000)


def root(a: float) -> float:
    """The square root by Newton's method, from the number itself: up to some 45 iterations."""
    x = a
    while abs(x * x - a) > 1e-14 * a:
        x = 0.5 * (x + a / x)
    return x


def case(name: str, fun: Callable[[Any], Any], x: Any, right: Callable[[Any], Any], **more: Factory) -> Case:
    _, derivative = right(x)
    peers: dict[str, Factory] = {
        "tracegrad": lambda: functools.partial(need("tracegrad").value_and_grad(fun), x),
        "numpy, value alone": lambda: lambda: (fun(x), derivative),
        **more,
    }
    return Case(f"{name}: value and gradient", peers, lambda: right(x), tolerance=1e-10)


def roots_case() -> Case:
    def tracegrad() -> Any:
        derivative = need("tracegrad").grad(root)
        return lambda: np.array([derivative(a) for a in NUMBERS.tolist()])

    return Case(
        "derivatives of 1,000 square roots by Newton's method, one call each",
        {"tracegrad": tracegrad},
        lambda: 0.5 / np.sqrt(NUMBERS),
    )


def cases(settings: Settings) -> Iterator[Case]:
    drawn = np.random.default_rng(1).normal(size=(ROWS, ROWS))
    definite = drawn @ drawn.T + ROWS * np.eye(ROWS)
    for name, fun, right in (
        ("LU by elements", lu_by_elements, of_determinant),
        ("LU by rows", lu_by_rows, of_determinant),
        ("LU by outer products", lu_by_outer_products, of_determinant),
        ("Cholesky by elements", cholesky_by_elements, of_lower_half),
        ("Cholesky by rows", cholesky_by_rows, of_lower_half),
    ):
        yield case(f"{name}, {ROWS} rows", fun, definite, right)
    plate = np.random.default_rng(2).normal(size=(SIDE, SIDE))
    by_hand: dict[str, Any] = {
        "numba by hand": lambda: functools.partial(need("numba").njit(gauss_seidel_by_hand), plate)
    }
    name = f"Gauss-Seidel by elements, {SIDE} by {SIDE}, {SWEEPS} sweeps"
    yield case(name, gauss_seidel, plate, gauss_seidel_by_hand, **by_hand)
    yield roots_case()
