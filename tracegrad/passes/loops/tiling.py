"""Tile elementwise loops that save rows for each other, so that the rows remain in the cache (loop tiling).

The derivative of a loop reads saved rows in every iteration. If both loops and the nodes between them are elementwise,
the elements are split into blocks. One loop over the blocks, without carries, computes one block after the other. The
rows of a block fit into the cache; the rows of all elements would be streamed from memory twice. Every element is
computed as before, so the bits are the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import prod
from typing import Any

from tracegrad.avals import Aval, is_literal
from tracegrad.control.scan_op import scan
from tracegrad.ir import Graph, GraphNode, GraphValue, build
from tracegrad.ir.builder import recorder
from tracegrad.ir.interpreter import applied
from tracegrad.ir.loop_view import LoopView
from tracegrad.ops.core.forms import Cast, Map
from tracegrad.ops.shape.fill import full
from tracegrad.ops.shape.linear import broadcast_to, pad, reshape, slice
from tracegrad.target.tuning import TUNING
from tracegrad.typing import Array
from tracegrad.utils.lazy_dataclass import record

LARGE = TUNING.passes.min_tiled_bytes
BLOCK = TUNING.passes.tile_bytes
SHORTEST = TUNING.passes.min_tile
LONGEST = TUNING.passes.max_tile
MIN_TILES = TUNING.passes.min_tiles
DEEPEST = TUNING.passes.max_element_bytes

Shape = tuple[int, ...]


def run_in_blocks(graph: Graph) -> Graph:
    """`graph` with elementwise loops tiled. Values are unchanged.

    >>> from tracegrad.ir import parse
    >>> graph = parse("graph(%0: f64[4]) {\\n  return %0\\n}")
    >>> run_in_blocks(graph) is graph
    True
    """
    group = _TileGroup.of(graph)
    if group is None:
        return graph

    def fn(*args: GraphValue) -> list[Any]:
        env = dict(zip(graph.inputs, args))
        dependents = graph.dependents(group.nodes).difference(group.nodes)
        _replay([x for x in graph.nodes if x not in group.nodes and x not in dependents], env)
        env |= group.emit(env)
        _replay([x for x in graph.nodes if x in dependents], env)
        return [env[x] for x in graph.outputs]

    return build(fn, graph.avals)


@record()
class _TileGroup:
    """Loops to tile, the nodes between them, the `copies` of their initial constants, and the saved rows."""

    space: Shape
    nodes: dict[GraphNode, None]
    copies: list[GraphNode]
    saved_rows: list[GraphNode]
    outs: list[GraphNode]

    @classmethod
    def of(cls, graph: Graph) -> _TileGroup | None:
        """The group of a graph, if it has a profitable one."""
        spaces = {node: space for node in graph.nodes if node.op is scan and (space := _space(node)) is not None}
        if not spaces:
            return None
        users, outputs = graph.users(), set(graph.outputs)
        saved = [x for x in graph.nodes if x not in outputs and _is_saved_rows(x, users[x], spaces)]
        saved = [x for x in saved if x.aval.shape[1:] == saved[0].aval.shape[1:]]
        if not saved or sum(x.aval.nbytes for x in saved) < LARGE:
            return None
        space = saved[0].aval.shape[1:]
        loops = {y for x in saved for y in (x.operands[0], *users[x])}
        nodes = dict.fromkeys(_between(graph, loops))
        if not all(x in loops or _is_result(x, space, saved) or _is_pointwise(x, space) for x in nodes):
            return None
        if not all(_scans_only_saved(x, space, saved) for x in loops):
            return None
        copies = [
            x
            for x in graph.nodes
            if x not in nodes and _is_constant(x, space) and not nodes.keys().isdisjoint(users[x])
        ]
        outs = [x for x in nodes if not x.is_multi_result and (x in outputs or any(u not in nodes for u in users[x]))]
        result = cls(space, nodes, copies, saved, outs)
        return result if all(x.aval.shape == space for x in outs) and result.length else None

    @property
    def length(self) -> int:
        """The number of elements of a block; 0 if tiling is not profitable."""
        each = sum(x.aval.shape[0] * x.aval.dtype.itemsize for x in self.saved_rows)
        length = min(max(BLOCK // each // 8 * 8, SHORTEST), LONGEST)
        return length if each <= DEEPEST and MIN_TILES * length < prod(self.space) else 0

    def emit(self, env: dict[GraphNode, Any]) -> dict[GraphNode, Any]:
        """Emit the tiled loop. Returns the replacements of nodes that other nodes use."""
        nodes = [*self.copies, *self.nodes]
        args = dict.fromkeys(x for node in nodes for x in node.operands if x not in self.nodes and x not in self.copies)
        arrays = [x for x in args if x.aval.shape == self.space]
        fixed = [x for x in args if x.aval.shape != self.space]
        size, length = prod(self.space), self.length
        count = -(-size // length)

        def block(*values: GraphValue) -> list[Any]:
            inner = dict(zip([*arrays, *fixed], values))
            _replay(nodes, inner, _BlockConverter(self.space, length))
            return [inner[x] for x in self.outs]

        def in_blocks(x: Array) -> Any:
            flat, rest = reshape(x, shape=(size,)), count * length - size
            whole = pad(flat, low=(0,), high=(rest,), interior=(0,), value=0) if rest else flat
            return reshape(whole, shape=(count, length))

        def joined(x: Array) -> Any:
            flat = reshape(x, shape=(count * length,))
            return reshape(slice(flat, start=(0,), stop=(size,), step=(1,)), shape=self.space)

        avals = [*(replace(x.aval, shape=(length,)) for x in arrays), *(x.aval for x in fixed)]
        operands = [*(in_blocks(env[x]) for x in arrays), *(env[x] for x in fixed)]
        body = build(block, avals)
        result = scan(*operands, body=body, carries=0, xs=len(arrays), length=count, reverse=False)
        return dict(zip(self.outs, map(joined, result)))


# -- analysis ----------------------------------------------------------------------------------------------
def _space(node: GraphNode) -> Shape | None:
    """The common shape of all arrays in the body of an elementwise loop."""
    loop = LoopView.of(node)
    body = loop.body
    shapes = {x.aval.shape for x in loop.initial(body.inputs)} - {()}
    if len(shapes) != 1:
        return None
    (space,) = shapes
    if not all(x.aval.shape in (space, ()) for x in body.inputs) or not all(
        _is_pointwise(x, space) for x in body.nodes
    ):
        return None
    n_scalars = sum(x.aval.shape == () for x in body.nodes)  # nodes that run for every block
    return space if 2 * n_scalars <= len(body.nodes) else None


def _is_pointwise(node: GraphNode, space: Shape) -> bool:
    if node.is_multi_result or node.result_index is not None or node.op is None or node.aval.shape not in (space, ()):
        return False
    shape, shapes = node.aval.shape, {x.aval.shape for x in node.operands}
    if node.op is full or node.op is broadcast_to:
        return shapes <= {()}
    form = node.op.form
    return isinstance(form, Cast) or (isinstance(form, Map) and form.scalar is not None and shapes == {shape})


def _is_constant(node: GraphNode, space: Shape) -> bool:
    return node.op in (full, broadcast_to) and node.aval.shape == space and _is_pointwise(node, space)


def _is_saved_rows(node: GraphNode, users: Iterable[GraphNode], spaces: dict[GraphNode, Shape]) -> bool:
    """Whether `node` is rows saved by one loop and only read by others over the same elements."""
    if node.result_index is None or node.operands[0] not in spaces or not users:
        return False
    space = spaces[node.operands[0]]
    is_stacked = node.result_index >= LoopView.of(node.operands[0]).carries and node.aval.shape[1:] == space
    return is_stacked and all(
        spaces.get(u) == space and _scanned_rows(u).count(node) == u.inputs.count(node) for u in users
    )


def _scanned_rows(loop: GraphNode) -> list[Any]:
    return list(LoopView.of(loop).scanned(loop.inputs))


def _scans_only_saved(loop: GraphNode, space: Shape, saved_rows: list[GraphNode]) -> bool:
    """Whether the scanned rows of a loop are saved rows, or scalars whose stack has another shape than `space`."""
    return all(x in saved_rows or (len(x.aval.shape) == 1 and x.aval.shape != space) for x in _scanned_rows(loop))


def _is_result(node: GraphNode, space: Shape, saved_rows: list[GraphNode]) -> bool:
    """Whether `node` is a loop result whose shape cannot be mistaken for `space`."""
    if node.result_index is None:
        return False
    carried = node.result_index < LoopView.of(node.operands[0]).carries
    return carried or node in saved_rows or node.aval.shape != space


def _between(graph: Graph, loops: set[GraphNode]) -> list[GraphNode]:
    """The loops, their results, and the nodes on paths between loops."""
    later, earlier = graph.dependents(loops), set(loops)
    for node in reversed(graph.nodes):
        if node in earlier:
            earlier.update(node.operands)
    results = {x for x in graph.nodes if x.result_index is not None and x.operands[0] in loops}
    return [x for x in graph.nodes if x in results or (x in later and x in earlier)]


# -- rewriting ---------------------------------------------------------------------------------------------------
@record(frozen=True)
class _BlockConverter:
    """Converter of arrays of the shape `space` to blocks of `length` elements."""

    space: Shape
    length: int

    def params(self, node: GraphNode) -> dict[str, Any]:
        params = dict(node.params)
        if node.op is scan:
            params["body"] = self.body(params["body"])
        elif params.get("shape") == self.space:
            params["shape"] = (self.length,)
        return params

    def body(self, graph: Graph) -> Graph:
        def fn(*args: GraphValue) -> list[Any]:
            env = dict(zip(graph.inputs, args))
            _replay(graph.nodes, env, self)
            return [env[x] for x in graph.outputs]

        return build(fn, map(self.aval, graph.avals))

    def aval(self, aval: Aval) -> Aval:
        return replace(aval, shape=(self.length,)) if aval.shape == self.space else aval


def _replay(nodes: Iterable[GraphNode], env: dict[GraphNode, Any], converter: _BlockConverter | None = None) -> None:
    """Apply the ops of `nodes` to the values of `env`, and store the results there."""
    builder = recorder()
    for node in nodes:
        if node.result_index is not None:
            env[node] = env[node.operands[0]][node.result_index]
            continue
        args = tuple([x if is_literal(x) else env[x] for x in node.inputs])
        env[node] = applied(node, args, converter.params(node) if converter else dict(node.params), builder)
