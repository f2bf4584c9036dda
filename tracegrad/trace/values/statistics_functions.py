"""Trace the functions of `statistics` as formulas over float arrays.

Python computes with exact fractions; the formulas may differ from its results in the last digits and have
derivatives. For other kinds of data, empty data and infinite values, Python computes with the values of the call, which
leaves guards.
"""

from __future__ import annotations

import functools
import inspect
import math
import sys
from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.numpy_api.creation import array
from tracegrad.ops.elementwise import table as ops
from tracegrad.trace.values.math_functions import valued
from tracegrad.trace.values.python_arithmetic import holds, number
from tracegrad.trace.values.tracer import Tracer

if TYPE_CHECKING:
    from tracegrad.typing import Array


# Names of the parameters that are iterables of numbers.
_DATA = ("data", "x", "y", "weights")


class _UseInterpreter(Exception):
    """Raised to let Python compute the result."""


def _require(condition: object) -> None:
    """Let Python compute the result, or raise its error, unless this condition holds."""
    if not holds(condition):
        raise _UseInterpreter


class _Column:
    """Numbers as an array, with Python's conversion of results."""

    def __init__(self, data: Any):
        kinds = {np.float64} if isinstance(data, Tracer) else {_kind_of(x) for x in data}
        plain = not isinstance(data, Tracer) or (len(data.shape) == 1 and data.dtype == np.float64)
        if not plain or not kinds <= {float, int, np.float64} or kinds <= {int}:
            raise _UseInterpreter
        self.one: Callable[[Any], Any] = _scalar if np.float64 in kinds else number
        self._alike = len(kinds) == 1
        self.x: Any = data if isinstance(data, Tracer) else array(data)
        self.n = len(self.x)
        _require(self.n > 0)

    @functools.cached_property
    def sorted(self) -> Any:
        if not self._alike:  # the class depends on the order
            raise _UseInterpreter
        result: Any = np.sort(self.x)
        _require(np.isfinite(result[-1]))  # nan is sorted to the end too
        return result

    def mean(self) -> Any:
        """The mean, including the rounding error of the sum."""
        near = np.mean(self.x)
        return near + np.mean(self.x - near)


def _kind_of(x: object) -> Any:
    if isinstance(x, Tracer):
        whole = {"f": float, "i": int}.get(x.dtype.kind)
        return whole if x.weak else None if x.shape or x.is_array or x.dtype != np.float64 else np.float64
    return type(x)


def _scalar(x: Array) -> Any:
    return x[()]


def _of_products(x: _Column, y: _Column) -> Callable[[Any], Any]:
    """The conversion of a sum of products: since Python 3.12, `math.sumprod` makes it, and has the class of NumPy."""
    return _scalar if hasattr(math, "sumprod") and _scalar in (x.one, y.one) else number


def _mean(data: _Column) -> Any:
    return data.one(data.mean())


def _fmean(data: _Column, weights: Any = None) -> Any:
    if weights is None:
        return number(data.mean())
    _require(weights.n == data.n)
    _require(np.sum(weights.x) != 0.0)
    return _of_products(data, weights)(np.sum(data.x * weights.x) / np.sum(weights.x))


def _geometric_mean(data: _Column) -> Any:
    _require(np.all(data.x > 0.0))
    return number(np.exp(np.mean(np.log(data.x))))


def _harmonic_mean(data: _Column, weights: Any = None) -> Any:
    _require(np.all(data.x > 0.0))
    if weights is None:
        return data.one(data.n / np.sum(1.0 / data.x) if data.n > 1 else data.x[0])
    _require(weights.n == data.n and np.all(weights.x > 0.0))
    return data.one(np.sum(weights.x) / np.sum(weights.x / data.x))


