"""Copies of graphs with nodes replaced, and views of loop nodes."""

from __future__ import annotations

import pytest

from tracegrad.ir import Graph, GraphNode, parse, verify
from tracegrad.ir.loop_view import LoopView, is_loop, needed_inputs
from tracegrad.ir.rebuild import below, map_nodes, result_of, taking, with_operands, with_params

SCAN = """
graph(%0: f64[], %1: i64[], %2: f64[9], %3: f64[]) {
  %4, %5, %6 = scan(%0, %1, %2, %3) {carries=2, length=9, reverse=True, xs=1} : f64[], i64[], f64[9]
    body(%0: f64[], %1: i64[], %2: f64[], %3: f64[]) {
      %4 = multiply(%0, %2) : f64[]
      %5 = add(%4, %3) : f64[]
      return %0, %1, %5
    }
  return %4, %5, %6
}"""
WHILE = """
graph(%0: f64[], %1: i64[], %2: i64[], %3: f64[]) {
  %4, %5, %6, %7 = while_loop(%0, %1, %2, %3) {capacity=8, carries=2} : f64[], i64[], i64[], f64[8]
    body(%0: f64[], %1: i64[], %2: i64[], %3: f64[]) {
      %4 = multiply(%0, %3) : f64[]
      %5 = add(%1, 1) : i64[]
      return %4, %5, %0
    }
    cond(%0: f64[], %1: i64[], %2: i64[], %3: f64[]) {
      %4 = less(%1, %2) : bool[]
      return %4
    }
  return %4, %5, %6, %7
}"""


def loop_in(text: str) -> tuple[Graph, GraphNode, LoopView]:
    graph = verify(parse(text))
    (node,) = filter(is_loop, graph.nodes)
    return graph, node, LoopView.of(node)


@pytest.mark.parametrize("text", [SCAN, WHILE])
def test_parameters_survive_a_view(text: str) -> None:
    _, node, loop = loop_in(text)
    assert loop.items == node.params
    assert LoopView.from_params(loop.op, loop.params) == loop


def test_parts_of_operands_and_inputs() -> None:
    _, _, loop = loop_in(SCAN)
    assert [list(part(range(4))) for part in (loop.initial, loop.scanned, loop.constants)] == [[0, 1], [2], [3]]
    assert [loop.is_unchanged(k) for k in range(4)] == [True, True, False, True]
    _, _, loop = loop_in(WHILE)
    assert [list(part(range(4))) for part in (loop.initial, loop.scanned, loop.constants)] == [[0, 1], [], [2, 3]]
    assert [loop.is_unchanged(k) for k in range(4)] == [False, False, True, True]


def test_numbers_of_results() -> None:
    _, node, loop = loop_in(SCAN)
    assert [loop.output_of(k) for k in range(len(node.results))] == [0, 1, 2] == loop.results_of(range(3))
    _, node, loop = loop_in(WHILE)
    assert [loop.output_of(k) for k in range(len(node.results))] == [0, 1, None, 2]
    assert loop.first_stacked == 3
    assert loop.results_of([1]) == [1, 2]
    assert loop.results_of([0, 2]) == [0, 2, 3]


def test_loop_without_some_inputs_and_results() -> None:
    _, _, loop = loop_in(SCAN)
    smaller = loop.restricted([0, 2, 3], [0, 2])
    assert (smaller.carries, smaller.xs, len(smaller.body.inputs), len(smaller.body.outputs)) == (1, 1, 3, 2)
    _, _, loop = loop_in(WHILE)
    assert needed_inputs(loop.body, [0]) == {0, 3}
    counting = loop.restricted([1, 2], [1])
    assert counting.cond is not None
    assert (counting.carries, counting.length, len(counting.body.nodes), len(counting.cond.inputs)) == (1, 0, 1, 2)


def test_nodes_are_replaced_and_their_users_copied() -> None:
    graph = parse(
        "graph(%0: f64[4]) {\n  %1 = sin(%0) : f64[4]\n  %2 = reshape(%1) {shape=(2, 2)} : f64[2,2]\n"
        "  %3 = exp(%2) : f64[2,2]\n  %4 = cos(%0) : f64[4]\n  return %3, %4\n}"
    )
    sin, reshape, exp, cos = graph.nodes
    assert below(reshape) is sin
    assert below(1.5) == 1.5
    assert below(exp) is exp
    assert map_nodes(graph, lambda node: node) is graph
    assert with_operands(cos, {sin: cos}) is cos
    assert with_params(reshape, reshape.params) is reshape
    flat = (("shape", (4,)),)
    changed = map_nodes(graph, lambda node: with_params(node, flat) if node.op is reshape.op else node)
    assert changed.nodes[0] is sin
    assert changed.nodes[1].params == flat
    assert changed.nodes[2].operands == (changed.nodes[1],)
    assert changed.outputs == (changed.nodes[2], cos)
    further = verify(taking(graph, [reshape]))
    assert [x.aval.shape for x in further.inputs] == [(4,), (2, 2)]
    assert [x.name for x in further.nodes] == ["sin", "exp", "cos"]
    assert further.nodes[1].operands == (further.inputs[1],)


def test_result_of_a_node() -> None:
    _, node, _ = loop_in(SCAN)
    rows = result_of(node, 2)
    assert (rows.result_index, rows.aval, rows.operands) == (2, node.results[2], (node,))
