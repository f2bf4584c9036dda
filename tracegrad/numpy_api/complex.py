"""Complex functions of NumPy: parts, angle, conjugate; real operands are treated as in NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tracegrad.numpy_api import selection, shapes
from tracegrad.numpy_api.memory_layout import recomputed
from tracegrad.numpy_api.operands import arrays, to_float
from tracegrad.numpy_api.registry import implements, ufunc
from tracegrad.numpy_api.ufuncs import OP_OF_UFUNC
from tracegrad.ops.elementwise import complex as ops
from tracegrad.ops.elementwise import table as elementwise
from tracegrad.ops.elementwise.table import arctan2, equal, multiply, not_equal
from tracegrad.ops.shape.linear import stop_gradient
from tracegrad.typing import Array, ArrayLike, DTypeLike


def _is_complex(x: Array) -> bool:
    return x.dtype.kind == "c"


@implements(np.real)
def real(val: ArrayLike) -> Array:
    """`np.real`: the array itself unless it is complex."""
    (x,) = arrays(val)
    return ops.real(x) if _is_complex(x) else x


@implements(np.imag)
def imag(val: ArrayLike) -> Array:
    """`np.imag`: zeros unless the array is complex."""
    (x,) = arrays(val)
    if _is_complex(x):
        return ops.imag(x)
    zeros: Any = selection.zeros_like(x, order="A")
    part: Array = zeros._sealed()
    return part


@implements(np.angle)
def angle(z: ArrayLike, deg: bool = False) -> Array:
    """`np.angle`: for real numbers 0, or pi below zero."""
    x = to_float(*arrays(z))
    angle_of = ops.angle(x) if _is_complex(x) else arctan2(0.0, stop_gradient(x))
    return multiply(angle_of, 180 / math.pi) if deg else angle_of


@implements(np.iscomplex)
def iscomplex(x: ArrayLike) -> Array:
    """`np.iscomplex`: whether the imaginary part is not 0."""
    return not_equal(imag(x), 0)


@implements(np.isreal)
def isreal(x: ArrayLike) -> Array:
    """`np.isreal`: whether the imaginary part is 0."""
    return equal(imag(x), 0)


@implements(np.iscomplexobj)
def iscomplexobj(x: ArrayLike) -> bool:
    """`np.iscomplexobj`: whether the dtype is complex."""
    return _is_complex(arrays(x)[0])


@implements(np.isrealobj)
def isrealobj(x: ArrayLike) -> bool:
    """`np.isrealobj`: whether the dtype is not complex."""
    return not iscomplexobj(x)


@implements(np.real_if_close)
def real_if_close(a: ArrayLike, tol: float = 100) -> Array:
    """`np.real_if_close`; whether imaginary parts are small is a query, which leaves a guard."""
    (x,) = arrays(a)
    if not _is_complex(x):
        return x
    bound = tol * float(np.finfo(x.dtype).eps) if tol > 1 else tol
    return ops.real(x) if bool(np.all(abs(ops.imag(x)) < bound)) else x


@ufunc("conjugate", "conj")
def conjugate(x: Array) -> Array:
    """Return the complex conjugate."""
    return ops.conj(x) if _is_complex(x) else recomputed(x)


@ufunc("sign")
def sign(x: Array) -> Array:
    """-1, 0 or 1; for complex numbers the direction x / abs(x)."""
    return ops.sgn(x) if _is_complex(x) else elementwise.sign(x)


def in_pairs(x: Array, dtype: DTypeLike) -> Array:
    """`ndarray.view` of complex numbers as their parts along the last axis, or the reverse."""
    *batch_shape, n = x.shape
    if _is_complex(x):
        return shapes.reshaped(ops.view_as_real(x), (*batch_shape, 2 * n))
    if n % 2:
        text = "When changing to a larger dtype, its size must be a divisor of the total size in bytes of the last axis"
        raise ValueError(f"{text} of the array.")
    return ops.view_as_complex(shapes.reshaped(x, (*batch_shape, n // 2, 2)))


# Real and complex numbers have different ops for these functions.
del OP_OF_UFUNC[np.conjugate], OP_OF_UFUNC[np.sign]


class ComplexMethods:
    """Complex attributes and methods of an ndarray, over ops."""

    __slots__ = ()

    @property
    def real(self: Any) -> Any:
        """Return the real part, a view: the array itself unless it is complex."""
        return self.preserve_kind(ops.real(self)) if _is_complex(self) else self

    @real.setter
    def real(self: Any, value: ArrayLike) -> None:
        self.real[...] = value

    @property
    def imag(self: Any) -> Any:
        """Return the imaginary part, a view: zeros unless the array is complex."""
        return self.preserve_kind(imag(self))

    @imag.setter
    def imag(self: Any, value: ArrayLike) -> None:
        if not _is_complex(self):
            raise TypeError("array does not have imaginary part to set")
        self.imag[...] = value

    def conj(self: Any) -> Any:
        """Return the complex conjugate."""
        return self.preserve_kind(ops.conj(self)) if _is_complex(self) else self

    conjugate = conj
