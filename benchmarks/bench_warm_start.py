"""What does a new process pay? Import, then the first calls of two programs that the disk cache holds.

Every sample is a process of its own, which times itself from its first statement on and reports.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.harness import Case, Factory, Run, Settings, Timed
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


def run_process(program: str, environment: dict[str, str]) -> dict[str, Any]:
    """Run a program in a new process and give back what it printed."""
    source = CLOCK.format(**PROGRAMS[program])
    environment = {**os.environ, **environment}
    done = subprocess.run([sys.executable, "-c", source], env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().rpartition("\n")[2])
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def timed(report: dict[str, Any], part: str) -> Timed:
    return Timed(report["time"][part], np.array(report["values"]))


def in_new_process(program: str, part: str, folder_variable: str | None, warm: bool) -> Factory:
    """A peer whose every call is a new process, with a full or an empty cache folder."""

    def factory() -> Run:
        torch_compiler() if program == "torch.compile" else need(program)
        if folder_variable is None:
            return lambda: timed(run_process(program, {}), part)
        if warm:
            folder = tempfile.TemporaryDirectory(prefix="warm-start-")
            run_process(program, {folder_variable: folder.name})
            return lambda: timed(run_process(program, {folder_variable: folder.name}), part)

        def cold() -> Timed:
            with tempfile.TemporaryDirectory(prefix="cold-start-") as empty:
                return timed(run_process(program, {folder_variable: empty}), part)

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

    imports = {name: import_only(f"import {name}", name) for name in ("tracegrad", "numpy", "numba", "jax", "torch")}
    questions: list[tuple[str, Callable[[], Any], dict[str, Factory]]] = [
        ("warm start: import", lambda: np.zeros(0), imports),
        ("warm start: first program's first call, caches full", expected, programs("first program")),
        ("warm start: second program's first call, caches full", expected, programs("second program")),
    ]
    return [Case(name, peers, right, once=True) for name, right, peers in questions]
