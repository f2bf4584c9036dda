"""Measure the accuracy of values and derivatives: the largest error of each function over its range, in ulp.

`python -m benchmarks accuracy` writes the page for compiled code, eager code, and the installed peers. The true values
are mpmath's, in 60 digits. Rounding alone leaves half an ulp.
"""

from __future__ import annotations

import functools
import importlib
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import numpy as np
from mpmath import mp, mpf

import tracegrad as tg
from benchmarks import peers

__all__ = ["FUNCTIONS", "Error", "Function", "errors", "errors_at", "page", "points"]

Real = Callable[[Any], Any]


@dataclass(frozen=True)
class Function:
    """A function of one number as users call it, its true value and slope, where it is defined and where it bends, and
    what the peers call it, if they have it; `near` are such places, and roots. One with `poles` has them at all whole
    numbers.
    """

    call: Real
    value: Real
    derivative: Real
    low: float = -math.inf
    high: float = math.inf
    torch: str = ""
    jax: str = ""
    near: tuple[float, ...] = ()
    poles: bool = False
    params: dict[str, Any] = field(default_factory=dict)  # that PyTorch is given


def _normal(x: Any) -> Any:
    return mp.exp(-x * x / 2) / mp.sqrt(2 * mp.pi)


def _erfc(x: Any) -> Any:
    return mp.erfc(x) if abs(x) < 1000 else mpf(1 - mp.sign(x))


def _below(x: Any) -> Any:
    return _erfc(-x / mp.sqrt(2)) / 2


def _gate(x: Any) -> Any:
    return 1 / (1 + mp.exp(-x))


def _sinc_derivative(x: Any) -> Any:
    if x == 0:
        return mpf(0)
    if abs(x) < mpf(10) ** -15:
        return -(mp.pi**2) * x / 3
    return (mp.cospi(x) - mp.sinpi(x) / (mp.pi * x)) / x


def _log_below(x: Any) -> Any:
    if x > 0:
        return mp.log1p(-_below(-x))
    return mp.log(_below(x)) if x > -1000 else -x * x / 2 - mp.log(-x * mp.sqrt(2 * mp.pi)) + mp.log1p(_far(x))


def _hazard(x: Any) -> Any:
    return _normal(x) / _below(x) if x > -1000 else -x / (1 + _far(x))


def _far(x: Any) -> Any:
    """Of the asymptotic series of the tail of the normal distribution what is added to 1."""
    return mp.fsum((-1) ** k * mp.fac2(2 * k - 1) / mp.power(x, 2 * k) for k in range(1, 13))


def _cubic(x: Any) -> Any:
    """Twice the argument of the hyperbolic tangent in the approximation of gelu."""
    return 2 * mp.sqrt(2 / mp.pi) * x * (1 + mpf("0.044715") * x * x)


def _cubic_gate_derivative(x: Any) -> Any:
    return _gate(_cubic(x)) * (1 + (3 * _cubic(x) - 4 * mp.sqrt(2 / mp.pi) * x) * _gate(-_cubic(x)))


def _special(name: str) -> Any:
    import scipy.special

    return lambda x: getattr(scipy.special, name)(x)


def _functional(name: str, **params: Any) -> Any:
    import tracegrad.torch.nn.functional as functional

    return lambda x: getattr(functional, name)(x, **params)


LOWEST = 1.4616321449683623  # where gamma has its minimum
SINC_LOWEST = (1.4302966531242027, 2.459024032956761, 17.49420894051568)  # roots of its slope
LEFT_LOWEST = (-0.5040830082644554, -1.5734984731623904, -2.6107208684441447, -16.734356723955734)
# Roots of gammaln.
LEFT_ROOTS = (
    -2.4570247382208006,
    -2.7476826467274127,
    -3.14358088834998,
    -3.955294284858598,
    -5.998607480080875,
)  # of gammaln

