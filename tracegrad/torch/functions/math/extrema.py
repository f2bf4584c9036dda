"""Extrema and medians, by value and by index, with PyTorch's names and signatures.

Functions with values and indices return a named pair. A dimension that does not exist raises IndexError, a dimension of
length 0 RuntimeError.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import LITERALS
from tracegrad.errors import located
from tracegrad.numpy_api.operands import size_of
from tracegrad.ops.core.op import Carrier, Op, named
from tracegrad.ops.elementwise.table import (
    add,
    divide,
    equal,
    isnan,
    logical_and,
    logical_or,
    multiply,
    subtract,
    where,
)
from tracegrad.ops.reduce import reductions
from tracegrad.ops.shape.linear import cast, keep_axes, reduce_sum, reshape, stop_gradient, unreduce
from tracegrad.torch.functions.core.dims import dim_of, one, size_error
from tracegrad.torch.functions.core.operands import as_node
from tracegrad.torch.functions.core.registry import FUNCTIONS, function
from tracegrad.torch.functions.core.return_types import return_type
from tracegrad.torch.functions.math.reductions import axes_of, reduced
from tracegrad.typing import Array, ArrayLike, Axes

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Operand


def _axes(name: str, x: Array, dim: Axes) -> tuple[int, ...]:
    """Return the axes in `dim`; an axis of length 0 raises."""
    axes = axes_of(dim, len(x.shape))
    if all(x.shape[k] for k in axes):
        return axes
    if dim is None or (isinstance(dim, tuple | list) and not dim):
        message = f"{name}(): Expected reduction dim to be specified for input.numel() == 0."
        if name.startswith("arg"):
            raise IndexError(located(message))
        raise size_error(f"{message} Specify the reduction dim with the 'dim' argument.")
    empty = next(k for k in axes if not x.shape[k])
    raise IndexError(located(f"{name}(): Expected reduction dim {empty} to have non-zero size."))


def picked_along(name: str, find: Callable[..., Array], node: str, x: Array, dim: Any, keepdim: bool) -> Any:
    """Return the elements of `x` at the indices that `find` returns along `dim`, and the indices."""
    k = dim_of(dim, len(x.shape))
    _axes(name, x, k)
    whole = x if x.shape else reshape(x, shape=(1,))
    indices = find(stop_gradient(whole), axis=k)
    if keepdim and x.shape:
        indices = keep_axes(indices, x.shape, (k,))
    return return_type(name, "values", "indices")(named(node, reductions.pick(whole, indices, axis=k)), indices)


def _extremum(name: str, input: ArrayLike, dim: object, keepdim: bool, other: object) -> Any:
    least, second = name == "min", dim if other is None else other
    if type(input) in LITERALS and second is not None:
        kinds = f"({type(input).__name__}, {'Tensor' if isinstance(second, Carrier) else type(second).__name__})"
        text = f"received an invalid combination of arguments - got {kinds}, but expected one of"
        raise TypeError(
            located(f"{name}() {text}: (Tensor input), (Tensor input, Tensor other), (Tensor input, int dim)")
        )
    if other is not None or isinstance(dim, Carrier | np.ndarray | list):
        return FUNCTIONS["minimum" if least else "maximum"](input, second)
    x, node = one(input), name.capitalize()
    if dim is None:
        op = reductions.reduce_min if least else reductions.reduce_max
        return reduced(f"{node}Backward1", op, x, _axes(name, x, None), keepdim)
    return picked_along(name, reductions.argmin if least else reductions.argmax, f"{node}Backward0", x, dim, keepdim)


@function("max")
def max(input: ArrayLike, dim: Axes = None, keepdim: bool = False, *, other: ArrayLike | None = None) -> Any:
    """Return the maximum of all elements; with `dim`, also indices; with another array, `maximum`.

    Equal maxima of all elements share the derivative. Along a dimension, the first one of them has it.

    >>> import numpy as np
    >>> max(np.array([[1.0, 5.0], [7.0, 2.0]]), dim=1)
    tracegrad.return_types.max(
    values=[5. 7.],
    indices=[1 0])
    """
    return _extremum("max", input, dim, keepdim, other)


@function("min")
def min(input: Array, dim: Axes = None, keepdim: bool = False, *, other: object = None) -> Any:
    """Return the minimum of all elements; with `dim`, also indices; with another array, `minimum`.

    Equal minima of all elements share the derivative. Along a dimension, the first one of them has it.
    """
    return _extremum("min", input, dim, keepdim, other)


@function("amax")
def amax(input: ArrayLike, dim: Axes = None, keepdim: bool = False) -> Array:
    """Return the maximum over dimensions. Equal elements share the derivative."""
    x = one(input)
    return reduced("AmaxBackward0", reductions.reduce_max, x, _axes("amax", x, dim), keepdim)


@function("amin")
def amin(input: ArrayLike, dim: Axes = None, keepdim: bool = False) -> Array:
    """Return the minimum over dimensions. Equal elements share the derivative."""
    x = one(input)
    return reduced("AminBackward0", reductions.reduce_min, x, _axes("amin", x, dim), keepdim)


@function("aminmax")
def aminmax(input: Array, *, dim: int | None = None, keepdim: bool = False) -> Any:
    """Return the minimum and the maximum. Equal elements share the derivative."""
    x = one(input)
    axes = axes_of(dim, len(x.shape))
    if not all(x.shape[k] for k in axes):
        if dim is not None:
            raise IndexError(
                located(f"aminmax: Expected reduction dim {dim_of(dim, len(x.shape))} to have non-zero size.")
            )
        raise size_error("aminmax(): cannot compute aminmax over an empty dimension as the operation has no identity.")
    return return_type("aminmax", "min", "max")(*as_node("AminmaxBackward0", _aminmax, x, axes, keepdim))


def _aminmax(x: Array, axes: tuple[int, ...], keepdim: bool) -> tuple[Operand, ...]:
    least, most = (reduced("", op, x, axes, keepdim) for op in (reductions.reduce_min, reductions.reduce_max))
    return least, most


def _index_of(name: str, op: Op, x: Array, dim: Any, keepdim: bool) -> Array:
    _axes(name, x, dim)
    flattened = dim is None or not x.shape
    k = 0 if dim is None else dim_of(dim, len(x.shape))
    out = op(reshape(x, shape=(size_of(x),)) if flattened else x, axis=k)
    if not keepdim:
        result: Array = out
        return result
    return reshape(out, shape=(1,) * len(x.shape)) if flattened else keep_axes(out, x.shape, (k,))


@function("argmax")
def argmax(input: ArrayLike, dim: Axes = None, keepdim: bool = False) -> Array:
    """Return the index of the first maximum along `dim`, or in the flattened input.

    >>> import numpy as np
    >>> argmax(np.array([[1, 5], [7, 2]])).item(), argmax(np.array([[1, 5], [7, 2]]), dim=1).tolist()
    (2, [1, 0])
    """
    result: Array = _index_of("argmax", reductions.argmax, one(input), dim, keepdim)
    return result


@function("argmin")
def argmin(input: ArrayLike, dim: int | None = None, keepdim: bool = False) -> Array:
    """Return the index of the first minimum along `dim`, or in the flattened input."""
    result: Array = _index_of("argmin", reductions.argmin, one(input), dim, keepdim)
    return result


@function("median")
def median(input: ArrayLike, dim: Axes = None, keepdim: bool = False) -> Any:
    """Return the median, the lower one of an even number of elements; with `dim`, also indices.

    It is nan if an element is nan.

    >>> import numpy as np
    >>> median(np.array([4.0, 1.0, 3.0, 2.0])).item()
    2.0
    """
    x = one(input)
    if dim is None:
        return as_node("MedianBackward0", _median, x)
    return picked_along("median", reductions.argmedian, "MedianBackward1", x, dim, keepdim)


def _median(x: Array) -> Array:
    return median_of(x, reductions.argmedian)


def median_of(x: Array, find: Callable[..., Array]) -> Array:
    """Return the element of the flat `x` at the index that `find` returns; equal elements share the derivative."""
    v = reshape(x, shape=(size_of(x),))
    if not v.shape[0]:
        return multiply(reduce_sum(v, axes=(0,)), math.nan)
    still = stop_gradient(v)
    result = reductions.pick(still, find(still, axis=0), axis=0)
    if x.dtype.kind != "f":
        return result
    middle = unreduce(result, v.shape, (0,))
    hit = logical_or(equal(still, middle), logical_and(isnan(still), isnan(middle)))
    share = divide(cast(hit, dtype=x.dtype.name), reduce_sum(cast(hit, dtype=x.dtype.name), axes=(0,)))
    # The median, plus a 0 that depends on the elements equal to it, in equal shares.
    return add(result, reduce_sum(where(hit, multiply(subtract(v, still), share), 0.0), axes=(0,)))
