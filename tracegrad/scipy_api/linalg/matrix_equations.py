"""Matrix equations (Sylvester, Lyapunov, Riccati), and matrix functions that use the exponential.

SciPy solves the Riccati equation. The solution is a fixed point of D. Kleinman's iteration ("On an iterative technique
for Riccati equation computations", IEEE Trans. Automat. Control 13, 1968), which is Newton's method: two steps of it
have the derivatives of the solution, up to the third.
"""

from __future__ import annotations

import numpy as np

from tracegrad.numpy_api.linalg import square_matrices
from tracegrad.numpy_api.operands import arrays, promoted, to_float
from tracegrad.numpy_api.registry import refuse
from tracegrad.ops.linalg import matrix_functions, solve
from tracegrad.ops.linalg.riccati import riccati
from tracegrad.ops.shape.linear import stop_gradient
from tracegrad.scipy_api.linalg.functions import entry
from tracegrad.typing import Array, ArrayLike


def _adjoint(x: Array) -> Array:
    return np.conj(x.T) if x.dtype.kind == "c" else x.T


@entry("solve_sylvester")
def solve_sylvester(a: ArrayLike, b: ArrayLike, q: ArrayLike) -> Array:
    return matrix_functions.sylvester(*promoted([to_float(x) for x in arrays(a, b, q)]), checked=False)


@entry("solve_continuous_lyapunov")
def solve_continuous_lyapunov(a: ArrayLike, q: ArrayLike) -> Array:
    x, y = promoted([to_float(x) for x in arrays(a, q)])
    return matrix_functions.sylvester(x, _adjoint(x), y, checked=False)


@entry("solve_discrete_lyapunov")
def solve_discrete_lyapunov(a: ArrayLike, q: ArrayLike, method: str | None = None) -> Array:
    x, y = promoted([to_float(v) for v in arrays(a, q)])
    n = x.shape[0]
    if method not in (None, "direct", "bilinear"):
        raise ValueError(f"Unknown solver {method}")
    if method == "bilinear" or (method is None and n >= 10):
        one = np.eye(n)
        right = np.linalg.inv(_adjoint(x) + one)
        inner = (_adjoint(x) - one) @ right
        return solve_continuous_lyapunov(_adjoint(inner), -2.0 * np.linalg.inv(x + one) @ y @ right)
    whole = np.kron(x, np.conj(x) if x.dtype.kind == "c" else x)
    return np.linalg.solve(np.eye(n * n) - whole, y.reshape(-1)).reshape(n, n)


# -- Riccati's equation ---------------------------------------------------------------------------------------------
def _solved(name: str, matrices: tuple[ArrayLike, ...], e: object, s: ArrayLike | None, discrete: bool) -> Array:
    if e is not None:
        raise refuse(f"the argument e= of scipy.linalg.{name}", "solve with e^-1 a and e^-1 b")
    a, b, q, r = (to_float(v) for v in arrays(*matrices))
    s = to_float(arrays(np.zeros(b.shape) if s is None else s, a)[0])
    a, b, q, r, s = promoted([a, b, q, r, s])
    if a.dtype.kind == "c":
        raise refuse(f"scipy.linalg.{name} of complex matrices")
    x = result = riccati(*map(stop_gradient, (a, b, q, r, s)), discrete=discrete)
    for _ in range(2):
        inner = (r + b.T @ x @ b, b.T @ x @ a + s.T) if discrete else (r, b.T @ x + s.T)
        gain = np.linalg.solve(*inner)
        closed = (a - b @ gain).T
        cost = q + gain.T @ r @ gain - s @ gain - gain.T @ s.T
        x = solve_discrete_lyapunov(closed, cost) if discrete else solve_continuous_lyapunov(closed, -cost)
    output: Array = result + (x - stop_gradient(x))  # the value of SciPy, with the derivatives of the steps
    return output


@entry("solve_continuous_are")
def solve_continuous_are(
    a: ArrayLike,
    b: ArrayLike,
    q: ArrayLike,
    r: ArrayLike,
    e: ArrayLike | None = None,
    s: ArrayLike | None = None,
    balanced: bool = True,
) -> Array:
    return _solved("solve_continuous_are", (a, b, q, r), e, s, False)


@entry("solve_discrete_are")
def solve_discrete_are(
    a: ArrayLike,
    b: ArrayLike,
    q: ArrayLike,
    r: ArrayLike,
    e: object = None,
    s: ArrayLike | None = None,
    balanced: bool = True,
) -> Array:
    return _solved("solve_discrete_are", (a, b, q, r), e, s, True)


# -- functions of matrices ------------------------------------------------------------------------------------------
def _cos_and_sin(name: str, A: ArrayLike) -> tuple[Array, ...]:
    """Compute the cosine and the sine, which are blocks of one exponential."""
    x = square_matrices(name, A)
    n, none = x.shape[-1], 0.0 * x
    block_rows = [np.concatenate([none, -x], axis=-1), np.concatenate([x, none], axis=-1)]
    result = solve.matrix_exp(np.concatenate(block_rows, axis=-2))
    return result[..., :n, :n], result[..., n:, :n]


@entry("cosm")
def cosm(A: ArrayLike) -> Array:
    return _cos_and_sin("cosm", A)[0]


@entry("sinm")
def sinm(A: ArrayLike) -> Array:
    return _cos_and_sin("sinm", A)[1]


@entry("tanm")
def tanm(A: ArrayLike) -> Array:
    return np.linalg.solve(*_cos_and_sin("tanm", A))


def _grown(name: str, A: ArrayLike) -> tuple[Array, ...]:
    x = square_matrices(name, A)
    up, down = solve.matrix_exp(x), solve.matrix_exp(-x)
    return 0.5 * (up + down), 0.5 * (up - down)


@entry("coshm")
def coshm(A: ArrayLike) -> Array:
    return _grown("coshm", A)[0]


@entry("sinhm")
def sinhm(A: ArrayLike) -> Array:
    return _grown("sinhm", A)[1]


@entry("tanhm")
def tanhm(A: ArrayLike) -> Array:
    return np.linalg.solve(*_grown("tanhm", A))
