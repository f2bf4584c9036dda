"""Compiled loops and branches: graph text in, compiled results against those of the reference."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.codegen.loopir.blocking import SHARES, STRIPS, WAVEFRONTS
from tracegrad.codegen.plan.region_steps import Looping, ScanStep
from tracegrad.errors import CapacityError
from tracegrad.ir import Graph, parse, run, verify
from tracegrad.ops.core.op import TABLE, primitive
from tracegrad.runtime.execution.program import MISS, Program, compile_program, machine_code_count
from tracegrad.runtime.threads import pool
from tracegrad.settings import settings

rng = np.random.default_rng(0)


def program_of(graph: Graph) -> Program:
    return compile_program(graph, ("array",) * len(graph.inputs), False)


def check(text: str, *arrays: Any, rtol: float = 1e-13, said: Callable[..., Any] = tuple) -> Program:
    """The compiled graph gives what replay gives, without help from the reference; `said` is what they say of it."""
    graph = verify(parse(text))
    program = program_of(graph)
    got, want = program.entry(*arrays), run(graph, arrays)
    assert got is not MISS
    for a, b in zip(said(got), said(want), strict=True):
        assert (np.asarray(a).dtype, np.shape(a)) == (b.dtype, b.shape)
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol)
    return program


def of_iterations(results: Any) -> Any:
    """The results of a `while_loop` with one stack: rows that no iteration has written, but for the last, hold
    anything."""
    last, count, rows = results
    return last, count, rows[: int(count)], rows[-1]


def scan_text(n: int, length: int, dtype: str = "f64", reverse: bool = False) -> str:
    """h' = sin(h * w + x), the rows h' * x; vectors of `n` elements."""
    iterations = f"carries=1, length={length}, reverse={reverse}, xs=1"
    return f"""
graph(%0: {dtype}[{n}], %1: {dtype}[{length},{n}], %2: {dtype}[{n}]) {{
  %3, %4 = scan(%0, %1, %2) {{{iterations}}} : {dtype}[{n}], {dtype}[{length},{n}]
    body(%0: {dtype}[{n}], %1: {dtype}[{n}], %2: {dtype}[{n}]) {{
      %3 = multiply(%0, %2) : {dtype}[{n}]
      %4 = add(%3, %1) : {dtype}[{n}]
      %5 = sin(%4) : {dtype}[{n}]
      %6 = multiply(%5, %1) : {dtype}[{n}]
      return %5, %6
    }}
  return %3, %4
}}
"""


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [0, 1, 2, 5, 30])
@pytest.mark.parametrize("n", [3, 20, 0])
def test_scan(n: int, length: int, reverse: bool) -> None:
    check(scan_text(n, length, reverse=reverse), rng.random(n), rng.random((length, n)), rng.random(n))


def test_scan_of_single_precision() -> None:
    arrays = [rng.random(shape).astype("float32") for shape in ((20,), (7, 20), (20,))]
    check(scan_text(20, 7, "f32"), *arrays, rtol=1e-5)


def test_lengths_and_sizes_share_machine_code() -> None:
    check(scan_text(20, 30), rng.random(20), rng.random((30, 20)), rng.random(20))
    before = machine_code_count()
    for n, length in ((21, 1000), (300, 12)):
        check(scan_text(n, length), rng.random(n), rng.random((length, n)), rng.random(n), rtol=1e-10)
    assert machine_code_count() == before


COUNTED = """
graph(%0: f64[]) {{
  %1 = full() {{dtype='int64', shape=(), value=0}} : i64[]
  %2, _ = scan(%0, %1) {{carries=2, length={length}, reverse=False, xs=0}} : f64[], i64[]
    body(%0: f64[], %1: i64[]) {{
      %2 = cast(%1) {{dtype='float64'}} : f64[]
      %3 = multiply(%0, 0.5) : f64[]
      %4 = add(%3, %2) : f64[]
      %5 = add(%1, 1) : i64[]
      return %4, %5
    }}
  return %2
}}
"""


def test_a_counter_may_have_no_use_behind_the_loop_and_lengths_share_code() -> None:
    check(COUNTED.format(length=1000), np.array(1.0))
    before = machine_code_count()
    check(COUNTED.format(length=3), np.array(1.0))
    assert machine_code_count() == before


@pytest.mark.parametrize("length", [0, 1, 2, 3, 10])
@pytest.mark.parametrize("shape", ["", "5", "40"])
def test_carries_may_change_places(shape: str, length: int) -> None:
    text = f"""
graph(%0: i64[{shape}], %1: i64[{shape}]) {{
  %2, %3 = scan(%0, %1) {{carries=2, length={length}, reverse=False, xs=0}} : i64[{shape}], i64[{shape}]
    body(%0: i64[{shape}], %1: i64[{shape}]) {{
      %2 = add(%0, %1) : i64[{shape}]
      return %1, %2
    }}
  return %2, %3
}}
"""
    size = tuple(int(n) for n in shape.split(",") if n)
    check(text, np.full(size, 2), np.full(size, 3))


def test_a_carry_may_stay_and_the_operands_may_be_one() -> None:
    check(
        """
