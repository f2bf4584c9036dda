"""What does a new process pay? Import, then the first calls of programs that the disk cache holds.

Every sample is a process of its own, which times itself from its first statement on and reports. Two short programs
share one process; each larger one has its own.
"""

from __future__ import annotations

import functools
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.harness import Case, Factory, Run, Settings, Timed, printed
from benchmarks.peers import need, torch_compiler

PACKAGES: tuple[str, ...] = ()

CLOCK = """
import json, time
start = time.perf_counter()
{imports}
imported = time.perf_counter()
x = np.linspace(-1.2, 1.2, 10)
def rosenbrock(x):
    return (100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2).sum()
def ripple(x):
    return ({xp}.sin(x) * {xp}.exp(-x * x) / (1.0 + x * x)).sum()
{prepare}
before = time.perf_counter()
first = call(rosenbrock)
between = time.perf_counter()
second = call(ripple)
after = time.perf_counter()
print(json.dumps(dict(
    time={{"import": imported - start, "first program": between - before, "second program": after - between}},
    values=[float(first[0]), *map(float, first[1]), float(second[0]), *map(float, second[1])],
)))
"""

# The larger programs, each of a vector of parameters.
LARGER = """
def of_parts(p, *shapes):
    found = []
    for shape in shapes:
        n = int(np.prod(shape))
        found.append(p[:n].reshape(shape))
        p = p[n:]
    return found
points, targets = np.sin(np.arange(256.0)).reshape(32, 8), np.cos(np.arange(128.0)).reshape(32, 4)
def mlp(p):
    w1, b1, w2, b2 = of_parts(p, (8, 16), (16,), (16, 4), (4,))
    return ((({xp}.tanh(points @ w1 + b1)) @ w2 + b2 - targets) ** 2).mean()
def attention(p):
    q, k, v = [points @ w for w in of_parts(p, (8, 8), (8, 8), (8, 8))]
    e = {xp}.exp(q @ k.T / 8.0)
    return ((e / e.sum(axis=-1, keepdims=True) @ v) ** 2).sum()
seen = np.sin(0.3 * np.arange(60.0))
def iteration(state, y, p):
    m, s, total = state
    f, h = {xp}.array([[1.0, 0.1], [0.0, 1.0]]), {xp}.array([[1.0, 0.0]])
    m, s = f @ m, f @ s @ f.T + {xp}.eye(2) * p[0]
    c = (h @ s @ h.T)[0, 0] + p[1]
    k, e = (s @ h.T)[:, 0] / c, y - (h @ m)[0]
    return m + k * e, s - {xp}.outer(k, h @ s), total + {xp}.log(c) + e * e / c
def kalman(p):
    state = {xp}.zeros(2, p.dtype), {xp}.eye(2) * p[2], 0.0 * p[0]
    for y in seen:
        state = iteration(state, y, p)
    return state[2]
"""
ALONE = """
import json, sys, time
{imports}
{larger}
{prepare}
program = {program}
p = np.sin(1.0 + np.arange({size})) ** 2 + 0.5
before = time.perf_counter()
value, gradient = call(program, p)
after = time.perf_counter()
values = [float(value), *map(float, gradient)]
print(json.dumps(dict(time={{"call": after - before}}, values=values)))
"""
SIZES = {"mlp": 212, "attention": 192, "kalman": 3}
ONE = {
    "tracegrad": "call = lambda f, p: tg.value_and_grad(f)(p)",
    "jax": """
def kalman(p):
    state = jax.numpy.zeros(2), jax.numpy.eye(2) * p[2], 0.0 * p[0]
    return jax.lax.scan(lambda state, y: (iteration(state, y, p), None), state, seen)[0][2]
call = lambda f, p: jax.block_until_ready(jax.jit(jax.value_and_grad(f))(p))
""",
}

PROGRAMS = {
    "numpy": {"imports": "import numpy as np", "xp": "np", "prepare": "call = lambda f: (f(x), x)"},
    "tracegrad": {
        "imports": "import numpy as np, tracegrad as tg",
        "xp": "np",
        "prepare": "call = lambda f: tg.value_and_grad(f)(x)",
    },
    "jax": {
        "imports": "import numpy as np, jax\njax.config.update('jax_enable_x64', True)",
        "xp": "jax.numpy",
        "prepare": "call = lambda f: jax.block_until_ready(jax.jit(jax.value_and_grad(f))(x))",
    },
    "torch.compile": {
        "imports": "import numpy as np, torch",
        "xp": "torch",
        "prepare": """
def call(f):
    leaf = torch.from_numpy(x).requires_grad_()
    value = torch.compile(f, fullgraph=True)(leaf)
    return value, torch.autograd.grad(value, leaf)[0]
""",
    },
}


