"""Carry the totals of reductions through loops and branches: phis for lists of values under keys."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

from tracegrad import llvmir as ir

K = TypeVar("K", bound=Hashable)


def begin_loop(
    b: ir.IRBuilder, totals: Mapping[K, Sequence[ir.IRValue]], before: ir.BasicBlock
) -> dict[K, list[ir.Phi]]:
    """The totals at the head of a loop, which is entered from `before`; see `end_iteration`."""
    return {key: [b.merge((value, before)) for value in values] for key, values in totals.items()}


def end_iteration(
    b: ir.IRBuilder, phis: Mapping[K, Sequence[ir.Phi]], totals: Mapping[K, Sequence[ir.IRValue]]
) -> None:
    """Pass the totals of an iteration, which ends here, to the head of the loop."""
    for key, values in phis.items():
        for phi, value in zip(values, totals[key]):
            phi.add_incoming(value, b.block)


def join(
    b: ir.IRBuilder, incoming: Sequence[tuple[ir.BasicBlock, Mapping[K, Sequence[ir.IRValue]]]]
) -> dict[K, list[ir.Phi]]:
    """The totals where several paths meet, each given by its last block and its totals."""
    _, first = incoming[0]
    return {
        key: [b.merge(*[(totals[key][k], block) for block, totals in incoming]) for k in range(len(values))]
        for key, values in first.items()
    }
