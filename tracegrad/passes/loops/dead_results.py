"""Eliminate dead results and dead carries of loops and branches (dead code elimination).

A carry is live if its final value is used, or if a live result or another live carry is computed from it. A carry that
feeds only itself is removed, with the operands that only it reads.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tracegrad.control import checkpoint, cond_op, scan_op, while_op
from tracegrad.ir import Graph, Node
from tracegrad.ir.builder import sliced
from tracegrad.ir.graph import map_regions
from tracegrad.ops.core.op import Op, Several
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
    saved: dict[Node, _Kept] = {}
    wanted = set(graph.outputs)
    used: dict[Node, set[int]] = {}
    for node in reversed(graph.nodes):
        if node.picks is not None:
            if node in wanted:
                used.setdefault(node.operands[0], set()).add(node.picks)
        elif node in used and node.regions:
            saved[node] = _narrowed(node, used[node])
            wanted.update(saved[node].operands)
        elif node in used or node in wanted:
            wanted.update(node.operands)
    return _rebuilt(graph, saved)


class _Kept:
    """The remaining parts of a node: operands, parameters, and the numbers of the results."""

    def __init__(self, operands: Sequence[Node], params: dict[str, Any], results: Sequence[int]):
        self.operands, self.results = tuple(operands), tuple(results)
        self.params = map_regions(tuple(sorted(params.items())), trim)

    def is_whole(self, node: Node) -> bool:
        """Whether no part was removed."""
        if len(self.operands) < len(node.operands) or len(self.results) < len(node.aval):  # type: ignore[arg-type]
            return False
        result = Node(node.op, self.operands, self.params, node.aval)
        return all(map(operator.is_, result.regions, node.regions)) and self.params == node.params


def _narrowed(node: Node, used: set[int]) -> _Kept:
    rule = _RULES.get(node.op)  # type: ignore[arg-type]
    if rule is None:
        return _Kept(node.operands, dict(node.params), range(len(node.aval)))  # type: ignore[arg-type]
    return rule(node, used, **dict(node.params))


def _rebuilt(graph: Graph, kept: dict[Node, _Kept]) -> Graph:
    moved: dict[Node, Node] = {}
    nodes = []
    for node in graph.nodes:
        owner = kept.get(node.operands[0]) if node.picks is not None else None
        if owner is not None and node.picks not in owner.results:
            continue
        if owner is not None and node.operands[0] in moved:
            index = owner.results.index(node.picks)
            new = Node(result, (moved[node.operands[0]],), (("index", index),), node.aval)
        elif node in kept and not (kept[node].is_whole(node) and moved.keys().isdisjoint(node.operands)):
            avals = Several([node.aval[k] for k in kept[node].results])  # type: ignore[index]
            inputs = tuple([moved.get(x, x) for x in kept[node].operands])
            new = Node(node.op, inputs, kept[node].params, avals, node.location)  # type: ignore[arg-type]
        elif any(x in moved for x in node.operands):
            inputs = tuple([moved.get(x, x) if isinstance(x, Node) else x for x in node.inputs])
            new = Node(node.op, inputs, node.params, node.aval, node.location)
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


def _narrow(graph: Graph, inputs: Sequence[int], outputs: Sequence[int]) -> Graph:
    result = sliced([graph.inputs[i] for i in inputs], graph.nodes, [graph.outputs[k] for k in outputs])
    sizes, before = [[len(x) for x in (g.inputs, g.nodes, g.outputs)] for g in (result, graph)]
    return graph if sizes == before else result


def _live(body: Graph, results: set[int], carries: int, also: set[int]) -> tuple[list[int], list[int]]:
    """The live outputs of a body, and the inputs that they read (liveness); the carries in `also` are always live."""
    outputs = results | also
    while True:
        inputs = _read(body, outputs) | {k for k in outputs if k < carries}
        more = {i for i in inputs if i < carries} - outputs
        if not more:
            return sorted(outputs), sorted(inputs)
        outputs |= more


def _scan(node: Node, used: set[int], body: Graph, carries: int, xs: int, **params: Any) -> _Kept:
    outputs, inputs = _live(body, used, carries, set())
    return _Kept(
        [node.operands[i] for i in inputs],
        {**params, "body": _narrow(body, inputs, outputs), "carries": sum(k < carries for k in outputs),
         "xs": sum(carries <= i < carries + xs for i in inputs)},
        outputs,
    )  # fmt: skip


def _while(node: Node, used: set[int], cond: Graph, body: Graph, carries: int, capacity: int) -> _Kept:
    asked = _read(cond, [0])
    also = {i for i in asked if i < carries}
    outputs, read = _live(body, {k if k < carries else k - 1 for k in used if k != carries}, carries, also)
    inputs = sorted({*read, *asked})
    count = sum(k < carries for k in outputs)
    return _Kept(
        [node.operands[i] for i in inputs],
        {"body": _narrow(body, inputs, outputs), "cond": _narrow(cond, inputs, [0]), "carries": count,
         "capacity": capacity if count < len(outputs) else 0},
        [*outputs[:count], carries, *(k + 1 for k in outputs[count:])],
    )  # fmt: skip


def _cond(node: Node, used: set[int], branches: tuple[Graph, ...]) -> _Kept:
    outputs = sorted(used)
    inputs = sorted(set[int]().union(*(_read(b, outputs) for b in branches)))
    narrow = tuple([_narrow(b, inputs, outputs) for b in branches])
    return _Kept([node.operands[0], *(node.operands[i + 1] for i in inputs)], {"branches": narrow}, outputs)


def _remat(node: Node, used: set[int], body: Graph, **params: Any) -> _Kept:
    outputs = sorted(used)
    inputs = sorted(_read(body, outputs))
    return _Kept([node.operands[i] for i in inputs], {**params, "body": _narrow(body, inputs, outputs)}, outputs)


_RULES: dict[Op, Callable[..., _Kept]] = {
    scan_op.scan: _scan, while_op.while_loop: _while, cond_op.cond: _cond, checkpoint.remat: _remat,
}  # fmt: skip
