"""The backend before LLVM: polynomials, sizes, what is stored, what is fused and why not, and the loop IR as text."""

from __future__ import annotations

import copy
import hashlib
import itertools
import math
import pickle
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from exact import assert_same, compiled, full_slice, graph_from, outputs_of, whole
from graphs import SAMPLES, every_op, f64, graph_of, i64, vjp_of
from hypothesis import given, settings
from hypothesis import strategies as st

from tracegrad import passes
from tracegrad.codegen.loopir.kernel import (
    BoundsCheck,
    Compute,
    GuardBlock,
    Index,
    Kernel,
    KernelLoop,
    Load,
    Operand,
    Reduce,
    Store,
    immediate,
    verify_kernel,
)
from tracegrad.codegen.loopir.polynomial import ONE, ZERO, Poly, _known, poly
from tracegrad.codegen.loopir.steps import Launch
from tracegrad.codegen.lower.materialize import Storage
from tracegrad.codegen.lower.symbolic_shapes import Dims
from tracegrad.codegen.plan.places_and_values import offset_name
from tracegrad.codegen.plan.planner import plan
from tracegrad.codegen.plan.program_plan import Plan
from tracegrad.errors import VerifyError
from tracegrad.ir import Graph, build
from tracegrad.ops.elementwise import table as elementwise
from tracegrad.ops.elementwise.table import add, divide, exp, multiply, sin, subtract, tanh
from tracegrad.ops.indexing.gather_scatter import gather, scatter_add
from tracegrad.ops.linalg import contraction
from tracegrad.ops.reduce import reductions
from tracegrad.ops.reduce.scans import cumsum
from tracegrad.ops.shape import linear
from tracegrad.ops.shape.linear import (
    broadcast_to,
    concatenate,
    flip,
    pad,
    reduce_sum,
    reshape,
    slice,
    transpose,
)

# -- polynomials -----------------------------------------------------------------------------------------------------
SYMBOLS = ("i0", "i1", "s0")
i, j, n = (Poly.symbol(s) for s in SYMBOLS)


@st.composite
def polynomials(draw: Any) -> Poly:
    monomials = st.lists(st.sampled_from(SYMBOLS), max_size=2).map(lambda m: tuple(sorted(m)))
    terms = draw(st.dictionaries(monomials, st.integers(-5, 5).filter(bool), max_size=4))
    return Poly(terms)


points = st.fixed_dictionaries({s: st.integers(-6, 6) for s in SYMBOLS})


@settings(max_examples=60, deadline=None, derandomize=True)
@given(polynomials(), polynomials(), polynomials(), points)
def test_polynomials_compute_as_the_numbers_they_stand_for(p: Poly, q: Poly, r: Poly, at: dict[str, int]) -> None:
    x, y = p.evaluate(at), q.evaluate(at)
    assert (p + q).evaluate(at) == x + y
    assert (p - q).evaluate(at) == x - y
    assert (p * q).evaluate(at) == x * y
    assert (3 - p * 2 + 1).evaluate(at) == 4 - 2 * x
    assert p.substitute({"i0": q}).evaluate(at) == p.evaluate(at | {"i0": y})
    assert (p + q) * r == p * r + r * q
    assert p - p == 0
    assert hash(p + q) == hash(q + p)
    assert repr(p + q) == repr(q + p)


def test_polynomials_print_canonically_and_know_their_parts() -> None:
    p = (i + 1) * n - i * 3 + j
    assert str(p) == "-3*i0 + i1 + s0 + i0*s0"
    assert str(ZERO) == "0"
    assert str(poly(-2) * i) == "-2*i0"
    assert p.coefficient("i0") == n - 3
    assert p.without("i0") == j + n
    assert p.symbols == {"i0", "i1", "s0"}
    assert (p.value, poly(7).value, ZERO.value, (p - p).value) == (None, 7, 0, 0)
    assert p != 0
    assert ONE * p == p


