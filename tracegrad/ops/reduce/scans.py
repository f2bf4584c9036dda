"""Cumulative ops along one axis: first-order linear recurrences, whose derivatives are linear recurrences too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import Aval
from tracegrad.errors import ShapeError
from tracegrad.ops.core.forms import Scan
from tracegrad.ops.core.op import HOLOMORPHIC, Sample, primitive
from tracegrad.ops.core.samples import uniform
from tracegrad.ops.elementwise.table import add, equal, exp, multiply, subtract, where
from tracegrad.ops.shape.linear import flip, pad, reduced_shape, slice
from tracegrad.typing import Array, NDArray

if TYPE_CHECKING:
    from collections.abc import Iterator


def _same(x: Aval, *, axis: int) -> Aval:
    reduced_shape(x.shape, (axis,))
    return x


# -- cumsum ------------------------------------------------------------------------------------------
@primitive(Scan("add"))
def cumsum(x: NDArray, *, axis: int) -> NDArray:
    """The running sum along `axis`; the dtype stays."""
    return np.cumsum(x, axis=axis, dtype=x.dtype)


@cumsum.def_aval
def _(x: Aval, *, axis: int) -> Aval:
    reduced_shape(x.shape, (axis,))
    return x


cumsum.linear_in("x")


@cumsum.def_vjp("x")
def _(ct: Array, ans: Array, x: Array, *, axis: int) -> Array:
    return flip(cumsum(flip(ct, axes=(axis,)), axis=axis), axes=(axis,))


@cumsum.def_samples
def _() -> Iterator[Sample]:
    yield (uniform((3, 4)),), {"axis": 0}
    yield (uniform((20,), dtype="float32"),), {"axis": 0}


# -- linear_scan -----------------------------------------------------------------------------------------
@primitive(on_complex=HOLOMORPHIC)
def linear_scan(a: NDArray, b: NDArray, *, axis: int) -> NDArray:
    """y[i] = a[i] * y[i - 1] + b[i] along `axis`, where y[-1] is 0."""
    y = np.array(b)
    values, factors = np.moveaxis(y, axis, 0), np.moveaxis(a, axis, 0)
    for i in range(1, len(values)):
        values[i] += factors[i] * values[i - 1]
    return y


@linear_scan.def_aval
def _(a: Aval, b: Aval, *, axis: int) -> Aval:
    if a != b:
        raise ShapeError(f"linear_scan wants two arrays of one shape and dtype, got {a} and {b}")
    return _same(b, axis=axis)


def _shifted(x: Array, axis: int, by: int, value: float) -> Array:
    """`x` shifted by one position along `axis`, forwards (`by` 1) or backwards (-1), with `value` in the free
    position."""
    n = x.shape[axis]
    start = tuple(1 if k == axis and by < 0 and n else 0 for k in range(len(x.shape)))
    stop = tuple(max(m - 1, 0) if k == axis and by > 0 else m for k, m in enumerate(x.shape))
    saved = slice(x, start=start, stop=stop, step=(1,) * len(x.shape))
    one = tuple(1 if k == axis and n else 0 for k in range(len(x.shape)))
    none = (0,) * len(x.shape)
    low, high = (one, none) if by > 0 else (none, one)
    return pad(saved, low=low, high=high, interior=none, value=value)


def _backwards(a: Array, b: Array, axis: int) -> Array:
    """r[i] = a[i + 1] * r[i + 1] + b[i], from the last to the first."""
    flipped = [flip(x, axes=(axis,)) for x in (_shifted(a, axis, -1, 0.0), b)]
    return flip(linear_scan(*flipped, axis=axis), axes=(axis,))


@linear_scan.def_vjp("a")
def _(ct: Array, ans: Array, a: Array, b: Array, *, axis: int) -> Array:
    return multiply(_backwards(a, ct, axis), _shifted(ans, axis, 1, 0.0))


@linear_scan.def_vjp("b")
def _(ct: Array, ans: Array, a: Array, b: Array, *, axis: int) -> Array:
    return _backwards(a, ct, axis)


@linear_scan.def_jvp
def _(tangents: Any, ans: Array, a: Array, b: Array, *, axis: int) -> Array:
    t_a, t_b = tangents
    if t_a is not None:
        share = multiply(t_a, _shifted(ans, axis, 1, 0.0))
        t_b = share if t_b is None else add(share, t_b)
    return linear_scan(a, t_b, axis=axis)


@linear_scan.def_samples
def _() -> Iterator[Sample]:
    yield (uniform((3, 4)), uniform((3, 4), seed=1)), {"axis": 1}
    yield (uniform((9,), dtype="float32"), uniform((9,), seed=1, dtype="float32")), {"axis": 0}


# -- cumprod ---------------------------------------------------------------------------------------------
@primitive(Scan("mul"), on_complex=HOLOMORPHIC)
def cumprod(x: NDArray, *, axis: int) -> NDArray:
    """The running product along `axis`; the dtype stays."""
    return np.cumprod(x, axis=axis, dtype=x.dtype)


cumprod.def_aval(_same)


@cumprod.def_vjp("x")
def _(ct: Array, ans: Array, x: Array, *, axis: int) -> Array:
    # By the recurrence, not by quotients: exact where an element is 0, at every order.
    return multiply(_backwards(x, ct, axis), _shifted(ans, axis, 1, 1.0))


@cumprod.def_jvp
def _(tangents: Any, ans: Array, x: Array, *, axis: int) -> Array:
    return linear_scan(x, multiply(tangents[0], _shifted(ans, axis, 1, 1.0)), axis=axis)


@cumprod.def_samples
def _() -> Iterator[Sample]:
    yield (uniform((3, 4)),), {"axis": 0}
    yield (uniform((6,), dtype="float32"),), {"axis": 0}
    yield (np.array([2.0, 0.0, 3.0, 0.0, 5.0]),), {"axis": 0}


# -- logcumsumexp ----------------------------------------------------------------------------------------
@primitive(order="K")
def logcumsumexp(x: NDArray, *, axis: int) -> NDArray:
    """log(cumsum(exp(x))) along `axis`, without overflow."""
    return np.logaddexp.accumulate(x, axis=axis)


logcumsumexp.def_aval(_same)


def _quotient(x: Array, y: Array) -> Array:
    """exp(x - y) for x <= y, and 0 where both are -inf."""
    return exp(subtract(x, where(equal(y, -np.inf), 0.0, y)))


@logcumsumexp.def_vjp("x")
def _(ct: Array, ans: Array, x: Array, *, axis: int) -> Array:
    # No factor is above 1, because the result grows along the axis.
    growth = _quotient(_shifted(ans, axis, 1, -np.inf), ans)
    return multiply(_quotient(x, ans), _backwards(growth, ct, axis))


@logcumsumexp.def_jvp
def _(tangents: Any, ans: Array, x: Array, *, axis: int) -> Array:
    growth = _quotient(_shifted(ans, axis, 1, -np.inf), ans)
    return linear_scan(growth, multiply(_quotient(x, ans), tangents[0]), axis=axis)


@logcumsumexp.def_samples
def _() -> Iterator[Sample]:
    yield (uniform((3, 4)),), {"axis": 0}
    yield (uniform((6,), dtype="float32"),), {"axis": 0}
