"""Compute eigenvalues and eigenvectors of nonsymmetric matrices; imported on first use, as `matrix_functions`.

Both are complex, for real matrices too, and in LAPACK's order. The rules are from C. Boeddeker, P. Hanebrink,
L. Drude, J. Heymann, R. Haeb-Umbach, "On the computation of complex-valued gradients with application to statistically
optimum beamforming" (2017), arXiv:1701.00392, for vectors of length 1.

Vectors are determined up to their phases: LAPACK makes the largest element of each vector real, and the derivative
preserves this. If eigenvalues are equal, the cotangent of their vectors becomes inf or nan.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import Aval
from tracegrad.ops.core.op import AS_WRITTEN, ResultAvals, Sample, multi_result, primitive
from tracegrad.ops.elementwise.complex import complex_of, conj, imag, real, sample
from tracegrad.ops.elementwise.table import (
    absolute,
    add,
    divide,
    equal,
    logical_and,
    multiply,
    not_equal,
    subtract,
    where,
)
from tracegrad.ops.linalg.contraction import matmul
from tracegrad.ops.linalg.repeated_eigenvalues import as_row, is_near
from tracegrad.ops.linalg.solve import adjoint, band, solve, square, well_conditioned
from tracegrad.ops.reduce.reductions import argmax
from tracegrad.ops.shape.linear import arange, broadcast_to, cast, reduce_sum, reshape, unreduce, zeros_like
from tracegrad.typing import Array, NDArray

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracegrad.ops.core.dispatch import Operand


@multi_result(on_complex=AS_WRITTEN)
def eig(x: NDArray) -> tuple[NDArray, ...]:
    """Eigenvalues and eigenvectors of length 1: column i belongs to value i."""
    w, v = np.linalg.eig(x)
    dtype = complex_of(x.dtype)
    return w.astype(dtype), v.astype(dtype)


@eig.def_aval
def _(x: Aval) -> ResultAvals:
    dtype = complex_of(square("eig", x).dtype)
    return ResultAvals((Aval(x.shape[:-1], dtype), Aval(x.shape, dtype)))


def _as_column(w: Array) -> Array:
    return reshape(w, shape=(*w.shape, 1))


def _on_diagonal(w: Array, outside: Operand) -> Array:
    """The matrices with `w` on their diagonals, and elements of `outside`, which may be a number, elsewhere."""
    n = w.shape[-1]
    below = band(n, n, -1)
    within = where(band(n, n, 0), as_row(w), outside)
    return where(below, outside, within)


def _over_differences(x: Array, w: Array) -> Array:
    """The off-diagonal elements divided by eigenvalue differences, column minus row: nan if a difference is only
    rounding error."""
    nothing = multiply(w, 0.0)
    differences = subtract(as_row(w), _as_column(w))
    lost = logical_and(is_near(differences, w), not_equal(x, 0.0))
    return _on_diagonal(nothing, where(lost, math.nan, divide(x, _on_diagonal(add(nothing, 1.0), differences))))


def _lengths(x: Array, v: Array) -> Array:
    """The real parts of the inner products of the columns of `v` and `x`, as complex numbers in a row."""
    products = reduce_sum(multiply(conj(v), x), axes=(len(v.shape) - 2,))
    return as_row(cast(real(products), dtype=v.dtype.name))


def _real_elements(v: Array) -> Array:
    """The position in each column of the element that LAPACK made real: the largest of the real ones."""
    axis = len(v.shape) - 2
    of_reals = equal(imag(v), 0.0)
    if not v.shape[-1]:
        return of_reals
    size = where(of_reals, absolute(v), -1.0)
    rows = reshape(arange(start=0, step=1, length=v.shape[-1], dtype="int64"), shape=(v.shape[-1], 1))
    return equal(unreduce(argmax(size, axis=axis), v.shape, (axis,)), broadcast_to(rows, shape=v.shape))


def _phases(x: Array, v: Array) -> Array:
    """The phases: 1j times the imaginary parts of the columns of `x` relative to `v` at the real elements of `v`, in
    a row."""
    chosen = _real_elements(v)
    quotients = where(chosen, divide(x, where(chosen, v, 1.0)), 0.0)
    return as_row(_imaginary(reduce_sum(quotients, axes=(len(v.shape) - 2,))))


def _iterations_back(x: Array, v: Array) -> Array:
    """The transpose of the linear map from a change of the vectors to `v` times its `_phases`, applied to `x`."""
    chosen = _real_elements(v)
    products = as_row(_imaginary(reduce_sum(multiply(conj(v), x), axes=(len(v.shape) - 2,))))
    return where(chosen, divide(products, where(chosen, conj(v), 1.0)), 0.0)


def _imaginary(x: Array) -> Array:
    return multiply(cast(imag(x), dtype=x.dtype.name), 1j)


def _pulled(w: Any, v: Any, ct_w: Any, ct_v: Any) -> Array:
    flipped = adjoint(v)
    inner: Any = 0.0
    if ct_v is not None:
        across = subtract(subtract(ct_v, multiply(v, _lengths(ct_v, v))), _iterations_back(ct_v, v))
        inner = _over_differences(matmul(flipped, across), conj(w))
    inner = _on_diagonal(multiply(w, 0.0) if ct_w is None else ct_w, inner)
    return solve(flipped, matmul(inner, flipped))


def _of_kind(ct: Array, x: Array) -> Array:
    return ct if x.dtype.kind == "c" else real(ct)


@eig.def_vjp_all
def _(wanted: Sequence[int], cts: Any, ans: tuple[Array, ...], x: Array) -> list[Any]:
    return [zeros_like(x) if 0 in x.shape else _of_kind(_pulled(*ans, *cts), x)]


def _moved(v: Array, t: Array) -> Array:
    """inv(V) @ t @ V."""
    return solve(v, matmul(cast(t, dtype=v.dtype.name) if t.dtype != v.dtype else t, v))


def _diagonal(x: Array) -> Array:
    n = x.shape[-1]
    saved = where(band(n, n, -1), 0.0, where(band(n, n, 0), x, 0.0))
    return reduce_sum(saved, axes=(len(x.shape) - 2,))


@eig.def_jvp
def _(tangents: tuple[Array, ...], ans: tuple[Array, ...], x: Array) -> tuple[Any, Any]:
    w, v = ans
    if 0 in v.shape:
        return zeros_like(w), zeros_like(v)
    inner = _moved(v, tangents[0])
    change = matmul(v, _over_differences(inner, w))
    return _diagonal(inner), subtract(change, multiply(v, add(_lengths(change, v), _phases(change, v))))


def _spread() -> Any:
    # Well separated eigenvalues of these real matrices are real, so their vectors have no free phases.
    for n, dtype in ((3, "float64"), (4, "float32"), (9, "float64")):
        yield (0.25 * well_conditioned((n, n), dtype=dtype) + np.diag(np.arange(1, n + 1, dtype=dtype) * 3),), {}
    yield (np.zeros((0, 0)),), {}


eig.def_samples(_spread)


@primitive(on_complex=AS_WRITTEN)
def eigvals(x: NDArray) -> NDArray:
    """The eigenvalues, complex, in LAPACK's order."""
    return np.linalg.eigvals(x).astype(complex_of(x.dtype))


@eigvals.def_aval
def _(x: Aval) -> Aval:
    return Aval(square("eigvals", x).shape[:-1], complex_of(x.dtype))


@eigvals.def_vjp("x")
def _(ct: Array, ans: Array, x: Array) -> Array:
    if 0 in x.shape:
        return _of_kind(reshape(ct, shape=x.shape), x)
    w, v = eig(x)
    return _of_kind(_pulled(w, v, ct, None), x)


@eigvals.def_samples
def _() -> Iterator[Sample]:
    yield from _spread()
    yield (sample((2, 3, 3)),), {}
    yield (sample((1, 1), dtype="complex64"),), {}


eig.def_result_rule(0)(eigvals)
