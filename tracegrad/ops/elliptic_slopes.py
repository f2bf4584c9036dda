"""The slopes of incomplete elliptic integrals in their parameter m, in ops.

By DLMF 19.4 they are differences over m, of which nothing is left next to m = 0. There, the integrals that they are, of
sin(t)**2 / (2 * (1 - m * sin(t)**2)**p), are sums over the places of Gauss and Legendre, which have all derivatives.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from tracegrad.avals import LITERALS
from tracegrad.ops.elementwise import absolute, add, divide, less, multiply, power, rint, sin, sqrt, subtract, where
from tracegrad.ops.special import apply

__all__ = ["delta", "ellipeinc_m", "ellipkinc_m"]

_NEAR = 0.01  # as far as that, the places give all digits
_PLACES, _WEIGHTS = (v.tolist() for v in np.polynomial.legendre.leggauss(12))


def _sin(x: Any) -> Any:
    return math.sin(x) if type(x) in LITERALS else sin(x)


def delta(phi: Any, m: Any) -> Any:
    sine = _sin(phi)
    return sqrt(subtract(1.0, multiply(m, multiply(sine, sine))))


def _integral(phi: Any, m: Any, exponent: float) -> Any:
    """From 0 to phi, which is at most a quarter of a turn."""
    half = multiply(phi, 0.5)
    terms = []
    for place, weight in zip(_PLACES, _WEIGHTS):
        sine = _sin(multiply(half, place + 1.0))
        squared = multiply(sine, sine)
        terms.append(multiply(multiply(squared, power(subtract(1.0, multiply(m, squared)), exponent)), 0.5 * weight))
    return multiply(functools.reduce(add, terms), half)


def _near_0(phi: Any, m: Any, exponent: float) -> Any:
    turns = round(phi / math.pi) if type(phi) in LITERALS else rint(multiply(phi, 1 / math.pi))
    rest = subtract(phi, multiply(turns, math.pi))
    return add(_integral(rest, m, exponent), multiply(_integral(math.pi / 2, m, exponent), multiply(turns, 2.0)))


def ellipkinc_m(ans: Any, phi: Any, m: Any) -> Any:
    near = less(absolute(m), _NEAR)
    far = where(near, 0.5, m)
    rest = subtract(1.0, far)
    parts = subtract(apply("ellipeinc", phi, far), multiply(rest, where(near, 0.0, ans)))
    first = divide(parts, multiply(multiply(far, rest), 2.0))
    last = divide(_sin(multiply(phi, 2.0)), multiply(multiply(rest, delta(phi, far)), 4.0))
    return where(near, _near_0(phi, where(near, m, 0.0), -1.5), subtract(first, last))


def ellipeinc_m(ans: Any, phi: Any, m: Any) -> Any:
    near = less(absolute(m), _NEAR)
    far = where(near, 0.5, m)
    found = divide(subtract(where(near, 0.0, ans), apply("ellipkinc", phi, far)), multiply(far, 2.0))
    return where(near, multiply(_near_0(phi, where(near, m, 0.0), -0.5), -1.0), found)
