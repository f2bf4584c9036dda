"""What `tracegrad.scipy_api.stats` knows of distributions of vectors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad.errors import located
from tracegrad.numpy_api.operands import arrays, to_float
from tracegrad.numpy_api.registry import refuse
from tracegrad.scipy_api.densities import gammaln, xlogy
from tracegrad.scipy_api.linalg import solve_triangular

__all__ = ["VECTORS"]


def _normal(x: Any, mean: Any = None, cov: Any = 1, allow_singular: bool = False) -> Any:
    """Of `multivariate_normal`: vectors along the last axis."""
    if allow_singular:
        raise refuse("scipy.stats.multivariate_normal with allow_singular=True")
    given = [to_float(v) for v in arrays(x, 0.0 if mean is None else mean, cov)]
    x, mean, cov = given
    dim = max(mean.shape[-1] if mean.shape else 1, cov.shape[-1] if cov.shape else 1)
    if len(cov.shape) < 2:
        cov = np.eye(dim) * cov
    if not mean.shape:
        mean = mean + np.zeros(dim)
    x = _vectors(x, dim)
    factor = np.linalg.cholesky(cov)
    scaled = solve_triangular(factor, (x - mean).reshape(-1, dim).T, lower=True)
    distance = np.sum(scaled * scaled, axis=0).reshape(x.shape[:-1])
    return -0.5 * (dim * math.log(2 * math.pi) + distance) - np.sum(np.log(np.diagonal(factor)))


def _vectors(x: Any, dim: int) -> Any:
    """As SciPy reads points: numbers are points of one dimension, a vector of this length is one point."""
    if not x.shape:
        return x.reshape(1)
    if len(x.shape) == 1:
        return x.reshape(-1, 1) if dim == 1 else x
    return x


def _dirichlet(x: Any, alpha: Any) -> Any:
    """Of `dirichlet`: vectors along the first axis, the last element of which may be left out."""
    x, alpha = (to_float(v) for v in arrays(x, alpha))
    n = alpha.shape[0]
    if x.shape[0] + 1 == n:
        x = np.concatenate([x, (1.0 - np.sum(x, axis=0))[None]])
    if x.shape[0] != n:
        raise ValueError(located(f"dirichlet: {x.shape[0]} rows of points for {n} parameters"))
    scale = np.sum(gammaln(alpha)) - gammaln(np.sum(alpha))
    return np.sum(xlogy(alpha - 1.0, x.T), axis=-1) - scale


def _multinomial(x: Any, n: Any, p: Any) -> Any:
    """Of `multinomial`: counts along the last axis; -inf where they do not make up `n`."""
    x, n, p = (to_float(v) for v in arrays(x, n, p))
    # The last probability is what the others leave.
    p = np.concatenate([p[..., :-1], 1.0 - np.sum(p[..., :-1], axis=-1, keepdims=True)], axis=-1)
    found = gammaln(n + 1.0) + np.sum(xlogy(x, p) - gammaln(x + 1.0), axis=-1)
    return np.where(np.sum(x, axis=-1) == n, found, -math.inf)


def _with_density(name: str, log: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    return {f"log{name}": log, name: lambda *args, **kwargs: np.exp(log(*args, **kwargs))}


VECTORS: dict[str, dict[str, Callable[..., Any]]] = {
    "multivariate_normal": _with_density("pdf", _normal),
    "dirichlet": _with_density("pdf", _dirichlet),
    "multinomial": _with_density("pmf", _multinomial),
}
