"""Regions under simplification: what their inputs are, seen from outside, and the regions rebuilt around that.

The regions of a node take the same operands, so the inputs of one stand beside those of the others. An input is *given*
a carry, a row of an operand, or an operand; what an operand is a cheap view of is given instead, and seen differently
inside.
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
from tracegrad.utils.lazy_dataclass import record

__all__ = ["CARRY", "CONSTANT", "ROW", "Given", "Regions", "Stand", "rebuilt", "seen"]

CARRY, ROW, CONSTANT = "carry", "row", "constant"
LARGE = 1 << 16  # elements that are worth their memory in any case


class Given(NamedTuple):
    """What an input of a region is given: carry number `number`, a row of `value`, or `value` itself."""

    sort: str
    value: Any  # of a carry: the one that it begins with
    number: int = 0

    @property
    def key(self) -> Any:
        return self.sort, self.value.node, self.number

    @property
    def aval(self) -> Aval:
        whole: Aval = self.value.aval
        return Aval(whole.shape[1:], whole.dtype) if self.sort == ROW else whole


class Stand(NamedTuple):
    """What stands for an input of a region: what is given instead (None: nothing), and what is made of that inside."""

    given: Given | None
    made: tuple[tuple[Op, dict[str, Any]], ...] = ()


def seen(x: Any, row: bool, inside: Iterable[tuple[Graph, Node]]) -> Stand:
    """What stands for the operand `x`, or for a row of it: for inputs of regions, which are `inside`."""
    if row and constant(x) is not None:
        return Stand(None, ((full, {**dict(x.node.params), "shape": x.shape[1:]}),))
    made: list[tuple[Op, dict[str, Any]]] = []
    if row:
        if producer(x) is not broadcast_to or len(operand(x).shape) == len(x.shape):
            return Stand(Given(ROW, x))
        made, x = [(broadcast_to, {"shape": x.shape[1:]})], operand(x)
    while constant(x) is None and _costs_nothing(x, made, inside):
        made, x = [(x.node.op, dict(x.node.params)), *made], operand(x)
    if producer(x) is pad and constant(operand(x)) is not None:
        made, x = [(pad, dict(x.node.params)), *made], operand(x)
    if constant(x) is not None or producer(x) is arange:
        return Stand(None, ((x.node.op, dict(x.node.params)), *made))
    return Stand(Given(CONSTANT, x), tuple(made))


def _costs_nothing(x: Any, made: list[tuple[Op, dict[str, Any]]], inside: Iterable[tuple[Graph, Node]]) -> bool:
    """Whether `x`, of which `made` is made, is a view that is read inside as well as a copy of it."""
    op = producer(x)
    if op is not transpose:
        return op is reshape or op is broadcast_to
    if any(each is reshape for each, _ in made) or len(x.shape) - 1 not in dict(x.node.params)["perm"][-2:]:
        return False
    return all(in_any_order(*each) for each in inside)


@record(eq=False)
class Regions:
    """Graphs with parallel inputs, and what these are given. The first graph is the one that `moving` is about."""

    graphs: list[Graph]
    given: list[Given]
    changed: bool

    @property
    def inputs(self) -> dict[Node, Given]:
        """What the inputs of the first region are given."""
        return dict(zip(self.graphs[0].inputs, self.given))

    def moving(self) -> set[Node]:
        """What, in the first region, is not the same in every turn."""
        found = {x for x, given in self.inputs.items() if given.sort != CONSTANT}
        for node in self.graphs[0].nodes:
            if not found.isdisjoint(node.operands):
                found.add(node)
        return found

    def outside(self, nodes: Sequence[Node]) -> list[Any]:
        """Values of the first region that are the same in every turn, computed outside of it."""
        given = {x: each.value for x, each in self.inputs.items() if each.sort == CONSTANT}
        return replay(sliced(list(given), self.graphs[0].nodes, nodes), list(given.values()))[0]

    def hoist(self, may_be: Callable[[Node], bool]) -> None:
        """Give the first region what it computes in every turn alike, if `may_be` says that it is worth it.

        What is much larger than all that it could be computed from stays: inside, it may never be in memory.
        """
        body, moving = self.graphs[0], self.moving()
        most = max(LARGE, sum(each.value.aval.size for each in self.given if each.sort == CONSTANT))
        fixed = {
            x for x in body.nodes if x not in moving and not x.several and x.aval.size <= most and may_be(x)
        }  # fmt: skip
        read = {x for node in body.nodes if node not in fixed for x in node.operands}.union(body.outputs)
        found = [x for x in body.nodes if x in fixed and x in read]
        if not found:
            return
        self.given += [Given(CONSTANT, value) for value in self.outside(found)]
        new = {x: Node(None, (), (), x.aval) for x in found}
        self.graphs[0] = _substituted(body, new)
        for k, graph in enumerate(self.graphs[1:], 1):
            more = [Node(None, (), (), x.aval) for x in found]
            self.graphs[k] = Graph((*graph.inputs, *more), graph.nodes, graph.outputs)
        self.changed = True

    def closed(self, outputs: Sequence[Sequence[Node]], carries: Sequence[int] = ()) -> tuple[list[Graph], list[Given]]:
        """The regions with these outputs, and what they are given: these carries, then rows and constants they read."""
        read: set[int] = set()
        for graph, outs in zip(self.graphs, outputs):
            needed = sliced(graph.inputs, graph.nodes, outs)
            values = {x for node in needed.nodes for x in node.operands}.union(outs)
            read |= {i for i, x in enumerate(graph.inputs) if x in values}
        place = {given.number: i for i, given in enumerate(self.given) if given.sort == CARRY}
        order = [place[k] for k in carries]
        for sort in (ROW, CONSTANT):
            order += [i for i, given in enumerate(self.given) if given.sort == sort and i in read]
        regions = [sliced([g.inputs[i] for i in order], g.nodes, outs) for g, outs in zip(self.graphs, outputs)]
        return regions, [self.given[i] for i in order]


def rebuilt(graphs: Sequence[Graph], stands: Sequence[Stand], near: Any) -> Regions:
    """The regions with `stands` for their inputs; they are simplified as the graph that the value `near` is in."""
    given = list({s.given.key: s.given for s in stands if s.given is not None}.values())
    read = [set(graph.outputs).union(*(node.operands for node in graph.nodes)) for graph in graphs]
    if len(given) == len(stands) and not any(s.made for s in stands):
        loose = [i for i, each in enumerate(given) if each.sort != CARRY]
        return Regions(
            list(graphs), given, any(all(g.inputs[i] not in xs for g, xs in zip(graphs, read)) for i in loose)
        )
    return Regions([_rebuilt(graph, given, stands, near.builder.simplify) for graph in graphs], given, True)


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
    """The graph with further inputs that stand for nodes of it."""
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