def test_equal_polynomials_are_one_object_while_they_live() -> None:
    p = (i + 1) * n - i * 3 + j
    assert p is j + n - 3 * i + i * n
    assert copy.deepcopy(p) is pickle.loads(pickle.dumps(p)) is p
    assert p is not p + 1
    key = frozenset((p * p * p).terms.items())  # which nothing keeps but the caches of operations
    for operation in (Poly.__add__, Poly.__mul__, Poly.coefficient, Poly.without):
        operation.cache_clear()  # type: ignore[attr-defined]
    assert key not in _known


# -- sizes -----------------------------------------------------------------------------------------------------------
def shapes_of(graph: Graph) -> list[str]:
    """The shapes of inputs and nodes as kernels see them."""
    dims = Dims(graph)
    return [f"[{', '.join(map(str, dims.shape(x)))}]" for x in (*graph.inputs, *graph.nodes)]


def test_sizes_that_the_data_flow_forces_equal_are_one_symbol() -> None:
    graph = build(
        lambda x, w, b: [tanh(add(contraction.matmul(x, w), broadcast_to(b, shape=(20, 20))))],
        [f64(20, 20), f64(20, 20), f64(20)],
    )
    batch, inner, outer = "s0", "s1", "s2"
    shapes = [f"[{batch}, {inner}]", f"[{inner}, {outer}]", f"[{outer}]", *[f"[{batch}, {outer}]"] * 4]
    assert shapes_of(graph) == shapes


SIZES: dict[str, tuple[Callable[..., Any], list[Any], str]] = {
    "small sizes are constants": (lambda x: exp(x), [f64(9, 8)], "[s0, 8] [s0, 8]"),
    "but for those outside of a large one": (lambda x: exp(x), [f64(8, 9)], "[s0, s1] [s0, s1]"),
    "if they are so everywhere": (lambda x: transpose(x, perm=(1, 0)), [f64(8, 9)], "[8, s0] [s0, 8]"),
    "and not reduced alone": (lambda x: reduce_sum(x, axes=(0,)), [f64(8, 9)], "[8, s0] [s0]"),
    "but with a large one": (lambda x: reduce_sum(x, axes=(0, 1)), [f64(8, 9, 10)], "[s0, s1, s2] [s2]"),
    "nor alone in a value": (lambda x: reduce_sum(x, axes=(1,)), [f64(8, 9)], "[8, s0] [8]"),
    "transpose": (lambda x: transpose(x, perm=(2, 0, 1)), [f64(10, 11, 3)], "[s0, s1, 3] [3, s0, s1]"),
    "broadcast": (lambda x: broadcast_to(x, shape=(20, 30, 10)), [f64(1, 10)], "[1, s0] [s1, s2, s0]"),
    "reduction": (lambda x: reduce_sum(x, axes=(0, 2)), [f64(10, 11, 12)], "[s0, s1, s2] [s1]"),
    "slice": (lambda x: slice(x, start=(1, 0), stop=(10, 11), step=(1, 1)), [f64(10, 11)], "[s0, s1] [s2, s1]"),
    "pad": (lambda x: pad(x, low=(0, 2), high=(0, 0), interior=(0, 0), value=0), [f64(10, 11)], "[s0, s1] [s0, s2]"),
    "concatenate": (lambda x, y: concatenate(x, y, axis=0), [f64(9, 30), f64(10, 30)], "[s0, s1] [s2, s1] [s3, s1]"),
    "reshape to more axes": (
        lambda x: reshape(x, shape=(12, 5, 2, 30)),
        [f64(12, 10, 30)],
        "[s0, s1, s2] [s0, 5, 2, s2]",
    ),
    "reshape to fewer axes": (lambda x: reshape(x, shape=(120, 30)), [f64(12, 10, 30)], "[s0, s1, s2] [s3, s2]"),
    "axes of size one": (lambda x: reshape(x, shape=(1, 12, 1, 10)), [f64(12, 1, 10)], "[s0, 1, s1] [1, s0, 1, s1]"),
    "gather": (lambda x, k: gather(x, k, axes=(1,)), [f64(9, 10, 11), i64(12)], "[s0, s1, s2] [s3] [s3, s0, s2]"),
    "scatter": (
        lambda u, k: scatter_add(u, k, shape=(40, 9), axes=(0,)),
        [f64(12, 9), i64(12)],
        "[s0, s1] [s0] [s2, s1]",
    ),
    "matmul": (contraction.matmul, [f64(9, 10, 11), f64(9, 11, 12)], "[s0, s1, s2] [s0, s2, s3] [s0, s1, s3]"),
}


