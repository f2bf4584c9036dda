"""Forward mode through loops: which values of a turn have tangents, and the turn that computes those too."""

from __future__ import annotations

from collections.abc import Sequence

from tracegrad.ir import Graph
from tracegrad.transforms.jvp_graph import pushed

__all__ = ["pushed_turn"]


def pushed_turn(body: Graph, given: Sequence[int], carries: int) -> tuple[list[int], Graph, list[int]]:
    """The inputs that have tangents in some turn, where the inputs `given` have; the body that takes its inputs and
    these tangents, and gives its results and the tangents of some of them; which these are."""
    moving = set(given)
    while True:
        both, found = pushed(body, sorted(moving))
        new = moving.union(k for k in found if k < carries)
        if new == moving:
            return sorted(moving), both, found
        moving = new
