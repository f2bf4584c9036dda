"""Emit exponentials of squares and the error functions: gauss, gauss_half, erf, erfc, ndtr.

The square is held in two words, so an exponential of -x**2 is accurate however small it is. A derivative of erf
contains the exponential of erf, which LLVM then computes once.

erf: up to `SMALL_END`, x + x * p(x**2), with p a minimax fit of erf(x)/x - 1. From there on, it is
1 - e**-x**2 * q(1 / (x + 2)). q is a fit of e**x**2 * erfc(x), up to the point where erf rounds to 1. The weights
e**-x**2 / erf(x) make q accurate where erfc is significant. Both are fits as in `exp`.

erfc: the algorithm of `ops.numerics.accurate`.
"""

from __future__ import annotations

from tracegrad.codegen.vecmath.exp import exp_of_pair
from tracegrad.codegen.vecmath.expr import DoubleWord, Real, absolute, copysign, fma, horner, select
from tracegrad.ops.numerics.accurate import TAIL, TAIL_CENTER, TAIL_END

SMALL = {
    "f64": (
        0.12837916709551256,
        -0.37612638903183326,
        0.11283791670935442,
        -0.026866170641563016,
        0.005223977592119146,
        -0.0008548325196284174,
        0.0001205526981914061,
        -1.4924220721883992e-05,
        1.6440625739665613e-06,
        -1.6152995986416737e-07,
        1.3464375034518849e-08,
        -7.28698706928744e-10,
    ),
    "f32": (
        0.12837915122509003,
        -0.3761250376701355,
        0.11281921714544296,
        -0.026770485565066338,
        0.004998927470296621,
        -0.0006020480068400502,
    ),
}
LARGE = {
    "f64": (
        -2.2875014760107717e-06,
        0.5643388367775158,
        1.124071526048637,
        2.0483132904694688,
        1.9839797121361158,
        9.366882098992352,
        -38.8370533700084,
        153.9129886571722,
        -493.7791052548478,
        966.622566145642,
        -1121.706952728993,
        726.9666706663617,
        -205.66856519883746,
    ),
    "f32": (
        0.0016066882526502013,
        0.5231237411499023,
        1.561618447303772,
        -0.4280451238155365,
        10.03732681274414,
        -7.28391170501709,
    ),
}
SMALL_END = {"f64": 0.9375, "f32": 0.875}
SATURATED = {"f64": 6.0, "f32": 4.0}
ROOT_HALF = 0.7071067811865476


def minus_square(x: Real) -> DoubleWord:
    """-x**2 in two words."""
    square = x * x
    return DoubleWord(-square, -fma(x, x, -square))


def minus_half_square(x: Real) -> DoubleWord:
    """-x**2 / 2 in two words."""
    square = x * x
    return DoubleWord(square * -0.5, fma(x, x, -square) * -0.5)


def gauss(x: Real) -> Real:
    """e**-x**2"""
    return exp_of_pair(minus_square(x))


def gauss_half(x: Real) -> Real:
    """e**-(x**2 / 2)"""
    return exp_of_pair(minus_half_square(x))


def erf(x: Real) -> Real:
    a = absolute(x)
    small = fma(x, horner(x * x, x.pick(SMALL)), x)
    t = 1.0 / (a.at_most(x.pick(SATURATED)) + 2.0)
    large = fma(-gauss(x), horner(t, x.pick(LARGE)), 1.0)
    return select(a < x.pick(SMALL_END), small, copysign(large, x))


def of_tail(a: Real) -> Real:
    """e**a**2 * erfc(a), for a from 0 to where erfc has underflowed."""
    t, variable = tail_variable(a)
    return fma(t, horner(variable, a.pick(TAIL)), 1.0) / (a + a + 1.0)


def tail_variable(a: Real) -> tuple[Real, Real]:
    """t, and the variable of the tail polynomials, 2*t - 1."""
    t = a / (a + a.pick(TAIL_CENTER))
    return t, t + t - 1.0


def erfc(x: Real) -> Real:
    tail = gauss(x) * of_tail(absolute(x).at_most(x.pick(TAIL_END)))
    return select(x < 0.0, 2.0 - tail, tail)


def ndtr(x: Real) -> Real:
    """erfc(-x / sqrt(2)) / 2, with the exponential of x itself."""
    tail = gauss_half(x) * (of_tail((absolute(x) * ROOT_HALF).at_most(x.pick(TAIL_END))) * 0.5)
    return select(x > 0.0, 1.0 - tail, tail)
