"""Tensor equations as linear systems of matrices, and the contraction order of `np.einsum`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.errors import located
from tracegrad.numpy_api.linalg import MatrixError, inv, solve
from tracegrad.numpy_api.operands import arrays, size_of
from tracegrad.numpy_api.registry import implements
from tracegrad.ops.shape.linear import reshape, transpose
from tracegrad.typing import Array, ArrayLike

if TYPE_CHECKING:
    from collections.abc import Sequence


@implements(np.linalg.tensorsolve)
def tensorsolve(a: ArrayLike, b: ArrayLike, axes: Sequence[int] | None = None) -> Array:
    """`np.linalg.tensorsolve`."""
    x, y = arrays(a, b)
    rank = len(x.shape)
    if axes is not None:
        order = [k for k in range(rank) if k not in axes] + list(axes)
        x = transpose(x, perm=tuple(order))
    rest = x.shape[len(y.shape) :]
    n = size_of(y)
    if math.prod(rest) != n or size_of(x) != n * n:
        raise MatrixError(located("tensorsolve wants prod(a.shape[b.ndim:]) == prod(a.shape[:b.ndim])"))
    return reshape(solve(reshape(x, shape=(n, n)), reshape(y, shape=(n,))), shape=rest)


@implements(np.linalg.tensorinv)
def tensorinv(a: ArrayLike, ind: int = 2) -> Array:
    """`np.linalg.tensorinv`."""
    (x,) = arrays(a)
    if ind <= 0:
        raise ValueError(located("Invalid ind argument."))
    head, tail = x.shape[:ind], x.shape[ind:]
    result = inv(reshape(x, shape=(math.prod(head), math.prod(tail))))
    return reshape(result, shape=(*tail, *head))


@implements(np.einsum_path)
def einsum_path(*operands: Any, optimize: Any = "greedy", einsum_call: bool = False) -> Any:
    """`np.einsum_path`, which depends on shapes alone."""
    args = [np.broadcast_to(np.zeros((), x.dtype), x.shape) if hasattr(x, "aval") else x for x in operands]
    return np.einsum_path(*args, optimize=optimize)
