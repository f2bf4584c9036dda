"""How fast are derivatives of derivatives, of batches and of loops?

The cases are a Hessian, Jacobians of 10,000 small functions, first calls of short and of long loops, an iteration of
ten scalar operations, a recurrent network, and the memory of the gradient of a long loop.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.bench_compile import orders
from benchmarks.harness import Case, Factory, Run, Settings, Skip, Timed
from benchmarks.peers import jitted, need

PACKAGES = ("tracegrad", "numba", "jax")


# -- a Hessian -----------------------------------------------------------------------------------------------
def ripples(xp: Any, logsumexp: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    """sum(sin(A x)**2 * exp(-x**2 / 2)) + logsumexp(x), as a function of x and A."""

    def f(x: Any, a: Any) -> Any:
        return xp.sum(xp.sin(a @ x) ** 2 * xp.exp(-(x**2) / 2)) + logsumexp(x)

    return f


def hessian_by_hand(x: Any, a: Any) -> Any:
    """The Hessian of `ripples` by the product rule."""
    y, e = a @ x, np.exp(-(x**2) / 2)
    mixed = (np.sin(2 * y) * x * e)[:, None] * a
    p = np.exp(x - x.max())
    p /= p.sum()
    own = np.sin(y) ** 2 * (x**2 - 1) * e + p
    return a.T @ ((2 * np.cos(2 * y) * e)[:, None] * a) - mixed - mixed.T + np.diag(own) - np.outer(p, p)


def hessian_case() -> Case:
    rng = np.random.default_rng(0)
    x, a = rng.standard_normal(50), rng.standard_normal((50, 50)) / 7

    def tracegrad() -> Run:
        from scipy.special import logsumexp

        return functools.partial(need("tracegrad").hessian(ripples(np, logsumexp)), x, a)

    def jax() -> Run:
        module = need("jax")
        return jitted(module.hessian(ripples(module.numpy, module.scipy.special.logsumexp)), x, a)

    peers: dict[str, Factory] = {
        "tracegrad": tracegrad,
        "numpy by hand": lambda: functools.partial(hessian_by_hand, x, a),
        "jax": jax,
    }
    return Case("hessian: 50 variables, float64", peers, lambda: hessian_by_hand(x, a))


# -- Jacobians of a batch ------------------------------------------------------------------------------------
def camera(xp: Any) -> Callable[[Any], Any]:
    """Where a camera sees a point: turned by Rodrigues' formula, moved, distorted by the radius, scaled, shifted.

    The 15 parameters are rotation, translation, focal lengths, centre, two coefficients of distortion, the point.
    """

    def project(p: Any) -> Any:
        w, point = p[0:3], p[12:15]
        angle = xp.sqrt(xp.sum(w * w))
        axis = w / angle
        cos, sin = xp.cos(angle), xp.sin(angle)
        transposed = point * cos + xp.cross(axis, point) * sin + axis * (xp.sum(axis * point) * (1.0 - cos))
        seen = transposed + p[3:6]
        flat = seen[0:2] / seen[2]
        radius = xp.sum(flat * flat)
        return p[6:8] * flat * (1.0 + p[10] * radius + p[11] * radius * radius) + p[8:10]

    return project


def jacobians_by_complex_steps(cameras: Any) -> Any:
    """The derivative of `camera` for each row, exact to rounding: the imaginary part of a tiny imaginary step."""
    step = 1e-30
    columns = []
    for k in range(cameras.shape[1]):
        moved = cameras.astype(complex)
        moved[:, k] += 1j * step
        columns.append(np.stack([camera(np)(p) for p in moved]).imag / step)
    return np.stack(columns, axis=-1)


def cameras(count: int) -> Any:
    rng = np.random.default_rng(1)
    p = rng.standard_normal((count, 15))
    p[:, 5] += 10.0
    p[:, 6:8] += 100.0
    p[:, 10:12] *= 0.01
    return p


def camera_case() -> Case:
    p = cameras(10_000)

    def tracegrad() -> Run:
        tg = need("tracegrad")
        return functools.partial(tg.trace(tg.vmap(tg.jacrev(camera(np)))), p)

    def jax() -> Run:
        module = need("jax")
        return jitted(module.vmap(module.jacrev(camera(module.numpy))), p)

    def right() -> Any:
        return jacobians_by_complex_steps(p)

    return Case("vmap of jacrev: 10,000 cameras, 2 by 15", {"tracegrad": tracegrad, "jax": jax}, right)


# -- loops -----------------------------------------------------------------------------------------------------
STATE = np.linspace(0.1, 0.6, 20)
WEIGHT = np.linspace(0.9, 1.1, 20)


def long_loop(xp: Any, scan: Callable[..., Any], order: tuple[str, ...], steps: int) -> Callable[[Any], Any]:
    """The sum of a state after so many steps, each of which applies the ops in this order."""

    def step(h: Any, _: Any) -> Any:
        y = h * WEIGHT
        for name in order:
            y = getattr(xp, name)(y)
        return 0.9 * h + 0.1 * y, None

    return lambda x: xp.sum(scan(step, x, None, steps)[0])


def loop_by_hand(order: tuple[str, ...], steps: int) -> Any:
    """Value of `long_loop` and its gradient: states are elementwise, so the slopes of the steps multiply."""
    h, derivative = STATE.astype(complex) + 1e-30j, 1.0
    for _ in range(steps):
        y = h * WEIGHT
        for name in order:
            y = getattr(np, name)(y)
        h = 0.9 * h + 0.1 * y
        derivative, h = derivative * h.imag / 1e-30, h.real + 1e-30j
    return np.sum(h.real), derivative


def first_call_case(steps: int, unseen: Sequence[tuple[str, ...]]) -> Case:
    """Every call is the first of a function of its own, whose ops come in an order that no cache has seen."""

    def each_new(build: Callable[[tuple[str, ...]], Callable[[], Any]]) -> Run:
        remaining = iter(unseen)
        return lambda: build(next(remaining))()

    def tracegrad(order: tuple[str, ...]) -> Run:
        tg = need("tracegrad")
        return functools.partial(tg.value_and_grad(long_loop(np, tg.scan, order, steps)), STATE)

    def jax(order: tuple[str, ...]) -> Run:
        module = need("jax")
        return jitted(module.value_and_grad(long_loop(module.numpy, module.lax.scan, order, steps)), STATE)

    peers: dict[str, Factory] = {"tracegrad": lambda: each_new(tracegrad), "jax": lambda: each_new(jax)}
    return Case(
        f"scan of {steps:,} steps: first call, value and gradient",
        peers,
        lambda: loop_by_hand(unseen[0], steps),
        once=True,
    )


ITERATIONS = 1_000_000


def turn(i: Any, state: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
    """Ten operations on three numbers: a rotation, and a mean of what it gives."""
    x, y, z = state
    x, y = 0.8 * x - 0.6 * y, 0.6 * x + 0.8 * y
    r = x + y
    return x, y, 0.5 * (z + r * r)


def iterations_in_python(count: int) -> Any:
    state = (1.0, 0.25, 0.0)
    for i in range(count):
        state = turn(i, state)
    return state


def iterations_case() -> Case:
    start = (1.0, 0.25, 0.0)

    def tracegrad() -> Run:
        tg = need("tracegrad")
        return functools.partial(tg.trace(lambda x, y, z: tg.fori_loop(0, ITERATIONS, turn, (x, y, z))), *start)

    def numba() -> Run:
        module = need("numba")
        body = module.njit(turn)

        @module.njit
        def loop(x, y, z):  # type: ignore[no-untyped-def]
            state = (x, y, z)
            for i in range(ITERATIONS):
                state = body(i, state)
            return state

        return lambda: loop(*start)

    def jax() -> Run:
        module = need("jax")
        return jitted(lambda x, y, z: module.lax.fori_loop(0, ITERATIONS, turn, (x, y, z)), *start)

    peers: dict[str, Factory] = {"tracegrad": tracegrad, "numba by hand": numba, "jax": jax}
    return Case(
        "fori_loop: 1,000,000 iterations of 10 scalar operations (1 ms is 1 ns an iteration)",
        peers,
        functools.partial(iterations_in_python, ITERATIONS),
    )


# -- a recurrent network -------------------------------------------------------------------------------------
def network(xp: Any, scan: Callable[..., Any]) -> Callable[..., Any]:
    """The mean square of the last states of h = tanh(x W + h U + b), for rows x of a sequence of batches."""

    def loss(parameters: tuple[Any, Any, Any], xs: Any) -> Any:
        w, u, b = parameters

        def step(h: Any, x: Any) -> Any:
            return xp.tanh(x @ w + h @ u + b), None

        h, _ = scan(step, xp.zeros((xs.shape[1], b.shape[0])), xs)
        return xp.mean(h * h)

    return loss


def network_by_hand(parameters: tuple[Any, Any, Any], xs: Any) -> Any:
    """Value and gradient of `network`, through time."""
    w, u, b = parameters
    states = [np.zeros((xs.shape[1], b.shape[0]))]
    for x in xs:
        states.append(np.tanh(x @ w + states[-1] @ u + b))
    gradients = [np.zeros_like(p) for p in parameters]
    d = 2.0 * states[-1] / states[-1].size
    for x, before, after in zip(xs[::-1], states[-2::-1], states[:0:-1]):
        d = d * (1.0 - after**2)
        for total, share in zip(gradients, (x.T @ d, before.T @ d, d.sum(0))):
            total += share
        d = d @ u.T
    return np.mean(states[-1] ** 2), tuple(gradients)


def network_case(steps: int, batch: int, inputs: int, size: int) -> Case:
    rng = np.random.default_rng(2)
    parameters = tuple(rng.standard_normal(s) / np.sqrt(size) for s in ((inputs, size), (size, size), (size,)))
    xs = rng.standard_normal((steps, batch, inputs))

    def tracegrad() -> Run:
        tg = need("tracegrad")
        return functools.partial(tg.value_and_grad(network(np, tg.scan)), parameters, xs)

    def jax() -> Run:
        module = need("jax")
        return jitted(module.value_and_grad(network(module.numpy, module.lax.scan)), parameters, xs)

    peers: dict[str, Factory] = {
        "tracegrad": tracegrad,
        "numpy by hand": lambda: functools.partial(network_by_hand, parameters, xs),
        "jax": jax,
    }
    name = f"recurrent network: {steps} steps, batch {batch}, {inputs} to {size}, value and gradient"
    return Case(name, peers, lambda: network_by_hand(parameters, xs))


# -- memory ------------------------------------------------------------------------------------------------------
MEMORY = """
import json, pathlib, re, time
import numpy as np
def memory(which):
    return 1024 * int(re.search(which + r":\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1])
{imports}
def step(h, _):
    y = {xp}.sin(h) * {xp}.exp(-h * h)
    return {xp}.tanh(y + {xp}.cos(y * h)) * 0.5 + h * 0.5, None
def loss(x):
    return {xp}.sum({scan}[0])
call = {call}
x = np.linspace(-1.0, 1.0, {size})
call(x[:8])
before = memory("VmRSS")
call(x)
pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak of compiling does not count
value, gradient = call(x)
peak = memory("VmHWM") - before
start = time.perf_counter()
value, gradient = call(x)
seconds = time.perf_counter() - start
print(json.dumps(dict(seconds=seconds, peak=peak, values=[float(value), float(np.asarray(gradient)[3])])))
"""

STEPS, SIZE = 200, 100_000
TRACEGRAD = {"imports": "import tracegrad as tg", "xp": "np", "call": "tg.value_and_grad(loss)"}
JAX = {
    "imports": "import jax\njax.config.update('jax_enable_x64', True)",
    "xp": "jax.numpy",
    "call": "lambda x: jax.block_until_ready(jit(x))\njit = jax.jit(jax.value_and_grad(loss))",
}
LOOPS = {
    "tracegrad": TRACEGRAD | {"scan": "tg.scan(step, x, None, {steps})"},
    "tracegrad, checkpoint": TRACEGRAD | {"scan": "tg.scan(step, x, None, {steps}, checkpoint=True)"},
    "tracegrad, 14 segments": TRACEGRAD | {"scan": "tg.scan(step, x, None, {steps}, checkpoint=14)"},
    "jax": JAX | {"scan": "jax.lax.scan(step, x, None, {steps})"},
    "jax, checkpoint": JAX | {"scan": "jax.lax.scan(jax.checkpoint(step), x, None, {steps})"},
}


def memory_by_hand(steps: int, size: int) -> Any:
    """What the program prints: the value, and one element of the gradient."""
    h, derivative = np.linspace(-1.0, 1.0, size) + 1e-30j, 1.0
    for _ in range(steps):
        y = np.sin(h) * np.exp(-h * h)
        h = np.tanh(y + np.cos(y * h)) * 0.5 + h * 0.5
        derivative, h = derivative * h.imag / 1e-30, h.real + 1e-30j
    return np.array([np.sum(h.real), derivative[3]])


def measured(peer: str, steps: int, size: int) -> Timed:
    """A process of its own: the time of a warm call, and the most memory on top of that of a small problem."""
    words = LOOPS[peer] | {"scan": LOOPS[peer]["scan"].format(steps=steps)}
    source = MEMORY.format(**words, size=size)
    done = subprocess.run(
        [sys.executable, "-c", source], env=dict(os.environ), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip().rpartition("\n")[2])
    report = json.loads(done.stdout)
    return Timed(report["seconds"], np.array(report["values"]), report["peak"])


def memory_case() -> Case:
    def peer(name: str) -> Factory:
        def factory() -> Run:
            need(name.partition(",")[0])
            if not sys.platform.startswith("linux"):
                raise Skip("the peak of memory is measured on Linux alone")
            return lambda: measured(name, STEPS, SIZE)

        return factory

    name = f"gradient of a scan of {STEPS} steps over {SIZE:,} numbers: memory, a warm call"
    return Case(name, {name: peer(name) for name in LOOPS}, lambda: memory_by_hand(STEPS, SIZE), once=True)


def cases(settings: Settings) -> Iterator[Case]:
    yield hessian_case()
    yield camera_case()
    several = list(orders())
    yield first_call_case(10, several[::2])
    yield first_call_case(1_000, several[1::2])
    yield iterations_case()
    yield network_case(100, 1, 4, 16)
    yield network_case(64, 32, 32, 128)
    yield memory_case()
