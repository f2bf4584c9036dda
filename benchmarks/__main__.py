"""``python -m benchmarks [names] [--quick] [--cores N ...] [--json PATH]``: run the benchmarks."""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

BENCHMARKS = (
    "call_overhead",
    "guards",
    "elementwise",
    "mlp_step",
    "encoder_step",
    "logistic",
    "kernels",
    "functions",
    "products",
    "compile",
    "transforms",
    "loops",
    "programs",
    "factorizations",
    "workloads",
    "first_calls",
    "warm_start",
    "eager",
    "minimize",
    "ode_fit",
    "cluster",
)

PAGES = ("accuracy", "speed")  # pages of the documentation, each of which comes alone


def arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Times tracegrad and its peers.")
    parser.add_argument(
        "names", nargs="*", metavar="name", help=f"which to run: {', '.join(BENCHMARKS)}; or one of {', '.join(PAGES)}"
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds and sizes")
    parser.add_argument("--cores", type=int, nargs="+", default=[], help="use so many cores, for every peer; in turn")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the results and the versions there")
    options = parser.parse_args(argv)
    if len(options.names) == 1 and options.names[0] in PAGES:
        return options
    if unknown := set(options.names) - set(BENCHMARKS):
        parser.error(f"no benchmark named {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}")
    return options


def run(names: list[str], quick: bool) -> tuple[dict[str, list[dict[str, Any]]], list[str]]:
    """Run the benchmarks; gives back the results by name, and what went wrong."""
    # The peers read the environment when they are imported: main() must have set it before.
    from benchmarks import harness, peers
    from benchmarks.report import summary

    settings = harness.QUICK if quick else harness.FULL
    results: dict[str, list[dict[str, Any]]] = {}
    faults: list[str] = []
    for name in names:
        module = importlib.import_module(f"benchmarks.bench_{name}")
        peers.start(module.PACKAGES)
        # What the packages have made by now lives on: to look through it before each clock took most of the time.
        gc.collect()
        gc.freeze()
        results[name] = []
        for case in module.cases(settings):
            try:
                result = harness.run_case(case, settings)
            except harness.Disagreement as error:
                faults.append(f"DISAGREEMENT {error}")
                print(f"{faults[-1]}\n", flush=True)
                continue
            print(harness.brief(result) if case.brief else harness.table(result) + "\n", flush=True)
            results[name].append(result.as_json())
            faults += [f"FAILED {case.name}, {r.peer}: {r.reason}" for r in result.rows if r.status == "failed"]
        print(*summary(results[name]), sep="\n", flush=True)
    return results, faults


def report(options: argparse.Namespace) -> dict[str, Any]:
    """Run the benchmarks in this process; the results, the machine, and what went wrong."""
    if options.cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.cores[0]])
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as folder:
        # Cold means cold: no cache that an earlier process has filled.
        for variable in ("TRACEGRAD_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"):
            os.environ[variable] = str(Path(folder) / variable.lower())
        os.environ["TRACEGRAD_FIRST_CALL"] = "compile"  # which is what peers do in their first calls
        # New processes find the byte code that the ones before wrote, as they find what pip wrote of the peers'.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        results, faults = run(options.names or list(BENCHMARKS), options.quick)
    from benchmarks import peers

    cores = ["--cores", str(options.cores[0])] if options.cores else []
    command = " ".join(["python -m benchmarks", *options.names, *["--quick"] * options.quick, *cores])
    return {
        "command": command,
        "machine": peers.machine(),
        "quick": options.quick,
        "benchmarks": results,
        "faults": faults,
    }


def report_of_process(options: argparse.Namespace, cores: int) -> dict[str, Any]:
    """The same in a process that has so many cores: the peers count them when they are imported."""
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as folder:
        path = Path(folder) / "report.json"
        quick = ["--quick"] * options.quick
        arguments = [*options.names, *quick, "--cores", str(cores), "--json", str(path)]
        subprocess.run([sys.executable, "-m", "benchmarks", *arguments], check=False)
        table: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return table


def written(name: str, quick: bool) -> str:
    """A page of the documentation."""
    if name == "accuracy":
        from benchmarks import accuracy

        return accuracy.page(40 if quick else 400)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    os.environ.update(TRACEGRAD_FIRST_CALL="compile", OPENBLAS_NUM_THREADS="1")
    from benchmarks import harness, speed

    settings = harness.QUICK if quick else harness.Settings(rounds=15, loop_seconds=0.004)
    return speed.page(settings, "python -m benchmarks speed" + " --quick" * quick)


def main(argv: list[str] | None = None) -> int:
    """The exit code is 1 if a peer disagreed or tracegrad failed."""
    options = arguments(argv)
    if len(options.names) == 1 and options.names[0] in PAGES:
        print(written(options.names[0], options.quick), end="")
        return 0
    several = len(options.cores) > 1
    reports = [report_of_process(options, n) for n in options.cores] if several else [report(options)]
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(reports if several else reports[0], indent=1) + "\n", encoding="utf-8")
    faults = [] if several else reports[0]["faults"]
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if any(report["faults"] for report in reports) else 0


if __name__ == "__main__":
    sys.exit(main())
