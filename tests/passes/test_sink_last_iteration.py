"""Carries that no iteration reads: their last value is computed behind the loop, where that is less."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad import passes
from tracegrad.ir import Graph, parse, run, verify
from tracegrad.passes.regions import sink_last_iteration

rng = np.random.default_rng(0)


def simplified(text: str) -> tuple[Graph, list[str]]:
    """The graph after all passes, which computes what it did before; and the ops of the loop's body."""
    before = verify(parse(text))
    after = verify(passes.optimize(before, verify=True))
    arrays = [
        rng.uniform(0.5, 1.5, a.shape) if a.dtype.kind == "f" else rng.integers(0, 4, a.shape) for a in before.avals
    ]
    for got, want in zip(run(after, arrays), run(before, arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)
    assert passes.optimize(after) == after
    loop = next(node for node in after.nodes if node.regions)
    return after, [node.name for node in loop.regions[0].nodes]


def loop(iteration: str, n: int = 9000, length: int = 20, value: str = "%5", reverse: bool = False) -> str:
    """w' = w * a, and a value that is `iteration`, in which %0 is w, %1 the old value, %2 a row, %3 `a` and %4 w'."""
    return f"""
graph(%0: f64[{n}], %1: f64[{n}], %2: f64[{length},{n}], %3: f64[{n}]) {{
  %4, %5 = scan(%0, %1, %2, %3) {{carries=2, length={length}, reverse={reverse}, xs=1}} : f64[{n}], f64[{n}]
    body(%0: f64[{n}], %1: f64[{n}], %2: f64[{n}], %3: f64[{n}]) {{
      %4 = multiply(%0, %3) : f64[{n}]
      {iteration}
      return %4, {value}
    }}
  return %4, %5
}}
"""


@pytest.mark.parametrize("reverse", [False, True])
def test_what_the_last_iteration_leaves_is_enough(reverse: bool) -> None:
    after, inside = simplified(loop("%5 = exp(%4) : f64[9000]", reverse=reverse))
    assert inside == ["multiply"]
    assert [node.name for node in after.nodes if node.result_index is None] == ["scan", "exp"]


@pytest.mark.parametrize(
    "iteration",
    [
        "%5 = sin(%0) : f64[9000]",  # the w of the iteration before
        "%5 = arctan2(%4, %2) : f64[9000]",  # a row
        "%5 = arctan2(%4, %1) : f64[9000]",  # the old value
    ],
)
def test_what_else_is_read_keeps_it_in_the_loop(iteration: str) -> None:
    _, inside = simplified(loop(iteration))
    assert len(inside) == 2


@pytest.mark.parametrize(("n", "length", "op"), [(9000, 20, "negative"), (9, 20, "exp"), (9000, 2, "square")])
def test_what_is_hardly_less_stays(n: int, length: int, op: str, monkeypatch: Any) -> None:
    text = loop(f"%5 = {op}(%4) : f64[{n}]", n, length)
    if op == "negative":  # 20 iterations of it are worth it, were it not for what is computed again
        monkeypatch.setattr(sink_last_iteration, "LEAST", 20 * n)
    _, inside = simplified(text)
    assert len(inside) == 2


def test_what_may_fail_fails_in_its_iteration() -> None:
    _, inside = simplified("""
graph(%0: i64[], %1: f64[9000], %2: f64[4,9000]) {
  %3, %4 = scan(%0, %1, %2) {carries=2, length=20, reverse=False, xs=0} : i64[], f64[9000]
    body(%0: i64[], %1: f64[9000], %2: f64[4,9000]) {
      %3 = negative(%0) : i64[]
      %4 = gather(%2, %3) {axes=(0,)} : f64[9000]
      %5 = exp(%4) : f64[9000]
      return %3, %5
    }
  return %3, %4
}
""")
    assert inside == ["negative", "gather", "exp"]


def test_a_loop_of_which_only_such_values_are_wanted() -> None:
    _, inside = simplified("""
graph(%0: f64[9000], %1: f64[9000], %2: f64[9000]) {
  %3, %4, %5 = scan(%0, %1, %2) {carries=3, length=20, reverse=False, xs=0} : f64[9000], f64[9000], f64[9000]
    body(%0: f64[9000], %1: f64[9000], %2: f64[9000]) {
      %3 = multiply(%0, 0.5) : f64[9000]
      %4 = exp(%3) : f64[9000]
      %5 = tanh(%4) : f64[9000]
      return %3, %4, %5
    }
  return %4, %5
}
""")
    assert inside == ["multiply"]


# -- functions -------------------------------------------------------------------------------------------------
X, Y, P = rng.standard_normal((600, 20)), rng.integers(0, 2, 600), rng.standard_normal(20)


def trajectory(value_and_grad: Any, w: Any) -> Any:
    """What leapfrog steps come to, of which only the last one's value counts."""
    p, (value, g) = P, value_and_grad(w)
    for _ in range(30):
        p = p - 0.01 * g
        w = w + 0.02 * p
        value, g = value_and_grad(w)
        p = p - 0.01 * g
    return value + 0.5 * np.sum(p * p)


def loss(w: Any) -> Any:
    z = X @ w
    return np.mean(np.log(1.0 + np.exp(-z)) + (1.0 - Y) * z)


def by_hand(w: Any) -> Any:
    return loss(w), X.T @ (1.0 - Y - 1.0 / (1.0 + np.exp(X @ w))) / len(X)


def test_the_value_of_the_last_gradient_is_computed_once() -> None:
    run = tg.trace(lambda w: trajectory(tg.value_and_grad(loss), w))
    w = 0.1 * rng.standard_normal(20)
    for _ in range(2):  # by NumPy, by machine code
        np.testing.assert_allclose(run(w), trajectory(by_hand, w), rtol=1e-11)
    graph = run.explain(w).optimized
    (iterations,) = [node.regions[0] for node in graph.nodes if node.regions]
    assert "log" not in {node.name for node in iterations.nodes}
    assert "log" in {node.name for node in graph.nodes}


def test_the_derivative_of_such_a_loop() -> None:
    derivative = tg.grad(lambda w: trajectory(tg.value_and_grad(loss), w))
    w, along = 0.1 * rng.standard_normal(20), rng.standard_normal(20)
    imaginary = trajectory(by_hand, w + 1e-30j * along).imag / 1e-30
    for _ in range(2):
        np.testing.assert_allclose(derivative(w) @ along, imaginary, rtol=1e-10)