graph(%0: f64[40]) {
  %1, %2 = scan(%0, %0, %0) {carries=2, length=4, reverse=False, xs=0} : f64[40], f64[40]
    body(%0: f64[40], %1: f64[40], %2: f64[40]) {
      %3 = multiply(%1, %2) : f64[40]
      return %0, %3
    }
  return %1, %2
}
""",
        rng.random(40),
    )


@pytest.mark.parametrize("length", [1, 4, 9])
def test_products_by_blas_and_sums_in_a_body(length: int) -> None:
    check(
        f"""
graph(%0: f64[30], %1: f64[{length},30], %2: f64[30,30]) {{
  %3, %4 = scan(%0, %1, %2) {{carries=1, length={length}, reverse=False, xs=1}} : f64[30], f64[{length}]
    body(%0: f64[30], %1: f64[30], %2: f64[30,30]) {{
      %3 = reshape(%0) {{shape=(1, 30)}} : f64[1,30]
      %4 = broadcast_to(%3) {{shape=(12, 30)}} : f64[12,30]
      %5 = matmul(%4, %2) : f64[12,30]
      %6 = tanh(%5) : f64[12,30]
      %7 = reduce_sum(%6) {{axes=(0,)}} : f64[30]
      %8 = add(%7, %1) : f64[30]
      %9 = reduce_sum(%8) {{axes=(0,)}} : f64[]
      return %8, %9
    }}
  return %3, %4
}}
""",
        rng.random(30),
        rng.random((length, 30)),
        rng.random((30, 30)),
        rtol=1e-9,
    )


def test_every_dtype_is_carried() -> None:
    for dtype in ("f64", "f32", "i64", "i32", "i8", "u8", "bool"):
        op = "logical_xor" if dtype == "bool" else "add"
        named = {"f": "float", "i": "int", "u": "uint", "b": "bool"}[dtype[0]] + dtype[1:] * (dtype != "bool")
        for n in (2, 50):
            check(
                f"""
