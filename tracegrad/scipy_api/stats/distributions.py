"""Distribution objects of `scipy.stats`, frozen and not, in traced code.

`scipy.stats.norm` is an object whose methods compute in C. Traced code receives a `Distribution` instead; calling
it returns a `Frozen`. Without traced arguments, both call SciPy's own methods.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad.avals import is_literal
from tracegrad.errors import UnsupportedError, located
from tracegrad.numpy_api.operands import arrays, operands, to_dtype, to_float
from tracegrad.numpy_api.registry import refuse
from tracegrad.ops.core.op import lead
from tracegrad.scipy_api.registry import stands_for
from tracegrad.scipy_api.stats.moments import MOMENTS
from tracegrad.scipy_api.stats.multivariate import VECTORS
from tracegrad.scipy_api.stats.univariate import CONTINUOUS, DISCRETE, Row

__all__ = ["Distribution", "Frozen"]


class Distribution:
    """Replacement of a SciPy distribution."""

    def __init__(self, real: Any, name: str):
        self._real, self._name = real, name
        self.__name__ = name

    def __getattr__(self, method: str) -> Any:
        if method == "rvs":
            name = f"scipy.stats.{self._name}.rvs in a traced function"
            text = f"{name} would be drawn once and recorded as a constant; draw outside and pass the array"
            raise UnsupportedError(located(text))
        result = getattr(self._real, method)
        if not callable(result):
            return result
        ours = _methods(self._name).get(method)

        def call(*args: Any, **kwargs: Any) -> Any:
            if lead((*args, *kwargs.values())) is None:
                return result(*args, **kwargs)
            if ours is None:
                raise refuse(f"scipy.stats.{self._name}.{method}")
            return _numbers(ours(*args, **kwargs))

        return call

    def __call__(self, *args: Any, **kwargs: Any) -> Frozen:
        return Frozen(self, args, kwargs)

    freeze = __call__


def _numbers(result: Any) -> Any:
    """Convert the result of a method to numbers where SciPy returns numbers."""
    if isinstance(result, tuple):
        return tuple(map(_numbers, result))
    if getattr(result, "weak", False):  # a Python number
        return np.positive(result)
    return result if result.shape else result[()]


class Frozen:
    """Replacement of a frozen distribution."""

    def __init__(self, dist: Distribution, args: tuple[Any, ...], kwds: dict[str, Any], outside: Any = None):
        self.dist, self.args, self.kwds, self._outside = dist, args, kwds, outside

    def __getattr__(self, method: str) -> Any:
        if method == "rvs" and self._outside is not None:
            self._outside.whole()  # guard the random generator too
            return self._outside.value.rvs
        result = getattr(self.dist, method)
        if not callable(result):
            return result
        return lambda *xs, **named: result(*xs, *self.args, **self.kwds, **named)


def _methods(name: str) -> dict[str, Callable[..., Any]]:
    if name in VECTORS:
        return VECTORS[name]
    row = CONTINUOUS.get(name) or DISCRETE.get(name)
    return {} if row is None else _of_row(row, name, name in DISCRETE)


def _of_row(row: Row, name: str, discrete: bool) -> dict[str, Callable[..., Any]]:
    density = "pmf" if discrete else "pdf"
    table = {
        f"log{density}": (row.log, _Density(row, discrete)),
        density: (row.log, _Density(row, discrete, np.exp)),
        "cdf": (row.cdf, _Cumulative(row, discrete, row.cdf, 0.0, 1.0)),
        "sf": (row.sf, _Cumulative(row, discrete, row.sf, 1.0, 0.0)),
        "logcdf": (row.cdf, _Cumulative(row, discrete, row.logcdf or _log_of(row.cdf), -math.inf, 0.0)),
        "logsf": (row.sf, _Cumulative(row, discrete, row.logsf or _log_of(row.sf), 0.0, -math.inf)),
        "ppf": (row.ppf, _Inverse(row, row.ppf)),
        "isf": (row.isf, _Inverse(row, row.isf)),
    }
    count = len(inspect.signature(row.log).parameters) - 1
    own = {method: _bound(of, count, name, method) for method, (known, of) in table.items() if known is not None}
    return own | _of_moments(row, count, name, own)


def _log_of(function: Any) -> Callable[..., Any]:
    return lambda *xs: np.log(function(*xs))


_NAMES = {
    "t": ("df",), "chi2": ("df",), "gamma": ("a",), "invgamma": ("a",), "beta": ("a", "b"), "lognorm": ("s",),
    "f": ("dfn", "dfd"), "weibull_min": ("c",), "pareto": ("b",), "poisson": ("mu",), "binom": ("n", "p"),
    "bernoulli": ("p",), "nbinom": ("n", "p"), "geom": ("p",),
}  # fmt: skip


def _parameters(name: str, count: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the shape parameters, location and scale by name."""
    names = (*_NAMES.get(name, ()), "loc", *(() if name in DISCRETE else ("scale",)))
    options = {"loc": 0.0, "scale": 1.0, **dict(zip(names, args)), **kwargs}
    unknown = [k for k in options if k not in (*names, "scale")]
    if unknown or len(args) > len(names) or any(k not in options for k in names):
        raise TypeError(f"scipy.stats.{name} takes {', '.join(names)}, got {len(args)} arguments and {[*kwargs]}")
    return options