@pytest.mark.parametrize(("fn", "avals", "want"), SIZES.values(), ids=SIZES)
def test_which_sizes_are_one_symbol(fn: Any, avals: Any, want: str) -> None:
    assert " ".join(shapes_of(build(lambda *x: [fn(*x)], avals))) == want


# -- what is stored --------------------------------------------------------------------------------------------------
def reasons(graph: Graph) -> list[str]:
    """Why values are stored, in order of computation."""
    storage = Storage(graph)
    return [storage.reason[x] for x in graph.nodes if x in storage.reason]


def row_softmax(x: Any) -> list[Any]:
    return [reductions.softmax(x, axes=(1,))]


STORED: dict[str, tuple[Callable[..., Any], list[Any], list[str]]] = {
    "elementwise chains are not": (lambda x: [exp(sin(tanh(x)))], [f64(20)], ["output"]),
    "views are not": (lambda x: [exp(flip(transpose(exp(x), perm=(1, 0)), axes=(0,)))], [f64(20, 30)], ["output"]),
    "reductions": (lambda x: [exp(reduce_sum(x, axes=(0,)))], [f64(20, 30)], ["result of reduce_sum", "output"]),
    "operands of BLAS": (
        lambda x, y: [contraction.matmul(exp(x), transpose(sin(y), perm=(1, 0)))],
        [f64(20, 30), f64(10, 30)],
        ["operand of BLAS", "operand of BLAS", "output"],
    ),
    "operands of called ops": (
        lambda k: [multiply(elementwise.power(add(k, 1), k), 2)],
        [i64(20)],
        ["operand of power, which is called in NumPy", "power is called in NumPy", "output"],
    ),
    "what is reshaped": (
        lambda x: [exp(reshape(transpose(exp(x), perm=(1, 0)), shape=(20 * 30,)))],
        [f64(20, 30)],
        ["reshaped, so read as one block of memory", "output"],
    ),
    "but not for axes of size one": (lambda x: [exp(reshape(exp(x), shape=(20, 1, 30)))], [f64(20, 30)], ["output"]),
    "what is dear and repeated": (
        lambda x, y: [add(y, broadcast_to(exp(x), shape=(20, 30)))],
        [f64(30), f64(20, 30)],
        ["computed once, read many times by broadcast_to", "output"],
    ),
    "but not what is cheap": (
        lambda x, y: [add(y, broadcast_to(add(x, 1.5), shape=(20, 30)))],
        [f64(30), f64(20, 30)],
        ["output"],
    ),
    "a gather that is read in part": (
        lambda x, k: [slice(gather(x, k, axes=(0,)), start=(0,), stop=(3,), step=(1,))],
        [f64(20), i64(9)],
        ["read in part, and every index is to be checked", "output"],
    ),
}


@pytest.mark.parametrize(("fn", "avals", "want"), STORED.values(), ids=STORED)
def test_what_is_stored_and_why(fn: Any, avals: Any, want: list[str]) -> None:
    assert reasons(build(fn, avals)) == want


def test_a_reshape_of_a_stored_value_is_the_same_memory() -> None:
    result = plan(build(lambda x: [reshape(exp(x), shape=(600,)), sin(reshape(exp(x), shape=(600,)))], [f64(20, 30)]))
    assert [str(place) for place in result.memory.values()] == ["input 0", "output 0", "output 1"]
    result = plan(build(lambda x: [y := exp(x), reshape(y, shape=(600,)), reshape(y, shape=(30, 20))], [f64(20, 30)]))
    assert sorted(map(str, result.memory.values())) == ["input 0", "output 0", "output 1", "output 2"]