FUNCTIONS = {
    "exp": Function(np.exp, mp.exp, mp.exp, torch="exp", jax="numpy.exp"),
    "exp2": Function(np.exp2, lambda x: mpf(2) ** x, lambda x: mpf(2) ** x * mp.log(2), torch="exp2", jax="numpy.exp2"),
    "expm1": Function(np.expm1, mp.expm1, mp.exp, torch="expm1", jax="numpy.expm1"),
    "log": Function(np.log, mp.log, lambda x: 1 / x, 0, near=(1,), torch="log", jax="numpy.log"),
    "log2": Function(
        np.log2,
        lambda x: mp.log(x) / mp.log(2),
        lambda x: 1 / x / mp.log(2),
        0,
        near=(1,),
        torch="log2",
        jax="numpy.log2",
    ),
    "log10": Function(np.log10, mp.log10, lambda x: 1 / x / mp.log(10), 0, near=(1,), torch="log10", jax="numpy.log10"),
    "log1p": Function(np.log1p, mp.log1p, lambda x: 1 / (1 + x), -1, near=(-1,), torch="log1p", jax="numpy.log1p"),
    "sqrt": Function(np.sqrt, mp.sqrt, lambda x: 1 / (2 * mp.sqrt(x)), 0, torch="sqrt", jax="numpy.sqrt"),
    "cbrt": Function(
        np.cbrt, lambda x: mp.sign(x) * mp.cbrt(abs(x)), lambda x: 1 / (3 * mp.cbrt(abs(x)) ** 2), jax="numpy.cbrt"
    ),
    "reciprocal": Function(
        np.reciprocal, lambda x: 1 / x, lambda x: -1 / x / x, torch="reciprocal", jax="numpy.reciprocal"
    ),
    "x ** 2.5": Function(lambda x: x**2.5, lambda x: x ** mpf(2.5), lambda x: mpf(2.5) * x ** mpf(1.5), 0),
    "sin": Function(np.sin, mp.sin, mp.cos, near=(math.pi, 2 * math.pi), torch="sin", jax="numpy.sin"),
    "cos": Function(np.cos, mp.cos, lambda x: -mp.sin(x), near=(math.pi / 2, math.pi), torch="cos", jax="numpy.cos"),
    "tan": Function(
        np.tan, mp.tan, lambda x: mp.sec(x) ** 2, near=(math.pi / 2, math.pi), torch="tan", jax="numpy.tan"
    ),
    "arcsin": Function(
        np.arcsin,
        mp.asin,
        lambda x: 1 / mp.sqrt((1 - x) * (1 + x)),
        -1,
        1,
        near=(-1, 1),
        torch="asin",
        jax="numpy.arcsin",
    ),
    "arccos": Function(
        np.arccos,
        mp.acos,
        lambda x: -1 / mp.sqrt((1 - x) * (1 + x)),
        -1,
        1,
        near=(-1, 1),
        torch="acos",
        jax="numpy.arccos",
    ),
    "arctan": Function(np.arctan, mp.atan, lambda x: 1 / (1 + x * x), torch="atan", jax="numpy.arctan"),
    "sinh": Function(np.sinh, mp.sinh, mp.cosh, torch="sinh", jax="numpy.sinh"),
    "cosh": Function(np.cosh, mp.cosh, mp.sinh, torch="cosh", jax="numpy.cosh"),
    "tanh": Function(np.tanh, mp.tanh, lambda x: mp.sech(x) ** 2, torch="tanh", jax="numpy.tanh"),
    "arcsinh": Function(np.arcsinh, mp.asinh, lambda x: 1 / mp.sqrt(x * x + 1), torch="asinh", jax="numpy.arcsinh"),
    "arccosh": Function(
        np.arccosh, mp.acosh, lambda x: 1 / mp.sqrt((x - 1) * (x + 1)), 1, near=(1,), torch="acosh", jax="numpy.arccosh"
    ),
    "arctanh": Function(
        np.arctanh, mp.atanh, lambda x: 1 / ((1 - x) * (1 + x)), -1, 1, near=(-1, 1), torch="atanh", jax="numpy.arctanh"
    ),
    "sinc": Function(
        np.sinc, lambda x: mp.sincpi(x), _sinc_derivative, near=(1, 2, *SINC_LOWEST), torch="sinc", jax="numpy.sinc"
    ),
    "hypot(x, 3)": Function(lambda x: np.hypot(x, 3.0), lambda x: mp.hypot(x, 3), lambda x: x / mp.hypot(x, 3)),
    "arctan2(x, 3)": Function(lambda x: np.arctan2(x, 3.0), lambda x: mp.atan2(x, 3), lambda x: 3 / (x * x + 9)),
    "logaddexp(x, 3)": Function(
        lambda x: np.logaddexp(x, 3.0),
        lambda x: mp.log1p(mp.exp(x - 3)) + 3 if x < 3 else mp.log1p(mp.exp(3 - x)) + x,
        lambda x: _gate(x - 3),
        near=(3,),
    ),
    "erf": Function(
        _special("erf"),
        lambda x: mp.erf(x) if abs(x) < 1000 else mp.sign(x),
        lambda x: 2 * mp.exp(-x * x) / mp.sqrt(mp.pi),
        torch="erf",
        jax="scipy.special.erf",
    ),
    "erfc": Function(
        _special("erfc"), _erfc, lambda x: -2 * mp.exp(-x * x) / mp.sqrt(mp.pi), torch="erfc", jax="scipy.special.erfc"
    ),
    "log_ndtr": Function(
        _special("log_ndtr"),
        _log_below,
        _hazard,
        torch="special.log_ndtr",
        jax="scipy.special.log_ndtr",
    ),
    "gammaln": Function(
        _special("gammaln"),
        lambda x: mp.loggamma(x).real,
        mp.digamma,
        low=0,
        near=(1, 2, LOWEST),
        torch="lgamma",
        jax="scipy.special.gammaln",
    ),
    "gammaln, x < 0": Function(
        _special("gammaln"),
        lambda x: mp.loggamma(x).real,
        mp.digamma,
        low=-40,
        high=0,
        near=(*LEFT_ROOTS, *LEFT_LOWEST),
        poles=True,
        torch="lgamma",
        jax="scipy.special.gammaln",
    ),
    "digamma": Function(
        _special("digamma"),
        mp.digamma,
        lambda x: mp.polygamma(1, x),
        low=0,
        near=(LOWEST,),
        torch="digamma",
        jax="scipy.special.digamma",
    ),
    "digamma, x < 0": Function(
        _special("digamma"),
        mp.digamma,
        lambda x: mp.polygamma(1, x),
        low=-40,
        high=0,
        near=LEFT_LOWEST,
        poles=True,
        torch="digamma",
        jax="scipy.special.digamma",
    ),
    "expit": Function(
        _special("expit"), _gate, lambda x: 1 / (2 + mp.exp(x) + mp.exp(-x)), torch="sigmoid", jax="nn.sigmoid"
    ),
    "log_expit": Function(
        _functional("logsigmoid"),
        lambda x: -mp.log1p(mp.exp(-x)) if x > 0 else x - mp.log1p(mp.exp(x)),
        lambda x: _gate(-x),
        torch="nn.functional.logsigmoid",
        jax="nn.log_sigmoid",
    ),
    "softplus": Function(
        _functional("softplus"),
        lambda x: mp.log1p(mp.exp(x)) if x < 0 else x + mp.log1p(mp.exp(-x)),
        _gate,
        high=19.9,
        torch="nn.functional.softplus",
        jax="nn.softplus",
    ),
    "silu": Function(
        _functional("silu"),
        lambda x: x * _gate(x),
        lambda x: _gate(x) * (1 + x * _gate(-x)),
        near=(-1.2784645427610738,),
        torch="nn.functional.silu",
        jax="nn.silu",
    ),
    "gelu": Function(
        _functional("gelu"),
        lambda x: x * _below(x),
        lambda x: _below(x) + x * _normal(x),
        near=(-0.7517915246935645,),
        torch="nn.functional.gelu",
    ),
    "gelu, tanh": Function(
        _functional("gelu", approximate="tanh"),
        lambda x: x * _gate(_cubic(x)),
        _cubic_gate_derivative,
        near=(-0.7524614220710163,),
        torch="nn.functional.gelu",
        params={"approximate": "tanh"},
        jax="nn.gelu",  # unless told otherwise
    ),
}


