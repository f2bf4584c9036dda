"""Passes on loops and branches: graph text in, graph text out, evaluated as well as compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad import passes
from tracegrad.ir import Graph, parse, run, verify
from tracegrad.passes.loops.dead_results import trim
from tracegrad.passes.loops.fusion import share_loops

rng = np.random.default_rng(0)


def values(graph: Graph) -> list[Any]:
    return [rng.uniform(0.5, 1.5, a.shape).astype(a.dtype) for a in graph.avals]


def simplified(text: str, *arrays: Any) -> Graph:
    """The graph after all passes, which computes what it did before."""
    before = verify(parse(text))
    after = verify(passes.optimize(before, verify=True))
    arrays = arrays or tuple(values(before))
    for got, want in zip(run(after, arrays), run(before, arrays), strict=True):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        np.testing.assert_allclose(got, want, rtol=1e-12)
    assert passes.optimize(after) == after
    return after


def becomes(text: str, wanted: str, *arrays: Any) -> None:
    assert str(simplified(text, *arrays)) == wanted.strip()


# -- loops as a whole ----------------------------------------------------------------------------------------
def turns(length: int) -> str:
    return f"""
graph(%0: f64[3], %1: f64[{length},3]) {{
  %2, %3 = scan(%0, %1) {{carries=1, length={length}, reverse=True, xs=1}} : f64[3], f64[{length},3]
    body(%0: f64[3], %1: f64[3]) {{
      %2 = multiply(%0, %1) : f64[3]
      %3 = sin(%2) : f64[3]
      return %3, %2
    }}
  return %2, %3
}}
"""


def test_a_loop_of_one_iteration_is_what_it_computes() -> None:
    becomes(
        turns(1),
        """
graph(%0: f64[3], %1: f64[1,3]) {
  %2 = reshape(%1) {shape=(3,)} : f64[3]
  %3 = multiply(%0, %2) : f64[3]
  %4 = sin(%3) : f64[3]
  %5 = reshape(%3) {shape=(1, 3)} : f64[1,3]
  return %4, %5
}
""",
    )


def test_a_loop_of_no_iteration_is_its_beginning() -> None:
    becomes(
        turns(0),
        """
graph(%0: f64[3], %1: f64[0,3]) {
  %2 = full() {dtype='float64', shape=(0, 3), value=0.0} : f64[0,3]
  return %0, %2
}
""",
    )


def test_a_longer_loop_remains() -> None:
    assert [node.name for node in simplified(turns(2)).nodes] == ["scan", "result", "result"]


@pytest.mark.parametrize(("index", "name"), [(-3, "sin"), (0, "sin"), (1, "exp"), (9, "exp")])
def test_a_branch_whose_number_is_known_is_what_it_computes(index: int, name: str) -> None:
    after = simplified(f"""
graph(%0: f64[3]) {{
  %1 = full() {{dtype='int64', shape=(), value={index}}} : i64[]
  %2, = cond(%1, %0) : f64[3],
    branches.0(%0: f64[3]) {{
      %1 = sin(%0) : f64[3]
      return %1
    }}
    branches.1(%0: f64[3]) {{
      %1 = exp(%0) : f64[3]
      return %1
    }}
  return %2
}}
""")
    assert [node.name for node in after.nodes] == [name]


def test_equal_branches_are_no_branch() -> None:
    branch = "(%0: f64[3]) {\n      %1 = sin(%0) : f64[3]\n      return %1\n    }"
    text = f"graph(%0: i64[], %1: f64[3]) {{\n  %2, = cond(%0, %1) : f64[3],\n    branches.0{branch}\n"
    text += f"    branches.1{branch}\n  return %2\n}}"
    assert [node.name for node in simplified(text, np.array(1), np.ones(3)).nodes] == ["sin"]


def test_a_result_that_is_an_operand_in_all_branches_is_that_operand() -> None:
    becomes(
        """
