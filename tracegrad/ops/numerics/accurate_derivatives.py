"""Accurate derivatives of silu, gelu and sinc near their roots and in their tails, and NumPy kernels of them.

Here `gelu` is x times the normal distribution's probability, and `gelu_tanh` its approximation by a hyperbolic tangent.

silu: let r be the root of the derivative, where 1 + r + e**r = 0, and d = x - r. For x < 0 the derivative is
e**x * (1 + x + e**x) / (1 + e**x)**2, and 1 + x + e**x = d + e**r * (e**d - 1) has two terms of one sign.

gelu: for x = -a < 0 the derivative is e**(-a**2/2) * (r - a) * h(2*t - 1), with its root r, subtracted in two words,
and t = b / (b + k), b = a / sqrt(2), as in the tail of erfc. h interpolates at Chebyshev's points, for a relative error
under 2**-53 (float64) and 2**-25 (float32).

gelu_tanh: x / (1 + e**-u) with u = c*x * (1 + k*x**2); the derivative for x < 0 is
e**u * (1 + e**u + c*x * (1 + 3*k*x**2)) / (1 + e**u)**2. With its root r, d = x - r and m = x * (x + r), u exceeds its
value at the root by c*d * (1 + k*r**2 + k*m), in two words. The sum in the numerator, which is 0 at the root, has again
two terms of one sign.

For x > 0 these derivatives f'(x) are 1 - f'(-x). A product with a subnormal exponential multiplies by the other factor
before the exponent.

sinc: with y = 1/(pi*x), the derivative is (cos(pi*x) - y * sin(pi*x)) / x. Let pi*h be pi/2 minus the angle, so that
the cosine is sin(pi*h) and the sine cos(pi*h), sin(pi*h) = pi*h + h**3 * (a + h**2 * s(h**2)) and
cos(pi*h) = 1 + h**2 * (b + h**2 * c(h**2)). pi*h - y and h*a - y*b are in two words; the rest is small near the roots.
Closer to a root, the difference of cosine and sine is sqrt(1 + y**2) * sin(pi*h - arctan(y)), with angles in two words,
the second by Taylor's series. Up to x = 1/2 the derivative is -x * p(x**2).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracegrad.ops.numerics.accurate import TAIL_CENTER, TAIL_END, cospi, gauss, in_double, polynomial, sinpi, tail
from tracegrad.ops.numerics.double_double import ARCTAN, add, divide, multiply, series, split_quotient
from tracegrad.typing import Array, ArrayLike, NDArray

# Each in two words.
SILU_ROOT = {
    "f64": (-1.2784645427610737, -1.0946994183093437e-16),
    "f32": (-1.2784645557403564, 1.2979282537628478e-08),
}
GELU_ROOT = {"f64": (0.7517915246935645, -1.4956759177009883e-17), "f32": (0.7517915368080139, -1.211444988769017e-08)}
PI = {"f64": (3.141592653589793, 1.2246467991473532e-16), "f32": (3.1415927410125732, -8.742277657347586e-08)}
INVERSE_PI = {
    "f64": (0.3183098861837907, -1.9678676675182486e-17),
    "f32": (0.31830987334251404, 1.2841276486597053e-08),
}
SILU_EXP = 0.2784645427610738  # e**r
GELU_TANH_ROOT = {
    "f64": (-0.7524614220710163, 3.635560509207687e-17),
    "f32": (-0.7524614334106445, 1.1339627903339533e-08),
}
GELU_TANH_LINE = {
    "f64": (1.6361700895487292, -3.241452378397557e-17),
    "f32": (1.6361701488494873, -5.9300759858160745e-08),
}  # c * (1 + k*r**2)
GELU_TANH_CUBE = {
    "f64": (0.07135481627260025, -6.175149918155315e-19),
    "f32": (0.07135481387376785, 2.3988324659995897e-09),
}  # c*k
GELU_TANH_BEND = 1.716972025434726  # c * (1 + 3*k*r**2)
GELU_TANH_EXP = 0.29195521191476714  # e**u at the root
GELU_TANH_END = {"f64": 22.0, "f32": 11.2}  # e**u has underflowed

GELU_DERIVATIVE = {
    "f64": (
        0.4461224510575952,
        -0.082414577761118,
        0.05897416361231254,
        -0.03801292400799173,
        0.02181437297775049,
        -0.010961142742643577,
        0.0046977268925294,
        -0.001638014978284922,
        0.00041698808268826056,
        -4.946615723169875e-05,
        -1.4611566924549418e-05,
        8.82194634400073e-06,
        -1.17588233802377e-06,
        -5.713627193582601e-07,
        2.51527341749903e-07,
        1.7084327891597562e-08,
        -3.222844470042301e-08,
        2.2969679243360115e-10,
        3.321170490261778e-09,
        4.118671720844677e-10,
    ),
    "f32": (
        0.4818762242794037,
        -0.12306074798107147,
        0.051122598350048065,
        -0.010935936123132706,
        -0.001063047326169908,
        0.0010380226885899901,
        0.00010033859143732116,
        -0.00011348013504175469,
        -3.0257549951784313e-05,
    ),
}

SINC_CUBE = {
    "f64": (-5.16771278004997, 2.2665622825789447e-16),
    "f32": (-5.167712688446045, -9.160392266949202e-08),
}  # -pi**3 / 6
SINC_SQUARE = {
    "f64": (-4.934802200544679, -3.1326477543698557e-16),
    "f32": (-4.934802055358887, -1.451857940537593e-07),
}  # -pi**2 / 2
SINC_SIN = {
    "f64": (
        2.550164039877345,
        -0.5992645293207264,
        0.08214588660692444,
        -0.007370430844761658,
        0.00046630165077519786,
        -2.190856422947569e-05,
        7.753741624007193e-07,
    ),
    "f32": (2.550163984298706, -0.5992627739906311, 0.0821102187037468, -0.007141006179153919),
}
SINC_COS = {
    "f64": (
        4.0587121264167685,
        -1.3352627688545886,
        0.2353306303588225,
        -0.025806891387751215,
        0.0019295742738202402,
        -0.00010463780092867116,
        4.301629605263098e-06,
        -1.3523014253614987e-07,
    ),
    "f32": (4.058712005615234, -1.3352553844451904, 0.2351835072040558, -0.024859871715307236),
}
SINC_NEAR = {
    "f64": (
        3.289868133696453,
        -3.2469697011334144,
        1.1445109447324986,
        -0.2091827825409614,
        0.023460810348857115,
        -0.0017811454504394063,
        9.766178312858364e-05,
        -4.0481709751849e-06,
        1.2767649554481104e-07,
    ),
    "f32": (3.289868116378784, -3.246968984603882, 1.1444898843765259, -0.20894630253314972, 0.0223720483481884),
}


# Coefficients of arctan(y) / y in y**2, enough up to y = 1/4.
SINC_ARCTAN = {"f64": ARCTAN, "f32": [split_quotient((-1) ** k, 2 * k + 1, np.float32) for k in range(12)]}


def _product_with_exp(x: NDArray, e: ArrayLike, factor: NDArray) -> Array:
    """factor * e for e = exp(x), accurate where e is subnormal."""
    product = np.asarray(factor * e)
    low = np.less(x, -700 if product.dtype == np.float64 else -80)
    if low.any():
        x, factor = np.asarray(x), np.asarray(factor)
        product[low] = factor[low] * np.exp(x[low] + x.dtype.type(32)) * np.exp(x.dtype.type(-32))
    return product


def silu(x: Array) -> Array:
    """x / (1 + exp(-x)), with the subnormal numbers of its left tail."""
    low = np.maximum(-np.abs(x), -1000)
    e = np.exp(low)
    small = _product_with_exp(low, e, low) / (1 + e)
    return np.where(x < 0, small, x + small)


def silu_derivative(x: Array) -> NDArray:
    """The derivative of x / (1 + exp(-x))."""
    root, root_low = SILU_ROOT["f64" if x.dtype == np.float64 else "f32"]
    low = np.maximum(-np.abs(x), -1000)
    e = np.exp(low)
    denominator = 1 + e
    numerator = np.asarray(low + denominator)
    near = np.abs(numerator) < 0.25
    if near.any():
        d = (np.asarray(low)[near] - root) - root_low
        numerator[near] = d + SILU_EXP * np.expm1(d)
    derivative = _product_with_exp(low, e, numerator)
    derivative /= np.square(denominator)
    result: NDArray = np.where(x < 0, derivative, 1 - derivative)
    return result


def _gelu_tanh_terms(x: Array) -> tuple[NDArray, ...]:
    """-|x|, d, and in two words the difference of u from its value at the root."""
    root, root_low = GELU_TANH_ROOT["f64"]
    below = -np.minimum(np.abs(x), 100)
    d = add((below, 0.0), (-root, -root_low))
    m = multiply((below, 0.0), add((below, 0.0), (root, root_low)))
    high, low = multiply(d, add(GELU_TANH_LINE["f64"], multiply(m, GELU_TANH_CUBE["f64"])))
    return below, d[0], high, low


@in_double
def gelu_tanh(x: Array) -> Any:
    """x / (1 + exp(-2 * sqrt(2 / pi) * (x + 0.044715 * x**3)))"""
    below, _, high, low = _gelu_tanh_terms(x)
    weight = GELU_TANH_EXP * (1 + low)
    e = np.exp(high)
    small = _product_with_exp(high, e, weight * below) / (1 + weight * e)
    return np.where(x < 0, small, x + small)


@in_double
def gelu_tanh_derivative(x: Array) -> Any:
    """The derivative of `gelu_tanh`."""
    below, d, high, low = _gelu_tanh_terms(x)
    weight, e = GELU_TANH_EXP * (1 + low), np.exp(high)
    bend = GELU_TANH_BEND + 3 * GELU_TANH_CUBE["f64"][0] * (below * (below + GELU_TANH_ROOT["f64"][0]))
    numerator = d * bend + GELU_TANH_EXP * np.expm1(high + low)
    derivative = _product_with_exp(high, e, weight * numerator) / np.square(1 + weight * e)
    return np.where(x < 0, derivative, 1 - derivative)


@in_double
def x_ndtr(x: Any) -> NDArray:
    """x times the probability that a standard normal variable is below x."""
    a = np.minimum(np.abs(x), 100)
    small = gauss(x, 0.5, tail(a * np.sqrt(0.5)) * (a * -0.5))
    result: NDArray = np.where(x < 0, small, x + small)
    return result


@in_double
def x_ndtr_derivative(x: Any) -> NDArray:
    """The derivative of x times the probability that a standard normal variable is below x."""
    (root, root_low), a = GELU_ROOT["f64"], np.minimum(np.abs(x), TAIL_END["f64"] * 1.4)
    b = a * np.sqrt(0.5)
    h = polynomial(GELU_DERIVATIVE["f64"], 2 * (b / (b + TAIL_CENTER["f64"])) - 1)
    derivative = gauss(x, 0.5, ((root - a) + root_low) * h)
    result: NDArray = np.where(x < 0, derivative, 1 - derivative)
    return result


@in_double
def sinc_derivative(x: NDArray) -> Array:
    """The derivative of sin(pi * x) / (pi * x)."""
    size, far = np.asarray(np.abs(x)), np.where(x == 0, 1, x)
    cos = cospi(x)
    difference = np.asarray(cos - sinpi(x) / (np.pi * far))
    cancels = (np.abs(difference) < 0.25 * np.abs(cos)) & (size > 1)
    if cancels.any():
        difference[cancels] = _sinc_difference(size[cancels])
    return np.where(size < 0.5, -x * polynomial(SINC_NEAR["f64"], np.minimum(x * x, 1)), difference / far)


def _sinc_difference(x: Array) -> Any:
    """cos(pi * x) - sin(pi * x) / (pi * x) for x > 1 near its roots."""
    iteration = x - 2 * np.rint(x * 0.5)
    y = divide(INVERSE_PI["f64"], (np.where(iteration < 0, -x, x), 0.0))
    angle, angle_low = multiply(y, series(ARCTAN, multiply(y, y)))
    leading, leading_low = multiply((0.5 - np.abs(iteration), 0.0), PI["f64"])
    return np.sqrt(1 + y[0] * y[0]) * np.sin((leading - angle) + (leading_low - angle_low))
