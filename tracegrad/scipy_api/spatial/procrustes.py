"""Procrustes problems: the rotation that best maps points to others, in `scipy.linalg` and `scipy.spatial`."""

from __future__ import annotations

import numpy as np

from tracegrad.numpy_api.operands import arrays, to_float
from tracegrad.scipy_api.registry import shadow
from tracegrad.typing import Array, ArrayLike


@shadow("scipy.linalg.orthogonal_procrustes")
def orthogonal_procrustes(A: ArrayLike, B: ArrayLike, check_finite: bool = True) -> tuple[Array, ...]:
    """`scipy.linalg.orthogonal_procrustes`: the orthogonal matrix, and the sum of the singular values."""
    a, b = arrays(A, B)
    if a.ndim != 2:
        raise ValueError(f"expected ndim to be 2, but observed {a.ndim}")
    if a.shape != b.shape:
        raise ValueError(f"the shapes of A and B differ ({a.shape} vs {b.shape})")
    u, s, vh = np.linalg.svd(np.conj(a).T @ b)
    return u @ vh, np.sum(s)


def _standard(x: Array) -> Array:
    x = x - np.mean(x, axis=0)
    return x / np.linalg.norm(x)


@shadow("scipy.spatial.procrustes")
def procrustes(data1: ArrayLike, data2: ArrayLike) -> tuple[Array, Array, Array]:
    """`scipy.spatial.procrustes`: both sets of points in standard form, and the sum of the squared differences."""
    x, y = (to_float(v) for v in arrays(data1, data2))
    if x.ndim != 2 or y.ndim != 2:
        raise ValueError("Input matrices must be two-dimensional")
    if x.shape != y.shape:
        raise ValueError("Input matrices must be of same shape")
    if 0 in x.shape:
        raise ValueError("Input matrices must be >0 rows and >0 cols")
    x, y = _standard(x), _standard(y)
    iteration, scale = orthogonal_procrustes(x, y)
    y = y @ iteration.T * scale
    return x, y, np.sum((x - y) ** 2)