graph(%0: i64[], %1: f64[3], %2: f64[3], %3: f64[3]) {
  %4, %5, %6 = cond(%0, %1, %2, %3) : f64[3], f64[3], f64[3]
    branches.0(%0: f64[3], %1: f64[3], %2: f64[3]) {
      %3 = sin(%0) : f64[3]
      return %3, %1, %3
    }
    branches.1(%0: f64[3], %1: f64[3], %2: f64[3]) {
      %3 = exp(%0) : f64[3]
      return %3, %1, %3
    }
  return %4, %5, %6
}
""",
        """
graph(%0: i64[], %1: f64[3], %2: f64[3], %3: f64[3]) {
  %4, = cond(%0, %1) : f64[3],
    branches.0(%0: f64[3]) {
      %1 = sin(%0) : f64[3]
      return %1
    }
    branches.1(%0: f64[3]) {
      %1 = exp(%0) : f64[3]
      return %1
    }
  return %4, %2, %4
}
""",
        np.array(1),
        *np.ones((3, 3)),
    )


def test_a_while_loop_that_never_begins_is_its_beginning() -> None:
    becomes(
        """
graph(%0: f64[]) {
  %1, %2, %3 = while_loop(%0) {capacity=4, carries=1} : f64[], i64[], f64[4]
    cond(%0: f64[]) {
      %1 = full() {dtype='bool', shape=(), value=True} : bool[]
      %2 = logical_not(%1) : bool[]
      return %2
    }
    body(%0: f64[]) {
      %1 = sin(%0) : f64[]
      return %1, %0
    }
  return %1, %2, %3
}
""",
        """
graph(%0: f64[]) {
  %1 = full() {dtype='float64', shape=(4,), value=0.0} : f64[4]
  %2 = full() {dtype='int64', shape=(), value=0} : i64[]
  return %0, %2, %1
}
""",
    )


# -- operands ------------------------------------------------------------------------------------------------
def test_operands_of_one_value_are_made_inside_and_simplify() -> None:
    becomes(
        """
graph(%0: f64[3]) {
  %1 = full() {dtype='float64', shape=(3,), value=1.0} : f64[3]
  %2 = full() {dtype='float64', shape=(9, 3), value=2.0} : f64[9,3]
  %3, = scan(%0, %2, %1) {carries=1, length=9, reverse=False, xs=1} : f64[3],
    body(%0: f64[3], %1: f64[3], %2: f64[3]) {
      %3 = sin(%0) : f64[3]
      %4 = multiply(%3, %2) : f64[3]
      %5 = add(%4, %1) : f64[3]
      return %5
    }
  return %3
}
""",
        """
graph(%0: f64[3]) {
  %1, = scan(%0) {carries=1, length=9, reverse=False, xs=0} : f64[3],
    body(%0: f64[3]) {
      %1 = sin(%0) : f64[3]
      %2 = add(%1, 2.0) : f64[3]
      return %2
    }
  return %1
}
""",
    )


def test_rows_that_repeat_and_views_are_made_inside() -> None:
    becomes(
        """
graph(%0: f64[30,30], %1: f64[30], %2: f64[30,30]) {
  %3 = broadcast_to(%1) {shape=(9, 30, 30)} : f64[9,30,30]
  %4 = transpose(%2) {perm=(1, 0)} : f64[30,30]
  %5, = scan(%0, %3, %4, %4) {carries=1, length=9, reverse=False, xs=1} : f64[30,30],
    body(%0: f64[30,30], %1: f64[30,30], %2: f64[30,30], %3: f64[30,30]) {
      %4 = matmul(%0, %2) : f64[30,30]
      %5 = matmul(%4, %3) : f64[30,30]
      %6 = add(%5, %1) : f64[30,30]
      %7 = tanh(%6) : f64[30,30]
      return %7
    }
  return %5
}
""",
        """
