"""Ops on floating-point representation and integers: neighbours, powers of two, bit counts, common divisors.

Compiled code calls NumPy for divisors and powers. `ldexp` has a derivative in the scaled number, and `nextafter` has
the derivative of its first operand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import Aval
from tracegrad.errors import DTypeError
from tracegrad.ops.core.elementwise_op import Elementwise, Loop, promote, same_loop
from tracegrad.ops.core.elementwise_op import elementwise as op
from tracegrad.ops.core.op import Sample, primitive
from tracegrad.ops.core.samples import integer_pairs, integers, uniform
from tracegrad.ops.shape.linear import cast, zeros_like
from tracegrad.typing import Array, DType, NDArray

if TYPE_CHECKING:
    from collections.abc import Iterator


ldexp: Elementwise

gcd = op("gcd(x, y)", np.gcd, None, domain=None, doc="the greatest common divisor of magnitudes")
lcm = op("lcm(x, y)", np.lcm, None, domain=None, doc="the least common multiple of magnitudes")


def _of_integers(x: DType) -> Loop:
    if promote((x,)).kind not in "iu":
        raise TypeError("of integers only")
    return same_loop(x)


popcount = op(
    "popcount(x)",
    lambda x: np.bitwise_count(x).astype(x.dtype),
    "popcount(absolute(x))",
    domain=None,
    loop=_of_integers,
    doc="how many bits of the magnitude are 1, in the dtype of x",
)
bitwise_count = op("bitwise_count(x)", np.bitwise_count, None, domain=None, doc="how many bits of the magnitude are 1")
nextafter = op(
    "nextafter(x, y)",
    np.nextafter,
    "nextafter(x, y)",
    lambda t, ans, x, y: t,
    lambda t, ans, x, y: zeros_like(t),
    doc="the number beside x in the direction of y",
)
spacing = op("spacing(x)", np.spacing, "spacing(x)", doc="the distance to the next number away from zero")
ldexp = op("ldexp(x, y)", np.ldexp, None, lambda t, ans, x, y: ldexp(t, y), domain=None, doc="x * 2**y, y an integer")


for _op in (gcd, lcm):
    _op.def_samples(integer_pairs)
    _op.commutative = True

nextafter.typed = spacing.typed = True


@bitwise_count.def_decompose
def _(x: Array) -> Array:
    return cast(popcount(cast(x, dtype="uint8") if x.dtype.kind == "b" else x), dtype="uint8")


def _whole() -> Any:
    yield (integers((3, 4), -100, 100),), {}
    yield (integers((20,), 0, 100, dtype="uint8"),), {}


for _op in (popcount, bitwise_count):
    _op.def_samples(_whole)


@ldexp.def_samples
def _() -> Iterator[Sample]:
    yield (uniform((3, 4)), integers((3, 4), -5, 5)), {}
    yield (uniform((20,), dtype="float32"), integers((20,), -5, 5, dtype="int32")), {}


@primitive(typed=True)
def reinterpret(x: NDArray, *, dtype: str) -> NDArray:
    """The same bits as elements of another dtype of the same size."""
    return x.view(dtype).copy()


@reinterpret.def_aval
def _(x: Aval, *, dtype: str) -> Aval:
    if np.dtype(dtype).itemsize != x.dtype.itemsize:
        raise DTypeError(f"reinterpret: elements of {x} are not of the size of {dtype}")
    return Aval(x.shape, np.dtype(dtype))


@reinterpret.def_samples
def _() -> Iterator[Sample]:
    yield (integers((3, 4), -100, 100),), {"dtype": "float64"}
    yield (integers((20,), 0, 9, dtype="uint32"),), {"dtype": "int32"}
