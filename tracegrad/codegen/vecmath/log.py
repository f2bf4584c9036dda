"""Emit the logarithms and the functions derived from them: log, log2, log10, log1p, arcsinh, arccosh, arctanh.

All use x = 2**k * (1 + f), sqrt(1/2) <= 1 + f < sqrt(2), and the odd series in s = f / (2 + f) (Tang 1990). The series
is arranged so that f stays exact: log(1+f) = f - s * (f - R(s**2)), R(z) = z * p(z). p is a minimax fit (as in `exp`)
of (log((1+s)/(1-s)) - 2*s) / s**3 on 0 <= z <= 0.02945. Its relative error is under 2**-59 (float64) and 2**-30
(float32).
"""

from __future__ import annotations

import math

from tracegrad.codegen.vecmath.avx512 import exponent_of, has_instructions
from tracegrad.codegen.vecmath.cold_paths import call_unless_all, computed_if_any
from tracegrad.codegen.vecmath.expr import (
    Bits,
    DoubleWord,
    Mask,
    Real,
    absolute,
    copysign,
    divide_pair,
    fast_two_sum,
    fma,
    horner,
    or_itself_if_tiny,
    select,
    sqrt,
)
from tracegrad.utils.lazy_dataclass import record

LN2 = {
    "f64": (0.6931471805599453, 2.3190468138462996e-17),
    "f32": (0.6931471824645996, -1.904654290582768e-09),
}
LOG2_E = {
    "f64": (1.4426950408889634, 2.0355273740931033e-17),
    "f32": (1.4426950216293335, 1.925963033500011e-08),
}
LOG10_E = {
    "f64": (0.4342944819032518, 1.098319650216765e-17),
    "f32": (0.4342944920063019, -1.0103049952192578e-08),
}
LOG10_2 = {
    "f64": (0.3010299956639812, -2.8037281277851704e-18),
    "f32": (0.3010300099849701, -1.432098883924482e-08),
}

LOG = {
    "f64": (
        0.6666666666666735,
        0.3999999999940987,
        0.2857142874349191,
        0.22222198455373154,
        0.1818357070265198,
        0.1531388071390135,
        0.1479771660030436,
    ),
    "f32": (0.6666677594184875, 0.3997757136821747, 0.2987135052680969),
}
# The bits of sqrt(1/2) as an integer.
HALF_SQRT = {"f64": 0x3FE6A09E667F3BCD, "f32": 0x3F3504F3}
# log2(1 + f) / f and log10(1 + f) / f for |f| as above, to relative errors under 2**-27 and 2**-25.
LOG2_F32 = (
    1.4426950216293335,
    -0.7213473320007324,
    0.4808982312679291,
    -0.3606966435909271,
    0.2885673940181732,
    -0.23961739242076874,
    0.20460082590579987,
    -0.1910630613565445,
    0.18617382645606995,
    -0.10994748771190643,
)
LOG10_F32 = (
    0.4342944920063019,
    -0.21714724600315094,
    0.14476211369037628,
    -0.1085725948214531,
    0.086982361972332,
    -0.07241673767566681,
    0.06000671908259392,
    -0.053803540766239166,
    0.06287125498056412,
    -0.04894288256764412,
)


@record(frozen=True)
class Split:
    """x = 2**k * m; `exponent` is k + bias as an integer."""

    k: Real
    m: Real
    exponent: Bits


def split(x: Real, denormals: bool = True, tested: bool = False) -> Split:
    """Split a positive finite x into exponent and m within sqrt(2) of 1. `tested`: vectors branch on denormal numbers,
    which is faster to run and slower to compile."""
    form = x.format
    half_sqrt = x.pick(HALF_SQRT)
    base = x.constant(2.0**form.mantissa + form.bias)
    if denormals:
        grow = form.mantissa + 2
        is_denormal, operands, usual = x < form.tiny, x, base

        def grown() -> tuple[Real, Real]:
            return select(is_denormal, operands * 2.0**grow, operands), select(is_denormal, usual + float(grow), usual)

        x, base = computed_if_any(is_denormal, grown, (operands, usual)) if tested else grown()
    word = _moved(x)
    exponent = word >> form.mantissa
    # An integer below 2**mantissa, combined with the exponent bits of 2**mantissa, is the sum of both as a float.
    k = (exponent | ((form.bias + form.mantissa) << form.mantissa)).real - base
    m = ((word & ((1 << form.mantissa) - 1)) + half_sqrt).real
    return Split(k, m, exponent)


def _moved(x: Real) -> Bits:
    """The bits of x, moved so that the exponent is the exponent of x / m."""
    return x.bits + ((x.format.bias << x.format.mantissa) - x.pick(HALF_SQRT))


def _split_usual(x: Real) -> Split:
    """`split` for numbers without special cases."""
    reduced = split(x, denormals=False)
    if not has_instructions(x.format):
        return reduced
    return Split(exponent_of(_moved(x).real), reduced.m, reduced.exponent)


def _correction(f: Real, low: Real | float) -> Real:
    """f - log(1 + f) + low: a small number to subtract from f."""
    s = f / (f + 2.0)
    z = s * s
    return fma(s, fma(-z, horner(z, f.pick(LOG)), f), low)


