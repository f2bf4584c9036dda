"""Lexicographic order of complex numbers, as in NumPy: by the real parts, then by the imaginary parts.

Comparisons, extrema and their indices use this order, which the ops do not have. The selected element has the whole
derivative; among equal ones the first has it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

from tracegrad.avals import is_literal
from tracegrad.numpy_api.operands import operands, together
from tracegrad.numpy_api.registry import ufunc
from tracegrad.ops.core.elementwise_op import Elementwise
from tracegrad.ops.elementwise import table as elementwise
from tracegrad.ops.elementwise.complex import imag, real
from tracegrad.ops.elementwise.table import equal, isnan, logical_and, logical_not, logical_or, where
from tracegrad.ops.reduce import reductions
from tracegrad.ops.shape.linear import reshape, transpose, unreduce
from tracegrad.typing import Array, ArrayLike, Number

Comparison: TypeAlias = Callable[[Any, Any], Array]

# Implementations of the ops that need an order, for operands of which at least one is complex.
ORDERED: dict[Elementwise, Comparison] = {}


def is_complex(*xs: Any) -> bool:
    """Whether one of these operands is complex."""
    return any(type(x) is complex if is_literal(x) else x.dtype.kind == "c" for x in xs)


def _real_and_imag(x: Array | Number) -> tuple[Array | Number, Array | Number]:
    if is_literal(x):
        return x.real, x.imag
    return (real(x), imag(x)) if x.dtype.kind == "c" else (x, 0)


def _compared(op: Elementwise, strict: Elementwise) -> Comparison:
    def compare(x: ArrayLike, y: ArrayLike) -> Array:
        x, y = operands(x, y)
        if not is_complex(x, y):
            return op(x, y)
        (a, b), (c, d) = _real_and_imag(x), _real_and_imag(y)
        known = logical_not(logical_or(isnan(b), isnan(d)))
        return where(equal(a, c), op(b, d), logical_and(strict(a, c), known))

    compare.__doc__ = f"{op.__doc__}; of complex numbers in their order."
    ORDERED[op] = compare
    return ufunc(op.name)(compare)


less = _compared(elementwise.less, elementwise.less)
less_equal = _compared(elementwise.less_equal, elementwise.less)
greater = _compared(elementwise.greater, elementwise.greater)
greater_equal = _compared(elementwise.greater_equal, elementwise.greater)


def _chosen(op: Elementwise, first: Comparison) -> Comparison:
    def choose(x: ArrayLike, y: ArrayLike) -> Array:
        x, y = operands(x, y)
        if not is_complex(x, y):
            return op(x, y)
        _, (x, y) = together(x, y)
        return where(logical_or(isnan(x), first(x, y)), x, y)

    choose.__doc__ = f"{op.__doc__}; of complex numbers in their order."
    ORDERED[op] = choose
    return ufunc(op.name)(choose)


maximum = _chosen(elementwise.maximum, greater_equal)
minimum = _chosen(elementwise.minimum, less_equal)


# -- along an axis ---------------------------------------------------------------------------------------------------
def _arg_extremum(x: Array, axis: int, largest: bool) -> Array:
    """Return the index along `axis` of the first extremum of complex numbers, or of the first with a nan."""
    reduce, worst = (reductions.reduce_max, -math.inf) if largest else (reductions.reduce_min, math.inf)
    unordered = isnan(x)
    # `candidates` is the mask of the remaining candidates: first all ordered elements, then those with an extreme part.
    candidates = logical_not(unordered)
    for part in (real(x), imag(x)):
        top = unreduce(reduce(where(candidates, part, worst), axes=(axis,)), x.shape, (axis,))
        candidates = logical_and(candidates, equal(part, top))
    none = unreduce(reductions.reduce_any(unordered, axes=(axis,)), x.shape, (axis,))
    return reductions.argmax(where(none, unordered, candidates), axis=axis)


def _extreme(x: Array, axes: tuple[int, ...], largest: bool) -> Array:
    """Compute the extremum of complex numbers over `axes`, none of which is empty."""
    if not axes:
        return x
    rest = [k for k in range(len(x.shape)) if k not in axes]
    shape = tuple([x.shape[k] for k in rest])
    rows = reshape(transpose(x, perm=(*rest, *axes)), shape=(*shape, math.prod([x.shape[k] for k in axes])))
    return reductions.pick(rows, _arg_extremum(rows, len(rest), largest), axis=len(rest))


# NumPy's reductions by this order, by name, with the parameters of the ops.
REDUCTIONS: dict[str, Callable[..., Array]] = {
    "max": lambda x, axes: _extreme(x, axes, True),
    "min": lambda x, axes: _extreme(x, axes, False),
    "argmax": lambda x, axis: _arg_extremum(x, axis, True),
    "argmin": lambda x, axis: _arg_extremum(x, axis, False),
}
