"""Fused losses: each is one op, with one node on the tape and a cheap derivative."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tracegrad.avals import Aval
from tracegrad.errors import DTypeError, ShapeError
from tracegrad.ops.core.forms import Compose
from tracegrad.ops.core.op import HOLOMORPHIC, Sample, primitive
from tracegrad.ops.core.samples import uniform
from tracegrad.ops.elementwise.table import multiply, square, subtract
from tracegrad.ops.reduce.reductions import count_of, mean
from tracegrad.ops.shape.linear import sum_over, unreduce
from tracegrad.typing import Array, NDArray

if TYPE_CHECKING:
    from collections.abc import Iterator


# Maximum elements whose squares a dot product sums as exactly as NumPy's pairwise sum does, and faster.
_SHORT = 256


def _decomposed(x: Array, y: Array, *, axes: tuple[int, ...]) -> Array:
    return mean(square(subtract(x, y)), axes=axes)


@primitive(Compose(_decomposed), on_complex=HOLOMORPHIC)
def mse_loss(x: NDArray, y: NDArray, *, axes: tuple[int, ...]) -> Any:
    """The mean over `axes` of the squares of x - y, which have one shape and dtype."""
    d = x - y
    n = d.size
    if 0 < n <= _SHORT and len(axes) == d.ndim:
        flat = d.ravel()
        return flat.dot(flat) / n
    return sum_over(d * d, axes) / math.prod([d.shape[a] for a in axes])


@mse_loss.def_aval
def _(x: Aval, y: Aval, *, axes: tuple[int, ...]) -> Aval:
    if x.shape != y.shape or (axes and not 0 <= min(axes) <= max(axes) < x.ndim):
        raise ShapeError(f"mse_loss: {x} and {y} over axes {axes}")
    if x.dtype != y.dtype or x.dtype.kind not in "fc":
        raise DTypeError(f"mse_loss is of numbers of one floating dtype, got {x} and {y}")
    return Aval(tuple([n for a, n in enumerate(x.shape) if a not in axes]), x.dtype)


def _operand_cotangent(ct: Array, x: Array, y: Array, axes: tuple[int, ...]) -> Array:
    n = count_of(x, axes)
    return multiply(unreduce(multiply(ct, 2 / n if n else math.nan), x.shape, axes), subtract(x, y))


@mse_loss.def_vjp("x")
def _(ct: Array, ans: Array, x: Array, y: Array, *, axes: tuple[int, ...]) -> Array:
    return _operand_cotangent(ct, x, y, axes)


@mse_loss.def_vjp("y")
def _(ct: Array, ans: Array, x: Array, y: Array, *, axes: tuple[int, ...]) -> Array:
    return _operand_cotangent(ct, y, x, axes)


@mse_loss.def_samples
def _() -> Iterator[Sample]:
    yield (uniform((3, 4)), uniform((3, 4), seed=1)), {"axes": (0, 1)}
    yield (uniform((20, 3), dtype="float32"), uniform((20, 3), seed=1, dtype="float32")), {"axes": (0,)}
    yield (uniform((5,)), uniform((5,), seed=1)), {"axes": ()}