# -- what is fused ---------------------------------------------------------------------------------------------------
def planned(fn: Callable[..., Any], *avals: Any) -> Plan:
    """The plan of the optimised graph of `fn`, its kernels verified."""
    result = plan(passes.optimize(build(fn, avals)))
    for step in result.steps:
        if isinstance(step, Launch):
            verify_kernel(step.kernel)
    return result


def standardized(x: Any) -> list[Any]:
    mean = reductions.mean(x, axes=(0,))
    spread = reductions.var(x, axes=(0,), ddof=0)
    wide = [broadcast_to(v, shape=x.shape) for v in (mean, spread)]
    return [divide(subtract(x, wide[0]), elementwise.sqrt(wide[1]))]


FUSED: dict[str, tuple[Callable[..., Any], list[Any], int, list[str]]] = {
    "siblings over one space": (
        lambda x: [exp(x), reduce_sum(x, axes=(0,)), reduce_sum(sin(x), axes=(1,))],
        [f64(20, 30)],
        1,
        [],
    ),
    "a value with its own sum": (
        lambda x: [y := exp(x), reduce_sum(y, axes=(0, 1)), multiply(y, 2.5)],
        [f64(20, 30)],
        1,
        [],
    ),
    "other spaces": (lambda x, y: [exp(x), exp(y)], [f64(20), f64(30)], 2, []),
    "a reduction and what needs it": (
        row_softmax,
        [f64(20, 30)],
        4,
        ["needs the complete reduction", "reads it at another index", *["needs the complete reduction"] * 2],
    ),
    "what BLAS computes": (
        lambda x, y: [tanh(contraction.matmul(sin(x), y))],
        [f64(20, 30), f64(30, 40)],
        3,
        ["BLAS computes whole matrices"] * 2,
    ),
    "another index": (lambda x: [y := exp(x), flip(y, axes=(0,))], [f64(20)], 2, ["reads it at another index"]),
    "a running sum": (lambda x: [add(cumsum(exp(x), axis=0), 1.5)], [f64(20)], 2, ["has a loop of its own"]),
    "a called op": (lambda k: [add(elementwise.power(k, k), 9)], [i64(20)], 2, ["NumPy is called for one of them"]),
}


@pytest.mark.parametrize(("fn", "avals", "steps", "edges"), FUSED.values(), ids=FUSED)
def test_what_is_fused_and_why_not(fn: Any, avals: Any, steps: int, edges: list[str]) -> None:
    result = planned(fn, *avals)
    assert len(result.steps) == steps
    assert [e.reason for e in result.schedule.edges] == edges


def test_steps_run_after_those_they_need() -> None:
    for seed in range(60):
        result = plan(passes.optimize(graph_from(seed)))
        done: set[Any] = set()
        for step in result.schedule.groups:
            assert step.deps <= done, seed
            done.add(step)


def test_values_that_live_at_one_time_share_no_memory() -> None:
    for seed in range(60):
        result = plan(passes.optimize(graph_from(seed)))
        names = {b: x for x, b in result.buffers.items()}
        uses = [set(buffers_of(step)) for step in result.steps]
        spans = {}
        for b in filter(result.is_temporary, result.memory):
            at = [k for k, used in enumerate(uses) if b in used]
            begin = result.values[offset_name(b)]
            spans[b] = (at[0], at[-1], begin, begin + names[b].aval.size * names[b].aval.dtype.itemsize)
        for a, b in itertools.combinations(spans.values(), 2):
            alive_together = a[0] <= b[1] and b[0] <= a[1]
            overlapping = a[2] < b[3] and b[2] < a[3]
            assert not (alive_together and overlapping), seed
        assert all(s[3] <= result.arena_bytes and s[2] % 64 == 0 for s in spans.values())


def buffers_of(step: Any) -> list[str]:
    if isinstance(step, Launch):
        return list(step.kernel.buffers)
    return [step.out, *(step.operands if hasattr(step, "operands") else (step.x[0], step.y[0]))]


