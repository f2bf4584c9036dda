"""Functions that split a value or rearrange its elements: slices, splits, diagonals, triangles, flips."""

from __future__ import annotations

import itertools
import math
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from tracegrad.errors import located
from tracegrad.numpy_api import selection as numpy_selection
from tracegrad.numpy_api import shapes as numpy_shapes
from tracegrad.numpy_api.indexing import moves
from tracegrad.numpy_api.joining import along, picked, slice_along
from tracegrad.numpy_api.operands import constant, peer_of, size_of
from tracegrad.numpy_api.registry import refuse
from tracegrad.ops.core.op import Carrier, named, one_node
from tracegrad.ops.shape import linear, stack_split
from tracegrad.torch.functions.core.dims import (
    copied,
    dim_of,
    dims_of,
    index_error,
    integers,
    lengths,
    one,
    size_error,
)
from tracegrad.torch.functions.core.registry import function, method
from tracegrad.typing import Array, ArrayLike, NDArray

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracegrad.ops.core.dispatch import Operand


@function("narrow")
def narrow(input: ArrayLike, dim: int, start: int, length: int) -> Array:
    """Return `length` elements from `start` along `dim`, as a view.

    >>> narrow(np.arange(5), 0, 1, 3).tolist()
    [1, 2, 3]
    """
    x = one(input)
    if not x.shape:
        raise RuntimeError(located("narrow() cannot be applied to a 0-dim tensor."))
    k = dim_of(dim, len(x.shape))
    if getattr(start, "shape", ()) != () or getattr(start, "dtype", np.dtype(int)).kind not in "iu":
        raise RuntimeError(located("start must be an 0-dim integral Tensor."))
    if moves(start) and type(length) is int and length > 0 and start >= 0 and start + length <= x.shape[k]:
        return named("SliceBackward0", x[(*[slice(None)] * k, slice(start, start + length))])
    first, count, n = start.__index__(), length.__index__(), x.shape[k]
    if count < 0:
        raise size_error("narrow(): length must be non-negative.")
    if not -n <= first <= n:
        raise index_error(f"start out of range (expected to be in range of [{-n}, {n}], but got {first})")
    first += n if first < 0 else 0
    if first + count > n:
        raise size_error(f"start ({first}) + length ({count}) exceeds dimension size ({n}).")
    return named("SliceBackward0", slice_along(x, k, first, first + count))


@function("select")
def select(input: ArrayLike, dim: int, index: int) -> Array:
    """Return the values at one index along `dim`. This dimension disappears.

    >>> select(np.arange(6).reshape(2, 3), 1, -1).tolist()
    [2, 5]
    """
    x = one(input)
    if not x.shape:
        raise index_error("select() cannot be applied to a 0-dim tensor.")
    k, i = dim_of(dim, len(x.shape)), index.__index__()
    n = x.shape[k]
    if not -n <= i < n:
        raise index_error(f"select(): index {i} out of range for tensor of size {lengths(x.shape)} at dimension {k}")
    return _selected(x, dim=k, index=i % n)


@one_node("SelectBackward0")
def _selected(x: Array, *, dim: int, index: int) -> Array:
    return _dropped(x, dim, index)


def _dropped(x: Array, dim: int, index: int) -> Array:
    return numpy_shapes.reshaped(slice_along(x, dim, index, index + 1), (*x.shape[:dim], *x.shape[dim + 1 :]))


_SEQUENCES = (tuple, list)


# -- several parts -------------------------------------------------------------------------------------------------
@function("unbind")
def unbind(input: ArrayLike, dim: int = 0) -> tuple[Any, ...]:
    """Return the values along `dim` as a tuple. This dimension disappears.

    >>> unbind(np.arange(4).reshape(2, 2))
    (array([0, 1]), array([2, 3]))
    """
    x = one(input)
    if not x.shape:
        raise index_error(f"Dimension specified as {dim} but tensor has no dimensions")
    parts: tuple[Any, ...] = stack_split.unbind(x, axis=dim_of(dim, len(x.shape)))
    return parts


