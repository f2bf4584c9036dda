"""Functions that apply a weight to an input: `linear`, `bilinear`, `embedding`, `embedding_bag`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tracegrad.errors import UnsupportedError, located
from tracegrad.numpy_api.operands import arrays
from tracegrad.ops.core.op import named
from tracegrad.ops.elementwise.table import add, divide, equal, less_equal, multiply, not_equal, subtract, where
from tracegrad.ops.indexing.gather_scatter import gather
from tracegrad.ops.shape.linear import cast, full, reshape, stop_gradient, transpose
from tracegrad.torch.functions.core.dims import lengths, one, type_name
from tracegrad.torch.functions.core.operands import as_node
from tracegrad.torch.functions.core.out import store
from tracegrad.torch.functions.core.promotion import require_one_dtype
from tracegrad.torch.functions.core.registry import FUNCTIONS
from tracegrad.torch.functions.linalg.matmul import addmm, matmul, mm
from tracegrad.torch.functions.linalg.norms import renorm
from tracegrad.torch.functions.math.pointwise import clamp_min
from tracegrad.typing import Array, ArrayLike


def linear(input: ArrayLike, weight: Any, bias: Any = None) -> Array:
    """input @ weight.T + bias.

    RuntimeError if the sizes do not fit.

    >>> import numpy as np
    >>> linear(np.array([[1.0, 2.0]]), np.array([[3.0, 4.0], [5.0, 6.0]]), np.array([0.5, 0.0])).tolist()
    [[11.5, 17.0]]
    """
    require_one_dtype(input, weight)
    x, w, *rest = arrays(*(v for v in (input, weight, bias) if v is not None))
    if len(w.shape) != 2:
        product = matmul(x, w)
        return add(product, rest[0]) if rest else product
    transposed = named("TBackward0", transpose(w, perm=(1, 0)))
    if len(x.shape) == 2:
        return addmm(rest[0], x, transposed) if rest else mm(x, transposed)
    if len(x.shape) == 1 and not rest:
        return matmul(x, transposed)
    rows = named("ViewBackward0", reshape(x, shape=(math.prod(x.shape[:-1]), *x.shape[-1:])))
    out = addmm(rest[0], rows, transposed) if rest else mm(rows, transposed)
    return named("ViewBackward0" if rest else "UnsafeViewBackward0", reshape(out, shape=(*x.shape[:-1], w.shape[0])))


def embedding(
    input: ArrayLike,
    weight: ArrayLike,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Array:
    """Select the rows of `weight` at the indices `input`.

    The row `padding_idx` gets no gradient. With `max_norm`, the selected rows are first scaled down in `weight` itself
    to this `norm_type`-norm. IndexError for an index out of range, UnsupportedError for `scale_grad_by_freq` and
    `sparse`.

    >>> import numpy as np
    >>> embedding(np.array([2, 0]), np.array([[1.0], [2.0], [3.0]])).tolist()
    [[3.0], [1.0]]
    """
    if scale_grad_by_freq or sparse:
        raise UnsupportedError(located("embedding: scale_grad_by_freq and sparse are not supported"))
    index, table = arrays(input, weight)
    if index.dtype.kind not in "iu":
        raise RuntimeError(
            located(
                "Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; but "
                f"got {type_name(index.dtype)} instead (while checking arguments for embedding)"
            )
        )
    if max_norm is not None:
        still = stop_gradient(table)
        used = FUNCTIONS["isin"](np.arange(table.shape[0]), index)
        store(weight, where(reshape(used, shape=(table.shape[0], 1)), renorm(still, norm_type, 0, max_norm), still))
        index, table = arrays(input, weight)
    return as_node("EmbeddingBackward0", _embedding, table, index, padding_idx)


def _embedding(table: Array, index: Array, padding: int | None) -> Array:
    try:
        rows = gather(table, index, axes=(0,))
    except IndexError:
        raise IndexError(located("index out of range in self")) from None
    if padding is None:
        return rows
    blank = reshape(equal(index, padding % table.shape[0]), shape=(*index.shape, *(1 for _ in table.shape[1:])))
    return where(blank, stop_gradient(rows), rows)


def bilinear(input1: object, input2: object, weight: Array, bias: Array | None = None) -> Array:
    """input1 @ weight[k] @ input2 + bias[k] for each k.

    >>> import numpy as np
    >>> bilinear(np.ones(2), np.ones(3), np.ones((1, 2, 3))).tolist()
    [6.0]
    """
    result = FUNCTIONS["einsum"]("...i,kij,...j->...k", input1, weight, input2)
    return result if bias is None else add(result, bias)


def embedding_bag(
    input: ArrayLike,
    weight: Array,
    offsets: ArrayLike | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: ArrayLike | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Array:
    """Sum, mean or maximum of the rows of `weight` at the indices of each bag.

    A bag is a row of `input`, or the part of the vector `input` from an offset to the next one. Rows `padding_idx` do
    not count, and an empty bag is 0. ValueError for offsets that do not fit, an unknown mode, or `per_sample_weights`
    with another mode than "sum".

    >>> import numpy as np
    >>> embedding_bag(np.array([0, 1, 1]), np.array([[1.0], [3.0]]), np.array([0, 2])).tolist()
    [[2.0], [3.0]]
    """
    index, table = arrays(input, weight)
    if mode not in ("sum", "mean", "max"):
        raise ValueError(located("mode has to be one of sum, mean or max"))
    if per_sample_weights is not None and mode != "sum":
        raise NotImplementedError(
            located(
                "embedding_bag: per_sample_weights was not None. per_sample_weights is only supported for mode='sum' "
                f"(got mode='{mode}'). Please open a feature request on GitHub."
            )
        )
    bags, count = _bags(index, offsets, include_last_offset)
    flat = reshape(index, shape=(math.prod(index.shape),))
    rows = embedding(flat, weight, None, max_norm, norm_type, scale_grad_by_freq, sparse)
    taken = None if padding_idx is None else not_equal(flat, padding_idx % table.shape[0])
    if per_sample_weights is not None:
        factors = one(per_sample_weights)
        if tuple(factors.shape) != tuple(index.shape):
            raise ValueError(
                located(
                    f"embedding_bag: If per_sample_weights ({lengths(factors.shape)}) is not None, then it must have "
                    f"the same shape as the input ({lengths(index.shape)})"
                )
            )
        rows = multiply(rows, reshape(factors, shape=(flat.shape[0], 1)))
    return as_node("EmbeddingBagBackward0", _reduced_bags, rows, bags, count, taken, mode)


def _bags(index: Array, offsets: ArrayLike | None, include_last: bool) -> tuple[Array, int]:
    """Return the number of the bag of each index, and the number of bags."""
    if len(index.shape) == 2:
        if offsets is not None:
            raise ValueError(
                located(
                    "if input is 2D, then offsets has to be None, as input is treated is a mini-batch of fixed length "
                    f"sequences. However, found offsets of type {type(offsets)}"
                )
            )
        return np.repeat(np.arange(index.shape[0]), index.shape[1]), index.shape[0]
    if len(index.shape) != 1:
        raise ValueError(located(f"input has to be 1D or 2D Tensor, but got Tensor of dimension {len(index.shape)}"))
    if offsets is None:
        raise ValueError(located("offsets has to be a 1D Tensor but got None"))
    starts = one(offsets)
    if len(starts.shape) != 1:
        raise ValueError(located("offsets has to be a 1D Tensor"))
    starts = starts[:-1] if include_last else starts
    after = less_equal(reshape(starts, shape=(1, starts.shape[0])), np.arange(index.shape[0])[:, None])
    return subtract(FUNCTIONS["sum"](cast(after, dtype="int64"), 1), 1), starts.shape[0]


def _reduced_bags(rows: Array, bags: object, count: int, taken: Array | None, mode: str) -> Array:
    column = None if taken is None else reshape(taken, shape=(rows.shape[0], 1))
    start = full(shape=(count, rows.shape[1]), value=0.0, dtype=rows.dtype.name)
    if mode == "max":
        rows = rows if column is None else where(column, rows, -math.inf)
        highest = FUNCTIONS["index_reduce"](subtract(start, math.inf), 0, bags, rows, "amax")
        return where(equal(highest, -math.inf), 0.0, highest)
    rows = rows if column is None else where(column, rows, 0.0)
    total = FUNCTIONS["index_add"](start, 0, bags, rows)
    if mode == "sum":
        result: Array = total
        return result
    one_each = np.ones(rows.shape[0], rows.dtype) if taken is None else cast(taken, dtype=rows.dtype.name)
    sizes = FUNCTIONS["index_add"](full(shape=(count,), value=0.0, dtype=rows.dtype.name), 0, bags, one_each)
    return divide(total, reshape(clamp_min(sizes, 1), shape=(count, 1)))
