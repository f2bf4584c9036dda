"""Slopes of silu, gelu and sinc in `vecmath`, with their digits next to their roots, and the values that go to zero
where an exponential is no normal number: silu, silu_slope, x_ndtr, x_ndtr_slope, sinc_slope.

Formulas and polynomials are those of `ops.precise_slopes`. Value and slope of silu have one exponential, e**(-|x| - r)
with the root r, which LLVM then computes once; so have those of gelu.
"""

from __future__ import annotations

from tracegrad.codegen.vecmath_erf import ROOT_HALF, minus_half_square, of_tail, tail_variable
from tracegrad.codegen.vecmath_exp import UNDERFLOW, product_with_exp, reduced_exp, scale_by_power_of_two
from tracegrad.codegen.vecmath_lang import (
    Bits,
    Pair,
    Real,
    absolute,
    copysign,
    fast_two_sum,
    fma,
    horner,
    multiply_pairs,
    round_half_even,
    select,
    two_product,
)
from tracegrad.ops.precise import TAIL_END
from tracegrad.ops.precise_slopes import (
    GELU_ROOT,
    GELU_SLOPE,
    INVERSE_PI,
    PI,
    SILU_EXP,
    SILU_ROOT,
    SINC_COS,
    SINC_CUBE,
    SINC_NEAR,
    SINC_SIN,
    SINC_SQUARE,
)

__all__ = ["silu", "silu_slope", "sinc_slope", "x_ndtr", "x_ndtr_slope"]

SINC_END = {"f64": 1e18, "f32": 1e9}  # the sine does not count in the slope


def _below(x: Real) -> Real:
    """-|x|, not less than where its exponential underflows."""
    return (-absolute(x)).at_least(x.pick(UNDERFLOW))


def _from_root(x: Real) -> Pair:
    """x - r in two words."""
    root, root_low = x.pick(SILU_ROOT)
    d = fast_two_sum(x, x.constant(-root))
    return Pair(d.hi, d.lo - root_low)


def silu(x: Real) -> Real:
    """x / (1 + e**-x), where x < 0 by e**x."""
    below = _below(x)
    p, word = reduced_exp(_from_root(below))
    weight = (1.0 + p) * SILU_EXP
    small = scale_by_power_of_two(weight * below, word)
    return select(x < 0.0, small, x) / fma(weight, _power(word), 1.0)


def silu_slope(x: Real) -> Real:
    d = _from_root(_below(x))
    p, word = reduced_exp(d)
    weight, power = (1.0 + p) * SILU_EXP, _power(word)
    numerator = d.hi + fma(fma(power, p, power - 1.0), SILU_EXP, d.lo)
    denominator = fma(weight, power, 1.0)
    slope = scale_by_power_of_two(weight * numerator / (denominator * denominator), word)
    return select(x < 0.0, slope, 1.0 - slope)


def _power(word: Bits) -> Real:
    """2**k of the low bits k + 2*bias, and 0 where that underflows."""
    return scale_by_power_of_two(word.real.constant(1.0), word)


def _size(x: Real) -> tuple[Real, Real]:
    """|x|, up to where e**(-x**2 / 2) has underflowed, and |x| / sqrt(2)."""
    a = absolute(x).at_most(x.pick(TAIL_END) * 1.4)
    return a, a * ROOT_HALF


def x_ndtr(x: Real) -> Real:
    """x times the probability that a standard normal variable is below x."""
    a, b = _size(x)
    tail = product_with_exp(minus_half_square(x), of_tail(b) * (a * -0.5))
    return select(x < 0.0, tail, x + tail)


def x_ndtr_slope(x: Real) -> Real:
    (root, root_low), (a, b) = x.pick(GELU_ROOT), _size(x)
    _, variable = tail_variable(b)
    h = horner(variable, x.pick(GELU_SLOPE))
    slope = product_with_exp(minus_half_square(x), ((root - a) + root_low) * h)
    return select(x < 0.0, slope, 1.0 - slope)


def _times(x: Real, word: Real, constant: tuple[float, float]) -> Pair:
    """(x + word) * constant in two words, for a low word."""
    product = two_product(x, constant[0])
    return Pair(product.hi, fma(x, constant[1], fma(word, constant[0], product.lo)))


def sinc_slope(x: Real) -> Real:
    size, zero = absolute(x), x.constant(0.0)
    turn = size - round_half_even(size * 0.5) * 2.0
    h = 0.5 - absolute(turn)
    square = two_product(h, h)
    a = size.at_least(0.25).at_most(x.pick(SINC_END))
    inverse = copysign(1.0 / a, turn)
    y = _times(inverse, fma(-a, absolute(inverse), 1.0) * inverse, x.pick(INVERSE_PI))
    lead = _times(h, zero, x.pick(PI))
    of_sin, of_cos = _times(h, zero, x.pick(SINC_CUBE)), _times(y.hi, y.lo, x.pick(SINC_SQUARE))
    bend = fast_two_sum(-of_cos.hi, of_sin.hi)
    second = multiply_pairs(Pair(bend.hi, bend.lo + (of_sin.lo - of_cos.lo)), square)
    cos, sin = horner(square.hi, x.pick(SINC_COS)), horner(square.hi, x.pick(SINC_SIN))
    rest = fma(square.hi * square.hi, fma(h, sin, -y.hi * cos), second.lo)
    far = (((lead.hi - y.hi) + second.hi) + ((lead.lo - y.lo) + rest)) / x
    near = -x * horner(x * x, x.pick(SINC_NEAR))
    return select(size < 0.5, near, far)