graph(%0: {dtype}[{n}], %1: {dtype}[{n}]) {{
  %2, %3 = scan(%0, %1) {{carries=1, length=5, reverse=False, xs=0}} : {dtype}[{n}], {dtype}[5,{n}]
    body(%0: {dtype}[{n}], %1: {dtype}[{n}]) {{
      %2 = {op}(%0, %1) : {dtype}[{n}]
      return %2, %0
    }}
  return %2, %3
}}
""",
                np.arange(n).astype(named),
                np.ones(n, named),
            )


WHILE = """
graph(%0: f64[{n}], %1: f64[]) {{
  %2, %3, %4 = while_loop(%0, %1) {{capacity={capacity}, carries=1}} : f64[{n}], i64[], f64[{capacity},{n}]
    cond(%0: f64[{n}], %1: f64[]) {{
      %2 = reduce_sum(%0) {{axes=(0,)}} : f64[]
      %3 = less(%2, %1) : bool[]
      return %3
    }}
    body(%0: f64[{n}], %1: f64[]) {{
      %2 = multiply(%0, 1.5) : f64[{n}]
      return %2, %0
    }}
  return %2, %3, %4
}}
"""


@pytest.mark.parametrize("n", [2, 30])
def test_while_loop(n: int) -> None:
    for most in (0.0, 3.0, 100.0):
        check(WHILE.format(n=n, capacity=12), np.full(n, 0.5), np.array(most), said=of_iterations)


def test_a_while_loop_whose_rows_are_full_fails() -> None:
    program = program_of(parse(WHILE.format(n=2, capacity=4)))
    operands = [np.full(2, 0.5), np.array(100.0)]
    assert program.entry(*operands) is MISS
    with pytest.raises(CapacityError, match="iterations"):
        program.run(operands)
    before = machine_code_count()
    check(WHILE.format(n=2, capacity=20), *operands, said=of_iterations)
    assert machine_code_count() <= before + 1  # up to 8 rows, capacities are constants


COND = """
graph(%0: i64[], %1: f64[{n}]) {{
  %2, _ = cond(%0, %1) : f64[{n}], f64[]
    branches.0(%0: f64[{n}]) {{
      %1 = reduce_sum(%0) {{axes=(0,)}} : f64[]
      return %0, %1
    }}
    branches.1(%0: f64[{n}]) {{
      %1 = sin(%0) : f64[{n}]
      %2 = reduce_max(%1) {{axes=(0,)}} : f64[]
      return %1, %2
    }}
  return %2
}}
"""


@pytest.mark.parametrize("index", [-5, 0, 1, 7])
@pytest.mark.parametrize("n", [3, 30])
def test_cond_takes_the_branch_of_the_index_or_the_nearest(n: int, index: int) -> None:
    check(COND.format(n=n), np.array(index), rng.random(n))


NESTED = """
graph(%0: f64[{n}], %1: f64[{m},{n}]) {{
  %2, %3, %4 = while_loop(%0, %1) {{capacity=6, carries=1}} : f64[{n}], i64[], f64[6,{m},{n}]
    cond(%0: f64[{n}], %1: f64[{m},{n}]) {{
      %2 = reduce_max(%0) {{axes=(0,)}} : f64[]
      %3 = less(%2, 4.0) : bool[]
      return %3
    }}
    body(%0: f64[{n}], %1: f64[{m},{n}]) {{
      %2 = reduce_max(%0) {{axes=(0,)}} : f64[]
      %3 = greater(%2, 2.0) : bool[]
      %4 = cast(%3) {{dtype='int64'}} : i64[]
      %5, %6 = cond(%4, %0, %1) : f64[{n}], f64[{m},{n}]
        branches.0(%0: f64[{n}], %1: f64[{m},{n}]) {{
          %2, %3 = scan(%0, %1) {{carries=1, length={m}, reverse=True, xs=1}} : f64[{n}], f64[{m},{n}]
            body(%0: f64[{n}], %1: f64[{n}]) {{
              %2 = add(%0, %1) : f64[{n}]
              return %2, %0
            }}
          return %2, %3
        }}
        branches.1(%0: f64[{n}], %1: f64[{m},{n}]) {{
          %2 = multiply(%0, 2.0) : f64[{n}]
          return %2, %1
        }}
      return %5, %6
    }}
  return %2, %3, %4
}}
"""


@pytest.mark.parametrize(("n", "m"), [(2, 3), (20, 3), (20, 11), (3, 11)])
def test_a_scan_in_a_cond_in_a_while_loop(n: int, m: int) -> None:
    check(NESTED.format(n=n, m=m), rng.random(n), np.full((m, n), 1.0 / m), said=of_iterations)


def test_equal_regions_are_one_function() -> None:
    lines = scan_text(20, 9).splitlines()
    again = [
        line.replace("%3, %4 = scan(%0", "%5, %6 = scan(%3") if line.startswith("  %3") else line for line in lines
    ]
    text = "\n".join([*lines[:-2], *again[2:-2], "  return %4, %5, %6", "}"])
    program = check(text, rng.random(20), rng.random((9, 20)), rng.random(20), rtol=1e-11)
    first, second = program.report.plan.steps
    assert first.regions["body"] is second.regions["body"]  # type: ignore[union-attr]


# -- calls of NumPy and failures ---------------------------------------------------------------------------
@primitive()
def loops_code_trial(x: Any) -> Any:
    """A function without code of its own: the square root of what is not negative."""
    if np.any(x < 0):
        raise ArithmeticError("negative")
    return np.sqrt(x)


@loops_code_trial.def_aval
def _(x: Any) -> Any:
    return x


# Other tests go over the table, so the op is in it for these alone.
del TABLE["loops_code_trial"]


@pytest.fixture(autouse=True)
def _trial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TABLE, "loops_code_trial", loops_code_trial)


CALLS = """
graph(%0: f64[{n}], %1: f64[{n}]) {{
  %2 = loops_code_trial(%0) : f64[{n}]
  %3, %4 = scan(%2, %1) {{carries=1, length=4, reverse=False, xs=0}} : f64[{n}], f64[4,{n}]
    body(%0: f64[{n}], %1: f64[{n}]) {{
      %2 = loops_code_trial(%0) : f64[{n}]
      %3 = subtract(%2, %1) : f64[{n}]
      %4, = scan(%3) {{carries=1, length=2, reverse=False, xs=0}} : f64[{n}],
        body(%0: f64[{n}]) {{
          %1 = add(%0, 0.25) : f64[{n}]
          %2 = loops_code_trial(%1) : f64[{n}]
          return %2
        }}
      return %3, %4
    }}
  %5 = loops_code_trial(%3) : f64[{n}]
  return %3, %4, %5
}}
"""


@pytest.mark.parametrize("n", [3, 30])
def test_numpy_is_called_from_regions(n: int) -> None:
    program = check(CALLS.format(n=n), np.full(n, 2.0), np.full(n, 0.125))
    with pytest.raises(ArithmeticError, match="negative"):
        program.run([np.full(n, 2.0), np.full(n, 0.5)])
    assert program.entry(np.full(n, 2.0), np.full(n, 0.125)) is not MISS


def test_an_index_out_of_range_ends_the_loop() -> None:
    text = """
