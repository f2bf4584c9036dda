"""What the ops with regions share: running a region, checking its signature, a batch of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracegrad.avals import Aval, aval_of
from tracegrad.errors import ShapeError, VerifyError
from tracegrad.ir import Graph, replay
from tracegrad.ir.batch import batched
from tracegrad.ops.shape.batching import repeated

__all__ = ["as_batches", "require", "row_of", "rows", "run_region", "turn_for_batch"]


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


def turn_for_batch(body: Graph, size: int, flags: Sequence[bool], carries: int) -> tuple[Graph, list[bool], list[bool]]:
    """A turn for a batch of the inputs with a flag, and which of its inputs and outputs are batches then: a carry is
    one if any turn makes it one."""
    flags, rest = list(flags), [False] * (len(body.outputs) - carries)
    while True:
        graph, found = batched(body, size, flags, [*flags[:carries], *rest])
        if found[:carries] == flags[:carries]:
            return graph, flags, found
        flags[:carries] = found[:carries]


def as_batches(size: int, xs: Sequence[Any], have: Sequence[bool], want: Sequence[bool]) -> list[Any]:
    """The values `xs`, those of which a batch is wanted repeated if they are none."""
    return [repeated(size, [have_one], [x])[0] if want_one else x for x, have_one, want_one in zip(xs, have, want)]
