"""Complex functions: real and imaginary parts, conjugates, and complex Tensors from parts.

`real`, `imag`, `view_as_real` and `view_as_complex` share memory with their operand, so an in-place update of a part
updates the whole. A conjugate has separate memory. Real operands are treated as in PyTorch.
"""

from __future__ import annotations

import math

import numpy as np

from tracegrad.errors import DTypeError, located
from tracegrad.numpy_api.operands import arrays
from tracegrad.ops.core.half_rounding import HALF
from tracegrad.ops.core.op import named, one_node
from tracegrad.ops.elementwise import complex as ops
from tracegrad.ops.elementwise.table import (
    cos,
    equal,
    flat,
    isnan,
    less,
    logical_or,
    multiply,
    not_equal,
    sign,
    sin,
    where,
)
from tracegrad.ops.shape.linear import cast, stop_gradient
from tracegrad.torch.functions.core.dims import one, size_error, type_name
from tracegrad.torch.functions.core.operands import TensorOperands, floating, pair
from tracegrad.torch.functions.core.registry import function, method
from tracegrad.torch.functions.indexing import slicing
from tracegrad.torch.functions.indexing.shapes import transpose
from tracegrad.typing import Array, ArrayLike


def is_complex(x: Array) -> bool:
    """Whether the elements of an array are complex."""
    return bool(x.dtype.kind == "c")


# -- parts ---------------------------------------------------------------------------------------------------------
@function("real", methods=False)
def real(input: Array) -> Array:
    """Return the real part as a view; a real Tensor itself.

    >>> real(np.array([1 + 2j, 3 - 4j])).tolist()
    [1.0, 3.0]
    """
    x = one(input)
    return slicing.select(ops.view_as_real(x), -1, 0) if is_complex(x) else x


@function("imag", methods=False)
def imag(input: Array) -> Array:
    """Return the imaginary part as a view.

    RuntimeError for real Tensors.

    >>> imag(np.array([1 + 2j, 3 - 4j])).tolist()
    [2.0, -4.0]
    """
    x = one(input)
    if not is_complex(x):
        raise RuntimeError(located("imag is not implemented for tensors with non-complex dtypes."))
    return slicing.select(ops.view_as_real(x), -1, 1)


@function("view_as_real", methods=False)
def view_as_real(input: ArrayLike) -> Array:
    """View real and imaginary parts along a new last dimension.

    RuntimeError for real Tensors.

    >>> view_as_real(np.array([1 + 2j])).tolist()
    [[1.0, 2.0]]
    """
    x = one(input)
    if not is_complex(x):
        raise RuntimeError(located("view_as_real is only supported for complex tensors"))
    return ops.view_as_real(x)


@function("view_as_complex", methods=False)
def view_as_complex(input: ArrayLike) -> Array:
    """View the last dimension, of size 2, as the parts of complex numbers.

    RuntimeError for another size, for parts that are not adjacent in memory, and for dtypes without complex numbers of
    that precision.

    >>> view_as_complex(np.array([[1.0, 2.0]])).tolist()
    [(1+2j)]
    """
    x = one(input)
    if x.dtype.kind != "f":
        raise RuntimeError(
            located(
                "view_as_complex is only supported for half, float and double tensors, but got a tensor of scalar "
                f"type: {type_name(x.dtype)}"
            )
        )
    if not x.shape:
        raise RuntimeError(located("Input tensor must have one or more dimensions"))
    if x.shape[-1] != 2:
        raise size_error("Tensor must have a last dimension of size 2")
    array = getattr(x, "array", x)
    strides = getattr(array, "strides", None)
    if strides is not None and strides[-1] != np.dtype(array.dtype).itemsize:
        raise RuntimeError(located("Tensor must have a last dimension with stride 1"))
    return ops.view_as_complex(_not_half(x))


# -- complex numbers from parts ------------------------------------------------------------------------------------
def _real_and_imag(x: ArrayLike, y: ArrayLike, rule: TensorOperands) -> tuple[Array, Array]:
    x, y = arrays(*pair(x, y, rule))
    first, second = type_name(x.dtype), type_name(y.dtype)
    if x.dtype.kind != "f" or y.dtype.kind != "f":
        raise RuntimeError(
            located(f"Expected both inputs to be Half, Float or Double tensors but got {first} and {second}")
        )
    if x.dtype != y.dtype:
        raise RuntimeError(
            located(f"Expected object of scalar type {first} but got scalar type {second} for second argument")
        )
    return _not_half(x), y


def _not_half(x: Array) -> Array:
    """Convert parts of complex numbers to single precision at least."""
    if x.dtype == HALF:
        raise DTypeError(located("tracegrad has no complex numbers of half precision; take float() of the parts first"))
    return x


