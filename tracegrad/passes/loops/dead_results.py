"""Eliminate dead results and dead carries of loops and branches (dead code elimination).

A carry is live if its final value is used, or if a live result or another live carry is computed from it. A carry that
feeds only itself is removed, with the operands that only it reads.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tracegrad.control import checkpoint, cond_op, scan_op, while_op
from tracegrad.ir import Graph, GraphNode
from tracegrad.ir.builder import sliced
from tracegrad.ir.graph import map_regions
from tracegrad.ops.core.op import Op, ResultAvals
from tracegrad.ops.core.result import result

__all__ = ["trim"]


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

    def __init__(self, operands: Sequence[GraphNode], params: dict[str, Any], results: Sequence[int]):
        self.operands, self.results = tuple(operands), tuple(results)
        self.params = map_regions(tuple(sorted(params.items())), trim)

    def is_whole(self, node: GraphNode) -> bool:
        """Whether no part was removed."""
        if len(self.operands) < len(node.operands) or len(self.results) < len(node.aval):  # type: ignore[arg-type]
            return False
        result = GraphNode(node.op, self.operands, self.params, node.aval)
        return all(map(operator.is_, result.regions, node.regions)) and self.params == node.params


def _narrowed(node: GraphNode, used: set[int]) -> _LiveNode:
    rule = _RULES.get(node.op)  # type: ignore[arg-type]
    if rule is None:
        return _LiveNode(node.operands, dict(node.params), range(len(node.aval)))  # type: ignore[arg-type]
    return rule(node, used, **dict(node.params))


def _rebuilt(graph: Graph, live: dict[GraphNode, _LiveNode]) -> Graph:
    moved: dict[GraphNode, GraphNode] = {}
    nodes = []
    for node in graph.nodes:
        owner = live.get(node.operands[0]) if node.result_index is not None else None
        if owner is not None and node.result_index not in owner.results:
            continue
        if owner is not None and node.operands[0] in moved:
            index = owner.results.index(node.result_index)
            new = GraphNode(result, (moved[node.operands[0]],), (("index", index),), node.aval)
        elif node in live and not (live[node].is_whole(node) and moved.keys().isdisjoint(node.operands)):
            avals = ResultAvals([node.aval[k] for k in live[node].results])  # type: ignore[index]
            inputs = tuple([moved.get(x, x) for x in live[node].operands])
            new = GraphNode(node.op, inputs, live[node].params, avals, node.location)  # type: ignore[arg-type]
        elif any(x in moved for x in node.operands):
            inputs = tuple([moved.get(x, x) if isinstance(x, GraphNode) else x for x in node.inputs])
            new = GraphNode(node.op, inputs, node.params, node.aval, node.location)
        else:
            new = node
        if new is not node:
            moved[node] = new
        nodes.append(new)
    rebuilt = sliced(graph.inputs, nodes, [moved.get(x, x) for x in graph.outputs])
    return rebuilt if moved or len(rebuilt.nodes) < len(graph.nodes) else graph


def _read(graph: Graph, outputs: Iterable[int]) -> set[int]:
    """The numbers of the inputs that the outputs depend on."""
    needed = {graph.outputs[k] for k in outputs}
    for node in reversed(graph.nodes):
        if node in needed:
            needed.update(node.operands)
    return {i for i, x in enumerate(graph.inputs) if x in needed}


def _restricted(graph: Graph, inputs: Sequence[int], outputs: Sequence[int]) -> Graph:
    result = sliced([graph.inputs[i] for i in inputs], graph.nodes, [graph.outputs[k] for k in outputs])
    sizes, before = [[len(x) for x in (g.inputs, g.nodes, g.outputs)] for g in (result, graph)]
    return graph if sizes == before else result


def _live(body: Graph, results: set[int], carries: int, also: set[int]) -> tuple[list[int], list[int]]:
    """The live outputs of a body, and the inputs that they read (liveness); the carries in `also` are always live."""
    outputs = results | also
    while True:
        inputs = _read(body, outputs) | {k for k in outputs if k < carries}
        newly_live = {i for i in inputs if i < carries} - outputs
        if not newly_live:
            return sorted(outputs), sorted(inputs)
        outputs |= newly_live


def _scan(node: GraphNode, used: set[int], body: Graph, carries: int, xs: int, **params: Any) -> _LiveNode:
    outputs, inputs = _live(body, used, carries, set())
    return _LiveNode(
        [node.operands[i] for i in inputs],
        {
            **params,
            "body": _restricted(body, inputs, outputs),
            "carries": sum(k < carries for k in outputs),
            "xs": sum(carries <= i < carries + xs for i in inputs),
        },
        outputs,
    )


def _while(node: GraphNode, used: set[int], cond: Graph, body: Graph, carries: int, capacity: int) -> _LiveNode:
    cond_inputs = _read(cond, [0])
    also = {i for i in cond_inputs if i < carries}
    outputs, read = _live(body, {k if k < carries else k - 1 for k in used if k != carries}, carries, also)
    inputs = sorted({*read, *cond_inputs})
    count = sum(k < carries for k in outputs)
    return _LiveNode(
        [node.operands[i] for i in inputs],
        {
            "body": _restricted(body, inputs, outputs),
            "cond": _restricted(cond, inputs, [0]),
            "carries": count,
            "capacity": capacity if count < len(outputs) else 0,
        },
        [*outputs[:count], carries, *(k + 1 for k in outputs[count:])],
    )


def _cond(node: GraphNode, used: set[int], branches: tuple[Graph, ...]) -> _LiveNode:
    outputs = sorted(used)
    inputs = sorted(set[int]().union(*(_read(b, outputs) for b in branches)))
    live_branches = tuple([_restricted(b, inputs, outputs) for b in branches])
    return _LiveNode([node.operands[0], *(node.operands[i + 1] for i in inputs)], {"branches": live_branches}, outputs)


def _remat(node: GraphNode, used: set[int], body: Graph, **params: Any) -> _LiveNode:
    outputs = sorted(used)
    inputs = sorted(_read(body, outputs))
    return _LiveNode(
        [node.operands[i] for i in inputs], {**params, "body": _restricted(body, inputs, outputs)}, outputs
    )


_RULES: dict[Op, Callable[..., _LiveNode]] = {
    scan_op.scan: _scan,
    while_op.while_loop: _while,
    cond_op.cond: _cond,
    checkpoint.remat: _remat,
}
