"""Norms and condition numbers of `torch.linalg`."""

from __future__ import annotations

import math
from typing import Any

from tracegrad.errors import located
from tracegrad.numpy_api import linalg as numpy_linalg
from tracegrad.numpy_api import reductions
from tracegrad.numpy_api.operands import to_dtype, to_float
from tracegrad.ops.core.op import named, one_node
from tracegrad.ops.elementwise.table import add, divide, greater, multiply, where
from tracegrad.ops.shape.linear import keep_axes, transpose
from tracegrad.torch.functions.core.dims import dim_of, dims_of, one, size_error
from tracegrad.torch.functions.core.operands import NORM_OF_INTEGERS, require_inexact
from tracegrad.torch.functions.core.registry import function, with_aliases
from tracegrad.torch.functions.linalg.matrix_errors import factors
from tracegrad.typing import Array, ArrayLike, Axes, DTypeLike


@with_aliases
def vector_norm(
    x: Array, ord: float = 2, dim: Axes | None = None, keepdim: bool = False, *, dtype: DTypeLike = None
) -> Array:
    """Return sum(abs(x) ** ord) ** (1 / ord) over `dim`, by default of all elements.

    The orders inf and -inf are extrema. The derivative is zero where the norm has none: at zero.

    >>> import numpy as np
    >>> float(vector_norm(np.array([[3.0, 0.0], [0.0, 4.0]])))
    5.0
    """
    if dtype is None:
        require_inexact(x, NORM_OF_INTEGERS)
    v = to_float(to_dtype(one(x), dtype))
    dims = None if dim is None or dim == () or dim == [] else dims_of(dim, len(v.shape))
    return _vector_norm(v, ord=ord, dims=dims if v.shape else None, keepdim=keepdim)


@one_node("LinalgVectorNormBackward0")
def _vector_norm(x: Array, *, ord: float, dims: Axes, keepdim: bool) -> Array:
    result: Array = reductions.vector_norm(x, axis=dims, keepdims=keepdim, ord=ord)
    return result


def _largest(x: Array, dim: int, keepdim: bool) -> Array:
    return named("AmaxBackward0", reductions.max(x, dim, keepdims=keepdim))


def _smallest(x: Array, dim: int, keepdim: bool) -> Array:
    return named("AminBackward0", reductions.min(x, dim, keepdims=keepdim))


def _total(x: Array, dim: int, keepdim: bool) -> Array:
    return named("SumBackward1", reductions.sum(x, dim, keepdims=keepdim))


@with_aliases
def matrix_norm(
    A: ArrayLike,
    ord: float | str = "fro",
    dim: Any = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: DTypeLike = None,
) -> Array:
    """Return the norm of matrices.

    The orders are "fro", "nuc", 2 and -2 (of singular values), 1 and -1 (of column sums), inf and -inf (of row sums).

    >>> import numpy as np
    >>> float(matrix_norm(np.array([[1.0, -2.0], [3.0, 4.0]]), 1))
    6.0
    """
    x = numpy_linalg.matrices("matrix_norm", to_dtype(one(A), dtype), halves=ord not in ("nuc", 2, -2))
    dims = dims_of(dim, len(x.shape))
    if len(dims) != 2:
        raise size_error("linalg.matrix_norm: dim must be a 2-tuple.")
    if ord == "fro":
        return vector_norm(x, 2, dims, keepdim)
    extremum = _smallest if ord in (-1, -2, -math.inf) else _largest
    if ord in ("nuc", 2, -2):
        rest = tuple(k for k in range(len(x.shape)) if k not in dims)
        moved = x if (*rest, *dims) == tuple(range(len(x.shape))) else transpose(x, perm=(*rest, *dims))
        out = (_total if ord == "nuc" else extremum)(numpy_linalg.svdvals(moved), -1, False)
        return keep_axes(out, x.shape, dims) if keepdim else out
    if ord not in (1, -1, math.inf, -math.inf):
        raise size_error(f"linalg.matrix_norm: Order {ord} not supported.")
    across, along = dims if ord in (1, -1) else dims[::-1]
    sums = vector_norm(x, 1, across, keepdim)
    return extremum(sums, along if keepdim else along - (across < along), keepdim)


@with_aliases
def norm(
    input: Array,
    ord: float | str | None = None,
    dim: Axes | None = None,
    keepdim: bool = False,
    *,
    dtype: DTypeLike = None,
) -> Array:
    """Return a vector norm or a matrix norm.

    It is a norm of matrices if `dim` has two dimensions and `ord` is passed, and a norm of vectors otherwise. Without
    `ord`, it is the 2-norm of all elements over `dim`.

    >>> import numpy as np
    >>> float(norm(np.array([[1.0, -2.0], [3.0, 4.0]]), "fro")) ** 2
    30.0
    """
    x = one(input)
    if ord is None:
        return vector_norm(x, 2, dim, keepdim, dtype=dtype)
    pair = len(dim) == 2 if isinstance(dim, tuple | list) else dim is None and len(x.shape) == 2
    if pair:
        return matrix_norm(x, ord, (0, 1) if dim is None else dim, keepdim, dtype=dtype)
    if isinstance(ord, str) or (dim is None and len(x.shape) > 2):
        raise size_error(
            "linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D, and names of norms are of "
            f"matrices. Got {len(x.shape)}D and ord={ord!r}."
        )
    return vector_norm(x, ord, dim, keepdim, dtype=dtype)


@factors
def cond(A: ArrayLike, p: float | str | None = None) -> Array:
    """Return the condition number in the norm `p`; by default the ratio of extreme singular values.

    >>> import numpy as np
    >>> float(cond(np.diag([8.0, 2.0])))
    4.0
    """
    x = one(A)
    if len(x.shape) > 1 and not x.shape[-1] and not x.shape[-2]:
        return reductions.sum(to_float(x), (-2, -1))
    return numpy_linalg.cond(x, p)


@function("renorm", in_place=True)
def renorm(input: ArrayLike, p: float, dim: int, maxnorm: float) -> Array:
    """Scale down the parts of the input along `dim` whose p-norm is larger than `maxnorm`.

    >>> import numpy as np
    >>> renorm(np.array([[3.0, 4.0], [0.3, 0.4]]), 2, 0, 1.0).round(6).tolist()
    [[0.6, 0.8], [0.3, 0.4]]
    """
    x = one(input)
    k = dim_of(dim, len(x.shape))
    if x.dtype.kind not in "fc":
        raise RuntimeError(located(f"renorm: expected a floating or complex input, got {x.dtype}"))
    if p <= 0:
        raise size_error("renorm: non-positive-norm not supported")
    if len(x.shape) < 2:
        raise size_error(f"renorm: input needs at least 2 dimensions, got {len(x.shape)} dimensions")
    if maxnorm < 0:
        raise size_error(f"renorm: expected maxnorm to be >= 0 but got {maxnorm}")
    return _renorm(x, p=p, dims=tuple(i for i in range(len(x.shape)) if i != k), maxnorm=maxnorm)


@one_node("RenormBackward0")
def _renorm(x: Array, *, p: float, dims: tuple[int, ...], maxnorm: float) -> Array:
    norms = reductions.vector_norm(x, axis=dims, keepdims=True, ord=p)
    scale = divide(maxnorm, add(norms, 1e-7))  # as PyTorch, which never divides by 0
    return multiply(x, where(greater(norms, maxnorm), scale, 1.0))
