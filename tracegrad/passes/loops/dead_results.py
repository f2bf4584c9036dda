"""Eliminate dead results and dead carries of loops and branches (dead code elimination).

A carry is live if its final value is used, or if a live result or another live carry is computed from it. A carry that
feeds only itself is removed, with the operands that only it reads.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence

from tracegrad.ir import Graph, GraphNode
from tracegrad.ir.builder import sliced
from tracegrad.ir.graph import Params, map_regions
from tracegrad.ir.loop_view import LoopView, live_values, needed_inputs, restricted
from tracegrad.ir.rebuild import result_of, with_operands
from tracegrad.ops.core.forms import Branch, Form, Repeat, Run, While
from tracegrad.ops.core.op import ResultAvals


def trim(graph: Graph) -> Graph:
    """`graph` with dead results and carries of nodes with regions removed, at any depth; the same graph if there are
    none.

    >>> from tracegrad.ir import parse
    >>> graph = parse('''
    ... graph(%0: f64[], %1: f64[]) {
    ...   %2, _ = scan(%0, %1) {carries=2, length=9, reverse=False, xs=0} : f64[], f64[]
    ...     body(%0: f64[], %1: f64[]) {
    ...       %2 = sin(%0) : f64[]
    ...       %3 = add(%1, %0) : f64[]
    ...       return %2, %3
    ...     }
    ...   return %2
    ... }''')
    >>> print(trim(graph))
    graph(%0: f64[], %1: f64[]) {
      %2, = scan(%0) {carries=1, length=9, reverse=False, xs=0} : f64[],
        body(%0: f64[]) {
          %1 = sin(%0) : f64[]
          return %1
        }
      return %2
    }
    """
    if not any(node.regions for node in graph.nodes):
        return graph
    live: dict[GraphNode, _LiveNode] = {}
    wanted = set(graph.outputs)
    used: dict[GraphNode, set[int]] = {}
    for node in reversed(graph.nodes):
        if node.result_index is not None:
            if node in wanted:
                used.setdefault(node.operands[0], set()).add(node.result_index)
        elif node in used and node.regions:
            live[node] = _narrowed(node, used[node])
            wanted.update(live[node].operands)
        elif node in used or node in wanted:
            wanted.update(node.operands)
    return _rebuilt(graph, live)


class _LiveNode:
    """The remaining parts of a node: operands, parameters, and the numbers of the results."""

    def __init__(self, operands: Sequence[GraphNode], params: Params, results: Sequence[int]):
        self.operands, self.results = tuple(operands), list(results)
        self.params = map_regions(params, trim)

    def is_whole(self, node: GraphNode) -> bool:
        """Whether no part was removed."""
        if len(self.operands) < len(node.operands) or len(self.results) < len(node.results):
            return False
        result = GraphNode(node.op, self.operands, self.params, node.aval)
        return all(map(operator.is_, result.regions, node.regions)) and self.params == node.params


def _narrowed(node: GraphNode, used: set[int]) -> _LiveNode:
    rule = _RULES.get(type(node.form))
    return _LiveNode(node.operands, node.params, range(len(node.results))) if rule is None else rule(node, used)


def _rebuilt(graph: Graph, live: dict[GraphNode, _LiveNode]) -> Graph:
    moved: dict[GraphNode, GraphNode] = {}
    for node in graph.nodes:
        remaining = live.get(node)
        if remaining is not None and not (remaining.is_whole(node) and moved.keys().isdisjoint(node.operands)):
            avals = ResultAvals([node.results[k] for k in remaining.results])
            inputs = tuple([moved.get(x, x) for x in remaining.operands])
            moved[node] = GraphNode(node.op, inputs, remaining.params, avals, node.location)  # type: ignore[arg-type]
            continue
        index = node.result_index
        owner = live.get(node.operands[0]) if index is not None else None
        if owner is not None and index is not None and node.operands[0] in moved:
            if index in owner.results:
                moved[node] = result_of(moved[node.operands[0]], owner.results.index(index))
        elif (new := with_operands(node, moved)) is not node:
            moved[node] = new
    nodes, outputs = ([moved.get(x, x) for x in xs] for xs in (graph.nodes, graph.outputs))
    rebuilt = sliced(graph.inputs, nodes, outputs)
    return rebuilt if moved or len(rebuilt.nodes) < len(graph.nodes) else graph


def _loop(node: GraphNode, used: set[int]) -> _LiveNode:
    loop = LoopView.of(node)
    tested = needed_inputs(loop.cond, [0]) if loop.cond is not None else set[int]()
    results = {k for each in used if (k := loop.output_of(each)) is not None}
    results |= {i for i in tested if i < loop.carries}
    outputs, read = live_values(loop.body, results, loop.carries)
    inputs = sorted(read | tested)
    return _LiveNode(
        [node.operands[i] for i in inputs], loop.restricted(inputs, outputs).items, loop.results_of(outputs)
    )


def _cond(node: GraphNode, used: set[int]) -> _LiveNode:
    outputs, branches = sorted(used), node.regions
    inputs = sorted(set[int]().union(*(needed_inputs(b, outputs) for b in branches)))
    params = (("branches", tuple([restricted(b, inputs, outputs) for b in branches])),)
    return _LiveNode([node.operands[0], *(node.operands[i + 1] for i in inputs)], params, outputs)


def _remat(node: GraphNode, used: set[int]) -> _LiveNode:
    outputs, (body,) = sorted(used), node.regions
    inputs = sorted(needed_inputs(body, outputs))
    params = map_regions(node.params, lambda region: restricted(region, inputs, outputs))
    return _LiveNode([node.operands[i] for i in inputs], params, outputs)


_RULES: dict[type[Form], Callable[[GraphNode, set[int]], _LiveNode]] = {
    Repeat: _loop,
    While: _loop,
    Branch: _cond,
    Run: _remat,
}
