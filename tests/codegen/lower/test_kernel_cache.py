"""Kernels of equal steps are lowered once, and are what they would be if each were lowered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad import passes
from tracegrad.codegen.loopir.steps import Launch
from tracegrad.codegen.lower import kernel_cache
from tracegrad.codegen.lower.lower import Lowering
from tracegrad.codegen.plan.planner import plan
from tracegrad.codegen.plan.program_plan import Plan
from tracegrad.codegen.program.encode import encode_program, units_of
from tracegrad.ir import Graph

rng = np.random.default_rng(0)
x, w = rng.standard_normal((50, 40)), rng.standard_normal((40, 40))
places = rng.integers(0, 40, 30)


def optimized(fun: Callable[..., Any], *args: Any) -> Graph:
    return passes.optimize(tg.trace(fun).graph(*args))


def lowered(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is lowered from now on."""
    results: list[Any] = []
    usual = Lowering.lower_kernel
    monkeypatch.setattr(Lowering, "lower_kernel", lambda self, roots: results.append(roots) or usual(self, roots))
    kernel_cache.forget()
    return results


def described(plan: Plan) -> str:
    """All that a plan says."""
    return f"{plan.text()}\n{plan.values}\n{plan.arena_bytes} {plan.cost} {plan.arguments.constants}"


def normed(x: Any) -> Any:
    d = x - np.mean(x, axis=1, keepdims=True)
    return d / np.sqrt(np.mean(d * d, axis=1, keepdims=True) + 1e-5)


def layers(count: int) -> Callable[..., Any]:
    def network(x: Any, ws: Any) -> Any:
        for w in ws[:count]:
            x = x + np.tanh(normed(x) @ w) * 0.3
        return np.mean(x**2)

    return tg.value_and_grad(network, argnums=1)


def test_equal_layers_are_lowered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    result = lowered(monkeypatch)
    counts = []
    for count in (3, 5):
        kernel_cache.forget()
        result.clear()
        output = plan(optimized(layers(count), x, [w] * 5))
        counts.append((len(result), len(output.steps)))
    assert counts[0][0] == counts[1][0] < counts[0][1] < counts[1][1]


def test_a_program_of_equal_steps_lowers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    result = lowered(monkeypatch)
    plan(optimized(layers(5), x, [w] * 7))
    result.clear()
    plan(optimized(layers(7), x, [w] * 7))
    assert not result


def blocks(x: Any, weights: Any) -> Any:
    for u, w, b in weights:
        x = x + np.tanh(normed(x) @ u)
        x = x + np.tanh(normed(x) @ w) @ u + b
    return np.mean(x**2)


@pytest.mark.parametrize("batch", [3, 50])
def test_networks_of_any_depth_are_of_the_same_machine_code(batch: int) -> None:
    """Each layer adds to what layers before have added, which is stored, whatever their number is."""
    results = [plan(optimized(tg.value_and_grad(blocks, 1), x[:batch], [(w, w, w[0])] * k)) for k in (3, 2, 4, 5, 6, 7)]
    pieces = [{piece.text for order in encode_program(each) for piece in units_of(order)} for each in results]
    assert pieces[1:] == pieces[:1] * 5
    read = [len(step.kernel.buffers) for each in results for step in each.steps if isinstance(step, Launch)]
    why = {*results[-1].schedule.storage.reason.values()}
    assert max(read) < 12
    assert "11 kernels would read 2 arrays for it" in why


def windows(x: Any) -> Any:
    for k in range(3):
        x[2 * k : 2 * k + 2] = np.sin(x[2 * k + 2 : 2 * k + 4]) * 0.3 + x[2 * k : 2 * k + 2]
    return x


def in_iterations(x: Any) -> Any:
    def turn(c: Any, row: Any) -> Any:
        return np.tanh(c * 0.9 + row), np.sum(c * row)

    return tg.scan(turn, x[0], x), tg.scan(turn, x[1], x[:20])


