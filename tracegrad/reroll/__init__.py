"""Reroll loops: replace iterations that were recorded one by one by a `scan` (loop rerolling).

Rerolling precedes differentiation, so everything after tracing costs one iteration. It compares the recorded nodes of
the iterations, so it does not depend on how the loop was written. Inner loops come first, because their bodies are
shorter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from tracegrad.ir import GraphNode
from tracegrad.ops.linalg.contraction import matmul
from tracegrad.reroll.thresholds import MIN_ITERATIONS, MIN_NODES
from tracegrad.settings import disabled
from tracegrad.trace.builder.builder import TraceBuilder
from tracegrad.trace.loops.control_flow import within_loop

__all__ = ["loop_detector", "roll"]


def roll(builder: TraceBuilder, wanted: Sequence[GraphNode], start: int) -> dict[GraphNode, GraphNode]:
    """Reroll the loops among the nodes of the trace from number `start` on. Returns the replacements of changed nodes
    of `wanted`."""
    if disabled("rerolling"):
        return {}
    nodes = builder.nodes[start:]
    if (len(nodes) < MIN_NODES and _products(nodes) < MIN_ITERATIONS) or not _repeats(nodes):
        return {}
    from tracegrad.reroll.offset_slices import cached_windows
    from tracegrad.reroll.reroller import Reroller

    with cached_windows():
        return Reroller(builder, wanted, start).run()


def _products(nodes: Sequence[GraphNode]) -> int:
    """The number of matrix products, which may be terms of a convolution."""
    return [x.op for x in nodes].count(matmul)


def _repeats(nodes: Sequence[GraphNode]) -> bool:
    """Whether some line has applied the same op at least as often as the minimal trip count."""
    often: Counter[Any] = Counter()
    for x in nodes:
        at = x.op, x.location
        often[at] += 1
        if often[at] >= MIN_ITERATIONS:
            return True
    return False


def loop_detector(builder: TraceBuilder, within: bool = False) -> Any:
    """The online loop detector of a trace. It is created if traced code evaluates a condition inside a loop, or is
    known to be `within` one; else None."""
    if builder.loops.detector is None and (within or within_loop()):
        from tracegrad.reroll.online.loop_detector import LoopDetector

        builder.loops.detector = LoopDetector(builder)
    return builder.loops.detector
