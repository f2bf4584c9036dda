"""Derivatives of special functions: for each operand of SciPy's functions, the partial derivative, in ops.

`SLOPES[name]` has a function `(ans, *operands)` for each operand, or a text that explains why there is none. The
formulas are recurrences of DLMF, by chapter, chosen to avoid quotients that are 0 / 0 somewhere. `VALUES` has functions
that only derivatives use and that have no name in SciPy, and functions that SciPy computes with fewer digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import LITERALS
from tracegrad.errors import UnsupportedError, located
from tracegrad.ops.elementwise.table import (
    absolute,
    add,
    cos,
    cosh,
    divide,
    equal,
    erf,
    exp,
    gauss_half,
    greater,
    isinf,
    less,
    logical_or,
    maximum,
    multiply,
    ndtr,
    negative,
    power,
    sign,
    sin,
    sinh,
    square,
    subtract,
    where,
)
from tracegrad.ops.numerics import accurate
from tracegrad.ops.special.densities import beta_density, gamma_density, of_quantile, t_density, vanishing
from tracegrad.ops.special.elliptic_derivatives import delta, ellipeinc_m, ellipkinc_m
from tracegrad.ops.special.gamma_quotient_derivatives import binom_k, binom_n, poch_a, reciprocal_gamma
from tracegrad.ops.special.ode_function_derivatives import OF_FUNCTIONS, over
from tracegrad.ops.special.quantile_derivatives import INVERSES
from tracegrad.ops.special.scipy_special import apply, digamma
from tracegrad.ops.special.shape_parameter_derivatives import (
    DERIVATIVES_OF_FAMILIES,
    FAMILIES,
    IN_BETA,
    PARAMETERS,
    VALUES_OF_DRAWN,
    Derivative,
    in_gamma,
    in_t,
)
from tracegrad.typing import Array, NDArray

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Operand
    from tracegrad.ops.core.elementwise_op import Elementwise


__all__ = ["DERIVATIVES", "FAMILIES", "VALUES", "partial_derivative"]

_ROOT_PI, _ROOT_2PI, _ROOT_2 = math.sqrt(math.pi), math.sqrt(2 * math.pi), math.sqrt(2)


def partial_derivative(name: str, i: int, ans: object, xs: tuple[Any, ...]) -> Any:
    """The partial derivative of `name` in its operand `i`."""
    function, _, orders = name.partition(".")
    rules = DERIVATIVES_OF_FAMILIES.get(function) if function in FAMILIES else None
    known = DERIVATIVES.get(name, ()) if rules is None else rules(*map(int, orders.split(".")))
    result: Derivative = known[i] if i < len(known) else "it is not known here"
    if isinstance(result, str):
        function = function.lstrip("_")
        raise UnsupportedError(
            located(
                f"scipy.special.{function} has no derivative with respect to argument {i}: {result}; "
                "where it is to count as a constant, pass tracegrad.stop_gradient of it"
            )
        )
    return result(ans, *xs)


_NOT_IN_SCIPY = "SciPy has no function for it"
_INTEGER_ARGUMENT = "the argument counts, and has no neighbours"


def _times(x: Operand, *others: Operand) -> Any:
    for y in others:
        x = multiply(x, y)
    return x


def _half(x: Array) -> Array:
    return multiply(x, 0.5)


def _lower_degree(n: Any) -> Array:
    """n - 1 for a degree, whose terms vanish at 0."""
    return max(n - 1, 0) if type(n) in LITERALS else maximum(subtract(n, 1.0), 0.0)


def _zero_derivative(ans: Array, *xs: Array) -> Array:
    return multiply(ans, 0.0)


# -- 5: gamma ------------------------------------------------------------------------------------------------
def _beta_share(a: Array, b: Array) -> Array:
    return subtract(digamma(a), digamma(add(a, b)))


_GAMMA: dict[str, tuple[Derivative, ...]] = {
    "gamma": (lambda ans, x: multiply(ans, digamma(x)),),
    "rgamma": (reciprocal_gamma,),
    "loggamma": (lambda ans, x: digamma(x),),
    "gammasgn": (_zero_derivative,),
    "beta": (lambda ans, a, b: multiply(ans, _beta_share(a, b)), lambda ans, a, b: multiply(ans, _beta_share(b, a))),
    "betaln": (lambda ans, a, b: _beta_share(a, b), lambda ans, a, b: _beta_share(b, a)),
    "binom": (binom_n, binom_k),
    "poch": (poch_a, lambda ans, a, m: multiply(ans, digamma(add(a, m)))),
    "_zeta": (_NOT_IN_SCIPY, lambda ans, x, q: negative(multiply(x, apply("_zeta", add(x, 1.0), q)))),
    "zetac": (_NOT_IN_SCIPY,),
}


# -- 8: incomplete gamma and beta --------------------------------------------------------------------------------
_INCOMPLETE: dict[str, tuple[Derivative, ...]] = {
    "gammainc": (in_gamma, lambda ans, a, x: gamma_density(a, x)),
    "gammaincc": (lambda *xs: negative(in_gamma(*xs)), lambda ans, a, x: negative(gamma_density(a, x))),
    "gammaincinv": (*PARAMETERS["gammaincinv"], lambda ans, a, y: of_quantile(ans, gamma_density(a, ans))),
    "gammainccinv": (*PARAMETERS["gammainccinv"], lambda ans, a, y: negative(of_quantile(ans, gamma_density(a, ans)))),
    "betainc": (*IN_BETA, lambda ans, a, b, x: beta_density(a, b, x)),
    "betaincc": (
        *[lambda *xs, of=of: negative(of(*xs)) for of in IN_BETA],
        lambda ans, a, b, x: negative(beta_density(a, b, x)),
    ),
    "betaincinv": (*PARAMETERS["betaincinv"], lambda ans, a, b, y: divide(1.0, beta_density(a, b, ans))),
    "betainccinv": (*PARAMETERS["betainccinv"], lambda ans, a, b, y: divide(-1.0, beta_density(a, b, ans))),
    "exp1": (lambda ans, x: negative(divide(exp(negative(x)), x)),),
    "expi": (lambda ans, x: divide(exp(x), x),),
    "expn": (_INTEGER_ARGUMENT, lambda ans, n, x: negative(_expn_below(n, x))),
    "sici.0": (lambda ans, x: over(sin(x), x, 1.0),),
    "sici.1": (lambda ans, x: divide(cos(x), x),),
    "shichi.0": (lambda ans, x: over(sinh(x), x, 1.0),),
    "shichi.1": (lambda ans, x: divide(cosh(x), x),),
}


def _expn_below(n: Any, x: Array) -> Array:
    """expn(n - 1, x)."""
    over = divide(1.0, x)
    first = multiply(exp(negative(x)), add(over, square(over)))
    return (
        where(less(n, 1.0), first, apply("expn", _lower_degree(n), x))
        if type(n) not in LITERALS
        else (first if n < 1 else apply("expn", n - 1, x))
    )


# -- 7: error functions --------------------------------------------------------------------------------------------
def _bell(x: Array) -> Array:
    """The density of the standard normal distribution."""
    return multiply(gauss_half(x), 1 / _ROOT_2PI)


def _hazard(x: Array) -> Array:
    """The density of the normal distribution divided by the probability below x; on the left computed without both."""
    left = divide(math.sqrt(2 / math.pi), apply("erfcx", multiply(where(less(x, 0.0), x, 0.0), -1 / _ROOT_2)))
    return where(less(x, 0.0), left, divide(_bell(x), ndtr(where(less(x, 0.0), 0.0, x))))


FAR = 12.0  # minimum magnitude of x for which the asymptotic series below have all digits


def _series(far: Array, x: Array, sign: float) -> Array:
    """-sum((2 n + 1)!! * (sign / (2 x**2))**n) / x**2 where x is `far`."""
    squared = square(divide(1.0, where(far, x, FAR)))
    series: Any = 1.0
    for n in range(11, 0, -1):
        series = add(multiply(multiply(squared, sign * (2 * n + 1) / 2), series), 1.0)
    return negative(multiply(squared, series))


def _erfcx(ans: Array, x: Array) -> Array:
    """2 x erfcx(x) - 2 / sqrt(pi), whose terms cancel for large x."""
    far = greater(x, FAR)
    derivative = subtract(_times(where(far, 0.0, x), where(far, 0.0, ans), 2.0), 2 / _ROOT_PI)
    return where(far, multiply(_series(far, x, -1.0), 1 / _ROOT_PI), derivative)


def _dawsn(ans: Array, x: Array) -> Array:
    """1 - 2 x dawsn(x), whose terms cancel for large x."""
    far = greater(absolute(x), FAR)
    derivative = subtract(1.0, _times(where(far, 0.0, x), where(far, 0.0, ans), 2.0))
    return where(far, multiply(_series(far, x, 1.0), 0.5), derivative)


def _fresnel(function: Elementwise) -> Derivative:
    return lambda ans, x: function(multiply(square(x), math.pi / 2))


_ERF: dict[str, tuple[Derivative, ...]] = {
    "erfcx": (_erfcx,),
    "erfi": (lambda ans, x: multiply(exp(square(x)), 2 / _ROOT_PI),),
    "erfcinv": (lambda ans, x: multiply(exp(square(ans)), -_ROOT_PI / 2),),
    "dawsn": (_dawsn,),
    "ndtr": (lambda ans, x: _bell(x),),
    "log_ndtr": (lambda ans, x: _hazard(x),),
    "ndtri": (lambda ans, p: multiply(exp(_half(square(ans))), _ROOT_2PI),),
    "ndtri_exp": (lambda ans, y: multiply(exp(add(y, _half(square(ans)))), _ROOT_2PI),),
    "fresnel.0": (_fresnel(sin),),
    "fresnel.1": (_fresnel(cos),),
    "owens_t": (
        lambda ans, h, a: _times(erf(_times(h, a, 1 / _ROOT_2)), _bell(h), -0.5),
        lambda ans, h, a: divide(
            multiply(exp(_times(square(h), add(square(a), 1.0), -0.5)), 0.5 / math.pi), add(square(a), 1.0)
        ),
    ),
}


# -- 10: Bessel --------------------------------------------------------------------------------------------------------
def _neighbor_orders(name: str, below: float, above: float) -> Derivative:
    """Half the signed sum of the functions of the next lower and the next higher order."""

    def derivative(ans: Array, v: Array, x: Array) -> Array:
        terms = multiply(apply(name, subtract(v, 1.0), x), below), multiply(apply(name, add(v, 1.0), x), above)
        return _half(add(*terms))

    return derivative


def _scaled_iv(ans: Array, v: Array, x: Array) -> Array:
    result = _half(add(apply("ive", subtract(v, 1.0), x), apply("ive", add(v, 1.0), x)))
    return subtract(result, multiply(ans, sign(x)))


def _scaled_kv(ans: Array, v: Array, x: Array) -> Array:
    return subtract(ans, _half(add(apply("kve", subtract(v, 1.0), x), apply("kve", add(v, 1.0), x))))


def _spherical(name: str, below: float, above: float) -> tuple[Derivative, ...]:
    """The derivative of a spherical function: n times the next lower order and n + 1 times the next higher, over 2 n +
    1, signed."""

    def derivative(ans: Array, n: float, x: Array) -> Array:
        terms = (
            _times(n, apply(name, _lower_degree(n), x), below),
            _times(add(n, 1.0), apply(name, add(n, 1.0), x), above),
        )
        return divide(add(*terms), add(multiply(n, 2.0), 1.0))

    return (_INTEGER_ARGUMENT, derivative)


def _lower_struve(name: str, above: float, v: Any, x: Any) -> Any:
    """The function of the order v - 1; for order 0 from order 1, because SciPy has no lower orders at x = 0."""
    if type(v) in LITERALS and v != 0:
        return apply(name, v - 1.0, x)
    of_0 = add(multiply(apply(name, 1.0, x), above), 2 / math.pi)
    if type(v) in LITERALS:
        return of_0
    zero = equal(v, 0.0)
    return where(zero, of_0, apply(name, where(zero, 0.0, subtract(v, 1.0)), x))


def _struve(name: str, above: float) -> Derivative:
    """Half the signed sum of the functions of the next lower and higher order, with the additional term of their
    recurrence."""

    def derivative(ans: Array, v: Array, x: Array) -> Array:
        higher = multiply(apply(name, add(v, 1.0), x), above)
        terms = _lower_struve(name, above, v, x), higher
        rest = multiply(power(_half(x), v), multiply(apply("rgamma", add(v, 1.5)), 1 / _ROOT_PI))
        return _half(add(add(*terms), rest))

    return derivative


_IN_ORDER = "SciPy has no function for the derivative in the order"
_BESSEL: dict[str, tuple[Derivative, ...]] = {
    "j0": (lambda ans, x: negative(apply("j1", x)),),
    "j1": (lambda ans, x: _half(subtract(apply("j0", x), apply("jv", 2.0, x))),),
    "y0": (lambda ans, x: negative(apply("y1", x)),),
    "y1": (lambda ans, x: _half(subtract(apply("y0", x), apply("yv", 2.0, x))),),
    "i0": (lambda ans, x: apply("i1", x),),
    "i1": (lambda ans, x: _half(add(apply("i0", x), apply("iv", 2.0, x))),),
    "i0e": (lambda ans, x: subtract(apply("i1e", x), multiply(ans, sign(x))),),
    "i1e": (lambda ans, x: subtract(_half(add(apply("i0e", x), apply("ive", 2.0, x))), multiply(ans, sign(x))),),
    "k0": (lambda ans, x: negative(apply("k1", x)),),
    "k1": (lambda ans, x: _times(add(apply("k0", x), apply("kv", 2.0, x)), -0.5),),
    "k0e": (lambda ans, x: subtract(ans, apply("k1e", x)),),
    "k1e": (lambda ans, x: subtract(ans, _half(add(apply("k0e", x), apply("kve", 2.0, x)))),),
    "jv": (_IN_ORDER, _neighbor_orders("jv", 1.0, -1.0)),
    "yv": (_IN_ORDER, _neighbor_orders("yv", 1.0, -1.0)),
    "iv": (_IN_ORDER, _neighbor_orders("iv", 1.0, 1.0)),
    "kv": (_IN_ORDER, _neighbor_orders("kv", -1.0, -1.0)),
    "ive": (_IN_ORDER, _scaled_iv),
    "kve": (_IN_ORDER, _scaled_kv),
    "airy.0": (lambda ans, x: apply("airy.1", x),),
    "airy.1": (lambda ans, x: multiply(x, apply("airy.0", x)),),
    "airy.2": (lambda ans, x: apply("airy.3", x),),
    "airy.3": (lambda ans, x: multiply(x, apply("airy.2", x)),),
    "struve": (_IN_ORDER, _struve("struve", -1.0)),
    "modstruve": (_IN_ORDER, _struve("modstruve", 1.0)),
    "spherical_jn": _spherical("spherical_jn", 1.0, -1.0),
    "spherical_yn": _spherical("spherical_yn", 1.0, -1.0),
    "spherical_in": _spherical("spherical_in", 1.0, 1.0),
    "spherical_kn": _spherical("spherical_kn", -1.0, -1.0),
}

# -- 13, 15, 19: hypergeometric functions and elliptic integrals ------------------------------------------------------
_IN_PARAMETER = "SciPy has no function for the derivative in a parameter"


def _ellipkm1(ans: Array, p: Array) -> Array:
    low = less(p, 0.5)
    near, far = where(low, p, 0.25), where(low, 0.75, p)
    rest = subtract(1.0, near)
    first = divide(subtract(multiply(near, apply("ellipkm1", near)), apply("ellipe", rest)), _times(near, rest, 2.0))
    return where(low, first, multiply(apply("hyp2f1", 1.5, 1.5, 2.0, subtract(1.0, far)), -math.pi / 8))


def _exprel(ans: Array, x: Array) -> Array:
    far = logical_or(greater(x, 1000.0), isinf(x))  # SciPy's hyp1f1 may not terminate there
    return where(far, exp(x), _half(apply("hyp1f1", 2.0, 3.0, where(far, 0.0, x))))


_HYPERGEOMETRIC: dict[str, tuple[Derivative, ...]] = {
    "hyp0f1": (_IN_PARAMETER, lambda ans, v, x: divide(apply("hyp0f1", add(v, 1.0), x), v)),
    "hyp1f1": (
        _IN_PARAMETER,
        _IN_PARAMETER,
        lambda ans, a, b, x: multiply(divide(a, b), apply("hyp1f1", add(a, 1.0), add(b, 1.0), x)),
    ),
    "hyperu": (
        _IN_PARAMETER,
        _IN_PARAMETER,
        lambda ans, a, b, x: negative(multiply(a, apply("hyperu", add(a, 1.0), add(b, 1.0), x))),
    ),
    "hyp2f1": (
        _IN_PARAMETER,
        _IN_PARAMETER,
        _IN_PARAMETER,
        lambda ans, a, b, c, x: multiply(
            divide(multiply(a, b), c), apply("hyp2f1", add(a, 1.0), add(b, 1.0), add(c, 1.0), x)
        ),
    ),
    "exprel": (_exprel,),
    "spence": (lambda ans, x: negative(apply("hyp2f1", 1.0, 1.0, 2.0, subtract(1.0, x))),),
    "ellipk": (lambda ans, m: multiply(apply("hyp2f1", 1.5, 1.5, 2.0, m), math.pi / 8),),
    "ellipe": (lambda ans, m: multiply(apply("hyp2f1", 0.5, 1.5, 2.0, m), -math.pi / 8),),
    "ellipkm1": (_ellipkm1,),
    "ellipkinc": (lambda ans, phi, m: divide(1.0, delta(phi, m)), ellipkinc_m),
    "ellipeinc": (lambda ans, phi, m: delta(phi, m), ellipeinc_m),
    "wright_bessel": (
        _IN_PARAMETER,
        _IN_PARAMETER,
        lambda ans, a, b, x: apply("wright_bessel", a, add(a, b), x),
    ),
}


# -- 18: orthogonal polynomials ----------------------------------------------------------------------------------------
def _from_below(
    name: str, factor: Callable[..., Any], raised: Callable[..., tuple[Any, ...]], parameters: int = 0, last: int = 0
) -> tuple[Callable[..., object] | str, ...]:
    """The derivatives of a polynomial of degree n, or of a function of noninteger degree: a factor times the function
    of degree n - 1. For degrees from `last` to 0 it is constant."""

    def derivative(ans: Array, n: Any, *rest: Operand) -> Array:
        *operands, x = rest
        constant: Any
        if type(n) in LITERALS:
            constant = n in range(last, 1)
            lower = apply(name, 0.0 if constant else n - 1.0, *raised(*operands), x)
            return multiply(lower, 0.0 if constant else factor(n, *operands))
        constant = logical_or(equal(n, 0.0), equal(n, float(last)))
        lower = multiply(
            factor(n, *operands), apply(name, where(constant, 0.0, subtract(n, 1.0)), *raised(*operands), x)
        )
        return where(constant, 0.0, lower)

    return (_INTEGER_ARGUMENT, *[_IN_PARAMETER] * parameters, derivative)


def _chain_rule(name: str, n: object, x: Array, inner: float) -> Array:
    """The derivative of a polynomial of an inner function with the derivative `inner`."""
    return multiply(partial_derivative(name, 1, None, (n, x)), inner)


_POLYNOMIALS: dict[str, tuple[Derivative, ...]] = {
    "eval_legendre": _from_below("eval_jacobi", lambda n: _half(add(n, 1.0)), lambda: (1.0, 1.0), 0, -1),
    "eval_chebyt": _from_below("eval_chebyu", lambda n: n, lambda: ()),
    "eval_chebyu": _from_below("eval_gegenbauer", lambda n: 2.0, lambda: (2.0,), 0, -1),
    "eval_gegenbauer": _from_below("eval_gegenbauer", lambda n, a: multiply(a, 2.0), lambda a: (add(a, 1.0),), 1, -1),
    "eval_jacobi": _from_below(
        "eval_jacobi", lambda n, a, b: _half(add(add(n, 1.0), add(a, b))), lambda a, b: (add(a, 1.0), add(b, 1.0)), 2
    ),
    "eval_chebyc": _from_below("eval_chebys", lambda n: n, lambda: ()),
    "eval_chebys": (_INTEGER_ARGUMENT, lambda ans, n, x: _chain_rule("eval_chebyu", n, _half(x), 0.5)),
    "eval_sh_chebyt": _from_below("eval_sh_chebyu", lambda n: multiply(n, 2.0), lambda: ()),
    "eval_sh_chebyu": (
        _INTEGER_ARGUMENT,
        lambda ans, n, x: _chain_rule("eval_chebyu", n, subtract(multiply(x, 2.0), 1.0), 2.0),
    ),
    "eval_sh_legendre": (
        _INTEGER_ARGUMENT,
        lambda ans, n, x: _chain_rule("eval_legendre", n, subtract(multiply(x, 2.0), 1.0), 2.0),
    ),
    "eval_sh_jacobi": _from_below("eval_sh_jacobi", lambda n, p, q: n, lambda p, q: (add(p, 2.0), add(q, 1.0)), 2),
    "eval_hermite": _from_below("eval_hermite", lambda n: multiply(n, 2.0), lambda: ()),
    "eval_hermitenorm": _from_below("eval_hermitenorm", lambda n: n, lambda: ()),
    "eval_laguerre": _from_below("eval_genlaguerre", lambda n: -1.0, lambda: (1.0,)),
    "eval_genlaguerre": _from_below("eval_genlaguerre", lambda n, a: -1.0, lambda a: (add(a, 1.0),), 1),
}


# -- others ------------------------------------------------------------------------------------------------------------
def _omega(component: int) -> Derivative:
    """exp(-W) / (1 + W) for W, the real or the imaginary part."""

    def derivative(ans: Array, x: Array, k: object) -> Array:
        a, b = apply("lambertw_real", x, k), apply("lambertw_imag", x, k)
        up = add(a, 1.0)
        scale = divide(exp(negative(a)), add(square(up), square(b)))
        if component:
            return negative(multiply(scale, add(multiply(cos(b), b), multiply(sin(b), up))))
        return multiply(scale, subtract(multiply(cos(b), up), multiply(sin(b), b)))

    return derivative


_OTHERS: dict[str, tuple[Derivative, ...]] = {
    "stdtr": (in_t, lambda ans, df, t: t_density(df, t)),
    "stdtrit": (*PARAMETERS["stdtrit"], lambda ans, df, p: of_quantile(ans, t_density(df, ans))),
    **{name: rules for name, rules in PARAMETERS.items() if name.startswith("_drawn")},
    "exp10": (lambda ans, x: multiply(ans, math.log(10)),),
    "cosm1": (lambda ans, x: negative(sin(x)),),
    "wrightomega": (lambda ans, x: divide(ans, add(ans, 1.0)),),
    "lambertw_real": (_omega(0), _INTEGER_ARGUMENT),
    "lambertw_imag": (_omega(1), _INTEGER_ARGUMENT),
    "huber": (
        lambda ans, d, r: where(less(absolute(r), d), 0.0, subtract(absolute(r), d)),
        lambda ans, d, r: where(less(absolute(r), d), r, multiply(d, sign(r))),
    ),
}

DERIVATIVES: dict[str, tuple[Derivative, ...]] = {
    **_GAMMA,
    **_INCOMPLETE,
    **_ERF,
    **_BESSEL,
    **_HYPERGEOMETRIC,
    **_POLYNOMIALS,
    **_OTHERS,
    **INVERSES,
    **OF_FUNCTIONS,
}
for _name in ["i0e", "i1e", "k0e", "k1e", "sici.0", "sici.1", "rgamma", "itairy.0", "itairy.2", "ellipk", "ellipkm1"]:
    DERIVATIVES[_name] = (vanishing(DERIVATIVES[_name][0]),)


def _scipy(name: str, *xs: Array) -> NDArray:
    import scipy.special

    result: NDArray = getattr(scipy.special, name)(*xs)
    return result


def _of_degree(name: str) -> Callable[..., object]:
    """A function whose first argument must be an integer for SciPy."""
    return lambda n, *xs: _scipy(name, np.asarray(n).astype(np.int64), *xs)


def _of_draws(name: str) -> Callable[..., object]:
    """A function whose second argument must be an integer type for SciPy, if it is an integer."""

    def value(k: NDArray, n: NDArray, p: Array) -> NDArray:
        whole = np.asarray(n).astype(np.int64)
        return _scipy(name, k, whole if np.all(whole == n) else n, p)

    return value


_DEGREES = (
    "expn",
    "spherical_jn",
    "spherical_yn",
    "spherical_in",
    "spherical_kn",
    "eval_hermite",
    "eval_hermitenorm",
)
_COUNTS = ("poisson", "binom", "bernoulli", "nbinom", "geom")


def _of_discrete(name: str, inverse: str) -> Callable[..., object]:
    """The inverse of a discrete distribution, whose values are integers."""

    def call(*xs: NDArray) -> Array:
        import scipy.stats

        result: Array = getattr(getattr(scipy.stats, name), inverse)(*xs)
        return result

    return call


VALUES: dict[str, Callable[..., Any]] = {
    "log_ndtr": accurate.log_ndtr,
    "lambertw_real": lambda x, k: _scipy("lambertw", x, np.asarray(k).astype(np.int64)).real,
    "lambertw_imag": lambda x, k: _scipy("lambertw", x, np.asarray(k).astype(np.int64)).imag,
    "_zeta": lambda x, q: _scipy("zeta", x, q),
    "_riemann_zeta": lambda x: _scipy("zeta", x),
    **{name: _of_degree(name) for name in _DEGREES},
    **{name: _of_draws(name) for name in ("bdtr", "bdtrc", "bdtri")},
    **{f"_{name}_{inverse}": _of_discrete(name, inverse) for name in _COUNTS for inverse in ("ppf", "isf")},
    **VALUES_OF_DRAWN,
}
