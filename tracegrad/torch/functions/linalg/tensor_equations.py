"""Tensor equations of `torch.linalg` (`tensorsolve`, `tensorinv`), and Vandermonde matrices."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tracegrad.numpy_api import linalg as numpy_linalg
from tracegrad.numpy_api.operands import arrays, constant, peer_of
from tracegrad.ops.shape.linear import broadcast_to, concatenate, reshape, transpose
from tracegrad.torch.functions.core.dims import dim_of, one, size_error
from tracegrad.torch.functions.linalg.matrix_errors import factors
from tracegrad.torch.functions.math.cumulative import cumprod
from tracegrad.typing import Array, ArrayLike

if TYPE_CHECKING:
    from collections.abc import Sequence


@factors
def tensorsolve(A: ArrayLike, B: ArrayLike, dims: Sequence[int] | None = None) -> Array:
    """Solve `tensordot(A, X, X.ndim) == B` for X.

    >>> tensorsolve(2 * np.eye(6).reshape(2, 3, 6), np.ones((2, 3))).tolist()
    [0.5, 0.5, 0.5, 0.5, 0.5, 0.5]
    """
    x, y = arrays(A, B)
    if dims is not None:
        moved = [dim_of(d, len(x.shape)) for d in dims]
        x = transpose(x, perm=(*(k for k in range(len(x.shape)) if k not in moved), *moved))
    shape = x.shape[len(y.shape) :]
    n = math.prod(shape)
    if math.prod(y.shape) != n:
        raise size_error(
            "Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == prod(self.shape[:other.ndim]), "
            f"but got {n} != {math.prod(x.shape[: len(y.shape)])}"
        )
    return reshape(numpy_linalg.solve(reshape(x, shape=(n, n)), reshape(y, shape=(n,))), shape=shape)


@factors
def tensorinv(A: ArrayLike, ind: int = 2) -> Array:
    """Invert the function X -> `tensordot(A, X, X.ndim)`.

    The first `ind` dimensions of A are those of the result. RuntimeError if they do not have as many elements as the
    other dimensions.

    >>> tensorinv(np.eye(6).reshape(2, 3, 6)).shape
    (6, 2, 3)
    """
    x = one(A)
    if ind <= 0:
        raise size_error(f"Expected a strictly positive integer for 'ind', but got {ind}")
    first, last = x.shape[:ind], x.shape[ind:]
    n = math.prod(first)
    if n != math.prod(last):
        raise size_error(
            "Expected self to satisfy the requirement prod(self.shape[ind:]) == prod(self.shape[:ind]), but got "
            f"{math.prod(last)} != {n}"
        )
    return reshape(numpy_linalg.inv(reshape(x, shape=(n, n))), shape=(*last, *first))


def vander(x: ArrayLike, N: int | None = None) -> Array:
    """Return the powers 0 to N - 1 of each element, along a new last dimension.

    >>> vander(np.array([2.0, 3.0])).tolist()
    [[1.0, 2.0], [1.0, 3.0]]
    """
    v = one(x)
    v = v if v.shape else reshape(v, shape=(1,))
    count = v.shape[-1] if N is None else N
    if count <= 1:
        raise size_error("N must be greater than 1.")
    powers = broadcast_to(reshape(v, shape=(*v.shape, 1)), shape=(*v.shape, count - 1))
    ones = constant(np.ones((*v.shape, 1), v.dtype), peer_of(v))
    return concatenate(ones, cumprod(powers, -1), axis=len(v.shape))
