"""Reductions with NumPy's signatures and result dtypes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad.errors import ShapeError, located
from tracegrad.numpy_api import complex_order
from tracegrad.numpy_api.operands import arrays, assigned, raveled, rounded_once, to_dtype, to_float
from tracegrad.numpy_api.registry import UFUNC_METHODS, Answer, Mask, Out, Reduction, Start, implements
from tracegrad.numpy_api.ufuncs import isclose as _isclose
from tracegrad.ops.core.op import Carrier, Op, normalize_axes, normalize_axis
from tracegrad.ops.elementwise.table import (
    absolute,
    add,
    divide,
    equal,
    isnan,
    logical_and,
    logical_or,
    multiply,
    not_equal,
    power,
    sqrt,
    subtract,
    where,
)
from tracegrad.ops.linalg.factorizations import svdvals
from tracegrad.ops.reduce import reductions, scans
from tracegrad.ops.shape import linear
from tracegrad.ops.shape.linear import broadcast_to, cast, keep_axes, reduce_sum, reshape, transpose
from tracegrad.typing import Array, ArrayLike, Axes, DType, DTypeLike, Number

UNSET: Any = np._NoValue


def accumulator(dtype: DType) -> DType:
    """Return the dtype in which NumPy sums an array of `dtype`: at least the platform's integer."""
    if dtype.kind in "bi" and dtype.itemsize < 8:
        return np.dtype(np.int64)
    if dtype.kind == "u" and dtype.itemsize < 8:
        return np.dtype(np.uint64)
    return dtype


def _reduce(op: Callable[..., Array], name: str, x: Array, axis: Axes, keepdims: bool, **params: object) -> Array:
    axes = _axes(name, axis, len(x.shape))
    out = op(x, axes=axes, **params)
    return keep_axes(out, x.shape, axes) if keepdims else out


def _axes(name: str, axis: Axes, rank: int) -> tuple[int, ...]:
    """Normalize the axes of a reduction; ufunc reductions take 0 and -1 for a number too, as in NumPy."""
    if rank == 0 and hasattr(axis, "__index__") and axis in (0, -1) and name not in ("mean", "var", "norm"):
        return ()
    return normalize_axes(name, axis, rank)


def _one(a: ArrayLike) -> Array:
    return arrays(a)[0]


def _masked(a: ArrayLike, mask: ArrayLike, neutral: float) -> Array:
    """Replace the elements of `a` where `where=` is false by the identity element."""
    x, inside = arrays(a, mask)
    return where(to_dtype(inside, bool), x, bool(neutral) if x.dtype.kind == "b" else neutral)


# -- sums and products ---------------------------------------------------------------------------------------
@implements(np.sum, refuses=("out",))
def sum(
    a: ArrayLike,
    axis: Axes = None,
    dtype: DTypeLike = None,
    out: Out = None,
    keepdims: bool = False,
    initial: Start = UNSET,
    where: Mask = True,
) -> Array:
    """`np.sum`."""
    x = _one(a) if where is True else _masked(a, where, 0)
    total = _reduce(reduce_sum, "sum", to_dtype(x, dtype or accumulator(x.dtype)), axis, keepdims)
    return total if initial is UNSET else add(total, assigned(initial, total.dtype))


@implements(np.prod, refuses=("out",))
def prod(
    a: ArrayLike,
    axis: Axes = None,
    dtype: DTypeLike = None,
    out: Out = None,
    keepdims: bool = False,
    initial: Start = UNSET,
    where: Mask = True,
) -> Array:
    """`np.prod`."""
    x = _one(a) if where is True else _masked(a, where, 1)
    product = _reduce(reductions.reduce_prod, "prod", to_dtype(x, dtype or accumulator(x.dtype)), axis, keepdims)
    return product if initial is UNSET else multiply(product, assigned(initial, product.dtype))


