"""Distribution objects of `scipy.stats`, frozen and not, in traced code.

`scipy.stats.norm` is an object whose methods compute in C. Traced code receives a `TracedDistribution` instead; calling
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
from tracegrad.ops.core.op import dispatch_operand
from tracegrad.scipy_api.registry import replaces_objects
from tracegrad.scipy_api.stats.moments import MOMENTS
from tracegrad.scipy_api.stats.multivariate import VECTORS
from tracegrad.scipy_api.stats.univariate import CONTINUOUS, DISCRETE, Law
from tracegrad.typing import Array, ArrayLike, Number


class TracedDistribution:
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
        replacement = _methods(self._name).get(method)

        def call(*args: object, **kwargs: object) -> object:
            if dispatch_operand((*args, *kwargs.values())) is None:
                return result(*args, **kwargs)
            if replacement is None:
                raise refuse(f"scipy.stats.{self._name}.{method}")
            return _numbers(replacement(*args, **kwargs))

        return call

    def __call__(self, *args: object, **kwargs: object) -> Frozen:
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

    def __init__(self, dist: TracedDistribution, args: tuple[Any, ...], kwds: dict[str, Any], outside: Any = None):
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
    law = CONTINUOUS.get(name) or DISCRETE.get(name)
    return {} if law is None else _methods_of_law(law, name, name in DISCRETE)


def _methods_of_law(law: Law, name: str, discrete: bool) -> dict[str, Callable[..., Any]]:
    density = "pmf" if discrete else "pdf"
    table = {
        f"log{density}": (law.log, _Density(law, discrete)),
        density: (law.log, _Density(law, discrete, np.exp)),
        "cdf": (law.cdf, _Cumulative(law, discrete, law.cdf, 0.0, 1.0)),
        "sf": (law.sf, _Cumulative(law, discrete, law.sf, 1.0, 0.0)),
        "logcdf": (law.cdf, _Cumulative(law, discrete, law.logcdf or _log_of(law.cdf), -math.inf, 0.0)),
        "logsf": (law.sf, _Cumulative(law, discrete, law.logsf or _log_of(law.sf), 0.0, -math.inf)),
        "ppf": (law.ppf, _Inverse(law, law.ppf)),
        "isf": (law.isf, _Inverse(law, law.isf)),
    }
    count = len(inspect.signature(law.log).parameters) - 1
    methods = {method: _bound(of, count, name, method) for method, (known, of) in table.items() if known is not None}
    return methods | _moment_methods(law, count, name, methods)


def _log_of(function: Callable[..., Array] | None) -> Callable[..., Array] | None:
    return function and (lambda *xs: np.log(function(*xs)))


_NAMES = {
    "t": ("df",),
    "chi2": ("df",),
    "gamma": ("a",),
    "invgamma": ("a",),
    "beta": ("a", "b"),
    "lognorm": ("s",),
    "f": ("dfn", "dfd"),
    "weibull_min": ("c",),
    "pareto": ("b",),
    "poisson": ("mu",),
    "binom": ("n", "p"),
    "bernoulli": ("p",),
    "nbinom": ("n", "p"),
    "geom": ("p",),
}


def _parameters(name: str, count: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the shape parameters, location and scale by name."""
    names = (*_NAMES.get(name, ()), "loc", *(() if name in DISCRETE else ("scale",)))
    options = {"loc": 0.0, "scale": 1.0, **dict(zip(names, args)), **kwargs}
    unknown = [k for k in options if k not in (*names, "scale")]
    if unknown or len(args) > len(names) or any(k not in options for k in names):
        raise TypeError(f"scipy.stats.{name} takes {', '.join(names)}, got {len(args)} arguments and {[*kwargs]}")
    return options


def _doubles(*xs: ArrayLike) -> list[Any]:
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


