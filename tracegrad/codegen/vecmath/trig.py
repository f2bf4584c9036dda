"""Emit the circular functions and their inverses: sin, cos, tan, arcsin, arccos, arctan, arctan2.

sin, cos and tan subtract a multiple of pi/2 from x, in three words (Cody & Waite 1980). The remainder has two words, so
it is accurate to the last digit close to the zeros too. That holds up to `REACH`. A larger argument is computed lane
by lane (`call_where`, `reduce_huge`).

The polynomials are minimax fits (as in `exp`) in z = r**2: of (f(r) - r) / r**3 for sin and tan on |r| <= pi/4, arctan
on |r| <= tan(pi/8), arcsin on |r| <= 1/2; of (cos(r) - 1 + z/2) / z**2 on |r| <= pi/4.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tracegrad.codegen.vecmath.cold_paths import call_where
from tracegrad.codegen.vecmath.expr import (
    Bits,
    DoubleWord,
    Mask,
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
    sqrt,
    two_product,
)
from tracegrad.codegen.vecmath.range_reduction import HALF_PI, reduce_huge

REACH = {"f64": 2.0**40, "f32": 2.0**17}

SIN = {
    "f64": (
        -0.1666666666666663,
        0.008333333333321917,
        -0.0001984126982945689,
        2.7557313581739837e-06,
        -2.5050742250398173e-08,
        1.589594035421371e-10,
    ),
    "f32": (
        -0.16666655242443085,
        0.008332190103828907,
        -0.00019518450426403433,
    ),
}
COS = {
    "f64": (
        0.041666666666666595,
        -0.001388888888887335,
        2.4801587289009706e-05,
        -2.755731421946149e-07,
        2.0875705727354213e-09,
        -1.1358765767118283e-11,
    ),
    "f32": (
        0.04166664555668831,
        -0.0013887310633435845,
        2.4432563805021346e-05,
    ),
}
TAN = {
    "f64": (
        0.3333333333333278,
        0.13333333333413985,
        0.05396825392698161,
        0.021869489601510392,
        0.008863219267843376,
        0.003592288168251382,
        0.0014547633343129883,
        0.0005950428692794405,
        0.00022244232001624833,
        0.0001364005255914163,
        -2.6214803044806637e-05,
        8.929898434247054e-05,
        -4.479586434737619e-05,
        2.0844324754952672e-05,
    ),
    "f32": (
        0.33333349227905273,
        0.13332676887512207,
        0.054058678448200226,
        0.021287575364112854,
        0.010823703370988369,
        0.0001031152787618339,
        0.004370263312011957,
    ),
}
ARCTAN = {
    "f64": (
        -0.333333333333332,
        0.1999999999995367,
        -0.14285714280198433,
        0.1111111078340141,
        -0.09090897753960778,
        0.0769206013217559,
        -0.06663103059459319,
        0.058478822547120037,
        -0.05039274964838695,
        0.03806387827545771,
        -0.017906556963255302,
    ),
    "f32": (
        -0.33333316445350647,
        0.1999852955341339,
        -0.14244428277015686,
        0.10599463433027267,
        -0.060908012092113495,
    ),
}
ARCSIN = {
    "f64": (
        0.16666666666665403,
        0.07500000000338476,
        0.044642856827082696,
        0.030381959190114174,
        0.022371756732780922,
        0.017359725274874224,
        0.013885026730556272,
        0.01217062104388708,
        0.006521717173260552,
        0.019545822035082594,
        -0.016252457811667606,
        0.03193203820140906,
    ),
    "f32": (
        0.16666752099990845,
        0.07495307922363281,
        0.0454695038497448,
        0.02418229542672634,
        0.042163655161857605,
    ),
}


def _odd_polynomial(r: DoubleWord, coefficients: tuple[float, ...]) -> Real:
    """f(r) - r.hi for f(r) = r + r**3 * p(r**2)."""
    z = r.hi * r.hi
    return fma(z * r.hi, horner(z, coefficients), r.lo)


def _subtract_multiple(x: Real, count: Real, period: tuple[float, float, float]) -> DoubleWord:
    """x - count * period, whose first word cancels exactly."""
    coarse = fma(-count, period[0], x)
    middle = two_product(-count, period[1])
    r = fast_two_sum(coarse, middle.hi)
    return DoubleWord(r.hi, fma(-count, period[2], r.lo + middle.lo))


def _reduce(x: Real, offset: int = 0) -> tuple[DoubleWord, Bits]:
    """r and the low bits of k + offset of x = k*pi/2 + r."""
    k, word = round_to_integer(x, 2 / math.pi, offset)
    return _subtract_multiple(x, k, x.pick(HALF_PI)), word


def _sin_reduced(r: DoubleWord, quadrant: Bits) -> Real:
    """sin(k*pi/2 + r) for the low bits k: +-sin r or +-cos r."""
    sine = r.hi + _odd_polynomial(r, r.hi.pick(SIN))
    z = r.hi * r.hi
    cosine = fma(z, fma(z, horner(z, r.hi.pick(COS)), -0.5), 1.0)
    value = select((quadrant & 1).equals(0), sine, cosine)
    sign = (quadrant << (quadrant.format.width - 2)) & quadrant.format.sign_bit
    return (value.bits ^ sign).real


def _tan_reduced(r: DoubleWord, quadrant: Bits) -> Real:
    """tan(k*pi/2 + r) for the low bits k: tan r or -1 / tan r."""
    tangent = fast_two_sum(r.hi, _odd_polynomial(r, r.hi.pick(TAN)))
    return select((quadrant & 1).equals(0), tangent.hi, divide_by_pair(tangent.hi.constant(-1.0), tangent))


def _beyond_reach(x: Real, name: str, far: Callable[[Real], Real], near: Real) -> Real:
    def finite_or_nan(x: Real) -> Real:
        return select(absolute(x) < math.inf, far(x), math.nan)

    return call_where(absolute(x) > x.pick(REACH), name, finite_or_nan, x, near)


def sin(x: Real) -> Real:
    near = or_itself_if_tiny(x, _sin_reduced(*_reduce(x)))
    return _beyond_reach(x, "sin", lambda x: _sin_reduced(*reduce_huge(x)), near)


def cos(x: Real) -> Real:
    def far(x: Real) -> Real:
        r, quadrant = reduce_huge(x)
        return _sin_reduced(r, quadrant + 1)

    return _beyond_reach(x, "cos", far, _sin_reduced(*_reduce(x, offset=1)))


def tan(x: Real) -> Real:
    near = or_itself_if_tiny(x, _tan_reduced(*_reduce(x)))
    return _beyond_reach(x, "tan", lambda x: _tan_reduced(*reduce_huge(x)), near)


def _arctan_of_ratio(a: Real, b: Real) -> Real:
    """arctan(a / b) of non-negative a and b: expanded about the nearest of 0, 1 and infinity."""
    high, low, _ = a.pick(HALF_PI)
    steep = a > b * (1 + math.sqrt(2))
    middle = (a > b * (math.sqrt(2) - 1)) | a.equals(math.inf)
    numerator = select(steep, -b, select(middle, a - b, a))
    denominator = select(steep, a, select(middle, a + b, b))
    # 0/0 is 0 here, and infinity/infinity is 1.
    same = a.equals(b)
    t = select(same, 0.0, numerator) / select(same, 1.0, denominator)
    rest = _odd_polynomial(DoubleWord(t, select(steep, low, select(middle, a.constant(low / 2), 0.0))), a.pick(ARCTAN))
    return select(steep, high, select(middle, a.constant(high / 2), 0.0)) + (t + rest)


def arctan(x: Real) -> Real:
    return copysign(_arctan_of_ratio(absolute(x), x.constant(1.0)), x)


def arctan2(y: Real, x: Real) -> Real:
    """The angle of (x, y), by C99's rules for signed zeros and infinities."""
    high, low, _ = x.pick(HALF_PI)
    # |y| + |x| must not overflow, and |x| must not be denormal; the rounding of the scaling does not matter then.
    up, down = x.constant(2.0 ** (x.format.mantissa + 8)), x.constant(2.0 ** -(x.format.mantissa + 8))
    is_small = absolute(x) < x.format.tiny * 2.0**x.format.mantissa
    scale = select(absolute(y) > 2.0 ** (x.format.bias - 2), down, select(is_small, up, 1.0))
    angle = _arctan_of_ratio(absolute(y * scale), absolute(x * scale))
    leftward = copysign(x.constant(1.0), x) < 0.0
    return copysign(select(leftward, 2 * high - (angle - 2 * low), angle), y)