@implements(np.nansum, refuses=("out",))
def nansum(
    a: ArrayLike,
    axis: Axes = None,
    dtype: DTypeLike = None,
    out: Out = None,
    keepdims: bool = False,
    initial: Start = UNSET,
    where: Mask = True,
) -> Array:
    """`np.nansum`."""
    return sum(_without_nan(_one(a)), axis, dtype, None, keepdims, initial, where)


def _without_nan(x: Array) -> Array:
    return where(isnan(x), 0.0, x) if x.dtype.kind in "fc" else x


@implements(np.nanmean, refuses=("out",))
def nanmean(
    a: ArrayLike,
    axis: Axes = None,
    dtype: DTypeLike = None,
    out: Out = None,
    keepdims: bool = False,
    *,
    where: Mask = True,
) -> Array:
    """`np.nanmean`."""
    x = to_dtype(to_float(_one(a)), dtype)
    count = sum(not_equal(isnan(x), True), axis, x.dtype, None, keepdims, where=where)
    return divide(sum(_without_nan(x), axis, None, None, keepdims, where=where), count)


def _scanned(op: Op[Array], a: ArrayLike, axis: int | None, dtype: DTypeLike) -> Array:
    x = _one(a)
    x = to_dtype(x, dtype or accumulator(x.dtype))
    if axis is None or (not x.shape and axis in (0, -1)):
        return op(raveled(x), axis=0)
    return op(x, axis=normalize_axis(op.name, axis, len(x.shape)))


@implements(np.cumsum, refuses=("out",))
def cumsum(a: ArrayLike, axis: int | None = None, dtype: DTypeLike = None, out: Out = None) -> Array:
    """`np.cumsum`."""
    return _scanned(scans.cumsum, a, axis, dtype)


@implements(np.cumprod, refuses=("out",))
def cumprod(a: ArrayLike, axis: int | None = None, dtype: DTypeLike = None, out: Out = None) -> Array:
    """`np.cumprod`; derivatives are correct where elements are 0."""
    return _scanned(scans.cumprod, a, axis, dtype)


@implements(np.cumulative_sum, refuses=("out",))
def cumulative_sum(
    x: ArrayLike, /, *, axis: int | None = None, dtype: DTypeLike = None, out: Out = None, include_initial: bool = False
) -> Array:
    """`np.cumulative_sum`."""
    return _from_initial(cumsum, x, axis, dtype, 0, include_initial)


@implements(np.cumulative_prod, refuses=("out",))
def cumulative_prod(
    x: ArrayLike, /, *, axis: int | None = None, dtype: DTypeLike = None, out: Out = None, include_initial: bool = False
) -> Array:
    """`np.cumulative_prod`."""
    return _from_initial(cumprod, x, axis, dtype, 1, include_initial)


def _from_initial(of: Reduction, a: ArrayLike, axis: int | None, dtype: DTypeLike, value: int, include: bool) -> Array:
    x = _one(a)
    x = x if x.shape else raveled(x)
    if axis is None and len(x.shape) != 1:
        raise ValueError(located("For arrays which have more than one dimension ``axis`` argument is required."))
    k = normalize_axis("cumulative", 0 if axis is None else axis, len(x.shape))
    out = of(x, k, dtype)
    if not include:
        return out
    shape = tuple(1 if i == k else n for i, n in enumerate(out.shape))
    first = linear.full(shape=shape, value=np.asarray(value, out.dtype).item(), dtype=out.dtype.name)
    return linear.concatenate(first, out, axis=k)


@implements(np.count_nonzero)
def count_nonzero(a: ArrayLike, axis: Axes = None, *, keepdims: bool = False) -> Array:
    """`np.count_nonzero`."""
    return sum(to_dtype(_one(a), bool), axis, None, None, keepdims)