def expected() -> Any:
    x = np.linspace(-1.2, 1.2, 10)
    left, d = x[:-1], x[1:] - x[:-1] ** 2
    gradient = np.zeros(10)
    gradient[:-1] = -400.0 * left * d - 2.0 * (1.0 - left)
    gradient[1:] += 200.0 * d
    s, c, e, q = np.sin(x), np.cos(x), np.exp(-x * x), 1.0 + x * x
    ripple = (c * e - 2.0 * x * s * e) / q - 2.0 * x * s * e / q**2
    values = [np.sum(100.0 * d**2 + (1.0 - left) ** 2), *gradient, np.sum(s * e / q), *ripple]
    return np.array(values)


def expected_alone(program: str) -> Any:
    """The value and the gradient of one of the larger programs, by complex steps."""
    space: dict[str, Any] = {"np": np}
    exec(LARGER.format(xp="np"), space)
    p = np.sin(1.0 + np.arange(SIZES[program])) ** 2 + 0.5
    steps = [space[program](p + 1e-30j * one).imag / 1e-30 for one in np.eye(p.size)]
    return np.array([space[program](p), *steps])


def run_process(program: str, environment: dict[str, str], alone: str = "") -> dict[str, Any]:
    """Run a program in a new process and give back what it printed."""
    words = PROGRAMS[program]
    source = CLOCK.format(**words)
    if alone:
        larger, prepare = LARGER.format(**words), ONE[program]
        source = ALONE.format(
            imports=words["imports"], larger=larger, prepare=prepare, program=alone, size=SIZES[alone]
        )
    report: dict[str, Any] = printed(source, environment)
    return report


def timed(report: dict[str, Any], part: str) -> Timed:
    return Timed(report["time"][part], np.array(report["values"]))


def in_new_process(program: str, part: str, folder_variable: str | None, warm: bool, alone: str = "") -> Factory:
    """A peer whose every call is a new process, with a full or an empty cache folder."""

    def factory() -> Run:
        torch_compiler() if program == "torch.compile" else need(program)
        if folder_variable is None:
            return lambda: timed(run_process(program, {}, alone), part)
        if warm:
            folder = tempfile.TemporaryDirectory(prefix="warm-start-")
            run_process(program, {folder_variable: folder.name}, alone)
            return lambda: timed(run_process(program, {folder_variable: folder.name}, alone), part)

        def cold() -> Timed:
            with tempfile.TemporaryDirectory(prefix="cold-start-") as empty:
                return timed(run_process(program, {folder_variable: empty}, alone), part)

        return cold

    return factory


def import_only(statement: str, package: str) -> Factory:
    """A peer whose every call is a new process that only imports."""
    source = f"import time; s = time.perf_counter(); {statement}; print(time.perf_counter() - s)"

    def run() -> Timed:
        done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
        return Timed(float(done.stdout), np.zeros(0))

    def factory() -> Run:
        need(package)
        return run

    return factory


def cases(settings: Settings) -> list[Case]:
    def programs(part: str) -> dict[str, Factory]:
        return {
            "tracegrad": in_new_process("tracegrad", part, "TRACEGRAD_CACHE_DIR", warm=True),
            "tracegrad, no cache": in_new_process("tracegrad", part, "TRACEGRAD_CACHE_DIR", warm=False),
            "jax": in_new_process("jax", part, None, warm=False),
            "torch.compile": in_new_process("torch.compile", part, "TORCHINDUCTOR_CACHE_DIR", warm=True),
        }

    def larger(program: str) -> dict[str, Factory]:
        return {
            "tracegrad": in_new_process("tracegrad", "call", "TRACEGRAD_CACHE_DIR", warm=True, alone=program),
            "tracegrad, no cache": in_new_process(
                "tracegrad", "call", "TRACEGRAD_CACHE_DIR", warm=False, alone=program
            ),
            "jax": in_new_process("jax", "call", None, warm=False, alone=program),
        }

    imports = {name: import_only(f"import {name}", name) for name in ("tracegrad", "numpy", "numba", "jax", "torch")}
    questions: list[tuple[str, Callable[[], Any], dict[str, Factory]]] = [
        ("warm start: import", lambda: np.zeros(0), imports),
        ("warm start: first program's first call, caches full", expected, programs("first program")),
        ("warm start: second program's first call, caches full", expected, programs("second program")),
    ]
    for program in SIZES:
        right = functools.partial(expected_alone, program)
        questions.append((f"warm start: {program}, its first call, cache full", right, larger(program)))
    return [Case(name, peers, right, once=True) for name, right, peers in questions]
