"""What the slopes of `power` have for slopes: their limits where the base is 0 or infinite.

d2(x**y) / dx dy is x**(y - 1) * (1 + y * log(x)). Neither y * x**(y - 1) nor x**y * log(x), differentiated as they are
computed, has its limit where a factor is 0: the first forgets that 0**0 is a jump, the second that 0 * log(0) is none.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracegrad.avals import Aval
from tracegrad.ops.elementwise import (
    add,
    equal,
    exponent,
    log,
    logical_and,
    multiply,
    power,
    power_in_base,
    power_in_exponent,
    subtract,
    where,
)
from tracegrad.ops.forms import Identity
from tracegrad.ops.linear import zeros_like
from tracegrad.ops.op import primitive
from tracegrad.ops.samples import uniform

__all__ = ["power_slope"]


def _mixed(x: Any, y: Any) -> Any:
    """The slope of x**y in both."""
    at_zero = equal(x, 0)
    base = where(at_zero, 0.0, x)  # of -0.0, the limit from above: from below there is none
    factor = power(base, subtract(y, 1))
    grown = multiply(y, log(where(logical_and(at_zero, equal(y, 0)), 1.0, base)))
    return where(equal(factor, 0), 0.0, multiply(factor, add(grown, 1)))


@primitive(Identity(partial=True))
def power_slope(slope: Any, x: Any, y: Any, *, in_base: bool) -> Any:
    """`slope`, which is that of x**y in x if `in_base`, else in y, with the slopes that are the limits."""
    return np.array(slope)


@power_slope.def_aval
def _(slope: Aval, x: Aval, y: Aval, *, in_base: bool) -> Aval:
    return slope


def _in_x(ct: Any, slope: Any, x: Any, y: Any, in_base: bool) -> Any:
    if not in_base:
        return multiply(ct, _mixed(x, y))
    return multiply(multiply(ct, y), power_in_base(x, subtract(exponent(x, y), 1)))


def _in_y(ct: Any, slope: Any, x: Any, y: Any, in_base: bool) -> Any:
    return multiply(ct, _mixed(x, y) if in_base else power_in_exponent(slope, x))


@power_slope.def_vjp("slope")
def _(ct: Any, ans: Any, slope: Any, x: Any, y: Any, *, in_base: bool) -> Any:
    return zeros_like(slope)  # all of it is that of the others


@power_slope.def_vjp("x")
def _(ct: Any, ans: Any, slope: Any, x: Any, y: Any, *, in_base: bool) -> Any:
    return _in_x(ct, slope, x, y, in_base)


@power_slope.def_vjp("y")
def _(ct: Any, ans: Any, slope: Any, x: Any, y: Any, *, in_base: bool) -> Any:
    return _in_y(ct, slope, x, y, in_base)


@power_slope.def_jvp
def _(tangents: Any, ans: Any, slope: Any, x: Any, y: Any, *, in_base: bool) -> Any:
    _, of_x, of_y = tangents
    moved = [rule(t, slope, x, y, in_base) for rule, t in ((_in_x, of_x), (_in_y, of_y)) if t is not None]
    return None if not moved else moved[0] if len(moved) == 1 else add(*moved)


@power_slope.def_samples
def _() -> Any:
    x, y = uniform((3, 4), 0.5, 3), uniform((3, 4), 0.5, 3, seed=1)
    yield (y * x ** (y - 1), x, y), {"in_base": True}
    yield (x**y * np.log(x), x, y), {"in_base": False}
