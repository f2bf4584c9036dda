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
from tracegrad.ops.core.op import Op
from tracegrad.ops.core.result import result
from tracegrad.passes.loops.dead_results import trim
from tracegrad.passes.simplify.simplify import simplify
from tracegrad.target.tuning import TUNING

__all__ = ["share", "share_loops"]


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
    moved: dict[GraphNode, GraphNode] = {}
    for node in graph.nodes:
        params = map_regions(node.params, share)
        if any(x in moved for x in node.operands) or any(a != b for a, b in zip(params, node.params)):
            inputs = tuple([moved.get(x, x) if isinstance(x, GraphNode) else x for x in node.inputs])
            moved[node] = GraphNode(node.op, inputs, params, node.aval, node.location)
    if not moved:
        return graph
    nodes = [moved.get(x, x) for x in graph.nodes]
    return sliced(graph.inputs, nodes, [moved.get(x, x) for x in graph.outputs])


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


def _both(first: GraphNode, second: GraphNode) -> tuple[GraphNode, list[list[int]]] | None:
    assert first.op is not None
    if second.depends_on({first}):
        return None
    result = _RULES[first.op](first, second)
    if result is None:
        return None
    operands, params, results = result
    items = tuple(sorted(params.items()))
    aval = first.op.aval(*(x.aval for x in operands), **params)
    return GraphNode(first.op, tuple(operands), items, aval, first.location), results


def _joined(graph: Graph, first: GraphNode, second: GraphNode, both: GraphNode, results: list[list[int]]) -> Graph:
    """`graph` with the two nodes replaced by `both`; nodes that depend on neither come first."""
    owners = {first: results[0], second: results[1]}
    dependents: set[GraphNode] = {first, second}
    moved: dict[GraphNode, GraphNode] = {}
    early, late = list[GraphNode](), list[GraphNode]()
    for node in graph.nodes:
        if node in owners:
            continue
        if dependents.isdisjoint(node.operands):
            early.append(node)
            continue
        dependents.add(node)
        index = owners[node.operands[0]][node.result_index or 0] if node.operands[0] in owners else None
        if index is not None:
            moved[node] = GraphNode(result, (both,), (("index", index),), node.aval, node.location)
        else:
            inputs = tuple([moved.get(x, x) if isinstance(x, GraphNode) else x for x in node.inputs])
            moved[node] = GraphNode(node.op, inputs, node.params, node.aval, node.location)
        late.append(moved[node])
    return sliced(graph.inputs, [*early, both, *late], [moved.get(x, x) for x in graph.outputs])


# -- fused nodes: operands, parameters, and the positions of the results ------------------------------------
Both = tuple[list[GraphNode], dict[str, Any], list[list[int]]]


