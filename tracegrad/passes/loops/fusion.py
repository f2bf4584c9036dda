"""Fuse loops and branches that share work (loop fusion).

The derivative of a loop runs it again, to save residuals. If the value is used too, there are two loops, and one does
all the work of the other. Two loops of equal length that do not depend on each other are fused if this saves half of
the work of the smaller one. Two branches with the same index are always fused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tracegrad.control import cond_op, scan_op, while_op
from tracegrad.ir import Builder, Graph, GraphNode, GraphValue, replay
from tracegrad.ir.builder import recording, sliced
from tracegrad.ir.graph import map_regions
from tracegrad.ir.loop_view import LoopView, row_of
from tracegrad.ir.rebuild import map_nodes, result_of, with_operands, with_params
from tracegrad.ops.core.op import Op
from tracegrad.passes.loops.dead_results import trim
from tracegrad.passes.simplify.simplify import simplify
from tracegrad.target.tuning import TUNING

MAX_FUSED_LOOPS = TUNING.passes.max_compared_loops


def share_loops(graph: Graph) -> Graph:
    """`graph` with loops that share work fused, and without unused results and carries.

    Other graphs are returned unchanged. The result is in the normal form of `simplify`.

    >>> from tracegrad.ir import parse
    >>> loop = '''= scan(%0, %1) {carries=1, length=9, reverse=False, xs=1} : f64[], f64[9]
    ...     body(%0: f64[], %1: f64[]) {
    ...       %2 = multiply(%0, %1) : f64[]
    ...       return %2, %NUMBER
    ...     }'''
    >>> first, second = (loop.replace("NUMBER", n) for n in "02")
    >>> graph = f"graph(%0: f64[], %1: f64[9]) {{\\n  %2, _ {first}\\n  _, %3 {second}\\n  return %2, %3\\n}}"
    >>> print(share_loops(parse(graph)))
    graph(%0: f64[], %1: f64[9]) {
      %2, %3 = scan(%0, %1) {carries=1, length=9, reverse=False, xs=1} : f64[], f64[9]
        body(%0: f64[], %1: f64[]) {
          %2 = multiply(%0, %1) : f64[]
          return %2, %2
        }
      return %2, %3
    }
    """
    while graph.has_regions:
        smaller = share(trim(graph))
        if smaller == graph:
            break
        graph = simplify(smaller)
    return graph


def share(graph: Graph) -> Graph:
    """`graph` with nodes that share work fused, at any depth."""
    while (result := _first(graph)) is not None:
        graph = _joined(graph, *result)
    return _with_regions(graph)


def _with_regions(graph: Graph) -> Graph:
    """`graph` with `share` applied to all regions."""

    def change(node: GraphNode) -> GraphNode:
        params = map_regions(node.params, share)
        return with_params(node, params) if any(a != b for a, b in zip(params, node.params)) else node

    result = map_nodes(graph, change)
    return graph if result is graph else sliced(result.inputs, result.nodes, result.outputs)


def _first(graph: Graph) -> tuple[GraphNode, GraphNode, GraphNode, list[list[int]]] | None:
    """The first two nodes that share work; the fused node; and the position of each result in it."""
    candidates = [node for node in graph.nodes if node.op in _RULES]
    if len(candidates) > MAX_FUSED_LOOPS:
        return None
    for k, second in enumerate(candidates):
        for first in candidates[:k]:
            if first.op is second.op and (result := _both(first, second)) is not None:
                return first, second, *result
    return None


def _both(first: GraphNode, second: GraphNode) -> Both | None:
    return None if second.depends_on({first}) else _RULES[first.op](first, second)


def _node_like(node: GraphNode, operands: Sequence[GraphNode], params: dict[str, object]) -> GraphNode:
    """A node of the same op with other operands and parameters."""
    assert node.op is not None
    aval = node.op.aval(*(x.aval for x in operands), **params)
    return GraphNode(node.op, tuple(operands), tuple(sorted(params.items())), aval, node.location)


def _joined(graph: Graph, first: GraphNode, second: GraphNode, both: GraphNode, results: list[list[int]]) -> Graph:
    """`graph` with the two nodes replaced by `both`; nodes that depend on neither come first."""
    owners = {first: results[0], second: results[1]}
    dependents: set[GraphNode] = {first, second}
    moved: dict[GraphNode, GraphNode] = {}
    early = list[GraphNode]()
    for node in graph.nodes:
        if node in owners:
            continue
        if dependents.isdisjoint(node.operands):
            early.append(node)
            continue
        dependents.add(node)
        if (positions := owners.get(node.operands[0])) is not None and node.result_index is not None:
            moved[node] = result_of(both, positions[node.result_index], node.location)
        else:
            moved[node] = with_operands(node, moved)
    return sliced(graph.inputs, [*early, both, *moved.values()], [moved.get(x, x) for x in graph.outputs])


# -- fused nodes ----------------------------------------------------------------------------------------------
Both = tuple[GraphNode, list[list[int]]]  # the fused node, and the positions of the results of both nodes


class _LoopPair:
    """Two loops with concatenated carries; equal carries are merged."""

    def __init__(self, first: GraphNode, second: GraphNode):
        self.nodes = (first, second)
        self.loops = [LoopView.of(node) for node in self.nodes]
        operands = [(loop, node.operands) for loop, node in zip(self.loops, self.nodes)]
        self.inits = [x for loop, xs in operands for x in loop.initial(xs)]
        self.scanned = _distinct(x for loop, xs in operands for x in loop.scanned(xs))
        self.consts = _distinct(x for loop, xs in operands for x in loop.constants(xs))
        self.at = [slice(self.loops[0].carries), slice(self.loops[0].carries, None)]
        label: list[Any] = list(self.inits)
        while True:
            self.leader = [label.index(x) for x in label]
            self.build()
            finer = list(zip(label, [x for loop, outs in zip(self.loops, self.outs) for x in loop.initial(outs)]))
            if len(set(finer)) == len(set(label)):
                break
            label = finer
        self.leaders = sorted(set(self.leader))
        self.operands = [*(self.inits[k] for k in self.leaders), *self.scanned, *self.consts]

    def build(self) -> None:
        """Both bodies in one graph, under the present assumption about equal carries."""
        self.builder = Builder()
        carries = {k: self.builder.input(self.inits[k].aval) for k in sorted(set(self.leader))}
        rows = {x: self.builder.input(row_of(x.aval)) for x in self.scanned}
        consts = {x: self.builder.input(x.aval) for x in self.consts}
        self.outs: list[list[GraphNode]] = []
        self.body_args: list[list[GraphValue]] = []
        new = []
        with recording(self.builder):
            for node, at, loop in zip(self.nodes, self.at, self.loops):
                before, operands = len(self.builder.nodes), node.operands
                args = [carries[k] for k in self.leader[at]]
                args += [rows[x] for x in loop.scanned(operands)] + [consts[x] for x in loop.constants(operands)]
                self.body_args.append(args)
                self.outs.append([x.node for x in replay(loop.body, args)[0]])
                new.append(len(self.builder.nodes) - before)
        self.saved = len(self.loops[1].body.nodes) - new[1]
        if all(loop.body.has_regions for loop in self.loops):
            self._share_inside()

    def _share_inside(self) -> None:
        """Fuse inner loops that share work. Carries may be equal afterwards."""
        before = Graph(
            tuple(self.builder.inputs), tuple(self.builder.nodes), tuple([x for outs in self.outs for x in outs])
        )
        after = share(before)
        if len(after.nodes) == len(before.nodes):
            return
        self.builder = Builder()
        values = {x: self.builder.input(x.aval) for x in before.inputs}
        with recording(self.builder):
            result = iter([x.node for x in replay(after, list(values.values()))[0]])
        self.outs = [[next(result) for _ in outs] for outs in self.outs]
        self.body_args = [[values[x.node] for x in operands] for operands in self.body_args]
        self.saved = sum(len(loop.body.nodes) for loop in self.loops) - len(self.builder.nodes)

    @property
    def is_profitable(self) -> bool:
        return 2 * self.saved >= min(len(loop.body.nodes) for loop in self.loops) > 0

    def conditions(self) -> set[GraphNode]:
        """The conditions of the loops, in the graph of both bodies."""
        conditions = [loop.cond for loop in self.loops]
        with recording(self.builder):
            return {replay(cond, args)[0][0].node for cond, args in zip(conditions, self.body_args) if cond is not None}

    def sliced(self, outputs: Sequence[GraphNode]) -> Graph:
        return sliced(self.builder.inputs, self.builder.nodes, outputs)

    def body(self) -> Graph:
        """The fused body: the remaining carries, then every result once."""
        carried = [
            [x for outs, at in zip(self.outs, self.at) for x in outs[: len(self.leader[at])]][k] for k in self.leaders
        ]
        return self.sliced([*carried, *self.ys()])

    def ys(self) -> list[GraphNode]:
        return _distinct(x for outs, at in zip(self.outs, self.at) for x in outs[len(self.leader[at]) :])

    def results(self, both: LoopView) -> list[list[int]]:
        """The positions of the results of each loop among the results of `both`."""
        ys = self.ys()
        return [
            [
                *(self.leaders.index(k) for k in self.leader[at]),
                *range(both.carries, both.first_stacked),
                *(both.first_stacked + ys.index(y) for y in outs[len(self.leader[at]) :]),
            ]
            for outs, at in zip(self.outs, self.at)
        ]


def _loops(first: GraphNode, second: GraphNode) -> Both | None:
    a, b = LoopView.of(first), LoopView.of(second)
    lengths = {(loop.length, loop.reverse) for loop in (a, b) if loop.cond is None or loop.is_stacking}
    if len(lengths) > 1:
        return None
    pair = _LoopPair(first, second)
    conditions = pair.conditions()
    if len(conditions) > 1 or not pair.is_profitable:
        return None
    cond = pair.sliced(list(conditions)) if conditions else None
    both = (a if a.is_stacking else b)._replace(
        body=pair.body(), cond=cond, carries=len(pair.leaders), xs=len(pair.scanned)
    )
    return _node_like(first, pair.operands, both.params), pair.results(both)


def _conds(first: GraphNode, second: GraphNode) -> Both | None:
    if first.operands[0] is not second.operands[0] or len(first.regions) != len(second.regions):
        return None
    operands = _distinct([*first.operands[1:], *second.operands[1:]])
    merged, count = [], len(first.results)
    for branches in zip(first.regions, second.regions):
        builder = Builder()
        values = {x: builder.input(x.aval) for x in operands}
        with recording(builder):
            outs = [
                y
                for node, b in zip((first, second), branches)
                for y in replay(b, [values[x] for x in node.operands[1:]])[0]
            ]
            merged.append(builder.build(outs))
    total = len(merged[0].outputs)
    both = _node_like(first, [first.operands[0], *operands], {"branches": tuple(merged)})
    return both, [list(range(count)), list(range(count, total))]


_RULES: dict[Op | None, Callable[[GraphNode, GraphNode], Both | None]] = {
    scan_op.scan: _loops,
    while_op.while_loop: _loops,
    cond_op.cond: _conds,
}


def _distinct(nodes: Iterator[GraphNode] | Sequence[GraphNode]) -> list[GraphNode]:
    return list(dict.fromkeys(nodes))
