"""Command `info`: versions, hardware and tuning constants, for bug reports."""

from __future__ import annotations

import argparse
import importlib.metadata
import platform
import sys
from collections.abc import Iterator
from typing import Any

import llvmlite.binding as ll

from tracegrad.cli.errors import Lines
from tracegrad.optimizations import table_lines
from tracegrad.platform.processes import instruction_set
from tracegrad.runtime.blas import library as blas
from tracegrad.runtime.compile.disk_cache import default_cache
from tracegrad.runtime.diagnostics.machine_peaks import machine
from tracegrad.runtime.dispatch.python_support import problems
from tracegrad.runtime.execution.entry_callable import unsupported_reason
from tracegrad.settings import settings
from tracegrad.target.constants import TuningConstant, constants
from tracegrad.target.tuning import TUNING
from tracegrad.utils.formatting import amount

__all__ = ["add_to"]

_PACKAGES = ("numpy", "llvmlite", "numba", "scipy", "scipy-openblas32")
# The CPU features that affect the generated kernels.
_FEATURES = ("avx", "avx2", "fma", "avx512f", "avx512dq", "avx512vl", "avx512bw", "neon", "sve")


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    result = commands.add_parser("info", help="versions, the CPU, BLAS, threads, the cache")
    listing = "list the optimizations that TRACEGRAD_DISABLE can leave out"
    result.add_argument("--optimizations", action="store_true", help=listing)
    result.add_argument("--measure", action="store_true", help="measure the bandwidth of memory and the peak, for 1 s")
    result.add_argument("--tuning", action="store_true", help="list the tuning constants of this CPU")
    result.set_defaults(run=_info)


def _info(options: argparse.Namespace) -> Lines:
    if options.optimizations:
        yield from table_lines()
        return 0
    yield from _aligned([*_versions(), *_hardware(), *_code(), *(_speed() if options.measure else ())])
    if options.tuning:
        yield ""
        yield from _aligned([(each.name, _declared(each)) for each in constants(TUNING)])
    return 0


def _aligned(facts: list[tuple[str, str]]) -> Iterator[str]:
    width = max(len(name) for name, _ in facts)
    for name, value in facts:
        yield f"{name.ljust(width)}  {value}"


def _declared(each: TuningConstant) -> str:
    """The value of a constant, its unit, its meaning and its source."""
    value = each.value
    if isinstance(value, tuple):
        value = ", ".join(f"{name} {cost}" for name, cost in value)
    return f"{value} {each.unit}: {each.meaning} ({each.source})"


def _versions() -> Iterator[tuple[str, str]]:
    yield "tracegrad", _version("tracegrad")
    yield "Python", f"{platform.python_version()} ({sys.implementation.name}), {platform.platform(terse=True)}"
    yield "self-test", "; ".join(problems()) or "functions can be traced on this Python"
    for name in _PACKAGES:
        yield name, _version(name)


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _hardware() -> Iterator[tuple[str, str]]:
    features = ll.get_host_cpu_features()
    has = [name for name in _FEATURES if features.get(name)]
    yield "CPU", f"{ll.get_host_cpu_name()} ({instruction_set()}): {', '.join(has) or 'no vectors that are known'}"
    yield "threads", f"{settings.thread_count()}" + (" (settings.num_threads)" if settings.num_threads else "")
    library = blas.info()
    yield "BLAS", f"{library['provider']}, kernels for {library['core']}: {library['config']}"


def _code() -> Iterator[tuple[str, str]]:
    why = unsupported_reason()
    yield "calls", "by machine code" if why is None else f"by Python: {why}"
    folder, count, size = default_cache().info()
    yield "cache", f"{folder}: {count} files, {amount(size, 'B')}" if folder else "off"
    yield "disabled", ", ".join(sorted(settings.disable)) or "no optimization"
    yield "settings", ", ".join(str(settings)[len("Settings(") : -1].split(", "))
    yield "tuning", f"{TUNING.name}, {len([*constants(TUNING)])} constants (info --tuning lists them)"


def _speed() -> Iterator[tuple[str, str]]:
    measured = machine()
    yield "memory", f"{measured.bandwidth / 1e9:.1f} GB/s"
    yield "peak", ", ".join(f"{speed / 1e9:.0f} Gflop/s in {dtype}" for dtype, speed in measured.peaks.items())