# -- kernels as text -------------------------------------------------------------------------------------------------
def normalized_rows(x: Any, g: Any) -> list[Any]:
    rows, columns = x.shape
    mean = broadcast_to(reshape(reductions.mean(x, axes=(1,)), shape=(rows, 1)), shape=x.shape)
    spread = broadcast_to(reshape(reductions.var(x, axes=(1,), ddof=0), shape=(rows, 1)), shape=x.shape)
    scaled = divide(subtract(x, mean), elementwise.sqrt(add(spread, 1e-5)))
    return [multiply(scaled, broadcast_to(g, shape=(rows, columns)))]


KERNELS: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "elementwise": (lambda x, y: [tanh(add(multiply(x, 0.1), y))], [f64(20, 30), f64(20, 30)]),
    "bias": (lambda x, b: [elementwise.maximum(add(x, broadcast_to(b, shape=x.shape)), 0.0)], [f64(20, 30), f64(30)]),
    "softmax": (row_softmax, [f64(20, 30)]),
    "normalized_rows": (normalized_rows, [f64(20, 30), f64(30)]),
    "columns": (lambda x: [reduce_sum(x, axes=(0,)), reductions.reduce_max(x, axes=(0,))], [f64(20, 30)]),
    "middle_axis": (lambda x: [reduce_sum(x, axes=(1,))], [f64(20, 3, 30)]),
    "transposed": (lambda x, y: [add(transpose(x, perm=(1, 0)), y)], [f64(20, 30), f64(30, 20)]),
    "stencil": (lambda x: [subtract(full_slice(x, start=(1,)), full_slice(x, stop=(x.shape[0] - 1,)))], [f64(40)]),
    "padded": (lambda x: [pad(exp(x), low=(2,), high=(30,), interior=(1,), value=1.5)], [f64(20)]),
    "joined": (lambda x, y: [concatenate(x, exp(y), x, axis=0)], [f64(20), f64(30)]),
    "gather": (lambda x, k: [exp(gather(x, k, axes=(0,)))], [f64(20, 4), i64(30)]),
    "scatter": (lambda u, k: [scatter_add(multiply(u, 2.0), k, shape=(30, 4), axes=(0,))], [f64(20, 4), i64(20)]),
    "running_sum": (lambda x: [cumsum(x, axis=0)], [f64(20, 30)]),
    "first_maximum": (lambda x: [reductions.argmax(x, axis=1)], [f64(20, 12)]),
    "first_maximum_in_one_pass": (lambda x: [reductions.argmax(x, axis=1)], [f64(20, 300)]),
    "product": (lambda x, y: [add(contraction.matmul(x, transpose(y, perm=(1, 0))), 1.0)], [f64(20, 30), f64(40, 30)]),
}


@pytest.mark.parametrize(("fn", "avals"), KERNELS.values(), ids=KERNELS)
def test_plan(fn: Any, avals: Any, golden: Any) -> None:
    """The text of the plan is as it was looked at last, and its machine code right."""
    result = planned(fn, *avals)
    assert result.text() == golden
    arrays = [whole(*a.shape, dtype=a.dtype, low=0) for a in avals]
    assert_same(fn, *arrays, rtol=1e-13)


@pytest.mark.parametrize(("fn", "avals"), KERNELS.values(), ids=KERNELS)
def test_other_sizes_read_the_same(fn: Any, avals: Any) -> None:
    larger = [type(a)(tuple(n if n <= 8 else n + 11 for n in a.shape), a.dtype) for a in avals]
    assert planned(fn, *larger).text() == planned(fn, *avals).text()


def digest(graph: Graph) -> str:
    """A short stand-in for the text of the plan of `graph`."""
    text = plan(passes.optimize(graph)).text()
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def test_plans_of_the_table_are_what_they_were(golden: Any) -> None:
    digests = {}
    for sample in SAMPLES:
        graph = graph_of(*sample.values)
        pulled = vjp_of(graph)
        digests[str(sample.id)] = f"{digest(graph)} {'-' if pulled is None else digest(pulled)}"
    assert golden.differing(digests) == [], "plans (of the op, of its vjp) have changed: is that intended?"