# -- moments -------------------------------------------------------------------------------------------------
@implements(np.mean, refuses=("out",))
def mean(
    a: ArrayLike,
    axis: Axes = None,
    dtype: DTypeLike = None,
    out: Out = None,
    keepdims: bool = False,
    *,
    where: Mask = True,
) -> Array:
    """`np.mean`; integers are averaged in float64."""
    x = _one(a)
    x = to_float(x) if dtype is None else to_dtype(x, dtype)
    if x.dtype.kind in "biu":
        return _in_integers(x, axis, keepdims, where)
    if where is True:
        return _reduce(reductions.mean, "mean", x, axis, keepdims)
    return rounded_once(
        lambda x: divide(sum(x, axis, None, None, keepdims, where=where), _counted(x, where, axis, keepdims)), x
    )


def _in_integers(x: Array, axis: Axes, keepdims: bool, where: ArrayLike) -> Array:
    """Compute a mean with an integer or boolean dtype: the quotient of the sum is converted."""
    inside = broadcast_to(to_dtype(arrays(where)[0], bool), shape=x.shape)
    total = sum(x, axis, x.dtype, None, keepdims, where=where)
    return to_dtype(divide(total, sum(inside, axis, None, None, keepdims)), x.dtype)


def _counted(x: Array, mask: ArrayLike, axis: Axes, keepdims: bool) -> Array:
    """Count the elements where `where=` is true."""
    (inside,) = arrays(mask)
    return sum(broadcast_to(to_dtype(to_dtype(inside, bool), x.dtype), shape=x.shape), axis, None, None, keepdims)


@implements(np.var, refuses=("out",))
def var(
    a: ArrayLike,
    axis: Axes = None,
    dtype: DTypeLike = None,
    out: Out = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    where: Mask = True,
    mean: ArrayLike = UNSET,
    correction: float = UNSET,
) -> Array:
    """`np.var`: divides by n - ddof; integers are converted to float64."""
    x = _one(a)
    x = to_float(x) if dtype is None else to_dtype(x, dtype)
    if correction is not UNSET:
        if ddof != 0:
            raise ValueError(located("ddof and correction can't be provided simultaneously."))
        ddof = correction
    if where is True and mean is UNSET:
        return _reduce(reductions.var, "var", x, axis, keepdims, ddof=ddof)
    return rounded_once(lambda x: _var(x, axis, ddof, keepdims, where, mean), x)


def _var(x: Array, axis: Axes, ddof: float, keepdims: bool, where: ArrayLike, center: Any) -> Array:
    center = mean(x, axis, None, None, True, where=where) if center is UNSET else center
    squares = reductions.squares(subtract(x, center))
    total = sum(squares, axis, None, None, keepdims, where=where)
    if where is True:
        count: Any = float(reductions.count_of(x, normalize_axes("var", axis, len(x.shape))))
    else:
        count = _counted(squares, where, axis, keepdims)
    return divide(total, complex_order.maximum(subtract(count, ddof), 0.0))


@implements(np.std, refuses=("out",))
def std(
    a: ArrayLike,
    axis: Axes = None,
    dtype: DTypeLike = None,
    out: Out = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    where: Mask = True,
    mean: ArrayLike = UNSET,
    correction: float = UNSET,
) -> Array:
    """`np.std`: the square root of `np.var`."""
    return root(var(a, axis, dtype, None, ddof, keepdims, where=where, mean=mean, correction=correction))


# -- extrema -------------------------------------------------------------------------------------------------
@implements(np.max, np.amax, refuses=("out",))
def max(
    a: ArrayLike, axis: Axes = None, out: Out = None, keepdims: bool = False, initial: Start = UNSET, where: Mask = True
) -> Array:
    """`np.max`."""
    return _extreme(reductions.reduce_max, "max", _bounding("max", a, initial, where), axis, keepdims, initial)


@implements(np.min, np.amin, refuses=("out",))
def min(
    a: ArrayLike, axis: Axes = None, out: Out = None, keepdims: bool = False, initial: Start = UNSET, where: Mask = True
) -> Array:
    """`np.min`."""
    return _extreme(reductions.reduce_min, "min", _bounding("min", a, initial, where), axis, keepdims, initial)


