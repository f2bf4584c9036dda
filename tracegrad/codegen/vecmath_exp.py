"""The exponential family of `vecmath`: exp, exp2, expm1, sigmoid, tanh, sech2, sinh, cosh.

All rest on one reduction (Cody & Waite 1980): x = k*ln2 + r, |r| <= ln2/2, where ln2 is two words of the
format and both products enter by FMA, and on one polynomial, e**r = 1 + r + r**2 * q(r). `q` is a minimax
fit (Lawson-weighted least squares in 60 digits, the lowest coefficients rounded one by one and the rest
refitted) of (e**r - 1 - r) / r**2 on |r| <= 0.3467, for a relative error of r + r**2 * q(r) under 2**-61
(float64) and 2**-26 (float32).
"""

from __future__ import annotations

from tracegrad.codegen.vecmath_lang import (
    Bits,
    Pair,
    Real,
    absolute,
    copysign,
    divide_by_pair,
    fast_two_sum,
    fma,
    horner,
    or_itself_if_tiny,
    round_to_integer,
    select,
)

__all__ = [
    "UNDERFLOW",
    "cosh",
    "exp",
    "exp2",
    "exp_of_pair",
    "expm1",
    "power_of_two",
    "product_with_exp",
    "product_with_small_exp",
    "reduced_exp",
    "scale_by_power_of_two",
    "sech2",
    "sigmoid",
    "sinh",
    "tanh",
]

LOG2_E = 1.4426950408889634
LN2 = {
    "f64": (0.6931471805599453, 2.3190468138462996e-17),
    "f32": (0.6931471824645996, -1.904654290582768e-09),
}

EXP = {
    "f64": (
        0.5,
        0.16666666666666677,
        0.041666666666666685,
        0.008333333333321442,
        0.0013888888888872939,
        0.00019841269886569806,
        2.4801587350453618e-05,
        2.755724378613343e-06,
        2.755725038035475e-07,
        2.5109178720027914e-08,
        2.0922300750184804e-09,
    ),
    "f32": (
        0.4999999403953552,
        0.16666516661643982,
        0.04166810214519501,
        0.008369185961782932,
        0.0013838676968589425,
    ),
}
# From here on up e**x overflows; from here on down it and x * e**x round to zero (all clear of the last such number).
OVERFLOW = {"f64": 710.0, "f32": 89.0}
UNDERFLOW = {"f64": -760.0, "f32": -112.0}
# From here on sech(x)**2 is less than the least normal number; tanh(x) rounds to 1 long before.
SATURATED = {"f64": 355.05, "f32": 44.51}


def _reduce(x: Real, offset: int) -> tuple[Real, Pair, Bits]:
    """r, r again in two words (not normalised), and the integer k + offset of x = k*ln2 + r."""
    ln2, ln2_low = x.pick(LN2)
    k, word = round_to_integer(x, LOG2_E, offset)
    coarse = fma(k, -ln2, x)  # exact: its terms are multiples of an ulp of ln2, and they cancel
    fine = k * -ln2_low
    return coarse + fine, Pair(coarse, fine), word


def power_of_two(biased: Bits) -> Real:
    """2**k of the low bits k + bias, for k from 1 - bias to bias."""
    return (biased << biased.format.mantissa).real


def scale_by_power_of_two(x: Real, word: Bits) -> Real:
    """x * 2**k of the low bits k + 2*bias, through overflow and denormals, rounded once."""
    half = word >> 1
    return x * power_of_two(half) * power_of_two(word - half)


def _expm1_reduced(r: Real, parts: Pair) -> Pair:
    """e**r - 1 for the r of `_reduce`, as an exact leading term and the rest."""
    square = r * r
    return Pair(parts.hi, fma(square, horner(r, r.pick(EXP)), parts.lo))


def _clamped(x: Real) -> Real:
    return x.at_least(x.pick(UNDERFLOW)).at_most(x.pick(OVERFLOW))


def exp(x: Real) -> Real:
    r, parts, word = _reduce(_clamped(x), 2 * x.format.bias)
    lead, rest = _expm1_reduced(r, parts)
    return scale_by_power_of_two(1.0 + (lead + rest), word)


def exp_of_pair(x: Pair) -> Real:
    """e**(hi + lo); where e**hi overflows or underflows lo does not count, and may be anything."""
    return product_with_exp(x)


def product_with_exp(x: Pair, *factors: Real) -> Real:
    """The same times factors, which may be as large as e**hi is small: the product is scaled, and rounded, last."""
    counts = absolute(x.hi) < -x.hi.pick(UNDERFLOW)
    return product_with_small_exp(Pair(_clamped(x.hi), select(counts, x.lo, 0.0)), *factors)


def product_with_small_exp(x: Pair, *factors: Real) -> Real:
    """The same where e**hi does not overflow, and hi is not far below where it underflows."""
    p, word = reduced_exp(x)
    half = word >> 1
    product = (1.0 + p) * power_of_two(half)
    for factor in factors:
        product = product * factor
    return product * power_of_two(word - half)


