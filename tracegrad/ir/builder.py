"""Graph builder with value numbering.

Applying an op to a `GraphValue` appends a node to its builder. Equal applications become one node, so every replay of a
graph through a builder eliminates common subexpressions. A function `simplify` may return a simpler value for an
application, which covers algebra and constant folding. Nodes that no output needs are not part of the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any

from tracegrad.avals import LITERALS, Aval, Literal
from tracegrad.errors import TraceError, UnsupportedError, located
from tracegrad.ir.graph import Graph, GraphNode
from tracegrad.ops.core.op import Carrier, DispatchLevel, Op
from tracegrad.ops.core.recorders import RECORDERS, Recorder
from tracegrad.ops.core.result import result
from tracegrad.ops.shape.stack_split import unbind

Simplify = Callable[[Op, tuple[Any, ...], dict[str, Any]], Any]


class GraphValue(Carrier):
    """A node as a value: applying an op to it emits the op."""

    __slots__ = ("builder", "node")
    level = DispatchLevel.VALUE

    def __init__(self, builder: Builder, node: GraphNode):
        self.builder, self.node = builder, node

    @property
    def aval(self) -> Aval:
        return self.node.aval

    @property
    def shape(self) -> tuple[int, ...]:
        return self.node.aval.shape

    @property
    def dtype(self) -> Any:
        return self.node.aval.dtype

    def bind(self, op: Op, operands: tuple[Any, ...], params: dict[str, object]) -> Any:
        return self.builder.emit(op, operands, params)

    def refusal(self, why: str) -> BaseException:
        return self.builder.refusal(why)

    def whole(self, xs: Sequence[Any]) -> Any:
        unbound = self.node.operands[0] if self.node.result_index == 0 else None
        if (
            unbound is None
            or unbound.op is not unbind
            or dict(unbound.params)["axis"]
            or recorder() is not self.builder
        ):
            return None
        nodes = [x.node for x in xs if isinstance(x, GraphValue)]
        known = all(x.result_index == k and x.operands[0] is unbound for k, x in enumerate(nodes))
        array, count = unbound.operands[0], len(unbound.results)
        # An input is an array of the caller.
        return self.builder.value(array) if known and array.op and len(nodes) == len(xs) == count else None


Value = GraphValue | Literal


class Builder(Recorder):
    """Graph builder, which appends nodes to a graph under construction."""

    def __init__(self, simplify: Simplify | None = None):
        self.inputs: list[GraphNode] = []
        self.nodes: list[GraphNode] = []
        self.simplify = simplify
        self.location = ""
        self.around: Builder | None = None  # the enclosing builder of a region; `examples`: of a batch
        self.examples = 1
        self._numbering: dict[Any, GraphNode] = {}

    # -- methods that traces override --------------------------------------------------------
    def value(self, node: GraphNode) -> Any:
        return GraphValue(self, node)

    def lift(self, x: Any) -> Any:
        """The value in this graph of `x`, the result of a simplification or an operand."""
        if type(x) in LITERALS or (isinstance(x, GraphValue) and x.builder is self):
            return x
        raise TraceError(f"a value of type {type(x).__name__} does not belong to the graph being built")

    def refusal(self, why: str) -> BaseException:
        """The exception to raise if no graph can represent a conversion of a value."""
        return UnsupportedError(located(why, self.location))

    def locate(self) -> str:
        return self.location

    # -- building ------------------------------------------------------------------------------
    def input(self, aval: Aval) -> Any:
        node = GraphNode(None, (), (), aval)
        self.inputs.append(node)
        return self.value(node)

    def bind(self, op: Op, operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
        return self.emit(op, operands, params)

    def emit(self, op: Op, operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """The value of `op` applied to `operands`: an earlier equal one, a simpler one, or a new node."""
        operands = tuple([x if type(x) is GraphValue and x.builder is self else self.lift(x) for x in operands])
        if self.simplify and (simpler := self.simplify(op, operands, params)) is not None:
            return tuple(map(self.lift, simpler)) if type(simpler) is tuple else self.lift(simpler)
        return self.plain(op, operands, params)

    def plain(self, op: Op, operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """The value of `op` applied to values of this graph, not simplified: an equal earlier node, or a new one."""
        inputs = tuple([x if type(x) in LITERALS else x.node for x in operands])
        items = tuple(sorted(params.items())) if len(params) > 1 else tuple(params.items())
        return self.valued(self.number(op, inputs, items))

    def valued(self, node: GraphNode) -> Any:
        """The value of a node; the tuple of values for an op with several results."""
        if not node.is_multi_result:
            return self.value(node)
        picked = [self.number(result, (node,), (("index", i),)) for i in range(len(node.results))]
        return tuple([self.value(x) for x in picked])

    def number(
        self, op: Op, inputs: tuple[Any, ...], items: tuple[Any, ...], known: GraphNode | None = None
    ) -> GraphNode:
        """The earlier node with this op, inputs and params (value numbering), or else `known`, or else a new node."""
        operands: Any = inputs if known is not None and known.operands is known.inputs else key_of(inputs)
        if op.commutative:
            operands = frozenset(operands)
        key = (op, operands, *map(key_of, items)) if items else (op, operands)
        node = self._numbering.get(key)
        if node is None:
            node = known
            if node is None:
                aval = op.aval(*[x if type(x) in LITERALS else x.aval for x in inputs], **dict(items))
                node = GraphNode(op, inputs, items, aval, self.locate())
            self._numbering[key] = node
            self.nodes.append(node)
        return node

    def build(self, outputs: Iterable[Any]) -> Graph:
        """The graph of all nodes that `outputs` need."""
        return sliced(self.inputs, self.nodes, [self.lift(x).node for x in outputs])


def key_of(xs: tuple[object, ...]) -> tuple[Any, ...]:
    """A key that distinguishes operands, or names and values, exactly.

    1, 1.0 and True are equal and -0.0 equals 0.0, so the key of a literal is its text."""
    for x in xs:
        if type(x) in LITERALS:
            return tuple([repr(x) if type(x) in LITERALS else x for x in xs])
    return xs


_operands = attrgetter("operands")
node_of: Callable[[Any], GraphNode] = attrgetter("node")  # the node of a value


def sliced(inputs: Sequence[GraphNode], nodes: Sequence[GraphNode], outputs: Sequence[GraphNode]) -> Graph:
    """The graph from `inputs` to `outputs` with the `nodes` that are needed."""
    return Graph(tuple(inputs), tuple(needed(nodes, outputs)), tuple(outputs))


def needed(
    nodes: Sequence[GraphNode],
    outputs: Iterable[GraphNode],
    operands: Callable[[GraphNode], Iterable[GraphNode]] = _operands,
) -> list[GraphNode]:
    """The `nodes` that the outputs need, in order."""
    live = set(outputs)
    saved: list[GraphNode] = []
    picked: dict[GraphNode, list[GraphNode]] = {}  # the used results of a node, which follow the node
    for node in reversed(nodes):
        if node in live:
            live.update(operands(node))
            if node.result_index is not None:
                picked.setdefault(node.operands[0], []).append(node)
                continue
            if picked:
                saved += sorted(picked.pop(node, ()), key=_position, reverse=True)
            saved.append(node)
    saved.reverse()
    return saved


def _position(node: GraphNode) -> int:
    assert node.result_index is not None
    return node.result_index


def build(fn: Callable[..., Iterable[Any]], avals: Iterable[Aval], simplify: Simplify | None = None) -> Graph:
    """The graph of `fn`, which takes and returns flat sequences of values."""
    builder = Builder(simplify)
    builder.around = recorder()
    with recording(builder):
        outputs = list(fn(*[builder.input(a) for a in avals]))
        return builder.build(outputs)


def recorder() -> Builder | None:
    """The innermost builder that is recording in this thread; ops without operands are emitted to it."""
    return RECORDERS.current  # type: ignore[return-value]


class recording:
    """Emit ops without operands to `builder` in this thread (context manager)."""

    def __init__(self, builder: Builder | None):
        self.builder = builder

    def __enter__(self) -> None:
        self.before, RECORDERS.current = RECORDERS.current, self.builder

    def __exit__(self, *_: object) -> None:
        RECORDERS.current = self.before
