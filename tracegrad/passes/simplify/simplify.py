"""Simplify a graph: constant folding, algebra and shape rules in one replay.

Every application is simplified as it is rebuilt, operands first. The replay also merges common subexpressions and
removes dead nodes. A sum of cotangents (`accumulate`) becomes an `add`. Its like terms are collected after the replay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tracegrad.avals import LITERALS, is_literal
from tracegrad.ir import Graph, GraphNode, GraphValue
from tracegrad.ops import Op
from tracegrad.ops.core.elementwise_op import Elementwise
from tracegrad.ops.elementwise.table import accumulate, add, subtract, where
from tracegrad.ops.shape.linear import broadcast_to, full, reduce_sum
from tracegrad.passes.algebra.accumulator_init import init_accumulator
from tracegrad.passes.algebra.boolean import LOGIC
from tracegrad.passes.algebra.collect_terms import collect
from tracegrad.passes.algebra.dynamic_slice_rules import add_into_window, select_as_update
from tracegrad.passes.algebra.merge_masked_sums import merge_complements, merge_into_select
from tracegrad.passes.algebra.merge_slices import merge_padded_slices
from tracegrad.passes.algebra.redundant_select import drop_inner_selects
from tracegrad.passes.algebra.rules import algebra
from tracegrad.passes.algebra.shape_rules import NAMES, hoist_broadcast
from tracegrad.passes.core.constant_folding import fold
from tracegrad.passes.core.rewriter import mark_free, node_of, producer, rewrite
from tracegrad.passes.linalg import triangular  # noqa: F401 (whose rule is in the table)
from tracegrad.passes.linalg.diagonal import DIAGONALS
from tracegrad.passes.linalg.outer_product import OUTER
from tracegrad.passes.linalg.small_matmul import long_product
from tracegrad.passes.regions.simplify_regions import BY_OP
from tracegrad.settings import disabled


def simplify(graph: Graph) -> Graph:
    """`graph` computing the same with fewer or cheaper nodes.

    The bits of results do not change, with two exceptions. Reductions and sums of cotangents have a free order, and
    some rows of `rules.RULES` state an error. The order of the additions of a user never changes.

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


def _collect(graph: Graph, free: set[GraphNode]) -> Graph:
    return graph if disabled("like-terms") else collect(graph, free, simplifier)


_OF_PRODUCTS: tuple[tuple[Mapping[Op, Callable[..., Any]], str], ...] = (
    (DIAGONALS, "diagonal-products"),
    ({reduce_sum: long_product}, "long-products"),
    (OUTER, "outer-products"),
)


def simplifier(op: Op, operands: tuple[GraphValue | float, ...], params: dict[str, object]) -> Any:
    """The simplification hook."""
    if isinstance(op, Elementwise):
        return _elementwise(op, operands)
    result = BY_OP[op](*operands, **params) if op in BY_OP and not disabled(NAMES[op]) else None
    for rules, name in _OF_PRODUCTS:
        if result is None and op in rules and not disabled(name):
            result = rules[op](*operands, **params)
    return result


def _elementwise(op: Elementwise, operands: tuple[Any, ...]) -> Any:
    sources = [None if type(x) in LITERALS else x.node.op for x in operands]
    if full in sources and (result := fold(op, operands)) is not None:
        return result
    if op in BY_OP and not disabled(NAMES[op]) and (result := BY_OP[op](*operands)) is not None:
        return result
    result = algebra(op, operands, {})
    if result is None and broadcast_to in sources and not disabled("broadcast-sinking"):
        result = hoist_broadcast(op, operands)
    if result is None and op in LOGIC and not disabled("boolean-algebra"):
        result = LOGIC[op](*operands)
    if result is None and op is where:
        result = None if disabled("redundant-selects") else drop_inner_selects(*operands)
        return select_as_update(*operands) if result is None and not disabled("window-rules") else result
    if result is None and op is accumulate:
        result = None if disabled("cotangent-sums") else _sum_of_cotangents(*operands)
        return _free_sum(*operands) if result is None else result
    return result


def _sum_of_cotangents(x: Any, y: Any) -> Any:
    result = merge_into_select(x, y)
    result = merge_complements(x, y) if result is None else result
    result = merge_padded_slices(x, y) if result is None else result
    result = init_accumulator(x, y) if result is None else result
    return add_into_window(x, y) if result is None else result


def _free_sum(x: Any, y: Any) -> Any:
    """x + y as a sum in free order, after all rules except the algebra rules were applied."""
    total = algebra(add, (x, y), {})
    if total is None:
        total = (y if is_literal(x) else x).builder.plain(add, (x, y), {})
    if total.dtype.kind == "f" and producer(total) in (add, subtract) and total.node not in (node_of(x), node_of(y)):
        mark_free(total)
    return total
