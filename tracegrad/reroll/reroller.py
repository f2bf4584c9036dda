"""Reroll the loops of a trace, inner loops first, and replace each by a scan (driver)."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.ir import GraphNode
from tracegrad.ir.builder import needed
from tracegrad.ops.core.forms import Move, Result
from tracegrad.ops.elementwise.table import where
from tracegrad.ops.shape.fill import arange
from tracegrad.ops.shape.linear import broadcast_to, fresh, full, reshape, slice
from tracegrad.reroll.convolution_idiom import sums_of_windows
from tracegrad.reroll.find_repeats import RepeatRun, runs
from tracegrad.reroll.iterations import RecordedIterations, iterations_of
from tracegrad.reroll.normalize_first import fixed_first, read_late
from tracegrad.reroll.offset_slices import operands_of, reads, window_of
from tracegrad.reroll.pad_ragged import pad_iterations
from tracegrad.reroll.rewriter import Rewriting
from tracegrad.reroll.thresholds import MIN_ITERATIONS, MIN_NODES
from tracegrad.settings import disabled
from tracegrad.trace.builder.builder import TraceBuilder
from tracegrad.utils.log import log

if TYPE_CHECKING:
    from tracegrad.avals import Aval
    from tracegrad.ops.core.op import ResultAvals


_MOVES = (Move, Result)
_SIZED = frozenset({arange, broadcast_to, full, reshape})
SHORT = f"fewer than {MIN_NODES} nodes in all, whose code is faster unrolled"


class Reroller:
    def __init__(self, builder: TraceBuilder, outputs: Sequence[GraphNode], start: int):
        self.builder, self.outputs = builder, list(outputs)
        self.codes = _Codes()
        self._varying_cache: tuple[Sequence[GraphNode], list[tuple[str, str, int, int]]] = (), []
        alive = self._alive(builder.nodes[start:])
        self.sequence = read_late(fixed_first(alive, self._codes(alive)))
        self.initial_nodes = frozenset(self.sequence)
        self.refused: dict[tuple[GraphNode, int], str] = {}  # reasons, by the first node and the period
        self.uneven: dict[tuple[GraphNode, int], str] = {}  # likewise, for iterations with different array sizes

    def run(self) -> dict[GraphNode, GraphNode]:
        before = self.outputs
        location = self.builder.location
        try:
            self._convolve()
            self._roll_all()
            while iterations := self._find_ragged():
                self._pad(iterations)
        finally:
            self.builder.location = location
        self.builder.loops.replaced.update(self.initial_nodes.difference(self.sequence))
        self._report()
        return {old: new for old, new in zip(before, self.outputs) if old is not new}

    def _convolve(self) -> None:
        """Rewrite sums of products of windows as one product (convolutions)."""
        if not disabled("convolution-idiom") and (sums := sums_of_windows(self.sequence)):
            result = Rewriting(self.builder, self.sequence, self.outputs, [], others=sums)
            self.sequence, self.outputs = result.sequence, result.outputs

    def _roll_all(self) -> None:
        while loops := self._loops():
            self._roll(loops)

    def _find_ragged(self) -> RecordedIterations | None:
        """Find a loop whose iterations do the same with arrays of different sizes."""
        if not self._varying_lines() or disabled("ragged-padding"):
            return None
        codes = list(map(self.codes.loose, self.sequence))
        positions = {node: k for k, node in enumerate(self.sequence)}
        for run in runs(codes, MIN_ITERATIONS):
            for start in self._candidate_starts(run):
                key = (self.sequence[start], run.period)
                if key in self.uneven:
                    continue
                count = (run.start + run.length - start) // run.period
                iterations = iterations_of(
                    self.sequence, positions, start, run.period, count, MIN_ITERATIONS, loose=True
                )
                iterations = (
                    iterations.with_elements(MIN_ITERATIONS)
                    if isinstance(iterations, RecordedIterations)
                    else iterations
                )
                if isinstance(iterations, RecordedIterations) and iterations.size >= MIN_NODES and iterations.is_uneven:
                    self.tried = key
                    return iterations
                self.uneven[key] = iterations if isinstance(iterations, str) else ""
        return None

    def _candidate_starts(self, run: RepeatRun) -> list[int]:
        """Candidate starts of an iteration: the start of the run, a change of the user's line, or the node after an
        in-place update."""
        positions = range(run.start + 1, run.start + run.period)
        ends = [x for x in positions if self._ends(self.sequence[x - 1], self.sequence[x])]
        return [run.start, *ends]

    @staticmethod
    def _ends(node: GraphNode, after: GraphNode) -> bool:
        window = window_of(node)
        return node.location != after.location or (window is not None and window.mask is not None)

    def _pad(self, iterations: RecordedIterations) -> None:
        """Pad all arrays of these iterations to the maximal size, if the loop can then be rerolled."""
        before = self.sequence, self.outputs, dict(self.refused)
        result = Rewriting(self.builder, self.sequence, self.outputs, [iterations], instead=pad_iterations)
        why = result.refused.get(iterations.start, "")
        if not why:
            self.sequence, self.outputs = result.sequence, result.outputs
            self._roll_all()
            if len(self.sequence) < len(before[0]):
                return
            why = "iterations differ in more than sizes"
        self.sequence, self.outputs, self.refused = before
        self.uneven[self.tried] = why

    def _loops(self) -> list[RecordedIterations]:
        """The loops to reroll, without nesting."""
        codes = self._codes(self.sequence)
        positions = {node: k for k, node in enumerate(self.sequence)}
        claimed = np.zeros(len(codes), bool)
        results: list[RecordedIterations] = []
        for run in runs(codes, MIN_ITERATIONS):
            first = self.sequence[run.start : run.start + run.period]
            if (first[0], run.period) in self.refused or claimed[run.start : run.start + run.length].any():
                continue
            if all(isinstance(x.form, _MOVES) for x in first):
                continue
            iterations = iterations_of(self.sequence, positions, run.start, run.period, run.iterations, MIN_ITERATIONS)
            if isinstance(iterations, RecordedIterations) and iterations.size >= MIN_NODES:
                claimed[iterations.start : iterations.stop] = True
                results.append(iterations)
            else:
                self._refuse(
                    first[0],
                    run.period,
                    run.iterations,
                    SHORT if isinstance(iterations, RecordedIterations) else iterations,
                )
        return results

    def _roll(self, loops: Sequence[RecordedIterations]) -> None:
        """Replace the loops by scans, if this reduces the number of nodes."""
        result = Rewriting(self.builder, self.sequence, self.outputs, loops)
        is_smaller = len(result.sequence) < len(self.sequence)
        if is_smaller:
            self.outputs, self.sequence = result.outputs, result.sequence
            self.refused.clear()
        for loop in loops:
            why = result.refused.get(
                loop.start, "" if is_smaller else "what comes after it reads its values one by one"
            )
            if why:
                self._refuse(loop.nodes[0], loop.period, loop.count, why)
            else:
                log(
                    "loops",
                    "%d iterations of %d nodes at %s are rolled",
                    loop.count,
                    loop.period,
                    loop.nodes[0].location,
                )

    def _refuse(self, first: GraphNode, period: int, iterations: int, why: str) -> None:
        self.refused[first, period] = f"{iterations} iterations of {period} nodes: {why}"

    def _report(self) -> None:
        """Report to the trace why loops stay unrolled: loops whose iterations are similar, and lines that were repeated
        with different shapes."""
        reasons = self.builder.loops.unrolled
        for (first, _), why in self.refused.items():
            reasons.setdefault(first.location, why)
        uneven = {first.location: f": {why}" for (first, _), why in self.uneven.items() if why}
        for location, name, count, shapes in self._varying_lines():
            reasons.setdefault(location, f"{count} times {name}, of {shapes} shapes{uneven.get(location, '')}")
        for location, why in reasons.items():
            log("loops", "unrolled at %s: %s", location, why)

    def _alive(self, nodes: Sequence[GraphNode]) -> list[GraphNode]:
        """The nodes that the outputs need, and equal nodes, such as the unused results of a last iteration. Nodes
        replaced by earlier loops are excluded."""
        operands = operands_of if where in [x.op for x in nodes] else attrgetter("operands")
        read = needed(nodes, self.outputs, operands)
        result, live, replaced = set(read), set(self._codes(read)), self.builder.loops.replaced
        others = [x for x in nodes if x not in result and x.result_index is None and x not in replaced]
        alike = [x for x, code in zip(others, self._codes(others)) if code in live]
        return needed(nodes, [*read, *alike], operands) if alike else read

    def _varying_lines(self) -> list[tuple[str, str, int, int]]:
        """The lines that have repeated an operation with different shapes: the op, the count, and the number of
        shapes."""
        sequence, known = self._varying_cache
        if sequence is self.sequence:
            return known
        often: dict[tuple[str, Any], list[GraphNode]] = {}
        for node in self.sequence:
            if not isinstance(node.form, _MOVES):
                often.setdefault((node.location, node.op), []).append(node)
        result, kind = [], self.codes.kind
        for (location, op), nodes in often.items():
            if len(nodes) * 4 >= MIN_NODES:
                alike = {tuple([id(y.aval) for y in (x, *x.operands)]): x for x in nodes}  # one node for many
                shapes = len({tuple([kind(y.aval) for y in (x, *x.operands)]) for x in alike.values()})
                result += [(location, op.name, len(nodes), shapes)] if shapes >= MIN_ITERATIONS else []
        self._varying_cache = self.sequence, result
        return result

    def _codes(self, nodes: Sequence[GraphNode]) -> list[int]:
        return list(map(self.codes.__getitem__, nodes))


class _Codes(dict[GraphNode, int]):
    """Numbers of the nodes' operations, computed once each. Start indices of windows, names of copies, and lines of
    slices are ignored: the slice of an in-place update has its line, but in the first iteration the line of its use."""

    def __init__(self) -> None:
        self.tokens: dict[Any, int] = {}
        self.kinds: dict[int, tuple[Any, int]] = {}

    def __missing__(self, node: GraphNode) -> int:
        op, params, location, inputs = node.op, node.params, node.location, node.inputs
        kinds: Any = len(inputs) if node.operands is inputs else tuple(map(type, inputs))  # some inputs are literals
        if op is slice:
            location = ""
        if op is fresh:
            params = ()
        elif (op is slice or op is where) and (window := window_of(node)) is not None:
            params, kinds = (window.sizes, window.step), type(window.values)  # type: ignore[assignment]
        key = (op, self.kind(node.aval), kinds, params, location)
        result = self[node] = self.tokens.setdefault(key, len(self.tokens))
        return result

    def kind(self, aval: Aval | ResultAvals) -> int:
        """The number of an aval: equal avals are slow to compare, and many nodes share one object."""
        results = self.kinds.get(id(aval))
        if results is None:
            results = self.kinds[id(aval)] = aval, self.tokens.setdefault(aval, len(self.tokens))
        return results[1]

    def loose(self, node: GraphNode) -> int:
        """The number of a node's operation, without array sizes."""
        op, aval, window = node.op, node.aval, window_of(node)
        params: Any = node.params if window is None else window.step
        if op is fresh:
            params = ()
        elif op in _SIZED:
            params = tuple([item for item in params if item[0] not in ("shape", "length", "start")])
        kind = aval if node.is_multi_result else ((len(aval.shape),), aval.dtype)
        kinds = tuple(map(type, node.inputs if window is None else reads(node)))
        return self.tokens.setdefault((op, kind, kinds, params, node.location), len(self.tokens))