# -- the loop IR and its verifier ------------------------------------------------------------------------------------
@every_op
def test_kernels_of_every_op_and_derivative_verify(op: Any, operands: Any, params: Any) -> None:
    graph: Graph | None = graph_of(op, operands, params)
    for _order in range(3):
        if graph is None:
            break
        for form in (graph, passes.optimize(graph)):
            for step in plan(form).steps:
                if isinstance(step, Launch):
                    verify_kernel(step.kernel)
        graph = vjp_of(graph)


def test_kernels_of_random_graphs_verify() -> None:
    for seed in range(1000, 1060):
        graph = graph_from(seed)
        for form in (graph, passes.optimize(graph)):
            for step in plan(form).steps:
                if isinstance(step, Launch):
                    verify_kernel(step.kernel)


V0, V1, C0 = Operand("v0", "f64"), Operand("v1", "f64"), Operand("c0", "f64")
LOAD, I0 = Load(V0, "b0", Poly.symbol("i0")), Poly.symbol("i0")
BROKEN: dict[str, tuple[list[Any], str]] = {
    "a value before its definition": ([Store("b1", I0, V0)], "v0 used before definition: store"),
    "a value defined twice": ([LOAD, LOAD], "v0 is defined twice"),
    "a loop variable that is not there": ([Load(V0, "b0", Poly.symbol("i7"))], "i7 used before definition"),
    "an index that was not checked": ([Load(V0, "b0", Poly.symbol("v5"))], "v5 used before definition"),
    "an unknown buffer": ([Load(V0, "b9", I0)], "buffer b9 is not declared"),
    "a store to an input": ([LOAD, Store("b0", I0, V0)], "b0 is declared as an input"),
    "a store of another dtype": ([Store("b1", I0, Operand("", "i64", "1"))], "b1 is of f64"),
    "a load of another dtype": ([Load(Operand("v0", "f32"), "b0", I0)], "b0 is of f64"),
    "a reduction over no loop": ([LOAD, Reduce("b1", ZERO, "add", V0, ("i3",), ONE)], "no loop"),
    "a value out of its guard": (
        [GuardBlock(V1, ((ZERO, I0, ONE, ONE),), [LOAD], V0, C0), Store("b1", I0, V0)],
        "v0 used before definition: store",
    ),
    "a guard without a value": ([GuardBlock(V1, ((ZERO, I0, ONE, ONE),), [], V0, C0)], "v0 used before definition"),
    "a guard of two dtypes": (
        [GuardBlock(V1, ((ZERO, I0, ONE, ONE),), [LOAD], V0, Operand("", "f32", "0.0"))],
        "differ in dtype",
    ),
    "a guard with an unknown range": ([GuardBlock(V1, ((ZERO, Poly.symbol("v8"), ONE, ONE),), [LOAD], V0, C0)], "v8"),
}


def kernel_of(body: list[Any]) -> Kernel:
    return Kernel({"b0": ("f64", "in"), "b1": ("f64", "out")}, [KernelLoop("i0", n)], body)


@pytest.mark.parametrize(("body", "message"), BROKEN.values(), ids=BROKEN)
def test_the_verifier_names_what_is_broken(body: list[Any], message: str) -> None:
    with pytest.raises(VerifyError, match=message):
        verify_kernel(kernel_of(body))


def test_the_verifier_refuses_two_loops_of_one_variable() -> None:
    with pytest.raises(VerifyError, match="two loops"):
        verify_kernel(Kernel({}, [KernelLoop("i0", n), KernelLoop("i0", n)]))


