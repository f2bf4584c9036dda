"""What the ops with regions share: running a region, checking its signature."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracegrad.avals import Aval, aval_of
from tracegrad.errors import ShapeError, VerifyError
from tracegrad.ir import Graph, replay

__all__ = ["require", "row_of", "rows", "run_region"]


def run_region(region: Graph, operands: Sequence[Any]) -> list[Any]:
    """The outputs of `region` for operands of any sort: arrays, Tensors, values of a graph."""
    return replay(region, operands)[0]


def require(what: str, given: Sequence[Aval], wanted: Sequence[Aval]) -> None:
    """VerifyError unless a region takes, or gives, what the op says."""
    if tuple(given) != tuple(wanted):
        shown = [", ".join(map(str, avals)) or "nothing" for avals in (given, wanted)]
        raise VerifyError(f"{what}: {shown[0]} instead of {shown[1]}")


def row_of(x: Any) -> Aval:
    """The aval of one row of the array `x`."""
    aval = aval_of(x)
    return Aval(aval.shape[1:], aval.dtype)


def rows(name: str, xs: Sequence[Aval], length: int) -> list[Aval]:
    """The avals of one row of each of `xs`, which have `length` rows."""
    for x in xs:
        if not x.ndim or x.shape[0] != length:
            raise ShapeError(f"{name}: {x} does not have {length} rows")
    return [Aval(x.shape[1:], x.dtype) for x in xs]
