"""Index updates (`scatter`, `index_add`, `index_put`, ...): write elements at indices, into a new value.

Names with a trailing underscore write in place. At an index that occurs twice the last value counts; functions with
"add" in their names add all values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import is_literal
from tracegrad.errors import located
from tracegrad.numpy_api.indexing import plan, setitem
from tracegrad.numpy_api.joining import along
from tracegrad.numpy_api.operands import arrays, constant, peer_of, to_dtype
from tracegrad.ops.core.op import Carrier, one_node
from tracegrad.ops.elementwise.table import add, multiply
from tracegrad.ops.indexing import gather_scatter as ops
from tracegrad.ops.shape import linear
from tracegrad.torch.functions.core.dims import dim_of, lengths, size_error
from tracegrad.torch.functions.core.promotion import require_one_dtype
from tracegrad.torch.functions.core.registry import FUNCTIONS, function
from tracegrad.torch.functions.indexing.select import (
    as_dtype,
    checked_index,
    index_grid,
    vector_of,
    with_value,
    within_bounds,
)
from tracegrad.torch.functions.indexing.shapes import expanded
from tracegrad.typing import Array, ArrayLike, Number

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Operand


_INDEX_PUT_DTYPES = (
    "Index put requires the source and destination dtypes match, got {A} for the destination and {B} for the source."
)
_COPIED = "self and source expected to have the same dtype, but got (self) {A} and (source) {B}"


# -- writing at a vector of indices --------------------------------------------------------------------------------
def along_dim(
    name: str,
    input: ArrayLike,
    dim: int,
    index: Any,
    source: ArrayLike,
    text: str = "self ({A}) and source ({B}) must have the same scalar type",
) -> tuple[Array, int, Array, Array]:
    require_one_dtype(input, source, f"{name}(): {text}")
    x, index, source = arrays(input, index, source)
    k = dim_of(dim, len(x.shape))
    index = vector_of(name, index)
    if source.shape and x.shape and source.shape[k] != index.shape[0]:
        raise size_error(
            f"{name}(): Number of indices ({index.shape[0]}) should be equal to source.size(dim): "
            f"({source.shape[k] if k < len(source.shape) else 1}), for dim: {k}"
        )
    if (*source.shape[:k], *source.shape[k + 1 :]) != (*x.shape[:k], *x.shape[k + 1 :]):
        raise size_error(
            f"{name}(): source {lengths(source.shape)} and destination {lengths(x.shape)} must have the same shape "
            f"apart from dim {k}"
        )
    return x, k, index, to_dtype(source, x.dtype)


@function("index_add", in_place=True)
def index_add(input: ArrayLike, dim: int, index: Array, source: ArrayLike, *, alpha: float = 1) -> Array:
    """Add `alpha * source` to the values at a vector of indices along `dim`; equal indices add up.

    >>> import numpy as np
    >>> index_add(np.zeros(3), 0, np.array([0, 2, 0]), np.ones(3)).tolist()
    [2.0, 0.0, 1.0]
    """
    x, k, index, source = along_dim("index_add_", input, dim, index, source)
    return within_bounds(_index_add, x, index, source, dim=k, alpha=alpha)


@one_node("IndexAddBackward0")
def _index_add(x: Array, index: Array, source: Array, *, dim: int, alpha: float) -> Array:
    rank = len(source.shape)
    source = source if alpha == 1 else multiply(source, alpha)
    if not x.shape:
        return add(x, linear.reduce_sum(source, axes=tuple(range(rank))))
    if dim:
        source = linear.transpose(source, perm=(dim, *(d for d in range(rank) if d != dim)))
    return add(x, ops.scatter_add(source, index, shape=x.shape, axes=(dim,)))


def _at(index: Operand | slice, dim: int) -> tuple[Operand | slice, ...]:
    return (*(slice(None),) * dim, index)


def written(x: Any, index: Any, value: Array) -> Array:
    """Return `x` after `x[index] = value`."""
    if isinstance(x, Carrier):
        output: Array = setitem(x, index, value)
        return output
    out = x.copy()
    out[index] = value
    result: Array = out
    return result


@function("index_copy", in_place=True)
def index_copy(input: ArrayLike, dim: int, index: Operand, source: ArrayLike) -> Array:
    """Return the input with `source` at a vector of indices along `dim`.

    >>> import numpy as np
    >>> index_copy(np.zeros(3), 0, np.array([2, 0]), np.array([1.0, 2.0])).tolist()
    [2.0, 0.0, 1.0]
    """
    x, k, index, source = along_dim("index_copy_", input, dim, index, source, _COPIED)
    return _index_copy(x, index, source, dim=k)


@one_node("IndexCopyBackward0")
def _index_copy(x: Array, index: Array, source: Array, *, dim: int) -> Array:
    if not x.shape:
        return linear.reshape(source, shape=())
    return written(x, _at(index, dim), source)


@function("index_fill", in_place=True)
def index_fill(input: Array, dim: int, index: Array, value: Array) -> Array:
    """Return the input with `value` at a vector of indices along `dim`.

    The value is a number, or an array without dimensions.

    >>> import numpy as np
    >>> index_fill(np.zeros(3), 0, np.array([2, 0]), 1.0).tolist()
    [1.0, 0.0, 1.0]
    """
    x, index, filled = with_value(input, index, value)
    k = dim_of(dim, len(x.shape))
    index, filled = vector_of("index_fill_", index), as_dtype(filled, x.dtype)
    if is_literal(filled):
        return _index_fill(x, index, dim=k, value=filled)
    return _index_fill_by(x, index, filled, dim=k)


@one_node("IndexFillBackward0")
def _index_fill(x: Array, index: Operand, *, dim: int, value: Any) -> Array:
    return written(x, _at(index, dim) if x.shape else (...,), value)


@one_node("IndexFillBackward1")
def _index_fill_by(x: Array, index: Array, value: Array, *, dim: int) -> Array:
    return written(x, _at(index, dim) if x.shape else (...,), value)


@function("index_put", in_place=True)
def index_put(input: Array, indices: Sequence[Array], values: Array, accumulate: bool = False) -> Array:
    """Return the input with `values` at a tuple of index arrays or masks.

    With `accumulate`, the values are added to the elements that are there.

    >>> import numpy as np
    >>> index_put(np.zeros(3), (np.array([0, 0]),), np.array([1.0, 2.0]), accumulate=True).tolist()
    [3.0, 0.0, 0.0]
    """
    one_by_mask = getattr(values, "shape", None) == () and all(getattr(i, "dtype", None) == np.bool_ for i in indices)
    if accumulate or not one_by_mask:
        require_one_dtype(input, values, _INDEX_PUT_DTYPES)
    x, values, *index_arrays = arrays(input, values, *indices)
    return _index_put(x, to_dtype(values, x.dtype), index_arrays, accumulate=accumulate)


@one_node("IndexPutBackward0")
def _index_put(x: Array, values: Array, index_arrays: Any, *, accumulate: bool) -> Array:
    index = tuple(index_arrays)
    if not accumulate:
        return written(x, index, values)
    index_plan = plan(x, index)
    return add(
        x, index_plan.spread(values if values.shape == index_plan.result else expanded(values, index_plan.result))
    )


# -- writing elements along a dimension ----------------------------------------------------------------------------
def scattered(name: str, input: object, dim: int, index: Any, src: Any) -> tuple[Array, int, Array, Array]:
    require_one_dtype(input, src, "scatter(): Expected self.dtype to be equal to src.dtype")
    x, index, src = arrays(input, index, src)
    k = dim_of(dim, len(x.shape))
    index = checked_index(name, x, index, k)
    if len(src.shape) != len(x.shape) or any(n > m for n, m in zip(index.shape, src.shape)):
        raise size_error(
            f"Expected index {lengths(index.shape)} to be no larger than src {lengths(src.shape)} in every dimension"
        )
    return x, k, index, to_dtype(src, x.dtype)


def _first(src: Array, shape: tuple[int, ...]) -> Array:
    """Return the leading corner of `src` that has `shape`."""
    for d, n in enumerate(shape):
        src = src if src.shape[d] == n else along(src, d, 0, n)
    return src


@function("scatter", in_place=True)
def scatter(
    input: Array,
    dim: int,
    index: Array,
    src: Operand | None = None,
    *,
    value: Array | Number | None = None,
    reduce: str | None = None,
) -> Array:
    """Return the input with elements of `src` at `index` along `dim`: `x[index[i, j], j] = src[i, j]` for dim 0.

    >>> import numpy as np
    >>> scatter(np.zeros((2, 2)), 1, np.array([[1], [0]]), np.array([[5.0], [6.0]])).tolist()
    [[0.0, 5.0], [6.0, 0.0]]
    """
    if reduce == "add":
        return scatter_add(input, dim, index, _spread_number(index, src if value is None else value, input))
    if reduce == "multiply":
        src = _spread_number(index, src if value is None else value, input)
        result: Array = FUNCTIONS["scatter_reduce"](input, dim, index, src, "prod")
        return result
    if reduce is not None:
        raise RuntimeError(located("reduce argument must be either add or multiply."))
    src = value if src is None else src
    if is_literal(src):
        x, index = arrays(input, index)
        k = dim_of(dim, len(x.shape))
        index = checked_index("scatter", x, index, k)
        return within_bounds(_scatter_number, x, index, dim=k, value=as_dtype(src, x.dtype))
    x, k, index, src = scattered("scatter", input, dim, index, src)
    return within_bounds(_scatter, x, index, src, dim=k)


def _spread_number(index: Array, src: object, input: Array) -> Any:
    if not is_literal(src):
        return src
    x, index = arrays(input, index)
    value = as_dtype(src, x.dtype)
    return constant(linear.full(shape=index.shape, value=value, dtype=x.dtype.name), peer_of(x))


@one_node("ScatterBackward0")
def _scatter(x: Array, index: Array, src: Array, *, dim: int) -> Array:
    if not x.shape:
        return linear.reshape(src, shape=())
    return written(x, tuple(index_grid(index, dim, len(x.shape))), _first(src, index.shape))


@one_node("ScatterBackward1")
def _scatter_number(x: Array, index: Array, *, dim: int, value: Array) -> Array:
    return written(x, tuple(index_grid(index, dim, len(x.shape))) if x.shape else (...,), value)


@function("scatter_add", in_place=True)
def scatter_add(input: ArrayLike, dim: int, index: Array, src: Array) -> Array:
    """Add elements of `src` at `index` along `dim`: `x[index[i, j], j] += src[i, j]` for dim 0.

    >>> import numpy as np
    >>> scatter_add(np.zeros(3), 0, np.array([0, 2, 0]), np.ones(3)).tolist()
    [2.0, 0.0, 1.0]
    """
    x, k, index, src = scattered("scatter_add", input, dim, index, src)
    return within_bounds(_scatter_add, x, index, src, dim=k)


@one_node("ScatterAddBackward0")
def _scatter_add(x: Array, index: Array, src: Array, *, dim: int) -> Array:
    return add(x, _total(x, index, src, dim))


def _total(x: Array, index: Array, src: Array, dim: int) -> Array:
    """Return zeros like `x`, with `src` added at `index` along `dim`."""
    rank = len(x.shape)
    src = _first(src, index.shape)
    if not rank:
        return src
    return ops.scatter_add(src, *index_grid(index, dim, rank), shape=x.shape, axes=tuple(range(rank)))


# -- writing a part ------------------------------------------------------------------------------------------------
@function("select_scatter")
def select_scatter(input: ArrayLike, src: Array, dim: int, index: int) -> Array:
    """Return the input with `src` at one index along `dim`.

    >>> import numpy as np
    >>> select_scatter(np.zeros((2, 2)), np.ones(2), 0, 1).tolist()
    [[0.0, 0.0], [1.0, 1.0]]
    """
    x, src = arrays(input, src)
    return _select_scatter(x, to_dtype(src, x.dtype), dim=dim_of(dim, len(x.shape)), index=index)


@one_node("SelectScatterBackward0")
def _select_scatter(x: Array, src: Array, *, dim: int, index: int) -> Array:
    return written(x, _at(index, dim), src)


@function("slice_scatter")
def slice_scatter(
    input: ArrayLike, src: Array, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Array:
    """Return the input with `src` at a slice along `dim`."""
    x, src = arrays(input, src)
    return _slice_scatter(x, to_dtype(src, x.dtype), dim=dim_of(dim, len(x.shape)), piece=(start, end, step))


@one_node("SliceScatterBackward0")
def _slice_scatter(x: Array, src: Array, *, dim: int, piece: tuple[Any, Any, Any]) -> Array:
    return written(x, _at(slice(*piece), dim), src)


@function("diagonal_scatter")
def diagonal_scatter(input: ArrayLike, src: Array, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Array:
    """Return the input with `src` on the diagonal of two dimensions.

    >>> import numpy as np
    >>> diagonal_scatter(np.zeros((2, 2)), np.ones(2)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    x, src = arrays(input, src)
    i, j = dim_of(dim1, len(x.shape)), dim_of(dim2, len(x.shape))
    rows, columns = np.arange(x.shape[i]), np.arange(x.shape[j])
    count = int(np.sum(rows[:, None] + offset == columns))
    expected = (*(n for k, n in enumerate(x.shape) if k not in (i, j)), count)
    if src.shape != expected:
        raise size_error(
            f"expected src to have a size equal to the slice of self. src size = {lengths(src.shape)}, "
            f"slice size = {lengths(expected)}"
        )
    return _diagonal_scatter(x, to_dtype(src, x.dtype), offset=offset, dims=(i, j))


@one_node("DiagonalScatterBackward0")
def _diagonal_scatter(x: Array, src: Array, *, offset: int, dims: tuple[int, int]) -> Array:
    order = [k for k in range(len(x.shape)) if k not in dims]
    matrices = linear.transpose(x, perm=(*order, *dims))
    k = np.arange(src.shape[-1])
    result = written(matrices, (..., k + max(-offset, 0), k + max(offset, 0)), src)
    return linear.transpose(result, perm=tuple(np.argsort((*order, *dims)).tolist()))
