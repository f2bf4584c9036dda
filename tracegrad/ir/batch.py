"""Batch a graph: apply a graph for one example to many examples at once (vmap).

Every op has a batching rule (`Op.batch`), so a graph is batched node by node. A node without batched operands is
unchanged and computed once for all examples. The batch axis is axis 0 throughout.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tracegrad.avals import Aval, is_literal
from tracegrad.ir.builder import GraphValue, build, recorder
from tracegrad.ir.graph import Graph, GraphNode
from tracegrad.ir.interpreter import applied
from tracegrad.ops.core.op import Carrier, Op, bind
from tracegrad.ops.shape.batching import repeated

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Operand
    from tracegrad.typing import Array


def replay_batched(
    graph: Graph, size: int, flags: Sequence[bool], operands: list[Array | GraphValue] | tuple[GraphValue, ...]
) -> tuple[list[Any], list[bool]]:
    """Apply the graph's ops to operands; the flagged operands are batches of this size.

    Returns the outputs, and for each output whether it is a batch.
    """
    builder = recorder() if any(isinstance(x, Carrier) for x in operands) else None
    env: dict[GraphNode, Any] = dict(zip(graph.inputs, operands))
    is_batch: dict[GraphNode, bool] = dict(zip(graph.inputs, flags))
    for node in graph.nodes:
        node_flags = tuple([not is_literal(x) and is_batch[x] for x in node.inputs])
        is_batch[node] = any(node_flags)
        if node.result_index is not None:
            env[node] = env[node.operands[0]][node.result_index]
            continue
        args = tuple([x if is_literal(x) else env[x] for x in node.inputs])
        env[node] = applied(node, args, dict(node.params), builder, partial(_batch, size, node_flags))
    return [env[x] for x in graph.outputs], [is_batch[x] for x in graph.outputs]


def _batch(size: int, flags: tuple[bool, ...], op: Op, operands: tuple[Operand, ...], params: dict[str, object]) -> Any:
    return op.batch(size, flags, operands, params) if any(flags) else bind(op, operands, params)


def batched(
    graph: Graph, size: int, flags: Sequence[bool], wanted: Sequence[bool] | None = None
) -> tuple[Graph, list[bool]]:
    """The graph for batches of the flagged inputs, and which of its outputs are batches.

    Outputs that are `wanted` as batches, and are not, are repeated.
    """
    results: list[bool] = []

    def fn(*operands: GraphValue) -> list[Any]:
        outputs, output_flags = replay_batched(graph, size, flags, operands)
        results[:] = output_flags if wanted is None else [a or b for a, b in zip(output_flags, wanted)]
        return [x if a == b else repeated(size, [False], [x])[0] for x, a, b in zip(outputs, output_flags, results)]

    avals = [Aval((size, *a.shape), a.dtype) if flag else a for a, flag in zip(graph.avals, flags)]
    return build(fn, avals), results
