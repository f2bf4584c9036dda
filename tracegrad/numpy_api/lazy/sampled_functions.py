"""Functions of samples: interpolation, finite differences, convolution, and phase unwrapping."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import is_literal
from tracegrad.errors import ShapeError, located
from tracegrad.numpy_api.joining import along, concatenate, diff
from tracegrad.numpy_api.operands import array, arrays, peer_of, promoted, size_of, to_dtype, to_float
from tracegrad.numpy_api.registry import implements
from tracegrad.numpy_api.sorting import searchsorted
from tracegrad.ops.core.op import normalize_axes, normalize_axis
from tracegrad.ops.elementwise.complex import conjugated
from tracegrad.ops.elementwise.table import (
    absolute,
    add,
    divide,
    equal,
    greater,
    less,
    logical_and,
    maximum,
    minimum,
    multiply,
    negative,
    remainder,
    subtract,
    where,
)
from tracegrad.ops.indexing.gather_scatter import gather
from tracegrad.ops.nn.correlation import correlation
from tracegrad.ops.reduce import scans, sorting
from tracegrad.ops.shape.linear import flip, pad, reshape
from tracegrad.typing import Array, ArrayLike, Axes, Number

if TYPE_CHECKING:
    from collections.abc import Sequence


# -- interp ------------------------------------------------------------------------------------------------------------
@implements(np.interp)
def interp(
    x: ArrayLike,
    xp: ArrayLike,
    fp: ArrayLike,
    left: Array | Number | None = None,
    right: Array | Number | None = None,
    period: float | None = None,
) -> Array:
    """`np.interp`, with derivatives with respect to all arguments; at a corner, those of the piece on the right."""
    peer = peer_of(x, xp, fp, left, right, period)
    v, points, values = (to_float(array(u, peer)) for u in (x, xp, fp))
    v, points = to_dtype(v, float), to_dtype(points, float)
    values = values if values.dtype.kind == "c" else to_dtype(values, float)
    if len(points.shape) != 1 or points.shape != values.shape or not points.shape[0]:
        raise ValueError(located("fp and xp are not of the same length, or empty"))
    if period is not None:
        v, points, values = _periodic(v, points, values, period)
        left = right = None
    return _interpolated(v, points, values, left, right)


def _periodic(x: Array, xp: Array, fp: Array, period: float) -> tuple[Array, Array, Array]:
    """Sort the points of one period, and add a neighbouring point at either end."""
    period = abs(period)
    x, xp = remainder(x, period), remainder(xp, period)
    n = xp.shape[0]
    order = sorting.argsort(xp, axis=0, descending=False, stable=False)
    xp, fp = (gather(u, order, axes=(0,)) for u in (xp, fp))
    xp = concatenate([subtract(along(xp, 0, n - 1, n), period), xp, add(along(xp, 0, 0, 1), period)])
    return x, xp, concatenate([along(fp, 0, n - 1, n), fp, along(fp, 0, 0, 1)])


def _interpolated(x: Array, xp: Array, fp: Array, left: Array | Number | None, right: Array | Number | None) -> Array:
    n = xp.shape[0]
    first, last = (reshape(along(u, 0, k, k + 1), shape=()) for u, k in ((xp, 0), (xp, n - 1)))
    low, high = (reshape(along(fp, 0, k, k + 1), shape=()) for k in (0, n - 1))
    if n == 1:
        result = where(equal(x, x), low, x)
    else:
        interval = minimum(maximum(subtract(searchsorted(xp, x, "right"), 1), 0), n - 2)
        x0, f0 = gather(xp, interval, axes=(0,)), gather(fp, interval, axes=(0,))
        x1, f1 = gather(xp, add(interval, 1), axes=(0,)), gather(fp, add(interval, 1), axes=(0,))
        result = add(multiply(divide(subtract(f1, f0), subtract(x1, x0)), subtract(x, x0)), f0)
        result = where(equal(x, last), high, result)
    result = where(less(x, first), low if left is None else left, result)
    return where(greater(x, last), high if right is None else right, result)


# -- gradient ----------------------------------------------------------------------------------------------------------
@implements(np.gradient)
def gradient(f: ArrayLike, *varargs: ArrayLike, axis: Axes = None, edge_order: int = 1) -> tuple[Array, ...] | Array:
    """`np.gradient`; spacings may be traced."""
    x, *args = arrays(f, *varargs)
    x = to_float(x)
    rank = len(x.shape)
    is_sequence = axis is None or isinstance(axis, tuple)
    axes = (
        tuple(normalize_axis("gradient", k, rank) for k in axis)
        if isinstance(axis, tuple)
        else (normalize_axes("gradient", axis, rank))
    )
    if len(args) not in (0, 1, len(axes)) or (len(args) == 1 < len(axes) and args[0].shape):
        raise TypeError(located("invalid number of arguments"))
    if edge_order not in (1, 2):
        raise ValueError(located("'edge_order' greater than 2 not supported"))
    spacings = [1.0] * len(axes) if not args else args * len(axes) if len(args) == 1 else args
    results = [_axis_gradient(x, k, h, edge_order) for k, h in zip(axes, spacings)]
    return tuple(results) if is_sequence and len(results) > 1 else results[0]


def _axis_gradient(x: Array, axis: int, h: Any, order: int) -> Array:
    n = x.shape[axis]
    if n < order + 1:
        raise ValueError(located("Shape of array too small to calculate a numerical gradient"))

    def at(k: int) -> Array:
        return along(x, axis, k % n, k % n + 1)

    if is_literal(h) or not h.shape:
        inner, ends = _even(x, axis, h, n, at, order)
    else:
        if len(h.shape) != 1 or h.shape[0] != n:
            raise ValueError(located("when 1d, distances must match the length of the corresponding dimension"))
        column = tuple(n - 1 if k == axis else 1 for k in range(len(x.shape)))
        inner, ends = _uneven(x, axis, reshape(diff(to_float(h)), shape=column), n, at, order)
    return concatenate([ends[0], *inner, ends[1]], axis)


def _even(
    x: Array, axis: int, h: Array | float, n: int, at: Callable[[int], Array], order: int
) -> tuple[list[Array], tuple[Array, ...]]:
    inner = [divide(subtract(along(x, axis, 2, n), along(x, axis, 0, n - 2)), multiply(2.0, h))] if n > 2 else []
    if order == 1:
        return inner, (divide(subtract(at(1), at(0)), h), divide(subtract(at(-1), at(-2)), h))
    factors = [divide(c, h) for c in (-1.5, 2.0, -0.5)]
    ends = (_sum(factors, [at(0), at(1), at(2)]), _sum([negative(c) for c in factors[::-1]], [at(-3), at(-2), at(-1)]))
    return inner, ends


def _sum(factors: Sequence[Array | float], terms: Sequence[Array]) -> Array:
    a, b, c = (multiply(f, p) for f, p in zip(factors, terms))
    return add(add(a, b), c)


def _uneven(
    x: Array, axis: int, spacings: Array, n: int, at: Callable[[int], Array], order: int
) -> tuple[list[Array], tuple[Array, Array]]:
    m = n - 1

    def spacing(k: int) -> Array:
        return along(spacings, axis, k % m, k % m + 1)

    inner = []
    if n > 2:
        d1, d2 = along(spacings, axis, 0, m - 1), along(spacings, axis, 1, m)
        both = add(d1, d2)
        a = divide(negative(d2), multiply(d1, both))
        b, c = divide(subtract(d2, d1), multiply(d1, d2)), divide(d1, multiply(d2, both))
        inner = [_sum([a, b, c], [along(x, axis, k, n - 2 + k) for k in range(3)])]
    if order == 1:
        return inner, (divide(subtract(at(1), at(0)), spacing(0)), divide(subtract(at(-1), at(-2)), spacing(-1)))
    d1, d2 = spacing(0), spacing(1)
    both = add(d1, d2)
    a = divide(negative(add(multiply(2.0, d1), d2)), multiply(d1, both))
    low = _sum([a, divide(both, multiply(d1, d2)), divide(negative(d1), multiply(d2, both))], [at(0), at(1), at(2)])
    d1, d2 = spacing(-2), spacing(-1)
    both = add(d1, d2)
    c = divide(add(multiply(2.0, d2), d1), multiply(d2, both))
    high = _sum([divide(d2, multiply(d1, both)), divide(negative(both), multiply(d1, d2)), c], [at(-3), at(-2), at(-1)])
    return inner, (low, high)


# -- convolution -------------------------------------------------------------------------------------------------------
def _correlated(x: Array, v: Array, mode: Any) -> Array:
    """Compute the products of `v` with the windows of a longer `x`."""
    m = v.shape[0]
    whole = {"full": (m - 1, m - 1), "same": (m // 2, m - m // 2 - 1), "valid": (0, 0)}
    modes = {0: "valid", 1: "same", 2: "full"}
    mode = modes.get(mode, mode)
    if mode not in whole:
        raise ValueError(located(f"mode must be one of 'valid', 'same', or 'full' (got {mode!r})"))
    low, high = whole[mode]
    zero: Any = {"f": 0.0, "b": False}.get(x.dtype.kind, 0)
    if low + high:
        x = pad(x, low=(low,), high=(high,), interior=(0,), value=zero)
    return correlation(x, v)


def _vectors(name: str, a: ArrayLike, v: ArrayLike) -> list[Array]:
    xs = promoted(arrays(a, v))
    xs = [reshape(x, shape=(1,)) if not x.shape else x for x in xs]
    if any(len(x.shape) != 1 for x in xs):
        raise ShapeError(located("object too deep for desired array"))
    if not all(map(size_of, xs)):
        raise ValueError(located(f"{name}: an operand is empty"))
    return xs


@implements(np.correlate)
def correlate(a: ArrayLike, v: ArrayLike, mode: str = "valid") -> Array:
    """`np.correlate`."""
    x, y = _vectors("correlate", a, v)
    y = conjugated(y)
    if y.shape[0] <= x.shape[0]:
        return _correlated(x, y, mode)
    return flip(_correlated(y, x, mode), axes=(0,))


@implements(np.convolve)
def convolve(a: ArrayLike, v: ArrayLike, mode: str = "full") -> Array:
    """`np.convolve`."""
    x, y = _vectors("convolve", a, v)
    if y.shape[0] > x.shape[0]:
        x, y = y, x
    return _correlated(x, flip(y, axes=(0,)), mode)


# -- angles ------------------------------------------------------------------------------------------------------------
@implements(np.unwrap)
def unwrap(
    p: ArrayLike, discont: Array | Number | None = None, axis: int = -1, *, period: float = 2 * math.pi
) -> Array:
    """`np.unwrap`: the added multiples are constant, so the derivative is that of `p`."""
    (x,) = arrays(p)
    k = normalize_axis("unwrap", axis, len(x.shape))
    n = x.shape[k]
    whole = isinstance(period, int) and x.dtype.kind in "iu"
    if not whole:
        x = to_float(x)
    if n < 2:
        return add(x, 0)
    low, rest = divmod(period, 2) if whole else (period / 2, 0)
    ambiguous = rest == 0
    low = -low
    difference = diff(x, axis=k)
    wrapped = add(remainder(subtract(difference, low), period), low)
    if ambiguous:
        wrapped = where(logical_and(equal(wrapped, low), greater(difference, 0)), -low, wrapped)
    missing = subtract(wrapped, difference)
    missing = where(less(absolute(difference), period / 2 if discont is None else discont), 0, missing)
    later = add(along(x, k, 1, n), scans.cumsum(missing, axis=k))
    return concatenate([along(x, k, 0, 1), later], k)