graph(%0: f64[30,30], %1: f64[30], %2: f64[30,30]) {
  %3, = scan(%0, %1, %2) {carries=1, length=9, reverse=False, xs=0} : f64[30,30],
    body(%0: f64[30,30], %1: f64[30], %2: f64[30,30]) {
      %3 = broadcast_to(%1) {shape=(30, 30)} : f64[30,30]
      %4 = transpose(%2) {perm=(1, 0)} : f64[30,30]
      %5 = matmul(%0, %4) : f64[30,30]
      %6 = matmul(%5, %4) : f64[30,30]
      %7 = add(%6, %3) : f64[30,30]
      %8 = tanh(%7) : f64[30,30]
      return %8
    }
  return %3
}
""",
    )


def test_a_transpose_is_made_inside_where_a_matrix_times_a_vector_reads_it() -> None:
    becomes(
        """
graph(%0: f64[30], %1: f64[90,30]) {
  %2 = transpose(%1) {perm=(1, 0)} : f64[30,90]
  %3, = scan(%0, %1, %2) {carries=1, length=9, reverse=False, xs=0} : f64[30],
    body(%0: f64[30], %1: f64[90,30], %2: f64[30,90]) {
      %3 = reshape(%0) {shape=(30, 1)} : f64[30,1]
      %4 = matmul(%1, %3) : f64[90,1]
      %5 = matmul(%2, %4) : f64[30,1]
      %6 = reshape(%5) {shape=(30,)} : f64[30]
      %7 = tanh(%6) : f64[30]
      return %7
    }
  return %3
}
""",
        """
graph(%0: f64[30], %1: f64[90,30]) {
  %2, = scan(%0, %1) {carries=1, length=9, reverse=False, xs=0} : f64[30],
    body(%0: f64[30], %1: f64[90,30]) {
      %2 = transpose(%1) {perm=(1, 0)} : f64[30,90]
      %3 = broadcast_to(%0) {shape=(90, 30)} : f64[90,30]
      %4 = multiply(%1, %3) : f64[90,30]
      %5 = reduce_sum(%4) {axes=(1,)} : f64[90]
      %6 = broadcast_to(%5) {shape=(30, 90)} : f64[30,90]
      %7 = multiply(%2, %6) : f64[30,90]
      %8 = reduce_sum(%7) {axes=(1,)} : f64[30]
      %9 = tanh(%8) : f64[30]
      return %9
    }
  return %2
}
""",
    )


NESTED = """
graph(%0: f64[30], %1: f64[90,30], %2: f64[30,90]) {{
  %3 = transpose(%1) {{perm=(1, 0)}} : f64[30,90]
  %4, = scan(%0, %3, %2) {{carries=1, length=9, reverse=False, xs=0}} : f64[30],
    body(%0: f64[30], %1: f64[30,90], %2: f64[30,90]) {{
      %3, = scan(%0, %1, %2) {{carries=1, length=4, reverse=False, xs=0}} : f64[30],
        body(%0: f64[30], %1: f64[30,90], %2: f64[30,90]) {{
          %3 = reshape(%0) {{shape=(30, 1)}} : f64[30,1]
          %4 = broadcast_to(%3) {{shape=(30, 90)}} : f64[30,90]
          %5 = multiply(%2, %4) : f64[30,90]
          %6 = multiply(%1, {beside}) : f64[30,90]
          %7 = reduce_sum(%6) {{axes=(1,)}} : f64[30]
          %8 = reduce_max(%5) {{axes=(1,)}} : f64[30]
          %9 = add(%7, %8) : f64[30]
          %10 = tanh(%9) : f64[30]
          return %10
        }}
      return %3
    }}
  return %4
}}
"""


@pytest.mark.parametrize(("beside", "where"), [("%4", "within"), ("%5", "outside")])
def test_a_transpose_is_made_in_the_innermost_loop_if_nothing_is_read_across(beside: str, where: str) -> None:
    after = simplified(NESTED.format(beside=beside))
    outer = next(node for node in after.nodes if node.regions)
    inner = next(node for node in outer.regions[0].nodes if node.regions)
    results = [[node.name for node in graph.nodes] for graph in (after, outer.regions[0], inner.regions[0])]
    assert ["transpose" in names for names in results] == [where == "outside", False, where == "within"]


def test_what_is_dear_and_the_same_in_every_iteration_is_computed_once() -> None:
    becomes(
        """
