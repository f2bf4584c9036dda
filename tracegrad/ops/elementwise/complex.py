"""Complex ops: parts and conjugates of complex numbers, and the complex rules of all other ops.

A cotangent follows PyTorch's convention: the cotangent of a real function L with respect to z = x + iy is
dL/dx + i dL/dy, so that a step against it decreases L. A holomorphic function multiplies it by the conjugate of the
derivative. Functions that are not holomorphic, such as conj and abs, have rules of their own. A real operand gets the
real part.

Complex numbers are computed eagerly and recorded on the eager tape; compiled graphs contain none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import Aval
from tracegrad.errors import DTypeError, ShapeError, located
from tracegrad.ops.core.elementwise_op import Elementwise, elementwise, promote
from tracegrad.ops.core.forms import Compose
from tracegrad.ops.core.half_rounding import HALF
from tracegrad.ops.core.op import AS_WRITTEN, TABLE, Op, Sample, primitive
from tracegrad.ops.core.samples import uniform
from tracegrad.ops.elementwise.table import absolute, add, divide, equal, multiply, subtract, where
from tracegrad.ops.shape.linear import cast
from tracegrad.typing import Array, DType, DTypeLike, NDArray

if TYPE_CHECKING:
    from collections.abc import Iterator


def complex_of(dtype: DType) -> np.dtype[Any]:
    """The complex dtype with parts of the floating `dtype`."""
    return np.result_type(dtype, np.complex64)


def real_of(dtype: DType) -> np.dtype[Any]:
    """The dtype of the parts of a complex `dtype`."""
    return np.finfo(dtype).dtype


def memory_aval(x: Aval) -> Aval:
    """The memory representation of `x`: the parts of complex numbers along a new last axis; else `x` itself."""
    return Aval((*x.shape, 2), real_of(x.dtype)) if x.dtype.kind == "c" else x


def sample(shape: tuple[int, ...], seed: int = 0, dtype: str = "complex128") -> NDArray:
    """Complex numbers with parts between -2 and 2."""
    result: NDArray = (uniform(shape, seed=seed) + 1j * uniform(shape, seed=seed + 7)).astype(dtype)
    return result


def _of_complex(op: Op, *dtypes: str) -> None:
    @op.def_samples
    def _() -> Iterator[Sample]:
        for dtype in dtypes or ("complex128", "complex64"):
            yield (sample((3, 4), dtype=dtype),), {}


# -- parts -----------------------------------------------------------------------------------------------
def _part_loop(dtype: DTypeLike) -> tuple[DType, ...]:
    dtype = np.dtype(dtype)
    if dtype.kind != "c":
        raise TypeError("only complex numbers have parts")
    return dtype, real_of(dtype)


def _as_complex(t: Array) -> Array:
    return t if t.dtype.kind == "c" else cast(t, dtype=complex_of(t.dtype).name)


real = elementwise(
    "real(x)",
    np.real,
    None,
    lambda t, ans, x: _as_complex(t),
    loop=_part_loop,
    domain=None,
    on_complex=AS_WRITTEN,
    aliases=True,
    doc="the real part, as a view",
)
imag = elementwise(
    "imag(x)",
    np.imag,
    None,
    lambda t, ans, x: multiply(t, 1j),
    loop=_part_loop,
    domain=None,
    on_complex=AS_WRITTEN,
    aliases=True,
    doc="the imaginary part, as a view",
)
conj: Elementwise = elementwise(
    "conj(x)",
    np.conjugate,
    None,
    lambda t, ans, x: conj(t),
    domain=None,
    on_complex=AS_WRITTEN,
    doc="complex conjugate",
)


def _complex_loop(x: Array, y: Array) -> tuple[DType, ...]:
    dtype = promote((x, y))
    if dtype.kind == "c":
        raise TypeError("the parts of complex numbers are real")
    if dtype == HALF:
        raise TypeError("there are no complex numbers of half precision")
    dtype = dtype if dtype.kind == "f" else np.dtype(np.float64)
    return dtype, dtype, complex_of(dtype)


def _numpy_complex(x: NDArray, y: NDArray) -> NDArray:
    # Not x + 1j * y, which is nan where y is infinite.
    out = np.empty(np.broadcast_shapes(np.shape(x), np.shape(y)), complex_of(np.result_type(x, y)))
    out.real, out.imag = x, y
    return out


complex_ = elementwise(
    "complex(x, y)",
    _numpy_complex,
    None,
    lambda t, ans, x, y: real(t),
    lambda t, ans, x, y: imag(t),
    loop=_complex_loop,
    on_complex=AS_WRITTEN,
    doc="x + iy",
)


@real.def_view_update
def _(base: Array, new: Array) -> Array:
    return complex_(new, imag(base))


@imag.def_view_update
def _(base: Array, new: Array) -> Array:
    return complex_(real(base), new)


real.linear_in("x")
imag.linear_in("x")
conj.linear_in("x")
complex_.linear_in("x", "y")


# -- magnitude and direction -----------------------------------------------------------------------------
def _direction_loop(dtype: DTypeLike) -> tuple[DType, ...]:
    dtype = np.dtype(dtype)
    if dtype.kind != "c":
        raise TypeError("this op is for complex numbers")
    return dtype, dtype


def _across(t: Array, ans: Array, x: Array) -> Array:
    """The component of `t` orthogonal to the direction `ans`, divided by the magnitude; 0 without a direction."""
    size = absolute(x)
    none = equal(size, 0)
    across = subtract(t, multiply(real(multiply(t, conj(ans))), ans))
    return where(none, 0.0, divide(across, where(none, 1.0, size)))


sgn = elementwise(
    "sgn(x)",
    np.sign,
    None,
    _across,
    loop=_direction_loop,
    domain=None,
    on_complex=AS_WRITTEN,
    doc="x / abs(x), 0 where x is 0",
)


def _angle_rule(t: Array, ans: Array, x: Array) -> Array:
    squared = add(multiply(real(x), real(x)), multiply(imag(x), imag(x)))
    none = equal(squared, 0)
    derivative = where(none, 0.0, divide(multiply(x, 1j), where(none, 1.0, squared)))
    return multiply(t, derivative)


angle = elementwise(
    "angle(x)",
    np.angle,
    None,
    _angle_rule,
    loop=_part_loop,
    domain=None,
    on_complex=AS_WRITTEN,
    doc="the angle of x in the plane, from -pi to pi; its slope at 0 is 0",
)

for _op in (real, imag, conj, sgn, angle):
    _of_complex(_op)


# -- one memory as two arrays: each op is the other's transpose --------------------------------------------
def _as_parts(x: Array) -> Array:
    result: Array = TABLE["stack"](real(x), imag(x), axis=len(x.shape))
    return result


def _as_whole(x: Array) -> Array:
    ends = [((*(0,) * (len(x.shape) - 1), k), (*x.shape[:-1], k + 1)) for k in (0, 1)]
    parts = [TABLE["slice"](x, start=low, stop=high, step=(1,) * len(x.shape)) for low, high in ends]
    return complex_(*[TABLE["reshape"](part, shape=x.shape[:-1]) for part in parts])


@primitive(Compose(_as_parts, fails=False), on_complex=AS_WRITTEN, aliases=True)
def view_as_real(x: NDArray) -> NDArray:
    """Real and imaginary parts along a new last axis, in the memory of the complex `x`."""
    return x[..., None].view(real_of(x.dtype))


@view_as_real.def_aval
def _(x: Aval) -> Aval:
    if x.dtype.kind != "c":
        raise DTypeError(located(f"view_as_real is only supported for complex tensors, got {x}"))
    return Aval((*x.shape, 2), real_of(x.dtype))


@view_as_real.def_view_update
def _(base: Array, new: Array) -> Array:
    return view_as_complex(new)


@view_as_real.def_vjp("x")
def _(ct: Array, ans: Array, x: Array) -> Array:
    return view_as_complex(ct)


_of_complex(view_as_real)
view_as_real.linear_in("x")


@primitive(Compose(_as_whole, fails=False), on_complex=AS_WRITTEN, aliases=True)
def view_as_complex(x: NDArray) -> Any:
    """The complex numbers whose parts are along the last axis of `x`, in its memory if that is possible."""
    view = _side_by_side(x)
    return _side_by_side(np.ascontiguousarray(x)) if view is None else view


def _side_by_side(x: NDArray) -> Any:
    """The complex view of parts that are adjacent in memory; None for others."""
    return x.view(complex_of(x.dtype))[..., 0] if x.strides[-1] == x.itemsize or not x.size else None


view_as_complex.view = _side_by_side


@view_as_complex.def_aval
def _(x: Aval) -> Aval:
    if not x.shape or x.shape[-1] != 2 or not x.is_float:
        raise ShapeError(f"view_as_complex: the last axis of floating numbers must have size 2, got {x}")
    if x.dtype == HALF:
        raise DTypeError(located("view_as_complex: there are no complex numbers of half precision"))
    return Aval(x.shape[:-1], complex_of(x.dtype))


@view_as_complex.def_view_update
def _(base: Array, new: Array) -> Array:
    return view_as_real(new)


@view_as_complex.def_vjp("x")
def _(ct: Array, ans: Array, x: Array) -> Array:
    return view_as_real(ct)


view_as_complex.linear_in("x")


@view_as_complex.def_samples
def _() -> Iterator[Sample]:
    yield (uniform((3, 2)),), {}
    yield (uniform((2,), dtype="float32"),), {}


def conjugated(x: Array) -> Array:
    """The conjugate of complex numbers; real numbers as they are."""
    return conj(x) if x.dtype.kind == "c" else x
