"""Batch a graph: apply a graph for one example to many examples at once (vmap).

Every op has a batching rule (`Op.batch`), so a graph is batched node by node. A node without batched operands is
unchanged and computed once for all examples. The batch axis is axis 0 throughout.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from tracegrad.avals import Aval, is_literal
from tracegrad.ir.builder import build, recorder
from tracegrad.ir.graph import Graph, Node
from tracegrad.ir.interpreter import applied
from tracegrad.ops.core.op import Carrier, Op, bind
from tracegrad.ops.shape.batching import repeated

__all__ = ["batched", "replay_batched"]


def replay_batched(
    graph: Graph, size: int, flags: Sequence[bool], operands: Sequence[Any]
) -> tuple[list[Any], list[bool]]:
    """Apply the graph's ops to operands; the flagged operands are batches of this size.

    Returns the outputs, and for each output whether it is a batch.
    """
    builder = recorder() if any(isinstance(x, Carrier) for x in operands) else None
    env: dict[Node, Any] = dict(zip(graph.inputs, operands))
    many: dict[Node, bool] = dict(zip(graph.inputs, flags))
    for node in graph.nodes:
        mine = tuple([not is_literal(x) and many[x] for x in node.inputs])
        many[node] = any(mine)
        if node.picks is not None:
            env[node] = env[node.operands[0]][node.picks]
            continue
        args = tuple([x if is_literal(x) else env[x] for x in node.inputs])
        env[node] = applied(node, args, dict(node.params), builder, partial(_batch, size, mine))
    return [env[x] for x in graph.outputs], [many[x] for x in graph.outputs]


def _batch(size: int, flags: tuple[bool, ...], op: Op, operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
    return op.batch(size, flags, operands, params) if any(flags) else bind(op, operands, params)


def batched(
    graph: Graph, size: int, flags: Sequence[bool], wanted: Sequence[bool] | None = None
) -> tuple[Graph, list[bool]]:
    """The graph for batches of the flagged inputs, and which of its outputs are batches.

    Outputs that are `wanted` as batches, and are not, are repeated.
    """
    results: list[bool] = []

    def fn(*operands: Any) -> list[Any]:
        outputs, many = replay_batched(graph, size, flags, operands)
        results[:] = many if wanted is None else [a or b for a, b in zip(many, wanted)]
        return [x if a == b else repeated(size, [False], [x])[0] for x, a, b in zip(outputs, many, results)]

    avals = [Aval((size, *a.shape), a.dtype) if many else a for a, many in zip(graph.avals, flags)]
    return build(fn, avals), results