graph(%0: f64[3], %1: f64[3], %2: f64[30,3]) {
  %3, = scan(%0, %1, %2) {carries=1, length=9, reverse=False, xs=0} : f64[3],
    body(%0: f64[3], %1: f64[3], %2: f64[30,3]) {
      %3 = exp(%1) : f64[3]
      %4 = add(%3, 1.0) : f64[3]
      %5 = reduce_sum(%2) {axes=(0,)} : f64[3]
      %6 = multiply(%4, %0) : f64[3]
      %7 = add(%6, %5) : f64[3]
      return %7
    }
  return %3
}
""",
        """
graph(%0: f64[3], %1: f64[3], %2: f64[30,3]) {
  %3 = exp(%1) : f64[3]
  %4 = reduce_sum(%2) {axes=(0,)} : f64[3]
  %5, = scan(%0, %3, %4) {carries=1, length=9, reverse=False, xs=0} : f64[3],
    body(%0: f64[3], %1: f64[3], %2: f64[3]) {
      %3 = add(%1, 1.0) : f64[3]
      %4 = multiply(%3, %0) : f64[3]
      %5 = add(%4, %2) : f64[3]
      return %5
    }
  return %5
}
""",
    )


@pytest.mark.parametrize(("n", "place"), [(200, "outside"), (300, "inside")])
def test_what_takes_much_memory_is_computed_in_every_iteration(n: int, place: str) -> None:
    after = simplified(f"""
graph(%0: f64[{n}], %1: f64[{n}]) {{
  %2, = scan(%0, %1) {{carries=1, length=9, reverse=False, xs=0}} : f64[{n}],
    body(%0: f64[{n}], %1: f64[{n}]) {{
      %2 = broadcast_to(%1) {{shape=({n}, {n})}} : f64[{n},{n}]
      %3 = transpose(%2) {{perm=(1, 0)}} : f64[{n},{n}]
      %4 = subtract(%2, %3) : f64[{n},{n}]
      %5 = exp(%4) : f64[{n},{n}]
      %6 = broadcast_to(%0) {{shape=({n}, {n})}} : f64[{n},{n}]
      %7 = multiply(%5, %6) : f64[{n},{n}]
      %8 = reduce_max(%7) {{axes=(1,)}} : f64[{n}]
      return %8
    }}
  return %2
}}
""")
    assert ("exp" in [node.name for node in after.nodes]) is (place == "outside")


# -- carries and results -----------------------------------------------------------------------------------
HEATED = """
graph(%0: f64[30,30], %1: f64[28,28]) {{
  %2 = slice(%0) {{start=({init}), step=(1, 1), stop=({stop})}} : f64[28,28]
  %3, %4, %5 = scan(%2, %1, %0) {{carries=3, length=9, reverse=False, xs=0}} : f64[28,28], f64[28,28], f64[30,30]
    body(%0: f64[28,28], %1: f64[28,28], %2: f64[30,30]) {{
      %3 = subtract(%1, %0) : f64[28,28]
      %4 = multiply(%3, 0.1) : f64[28,28]
      %5 = add(%0, %4) : f64[28,28]
      %6 = dynamic_update_slice(%2, {new}, 1, 1) {{step=(1, 1)}} : f64[30,30]
      %7 = slice(%6) {{start=(2, 1), step=(1, 1), stop=(30, 29)}} : f64[28,28]
      %8 = slice(%6) {{start=(0, 1), step=(1, 1), stop=(28, 29)}} : f64[28,28]
      %9 = add(%7, %8) : f64[28,28]
      return %5, %9, %6
    }}
  return %3, %4, %5
}}
"""


def test_a_carry_that_is_most_of_another_is_not_carried() -> None:
    becomes(
        HEATED.format(init="1, 1", stop="29, 29", new="%5"),
        """
