"""Reductions with PyTorch's names and signatures, and NumPy's dtypes: sums, moments, norms and others.

`dim` is an integer, a tuple of integers, or None for all; with `keepdim` reduced dimensions have length one. Integers
are summed in 64 bits; functions of real numbers convert integers and booleans to float64. A dimension that does not
exist raises IndexError, a repeated one RuntimeError.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.errors import located
from tracegrad.numpy_api import reductions as numpy_reductions
from tracegrad.numpy_api.operands import arrays, to_dtype
from tracegrad.ops.core.op import Carrier, Op, bind, named, one_node
from tracegrad.ops.elementwise.table import (
    absolute,
    divide,
    equal,
    flat,
    isnan,
    logical_not,
    multiply,
    not_equal,
    subtract,
    where,
)
from tracegrad.ops.reduce import reductions
from tracegrad.ops.shape.linear import cast, keep_axes, reduce_sum
from tracegrad.torch.functions.core.dims import dim_of, dims_of, one, type_name
from tracegrad.torch.functions.core.operands import NORM_OF_INTEGERS, as_node, floating, in_floats, require_inexact
from tracegrad.torch.functions.core.promotion import accumulator
from tracegrad.torch.functions.core.registry import FUNCTIONS, function
from tracegrad.torch.functions.linalg.norms import matrix_norm
from tracegrad.typing import Array, ArrayLike, Axes, DTypeLike

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracegrad.ops.core.dispatch import Operand


def axes_of(dim: Any, rank: int) -> tuple[int, ...]:
    """Return the axes that `dim` names, in their order; None and the empty tuple name all."""
    if dim is None:
        return _ALL_AXES[rank]
    if type(dim) is int and -rank <= dim < rank:
        return (dim % rank,)
    if isinstance(dim, tuple | list) and not dim:
        return _ALL_AXES[rank]
    results = sorted(dims_of(dim, rank))
    return tuple(results) if rank else ()


_ALL_AXES = [tuple(range(n)) for n in range(65)]


def reduced(
    name: str, op: Callable[..., Array], x: Array, axes: tuple[int, ...], keepdim: bool, **params: object
) -> Array:
    """Apply `op` to `x` over `axes`, as one node."""
    if not keepdim or not axes:
        return named(name, op(x, axes=axes, **params))
    return as_node(name, lambda v: keep_axes(op(v, axes=axes, **params), v.shape, axes), x)


def as_dtype(x: Array, dtype: DTypeLike) -> Array:
    return x if dtype is None or x.dtype == np.dtype(dtype) else to_dtype(x, dtype)


def _averageable(x: Array, dtype: DTypeLike) -> Array:
    """Return `x`, unless it is a Tensor whose mean has no floating dtype."""
    if getattr(x, "common_dtype", None) is None or getattr(x, "weak", False):
        return x
    kind = x.dtype if dtype is None else np.dtype(dtype)
    if kind.kind not in "fc":
        which = "Input" if dtype is None else "Optional"
        text = f"{which} dtype must be either a floating point or complex dtype. Got: {type_name(kind)}"
        raise RuntimeError(located(f"mean(): could not infer output dtype. {text}"))
    return x


def _is_floating(x: Array) -> bool:
    """Whether `x` is a floating carrier, which ops take without conversion."""
    return isinstance(x, Carrier) and x.dtype.kind == "f"


def _numbered(name: str, dim: Axes) -> str:
    return f"{name}Backward{0 if dim is None else 1}"


# -- sums and products ---------------------------------------------------------------------------------------------
@function("sum")
def sum(input: Array, dim: Axes = None, keepdim: bool = False, *, dtype: DTypeLike = None) -> Array:
    """Return the sum over `dim`, by default of all elements.

    >>> import numpy as np
    >>> sum(np.ones((2, 3)), dim=1).tolist()
    [3.0, 3.0]
    """
    if dim is None and dtype is None and not keepdim and _is_floating(input):
        return bind(reduce_sum, (input,), {"axes": axes_of(None, len(input.shape))})
    x = one(input)
    if dtype is not None or x.dtype.kind != "f":
        x = as_dtype(x, dtype or accumulator(x))
    return reduced(_numbered("Sum", dim), reduce_sum, x, axes_of(dim, len(x.shape)), keepdim)


@function("prod")
def prod(input: ArrayLike, dim: Axes = None, keepdim: bool = False, *, dtype: DTypeLike = None) -> Array:
    """Return the product over `dim`, by default of all elements.

    Its derivatives of every order are exact where elements are 0.
    """
    x = one(input)
    x = as_dtype(x, dtype or accumulator(x))
    return reduced(_numbered("Prod", dim), reductions.reduce_prod, x, axes_of(dim, len(x.shape)), keepdim)


@function("nansum")
def nansum(input: ArrayLike, dim: Axes = None, keepdim: bool = False, *, dtype: DTypeLike = None) -> Array:
    """Return the sum of the elements that are not nan."""
    x = one(input)
    x = as_dtype(x, dtype or accumulator(x))
    return as_node("NansumBackward0", _nansum, x, axes_of(dim, len(x.shape)), keepdim)


def _nansum(x: Array, axes: tuple[int, ...], keepdim: bool) -> Array:
    return reduced("", reduce_sum, where(isnan(x), 0, x) if x.dtype.kind == "f" else x, axes, keepdim)


@function("nanmean")
def nanmean(input: ArrayLike, dim: Axes = None, keepdim: bool = False, *, dtype: DTypeLike = None) -> Array:
    """Return the mean of the elements that are not nan; nan if there are none."""
    x = as_dtype(floating(input), dtype)
    present = cast(logical_not(isnan(x)), dtype=x.dtype.name)
    return divide(nansum(x, dim, keepdim), sum(present, dim, keepdim))


# -- moments -------------------------------------------------------------------------------------------------------
@function("mean")
def mean(input: Array, dim: Axes = None, keepdim: bool = False, *, dtype: DTypeLike = None) -> Array:
    """Return the arithmetic mean; of integers in float64.

    RuntimeError for Tensors of integers, unless the dtype is floating.

    >>> import numpy as np
    >>> mean(np.array([[1.0, 2.0], [3.0, 5.0]]), dim=0).tolist()
    [2.0, 3.5]
    """
    if dim is None and dtype is None and not keepdim and _is_floating(input):
        return bind(reductions.mean, (input,), {"axes": axes_of(None, len(input.shape))})
    x = as_dtype(floating(_averageable(input, dtype)), dtype)
    return reduced(_numbered("Mean", dim), reductions.mean, x, axes_of(dim, len(x.shape)), keepdim)


def _spread(
    input: Any, dim: Any, unbiased: bool | None, correction: float | None
) -> tuple[Any, tuple[int, ...], float]:
    """Return array, axes and correction from the arguments of `var` and `std`; a boolean `dim` is `unbiased`."""
    require_inexact(input, "std and var only support floating point and complex dtypes")
    x = floating(input)
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if unbiased is not None and correction is not None:
        raise TypeError(located("unbiased= and correction= mean the same: give one of them"))
    if correction is None:
        correction = 1 if unbiased is None else int(unbiased)
    return x, axes_of(dim, len(x.shape)), correction


@function("var")
def var(
    input: ArrayLike,
    dim: Axes = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> Array:
    """Return the variance: the sum of squared deviations from the mean, over n - `correction`.

    The default of `correction` is 1. `unbiased=False` means `correction=0`.

    >>> import numpy as np
    >>> var(np.array([1.0, 2.0, 3.0, 4.0])), var(np.array([1.0, 2.0, 3.0, 4.0]), correction=0)
    (array(1.66666667), array(1.25))
    """
    x, axes, ddof = _spread(input, dim, unbiased, correction)
    return reduced("VarBackward0", reductions.var, x, axes, keepdim, ddof=ddof)


@function("std")
def std(
    input: ArrayLike,
    dim: Axes = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> Array:
    """Return the standard deviation, the square root of `var`.

    Its derivative is 0 if all elements are equal.
    """
    x, axes, ddof = _spread(input, dim, unbiased, correction)
    return reduced("StdBackward0", reductions.std, x, axes, keepdim, ddof=ddof)


def _with_mean(
    name: str, spread: Op, x: Array, axes: tuple[int, ...], ddof: float, keepdim: bool
) -> tuple[Operand, ...]:
    def both(v: Array) -> tuple[Array, Array]:
        return reduced("", spread, v, axes, keepdim, ddof=ddof), reduced("", reductions.mean, v, axes, keepdim)

    result: tuple[Any, Any] = as_node(name, both, x)
    return result


@function("std_mean")
def std_mean(
    input: ArrayLike,
    dim: Axes = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> tuple[Operand, ...]:
    """Return the standard deviation and the mean."""
    return _with_mean("StdMeanBackward0", reductions.std, *_spread(input, dim, unbiased, correction), keepdim)


@function("var_mean")
def var_mean(
    input: ArrayLike,
    dim: Axes = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> tuple[Operand, ...]:
    """Return the variance and the mean."""
    return _with_mean("VarMeanBackward0", reductions.var, *_spread(input, dim, unbiased, correction), keepdim)


# -- counting and logic --------------------------------------------------------------------------------------------
@function("any")
def any_(input: ArrayLike, dim: Axes = None, keepdim: bool = False) -> Array:
    """Return whether any element is true; for a `dim` without dimensions, whether each element is."""
    x = to_dtype(one(input), bool)
    return reduced("", reductions.reduce_any, x, _axes_or_none(dim, len(x.shape)), keepdim)


@function("all")
def all_(input: ArrayLike, dim: Axes = None, keepdim: bool = False) -> Array:
    """Return whether all elements are true; for a `dim` without dimensions, whether each element is."""
    x = to_dtype(one(input), bool)
    return reduced("", reductions.reduce_all, x, _axes_or_none(dim, len(x.shape)), keepdim)


def _axes_or_none(dim: object, rank: int) -> tuple[int, ...]:
    return () if isinstance(dim, tuple | list) and not dim else axes_of(dim, rank)


@function("count_nonzero")
def count_nonzero(input: Array, dim: Axes = None) -> Array:
    """Count the elements that are not 0."""
    return sum(to_dtype(one(input), bool), dim)


@function("equal")
def equal_(input: ArrayLike, other: ArrayLike) -> bool:
    """Return whether two arrays have the same shape and the same elements.

    >>> import numpy as np
    >>> equal_(np.array([1, 2]), np.array([1.0, 2.0])), equal_(np.ones(2), np.ones(3))
    (True, False)
    """
    x, y = arrays(input, other)
    return x.shape == y.shape and bool(all_(equal(x, y)))


@function("allclose")
def allclose(
    input: ArrayLike, other: ArrayLike, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> bool:
    """Return whether all pairs of elements are close, as in `isclose`."""
    return bool(all_(FUNCTIONS["isclose"](input, other, rtol, atol, equal_nan)))


# -- exponential ---------------------------------------------------------------------------------------------------
@function("logsumexp")
def logsumexp(input: ArrayLike, dim: int | Sequence[int], keepdim: bool = False) -> Array:
    """log(sum(exp(input), dim)), without overflow."""
    x = floating(input)
    axes = axes_of(dim, len(x.shape))
    op = reductions.logsumexp if all(x.shape[k] for k in axes) else _log_of_nothing
    return reduced("LogsumexpBackward0", op, x, axes, keepdim)


@one_node("LogsumexpBackward0")
def _log_of_nothing(x: Array, *, axes: tuple[int, ...]) -> Array:
    return subtract(reduce_sum(x, axes=axes), math.inf)


def _nothing(x: Array) -> Array:
    return multiply(x, 0.0)


@function("softmax")
def softmax(input: Array, dim: int, dtype: DTypeLike = None) -> Array:
    """exp(input) / sum(exp(input), dim), without overflow.

    >>> import numpy as np
    >>> softmax(np.array([1000.0, 1000.0]), dim=0).tolist()
    [0.5, 0.5]
    """
    result: Array = _normalized("SoftmaxBackward0", reductions.softmax, input, dim, dtype)
    return result


@function("log_softmax")
def log_softmax(input: Array, dim: int, dtype: DTypeLike = None) -> Array:
    """log(softmax(input, dim)), precise where the softmax is small."""
    result: Array = _normalized("LogSoftmaxBackward0", reductions.log_softmax, input, dim, dtype)
    return result


def _normalized(name: str, op: Op, input: Array, dim: int, dtype: DTypeLike) -> Array:
    x = as_dtype(floating(input), dtype)
    k = dim_of(dim, len(x.shape))
    return as_node(name, _nothing, x) if 0 in x.shape else op(x, axes=axes_of(k, len(x.shape)))


# -- norms ---------------------------------------------------------------------------------------------------------
@function("norm")
def norm(
    input: Array,
    p: float | str = "fro",
    dim: Axes = None,
    keepdim: bool = False,
    dtype: DTypeLike = None,
) -> Array:
    """Return the p-norm of the elements over `dim`, as of one vector.

    "fro" is the 2-norm. "nuc" is the nuclear norm of matrices, in the last two dimensions or in the two dimensions of
    `dim`. The derivative is 0 at 0.

    >>> import numpy as np
    >>> import numpy as np
    >>> norm(np.array([3.0, 4.0])).item()
    5.0
    """
    if dtype is None:
        require_inexact(input, NORM_OF_INTEGERS)
    x = as_dtype(floating(input), dtype)
    if p == "nuc":
        return matrix_norm(x, "nuc", (-2, -1) if dim is None else dim, keepdim)
    if isinstance(p, str) and p != "fro":
        raise RuntimeError(located(f"linalg.matrix_norm: Order {p} not supported."))
    order = 2.0 if p is None or p == "fro" else float(p)
    return as_node("LinalgVectorNormBackward0", _norm, x, order, axes_of(dim, len(x.shape)), keepdim)


def _norm(x: Array, p: float, axes: tuple[int, ...], keepdim: bool) -> Array:
    if p == 0:
        size = absolute(x)
        return reduced("", reduce_sum, flat(cast(not_equal(x, 0), dtype=size.dtype.name), size), axes, keepdim)
    return numpy_reductions.vector_norm(x, axis=axes, keepdims=keepdim, ord=p)


@function("dist")
def dist(input: ArrayLike, other: ArrayLike, p: float = 2) -> Array:
    """Return the p-norm of input - other."""
    x, y = in_floats(arrays(input, other))
    result: Array = _dist(x, y, float(p))
    return result


@one_node("DistBackward0")
def _dist(x: Array, y: Array, p: float) -> Array:
    difference = subtract(x, y)
    return _norm(difference, p, tuple(range(len(difference.shape))), False)
