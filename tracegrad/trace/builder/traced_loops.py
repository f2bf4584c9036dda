"""State of the loops of traced code in one trace."""

from __future__ import annotations

from typing import Any

from tracegrad.ir import GraphNode
from tracegrad.trace.builder.element_identity import Elements
from tracegrad.trace.builder.facts import Fact, LoopFact


class TracedLoops:
    """The loops of one trace, open and closed, with the objects that stand for their lists and arrays."""

    def __init__(self) -> None:
        self.detector: Any = None  # of loops whose conditions traced code reads
        self.may_close = True  # whether loops over values are closed, and counted loops are folded
        self.iteration_began = 0  # the number of nodes at the beginning of the current iteration
        self.varying: set[GraphNode] = set()  # integers that vary between iterations of an open loop
        self.constant_nodes: list[GraphNode] = []  # nodes taken as constants, because they depend on no input
        # Counted loops that can be folded: the ranges of nodes that they recorded, by the fact that folds the loop; the
        # facts of those that began iteration by iteration; and whether hints may mark them as long
        # (`tracegrad.trace.loops.long_loop_hints`).
        self.iterated: dict[LoopFact, list[range]] = {}
        self.unfolded: set[LoopFact] = set()
        self.foresees = True
        # For messages, by the user's line: why a loop was not rerolled, and the residuals of loops that run in
        # segments. What prevents closing a loop at the last condition.
        self.unrolled: dict[str, str] = {}
        self.divided: dict[str, str] = {}
        self.not_closed = ""
        self.replaced: set[GraphNode] = set()  # nodes that rerolled loops have replaced
        # Separate arrays that replace views in loops, and the bases of the views: see
        # `tracegrad.trace.loops.separate_views`.
        self.separated: dict[int, Any] = {}
        # Histories of open loops (`tracegrad.trace.loops.appended_list`), and their elements. Arrays in histories, and
        # their bases, each with the fact that leaves the loop without histories.
        self.histories: list[Any] = []
        self.elements = Elements()
        self.listed: dict[int, tuple[Any, Fact]] = {}
        self.table_elements: list[Any] = []  # elements of tables: see `tracegrad.trace.loops.indexed_list`
