"""Shared parts of ops with regions: run a region, check its signature, and batch it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracegrad.avals import Aval, aval_of
from tracegrad.errors import ShapeError, VerifyError
from tracegrad.ir import Graph, replay
from tracegrad.ir.batch import batched
from tracegrad.ops.shape.batching import repeated

__all__ = ["as_batches", "iteration_for_batch", "require", "row_aval", "row_avals", "run_region"]


def run_region(region: Graph, operands: Sequence[Any]) -> list[Any]:
    """The outputs of `region` for operands of any kind: arrays, Tensors, values of a graph."""
    return replay(region, operands)[0]


def require(label: str, actual: Sequence[Aval], wanted: Sequence[Aval]) -> None:
    """Raise VerifyError unless a region takes, or returns, the required avals."""
    if tuple(actual) != tuple(wanted):
        shown = [", ".join(map(str, avals)) or "nothing" for avals in (actual, wanted)]
        raise VerifyError(f"{label}: {shown[0]} instead of {shown[1]}")


def row_aval(x: Any) -> Aval:
    """The aval of one row of the array `x`."""
    aval = aval_of(x)
    return Aval(aval.shape[1:], aval.dtype)


def row_avals(name: str, xs: Sequence[Aval], length: int) -> list[Aval]:
    """The avals of one row of each of `xs`, which have `length` rows."""
    for x in xs:
        if not x.ndim or x.shape[0] != length:
            raise ShapeError(f"{name}: {x} does not have {length} rows")
    return [Aval(x.shape[1:], x.dtype) for x in xs]


def iteration_for_batch(
    body: Graph, size: int, flags: Sequence[bool], carries: int
) -> tuple[Graph, list[bool], list[bool]]:
    """The body for a batch of the flagged inputs, and which of its inputs and outputs are batched. A carry is batched
    if any iteration batches it."""
    flags, rest = list(flags), [False] * (len(body.outputs) - carries)
    while True:
        graph, result = batched(body, size, flags, [*flags[:carries], *rest])
        if result[:carries] == flags[:carries]:
            return graph, flags, result
        flags[:carries] = result[:carries]


def as_batches(size: int, xs: Sequence[Any], have: Sequence[bool], want: Sequence[bool]) -> list[Any]:
    """The values `xs`, with unbatched values repeated if a batch is required."""
    return [repeated(size, [have_one], [x])[0] if want_one else x for x, have_one, want_one in zip(xs, have, want)]
