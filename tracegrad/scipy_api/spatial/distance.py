"""Distances between rows, of `scipy.spatial.distance`; between equal rows the derivative is 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad.numpy_api.operands import arrays, to_float
from tracegrad.numpy_api.registry import refuse
from tracegrad.numpy_api.shapes import moveaxis
from tracegrad.numpy_api.ufuncs import rel_entr
from tracegrad.scipy_api.registry import shadow
from tracegrad.typing import Array, ArrayLike, Number


def _root(x: Array) -> Array:
    zero = x == 0
    return np.where(zero, 0.0, np.sqrt(np.where(zero, 1.0, x)))


def _sum(x: Array, w: Array | None = None) -> Array:
    result: Array = np.sum(x if w is None else w * x, axis=-1)
    return result


def _cosine(x: Array, y: Array, w: Array | None = None) -> Array:
    return 1.0 - _sum(x * y, w) / (np.sqrt(_sum(x * x, w)) * np.sqrt(_sum(y * y, w)))


def _correlation(x: Array, y: Array, w: Array | None = None) -> Array:
    if w is None:
        return _cosine(x - np.mean(x, axis=-1, keepdims=True), y - np.mean(y, axis=-1, keepdims=True))
    w = w / np.sum(w)
    x, y = (v - _sum(v, w)[..., None] for v in (x, y))
    return _cosine(x, y, w)


def _minkowski(x: Array, y: Array, p: float = 2, w: Array | None = None) -> Array:
    differences = np.abs(x - y)
    total = _sum(np.where(differences == 0, 0.0, np.where(differences == 0, 1.0, differences) ** p), w)
    zero = total == 0
    return np.where(zero, 0.0, np.where(zero, 1.0, total) ** (1.0 / p))


def _canberra(x: Array, y: Array, w: Array | None = None) -> Array:
    below = np.abs(x) + np.abs(y)
    zero = below == 0
    return _sum(np.where(zero, 0.0, np.abs(x - y) / np.where(zero, 1.0, below)), w)


def _seuclidean(x: Array, y: Array, V: Array) -> Array:
    return _root(_sum((x - y) ** 2 / V))


def _mahalanobis(x: Array, y: Array, VI: Array) -> Array:
    differences = x - y
    return _root(_sum(np.matmul(differences, VI) * differences))


def _jensenshannon(p: Array, q: Array, base: Array | float | None = None) -> Array:
    p, q = (v / np.sum(v, axis=-1, keepdims=True) for v in (p, q))
    middle = (p + q) / 2.0
    total = _sum(rel_entr(p, middle) + rel_entr(q, middle))
    return _root(np.maximum(total if base is None else total / np.log(base), 0.0) / 2.0)


_METRICS: dict[str, Callable[..., Any]] = {
    "euclidean": lambda x, y, w=None: _root(_sum((x - y) ** 2, w)),
    "sqeuclidean": lambda x, y, w=None: _sum((x - y) ** 2, w),
    "cityblock": lambda x, y, w=None: _sum(np.abs(x - y), w),
    "chebyshev": lambda x, y: np.max(np.abs(x - y), axis=-1),
    "braycurtis": lambda x, y, w=None: _sum(np.abs(x - y), w) / _sum(np.abs(x + y), w),
    "canberra": _canberra,
    "cosine": _cosine,
    "correlation": _correlation,
    "minkowski": _minkowski,
    "seuclidean": _seuclidean,
    "mahalanobis": _mahalanobis,
    "jensenshannon": _jensenshannon,
}
_METRIC_OPTIONS = {
    "minkowski": {"p", "w"},
    "seuclidean": {"V"},
    "mahalanobis": {"VI"},
    "jensenshannon": {"base"},
    "chebyshev": set(),
}
_OTHER_NAMES = {
    "euclid": "euclidean",
    "eu": "euclidean",
    "e": "euclidean",
    "sqe": "sqeuclidean",
    "sqeuclid": "sqeuclidean",
    "cblock": "cityblock",
    "cb": "cityblock",
    "c": "cityblock",
    "chebychev": "chebyshev",
    "cheby": "chebyshev",
    "cheb": "chebyshev",
    "ch": "chebyshev",
    "cos": "cosine",
    "co": "correlation",
    "mi": "minkowski",
    "m": "minkowski",
    "pnorm": "minkowski",
    "se": "seuclidean",
    "s": "seuclidean",
    "mahal": "mahalanobis",
    "mah": "mahalanobis",
    "js": "jensenshannon",
}


def _metric(
    name: str, metric: Any, out: Array | None, options: dict[str, Any], points: Callable[[], Any]
) -> Callable[[Array, Array], Array]:
    """Return the distance function of rows; `points()` returns all rows, for metrics with variances."""
    if out is not None:
        raise refuse(f"the argument out= of scipy.spatial.distance.{name}")
    if callable(metric) and not str(getattr(metric, "__module__", "")).startswith("scipy."):
        return lambda x, y: _each(lambda u, v: metric(u, v, **options), x, y)
    metric = getattr(metric, "__name__", metric)
    metric = _OTHER_NAMES.get(metric, metric)
    known = _METRICS.get(metric)
    options = {k: v for k, v in options.items() if v is not None}
    if known is None or set(options) - _METRIC_OPTIONS.get(metric, {"w"}):
        others = f" and {', '.join(options)}" if options else ""
        raise refuse(f"scipy.spatial.distance.{name} with metric={metric!r}{others}")
    if metric == "seuclidean" and not options:
        options["V"] = np.var(points(), axis=0, ddof=1)
    if metric == "mahalanobis" and not options:
        options["VI"] = np.linalg.inv(np.atleast_2d(np.cov(points().T))).T
    with_arrays = {k: to_float(arrays(v)[0]) if k in ("V", "VI", "w") else v for k, v in options.items()}
    return lambda x, y: known(x, y, **with_arrays)


def _each(metric: Callable[[Array, Array], Array], x: Array, y: Array) -> Array:
    """Apply a function of two vectors to all rows of `x` and `y`, one after the other."""
    x, y = np.broadcast_arrays(x, y)
    shape = x.shape[:-1]
    rows = zip(x.reshape(-1, x.shape[-1]), y.reshape(-1, y.shape[-1]))
    return np.stack(arrays(*[metric(u, v) for u, v in rows])).reshape(shape)


@shadow("scipy.spatial.distance.cdist")
def cdist(
    XA: ArrayLike,
    XB: ArrayLike,
    metric: str | Callable[..., Array] = "euclidean",
    *,
    out: Array | None = None,
    **kwargs: object,
) -> Array:
    """`cdist`: the distances between each row of `XA` and each row of `XB`."""
    x, y = (to_float(v) for v in arrays(XA, XB))
    of = _metric("cdist", metric, out, kwargs, lambda: np.concatenate([x, y]))
    return of(x[:, None, :], y[None, :, :])


@shadow("scipy.spatial.distance.pdist")
def pdist(
    X: ArrayLike, metric: str | Callable[..., Array] = "euclidean", *, out: Array | None = None, **kwargs: object
) -> Array:
    """`pdist`: the distances between all pairs of rows."""
    x = to_float(arrays(X)[0])
    of = _metric("pdist", metric, out, kwargs, lambda: x)
    first, second = np.triu_indices(x.shape[0], 1)
    return of(np.take(x, first, axis=0), np.take(x, second, axis=0))


@shadow("scipy.spatial.distance.squareform")
def squareform(X: ArrayLike, force: str = "no", checks: bool = True) -> Array:
    """`squareform`: the matrix of a vector of distances, or the vector of a matrix."""
    (x,) = arrays(X)
    if len(x.shape) == 2:
        n = x.shape[0]
        first, second = np.triu_indices(n, 1)
        return np.take(x.reshape(-1), first * n + second)
    n = round((1 + (1 + 8 * x.shape[0]) ** 0.5) / 2)
    if n * (n - 1) // 2 != x.shape[0]:
        raise ValueError(
            "Incompatible vector size. It must be a binomial coefficient n choose 2 for some integer n >= 2."
        )
    indices = np.zeros((n, n), np.int64)
    indices[np.triu_indices(n, 1)] = 1 + np.arange(x.shape[0])
    return np.take(np.concatenate([np.zeros(1, x.dtype), x]), indices + indices.T)


def _between(name: str) -> None:
    @shadow(f"scipy.spatial.distance.{name}")
    def distance(u: ArrayLike, v: ArrayLike, *args: Array | Number, **kwargs: object) -> Array:
        inputs = dict(zip(_POSITIONS.get(name, ("w",)), args)) | kwargs
        x, y = (to_float(t) for t in arrays(u, v))
        return _metric(name, name, None, inputs, lambda: np.stack([x, y]))(x, y)[()]


@shadow("scipy.spatial.distance.jensenshannon")
def jensenshannon(
    p: ArrayLike, q: ArrayLike, base: Array | float | None = None, *, axis: int = 0, keepdims: bool = False
) -> Array:
    """`jensenshannon`, along an axis."""
    x, y = (moveaxis(to_float(t), axis, -1) for t in np.broadcast_arrays(*arrays(p, q)))
    result = _jensenshannon(x, y, base)
    return (np.expand_dims(result, axis) if keepdims else result)[()]


_POSITIONS = {"minkowski": ("p", "w"), "seuclidean": ("V",), "mahalanobis": ("VI",)}
for _name in _METRICS.keys() - {"jensenshannon"}:
    _between(_name)