def test_a_kernel_prints_every_instruction() -> None:
    index = Operand("v2", "i64")
    body = [
        LOAD,
        Compute(V1, "exp", (V0,)),
        Index(index, I0 + 1),
        BoundsCheck(Operand("v3", "i64"), index, n),
        GuardBlock(
            Operand("v4", "f64"),
            ((ZERO, I0, n, poly(2)),),
            [Load(Operand("v5", "f64"), "b0", Poly.symbol("v3"))],
            Operand("v5", "f64"),
            C0,
        ),
        Store("b1", I0, Operand("v4", "f64")),
        Reduce("b1", ZERO, "add", V1, ("i0",), ONE),
    ]
    assert (
        verify_kernel(kernel_of(body)).text()
        == """kernel k(b0: f64 in, b1: f64 out; c0: f64) cost 0 for i0 in s0 {
  v0 = load b0[i0] : f64
  v1 = exp(v0) : f64
  v2 = index 1 + i0 : i64
  v3 = check v2 in s0 : i64
  v4 = guard 0 <= i0 < s0 step 2 else c0 : f64 {
    v5 = load b0[v3] : f64
    yield v5
  }
  store b1[i0] = v4
  reduce add b1[0] of 1 by v1 over i0
}"""
    )


def test_immediates_are_spelled_so_that_unlike_numbers_differ() -> None:
    spelled = [immediate(v, "f64") for v in (0.0, -0.0, 1, math.inf, -math.inf, math.nan, 5e-324)]
    assert spelled == ["0.0", "-0.0", "1.0", "inf", "-inf", "nan", "5e-324"]
    assert [immediate(True, d) for d in ("bool", "i64", "f32")] == ["True", "1", "1.0"]


def test_kernels_that_differ_in_names_alone_are_one_function() -> None:
    def fn(x: Any, y: Any) -> list[Any]:
        for k in range(4):
            x = tanh(multiply(contraction.matmul(x, y), 0.1 * (k + 11)))
        return [x]

    result = planned(fn, f64(20, 30), f64(30, 30))
    signatures = {step.kernel.signature()[0] for step in result.steps if isinstance(step, Launch)}
    assert (len([s for s in result.steps if isinstance(s, Launch)]), len(signatures)) == (4, 1)


# -- bounded code, time and depth ------------------------------------------------------------------------------------
def chain(step: Callable[[Any, int], Any], count: int) -> Callable[[Any], list[Any]]:
    def fn(x: Any) -> list[Any]:
        for k in range(count):
            x = step(x, k)
        return [x]

    return fn


def difference(y: Any, k: int) -> Any:
    size = y.shape[0]
    inner = subtract(full_slice(y, start=(1,)), full_slice(y, stop=(size - 1,)))
    return multiply(pad(inner, low=(k % 2,), high=(1 - k % 2,), interior=(0,), value=0.0), 0.5)


def rotation(y: Any, k: int) -> Any:
    at = k % 7 + 1
    return concatenate(full_slice(y, start=(at,)), full_slice(y, stop=(at,)), axis=0)


def mirror(y: Any, k: int) -> Any:
    return add(y, flip(y, axes=(0,)))


def residual(y: Any, k: int) -> Any:
    return add(y, multiply(tanh(y), 0.1))


def centred(y: Any, k: int) -> Any:
    return subtract(y, broadcast_to(reductions.mean(y, axes=(0,)), shape=y.shape))


@pytest.mark.parametrize("step", [difference, rotation, mirror, residual, centred], ids=lambda f: f.__name__)
def test_code_grows_no_faster_than_the_graph(step: Any) -> None:
    short, long = (len(planned(chain(step, count), f64(40)).text()) for count in (50, 300))
    assert long < 7.5 * short


@pytest.mark.parametrize("step", [difference, rotation, mirror, residual, centred], ids=lambda f: f.__name__)
def test_long_chains_are_right(step: Any) -> None:
    got, want = outputs_of(chain(step, 40), np.linspace(-1, 1, 21))
    np.testing.assert_allclose(got[0], want[0], rtol=1e-11, atol=1e-11 * np.abs(want[0]).max())


