"""Reroll loops: replace iterations that were recorded one by one by a `scan` (loop rerolling).

Rerolling precedes differentiation, so everything after tracing costs one iteration. It compares the recorded nodes of
the iterations, so it does not depend on how the loop was written. Inner loops come first, because their bodies are
shorter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from tracegrad.ir import Node
from tracegrad.ops.linalg.contraction import matmul
from tracegrad.reroll.thresholds import FEWEST_ITERATIONS, FEWEST_NODES
from tracegrad.settings import disabled
from tracegrad.trace.builder.builder import TraceBuilder
from tracegrad.trace.loops.control_flow import within_loop

__all__ = ["find_circles", "roll"]


def roll(builder: TraceBuilder, wanted: Sequence[Node], start: int) -> dict[Node, Node]:
    """Reroll the loops among the nodes of the trace from number `start` on. Returns the replacements of changed nodes
    of `wanted`."""
    if disabled("rerolling"):
        return {}
    nodes = builder.nodes[start:]
    if (len(nodes) < FEWEST_NODES and _products(nodes) < FEWEST_ITERATIONS) or not _repeats(nodes):
        return {}
    from tracegrad.reroll.offset_slices import remembered
    from tracegrad.reroll.reroller import Roller

    with remembered():
        return Roller(builder, wanted, start).run()


def _products(nodes: Sequence[Node]) -> int:
    """The number of matrix products, which may be terms of a convolution."""
    return [x.op for x in nodes].count(matmul)


def _repeats(nodes: Sequence[Node]) -> bool:
    """Whether some line has applied the same op at least as often as the minimal trip count."""
    often: Counter[Any] = Counter()
    for x in nodes:
        at = x.op, x.location
        often[at] += 1
        if often[at] >= FEWEST_ITERATIONS:
            return True
    return False


def find_circles(builder: TraceBuilder, within: bool = False) -> Any:
    """The online loop detector of a trace. It is created if traced code evaluates a condition inside a loop, or is
    known to be `within` one; else None."""
    if builder.circles is None and (within or within_loop()):
        from tracegrad.reroll.online.loop_closing import Circles

        builder.circles = Circles(builder)
    return builder.circles
