"""The error function of `vecmath`.

Up to `SMALL_END`, x + x * p(x**2), p a minimax fit of erf(x)/x - 1; from there on, 1 - e**-x**2 * q(1 / (x + 2)), q a
fit of e**x**2 * erfc(x) weighted by e**-x**2 / erf(x), so that it is tight where erfc counts, up to where erf rounds to
1 (both fits as in `vecmath_exp`). A derivative of erf has the same exponential, which LLVM then computes once.
"""

from __future__ import annotations

from tracegrad.codegen.vecmath_exp import exp
from tracegrad.codegen.vecmath_lang import Real, absolute, copysign, fma, horner, select

__all__ = ["erf"]

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


def erf(x: Real) -> Real:
    a = absolute(x)
    square = x * x
    small = fma(x, horner(square, x.pick(SMALL)), x)
    t = 1.0 / (a.at_most(x.pick(SATURATED)) + 2.0)
    large = fma(-exp(-square), horner(t, x.pick(LARGE)), 1.0)
    return select(a < x.pick(SMALL_END), small, copysign(large, x))
