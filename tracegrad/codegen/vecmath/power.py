"""Emit power and the cube root.

power is 2**(y * log2|x|) with the logarithm and the product in two words. With s = f / (2 + f) as in `log`, and
z = s**2, log2(1 + f) = s * (2 + z * (2/3 + z * q(z))) / ln2. q is a minimax fit (as in `exp`). The relative error is
under 2**-66 (float64) and 2**-36 (float32): ten bits beyond the format, which the exponent may lose.
"""

from __future__ import annotations

import math

from tracegrad.codegen.vecmath.cold_paths import call_unless_all
from tracegrad.codegen.vecmath.exp import scale_by_power_of_two
from tracegrad.codegen.vecmath.expr import (
    DoubleWord,
    Mask,
    Real,
    absolute,
    copysign,
    fast_two_sum,
    fma,
    horner,
    round_half_even,
    round_to_integer,
    select,
    two_product,
)
from tracegrad.codegen.vecmath.log import LN2, split

# 2/ln2 and 2/(3*ln2), the first coefficients of log2((1 + s) / (1 - s)) / s in z = s**2; fits of the others and of
# (2**r - 1 - r*ln2) / r**2 on |r| <= 1/2.
LOG2_FIRST = {"f64": (2.8853900817779268, 4.0710547481862066e-17), "f32": (2.885390043258667, 3.851926067000022e-08)}
LOG2_SECOND = {"f64": 0.9617966939259756, "f32": 0.9617967009544373}
LOG2_TAIL = {
    "f64": (
        0.5770780163556545,
        0.4121985830825019,
        0.3205989034680537,
        0.2623076185628518,
        0.22198717945556873,
        0.19119095242560022,
        0.19091433958603907,
    ),
    "f32": (0.5770788192749023, 0.4119272828102112, 0.3364895284175873),
}
EXP2_TAIL = {
    "f64": (
        0.24022650695910075,
        0.05550410866482158,
        0.009618129107618634,
        0.0013333558146423196,
        0.0001540353042485199,
        1.5252733820836028e-05,
        1.3215451576896747e-06,
        1.0178067237426154e-07,
        7.070990735876958e-09,
        4.4541102704451423e-10,
    ),
    "f32": (
        0.24022650718688965,
        0.055503807961940765,
        0.009618103504180908,
        0.001338134054094553,
        0.0001544491678941995,
    ),
}

# The bits of x without the last ones, divided by -3 and shifted, are the bits of a y near x**(-1/3): 1 - x * y**3 = r
# is within 0.1021. Fits of ((1 - r)**(-1/3) - 1) / r there, to 2**-23.3 and 2**-18.4 of a root.
_CUT = {"f64": 20, "f32": 9}
_MOVED = {"f64": 1363.932 * 2.0**32, "f32": 169.2653 * 2.0**14}
_CBRT_SERIES = {
    "f64": (0.3333290105691127, 0.22221413488092134, 0.17449689810556743, 0.14597484079420395),
    "f32": (0.3333275294007972, 0.22349830848916988, 0.17470886631320373),
}
# The error of the root of a smaller number would be denormal, so such a number is scaled by 8**grow.
_SMALL = {"f64": (2.0**-900, 60), "f32": (2.0**-96, 18)}


def _ratio(m: Real) -> tuple[Real, Real, Real]:
    """(m - 1) / (m + 1) in two words, and the square of the first."""
    f = m - 1.0
    reciprocal = 1.0 / (m + 1.0)
    s = f * reciprocal
    return s, fma(-s, f, fma(s, -2.0, f)) * reciprocal, s * s


def _log2_pair(k: Real, m: Real) -> DoubleWord:
    """log2(2**k * m) in two words, for an m of `split`."""
    s, s_low, z = _ratio(m)
    (first, first_low), second = m.pick(LOG2_FIRST), m.pick(LOG2_SECOND)
    tail = horner(z, m.pick(LOG2_TAIL))
    derivative = fma(z, tail, second)
    derivative_low = fma(z, tail, second - derivative)
    rise = z * derivative
    total = fast_two_sum(m.constant(first), rise)
    low = fma(z, derivative, -rise) + fma(z, derivative_low, first_low)
    low = total.lo + fma(fma(s, s, -z), derivative, low)
    high = s * total.hi
    # s_low is multiplied by the derivative by s, to one part in ten thousand.
    low = fma(s_low, fma(rise, 2.0, total.hi), fma(s, low, fma(s, total.hi, -high)))
    result = fast_two_sum(k, high)
    return DoubleWord(result.hi, result.lo + low)


def _log2_short_pair(k: Real, m: Real) -> DoubleWord:
    """The same for float32 to 2**-29, in two words, the second at most a hundredth of the first."""
    s, s_low, z = _ratio(m)
    first, first_low = m.pick(LOG2_FIRST)
    rise = fma(z, fma(z, horner(z, m.pick(LOG2_TAIL)), m.pick(LOG2_SECOND)), first_low)
    high = s * first
    low = fma(s, rise, fma(s_low, fma(rise, 3.0, first), fma(s, first, -high)))
    result = fast_two_sum(k, high)
    return DoubleWord(result.hi, result.lo + low)