@function("split")
def split(
    tensor: ArrayLike, split_size_or_sections: int | tuple[int, ...] | list[int], dim: int = 0
) -> tuple[Operand, ...]:
    """Split along `dim` into parts of one size (the last one may be smaller), or of a sequence of sizes.

    >>> [x.tolist() for x in split(np.arange(5), 2)]
    [[0, 1], [2, 3], [4]]
    >>> [x.tolist() for x in split(np.arange(5), [1, 4])]
    [[0], [1, 2, 3, 4]]
    """
    x = one(tensor)
    shape = x.shape
    if not shape:
        raise size_error("split expects at least a 1-dimensional tensor")
    k = dim_of(dim, len(shape))
    if isinstance(split_size_or_sections, _SEQUENCES):
        return split_with_sizes(x, split_size_or_sections, k)
    n, each = shape[k], split_size_or_sections.__index__()
    if each < 0:
        raise size_error(f"split expects split_size be non-negative, but got split_size={each}")
    if each == 0 and n:
        raise size_error(f"split_size can only be 0 if dimension size is 0, but got dimension size of {n}")
    starts = range(0, n, each) if n else [0]
    parts: tuple[Any, ...] = stack_split.split(x, axis=k, bounds=(*starts, n))
    return parts


@function("split_with_sizes")
def split_with_sizes(input: ArrayLike, split_sizes: Sequence[int], dim: int = 0) -> tuple[Array, ...]:
    """Split along `dim` into parts of these sizes, which add up to the size of `dim`."""
    x = one(input)
    k, sizes = dim_of(dim, len(x.shape)), integers((split_sizes,))
    if sum(sizes) != x.shape[k] or min(sizes, default=0) < 0:
        raise size_error(
            f"split_with_sizes expects split_sizes to sum exactly to {x.shape[k]} (input tensor's size at dimension "
            f"{k}), but got split_sizes={lengths(sizes)}"
        )
    bounds = (0, *itertools.accumulate(sizes))
    parts: tuple[Any, ...] = named("SplitWithSizesBackward0", stack_split.split(x, axis=k, bounds=bounds))
    return parts


