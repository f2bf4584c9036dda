"""Attach derivative rules to values whose ops would lose a limit.

A value that `where` takes from a constant at one point has the derivative 0 there, whatever its limit is. To compiled
code `with_derivatives` is the value itself; its derivative comes from a rule, and is only computed if it is used.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import Aval, is_literal
from tracegrad.ops.core.forms import IdentityForm
from tracegrad.ops.core.op import TABLE, Carrier, Sample, primitive
from tracegrad.ops.core.samples import uniform
from tracegrad.ops.shape.linear import broadcast_to, cast, stop_gradient, zeros_like
from tracegrad.typing import Array, NDArray

if TYPE_CHECKING:
    from collections.abc import Iterator


# For each rule, the derivative of the value in each operand: `derivative(value, *operands)`.
RULES: dict[str, tuple[Callable[..., Any], ...]] = {}


def limited(value: Array, *operands: Array, rule: str) -> Array:
    """`value` with the derivatives of `rule`, if `value` may be differentiated."""
    if any(map(is_literal, operands)) or not isinstance(value, Carrier):
        return value
    like: Any = value
    if like.dtype.kind == "c":
        return value
    return with_derivatives(stop_gradient(value), *[_conformed(x, like) for x in operands], rule=rule)


def _conformed(x: Array, like: Array) -> Array:
    """An operand broadcast and cast to the value: operands saved by a tape are neither broadcast nor promoted."""
    x = x if x.dtype == like.dtype else cast(x, dtype=like.dtype.name)
    return x if x.shape == like.shape else broadcast_to(x, shape=like.shape)


@primitive(IdentityForm(partial=True))
def with_derivatives(value: NDArray, *operands: NDArray, rule: str) -> NDArray:
    """`value`, as a function of the operands with the derivatives of `rule`."""
    return np.array(value)


@with_derivatives.def_aval
def _(value: Aval, *operands: Aval, rule: str) -> Aval:
    return value


def _contribution(i: int, t: Array, xs: Sequence[Array], rule: str) -> Any:
    if not i:
        return zeros_like(xs[0])  # the derivative is taken in the other operands only
    if rule not in RULES:
        importlib.import_module("tracegrad.ops.special.derivatives")  # the import adds its rules
    return TABLE["multiply"](t, RULES[rule][i - 1](*xs))


@with_derivatives.def_vjp_all
def _(wanted: Sequence[int], ct: Array, ans: Array, *xs: Array, rule: str) -> list[Any]:
    return [_contribution(i, ct, xs, rule) for i in wanted]


@with_derivatives.def_jvp
def _(tangents: Sequence[Array | None], ans: Array, *xs: Array, rule: str) -> Any:
    first, *others = [_contribution(i, t, xs, rule) for i, t in enumerate(tangents) if t is not None]
    for other in others:
        first = TABLE["accumulate"](first, other)
    return first


@with_derivatives.def_samples
def _() -> Iterator[Sample]:
    x, y = uniform((3, 4), 0.5, 3), uniform((3, 4), 0.5, 3, seed=1)
    yield (y * x ** (y - 1), x, y), {"rule": "power_in_base"}
    yield (x**y * np.log(x), x, y), {"rule": "power_in_exponent"}
