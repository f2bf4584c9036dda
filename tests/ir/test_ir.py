"""The graph IR: what the builder merges and drops, what the parser and the verifier refuse, what replay means."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from graphs import f32, f64, graph_of, graphs, i64, like
from hypothesis import HealthCheck, given, settings

from tracegrad.avals import Aval
from tracegrad.errors import DTypeError, ShapeError, TraceError, VerifyError
from tracegrad.ir import Builder, Graph, GraphNode, build, parse, replay, replayer, run, to_text, verify
from tracegrad.ir.printer import with_locations
from tracegrad.ops import TABLE
from tracegrad.ops.elementwise.table import add, exp, multiply, power, where
from tracegrad.ops.indexing.gather_scatter import gather
from tracegrad.ops.shape.linear import fresh, full, reduce_sum, reshape
from tracegrad.transforms.vjp_graph import vjp


# -- builder -----------------------------------------------------------------------------------------------
def test_equal_applications_become_one_node() -> None:
    graph = build(lambda x: [add(exp(x), exp(x))], [f64(3)])
    assert [n.name for n in graph.nodes] == ["exp", "add"]
    assert graph.nodes[1].inputs == (graph.nodes[0],) * 2


def test_a_node_of_other_inputs_is_what_is_made_of_them() -> None:
    graph = build(lambda x: [multiply(exp(x), 2.0), reduce_sum(add(x, x), axes=(0,)), power(2.0, x)], [f64(3)])
    for node in graph.nodes:
        inputs = tuple([GraphNode(None, (), (), x.aval) if isinstance(x, GraphNode) else x for x in node.inputs])
        result, wanted = node.of(inputs), GraphNode(node.op, inputs, node.params, node.aval, node.location)
        assert {name: getattr(result, name) for name in GraphNode.__slots__} == {
            name: getattr(wanted, name) for name in GraphNode.__slots__
        }


@pytest.mark.parametrize(("a", "b"), [(0.0, -0.0), (math.inf, -math.inf), (1.0, 2.0), (math.nan, 0.0)])
def test_literals_that_differ_make_different_nodes(a: float, b: float) -> None:
    graph = build(lambda x: [multiply(x, a), multiply(x, b)], [f64(3)])
    assert len(graph.nodes) == 2


def test_integer_float_and_boolean_literals_are_told_apart() -> None:
    builder = Builder()
    values = [builder.emit(full, (), {"shape": (), "value": v, "dtype": "float64"}) for v in (1, 1.0, True)]
    assert len({v.node for v in values}) == 3


def test_nan_literals_are_one() -> None:
    graph = build(lambda x: [add(x, math.nan), add(x, float("nan"))], [f64(3)])
    assert len(graph.nodes) == 1


def test_params_in_any_order_are_equal_but_other_params_are_not() -> None:
    builder = Builder()
    a = builder.emit(full, (), {"shape": (2,), "value": 1.0, "dtype": "float64"})
    b = builder.emit(full, (), {"dtype": "float64", "value": 1.0, "shape": (2,)})
    c = builder.emit(full, (), {"dtype": "float32", "value": 1.0, "shape": (2,)})
    assert a.node is b.node is not c.node


def test_fresh_values_with_different_tags_stay_apart() -> None:
    graph = build(lambda x: [fresh(x, tag=0), fresh(x, tag=1), fresh(x, tag=0)], [f64(3)])
    assert len(graph.nodes) == 2


def test_nodes_no_output_needs_are_left_out_but_inputs_stay() -> None:
    def fn(x: Any, y: Any) -> list[Any]:
        exp(multiply(x, 2.0))
        return [add(x, 1.0)]

    graph = build(fn, [f64(3), f64(5)])
    assert [n.name for n in graph.nodes] == ["add"]
    assert graph.avals == (f64(3), f64(5))


def test_simplify_answers_for_an_application() -> None:
    def simplify(op: Any, operands: Any, params: Any) -> Any:
        return operands[0] if op is exp else None

    graph = build(lambda x: [add(exp(x), x)], [f64(3)], simplify)
    assert graph.nodes[0].inputs == (graph.inputs[0],) * 2


def test_values_of_another_graph_are_refused() -> None:
    other = Builder().input(f64(3))
    with pytest.raises(TraceError, match="does not belong"):
        build(lambda x: [add(x, other)], [f64(3)])


def test_operands_are_broadcast_and_promoted_in_the_open() -> None:
    graph = build(lambda x, y: [add(x, y)], [f32(3), f64(2, 1)])
    assert [n.name for n in graph.nodes] == ["cast", "broadcast_to", "broadcast_to", "add"]
    assert graph.outputs[0].aval == f64(2, 3)


@pytest.mark.parametrize("c", [2, 2.0, True, -0.0])
def test_literals_take_the_dtype_of_the_arrays_they_meet(c: Any) -> None:
    graph = build(lambda x: [multiply(x, c)], [f32(3)])
    assert graph.outputs[0].aval == f32(3)
    assert [n.name for n in graph.nodes] == ["multiply"]
    assert type(graph.nodes[0].inputs[1]) is float


def test_an_op_on_literals_of_one_dtype_keeps_an_array_of_it() -> None:
    graph = build(lambda c: [where(c, 1.0, 0.0)], [Aval((2,), np.dtype(bool))])
    assert len(graph.outputs[0].operands) == 2
    np.testing.assert_array_equal(run(graph, [np.array([True, False])])[0], [1.0, 0.0])


def test_users_are_listed_in_order() -> None:
    graph = build(lambda x: [add(exp(x), multiply(x, x))], [f64(3)])
    users = graph.users()
    assert [n.name for n in users[graph.inputs[0]]] == ["exp", "multiply"]
    assert users[graph.nodes[-1]] == []


# -- errors of shape and dtype ---------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("fn", "avals", "error", "message"),
    [
        (lambda x, y: add(x, y), [f64(3), f64(4)], ShapeError, r"add: .*f64\[3\], f64\[4\]"),
        (lambda x, y: TABLE["matmul"](x, y), [f64(3, 4), f64(3, 4)], ShapeError, "matmul: cannot multiply"),
        (lambda x: reshape(x, shape=(4,)), [f64(3)], ShapeError, r"reshape: cannot turn f64\[3\]"),
        (lambda x: TABLE["transpose"](x, perm=(0, 0)), [f64(3, 3)], ShapeError, "does not permute"),
        (lambda x, i: gather(x, i, axes=(0,)), [f64(3), f64(3)], DTypeError, "integer"),
        (lambda x: TABLE["reduce_max"](x, axes=(0,)), [f64(0)], ShapeError, "no identity"),
        (lambda x, y: TABLE["concatenate"](x, y, axis=0), [f64(3, 2), f64(3, 3)], ShapeError, "cannot join"),
        (lambda x: TABLE["slice"](x, start=(2,), stop=(9,), step=(1,)), [f64(3)], ShapeError, "does not lie in"),
    ],
)
def test_errors_name_the_op_and_the_shapes(fn: Any, avals: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        build(lambda *xs: [fn(*xs)], avals)


# -- text --------------------------------------------------------------------------------------------------
EXAMPLE = """\
graph(%0: f64[3], %1: i32[]) {
  %2 = multiply(%0, -0.0) : f64[3]
  %3 = pad(%2) {high=(1,), interior=(0,), low=(2,), value=nan} : f64[6]
  %4 = full() {dtype='float32', shape=(), value=-inf} : f32[]
  return %3, %0, %4
}"""


def test_text_round_trip_keeps_every_character() -> None:
    assert to_text(parse(EXAMPLE)) == EXAMPLE
    assert parse(EXAMPLE) == verify(parse(EXAMPLE))
    assert hash(parse(EXAMPLE)) == hash(parse(EXAMPLE))


def test_inputs_are_called_by_their_names() -> None:
    plain = build(lambda x, y, z: [multiply(add(x, y), z), z], [f64(2), f64(2), f64(2)])
    graph = plain.named(["params['w 1']", "self.scale[2]", "params['w 1']"])
    text = """
