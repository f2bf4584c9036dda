"""Functions that apply a user's function along axes or piecewise: `apply_along_axis`, `piecewise` and others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracegrad.errors import ShapeError, located
from tracegrad.numpy_api.joining import stack
from tracegrad.numpy_api.operands import array, arrays, peer_of, to_dtype
from tracegrad.numpy_api.registry import implements
from tracegrad.numpy_api.shapes import expand_dims, moveaxis
from tracegrad.ops.core.op import normalize_axis
from tracegrad.ops.elementwise import table as elementwise
from tracegrad.ops.elementwise.table import logical_not, logical_or
from tracegrad.ops.shape.linear import broadcast_to, reshape, zeros_like
from tracegrad.typing import Array, ArrayLike, Axes


@implements(np.apply_along_axis)
def apply_along_axis(
    func1d: Callable[..., ArrayLike], axis: int, arr: ArrayLike, *args: object, **kwargs: object
) -> Array:
    """`np.apply_along_axis`: `func1d` is called for each row, as in NumPy."""
    (x,) = arrays(arr)
    k = normalize_axis("apply_along_axis", axis, len(x.shape))
    rows = moveaxis(x, k, -1)
    batch_shape = rows.shape[:-1]
    if 0 in batch_shape:
        raise ValueError(located("Cannot apply_along_axis when any iteration dimensions are 0"))
    result = arrays(
        *(func1d(rows[i], *args, **kwargs) for i in np.ndindex(batch_shape)), *([x] if not batch_shape else [])
    )
    result = result[:1] if not batch_shape else result
    first = to_dtype(result[0], result[0].dtype)
    whole = stack([to_dtype(v, first.dtype) for v in result], 0)
    depth = len(first.shape)
    out = reshape(whole, shape=(*batch_shape, *first.shape))
    for i in range(depth):  # the axes of the results replace the axis of the rows
        out = moveaxis(out, len(batch_shape) + i, k + i)
    return out


@implements(np.apply_over_axes)
def apply_over_axes(func: Callable[[Array, int], Array], a: ArrayLike, axes: Axes) -> Array:
    """`np.apply_over_axes`."""
    (x,) = arrays(a)
    rank = len(x.shape)
    for axis in axes if isinstance(axes, tuple | list | np.ndarray) else (axes,):
        k = normalize_axis("apply_over_axes", int(axis), rank)
        result = func(x, k)
        if len(result.shape) != rank:
            result = expand_dims(result, k)
        if len(result.shape) != rank:
            raise ValueError(located("function is not returning an array of the correct shape"))
        x = result
    return x


@implements(np.piecewise)
def piecewise(
    x: ArrayLike, condlist: Any, funclist: Sequence[Callable[..., ArrayLike] | ArrayLike], *args: object, **kw: object
) -> Array:
    """`np.piecewise`: the functions, which work element by element, are called on the whole array."""
    peer = peer_of(x, condlist, *(f for f in funclist if not callable(f)))
    v = array(x, peer)
    has_list = (
        isinstance(condlist, list | tuple)
        and len(condlist)
        and ((not np.isscalar(condlist[0]) and len(np.shape(condlist[0])) > 0) or not v.shape)
    )
    conditions = [to_dtype(array(c, peer), bool) for c in (condlist if has_list else [condlist])]
    n, functions = len(conditions), list(funclist)
    if len(functions) not in (n, n + 1):
        raise ValueError(located(f"with {n} condition(s), either {n} or {n + 1} functions are expected"))
    if len(functions) == n + 1:
        some = conditions[0]
        for c in conditions[1:]:
            some = logical_or(some, c)
        conditions.append(logical_not(some))
    out = zeros_like(v)
    for condition, function in zip(conditions, functions):
        value = to_dtype(array(function(v, *args, **kw) if callable(function) else function, peer), v.dtype)
        try:
            value, condition = (y if y.shape == v.shape else broadcast_to(y, shape=v.shape) for y in (value, condition))
        except ShapeError:
            text = f"np.piecewise: a function gives shape {value.shape} for an array of shape {v.shape}"
            raise ShapeError(located(text)) from None
        out = elementwise.where(condition, value, out)
    return out
