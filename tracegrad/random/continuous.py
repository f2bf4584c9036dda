"""Continuous distributions: random numbers of keys, with derivatives in the parameters."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tracegrad.ops.shape.linear import reshape
from tracegrad.random.docs import RANDOM_DOCS
from tracegrad.random.keys import Shape, shape_of, shape_or_broadcast, split, unit_interval
from tracegrad.scipy_api.special import call
from tracegrad.typing import Array, DTypeLike

__all__ = [
    "beta",
    "cauchy",
    "dirichlet",
    "exponential",
    "gamma",
    "gumbel",
    "laplace",
    "logistic",
    "multivariate_normal",
    "normal",
    "t",
    "truncated_normal",
    "uniform",
]


def uniform(key: Any, shape: Shape = (), dtype: DTypeLike = np.float64, minval: Any = 0.0, maxval: Any = 1.0) -> Any:
    """Draw numbers uniformly from [minval, maxval).

    >>> from tracegrad import random
    >>> print(random.uniform(random.key(0), (2,)).round(3))
    [0.418 0.315]
    """
    return minval + (maxval - minval) * unit_interval(key, shape_of(shape), dtype)


def normal(key: Any, shape: Shape = (), dtype: DTypeLike = np.float64) -> Array:
    """Draw standard normal numbers.

    The method is by G. E. P. Box and M. E. Muller, "A note on the generation of random normal deviates", Ann. Math.
    Statist. 29 (1958).

    >>> from tracegrad import random
    >>> print(random.normal(random.key(0), (2,)).round(3))
    [-0.522  1.212]
    """
    shape = shape_of(shape)
    count = math.prod(shape)
    pairs = (count + 1) // 2
    u = unit_interval(key, (2, pairs), dtype, inside=True)
    radius, angle = np.sqrt(-2.0 * np.log(u[0])), (2 * math.pi) * u[1]
    z = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])
    return reshape(z[:count], shape=shape)


def exponential(key: Any, shape: Shape = (), dtype: DTypeLike = np.float64) -> Array:
    """Draw numbers from the exponential distribution of rate 1.

    >>> from tracegrad import random
    >>> print(random.exponential(random.key(0), (2,)).round(3))
    [0.871 1.156]
    """
    return -np.log(unit_interval(key, shape_of(shape), dtype, inside=True))


def gumbel(key: Any, shape: Shape = (), dtype: DTypeLike = np.float64) -> Array:
    """Draw numbers from the standard Gumbel distribution.

    They are -log(-log(u)) of uniform numbers u.

    >>> from tracegrad import random
    >>> print(random.gumbel(random.key(0), (2,)).round(3))
    [ 0.138 -0.145]
    """
    return -np.log(exponential(key, shape, dtype))


def laplace(key: Any, shape: Shape = (), dtype: DTypeLike = np.float64) -> Array:
    """Draw numbers from the Laplace distribution of location 0 and scale 1.

    >>> from tracegrad import random
    >>> print(random.laplace(random.key(0), (2,)).round(3))
    [-0.178 -0.463]
    """
    u = unit_interval(key, shape_of(shape), dtype, inside=True)
    size = -np.log(2.0 * np.minimum(u, 1.0 - u))
    return np.where(u < 0.5, -size, size)


def logistic(key: Any, shape: Shape = (), dtype: DTypeLike = np.float64) -> Array:
    """Draw numbers from the logistic distribution of location 0 and scale 1.

    >>> from tracegrad import random
    >>> print(random.logistic(random.key(0), (2,)).round(3))
    [-0.329 -0.778]
    """
    u = unit_interval(key, shape_of(shape), dtype, inside=True)
    return np.log(u) - np.log1p(-u)


def cauchy(key: Any, shape: Shape = (), dtype: DTypeLike = np.float64) -> Array:
    """Draw numbers from the Cauchy distribution of location 0 and scale 1.

    >>> from tracegrad import random
    >>> print(random.cauchy(random.key(0), (2,)).round(3))
    [-0.262 -0.658]
    """
    return np.tan(math.pi * (unit_interval(key, shape_of(shape), dtype, inside=True) - 0.5))


def truncated_normal(
    key: Any, lower: Any, upper: Array, shape: Shape | None = None, dtype: DTypeLike = np.float64
) -> Any:
    """Draw standard normal numbers between two bounds.

    The numbers are quantiles of uniform numbers, and have derivatives with respect to the bounds.

    >>> from tracegrad import random
    >>> print(random.truncated_normal(random.key(0), -1.0, 1.0, (2,)).round(3))
    [-0.14  -0.323]
    """
    u = unit_interval(key, shape_or_broadcast(shape, lower, upper), dtype, inside=True)
    low, high = call("ndtr", lower), call("ndtr", upper)
    return np.clip(call("ndtri", low + (high - low) * u), lower, upper)


def gamma(key: Any, a: Array, shape: Shape | None = None, dtype: DTypeLike = np.float64) -> Any:
    """Draw numbers from the gamma distribution of scale 1.

    The numbers are quantiles of uniform numbers, and have derivatives with respect to `a`.

    >>> from tracegrad import random
    >>> print(random.gamma(random.key(0), 2.0, (2,)).round(3))
    [1.43  1.138]
    """
    return call("gammaincinv", a, unit_interval(key, shape_or_broadcast(shape, a), dtype, inside=True))


def beta(key: object, a: Array, b: Array, shape: Shape | None = None, dtype: DTypeLike = np.float64) -> Any:
    """Draw numbers from the beta distribution.

    The numbers are quantiles of uniform numbers, and have derivatives with respect to `a` and `b`.

    >>> from tracegrad import random
    >>> print(random.beta(random.key(0), 2.0, 3.0, (2,)).round(3))
    [0.34  0.281]
    """
    return call("betaincinv", a, b, unit_interval(key, shape_or_broadcast(shape, a, b), dtype, inside=True))


def t(key: Any, df: Array, shape: Shape | None = None, dtype: DTypeLike = np.float64) -> Any:
    """Draw numbers from Student's t distribution.

    The numbers have derivatives with respect to `df`.

    >>> from tracegrad import random
    >>> print(random.t(random.key(0), 4.0, (2,)).round(3))
    [1.926 0.44 ]
    """
    above, below = split(key)
    half, shape = 0.5 * df, shape_or_broadcast(shape, df)
    return normal(above, shape, dtype) * np.sqrt(half / gamma(below, half, shape, dtype))


def dirichlet(key: Any, alpha: Any, shape: Shape = (), dtype: DTypeLike = np.float64) -> Any:
    """Draw points of the simplex from the Dirichlet distribution.

    The points have derivatives with respect to `alpha`.

    >>> from tracegrad import random
    >>> print(random.dirichlet(random.key(0), np.ones(3)).round(3))
    [0.382 0.266 0.352]
    """
    gammas = gamma(key, alpha, (*shape_of(shape), *np.shape(alpha)), dtype)
    return gammas / np.sum(gammas, axis=-1, keepdims=True)


def multivariate_normal(key: Any, mean: Any, cov: Array, shape: Shape = (), dtype: Any = np.float64) -> Any:
    """Draw normal vectors.

    A vector is the mean plus the Cholesky factor of the covariance times a standard normal vector. It has derivatives
    with respect to the mean and the covariance.

    >>> from tracegrad import random
    >>> print(random.multivariate_normal(random.key(0), np.zeros(2), np.eye(2)).round(3))
    [-0.522  1.212]
    """
    z = normal(key, (*shape_of(shape), np.shape(mean)[-1]), dtype)
    return mean + z @ np.linalg.cholesky(cov).T


RANDOM_DOCS.document(globals(), __all__)
