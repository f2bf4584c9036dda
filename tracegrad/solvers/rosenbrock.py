"""Rosenbrock's function of `scipy.optimize`, its derivatives, and its Hessian-vector product."""

from __future__ import annotations

import numpy as np

from tracegrad.numpy_api.operands import arrays, promoted, to_float
from tracegrad.scipy_api.registry import shadow
from tracegrad.typing import Array, ArrayLike


@shadow("scipy.optimize.rosen")
def rosen(x: ArrayLike) -> Array:
    """`scipy.optimize.rosen`"""
    (v,) = arrays(x)
    result: Array = np.sum(100.0 * (v[1:] - v[:-1] ** 2.0) ** 2.0 + (1 - v[:-1]) ** 2.0, axis=0)
    return result


@shadow("scipy.optimize.rosen_der")
def rosen_der(x: ArrayLike) -> Array:
    """`scipy.optimize.rosen_der`"""
    v = to_float(arrays(x)[0])
    rise = 200.0 * (v[1:] - v[:-1] ** 2)
    none = 0.0 * v[:1]
    result: Array = np.concatenate([-2.0 * rise * v[:-1] - 2.0 * (1.0 - v[:-1]), none]) + np.concatenate([none, rise])
    return result


@shadow("scipy.optimize.rosen_hess")
def rosen_hess(x: ArrayLike) -> Array:
    """`scipy.optimize.rosen_hess`"""
    v = to_float(arrays(x)[0])
    off_diagonal, none = -400.0 * v[:-1], 0.0 * v[:1]
    diagonal = np.concatenate([1200.0 * v[:-1] ** 2 - 400.0 * v[1:] + 2.0, none])
    result: Array = (
        np.diag(diagonal + np.concatenate([none, 200.0 + 0.0 * v[1:]]))
        + np.diag(off_diagonal, 1)
        + np.diag(off_diagonal, -1)
    )
    return result


@shadow("scipy.optimize.rosen_hess_prod")
def rosen_hess_prod(x: ArrayLike, p: ArrayLike) -> Array:
    """`scipy.optimize.rosen_hess_prod`"""
    v, along = promoted([to_float(u) for u in arrays(x, p)])
    result: Array = np.matmul(rosen_hess(v), along)
    return result