graph(%0: f64[20], %1: i64[6]) {
  %2 = full() {dtype='float64', shape=(), value=0.0} : f64[]
  %3, %4 = scan(%2, %1, %0) {carries=1, length=6, reverse=False, xs=1} : f64[], f64[6]
    body(%0: f64[], %1: i64[], %2: f64[20]) {
      %3 = gather(%2, %1) {axes=(0,)} : f64[]
      %4 = add(%0, %3) : f64[]
      return %4, %3
    }
  return %3, %4
}
"""
    program = check(text, rng.random(20), np.array([0, 3, -1, 19, -20, 5]))
    assert program.entry(rng.random(20), np.array([0, 3, -1, 20, 0, 5])) is MISS
    with pytest.raises(IndexError):
        program.run([rng.random(20), np.array([0, 3, -1, 20, 0, 5])])


# -- carries that are updated in place -----------------------------------------------------------------------
def in_place(text: str, *arrays: Any, rtol: float = 1e-13) -> set[int]:
    """The carries that the body of the only loop of a graph updates in place."""
    program = check(text, *arrays, rtol=rtol)
    (step,) = [step for step in program.report.plan.steps if isinstance(step, Looping)]
    return step.regions["body"].in_place


def carrying(lines: str, outputs: str, n: int = 20, count: int = 2) -> str:
    """A loop that carries `count` vectors of `n` elements, named from %0 on."""
    avals = ", ".join([f"f64[{n}]"] * count)
    args = ", ".join(f"%{k}: f64[{n}]" for k in range(count))
    names = ", ".join(f"%{k}" for k in range(count))
    result = ", ".join(f"%{k + count}" for k in range(count))
    body = "\n".join(f"      {line}" for line in lines.strip().splitlines())
    return (
        f"graph({args}) {{\n  {result} = scan({names}) {{carries={count}, length=5, reverse=False, xs=0}} : {avals}\n"
        f"    body({args}) {{\n{body}\n      return {outputs}\n    }}\n  return {result}\n}}"
    )


def vectors(*shape: int) -> Any:
    return rng.random(shape)


def test_kernels_update_carries_in_place() -> None:
    lines = """
%2 = add(%0, %1) : f64[20]
%3 = sin(%2) : f64[20]
%4 = subtract(%1, %3) : f64[20]
"""
    assert in_place(carrying(lines, "%2, %4"), *vectors(2, 20)) == {0, 1}
    assert in_place(carrying(lines, "%1, %2"), *vectors(2, 20)) == {0, 1}


def test_small_carries_are_in_registers_instead() -> None:
    lines = "%2 = add(%0, %1) : f64[3]"
    assert in_place(carrying(lines, "%1, %2", n=3), *vectors(2, 3)) == set()


def test_a_carry_that_is_read_at_another_index_is_not_updated_in_place() -> None:
    lines = """
%2 = flip(%0) {axes=(0,)} : f64[20]
%3 = add(%2, %1) : f64[20]
%4 = multiply(%1, 0.5) : f64[20]
"""
    assert in_place(carrying(lines, "%3, %4"), *vectors(2, 20)) == {1}
    assert in_place(carrying(lines, "%4, %3"), *vectors(2, 20)) == {1}


def test_a_carry_that_a_product_reads_is_updated_behind_it() -> None:
    lines = """
%2 = add(%0, %1) : f64[20,20]
%3 = matmul(%0, %1) : f64[20,20]
%4 = tanh(%3) : f64[20,20]
"""
    text = carrying(lines, "%2, %4").replace("f64[20]", "f64[20,20]")
    assert in_place(text, *vectors(2, 20, 20), rtol=1e-9) == {0, 1}


def test_a_carry_whose_old_value_is_needed_with_its_new_one_is_not_updated_in_place() -> None:
    lines = """
%2 = add(%0, %1) : f64[20]
%3 = reduce_sum(%2) {axes=(0,)} : f64[]
%4 = broadcast_to(%3) {shape=(20,)} : f64[20]
%5 = divide(%0, %4) : f64[20]
"""
    assert in_place(carrying(lines, "%2, %5"), *vectors(2, 20)) == {1}


def test_a_product_that_is_added_to_a_carry_is_added_by_blas() -> None:
    lines = """
%2 = matmul(%1, %1) : f64[20,20]
%3 = add(%0, %2) : f64[20,20]
%4 = multiply(%1, 0.5) : f64[20,20]
"""
    text = carrying(lines, "%3, %4").replace("f64[20]", "f64[20,20]")
    assert in_place(text, *vectors(2, 20, 20), rtol=1e-9) == {0, 1}
    assert "matmul b0 += b1 @ b1" in program_of(parse(text)).report.plan.text()


def test_a_product_that_is_used_otherwise_too_is_not_added_by_blas() -> None:
    lines = """
