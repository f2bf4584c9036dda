"""Accurate log-gamma function and its derivatives, near their roots and for negative arguments.

lgamma: from 1/2 to 5/2 it is (x - 1) * (x - 2) * p((x - 5/4) / (x + 1)), p interpolating at Chebyshev's points, for a
relative error under 2**-56. To the right SciPy computes it.

For negative x all are computed from values at y = 1 - x: log(pi / abs(sin(pi*x))) - lgamma(y), digamma(y) -
pi * cot(pi*x), and pi**2 / sin(pi*x)**2 - trigamma(y). These differences cancel near the roots between negative
integers. There both terms are computed in two words, the terms at y by Stirling's series (DLMF 5.11.1 and 5.11.2)
at y + 12. Near three roots two words are not enough: lgamma is a power series about the root there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracegrad.ops.numerics.accurate import cospi, in_double, polynomial, sinpi
from tracegrad.ops.numerics.double_double import (
    DoubleDouble,
    add,
    divide,
    log,
    multiply,
    series,
    sine_and_cosine,
    split_quotient,
)
from tracegrad.typing import Array, NDArray

BETWEEN = (
    0.5241164609163369,
    -0.4152563649828362,
    0.06348268380928447,
    -0.09876754712660431,
    0.02470338563319271,
    -0.04116226678895408,
    0.010139290577691158,
    -0.020521422969994846,
    0.004018677235279147,
    -0.011329994195239184,
    0.0012867910590866557,
    -0.006737514544083022,
    4.8952034124326345e-05,
    -0.004260269833936313,
    -0.0004769923421324052,
    -0.0028597270592145307,
    -0.0007993837395979,
    -0.001992681610480415,
    -0.00031457149290121326,
    -0.0012942744339286645,
    -0.0017322340867545805,
    -0.0019703251722606335,
)


PI = (3.141592653589793, 1.2246467991473532e-16)
HALF_LOG_OF_TWO_PI = (0.9189385332046728, -3.8782941580672414e-17)
SHIFT = 12
# B(2), B(4), ...: enough of them for 2**-106 at 13.
BERNOULLI = [
    (1, 6),
    (-1, 30),
    (1, 42),
    (-1, 30),
    (5, 66),
    (-691, 2730),
    (7, 6),
    (-3617, 510),
    (43867, 798),
    (-174611, 330),
    (854513, 138),
    (-236364091, 2730),
    (8553103, 6),
    (-23749461029, 870),
    (8615841276005, 14322),
    (-7709321041217, 510),
    (2577687858367, 6),
    (-26315271553053477373, 1919190),
    (2929993913841559, 6),
    (-261082718496449122051, 13530),
    (1520097643918070802691, 1806),
    (-27833269579301024235023, 690),
    (596451111593912163277961, 282),
    (-5609403368997817686249127547, 46410),
    (495057205241079648212477525, 66),
    (-801165718135489957347924991853, 1590),
]
STIRLING = [split_quotient(p, q * 2 * k * (2 * k - 1)) for k, (p, q) in enumerate(BERNOULLI, 1)]
STIRLING_DERIVATIVE = [split_quotient(-p, q * 2 * k) for k, (p, q) in enumerate(BERNOULLI, 1)]


# Roots of lgamma, of two words each, and the powers of its series there from the first one on.
ROOTS: list[tuple[DoubleDouble, tuple[float, ...]]] = [
    ((-2.4570247382208006, -3.7075610815513266e-17), (1.5156034480216574, 4.8583209516339965, 1.41129114307798)),
    ((-2.7476826467274127, 9.055340329338315e-17), (-1.9143501856115988, 9.575189475709667, -20.095134916842603)),
    ((-3.955294284858598, -1.999428391746348e-17), (-20.725060845803707, 251.7146825868894, -3730.6047156806126)),
]
# Within this distance of a root the next power is below 2**-54 of the sum.
NEXT_TO_ROOT = 2.0**-24


@in_double
def lgamma(x: NDArray) -> Any:
    """log(abs(gamma(x)))"""
    import scipy.special

    result = np.asarray(scipy.special.gammaln(x))
    near = np.abs(x - 1.5) < 1
    if near.any():
        x_near = x[near]
        result[near] = (x_near - 1) * (x_near - 2) * polynomial(BETWEEN, (x_near - 1.25) / (x_near + 1)) + 0.0
    return _reflect_negative(x, result, _reflected_lgamma)


@in_double
def digamma(x: Array) -> Any:
    """The logarithmic derivative of gamma(x)."""
    import scipy.special

    return _reflect_negative(x, np.asarray(scipy.special.digamma(x)), _reflected_digamma)


@in_double
def trigamma(x: Array) -> Any:
    """The derivative of digamma(x)."""
    import scipy.special

    return _reflect_negative(x, np.asarray(scipy.special.polygamma(1, np.maximum(x, 0))), _reflected_trigamma)


def _reflect_negative(x: Any, result: Any, reflected: Any) -> Any:
    """`result`, replaced where x is negative and not an integer."""
    is_reflected = (x < 0) & (x != np.rint(x))
    if is_reflected.any():
        result[is_reflected] = reflected(x[is_reflected])
    return result


def _reflected_lgamma(x: Any) -> NDArray:
    sine, y = np.log(np.pi / np.abs(sinpi(x))), lgamma(1 - x)
    return _exact_difference(x, sine, y, _lgamma_double_double)


def _reflected_digamma(x: Array) -> NDArray:
    import scipy.special

    return _exact_difference(x, scipy.special.digamma(1 - x), np.pi * (cospi(x) / sinpi(x)), _digamma_double_double)


def _reflected_trigamma(x: Array) -> NDArray:
    import scipy.special

    result: NDArray = np.square(np.pi / sinpi(x)) - scipy.special.polygamma(1, 1 - x)
    return result


def _exact_difference(x: Any, a: NDArray, b: Array, precise: Any) -> NDArray:
    """a - b, from double-double numbers where the difference cancels."""
    difference = np.asarray(a - b)
    cancels = np.abs(difference) < 0.75 * np.maximum(np.abs(b), 1)  # else `a` loses digits that 1 - x has
    if cancels.any():
        difference[cancels] = precise(x[cancels])
    return difference


def _digamma_double_double(x: Array) -> NDArray:
    sine, cosine = _at_iteration(x)
    y = add((1.0, 0.0), (-x, 0.0))
    total = multiply(PI, divide((-cosine[0], -cosine[1]), sine))
    for k in range(SHIFT):
        total = add(total, divide((-1.0, 0.0), add(y, (float(k), 0.0))))
    z = add(y, (float(SHIFT), 0.0))
    inverse = divide((1.0, 0.0), z)
    square = multiply(inverse, inverse)
    total = add(total, multiply(square, series(STIRLING_DERIVATIVE, square)))
    result: NDArray = add(add(total, log(z)), (-0.5 * inverse[0], -0.5 * inverse[1]))[0]
    return result


def _lgamma_double_double(x: Array) -> Any:
    sine, _ = _at_iteration(x)
    y = add((1.0, 0.0), (-x, 0.0))
    product: DoubleDouble = PI
    for k in range(SHIFT):
        product = multiply(product, add(y, (float(k), 0.0)))
    z = add(y, (float(SHIFT), 0.0))
    inverse = divide((1.0, 0.0), z)
    stirling = add(multiply(inverse, series(STIRLING, multiply(inverse, inverse))), HALF_LOG_OF_TWO_PI)
    stirling = add(add(stirling, multiply(add(z, (-0.5, 0.0)), log(z))), (-z[0], -z[1]))
    size = np.where(sine[0] < 0, -1.0, 1.0)
    result = add(log(divide(product, (sine[0] * size, sine[1] * size))), (-stirling[0], -stirling[1]))[0]
    for (high, low), powers in ROOTS:
        distance = (x - high) - low
        result = np.where(np.abs(distance) < NEXT_TO_ROOT, distance * np.polyval(powers[::-1], distance), result)
    return result


def _at_iteration(x: Array) -> tuple[DoubleDouble, DoubleDouble]:
    """sin(pi * t) and cos(pi * t) for the fractional part t of x."""
    iteration = x - np.rint(x)
    size = np.abs(iteration)
    steep = size > 0.25
    (sine, sine_low), (cosine, cosine_low) = sine_and_cosine(multiply(PI, (np.where(steep, 0.5 - size, size), 0.0)))
    sign = np.where(iteration < 0, -1.0, 1.0)
    return (
        (sign * np.where(steep, cosine, sine), sign * np.where(steep, cosine_low, sine_low)),
        (np.where(steep, sine, cosine), np.where(steep, sine_low, cosine_low)),
    )
