"""Compute the determinant and its derivatives, which are polynomials and exist for singular matrices too.

The first derivative is the matrix of cofactors. The second is the derivative of the cofactors along a matrix.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import Aval
from tracegrad.errors import ShapeError
from tracegrad.ops.core.op import HOLOMORPHIC, Sample, primitive
from tracegrad.ops.core.samples import uniform
from tracegrad.ops.elementwise.table import add, divide, multiply, subtract
from tracegrad.ops.linalg.contraction import matmul, matrix_transpose
from tracegrad.ops.linalg.solve import last_two, square, square_samples, well_conditioned
from tracegrad.ops.shape.linear import reduce_sum, unreduce
from tracegrad.typing import Array, NDArray

if TYPE_CHECKING:
    from collections.abc import Iterator


@primitive(on_complex=HOLOMORPHIC)
def det(x: NDArray) -> Array:
    """The determinant."""
    result: Array = np.linalg.det(x)
    return result


@det.def_aval
def _(x: Aval) -> Aval:
    return Aval(square("det", x).shape[:-2], x.dtype)


@det.def_vjp("x")
def _(ct: Array, ans: Array, x: Array) -> Array:
    return multiply(unreduce(ct, x.shape, last_two(x)), cofactors(x))


det.def_samples(square_samples)


@primitive(on_complex=HOLOMORPHIC)
def cofactors(x: NDArray) -> Any:
    """The derivative of the determinant: det(x) * inv(x).T, and its limit where `x` is singular."""
    scale = np.linalg.det(x)[..., None, None]
    try:
        return np.swapaxes(np.linalg.inv(x), -1, -2) * scale
    except np.linalg.LinAlgError:
        u, s, v = np.linalg.svd(x)
        # For each singular value, the product of the others.
        n = s.shape[-1]
        others = np.prod(np.where(np.eye(n, dtype=bool), 1, s[..., None, :]), axis=-1)
        return (_sign(x, u, v) * (u.conj() * others[..., None, :]) @ v.conj()).astype(x.dtype)


def _sign(x: NDArray, u: Array, v: Array) -> NDArray:
    """The determinant of the orthogonal factors of `x`."""
    sign = (np.linalg.det(u) * np.linalg.det(v))[..., None, None]
    result: NDArray = sign if x.dtype.kind == "c" else np.round(sign)
    return result


@cofactors.def_aval
def _(x: Aval) -> Aval:
    return square("cofactors", x)


@cofactors.def_vjp("x")
def _(ct: Array, ans: Array, x: Array) -> Array:
    return cofactors_along(x, ct)  # because second derivatives are symmetric


cofactors.def_samples(square_samples)


@primitive(on_complex=HOLOMORPHIC)
def cofactors_along(x: NDArray, t: NDArray) -> Any:
    """The derivative of `cofactors` at `x` along `t`. Its own derivative is nan where `x` is singular."""
    if _is_regular(x):
        of_x = cofactors.impl(x)
        inner = np.sum(t * of_x, axis=(-2, -1), keepdims=True)
        product = inner * of_x - of_x @ np.swapaxes(t, -1, -2) @ of_x
        return product / np.linalg.det(x)[..., None, None]
    u, s, v = np.linalg.svd(x)
    inside = np.swapaxes(u, -1, -2).conj() @ t @ np.swapaxes(v, -1, -2).conj()
    others = _products_of_others(s)
    diagonal = (others @ np.diagonal(inside, axis1=-2, axis2=-1)[..., None])[..., 0]
    moved = np.eye(s.shape[-1]) * diagonal[..., None, :] - others * np.swapaxes(inside, -1, -2)
    return (_sign(x, u, v) * (u.conj() @ moved @ v.conj())).astype(x.dtype)


def _is_regular(x: Array) -> bool:
    """Whether the formulas that divide by determinants preserve half of the digits."""
    try:
        sizes = [np.linalg.norm(y, axis=(-2, -1)) for y in (x, np.linalg.inv(x))]
    except np.linalg.LinAlgError:
        return False
    return bool(np.all(sizes[0] * sizes[1] < 1e-2 * np.finfo(x.dtype).eps ** -0.5))


def _products_of_others(s: Any) -> Any:
    """For each pair of these singular values, in descending order, the product of all others; 0 on the diagonal."""
    n = s.shape[-1]
    large, small = s[..., : max(n - 2, 0)], s[..., max(n - 2, 0) :]
    whole = np.prod(large, axis=-1)[..., None, None]
    divisors = np.concatenate([large, np.ones_like(small)], -1)
    divisors = divisors[..., :, None] * divisors[..., None, :]
    result = np.where(divisors == 0, 0, whole / np.where(divisors == 0, 1, divisors))
    for k in range(max(n - 2, 0), n):
        inside = np.arange(n) == k
        result = np.where(inside[:, None] | inside, result, result * s[..., k, None, None])
    return np.where(np.eye(n, dtype=bool), 0, result)


@cofactors_along.def_aval
def _(x: Aval, t: Aval) -> Aval:
    square("cofactors_along", x)
    if t != x:
        raise ShapeError(f"cofactors_along: a direction {t} for a matrix {x}")
    return x


@cofactors_along.def_vjp("t")
def _(ct: Array, ans: Array, x: Array, t: Array) -> Array:
    return cofactors_along(x, ct)


@cofactors_along.def_vjp("x")
def _(ct: Array, ans: Array, x: Array, t: Array) -> Array:
    # With C the cofactors and d the determinant, the inner product of `ct` and the result is
    # (<t, C> <ct, C> - <ct, C @ t.T @ C>) / d. Its derivative has a part through C and a part through d.
    of_x, d = cofactors(x), _spread(det(x), x)
    flipped = matrix_transpose(of_x)
    direct = add(multiply(t, _inner(ct, of_x)), multiply(ct, _inner(t, of_x)))
    crossed = add(matmul(ct, matmul(flipped, t)), matmul(t, matmul(flipped, ct)))
    by_cofactors = cofactors_along(x, divide(subtract(direct, crossed), d))
    return subtract(by_cofactors, multiply(of_x, divide(_inner(ct, ans), d)))


def _inner(x: Array, y: Array) -> Array:
    return _spread(reduce_sum(multiply(x, y), axes=last_two(x)), x)


def _spread(v: Array, x: Array) -> Array:
    return unreduce(v, x.shape, last_two(x))


cofactors_along.linear_in("t")


@cofactors_along.def_samples
def _() -> Iterator[Sample]:
    yield (well_conditioned((3, 3)), uniform((3, 3), seed=1)), {}
    yield (well_conditioned((2, 4, 4), dtype="float32"), uniform((2, 4, 4), seed=1, dtype="float32")), {}
    yield (well_conditioned((1, 1)), uniform((1, 1), seed=1)), {}
    yield (uniform((0, 2, 2)), uniform((0, 2, 2), seed=1)), {}
