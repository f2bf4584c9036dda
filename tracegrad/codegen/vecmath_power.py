"""Powers and the cube root of `vecmath`.

power is e**(y * log|x|) with the logarithm and the product in two words. With s = f / (2 + f) as in
`vecmath_log`, log(1 + f) = s * (2 + z * (2/3 + z * q(z))), z = s**2, q a minimax fit (as in `vecmath_exp`)
for a relative error of the whole under 2**-66 (float64) and 2**-36 (float32): ten bits beyond the format
for the exponent to lose.
"""

from __future__ import annotations

import math

from tracegrad.codegen.vecmath_exp import exp_of_pair
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

# The word of x without its last bits, divided by -3 and moved, is that of a number near x**(-1/3): r, by which its cube
# times x is less than 1, is within 0.1021. Fits of ((1 - r)**(-1/3) - 1) / r there, to 2**-23.3 and 2**-18.4 of a root.
_CUT = {"f64": 20, "f32": 9}
_MOVED = {"f64": 1363.932 * 2.0**32, "f32": 169.2653 * 2.0**14}
_MORE = {
    "f64": (0.3333290105691127, 0.22221413488092134, 0.17449689810556743, 0.14597484079420395),
    "f32": (0.3333275294007972, 0.22349830848916988, 0.17470886631320373),
}
# Below this, the error of the root would be a denormal number; made larger by 8**grow, it is none.
_SMALL = {"f64": (2.0**-900, 60), "f32": (2.0**-96, 18)}


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


def _inverse_cbrt(x: Real) -> Real:
    """x**(-1/3) of a positive normal number, to some 20 bits."""
    form, cut = x.format, x.pick(_CUT)
    # An integer below 2**mantissa, put under the exponent of 2**mantissa, is that sum as a number.
    base = 2.0**form.mantissa
    word = ((x.bits >> cut) | ((form.bias + form.mantissa) << form.mantissa)).real
    y = (fma(word, -1 / 3, base * 4 / 3 + x.pick(_MOVED)).bits << cut).real
    missing = fma(-(x * y), y * y, 1.0)
    return fma(y * missing, horner(missing, x.pick(_MORE)), y)


def cbrt(x: Real) -> Real:
    """With y near x**(-1/3), x * y**2, and of the excess e of its cube over x the part of e * y**2 that is too much."""
    magnitude = absolute(x)
    small, grow = x.pick(_SMALL)
    is_small = magnitude < small
    scaled = select(is_small, magnitude * 8.0**grow, magnitude)
    inverse = _inverse_cbrt(scaled)
    square = inverse * inverse
    root = scaled * square
    excess = fma(root * root, root, -scaled) * square
    # (1 + d)**(-1/3) = 1 - d/3 + 2*d**2/9 - ..., of which float32 needs no more than d/3.
    part = fma(excess * inverse, -2 / 9, 1 / 3) if x.format.name == "f64" else x.constant(1 / 3)
    root = fma(-excess, part, root)
    root = copysign(select(is_small, root * 2.0**-grow, root), x)
    return select(magnitude < math.inf, root, x)


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