def _arcsin_terms(x: Real) -> tuple[Real, Real, Mask]:
    """s and arcsin(s) - s, with s = |x|, or s = sqrt((1 - |x|) / 2) if |x| is above 1/2 (the mask)."""
    a = absolute(x)
    above = a > 0.5
    z = select(above, 0.5 - a * 0.5, a * a)
    s = select(above, sqrt(z), a)
    return s, z * s * horner(z, x.pick(ARCSIN)), above


def arcsin(x: Real) -> Real:
    """arcsin s, or pi/2 - 2*arcsin(s) if |x| > 1/2."""
    high, low, _ = x.pick(HALF_PI)
    s, rest, above = _arcsin_terms(x)
    near_one = high - ((s + s) + (rest + rest - low))
    return copysign(select(above, near_one, s + rest), x)


def arccos(x: Real) -> Real:
    """pi/2 - arcsin x, or 2*arcsin(s) from pi or from zero if |x| > 1/2."""
    high, low, _ = x.pick(HALF_PI)
    s, rest, above = _arcsin_terms(x)
    twice = (s + s) + (rest + rest)
    near_one = select(x < 0.0, 2 * high - (twice - 2 * low), twice)
    return select(above, near_one, high - (copysign(s, x) + (copysign(rest, x) - low)))