def reduced_exp(x: Pair) -> tuple[Real, Bits]:
    """p and the low bits k + 2*bias of e**(hi + lo) = (1 + p) * 2**k, clear of overflow and underflow."""
    _, parts, word = _reduce(x.hi, 2 * x.hi.format.bias)
    low = parts.lo + x.lo
    lead, rest = _expm1_reduced(parts.hi + low, Pair(parts.hi, low))
    return lead + rest, word


def _scaled_expm1(x: Real, shift: int) -> Real:
    """(e**x - 1) / 2**shift, for x from -40 up to where that overflows."""
    r, parts, word = _reduce(x, x.format.bias - shift)
    scale = power_of_two(word)
    lead, rest = _expm1_reduced(r, parts)
    return fma(scale, lead + rest, scale - 2.0**-shift)


def _scaled_expm1_pair(x: Real, shift: int) -> Pair:
    """The same in two words."""
    r, parts, word = _reduce(x, x.format.bias - shift)
    scale = power_of_two(word)
    base = scale - 2.0**-shift
    p = fast_two_sum(*_expm1_reduced(r, parts))
    high = fma(scale, p.hi, base)
    return Pair(high, fma(scale, p.hi, base - high) + scale * p.lo)


def expm1(x: Real) -> Real:
    clamped = x.at_least(-40.0).at_most(x.pick(OVERFLOW))
    half = _scaled_expm1(clamped, 1)
    return or_itself_if_tiny(x, half + half)


def _half_expm1_of_twice(x: Real) -> Real:
    """(e**2|x| - 1) / 2, which tanh and its derivative both have."""
    magnitude = absolute(x).at_most(x.pick(SATURATED))
    return _scaled_expm1(magnitude + magnitude, 1)


def sech2(x: Real) -> Real:
    """With i = 1 / (h + 1), h = (e**2|x| - 1) / 2, sech(x)**2 = (1 - i/2) * 2*i; 0 where that is no normal number."""
    half = _half_expm1_of_twice(x)
    inverse = 1.0 / (half + 1.0)
    result = fma(inverse, -0.5, 1.0) * (inverse + inverse)
    return select(result < x.format.tiny, 0.0, result)


def tanh(x: Real) -> Real:
    """With h = (e**2|x| - 1) / 2, tanh |x| = h / (h + 1)."""
    half = _half_expm1_of_twice(x)
    if x.format.name == "f32":
        whole = fast_two_sum(x.constant(1.0), half)
        inverse = 1.0 / whole.hi
        result = half * inverse
        rest = fma(-result, whole.lo, fma(-result, whole.hi, half))
        return copysign(fma(rest, inverse, result), x)
    return copysign(divide_by_pair(half, fast_two_sum(x.constant(1.0), half)), x)


def sigmoid(x: Real) -> Real:
    """With e = e**-|x| <= 1, 1 / (1 + e) or e / (1 + e): no overflow, and denormals in the left tail."""
    e = exp(-absolute(x))
    return divide_by_pair(select(x < 0.0, e, 1.0), fast_two_sum(x.constant(1.0), e))


def sinh(x: Real) -> Real:
    """With q = (e**|x| - 1) / 4, finite where sinh is, sinh |x| = 2 * (q + q / (4*q + 1))."""
    quarter = _scaled_expm1_pair(absolute(x).at_most(x.pick(OVERFLOW) + 0.6), 2)
    rest = quarter.hi / fma(quarter.hi, 4.0, 1.0) + quarter.lo
    total = quarter.hi + rest
    return or_itself_if_tiny(x, copysign(total + total, x))


def cosh(x: Real) -> Real:
    """With q = e**|x| / 4, cosh x = 2 * (q + 1 / (16*q))."""
    r, parts, word = _reduce(absolute(x).at_most(x.pick(OVERFLOW) + 0.6), x.format.bias - 2)
    scale = power_of_two(word)
    lead, rest = _expm1_reduced(r, parts)
    p = fast_two_sum(x.constant(1.0), lead + rest)
    high = scale * p.hi
    total = high + fma(scale, p.lo, 0.0625 / high)
    return total + total


def exp2(x: Real) -> Real:
    """2**x = 2**k * e**((x - k) * ln2), x - k exact."""
    ln2, ln2_low = x.pick(LN2)
    bias = float(x.format.bias)
    x = x.at_least(-bias - x.format.mantissa - 2.0).at_most(bias + 1.0)
    k, word = round_to_integer(x, 1.0, 2 * x.format.bias)
    fraction = x - k
    r = fraction * ln2
    r_low = fma(fraction, ln2_low, fma(fraction, ln2, -r))
    lead, rest = _expm1_reduced(r, Pair(r, r_low))
    return scale_by_power_of_two(1.0 + (lead + rest), word)
