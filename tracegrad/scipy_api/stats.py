"""`scipy.stats`: distributions, and those with their parameters fixed ("frozen"), in traced code.

`scipy.stats.norm` is an object, whose methods compute in C: traced code gets a `Distribution` in its place, and what
that is called with, a `Frozen`. They have SciPy's own methods where nothing that is traced is among the arguments.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad.avals import is_literal
from tracegrad.errors import UnsupportedError, located
from tracegrad.numpy_api.operands import operands, to_float
from tracegrad.numpy_api.registry import refuse
from tracegrad.ops.op import lead
from tracegrad.scipy_api.densities import CONTINUOUS, DISCRETE, Row
from tracegrad.scipy_api.registry import stands_for
from tracegrad.scipy_api.vectors import VECTORS

__all__ = ["Distribution", "Frozen"]


class Distribution:
    """Stands for a distribution of SciPy's."""

    def __init__(self, real: Any, name: str):
        self._real, self._name = real, name
        self.__name__ = name

    def __getattr__(self, method: str) -> Any:
        if method == "rvs":
            name = f"scipy.stats.{self._name}.rvs in a traced function"
            text = f"{name} would be drawn once and recorded as a constant; draw outside and pass the array"
            raise UnsupportedError(located(text))
        found = getattr(self._real, method)
        if not callable(found):
            return found
        ours = _methods(self._name).get(method)

        def call(*args: Any, **kwargs: Any) -> Any:
            if lead((*args, *kwargs.values())) is None:
                return found(*args, **kwargs)
            if ours is None:
                raise refuse(f"scipy.stats.{self._name}.{method}")
            made = ours(*args, **kwargs)
            return made if made.shape else made[()]  # a number, as SciPy gives for one

        return call

    def __call__(self, *args: Any, **kwargs: Any) -> Frozen:
        return Frozen(self, args, kwargs)

    freeze = __call__


class Frozen:
    """Stands for a distribution with its parameters."""

    def __init__(self, dist: Distribution, args: tuple[Any, ...], kwds: dict[str, Any], outside: Any = None):
        self.dist, self.args, self.kwds, self._outside = dist, args, kwds, outside

    def __getattr__(self, method: str) -> Any:
        if method == "rvs" and self._outside is not None:
            self._outside.whole()  # which includes the generator of random numbers
            return self._outside.value.rvs
        found = getattr(self.dist, method)
        if not callable(found):
            return found
        return lambda *xs: found(*xs, *self.args, **self.kwds)


def _methods(name: str) -> dict[str, Callable[..., Any]]:
    if name in VECTORS:
        return VECTORS[name]
    row = CONTINUOUS.get(name) or DISCRETE.get(name)
    return {} if row is None else _of_row(row, name, name in DISCRETE)


def _of_row(row: Row, name: str, discrete: bool) -> dict[str, Callable[..., Any]]:
    density = "pmf" if discrete else "pdf"
    found = {
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
    return {method: _bound(of, count, name) for method, (known, of) in found.items() if known is not None}


def _log_of(function: Any) -> Callable[..., Any]:
    return lambda *xs: np.log(function(*xs))


_NAMES = {
    "t": ("df",), "chi2": ("df",), "gamma": ("a",), "invgamma": ("a",), "beta": ("a", "b"), "lognorm": ("s",),
    "f": ("dfn", "dfd"), "weibull_min": ("c",), "pareto": ("b",), "poisson": ("mu",), "binom": ("n", "p"),
    "bernoulli": ("p",), "nbinom": ("n", "p"), "geom": ("p",),
}  # fmt: skip


def _bound(of: Any, count: int, name: str) -> Callable[..., Any]:
    """`of(x, shapes, loc, scale)` with SciPy's signature: the parameters of the shape, then location and scale."""
    names = (*_NAMES.get(name, ()), "loc", *(() if name in DISCRETE else ("scale",)))
    defaults = {"loc": 0.0, "scale": 1.0}

    def call(x: Any, *args: Any, **kwargs: Any) -> Any:
        given = {**defaults, **dict(zip(names, args)), **kwargs}
        unknown = [k for k in given if k not in (*names, "scale")]
        if unknown or len(args) > len(names) or any(k not in given for k in names):
            raise TypeError(f"scipy.stats.{name} takes {', '.join(names)}, got {len(args)} arguments and {[*kwargs]}")
        x, loc, scale, *shapes = [to_float(v) for v in operands(x, given["loc"], given["scale"],
                                                                *[given[k] for k in names[:count]])]  # fmt: skip
        return of(x, shapes, loc, scale)

    return call


def _is_known_positive(x: Any) -> bool:
    return is_literal(x) and x > 0


def _checked(found: Any, row: Row, shapes: list[Any], scale: Any) -> Any:
    """nan where a parameter is none."""
    for i, x in enumerate([scale, *shapes]):
        if not _is_known_positive(x):
            fits = x >= 0 if i and i <= len(row.signs) and row.signs[i - 1] else x > 0
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
        found = row.log(z if outside is None else np.where(outside, _inside(row), z), *shapes)
        if outside is not None:
            found = np.where(outside, -math.inf, found)
        if not _is_one(scale):
            found = found - np.log(scale)
        found = _checked(found, row, shapes, scale)
        return found if self.outer is None else self.outer(found)

    def _outside(self, z: Any, shapes: list[Any]) -> Any:
        row = self.row
        bounds = [z <= row.low if row.open else z < row.low] if row.low > -math.inf else []
        bounds += [z > row.high] if row.high < math.inf else []
        if self.discrete:
            bounds.append(np.floor(z) != z)
            if len(row.signs) == 2:
                bounds.append(z > shapes[0])  # more than there are
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
        under, over = z < row.low, z > row.high
        # An end is inside: there the function has its limit, and its slope.
        safe = np.where(under | over, _inside(row), z)
        if not self.discrete and row.low > -math.inf:
            start = z == row.low
            under, safe = under | start, np.where(start, _inside(row), safe)
        found = np.where(under, self.below, np.where(over, self.above, self.function(safe, *shapes)))
        return _checked(found, row, shapes, scale)


class _Inverse:
    def __init__(self, row: Row, function: Any):
        self.row, self.function = row, function

    def __call__(self, q: Any, shapes: list[Any], loc: Any, scale: Any) -> Any:
        outside = (q < 0) | (q > 1)
        found = np.where(outside, math.nan, self.function(np.where(outside, 0.5, q), *shapes))
        return _checked(found * scale + loc, self.row, shapes, scale)


# -- which objects they stand for ----------------------------------------------------------------------------------
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
        # What is frozen is a copy of the distribution, which keeps its name.
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
    """The name of a distribution of SciPy's, which may be another one of the same class; "" for others."""
    usual = type(dist).__name__.removesuffix("_gen")
    return usual if known.get(usual) is dist else next((k for k, x in known.items() if x is dist), "")
