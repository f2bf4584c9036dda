"""Sample statistics and tests of `scipy.stats`; statistic and `pvalue` both have derivatives.

Each function works along one axis, or on all elements if the axis is None. Only nan_policy="propagate" is supported.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tracegrad.numpy_api.operands import arrays, to_float
from tracegrad.numpy_api.registry import refuse
from tracegrad.scipy_api.registry import shadow
from tracegrad.scipy_api.stats.univariate import of_special
from tracegrad.typing import Array, ArrayLike, Axes

# Interquartile range and median absolute deviation of a normal distribution, in units of its standard deviation.
_RANGE, _DISTANCE = 1.3489795003921634, 0.6744897501960817

_stdtr, _entr, _rel_entr = of_special("stdtr"), of_special("entr"), of_special("rel_entr")


class Test(NamedTuple):
    """Result of a test of two samples, with SciPy's names."""

    statistic: Any
    pvalue: Any


class _LinregressFields(NamedTuple):
    slope: Any
    intercept: Any
    rvalue: Any
    pvalue: Any
    stderr: Any


class LinregressResult(_LinregressFields):
    """Result of `scipy.stats.linregress`: five values, and `intercept_stderr` as an attribute."""

    intercept_stderr: Any


def _only(function: str, nan_policy: str = "propagate", **arguments: object) -> None:
    if nan_policy != "propagate":
        raise refuse(f"scipy.stats.{function} with nan_policy={nan_policy!r}", "choose the elements first, by a mask")
    for name, value in arguments.items():
        if value is not None and value != "two-sided":
            raise refuse(f"scipy.stats.{function} with {name}={value!r}")


def _sample(x: Any, axis: Any) -> Any:
    """Return the sample with its axis last, and the function that restores the axes of a result."""
    (x,) = arrays(x)
    x = to_float(x)
    if axis is None or not x.ndim:  # a number is a sample of one element
        return np.ravel(x), lambda y: np.reshape(y, (1,) * x.ndim)
    return np.moveaxis(x, axis, -1), lambda y: np.expand_dims(y, axis)


def _average(x: Array, w: Array | None) -> Array:
    result: Array = np.mean(x, axis=-1) if w is None else np.sum(w * x, axis=-1) / np.sum(w, axis=-1)
    return result


def _central(x: Array, order: int, center: ArrayLike | None = None) -> Array:
    c = np.mean(x, axis=-1, keepdims=True) if center is None else center
    result: Array = np.mean((x - c) ** order, axis=-1)
    return result


def _deviation(x: Array, ddof: int = 0) -> Array:
    result: Array = np.std(x, axis=-1, ddof=ddof)
    return result


@functools.cache
def _signature(name: str) -> inspect.Signature:
    from scipy import stats

    return inspect.signature(getattr(stats, name))


def _along(name: str) -> Callable[..., object]:
    """Register a function of samples along the last axis as SciPy's function of this name, with SciPy's signature.

    The function itself does not get `axis`, `nan_policy` and `keepdims`.
    """

    def declare(function: Callable[..., object]) -> Callable[..., object]:
        def call(*args: ArrayLike, **kwargs: object) -> object:
            inputs = _signature(name).bind(*args, **kwargs)
            inputs.apply_defaults()
            values = inputs.arguments
            _only(name, values.pop("nan_policy", "propagate"))
            axis, keepdims = values.pop("axis"), values.pop("keepdims", False)
            dtype = values.pop("dtype", None)
            x, saved = _sample(values.pop(next(iter(values))), axis)
            x = x if dtype is None else x.astype(dtype)
            if values.get("weights") is not None:
                values["weights"] = np.broadcast_to(_sample(values["weights"], axis)[0], x.shape)
            result = function(x, **values)
            return saved(result) if keepdims else result

        shadow(f"scipy.stats.{name}")(call)
        return function

    return declare


@_along("moment")
def moment(x: Array, order: Any = 1, center: Any = None) -> Any:
    """`scipy.stats.moment`."""
    if np.ndim(order):
        return np.stack([_central(x, int(k), center) for k in order])
    return _central(x, int(order), center)


def _ratio(x: Array, order: int, power: float) -> Array:
    """Divide a moment by a power of the variance; nan if all elements are equal."""
    m2, center = _central(x, 2), np.mean(x, axis=-1)
    same = m2 <= (np.finfo(m2.dtype).eps * center) ** 2
    return np.where(same, math.nan, _central(x, order) / np.where(same, 1.0, m2) ** power)


