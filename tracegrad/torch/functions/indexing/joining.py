"""Functions that join, stack, repeat and broadcast values, and make grids of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tracegrad.errors import located
from tracegrad.numpy_api import joining as numpy_joining
from tracegrad.numpy_api.joining import picked
from tracegrad.numpy_api.operands import array, arrays, constant, peer_of, promoted, size_of
from tracegrad.ops.core.op import bind, named, one_node
from tracegrad.ops.shape import linear, stack_split
from tracegrad.torch.functions.core.dims import copied, dim_of, integers, lengths, one, size_error
from tracegrad.torch.functions.core.operands import alike, of_one_kind
from tracegrad.torch.functions.core.promotion import require_one_dtype
from tracegrad.torch.functions.core.registry import function, method
from tracegrad.torch.functions.indexing.shapes import expanded
from tracegrad.typing import Array, ArrayLike


# -- along a dimension they have -----------------------------------------------------------------------------------
@function("cat", "concat", "concatenate", methods=False)
def cat(tensors: Sequence[Array], dim: int = 0) -> Array:
    """Concatenate values along `dim`, in their common dtype.

    The other sizes are equal. Empty vectors are skipped. ValueError for no values, RuntimeError if the shapes do not
    fit.

    >>> cat([np.zeros((1, 2)), np.ones((2, 2))]).shape
    (3, 2)
    """
    xs = _tensor_list(tensors, "torch.cat(): expected a non-empty list of Tensors", ValueError)
    shape = alike(xs)
    if shape and shape != (0,):
        return bind(linear.concatenate, tuple(xs), {"axis": dim_of(dim, len(shape))})
    for k, x in enumerate(xs):
        if not x.shape:
            raise size_error(f"zero-dimensional tensor (at position {k}) cannot be concatenated")
    saved = [x for x in xs if x.shape != (0,)] or xs[:1]
    axis = dim_of(dim, len(saved[0].shape))
    _check_sizes(saved, axis)
    if len({x.dtype for x in xs}) == 1:
        return linear.concatenate(*saved, axis=axis)
    return _cat(xs, non_empty=tuple(k for k, x in enumerate(xs) if any(x is y for y in saved)), dim=axis)


@one_node("CatBackward0")
def _cat(xs: list[Array], *, non_empty: tuple[int, ...], dim: int) -> Array:
    common = promoted(xs)
    return linear.concatenate(*(common[k] for k in non_empty), axis=dim)


def _tensor_list(tensors: Sequence[Any], message: str, kind: type[Exception] | None = None) -> list[Array]:
    args = list(tensors)
    if not args:
        raise size_error(message) if kind is None else kind(located(message))
    return args if of_one_kind(args) else arrays(*args)


def _check_sizes(xs: list[Array], dim: int) -> None:
    first = xs[0].shape
    if all(x.shape == first for x in xs):
        return
    for k, x in enumerate(xs):
        if len(x.shape) != len(first):
            raise size_error(f"Tensors must have same number of dimensions: got {len(first)} and {len(x.shape)}")
        for d, (n, m) in enumerate(zip(first, x.shape)):
            if n != m and d != dim:
                raise size_error(
                    f"Sizes of tensors must match except in dimension {dim}. Expected size {n} but got size {m} for "
                    f"tensor number {k} in the list."
                )


# -- along a new dimension -----------------------------------------------------------------------------------------
@function("stack", methods=False)
def stack(tensors: Sequence[Array], dim: int = 0) -> Array:
    """Join values of one shape along a new dimension, in their common dtype.

    >>> stack([np.zeros(2), np.ones(2)], 1).tolist()
    [[0.0, 1.0], [0.0, 1.0]]
    """
    xs = _tensor_list(tensors, "stack expects a non-empty TensorList")
    shape = alike(xs)
    if shape is not None:
        return bind(stack_split.stack, tuple(xs), {"axis": dim_of(dim, len(shape) + 1)})
    for k, x in enumerate(xs):
        if x.shape != xs[0].shape:
            raise size_error(
                f"stack expects each tensor to be equal size, but got {lengths(xs[0].shape)} at entry 0 and "
                f"{lengths(x.shape)} at entry {k}"
            )
    return _stacked(xs, dim=dim_of(dim, len(xs[0].shape) + 1))


@one_node("StackBackward0")
def _stacked(xs: list[Array], *, dim: int) -> Array:
    return stack_split.stack(*promoted(xs), axis=dim)


@one_node("CatBackward0")
def _grown_and_joined(xs: list[Array], *, shapes: tuple[tuple[int, ...], ...], dim: int) -> Array:
    grown = [x if x.shape == s else linear.reshape(x, shape=s) for x, s in zip(promoted(xs), shapes)]
    return linear.concatenate(*grown, axis=dim)


def _joined(xs: list[Array], shapes: list[tuple[int, ...]], dim: int) -> Array:
    _check_sizes([np.broadcast_to(0, s) for s in shapes], dim)
    return _grown_and_joined(xs, shapes=tuple(shapes), dim=dim)


@function("hstack", methods=False)
def hstack(tensors: Sequence[Array]) -> Array:
    """Join values along the second dimension; vectors and numbers along the first."""
    xs = _tensor_list(tensors, "hstack expects a non-empty TensorList")
    shapes = [x.shape or (1,) for x in xs]
    return _joined(xs, shapes, 0 if len(shapes[0]) == 1 else 1)


@function("vstack", "row_stack", methods=False)
def vstack(tensors: Sequence[Array]) -> Array:
    """Join values along the first dimension; vectors are rows.

    >>> vstack([np.zeros(2), np.ones((2, 2))]).shape
    (3, 2)
    """
    xs = _tensor_list(tensors, "vstack expects a non-empty TensorList")
    return _joined(xs, [(1,) * (2 - len(x.shape)) + x.shape for x in xs], 0)


@function("dstack", methods=False)
def dstack(tensors: Sequence[ArrayLike]) -> Array:
    """Join values along the third dimension."""
    xs = _tensor_list(tensors, "dstack expects a non-empty TensorList")
    shapes = [{0: (1, 1, 1), 1: (1, *x.shape, 1), 2: (*x.shape, 1)}.get(len(x.shape), x.shape) for x in xs]
    return _joined(xs, shapes, 2)


@function("column_stack", methods=False)
def column_stack(tensors: Sequence[ArrayLike]) -> Array:
    """Join values along the second dimension; numbers and vectors are columns.

    >>> column_stack([np.zeros(2), np.ones(2)]).tolist()
    [[0.0, 1.0], [0.0, 1.0]]
    """
    xs = _tensor_list(tensors, "column_stack expects a non-empty TensorList")
    return _joined(xs, [(size_of(x), 1) if len(x.shape) < 2 else x.shape for x in xs], 1)


@function("block_diag", methods=False)
def block_diag(*tensors: object) -> Array:
    """Return a matrix with matrices as blocks on its diagonal, and zeros elsewhere; vectors are rows.

    >>> block_diag(np.ones((1, 2)), 3.0).tolist()
    [[1.0, 1.0, 0.0], [0.0, 0.0, 3.0]]
    """
    xs = arrays(*(tensors or ([[]],)))
    for k, x in enumerate(xs):
        if len(x.shape) > 2:
            raise size_error(
                f"torch.block_diag: Input tensors must have 2 or fewer dimensions. Input {k} has {len(x.shape)} "
                "dimensions"
            )
    return _blocks(xs)


@one_node("BlockDiagBackward0")
def _blocks(xs: list[Array]) -> Array:
    xs = [linear.reshape(x, shape=(1,) * (2 - len(x.shape)) + x.shape) for x in promoted(xs)]
    width, before, rows = sum(x.shape[1] for x in xs), 0, []
    for x in xs:
        zero: Any = {"f": 0.0, "b": False}.get(x.dtype.kind, 0)
        after = width - before - x.shape[1]
        rows.append(linear.pad(x, low=(0, before), high=(0, after), interior=(0, 0), value=zero))
        before += x.shape[1]
    return linear.concatenate(*rows, axis=0)


# -- repeating -----------------------------------------------------------------------------------------------------
@method("repeat")
def repeat(self: Array, *sizes: int | Sequence[int]) -> Array:
    """The whole repeated that many times along each dimension; more sizes than dimensions make new leading ones.

    >>> repeat(np.array([1, 2]), 2, 2).tolist()
    [[1, 2, 1, 2], [1, 2, 1, 2]]
    """
    times = integers(sizes)
    if len(times) < len(self.shape):
        raise size_error("Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor")
    return _tiled(self, times=times)


@one_node("RepeatBackward0")
def _tiled(x: Array, *, times: tuple[int, ...]) -> Array:
    return copied(x) if times == (1,) * len(x.shape) else numpy_joining.tile(x, times)


@function("tile")
def tile(input: ArrayLike, *sizes: int | Sequence[int], dims: int | Sequence[int] | None = None) -> Array:
    """Repeat the input along its dimensions; missing numbers of repetitions at the front are 1.

    >>> tile(np.array([[1, 2]]), (2,)).tolist()
    [[1, 2, 1, 2]]
    """
    x, times = one(input), integers(sizes if dims is None else (dims,))
    return _tiled(x, times=(1,) * (len(x.shape) - len(times)) + times)


@function("repeat_interleave")
def repeat_interleave(input: Array, repeats: Any, dim: int | None = None, *, output_size: int | None = None) -> Array:
    """Repeat each element along `dim`; without `dim`, of the flattened input.

    >>> repeat_interleave(np.array([1, 2]), 2).tolist(), repeat_interleave(np.array([1, 2]), np.array([1, 3])).tolist()
    ([1, 1, 2, 2], [1, 2, 2, 2])
    """
    x = one(input)
    k = None if dim is None else dim_of(dim, len(x.shape))
    if not isinstance(repeats, tuple | list) and not getattr(repeats, "shape", ()):
        return _each_repeated(x, times=repeats.__index__(), dim=k)
    counts = array(repeats, peer_of(input, repeats))
    n = size_of(x) if k is None else x.shape[k]
    if counts.shape != (n,) and counts.shape != (1,):
        raise size_error(
            f"repeats must have the same size as input along dim, but got repeats.size(0) = {counts.shape[0]} and "
            f"input.size({k or 0}) = {n}"
        )
    return _picked(x, numpy_joining.repeated(counts, n, peer_of(x, repeats)), dim=k)


@one_node("RepeatInterleaveBackward0")
def _each_repeated(x: Array, *, times: int, dim: int | None) -> Array:
    repeated = numpy_joining.repeat(x, times, dim)
    return copied(repeated) if times == 1 else repeated


@one_node("IndexSelectBackward0")
def _picked(x: Array, index: Array, *, dim: int | None) -> Array:
    if dim is None:
        x, dim = linear.reshape(x, shape=(size_of(x),)), 0
    return picked(x, index, dim)


# -- grids ---------------------------------------------------------------------------------------------------------
def _require_one_dtype(xs: Sequence[Array]) -> None:
    for x in xs[1:]:
        require_one_dtype(xs[0], x, "meshgrid expects all tensors to have the same dtype")


@function("meshgrid", methods=False)
def meshgrid(*tensors: object, indexing: str = "ij") -> tuple[Array, ...]:
    """Return the coordinates of the grid that vectors span.

    With the indexing "xy", the second coordinate runs along the first dimension.

    >>> [x.tolist() for x in meshgrid(np.array([1, 2]), np.array([3, 4, 5]))]
    [[[1, 1, 1], [2, 2, 2]], [[3, 4, 5], [3, 4, 5]]]
    """
    if indexing not in ("ij", "xy"):
        raise size_error(f'torch.meshgrid: indexing must be one of "xy" or "ij", but received: {indexing}')
    args = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], tuple | list) else tensors
    xs = _tensor_list(args, "meshgrid expects a non-empty TensorList")
    _require_one_dtype(xs)
    if any(len(x.shape) > 1 for x in xs):
        result = next(x for x in xs if len(x.shape) > 1)
        raise size_error(
            f"torch.meshgrid: Expected 0D or 1D tensor in the tensor list but got: {lengths(result.shape)}"
        )
    grid_dims = list(range(len(xs)))
    if indexing == "xy" and len(xs) > 1:
        grid_dims[:2] = [1, 0]
    sizes = [size_of(x) for x in xs]
    shape = tuple(sizes[grid_dims.index(d)] for d in range(len(xs)))
    return tuple(_along_grid(x, shape=shape, dim=d) for x, d in zip(xs, grid_dims))


def _along_grid(x: Array, *, shape: tuple[int, ...], dim: int) -> Array:
    column = tuple(n if d == dim else 1 for d, n in enumerate(shape))
    return expanded(named("ViewBackward0", linear.reshape(x, shape=column)), shape)


@function("cartesian_prod", methods=False)
def cartesian_prod(*tensors: object) -> Array:
    """Return all combinations of one element of each vector, as rows.

    >>> cartesian_prod(np.array([1, 2]), np.array([3, 4])).tolist()
    [[1, 3], [1, 4], [2, 3], [2, 4]]
    """
    xs = _tensor_list(tensors, "cartesian_prod expects a non-empty TensorList")
    _require_one_dtype(xs)
    return _product(xs) if len(xs) > 1 else xs[0]


@one_node("StackBackward0")
def _product(xs: list[Array]) -> Array:
    shape = tuple(size_of(x) for x in xs)
    grids = (_along_grid(x, shape=shape, dim=d) for d, x in enumerate(promoted(xs)))
    return linear.concatenate(*(linear.reshape(g, shape=(math.prod(shape), 1)) for g in grids), axis=1)


@function("combinations", methods=False)
def combinations(input: ArrayLike, r: int = 2, with_replacement: bool = False) -> Array:
    """Return all choices of `r` elements of a vector, in their order, as rows.

    >>> combinations(np.array([1, 2, 3])).tolist()
    [[1, 2], [1, 3], [2, 3]]
    """
    x = one(input)
    if len(x.shape) != 1:
        raise size_error(f"Expect a 1D vector, but got shape {lengths(x.shape)}")
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    chosen = np.array(list(choose(range(x.shape[0]), r)), np.int64).reshape(-1, r)
    result: Array = _combined(x, index=chosen)
    return result


@one_node("StackBackward0")
def _combined(x: Array, *, index: Array) -> Array:
    return picked(x, constant(index, peer_of(x)), 0)
