"""Rolling: the turns of a loop that were recorded one by one become a `scan`.

It happens before the sweep, so that everything after tracing costs one turn. It does not matter how the loop was
written: what is compared is what the turns did. Inner loops come first, for their turns are shorter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from tracegrad.ir import Node
from tracegrad.ops.linalg.contraction import matmul
from tracegrad.reroll.thresholds import FEWEST_NODES, FEWEST_TURNS
from tracegrad.trace.builder.builder import TraceBuilder
from tracegrad.trace.loops.control_flow import within_loop

__all__ = ["find_circles", "roll"]


def roll(builder: TraceBuilder, wanted: Sequence[Node], start: int) -> dict[Node, Node]:
    """What stands for those of the nodes `wanted` that change when loops are rolled, among the nodes of the trace from
    number `start` on."""
    nodes = builder.nodes[start:]
    if (len(nodes) < FEWEST_NODES and _products(nodes) < FEWEST_TURNS) or not _repeats(nodes):
        return {}
    from tracegrad.reroll.offset_slices import remembered
    from tracegrad.reroll.reroller import Roller

    with remembered():
        return Roller(builder, wanted, start).run()


def _products(nodes: Sequence[Node]) -> int:
    """How many products of matrices there are, which may be the terms of a convolution."""
    return [x.op for x in nodes].count(matmul)


def _repeats(nodes: Sequence[Node]) -> bool:
    """Whether some line has done the same as often as the fewest turns do."""
    often: Counter[Any] = Counter()
    for x in nodes:
        at = x.op, x.location
        often[at] += 1
        if often[at] >= FEWEST_TURNS:
            return True
    return False


def find_circles(builder: TraceBuilder, within: bool = False) -> Any:
    """What makes loops of circles while they are recorded; None if traced code asks for a truth where there is none,
    and is not known to be `within` one."""
    if builder.circles is None and (within or within_loop()):
        from tracegrad.reroll.online.loop_closing import Circles

        builder.circles = Circles(builder)
    return builder.circles