graph(%0: f64[30,30], %1: f64[28,28]) {
  %2, %3 = scan(%0, %1) {carries=2, length=9, reverse=False, xs=0} : f64[30,30], f64[28,28]
    body(%0: f64[30,30], %1: f64[28,28]) {
      %2 = slice(%0) {start=(1, 1), step=(1, 1), stop=(29, 29)} : f64[28,28]
      %3 = subtract(%1, %2) : f64[28,28]
      %4 = multiply(%3, 0.1) : f64[28,28]
      %5 = add(%2, %4) : f64[28,28]
      %6 = dynamic_update_slice(%0, %5, 1, 1) {step=(1, 1)} : f64[30,30]
      %7 = slice(%6) {start=(2, 1), step=(1, 1), stop=(30, 29)} : f64[28,28]
      %8 = slice(%6) {start=(0, 1), step=(1, 1), stop=(28, 29)} : f64[28,28]
      %9 = add(%7, %8) : f64[28,28]
      return %6, %9
    }
  %4 = slice(%2) {start=(1, 1), step=(1, 1), stop=(29, 29)} : f64[28,28]
  return %4, %3, %2
}
""",
    )


@pytest.mark.parametrize(
    ("init", "stop", "new"), [("0, 1", "28, 29", "%5"), ("1, 2", "29, 30", "%5"), ("1, 1", "29, 29", "%4")]
)
def test_a_carry_that_is_most_of_another_at_first_only_is_carried(init: str, stop: str, new: str) -> None:
    after = simplified(HEATED.format(init=init, stop=stop, new=new))
    loop = next(node for node in after.nodes if node.regions)
    assert dict(loop.params)["carries"] == 3


@pytest.mark.parametrize(("first", "carries"), [(3, 3), (5, 2)])
def test_a_carry_that_is_read_from_another_in_each_iteration(first: int, carries: int) -> None:
    """Of a loop whose condition reads the window as well."""
    n = 10 - first
    after = simplified(f"""
graph(%0: f64[10], %1: f64[10]) {{
  %2 = slice(%0) {{start=({n},), step=(1,), stop=(10,)}} : f64[{first}]
  %3 = full() {{dtype='int64', shape=(), value=0}} : i64[]
  %4, %5, %6, %7, = while_loop(%2, %0, %3, %1) {{capacity=0, carries=3}} : f64[{first}], f64[10], i64[], i64[],
    cond(%0: f64[{first}], %1: f64[10], %2: i64[], %3: f64[10]) {{
      %4 = reduce_max(%0) {{axes=(0,)}} : f64[]
      %5 = less(%4, 9.0) : bool[]
      return %5
    }}
    body(%0: f64[{first}], %1: f64[10], %2: i64[], %3: f64[10]) {{
      %4 = reduce_sum(%0) {{axes=(0,)}} : f64[]
      %5 = broadcast_to(%4) {{shape=(10,)}} : f64[10]
      %6 = add(%1, %5) : f64[10]
      %7 = multiply(%6, %3) : f64[10]
      %8 = slice(%7) {{start=({n},), step=(1,), stop=(10,)}} : f64[{first}]
      %9 = add(%2, 1) : i64[]
      return %8, %7, %9
    }}
  return %4, %5, %6, %7
}}
""")
    loop = next(node for node in after.nodes if node.regions)
    assert dict(loop.params)["carries"] == carries


def test_carries_that_keep_their_value_or_equal_another_are_not_carried() -> None:
    becomes(
        """
graph(%0: f64[], %1: f64[]) {
  %2 = full() {dtype='float64', shape=(), value=0.0} : f64[]
  %3, %4, %5, %6, _ = scan(%0, %0, %2, %2, %1) {ITERATIONS} : f64[], f64[], f64[], f64[], f64[]
    body(%0: f64[], %1: f64[], %2: f64[], %3: f64[], %4: f64[]) {
      %5 = multiply(%0, %4) : f64[]
      %6 = multiply(%1, %4) : f64[]
      %7 = sin(%2) : f64[]
      %8 = add(%3, %6) : f64[]
      return %5, %6, %7, %8, %4
    }
  return %3, %4, %5, %6
}
""".replace("ITERATIONS", "carries=5, length=9, reverse=False, xs=0"),
        """