@_along("skew")
def skew(x: Array, bias: bool = True) -> Array:
    """`scipy.stats.skew`."""
    result = _ratio(x, 3, 1.5)
    n = x.shape[-1]
    return result if bias or n < 3 else math.sqrt((n - 1.0) * n) / (n - 2.0) * result


@_along("kurtosis")
def kurtosis(x: Array, fisher: bool = True, bias: bool = True) -> Array:
    """`scipy.stats.kurtosis`."""
    result = _ratio(x, 4, 2.0)
    n = x.shape[-1]
    if not bias and n > 3:
        result = ((n**2 - 1.0) * result - 3.0 * (n - 1) ** 2.0) / ((n - 2) * (n - 3)) + 3.0
    return result - 3.0 if fisher else result


@_along("sem")
def sem(x: Array, ddof: int = 1) -> Array:
    """`scipy.stats.sem`."""
    return _deviation(x, ddof) / math.sqrt(x.shape[-1])


@_along("variation")
def variation(x: Array, ddof: int = 0) -> Array:
    """`scipy.stats.variation`."""
    result: Array = _deviation(x, ddof) / np.mean(x, axis=-1)
    return result


@_along("gmean")
def gmean(x: Array, weights: Array | None = None) -> Array:
    """`scipy.stats.gmean`."""
    return np.exp(_average(np.log(x), weights))


@_along("hmean")
def hmean(x: Array, weights: Array | None = None) -> Array:
    """`scipy.stats.hmean`."""
    return np.where(np.any(x < 0, axis=-1), math.nan, 1.0 / _average(1.0 / x, weights))


@_along("pmean")
def pmean(x: Array, p: Array | float, weights: Array | None = None) -> Array:
    """`scipy.stats.pmean`, of a power that is a number."""
    if isinstance(p, int | float) and p == 0:
        return np.exp(_average(np.log(x), weights))
    return np.where(np.any(x < 0, axis=-1), math.nan, _average(x**p, weights) ** (1.0 / p))


@_along("gstd")
def gstd(x: Array, ddof: int = 1) -> Array:
    """`scipy.stats.gstd`."""
    return np.exp(_deviation(np.log(x), ddof))


def _scale(scale: float, normal: float) -> float:
    if isinstance(scale, str):
        if scale.lower() != "normal":
            raise ValueError(f"{scale} is not a valid scale value.")
        return normal
    return scale


@_along("iqr")
def iqr(x: Array, rng: tuple[int, ...] = (25, 75), scale: float = 1.0, interpolation: str = "linear") -> Array:
    """`scipy.stats.iqr`."""
    low, high = np.percentile(x, sorted(rng), axis=-1, method=interpolation)  # type: ignore[call-overload]
    result: Array = (high - low) / _scale(scale, _RANGE)
    return result


@_along("median_abs_deviation")
def median_abs_deviation(x: Array, center: Any = None, scale: float = 1.0) -> Array:
    """`scipy.stats.median_abs_deviation`."""
    middle = (np.median if center is None else center)(x, axis=-1)
    return np.median(np.abs(x - np.expand_dims(middle, -1)), axis=-1) / _scale(scale, _DISTANCE)


@_along("trim_mean")
def trim_mean(x: Array, proportiontocut: float) -> Array:
    """`scipy.stats.trim_mean`."""
    n = x.shape[-1]
    cut = int(proportiontocut * n)
    if n and 2 * cut >= n:
        raise ValueError("Proportion too big.")
    result: Array = np.mean(np.sort(x, axis=-1)[..., cut : n - cut], axis=-1)
    return result


@shadow("scipy.stats.entropy")
def entropy(
    pk: ArrayLike,
    qk: ArrayLike | None = None,
    base: float | None = None,
    axis: int = 0,
    *,
    nan_policy: str = "propagate",
    keepdims: bool = False,
) -> Array:
    """`scipy.stats.entropy`, of one distribution, or relative to another."""
    _only("entropy", nan_policy)
    if base is not None and base <= 0:
        raise ValueError("`base` must be a positive number or `None`.")
    p, saved = _sample(pk, axis)
    p = p / np.sum(p, axis=-1, keepdims=True)
    if qk is None:
        result = np.sum(_entr(p), axis=-1)
    else:
        q, _ = _sample(qk, axis)
        result = np.sum(_rel_entr(p, q / np.sum(q, axis=-1, keepdims=True)), axis=-1)
    result = result if base is None else result / math.log(base)
    output: Array = saved(result) if keepdims else result
    return output


