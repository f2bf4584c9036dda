"""Kernels whose loops end where a mask does: what they compute is the same, to the bit, and only these are cut."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from exact import compiled
from graphs import f64, i64

from tracegrad import passes
from tracegrad.codegen.kernels.bound_tightening import clip_of, row_mask_of
from tracegrad.codegen.loopir.steps import Launch
from tracegrad.codegen.plan.planner import plan
from tracegrad.codegen.plan.program_plan import Plan
from tracegrad.codegen.plan.region_steps import regions_of
from tracegrad.control import scan
from tracegrad.ir import Graph, build, run
from tracegrad.ops.elementwise.table import (
    add,
    greater,
    greater_equal,
    less,
    less_equal,
    logical_and,
    multiply,
    subtract,
    where,
)
from tracegrad.ops.indexing.dynamic_slice import dynamic_slice, dynamic_update_slice
from tracegrad.ops.reduce.reductions import reduce_sum
from tracegrad.ops.shape.fill import arange
from tracegrad.ops.shape.linear import broadcast_to, reshape

N = 37
rng = np.random.default_rng(2)
X = np.where(rng.uniform(size=N) < 0.2, rng.choice([np.nan, np.inf, -np.inf, -0.0], N), rng.normal(size=N))
Y = rng.normal(size=N)
BOUNDS = [-(2**63), -5, -1, 0, 1, 12, N - 1, N, N + 1, 2**62, 2**63 - 1]
MASKS: dict[str, Callable[[Any, Any], Any]] = {
    "below": less,
    "up to": less_equal,
    "above": greater,
    "from": greater_equal,
    "below, turned round": lambda i, n: greater(n, i),
    "up to, turned round": lambda i, n: greater_equal(n, i),
    "above, turned round": lambda i, n: less(n, i),
    "from, turned round": lambda i, n: less_equal(n, i),
}


def places() -> Any:
    return arange(start=0, step=1, length=N, dtype="int64")


def everywhere(n: Any) -> Any:
    return broadcast_to(n, shape=(N,))


def added_in_loop(mask: Any, nothing: float) -> Graph:
    """A row of a matrix, to which a part of another one is added in each turn of a loop."""

    def turn(a: Any, k: Any, x: Any, n: Any) -> list[Any]:
        row = reshape(dynamic_slice(a, k, 0, sizes=(1, N), step=(1, 1)), shape=(N,))
        new = add(row, where(mask(places(), everywhere(n)), multiply(x, 4.0), nothing))
        return [dynamic_update_slice(a, reshape(new, shape=(1, N)), k, 0, step=(1, 1))]

    body = build(turn, [f64(3, N), i64(), f64(N), i64()])

    def run_all(a: Any, x: Any, n: Any) -> list[Any]:
        rows = arange(start=0, step=1, length=3, dtype="int64")
        return list(scan(a, rows, x, n, body=body, carries=1, xs=1, length=3, reverse=False))

    return build(run_all, [f64(3, N), f64(N), i64()])


def chosen_in_loop(mask: Any) -> Graph:
    def turn(a: Any, k: Any, x: Any, n: Any) -> list[Any]:
        row = reshape(dynamic_slice(a, k, 0, sizes=(1, N), step=(1, 1)), shape=(N,))
        new = where(mask(places(), everywhere(n)), multiply(x, row), row)
        return [dynamic_update_slice(a, reshape(new, shape=(1, N)), k, 0, step=(1, 1))]

    body = build(turn, [f64(3, N), i64(), f64(N), i64()])

    def run_all(a: Any, x: Any, n: Any) -> list[Any]:
        rows = arange(start=0, step=1, length=3, dtype="int64")
        return list(scan(a, rows, x, n, body=body, carries=1, xs=1, length=3, reverse=False))

    return build(run_all, [f64(3, N), f64(N), i64()])


def summed(mask: Any, inside: Callable[[Any], Any] = lambda x: x, elsewhere: float = 0.0) -> Graph:
    def total(x: Any, n: Any) -> list[Any]:
        return [reduce_sum(inside(where(mask(places(), everywhere(n)), multiply(x, x), elsewhere)), axes=(0,))]

    return build(total, [f64(N), i64()])


def clips(plan: Plan) -> int:
    """How many kernels are cut, those of regions included."""
    result = sum(isinstance(step, Launch) and clip_of(step.kernel) is not None for step in plan.steps)
    return result + sum(clips(region) for step in plan.steps for _, region in regions_of(step))


def clipped(graph: Graph) -> int:
    return clips(plan(passes.optimize(graph)))


@pytest.mark.parametrize("name", MASKS)
def test_rows_in_place_are_the_same_to_the_bit(name: str) -> None:
    a = np.stack([X, Y, -0.0 * Y])
    for graph in (added_in_loop(MASKS[name], -0.0), chosen_in_loop(MASKS[name])):
        assert clipped(graph) == 1
        f = compiled(graph)
        for n in BOUNDS:
            args = [a, X[::-1].copy(), np.array(n)]
            with np.errstate(all="ignore"):
                (want,) = run(graph, args)
            (got,) = f.run(args)
            np.testing.assert_array_equal(got, want)
            np.testing.assert_array_equal(np.signbit(got), np.signbit(want))


@pytest.mark.parametrize("name", MASKS)
def test_sums_of_what_a_mask_lets_through(name: str) -> None:
    graph = summed(MASKS[name])
    assert clipped(graph) == 1
    f = compiled(graph)
    for n in BOUNDS:
        np.testing.assert_allclose(f.run([Y, np.array(n)])[0], run(graph, [Y, np.array(n)])[0], rtol=1e-14)


def test_what_does_something_elsewhere_is_not_cut() -> None:
    assert clipped(summed(less, elsewhere=1.0)) == 0
    assert clipped(summed(less, inside=lambda x: add(x, 1.0))) == 0
    assert clipped(added_in_loop(less, 0.0)) == 0  # -0.0 + 0.0 is 0.0
    assert clipped(added_in_loop(less, 2.0)) == 0


def test_several_masks_cut_what_one_of_them_leaves_out() -> None:
    def total(x: Any, n: Any, m: Any) -> list[Any]:
        inner = where(less(places(), everywhere(n)), x, 0.0)
        return [reduce_sum(where(less(places(), everywhere(m)), inner, 0.0), axes=(0,))]

    graph = build(total, [f64(N), i64(), i64()])
    f = compiled(graph)
    for n in (0, 5, N + 3):
        for m in (0, 9, N):
            args = [Y, np.array(n), np.array(m)]
            np.testing.assert_allclose(f.run(args)[0], run(graph, args)[0], rtol=1e-14)


# -- rows ----------------------------------------------------------------------------------------------------------
def updated_in_loop(nothing: float) -> Graph:
    """A matrix, of which a part is changed in each turn of a loop, and the sums of another part, by rows and columns.

    Where `nothing` is not zero, the sums need all rows.
    """

    def turn(a: Any, p: Any, q: Any, k: Any, x: Any) -> list[Any]:
        mask = greater_equal(places(), everywhere(k))
        rows, columns = (broadcast_to(reshape(mask, shape=shape), shape=(N, N)) for shape in ((N, 1), (1, N)))
        product = multiply(broadcast_to(reshape(x, shape=(N, 1)), shape=(N, N)), a)
        new = where(columns, where(rows, subtract(a, product), a), a)
        chosen = where(logical_and(rows, columns), multiply(a, 3.0), nothing)
        return [new, add(p, reduce_sum(chosen, axes=(0,))), add(q, reduce_sum(chosen, axes=(1,)))]

    body = build(turn, [f64(N, N), f64(N), f64(N), i64(), f64(N)])

    def run_all(a: Any, p: Any, q: Any, x: Any) -> list[Any]:
        ks = arange(start=0, step=1, length=N, dtype="int64")
        return list(scan(a, p, q, ks, x, body=body, carries=3, xs=1, length=N, reverse=False))

    return build(run_all, [f64(N, N), f64(N), f64(N), f64(N)])


def masked(plan: Plan) -> int:
    """How many kernels leave rows out, those of regions included."""
    result = sum(isinstance(step, Launch) and row_mask_of(step.kernel) is not None for step in plan.steps)
    return result + sum(masked(region) for step in plan.steps for _, region in regions_of(step))


@pytest.mark.parametrize("nothing", [0.0, -0.0, 0.5])
def test_rows_of_which_a_mask_leaves_nothing_are_left_out(nothing: float) -> None:
    graph = updated_in_loop(nothing)
    args = [0.01 * rng.normal(size=(N, N)), *rng.normal(size=(3, N))]
    for got, want in zip(compiled(graph).run(args), run(graph, args), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)
    assert (masked(plan(passes.optimize(graph))) > 0) == (nothing == 0.0)
