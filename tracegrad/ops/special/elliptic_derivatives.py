"""Derivatives of incomplete elliptic integrals in their parameter m, in ops.

By DLMF 19.4 the derivatives are differences over m and 1 - m, which cancel near m = 0 and m = 1. There the integrals of
sin(t)**2 / (2 * (1 - m * sin(t)**2)**p) are computed by Gauss-Legendre quadrature, which has all derivatives. Near
m = 1 this applies only if phi is well below pi/2.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from tracegrad.avals import LITERALS
from tracegrad.ops.elementwise.table import (
    absolute,
    add,
    divide,
    less,
    logical_and,
    logical_or,
    multiply,
    power,
    rint,
    sin,
    sqrt,
    subtract,
    where,
)
from tracegrad.ops.special.scipy_special import apply
from tracegrad.typing import Array

# Quadrature has all digits if m is at most `_NEAR` from 0, or from 1 for phi below `_WITHIN`.
_NEAR, _WITHIN = 0.01, 1.05
_NODES, _WEIGHTS = (v.tolist() for v in np.polynomial.legendre.leggauss(12))


def _sin(x: Any) -> Any:
    return math.sin(x) if type(x) in LITERALS else sin(x)


def delta(phi: Array, m: Array) -> Array:
    sine = _sin(phi)
    return sqrt(subtract(1.0, multiply(m, multiply(sine, sine))))


def _integral(phi: Any, m: Array, exponent: float) -> Array:
    """The integral from 0 to phi, which is at most pi/2."""
    half = multiply(phi, 0.5)
    terms = []
    for node, weight in zip(_NODES, _WEIGHTS):
        sine = _sin(multiply(half, node + 1.0))
        squared = multiply(sine, sine)
        terms.append(multiply(multiply(squared, power(subtract(1.0, multiply(m, squared)), exponent)), 0.5 * weight))
    return multiply(functools.reduce(add, terms), half)


def _is_near(phi: Any, m: Array) -> Array:
    """Whether m is near 0, or near 1 for a phi that is not large."""
    small = abs(phi) < _WITHIN if type(phi) in LITERALS else less(absolute(phi), _WITHIN)
    return logical_or(less(absolute(m), _NEAR), logical_and(less(absolute(subtract(m, 1.0)), _NEAR), small))


def _by_quadrature(phi: Any, m: Array, exponent: float) -> Array:
    iterations = round(phi / math.pi) if type(phi) in LITERALS else rint(multiply(phi, 1 / math.pi))
    rest = subtract(phi, multiply(iterations, math.pi))
    whole = _integral(math.pi / 2, where(less(m, 0.5), m, 0.0), exponent)
    return add(_integral(rest, m, exponent), multiply(whole, multiply(iterations, 2.0)))


def ellipkinc_m(ans: Array, phi: Array, m: Array) -> Array:
    near = _is_near(phi, m)
    far = where(near, 0.5, m)
    rest = subtract(1.0, far)
    numerator = subtract(apply("ellipeinc", phi, far), multiply(rest, where(near, 0.0, ans)))
    first = divide(numerator, multiply(multiply(far, rest), 2.0))
    last = divide(_sin(multiply(phi, 2.0)), multiply(multiply(rest, delta(phi, far)), 4.0))
    return where(near, _by_quadrature(phi, where(near, m, 0.0), -1.5), subtract(first, last))


def ellipeinc_m(ans: Array, phi: Array, m: Array) -> Array:
    near = _is_near(phi, m)
    far = where(near, 0.5, m)
    result = divide(subtract(where(near, 0.0, ans), apply("ellipkinc", phi, far)), multiply(far, 2.0))
    return where(near, multiply(_by_quadrature(phi, where(near, m, 0.0), -0.5), -1.0), result)