def _inverse_cbrt(x: Real) -> Real:
    """x**(-1/3) of a positive normal number, to some 20 bits."""
    form, cut = x.format, x.pick(_CUT)
    # An integer below 2**mantissa, combined with the exponent bits of 2**mantissa, is the sum of both as a float.
    base = 2.0**form.mantissa
    word = ((x.bits >> cut) | ((form.bias + form.mantissa) << form.mantissa)).real
    y = (fma(word, -1 / 3, base * 4 / 3 + x.pick(_MOVED)).bits << cut).real
    missing = fma(-(x * y), y * y, 1.0)
    return fma(y * missing, horner(missing, x.pick(_CBRT_SERIES)), y)


def cbrt(x: Real) -> Real:
    """x * y**2 with y near x**(-1/3), corrected: with e the excess of its cube over x, a fraction of e * y**2 is
    subtracted."""
    magnitude = absolute(x)
    small, grow = x.pick(_SMALL)
    is_small = magnitude < small
    scaled = select(is_small, magnitude * 8.0**grow, magnitude)
    inverse = _inverse_cbrt(scaled)
    square = inverse * inverse
    root = scaled * square
    excess = fma(root * root, root, -scaled) * square
    # (1 + d)**(-1/3) = 1 - d/3 + 2*d**2/9 - ...; the term d/3 is enough for float32.
    fraction = fma(excess * inverse, -2 / 9, 1 / 3) if x.format.name == "f64" else x.constant(1 / 3)
    root = fma(-excess, fraction, root)
    root = copysign(select(is_small, root * 2.0**-grow, root), x)
    return select(magnitude < math.inf, root, x)


def _is_integer(y: Real) -> Mask:
    return round_half_even(y).equals(y)


def _power_of_split(k: Real, m: Real, y: Real) -> tuple[Real, Real, Real]:
    """(2**k * m)**y = 2**(n + r), |r| <= 1/2: returns 2**r, a number whose low bits are the integer n, and n + r.

    If the result is too large or too small, only n + r has a meaning.
    """
    if m.format.name == "f32":
        return _power_of_short_pair(_log2_short_pair(k, m), y)
    logarithm = _log2_pair(k, m)
    total, total_low = two_product(logarithm.hi, y)
    n, word = round_to_integer(total, 1.0)
    r, low = total - n, fma(y, logarithm.lo, total_low)
    ln2, ln2_low = r.pick(LN2)
    high, whole = r * ln2, r + low
    rest = fma(low, ln2, fma(r, ln2, -high))
    rest = fma(whole, fma(whole, horner(whole, r.pick(EXP2_TAIL)), ln2_low), rest)
    return 1.0 + (high + rest), word.real, total


def _power_of_short_pair(logarithm: DoubleWord, y: Real) -> tuple[Real, Real, Real]:
    """The same for float32, except that n + r is accurate to a hundredth."""
    total, total_low = two_product(logarithm.hi, y)
    low = fma(y, logarithm.lo, total_low)
    n, word = round_to_integer(total + low, 1.0)
    r = (total - n) + low
    ln2, _ = r.pick(LN2)
    return fma(r, fma(r, horner(r, r.pick(EXP2_TAIL)), ln2), 1.0), word.real, total


def _with_limits(x: Real, y: Real, result: Real, word: Real, total: Real) -> Real:
    """C99's pow, including Annex F, from the results of `_power_of_split` for |x|."""
    form, magnitude = x.format, absolute(x)
    finite = magnitude < math.inf
    result = scale_by_power_of_two(result, word.bits + 2 * form.bias)
    total = select(magnitude.equals(0.0), y * -math.inf, select(finite, total, magnitude * y))
    limit = form.bias + form.mantissa + 2.0
    result = select(absolute(total) < limit, result, select(total < 0.0, 0.0, absolute(total) * math.inf))
    result = select(y.equals(0.0) | magnitude.equals(1.0), 1.0, result)
    is_integer = _is_integer(y)
    result = select(is_integer & ~_is_integer(y * 0.5), copysign(result, x), result)
    return select((x < 0.0) & finite & ~is_integer, math.nan, result)


def power(x: Real, y: Real) -> Real:
    """x**y. If x is positive and the result normal, the parts are only joined; other cases are out of line."""
    reduced = split(absolute(x), tested=True)
    result, word, total = _power_of_split(reduced.k, reduced.m, y)
    form = x.format
    infinity = (2 * form.bias + 1) << form.mantissa
    # Compared as integers, because LLVM emits longer code for two comparisons of floats.
    usual = (x.bits - 1).below(infinity - 1) & (absolute(total) < form.bias * 0.98 - 2.0)
    joined = (result.bits + (word.bits << form.mantissa)).real
    return call_unless_all(usual, "power_with_limits", _with_limits, (x, y, result, word, total), joined)