graph(params['w 1']: f64[2], self.scale[2]: f64[2], %2: f64[2]) {
  %3 = add(params['w 1'], self.scale[2]) : f64[2]
  %4 = multiply(%3, %2) : f64[2]
  return %4, %2
}"""
    assert str(graph) == text.strip()
    again = parse(str(graph))
    assert str(again) == str(graph)
    assert again.names == graph.names == ("params['w 1']", "self.scale[2]", "")
    assert again == graph == plain
    assert hash(again) == hash(plain)
    assert str(plain) == graph.text == str(parse(str(plain)))
    for unfit in ("nan", "inf", "True", "argument 1", "x['a, b']", "x['(']", "%1", "x<child 0>", "3", "", "x y"):
        named = plain.named(["a", unfit, "b"])
        assert named.names == ("a", "", "b")
        assert str(parse(str(named))) == str(named)
    with pytest.raises(VerifyError, match=r"not a literal: b"):
        parse(str(graph).replace("return %4, %2", "return b"))


def test_locations_print_as_comments_that_the_parser_skips() -> None:
    builder = Builder()
    builder.location = "model.py:12"
    graph = builder.build([exp(builder.input(f64(3)))])
    text = to_text(graph, locations=True)
    assert "# model.py:12" in text
    assert to_text(parse(text)) == to_text(graph)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("graph(", "grape(", "not the text of a graph"),
        ("\n}", "", "not the text of a graph"),
        ("multiply(", "multiplied(", "not a node: .*multiplied"),
        ("%2 = multiply(%0, -0.0) : f64[3]", "%2 := multiply(%0)", "not a node"),
        ("multiply(%0", "multiply(%7", "%7 is used before it is defined"),
        ("return %3", "return %9", "%9 is used before it is defined"),
        ("-0.0", "open('x')", "not a literal"),
        ("value=nan", "value=__import__('os')", "not a literal"),
    ],
)
def test_parse_names_the_line_it_cannot_read(old: str, new: str, message: str) -> None:
    with pytest.raises(VerifyError, match=message):
        parse(EXAMPLE.replace(old, new))


@settings(deadline=None, derandomize=True, max_examples=100, suppress_health_check=list(HealthCheck))
@given(graph=graphs())
def test_random_graphs_verify_and_round_trip(graph: Graph) -> None:
    assert to_text(verify(parse(to_text(graph)))) == to_text(graph)


# -- verifier ----------------------------------------------------------------------------------------------
def node(op: str, inputs: Any, aval: Aval, **params: Any) -> GraphNode:
    return GraphNode(TABLE[op], tuple(inputs), tuple(params.items()), aval)


X = GraphNode(None, (), (), f64(3))
E = node("exp", [X], f64(3))
STRAY = node("exp", [X], f64(3))

BROKEN = {
    "wrong shape": (Graph((X,), (node("exp", [X], f64(4)),), ()), r"says f64\[4\], its rule says f64\[3\]"),
    "wrong dtype": (Graph((X,), (node("exp", [X], f32(3)),), ()), "its rule says"),
    "before definition": (Graph((X,), (node("add", [E, X], f64(3)), E), ()), "used before it is defined"),
    "operand of nowhere": (Graph((X,), (node("add", [STRAY, X], f64(3)),), ()), "used before it is defined"),
    "twice": (Graph((X,), (E, E), (E,)), "defined twice"),
    "input among nodes": (Graph((X,), (GraphNode(None, (), (), f64(3)),), ()), "an input stands among the nodes"),
    "undefined output": (Graph((X,), (E,), (STRAY,)), "an output is not defined"),
    "shapes that differ": (
        Graph((X,), (node("add", [X, GraphNode(None, (), (), f64(4))], f64(3)),), ()),
        "used before",
    ),
    "axis out of bounds": (Graph((X,), (node("reduce_sum", [X], f64(), axes=(1,)),), ()), "reduce_sum: .*bounds"),
    "integers where floats are wanted": (
        Graph((GraphNode(None, (), (), i64(3)),), (), (X,)),
        "an output is not defined",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_verifier_names_what_is_broken(name: str) -> None:
    graph, message = BROKEN[name]
    with pytest.raises(VerifyError, match=message):
        verify(graph)


def test_verifier_checks_the_dtypes_operands_must_share() -> None:
    y = GraphNode(None, (), (), f32(3))
    with pytest.raises(VerifyError, match="add computes in float64"):
        verify(Graph((X, y), (node("add", [X, y], f64(3)),), ()))


def test_verifier_returns_the_graph_it_was_given() -> None:
    graph = Graph((X,), (E,), (E, X, E))
    assert verify(graph) is graph


# -- replay --------------------------------------------------------------------------------------------------
def test_replay_on_arrays_is_the_meaning_of_the_graph() -> None:
    x = np.array([1.0, 2.0])
    graph = build(lambda v: [reduce_sum(exp(v), axes=(0,)), v], [f64(2)])
    outputs, tape = replay(graph, [x])
    np.testing.assert_array_equal(outputs[0], np.exp(x).sum())
    assert outputs[1] is x
    assert [op.name for _, op, *_ in tape] == ["exp", "reduce_sum"]


def test_replay_through_a_builder_rebuilds_the_graph() -> None:
    graph = graph_of(TABLE["softmax"], [np.ones((2, 3))], {"axes": (1,)})
    assert build(lambda *xs: replay(graph, xs)[0], graph.avals) == graph


def test_an_error_during_replay_names_the_line_of_the_user() -> None:
    builder = Builder()
    x, i = builder.input(f64(3)), builder.input(i64(1))
    builder.location = "model.py:41"
    graph = builder.build([gather(x, i, axes=(0,))])
    with pytest.raises(IndexError, match=r"gather: .*model\.py:41"):
        run(graph, [np.ones(3), np.array([7])])


def test_an_error_without_a_location_stays_as_it_is() -> None:
    graph = build(lambda x, i: [gather(x, i, axes=(0,))], [f64(3), i64(1)])
    with pytest.raises(IndexError, match="out of bounds"):
        run(graph, [np.ones(3), np.array([7])])


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(graph=graphs())
def test_iterations_give_what_replays_give(graph: Graph) -> None:
    args = [like(x) for x in graph.avals]
    iteration = replayer(graph)
    for _ in range(2):
        for result, wanted in zip(iteration(args), replay(graph, args)[0], strict=True):
            assert type(result) is np.ndarray
            assert (result.dtype, result.shape) == (wanted.dtype, wanted.shape)
            np.testing.assert_array_equal(result, wanted)


@pytest.mark.parametrize("location", ["", "model.py:43"])
def test_an_error_in_a_iteration_names_the_line_of_the_user(location: str) -> None:
    builder = Builder()
    x, i = builder.input(f64(3)), builder.input(i64(1))
    y = multiply(add(x, 1.0), 2.0)
    builder.location = location
    graph = builder.build([gather(y, i, axes=(0,))])
    iteration, before = replayer(graph), np.geterr()
    with pytest.raises(IndexError, match=rf"gather: .*{location}" if location else "^index 7 is out of bounds"):
        iteration([np.ones(3), np.array([7])])
    assert np.geterr() == before
    np.testing.assert_array_equal(iteration([np.ones(3), np.array([2])])[0], [4.0])


def test_iterations_within_a_trace_are_recorded() -> None:
    iteration = replayer(build(lambda x: [add(x, full(shape=(), value=1.0, dtype="float64"))], [f64()]))
    again = build(lambda x: iteration([x]), [f64()])
    assert [x.name for x in again.nodes] == ["full", "add"]


def test_the_text_of_an_equal_graph_takes_the_lines_of_another() -> None:
    text = """graph(%0: f64[2,3]) {
  %1 = exp(%0) : f64[2,3]
  %2 = multiply(%1, 2.0) : f64[2,3]
  return %2
}"""
    graph = parse(text)
    for node, line in zip(graph.nodes, ("", "model.py:7"), strict=True):
        node.location = line
    assert with_locations(text, graph).split("\n") == [
        *text.split("\n")[:2],
        "  %2 = multiply(%1, 2.0) : f64[2,3]  # model.py:7",
        "  return %2",
        "}",
    ]


def test_locations_survive_a_transform() -> None:
    builder = Builder()
    x = builder.input(f64(3))
    builder.location = "model.py:3"
    graph = builder.build([exp(x)])
    assert {n.location for n in vjp(graph).nodes if n.name == "exp"} == {"model.py:3"}


# -- vjp -----------------------------------------------------------------------------------------------------
def test_zero_cotangents_come_out_as_constants_and_cost_nothing() -> None:
    graph = vjp(build(lambda x, y: [exp(x)], [f64(3), f64(4)]))
    assert [n.name for n in graph.nodes] == ["exp", "multiply", "full"]
    assert graph.outputs[2].aval == f64(4)


def test_only_wanted_cotangents_are_computed() -> None:
    graph = build(lambda x, y: [multiply(exp(x), power(y, 2.5))], [f64(3), f64(3)])
    names = [n.name for n in vjp(graph, wrt=[0]).nodes]
    assert names.count("multiply") == 3
    assert len(names) < len(vjp(graph).nodes)


def test_derivatives_of_any_order_agree_with_the_closed_form() -> None:
    graph, x = build(lambda v: [TABLE["sin"](v)], [f64()]), np.array(0.7)
    for order in range(1, 6):
        graph = slope(vjp(graph, wrt=[0]))
        want = math.sin(0.7 + order * math.pi / 2)
        assert float(run(graph, [x])[0]) == pytest.approx(want, abs=1e-14)


def slope(pulled: Graph) -> Graph:
    """The derivative of a function of one number, given its vjp."""

    def fn(x: Any) -> list[Any]:
        seed = x.builder.emit(full, (), {"shape": (), "value": 1.0, "dtype": "float64"})
        return [replay(pulled, [x, seed])[0][1]]

    return build(fn, [f64()])


def test_a_value_used_twice_gets_the_sum_of_its_cotangents() -> None:
    graph = vjp(build(lambda x: [add(x, multiply(x, x)), x], [f64(2)]))
    x = np.array([3.0, -1.0])
    ct = run(graph, [x, np.ones(2), np.full(2, 10.0)])[2]
    np.testing.assert_array_equal(ct, 1 + 2 * x + 10)


def test_integers_between_floats_stop_the_derivative() -> None:
    cast = TABLE["cast"]
    graph = vjp(build(lambda x: [cast(cast(x, dtype="int64"), dtype="float64")], [f64(3)]))
    np.testing.assert_array_equal(run(graph, [np.array([1.5, 2.5, -3.0]), np.ones(3)])[1], np.zeros(3))


def test_samples_of_the_helpers_have_the_aval_asked_for() -> None:
    for aval in (f64(2), f32(), i64(3, 1)):
        assert like(aval).dtype == aval.dtype
        assert like(aval).shape == aval.shape


# -- several results, and regions ------------------------------------------------------------------------------
SEVERAL = """graph(%0: f64[3], %1: i64[]) {
  %2 = exp(%0) : f64[3]
  _, %3, %4 = while_loop(%1, %2) {capacity=4, carries=1} : i64[], i64[], f64[4,3]
    body(%0: i64[], %1: f64[3]) {
      %2 = add(%0, 1) : i64[]
      %3, _ = scan(%1) {carries=1, length=2, reverse=False, xs=0} : f64[3], f64[2,3]
        body(%0: f64[3]) {
          %1 = sin(%0) : f64[3]
          return %1, %0
        }
      return %2, %3
    }
    cond(%0: i64[], %1: f64[3]) {
      %2 = less(%0, 3) : bool[]
      return %2
    }
  %5, = cond(%3, %2) : f64[3],
    branches.0(%0: f64[3]) {
      %1 = sin(%0) : f64[3]
      return %1
    }
    branches.1(%0: f64[3]) {
      return %0
    }
  return %4, %5
}"""


def test_several_results_and_regions_print_as_they_parse() -> None:
    graph = verify(parse(SEVERAL))
    assert str(graph) == SEVERAL
    assert parse(str(graph)) == graph
    x = np.array([0.1, 0.2, 0.3])
    stacked, chosen = run(graph, [x, np.array(1)])
    np.testing.assert_array_equal(stacked, [np.sin(np.sin(np.exp(x)))] * 2 + [np.zeros(3)] * 2)
    np.testing.assert_array_equal(chosen, np.exp(x))  # the loop turned twice, which names the last branch


def test_a_result_that_nothing_uses_has_no_name_and_no_node() -> None:
    graph = parse(SEVERAL)
    loop = next(n for n in graph.nodes if n.name == "while_loop")
    assert [n.result_index for n in graph.nodes if loop in n.operands] == [1, 2]
    assert [g.nodes[-1].name for g in loop.regions] == ["result", "less"]


def test_a_node_of_which_nothing_is_used_is_left_out() -> None:
    graph = parse(SEVERAL)
    saved = build(lambda *xs: replay(graph, xs)[0][:1], graph.avals)
    assert [n.name for n in saved.nodes] == ["exp", "while_loop", "result"]


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("  %5, = cond", "  %5, %6 = cond", "it has 2 names and 1 results"),
        ("f64[4,3]\n", "f64[3,3]\n", "its rule says i64.., i64.., f64.4,3."),
        ("%2, %3\n    }\n    cond", "%2, %1, %3\n    }\n    cond", "its rule says"),
        ("less(%0, 3)", "add(%0, 3)", "says bool.., its rule says i64"),
        ("    branches.1(", "    branches.1[", "it has no head"),
    ],
)
def test_a_text_that_is_wrong_about_results_or_regions_is_refused(old: str, new: str, why: str) -> None:
    with pytest.raises(VerifyError, match=why):
        verify(parse(SEVERAL.replace(old, new)))


def test_results_are_used_one_by_one() -> None:
    graph = parse(SEVERAL)
    loop = next(n for n in graph.nodes if n.name == "while_loop")
    with pytest.raises(VerifyError, match="otherwise than through one of them"):
        verify(Graph(graph.inputs, (*graph.nodes, GraphNode(TABLE["exp"], (loop,), (), f64(3))), graph.outputs))
    with pytest.raises(VerifyError, match="an output is not defined"):
        verify(Graph(graph.inputs, graph.nodes, (loop,)))
