"""Execute a graph op by op with NumPy, with buffer reuse, into arrays of its own.

A value without further reads is freed, or overwritten. A derivative of a long chain of elementwise ops still has many
values alive at once. An elementwise graph is therefore computed block by block: the arrays are small and stay in the
cache.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import is_literal
from tracegrad.cpython.references import other_references
from tracegrad.ir import Graph, GraphNode
from tracegrad.ir.interpreter import WATCHED
from tracegrad.ops.core.forms import Fill, IdentityForm, Map, Move
from tracegrad.target.tuning import TUNING
from tracegrad.utils.lazy_dataclass import record

if TYPE_CHECKING:
    from tracegrad.typing import NDArray


MIN_IN_PLACE = TUNING.first_call.min_in_place
BLOCK = TUNING.first_call.block_elements

Values = dict[GraphNode, Any]


def execute_graph(graph: Graph, leaves: Sequence[Any]) -> list[Any]:
    """Execute a graph; its outputs are arrays of their own."""
    if WATCHED.by is not None:
        WATCHED.by(graph)
    computed: Values = dict(zip(graph.inputs, map(np.asarray, leaves)))
    blocks = _blocks_of(graph)
    if blocks is not None:
        return _in_blocks(graph, blocks, computed)
    _compute(graph.nodes, computed, {*graph.outputs, *graph.inputs})
    results: list[Any] = []  # keeps a reference to each
    for x in graph.outputs:
        results.append(_owned(computed, x) if x.aval.ndim else computed[x][()])
    return results


def _compute(nodes: Sequence[GraphNode], computed: Values, retained: set[GraphNode]) -> None:
    """Compute nodes, and free their dead operands, except `retained`."""
    last = {x: node for node in nodes for x in node.operands}
    for node in nodes:
        if node.result_index is not None:
            computed[node] = computed[node.operands[0]][node.result_index]
        else:
            computed[node] = _applied(
                node, computed, [x for x in node.operands if last[x] is node and x not in retained]
            )
        for x in node.operands:
            if last[x] is node and x not in retained:
                computed.pop(x, None)


def _applied(node: GraphNode, computed: Values, last: Sequence[GraphNode]) -> object:
    """Compute a node, into the memory of an operand whose `last` use it is, if that fits."""
    assert node.op is not None
    params = dict(node.params)
    if isinstance(node.op.impl, np.ufunc) and node.aval.size >= MIN_IN_PLACE:
        room = next((x for x in last if x.aval == node.aval and _is_owned(computed, x)), None)
        if room is not None:
            params["out"] = computed[room]
    args = tuple([x if is_literal(x) else computed[x] for x in node.inputs])
    return args[0] if isinstance(node.form, IdentityForm) else node.op.compute(args, params)


def _owned(computed: Values, x: GraphNode) -> object:
    """A value as an array that nothing else refers to: itself if only this table refers to it, else a copy."""
    return computed[x] if _is_owned(computed, x) else np.array(computed[x], order="C")


def _is_owned(computed: dict[GraphNode, NDArray], x: GraphNode) -> bool:
    array = computed[x]
    is_only_here = other_references(array) == 1  # before `flags`, which refers to the array
    flags = array.flags
    return bool(is_only_here and type(array) is np.ndarray and flags.owndata and flags.c_contiguous and flags.writeable)


@record(frozen=True, slots=True)
class _Blocks:
    """A blocked elementwise graph: the nodes computed `once`, the nodes computed for `each` block, and the `rows` of a
    block along the first axis."""

    once: list[GraphNode]
    each: list[GraphNode]
    rows: int


def _blocks_of(graph: Graph) -> _Blocks | None:
    """The blocking of a graph; None if its outputs are small, or not elementwise in its inputs."""
    shape = graph.outputs[0].aval.shape if graph.outputs else ()
    rows = max(BLOCK // max(math.prod(shape[1:]), 1), 1)
    if not shape or 2 * rows > shape[0] or 0 in shape or any(x.aval.shape != shape for x in graph.outputs):
        return None
    if any(x.aval.shape not in ((), shape) for x in graph.inputs):
        return None
    result, cut = _Blocks([], [], rows), {x for x in graph.inputs if x.aval.ndim}
    for node in graph.nodes:
        if node.is_multi_result or node.result_index is not None or node.aval.shape not in ((), shape):
            return None
        if node.aval.ndim and isinstance(node.form, Map | IdentityForm):
            result.each.append(node)
            cut.add(node)
        elif cut.isdisjoint(node.operands) and (not node.aval.ndim or isinstance(node.form, Fill | Move)):
            result.once.append(node)
        else:
            return None
    return result


def _in_blocks(graph: Graph, blocks: _Blocks, computed: Values) -> list[NDArray]:
    _compute(blocks.once, computed, {*blocks.once, *graph.inputs})
    results = [np.empty(x.aval.shape, x.aval.dtype) for x in graph.outputs]
    for begin in range(0, len(results[0]), blocks.rows):
        block_slice = slice(begin, begin + blocks.rows)
        values = {x: value[block_slice] if x.aval.ndim else value for x, value in computed.items()}
        _compute(blocks.each, values, {*graph.outputs})
        for array, x in zip(results, graph.outputs):
            array[block_slice] = values[x]
    return results
