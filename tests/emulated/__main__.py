"""Run tests on 64-bit ARM, emulated by QEMU: `python -m tests.emulated`.

The machine is made once, of Debian's packages and of wheels, in a folder of its own under the temporary folder, which
is kept (`machine.py`). It takes Debian, its package qemu-user-static, and no privilege. Emulated code runs 20 to 50
times as long, so modules of tests run one by one, each with a limit. What is told is a table of them, and what failed.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))  # the tests are no package: they find each other by name

from emulated.machine import ROOT, environment, folder, prepare, python

# What depends on the CPU, or on how compiled code and Python call each other.
CHOSEN = (
    "tests/codegen",
    "tests/cpython",
    "tests/ops",
    "tests/runtime",
    "tests/llvmir",
    "tests/target",
    "tests/platform",
    "tests/transforms/test_grad.py",
    "tests/numpy_api/test_numpy_traced.py",
)
_COUNT = re.compile(r"(\d+) (passed|failed|errors?|skipped|xfailed)")


class Result(NamedTuple):
    """What the tests of a module did: counts by outcome, seconds, the names of what failed."""

    counts: dict[str, int]
    seconds: float
    failed: list[str]


def modules(names: list[str]) -> list[str]:
    """The files of tests that these names are or that are in these folders."""
    results: list[str] = []
    for name in names:
        path = ROOT / name
        paths = sorted(path.rglob("test_*.py")) if path.is_dir() else [path] if path.exists() else []
        results += [str(each.relative_to(ROOT)) for each in paths]
    return results


def run(module: str, limit: float, options: list[str]) -> Result:
    """Run the tests of a module; a test that the limit ends counts as failed."""
    log = folder() / "logs" / f"{module.replace('/', '.')}.txt"
    log.parent.mkdir(exist_ok=True)
    arguments = ["-m", "pytest", "-n", "0", "-p", "no:cacheprovider", "-v", "--tb=short", *options, module]
    began, timed_out = time.monotonic(), False
    with log.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(
            [python(), *arguments], cwd=ROOT, env=environment(), stdout=file, stderr=subprocess.STDOUT
        )
        try:
            process.wait(limit)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            timed_out = True
    return _result(log.read_text(encoding="utf-8", errors="replace"), time.monotonic() - began, timed_out, module)


def _result(text: str, seconds: float, timed_out: bool, module: str) -> Result:
    """Read the log of a run."""
    failed = re.findall(r"^(\S+::.*?) (?:FAILED|ERROR)\b", text, re.MULTILINE)
    summary = text.rstrip().rpartition("\n")[2]
    counts = {outcome: int(count) for count, outcome in _COUNT.findall(summary)}
    if not counts:  # ended early, by the limit or by a crash
        counts = {"passed": len(re.findall(r" PASSED\b", text)), "failed": len(failed)}
        began = re.findall(r"^(\S+::.*?)(?: (?:PASSED|FAILED|ERROR|SKIPPED|XFAIL)\b|$)", text, re.MULTILINE)
        last = began[-1] if began else module
        failed.append(f"{last} ({'was not over in time' if timed_out else 'ended the process'})")
    return Result(counts, seconds, failed)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.emulated", description=__doc__)
    parser.add_argument(
        "names", nargs="*", default=CHOSEN, help="files and folders of tests (default: those of CHOSEN)"
    )
    parser.add_argument("--limit", type=float, default=900, help="seconds for a module (default 900)")
    parser.add_argument("--pytest", action="append", default=[], help="an option for pytest, such as --pytest=-x")
    options = parser.parse_args()
    prepare()
    sys.stdout.write("| module | passed | failed | skipped | seconds |\n|---|---|---|---|---|\n")
    everything: list[str] = []
    for module in modules(list(options.names)):
        counts, seconds, failed = run(module, options.limit, options.pytest)
        broken = counts.get("failed", 0) + counts.get("error", 0) + counts.get("errors", 0)
        row = (
            module.removeprefix("tests/"),
            counts.get("passed", 0),
            broken,
            counts.get("skipped", 0),
            f"{seconds:.0f}",
        )
        sys.stdout.write(f"| {' | '.join(map(str, row))} |\n")
        sys.stdout.flush()
        everything += failed
    sys.stdout.write("".join(f"{name}\n" for name in everything))
    return 1 if everything else 0


if __name__ == "__main__":
    sys.exit(main())
