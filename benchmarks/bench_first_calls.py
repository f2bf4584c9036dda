"""What do the programs of `workloads` cost in a new process: time and memory of the first call?

Every sample is a process of its own. The clock starts when the packages have been imported. tracegrad's first call is
measured four times: by default (NumPy computes it if that is faster), compiled at once, after another function with the
same kernels has been compiled, and with a disk cache that another process has filled.
"""

from __future__ import annotations

import functools
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import peers
from benchmarks.bench_workloads import PEERS, right
from benchmarks.harness import QUICK, Case, Factory, Run, Settings, Timed, leaves, printed
from benchmarks.peers import need
from benchmarks.workloads import Workload, workloads

PACKAGES = ("torch",)

CHILD = "from benchmarks.bench_first_calls import print_measured; print_measured({name!r}, {peer!r}, {second})"


def print_measured(name: str, peer: str, second: bool) -> None:
    """Seconds of the first call after the peer's import, and by how much calls raise the peak of memory; if `second`,
    of the first call of another function that computes the same."""
    peers.PRIMES.clear()  # nothing is compiled ahead of the clock
    module = need(peer)
    if peer == "jax":
        module.config.update("jax_enable_x64", True)
        module.devices()
    workload = next(w for w in workloads(False) if w.name == name)
    data = workload.data()
    workload = workload._replace(data=lambda: data)
    if second:
        first = workload.fun
        PEERS[peer](workload)()
        workload = workload._replace(fun=lambda *arguments: first(*arguments))
    before = _peak(reset=True)
    start = time.perf_counter()
    run = PEERS[peer](workload)
    result = run()
    seconds = time.perf_counter() - start
    for _ in range(3):
        run()
    sums = [float(np.sum(np.abs(x.astype(float)))) for x in leaves(result)]
    print(json.dumps({"seconds": seconds, "peak": _peak() - before, "sums": sums}))


def _peak(reset: bool = False) -> int:
    """The most memory that this process has had, in bytes; `reset` lets it count from now on.

    Linux tells a child's resource usage with its parent's at its start in it, so it is not asked for that.
    """
    try:
        if reset:
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return 1024 * int(status.partition("VmHWM:")[2].split()[0])
    except OSError:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def in_new_process(
    workload: Workload, peer: str, folder: str, first_call: str = "compile", second: bool = False
) -> Timed:
    result = printed(
        CHILD.format(name=workload.name, peer=peer, second=second),
        {"TRACEGRAD_CACHE_DIR": folder, "TRACEGRAD_FIRST_CALL": first_call or "compile"},
    )
    return Timed(result["seconds"], np.array(result["sums"]), result["peak"])


def cold(workload: Workload, peer: str, first_call: str, second: bool = False) -> Run:
    need(peer)

    def run() -> Timed:
        with tempfile.TemporaryDirectory(prefix="cold-") as empty:
            return in_new_process(workload, peer, empty, first_call, second)

    return run


def kept(workload: Workload) -> Run:
    """With a disk cache that another process has filled."""
    need("tracegrad")
    folder = tempfile.TemporaryDirectory(prefix="kept-")
    for _ in range(2):
        in_new_process(workload, "tracegrad", folder.name)
    return lambda: in_new_process(workload, "tracegrad", folder.name)


def cold_case(workload: Workload) -> Case:
    makers: dict[str, Factory] = {
        "tracegrad": functools.partial(cold, workload, "tracegrad", "replay"),
        "tracegrad, compiled at once": functools.partial(cold, workload, "tracegrad", "compile"),
        "tracegrad, a second program": functools.partial(cold, workload, "tracegrad", "compile", True),
        "tracegrad, disk cache full": functools.partial(kept, workload),
        "jax": functools.partial(cold, workload, "jax", ""),
    }

    def sums() -> Any:
        return np.array([float(np.sum(np.abs(x.astype(float)))) for x in right(workload)])

    return Case(f"new process: {workload.name}", makers, sums, once=True, tolerance=1e-3)


def cases(settings: Settings) -> Iterator[Case]:
    yield from map(cold_case, workloads(settings is QUICK))
