"""Split numbers into parts: elementwise ops with two results (`modf`, `frexp`, `divmod`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import Aval
from tracegrad.errors import DTypeError
from tracegrad.ops.core.elementwise_op import elementwise as op
from tracegrad.ops.core.elementwise_op import float_loop
from tracegrad.ops.core.op import ResultAvals, Sample, multi_result
from tracegrad.ops.core.samples import integers, uniform
from tracegrad.ops.elementwise.table import (
    copysign,
    divide,
    floor_divide,
    isfinite,
    isinf,
    logical_and,
    multiply,
    negative,
    not_equal,
    remainder,
    subtract,
    trunc,
    where,
)
from tracegrad.typing import Array, NDArray

if TYPE_CHECKING:
    from collections.abc import Iterator


def _floating(name: str, x: Aval) -> Aval:
    if not x.is_float:
        raise DTypeError(f"{name}: the operand must be of a floating dtype, got {x}")
    return x


def _samples() -> Iterator[Sample]:
    yield (uniform((3, 4)),), {}
    yield (uniform((20,), -90, 90, dtype="float32"),), {}
    yield (uniform((0, 3)),), {}


# -- modf ------------------------------------------------------------------------------------------------
@multi_result(order="K")
def modf(x: NDArray) -> tuple[NDArray, ...]:
    """The fractional and the whole part, both with the sign of `x`; the whole part has the derivative 0."""
    return np.modf(x)


@modf.def_aval
def _(x: Aval) -> ResultAvals:
    return ResultAvals((_floating("modf", x), x))


@modf.def_vjp_all
def _(wanted: Sequence[int], cts: tuple[Array | None, ...], ans: tuple[Array, ...], x: Array) -> list[Any]:
    return [cts[0]]


@modf.def_decompose
def _(x: Array) -> tuple[Any, Any]:
    whole = trunc(x)
    # inf - inf is nan, and -2.0 - -2.0 is 0.0.
    return copysign(where(isinf(x), 0.0, subtract(x, whole)), x), whole


modf.def_samples(_samples)


# -- frexp -----------------------------------------------------------------------------------------------
def _of_mantissa(t: Array, ans: Array, x: Array) -> Array:
    # The mantissa over x is a power of two. The mantissa of 0, inf and nan is the number itself.
    is_regular = logical_and(isfinite(x), not_equal(x, 0.0))
    return multiply(t, where(is_regular, divide(ans, where(is_regular, x, 1.0)), 1.0))


mantissa = op(
    "mantissa(x)", lambda x: np.frexp(x)[0], "mantissa(x)", _of_mantissa, loop=float_loop, doc="the first of frexp(x)"
)
exponent = op(
    "exponent(x)",
    lambda x: np.frexp(x)[1],
    "exponent(x)",
    doc="the second of frexp(x)",
    loop=lambda x: (*float_loop(x)[:1], np.dtype(np.int32)),
)


@multi_result(order="K")
def frexp(x: NDArray) -> tuple[NDArray, ...]:
    """The mantissa, from 0.5 to 1 in magnitude or 0, and the exponent of 2, an int32; inf and nan as in NumPy."""
    return np.frexp(x)


@frexp.def_aval
def _(x: Aval) -> ResultAvals:
    return ResultAvals((_floating("frexp", x), Aval(x.shape, np.dtype(np.int32))))


@frexp.def_vjp_all
def _(wanted: Sequence[int], cts: Any, ans: tuple[Array, ...], x: Array) -> list[Any]:
    return [_of_mantissa(cts[0], ans[0], x)]


@frexp.def_decompose
def _(x: Array) -> tuple[Any, Any]:
    return mantissa(x), exponent(x)


frexp.def_samples(_samples)


# -- divmod ----------------------------------------------------------------------------------------------
@multi_result(order="K")
def divmod(x: NDArray, y: NDArray) -> tuple[NDArray, ...]:
    """floor(x / y), whose derivative is 0, and the remainder, with the sign of `y`; operands as for `floor_divide`."""
    return np.divmod(x, y)


@divmod.def_aval
def _(x: Aval, y: Aval) -> ResultAvals:
    result = floor_divide.aval(x, y)
    return ResultAvals((result, result))


@divmod.def_vjp_all
def _(wanted: Sequence[int], cts: tuple[Array | None, ...], ans: tuple[Array, ...], x: Array, y: Array) -> list[Any]:
    ct = cts[1]
    return [None if ct is None else ct if i == 0 else negative(multiply(ct, ans[0])) for i in wanted]


@divmod.def_decompose
def _(x: Array, y: Array) -> tuple[Any, Any]:
    return floor_divide(x, y), remainder(x, y)


@divmod.def_samples
def _() -> Iterator[Sample]:
    yield (uniform((3, 4), 1, 3), uniform((3, 4), 1, 3, seed=1)), {}
    yield (uniform((20,), -90, 90, dtype="float32"), uniform((20,), 1, 9, seed=1, dtype="float32")), {}
    yield (integers((20,), -9, 9), integers((20,), 1, 5, seed=1)), {}
    yield (uniform((0, 3)), uniform((0, 3))), {}
