"""Functions that choose elements by integer indices, where negative ones count from the end, or by conditions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from tracegrad.avals import LITERALS, is_literal, weak_dtype
from tracegrad.errors import UnsupportedError, located
from tracegrad.numpy_api import boolean_mask as numpy_chosen
from tracegrad.numpy_api.duplicate_indices import replaced_nothing
from tracegrad.numpy_api.joining import along, picked
from tracegrad.numpy_api.operands import array, arrays, constant, operand, operands, peer_of, size_of, to_dtype
from tracegrad.numpy_api.selection import positions
from tracegrad.ops.core.op import named, one_node
from tracegrad.ops.elementwise import table as elementwise
from tracegrad.ops.indexing import gather_scatter as ops
from tracegrad.ops.reduce import scans
from tracegrad.ops.reduce.reductions import reduce_any
from tracegrad.ops.shape import linear
from tracegrad.ops.shape.stack_split import stack
from tracegrad.torch.functions.core.dims import (
    broadcast_shapes,
    dim_of,
    fitting,
    index_error,
    lengths,
    one,
    size_error,
    type_name,
)
from tracegrad.torch.functions.core.operands import of_one_kind
from tracegrad.torch.functions.core.promotion import common_dtype, default_dtype, require_one_dtype
from tracegrad.torch.functions.core.registry import function, method
from tracegrad.torch.functions.indexing.shapes import expanded
from tracegrad.typing import Array, ArrayLike, DType, DTypeLike

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tracegrad.ops.core.dispatch import Operand

Result = TypeVar("Result")


def _integers(name: str, index: Array, label: str = "index") -> Array:
    if index.dtype.kind not in "iu":
        raise RuntimeError(located(f"{name}(): Expected dtype int32/int64 for {label}, got {index.dtype}"))
    return to_dtype(index, "int64")


def vector_of(name: str, index: Array) -> Array:
    if len(index.shape) > 1:
        raise index_error(
            f"{name}(): Index is supposed to be a vector, but got dim: {len(index.shape)} and size: "
            f"{lengths(index.shape)}"
        )
    index = _integers(name, index)
    return index if index.shape else linear.reshape(index, shape=(1,))


# -- reading at indices --------------------------------------------------------------------------------------------
@function("take")
def take(input: Array, index: Array) -> Array:
    """Return elements by their indices into the flattened input; the result has the shape of `index`.

    >>> take(np.array([[1, 2], [3, 4]]), np.array([0, 3])).tolist()
    [1, 4]
    """
    x, index = arrays(input, index)
    return _take(x, _integers("take", index))


def _elements(x: Array, index: Array) -> Array:
    """Return the elements of the flat array at the indices."""
    return ops.gather(linear.reshape(x, shape=(size_of(x),)), index, axes=(0,))


_take, _chosen = one_node("TakeBackward0")(_elements), one_node("MaskedSelectBackward0")(_elements)


def index_grid(index: Any, dim: int, rank: int) -> list[Operand]:
    """Return the indices of the elements of `index` for every dimension: `index` along `dim`, else the position."""
    spread = []
    for d in range(rank):
        if d == dim:
            spread.append(index)
        else:
            column = tuple(index.shape[d] if k == d else 1 for k in range(rank))
            spread.append(
                linear.broadcast_to(linear.reshape(positions(index.shape[d]), shape=column), shape=index.shape)
            )
    return spread


def within_bounds(op: Callable[..., Result], x: Array, *operands: object, **params: object) -> Result:
    """Gather from `x`, or scatter into it: for a Tensor, an index out of bounds is a RuntimeError."""
    try:
        return op(x, *operands, **params)
    except IndexError as error:
        if getattr(x, "common_dtype", None) is None:
            raise
        raise RuntimeError(str(error).replace("axis", "dimension")) from None


def checked_index(name: str, x: Array, index: Array, dim: int) -> Array:
    index = _integers(name, index)
    if not size_of(index):
        return index
    if len(index.shape) != len(x.shape) and max(len(index.shape), len(x.shape)) > 1:
        raise size_error("Index tensor must have the same number of dimensions as input tensor")
    for d, (n, m) in enumerate(zip(index.shape, x.shape)):
        if d != dim and n > m:
            raise size_error(
                f"Size does not match at dimension {d} expected index {lengths(index.shape)} to be no larger than self "
                f"{lengths(x.shape)} apart from dimension {dim}"
            )
    return index


@function("gather")
def gather(input: Array, dim: int, index: ArrayLike, *, sparse_grad: bool = False) -> Array:
    """Return the elements at `index` along `dim`: `x[index[i, j], j]` for dim 0. UnsupportedError for `sparse_grad`.

    `index` has as many dimensions as the input, and is not larger in the other dimensions. The result has its shape.

    >>> gather(np.array([[1, 2], [3, 4]]), 1, np.array([[0, 0], [1, 0]])).tolist()
    [[1, 1], [4, 3]]
    """
    if sparse_grad:
        raise UnsupportedError(located("gather: sparse_grad is not supported; gradients are dense"))
    x, index = arrays(input, index)
    k = dim_of(dim, len(x.shape))
    index = checked_index("gather", x, index, k)
    if not size_of(index):
        return linear.reshape(along(linear.reshape(x, shape=(size_of(x),)), 0, 0, 0), shape=index.shape)
    if not x.shape:
        return _take(x, index)
    grid = index_grid(index, k, len(x.shape))
    return named("GatherBackward0", within_bounds(ops.gather, x, *grid, axes=tuple(range(len(x.shape)))))


@function("take_along_dim")
def take_along_dim(input: Array, indices: Array, dim: int | None = None) -> Array:
    """Gather with broadcast in the other dimensions; without `dim`, indices count the flattened input.

    >>> x = np.array([[3, 1], [2, 4]])
    >>> take_along_dim(x, np.argsort(x, 1), 1).tolist()
    [[1, 3], [2, 4]]
    """
    x, index = arrays(input, indices)
    if index.dtype != np.int64:
        raise RuntimeError(
            located(f"torch.take_along_dim(): dtype of indices should be Long but got {type_name(index.dtype)}")
        )
    if dim is None:
        return _take(x, linear.reshape(index, shape=(size_of(index),)))
    if len(index.shape) != len(x.shape):
        raise size_error(
            "torch.take_along_dim(): input and indices should have the same number of dimensions, but got "
            f"{len(x.shape)} dimensions for input, and {len(index.shape)} dimensions for indices"
        )
    k = dim_of(dim, len(x.shape))
    common = list(broadcast_shapes(*((*v.shape[:k], 1, *v.shape[k + 1 :]) for v in (x, index))))
    wanted = [(*common[:k], v.shape[k], *common[k + 1 :]) for v in (x, index)]
    x, index = (v if v.shape == w else expanded(v, w) for v, w in zip((x, index), wanted))
    return gather(x, k, index)


@function("index_select")
def index_select(input: Array, dim: int, index: Array) -> Array:
    """Return the values at a vector of indices along `dim`.

    >>> index_select(np.array([[1, 2], [3, 4]]), 1, np.array([1])).tolist()
    [[2], [4]]
    """
    x, index = arrays(input, index)
    k = dim_of(dim, len(x.shape))
    index = vector_of("index_select", index)
    if not x.shape:
        return _take(x, linear.reshape(index, shape=()))
    return named("IndexSelectBackward0", picked(x, index, 0)) if k == 0 else _index_select(x, index, dim=k)


@one_node("IndexSelectBackward0")
def _index_select(x: Array, index: object, *, dim: int) -> Array:
    return picked(x, index, dim)


# -- by a condition ------------------------------------------------------------------------------------------------
def _mask(name: str, mask: Array) -> Array:
    if mask.dtype.kind != "b":
        raise RuntimeError(located(f"{name} only supports boolean masks, but got mask with dtype {mask.dtype}"))
    return mask


@function("where", methods=False)
def where(condition: Any, input: Any = None, other: Any = None) -> Any:
    """Return `input` where the condition holds, and `other` elsewhere.

    With the condition alone, the indices where it holds are returned.

    >>> where(np.array([True, False]), 1.0, np.zeros(2)).tolist()
    [1.0, 0.0]
    """
    if input is None and other is None:
        return nonzero(condition, as_tuple=True)
    args = [condition, input, other]
    if not of_one_kind(args):
        dtype = _dtype_of_numbers(condition, input, other)
        args = operands(*args)
        args[0] = array(args[0], peer_of(*args))
        if dtype is not None:
            args[1:] = [to_dtype(array(x, peer_of(*args)), dtype) for x in args[1:]]
    if args[0].dtype.kind != "b":
        raise RuntimeError(
            located(f"where expected condition to be a boolean tensor, but got a tensor with dtype {args[0].dtype}")
        )
    return elementwise.where(*args)


def _dtype_of_numbers(condition: object, *xs: object) -> DType | None:
    """Return PyTorch's dtype for two Python numbers and a Tensor of conditions, if it is not NumPy's."""
    if default_dtype() == np.float64:
        return None
    numbers = all(type(x) in LITERALS or getattr(x, "weak", False) for x in xs)
    if getattr(condition, "common_dtype", None) is None or not numbers:
        return None
    return common_dtype([(weak_dtype(x), 0) for x in xs])


@method("where")
def where_method(self: Array, condition: ArrayLike, other: ArrayLike) -> Array:
    """The Tensor where the condition holds, else `other`."""
    result: Array = where(condition, self, other)
    return result


@function("nonzero")
def nonzero(input: ArrayLike, *, as_tuple: bool = False) -> Any:
    """Return the indices of the elements that are not zero, one per row.

    >>> nonzero(np.array([[1, 0], [0, 2]])).tolist()
    [[0, 0], [1, 1]]
    """
    x = one(input)
    result = numpy_chosen.known(x)
    peer = peer_of(x)
    if result is None:
        axis_indices = numpy_chosen.nonzero(x if x.shape else linear.reshape(x, shape=(1,)))
        rows = stack(*axis_indices, axis=1)
        return axis_indices if as_tuple else rows if x.shape else rows[:, :0]
    if as_tuple:
        return tuple(constant(i, peer) for i in np.atleast_1d(result).nonzero())
    return constant(np.argwhere(result), peer)


@function("argwhere")
def argwhere(input: ArrayLike) -> Array:
    """Return the indices of the elements that are not zero, one per row."""
    result: Array = nonzero(input)
    return result


@function("masked_select")
def masked_select(input: Array, mask: Array) -> Array:
    """Return the elements where the mask is true, as a vector.

    >>> masked_select(np.array([1, 2, 3]), np.array([True, False, True])).tolist()
    [1, 3]
    """
    x, chosen = arrays(input, mask)
    mask = _mask("masked_select", chosen)
    shape = broadcast_shapes(x.shape, mask.shape)
    x = x if x.shape == shape else expanded(x, shape)
    known = numpy_chosen.known(mask)
    if known is None:
        every = linear.broadcast_to(mask, shape=shape)
        return _chosen(x, *numpy_chosen.indices(linear.reshape(every, shape=(size_of(x),))))
    return _chosen(x, constant(np.flatnonzero(np.broadcast_to(known, shape)), peer_of(x)))


def as_dtype(value: Any, dtype: DTypeLike) -> Array:
    return np.asarray(value).astype(dtype).item() if is_literal(value) else to_dtype(value, dtype)


@function("masked_fill", in_place=True)
def masked_fill(input: Array, mask: Array, value: Array) -> Array:
    """Return `value` where the mask is true, and the input elsewhere.

    The value is a number, or an array without dimensions.

    >>> masked_fill(np.array([1.0, 2.0]), np.array([True, False]), -np.inf).tolist()
    [-inf, 2.0]
    """
    x, chosen, filled = with_value(input, mask, value)
    _mask("masked_fill_", chosen)
    if not is_literal(filled) and filled.shape:
        raise size_error(
            "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with "
            f"{len(filled.shape)} dimension(s)."
        )
    filled = as_dtype(filled if getattr(x, "common_dtype", None) is None else fitting(filled, x.dtype), x.dtype)
    if is_literal(filled):
        return named("MaskedFillBackward0", elementwise.where(chosen, filled, x))
    return _filled(x, chosen, filled)


def with_value(input: ArrayLike, index: object, value: ArrayLike) -> tuple[Any, Any, Any]:
    peer = peer_of(input, index, value)
    return array(input, peer), array(index, peer), operand(value, peer)


@one_node("MaskedFillBackward1")
def _filled(x: Array, mask: Array, value: Array) -> Array:
    return elementwise.where(mask, value, x)


@function("masked_scatter", in_place=True)
def masked_scatter(input: Array, mask: Array, source: Array) -> Array:
    """Return elements of `source`, in their order, where the mask is true, and the input elsewhere.

    >>> masked_scatter(np.zeros(3), np.array([True, False, True]), np.array([1.0, 2.0])).tolist()
    [1.0, 0.0, 2.0]
    """
    text = "masked_scatter: expected self and source to have same dtypes but got{A} and {B}"
    require_one_dtype(input, source, text)
    x, chosen, values = arrays(input, mask, source)
    shape = broadcast_shapes(x.shape, chosen.shape)
    result: Array = _masked_scatter(
        x if x.shape == shape else expanded(x, shape), _mask("masked_scatter", chosen), to_dtype(values, x.dtype)
    )
    return result


@one_node("MaskedScatterBackward0")
def _masked_scatter(x: Array, mask: Array, source: Array) -> Array:
    mask = linear.broadcast_to(mask, shape=x.shape)
    flat = linear.reshape(mask, shape=(size_of(x),))
    count = scans.cumsum(linear.cast(flat, dtype="int64"), axis=0)
    number = linear.reshape(elementwise.where(flat, elementwise.subtract(count, 1), 0), shape=x.shape)
    if not size_of(source):
        return replaced_nothing(x, source)
    return elementwise.where(mask, ops.gather(linear.reshape(source, shape=(size_of(source),)), number, axes=(0,)), x)


@function("isin", methods=False)
def isin(elements: object, test_elements: object, *, assume_unique: bool = False, invert: bool = False) -> Array:
    """Return whether each element is one of the test elements.

    >>> isin(np.array([1, 2, 3]), np.array([2, 3])).tolist()
    [False, True, True]
    """
    x, tested = arrays(elements, test_elements)
    column = linear.reshape(x, shape=(*x.shape, 1))
    result = reduce_any(
        elementwise.equal(column, linear.reshape(tested, shape=(size_of(tested),))), axes=(len(x.shape),)
    )
    return elementwise.logical_not(result) if invert else result


@function("unravel_index", methods=False)
def unravel_index(indices: ArrayLike, shape: Sequence[int]) -> tuple[Array, ...]:
    """Convert indices into the flattened array to indices along each dimension of `shape`.

    An index out of bounds is not an error, as in PyTorch.

    >>> [int(x) for x in unravel_index(np.array(5), (2, 3))]
    [1, 2]
    """
    i = one(indices)
    if i.dtype.kind not in "iu":
        raise TypeError(located(f"expected 'indices' to be integer dtype, but got {i.dtype}"))
    sizes = [n.__index__() for n in shape] if np.iterable(shape) else [shape.__index__()]
    if any(n < 0 for n in sizes):
        raise ValueError(located(f"'shape' cannot have negative values, but got {tuple(sizes)}"))
    if 0 in sizes and size_of(i):
        raise RuntimeError(located("ZeroDivisionError"))
    i, result = to_dtype(i, "int64"), []
    for n in reversed(sizes):
        result.append(elementwise.remainder(i, n))
        i = elementwise.floor_divide(i, n)
    return tuple(reversed(result))