%2 = matmul(%1, %1) : f64[20,20]
%3 = add(%0, %2) : f64[20,20]
%4 = tanh(%2) : f64[20,20]
"""
    text = carrying(lines, "%3, %4").replace("f64[20]", "f64[20,20]")
    check(text, *vectors(2, 20, 20), rtol=1e-9)
    assert "+=" not in program_of(parse(text)).report.plan.text()


def wide(a: Any, b: Any) -> Any:
    return np.concatenate([a, b]) @ b


# One iteration on three matrices of 20 by 20, and how many of the products BLAS adds if there are several iterations.
ADDED: dict[str, tuple[Any, int]] = {
    "to a carry": (lambda a, b, c: (a + b @ c, c, np.cos(b)), 1),
    "to a carry, negative": (lambda a, b, c: (a - b @ c, c, np.cos(b)), 1),
    "the other way": (lambda a, b, c: (b @ c - a, c, np.cos(b)), 0),
    "of the carry itself": (lambda a, b, c: (a + a @ a, c, b), 0),
    "to another product": (lambda a, b, c: (c, a @ b + b @ c, np.cos(a)), 1),
    "to another product where that is stored": (lambda a, b, c: (np.tanh(a), b, a @ b - b @ a), 1),
    "with what is computed of the sum": (lambda a, b, c: (c, s := a @ b + b @ c, 0.1 * s), 1),
    "before its operand is written over": (lambda a, b, c: (a + b @ c, np.sin(b + b[::-1]), np.cos(b)), 1),
    "twice": (lambda a, b, c: (a - c, np.cos(b), (s := b @ b.T) + s), 0),
    "a part of one": (lambda a, b, c: (a + wide(c, b)[:20], c, np.cos(b)), 0),
    "transposed": (lambda a, b, c: (a + (b @ c).T, c, np.cos(b)), 1),
    "nan and inf": (lambda a, b, c: (a + b @ c, c, b / (b > 0.005)), 1),
}


@pytest.mark.parametrize(("iteration", "count"), ADDED.values(), ids=ADDED)
def test_products_that_blas_adds(iteration: Any, count: int) -> None:
    matrices = tuple(vectors(3, 20, 20))
    f = tg.trace(lambda *abc: tg.fori_loop(0, 4, lambda i, abc: iteration(*abc), abc))
    want = matrices
    with np.errstate(all="ignore"):
        for _ in range(4):
            want = iteration(*want)
        for got in (
            f(*matrices),
            tg.trace(lambda *abc: iteration(*iteration(*iteration(*iteration(*abc)))))(*matrices),
        ):
            for x, y in zip(got, want, strict=True):
                np.testing.assert_allclose(x, y, rtol=1e-10)
    results = [line for kernel in f.explain(*matrices).kernels for line in kernel.splitlines()]
    assert sum(" += " in line or " -= " in line for line in results) == count


def test_an_explanation_shows_the_kernels_of_regions_within_the_loop() -> None:
    explanation = tg.trace(lambda x: tg.fori_loop(0, 9, lambda i, x: np.sin(x) * i, x)).explain(vectors(20))
    lines = str(explanation).splitlines()
    (loop,) = [line for line in lines if line.lstrip().startswith("repeat ")]
    (kernel,) = [line for line in lines if "in s0 {" in line]
    assert len(kernel) - len(kernel.lstrip()) > len(loop) - len(loop.lstrip())
    assert any(line.strip() == "body:" for line in lines)


# -- strips ------------------------------------------------------------------------------------------------------
def strips(program: Program) -> list[int]:
    """Into how many strips each loop of a program is cut; 0 for one that is not."""
    loops = [step for step in program.report.plan.steps if isinstance(step, ScanStep)]
    return [step.blocks.number if step.blocking.strategy == STRIPS else 0 for step in loops]


ELEMENTWISE = """
graph(%0: f64[{n}], %1: f64[{length},{n}], %2: f64[{n}], %3: f64[]) {{
  %4 = full() {{dtype='int64', shape=(), value=3}} : i64[]
  %5, %6, %7, %8, %9 = scan(%0, %4, %3, %1, %2) {{LOOP}} : f64[{n}], i64[], f64[], f64[{length},{n}], f64[{length}]
    body(%0: f64[{n}], %1: i64[], %2: f64[], %3: f64[{n}], %4: f64[{n}]) {{
      %5 = cast(%1) {{dtype='float64'}} : f64[]
      %6 = multiply(%2, 0.5) : f64[]
      %7 = add(%6, %5) : f64[]
      %8 = broadcast_to(%7) {{shape=({n},)}} : f64[{n}]
      %9 = flip(%4) {{axes=(0,)}} : f64[{n}]
      %10 = add(%8, %9) : f64[{n}]
      %11 = multiply(%0, %3) : f64[{n}]
      %12 = add(%11, %10) : f64[{n}]
      %13 = multiply(%12, 0.125) : f64[{n}]
      %14 = add(%1, 2) : i64[]
      return %13, %14, %7, %0, %7
    }}
  return %5, %6, %7, %8, %9
}}
"""


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [2, 9])
@pytest.mark.parametrize("n", [0, 9, 1000, 5001, 300_000])
def test_elementwise_bodies_run_strip_by_strip(n: int, length: int, reverse: bool) -> None:
    iterations = f"carries=3, length={length}, reverse={reverse}, xs=1"
    text = ELEMENTWISE.format(n=n, length=length).replace("LOOP", iterations)
    (count,) = strips(check(text, rng.random(n), rng.random((length, n)), rng.random(n), np.array(0.5), rtol=1e-12))
    assert (count > 1) is (n > 2000)
    assert count > 0 or n == 0


def test_what_reads_other_elements_is_not_cut_into_strips() -> None:
    lines = """
