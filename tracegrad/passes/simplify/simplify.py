"""The pass that simplifies: constants, the table of algebra and the rules of structure, in one replay.

Every application is asked about as it is rebuilt, operands first, so common subexpressions merge and dead nodes vanish
on the way. A sum of cotangents, `accumulate`, becomes an `add`, and its like terms are collected when all is rebuilt.
"""

from __future__ import annotations

from typing import Any

from tracegrad.avals import LITERALS, is_literal
from tracegrad.ir import Graph, Node
from tracegrad.ops import Op
from tracegrad.ops.core.elementwise_op import Elementwise
from tracegrad.ops.elementwise.table import accumulate, add, subtract, where
from tracegrad.ops.shape.linear import broadcast_to, full, reduce_sum
from tracegrad.passes.algebra.accumulator_init import into_loop
from tracegrad.passes.algebra.boolean import LOGIC
from tracegrad.passes.algebra.collect_terms import collect
from tracegrad.passes.algebra.dynamic_slice_rules import into_array, into_sum
from tracegrad.passes.algebra.merge_masked_sums import into_choice, into_undivided
from tracegrad.passes.algebra.merge_slices import into_place
from tracegrad.passes.algebra.redundant_select import chosen_once
from tracegrad.passes.algebra.rules import algebra
from tracegrad.passes.algebra.shape_rules import hoist_broadcast
from tracegrad.passes.core.constant_folding import fold
from tracegrad.passes.core.rewriter import mark_free, node_of, producer, rewrite
from tracegrad.passes.linalg import triangular as triangles  # noqa: F401 (whose rule is in the table)
from tracegrad.passes.linalg.diagonal import DIAGONALS
from tracegrad.passes.linalg.outer_product import OUTER
from tracegrad.passes.linalg.small_matmul import long_product
from tracegrad.passes.regions.simplify_regions import BY_OP

__all__ = ["simplifier", "simplify"]


def simplify(graph: Graph) -> Graph:
    """`graph` computing the same with fewer or cheaper nodes.

    Results keep their bits, but for reductions and sums of cotangents, whose order is free, and the rows of
    `rules.RULES` that say otherwise. The order in which a user added numbers stays.

    >>> from tracegrad.ir import parse
    >>> text = "graph(%0: f64[2,3]) {\\n  %1 = reshape(%0) {shape=(6,)} : f64[6]\\n"
    >>> text += "  %2 = reshape(%1) {shape=(2, 3)} : f64[2,3]\\n  %3 = multiply(%2, -1.0) : f64[2,3]\\n  return %3\\n}"
    >>> print(simplify(parse(text)))
    graph(%0: f64[2,3]) {
      %1 = negative(%0) : f64[2,3]
      return %1
    }
    """
    return rewrite(graph, simplifier, _collect)


def _collect(graph: Graph, free: set[Node]) -> Graph:
    return collect(graph, free, simplifier)


def simplifier(op: Op, operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """The hook of the pass."""
    if isinstance(op, Elementwise):
        return _elementwise(op, operands)
    found = BY_OP[op](*operands, **params) if op in BY_OP else None
    if found is None and op in DIAGONALS:
        found = DIAGONALS[op](*operands, **params)
    if found is None and op is reduce_sum:
        found = long_product(*operands, **params)
    return OUTER[op](*operands, **params) if found is None and op in OUTER else found


def _elementwise(op: Elementwise, operands: tuple[Any, ...]) -> Any:
    sources = [None if type(x) in LITERALS else x.node.op for x in operands]
    if full in sources and (found := fold(op, operands)) is not None:
        return found
    if op in BY_OP and (found := BY_OP[op](*operands)) is not None:
        return found
    found = algebra(op, operands, {})
    if found is None and broadcast_to in sources:
        found = hoist_broadcast(op, operands)
    if found is None and op in LOGIC:
        found = LOGIC[op](*operands)
    if found is None and op is where:
        found = chosen_once(*operands)
        return into_array(*operands) if found is None else found
    if found is None and op is accumulate:
        found = into_choice(*operands)
        found = into_undivided(*operands) if found is None else found
        found = into_place(*operands) if found is None else found
        found = into_loop(*operands) if found is None else found
        found = into_sum(*operands) if found is None else found
        return _free_sum(*operands) if found is None else found
    return found


def _free_sum(x: Any, y: Any) -> Any:
    """x + y, noted as a sum in which the order is free. Only the algebra has not been asked yet."""
    total = algebra(add, (x, y), {})
    if total is None:
        total = (y if is_literal(x) else x).builder.plain(add, (x, y), {})
    if total.dtype.kind == "f" and producer(total) in (add, subtract) and total.node not in (node_of(x), node_of(y)):
        mark_free(total)
    return total
