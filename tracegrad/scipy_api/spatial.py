"""`scipy.spatial.distance`: distances between rows. That of two equal rows has the slope 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad.numpy_api.operands import arrays, to_float
from tracegrad.numpy_api.registry import refuse
from tracegrad.scipy_api.registry import shadow

__all__: list[str] = []


def _root(x: Any) -> Any:
    zero = x == 0
    return np.where(zero, 0.0, np.sqrt(np.where(zero, 1.0, x)))


def _cosine(x: Any, y: Any) -> Any:
    return 1.0 - np.sum(x * y, axis=-1) / (np.sqrt(np.sum(x * x, axis=-1)) * np.sqrt(np.sum(y * y, axis=-1)))


def _correlation(x: Any, y: Any) -> Any:
    return _cosine(x - np.mean(x, axis=-1, keepdims=True), y - np.mean(y, axis=-1, keepdims=True))


def _minkowski(x: Any, y: Any, p: float = 2) -> Any:
    gaps = np.abs(x - y)
    total = np.sum(np.where(gaps == 0, 0.0, np.where(gaps == 0, 1.0, gaps) ** p), axis=-1)
    zero = total == 0
    return np.where(zero, 0.0, np.where(zero, 1.0, total) ** (1.0 / p))


def _canberra(x: Any, y: Any) -> Any:
    below = np.abs(x) + np.abs(y)
    zero = below == 0
    return np.sum(np.where(zero, 0.0, np.abs(x - y) / np.where(zero, 1.0, below)), axis=-1)


_METRICS: dict[str, Callable[..., Any]] = {
    "euclidean": lambda x, y: _root(np.sum((x - y) ** 2, axis=-1)),
    "sqeuclidean": lambda x, y: np.sum((x - y) ** 2, axis=-1),
    "cityblock": lambda x, y: np.sum(np.abs(x - y), axis=-1),
    "chebyshev": lambda x, y: np.max(np.abs(x - y), axis=-1),
    "braycurtis": lambda x, y: np.sum(np.abs(x - y), axis=-1) / np.sum(np.abs(x + y), axis=-1),
    "canberra": _canberra,
    "cosine": _cosine,
    "correlation": _correlation,
    "minkowski": _minkowski,
}


def _metric(name: str, metric: Any, out: Any, given: dict[str, Any]) -> Callable[..., Any]:
    if out is not None:
        raise refuse(f"the argument out= of scipy.spatial.distance.{name}")
    if callable(metric):
        metric = getattr(metric, "__name__", metric)
    known = _METRICS.get(metric)
    if known is None or (given and set(given) != {"p"}):
        others = f" and {', '.join(given)}" if given else ""
        raise refuse(f"scipy.spatial.distance.{name} with metric={metric!r}{others}")
    return lambda x, y: known(x, y, **given)


@shadow("scipy.spatial.distance.cdist")
def cdist(XA: Any, XB: Any, metric: Any = "euclidean", *, out: Any = None, **kwargs: Any) -> Any:
    """`cdist`: between each row of `XA` and each row of `XB`."""
    of = _metric("cdist", metric, out, kwargs)
    x, y = (to_float(v) for v in arrays(XA, XB))
    return of(x[:, None, :], y[None, :, :])


@shadow("scipy.spatial.distance.pdist")
def pdist(X: Any, metric: Any = "euclidean", *, out: Any = None, **kwargs: Any) -> Any:
    """`pdist`: between each two rows."""
    of = _metric("pdist", metric, out, kwargs)
    x = to_float(arrays(X)[0])
    first, second = np.triu_indices(x.shape[0], 1)
    return of(np.take(x, first, axis=0), np.take(x, second, axis=0))


@shadow("scipy.spatial.distance.squareform")
def squareform(X: Any, force: str = "no", checks: bool = True) -> Any:
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
    places = np.zeros((n, n), np.int64)
    places[np.triu_indices(n, 1)] = 1 + np.arange(x.shape[0])
    return np.take(np.concatenate([np.zeros(1, x.dtype), x]), places + places.T)


def _between(name: str) -> None:
    @shadow(f"scipy.spatial.distance.{name}")
    def distance(u: Any, v: Any, *args: Any, w: Any = None, **kwargs: Any) -> Any:
        if w is not None:
            raise refuse(f"the argument w= of scipy.spatial.distance.{name}")
        x, y = (to_float(t) for t in arrays(u, v))
        return _METRICS[name](x, y, *args, **kwargs)[()]


for _name in _METRICS:
    _between(_name)