# Each has steps that are equal, or equal but for one thing.
PROGRAMS: dict[str, Callable[[], Graph]] = {
    "layers": lambda: optimized(layers(4), x, [w] * 5),
    "constants": lambda: optimized(lambda x: [np.tanh(x @ w + c) for c in (0.25, 7.0, 1e3, -0.0, 0.0)], x),
    "one constant in several kernels": lambda: optimized(
        lambda x: (x * 5.5 @ w, np.sum(x * 5.5, 0), x * 5.5 + 1.25), x
    ),
    "dtypes": lambda: optimized(lambda x, y: [np.exp(a @ a.T) for a in (x, y)], x, x.astype("f4")),
    "sizes": lambda: optimized(lambda x: [np.exp(x[:n] @ w).sum(0) for n in (50, 30, 20, 8, 1)], x),
    "sizes that are one, and that only coincide": lambda: optimized(
        lambda x, y: (np.tanh(x @ w) * np.exp(x), np.tanh(y @ w) * np.exp(x)), x, x + 1
    ),
    "one buffer twice, and two": lambda: optimized(
        lambda x, y: [np.tanh(a * b) @ w for a, b in ((x, x), (x, y))], x, x
    ),
    "values with other uses": lambda: optimized(lambda x: [(x @ w) * 2.5 + 1.5, np.tanh(q := (x @ w.T) * 2.5) + q], x),
    "slices": lambda: optimized(lambda x: [np.cos(x[a : a + 20, b:]).sum(1) for a, b in ((0, 0), (9, 0), (20, 9))], x),
    "pads": lambda: optimized(
        lambda x: [np.pad(x[k:], 2, constant_values=c) @ np.ones(44) for k, c in ((0, 0.0), (1, 7.5))], x
    ),
    "gathers": lambda: optimized(lambda x, i: [np.exp(x[:, i]) @ w[:30], np.exp(x[:, i + 1]) @ w[:30]], x, places - 1),
    "scatters": lambda: optimized(tg.grad(lambda x, i: np.sum(x[:, i] ** 2) + np.sum(x[:, i - 1] ** 3)), x, places),
    "ranges": lambda: optimized(
        lambda x: [np.arange(a, a + 50 * s, s) @ np.sin(x) for a, s in ((0, 1), (9, 1), (9, 3))], x
    ),
    "running sums": lambda: optimized(lambda x: [np.cumsum(np.cumsum(x, axis=a) * 2, axis=a) for a in (0, 1)], x),
    "windows": lambda: optimized(windows, x),
    "joined": lambda: optimized(lambda x: [np.concatenate([x[k:], x[:k]]) * 2 @ w for k in (3, 9, 20)], x),
    "loops": lambda: optimized(in_iterations, x),
    "gradient of loops": lambda: optimized(tg.grad(lambda x: np.sum(in_iterations(x)[0][1])), x),
    "comparisons": lambda: optimized(lambda x: [np.where(x > c, x, -x) @ w for c in (0, 1, 99)], x),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_plan_is_that_of_steps_that_are_lowered_each(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = PROGRAMS[name]()
    kernel_cache.forget()
    results = [described(plan(graph)) for _ in range(2)]  # the second knows all kernels
    monkeypatch.setattr(kernel_cache, "known", lambda *_: None)
    assert results == [described(plan(graph))] * 2


def test_what_differs_in_a_literal_is_lowered_for_itself() -> None:
    kernel_cache.forget()
    both = tg.trace(lambda x: [np.tanh(x @ w + c) * s for c, s in ((0.0, 1), (-0.0, 1.0), (0.25, 3), (0.25, 4))])
    got = both(x)
    for y, (c, s) in zip(got, ((0.0, 1), (-0.0, 1.0), (0.25, 3), (0.25, 4))):
        np.testing.assert_allclose(y, np.tanh(x @ w + c) * s, rtol=1e-12)


def test_kernels_do_not_change_with_those_that_are_made_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps are changed in place later on: products are added by BLAS, buffers get other names."""
    kernel_cache.forget()
    graphs = [optimized(layers(count), x, [w] * 5) for count in (2, 4)]
    first = [described(plan(graph)) for graph in graphs]
    for _ in range(2):
        assert [described(plan(graph)) for graph in graphs] == first


def test_so_many_kernels_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_cache, "MAX_CACHED_KERNELS", 3)
    result = lowered(monkeypatch)
    for c in range(9):
        plan(optimized(lambda x: np.exp(x) * (c + 0.5), x))  # noqa: B023
    assert len(kernel_cache._kernels) == 3
    result.clear()
    plan(optimized(lambda x: np.exp(x) * 8.5, x))
    assert not result
    plan(optimized(lambda x: np.exp(x) * 0.5, x))
    assert len(result) == 1
    kernel_cache.forget()
