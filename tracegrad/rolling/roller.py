"""Finds the loops in what a trace has recorded, inner ones first, and puts a scan into the place of each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tracegrad.avals import LITERALS
from tracegrad.ir import Node
from tracegrad.ir.builder import needed
from tracegrad.logs import log
from tracegrad.ops.forms import Move, Result
from tracegrad.ops.linear import fresh
from tracegrad.ops.pieces import stack
from tracegrad.rolling import FEWEST_NODES, FEWEST_TURNS
from tracegrad.rolling.repeats import runs
from tracegrad.rolling.rows import rows_in_order
from tracegrad.rolling.scanned import scanned
from tracegrad.rolling.turns import Turns, turns_of
from tracegrad.rolling.windows import operands_of, read_again, reads, window_of
from tracegrad.trace.builder import TraceBuilder

__all__ = ["Roller"]

SHORT = f"fewer than {FEWEST_NODES} nodes in all, whose code is faster unrolled"


class Roller:
    def __init__(self, builder: TraceBuilder, outputs: Sequence[Node], start: int):
        self.builder, self.outputs = builder, list(outputs)
        self.sequence = _constants_first(needed(builder.nodes[start:], outputs, operands_of))
        self.tokens: dict[Any, int] = {}
        self.refused: dict[tuple[Node, int], str] = {}  # by the first node and the period: why

    def run(self) -> dict[Node, Node]:
        before = self.outputs
        location = self.builder.location
        try:
            while self._one():
                pass
        finally:
            self.builder.location = location
        self._report()
        return {old: new for old, new in zip(before, self.outputs) if old is not new}

    def _one(self) -> bool:
        """Roll the first loop that there is."""
        codes = [self._token(x) for x in self.sequence]
        places = {node: k for k, node in enumerate(self.sequence)}
        for run in runs(codes, FEWEST_TURNS):
            key = (self.sequence[run.start], run.period)
            if key in self.refused:
                continue
            if all(isinstance(x.op.form, Move | Result) for x in self.sequence[run.start : run.start + run.period]):  # type: ignore[union-attr]
                continue
            turns = turns_of(self.sequence, places, run.start, run.period, run.turns, FEWEST_TURNS)
            if isinstance(turns, Turns):
                turns = SHORT if turns.size < FEWEST_NODES else self._replace(turns)
            if not turns:
                log("loops", "%d turns of %d nodes at %s are rolled", run.turns, run.period, key[0].location)
                return True
            self.refused[key] = f"{run.turns} turns of {run.period} nodes: {turns}"
        return False

    def _report(self) -> None:
        """Tell the trace why loops were left as they are: where turns were found that are alike, and where a line has
        done the same often, but for arrays of other shapes."""
        told = self.builder.unrolled
        for (first, _), why in self.refused.items():
            told.setdefault(first.location, why)
        often: dict[tuple[str, str], list[Node]] = {}
        for node in self.sequence:
            if not isinstance(node.op.form, Move | Result):  # type: ignore[union-attr]
                often.setdefault((node.location, node.name), []).append(node)
        for (location, name), nodes in often.items():
            shapes = len({node.aval for node in nodes})
            if shapes >= FEWEST_TURNS and len(nodes) * 4 >= FEWEST_NODES:
                told.setdefault(location, f"{len(nodes)} times {name}, of {shapes} shapes")
        for location, why in told.items():
            log("loops", "unrolled at %s: %s", location, why)

    def _token(self, node: Node) -> int:
        """A number for what the node does. Windows may be elsewhere in each turn, and copies have other names."""
        op, aval = node.op, node.aval
        window = window_of(node)
        params: Any = node.params if window is None else (window.sizes, window.step)
        if op is fresh:
            params = ()
        kind = aval if node.several else (aval.shape, aval.dtype)  # avals themselves are slow to compare
        kinds = tuple(map(type, node.inputs if window is None else reads(node)))
        key = (op, kind, kinds, params, node.location)
        return self.tokens.setdefault(key, len(self.tokens))

    def _replace(self, turns: Turns) -> str:
        """Put a scan into the place of the turns, and what reads its results behind it; or say why that cannot be."""
        gone = {node: divmod(k, turns.period) for k, node in enumerate(turns.nodes)}
        used: dict[int, set[int]] = {}
        later = self.sequence[turns.stop :]
        for node in (*(x for n in later for x in operands_of(n)), *self.outputs):
            if node in gone:
                k, place = gone[node]
                used.setdefault(place, set()).add(k)
        self.builder.location = turns.nodes[-turns.period].location
        new = scanned(self.builder, turns, used)
        if isinstance(new, str):
            return new
        sequence = _Sequence(self.sequence[: turns.start])
        for node in new.values():
            sequence.append(node)
        for node in later:
            if not new.keys().isdisjoint(operands_of(node)):
                new[node] = self._again(node, new)
                node = new[node]
            sequence.append(node)
        outputs = [new.get(x, x) for x in self.outputs]
        found = needed(sequence.nodes, outputs, operands_of)
        if len(found) >= len(self.sequence):
            return "what comes after it reads its values one by one"
        self.outputs, self.sequence = outputs, found
        self.refused.clear()
        return ""

    def _again(self, node: Node, new: dict[Node, Node]) -> Node:
        """The node, of new operands."""
        self.builder.location = node.location
        window = window_of(node)
        if window is not None:
            given = [new.get(x, x) for x in reads(node)[: -len(window.starts) or None]]
            return read_again(window, [x if type(x) in LITERALS else self.builder.value(x) for x in given]).node  # type: ignore[no-any-return]
        inputs = tuple([x if type(x) in LITERALS else new.get(x, x) for x in node.inputs])
        if node.op is stack and dict(node.params)["axis"] == 0:
            found = rows_in_order(self.builder, inputs)
            if found is not None:
                return found.node  # type: ignore[no-any-return]
        assert node.op is not None
        return self.builder.number(node.op, inputs, node.params)


class _Sequence:
    """Nodes in the order of computation, each behind what it needs."""

    def __init__(self, nodes: Iterable[Node]):
        self.nodes = list(nodes)
        self._known = set(self.nodes)

    def append(self, node: Node) -> None:
        if node.op is None or node in self._known:
            return
        for x in operands_of(node):
            self.append(x)
        self._known.add(node)
        self.nodes.append(node)


def _constants_first(nodes: Sequence[Node]) -> list[Node]:
    """The nodes in order, but those that nothing from outside has a part in before the others."""
    constant: set[Node] = set()
    for node in nodes:
        operands = operands_of(node)
        if not node.inputs or (operands and constant.issuperset(operands)):
            constant.add(node)
    return [x for x in nodes if x in constant] + [x for x in nodes if x not in constant]
