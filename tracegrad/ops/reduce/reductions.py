"""Reductions other than the sum: extrema, products, arg-extrema, and composites such as mean and softmax."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import Aval, aval_of, name_of
from tracegrad.errors import ShapeError
from tracegrad.ops.core.forms import FoldForm
from tracegrad.ops.core.half_rounding import HALF
from tracegrad.ops.core.op import AS_WRITTEN, HOLOMORPHIC, TABLE, Sample, primitive
from tracegrad.ops.core.samples import integers, uniform
from tracegrad.ops.elementwise.table import (
    add,
    divide,
    equal,
    exp,
    isfinite,
    log,
    logical_or,
    multiply,
    not_equal,
    sqrt,
    square,
    subtract,
    where,
)
from tracegrad.ops.indexing.gather_scatter import gather
from tracegrad.ops.reduce.arg_extremum import index_of_extremum
from tracegrad.ops.shape.linear import (
    arange,
    broadcast_to,
    cast,
    concatenate,
    full,
    inverse_permutation,
    pad,
    reduce_sum,
    reduced_shape,
    reshape,
    slice,
    stop_gradient,
    sum_over,
    transpose,
    unreduce,
)
from tracegrad.typing import Array, NDArray

if TYPE_CHECKING:
    from collections.abc import Iterator


def _reduced(x: Aval, *, axes: tuple[int, ...]) -> Aval:
    return Aval(reduced_shape(x.shape, axes), x.dtype)


def _nonempty(name: str, x: Aval, axes: tuple[int, ...]) -> Aval:
    if any(x.shape[a] == 0 for a in axes):
        raise ShapeError(f"{name}: zero-size reduction of {x} over axes {axes} has no identity")
    return _reduced(x, axes=axes)


def _axes_samples() -> Iterator[Sample]:
    yield (uniform((3, 4)),), {"axes": (1,)}
    yield (uniform((3, 4), dtype="float32"),), {"axes": (0, 1)}
    yield (uniform((20, 3)),), {"axes": (0,)}
    yield (uniform((70,)),), {"axes": (0,)}


# -- reduce_max and reduce_min: equal extrema share the cotangent, and so do nans -----------------------------
@primitive(FoldForm("maximum"))
def reduce_max(x: NDArray, *, axes: tuple[int, ...]) -> Any:
    """The maximum of `x` over `axes`; nan if there is one."""
    return np.max(x, axis=axes)


@primitive(FoldForm("minimum"))
def reduce_min(x: NDArray, *, axes: tuple[int, ...]) -> Any:
    """The minimum of `x` over `axes`; nan if there is one."""
    return np.min(x, axis=axes)


@reduce_max.def_aval
def _(x: Aval, *, axes: tuple[int, ...]) -> Aval:
    return _nonempty("reduce_max", x, axes)


@reduce_min.def_aval
def _(x: Aval, *, axes: tuple[int, ...]) -> Aval:
    return _nonempty("reduce_min", x, axes)


@reduce_max.def_vjp("x")
@reduce_min.def_vjp("x")
def _(ct: Array, ans: Array, x: Array, *, axes: tuple[int, ...]) -> Array:
    hit = _is_extremum(x, ans, axes)
    count = reduce_sum(cast(hit, dtype=name_of(x.dtype)), axes=axes)
    return where(hit, unreduce(divide(ct, count), x.shape, axes), 0.0)


@reduce_max.def_jvp
@reduce_min.def_jvp
def _(tangents: tuple[Array, ...], ans: Array, x: Array, *, axes: tuple[int, ...]) -> Array:
    hit = _is_extremum(x, ans, axes)
    count = reduce_sum(cast(hit, dtype=name_of(x.dtype)), axes=axes)
    return divide(reduce_sum(where(hit, tangents[0], 0.0), axes=axes), count)


def _is_extremum(x: Array, ans: Array, axes: tuple[int, ...]) -> Array:
    """Whether each element is the extremum; if the extremum is nan, whether the element is nan."""
    return logical_or(equal(x, unreduce(ans, x.shape, axes)), not_equal(x, x))


reduce_max.def_samples(_axes_samples)
reduce_min.def_samples(_axes_samples)


# -- reduce_prod -------------------------------------------------------------------------------------
@primitive(FoldForm("mul"), on_complex=HOLOMORPHIC)
def reduce_prod(x: NDArray, *, axes: tuple[int, ...]) -> Array:
    """The product of `x` over `axes`; the dtype stays."""
    result: Array = np.prod(x, axis=axes, dtype=x.dtype)
    return result


reduce_prod.def_aval(_reduced)
reduce_prod.def_samples(_axes_samples)


@reduce_prod.def_vjp("x")
def _(ct: Array, ans: Array, x: Array, *, axes: tuple[int, ...]) -> Array:
    n = math.prod([x.shape[a] for a in axes])
    if n <= 1:  # there are no others, so no value of x is needed
        return unreduce(ct, x.shape, axes)
    saved = [a for a in range(len(x.shape)) if a not in axes]
    order = (*saved, *axes)
    moved = transpose(x, perm=order)
    flat = reshape(moved, shape=(math.prod([x.shape[a] for a in saved]), n))
    others = transpose(reshape(_product_of_others(flat), shape=moved.shape), perm=inverse_permutation(order))
    return multiply(unreduce(ct, x.shape, axes), others)


def _product_of_others(x: Array) -> Array:
    """Along axis 1, the product of all other elements: exact with zeros, in 2 log2(n) steps, at every order."""
    rows, n = x.shape
    if n <= 1:
        return full(shape=x.shape, value=1.0, dtype=name_of(x.dtype))
    even = x if n % 2 == 0 else pad(x, low=(0, 0), high=(0, 1), interior=(0, 0), value=1.0)
    left, right = _column(even, 0), _column(even, 1)
    above = _product_of_others(multiply(left, right))
    both = concatenate(*(reshape(multiply(above, v), shape=(rows, above.shape[1], 1)) for v in (right, left)), axis=2)
    return slice(reshape(both, shape=even.shape), start=(0, 0), stop=(rows, n), step=(1, 1))


def _column(x: Array, first: int) -> Array:
    return slice(x, start=(0, first), stop=x.shape, step=(1, 2))


# -- any and all ---------------------------------------------------------------------------------------
@primitive(FoldForm("logical_or"), on_complex=AS_WRITTEN)
def reduce_any(x: NDArray, *, axes: tuple[int, ...]) -> Array:
    """Whether any element over `axes` is true."""
    result: Array = np.any(x, axis=axes)
    return result


@primitive(FoldForm("logical_and"), on_complex=AS_WRITTEN)
def reduce_all(x: NDArray, *, axes: tuple[int, ...]) -> Array:
    """Whether all elements over `axes` are true."""
    result: Array = np.all(x, axis=axes)
    return result


def _boolean_samples() -> Iterator[Sample]:
    yield (integers((3, 4), 0, 2, dtype="bool"),), {"axes": (1,)}
    yield (integers((3, 4), 0, 2, dtype="bool"),), {"axes": (0, 1)}


for _op in (reduce_any, reduce_all):
    _op.def_aval(_reduced)
    _op.def_samples(_boolean_samples)


# -- argmax and argmin -----------------------------------------------------------------------------------
@primitive()
def argmax(x: NDArray, *, axis: int) -> Array:
    """The index along `axis` of the first maximum, or of the first nan."""
    result: Array = np.argmax(x, axis=axis)
    return result


@primitive()
def argmin(x: NDArray, *, axis: int) -> Array:
    """The index along `axis` of the first minimum, or of the first nan."""
    result: Array = np.argmin(x, axis=axis)
    return result


def _arg_aval(x: Aval, *, axis: int) -> Aval:
    return Aval(_nonempty("argmax", x, (axis,)).shape, np.dtype(np.int64))


def _arg_samples() -> Iterator[Sample]:
    yield (uniform((3, 4)),), {"axis": 1}
    yield (uniform((20, 4), dtype="float32"),), {"axis": 0}
    yield (integers((30,), 0, 5),), {"axis": 0}


@argmax.def_decompose
def _(x: Array, *, axis: int) -> Array:
    return index_of_extremum(x, axis, reduce_max, reduce_min)


@argmin.def_decompose
def _(x: Array, *, axis: int) -> Array:
    return index_of_extremum(x, axis, reduce_min, reduce_min)


for _op in (argmax, argmin):
    _op.def_aval(_arg_aval)
    _op.def_samples(_arg_samples)


# -- argmedian -------------------------------------------------------------------------------------------
@primitive()
def argmedian(x: NDArray, *, axis: int) -> NDArray:
    """The index along `axis` of the median, the lower one of an even count; of the first nan, if there is one."""
    n = x.shape[axis]
    middle = np.take(np.argpartition(x, (n - 1) // 2, axis=axis), (n - 1) // 2, axis=axis)
    unordered = np.not_equal(x, x)
    result: NDArray = np.where(np.any(unordered, axis=axis), np.argmax(unordered, axis=axis), middle)
    return result


@argmedian.def_aval
def _(x: Aval, *, axis: int) -> Aval:
    return Aval(_nonempty("argmedian", x, (axis,)).shape, np.dtype(np.int64))


argmedian.def_samples(_arg_samples)


# -- pick --------------------------------------------------------------------------------------------------
@primitive(on_complex=AS_WRITTEN)
def pick(x: NDArray, indices: NDArray, *, axis: int) -> NDArray:
    """The elements of `x` at `indices` along `axis`, one per position.

    The indices count from 0, and have the shape of `x` without that axis, or with it at length one; so has the result.
    """
    saved = indices if indices.ndim == x.ndim else np.expand_dims(indices, axis)
    return np.take_along_axis(x, saved, axis).reshape(indices.shape)


@pick.def_aval
def _(x: Aval, indices: Aval, *, axis: int) -> Aval:
    saved = tuple(1 if a == axis else n for a, n in enumerate(x.shape))
    if indices.shape not in (saved, reduced_shape(x.shape, (axis,))):
        raise ShapeError(f"pick: indices {indices} do not fit {x} along axis {axis}")
    return Aval(indices.shape, x.dtype)


@pick.def_decompose
def _(x: Array, indices: Array, *, axis: int) -> Array:
    shape = reduced_shape(x.shape, (axis,))
    flat = reshape(indices, shape=shape)
    rest = iter(range(len(shape)))
    all_indices = [
        flat if a == axis else _axis_indices(shape, next(rest), indices.dtype.name) for a in range(len(x.shape))
    ]
    return reshape(gather(x, *all_indices, axes=tuple(range(len(x.shape)))), shape=indices.shape)


def _axis_indices(shape: tuple[int, ...], axis: int, dtype: str) -> Array:
    """An array of `shape` with the index along `axis`."""
    along = arange(start=0, step=1, length=shape[axis], dtype=dtype)
    return broadcast_to(reshape(along, shape=tuple(n if a == axis else 1 for a, n in enumerate(shape))), shape=shape)


pick.linear_in("x")


@pick.def_vjp("x")
def _(ct: Array, ans: Array, x: Array, indices: Array, *, axis: int) -> Array:
    hit = equal(unreduce(indices, x.shape, (axis,)), _axis_indices(x.shape, axis, indices.dtype.name))
    return where(hit, unreduce(ct, x.shape, (axis,)), 0.0)


@pick.def_samples
def _() -> Iterator[Sample]:
    yield (uniform((3, 4)), integers((3,), 0, 4)), {"axis": 1}
    yield (uniform((5, 2, 3), dtype="float32"), integers((1, 2, 3), 0, 5)), {"axis": 0}
    yield (uniform((6,)), integers((), 0, 6)), {"axis": 0}


# -- mean and variance ---------------------------------------------------------------------------------
def count_of(x: Array, axes: tuple[int, ...]) -> int:
    """The number of elements that a reduction over `axes` combines."""
    return math.prod(aval_of(x).shape[a] for a in axes)


def _shared(x: Array, count: float) -> Array:
    """`x` / `count`, for a count that may exceed half precision."""
    if x.dtype != HALF:
        return divide(x, count)
    return cast(divide(cast(x, dtype="float32"), count), dtype=HALF.name)


@primitive(on_complex=AS_WRITTEN, order="K")
def mean(x: NDArray, *, axes: tuple[int, ...]) -> Array:
    """The arithmetic mean over `axes`."""
    result: Array = sum_over(x, axes) / math.prod([x.shape[a] for a in axes])
    return result


mean.def_aval(_reduced)
mean.def_samples(_axes_samples)


@mean.def_decompose
def _(x: Array, *, axes: tuple[int, ...]) -> Array:
    return divide(reduce_sum(x, axes=axes), float(count_of(x, axes)))


mean.linear_in("x")


@mean.def_vjp("x")
def _(ct: Array, ans: Array, x: Array, *, axes: tuple[int, ...]) -> Array:
    return unreduce(_shared(ct, float(count_of(x, axes))), x.shape, axes)


@primitive(on_complex=AS_WRITTEN, order="K")
def var(x: NDArray, *, axes: tuple[int, ...], ddof: float) -> Array:
    """The variance over `axes`: the sum of squared deviations divided by n - ddof."""
    result: Array = np.var(x, axis=axes, ddof=ddof)
    return result


@var.def_aval
def _(x: Aval, *, axes: tuple[int, ...], ddof: float) -> Aval:
    return _reduced(_of_reals(x), axes=axes)


def _of_reals(x: Aval) -> Aval:
    return Aval(x.shape, np.finfo(x.dtype).dtype) if x.dtype.kind == "c" else x


def _deviation(x: Array, axes: tuple[int, ...]) -> Array:
    return subtract(x, unreduce(mean(x, axes=axes), x.shape, axes))


def squares(x: Array) -> Array:
    """The squares of the absolute values."""
    return square(x) if x.dtype.kind != "c" else add(square(TABLE["real"](x)), square(TABLE["imag"](x)))


def _freedom(x: Array, axes: tuple[int, ...], ddof: float) -> float:
    return float(max(count_of(x, axes) - ddof, 0))


@var.def_decompose
def _(x: Array, *, axes: tuple[int, ...], ddof: float) -> Array:
    return divide(reduce_sum(squares(_deviation(x, axes)), axes=axes), _freedom(x, axes, ddof))


@var.def_vjp("x")
def _(ct: Array, ans: Array, x: Array, *, axes: tuple[int, ...], ddof: float) -> Array:
    derivative = _shared(multiply(_deviation(x, axes), 2), _freedom(x, axes, ddof))
    return multiply(unreduce(ct, x.shape, axes), derivative)


@var.def_samples
def _() -> Iterator[Sample]:
    yield (uniform((3, 4)),), {"axes": (1,), "ddof": 0}
    yield (uniform((20, 4)),), {"axes": (0, 1), "ddof": 1}


@primitive(on_complex=AS_WRITTEN, order="K")
def std(x: NDArray, *, axes: tuple[int, ...], ddof: float) -> Array:
    """The square root of `var`; its derivative is 0 where `var` is 0."""
    result: Array = np.std(x, axis=axes, ddof=ddof)
    return result


@std.def_aval
def _(x: Aval, *, axes: tuple[int, ...], ddof: float) -> Aval:
    return _reduced(_of_reals(x), axes=axes)


@std.def_decompose
def _(x: Array, *, axes: tuple[int, ...], ddof: float) -> Array:
    return sqrt(var(x, axes=axes, ddof=ddof))


@std.def_vjp("x")
def _(ct: Array, ans: Array, x: Array, *, axes: tuple[int, ...], ddof: float) -> Array:
    none = equal(ans, 0)
    share = where(none, 0.0, divide(ct, where(none, 1.0, ans)))
    return multiply(unreduce(share, x.shape, axes), _shared(_deviation(x, axes), _freedom(x, axes, ddof)))


@std.def_samples
def _() -> Iterator[Sample]:
    yield (uniform((3, 4)),), {"axes": (1,), "ddof": 1}
    yield (uniform((20, 4)),), {"axes": (0, 1), "ddof": 0}


# -- logsumexp and softmax -----------------------------------------------------------------------------
@primitive(order="K")
def logsumexp(x: NDArray, *, axes: tuple[int, ...]) -> Array:
    """log(sum(exp(x))) over `axes`, without overflow."""
    top = _numpy_top(x, axes)
    result: Array = np.log(np.sum(np.exp(x - top), axis=axes)) + np.squeeze(top, axes)
    return result


def _numpy_top(x: Array, axes: tuple[int, ...]) -> Array:
    """The maximum if it is finite, else 0."""
    top = np.max(x, axis=axes, keepdims=True)
    return np.where(np.isfinite(top), top, 0)


def _finite_max(x: Array, axes: tuple[int, ...]) -> Array:
    top = stop_gradient(reduce_max(x, axes=axes))
    return where(isfinite(top), top, 0.0)


def _logsumexp(x: Array, axes: tuple[int, ...]) -> Array:
    top = _finite_max(x, axes)
    return add(log(reduce_sum(exp(subtract(x, unreduce(top, x.shape, axes))), axes=axes)), top)


@logsumexp.def_decompose
def _(x: Array, *, axes: tuple[int, ...]) -> Array:
    return _logsumexp(x, axes)


@logsumexp.def_vjp("x")
def _(ct: Array, ans: Array, x: Array, *, axes: tuple[int, ...]) -> Array:
    return multiply(unreduce(ct, x.shape, axes), softmax(x, axes=axes))


@primitive(order="K")
def softmax(x: NDArray, *, axes: tuple[int, ...]) -> NDArray:
    """exp(x) / sum(exp(x)) over `axes`, without overflow."""
    powers = np.exp(x - _numpy_top(x, axes))
    result: NDArray = powers / np.sum(powers, axis=axes, keepdims=True)
    return result


def _softmax(x: Array, axes: tuple[int, ...]) -> Array:
    # The shift of logsumexp, so that the compiler finds the common exponentials of both.
    powers = exp(subtract(x, unreduce(_finite_max(x, axes), x.shape, axes)))
    return divide(powers, unreduce(reduce_sum(powers, axes=axes), x.shape, axes))


@softmax.def_aval
def _(x: Aval, *, axes: tuple[int, ...]) -> Aval:
    _nonempty("softmax", x, axes)
    return x


@softmax.def_decompose
def _(x: Array, *, axes: tuple[int, ...]) -> Array:
    return _softmax(x, axes)


@softmax.def_vjp("x")
def _(ct: Array, ans: Array, x: Array, *, axes: tuple[int, ...]) -> Array:
    inner = reduce_sum(multiply(ct, ans), axes=axes)
    return multiply(ans, subtract(ct, unreduce(inner, x.shape, axes)))


logsumexp.def_aval(_reduced)
logsumexp.def_samples(_axes_samples)
softmax.def_samples(_axes_samples)


@primitive(order="K")
def log_softmax(x: NDArray, *, axes: tuple[int, ...]) -> NDArray:
    """log(softmax(x)) over `axes`, without overflow, accurate for small differences of large numbers."""
    shifted = x - _numpy_top(x, axes)
    result: NDArray = shifted - np.log(np.sum(np.exp(shifted), axis=axes, keepdims=True))
    return result


def _log_softmax(x: Array, axes: tuple[int, ...]) -> Array:
    shifted = subtract(x, unreduce(_finite_max(x, axes), x.shape, axes))
    return subtract(shifted, unreduce(log(reduce_sum(exp(shifted), axes=axes)), x.shape, axes))


@log_softmax.def_aval
def _(x: Aval, *, axes: tuple[int, ...]) -> Aval:
    _nonempty("log_softmax", x, axes)
    return x


@log_softmax.def_decompose
def _(x: Array, *, axes: tuple[int, ...]) -> Array:
    return _log_softmax(x, axes)


@log_softmax.def_vjp("x")
def _(ct: Array, ans: Array, x: Array, *, axes: tuple[int, ...]) -> Array:
    return subtract(ct, multiply(exp(ans), unreduce(reduce_sum(ct, axes=axes), x.shape, axes)))


log_softmax.def_samples(_axes_samples)
