"""Define the comparisons, the logical ops, `where`, and the ops whose derivative is 0 almost everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.ops.core.elementwise_op import Elementwise, promote
from tracegrad.ops.core.elementwise_op import elementwise as op
from tracegrad.ops.core.op import AS_WRITTEN, Sample
from tracegrad.ops.core.samples import integers, uniform
from tracegrad.typing import Array, DType

if TYPE_CHECKING:
    from collections.abc import Iterator


# Named by rules above their definitions.
equal: Elementwise
greater: Elementwise
isfinite: Elementwise
isinf: Elementwise
isnan: Elementwise
less: Elementwise
less_equal: Elementwise
logical_and: Elementwise
logical_or: Elementwise
not_equal: Elementwise
where: Elementwise

BOOL = np.dtype(bool)
sign = op("sign(x)", np.sign, "sign(x)", piecewise_constant=True, doc="-1, 0 or 1")
floor = op("floor(x)", np.floor, "floor(x)", piecewise_constant=True, doc="largest integer not above x")
ceil = op("ceil(x)", np.ceil, "ceil(x)", piecewise_constant=True, doc="smallest integer not below x")
trunc = op("trunc(x)", np.trunc, "trunc(x)", piecewise_constant=True, doc="integer part of x")
rint = op("rint(x)", np.rint, "rint(x)", piecewise_constant=True, doc="nearest integer, ties to even")
signbit = op("signbit(x)", np.signbit, "copysign(1, x) < 0", doc="whether x is negative, or -0.0")


def _where_loop(condition: Array, x: Array, y: Array) -> tuple[DType, ...]:
    dtype = promote((x, y))
    return BOOL, dtype, dtype, dtype


where = op(
    "where(condition, x, y)",
    np.where,
    "where(condition, x, y)",
    None,
    lambda t, ans, condition, x, y: where(condition, t, 0.0),
    lambda t, ans, condition, x, y: where(condition, 0.0, t),
    loop=_where_loop,
    domain=None,
    moves=True,
    doc="x where the condition holds, else y",
)

where.linear_in("x", "y")


@where.def_samples
def _() -> Iterator[Sample]:
    for dtype in ("float64", "float32"):
        yield (
            (uniform((3, 4)) > 0, uniform((3, 4), seed=1, dtype=dtype), uniform((3, 4), seed=2, dtype=dtype)),
            {},
        )
    yield (uniform((3, 4)) > 0, integers((3, 4), -9, 9), integers((3, 4), -9, 9, seed=1)), {}


equal = op("equal(x, y)", np.equal, "x == y", on_complex=AS_WRITTEN, doc="x == y")
not_equal = op("not_equal(x, y)", np.not_equal, "x != y", on_complex=AS_WRITTEN, doc="x != y")
less = op("less(x, y)", np.less, "x < y", doc="x < y")
less_equal = op("less_equal(x, y)", np.less_equal, "x <= y", doc="x <= y")
greater = op("greater(x, y)", np.greater, "x > y", doc="x > y")
greater_equal = op("greater_equal(x, y)", np.greater_equal, "x >= y", doc="x >= y")


def _logic(n: int) -> Any:
    def loop(*dtypes: DType | type) -> Any:
        return (BOOL,) * (n + 1)

    return loop


logical_and = op(
    "logical_and(x, y)",
    np.logical_and,
    "logical_and(x, y)",
    loop=_logic(2),
    domain=None,
    on_complex=AS_WRITTEN,
    doc="x and y",
)
logical_or = op(
    "logical_or(x, y)",
    np.logical_or,
    "logical_or(x, y)",
    loop=_logic(2),
    domain=None,
    on_complex=AS_WRITTEN,
    doc="x or y",
)
logical_xor = op(
    "logical_xor(x, y)",
    np.logical_xor,
    "x != y",
    loop=_logic(2),
    domain=None,
    on_complex=AS_WRITTEN,
    doc="x or y, not both",
)
logical_not = op(
    "logical_not(x)", np.logical_not, "logical_not(x)", loop=_logic(1), domain=None, on_complex=AS_WRITTEN, doc="not x"
)


def _boolean_tables() -> Any:
    yield (np.array([True, True, False, False]), np.array([True, False, True, False])), {}


for _op in (logical_and, logical_or, logical_xor):
    _op.def_samples(_boolean_tables)
logical_not.def_samples(lambda: [((np.array([True, False]),), {})])

isnan = op("isnan(x)", np.isnan, "x != x", on_complex=AS_WRITTEN, doc="whether x is nan")
isfinite = op(
    "isfinite(x)", np.isfinite, "isfinite(x)", on_complex=AS_WRITTEN, doc="whether x is neither infinite nor nan"
)
isinf = op("isinf(x)", np.isinf, "isinf(x)", on_complex=AS_WRITTEN, doc="whether x is infinite")
for _op in (equal, logical_and, logical_or, logical_xor, not_equal):
    _op.commutative = True
for _op in (ceil, floor, rint, sign, trunc, where):
    _op.exact = True
