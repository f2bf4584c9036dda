"""Namespace of `torch.masked`: reductions and normalizations over the elements that a mask lets through.

A mask is a boolean Tensor that broadcasts with the input; without one all elements count. An element that does not
count is taken for the identity of the operation. A reduction of no element is that identity, or nan for means.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracegrad.numpy_api.operands import arrays, constant, peer_of, to_dtype
from tracegrad.numpy_api.reductions import prod as prod_over
from tracegrad.ops.elementwise.table import where
from tracegrad.torch.functions.core.parameter_table import FUNCTION_DOCS
from tracegrad.torch.functions.core.registry import FUNCTIONS, with_aliases
from tracegrad.typing import Array, ArrayLike, Axes, DTypeLike

__all__ = [
    "amax",
    "amin",
    "argmax",
    "argmin",
    "cumprod",
    "cumsum",
    "log_softmax",
    "logaddexp",
    "logsumexp",
    "mean",
    "median",
    "norm",
    "normalize",
    "prod",
    "softmax",
    "softmin",
    "std",
    "sum",
    "var",
]


def _limits(x: Array) -> tuple[Any, Any]:
    """Return the lowest and the largest value of the dtype of `x`."""
    if x.dtype.kind == "f":
        return -np.inf, np.inf
    return (False, True) if x.dtype.kind == "b" else (np.iinfo(x.dtype).min, np.iinfo(x.dtype).max)


def _value(input: ArrayLike, dtype: DTypeLike, sums: bool = False) -> Any:
    """Return the input in the dtype of the computation, which for sums of integers is int64."""
    (x,) = arrays(input)
    return to_dtype(x, np.int64 if dtype is None and sums and x.dtype.kind in "biu" else dtype)


def _filled(x: Any, mask: ArrayLike | None, value: Any) -> Any:
    """Return the elements that count, and `value` in place of the others."""
    return x if mask is None else where(arrays(mask)[0], x, np.asarray(value, np.dtype(x.dtype)))


def _count(x: Any, mask: ArrayLike | None, dim: Axes, keepdim: bool) -> Any:
    """Return the numbers of elements that count."""
    ones = constant(np.ones(x.shape, np.dtype(x.dtype)), peer_of(x))
    return _reduced("sum", _filled(ones, mask, 0), dim, keepdim)


def _reduced(name: str, x: Any, dim: Axes, keepdim: bool) -> Any:
    """Reduce over dimensions, all by default."""
    dims: Any = tuple(range(len(x.shape))) if dim is None else dim if isinstance(dim, int) else tuple(dim)
    if dims == ():
        return x
    return prod_over(x, dims, keepdims=keepdim) if name == "prod" else FUNCTIONS[name](x, dims, keepdim)


# -- reductions --------------------------------------------------------------------------------------------------------
@with_aliases
def sum(
    input: ArrayLike,
    dim: Axes = None,
    *,
    keepdim: bool = False,
    dtype: DTypeLike = None,
    mask: ArrayLike | None = None,
) -> Any:
    """Return the sum of the elements that count; 0 for none.

    >>> sum(np.array([1.0, 2.0, 4.0]), mask=np.array([True, False, True])).tolist()
    5.0
    """
    return _reduced("sum", _filled(_value(input, dtype, sums=True), mask, 0), dim, keepdim)


@with_aliases
def prod(
    input: ArrayLike,
    dim: Axes = None,
    *,
    keepdim: bool = False,
    dtype: DTypeLike = None,
    mask: ArrayLike | None = None,
) -> Any:
    """Return the product of the elements that count; 1 for none.

    >>> prod(np.array([1.0, 2.0, 4.0]), mask=np.array([True, False, True])).tolist()
    4.0
    """
    return _reduced("prod", _filled(_value(input, dtype, sums=True), mask, 1), dim, keepdim)


@with_aliases
def amax(
    input: ArrayLike,
    dim: Axes = None,
    *,
    keepdim: bool = False,
    dtype: DTypeLike = None,
    mask: ArrayLike | None = None,
) -> Any:
    """Return the maximum of the elements that count; the lowest value of the dtype for none.

    >>> amax(np.array([1.0, 4.0, 2.0]), mask=np.array([True, False, True])).tolist()
    2.0
    """
    x = _value(input, dtype)
    return _reduced("amax", _filled(x, mask, _limits(x)[0]), dim, keepdim)


@with_aliases
def amin(
    input: ArrayLike,
    dim: Axes = None,
    *,
    keepdim: bool = False,
    dtype: DTypeLike = None,
    mask: ArrayLike | None = None,
) -> Any:
    """Return the minimum of the elements that count; the largest value of the dtype for none.

    >>> amin(np.array([4.0, 1.0, 2.0]), mask=np.array([True, False, True])).tolist()
    2.0
    """
    x = _value(input, dtype)
    return _reduced("amin", _filled(x, mask, _limits(x)[1]), dim, keepdim)


@with_aliases
def argmax(
    input: ArrayLike,
    dim: int | None = None,
    *,
    keepdim: bool = False,
    dtype: DTypeLike = None,
    mask: ArrayLike | None = None,
) -> Any:
    """Return the index of the maximum of the elements that count, in the dtype of the input; 0 for none.

    >>> argmax(np.array([1.0, 4.0, 2.0]), mask=np.array([True, False, True])).tolist()
    2.0
    """
    x = _value(input, dtype)
    return to_dtype(FUNCTIONS["argmax"](_filled(x, mask, _limits(x)[0]), dim, keepdim), x.dtype)


@with_aliases
def argmin(
    input: ArrayLike,
    dim: int | None = None,
    *,
    keepdim: bool = False,
    dtype: DTypeLike = None,
    mask: ArrayLike | None = None,
) -> Any:
    """Return the index of the minimum of the elements that count, in the dtype of the input; 0 for none.

    >>> argmin(np.array([4.0, 1.0, 2.0]), mask=np.array([True, False, True])).tolist()
    2.0
    """
    x = _value(input, dtype)
    return to_dtype(FUNCTIONS["argmin"](_filled(x, mask, _limits(x)[1]), dim, keepdim), x.dtype)


@with_aliases
def mean(
    input: ArrayLike,
    dim: Axes = None,
    *,
    keepdim: bool = False,
    dtype: DTypeLike = None,
    mask: ArrayLike | None = None,
) -> Any:
    """Return the mean of the elements that count; nan for none.

    >>> mean(np.array([1.0, 2.0, 4.0]), mask=np.array([True, False, True])).tolist()
    2.5
    """
    x = _value(input, dtype)
    if x.dtype.kind in "biu":
        return FUNCTIONS["mean"](x)  # its error
    with np.errstate(invalid="ignore"):
        return _reduced("sum", _filled(x, mask, 0), dim, keepdim) / _count(x, mask, dim, keepdim)


@with_aliases
def median(
    input: ArrayLike,
    dim: int = -1,
    *,
    keepdim: bool = False,
    dtype: DTypeLike = None,
    mask: ArrayLike | None = None,
) -> Any:
    """Return the lower median of the elements of a floating input that count; nan for none.

    >>> median(np.array([4.0, 1.0, 2.0]), mask=np.array([True, False, True])).tolist()
    2.0
    """
    return FUNCTIONS["nanmedian"](_filled(_value(input, dtype), mask, np.nan), dim, keepdim)[0]


@with_aliases
def norm(
    input: ArrayLike,
    ord: float | None = 2.0,
    dim: Axes = None,
    *,
    keepdim: bool = False,
    dtype: DTypeLike = None,
    mask: ArrayLike | None = None,
) -> Any:
    """Return the norm of the vector of the elements that count; 0 for none, and inf for negative orders.

    >>> norm(np.array([3.0, 2.0, 4.0]), mask=np.array([True, False, True])).tolist()
    5.0
    """
    order = 2.0 if ord is None else float(ord)
    x = _filled(_value(input, dtype), mask, np.inf if order < 0 else 0)
    dims: Any = tuple(range(len(x.shape))) if dim is None else dim
    return FUNCTIONS["norm"](x, order, dims, keepdim)


@with_aliases
def var(
    input: ArrayLike,
    dim: Axes = None,
    unbiased: bool | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
    dtype: DTypeLike = None,
    mask: ArrayLike | None = None,
) -> Any:
    """Return the variance of the elements that count: the sum of squares divided by their number less `correction`.

    >>> var(np.array([1.0, 2.0, 4.0]), mask=np.array([True, False, True])).tolist()
    4.5
    """
    x = _value(input, dtype)
    less = correction if correction is not None else 1.0 if unbiased is None else float(unbiased)
    center = mean(x, dim, keepdim=True, mask=mask)
    with np.errstate(invalid="ignore", divide="ignore"):
        squares = _reduced("sum", _filled((x - center) ** 2, mask, 0), dim, keepdim)
        count = _count(x, mask, dim, keepdim) - less
        return squares / where(count < 0, 0.0 * count, count)


@with_aliases
def std(
    input: ArrayLike,
    dim: Axes = None,
    unbiased: bool | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
    dtype: DTypeLike = None,
    mask: ArrayLike | None = None,
) -> Any:
    """Return the square root of `var`.

    >>> std(np.array([0.0, 2.0, 0.0]), mask=np.array([True, False, True])).tolist()
    0.0
    """
    value = var(input, dim, unbiased, correction=correction, keepdim=keepdim, dtype=dtype, mask=mask)
    return FUNCTIONS["sqrt"](value)


@with_aliases
def logsumexp(
    input: ArrayLike,
    dim: Axes = None,
    *,
    keepdim: bool = False,
    dtype: DTypeLike = None,
    mask: ArrayLike | None = None,
) -> Any:
    """Return the logarithm of the sum of the exponentials of the elements that count; -inf for none.

    >>> logsumexp(np.array([0.0, 2.0, 0.0]), 0, mask=np.array([True, False, False])).tolist()
    0.0
    """
    return _reduced("logsumexp", _filled(_value(input, dtype), mask, -np.inf), dim, keepdim)


# -- along a dimension -------------------------------------------------------------------------------------------------
def cumsum(input: ArrayLike, dim: int, *, dtype: DTypeLike = None, mask: ArrayLike | None = None) -> Any:
    """Return the cumulative sum of the elements that count.

    >>> cumsum(np.array([1.0, 2.0, 4.0]), 0, mask=np.array([True, False, True])).tolist()
    [1.0, 1.0, 5.0]
    """
    return FUNCTIONS["cumsum"](_filled(_value(input, dtype, sums=True), mask, 0), dim)


def cumprod(input: ArrayLike, dim: int, *, dtype: DTypeLike = None, mask: ArrayLike | None = None) -> Any:
    """Return the cumulative product of the elements that count.

    >>> cumprod(np.array([1.0, 2.0, 4.0]), 0, mask=np.array([True, False, True])).tolist()
    [1.0, 1.0, 4.0]
    """
    return FUNCTIONS["cumprod"](_filled(_value(input, dtype, sums=True), mask, 1), dim)


def softmax(input: ArrayLike, dim: int, *, dtype: DTypeLike = None, mask: ArrayLike | None = None) -> Any:
    """Return the softmax of the elements that count, and 0 for the others; nan where none counts.

    >>> softmax(np.array([1.0, 2.0, 1.0]), 0, mask=np.array([True, False, True])).tolist()
    [0.5, 0.0, 0.5]
    """
    return FUNCTIONS["softmax"](_filled(_value(input, dtype), mask, -np.inf), dim)


def log_softmax(input: ArrayLike, dim: int, *, dtype: DTypeLike = None, mask: ArrayLike | None = None) -> Any:
    """Return the logarithm of `softmax`.

    >>> log_softmax(np.array([1.0, 2.0]), 0, mask=np.array([True, False])).tolist()
    [0.0, -inf]
    """
    return FUNCTIONS["log_softmax"](_filled(_value(input, dtype), mask, -np.inf), dim)


def softmin(input: ArrayLike, dim: int, *, dtype: DTypeLike = None, mask: ArrayLike | None = None) -> Any:
    """Return the softmax of the negative input.

    >>> softmin(np.array([1.0, 2.0, 1.0]), 0, mask=np.array([True, False, True])).tolist()
    [0.5, 0.0, 0.5]
    """
    return FUNCTIONS["softmax"](-_filled(_value(input, dtype), mask, np.inf), dim)


def normalize(
    input: ArrayLike,
    ord: float,
    dim: int,
    *,
    eps: float = 1e-12,
    dtype: DTypeLike = None,
    mask: ArrayLike | None = None,
) -> Any:
    """Divide the elements that count by their norm, or by `eps` if it is smaller; the others become 0.

    >>> normalize(np.array([3.0, 2.0, 4.0]), 2.0, 0, mask=np.array([True, False, True])).tolist()
    [0.6, 0.0, 0.8]
    """
    x = _value(input, dtype)
    length = FUNCTIONS["clamp"](norm(x, ord, dim, keepdim=True, mask=mask), eps)
    return _filled(x, mask, 0) / length


def logaddexp(
    input: ArrayLike,
    other: ArrayLike,
    *,
    dtype: DTypeLike = None,
    input_mask: ArrayLike | None = None,
    other_mask: ArrayLike | None = None,
) -> Any:
    """Return log(exp(input) + exp(other)), without the elements that do not count; -inf where none does.

    >>> logaddexp(np.zeros(2), np.zeros(2), other_mask=np.array([False, False])).tolist()
    [0.0, 0.0]
    """
    x, y = _filled(_value(input, dtype), input_mask, -np.inf), _filled(_value(other, dtype), other_mask, -np.inf)
    return FUNCTIONS["logaddexp"](x, y)


FUNCTION_DOCS.document(globals(), __all__)