@shadow("scipy.stats.zmap")
def zmap(scores: ArrayLike, compare: ArrayLike, axis: Axes = 0, ddof: int = 0, nan_policy: str = "propagate") -> Array:
    """`scipy.stats.zmap`."""
    _only("zmap", nan_policy)
    x, to = (to_float(v) for v in arrays(scores, compare))
    along: Any = axis  # NumPy's stubs name tuples, not sequences
    result: Array = (x - np.mean(to, axis=along, keepdims=True)) / np.std(to, axis=along, ddof=ddof, keepdims=True)
    return result


@shadow("scipy.stats.zscore")
def zscore(a: ArrayLike, axis: Axes = 0, ddof: int = 0, nan_policy: str = "propagate") -> Array:
    """`scipy.stats.zscore`."""
    return zmap(a, a, axis, ddof, nan_policy)


@shadow("scipy.stats.gzscore")
def gzscore(a: ArrayLike, *, axis: Axes = 0, ddof: int = 0, nan_policy: str = "propagate") -> Array:
    """`scipy.stats.gzscore`."""
    logs = np.log(to_float(arrays(a)[0]))
    return zmap(logs, logs, axis, ddof, nan_policy)


def _of_t(t: Array, df: Array | float) -> Array:
    """Compute the two-sided p-value of a t statistic."""
    result: Array = 2.0 * _stdtr(df, -np.abs(t))
    return result


@shadow("scipy.stats.pearsonr")
def pearsonr(
    x: ArrayLike, y: ArrayLike, *, alternative: str = "two-sided", method: str | None = None, axis: Axes = 0
) -> Test:
    """`scipy.stats.pearsonr`: the statistic and the p-value."""
    _only("pearsonr", alternative=alternative, method=method)
    (p, _), (q, _) = _sample(x, axis), _sample(y, axis)
    n = p.shape[-1]
    if n < 2:
        raise ValueError("`x` and `y` must have length at least 2.")
    p, q = (v - np.mean(v, axis=-1, keepdims=True) for v in (p, q))
    r = np.sum(p / np.linalg.norm(p, axis=-1, keepdims=True) * (q / np.linalg.norm(q, axis=-1, keepdims=True)), axis=-1)
    if n == 2:
        return Test(r, np.ones(r.shape)[()])
    return Test(r, _of_t(r * np.sqrt((n - 2.0) / ((1.0 - r) * (1.0 + r))), n - 2.0))


@shadow("scipy.stats.linregress")
def linregress(
    x: ArrayLike,
    y: ArrayLike,
    alternative: str = "two-sided",
    *,
    axis: Axes = 0,
    nan_policy: str = "propagate",
    keepdims: bool = False,
) -> LinregressResult:
    """`scipy.stats.linregress`."""
    _only("linregress", nan_policy, alternative=alternative)
    (p, saved), (q, _) = _sample(x, axis), _sample(y, axis)
    n, xmean, ymean = p.shape[-1], np.mean(p, axis=-1), np.mean(q, axis=-1)
    dx, dy = p - xmean[..., None], q - ymean[..., None]
    ssx, ssy, both = np.mean(dx * dx, axis=-1), np.mean(dy * dy, axis=-1), np.mean(dx * dy, axis=-1)
    r = both / np.sqrt(ssx * ssy)
    derivative = both / ssx
    t = r * np.sqrt((n - 2.0) / ((1.0 - r + 1e-20) * (1.0 + r + 1e-20)))
    error = np.sqrt((1.0 - r * r) * ssy / ssx / (n - 2.0))
    results = [derivative, ymean - derivative * xmean, r, _of_t(t, n - 2.0), error, error * np.sqrt(ssx + xmean**2)]
    *five, other = map(saved, results) if keepdims else results
    line = LinregressResult(*five)
    line.intercept_stderr = other
    return line


def _tested(difference: Array, error: Array, df: Array | float, restore_axes: Callable[[Array], Array] | None) -> Test:
    t = difference / error
    results = t, _of_t(t, df)
    return Test(*(results if restore_axes is None else map(restore_axes, results)))


