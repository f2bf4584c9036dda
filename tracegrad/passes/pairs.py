"""Pairs: complex numbers as the values that their parts are, and what ops make of them, in real ops.

A rule of `RULES` takes the operands of its op, of which at least one, or the result, is complex: pairs, values, and
literals. It answers with a pair or a value, or by `NotImplemented`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad.avals import Aval
from tracegrad.ops.carriers import Carrier, Level
from tracegrad.ops.complex_numbers import complex_, complex_of, conj, imag, real, real_of, view_as_complex, view_as_real
from tracegrad.ops.contraction import matmul
from tracegrad.ops.elementwise import add, logical_or, multiply, negative, not_equal, square, subtract
from tracegrad.ops.linear import cast, full, reshape, slice
from tracegrad.ops.op import Op
from tracegrad.ops.pieces import stack

__all__ = ["RULES", "Pair", "joined", "parted", "rule"]


class Pair(Carrier):
    """Complex numbers, of which `re` and `im` are the parts; `block`, if there is one, has both along a last axis."""

    __slots__ = ("block", "im", "re")
    level = Level.PAIR

    def __init__(self, re: Any, im: Any, block: Any = None):
        self.re, self.im, self.block = re, im, block

    @property
    def aval(self) -> Aval:
        return Aval(self.shape, self.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        shape: tuple[int, ...] = self.re.shape
        return shape

    @property
    def dtype(self) -> Any:
        return complex_of(self.re.dtype)

    def bind(self, op: Op, operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
        return self.re.builder.emit(op, operands, params)


def joined(x: Any) -> Any:
    """What a pair lies in memory as; any other value as it is."""
    if not isinstance(x, Pair):
        return x
    if x.block is None:
        x.block = stack(x.re, x.im, axis=len(x.shape))
    return x.block


def parted(x: Any, aval: Aval) -> Any:
    """The pair that lies in memory as `x`, if `aval` is that of complex numbers; else `x`."""
    if aval.dtype.kind != "c":
        return x
    n = aval.ndim
    parts = [slice(x, start=(*(0,) * n, k), stop=(*aval.shape, k + 1), step=(1,) * (n + 1)) for k in (0, 1)]
    re, im = (reshape(part, shape=aval.shape) for part in parts)
    return Pair(re, im, x)


Rule = Callable[..., Any]
RULES: dict[Op, Rule] = {}


def rule(*ops: Op) -> Callable[[Rule], Rule]:
    """Enter a rule for these ops."""

    def enter(found: Rule) -> Rule:
        for op in ops:
            RULES[op] = found
        return found

    return enter


def parts_of(x: Any) -> tuple[Any, Any]:
    """The parts of a pair or of a literal."""
    return (x.re, x.im) if isinstance(x, Pair) else (x.real, x.imag)


# -- parts ---------------------------------------------------------------------------------------------------------
@rule(real)
def _(x: Pair) -> Any:
    return x.re


@rule(imag)
def _(x: Pair) -> Any:
    return x.im


@rule(conj)
def _(x: Pair) -> Any:
    return Pair(x.re, negative(x.im))


@rule(complex_)
def _(x: Any, y: Any) -> Any:
    return Pair(*(full(shape=b.shape, value=a, dtype=b.dtype.name) if type(a) is float else a
                  for a, b in ((x, y), (y, x))))  # fmt: skip


@rule(view_as_real)
def _(x: Pair) -> Any:
    return joined(x)


@rule(view_as_complex)
def _(x: Any) -> Any:
    return parted(x, view_as_complex.aval(x.aval))


@rule(full)
def _(*, shape: tuple[int, ...], value: Any, dtype: str) -> Any:
    part = real_of(np.dtype(dtype)).name
    return Pair(*[full(shape=shape, value=float(v), dtype=part) for v in (value.real, value.imag)])


@rule(cast)
def _(x: Any, *, dtype: str) -> Any:
    target = np.dtype(dtype)
    if not isinstance(x, Pair):
        part = real_of(target).name
        return Pair(cast(x, dtype=part), full(shape=x.shape, value=0.0, dtype=part))
    if target.kind == "c":
        part = real_of(target).name
        return Pair(cast(x.re, dtype=part), cast(x.im, dtype=part))
    return logical_or(not_equal(x.re, 0.0), not_equal(x.im, 0.0)) if target.kind == "b" else cast(x.re, dtype=dtype)


# -- arithmetic ----------------------------------------------------------------------------------------------------
@rule(multiply)
def _(x: Any, y: Any) -> Any:
    (a, b), (c, d) = parts_of(x), parts_of(y)
    return Pair(subtract(multiply(a, c), multiply(b, d)), add(multiply(a, d), multiply(b, c)))


@rule(square)
def _(x: Pair) -> Any:
    return multiply(x, x)


@rule(matmul)
def _(x: Pair, y: Pair) -> Any:
    return Pair(
        subtract(matmul(x.re, y.re), matmul(x.im, y.im)),
        add(matmul(x.re, y.im), matmul(x.im, y.re)),
    )