SCALE = 60  # decimal digits of the truth


@dataclass(frozen=True)
class Error:
    """The largest error in ulp, and where it is."""

    ulps: float
    at: float

    def __str__(self) -> str:
        if self.ulps < 100:
            return f"{self.ulps:.1f}"
        return f"**{self.ulps:.0e}** at {self.at:.3g}"


def _ulps(got: Any, true: Any, info: Any) -> float:
    """The distance in units of the last place of the true value; inf where only one of them is finite."""
    if abs(true) >= mpf(float(info.max)) * (1 + mpf(2) ** -(info.nmant + 2)):
        return 0.0 if math.isinf(got) and (got > 0) == (true > 0) else math.inf
    if not math.isfinite(got):
        return math.inf
    exponent = mp.frexp(true)[1] - 1 if true else info.minexp
    return float(abs(mpf(float(got)) - true) / mpf(2) ** (max(exponent, info.minexp) - info.nmant))


def points(function: Function, dtype: Any, count: int) -> Any:
    """Points of the domain: of everyday size, of every magnitude and sign, and closer and closer to where it bends."""
    random = np.random.default_rng(11)
    info = np.finfo(dtype)
    wide = np.exp2(random.uniform(info.minexp, info.maxexp, count)) * random.choice([-1, 1], count)
    steps = [sign * 2.0**-k for sign in (-1, 1) for k in range(info.nmant + 4)]
    near = [mark + step for mark in (*function.near, 0) for step in steps]
    usual = [random.uniform(-size, size, count) for size in (3, 40, 800)]
    with np.errstate(over="ignore"):
        x = np.unique(np.concatenate([*usual, wide, near]).astype(dtype))
    if function.poles:
        x = x[x != np.rint(x)]
    inside = (x > function.low) & (x < function.high) & np.isfinite(x) & (x != 0)
    return x[inside]