def _bounding(name: str, a: ArrayLike, initial: Array | Number, mask: ArrayLike) -> ArrayLike:
    if mask is True:
        return a
    if initial is UNSET:
        why = f"reduction operation '{name}imum' does not have an identity, so to use a where mask one has to specify"
        raise ValueError(located(f"{why} 'initial'"))
    x, inside = arrays(a, mask)
    return where(to_dtype(inside, bool), x, assigned(initial, x.dtype))


def _extreme(op: Reduction, name: str, a: ArrayLike, axis: Axes, keepdims: bool, initial: Start = UNSET) -> Array:
    x = _one(a)
    axes = _axes(name, axis, len(x.shape))
    if not any(_is_nothing(x.shape[k], initial is not UNSET) for k in axes):
        result = _reduce(op if x.dtype.kind != "c" else complex_order.REDUCTIONS[name], name, x, axes, keepdims)
        if initial is UNSET:
            return result
        return (complex_order.maximum if name == "max" else complex_order.minimum)(
            result, assigned(initial, result.dtype)
        )
    if initial is UNSET:
        raise ShapeError(located(f"np.{name}: zero-size array of shape {x.shape} has no {name}imum"))
    nothing = _reduce(reduce_sum, name, x, axes, keepdims)  # zeros of the shape and dtype
    return add(nothing, assigned(initial, x.dtype))


def _is_nothing(size: int | Carrier, may_query: bool = False) -> bool:
    """Whether an axis has no elements; a traced size is only checked if the axis may be empty (`may_query`)."""
    if not isinstance(size, Carrier):
        return bool(size == 0)
    builder = size.builder.innermost()  # type: ignore[attr-defined]
    return may_query and builder.outer is None and not builder.holds(not_equal(size, 0))


@implements(np.ptp, refuses=("out",))
def ptp(a: ArrayLike, axis: Axes = None, out: Out = None, keepdims: bool = False) -> Array:
    """`np.ptp`: maximum minus minimum."""
    largest, smallest = max(a, axis, None, keepdims), min(a, axis, None, keepdims)
    span = subtract(largest, smallest)
    if span.dtype.kind not in "fc":
        return span
    return where(isnan(largest), largest, span)  # else the derivative would be 0 where both are nan


def _arg(op: Reduction, name: str, a: ArrayLike, axis: int | None, keepdims: bool) -> Array:
    x = _one(a)
    axis = axis if x.shape or axis not in (0, -1) else None
    if any(map(_is_nothing, x.shape if axis is None else (x.shape[normalize_axis(name, axis, len(x.shape))],))):
        raise ShapeError(located(f"attempt to get {name} of an empty sequence"))
    op = complex_order.REDUCTIONS[name] if x.dtype.kind == "c" else op
    if axis is None:
        flat = op(raveled(x), axis=0)
        return reshape(flat, shape=(1,) * len(x.shape)) if keepdims else flat
    k = normalize_axis(name, axis, len(x.shape))
    out = op(x, axis=k)
    return keep_axes(out, x.shape, (k,)) if keepdims else out


@implements(np.argmax, refuses=("out",))
def argmax(a: ArrayLike, axis: int | None = None, out: Out = None, *, keepdims: bool = False) -> Array:
    """`np.argmax`."""
    return _arg(reductions.argmax, "argmax", a, axis, keepdims)


@implements(np.argmin, refuses=("out",))
def argmin(a: ArrayLike, axis: int | None = None, out: Out = None, *, keepdims: bool = False) -> Array:
    """`np.argmin`."""
    return _arg(reductions.argmin, "argmin", a, axis, keepdims)


# -- logic ---------------------------------------------------------------------------------------------------
@implements(np.any, refuses=("out",))
def any_(a: ArrayLike, axis: Axes = None, out: Out = None, keepdims: bool = False, *, where: Mask = True) -> Array:
    """`np.any`."""
    return _reduce(reductions.reduce_any, "any", _booleans(a, where, False), axis, keepdims)


