"""Represent complex values as pairs of reals, with a lowering rule per op.

A rule of `RULES` takes the operands of its op: pairs, values, and literals. At least one operand or the result is
complex. The rule returns a pair, a value, or `NotImplemented`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad.avals import Aval
from tracegrad.ops.core.dispatch import Carrier, DispatchLevel
from tracegrad.ops.core.op import Op
from tracegrad.ops.elementwise.complex import (
    complex_,
    complex_of,
    conj,
    imag,
    real,
    real_of,
    view_as_complex,
    view_as_real,
)
from tracegrad.ops.elementwise.table import add, logical_or, multiply, negative, not_equal, subtract
from tracegrad.ops.indexing.gather_scatter import gather
from tracegrad.ops.linalg.contraction import matmul
from tracegrad.ops.shape.linear import (
    broadcast_to,
    cast,
    concatenate,
    flip,
    full,
    pad,
    reduce_sum,
    reshape,
    slice,
    transpose,
)
from tracegrad.ops.shape.stack_split import stack
from tracegrad.passes.core.constant_folding import is_zero
from tracegrad.target.tuning import TUNING


class ComplexPair(Carrier):
    """Complex values with the parts `re` and `im`; `block` is None, or the array of both parts along a last axis."""

    __slots__ = ("block", "im", "re")
    level = DispatchLevel.PAIR

    def __init__(self, re: Any, im: Any, block: Any = None):
        self.re, self.im, self.block = re, im, block

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
    """The memory representation of a pair; any other value unchanged."""
    if not isinstance(x, ComplexPair):
        return x
    if x.block is None:
        x.block = stack(x.re, x.im, axis=len(x.shape))
    return x.block


def parted(x: Any, aval: Aval) -> Any:
    """The pair with the memory representation `x`, if `aval` is complex; else `x`."""
    if aval.dtype.kind != "c":
        return x
    n = aval.ndim
    parts = [slice(x, start=(*(0,) * n, k), stop=(*aval.shape, k + 1), step=(1,) * (n + 1)) for k in (0, 1)]
    re, im = (reshape(part, shape=aval.shape) for part in parts)
    return ComplexPair(re, im, x)


# The parameters of data movement ops and sums for operands with one more last axis, of n elements, left unchanged.
_WITH_LAST: dict[Op, Callable[..., dict[str, Any]]] = {
    broadcast_to: lambda n, *, shape: {"shape": (*shape, n)},
    concatenate: lambda n, **params: params,
    flip: lambda n, **params: params,
    gather: lambda n, **params: params,
    pad: lambda n, *, value, **widths: {k: (*v, 0) for k, v in widths.items()} | {"value": value},
    reduce_sum: lambda n, **params: params,
    reshape: lambda n, *, shape: {"shape": (*shape, n)},
    stack: lambda n, **params: params,
    slice: lambda n, *, start, stop, step: {"start": (*start, 0), "stop": (*stop, n), "step": (*step, 1)},
    transpose: lambda n, *, perm: {"perm": (*perm, len(perm))},
}


def moved_together(op: Op, operands: tuple[Any, ...], params: dict[str, Any]) -> ComplexPair | None:
    """Apply a data movement op to pairs in memory, with both parts together; None for other ops."""
    pairs = [x for x in operands if isinstance(x, ComplexPair)]
    if op not in _WITH_LAST or any(x.block is None for x in pairs):
        return None
    value = complex(params.get("value", 0.0))
    if value.real != value.imag or (op is reduce_sum and len(pairs[0].shape) - 1 in params["axes"]):
        return None
    inner = _WITH_LAST[op](2, **params) | ({"value": value.real} if "value" in params else {})
    block = op(*[x.block if isinstance(x, ComplexPair) else x for x in operands], **inner)
    result: ComplexPair = parted(block, Aval(block.shape[:-1], pairs[0].dtype))
    return result


Rule = Callable[..., Any]
RULES: dict[Op, Rule] = {}


def rule(*ops: Op) -> Callable[[Rule], Rule]:
    """Register a rule for these ops (decorator)."""

    def enter(fn: Rule) -> Rule:
        for op in ops:
            RULES[op] = fn
        return fn

    return enter


def parts_of(x: Any) -> tuple[Any, Any]:
    """The parts of a pair or of a literal."""
    return (x.re, x.im) if isinstance(x, ComplexPair) else (x.real, x.imag)


# -- parts ---------------------------------------------------------------------------------------------------------
@rule(real)
def _(x: ComplexPair) -> Any:
    return x.re


@rule(imag)
def _(x: ComplexPair) -> Any:
    return x.im


@rule(conj)
def _(x: ComplexPair) -> Any:
    return ComplexPair(x.re, negative(x.im))


@rule(complex_)
def _(x: Any, y: Any) -> Any:
    return ComplexPair(
        *(full(shape=b.shape, value=a, dtype=b.dtype.name) if type(a) is float else a for a, b in ((x, y), (y, x)))
    )


@rule(view_as_real)
def _(x: ComplexPair) -> Any:
    return joined(x)


@rule(view_as_complex)
def _(x: Any) -> Any:
    return parted(x, view_as_complex.aval(x.aval))


@rule(full)
def _(*, shape: tuple[int, ...], value: Any, dtype: str) -> Any:
    part = real_of(np.dtype(dtype)).name
    return ComplexPair(*[full(shape=shape, value=float(v), dtype=part) for v in (value.real, value.imag)])


@rule(cast)
def _(x: Any, *, dtype: str) -> Any:
    target = np.dtype(dtype)
    if not isinstance(x, ComplexPair):
        part = real_of(target).name
        return ComplexPair(cast(x, dtype=part), full(shape=x.shape, value=0.0, dtype=part))
    if target.kind == "c":
        part = real_of(target).name
        return ComplexPair(cast(x.re, dtype=part), cast(x.im, dtype=part))
    return logical_or(not_equal(x.re, 0.0), not_equal(x.im, 0.0)) if target.kind == "b" else cast(x.re, dtype=dtype)


# -- products ------------------------------------------------------------------------------------------------------
@rule(matmul)
def _(x: ComplexPair, y: ComplexPair) -> Any:
    """Multiply real matrices: each part of x with the memory representations of y and iy. The sum of the products is
    the memory representation of the result. A large factor is not copied for a small one."""
    m, n = x.shape[-2], y.shape[-1]
    if m == n == 1:
        vector_shape = (*x.shape[:-2], x.shape[-1])
        products = multiply(reshape(x, shape=vector_shape), reshape(y, shape=vector_shape))
        return reshape(reduce_sum(products, axes=(len(vector_shape) - 1,)), shape=(*vector_shape[:-1], 1, 1))
    if is_zero(y.im):
        return ComplexPair(matmul(x.re, y.re), matmul(x.im, y.re))
    if is_zero(x.im):
        return _in_columns(matmul(x.re, _columns(y)))
    if n <= MAX_COMPLEX_ROWS:
        both = stack(_columns(y), _columns(_times_i(y)), axis=len(y.shape) - 1)
        rows = reshape(both, shape=(*y.shape[:-2], 2 * y.shape[-2], 2 * n))
        return _in_columns(matmul(_columns(x), rows))
    if m <= MAX_COMPLEX_ROWS:
        all_four = _in_columns(matmul(concatenate(x.re, x.im, axis=len(x.shape) - 2), _columns(y)))
        (a, b), (c, d) = (_halves(part) for part in (all_four.re, all_four.im))
        return ComplexPair(subtract(a, d), add(c, b))
    return _in_columns(add(matmul(x.re, _columns(y)), matmul(x.im, _columns(_times_i(y)))))


MAX_COMPLEX_ROWS = TUNING.passes.max_complex_rows


def _times_i(x: ComplexPair) -> ComplexPair:
    """The pair i * x."""
    return ComplexPair(negative(x.im), x.re)


def _columns(x: ComplexPair) -> Any:
    """The memory representation of a stack of matrices, as two real columns per column."""
    return reshape(joined(x), shape=(*x.shape[:-1], 2 * x.shape[-1]))


def _in_columns(x: Any) -> ComplexPair:
    """The stack of matrices with this memory representation."""
    shape = (*x.shape[:-1], x.shape[-1] // 2)
    result: ComplexPair = parted(reshape(x, shape=(*shape, 2)), Aval(shape, complex_of(x.dtype)))
    return result


def _halves(x: Any) -> tuple[Any, Any]:
    """The upper and the lower half of the rows."""
    *batch, rows, n = x.shape
    begin, one = (0,) * len(batch), (1,) * len(x.shape)
    upper = slice(x, start=(*begin, 0, 0), stop=(*batch, rows // 2, n), step=one)
    return upper, slice(x, start=(*begin, rows // 2, 0), stop=(*batch, rows, n), step=one)
