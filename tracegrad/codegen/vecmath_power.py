"""Powers and the cube root of `vecmath`.

power is e**(y * log|x|) with the logarithm and the product in two words. With s = f / (2 + f) as in
`vecmath_log`, log(1 + f) = s * (2 + z * (2/3 + z * q(z))), z = s**2, q a minimax fit (as in `vecmath_exp`)
for a relative error of the whole under 2**-66 (float64) and 2**-36 (float32): ten bits beyond the format
for the exponent to lose.
"""

from __future__ import annotations

import math

from tracegrad.codegen.vecmath_exp import exp_of_pair, power_of_two
from tracegrad.codegen.vecmath_lang import (
    Mask,
    Pair,
    Real,
    absolute,
    copysign,
    divide_pair,
    fast_two_sum,
    fma,
    horner,
    multiply_pairs,
    round_half_even,
    round_to_integer,
    select,
    two_product,
)
from tracegrad.codegen.vecmath_log import LN2, split

__all__ = ["cbrt", "power"]

TWO_THIRDS = {"f64": (0.6666666666666666, 3.700743415417188e-17), "f32": (0.6666666865348816, -1.9868215517249155e-08)}
LOG_TAIL = {
    "f64": (
        0.4000000000000227,
        0.28571428570091356,
        0.22222222521437862,
        0.18181784230491843,
        0.15386763804809045,
        0.13256663013914058,
        0.13197800086445904,
    ),
    "f32": (0.40000152587890625, 0.2854708731174469, 0.23419763147830963),
}

# Fits of m**(-1/3) on [8**-0.5, 8**0.5] to 2**-9.6 and 2**-8.4, and how often to double the digits.
INVERSE_CBRT = {
    "f64": (
        (
            2.1241236693199044,
            -3.0477332815842257,
            3.781044466427475,
            -2.807656524868923,
            1.1935915372587136,
            -0.2675566731932485,
            0.024470530465368703,
        ),
        2,
    ),
    "f32": (
        (
            2.0143860819708825,
            -2.383046502986142,
            2.299766523027487,
            -1.2308165912430795,
            0.3329076201834362,
            -0.035483006917240816,
        ),
        1,
    ),
}


def _log_pair(x: Real) -> Pair:
    """log(x) in two words, for a positive finite x."""
    parts = split(x)
    f = parts.m - 1.0
    s = divide_pair(f, fast_two_sum(x.constant(2.0), f))
    z = multiply_pairs(s, s)
    third, third_low = x.pick(TWO_THIRDS)
    p = fast_two_sum(x.constant(third), z.hi * horner(z.hi, x.pick(LOG_TAIL)))
    t = multiply_pairs(z, Pair(p.hi, p.lo + third_low))
    u = fast_two_sum(x.constant(2.0), t.hi)
    log_m = multiply_pairs(s, Pair(u.hi, u.lo + t.lo))
    ln2, ln2_low = x.pick(LN2)
    log_scale = two_product(parts.k, ln2)
    total = fast_two_sum(log_scale.hi, log_m.hi)
    return fast_two_sum(total.hi, total.lo + (log_m.lo + fma(parts.k, ln2_low, log_scale.lo)))


def cbrt(x: Real) -> Real:
    """With |x| = 8**q * m, m within sqrt(8) of 1: a fit of m**(-1/3), Newton's iteration, then m**(1/3)."""
    magnitude = absolute(x)
    parts = split(magnitude)
    third, word = round_to_integer(parts.k, 1 / 3, x.format.bias)
    rest = fma(third, -3.0, parts.k)
    m = parts.m * select(rest > 0.5, 2.0, select(rest < -0.5, x.constant(0.5), 1.0))
    coefficients, steps = x.pick(INVERSE_CBRT)
    inverse = horner(m, coefficients)
    for _ in range(steps):
        cube = inverse * inverse * inverse
        inverse = fma(inverse * (1 / 3), fma(-m, cube, 1.0), inverse)
    root = m * inverse * inverse
    square = two_product(root, root)
    excess = fma(square.lo, root, fma(square.hi, root, -m))
    root = fma(-excess, inverse * inverse * (1 / 3), root)
    scaled = copysign(root * power_of_two(word), x)
    return select((magnitude > 0.0) & (magnitude < math.inf), scaled, x)


def _is_integer(y: Real) -> Mask:
    return round_half_even(y).equals(y)


def power(x: Real, y: Real) -> Real:
    """C99's pow, Annex F included."""
    magnitude = absolute(x)
    logarithm = _log_pair(magnitude)
    high = select(magnitude.equals(0.0), -math.inf, select(magnitude < math.inf, logarithm.hi, magnitude))
    product = two_product(high, y)
    result = exp_of_pair(Pair(product.hi, fma(y, logarithm.lo, product.lo)))
    is_odd = _is_integer(y) & ~_is_integer(y * 0.5)
    result = select(is_odd, copysign(result, x), result)
    undefined = (x < 0.0) & (magnitude < math.inf) & ~_is_integer(y)
    is_one = y.equals(0.0) | x.equals(1.0) | (x.equals(-1.0) & absolute(y).equals(math.inf))
    return select(is_one, 1.0, select(undefined, math.nan, result))