%2 = flip(%0) {axes=(0,)} : f64[5000]
%3 = add(%2, %1) : f64[5000]
%4 = multiply(%1, 0.5) : f64[5000]
"""
    assert strips(check(carrying(lines, "%3, %4", n=5000), *vectors(2, 5000))) == [0]
    lines = """
%2 = reduce_sum(%0) {axes=(0,)} : f64[]
%3 = broadcast_to(%2) {shape=(5000,)} : f64[5000]
%4 = divide(%0, %3) : f64[5000]
%5 = add(%1, %4) : f64[5000]
"""
    assert strips(check(carrying(lines, "%4, %5", n=5000), *vectors(2, 5000))) == [0]


def test_a_matrix_is_cut_by_rows() -> None:
    text = """
graph(%0: f64[500,20], %1: f64[20]) {
  %2, = scan(%0, %1) {carries=1, length=5, reverse=False, xs=0} : f64[500,20],
    body(%0: f64[500,20], %1: f64[20]) {
      %2 = flip(%1) {axes=(0,)} : f64[20]
      %3 = broadcast_to(%2) {shape=(500, 20)} : f64[500,20]
      %4 = add(%0, %3) : f64[500,20]
      %5 = sin(%4) : f64[500,20]
      return %5
    }
  return %2
}
"""
    (count,) = strips(check(text, rng.random((500, 20)), rng.random(20), rtol=1e-12))
    assert count > 1


def test_an_index_out_of_range_ends_a_loop_in_strips() -> None:
    text = """