def _assemble(k: Real, f: DoubleWord) -> Real:
    """k*ln2 + log(1 + f)."""
    ln2, ln2_low = k.pick(LN2)
    high = fma(k, ln2, f.hi)
    lost = fma(k, -ln2, high) - f.hi - f.lo
    return high - _correction(f.hi, fma(k, -ln2_low, lost))


def _with_limits(x: Real, pole: float, result: Real) -> Real:
    """-inf at the pole, NaN below it, infinity and NaN unchanged."""
    result = select(x < math.inf, result, x)
    return select(x <= pole, select(x.equals(pole), -math.inf, math.nan), result)


def log(x: Real) -> Real:
    reduced = split(x)
    return _with_limits(x, 0.0, _assemble(reduced.k, DoubleWord(reduced.m - 1.0, x.constant(0.0))))


def _log1p_of_pair(x: DoubleWord, exponent: Real | float = 0.0) -> Real:
    """log(1 + hi + lo) + more*ln2, for finite hi > -1."""
    # Exact in this order too, because 1 is a multiple of an ulp of hi, unless hi is too large for 1 to matter.
    total = fast_two_sum(x.hi.constant(1.0), x.hi)
    reduced = split(total.hi, denormals=False)
    form = x.hi.format
    # 2**(1 - k), or zero for the largest k, where the low word is insignificant.
    twice_scale = ((reduced.exponent.constant(2 * form.bias + 1) - reduced.exponent) << form.mantissa).real
    low = (total.lo + x.lo) * 0.5 * twice_scale
    return _assemble(reduced.k + exponent, fast_two_sum(reduced.m - 1.0, low))


def log1p(x: Real) -> Real:
    return or_itself_if_tiny(x, _with_limits(x, -1.0, _log1p_of_pair(DoubleWord(x, x.constant(0.0)))))


def _is_usual(x: Real) -> Mask:
    """Whether x is positive, normal, and less than the greatest power of two."""
    form = x.format
    tiny, large = 1 << form.mantissa, (2 * form.bias) << form.mantissa
    return (x.bits - tiny).below(large - tiny)


def log2(x: Real) -> Real:
    """k + log2(1 + f): if k is not 0, it is so much larger that one word is enough. float32 needs no division."""
    usual = _log2_of(_split_usual(x))
    return call_unless_all(_is_usual(x), "log2_with_limits", _log2_with_limits, (x,), usual)


def _log2_with_limits(x: Real) -> Real:
    return _with_limits(x, 0.0, _log2_of(split(x)))


def _log2_of(reduced: Split) -> Real:
    f = reduced.m - 1.0
    if f.format.name == "f32":
        return fma(f, horner(f, LOG2_F32), reduced.k)
    scale, _ = f.pick(LOG2_E)
    return fma(-_correction(f, 0.0), scale, fma(f, scale, reduced.k))


def log10(x: Real) -> Real:
    usual = _log10_of(_split_usual(x))
    return call_unless_all(_is_usual(x), "log10_with_limits", _log10_with_limits, (x,), usual)


def _log10_with_limits(x: Real) -> Real:
    return _with_limits(x, 0.0, _log10_of(split(x)))


def _log10_of(reduced: Split) -> Real:
    """k*log10(2) + log10(1 + f), with the first term rounded last, so that powers of ten have integral logarithms."""
    f = reduced.m - 1.0
    (scale, scale_low), (two, two_low) = f.pick(LOG10_E), f.pick(LOG10_2)
    if f.format.name == "f32":
        return fma(reduced.k, two, fma(f, horner(f, LOG10_F32), reduced.k * two_low))
    low = fma(-_correction(f, 0.0), scale, fma(f, scale_low, reduced.k * two_low))
    return fma(reduced.k, two, fma(f, scale, low))


def arcsinh(x: Real) -> Real:
    """log1p(a + a**2 / (1 + sqrt(a**2 + 1))) with a = |x|; log(2*a) if a**2 + 1 rounds to a**2."""
    a = absolute(x)
    square = a * a
    inner = fast_two_sum(a, square / (1.0 + sqrt(1.0 + square)))
    return or_itself_if_tiny(x, copysign(_log1p_or_log_of_twice(a, inner), x))


def arccosh(x: Real) -> Real:
    """log1p(t + sqrt(2*t + t**2)) with t = x - 1; log(2*x) if that rounds to 2*x."""
    t = x - 1.0
    inner = fast_two_sum(sqrt(fma(t, t, t + t)), t)
    return select(x < 1.0, math.nan, _log1p_or_log_of_twice(x, inner))


def _log1p_or_log_of_twice(a: Real, inner: DoubleWord) -> Real:
    """log(1 + inner), or log(2*a) for a large `a`, for which `inner` may have overflowed."""
    large = a > 2.0 ** (a.format.mantissa // 2 + 2)
    inner = DoubleWord(select(large, a, inner.hi), select(large, -1.0, inner.lo))
    return select(a < math.inf, _log1p_of_pair(inner, select(large, a.constant(1.0), 0.0)), a)


def arctanh(x: Real) -> Real:
    """log1p(2*|x| / (1 - |x|)) / 2."""
    a = absolute(x)
    below = fast_two_sum(a.constant(1.0), -a)
    half = _log1p_of_pair(divide_pair(a + a, below)) * 0.5
    half = select(a < 1.0, half, select(a.equals(1.0), a.constant(math.inf), math.nan))
    return or_itself_if_tiny(x, copysign(half, x))
