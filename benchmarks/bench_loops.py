"""How fast are Python loops, as users write them?

The cases are first calls with 10 and 1,000 iterations, and a neural differential equation solved by a Runge-Kutta
method (`workloads` has recurrent networks). tracegrad gets Python loops; JAX gets `lax.scan`, which is faster for it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.bench_compile import orders
from benchmarks.harness import Case, Factory, Run, Settings, Skip
from benchmarks.peers import jitted, need

PACKAGES = ("tracegrad", "numba", "jax")


# -- first calls ---------------------------------------------------------------------------------------------
START = np.linspace(0.1, 0.6, 20)
WEIGHT = np.linspace(0.9, 1.1, 20)


def step(xp: Any, order: tuple[str, ...], x: Any) -> Any:
    """One iteration: the ops in this order, and a part of the state that stays."""
    y = x * WEIGHT + 0.2
    for name in order:
        y = getattr(xp, name)(y)
    return x - 0.1 * (x - y)


def relaxed(xp: Any, order: tuple[str, ...], steps: int) -> Callable[[Any], Any]:
    """The sum of a state after so many iterations of a Python loop."""

    def f(x: Any) -> Any:
        for _ in range(steps):
            x = step(xp, order, x)
        return xp.sum(x)

    return f


def relaxed_by_hand(order: tuple[str, ...], steps: int) -> Any:
    """Value and gradient: the states are elementwise, so the slopes of the iterations multiply; these by complex
    steps."""
    x, derivative = START, np.ones(20)
    for _ in range(steps):
        moved = step(np, order, x + 1e-30j)
        derivative, x = derivative * moved.imag / 1e-30, moved.real
    return np.sum(x), derivative


def first_call_case(steps: int, unseen: Sequence[tuple[str, ...]]) -> Case:
    """Every call is the first of a function of its own, whose ops come in an order that no cache has seen."""

    def each_new(build: Callable[[Any], Run], xp: Any) -> Run:
        remaining = iter(unseen)
        return lambda: build(relaxed(xp, next(remaining), steps))()

    def tracegrad() -> Run:
        transform = need("tracegrad").value_and_grad
        return each_new(lambda f: functools.partial(transform(f), START), np)

    def jax() -> Run:
        if steps > 100:
            raise Skip("compiles each iteration: half a minute for 1,000")
        module = need("jax")
        return each_new(lambda f: jitted(module.value_and_grad(f), START), module.numpy)

    peers: dict[str, Factory] = {"tracegrad": tracegrad, "jax": jax}
    return Case(
        f"Python loop of {steps:,} iterations: first call, value and gradient",
        peers,
        lambda: relaxed_by_hand(unseen[0], steps),
        once=True,
    )


# -- a neural differential equation --------------------------------------------------------------------------
SPAN, STEPS = 2.0, 200


def solved(xp: Any, repeat: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The sum of squares of y at the end, where y' = V tanh(W y + b): classical Runge-Kutta steps."""

    def loss(parameters: tuple[Any, Any, Any], start: Any) -> Any:
        w, b, v = parameters
        h = SPAN / STEPS

        def slope(y: Any) -> Any:
            return v @ xp.tanh(w @ y + b)

        def step(y: Any) -> Any:
            k1 = slope(y)
            k2 = slope(y + 0.5 * h * k1)
            k3 = slope(y + 0.5 * h * k2)
            k4 = slope(y + h * k3)
            return y + h / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)

        y = repeat(step, start)
        return xp.sum(y * y)

    return loss


def in_python(step: Callable[[Any], Any], y: Any) -> Any:
    for _ in range(STEPS):
        y = step(y)
    return y


def solved_by_hand(w: Any, b: Any, v: Any, start: Any) -> Any:
    """Value and gradient of `solved`, step by step backwards. What numba compiles, and what NumPy runs."""
    size, hidden = start.shape[0], b.shape[0]
    h = SPAN / STEPS
    ys = np.empty((STEPS + 1, size))
    acts = np.empty((STEPS, 4, hidden))
    at = np.empty((STEPS, 4, size))
    parts = np.array([0.5 * h, 0.5 * h, h])
    shares = np.array([1.0, 2.0, 2.0, 1.0]) * (h / 6.0)
    ys[0] = start
    for n in range(STEPS):
        y, k = ys[n], np.zeros(size)
        total = y.copy()
        for stage in range(4):
            place = y if stage == 0 else y + parts[stage - 1] * k
            a = np.tanh(w @ place + b)
            k = v @ a
            at[n, stage], acts[n, stage] = place, a
            total = total + shares[stage] * k
        ys[n + 1] = total
    dw, db, dv = np.zeros(w.shape), np.zeros(b.shape), np.zeros(v.shape)
    d = 2.0 * ys[STEPS]
    wt, vt = np.ascontiguousarray(w.T), np.ascontiguousarray(v.T)
    for n in range(STEPS - 1, -1, -1):
        before, dk = d.copy(), np.zeros(size)
        for stage in range(3, -1, -1):
            dk = dk + shares[stage] * d
            a = acts[n, stage]
            dv += np.outer(dk, a)
            da = (vt @ dk) * (1.0 - a * a)
            db += da
            dw += np.outer(da, at[n, stage])
            place = wt @ da
            before = before + place
            dk = parts[stage - 1] * place if stage else dk
        d = before
    return np.sum(ys[STEPS] * ys[STEPS]), dw, db, dv


def equation_case() -> Case:
    rng = np.random.default_rng(3)
    w, b, v = rng.standard_normal((32, 8)) / 3, rng.standard_normal(32) / 3, rng.standard_normal((8, 32)) / 6
    start = rng.standard_normal(8)

    def right() -> Any:
        value, *gradient = solved_by_hand(w, b, v, start)
        return value, tuple(gradient)

    def tracegrad() -> Run:
        return functools.partial(need("tracegrad").value_and_grad(solved(np, in_python)), (w, b, v), start)

    def numba() -> Run:
        compiled = need("numba").njit(solved_by_hand)

        def run() -> Any:
            value, dw, db, dv = compiled(w, b, v, start)
            return value, (dw, db, dv)

        return run

    def jax() -> Run:
        module = need("jax")

        def repeat(step: Callable[[Any], Any], y: Any) -> Any:
            return module.lax.scan(lambda y, _: (step(y), None), y, None, STEPS)[0]

        return jitted(module.value_and_grad(solved(module.numpy, repeat)), (w, b, v), start)

    peers: dict[str, Factory] = {"tracegrad": tracegrad, "numba by hand": numba, "jax": jax}
    return Case("neural ODE: 8 states, 32 hidden, 200 steps, value and gradient", peers, right)


def cases(settings: Settings) -> Iterator[Case]:
    for k, steps in enumerate((10, 1_000)):
        yield first_call_case(steps, list(orders())[k::2])
    yield equation_case()
