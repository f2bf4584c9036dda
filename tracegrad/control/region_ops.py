"""Shared parts of ops with regions: run a region, check its signature, and batch it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from tracegrad.avals import Aval
from tracegrad.errors import VerifyError
from tracegrad.ir import Graph, replay
from tracegrad.ops.shape.batching import repeated

T = TypeVar("T")


def run_region(region: Graph, operands: Sequence[Any]) -> list[Any]:
    """The outputs of `region` for operands of any kind: arrays, Tensors, values of a graph."""
    return replay(region, operands)[0]


def require(label: str, actual: Sequence[Aval], wanted: Sequence[Aval]) -> None:
    """Raise VerifyError unless a region takes, or returns, the required avals."""
    if tuple(actual) != tuple(wanted):
        shown = [", ".join(map(str, avals)) or "nothing" for avals in (actual, wanted)]
        raise VerifyError(f"{label}: {shown[0]} instead of {shown[1]}")


def split_like(args: Sequence[T], groups: Iterable[Sequence[object]]) -> list[list[T]]:
    """The values `args` in groups of the sizes of `groups`."""
    supply = iter(args)
    return [[next(supply) for _ in group] for group in groups]


def as_batches(size: int, xs: Sequence[Any], have: Sequence[bool], want: Sequence[bool]) -> list[Any]:
    """The values `xs`, with unbatched values repeated if a batch is required."""
    return [repeated(size, [have_one], [x])[0] if want_one else x for x, have_one, want_one in zip(xs, have, want)]
