"""Compute discrete Fourier transforms along an axis; imported on first use, as `matrix_functions`.

Transforms are linear: a tangent is transformed. A cotangent of a complex transform is transformed by the inverse
transform, with the norms "backward" and "forward" exchanged. A transform of real numbers returns half of the elements,
because the other half is their conjugate. An element that represents two of them counts twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import Aval
from tracegrad.errors import DTypeError, ShapeError
from tracegrad.ops.core.op import AS_WRITTEN, Sample, primitive
from tracegrad.ops.core.samples import uniform
from tracegrad.ops.elementwise.complex import complex_of, real, real_of, sample
from tracegrad.ops.elementwise.table import add, equal, logical_or, multiply, where
from tracegrad.ops.shape.linear import arange, broadcast_to, reshape
from tracegrad.typing import Array, NDArray

if TYPE_CHECKING:
    from collections.abc import Iterator


# The norm of the transpose of a transform.
TRANSPOSED = {"backward": "forward", "forward": "backward", "ortho": "ortho"}
LARGE = 1 << 16  # elements


# -- of complex numbers ------------------------------------------------------------------------------------------
@primitive(on_complex=AS_WRITTEN)
def fft(x: NDArray, *, axis: int, inverse: bool, norm: str) -> NDArray:
    """The transform of real or complex numbers along an axis, or its inverse."""
    module = _module_for(x)
    result: NDArray = (module.ifft if inverse else module.fft)(x, axis=axis, norm=norm)
    return result


def _module_for(x: Any) -> Any:
    """The module to compute with: SciPy's transforms of many float64 are faster than NumPy's, except for the import;
    for float32 they are less accurate."""
    if x.size < LARGE or x.dtype not in (np.float64, np.complex128):
        return np.fft
    from scipy import fft

    return fft


@fft.def_impl_out
def _(out: Any, x: Any, *, axis: int, inverse: bool, norm: Any) -> None:
    if _module_for(x) is np.fft:
        (np.fft.ifft if inverse else np.fft.fft)(x, axis=axis, norm=norm, out=out)
    else:
        out[...] = fft.impl(x, axis=axis, inverse=inverse, norm=norm)


@fft.def_aval
def _(x: Aval, *, axis: int, inverse: bool, norm: str) -> Aval:
    if x.dtype.kind not in "fc" or not x.shape[axis]:
        raise ShapeError(f"fft wants floating or complex numbers along axis {axis}, got {x}")
    return Aval(x.shape, complex_of(x.dtype))


@fft.def_vjp("x")
def _(ct: Array, ans: Array, x: Array, *, axis: int, inverse: bool, norm: str) -> Array:
    result = fft(ct, axis=axis, inverse=not inverse, norm=TRANSPOSED[norm])
    return result if x.dtype.kind == "c" else real(result)


fft.linear_in("x")


@fft.def_samples
def _() -> Iterator[Sample]:
    yield (sample((3, 4)),), {"axis": 1, "inverse": False, "norm": "backward"}
    yield (sample((5, 2), dtype="complex64"),), {"axis": 0, "inverse": True, "norm": "backward"}
    yield (uniform((9,)),), {"axis": 0, "inverse": True, "norm": "ortho"}
    yield (uniform((3, 6), dtype="float32"),), {"axis": 1, "inverse": False, "norm": "forward"}


# -- between real numbers and half of their transform ---------------------------------------------------------------
@primitive(on_complex=AS_WRITTEN)
def rfft(x: NDArray, *, axis: int, norm: Any) -> NDArray:
    """The first n // 2 + 1 elements of the transform of n real numbers."""
    return np.fft.rfft(x, axis=axis, norm=norm)


@rfft.def_impl_out
def _(out: Any, x: Array, *, axis: int, norm: Any) -> None:
    np.fft.rfft(x, axis=axis, norm=norm, out=out)


@rfft.def_aval
def _(x: Aval, *, axis: int, norm: str) -> Aval:
    if x.dtype.kind != "f":
        raise DTypeError(f"rfft transforms real numbers, got {x}")
    n = x.shape[axis]
    if not n:
        raise ShapeError(f"rfft wants at least one element along axis {axis}, got {x}")
    return Aval((*x.shape[:axis], n // 2 + 1, *x.shape[axis + 1 :]), complex_of(x.dtype))


@rfft.def_vjp("x")
def _(ct: Array, ans: Array, x: Array, *, axis: int, norm: str) -> Array:
    n = x.shape[axis]
    once = where(_self_conjugate_mask(ct, n, axis), ct, multiply(ct, 0.5))
    return irfft(once, n=n, axis=axis, norm=TRANSPOSED[norm])


def _self_conjugate_mask(x: Array, n: int, axis: int) -> Array:
    """The mask of the elements of half a transform of `n` numbers that are their own conjugates."""
    count = x.shape[axis]
    indices = arange(start=0, step=1, length=count, dtype="int64")
    ends = equal(indices, 0) if n % 2 else logical_or(equal(indices, 0), equal(indices, n // 2))
    column = (*(1,) * axis, count, *(1,) * (len(x.shape) - axis - 1))
    return broadcast_to(reshape(ends, shape=column), shape=x.shape)


rfft.linear_in("x")


@rfft.def_samples
def _() -> Iterator[Sample]:
    yield (uniform((2, 6)),), {"axis": 1, "norm": "backward"}
    yield (uniform((9, 2)),), {"axis": 0, "norm": "ortho"}
    yield (uniform((5,), dtype="float32"),), {"axis": 0, "norm": "forward"}


@primitive(on_complex=AS_WRITTEN)
def irfft(x: NDArray, *, n: int, axis: int, norm: Any) -> NDArray:
    """The `n` real numbers whose half transform this is; imaginary parts that must be zero are ignored."""
    return np.fft.irfft(x, n, axis=axis, norm=norm)


@irfft.def_impl_out
def _(out: Any, x: Array, *, n: int, axis: int, norm: Any) -> None:
    np.fft.irfft(x, n, axis=axis, norm=norm, out=out)


@irfft.def_aval
def _(x: Aval, *, n: int, axis: int, norm: str) -> Aval:
    if x.dtype.kind != "c":
        raise DTypeError(f"irfft transforms complex numbers, got {x}")
    if n < 1 or x.shape[axis] != n // 2 + 1:
        raise ShapeError(f"irfft to {n} elements wants {n // 2 + 1} along axis {axis}, got {x}")
    return Aval((*x.shape[:axis], n, *x.shape[axis + 1 :]), real_of(x.dtype))


@irfft.def_vjp("x")
def _(ct: Array, ans: Array, x: Array, *, n: int, axis: int, norm: str) -> Array:
    result = rfft(ct, axis=axis, norm=TRANSPOSED[norm])
    return where(_self_conjugate_mask(result, n, axis), result, add(result, result))


irfft.linear_in("x")


@irfft.def_samples
def _() -> Iterator[Sample]:
    yield (sample((2, 4)),), {"n": 6, "axis": 1, "norm": "backward"}
    yield (sample((3, 2)),), {"n": 5, "axis": 0, "norm": "ortho"}
    yield (sample((3,), dtype="complex64"),), {"n": 4, "axis": 0, "norm": "forward"}