graph(%0: f64[], %1: f64[]) {
  %2 = full() {dtype='float64', shape=(), value=0.0} : f64[]
  %3, %4 = scan(%0, %2, %1) {carries=2, length=9, reverse=False, xs=0} : f64[], f64[]
    body(%0: f64[], %1: f64[], %2: f64[]) {
      %3 = multiply(%0, %2) : f64[]
      %4 = add(%1, %3) : f64[]
      return %3, %4
    }
  return %3, %3, %2, %4
}
""",
    )


def test_rows_of_an_operand_are_that_operand() -> None:
    becomes(
        """
graph(%0: f64[], %1: f64[9]) {
  %2, %3 = scan(%0, %1) {carries=1, length=9, reverse=True, xs=1} : f64[], f64[9]
    body(%0: f64[], %1: f64[]) {
      %2 = multiply(%0, %1) : f64[]
      return %2, %1
    }
  return %2, %3
}
""",
        """
graph(%0: f64[], %1: f64[9]) {
  %2, = scan(%0, %1) {carries=1, length=9, reverse=True, xs=1} : f64[],
    body(%0: f64[], %1: f64[]) {
      %2 = multiply(%0, %1) : f64[]
      return %2
    }
  return %2, %1
}
""",
    )


def test_results_that_need_no_loop_are_taken_out_of_it() -> None:
    becomes(
        """
graph(%0: f64[], %1: f64[9], %2: f64[]) {
  %3, %4, %5, %6 = scan(%0, %1, %2) {carries=1, length=9, reverse=True, xs=1} : f64[], f64[9], f64[9], f64[9]
    body(%0: f64[], %1: f64[], %2: f64[]) {
      %3 = multiply(%0, %1) : f64[]
      %4 = exp(%2) : f64[]
      return %3, %4, %0, %0
    }
  return %3, %4, %5, %6
}
""",
        """
graph(%0: f64[], %1: f64[9], %2: f64[]) {
  %3 = exp(%2) : f64[]
  %4 = broadcast_to(%3) {shape=(9,)} : f64[9]
  %5, %6 = scan(%0, %1) {carries=1, length=9, reverse=True, xs=1} : f64[], f64[9]
    body(%0: f64[], %1: f64[]) {
      %2 = multiply(%0, %1) : f64[]
      return %2, %0
    }
  return %5, %4, %6, %6
}
""",
    )


def test_a_while_loop_is_simplified_with_its_condition() -> None:
    becomes(
        """
graph(%0: f64[], %1: f64[]) {
  %2, %3, %4, %5 = while_loop(%0, %0, %1) {capacity=9, carries=3} : f64[], f64[], f64[], i64[]
    cond(%0: f64[], %1: f64[], %2: f64[]) {
      %3 = less(%1, %2) : bool[]
      return %3
    }
    body(%0: f64[], %1: f64[], %2: f64[]) {
      %3 = exp(%2) : f64[]
      %4 = add(%0, %3) : f64[]
      %5 = add(%1, %3) : f64[]
      return %4, %5, %2
    }
  return %2, %3, %4, %5
}
""",
        """
graph(%0: f64[], %1: f64[]) {
  %2 = exp(%1) : f64[]
  %3, %4 = while_loop(%0, %1, %2) {capacity=0, carries=1} : f64[], i64[]
    body(%0: f64[], %1: f64[], %2: f64[]) {
      %3 = add(%0, %2) : f64[]
      return %3
    }
    cond(%0: f64[], %1: f64[], %2: f64[]) {
      %3 = less(%0, %1) : bool[]
      return %3
    }
  return %3, %3, %1, %4
}
""",
        np.array(0.0),
        np.array(2.0),
    )


# -- what nothing uses -----------------------------------------------------------------------------------------
def test_what_only_unused_results_need_goes() -> None:
    graph = parse("""
graph(%0: f64[3], %1: f64[3], %2: f64[9,3], %3: f64[9,3], %4: f64[3]) {
  %5, _, _, _ = scan(%0, %1, %2, %3, %4) {carries=2, length=9, reverse=False, xs=2} : f64[3], f64[3], f64[9,3], f64[9,3]
    body(%0: f64[3], %1: f64[3], %2: f64[3], %3: f64[3], %4: f64[3]) {
      %5 = add(%0, %2) : f64[3]
      %6 = multiply(%1, %4) : f64[3]
      %7 = multiply(%6, %3) : f64[3]
      return %5, %7, %6, %7
    }
  return %5
}
""")
    smaller = trim(graph)
    assert trim(smaller) is smaller
    assert (
        str(smaller)
        == """
