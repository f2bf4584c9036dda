"""Multivariate distributions of `scipy.stats`: densities, entropies and moments."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad.errors import located
from tracegrad.numpy_api.operands import arrays, to_dtype, to_float
from tracegrad.numpy_api.registry import refuse
from tracegrad.ops.shape.linear import stop_gradient
from tracegrad.scipy_api.linalg.functions import solve_triangular
from tracegrad.scipy_api.stats.univariate import gammaln, of_special, xlogy
from tracegrad.typing import Array, ArrayLike


def _normal(x: ArrayLike, mean: ArrayLike | None = None, cov: ArrayLike = 1, allow_singular: bool = False) -> Array:
    """Log-density of `multivariate_normal`, with vectors along the last axis; axes of one element are dropped."""
    (x,) = _doubles(x)
    mean, factor = _shape_of(mean, cov, allow_singular)
    dim = factor.shape[0]
    x = _vectors(x, dim)
    scaled = solve_triangular(factor, (x - mean).reshape(-1, dim).T, lower=True)
    distance = np.sum(scaled * scaled, axis=0).reshape(x.shape[:-1])
    result: Array = np.squeeze(-0.5 * (dim * math.log(2 * math.pi) + distance) - np.sum(np.log(np.diagonal(factor))))
    return result


def _shape_of(mean: Any, cov: Any, allow_singular: bool) -> tuple[Array, ...]:
    """Return the mean as a vector, and the Cholesky factor of the covariances as a matrix."""
    if hasattr(cov, "whiten"):
        raise refuse("scipy.stats.multivariate_normal with a scipy.stats.Covariance", "give the matrix")
    is_matrix = mean is None and len(np.shape(cov)) == 2
    mean, cov = _doubles(0.0 if mean is None else mean, cov)
    dim = cov.shape[0] if is_matrix else mean.size  # without a mean, a vector of variances has one dimension
    if mean.shape not in [(), (dim,)] or cov.shape not in [(), (dim,), (dim, dim)]:
        text = f"multivariate_normal: a mean of the shape {mean.shape} and covariances of the shape {cov.shape}"
        raise ValueError(located(text))
    if len(cov.shape) < 2:
        cov = np.eye(dim) * cov
    if allow_singular:
        sizes = np.abs(np.linalg.eigvalsh(stop_gradient(cov)))
        if bool(np.min(sizes) <= 1e6 * np.finfo(np.float64).eps * np.max(sizes)):
            raise refuse("scipy.stats.multivariate_normal with a singular matrix", "add something to its diagonal")
    return (mean if mean.shape else mean + np.zeros(dim)), np.linalg.cholesky(cov)


def _normal_entropy(mean: ArrayLike | None = None, cov: ArrayLike = 1) -> Array:
    factor = _shape_of(mean, cov, True)[1]
    result: Array = 0.5 * factor.shape[0] * (math.log(2 * math.pi) + 1.0) + np.sum(np.log(np.diagonal(factor)))
    return result


def _doubles(*xs: ArrayLike) -> list[Array]:
    return [to_dtype(to_float(v), np.dtype(np.float64)) for v in arrays(*xs)]


def _vectors(x: Array, dim: int) -> Array:
    """Convert points as SciPy does: numbers are points of one dimension, a vector of this length is one point."""
    if not x.shape:
        return x.reshape(1)
    if len(x.shape) == 1:
        return x.reshape(-1, 1) if dim == 1 else x
    return x


def _dirichlet(x: ArrayLike, alpha: ArrayLike) -> Array:
    """Log-density of `dirichlet`, with vectors along the first axis, whose last element is optional."""
    x, alpha = _doubles(x, alpha)
    n = alpha.shape[0]
    if x.shape[0] + 1 == n:
        x = np.concatenate([x, (1.0 - np.sum(x, axis=0))[None]])
    if x.shape[0] != n:
        raise ValueError(located(f"dirichlet: {x.shape[0]} rows of points for {n} parameters"))
    scale = np.sum(gammaln(alpha)) - gammaln(np.sum(alpha))
    result: Array = np.squeeze(np.sum(xlogy(alpha - 1.0, x.T), axis=-1) - scale)
    return result


def _dirichlet_entropy(alpha: ArrayLike) -> Array:
    (alpha,) = _doubles(alpha)
    total, digamma = np.sum(alpha), of_special("psi")
    scale = np.sum(gammaln(alpha)) - gammaln(total)
    result: Array = scale + (total - alpha.shape[0]) * digamma(total) - np.sum((alpha - 1.0) * digamma(alpha))
    return result


def _dirichlet_mean(alpha: ArrayLike) -> Array:
    (alpha,) = _doubles(alpha)
    result: Array = np.squeeze(alpha / np.sum(alpha))
    return result


def _dirichlet_var(alpha: ArrayLike) -> Array:
    (alpha,) = _doubles(alpha)
    total = np.sum(alpha)
    result: Array = np.squeeze(alpha * (total - alpha) / (total * total * (total + 1.0)))
    return result


def _multinomial_cov(n: ArrayLike, p: ArrayLike) -> Array:
    n, p = _doubles(n, p)
    if len(p.shape) != 1 or n.shape:
        raise refuse("scipy.stats.multinomial.cov of several distributions")
    result: Array = n * (np.diag(p) - np.outer(p, p))
    return result


def _multinomial(x: ArrayLike, n: ArrayLike, p: ArrayLike) -> Array:
    """Log-probability of `multinomial`, with counts along the last axis; -inf unless their sum is `n`."""
    x, n, p = _doubles(x, n, p)
    if x.shape[-1:] != p.shape[-1:]:
        raise ValueError(located(f"multinomial: counts of the shape {x.shape} for probabilities of {p.shape}"))
    # The last probability is 1 minus the sum of the others.
    p = np.concatenate([p[..., :-1], 1.0 - np.sum(p[..., :-1], axis=-1, keepdims=True)], axis=-1)
    result = gammaln(n + 1.0) + np.sum(xlogy(x, p) - gammaln(x + 1.0), axis=-1)
    return np.where(np.sum(x, axis=-1) == n, result, -math.inf)


def _with_density(name: str, log: Callable[..., Array]) -> dict[str, Callable[..., object]]:
    return {f"log{name}": log, name: lambda *args, **kwargs: np.exp(log(*args, **kwargs))}


VECTORS: dict[str, dict[str, Callable[..., Any]]] = {
    "multivariate_normal": _with_density("pdf", _normal) | {"entropy": _normal_entropy},
    "dirichlet": _with_density("pdf", _dirichlet)
    | {"mean": _dirichlet_mean, "var": _dirichlet_var, "entropy": _dirichlet_entropy},
    "multinomial": _with_density("pmf", _multinomial) | {"cov": _multinomial_cov},
}
