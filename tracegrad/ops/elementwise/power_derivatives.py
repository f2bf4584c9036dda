"""Second derivatives of `power`: limits where the base is 0 or infinite."""

from __future__ import annotations

from tracegrad.ops.elementwise.limits import RULES
from tracegrad.ops.elementwise.table import (
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
from tracegrad.typing import Array


def _mixed(derivative: Array, x: Array, y: Array) -> Array:
    """The mixed derivative of x**y in both operands, x**(y - 1) * (1 + y * log(x)).

    Formulas derived from y * x**(y - 1) ignore the jump of 0**0, and formulas derived from x**y * log(x) have no value
    where both factors are infinite or 0.
    """
    at_zero = equal(x, 0)
    base = where(at_zero, 0.0, x)  # -0.0 gets the limit from above, because there is none from below
    factor = power(base, subtract(y, 1))
    grown = multiply(y, log(where(logical_and(at_zero, equal(y, 0)), 1.0, base)))
    return where(equal(factor, 0), 0.0, multiply(factor, add(grown, 1)))


def _twice_in_base(derivative: Array, x: Array, y: Array) -> Array:
    return multiply(y, power_in_base(x, subtract(exponent(x, y), 1)))


def _twice_in_exponent(derivative: Array, x: Array, y: Array) -> Array:
    return power_in_exponent(derivative, x)


RULES["power_in_base"] = _twice_in_base, _mixed
RULES["power_in_exponent"] = _mixed, _twice_in_exponent