graph(%0: f64[3], %1: f64[3], %2: f64[9,3], %3: f64[9,3], %4: f64[3]) {
  %5, = scan(%0, %2) {carries=1, length=9, reverse=False, xs=1} : f64[3],
    body(%0: f64[3], %1: f64[3]) {
      %2 = add(%0, %1) : f64[3]
      return %2
    }
  return %5
}
""".strip()
    )


def test_a_carry_that_a_condition_or_a_used_carry_reads_stays() -> None:
    graph = parse("""
graph(%0: f64[], %1: f64[], %2: f64[], %3: f64[]) {
  %4, _, _, _, _, _ = while_loop(%0, %1, %2, %3) {capacity=9, carries=4} : f64[], f64[], f64[], f64[], i64[], f64[9]
    cond(%0: f64[], %1: f64[], %2: f64[], %3: f64[]) {
      %4 = less(%2, 3.0) : bool[]
      return %4
    }
    body(%0: f64[], %1: f64[], %2: f64[], %3: f64[]) {
      %4 = add(%0, %1) : f64[]
      %5 = sin(%1) : f64[]
      %6 = add(%2, 1.0) : f64[]
      %7 = add(%3, %0) : f64[]
      return %4, %5, %6, %7, %7
    }
  return %4
}
""")
    smaller = trim(graph)
    assert trim(smaller) is smaller
    (node, *_) = smaller.nodes
    assert dict(node.params)["carries"] == 3
    assert dict(node.params)["capacity"] == 0
    assert list(node.operands) == list(graph.inputs[:3])
    arrays = [np.array(x) for x in (0.5, 1.0, 0.0, 2.0)]
    np.testing.assert_array_equal(run(trim(graph), arrays)[0], run(graph, arrays)[0])


def test_branches_compute_what_is_used() -> None:
    graph = parse("""
graph(%0: i64[], %1: f64[3], %2: f64[3]) {
  _, %3 = cond(%0, %1, %2) : f64[3], f64[3]
    branches.0(%0: f64[3], %1: f64[3]) {
      %2 = add(%0, %1) : f64[3]
      %3 = sin(%1) : f64[3]
      return %2, %3
    }
    branches.1(%0: f64[3], %1: f64[3]) {
      return %0, %1
    }
  return %3
}
""")
    smaller = trim(graph)
    assert trim(smaller) is smaller
    assert (
        str(smaller)
        == """
