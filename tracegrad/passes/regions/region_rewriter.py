"""Rewrite region inputs and outputs, and hoist loop-invariant nodes out of regions.

The regions of a node take the same operands, so their inputs correspond by position. The origin of an input is a carry,
a row of an operand, or an operand. If an operand is a cheap view of another value, the region takes that value and
computes the view inside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from tracegrad.avals import Aval
from tracegrad.ir import Builder, Graph, Node, replay
from tracegrad.ir.builder import recording, sliced
from tracegrad.ops.core.op import Op
from tracegrad.ops.shape.fill import arange
from tracegrad.ops.shape.linear import broadcast_to, full, pad, reshape, transpose
from tracegrad.passes.core.constant_folding import constant
from tracegrad.passes.core.rewriter import operand, producer
from tracegrad.passes.regions.layout_insensitive import in_any_order
from tracegrad.settings import disabled
from tracegrad.target.tuning import TUNING
from tracegrad.utils.lazy_dataclass import record

__all__ = ["CARRY", "CONSTANT", "ROW", "Given", "Regions", "Stand", "rebuilt", "seen"]

CARRY, ROW, CONSTANT = "carry", "row", "constant"
LARGE = TUNING.passes.max_hoisted


class Given(NamedTuple):
    """Origin of a region input: carry number `number`, a row of `value`, or `value` itself."""

    sort: str
    value: Any  # for a carry: its initial value
    number: int = 0

    @property
    def key(self) -> Any:
        return self.sort, self.value.node, self.number

    @property
    def aval(self) -> Aval:
        whole: Aval = self.value.aval
        return Aval(whole.shape[1:], whole.dtype) if self.sort == ROW else whole


class Stand(NamedTuple):
    """Replacement of a region input: the origin of another input, or None, and the ops applied to it inside."""

    given: Given | None
    made: tuple[tuple[Op, dict[str, Any]], ...] = ()


def seen(x: Any, row: bool, inside: Iterable[tuple[Graph, Node]]) -> Stand:
    """The replacement of the operand `x`, or of a row of it, as the region inputs `inside`."""
    if row and constant(x) is not None:
        return Stand(None, ((full, {**dict(x.node.params), "shape": x.shape[1:]}),))
    results: list[tuple[Op, dict[str, Any]]] = []
    if row:
        if producer(x) is not broadcast_to or len(operand(x).shape) == len(x.shape):
            return Stand(Given(ROW, x))
        results, x = [(broadcast_to, {"shape": x.shape[1:]})], operand(x)
    while constant(x) is None and _costs_nothing(x, results, inside):
        results, x = [(x.node.op, dict(x.node.params)), *results], operand(x)
    if producer(x) is pad and constant(operand(x)) is not None:
        results, x = [(pad, dict(x.node.params)), *results], operand(x)
    if constant(x) is not None or producer(x) is arange:
        return Stand(None, ((x.node.op, dict(x.node.params)), *results))
    return Stand(Given(CONSTANT, x), tuple(results))


def _costs_nothing(x: Any, results: list[tuple[Op, dict[str, Any]]], inside: Iterable[tuple[Graph, Node]]) -> bool:
    """Whether `x`, to which the ops `results` are applied, is a view that is as cheap to read inside as a copy."""
    op = producer(x)
    if op is not transpose:
        return op is reshape or op is broadcast_to
    if any(each is reshape for each, _ in results) or len(x.shape) - 1 not in dict(x.node.params)["perm"][-2:]:
        return False
    return all(in_any_order(*each) for each in inside)


@record(eq=False)
class Regions:
    """Graphs with parallel inputs, and the origins of the inputs. `moving` is about the first graph."""

    graphs: list[Graph]
    given: list[Given]
    changed: bool

    @property
    def inputs(self) -> dict[Node, Given]:
        """The origins of the inputs of the first region."""
        return dict(zip(self.graphs[0].inputs, self.given))

    def moving(self) -> set[Node]:
        """The nodes of the first region that are not loop-invariant."""
        results = {x for x, operands in self.inputs.items() if operands.sort != CONSTANT}
        for node in self.graphs[0].nodes:
            if not results.isdisjoint(node.operands):
                results.add(node)
        return results

    def outside(self, nodes: Sequence[Node]) -> list[Any]:
        """Loop-invariant values of the first region, computed outside of it."""
        options = {x: each.value for x, each in self.inputs.items() if each.sort == CONSTANT}
        return replay(sliced(list(options), self.graphs[0].nodes, nodes), list(options.values()))[0]

    def hoist(self, may_be: Callable[[Node], bool]) -> None:
        """Hoist loop-invariant nodes of the first region, if `may_be` is true for them.

        A value much larger than all its inputs is not hoisted, because inside it may never be stored.
        """
        if disabled("invariant-code-motion"):
            return
        body, moving = self.graphs[0], self.moving()
        most = max(LARGE, sum(each.value.aval.size for each in self.given if each.sort == CONSTANT))
        fixed = {
            x for x in body.nodes if x not in moving and not x.several and x.aval.size <= most and may_be(x)
        }  # fmt: skip
        read = {x for node in body.nodes if node not in fixed for x in node.operands}.union(body.outputs)
        results = [x for x in body.nodes if x in fixed and x in read]
        if not results:
            return
        self.given += [Given(CONSTANT, value) for value in self.outside(results)]
        new = {x: Node(None, (), (), x.aval) for x in results}
        self.graphs[0] = _substituted(body, new)
        for k, graph in enumerate(self.graphs[1:], 1):
            more = [Node(None, (), (), x.aval) for x in results]
            self.graphs[k] = Graph((*graph.inputs, *more), graph.nodes, graph.outputs)
        self.changed = True

    def closed(self, outputs: Sequence[Sequence[Node]], carries: Sequence[int] = ()) -> tuple[list[Graph], list[Given]]:
        """The regions with new outputs, and their operands: `carries`, then the rows and constants that they read."""
        read: set[int] = set()
        for graph, outs in zip(self.graphs, outputs):
            needed = sliced(graph.inputs, graph.nodes, outs)
            values = {x for node in needed.nodes for x in node.operands}.union(outs)
            read |= {i for i, x in enumerate(graph.inputs) if x in values}
        place = {operands.number: i for i, operands in enumerate(self.given) if operands.sort == CARRY}
        order = [place[k] for k in carries]
        for sort in (ROW, CONSTANT):
            order += [i for i, operands in enumerate(self.given) if operands.sort == sort and i in read]
        regions = [sliced([g.inputs[i] for i in order], g.nodes, outs) for g, outs in zip(self.graphs, outputs)]
        return regions, [self.given[i] for i in order]


def rebuilt(graphs: Sequence[Graph], stands: Sequence[Stand], near: Any) -> Regions:
    """The regions with their inputs replaced, simplified like the graph of the value `near`."""
    operands = list({s.given.key: s.given for s in stands if s.given is not None}.values())
    read = [set(graph.outputs).union(*(node.operands for node in graph.nodes)) for graph in graphs]
    if len(operands) == len(stands) and not any(s.made for s in stands):
        loose = [i for i, each in enumerate(operands) if each.sort != CARRY]
        return Regions(
            list(graphs), operands, any(all(g.inputs[i] not in xs for g, xs in zip(graphs, read)) for i in loose)
        )
    return Regions([_rebuilt(graph, operands, stands, near.builder.simplify) for graph in graphs], operands, True)


def _rebuilt(graph: Graph, given: Sequence[Given], stands: Sequence[Stand], simplify: Any) -> Graph:
    builder = Builder(simplify)
    values = {each.key: builder.input(each.aval) for each in given}
    with recording(builder):
        inputs = []
        for stand in stands:
            x = None if stand.given is None else values[stand.given.key]
            for op, params in stand.made:
                x = builder.emit(op, () if x is None else (x,), params)
            inputs.append(x)
        return builder.build(replay(graph, inputs)[0])


def _substituted(graph: Graph, new: dict[Node, Node]) -> Graph:
    """The graph with nodes replaced by further inputs."""
    moved: dict[Node, Node] = dict(new)
    nodes = []
    for node in graph.nodes:
        if node in new:
            continue
        if any(x in moved for x in node.operands):
            inputs = tuple([moved.get(x, x) if isinstance(x, Node) else x for x in node.inputs])
            moved[node] = node = Node(node.op, inputs, node.params, node.aval, node.location)
        nodes.append(node)
    return Graph((*graph.inputs, *new.values()), tuple(nodes), tuple([moved.get(x, x) for x in graph.outputs]))
