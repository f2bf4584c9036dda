"""Rewrite region inputs and outputs, and hoist loop-invariant nodes out of regions.

The regions of a node take the same operands, so their inputs correspond by position. The origin of an input is a carry,
a row of an operand, or an operand. If an operand is a cheap view of another value, the region takes that value and
computes the view inside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from tracegrad.avals import Aval
from tracegrad.ir import Builder, Graph, GraphNode, GraphValue, replay
from tracegrad.ir.builder import recording, sliced
from tracegrad.ir.loop_view import row_of
from tracegrad.ir.rebuild import new_input, taking
from tracegrad.ops.core.op import Op
from tracegrad.ops.shape.fill import arange
from tracegrad.ops.shape.linear import broadcast_to, full, pad, reshape, transpose
from tracegrad.passes.core.constant_folding import constant
from tracegrad.passes.core.rewriter import operand, producer
from tracegrad.passes.regions.layout_insensitive import in_any_order
from tracegrad.settings import disabled
from tracegrad.target.tuning import TUNING
from tracegrad.utils.lazy_dataclass import record

CARRY, ROW, CONSTANT = "carry", "row", "constant"
LARGE = TUNING.passes.max_hoisted


class InputOrigin(NamedTuple):
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
        return row_of(whole) if self.sort == ROW else whole


class InputReplacement(NamedTuple):
    """Replacement of a region input: the origin of another input, or None, and the ops applied to it inside."""

    origin: InputOrigin | None
    ops: tuple[tuple[Op, dict[str, Any]], ...] = ()


def replacement_of(x: Any, is_row: bool, inside: Iterable[tuple[Graph, GraphNode]]) -> InputReplacement:
    """The replacement of the operand `x`, or of a row of it, as the region inputs `inside`."""
    if is_row and constant(x) is not None:
        return InputReplacement(None, ((full, {**dict(x.node.params), "shape": x.shape[1:]}),))
    results: list[tuple[Op, dict[str, Any]]] = []
    if is_row:
        if producer(x) is not broadcast_to or len(operand(x).shape) == len(x.shape):
            return InputReplacement(InputOrigin(ROW, x))
        results, x = [(broadcast_to, {"shape": x.shape[1:]})], operand(x)
    while constant(x) is None and _costs_nothing(x, results, inside):
        results, x = [(x.node.op, dict(x.node.params)), *results], operand(x)
    if producer(x) is pad and constant(operand(x)) is not None:
        results, x = [(pad, dict(x.node.params)), *results], operand(x)
    if constant(x) is not None or producer(x) is arange:
        return InputReplacement(None, ((x.node.op, dict(x.node.params)), *results))
    return InputReplacement(InputOrigin(CONSTANT, x), tuple(results))


def _costs_nothing(
    x: GraphValue, results: list[tuple[Op, dict[str, object]]], inside: Iterable[tuple[Graph, GraphNode]]
) -> bool:
    """Whether `x`, to which the ops `results` are applied, is a view that is as cheap to read inside as a copy."""
    op = producer(x)
    if op is not transpose:
        return op is reshape or op is broadcast_to
    if any(each is reshape for each, _ in results) or len(x.shape) - 1 not in dict(x.node.params)["perm"][-2:]:
        return False
    return all(in_any_order(*each) for each in inside)


@record(eq=False)
class ParallelRegions:
    """Graphs with parallel inputs, and the origins of the inputs. `moving` is about the first graph."""

    graphs: list[Graph]
    origins: list[InputOrigin]
    changed: bool

    @property
    def inputs(self) -> dict[GraphNode, InputOrigin]:
        """The origins of the inputs of the first region."""
        return dict(zip(self.graphs[0].inputs, self.origins))

    def moving(self) -> set[GraphNode]:
        """The nodes of the first region that are not loop-invariant."""
        return self.graphs[0].dependents(x for x, origin in self.inputs.items() if origin.sort != CONSTANT)

    def outside(self, nodes: Sequence[GraphNode]) -> list[Any]:
        """Loop-invariant values of the first region, computed outside of it."""
        options = {x: each.value for x, each in self.inputs.items() if each.sort == CONSTANT}
        return replay(sliced(list(options), self.graphs[0].nodes, nodes), list(options.values()))[0]

    def hoist(self, may_be: Callable[[GraphNode], bool]) -> None:
        """Hoist loop-invariant nodes of the first region, if `may_be` is true for them.

        A value much larger than all its inputs is not hoisted, because inside it may never be stored.
        """
        if disabled("invariant-code-motion"):
            return
        body, moving = self.graphs[0], self.moving()
        max_size = max(LARGE, sum(each.value.aval.size for each in self.origins if each.sort == CONSTANT))
        fixed = {
            x for x in body.nodes if x not in moving and not x.is_multi_result and x.aval.size <= max_size and may_be(x)
        }
        read = {x for node in body.nodes if node not in fixed for x in node.operands}.union(body.outputs)
        results = [x for x in body.nodes if x in fixed and x in read]
        if not results:
            return
        self.origins += [InputOrigin(CONSTANT, value) for value in self.outside(results)]
        self.graphs[0] = taking(body, results)
        for k, graph in enumerate(self.graphs[1:], 1):
            self.graphs[k] = Graph((*graph.inputs, *map(new_input, results)), graph.nodes, graph.outputs)
        self.changed = True

    def closed(
        self, outputs: Sequence[Sequence[GraphNode]], carries: Sequence[int] = ()
    ) -> tuple[list[Graph], list[InputOrigin]]:
        """The regions with new outputs, and their operands: `carries`, then the rows and constants that they read."""
        read: set[int] = set()
        for graph, outs in zip(self.graphs, outputs):
            needed = sliced(graph.inputs, graph.nodes, outs)
            values = {x for node in needed.nodes for x in node.operands}.union(outs)
            read |= {i for i, x in enumerate(graph.inputs) if x in values}
        positions = {origin.number: i for i, origin in enumerate(self.origins) if origin.sort == CARRY}
        order = [positions[k] for k in carries]
        for sort in (ROW, CONSTANT):
            order += [i for i, origin in enumerate(self.origins) if origin.sort == sort and i in read]
        regions = [sliced([g.inputs[i] for i in order], g.nodes, outs) for g, outs in zip(self.graphs, outputs)]
        return regions, [self.origins[i] for i in order]


def rebuilt(graphs: Sequence[Graph], replacements: Sequence[InputReplacement], near: GraphValue) -> ParallelRegions:
    """The regions with their inputs replaced, simplified like the graph of the value `near`."""
    origins = list({s.origin.key: s.origin for s in replacements if s.origin is not None}.values())
    read = [set(graph.outputs).union(*(node.operands for node in graph.nodes)) for graph in graphs]
    if len(origins) == len(replacements) and not any(s.ops for s in replacements):
        loose = [i for i, each in enumerate(origins) if each.sort != CARRY]
        return ParallelRegions(
            list(graphs), origins, any(all(g.inputs[i] not in xs for g, xs in zip(graphs, read)) for i in loose)
        )
    return ParallelRegions(
        [_rebuilt(graph, origins, replacements, near.builder.simplify) for graph in graphs], origins, True
    )


def _rebuilt(
    graph: Graph, origins: Sequence[InputOrigin], replacements: Sequence[InputReplacement], simplify: Any
) -> Graph:
    builder = Builder(simplify)
    values = {each.key: builder.input(each.aval) for each in origins}
    with recording(builder):
        inputs = []
        for replacement in replacements:
            x = None if replacement.origin is None else values[replacement.origin.key]
            for op, params in replacement.ops:
                x = builder.emit(op, () if x is None else (x,), params)
            inputs.append(x)
        return builder.build(replay(graph, inputs)[0])