graph(%0: i64[], %1: f64[3], %2: f64[3]) {
  %3, = cond(%0, %2) : f64[3],
    branches.0(%0: f64[3]) {
      %1 = sin(%0) : f64[3]
      return %1
    }
    branches.1(%0: f64[3]) {
      return %0
    }
  return %3
}
""".strip()
    )


# -- loops that share work ---------------------------------------------------------------------------------------
def loops_of(f: Any, *args: Any) -> list[Any]:
    optimized = f.explain(*args).optimized
    return [node for node in optimized.nodes if node.regions]


def energy(h: Any, xs: Any, w: Any) -> Any:
    last, ys = tg.scan(lambda h, x: (np.tanh(h @ w + x),) * 2, h, xs)
    return np.sum(ys * ys) + np.sum(last)


def test_a_loop_and_the_one_that_keeps_values_for_its_derivative_are_one() -> None:
    args = rng.random(12), rng.random((20, 12)), rng.random((12, 12))
    assert len(loops_of(tg.value_and_grad(energy, argnums=(0, 2)), *args)) == 2


def test_two_derivatives_of_one_loop_share_the_way_forwards() -> None:
    def both(h: Any, xs: Any, w: Any) -> Any:
        return tg.grad(energy)(h, xs, w), tg.grad(energy, argnums=2)(h, xs, w)

    args = rng.random(12), rng.random((20, 12)), rng.random((12, 12))
    assert len(loops_of(tg.trace(both), *args)) == 2


def test_a_while_loop_and_the_one_that_keeps_values_are_one() -> None:
    def root(a: Any) -> Any:
        x, _ = tg.while_loop(
            lambda s: abs(s[0] * s[0] - a) > 1e-12, lambda s: (0.5 * (s[0] + a / s[0]), s[1] + 1), (a, 0)
        )
        return x

    assert len(loops_of(tg.value_and_grad(root), 2.0)) == 2


TWO = """
graph(%0: f64[], %1: f64[9], %2: f64[]) {{
  %3, %4 = scan(%0, %1, %2) {{carries=1, length=9, reverse=False, xs=1}} : f64[], f64[9]
    body(%0: f64[], %1: f64[], %2: f64[]) {{
      %3 = multiply(%0, %2) : f64[]
      %4 = add(%3, %1) : f64[]
      return %4, %3
    }}
  %5 = cos(%3) : f64[]
  %6, %7 = scan({init}, %1, %2) {{carries=1, length=9, reverse={reverse}, xs=1}} : f64[], f64[9]
    body(%0: f64[], %1: f64[], %2: f64[]) {{
      %3 = multiply(%0, %2) : f64[]
      %4 = add(%3, %1) : f64[]
      %5 = multiply(%4, %4) : f64[]
      return %4, %5
    }}
  return %5, %4, %6, %7
}}
"""


@pytest.mark.parametrize(
    ("init", "reverse", "loops"), [("%0", False, 1), ("%0", True, 2), ("%2", False, 2), ("%5", False, 2)]
)
def test_loops_are_joined_where_that_saves_work(init: str, reverse: bool, loops: int) -> None:
    before = parse(TWO.format(init=init, reverse=reverse))
    after = verify(share_loops(before))
    assert sum(node.name == "scan" for node in after.nodes) == loops
    arrays = values(before)
    for got, want in zip(run(after, arrays), run(before, arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-13)


def test_branches_of_one_number_are_joined() -> None:
    text = """
graph(%0: i64[], %1: f64[3], %2: f64[3]) {
  %3, = cond(%0, %1) : f64[3],
    branches.0(%0: f64[3]) {
      %1 = sin(%0) : f64[3]
      return %1
    }
    branches.1(%0: f64[3]) {
      return %0
    }
  %4, = cond(%0, %1, %2) : f64[3],
    branches.0(%0: f64[3], %1: f64[3]) {
      %2 = sin(%0) : f64[3]
      %3 = multiply(%2, %1) : f64[3]
      return %3
    }
    branches.1(%0: f64[3], %1: f64[3]) {
      return %1
    }
  return %3, %4
}
"""
    after = simplified(text, np.array(0), rng.random(3), rng.random(3))
    assert [node.name for node in after.nodes] == ["cond", "result", "result"]
    assert [node.name for node in dict(after.nodes[0].params)["branches"][0].nodes] == ["sin", "multiply"]


def test_regions_are_simplified_at_any_depth() -> None:
    becomes(
        """
graph(%0: f64[]) {
  %1, = scan(%0) {carries=1, length=9, reverse=False, xs=0} : f64[],
    body(%0: f64[]) {
      %1, _ = scan(%0, %0) {carries=2, length=5, reverse=False, xs=0} : f64[], f64[]
        body(%0: f64[], %1: f64[]) {
          %2 = sin(%0) : f64[]
          %3 = negative(%2) : f64[]
          %4 = negative(%3) : f64[]
          return %4, %4
        }
      return %1
    }
  return %1
}
""",
        """
graph(%0: f64[]) {
  %1, = scan(%0) {carries=1, length=9, reverse=False, xs=0} : f64[],
    body(%0: f64[]) {
      %1, = scan(%0) {carries=1, length=5, reverse=False, xs=0} : f64[],
        body(%0: f64[]) {
          %1 = sin(%0) : f64[]
          return %1
        }
      return %1
    }
  return %1
}
""",
    )