def _doubles(*xs: Any) -> list[Any]:
    """Convert numbers of any dtype to float64, in which SciPy computes."""
    return [v if is_literal(v) else to_dtype(v, np.dtype(np.float64)) for v in map(to_float, operands(*xs))]


def _bound(of: Any, count: int, name: str, method: str) -> Callable[..., Any]:
    """Wrap `of(x, shapes, loc, scale)` with SciPy's signature: shape parameters, then location and scale."""
    first = "q" if method in ("ppf", "isf") else "k" if name in DISCRETE else "x"

    def call(*args: Any, **kwargs: Any) -> Any:
        if not args or first in kwargs:
            args = (kwargs.pop(first), *args)
        x, *rest = args
        inputs = _parameters(name, count, tuple(rest), kwargs)
        shapes = [inputs[k] for k in _NAMES.get(name, ())[:count]]
        x, loc, scale, *shapes = _doubles(x, inputs["loc"], inputs["scale"], *shapes)
        return of(x, shapes, loc, scale)

    return call


def _of_moments(row: Row, count: int, name: str, own: dict[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """Return the methods without a point: moments, the entropy, the median, and the interval around it."""
    mean, var, entropy = MOMENTS[name]

    def moment(of: Callable[..., Any], outer: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            inputs = _parameters(name, count, args, kwargs)
            shapes = [inputs[k] for k in _NAMES.get(name, ())[:count]]
            loc, scale, *shapes = _doubles(inputs["loc"], inputs["scale"], *shapes)
            (result,) = arrays(outer(of(*shapes), loc, scale))
            return _checked(result, row, shapes, scale)

        return call

    def stats(*args: Any, moments: str = "mv", **kwargs: Any) -> Any:
        if set(moments) - {"m", "v"}:
            raise refuse(f"scipy.stats.{name}.stats with moments={moments!r}")
        both = {"m": table["mean"], "v": table["var"]}
        each = tuple([both[k](*args, **kwargs) for k in "mv" if k in moments])
        return each if len(each) > 1 else each[0]

    def interval(confidence: Any, *args: Any, **kwargs: Any) -> Any:
        below = 0.5 * (1.0 - confidence)
        return own["ppf"](below, *args, **kwargs), own["ppf"](1.0 - below, *args, **kwargs)

    table = {
        "mean": moment(mean, lambda m, loc, scale: m * scale + loc),
        "var": moment(var, lambda v, loc, scale: v * scale * scale + 0.0 * loc),
        "std": moment(var, lambda v, loc, scale: np.sqrt(v) * scale + 0.0 * loc),
        "stats": stats,
    }
    if entropy is not None:
        table["entropy"] = moment(entropy, lambda h, loc, scale: h + np.log(scale) + 0.0 * loc)
    if "ppf" in own:
        table |= {"median": lambda *args, **kwargs: own["ppf"](0.5, *args, **kwargs), "interval": interval}
    return table


def _fits(x: Any, row: Row, i: int) -> Any:
    """Whether `x` is valid as the shape parameter number `i`, or as a scale (-1)."""
    inside = x >= 0 if 0 <= i < len(row.signs) and row.signs[i] else x > 0
    if 0 <= i < len(row.most) and row.most[i] < math.inf:
        inside = inside & (x <= row.most[i])
    if 0 <= i < len(row.whole) and row.whole[i]:
        inside = inside & (np.floor(x) == x)
    return inside


def _checked(found: Any, row: Row, shapes: list[Any], scale: Any) -> Any:
    """Replace results with invalid parameters by nan."""
    for i, x in enumerate([scale, *shapes], -1):
        fits = _fits(x, row, i)
        if not (is_literal(x) and fits):
            found = np.where(fits, found, math.nan)
    return found


def _is_one(x: Any) -> bool:
    return is_literal(x) and x == 1


def _standard(x: Any, loc: Any, scale: Any) -> Any:
    moved = x if is_literal(loc) and loc == 0 else x - loc
    return moved if _is_one(scale) else moved / scale


def _inside(row: Row) -> float:
    return 0.5 if row.high == 1.0 else row.low + 1.0 if row.low > -math.inf else 0.0


class _Density:
    def __init__(self, row: Row, discrete: bool, outer: Any = None):
        self.row, self.discrete, self.outer = row, discrete, outer

    def __call__(self, x: Any, shapes: list[Any], loc: Any, scale: Any) -> Any:
        row, z = self.row, _standard(x, loc, scale)
        outside = self._outside(z, shapes)
        safe = z if outside is None else np.where(outside, _inside(row), z)
        result = row.log(safe, *shapes)
        if self.outer is not None:
            result = self._by_powers(safe, shapes, result)
            result = result if outside is None else np.where(outside, 0.0, result)
            return _checked(result if _is_one(scale) else result / scale, row, shapes, scale)
        if outside is not None:
            result = np.where(outside, -math.inf, result)
        if row.open:  # log(0) at `low`, with its infinite derivative
            start = z == row.low
            result = np.where(start, np.log(np.where(start, z - row.low, 1.0)), result)
        if not _is_one(scale):
            result = result - np.log(scale)
        return _checked(result, row, shapes, scale)

    def _by_powers(self, z: Any, shapes: list[Any], log: Any) -> Any:
        """Compute the density by its factors if one is 0 or infinite and the logarithm has no derivatives."""
        if self.row.powers is None:
            return self.outer(log)
        end = np.isinf(log)
        first = np.where(end, z, _inside(self.row))
        return np.where(end, self.row.powers(first, *shapes), self.outer(np.where(end, 0.0, log)))

    def _outside(self, z: Any, shapes: list[Any]) -> Any:
        row = self.row
        bounds = [z <= row.low if row.open else z < row.low] if row.low > -math.inf else []
        bounds += [z > row.high] if row.high < math.inf else []
        if self.discrete:
            bounds.append(np.floor(z) != z)
            if len(row.signs) == 2:
                bounds.append(z > shapes[0])  # more successes than trials
        elif self.outer is not None:  # the density 0 times an infinite derivative of the logarithm would be nan
            bounds += [z == end for end in (-math.inf, math.inf) if row.low <= end <= row.high]
        outside: Any = None
        for each in bounds:
            outside = each if outside is None else outside | each
        return outside


class _Cumulative:
    def __init__(self, row: Row, discrete: bool, function: Any, below: float, above: float):
        self.row, self.discrete, self.function, self.below, self.above = row, discrete, function, below, above

    def __call__(self, x: Any, shapes: list[Any], loc: Any, scale: Any) -> Any:
        row, z = self.row, _standard(x, loc, scale)
        z = np.floor(z) if self.discrete else z
        under, over = self._ends(z)
        # The ends count as inside: the function has its limit and its derivative there.
        safe = np.where(under | over, _inside(row), z)
        start = z == row.low if not self.discrete and row.low > -math.inf else None
        if start is not None:
            under, safe = under | start, np.where(start, _inside(row), safe)
        result = np.where(under, self.below, np.where(over, self.above, self.function(safe, *shapes)))
        if start is not None and self.below == -math.inf:  # the logarithm rises from -inf there
            result = np.where(start, np.log(np.where(start, z - row.low, 1.0)), result)
        return _checked(result, row, shapes, scale)

    def _ends(self, z: Any) -> tuple[Any, Any]:
        """Return the mask of z outside the support, with infinite ends if the function is finite there."""
        row = self.row
        under = z <= row.low if row.low == -math.inf < self.below else z < row.low
        return under, z >= row.high if row.high == math.inf and self.above > -math.inf else z > row.high


class _Inverse:
    def __init__(self, row: Row, function: Any):
        self.row, self.function = row, function

    def __call__(self, q: Any, shapes: list[Any], loc: Any, scale: Any) -> Any:
        outside = (q < 0) | (q > 1)
        result = np.where(outside, math.nan, self.function(np.where(outside, 0.5, q), *shapes))
        return _checked(result * scale + loc, self.row, shapes, scale)


# -- replacements of SciPy's objects -------------------------------------------------------------------------------
@stands_for("scipy.stats")
def _of_stats(value: Any, read: Any) -> Any:
    import scipy.stats

    cls = type(value).__name__
    if cls.endswith("_gen"):
        name = _name(value, vars(scipy.stats))
        return Distribution(value, name) if name else None
    if read is None:
        return None
    if cls in ("rv_continuous_frozen", "rv_discrete_frozen"):
        # A frozen distribution has a copy of the distribution, with the same name.
        dist = getattr(scipy.stats, value.dist.name, None)
        return Frozen(Distribution(dist, value.dist.name), read("args"), read("kwds"), read) if dist else None
    if cls == "multivariate_normal_frozen":
        dist = Distribution(scipy.stats.multivariate_normal, "multivariate_normal")
        return Frozen(dist, (read("mean"), read("cov")), {}, read)
    if cls == "dirichlet_frozen":
        return Frozen(Distribution(scipy.stats.dirichlet, "dirichlet"), (read("alpha"),), {}, read)
    if cls == "multinomial_frozen":
        return Frozen(Distribution(scipy.stats.multinomial, "multinomial"), (read("n"), read("p")), {}, read)
    return None


def _name(dist: Any, known: dict[str, Any]) -> str:
    """Return the name of a SciPy distribution, possibly of another instance of its class; "" for others."""
    usual = type(dist).__name__.removesuffix("_gen")
    return usual if known.get(usual) is dist else next((k for k, x in known.items() if x is dist), "")