@function("chunk")
def chunk(input: ArrayLike, chunks: int, dim: int = 0) -> tuple[Array, ...]:
    """Split along `dim` into at most `chunks` parts of one size; the last one may be smaller.

    >>> [x.tolist() for x in chunk(np.arange(5), 3)]
    [[0, 1], [2, 3], [4]]
    """
    x = one(input)
    if not x.shape:
        raise size_error("chunk expects at least a 1-dimensional tensor")
    if chunks <= 0:
        raise size_error(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    n = x.shape[dim_of(dim, len(x.shape))]
    parts: tuple[Any, ...] = split(x, -(-n // chunks) if n else [0] * chunks, dim)
    return parts


@function("unsafe_split")
def unsafe_split(tensor: ArrayLike, split_size_or_sections: int | list[int], dim: int = 0) -> tuple[Operand, ...]:
    """Split as `split` does, into parts in separate memory, which may be updated in place."""
    return _separate(split(tensor, split_size_or_sections, dim))


@function("unsafe_chunk")
def unsafe_chunk(input: ArrayLike, chunks: int, dim: int = 0) -> tuple[Operand, ...]:
    """Split as `chunk` does, into parts in separate memory, which may be updated in place."""
    return _separate(chunk(input, chunks, dim))


def _separate(parts: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple([x.copy() if isinstance(x, np.ndarray) else linear.fresh(x, tag=0) for x in parts])


@function("tensor_split")
def tensor_split(input: ArrayLike, indices_or_sections: int | Sequence[int] | Array, dim: int = 0) -> tuple[Array, ...]:
    """Split along `dim` into a number of parts of nearly one size, or at indices.

    >>> [x.tolist() for x in tensor_split(np.arange(5), 2)], [x.tolist() for x in tensor_split(np.arange(5), (1, 3))]
    ([[0, 1, 2], [3, 4]], [[0], [1, 2], [3, 4]])
    """
    x = one(input)
    if not x.shape:
        raise size_error("tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims")
    k = dim_of(dim, len(x.shape))
    n = x.shape[k]
    where: Any = indices_or_sections
    if isinstance(indices_or_sections, Carrier | np.ndarray) and indices_or_sections.shape:
        where = where.tolist()
    if isinstance(where, tuple | list):
        bounds = [0, *integers((where,)), n]
    else:
        sections = where.__index__()
        if sections <= 0:
            raise size_error(f"number of sections must be larger than 0, got {sections}")
        each, extra = divmod(n, sections)
        bounds = [i * each + min(i, extra) for i in range(sections + 1)]
    spans = [slice(*pair).indices(n) for pair in itertools.pairwise(bounds)]
    return tuple(named("SliceBackward0", slice_along(x, k, a, max(a, b))) for a, b, _ in spans)


def _split_along(name: str, x: Array, indices_or_sections: Any, dim: int, rank: int) -> tuple[Array, ...]:
    if len(x.shape) < rank:
        raise size_error(
            f"torch.{name} requires a tensor with at least {rank} dimension, but got a tensor with {len(x.shape)} "
            "dimensions!"
        )
    if isinstance(indices_or_sections, str):
        text = "received an invalid combination of arguments - got (Tensor, str), but expected ints"
        raise TypeError(located(f"{name}() {text}"))
    if not isinstance(indices_or_sections, tuple | list):
        n, sections = x.shape[dim], indices_or_sections.__index__()
        if sections <= 0 or n % sections:
            raise size_error(
                f"torch.{name} attempted to split along dimension {dim}, but the size of the dimension {n} is not "
                f"divisible by the split_size {sections}!"
            )
    parts: tuple[Any, ...] = tensor_split(x, indices_or_sections, dim)
    return parts


@function("hsplit")
def hsplit(input: ArrayLike, indices_or_sections: int | tuple[int, ...] | list[int]) -> tuple[Array, ...]:
    """Split along the second dimension, or the only one, into parts of equal size or at indices."""
    x = one(input)
    return _split_along("hsplit", x, indices_or_sections, 0 if len(x.shape) < 2 else 1, 1)


@function("vsplit")
def vsplit(input: ArrayLike, indices_or_sections: int | tuple[int, ...] | list[int]) -> tuple[Array, ...]:
    """Split along the first of two or more dimensions into parts of equal size or at indices."""
    return _split_along("vsplit", one(input), indices_or_sections, 0, 2)


@function("dsplit")
def dsplit(input: ArrayLike, indices_or_sections: int | tuple[int, ...] | list[int]) -> tuple[Array, ...]:
    """Split along the third dimension into parts of equal size or at indices."""
    return _split_along("dsplit", one(input), indices_or_sections, 2, 3)


@method("unfold")
def unfold(input: Array, dimension: int, size: int, step: int) -> Array:
    """All windows of `size` elements along a dimension, every `step`-th one; the window is a new last dimension.

    A view. Where windows overlap, it refuses updates in place: RuntimeError.

    >>> unfold(np.arange(5), 0, 3, 2).tolist()
    [[0, 1, 2], [2, 3, 4]]
    """
    x = one(input)
    k = dim_of(dimension, len(x.shape))
    n = x.shape[k] if x.shape else 1
    if not 0 <= size <= n:
        raise size_error(f"maximum size for tensor at dimension {k} is {n} but size is {size}")
    if step <= 0:
        raise size_error(f"step is {step} but must be > 0")
    make_view = partial(_window_views, dim=k, size=size, step=step)
    if isinstance(x, np.ndarray) and x.shape:
        return make_view(x)
    windows = _windows(x, dim=k, size=size, step=step)
    if not hasattr(x, "_as_view") or not x.shape:
        return windows
    result: Array = x._as_view(windows, partial(unfold, dimension=k, size=size, step=step), make_view)
    return result


def _window_views(x: NDArray, dim: int, size: int, step: int) -> NDArray:
    every = sliding_window_view(x, size, dim, writeable=True)
    return every[(*[slice(None)] * dim, slice(None, None, step))]


@one_node("UnfoldBackward0")
def _windows(x: Array, *, dim: int, size: int, step: int) -> Array:
    if not x.shape:
        return linear.slice(linear.reshape(x, shape=(1,)), start=(0,), stop=(size,), step=(1,))
    starts = np.arange(0, x.shape[dim] - size + 1, step)
    result = picked(x, constant(starts[:, None] + np.arange(size), peer_of(x)), dim)
    rank = len(result.shape)
    return linear.transpose(result, perm=(*(k for k in range(rank) if k != dim + 1), dim + 1))


# -- diagonals and triangles ---------------------------------------------------------------------------------------
def _diagonal_start(columns: int, offset: int) -> int:
    return offset if offset >= 0 else -offset * columns


@function("diagonal")
def diagonal(input: ArrayLike, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """Return the diagonal of two dimensions as a new last dimension.

    It is a view if the matrices are in row-major or column-major order. Otherwise it is a copy, which cannot be updated
    in place (RuntimeError).

    >>> diagonal(np.arange(6).reshape(2, 3), 1).tolist()
    [1, 5]
    """
    x = one(input)
    i, j = dim_of(dim1, len(x.shape)), dim_of(dim2, len(x.shape))
    if i == j:
        raise size_error(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    memory = getattr(x, "array", None)
    if not isinstance(memory, np.ndarray):
        return _diagonal(x, offset=offset, dims=(i, j))
    if not memory.flags.c_contiguous and memory.swapaxes(i, j).flags.c_contiguous:
        i, j, offset = j, i, -offset  # the same elements, of the transpose
    result: Any = _diagonal(x, offset=offset, dims=(i, j))
    if not np.may_share_memory(memory, result.array):
        result._frozen = "a diagonal of a matrix that is not contiguous, which is a copy"
    return result


@one_node("DiagonalBackward0")
def _diagonal(x: Array, *, offset: int, dims: tuple[int, int]) -> Array:
    """Return the diagonal: flatten the matrix, and slice it with a step of one row and one element."""
    batch_dims = tuple(k for k in range(len(x.shape)) if k not in dims)
    rows, columns = x.shape[dims[0]], x.shape[dims[1]]
    count = max(min(rows + min(offset, 0), columns - max(offset, 0)), 0)
    first = _diagonal_start(columns, offset) if count else 0
    perm = (*batch_dims, *dims)
    x = x if perm == tuple(range(len(perm))) else linear.transpose(x, perm=perm)
    flat = linear.reshape(x, shape=(*x.shape[:-2], rows * columns))
    last = first + (count - 1) * (columns + 1) + 1 if count else first
    return along(flat, len(batch_dims), first, last, columns + 1)


@function("diag_embed")
def diag_embed(input: ArrayLike, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Array:
    """Return matrices, in `dim1` and `dim2`, with the last dimension on a diagonal and zeros elsewhere.

    >>> diag_embed(np.array([1, 2])).tolist()
    [[1, 0], [0, 2]]
    """
    x = one(input)
    i, j = (dim_of(d, len(x.shape) + 1) for d in (dim1, dim2))
    if i == j:
        raise size_error(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    return _embedded(x, offset=offset, dims=(i, j))


@one_node("DiagEmbedBackward0")
def _embedded(x: Array, *, offset: int, dims: tuple[int, int]) -> Array:
    """Compute the transpose of `_diagonal`: insert `n` zeros between elements, then reshape the vector to a matrix."""
    batch_shape, count = x.shape[:-1], x.shape[-1]
    n = count + abs(offset)
    low = _diagonal_start(n, offset)
    high = n * n - low - ((count - 1) * (n + 1) + 1 if count else 0)
    zeros = (0,) * len(batch_shape)
    zero: Any = {"f": 0.0, "b": False}.get(x.dtype.kind, 0)
    flat = linear.pad(x, low=(*zeros, low), high=(*zeros, high), interior=(*zeros, n), value=zero)
    matrices = linear.reshape(flat, shape=(*batch_shape, n, n))
    rank = len(batch_shape) + 2
    others = iter(range(rank - 2))
    perm = tuple({dims[0]: rank - 2, dims[1]: rank - 1}.get(k, -1) for k in range(rank))
    perm = tuple(next(others) if k < 0 else k for k in perm)
    return matrices if perm == tuple(range(rank)) else linear.transpose(matrices, perm=perm)


@function("diag")
def diag(input: Array, diagonal: int = 0) -> Array:
    """Return the diagonal of a matrix, or the matrix with a vector on its diagonal.

    >>> diag(np.array([1, 2])).tolist(), diag(np.array([[1, 2], [3, 4]])).tolist()
    ([[1, 0], [0, 2]], [1, 4])
    """
    x = one(input)
    if len(x.shape) not in (1, 2):
        raise size_error(f"diag(): Supports 1D or 2D tensors. Got {len(x.shape)}D")
    if len(x.shape) == 1:
        return _embedded(x, offset=diagonal, dims=(0, 1))
    return _diagonal_copy(x, offset=diagonal)


@one_node("DiagonalBackward0")
def _diagonal_copy(x: Array, *, offset: int) -> Array:
    return copied(_diagonal(x, offset=offset, dims=(0, 1)))


@function("diagflat")
def diagflat(input: ArrayLike, offset: int = 0) -> Array:
    """Return the matrix with all elements on a diagonal, and zeros elsewhere."""
    return _flat_diagonal(one(input), offset=offset)


@one_node("DiagEmbedBackward0")
def _flat_diagonal(x: Array, *, offset: int) -> Array:
    return _embedded(linear.reshape(x, shape=(size_of(x),)), offset=offset, dims=(0, 1))


def _matrices(name: str, input: ArrayLike) -> Array:
    x = one(input)
    if len(x.shape) < 2:
        raise size_error(f"{name}: input tensor must have at least 2 dimensions")
    return x


@function("tril", in_place=True)
def tril(input: ArrayLike, diagonal: int = 0) -> Array:
    """Return the lower triangle of the last two dimensions, with zeros above the diagonal.

    >>> tril(np.ones((2, 2))).tolist()
    [[1.0, 0.0], [1.0, 1.0]]
    """
    return named("TrilBackward0", numpy_selection.tril(_matrices("tril", input), diagonal))


@function("triu", in_place=True)
def triu(input: ArrayLike, diagonal: int = 0) -> Array:
    """Return the upper triangle of the last two dimensions, with zeros below the diagonal.

    >>> triu(np.ones((2, 2))).tolist()
    [[1.0, 1.0], [0.0, 1.0]]
    """
    return named("TriuBackward0", numpy_selection.triu(_matrices("triu", input), diagonal))


@method("fill_diagonal_")
def fill_diagonal_(self: Any, fill_value: float, wrap: bool = False) -> Any:
    """The main diagonal of a matrix, or of a value of equal sizes, filled with a number, in place."""
    if wrap or len(self.shape) < 2 or (len(self.shape) > 2 and len(set(self.shape)) > 1):
        raise refuse("fill_diagonal_ with wrap=True, or of dimensions of different sizes")
    index = (np.arange(min(self.shape)),) * len(self.shape)
    self[index] = fill_value
    return self


# -- the elements in another order ---------------------------------------------------------------------------------
@function("flip")
def flip(input: Array, *along: int | Sequence[int], dims: int | Sequence[int] | None = None) -> Array:
    """Reverse the order of the elements along dimensions, as a copy.

    >>> flip(np.arange(3), 0).tolist()
    [2, 1, 0]
    """
    x = one(input)
    return _flipped(x, dims=dims_of(integers(along if dims is None else (dims,)), len(x.shape)))


@one_node("FlipBackward0")
def _flipped(x: Array, *, dims: tuple[int, ...]) -> Array:
    return copied(linear.flip(x, axes=tuple(sorted(dims))) if x.shape else x)


@function("fliplr")
def fliplr(input: ArrayLike) -> Array:
    """Reverse the order of the elements along the second dimension."""
    x = one(input)
    if len(x.shape) < 2:
        raise size_error("Input must be >= 2-d.")
    return flip(x, 1)


@function("flipud")
def flipud(input: ArrayLike) -> Array:
    """Reverse the order of the elements along the first dimension."""
    x = one(input)
    if not x.shape:
        raise size_error("Input must be >= 1-d.")
    return flip(x, 0)


@function("rot90")
def rot90(input: ArrayLike, k: int = 1, dims: int | Sequence[int] = (0, 1)) -> Array:
    """Rotate `k` times by 90 degrees, from the first of two dimensions towards the second, as a copy.

    >>> rot90(np.arange(4).reshape(2, 2)).tolist()
    [[1, 3], [0, 2]]
    """
    x = one(input)
    args = integers((dims,))
    if len(args) != 2:
        raise size_error(f"expected total rotation dims == 2, but got dims = {len(args)}")
    if len(x.shape) < 2:
        raise size_error(f"expected total dims >= 2, but got total dims = {len(x.shape)}")
    i, j = (dim_of(d, len(x.shape)) for d in args)
    if i == j:
        raise size_error(f"expected rotation dims to be different, but got dim0 = {args[0]} and dim1 = {args[1]}")
    return _rotated(x, iterations=k % 4, dims=(i, j))


@one_node("Rot90Backward0")
def _rotated(x: Array, *, iterations: int, dims: tuple[int, int]) -> Array:
    i, j = dims
    perm = list(range(len(x.shape)))
    perm[i], perm[j] = j, i
    if iterations == 2:
        x = linear.flip(x, axes=tuple(sorted(dims)))
    elif iterations == 1:
        x = linear.transpose(linear.flip(x, axes=(j,)), perm=tuple(perm))
    elif iterations == 3:
        x = linear.flip(linear.transpose(x, perm=tuple(perm)), axes=(j,))
    return copied(x)


@function("roll")
def roll(input: Array, shifts: int | Sequence[int], dims: int | Sequence[int] | None = None) -> Array:
    """Shift the elements along `dims`: elements that leave at one end enter at the other end.

    >>> roll(np.arange(4), 1).tolist()
    [3, 0, 1, 2]
    """
    x = one(input)
    by = integers((shifts,))
    if not by:
        raise size_error("`shifts` required")
    if dims is None and len(by) == 1:
        return _rolled(x, shifts=by, dims=None)
    along_dims = () if dims is None else integers((dims,))
    if len(by) != len(along_dims):
        raise size_error(f"shifts and dimensions must align. shifts: {len(by)}, dims:{len(along_dims)}")
    if not x.shape:
        raise index_error(f"Dimension specified as {along_dims[0]} but tensor has no dimensions")
    return _rolled(x, shifts=by, dims=tuple(dim_of(d, len(x.shape)) for d in along_dims))


@one_node("RollBackward0")
def _rolled(x: Array, *, shifts: tuple[int, ...], dims: tuple[int, ...] | None) -> Array:
    if dims is None:
        flat = linear.reshape(x, shape=(math.prod(x.shape),))
        return linear.reshape(_rolled_once(flat, shifts[0], 0), shape=x.shape)
    for by, k in zip(shifts, dims):
        x = _rolled_once(x, by, k)
    return x


def _rolled_once(x: Array, by: int, dim: int) -> Array:
    n = x.shape[dim] if x.shape else 0
    cut = -by % n if n else 0
    return linear.concatenate(along(x, dim, cut, n), along(x, dim, 0, cut), axis=dim) if cut else copied(x)
