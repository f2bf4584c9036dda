"""Functions that select elements: where, clip, take, diagonals, triangles, rounding, nan_to_num."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import is_literal, weak_dtype
from tracegrad.errors import DTypeError, ShapeError, located
from tracegrad.numpy_api.boolean_mask import nonzero
from tracegrad.numpy_api.complex_order import is_complex, maximum, minimum
from tracegrad.numpy_api.joining import picked
from tracegrad.numpy_api.memory_layout import in_memory_order, in_new_memory
from tracegrad.numpy_api.operands import (
    alias,
    array,
    arrays,
    assigned,
    broadcast_arrays,
    broadcast_shapes,
    constant,
    has_value,
    operand,
    operands,
    peer_of,
    promoted,
    raveled,
    to_dtype,
    to_float,
    together,
)
from tracegrad.numpy_api.reductions import sum as _sum
from tracegrad.numpy_api.registry import NO_VALUE, implements, refuse
from tracegrad.numpy_api.shapes import as_shape
from tracegrad.ops.core.op import Carrier, normalize_axis
from tracegrad.ops.elementwise import table as elementwise
from tracegrad.ops.elementwise.complex import complex_, imag, real
from tracegrad.ops.elementwise.table import (
    absolute,
    add,
    divide,
    equal,
    greater,
    isnan,
    less,
    less_equal,
    logical_and,
    logical_or,
    multiply,
    rint,
    sin,
)
from tracegrad.ops.indexing import diagonal as diagonals
from tracegrad.ops.indexing.gather_scatter import gather, scatter_add
from tracegrad.ops.shape import linear
from tracegrad.ops.shape.linear import arange, full, reshape
from tracegrad.typing import Array, ArrayLike, Casting, DType, DTypeLike, Number

if TYPE_CHECKING:
    from tracegrad.ops.core.elementwise_op import Elementwise


def _one(a: object) -> Array:
    return arrays(a)[0]


def positions(n: int, start: int = 0) -> Array:
    """Return the integers from `start` to `start + n - 1`."""
    return arange(start=start, step=1, length=n, dtype="int64")


# -- by a condition ------------------------------------------------------------------------------------------------
@implements(np.where)
def where(condition: Any, x: Any = NO_VALUE, y: Any = NO_VALUE, /) -> Any:
    """`np.where`; with one argument, `np.nonzero`."""
    if x is NO_VALUE or y is NO_VALUE:
        if x is not y:
            raise ValueError(located("either both or neither of x and y should be given"))
        return nonzero(condition)
    condition, x, y = operands(condition, x, y)
    dtype, chosen = together(x, y)
    if not _WRAPS and dtype.kind in "iu":
        for args in (x, y):
            _fitting(args, dtype)
    return elementwise.where(condition, *chosen)


# Whether Python numbers that are selected wrap around; since NumPy 2.5, numbers that do not fit raise an error.
_WRAPS = np.lib.NumpyVersion(np.__version__) < "2.5.0"


def _fitting(x: Any, dtype: DType) -> None:
    """Raise `OverflowError`, as NumPy, if a Python number does not fit; a traced number is queried."""
    if type(x) is int:
        dtype.type(x)
    elif getattr(x, "weak", False) and x.dtype.kind == "i" and dtype != x.dtype and has_value(x):
        limits = np.iinfo(dtype)
        if not (x >= limits.min and x <= limits.max):
            raise OverflowError(located(f"where: a Python integer is out of bounds for {dtype}"))


@implements(np.select)
def select(condlist: Sequence[ArrayLike], choicelist: Sequence[ArrayLike], default: ArrayLike = 0) -> Array:
    """`np.select`."""
    if len(condlist) != len(choicelist) or not condlist:
        raise ValueError(located("list of cases must be same length as list of conditions, and not empty"))
    n = len(condlist)
    args: list[Any] = operands(*condlist, *choicelist, default)
    dtype, (*choices, out) = together(*args[n:])
    for condition, choice in reversed(list(zip(args[:n], choices))):
        if condition.dtype.kind != "b":
            raise DTypeError(located(f"select: conditions must be boolean, got {condition.dtype}"))
        out = to_dtype(elementwise.where(condition, choice, out), dtype)  # also if both are Python numbers
    return in_memory_order(out, "C")


@implements(np.clip, refuses=("out",))
def clip(
    a: ArrayLike,
    a_min: Any = None,
    a_max: Any = None,
    out: Array | None = None,
    *,
    min: Any = None,
    max: Any = None,
    dtype: DTypeLike = None,
    casting: Casting = "same_kind",
    **others: object,
) -> Array:
    """`np.clip`; at a bound all of the cotangent goes to `a`."""
    if others:
        raise refuse(f"the argument {next(iter(others))}= of np.clip", "use np.minimum and np.maximum")
    low = min if a_min is None or a_min is NO_VALUE else a_min
    high = max if a_max is None or a_max is NO_VALUE else a_max
    peer = peer_of(a, low, high)
    x: Any = array(a, peer)
    if dtype is not None:
        (x,) = promoted([x], dtype, casting)
        bounds = [v if v is None or is_literal(v) else array(v, peer) for v in (low, high)]
        low, high = (v if v is None or is_literal(v) else promoted([v], dtype, casting)[0] for v in bounds)
    if is_complex(x, *operands(*[v for v in (low, high) if v is not None])):
        return _clipped_complex(x, low, high)
    # A Python integer beyond the range of the dtype is no bound. On the other side NumPy raises OverflowError.
    if _is_integer(low, x) and low < np.iinfo(x.dtype).min:
        low = None
    if _is_integer(high, x) and high > np.iinfo(x.dtype).max:
        high = None
    bounds = [v if v is None else operand(v, peer) for v in (low, high)]
    keeps_cotangent = all(v is not None and _is_one(v, x) for v in bounds)
    for bound, beyond, op in zip(bounds, (less, greater), (elementwise.at_least, elementwise.at_most)):
        if bound is not None:
            x = _bounded(x, bound, beyond) if keeps_cotangent or (is_literal(bound) and bound != 0) else op(x, bound)
    result: Array = x._alias() if low is None and high is None else x
    return result


def _clipped_complex(x: Array, low: ArrayLike | None, high: ArrayLike | None) -> Array:
    x = alias(x) if low is None and high is None else x
    x = x if low is None else maximum(x, low)
    return x if high is None else minimum(x, high)


def _is_one(bound: Array | Number, x: Array) -> bool:
    """Whether NumPy treats `bound` as one number.

    Between two numbers, clip keeps the sign of a zero of `x`; otherwise the bound's zero is the result.
    """
    return is_literal(bound) or not bound.shape or (math.prod(bound.shape) == 1 < math.prod(x.shape))


def _is_integer(bound: object, x: Array) -> bool:
    return type(bound) is int and x.dtype.kind in "iu"


def _bounded(x: Array, bound: Array | Number, beyond: Elementwise) -> Array:
    if is_literal(bound):
        return elementwise.where(beyond(x, bound), bound, x) if bound == bound else multiply(x, bound)
    outside = beyond(x, bound)
    if bound.dtype.kind == "f":
        outside = logical_and(logical_or(outside, isnan(bound)), logical_or(isnan(bound), equal(x, x)))
    return elementwise.where(outside, bound, x)


@implements(np.nan_to_num)
def nan_to_num(
    x: ArrayLike, copy: bool = True, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Array:
    """`np.nan_to_num`."""
    v = _one(x)
    result = _without_nan(v, nan, posinf, neginf)
    if copy:
        return result
    if not isinstance(x, Carrier):
        raise refuse("np.nan_to_num with copy=False of what is no traced array", "use the result")
    target: Any = v
    target[...] = result
    return v


def _without_nan(v: Array, nan: float, posinf: float | None, neginf: float | None) -> Array:
    if v.dtype.kind == "c":
        return complex_(*(_without_nan(part, nan, posinf, neginf) for part in (real(v), imag(v))))
    if v.dtype.kind != "f":
        return alias(v)
    info = np.finfo(v.dtype)
    top = float(info.max) if posinf is None else posinf
    bottom = float(info.min) if neginf is None else neginf
    bounded = elementwise.where(equal(v, math.inf), top, elementwise.where(equal(v, -math.inf), bottom, v))
    return elementwise.where(isnan(v), nan, bounded)


@implements(np.isposinf, refuses=("out",))
def isposinf(x: ArrayLike, out: Array | None = None) -> Array:
    """`np.isposinf`."""
    return equal(_one(x), math.inf)


@implements(np.isneginf, refuses=("out",))
def isneginf(x: ArrayLike, out: Array | None = None) -> Array:
    """`np.isneginf`."""
    return equal(_one(x), -math.inf)


# -- rounding ------------------------------------------------------------------------------------------------------
@implements(np.round, np.around, refuses=("out",))
def round(a: ArrayLike, decimals: int = 0, out: Array | None = None) -> Array:
    """`np.round`."""
    x = _one(a)
    if x.dtype.kind in "iu":
        return to_dtype(round(to_float(x), decimals), x.dtype) if decimals < 0 else alias(x)
    if x.dtype.kind == "c":
        return in_memory_order(complex_(round(real(x), decimals), round(imag(x), decimals)), "A", x)
    if x.dtype.kind != "f":
        raise refuse(f"np.round of {x.dtype} to {decimals} decimals")
    if decimals == 0:
        return rint(x)
    scale = 10.0 ** abs(decimals)
    if decimals > 0:
        return in_memory_order(divide(rint(multiply(x, scale)), scale), "A", x)
    return in_memory_order(multiply(rint(divide(x, scale)), scale), "A", x)


@implements(np.fix, refuses=("out",))
def fix(x: ArrayLike, out: Array | None = None) -> Array:
    """`np.fix`: rounds towards zero."""
    return elementwise.trunc(_one(x))


@implements(np.i0)
def i0(x: ArrayLike) -> Array:
    """`np.i0`: as `scipy.special.i0`."""
    import scipy.special

    result: Array = scipy.special.i0(to_float(_one(x)))
    return result


@implements(np.sinc)
def sinc(x: ArrayLike) -> Array:
    """`np.sinc`: sin(pi x) / (pi x); complex numbers near 0 use the Taylor series, which has derivatives there.

    The angle of a real number is reduced before it is multiplied by pi: whole numbers give 0, and no digits are lost.
    """
    x = to_float(_one(x))
    if x.dtype.kind != "c":
        return elementwise.sinc(x)
    angle = multiply(x, math.pi)
    near = less(absolute(angle), 0.5)
    far = elementwise.where(near, 1.0, angle)
    close = elementwise.where(near, angle, 0.0)
    squared = multiply(close, close)
    series: Any = 1.0 / math.factorial(17)
    for k in range(7, -1, -1):
        series = add(multiply(squared, series), (-1) ** k / math.factorial(2 * k + 1))
    return elementwise.where(near, series, divide(sin(angle), far))


# -- by index ------------------------------------------------------------------------------------------------------
def _as_index(x: Array) -> Array:
    if x.dtype.kind not in "iu":
        raise DTypeError(located(f"arrays used as indices must be of integer type, got {x.dtype}"))
    return to_dtype(x, "int64")


@implements(np.take, refuses=("out",))
def take(
    a: ArrayLike, indices: ArrayLike, axis: int | None = None, out: Array | None = None, mode: str = "raise"
) -> Array:
    """`np.take`; with mode "clip" or "wrap" the indices are brought into range first."""
    if isinstance(indices, list | tuple) and not len(indices):
        indices = np.empty(0, np.intp)  # np.array([]) has the dtype float64
    x, index = arrays(a, indices)
    index = _as_index(index)
    if axis is None:
        x, axis = raveled(x), 0
    k = normalize_axis("take", axis, len(x.shape))
    if mode == "wrap":
        index = elementwise.remainder(index, x.shape[k])
    elif mode == "clip":
        index = clip(index, 0, x.shape[k] - 1)
    elif mode != "raise":
        raise ValueError(located(f"clipmode must be one of 'clip', 'raise', or 'wrap' (got {mode!r})"))
    return in_memory_order(picked(x, index, k), "C")


@implements(np.take_along_axis)
def take_along_axis(arr: ArrayLike, indices: ArrayLike, axis: int | None = -1) -> Array:
    """`np.take_along_axis`."""
    x, index = arrays(arr, indices)
    index = _as_index(index)
    if axis is None:
        x, axis = raveled(x), 0
    rank = len(x.shape)
    k = normalize_axis("take_along_axis", axis, rank)
    if len(index.shape) != rank:
        raise ShapeError(located("`indices` and `arr` must have the same number of dimensions"))
    others = [
        index
        if d == k
        else reshape(positions(x.shape[d]), shape=tuple(x.shape[d] if i == d else 1 for i in range(rank)))
        for d in range(rank)
    ]
    return gather(x, *broadcast_arrays("take_along_axis", others), axes=tuple(range(rank)))


# -- diagonals and triangles ---------------------------------------------------------------------------------------
@implements(np.diagonal)
def diagonal(a: ArrayLike, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
    """`np.diagonal`: a view that must not be updated."""
    view: Any = _diagonal(_one(a), offset, axis1, axis2)
    result: Array = view._sealed()
    return result


def _diagonal(x: Array, offset: int, axis1: int, axis2: int) -> Array:
    if len(x.shape) < 2:
        raise ValueError(located("diag requires an array of at least two dimensions"))
    i, j = (normalize_axis("diagonal", k, len(x.shape)) for k in (axis1, axis2))
    if i == j:
        raise ValueError(located("axis1 and axis2 cannot be the same"))
    return diagonals.diagonal(x, offset=offset.__index__(), axes=(i, j))


@implements(np.linalg.diagonal)
def linalg_diagonal(x: ArrayLike, /, *, offset: int = 0) -> Array:
    """`np.linalg.diagonal`."""
    return diagonal(x, offset, -2, -1)


@implements(np.diag)
def diag(v: ArrayLike, k: int = 0) -> Array:
    """`np.diag`."""
    x = _one(v)
    if len(x.shape) == 2:
        return diagonal(x, k)
    if len(x.shape) != 1:
        raise ValueError(located("Input must be 1- or 2-d."))
    n, length = x.shape[0] + abs(k), x.shape[0]
    rows, columns = positions(length, max(-k, 0)), positions(length, max(k, 0))
    return scatter_add(x, rows, columns, shape=(n, n), axes=(0, 1))


@implements(np.diagflat)
def diagflat(v: ArrayLike, k: int = 0) -> Array:
    """`np.diagflat`."""
    x = _one(v)
    return diag(raveled(x), k)


@implements(np.trace, refuses=("out",))
def trace(
    a: ArrayLike, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: DTypeLike = None, out: Array | None = None
) -> Array:
    """`np.trace`."""
    return _sum(_diagonal(_one(a), offset, axis1, axis2), -1, dtype)


@implements(np.linalg.trace)
def linalg_trace(x: ArrayLike, /, *, offset: int = 0, dtype: DTypeLike = None) -> Array:
    """`np.linalg.trace`."""
    return trace(x, offset, -2, -1, dtype)


def band(rows: int, columns: int, k: int) -> Array:
    """Return the mask column <= row + k."""
    down, across = reshape(positions(rows, k), shape=(rows, 1)), reshape(positions(columns), shape=(1, columns))
    return less_equal(across, down)


def _triangle(m: ArrayLike, k: int, lower: bool) -> Array:
    x = _one(m)
    if len(x.shape) < 1:
        raise ShapeError(located("tril and triu need at least one axis"))
    rows, columns = x.shape[-2:] if len(x.shape) > 1 else (x.shape[0], x.shape[0])
    zero: Any = {"f": 0.0, "b": False}.get(x.dtype.kind, 0)
    inside = band(rows, columns, k if lower else k - 1)
    return elementwise.where(inside, x, zero) if lower else elementwise.where(inside, zero, x)


@implements(np.tril)
def tril(m: ArrayLike, k: int = 0) -> Array:
    """`np.tril`."""
    return _triangle(m, k, True)


@implements(np.triu)
def triu(m: ArrayLike, k: int = 0) -> Array:
    """`np.triu`."""
    return _triangle(m, k, False)


# -- arrays like another -------------------------------------------------------------------------------------------
@implements(np.zeros_like)
def zeros_like(
    a: ArrayLike,
    dtype: DTypeLike = None,
    order: str = "K",
    subok: bool = True,
    shape: int | Sequence[int] | None = None,
    *,
    device: str | None = None,
) -> Array:
    """`np.zeros_like`."""
    return full_like(a, 0, dtype, order, shape=shape)


@implements(np.ones_like)
def ones_like(
    a: ArrayLike,
    dtype: DTypeLike = None,
    order: str = "K",
    subok: bool = True,
    shape: int | Sequence[int] | None = None,
    *,
    device: str | None = None,
) -> Array:
    """`np.ones_like`."""
    return full_like(a, 1, dtype, order, shape=shape)


@implements(np.empty_like)
def empty_like(
    prototype: ArrayLike,
    dtype: DTypeLike = None,
    order: str = "K",
    subok: bool = True,
    shape: int | Sequence[int] | None = None,
    *,
    device: str | None = None,
) -> Array:
    """`np.empty_like`: zeros."""
    return full_like(prototype, 0, dtype, order, shape=shape)


@implements(np.full_like)
def full_like(
    a: ArrayLike,
    fill_value: Array | Number,
    dtype: DTypeLike = None,
    order: str = "K",
    subok: bool = True,
    shape: int | Sequence[int] | None = None,
    *,
    device: str | None = None,
) -> Array:
    """`np.full_like`."""
    peer = peer_of(a, fill_value)
    x = array(a, peer)
    wanted = x.shape if shape is None else as_shape(shape)
    kind = np.dtype(dtype) if dtype is not None else x.dtype
    if is_literal(fill_value):
        filled = constant(full(shape=wanted, value=assigned(fill_value, kind), dtype=kind.name), peer)
        return in_memory_order(filled, order, x)
    v = array(assigned(fill_value, kind), peer)
    broadcast_shapes("full_like", v.shape, wanted)
    return in_memory_order(linear.broadcast_to(v, shape=wanted), order, x)


@implements(np.astype)
def astype(x: ArrayLike, dtype: DTypeLike, /, *, copy: bool = True, device: str | None = None) -> Array:
    """`np.astype`."""
    carried: Any = _one(x)
    result: Array = carried.astype(dtype, copy=copy)
    return result


@implements(np.copy)
def copy(a: ArrayLike, order: str = "K", subok: bool = False) -> Array:
    """`np.copy`."""
    return in_new_memory(_one(a), order)


@implements(np.result_type)
def result_type(*arrays_and_dtypes: Any) -> Any:
    """`np.result_type`."""
    plain = [weak_dtype(x) if isinstance(x, Carrier) else x for x in arrays_and_dtypes]
    return np.result_type(*(x(0) if x in (bool, int, float) and isinstance(x, type) else x for x in plain))


@implements(np.common_type)
def common_type(*arrays: object) -> Any:
    """`np.common_type`, which reads only the dtypes of the arrays."""
    plain: list[Any] = [np.empty(0, getattr(x, "dtype", None)) if isinstance(x, Carrier) else x for x in arrays]
    return np.common_type(*plain)


@implements(np.can_cast)
def can_cast(from_: Any, to: Any, casting: Any = "safe") -> bool:
    """`np.can_cast`."""
    return np.can_cast(0 if getattr(from_, "weak", False) else getattr(from_, "dtype", from_), to, casting)