def _moment_methods(
    law: Law, count: int, name: str, methods: dict[str, Callable[..., Any]]
) -> dict[str, Callable[..., Any]]:
    """Return the methods without a point: moments, the entropy, the median, and the interval around it."""
    mean, var, entropy = MOMENTS[name]

    def moment(of: Callable[..., Any], outer: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            inputs = _parameters(name, count, args, kwargs)
            shapes = [inputs[k] for k in _NAMES.get(name, ())[:count]]
            loc, scale, *shapes = _doubles(inputs["loc"], inputs["scale"], *shapes)
            (result,) = arrays(outer(of(*shapes), loc, scale))
            return _checked(result, law, shapes, scale)

        return call

    def stats(*args: Any, moments: str = "mv", **kwargs: Any) -> Any:
        if set(moments) - {"m", "v"}:
            raise refuse(f"scipy.stats.{name}.stats with moments={moments!r}")
        both = {"m": table["mean"], "v": table["var"]}
        each = tuple([both[k](*args, **kwargs) for k in "mv" if k in moments])
        return each if len(each) > 1 else each[0]

    def interval(confidence: Any, *args: Any, **kwargs: Any) -> Any:
        below = 0.5 * (1.0 - confidence)
        return methods["ppf"](below, *args, **kwargs), methods["ppf"](1.0 - below, *args, **kwargs)

    table = {
        "mean": moment(mean, lambda m, loc, scale: m * scale + loc),
        "var": moment(var, lambda v, loc, scale: v * scale * scale + 0.0 * loc),
        "std": moment(var, lambda v, loc, scale: np.sqrt(v) * scale + 0.0 * loc),
        "stats": stats,
    }
    if entropy is not None:
        table["entropy"] = moment(entropy, lambda h, loc, scale: h + np.log(scale) + 0.0 * loc)
    if "ppf" in methods:
        table |= {"median": lambda *args, **kwargs: methods["ppf"](0.5, *args, **kwargs), "interval": interval}
    return table


def _fits(x: Array, law: Law, i: int) -> Array:
    """Whether `x` is valid as the shape parameter number `i`, or as a scale (-1)."""
    inside = x >= 0 if 0 <= i < len(law.signs) and law.signs[i] else x > 0
    if 0 <= i < len(law.max_values) and law.max_values[i] < math.inf:
        inside = inside & (x <= law.max_values[i])
    if 0 <= i < len(law.whole) and law.whole[i]:
        inside = inside & (np.floor(x) == x)
    return inside


def _checked(result: Array, law: Law, shapes: list[Any], scale: Any) -> Any:
    """Replace results with invalid parameters by nan."""
    for i, x in enumerate([scale, *shapes], -1):
        fits = _fits(x, law, i)
        if not (is_literal(x) and fits):
            result = np.where(fits, result, math.nan)
    return result


def _is_one(x: Array | Number) -> bool:
    return is_literal(x) and x == 1


def _standard(x: Array, loc: Any, scale: Any) -> Any:
    moved = x if is_literal(loc) and loc == 0 else x - loc
    return moved if _is_one(scale) else moved / scale


def _inside(law: Law) -> float:
    return 0.5 if law.high == 1.0 else law.low + 1.0 if law.low > -math.inf else 0.0


class _Density:
    def __init__(self, law: Law, discrete: bool, outer: Any = None):
        self.law, self.discrete, self.outer = law, discrete, outer

    def __call__(self, x: Any, shapes: list[Any], loc: Any, scale: Any) -> Any:
        law, z = self.law, _standard(x, loc, scale)
        outside = self._outside(z, shapes)
        safe = z if outside is None else np.where(outside, _inside(law), z)
        result = law.log(safe, *shapes)
        if self.outer is not None:
            result = self._by_powers(safe, shapes, result)
            result = result if outside is None else np.where(outside, 0.0, result)
            return _checked(result if _is_one(scale) else result / scale, law, shapes, scale)
        if outside is not None:
            result = np.where(outside, -math.inf, result)
        if law.open:  # log(0) at `low`, with its infinite derivative
            start = z == law.low
            result = np.where(start, np.log(np.where(start, z - law.low, 1.0)), result)
        if not _is_one(scale):
            result = result - np.log(scale)
        return _checked(result, law, shapes, scale)

    def _by_powers(self, z: Any, shapes: list[Any], log: Any) -> Any:
        """Compute the density by its factors if one is 0 or infinite and the logarithm has no derivatives."""
        if self.law.powers is None:
            return self.outer(log)
        end = np.isinf(log)
        first = np.where(end, z, _inside(self.law))
        return np.where(end, self.law.powers(first, *shapes), self.outer(np.where(end, 0.0, log)))

    def _outside(self, z: Any, shapes: list[Any]) -> Any:
        law = self.law
        bounds = [z <= law.low if law.open else z < law.low] if law.low > -math.inf else []
        bounds += [z > law.high] if law.high < math.inf else []
        if self.discrete:
            bounds.append(np.floor(z) != z)
            if len(law.signs) == 2:
                bounds.append(z > shapes[0])  # more successes than trials
        elif self.outer is not None:  # the density 0 times an infinite derivative of the logarithm would be nan
            bounds += [z == end for end in (-math.inf, math.inf) if law.low <= end <= law.high]
        outside: Any = None
        for each in bounds:
            outside = each if outside is None else outside | each
        return outside


class _Cumulative:
    def __init__(self, law: Law, discrete: bool, function: Any, below: float, above: float):
        self.law, self.discrete, self.function, self.below, self.above = law, discrete, function, below, above

    def __call__(self, x: Array, shapes: list[Any], loc: Any, scale: Any) -> Any:
        law, z = self.law, _standard(x, loc, scale)
        z = np.floor(z) if self.discrete else z
        under, over = self._ends(z)
        # The ends count as inside: the function has its limit and its derivative there.
        safe = np.where(under | over, _inside(law), z)
        start = z == law.low if not self.discrete and law.low > -math.inf else None
        if start is not None:
            under, safe = under | start, np.where(start, _inside(law), safe)
        result = np.where(under, self.below, np.where(over, self.above, self.function(safe, *shapes)))
        if start is not None and self.below == -math.inf:  # the logarithm rises from -inf there
            result = np.where(start, np.log(np.where(start, z - law.low, 1.0)), result)
        return _checked(result, law, shapes, scale)

    def _ends(self, z: Array) -> tuple[Any, Any]:
        """Return the mask of z outside the support, with infinite ends if the function is finite there."""
        law = self.law
        under = z <= law.low if law.low == -math.inf < self.below else z < law.low
        return under, z >= law.high if law.high == math.inf and self.above > -math.inf else z > law.high


class _Inverse:
    def __init__(self, law: Law, function: Any):
        self.law, self.function = law, function

    def __call__(self, q: Array, shapes: list[Any], loc: Any, scale: Any) -> Any:
        outside = (q < 0) | (q > 1)
        result = np.where(outside, math.nan, self.function(np.where(outside, 0.5, q), *shapes))
        return _checked(result * scale + loc, self.law, shapes, scale)


# -- replacements of SciPy's objects -------------------------------------------------------------------------------
@replaces_objects("scipy.stats")
def _of_stats(value: Any, read: Any) -> TracedDistribution | Frozen | None:
    import scipy.stats

    cls = type(value).__name__
    if cls.endswith("_gen"):
        name = _name(value, vars(scipy.stats))
        return TracedDistribution(value, name) if name else None
    if read is None:
        return None
    if cls in ("rv_continuous_frozen", "rv_discrete_frozen"):
        # A frozen distribution has a copy of the distribution, with the same name.
        dist = getattr(scipy.stats, value.dist.name, None)
        return Frozen(TracedDistribution(dist, value.dist.name), read("args"), read("kwds"), read) if dist else None
    if cls == "multivariate_normal_frozen":
        dist = TracedDistribution(scipy.stats.multivariate_normal, "multivariate_normal")
        return Frozen(dist, (read("mean"), read("cov")), {}, read)
    if cls == "dirichlet_frozen":
        return Frozen(TracedDistribution(scipy.stats.dirichlet, "dirichlet"), (read("alpha"),), {}, read)
    if cls == "multinomial_frozen":
        return Frozen(TracedDistribution(scipy.stats.multinomial, "multinomial"), (read("n"), read("p")), {}, read)
    return None


def _name(dist: object, known: dict[str, object]) -> str:
    """Return the name of a SciPy distribution, possibly of another instance of its class; "" for others."""
    usual = type(dist).__name__.removesuffix("_gen")
    return usual if known.get(usual) is dist else next((k for k, x in known.items() if x is dist), "")
