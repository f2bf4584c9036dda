"""Define nodes and graphs in SSA form.

A graph is a straight line of SSA nodes, each one op applied to earlier nodes. A node with one result is its value. A
node of an op with several results has a tuple of avals and no value of its own. Its results are nodes of the op
`result`, which select one each. Nodes are immutable and compare by identity; numbers exist only in print. Graphs
compare by their text.

A parameter of a node may be a graph, or a tuple of graphs: a *region*, as the body of a loop or the branches of a
condition. The op defines how it runs. Regions are closed: every outside value that they read is an operand of the node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from typing import Any, Final

from tracegrad.avals import LITERALS, Aval
from tracegrad.ir.printer import digest_of, printable, to_text
from tracegrad.ops.core.op import Op, ResultAvals
from tracegrad.ops.core.result import result
from tracegrad.utils.lazy_dataclass import record

Params = tuple[tuple[str, Any], ...]


class GraphNode:
    """The result of one op, or (`op` None) an input of the graph. Operands are nodes and literals.

    `is_multi_result`: the op has several results, so that this node has no value. `result_index`: the number of the
    result of the operand that this node selects; None for other nodes. `form`: the form of the op.
    """

    # Not a frozen dataclass, which is slower to construct: a trace creates many nodes.
    __slots__ = (
        "aval",
        "form",
        "inputs",
        "is_multi_result",
        "location",
        "op",
        "operands",
        "params",
        "regions",
        "result_index",
    )

    def __init__(self, op: Op | None, inputs: tuple[Any, ...], params: Params, aval: Aval, location: str = "") -> None:
        is_multi_result = type(aval) is not Aval
        self.op: Final = op
        self.form: Final[Any] = None if op is None else op.form
        self.inputs: Final = inputs
        self.params: Final = params
        self.aval: Final[Aval] = ResultAvals(aval) if is_multi_result else aval  # type: ignore[assignment, arg-type]
        self.location: Final = location
        operands = inputs
        for x in inputs:
            if type(x) in LITERALS:
                operands = tuple([x for x in inputs if type(x) not in LITERALS])
                break
        self.operands: Final[tuple[GraphNode, ...]] = operands
        self.regions: Final[tuple[Graph, ...]] = _regions(params) if params else ()
        self.is_multi_result: Final = is_multi_result
        self.result_index: Final[int | None] = params[0][1] if op is result else None

    def of(self, inputs: tuple[Any, ...]) -> GraphNode:
        """The same node with other inputs of the same avals."""
        result = GraphNode.__new__(GraphNode)
        new: Any = result
        new.op, new.form, new.params, new.aval, new.location = self.op, self.form, self.params, self.aval, self.location
        new.regions, new.is_multi_result, new.result_index = self.regions, self.is_multi_result, self.result_index
        new.inputs = new.operands = inputs
        if self.operands is not self.inputs:
            new.operands = tuple([x for x in inputs if type(x) not in LITERALS])
        return result

    def __repr__(self) -> str:
        return f"Node({self.name}, {self.params}, {self.aval})"

    @property
    def name(self) -> str:
        return self.op.name if self.op else "input"

    @property
    def results(self) -> ResultAvals:
        """The abstract values of the results of an op with several results."""
        return self.aval  # type: ignore[return-value]

    def depends_on(self, nodes: set[GraphNode]) -> bool:
        """Whether this value depends on any of `nodes`."""
        seen, stack = {self}, [self]
        while stack:
            node = stack.pop()
            if node in nodes:
                return True
            fresh = set(node.operands) - seen
            seen |= fresh
            stack.extend(fresh)
        return False


def _regions(params: Params) -> tuple[Graph, ...]:
    results: tuple[Graph, ...] = ()
    for _, value in params:
        if type(value) is tuple:
            if value and type(value[0]) is Graph:
                results += value
        elif type(value) is Graph:
            results += (value,)
    return results


def map_regions(params: Params, change: Callable[[Graph], Graph]) -> Params:
    """The parameters with `change` applied to every region; the same object if there is none."""
    return tuple([(k, _mapped(v, change)) for k, v in params]) if _regions(params) else params


def _mapped(
    value: tuple[Graph, ...] | Graph | int, change: Callable[[Graph], Graph]
) -> tuple[Graph, ...] | Graph | int:
    if type(value) is Graph:
        return change(value)
    if type(value) is tuple and value and type(value[0]) is Graph:
        return tuple([change(g) for g in value])
    return value


@record(frozen=True, slots=True, eq=False)
class Graph:
    """Inputs, nodes in order of computation, and outputs, which are inputs or nodes and may be repeated.

    `names`, if any, are the user's names of the inputs ("" for one without a name). They are only printed: graphs
    that differ in names are equal.
    """

    inputs: tuple[GraphNode, ...]
    nodes: tuple[GraphNode, ...]
    outputs: tuple[GraphNode, ...]
    names: tuple[str, ...] = ()
    _text: str | None = field(default=None, init=False, repr=False)
    _digest: bytes | None = field(default=None, init=False, repr=False)

    def __str__(self) -> str:
        return to_text(self) if self.names else self.text

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from tracegrad.utils.html import code, object_html

        lines = to_text(self, locations=True).splitlines()
        return object_html("graph", f"{len(self.nodes)} nodes", [code(lines)])

    @property
    def text(self) -> str:
        """The printed text, without names."""
        if self._text is None:
            object.__setattr__(self, "_text", to_text(self._plain))
        return self._text  # type: ignore[return-value]

    @property
    def digest(self) -> bytes:
        """A digest of the text, computed from the digests of the regions, each of which is visited once."""
        if self._digest is None:
            object.__setattr__(self, "_digest", digest_of(self._plain))
        return self._digest  # type: ignore[return-value]

    @property
    def _plain(self) -> Graph:
        return Graph(self.inputs, self.nodes, self.outputs) if self.names else self

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Graph) and self.digest == other.digest)

    def __hash__(self) -> int:
        return hash(self.digest)

    def named(self, names: Iterable[str]) -> Graph:
        """The graph with these input names, if they can be printed and are unique."""
        return Graph(self.inputs, self.nodes, self.outputs, printable(names))

    @property
    def avals(self) -> tuple[Aval, ...]:
        """The abstract values of the inputs."""
        return tuple(x.aval for x in self.inputs)

    @property
    def results(self) -> tuple[Aval, ...]:
        """The abstract values of the outputs."""
        return tuple(x.aval for x in self.outputs)

    @property
    def has_regions(self) -> bool:
        """Whether any of the nodes runs regions, as loops and branches do."""
        return any([node.regions for node in self.nodes])  # noqa: C419 (many passes test this first)

    def everywhere(self) -> Sequence[GraphNode]:
        """The nodes, and the nodes of all nested regions."""
        if not self.has_regions:
            return self.nodes
        return [x for n in self.nodes for x in (n, *[y for region in n.regions for y in region.everywhere()])]

    def dependents(self, nodes: Iterable[GraphNode]) -> set[GraphNode]:
        """These inputs and nodes, and the nodes that depend on any of them."""
        results = set(nodes)
        for node in self.nodes:
            if not results.isdisjoint(node.operands):
                results.add(node)
        return results

    def users(self) -> dict[GraphNode, list[GraphNode]]:
        """The nodes that use each value, in order."""
        table: dict[GraphNode, list[GraphNode]] = {x: [] for x in (*self.inputs, *self.nodes)}
        for node in self.nodes:
            for x in dict.fromkeys(node.operands):
                table[x].append(node)
        return table
