"""Fuse loops and branches that share work (loop fusion).

The derivative of a loop runs it again, to save residuals. If the value is used too, there are two loops, and one does
all the work of the other. Two loops of equal length that do not depend on each other are fused if this saves half of
the work of the smaller one. Two branches with the same index are always fused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tracegrad.control import cond_op, scan_op, while_op
from tracegrad.ir import Builder, Graph, Node, Value, replay
from tracegrad.ir.builder import recording, sliced
from tracegrad.ir.graph import map_regions
from tracegrad.ops.core.op import Op
from tracegrad.ops.core.result import result
from tracegrad.passes.loops.dead_results import trim
from tracegrad.passes.simplify.simplify import simplify
from tracegrad.target.tuning import TUNING

__all__ = ["share", "share_loops"]


MOST_LOOPS = TUNING.passes.max_compared_loops


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
    moved: dict[Node, Node] = {}
    for node in graph.nodes:
        params = map_regions(node.params, share)
        if any(x in moved for x in node.operands) or any(a != b for a, b in zip(params, node.params)):
            inputs = tuple([moved.get(x, x) if isinstance(x, Node) else x for x in node.inputs])
            moved[node] = Node(node.op, inputs, params, node.aval, node.location)
    if not moved:
        return graph
    nodes = [moved.get(x, x) for x in graph.nodes]
    return sliced(graph.inputs, nodes, [moved.get(x, x) for x in graph.outputs])


def _first(graph: Graph) -> tuple[Node, Node, Node, list[list[int]]] | None:
    """The first two nodes that share work; the fused node; and the position of each result in it."""
    candidates = [node for node in graph.nodes if node.op in _RULES]
    if len(candidates) > MOST_LOOPS:
        return None
    for k, second in enumerate(candidates):
        for first in candidates[:k]:
            if first.op is second.op and (result := _both(first, second)) is not None:
                return first, second, *result
    return None


def _both(first: Node, second: Node) -> tuple[Node, list[list[int]]] | None:
    assert first.op is not None
    if second.depends_on({first}):
        return None
    result = _RULES[first.op](first, second)
    if result is None:
        return None
    operands, params, results = result
    items = tuple(sorted(params.items()))
    aval = first.op.aval(*(x.aval for x in operands), **params)
    return Node(first.op, tuple(operands), items, aval, first.location), results


def _joined(graph: Graph, first: Node, second: Node, both: Node, results: list[list[int]]) -> Graph:
    """`graph` with the two nodes replaced by `both`; nodes that depend on neither come first."""
    owners = {first: results[0], second: results[1]}
    behind: set[Node] = {first, second}
    moved: dict[Node, Node] = {}
    early, late = list[Node](), list[Node]()
    for node in graph.nodes:
        if node in owners:
            continue
        if behind.isdisjoint(node.operands):
            early.append(node)
            continue
        behind.add(node)
        index = owners[node.operands[0]][node.picks or 0] if node.operands[0] in owners else None
        if index is not None:
            moved[node] = Node(result, (both,), (("index", index),), node.aval, node.location)
        else:
            inputs = tuple([moved.get(x, x) if isinstance(x, Node) else x for x in node.inputs])
            moved[node] = Node(node.op, inputs, node.params, node.aval, node.location)
        late.append(moved[node])
    return sliced(graph.inputs, [*early, both, *late], [moved.get(x, x) for x in graph.outputs])


# -- fused nodes: operands, parameters, and the positions of the results ------------------------------------
Both = tuple[list[Node], dict[str, Any], list[list[int]]]


class _Pair:
    """Two loops with concatenated carries; equal carries are merged."""

    def __init__(self, first: Node, second: Node, xs: Sequence[int]):
        self.nodes = (first, second)
        self.params = [dict(node.params) for node in self.nodes]
        self.bodies = [p["body"] for p in self.params]
        carries = [p["carries"] for p in self.params]
        self.inits = [x for node, n in zip(self.nodes, carries) for x in node.operands[:n]]
        self.rows = _distinct(x for node, n, m in zip(self.nodes, carries, xs) for x in node.operands[n : n + m])
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
        self.lead = sorted(set(self.leader))
        self.operands = [*(self.inits[k] for k in self.lead), *self.rows, *self.consts]

    def build(self) -> None:
        """Both bodies in one graph, under the present assumption about equal carries."""
        self.builder = Builder()
        values: dict[Any, Any] = {k: self.builder.input(self.inits[k].aval) for k in sorted(set(self.leader))}
        rows = {x: self.builder.input(self._row(x)) for x in self.rows}
        consts = {x: self.builder.input(x.aval) for x in self.consts}
        self.outs: list[list[Node]] = []
        self.given: list[list[Value]] = []
        new = []
        with recording(self.builder):
            for node, at, m, body in zip(self.nodes, self.at, self.xs, self.bodies):
                carried = [values[k] for k in self.leader[at]]
                n, before = len(carried), len(self.builder.nodes)
                loose = [*(rows[x] for x in node.operands[n : n + m]), *(consts[x] for x in node.operands[n + m :])]
                self.given.append([*carried, *loose])
                self.outs.append([x.node for x in replay(body, self.given[-1])[0]])
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
        self.given = [[values[x.node] for x in operands] for operands in self.given]
        self.saved = sum(len(body.nodes) for body in self.bodies) - len(self.builder.nodes)

    def _row(self, x: Node) -> Any:
        return type(x.aval)(x.aval.shape[1:], x.aval.dtype)

    @property
    def pays(self) -> bool:
        return 2 * self.saved >= min(len(body.nodes) for body in self.bodies) > 0

    def body(self) -> Graph:
        """The fused body: the remaining carries, then every result once."""
        carried = [
            [x for outs, at in zip(self.outs, self.at) for x in outs[: len(self.leader[at])]][k] for k in self.lead
        ]
        return sliced(self.builder.inputs, self.builder.nodes, [*carried, *self.ys()])

    def ys(self) -> list[Node]:
        return _distinct(x for outs, at in zip(self.outs, self.at) for x in outs[len(self.leader[at]) :])

    def results(self, before_rows: int) -> list[list[int]]:
        """The positions of the results of each loop: its carries, the common `before_rows` results, and its rows."""
        ys, n = self.ys(), len(self.lead)
        return [
            [
                *(self.lead.index(k) for k in self.leader[at]),
                *range(n, n + before_rows),
                *(n + before_rows + ys.index(y) for y in outs[len(self.leader[at]) :]),
            ]
            for outs, at in zip(self.outs, self.at)
        ]


def _scans(first: Node, second: Node) -> Both | None:
    a, b = dict(first.params), dict(second.params)
    if (a["length"], a["reverse"]) != (b["length"], b["reverse"]):
        return None
    pair = _Pair(first, second, [a["xs"], b["xs"]])
    if not pair.pays:
        return None
    params = {**a, "body": pair.body(), "carries": len(pair.lead), "xs": len(pair.rows)}
    return pair.operands, params, pair.results(0)


def _whiles(first: Node, second: Node) -> Both | None:
    a, b = dict(first.params), dict(second.params)
    stacked = [len(p["body"].outputs) > p["carries"] for p in (a, b)]
    if all(stacked) and a["capacity"] != b["capacity"]:
        return None
    pair = _Pair(first, second, [0, 0])
    with recording(pair.builder):
        asked = [replay(p["cond"], operands)[0][0].node for p, operands in zip((a, b), pair.given)]
    if asked[0] is not asked[1] or not pair.pays:
        return None
    cond = sliced(pair.builder.inputs, pair.builder.nodes, asked[:1])
    capacity = (a if stacked[0] else b)["capacity"]
    params = {"body": pair.body(), "cond": cond, "carries": len(pair.lead), "capacity": capacity}
    return pair.operands, params, pair.results(1)


def _conds(first: Node, second: Node) -> Both | None:
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


_RULES: dict[Op | None, Callable[[Node, Node], Both | None]] = {
    scan_op.scan: _scans, while_op.while_loop: _whiles, cond_op.cond: _conds,
}  # fmt: skip


def _distinct(nodes: Iterator[Node] | Sequence[Node]) -> list[Node]:
    return list(dict.fromkeys(nodes))