@shadow("scipy.stats.ttest_1samp")
def ttest_1samp(
    a: ArrayLike,
    popmean: float,
    axis: Axes = 0,
    nan_policy: str = "propagate",
    alternative: str = "two-sided",
    *,
    keepdims: bool = False,
) -> Test:
    """`scipy.stats.ttest_1samp`: the statistic and the p-value."""
    _only("ttest_1samp", nan_policy, alternative=alternative)
    x, saved = _sample(a, axis)
    n = x.shape[-1]
    error = _deviation(x, 1) / math.sqrt(n)
    return _tested(np.mean(x, axis=-1) - popmean, error, n - 1.0, saved if keepdims else None)


@shadow("scipy.stats.ttest_rel")
def ttest_rel(
    a: ArrayLike,
    b: ArrayLike,
    axis: Axes = 0,
    nan_policy: str = "propagate",
    alternative: str = "two-sided",
    *,
    keepdims: bool = False,
) -> Test:
    """`scipy.stats.ttest_rel`: the statistic and the p-value."""
    p, q = (to_float(v) for v in arrays(a, b))
    result: Test = ttest_1samp(p - q, 0.0, axis, nan_policy, alternative, keepdims=keepdims)
    return result


@shadow("scipy.stats.ttest_ind")
def ttest_ind(
    a: ArrayLike,
    b: ArrayLike,
    *,
    axis: Axes = 0,
    equal_var: bool = True,
    nan_policy: str = "propagate",
    alternative: str = "two-sided",
    trim: int = 0,
    method: str | None = None,
    keepdims: bool = False,
) -> Test:
    """`scipy.stats.ttest_ind`: the statistic and the p-value, by pooled variances or Welch's."""
    _only("ttest_ind", nan_policy, alternative=alternative, method=method, trim=trim or None)
    (p, saved), (q, _) = _sample(a, axis), _sample(b, axis)
    n, m = p.shape[-1], q.shape[-1]
    u, v = np.var(p, axis=-1, ddof=1), np.var(q, axis=-1, ddof=1)
    if equal_var:
        df: Any = n + m - 2.0
        error = np.sqrt(((n - 1) * u + (m - 1) * v) / df * (1.0 / n + 1.0 / m))
    else:
        u, v = u / n, v / m
        df, error = (u + v) ** 2 / (u**2 / (n - 1) + v**2 / (m - 1)), np.sqrt(u + v)
    return _tested(np.mean(p, axis=-1) - np.mean(q, axis=-1), error, df, saved if keepdims else None)


def _cdf_differences(
    u: ArrayLike, v: ArrayLike, u_weights: ArrayLike | None, v_weights: ArrayLike | None
) -> tuple[Array, ...]:
    """Return the differences of two empirical distribution functions, and the widths of their steps."""
    p, q = (np.ravel(to_float(x)) for x in arrays(u, v))
    every = np.sort(np.concatenate([p, q]))

    def share(x: Array, w: ArrayLike | None) -> Array:
        order = np.argsort(x)
        count = np.searchsorted(x[order], every[:-1], side="right")
        if w is None:
            return count / x.shape[0]
        sums = np.concatenate([[0.0], np.cumsum(arrays(w)[0][order])])
        result: Array = sums[count] / sums[-1]
        return result

    return share(p, u_weights) - share(q, v_weights), np.diff(every)


@shadow("scipy.stats.wasserstein_distance")
def wasserstein_distance(
    u_values: ArrayLike, v_values: ArrayLike, u_weights: ArrayLike | None = None, v_weights: ArrayLike | None = None
) -> Array:
    """`scipy.stats.wasserstein_distance`."""
    differences, widths = _cdf_differences(u_values, v_values, u_weights, v_weights)
    result: Array = np.sum(np.abs(differences) * widths)
    return result


@shadow("scipy.stats.energy_distance")
def energy_distance(
    u_values: ArrayLike, v_values: ArrayLike, u_weights: ArrayLike | None = None, v_weights: ArrayLike | None = None
) -> Array:
    """`scipy.stats.energy_distance`."""
    differences, widths = _cdf_differences(u_values, v_values, u_weights, v_weights)
    result: Array = math.sqrt(2.0) * np.sqrt(np.sum(differences * differences * widths))
    return result