@functools.cache
def _boolean(name: str, dtype: str, count: int) -> tuple[Any, list[Any], list[Any]]:
    """Points and true values and slopes there, without those that are no normal numbers: they may come out as 0."""
    function, least = FUNCTIONS[name], float(np.finfo(dtype).smallest_normal) * 1.1
    with mp.workdps(SCALE):
        x = points(function, dtype, count)
        rows = [(p, function.value(mpf(float(p))), function.derivative(mpf(float(p)))) for p in x]
        saved = [row for row in rows if all(t == 0 or abs(t) >= least for t in row[1:])]
    return np.array([row[0] for row in saved], dtype), [row[1] for row in saved], [row[2] for row in saved]


def errors(name: str, dtype: str, way: Callable[[Function, Any], tuple[Any, Any]], count: int) -> tuple[Error, Error]:
    """The largest errors of value and derivative that `way` computes of the function over the whole range."""
    return _worst(FUNCTIONS[name], way, *_boolean(name, dtype, count))


def errors_at(name: str, x: Any, way: Callable[[Function, Any], tuple[Any, Any]]) -> tuple[Error, Error]:
    """The same at an array of points."""
    function = FUNCTIONS[name]
    with mp.workdps(SCALE):
        booleans = [[boolean(mpf(float(p))) for p in x] for boolean in (function.value, function.derivative)]
    return _worst(function, way, x, *booleans)


def _worst(function: Function, way: Callable[[Function, Any], tuple[Any, Any]], x: Any, *booleans: list[Any]) -> Any:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        result = way(function, x)
    worst = []
    with mp.workdps(SCALE):
        for got, boolean in zip(result, booleans):
            assert got.dtype == x.dtype, f"{got.dtype} of {x.dtype}"
            each = [_ulps(g, t, np.finfo(x.dtype)) for g, t in zip(np.asarray(got), boolean)]
            at = int(np.argmax(each))
            worst.append(Error(each[at], float(x[at])))
    return worst[0], worst[1]


def compiled(function: Function, x: Any) -> tuple[Any, Any]:
    value, derivative = tg.trace(function.call), tg.grad(lambda x: np.sum(function.call(x)))
    value(x), derivative(x)  # the first calls may be answered without a compiler
    return value(x), derivative(x)


def eager(function: Function, x: Any) -> tuple[Any, Any]:
    t = tg.tensor(x, requires_grad=True)
    value = function.call(t)
    value.sum().backward()
    return value.detach().numpy(), t.grad.numpy()


def torch(function: Function, x: Any) -> tuple[Any, Any]:
    module = peers.need("torch")
    t = module.tensor(x, requires_grad=True)
    value = attrgetter(function.torch)(module)(t, **function.params)
    value.sum().backward()
    return value.detach().numpy(), t.grad.numpy()


def jax(function: Function, x: Any) -> tuple[Any, Any]:
    module = peers.need("jax")
    importlib.import_module("jax.scipy.special")
    call = attrgetter(function.jax)(module)
    return call(x), module.grad(lambda x: call(x).sum())(x)


WAYS = {"compiled": compiled, "eager": eager, "PyTorch": torch, "JAX": jax}
NAMES = {"PyTorch": "torch", "JAX": "jax"}


def page(count: int) -> str:
    """The page of all functions in both formats, as Markdown."""
    lines = [
        "# Accuracy",
        "",
        "The tables have the largest error of value / derivative over the whole range, compared with mpmath. The",
        "unit is the ulp (unit in the last place); rounding alone leaves 0.5. inf: nan, or infinite in place of a",
        "finite number. `python -m benchmarks accuracy` writes the page.",
        "",
        "The points have every magnitude and sign. Some approach the kinks of a function, the roots of gammaln and",
        "digamma, and the roots of the derivatives of sinc, silu and gelu. Points whose true value is no normal number",
        "are left out, because 0 is accepted there.",
        "",
        "The limit for values is 2 ulp (exp, log, sqrt: 1; pow, erf, erfc, sinc, silu, gelu, logaddexp: 4). Larger",
        "errors are those of NumPy and SciPy functions: float32 in eager mode, log_ndtr, gammaln and digamma.",
    ]
    for dtype in ("float64", "float32"):
        lines += ["", f"## {dtype}", "", f"| | {' | '.join(WAYS)} |", "|---" * (len(WAYS) + 1) + "|"]
        lines += [f"| `{name}` | {' | '.join(_cell(name, dtype, way, count) for way in WAYS)} |" for name in FUNCTIONS]
    return "\n".join(lines) + "\n"


def _cell(name: str, dtype: str, way: str, count: int) -> str:
    if way in NAMES and not getattr(FUNCTIONS[name], NAMES[way]):
        return ""
    try:
        value, derivative = errors(name, dtype, WAYS[way], count)
    except peers.Skip as skip:
        return str(skip)
    return f"{value} / {derivative}"
