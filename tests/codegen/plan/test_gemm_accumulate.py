"""Sums of products, which BLAS adds up where they stand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.codegen.loopir.steps import Matmul
from tracegrad.codegen.plan import gemm_accumulate
from tracegrad.codegen.plan.overwrite import BufferUses
from tracegrad.codegen.plan.planner import plan
from tracegrad.codegen.plan.program_plan import Plan, plans_of

rng = np.random.default_rng(0)
N = 20


def twice(a: Any, b: Any, c: Any, d: Any) -> Any:
    product = a @ b
    return np.tanh(product + c @ d) * product


# Functions of four matrices, and how many products are added to others.
SUMS: dict[str, tuple[Callable[..., Any], int]] = {
    "in a function": (lambda a, b, c, d: np.tanh(a @ b + c @ d), 1),
    "with a bias": (lambda a, b, c, d: np.tanh(a @ b + c @ d + d[0]), 1),
    "of three": (lambda a, b, c, d: np.tanh(a @ b + c @ d + d @ a), 2),
    "of four": (lambda a, b, c, d: np.exp(-(a @ b - c @ d + d @ a - b @ c)), 3),
    "a difference": (lambda a, b, c, d: np.cos(a @ b - c @ d), 1),
    "a difference in a sum": (lambda a, b, c, d: np.cos(b + (a @ b - c @ d)), 1),
    "of transposed ones": (lambda a, b, c, d: np.cos((a @ b).T + (c @ d).T), 1),
    "of one that is transposed": (lambda a, b, c, d: np.cos(((a @ b).T + c @ d) @ a), 1),
    "of what is computed": (lambda a, b, c, d: np.cos(np.sum((np.sin(a) + a @ b) @ c, 0)), 0),
    "and a row sum": (lambda a, b, c, d: np.sum(np.cos(a @ b + c @ d), 1), 1),
    "and a part": (lambda a, b, c, d: np.cos((a @ b + c @ d)[3:, :5]), 1),
    "with itself transposed": (lambda a, b, c, d: np.cos(a @ b + (a @ b).T), 0),
    "to an argument": (lambda a, b, c, d: np.cos(a + c @ d), 0),
    "that is used otherwise": (twice, 0),
    "that is read in a sum of its own": (lambda a, b, c, d: np.cos(a @ b + c @ d) / np.sum(c @ d), 1),
    "that is read by a product": (lambda a, b, c, d: np.cos(a @ b + (a @ b) @ c) @ d, 0),
    "of parts of each other": (lambda a, b, c, d: np.cos((a @ b)[:, :10] + (c @ d)[:, 10:]), 0),
}
each_sum = pytest.mark.parametrize("name", SUMS)


def matrices(dtype: str = "float64") -> list[Any]:
    return [rng.normal(size=(N, N)).astype(dtype) / 4 for _ in range(4)]


def added(f: Any, *xs: Any) -> int:
    steps = [step for result in plans_of(plan(tg.trace(f).explain(*xs).optimized)) for step in result.steps]
    return sum(bool(step.adds) for step in steps if isinstance(step, Matmul))


@each_sum
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_sums_of_products_are_those_of_numpy(name: str, dtype: str) -> None:
    f, xs = SUMS[name][0], matrices(dtype)
    tolerance = 1e-12 if dtype == "float64" else 1e-4
    np.testing.assert_allclose(tg.trace(f)(*xs), f(*xs), rtol=tolerance, atol=tolerance)


@each_sum
def test_products_are_added_where_nothing_else_reads_what_was_there(name: str) -> None:
    f, count = SUMS[name]
    assert added(f, *matrices()) == count


def test_who_uses_a_buffer_is_known_while_products_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """After each addition it is what it would be if it were found anew, which is done once."""
    results: list[dict[str, set[int]]] = []
    add = gemm_accumulate._Addition._add

    def places(uses: BufferUses) -> dict[str, set[int]]:
        return {name: {id(step) for step in steps} for name, steps in uses.steps.items() if steps}

    class Recorded(BufferUses):
        def __init__(self, plan: Plan):
            super().__init__(plan)
            results.append({})

    def checked(self: Any, *args: Any) -> None:
        add(self, *args)
        assert places(self.uses) == places(BufferUses(self.plan))
        results[-1] = places(self.uses)

    monkeypatch.setattr(gemm_accumulate, "BufferUses", Recorded)
    monkeypatch.setattr(gemm_accumulate._Addition, "_add", checked)
    for name, (f, count) in SUMS.items():
        results.clear()
        result = plan(tg.trace(f).explain(*matrices()).optimized)
        assert sum(bool(x.adds) for x in result.steps if isinstance(x, Matmul)) == count, name
        assert len(results) <= 2  # that of `explain`, and this
        assert any(results) == (count > 0)


@each_sum
def test_derivatives_of_sums_of_products(name: str) -> None:
    f, xs = SUMS[name][0], matrices()
    derivatives = tg.grad(lambda *xs: np.sum(np.sin(f(*xs))), (0, 1, 2, 3))(*xs)
    for k, x in enumerate(xs):
        d = rng.normal(size=x.shape)
        moved = [*xs[:k], x + 1e-30j * d, *xs[k + 1 :]]
        want = np.sum(np.sin(f(*moved))).imag / 1e-30
        np.testing.assert_allclose(np.sum(derivatives[k] * d), want, rtol=1e-9)


@each_sum
def test_sums_of_products_in_a_loop(name: str) -> None:
    f, xs = SUMS[name][0], matrices()

    def repeated(*xs: Any) -> Any:
        result = 0.0
        for k in range(20):
            result = result + np.sum(np.sin(f(*[x * (1 + 0.01 * k) for x in xs])))
        return result

    np.testing.assert_allclose(tg.trace(repeated)(*xs), repeated(*xs), rtol=1e-10)


def test_cotangents_of_what_is_used_by_several_products_are_added() -> None:
    def attended(x: Any, q: Any, k: Any, v: Any) -> Any:
        return np.sum(np.tanh(x @ q) * np.cos(x @ k) * np.sin(x @ v))

    xs = matrices()
    assert added(tg.grad(attended), *xs) == 2
    d = rng.normal(size=(N, N))
    want = attended(xs[0] + 1e-30j * d, *xs[1:]).imag / 1e-30
    np.testing.assert_allclose(np.sum(tg.grad(attended)(*xs) * d), want, rtol=1e-10)


def test_nan_and_inf_stay_where_they_are() -> None:
    f, xs = SUMS["of three"][0], matrices()
    xs[0][2, 3], xs[2][4, 1], xs[3][5, 5] = np.nan, np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(tg.trace(f)(*xs), f(*xs), rtol=1e-12)


def test_nothing_is_added_up_of_no_elements() -> None:
    a, b = np.zeros((9, 0)), np.zeros((0, 9))
    f = tg.trace(lambda a, b: np.cos(a @ b + (2 * a) @ b))
    np.testing.assert_array_equal(f(a, b), np.ones((9, 9)))
