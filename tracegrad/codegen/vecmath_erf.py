"""The error function of `vecmath`.

Below 1, x + x * p(x**2), p a minimax fit of erf(x)/x - 1; from there on, 1 - e**-g(x), g a fit of
-log(erfc(x)) weighted by erfc(x) / erf(x), so that it is tight where erfc counts, up to where erf rounds to
1 (both fits as in `vecmath_exp`).
"""

from __future__ import annotations

from tracegrad.codegen.vecmath_exp import exp_of_nonpositive
from tracegrad.codegen.vecmath_lang import Real, absolute, copysign, fma, horner, select

__all__ = ["erf"]

SMALL = {
    "f64": (
        0.1283791670955126,
        -0.3761263890318388,
        0.11283791670959031,
        -0.026866170645673905,
        0.005223977629616914,
        -0.0008548327218993344,
        0.00012055338827576206,
        -1.4925763200108346e-05,
        1.6463474916874213e-06,
        -1.637466380380045e-07,
        1.4813064062625952e-08,
        -1.193098511083647e-09,
        6.851225604297101e-11,
    ),
    "f32": (
        0.12837916612625122,
        -0.3761262893676758,
        0.11283618956804276,
        -0.02685517445206642,
        0.005190844647586346,
        -0.0008031835895963013,
        7.924130477476865e-05,
    ),
}
LARGE = {
    "f64": (
        2.7882240627808944e-08,
        1.1283789148955776,
        0.6366207381763698,
        0.10277080368247674,
        -0.019128019358018885,
        -0.0002023444190539487,
        0.0016750128191193698,
        -0.0005524051380052311,
        -2.1975322084987843e-05,
        0.0001107642688899629,
        -6.475175999279785e-05,
        2.4276568199626997e-05,
        -6.782966387890833e-06,
        1.4694015325019883e-06,
        -2.4807730797819294e-07,
        3.2185067395945265e-08,
        -3.1070641791530666e-09,
        2.1043660166848125e-10,
        -8.924353134472336e-12,
        1.7828434005887639e-13,
    ),
    "f32": (
        0.0003414637176319957,
        1.1270893812179565,
        0.6381446123123169,
        0.10310684889554977,
        -0.021838055923581123,
        0.00294764107093215,
        -0.00018637564789969474,
    ),
}
SATURATED = {"f64": 6.0, "f32": 4.0}


def erf(x: Real) -> Real:
    a = absolute(x)
    square = x * x
    small = fma(x, horner(square, x.pick(SMALL)), x)
    bounded = a.at_most(x.pick(SATURATED))
    large = 1.0 - exp_of_nonpositive(-horner(bounded, x.pick(LARGE)))
    return select(a < 1.0, small, copysign(large, x))
