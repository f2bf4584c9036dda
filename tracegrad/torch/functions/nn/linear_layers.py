"""Functions `linear` and `embedding`: apply a weight to an input."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tracegrad.errors import UnsupportedError, located
from tracegrad.numpy_api.operands import arrays
from tracegrad.ops.core.op import named
from tracegrad.ops.elementwise.table import add, equal, where
from tracegrad.ops.indexing.gather_scatter import gather
from tracegrad.ops.shape.linear import reshape, stop_gradient, transpose
from tracegrad.torch.functions.core.dims import type_name
from tracegrad.torch.functions.core.operands import as_node
from tracegrad.torch.functions.core.out import store
from tracegrad.torch.functions.core.promotion import require_one_dtype
from tracegrad.torch.functions.core.registry import FUNCTIONS
from tracegrad.torch.functions.linalg.matmul import addmm, matmul, mm
from tracegrad.torch.functions.linalg.norms import renorm
from tracegrad.typing import Array, ArrayLike


def linear(input: Any, weight: Any, bias: Any = None) -> Array:
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