def test_two_thousand_ops_take_neither_depth_nor_long() -> None:
    graph = build(chain(lambda y, k: multiply(sin(add(y, 0.1)), 0.9), 700), [f64(100)])
    assert len(graph.nodes) > 2000
    frame, depth = sys._getframe(), 0
    while frame is not None:
        frame, depth = frame.f_back, depth + 1  # type: ignore[assignment]
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(depth + 600)
    try:
        start = time.process_time()
        result = compiled(graph)
        assert time.process_time() - start < 15
    finally:
        sys.setrecursionlimit(limit)
    assert max(step.kernel.cost for step in result.report.plan.steps if isinstance(step, Launch)) < 1000


def test_many_outputs_of_one_input_are_split_into_kernels() -> None:
    result = planned(lambda x: [multiply(x, k + 0.3) for k in range(200)], f64(40))
    assert 200 // 32 <= len(result.steps) <= 10


def test_a_value_used_in_many_ways_at_one_index_is_computed_once() -> None:
    def fn(x: Any) -> list[Any]:
        y = exp(x)
        for _ in range(12):
            y = add(multiply(y, y), multiply(tanh(y), y))
        return [y]

    (step,) = planned(fn, f64(40)).steps
    assert isinstance(step, Launch)
    assert step.kernel.text().count("tanh") == 12


def test_what_several_kernels_need_and_is_dear_is_stored_once() -> None:
    def fn(x: Any) -> list[Any]:
        y = tanh(exp(x))
        return [transpose(y, perm=(1, 0)), flip(y, axes=(0,)), reduce_sum(y, axes=(1,)), cumsum(y, axis=0)]

    assert planned(fn, f64(20, 30)).text().count("tanh(") == 1


def test_indices_that_are_known_to_be_in_range_are_not_checked() -> None:
    def fn(x: Any, labels: Any) -> list[Any]:
        emit = x.builder.emit
        along = emit(linear.arange, (), {"start": 0, "step": 1, "length": 20, "dtype": "int64"})
        back = emit(linear.arange, (), {"start": 19, "step": -2, "length": 10, "dtype": "int32"})
        return [gather(x, along, along, axes=(0, 1)), gather(x, back, axes=(1,)), gather(x, along, labels, axes=(0, 1))]

    result = planned(fn, f64(20, 20), i64(20))
    assert result.text().count("check") == 1
    assert_same(fn, whole(20, 20), whole(20, dtype="int64", low=-20, high=20))
    too_far = {"start": 0, "step": 1, "length": 21, "dtype": "int64"}
    beyond = build(lambda x: [gather(x, x.builder.emit(linear.arange, (), too_far), axes=(0,))], [f64(20)])
    with pytest.raises(IndexError):
        compiled(beyond).run([whole(20)])


# Values that several kernels would compute, which are stored in a second attempt: some are views.
SHARED: dict[str, Callable[..., Any]] = {
    "elements": lambda x: [transpose(y := tanh(exp(x)), perm=(1, 0)), flip(y, axes=(0,)), cumsum(y, axis=0)],
    "a transposed value": lambda x: [
        flip(y := transpose(tanh(exp(x)), perm=(1, 0)), axes=(0,)),
        flip(y, axes=(1,)),
        cumsum(y, axis=0),
    ],
    "of what products read": lambda x: [
        contraction.matmul(y := tanh(x), transpose(y, perm=(1, 0))),
        flip(z := sin(y), axes=(0,)),
        cumsum(z, axis=0),
    ],
}


@pytest.mark.parametrize("name", SHARED)
def test_an_attempt_stores_what_it_would_if_none_were_before(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[Any] = []

    def alone(graph: Graph, also: Any, before: Any = None) -> Storage:
        result, anew = Storage(graph, also, before), Storage(graph, also)
        assert [*result.reason.items()] == [*anew.reason.items()]
        assert (result.results, result.weight, result.root_of) == (anew.results, anew.weight, anew.root_of)
        attempts.append(before)
        return result

    monkeypatch.setattr("tracegrad.codegen.plan.planner.Storage", alone)
    planned(SHARED[name], f64(20, 30))
    assert any(attempts)