def _median(data: _Column) -> Any:
    low, high = data.sorted[(data.n - 1) // 2], data.sorted[data.n // 2]
    return data.one((low + high) / 2 if data.n % 2 == 0 else high)


def _median_low(data: _Column) -> Any:
    return data.one(data.sorted[(data.n - 1) // 2])


def _median_high(data: _Column) -> Any:
    return data.one(data.sorted[data.n // 2])


def _quantiles(data: _Column, n: int = 4, method: str = "exclusive") -> list[Array]:
    x, of_data, result = data.sorted, data.n, []
    _require(type(n) is int and n > 0 and of_data > 1 and method in ("inclusive", "exclusive"))
    for i in range(1, n):
        if method == "inclusive":
            j, remainder = divmod(i * (of_data - 1), n)
        else:
            j = min(max(i * (of_data + 1) // n, 1), of_data - 1)
            j, remainder = j - 1, i * (of_data + 1) - j * n
        result.append(data.one((x[j] * (n - remainder) + x[j + 1] * remainder) / n))
    return result


def _moment(data: _Column, center: object, ddof: int) -> Any:
    _require(data.n > ddof)
    return np.var(data.x, ddof=ddof) if center is None else np.sum((data.x - center) ** 2) / (data.n - ddof)


def _spread(data: _Column, center: object, ddof: int) -> Any:
    _require(data.n > ddof)
    return number(np.std(data.x, ddof=ddof) if center is None else np.sqrt(_moment(data, center, ddof)))


def _variance(data: _Column, xbar: object = None) -> Any:
    return data.one(_moment(data, xbar, 1))


def _pvariance(data: _Column, mu: object = None) -> Any:
    return data.one(_moment(data, mu, 0))


def _stdev(data: _Column, xbar: object = None) -> Any:
    return _spread(data, xbar, 1)


def _pstdev(data: _Column, mu: object = None) -> Any:
    return _spread(data, mu, 0)


def _deviations(x: _Column, y: _Column) -> tuple[Array, ...]:
    _require(x.n == y.n > 1)
    return x.x - x.mean(), y.x - y.mean()


def _covariance(x: _Column, y: _Column) -> Any:
    dx, dy = _deviations(x, y)
    return _of_products(x, y)(np.sum(dx * dy) / (x.n - 1))


def _correlation(x: _Column, y: _Column, method: str = "linear") -> Any:
    _require(method == "linear")
    dx, dy = _deviations(x, y)
    size = np.sqrt(np.sum(dx * dx) * np.sum(dy * dy))
    _require(size > 0.0)
    return _of_products(x, y)(np.sum(dx * dy) / size)


def _linear_regression(x: _Column, y: _Column, proportional: bool = False) -> object:
    dx, dy = (x.x, y.x) if proportional else _deviations(x, y)
    _require(x.n == y.n > 1)
    square = np.sum(dx * dx)
    _require(square > 0.0)
    derivative = np.sum(dx * dy) / square
    converted = _of_products(x, y)
    intercept = 0.0 if proportional else converted(y.mean() - derivative * x.mean())
    result: Any = sys.modules["statistics"].LinearRegression
    return result(slope=converted(derivative), intercept=intercept)


_FORMULAS: dict[str, Callable[..., Any]] = {
    f.__name__[1:]: f
    for f in (
        _correlation,
        _covariance,
        _fmean,
        _geometric_mean,
        _harmonic_mean,
        _linear_regression,
        _mean,
        _median,
        _median_high,
        _median_low,
        _pstdev,
        _pvariance,
        _quantiles,
        _stdev,
        _variance,
    )
}


def average(real: FunctionType) -> Callable[..., object]:
    """The traced version of a function of `statistics`."""
    formula, by_value = _FORMULAS.get(real.__name__), valued(real)
    signature = inspect.signature(real)

    @functools.wraps(real)
    def call(*args: object, **kwargs: object) -> Any:
        inputs = signature.bind(*args, **kwargs)  # raises Python's TypeError
        known = inputs.arguments
        known.update({k: _listed(x) for k, x in known.items() if k in _DATA})
        if formula is not None and any(map(_is_traced, known.values())):
            try:
                result = formula(**{k: _Column(x) if k in _DATA and x is not None else x for k, x in known.items()})
                _require(_all_finite(result))
            except _UseInterpreter:
                pass
            else:
                return result
        return by_value(*inputs.args, **inputs.kwargs)

    return call


def _listed(x: object) -> Any:
    """The numbers of an iterable, as a sequence that can be read repeatedly."""
    return x if isinstance(x, Tracer | np.ndarray | list | tuple) or not hasattr(x, "__iter__") else list(x)


def _is_traced(x: object) -> bool:
    return isinstance(x, Tracer) or (isinstance(x, list | tuple) and any(isinstance(each, Tracer) for each in x))


def _all_finite(result: object) -> Any:
    values = result if isinstance(result, list | tuple) else [result]
    finite: Any = True
    for x in values:
        finite = ops.logical_and(finite, ops.isfinite(x)) if isinstance(x, Tracer) else finite
    return finite