@implements(np.all, refuses=("out",))
def all_(a: ArrayLike, axis: Axes = None, out: Out = None, keepdims: bool = False, *, where: Mask = True) -> Array:
    """`np.all`."""
    return _reduce(reductions.reduce_all, "all", _booleans(a, where, True), axis, keepdims)


def _booleans(a: ArrayLike, mask: ArrayLike, neutral: bool) -> Array:
    x = to_dtype(_one(a), bool)
    return x if mask is True else _masked(x, mask, neutral)


@implements(np.isclose)
def isclose(a: ArrayLike, b: ArrayLike, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Array:
    """`np.isclose`."""
    return _isclose(a, b, rtol, atol, equal_nan)


@implements(np.allclose)
def allclose(a: ArrayLike, b: ArrayLike, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Answer:
    """`np.allclose`."""
    return _boolean(all_(_isclose(a, b, rtol, atol, equal_nan)))


def _boolean(x: Array) -> Answer:
    """Convert a boolean without axes to Python's."""
    carried: Any = x
    result: Answer = carried._python_number("bool()") if hasattr(x, "_python_number") else x
    return result


@implements(np.array_equal)
def array_equal(a1: ArrayLike | None, a2: ArrayLike | None, equal_nan: bool = False) -> Answer:
    """`np.array_equal`."""
    if a1 is None or a2 is None:  # for example a cached value that is not set yet
        return a1 is a2
    x, y = arrays(a1, a2)
    if x.shape != y.shape:
        return False
    same = equal(x, y)
    return _boolean(all_(logical_or(same, logical_and(isnan(x), isnan(y))) if equal_nan else same))


# -- norms ---------------------------------------------------------------------------------------------------
@implements(np.linalg.norm)
def norm(x: ArrayLike, ord: float | str | None = None, axis: Axes = None, keepdims: bool = False) -> Array:
    """`np.linalg.norm`.

    The derivative of the 2-norm at zero is taken to be zero.
    """
    x = to_float(_one(x))
    axes = normalize_axes("norm", axis, len(x.shape)) if axis is not None else None
    if axes is None and (ord is None or (ord == 2 and len(x.shape) == 1) or (ord == "fro" and len(x.shape) == 2)):
        return _length(x, tuple(range(len(x.shape))), keepdims)
    axes = tuple(range(len(x.shape))) if axes is None else axes
    if len(axes) == 1:
        return _vector_norm(x, 2 if ord is None else ord, axes, keepdims)
    if len(axes) == 2:
        two: Any = axis
        pair = axes if axis is None else tuple(normalize_axis("norm", k, len(x.shape)) for k in two)
        return _matrix_norm(x, ord, pair, keepdims)
    raise ValueError(located("Improper number of dimensions to norm."))


@implements(np.linalg.vector_norm)
def vector_norm(x: ArrayLike, /, *, axis: Axes = None, keepdims: bool = False, ord: float = 2) -> Array:
    """`np.linalg.vector_norm`: the elements of several axes form one vector."""
    x = to_float(_one(x))
    return _vector_norm(x, ord, normalize_axes("vector_norm", axis, len(x.shape)), keepdims)


@implements(np.linalg.matrix_norm)
def matrix_norm(x: ArrayLike, /, *, keepdims: bool = False, ord: float | str | None = "fro") -> Array:
    """`np.linalg.matrix_norm` over the last two axes."""
    return norm(x, ord, (-2, -1), keepdims)


def _length(x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    return root(_reduce(reduce_sum, "norm", reductions.squares(x), axes, keepdims))


def root(total: Array) -> Array:
    """Compute the square root, with derivative 0 at 0."""
    zero = equal(total, 0)
    return where(zero, 0.0, sqrt(where(zero, 1.0, total)))


def _vector_norm(x: Array, ord: float | str, axes: tuple[int, ...], keepdims: bool) -> Array:
    if ord == 2:
        return _length(x, axes, keepdims)
    if isinstance(ord, str):
        raise ValueError(located(f"Invalid norm order {ord!r} for vectors"))
    if ord in (np.inf, -np.inf):
        least = 0 if ord > 0 and 0 in x.shape else UNSET  # the largest of no elements is 0
        return (max if ord > 0 else min)(absolute(x), axes, None, keepdims, least)
    if ord == 0:
        return sum(cast(not_equal(x, 0), dtype=absolute(x).dtype.name), axes, None, None, keepdims)
    if ord == 1:
        return sum(absolute(x), axes, None, None, keepdims)
    size = absolute(x)
    if ord > 1:
        powers = power(size, ord)
    else:  # the power has an infinite derivative at zero, but the derivative of the norm is defined as zero there
        none = equal(size, 0.0)
        powers = where(none, 0.0 if ord > 0 else np.inf, power(where(none, 1.0, size), ord))
    total = sum(powers, axes, None, None, keepdims)
    none = equal(total, 0.0)
    return where(none, 0.0 if ord > 0 else np.inf, power(where(none, 1.0, total), 1 / ord))


def _matrix_norm(x: Array, ord: Any, pair: tuple[int, ...], keepdims: bool) -> Array:
    if ord in (None, "fro", "f"):
        return _length(x, pair, keepdims)
    if ord in (2, -2, "nuc"):
        return _spectral_norm(x, ord, pair, keepdims)
    if ord not in (1, -1, np.inf, -np.inf):
        raise ValueError(located(f"Invalid norm order {ord!r} for matrices"))
    along, across = pair if ord in (1, -1) else pair[::-1]
    columns = sum(absolute(x), along, None, None, True)
    out = (max if ord > 0 else min)(columns, across, None, True, 0 if ord > 0 and 0 in x.shape else UNSET)
    return out if keepdims else reshape(out, shape=tuple(n for i, n in enumerate(x.shape) if i not in pair))


def _spectral_norm(x: Array, ord: Any, pair: tuple[int, ...], keepdims: bool) -> Array:
    """Compute the largest or smallest singular value, or the sum of all."""
    values = svdvals(transpose(x, perm=(*(k for k in range(len(x.shape)) if k not in pair), *pair)))
    values = values if values.shape[-1] or ord != 2 else sum(values, -1, None, None, True)  # with 0 the largest
    out = (sum if ord == "nuc" else max if ord > 0 else min)(values, -1)
    return keep_axes(out, x.shape, pair) if keepdims else out


# -- methods of universal functions ----------------------------------------------------------------------------
def _method(reduction_of: Callable[..., Array], takes_dtype: bool) -> Callable[..., Array]:
    def reduce(
        array: ArrayLike,
        axis: Axes = 0,
        dtype: DTypeLike = None,
        out: Out = None,
        keepdims: bool = False,
        initial: Start = UNSET,
        where: Mask = True,
    ) -> Array:
        if takes_dtype:
            return reduction_of(array, axis, dtype, out, keepdims, initial, where)
        options = {"initial": initial, "where": where}
        defaults = {"initial": (UNSET, None), "where": (True,)}  # these values mean that the argument was not passed
        passed = {k: v for k, v in options.items() if not any(v is each for each in defaults[k])}
        return reduction_of(array, axis, out, keepdims, **passed)

    return reduce


def _accumulate(array: ArrayLike, axis: int = 0, dtype: DTypeLike = None, out: Out = None) -> Array:
    return cumsum(array, axis, dtype, out)


UFUNC_METHODS["add", "reduce"] = _method(sum, True)
UFUNC_METHODS["multiply", "reduce"] = _method(prod, True)
UFUNC_METHODS["maximum", "reduce"] = _method(max, False)
UFUNC_METHODS["minimum", "reduce"] = _method(min, False)
UFUNC_METHODS["logical_and", "reduce"] = _method(all_, False)
UFUNC_METHODS["logical_or", "reduce"] = _method(any_, False)
UFUNC_METHODS["add", "accumulate"] = _accumulate
