"""Emit the exponential family: exp, exp2, expm1, sigmoid, tanh, sech2, sinh, cosh.

All use one range reduction (Cody & Waite 1980): x = k*ln2 + r, |r| <= ln2/2. ln2 is two words of the format, and both
products enter by FMA. All use one polynomial, e**r = 1 + r + r**2 * q(r). `q` is a minimax fit of (e**r - 1 - r) / r**2
on |r| <= 0.3467, by Lawson-weighted least squares in 60 digits. The lowest coefficients are rounded one by one, and the
rest is refitted. The relative error of r + r**2 * q(r) is under 2**-61 (float64) and 2**-26 (float32).
"""

from __future__ import annotations

from typing import NamedTuple

from tracegrad.codegen.vecmath.avx512 import has_instructions, scale
from tracegrad.codegen.vecmath.expr import (
    Bits,
    DoubleWord,
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
# Fits of (2**f - 1) / f on |f| <= 1/2, and of (sinh(r) - r) / r**3 and (cosh(r) - 1) / r**2 in r**2. Relative errors
# are under 2**-57.7, 2**-61.6 and 2**-70 (float64), and 2**-28.3, 2**-26.1 and 2**-33.2 (float32).
EXP2 = {
    "f64": (
        0.6931471805599453,
        0.24022650695910108,
        0.055504108664821715,
        0.009618129107601603,
        0.0013333558146548473,
        0.00015403530449039103,
        1.525273363178724e-05,
        1.3215438834667916e-06,
        1.0178160957399797e-07,
        7.073233211953861e-09,
        4.4387277995585783e-10,
    ),
    "f32": (
        0.6931471824645996,
        0.24022647738456726,
        0.05550359562039375,
        0.00961849931627512,
        0.0013390971580520272,
        0.0001532933092676103,
    ),
}
SINH = {
    "f64": (
        0.16666666666666677,
        0.00833333333332144,
        0.00019841269886572817,
        2.7557243786406723e-06,
        2.510917725050041e-08,
    ),
    "f32": (0.1666654348373413, 0.00836654007434845),
}
COSH = {
    "f64": (
        0.5,
        0.041666666666666685,
        0.0013888888888873305,
        2.480158734911789e-05,
        2.755725192355306e-07,
        2.092172884855766e-09,
    ),
    "f32": (0.5, 0.041666459292173386, 0.0013935425085946918),
}
# e**x overflows above the first bound. e**x and x * e**x round to zero below the second. Both have a margin.
OVERFLOW = {"f64": 710.0, "f32": 89.0}
UNDERFLOW = {"f64": -760.0, "f32": -112.0}
# sech(x)**2 is less than the least normal number above this bound; tanh(x) rounds to 1 far below it.
SATURATED = {"f64": 355.05, "f32": 44.51}


def _reduce(x: Real, offset: int) -> tuple[Real, DoubleWord, Bits]:
    """r, r again in two words (not normalised), and the integer k + offset of x = k*ln2 + r."""
    ln2, ln2_low = x.pick(LN2)
    k, word = round_to_integer(x, LOG2_E, offset)
    coarse = fma(k, -ln2, x)  # exact: its terms are multiples of an ulp of ln2, and they cancel
    fine = k * -ln2_low
    return coarse + fine, DoubleWord(coarse, fine), word


def power_of_two(biased: Bits) -> Real:
    """2**k of the low bits k + bias, for k from 1 - bias to bias."""
    return (biased << biased.format.mantissa).real


def scale_by_power_of_two(x: Real, word: Bits) -> Real:
    """x * 2**k of the low bits k + 2*bias, through overflow and denormals, rounded once."""
    if has_instructions(x.format):
        return scale(x, word.real - (x.format.shifter + 2 * x.format.bias))
    half = word >> 1
    return x * power_of_two(half) * power_of_two(word - half)


def _expm1_reduced(r: Real, reduced: DoubleWord) -> DoubleWord:
    """e**r - 1 for the r of `_reduce`, as an exact leading term and a remainder."""
    square = r * r
    return DoubleWord(reduced.hi, fma(square, horner(r, r.pick(EXP)), reduced.lo))


def _clamped(x: Real) -> Real:
    return x.at_least(x.pick(UNDERFLOW)).at_most(x.pick(OVERFLOW))


def exp(x: Real) -> Real:
    r, reduced, word = _reduce(_clamped(x), 2 * x.format.bias)
    leading, rest = _expm1_reduced(r, reduced)
    return scale_by_power_of_two(1.0 + (leading + rest), word)


def exp_of_pair(x: DoubleWord) -> Real:
    """e**(hi + lo); if e**hi overflows or underflows, lo is ignored."""
    return product_with_exp(x)


def product_with_exp(x: DoubleWord, *factors: Real) -> Real:
    """e**(hi + lo) times factors, which may be as large as e**hi is small: the product is scaled, and rounded, last."""
    counts = absolute(x.hi) < -x.hi.pick(UNDERFLOW)
    return product_with_small_exp(DoubleWord(_clamped(x.hi), select(counts, x.lo, 0.0)), *factors)


def product_with_small_exp(x: DoubleWord, *factors: Real) -> Real:
    """The same, if e**hi does not overflow and is not far below underflow."""
    p, word = reduced_exp(x)
    half = word >> 1
    product = (1.0 + p) * power_of_two(half)
    for factor in factors:
        product = product * factor
    return product * power_of_two(word - half)


def reduced_exp(x: DoubleWord) -> tuple[Real, Bits]:
    """p and the low bits k + 2*bias of e**(hi + lo) = (1 + p) * 2**k, clear of overflow and underflow."""
    _, reduced, word = _reduce(x.hi, 2 * x.hi.format.bias)
    low = reduced.lo + x.lo
    leading, rest = _expm1_reduced(reduced.hi + low, DoubleWord(reduced.hi, low))
    return leading + rest, word


def expm1(x: Real) -> Real:
    """e**x - 1, by half of it, which does not overflow."""
    clamped = x.at_least(-40.0).at_most(x.pick(OVERFLOW))
    r, reduced, word = _reduce(clamped, x.format.bias - 1)
    scale = power_of_two(word)
    leading, rest = _expm1_reduced(r, reduced)
    half = fma(scale, leading + rest, scale - 0.5)
    return or_itself_if_tiny(x, half + half)


def _expm1_of_twice(x: Real) -> tuple[Real, Real]:
    """g = (e**2|x| - 1) / 8, which tanh and its derivative share, and a factor near 1/2, such that factor / g is
    4 / (e**2|x| - 1).

    With |x| = k*ln2/2 + r, g is 2**(k-2) * (p + 1/2) - 1/8, p = (e**2r - 1) / 2. In float32 the low word of ln2 is so
    small that tanh does not need it; then k*low, with k = 2|x| / ln2, is left to the factor.
    """
    magnitude = absolute(x).at_most(x.pick(SATURATED))
    ln2, low = x.pick(LN2)
    k, word = round_to_integer(magnitude, 2.0 * LOG2_E, x.format.bias - 2)
    r, factor = fma(k, -0.5 * ln2, magnitude), x.constant(0.5)
    if x.format.name == "f64":
        r = fma(k, -0.5 * low, r)
    else:
        factor = fma(magnitude, LOG2_E * low, factor)
    scale = power_of_two(word)
    p = fma(r * r, horner(r, [c * 2.0 ** (j + 1) for j, c in enumerate(x.pick(EXP))]), r)
    return fma(scale, p, fma(scale, 0.5, -0.125)), factor


def sech2(x: Real) -> Real:
    """sech(x)**2 = (1 - i/8) * i/2 with i = 1 / (g + 1/4), g = (e**2|x| - 1) / 8; 0 if it is no normal number."""
    g, factor = _expm1_of_twice(x)
    inverse = 1.0 / (g + 0.25)
    result = fma(inverse, -0.125, 1.0) * (inverse * factor)
    return select(result < x.format.tiny, 0.0, result)


def tanh(x: Real) -> Real:
    """t = tanh |x| = g / (g + 1/4) with g as in `sech2`, corrected by the remainder g - t*g - t/4. The sums of the
    remainder are exact where it matters."""
    g, _ = _expm1_of_twice(x)
    inverse = 1.0 / (g + 0.25)
    result = g * inverse
    rest = fma(-result, g, fma(result, -0.25, g))
    return or_itself_if_tiny(x, copysign(fma(rest, inverse, result), x))


def sigmoid(x: Real) -> Real:
    """1 / (1 + e) or e / (1 + e) with e = e**-|x| <= 1: no overflow, and denormals in the left tail."""
    e = exp(-absolute(x))
    return divide_by_pair(select(x < 0.0, e, 1.0), fast_two_sum(x.constant(1.0), e))


class _HyperbolicTerms(NamedTuple):
    """The parts for |x| = k*ln2 + r: (2**k + 2**-k) / 4 in two words, (2**k - 2**-k) / 4, sinh(r) in two words and
    cosh(r) - 1."""

    sum: DoubleWord
    difference: Real
    sinh: DoubleWord
    cosh: Real


def _hyperbolic_terms(x: Real) -> _HyperbolicTerms:
    """The parts of which sinh and cosh are composed."""
    form = x.format
    ln2, ln2_low = x.pick(LN2)
    magnitude = absolute(x).at_most(x.pick(OVERFLOW) + 0.6)
    k, word = round_to_integer(magnitude, LOG2_E, form.bias - 2)
    leading, low = fma(k, -ln2, magnitude), k * -ln2_low
    r = leading + low
    square = r * r
    up = word << form.mantissa
    down = up.saturating_rsub((2 * form.bias - 4) << form.mantissa).real
    return _HyperbolicTerms(
        fast_two_sum(up.real, down),
        up.real - down,
        DoubleWord(leading, fma(r * square, horner(square, x.pick(SINH)), low)),
        square * horner(square, x.pick(COSH)),
    )


def sinh(x: Real) -> Real:
    """sinh from the sinh and cosh of k*ln2 and of r; if k is 0, the difference is 0, and sinh(r) remains."""
    terms = _hyperbolic_terms(x)
    large = fma(terms.sum.hi, terms.sinh.hi, terms.difference)
    half = large + fma(terms.difference, terms.cosh, terms.sum.hi * terms.sinh.lo)
    return or_itself_if_tiny(x, copysign(half + half, x))


def cosh(x: Real) -> Real:
    terms = _hyperbolic_terms(x)
    large = fma(terms.difference, terms.sinh.hi, terms.sum.hi)
    half = large + fma(terms.sum.hi, terms.cosh, fma(terms.difference, terms.sinh.lo, terms.sum.lo))
    return half + half


def exp2(x: Real) -> Real:
    """2**x = 2**k * 2**f, f = x - k exact."""
    bias = float(x.format.bias)
    x = x.at_least(-bias - x.format.mantissa - 2.0).at_most(bias + 1.0)
    k, word = round_to_integer(x, 1.0, 2 * x.format.bias)
    fraction = x - k
    return scale_by_power_of_two(fma(fraction, horner(fraction, x.pick(EXP2)), 1.0), word)
