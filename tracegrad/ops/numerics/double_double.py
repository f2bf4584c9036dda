"""Double-double arithmetic: a number is an unevaluated sum of two float64, or of two float64 arrays.

It is used where a function cancels near a root. Sums and products are from Dekker (1971) and Knuth, for numbers below
1e290. An operation takes ten to thirty NumPy operations, and has a relative error of about 2**-104.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tracegrad.typing import Array, NDArray

DoubleDouble = tuple[Any, Any]

LEADING_BITS = 2.0**27 + 1  # Veltkamp's factor: half of the bits of a float64


def split_quotient(numerator: int, denominator: int, dtype: Any = np.float64) -> tuple[float, float]:
    """The quotient of two integers, each word a number of the dtype."""
    high = float(dtype(numerator / denominator))
    over, under = high.as_integer_ratio()
    return high, (numerator * under - over * denominator) / (denominator * under)


# Coefficients of arctan(y) / y in y**2, enough up to y = 1/4.
ARCTAN = [split_quotient((-1) ** k, 2 * k + 1) for k in range(26)]
SINE = [split_quotient((-1) ** k, math.factorial(2 * k + 1)) for k in range(14)]
COSINE = [split_quotient((-1) ** k, math.factorial(2 * k)) for k in range(15)]
LN2 = (0.6931471805599453, 2.3190468138462996e-17)


def _normal(high: NDArray, low: Array) -> DoubleDouble:
    total = high + low
    return total, low - (total - high)


def add(a: DoubleDouble, b: DoubleDouble) -> DoubleDouble:
    """a + b"""
    total = a[0] + b[0]
    back = total - a[0]
    return _normal(total, ((a[0] - (total - back)) + (b[0] - back)) + (a[1] + b[1]))


def _halves(a: Array) -> DoubleDouble:
    scaled = a * LEADING_BITS
    high = scaled - (scaled - a)
    return high, a - high


def product(a: Array, b: Array) -> DoubleDouble:
    """a * b of single-word numbers, exactly."""
    high = a * b
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    return high, ((a_high * b_high - high) + a_high * b_low + a_low * b_high) + a_low * b_low


def multiply(a: DoubleDouble, b: DoubleDouble) -> DoubleDouble:
    """a * b"""
    high, low = product(a[0], b[0])
    return _normal(high, low + (a[0] * b[1] + a[1] * b[0]))


def divide(a: DoubleDouble, b: DoubleDouble) -> DoubleDouble:
    """a / b"""
    quotient = a[0] / b[0]
    back, back_low = product(quotient, b[0])
    return _normal(quotient, ((a[0] - back) - back_low + a[1] - quotient * b[1]) / b[0])


def series(coefficients: Sequence[DoubleDouble], x: DoubleDouble) -> DoubleDouble:
    """c0 + c1*x + c2*x**2 + ..."""
    total = coefficients[-1]
    for coefficient in coefficients[-2::-1]:
        total = add(multiply(total, x), coefficient)
    return total


def log(x: DoubleDouble) -> DoubleDouble:
    """log(x) for x > 0: the logarithm of a power of two, plus a series (inverse hyperbolic tangent) near 1."""
    mantissa, exponent = np.frexp(x[0])
    exponent = exponent - (mantissa < math.sqrt(0.5))
    scaled = np.ldexp(x[0], -exponent), np.ldexp(x[1], -exponent)
    ratio = divide(add(scaled, (-1.0, 0.0)), add(scaled, (1.0, 0.0)))
    square, low = multiply(ratio, ratio)
    high, rest = multiply(ratio, series(ARCTAN, (-square, -low)))
    return add(multiply((exponent.astype(np.float64), 0.0), LN2), (2 * high, 2 * rest))


def sine_and_cosine(x: DoubleDouble) -> tuple[DoubleDouble, DoubleDouble]:
    """sin(x) and cos(x) up to |x| = 0.8."""
    square, low = multiply(x, x)
    return multiply(x, series(SINE, (square, low))), series(COSINE, (square, low))