class _LoopPair:
    """Two loops with concatenated carries; equal carries are merged."""

    def __init__(self, first: GraphNode, second: GraphNode, xs: Sequence[int]):
        self.nodes = (first, second)
        self.params = [dict(node.params) for node in self.nodes]
        self.bodies = [p["body"] for p in self.params]
        carries = [p["carries"] for p in self.params]
        self.inits = [x for node, n in zip(self.nodes, carries) for x in node.operands[:n]]
        self.scanned = _distinct(x for node, n, m in zip(self.nodes, carries, xs) for x in node.operands[n : n + m])
        self.consts = _distinct(x for node, n, m in zip(self.nodes, carries, xs) for x in node.operands[n + m :])
        self.at = [slice(carries[0]), slice(carries[0], None)]
        self.xs = xs
        label: list[Any] = list(self.inits)
        while True:
            self.leader = [label.index(x) for x in label]
            self.build()
            finer = list(zip(label, [x for outs, n in zip(self.outs, carries) for x in outs[:n]]))
            if len(set(finer)) == len(set(label)):
                break
            label = finer
        self.leaders = sorted(set(self.leader))
        self.operands = [*(self.inits[k] for k in self.leaders), *self.scanned, *self.consts]

    def build(self) -> None:
        """Both bodies in one graph, under the present assumption about equal carries."""
        self.builder = Builder()
        values: dict[Any, Any] = {k: self.builder.input(self.inits[k].aval) for k in sorted(set(self.leader))}
        rows = {x: self.builder.input(self._row_aval(x)) for x in self.scanned}
        consts = {x: self.builder.input(x.aval) for x in self.consts}
        self.outs: list[list[GraphNode]] = []
        self.body_args: list[list[GraphValue]] = []
        new = []
        with recording(self.builder):
            for node, at, m, body in zip(self.nodes, self.at, self.xs, self.bodies):
                carried = [values[k] for k in self.leader[at]]
                n, before = len(carried), len(self.builder.nodes)
                loose = [*(rows[x] for x in node.operands[n : n + m]), *(consts[x] for x in node.operands[n + m :])]
                self.body_args.append([*carried, *loose])
                self.outs.append([x.node for x in replay(body, self.body_args[-1])[0]])
                new.append(len(self.builder.nodes) - before)
        self.saved = len(self.bodies[1].nodes) - new[1]
        if all(any(node.regions for node in body.nodes) for body in self.bodies):
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
        self.saved = sum(len(body.nodes) for body in self.bodies) - len(self.builder.nodes)

    def _row_aval(self, x: GraphNode) -> Any:
        return type(x.aval)(x.aval.shape[1:], x.aval.dtype)

    @property
    def is_profitable(self) -> bool:
        return 2 * self.saved >= min(len(body.nodes) for body in self.bodies) > 0

    def body(self) -> Graph:
        """The fused body: the remaining carries, then every result once."""
        carried = [
            [x for outs, at in zip(self.outs, self.at) for x in outs[: len(self.leader[at])]][k] for k in self.leaders
        ]
        return sliced(self.builder.inputs, self.builder.nodes, [*carried, *self.ys()])

    def ys(self) -> list[GraphNode]:
        return _distinct(x for outs, at in zip(self.outs, self.at) for x in outs[len(self.leader[at]) :])

    def results(self, n_common: int) -> list[list[int]]:
        """The positions of the results of each loop: its carries, the common `n_common` results, and its rows."""
        ys, n = self.ys(), len(self.leaders)
        return [
            [
                *(self.leaders.index(k) for k in self.leader[at]),
                *range(n, n + n_common),
                *(n + n_common + ys.index(y) for y in outs[len(self.leader[at]) :]),
            ]
            for outs, at in zip(self.outs, self.at)
        ]


def _scans(first: GraphNode, second: GraphNode) -> Both | None:
    a, b = dict(first.params), dict(second.params)
    if (a["length"], a["reverse"]) != (b["length"], b["reverse"]):
        return None
    pair = _LoopPair(first, second, [a["xs"], b["xs"]])
    if not pair.is_profitable:
        return None
    params = {**a, "body": pair.body(), "carries": len(pair.leaders), "xs": len(pair.scanned)}
    return pair.operands, params, pair.results(0)


def _whiles(first: GraphNode, second: GraphNode) -> Both | None:
    a, b = dict(first.params), dict(second.params)
    stacked = [len(p["body"].outputs) > p["carries"] for p in (a, b)]
    if all(stacked) and a["capacity"] != b["capacity"]:
        return None
    pair = _LoopPair(first, second, [0, 0])
    with recording(pair.builder):
        conditions = [replay(p["cond"], operands)[0][0].node for p, operands in zip((a, b), pair.body_args)]
    if conditions[0] is not conditions[1] or not pair.is_profitable:
        return None
    cond = sliced(pair.builder.inputs, pair.builder.nodes, conditions[:1])
    capacity = (a if stacked[0] else b)["capacity"]
    params = {"body": pair.body(), "cond": cond, "carries": len(pair.leaders), "capacity": capacity}
    return pair.operands, params, pair.results(1)


def _conds(first: GraphNode, second: GraphNode) -> Both | None:
    sides = [dict(node.params)["branches"] for node in (first, second)]
    if first.operands[0] is not second.operands[0] or len(sides[0]) != len(sides[1]):
        return None
    operands = _distinct([*first.operands[1:], *second.operands[1:]])
    merged, count = [], len(first.aval)  # type: ignore[arg-type]
    for branches in zip(*sides):
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
    return [first.operands[0], *operands], {"branches": tuple(merged)}, [list(range(count)), list(range(count, total))]


_RULES: dict[Op | None, Callable[[GraphNode, GraphNode], Both | None]] = {
    scan_op.scan: _scans,
    while_op.while_loop: _whiles,
    cond_op.cond: _conds,
}


def _distinct(nodes: Iterator[GraphNode] | Sequence[GraphNode]) -> list[GraphNode]:
    return list(dict.fromkeys(nodes))
