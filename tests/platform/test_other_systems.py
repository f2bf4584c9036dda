"""The machine code of other systems calls no function that they do not have.

LLVM makes it here for each of them, from the IR of programs whose kernels have no instructions of x86.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from typing import NamedTuple

import pytest
from object_code import object_code
from paths import ROOT

from tracegrad.platform import libraries
from tracegrad.platform.object_files import symbols
from tracegrad.runtime.compile.pass_pipelines import Pipeline
from tracegrad.runtime.threads import pool

# Runs programs of many kinds without a cache, and prints the IR of all modules, with their pipelines.
PROGRAM = """
import json
import numpy as np
from tracegrad.runtime.compile import jit
texts, emitted = [], jit.emitted
def recorded(text, name, pipeline, form):
    texts.append((name, text, (pipeline.level, pipeline.codegen, pipeline.vectorize, pipeline.unroll)))
    return emitted(text, name, pipeline, form)
jit.emitted = recorded
import tracegrad as tg
from tracegrad.runtime.blas import library
from tracegrad.runtime.memory import allocator
x, matrix = np.linspace(0.1, 2.0, 100), np.random.default_rng(0).random((60, 60))
def smooth(x):
    return np.exp(x) + np.log(x) + np.sin(x) * np.cos(x) + np.tanh(x) + np.power(x, 2.5) + np.arctan2(x, 2 * x)
def rounded(x):
    return np.remainder(x, 0.3) + np.floor_divide(x, 0.7) + np.fmod(x, 0.4) + np.rint(x) + np.sign(x) + np.ldexp(x, 2)
def ordered(x):
    return np.sort(x) + np.cumsum(x) + np.argsort(x)
def solved(m):
    return np.linalg.solve(m, m) @ m + np.linalg.inv(m) + np.linalg.cholesky(m @ m.T + np.eye(60))
def looped(x):
    carry, ys = tg.scan(lambda c, y: (c * np.tanh(y), c), 1.0, x)
    return carry + np.sum(ys)
for function in (smooth, rounded, ordered, tg.grad(looped)):
    tg.trace(function)(x)
tg.trace(rounded)(x.astype(np.float32))
tg.trace(lambda x: x.astype(np.float16) * 2)(x)
tg.trace(lambda i: i // 3 + i % 7 + i**3)(np.arange(100))
tg.trace(ordered)(np.arange(100))
tg.trace(solved)(matrix)
tg.grad(lambda m: np.sum(np.tanh(m @ m)))(matrix)
library.address("dgemm"), library.address("sgemm"), allocator.idle_bytes()
print(json.dumps(texts))
"""
PYTHON = ("Py", "tg")  # functions of CPython and of the package
POSIX = """
    aligned_alloc calloc clock_gettime floor floorf fma fmaf fmod fmodf free madvise malloc memcpy memmove memset rint
    rintf pthread_cond_init pthread_cond_signal pthread_cond_wait pthread_create pthread_detach
    pthread_mutex_init pthread_mutex_lock pthread_mutex_unlock sched_yield
"""
OF_THE_ENTRY_POINT = ("tracegrad_entry", "tracegrad_pool")  # without `aligned_alloc`, no program has them


class Module(NamedTuple):
    """The IR of a module, and the pipeline that compiles it."""

    name: str
    text: str
    pipeline: Pipeline


@pytest.fixture(scope="module")
def modules() -> list[Module]:
    changed = {"TRACEGRAD_CACHE": "0", "TRACEGRAD_FIRST_CALL": "compile", "NUMBA_CPU_FEATURES": "-avx,-avx2,-avx512f"}
    environment = {**os.environ, **changed, "TRACEGRAD_CACHE_TRACES": "0", "PYTHONPATH": str(ROOT)}
    run = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    recorded = [Module(name, text, Pipeline(*fields)) for name, text, fields in json.loads(run.stdout.splitlines()[-1])]
    return [each for each in recorded if each.name != "parallel_for"]


def needed(modules: list[Module], triple: str, cpu: str) -> set[str]:
    """The functions that these modules call, compiled for a system, without those of Python and tracegrad."""
    results: set[str] = set()
    for each in modules:
        result = symbols(object_code(each.text, triple, cpu, each.pipeline))
        assert result is not None
        results |= result.needed
    return {name for name in results if not name.startswith(PYTHON)}


def with_pool(modules: list[Module], system: str, cpu: str, monkeypatch: pytest.MonkeyPatch) -> list[Module]:
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(pool, "instruction_set", lambda: cpu)
    return [*modules, Module("parallel_for", pool._source(), Pipeline(None, 0))]


def test_the_programs_have_all_kinds_of_modules(modules: list[Module]) -> None:
    names = {each.name for each in modules}
    assert {*OF_THE_ENTRY_POINT, "tg_walk", "tg_step.lu.f64", "tg_step.cholesky.f64"} <= names
    assert any("frem" in each.text for each in modules)


@pytest.mark.parametrize("cpu", ["generic", "neoverse-v1", "neoverse-n1"])
def test_linux_on_64_bit_arm(cpu: str, modules: list[Module], monkeypatch: pytest.MonkeyPatch) -> None:
    functions = needed(with_pool(modules, "linux", "aarch64", monkeypatch), "aarch64-unknown-linux-gnu", cpu)
    assert functions <= {*POSIX.split(), "sched_getcpu", "sched_getaffinity", "pthread_setaffinity_np"}


@pytest.mark.parametrize(
    ("triple", "cpu"),
    [("arm64-apple-macosx11.0.0", "apple-m1"), ("x86_64-apple-macosx11.0.0", "core2")],
)
def test_macos(triple: str, cpu: str, modules: list[Module], monkeypatch: pytest.MonkeyPatch) -> None:
    instructions = "aarch64" if triple.startswith("arm64") else "x86_64"
    functions = needed(with_pool(modules, "darwin", instructions, monkeypatch), triple, cpu)
    assert functions <= {*POSIX.split(), "__bzero", "bzero", "memset_pattern16"}


@pytest.mark.parametrize("cpu", ["core2", "haswell"])
def test_windows(cpu: str, modules: list[Module], monkeypatch: pytest.MonkeyPatch) -> None:
    all_modules = with_pool(modules, "win32", "x86_64", monkeypatch)
    of_windows = [each for each in all_modules if each.name not in OF_THE_ENTRY_POINT]
    functions = needed(of_windows, "x86_64-pc-windows-msvc-elf", cpu)
    assert functions <= {*" ".join(libraries._OF_WINDOWS.values()).split()}
    assert {"fmod", "memcpy", "calloc", "__chkstk"} <= functions


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks this system's C library")
def test_linux_has_what_is_expected_of_it() -> None:
    c = ctypes.CDLL(None)
    assert [name for name in POSIX.split() if not hasattr(c, name)] == []
