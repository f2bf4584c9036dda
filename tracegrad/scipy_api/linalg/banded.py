"""Banded and tridiagonal symmetric eigenproblems of `scipy.linalg`.

The full matrix is formed, and solved by `scipy.linalg.eigh`; the signs of eigenvectors are arbitrary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracegrad.numpy_api.operands import arrays, promoted, to_float
from tracegrad.ops.linalg import factorizations, solve
from tracegrad.scipy_api.linalg.functions import entry
from tracegrad.typing import Array, ArrayLike


def _whole(bands: Array, lower: bool) -> Array:
    """Form the matrices with these diagonals, with both triangles, so that the derivatives are symmetric."""
    *_, count, n = bands.shape
    i, j = np.indices((n, n))
    away = np.abs(i - j)
    rows = np.where(away < count, away if lower else count - 1 - away, 0)
    x = bands[..., rows, np.minimum(i, j) if lower else np.maximum(i, j)]
    if x.dtype.kind == "c":
        x = np.where((i > j) if lower else (i < j), x, np.where(i == j, np.real(x), np.conj(x)))
    return np.where(away < count, x, 0.0)


def _eigen(x: Array, eigvals_only: bool, select: str | int, select_range: Any) -> Array | tuple[Array, Array]:
    """Compute all eigenvalues with their eigenvectors, or the selected ones."""
    x = solve.symmetric(x, lower=True)
    w, v = (factorizations.eigvalsh(x), None) if eigvals_only else factorizations.eigh(x, lower=True)
    if select in (0, "a", "all"):
        return w if v is None else (w, v)
    if select in (2, "i", "index"):
        first, last = (int(k) for k in select_range)
        if not 0 <= first <= last < w.shape[-1]:
            raise ValueError("select_range out of bounds")
        chosen: Any = np.arange(first, last + 1)
    elif select in (1, "v", "value"):
        low, high = select_range
        chosen = np.nonzero((w > low) & (w <= high))[0]
    else:
        raise ValueError('invalid argument for select, must be "a", "i", or "v"')
    w = np.take(w, chosen, axis=-1)
    return w if v is None else (w, np.take(v, chosen, axis=-1))


@entry("eig_banded")
def eig_banded(
    a_band: ArrayLike,
    lower: bool = False,
    eigvals_only: bool = False,
    overwrite_a_band: bool = False,
    select: str | int = "a",
    select_range: Sequence[float] | None = None,
    max_ev: int = 0,
) -> Array | tuple[Array, Array]:
    (bands,) = (to_float(x) for x in arrays(a_band))
    if len(bands.shape) < 2:
        raise ValueError("expected a 2-D array")
    return _eigen(_whole(bands, bool(lower)), eigvals_only, select, select_range)


@entry("eigvals_banded")
def eigvals_banded(
    a_band: ArrayLike,
    lower: bool = False,
    overwrite_a_band: bool = False,
    select: str | int = "a",
    select_range: Sequence[float] | None = None,
) -> Any:
    return eig_banded(a_band, lower, True, False, select, select_range)


@entry("eigh_tridiagonal")
def eigh_tridiagonal(
    d: ArrayLike,
    e: ArrayLike,
    eigvals_only: bool = False,
    select: str | int = "a",
    select_range: Sequence[float] | None = None,
    tol: float = 0.0,
) -> Array | tuple[Array, Array]:
    x, y = promoted([to_float(v) for v in arrays(d, e)])
    if x.dtype.kind == "c":
        raise TypeError("Only real arrays currently supported")
    if len(x.shape) < 1 or x.shape[-1] != y.shape[-1] + 1:
        raise ValueError(f"d ({x.shape[-1]}) must have one more element than e ({y.shape[-1]})")
    bands = np.stack([x, np.concatenate([y, np.zeros((*y.shape[:-1], 1), y.dtype)], axis=-1)], axis=-2)
    return _eigen(_whole(bands, lower=True), eigvals_only, select, select_range)


@entry("eigvalsh_tridiagonal")
def eigvalsh_tridiagonal(
    d: ArrayLike, e: ArrayLike, select: str | int = "a", select_range: Sequence[float] | None = None, tol: float = 0.0
) -> Any:
    return eigh_tridiagonal(d, e, True, select, select_range, tol)