_COMPLEX, _POLAR = (
    TensorOperands("complex", "both", ("real", "imag")),
    TensorOperands("polar", "both", ("abs", "angle")),
)


@function("complex", methods=False)
def complex_(real: ArrayLike, imag: ArrayLike) -> Array:
    """Make complex numbers of real and imaginary parts.

    RuntimeError if they are not floating, or have different dtypes.

    >>> complex_(np.array([1.0]), np.array([2.0])).tolist()
    [(1+2j)]
    """
    return ops.complex_(*_real_and_imag(real, imag, _COMPLEX))


@function("polar", methods=False)
def polar(abs: Array, angle: ArrayLike) -> Array:
    """Make complex numbers of magnitudes and angles.

    RuntimeError if they are not floating, or have different dtypes.

    >>> polar(np.array([2.0]), np.array([0.0])).tolist()
    [(2+0j)]
    """
    return _polar(*_real_and_imag(abs, angle, _POLAR))


@one_node("PolarBackward0")
def _polar(size: Array, angle: Array) -> Array:
    return ops.complex_(multiply(size, cos(angle)), multiply(size, sin(angle)))


# -- conjugates ----------------------------------------------------------------------------------------------------
@function("conj")
def conj(input: ArrayLike) -> Array:
    """Return the complex conjugate; a real Tensor itself.

    >>> conj(np.array([1 + 2j])).tolist()
    [(1-2j)]
    """
    x = one(input)
    return ops.conj(x) if is_complex(x) else x


@function("conj_physical", in_place=True)
def conj_physical(input: ArrayLike) -> Array:
    """Return the complex conjugate; a real Tensor itself."""
    x = one(input)
    return named("ConjPhysicalBackward0", ops.conj(x)) if is_complex(x) else x


@function("resolve_conj", "resolve_neg")
def resolve_conj(input: ArrayLike) -> Array:
    """Return the Tensor itself: conjugates are computed at once."""
    return one(input)


@function("is_conj", "is_neg")
def is_conj(input: ArrayLike) -> bool:
    """Return False: conjugates are computed at once."""
    return False


@function("adjoint")
def adjoint(input: ArrayLike) -> Array:
    """Exchange the last two dimensions, and return the conjugate.

    RuntimeError for fewer than two dimensions.

    >>> adjoint(np.array([[1 + 2j, 3j]])).tolist()
    [[(1-2j)], [-3j]]
    """
    x = one(input)
    if len(x.shape) < 2:
        raise size_error(
            f"tensor.adjoint() is only supported on matrices or batches of matrices. Got {len(x.shape)}-D tensor."
        )
    return conj(transpose(x, -2, -1))


# -- magnitude and direction -----------------------------------------------------------------------------------------
@function("angle")
def angle(input: ArrayLike) -> Array:
    """Return the angle in radians, between -pi and pi; of a real number pi below zero and 0 otherwise.

    >>> angle(np.array([1j, -1.0])).tolist() == [math.pi / 2, math.pi]
    True
    """
    x = floating(input)
    return ops.angle(x) if is_complex(x) else named("AngleBackward0", flat(_angle_of_real(stop_gradient(x)), x))


def _angle_of_real(x: Array) -> Array:
    return where(isnan(x), x, multiply(cast(less(x, 0), dtype=x.dtype.name), math.pi))


def sign_of_real(x: Array) -> Array:
    """-1, 0 or 1, and 0 of nan, where NumPy has nan"""
    return where(equal(x, x), sign(x), 0.0) if x.dtype.kind == "f" else sign(x)


@function("sgn", in_place=True)
def sgn(input: Array) -> Array:
    """Return input / abs(input), and 0 for 0; of a real number the sign.

    >>> sgn(np.array([3 + 4j, 0j])).tolist()
    [(0.6+0.8j), 0j]
    """
    x = one(input)
    if is_complex(x):
        return ops.sgn(x)
    return named("SgnBackward0", flat(sign_of_real(x), x) if x.dtype.kind == "f" else sign(x))


@function("isreal")
def isreal(input: ArrayLike) -> Array:
    """Return whether elements are real: their imaginary part is 0.

    >>> isreal(np.array([1 + 2j, 3 + 0j])).tolist()
    [False, True]
    """
    x = one(input)
    return equal(ops.imag(x), 0) if is_complex(x) else logical_or(equal(x, x), not_equal(x, x))


@method("is_complex")
def is_complex_(self: Array) -> bool:
    """Whether the elements are complex."""
    return is_complex(self)
