"""Emit the fused derivatives of silu, gelu and sinc, accurate close to their roots.

The functions are silu, silu_derivative, gelu_tanh, gelu_tanh_derivative, x_ndtr, x_ndtr_derivative and sinc_derivative.
The values are also accurate where they approach zero and an exponential is not a normal number.

The formulas and polynomials are shared with `ops.numerics.accurate_derivatives`. Value and derivative of silu share one
exponential, e**(-|x| - r) with the root r, which LLVM then computes once. The same holds for gelu and gelu_tanh.
"""

from __future__ import annotations

from collections.abc import Mapping

from tracegrad.codegen.vecmath.cold_paths import call_where
from tracegrad.codegen.vecmath.erf import ROOT_HALF, minus_half_square, of_tail, tail_variable
from tracegrad.codegen.vecmath.exp import UNDERFLOW, product_with_small_exp, reduced_exp, scale_by_power_of_two
from tracegrad.codegen.vecmath.expr import (
    Bits,
    DoubleWord,
    Real,
    absolute,
    copysign,
    fast_two_sum,
    fma,
    horner,
    multiply_pairs,
    round_half_even,
    select,
    sqrt,
    two_product,
    two_sum,
)
from tracegrad.ops.numerics.accurate import TAIL_END
from tracegrad.ops.numerics.accurate_derivatives import (
    GELU_DERIVATIVE,
    GELU_ROOT,
    GELU_TANH_BEND,
    GELU_TANH_CUBE,
    GELU_TANH_END,
    GELU_TANH_EXP,
    GELU_TANH_LINE,
    GELU_TANH_ROOT,
    INVERSE_PI,
    PI,
    SILU_EXP,
    SILU_ROOT,
    SINC_ARCTAN,
    SINC_COS,
    SINC_CUBE,
    SINC_NEAR,
    SINC_SIN,
    SINC_SQUARE,
)

SINC_END = {"f64": 1e18, "f32": 1e9}  # the sine is negligible in the derivative
CLOSE = 2.0**-13  # difference of nearly cancelling terms, below which another formula is more accurate


def _below(x: Real) -> Real:
    """-|x|, limited so that its exponential does not underflow."""
    return (-absolute(x)).at_least(x.pick(UNDERFLOW))


def _from_root(x: Real, table: Mapping[str, tuple[float, float]]) -> DoubleWord:
    """x - r in two words, with the root r from a table."""
    root, root_low = x.pick(table)
    d = fast_two_sum(x, x.constant(-root))
    return DoubleWord(d.hi, d.lo - root_low)


def silu(x: Real) -> Real:
    """x / (1 + e**-x), for x < 0 by e**x."""
    below = _below(x)
    p, word = reduced_exp(_from_root(below, SILU_ROOT))
    weight = (1.0 + p) * SILU_EXP
    small = scale_by_power_of_two(weight * below, word)
    return select(x < 0.0, small, x) / fma(weight, _power(word), 1.0)


def silu_derivative(x: Real) -> Real:
    d = _from_root(_below(x), SILU_ROOT)
    p, word = reduced_exp(d)
    weight, power = (1.0 + p) * SILU_EXP, _power(word)
    numerator = d.hi + fma(fma(power, p, power - 1.0), SILU_EXP, d.lo)
    denominator = fma(weight, power, 1.0)
    derivative = scale_by_power_of_two(weight * numerator / (denominator * denominator), word)
    return select(x < 0.0, derivative, 1.0 - derivative)


def _power(word: Bits) -> Real:
    """2**k of the low bits k + 2*bias, or 0 if it underflows."""
    return scale_by_power_of_two(word.real.constant(1.0), word)


def _gelu_tanh_terms(x: Real) -> tuple[Real, DoubleWord, Real, DoubleWord]:
    """-|x|, d, m, and the difference of u from its value at the root."""
    below = -absolute(x).at_most(x.pick(GELU_TANH_END))
    root, root_low = x.pick(GELU_TANH_ROOT)
    s = fast_two_sum(below, x.constant(root))
    m = multiply_pairs(DoubleWord(below, x.constant(0.0)), DoubleWord(s.hi, s.lo + root_low))
    cubic = multiply_pairs(m, DoubleWord(*map(x.constant, x.pick(GELU_TANH_CUBE))))
    line, line_low = x.pick(GELU_TANH_LINE)
    factor = two_sum(cubic.hi, x.constant(line))
    d = _from_root(below, GELU_TANH_ROOT)
    return below, d, m.hi, multiply_pairs(d, DoubleWord(factor.hi, factor.lo + (cubic.lo + line_low)))


