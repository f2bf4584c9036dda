"""Merge alternative paths: compute common code once and select the values that differ (if-conversion).

`L[i, j] = sqrt(s)` on one path and `L[i, j] = s / L[j, j]` on the other become one write of a selected value. An array
that all paths update is therefore not selected, which would copy it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tracegrad.avals import is_literal
from tracegrad.control.cond_op import cond
from tracegrad.ir import Graph, GraphNode, GraphValue, build, recorder
from tracegrad.ir.interpreter import applied
from tracegrad.ops.indexing.dynamic_slice import dynamic_slice
from tracegrad.ops.shape.linear import fresh
from tracegrad.settings import disabled

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Operand


# Corresponding nodes, one for each path.
_Group = tuple[Any, ...]
_SAME, _ALIKE, _OTHER = "same", "alike", "other"


def merged(graphs: Sequence[Graph], args: tuple[Operand, ...], number: Operand) -> list[Any]:
    """The outputs of the graph selected by `number`, for these arguments. All graphs have the same signature."""
    if disabled("if-conversion"):
        return list(cond(number, *args, branches=tuple(graphs)))
    return _Merged(graphs, args).outputs(number)


class _Merged:
    """The merge of graphs, computed from their outputs: groups of equal nodes, of alike nodes with different operands,
    and of different nodes."""

    def __init__(self, graphs: Sequence[Graph], args: Sequence[Any]):
        self.graphs = graphs
        numbers: dict[Any, int] = {}
        self.numbers = [_numbered(g, numbers) for g in graphs]
        first = [{number: x for x, number in reversed(known.items())} for known in self.numbers]
        common = set(first[0]).intersection(*first)
        # By value number, the nodes that are equal on all paths.
        self.same: dict[int, _Group] = {number: tuple([known[number] for known in first]) for number in common}
        self.kinds: dict[_Group, str] = dict.fromkeys(self.same.values(), _SAME)
        self.env: dict[_Group, Any] = dict(zip(zip(*[g.inputs for g in graphs]), args))
        self.roots = [self._group(x) for x in zip(*[g.outputs for g in graphs])]
        for group in self.roots:
            self._classify(group)

    def _group(self, nodes: _Group) -> _Group:
        """The group of corresponding nodes, one per graph; the known group if all are equal."""
        if any(map(is_literal, nodes)):
            return nodes
        first, *others = [known[x] for known, x in zip(self.numbers, nodes)]
        return self.same[first] if all(x == first for x in others) else nodes

    def outputs(self, number: Operand) -> list[Any]:
        self._choose(number)
        return [self._value(group) for group in self.roots]

    # -- classification ---------------------------------------------------------------------------
    def _classify(self, root: _Group) -> None:
        waiting = [root]
        while waiting:
            group = waiting[-1]
            below = [] if group in self.kinds else self._operands(group)
            missing = [x for x in below if x not in self.kinds and not any(map(is_literal, x))]
            if missing:
                waiting += missing
                continue
            waiting.pop()
            if group not in self.kinds:
                self.kinds[group] = self._kind(group, below)

    def _operands(self, group: _Group) -> list[_Group]:
        """The operand groups of nodes that apply the same op; empty for others."""
        first, *others = group
        if first.op is None or any(not _does_the_same(first, x) for x in others):
            return []
        return [self._group(x) for x in zip(*[x.inputs for x in group])]

    def _kind(self, group: _Group, below: Sequence[_Group]) -> str:
        if not below and not (group[0].op is not None and all(_does_the_same(group[0], x) for x in group)):
            return _OTHER
        kinds = [_literals(x) if any(map(is_literal, x)) else self.kinds[x] for x in below]
        broken = any(k == _OTHER and (is_literal(x[0]) or not _is_choice(x)) for k, x in zip(kinds, below))
        if broken:
            return _OTHER
        return _SAME if all(k == _SAME for k in kinds) else _ALIKE

    # -- computation -------------------------------------------------------------------------------
    def _choose(self, number: Operand) -> None:
        """Compute all differing groups by one conditional."""
        chosen = [x for x in self._reached() if self.kinds[x] == _OTHER]
        if not chosen:
            return
        shared = [
            {x: self.same[number] for x, number in known.items() if number in self.same} for known in self.numbers
        ]
        cones = [self._cone(g, [x[k] for x in chosen], shared[k]) for k, g in enumerate(self.graphs)]
        read: dict[Any, Any] = {}
        for k, (_, border) in enumerate(cones):
            for x in border:
                read.setdefault(shared[k].get(x, x), lambda k=k, x=x: self._window(x, shared[k]))
        operands = [self._value(x) if isinstance(x, tuple) else window() for x, window in read.items()]
        avals = [x.aval for x in operands]

        def branch(k: int) -> Graph:
            nodes, _ = cones[k]

            def run(*args: GraphValue) -> list[Any]:
                env = dict(zip(read, args))

                def value_of(x: Any) -> Any:
                    return x if is_literal(x) else env[shared[k].get(x, x)]

                for node in nodes:
                    env[node] = again(node, [value_of(x) for x in node.inputs])
                return [value_of(group[k]) for group in chosen]

            return build(run, avals)

        results = cond(number, *operands, branches=tuple([branch(k) for k in range(len(self.graphs))]))
        self.env.update(zip(chosen, results))

    def _window(self, node: GraphNode, shared: dict[GraphNode, _Group]) -> Any:
        return again(node, [x if is_literal(x) else self._value(shared[x]) for x in node.inputs])

    def _reached(self) -> list[_Group]:
        """The groups that the outputs depend on through alike groups."""
        result, waiting = dict[_Group, None](), list(reversed(self.roots))
        while waiting:
            group = waiting.pop()
            if group not in result:
                result[group] = None
                if self.kinds[group] == _ALIKE:
                    waiting += [x for x in self._operands(group) if x in self.kinds]
        return list(result)

    def _cone(
        self, graph: Graph, wanted: Sequence[GraphNode], shared: dict[GraphNode, _Group]
    ) -> tuple[list[GraphNode], list[GraphNode]]:
        """The nodes of a graph that the wanted nodes depend on, and the common values or windows that they read; the
        conditional does not take the whole array of a window."""
        needed, border = set(wanted), []
        nodes = []
        for node in reversed(graph.nodes):
            if node in needed:
                if node in shared or (node.op is dynamic_slice and all(x in shared for x in node.operands)):
                    border.append(node)
                else:
                    nodes.append(node)
                    needed.update(node.operands)
        border += [x for x in graph.inputs if x in needed]
        return nodes[::-1], border

    def _value(self, root: _Group) -> Any:
        waiting = [root]
        while waiting:
            group = waiting[-1]
            below = [] if group in self.env else self._operands(group)
            missing = [x for x in below if x not in self.env and not is_literal(x[0])]
            if missing:
                waiting += missing
                continue
            waiting.pop()
            if group not in self.env:
                self.env[group] = again(group[0], [x[0] if is_literal(x[0]) else self.env[x] for x in below])
        return self.env[root]


def _numbered(graph: Graph, numbers: dict[object, int]) -> dict[GraphNode, int]:
    """Value numbers of nodes: equal nodes have the same number, across graphs too."""
    table: dict[GraphNode, int] = {}
    for position, x in enumerate(graph.inputs):
        table[x] = numbers.setdefault(position, len(numbers))
    for node in graph.nodes:
        operands = tuple([("literal", repr(x)) if is_literal(x) else table[x] for x in node.inputs])
        key = (node.op, _meaning(node), node.result_index, operands)
        table[node] = numbers.setdefault(key, len(numbers))
    return table


def _meaning(node: GraphNode) -> object:
    """The parameters, without names of counters."""
    return () if node.op is fresh and node.aval.dtype.kind == "i" else node.params


def _does_the_same(x: GraphNode, y: GraphNode) -> bool:
    return x is y or (
        isinstance(y, GraphNode)
        and x.op is y.op
        and x.result_index == y.result_index
        and len(x.inputs) == len(y.inputs)
        and _meaning(x) == _meaning(y)
        and x.aval == y.aval
    )


def _literals(group: _Group) -> str:
    return _SAME if len({repr(x) for x in group if is_literal(x)}) == 1 and all(map(is_literal, group)) else _OTHER


def _is_choice(group: _Group) -> bool:
    """Whether a value can be selected."""
    return not group[0].is_multi_result and all(isinstance(x, GraphNode) and x.aval == group[0].aval for x in group)


def again(node: GraphNode, operands: Sequence[Any]) -> Any:
    """Apply a node's op to other operands in the graph under construction."""
    if node.result_index is not None:
        return operands[0][node.result_index]
    return applied(node, tuple(operands), dict(node.params), recorder())
