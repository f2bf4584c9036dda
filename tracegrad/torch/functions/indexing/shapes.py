"""Functions that change the shape or the order of dimensions: views of the same elements wherever possible."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import Size
from tracegrad.errors import located
from tracegrad.numpy_api.registry import refuse
from tracegrad.numpy_api.shapes import permuted, reshaped
from tracegrad.ops.core.op import named, one_node
from tracegrad.ops.shape import linear
from tracegrad.torch.functions.core.dims import (
    broadcast_shapes,
    copied,
    dim_of,
    dims_of,
    integers,
    lengths,
    one,
    size_error,
)
from tracegrad.torch.functions.core.formats import check_format
from tracegrad.torch.functions.core.registry import function, method
from tracegrad.typing import Array, ArrayLike, Axes

if TYPE_CHECKING:
    from collections.abc import Sequence


# -- another shape -------------------------------------------------------------------------------------------------
def wanted_shape(shape: tuple[int, ...], old: tuple[int, ...]) -> tuple[int, ...]:
    """Replace the -1 of `shape` by the size that remains for a value of shape `old`."""
    size = math.prod(old)
    known = math.prod(n for n in shape if n != -1)
    if shape.count(-1) > 1:
        raise size_error("only one dimension can be inferred")
    if any(n < -1 for n in shape):
        raise size_error(f"invalid shape dimension {min(shape)}")
    if -1 not in shape:
        fits = known == size
    elif known == 0 == size:
        raise size_error(
            f"cannot reshape tensor of 0 elements into shape {lengths(shape)} because the unspecified dimension size "
            "-1 can be any value and is ambiguous"
        )
    else:
        fits = known > 0 and size % known == 0
    if not fits:
        raise size_error(f"shape '{lengths(shape)}' is invalid for input of size {size}")
    return tuple(size // known if n == -1 else n for n in shape)


def _copies(x: Array, result: Array) -> bool:
    """Whether a reshape had to move elements in memory."""
    before, after = getattr(x, "array", x), getattr(result, "array", result)
    if not (isinstance(before, np.ndarray) and isinstance(after, np.ndarray)):
        return False
    return not before.flags.c_contiguous and before.size > 0 and not np.may_share_memory(before, after)


@function("reshape")
def reshape(input: Any, *sizes: int | Sequence[int], shape: object = None) -> Array:
    """Return the elements in row-major order in another shape, sizes or one sequence; -1 is the remaining size.

    It is a view if the memory layout allows one. RuntimeError if the sizes do not fit.

    >>> reshape(np.arange(6), (2, -1)).shape
    (2, 3)
    """
    x = one(input)
    result = reshaped(x, wanted_shape(integers(sizes if shape is None else (shape,)), x.shape))
    return named("UnsafeViewBackward0" if _copies(x, result) else "ViewBackward0", result)


@method("view")
def view(self: Array, *sizes: int | Sequence[int]) -> Array:
    """The same elements in another shape, sharing memory; RuntimeError if the sizes or the layout do not fit.

    >>> view(np.arange(6), 3, 2).shape
    (3, 2)
    """
    if len(sizes) == 1 and not hasattr(sizes[0], "__index__") and not isinstance(sizes[0], tuple | list):
        raise refuse("view as another dtype", "use x.to(dtype)")
    result = reshaped(self, wanted_shape(integers(sizes), self.shape))
    if _copies(self, result):
        raise size_error(
            "view size is not compatible with input tensor's size and stride (at least one dimension spans across two "
            "contiguous subspaces). Use .reshape(...) instead."
        )
    return named("ViewBackward0", result)


@method("view_as")
def view_as(self: Array, other: Array) -> Array:
    """`view` in the shape of another."""
    return view(self, other.shape)


@method("reshape_as")
def reshape_as(self: object, other: Array) -> Array:
    """`reshape` to the shape of another."""
    return reshape(self, other.shape)


@function("flatten")
def flatten(input: ArrayLike, start_dim: int = 0, end_dim: int = -1) -> Array:
    """Merge the dimensions from `start_dim` to `end_dim`.

    A value without dimensions gets one.

    >>> flatten(np.zeros((2, 3, 4)), 1).shape
    (2, 12)
    """
    x = one(input)
    first, last = dim_of(start_dim, len(x.shape)), dim_of(end_dim, len(x.shape))
    if first > last:
        raise size_error("flatten() has invalid args: start_dim cannot come after end_dim")
    if first == last and x.shape:
        return x
    return reshape(x, (*x.shape[:first], math.prod(x.shape[first : last + 1]), *x.shape[last + 1 :]))


@function("ravel")
def ravel(input: Array) -> Array:
    """Return the elements as one dimension."""
    return flatten(input)


@function("unflatten")
def unflatten(input: ArrayLike, dim: int, sizes: int | Sequence[int]) -> Array:
    """Split one dimension into several of the given sizes, one of which may be -1.

    >>> unflatten(np.zeros((2, 12)), 1, (3, -1)).shape
    (2, 3, 4)
    """
    x = one(input)
    k = dim_of(dim, len(x.shape))
    split, n = integers((sizes,)), x.shape[k]
    known = math.prod(m for m in split if m != -1)
    if (n % known if known else n) if -1 in split else known != n:
        raise size_error(
            f"unflatten: Provided sizes {lengths(split)} don't multiply up to the size of dim {k} ({n}) in the input "
            "tensor"
        )
    return reshape(x, (*x.shape[:k], *wanted_shape(split, (n,)), *x.shape[k + 1 :]))


# -- dimensions of one element -------------------------------------------------------------------------------------
@function("squeeze")
def squeeze(input: ArrayLike, dim: Axes = None) -> Array:
    """Remove dimensions of size one: all of them, or those among `dim`.

    >>> squeeze(np.zeros((1, 2, 1))).shape, squeeze(np.zeros((1, 2, 1)), (0, 1)).shape
    ((2,), (2, 1))
    """
    x = one(input)
    rank = len(x.shape)
    dims = tuple(range(rank)) if dim is None else dims_of(dim, rank)
    kind = 0 if dim is None else 2 if isinstance(dim, tuple | list) else 1
    result = reshaped(x, tuple(n for k, n in enumerate(x.shape) if n != 1 or k not in dims))
    return named(f"SqueezeBackward{kind}", result)


@function("unsqueeze")
def unsqueeze(input: ArrayLike, dim: int) -> Array:
    """Insert a dimension of size one at `dim`.

    >>> unsqueeze(np.zeros(3), -1).shape
    (3, 1)
    """
    x = one(input)
    k = dim_of(dim, len(x.shape) + 1)
    return named("UnsqueezeBackward0", reshaped(x, (*x.shape[:k], 1, *x.shape[k:])))


def _at_least(tensors: tuple[Any, ...], grow: Any) -> Array | tuple[Array, ...]:
    args = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], tuple | list) else tensors
    grown = tuple(grow(one(x)) for x in args)
    return grown if args is not tensors or len(grown) != 1 else grown[0]


def _one_dim(x: Array) -> Array:
    return x if x.shape else named("ViewBackward0", reshaped(x, (1,)))


def _two_dims(x: Array) -> Array:
    if len(x.shape) == 1:
        return unsqueeze(x, 0)
    return x if x.shape else named("ViewBackward0", reshaped(x, (1, 1)))


def _three_dims(x: Array) -> Array:
    if len(x.shape) == 2:
        return unsqueeze(x, -1)
    if len(x.shape) == 1:
        return named("UnsqueezeBackward0", reshaped(x, (1, *x.shape, 1)))
    return x if x.shape else named("ViewBackward0", reshaped(x, (1, 1, 1)))


@function("atleast_1d", methods=False)
def atleast_1d(*tensors: object) -> Array | tuple[Array, ...]:
    """Return values with at least one dimension."""
    return _at_least(tensors, _one_dim)


@function("atleast_2d", methods=False)
def atleast_2d(*tensors: object) -> Array | tuple[Array, ...]:
    """Return values with at least two dimensions; new dimensions come first."""
    return _at_least(tensors, _two_dims)


@function("atleast_3d", methods=False)
def atleast_3d(*tensors: object) -> Any:
    """Return values with at least three dimensions; a vector becomes the middle dimension."""
    return _at_least(tensors, _three_dims)


# -- repeated without copying --------------------------------------------------------------------------------------
def expanded(x: Array, sizes: tuple[int, ...]) -> Array:
    """Broadcast `x` to `sizes`, where -1 keeps the size of a dimension."""
    new = len(sizes) - len(x.shape)
    if new < 0:
        raise size_error(
            f"expand(Tensor{{{lengths(x.shape)}}}, size={lengths(sizes)}): the number of sizes provided ({len(sizes)}) "
            f"must be greater or equal to the number of dimensions in the tensor ({len(x.shape)})"
        )
    wanted = tuple(x.shape[k - new] if n == -1 and k >= new else n for k, n in enumerate(sizes))
    for k, (n, m) in enumerate(zip(wanted[new:], x.shape), new):
        if m not in (1, n):
            raise size_error(
                f"The expanded size of the tensor ({n}) must match the existing size ({m}) at non-singleton dimension "
                f"{k}.  Target sizes: {lengths(sizes)}.  Tensor sizes: {lengths(x.shape)}"
            )
    if min(wanted, default=0) < 0:
        raise size_error(
            "The expanded size of the tensor (-1) isn't allowed in a leading, non-existing dimension "
            f"{wanted.index(-1)}"
        )
    # Without repetition each element has its own memory, so the result may be written to.
    is_unrepeated = 0 not in wanted and math.prod(x.shape) == math.prod(wanted)
    return named("ExpandBackward0", (linear.reshape if is_unrepeated else linear.broadcast_to)(x, shape=wanted))


@method("expand")
def expand(self: Array, *sizes: int | Sequence[int]) -> Array:
    """Repeated along dimensions of size one and along new leading ones; -1 keeps a size.

    >>> expand(np.array([[1.0], [2.0]]), -1, 3).tolist()
    [[1.0, 1.0, 1.0], [2.0, 2.0, 2.0]]
    """
    return expanded(self, integers(sizes))


@method("expand_as")
def expand_as(self: Array, other: Array) -> Array:
    """`expand` to the shape of another."""
    return expanded(self, other.shape)


@function("broadcast_to")
def broadcast_to(input: ArrayLike, size: object) -> Array:
    """Repeat along dimensions of size one and along new leading dimensions, to the shape `size`."""
    return expanded(one(input), integers((size,)))


@function("broadcast_tensors", methods=False)
def broadcast_tensors(*tensors: Array) -> tuple[Array, ...]:
    """Broadcast values to one shape.

    >>> [x.shape for x in broadcast_tensors(np.zeros(3), np.zeros((2, 1)))]
    [(2, 3), (2, 3)]
    """
    args = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], tuple | list) else tensors
    xs = [one(x) for x in args]
    shape = broadcast_shapes(*(x.shape for x in xs))
    return tuple(expanded(x, shape) for x in xs)


@function("broadcast_shapes", methods=False)
def broadcast_shapes_(*shapes: tuple[int, ...]) -> Size:
    """Return the shape to which shapes broadcast.

    ValueError for a negative size.

    >>> broadcast_shapes_((3, 1), (4,))
    torch.Size([3, 4])
    """
    sizes = [integers((s,)) for s in shapes]
    if any(n < 0 for shape in sizes for n in shape):
        raise ValueError(located("Attempting to broadcast a dimension with negative length!"))
    return Size(broadcast_shapes(*sizes))


@method("sum_to_size")
def sum_to_size(self: Array, *size: object) -> Array:
    """The sum over dimensions so that `size` is left: the transpose of `expand`.

    >>> sum_to_size(np.ones((2, 3)), 1, 3).tolist()
    [[2.0, 2.0, 2.0]]
    """
    wanted = integers(size)
    new = len(self.shape) - len(wanted)
    if new < 0 or any(n not in (1, m) for n, m in zip(wanted, self.shape[new:])):
        raise size_error(f"size {{{lengths(wanted)}}} is not expandable to size {{{lengths(self.shape)}}}.")
    return self if wanted == self.shape else _summed(self, wanted=wanted)


@one_node("SumBackward1")
def _summed(x: Array, *, wanted: tuple[int, ...]) -> Array:
    new = len(x.shape) - len(wanted)
    axes = tuple(k for k, m in enumerate(x.shape) if k < new or wanted[k - new] != m)
    return linear.reshape(linear.reduce_sum(x, axes=axes), shape=wanted)


# -- dimensions in another order -----------------------------------------------------------------------------------
@function("permute")
def permute(input: ArrayLike, *sizes: int | Sequence[int], dims: int | Sequence[int] | None = None) -> Array:
    """Reorder the dimensions. They are passed one by one, or as `dims`.

    >>> permute(np.zeros((2, 3, 4)), (2, 0, 1)).shape
    (4, 2, 3)
    """
    x = one(input)
    rank, args = len(x.shape), integers(sizes if dims is None else (dims,))
    if len(args) != rank:
        raise size_error(
            "permute(sparse_coo): number of dimensions in the tensor input does not match the length of the desired "
            f"ordering of dimensions i.e. input.dim() = {rank} is not equal to len(dims) = {len(args)}"
        )
    perm = tuple(dim_of(d, rank) for d in args)
    if len(set(perm)) != rank:
        raise size_error("permute(): duplicate dims are not allowed.")
    return named("PermuteBackward0", permuted(x, perm))


@function("transpose", "swapdims")
def transpose(input: ArrayLike, dim0: int, dim1: int) -> Array:
    """Exchange two dimensions.

    >>> transpose(np.zeros((2, 3, 4)), 0, -1).shape
    (4, 3, 2)
    """
    x = one(input)
    rank = len(x.shape)
    i, j = dim_of(dim0, rank), dim_of(dim1, rank)
    perm = list(range(rank))
    if rank:
        perm[i], perm[j] = j, i
    return named("TransposeBackward0", permuted(x, tuple(perm)))


@function("swapaxes")
def swapaxes(input: ArrayLike, axis0: int, axis1: int) -> Array:
    """Swap two dimensions, as `transpose` does."""
    return transpose(input, axis0, axis1)


@function("t")
def t(input: ArrayLike) -> Array:
    """Transpose a matrix; return values of fewer dimensions unchanged."""
    x = one(input)
    rank = len(x.shape)
    if rank > 2:
        raise size_error(f"t() expects a tensor with <= 2 dimensions, but self is {rank}D")
    return named("TBackward0", permuted(x, tuple(reversed(range(rank)))))


@function("movedim", "moveaxis")
def movedim(input: ArrayLike, source: int | Sequence[int], destination: int | Sequence[int]) -> Array:
    """Move the dimensions `source` to the places `destination`; the others keep their order.

    >>> movedim(np.zeros((2, 3, 4)), 0, -1).shape
    (3, 4, 2)
    """
    x = one(input)
    rank = len(x.shape)
    args = [integers((v,)) for v in (source, destination)]
    if len(args[0]) != len(args[1]):
        raise size_error(
            f"movedim: Invalid source or destination dims: source ({lengths(args[0])} dims) should contain the same "
            f"number of dims as destination ({lengths(args[1])} dims)"
        )
    old, new = (tuple(dim_of(d, rank) for d in dims) for dims in args)
    for label, dims, original in (("source", old, args[0]), ("destination", new, args[1])):
        if len(set(dims)) != len(dims):
            raise size_error(f"movedim: repeated dim in `{label}` ({lengths(original)})")
    perm = [k for k in range(rank) if k not in old]
    for to, k in sorted(zip(new, old)) if rank else ():
        perm.insert(to, k)
    return named("PermuteBackward0", permuted(x, tuple(perm)))


# -- unchanged values ----------------------------------------------------------------------------------------------
@function("clone", methods=False)
def clone(input: ArrayLike, *, memory_format: object = None) -> Array:
    """Copy a value. Derivatives flow through the copy.

    >>> clone(np.ones(2)).tolist()
    [1.0, 1.0]
    """
    check_format("clone", memory_format)
    x = one(input)
    return x.clone() if hasattr(x, "clone") else copied(x)


@function("detach", methods=False)
def detach(input: ArrayLike) -> Array:
    """Return the value without derivatives; the result for a Tensor shares its memory.

    >>> detach(np.ones(2)).tolist()
    [1.0, 1.0]
    """
    x = one(input)
    return x.detach() if hasattr(x, "detach") else linear.stop_gradient(x)