def gelu_tanh(x: Real) -> Real:
    """x / (1 + e**-u), for x < 0 by e**u."""
    below, _, _, difference = _gelu_tanh_terms(x)
    p, word = reduced_exp(difference)
    weight = (1.0 + p) * GELU_TANH_EXP
    small = scale_by_power_of_two(weight * below, word)
    return select(x < 0.0, small, x) / fma(weight, _power(word), 1.0)


def gelu_tanh_derivative(x: Real) -> Real:
    _, d, m, difference = _gelu_tanh_terms(x)
    p, word = reduced_exp(difference)
    weight, power = (1.0 + p) * GELU_TANH_EXP, _power(word)
    bend = fma(m, 3 * x.pick(GELU_TANH_CUBE)[0], GELU_TANH_BEND)
    numerator = fma(d.hi, bend, fma(fma(power, p, power - 1.0), GELU_TANH_EXP, d.lo * bend))
    denominator = fma(weight, power, 1.0)
    derivative = scale_by_power_of_two(weight * numerator / (denominator * denominator), word)
    return select(x < 0.0, derivative, 1.0 - derivative)


def _size(x: Real) -> tuple[Real, Real]:
    """|x|, limited to where e**(-x**2 / 2) has underflowed, and |x| / sqrt(2)."""
    a = absolute(x).at_most(x.pick(TAIL_END) * 1.4)
    return a, a * ROOT_HALF


def x_ndtr(x: Real) -> Real:
    """x times the probability that a standard normal variable is below x."""
    a, b = _size(x)
    tail = product_with_small_exp(minus_half_square(a), of_tail(b) * (a * -0.5))
    return select(x < 0.0, tail, x + tail)


def x_ndtr_derivative(x: Real) -> Real:
    (root, root_low), (a, b) = x.pick(GELU_ROOT), _size(x)
    _, variable = tail_variable(b)
    h = horner(variable, x.pick(GELU_DERIVATIVE))
    derivative = product_with_small_exp(minus_half_square(a), ((root - a) + root_low) * h)
    return select(x < 0.0, derivative, 1.0 - derivative)


def _times(x: Real, word: Real, constant: tuple[float, float]) -> DoubleWord:
    """(x + word) * constant in two words, for a low word."""
    product = two_product(x, constant[0])
    return DoubleWord(product.hi, fma(x, constant[1], fma(word, constant[0], product.lo)))


def _angles(x: Real) -> tuple[Real, DoubleWord, DoubleWord]:
    """h, pi*h and y of `ops.numerics.accurate_derivatives`."""
    size = absolute(x)
    iteration = size - round_half_even(size * 0.5) * 2.0
    h = 0.5 - absolute(iteration)
    a = size.at_least(0.25).at_most(x.pick(SINC_END))
    inverse = copysign(1.0 / a, iteration)
    y = _times(inverse, fma(-a, absolute(inverse), 1.0) * inverse, x.pick(INVERSE_PI))
    return h, _times(h, x.constant(0.0), x.pick(PI)), y


def sinc_derivative(x: Real) -> Real:
    zero = x.constant(0.0)
    h, leading, y = _angles(x)
    square = two_product(h, h)
    of_sin, of_cos = _times(h, zero, x.pick(SINC_CUBE)), _times(y.hi, y.lo, x.pick(SINC_SQUARE))
    bend = fast_two_sum(-of_cos.hi, of_sin.hi)
    second = multiply_pairs(DoubleWord(bend.hi, bend.lo + (of_sin.lo - of_cos.lo)), square)
    cos, sin = horner(square.hi, x.pick(SINC_COS)), horner(square.hi, x.pick(SINC_SIN))
    rest = fma(square.hi * square.hi, fma(h, sin, -y.hi * cos), second.lo)
    difference = ((leading.hi - y.hi) + second.hi) + ((leading.lo - y.lo) + rest)
    near = -x * horner(x * x, x.pick(SINC_NEAR))
    usual = select(absolute(x) < 0.5, near, difference / x)
    return call_where(absolute(difference) < absolute(y.hi) * CLOSE, "sinc_derivative", _at_a_root, x, usual)


def _at_a_root(x: Real) -> Real:
    """`sinc_derivative` very close to one of its roots, where only a two-word difference of angles is accurate."""
    _, leading, y = _angles(x)
    square, table = multiply_pairs(y, y), [DoubleWord(*map(x.constant, pair)) for pair in x.pick(SINC_ARCTAN)]
    total = table[-1]
    for coefficient in table[-2::-1]:
        product = multiply_pairs(total, square)
        sum_ = fast_two_sum(coefficient.hi, product.hi)
        total = DoubleWord(sum_.hi, sum_.lo + (product.lo + coefficient.lo))
    angle = multiply_pairs(total, y)
    small = (leading.hi - angle.hi) + (leading.lo - angle.lo)
    sine = fma(small * small * (-1.0 / 6.0), small, small)
    return sqrt(fma(y.hi, y.hi, 1.0)) * sine / x