graph(%0: f64[5000], %1: i64[6,5000], %2: f64[5000]) {
  %3, = scan(%0, %1, %2) {carries=1, length=6, reverse=False, xs=1} : f64[5000],
    body(%0: f64[5000], %1: i64[5000], %2: f64[5000]) {
      %3 = gather(%2, %1) {axes=(0,)} : f64[5000]
      %4 = add(%0, %3) : f64[5000]
      return %4
    }
  return %3
}
"""
    places = rng.integers(-5000, 5000, (6, 5000))
    arrays = [rng.random(5000), places, rng.random(5000)]
    program = check(text, *arrays)
    assert strips(program) > [1]
    places[3, 4321] = 5000
    assert program.entry(*arrays) is MISS
    with pytest.raises(IndexError):
        program.run(arrays)
    places[3, 4321] = 0
    assert program.entry(*arrays) is not MISS


def test_threads_share_strips() -> None:
    f = tg.trace(lambda x, y: tg.fori_loop(0, 50, lambda i, s: (s[0] + 0.1 * np.sin(s[1]), s[1] - 0.1 * s[0]), (x, y)))
    x, y = vectors(2, 100_000)
    (step,) = f.explain(x, y).kernels
    got = f(x, y)
    for _ in range(50):
        x, y = x + 0.1 * np.sin(y), y - 0.1 * x
    np.testing.assert_allclose(got, (x, y), rtol=1e-12, atol=1e-12)
    assert "in strips" in step


# -- wavefronts -------------------------------------------------------------------------------------------------------
@pytest.fixture
def one_thread() -> Iterator[None]:
    before = settings.thread_count()
    pool.set_num_threads(1)
    yield
    pool.set_num_threads(before)


def depths(program: Program) -> list[int]:
    """How many iterations of each loop of a program run at a time, in wavefronts; 0 where it cannot."""
    loops = [step for step in program.report.plan.steps if isinstance(step, ScanStep)]
    return [step.blocking.depth if step.blocking.strategy == WAVEFRONTS else 0 for step in loops]


def diffused(reach: int, reverse: bool = False) -> Callable[..., Any]:
    """Iterations in which each element is made of some that are up to `reach` rows and columns away, and of a row of
    data; and of all iterations a number."""

    def turn(u: Any, x: Any) -> Any:
        v = u.copy()
        inner = (slice(reach, -reach), slice(reach, -reach))
        v[inner] += (
            0.1 * (u[2 * reach :, 2 * reach :] + u[: -2 * reach, : -2 * reach] - 2.0 * u[inner]) + x[reach:-reach]
        )
        return v, x[0]

    return lambda u, xs: tg.scan(turn, u, xs, reverse=reverse)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [0, 1, 2, 7, 8, 9, 30])
@pytest.mark.parametrize(("n", "m", "reach"), [(300, 301, 1), (203, 400, 5), (9000, 11, 2), (70, 2500, 2)])
def test_stencils_run_in_wavefronts(n: int, m: int, reach: int, length: int, reverse: bool) -> None:
    f, arrays = diffused(reach, reverse), (rng.random((n, m)), rng.random((length, m)))
    graph = tg.trace(f).graph(*arrays)
    program = program_of(graph)
    assert length < 2 or depths(program)[0] > 1
    for got, want in zip(program.entry(*arrays), run(graph, arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-13)
    last, _ = f(*arrays)
    np.testing.assert_allclose(program.entry(*arrays)[0], last, rtol=1e-13)


def test_wavefronts_are_for_one_thread_and_the_bits_are_those_of_several() -> None:
    arrays = (rng.random((600, 600)), rng.random((20, 600)))
    program, before = program_of(tg.trace(diffused(1)).graph(*arrays)), settings.thread_count()
    results = []
    for count in (1, 2, 3):
        pool.set_num_threads(count)
        results.append(program.entry(*arrays)[0])
    pool.set_num_threads(before)
    assert all(np.array_equal(x, results[0]) for x in results)


@pytest.mark.usefixtures("one_thread")
def test_arrays_that_stay_in_the_cache_need_no_wavefronts_and_have_the_same_machine_code() -> None:
    small, large = ((rng.random((n, n)), rng.random((20, n))) for n in (40, 500))
    one = program_of(tg.trace(diffused(1)).graph(*small))
    before = machine_code_count()
    other = program_of(tg.trace(diffused(1)).graph(*large))
    assert machine_code_count() == before
    assert (depths(one)[0], depths(other)[0]) == (1, 8)


@pytest.mark.usefixtures("one_thread")
def test_several_carries_run_in_wavefronts() -> None:
    """Two species that diffuse and react."""

    def turn(state: Any, _: Any) -> Any:
        u, v = state
        a, b = (x[2:, 1:-1] + x[:-2, 1:-1] + x[1:-1, 2:] + x[1:-1, :-2] - 4.0 * x[1:-1, 1:-1] for x in (u, v))
        mixed = u * v**2
        return (u + 0.02 * np.pad(a, 1) - 0.1 * mixed, v + 0.01 * np.pad(b, 1) + 0.1 * mixed), None

    def f(u: Any, v: Any) -> Any:
        return tg.scan(turn, (u, v), None, length=21)[0]

    arrays = (rng.random((250, 250)), rng.random((250, 250)))
    program = program_of(tg.trace(f).graph(*arrays))
    assert depths(program) == [8]
    for got, want in zip(program.entry(*arrays), f(*arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)


@pytest.mark.usefixtures("one_thread")
def test_vectors_run_in_wavefronts_instead_of_being_split() -> None:
    def turn(u: Any, _: Any) -> Any:
        v = u.copy()
        v[3:-1] += 0.1 * (u[4:] - u[:-4])
        return v, None

    u = rng.random(90_001)
    program = program_of(tg.trace(lambda u: tg.scan(turn, u, None, length=20)[0]).graph(u))
    assert depths(program) == [8]
    (got,) = program.entry(u)
    np.testing.assert_allclose(got, tg.scan(turn, u, None, length=20)[0], rtol=1e-13, atol=1e-13)


def test_what_reads_what_its_iteration_has_made_or_all_rows_does_not_run_in_wavefronts() -> None:
    u = rng.random((300, 300))

    def twice(u: Any, _: Any) -> Any:
        v = np.sin(u)
        v = np.pad(v[2:] + v[:-2], ((1, 1), (0, 0)))
        w = np.cumsum(v, axis=1) / 300.0
        return np.pad(w[2:] - w[:-2], ((1, 1), (0, 0))), None

    iterations: list[Any] = [
        twice,
        lambda u, _: (u[::-1] * 0.5, None),
        lambda u, _: (u.T * 0.5, None),
        lambda u, _: (u / np.max(u) + np.pad(u[1:], ((0, 1), (0, 0))), None),
    ]
    for iteration in iterations:
        f = partial(tg.scan, iteration, xs=None, length=5)
        program = program_of(tg.trace(f).graph(u))
        assert depths(program) == [0]
        (got,) = program.entry(u)
        np.testing.assert_allclose(got, f(u)[0], rtol=1e-12, atol=1e-12)


# -- iterations that threads share ------------------------------------------------------------------------------------
ITERATIONS = """
graph(%0: f64[{length},{n}], %1: f64[{n},{n}], %2: i64[{length}]) {{
  %3 = full() {{dtype='int64', shape=(), value=3}} : i64[]
  %4, %5, %6 = scan(%3, %0, %2, %1) {{LOOP}} : i64[], f64[{length},{n}], i64[{length}]
    body(%0: i64[], %1: f64[{n}], %2: i64[], %3: f64[{n},{n}]) {{
      %4 = add(%0, -2) : i64[]
      %5 = reshape(%1) {{shape=(1, {n})}} : f64[1,{n}]
      %6 = broadcast_to(%5) {{shape=(20, {n})}} : f64[20,{n}]
      %7 = matmul(%6, %3) : f64[20,{n}]
      %8 = tanh(%7) : f64[20,{n}]
      %9 = reduce_sum(%8) {{axes=(0,)}} : f64[{n}]
      %10 = gather(%9, %2) {{axes=(0,)}} : f64[]
      %11 = broadcast_to(%10) {{shape=({n},)}} : f64[{n}]
      %12 = divide(%9, %11) : f64[{n}]
      return %4, %12, %0
    }}
  return %4, %5, %6
}}
"""


@pytest.mark.parametrize("reverse", [False, True])
def test_threads_share_iterations(reverse: bool) -> None:
    before = settings.thread_count()
    for length in (2, 7, 300):
        iterations = f"carries=1, length={length}, reverse={reverse}, xs=2"
        text = ITERATIONS.format(n=30, length=length).replace("LOOP", iterations)
        arrays = [rng.random((length, 30)), rng.random((30, 30)), rng.integers(0, 30, length)]
        results = []
        for count in (1, 3):
            pool.set_num_threads(count)
            program = check(text, *arrays, rtol=1e-12)
            results.append(program.entry(*arrays))
        pool.set_num_threads(before)
        assert all(np.array_equal(x, y) for x, y in zip(*results, strict=True))
        (loop,) = [step for step in program.report.plan.steps if isinstance(step, ScanStep)]
        assert loop.blocking.strategy == SHARES
        assert (loop.blocks.number > 1) is loop.blocks.parallel is (length == 300)
    arrays[2][200] = 30
    assert program.entry(*arrays) is MISS
    arrays[2][200] = 0
    assert program.entry(*arrays) is not MISS


def test_threads_share_iterations_within_others() -> None:
    def f(rows: Any, x: Any) -> Any:
        def turn(row: Any) -> Any:
            inner = tg.map(lambda r: np.cumsum(np.tanh(r * row))[::-1] + np.sum(row), rows)
            return tg.while_loop(lambda s: np.max(s) > 1.0, lambda s: s / 2, np.sum(inner * x, 0))

        return tg.fori_loop(0, 2, lambda i, s: tg.map(turn, s), rows)

    rows, x = vectors(40, 60), vectors(60)
    np.testing.assert_allclose(tg.trace(f)(rows, x), f(rows, x), rtol=1e-11)


def test_iterations_that_carry_more_than_counters_or_call_numpy_are_not_shared() -> None:
    texts = {"a carry is no induction variable": scan_text(20, 5), "NumPy is called": CALLS.format(n=30)}
    with tg.settings.override(disable="strip-mining, wavefront-tiling"):
        for reason, text in texts.items():
            (loop,) = [step for step in program_of(parse(text)).report.plan.steps if isinstance(step, ScanStep)]
            assert (loop.blocking.strategy, loop.blocking.reasons["shares"]) == ("", reason)


def test_a_matrix_and_its_transpose_are_read_where_the_matrix_is() -> None:
    x, y = rng.standard_normal((60, 5)), rng.standard_normal(60)

    def descent(rate: Any) -> Any:
        w = 0.0 * x[0]
        for _ in range(20):
            r = np.tanh(x @ w) - y
            w = w - rate * (x.T @ (r * (1.0 - np.tanh(x @ w) ** 2)))
        return np.sum(w * w)

    derivative = tg.grad(descent)
    explanation = derivative.explain(0.01)
    text = str(explanation)
    assert "scan of 20 iterations" in text
    assert "transpose" in str(explanation.optimized)
    assert re.search(r"b\d+ .* reduce_sum f64", text)
    assert not re.search(r"b\d+ .* transpose f64", text)
    imaginary = descent(0.01 + 1e-30j).imag / 1e-30
    for _ in range(2):  # by NumPy, by machine code
        np.testing.assert_allclose(derivative(0.01), imaginary, rtol=1e-11)


@pytest.mark.parametrize(("n", "kind"), [(300, "calls"), (4, "loops")])
def test_iterations_that_only_call_kernels_are_compiled_as_calls(n: int, kind: str) -> None:
    text = scan_text(n, 30).replace("multiply(%0, %2)", "flip(%0) {axes=(0,)}")  # no strip of its own
    program = check(text, rng.normal(size=n), rng.normal(size=(30, n)), rng.normal(size=n), rtol=1e-10)
    assert [piece.kind for piece in program.image.uses if not piece.kernel] == [kind]
