"""Run tests on 64-bit ARM, emulated by QEMU: `python -m tests.emulated`.

The machine is made once, of Debian's packages and of wheels, in a folder of its own under the temporary folder, which
is kept (`machine.py`). It takes Debian, its package qemu-user-static, and no privilege. Emulated code runs 20 to 50
times as long, so modules of tests run one by one, each with a limit (`runner.py`). The result is a table of them, and
the names of the tests that failed. The emulated CPU has NEON; `--cpu=a64fx --features=+sve` has longer vectors, too.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

# The tests are no package: they find each other by name.
sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from paths import ROOT

from emulated.machine import environment, folder, prepare, python

# What depends on the CPU, or on how compiled code and Python call each other.
CHOSEN = (
    "tests/platform",
    "tests/cpython",
    "tests/target",
    "tests/llvmir",
    "tests/codegen",
    "tests/runtime",
    "tests/ops",
    "tests/transforms/test_grad.py",
)
# Plugins are imported before pytest could rewrite them.
WITHOUT = ("-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning")
HEADING = "| module | passed | failed | skipped | seconds |\n|---|---|---|---|---|\n"
_COUNT = re.compile(r"(\d+) (passed|failed|error|skipped|xfailed)")
_TEST = re.compile(r"^(tests/\S+::.*?)(?: (PASSED|FAILED|ERROR|SKIPPED|XFAIL)\b.*)?$", re.MULTILINE)


class Result(NamedTuple):
    """The outcome of the tests of a module: counts, seconds, the names of failed tests."""

    counts: dict[str, int]
    seconds: float
    failed: list[str]
    is_over: bool = True

    def row(self, module: str) -> str:
        """The row of the table."""
        failed = self.counts.get("failed", 0) + self.counts.get("error", 0)
        time = f"{self.seconds:.0f}" if self.is_over else f"{self.seconds:.0f}, not over"
        cells = (
            module.removeprefix("tests/"),
            self.counts.get("passed", 0),
            failed,
            self.counts.get("skipped", 0),
            time,
        )
        return f"| {' | '.join(map(str, cells))} |\n"


def modules(names: list[str]) -> list[str]:
    """The files of tests that these names are or that are in these folders."""
    results: list[str] = []
    for name in names:
        path = ROOT / name
        paths = sorted(path.rglob("test_*.py")) if path.is_dir() else [path]
        results += [str(each.relative_to(ROOT)) for each in paths]
    return results


def result_of(text: str, seconds: float, code: int | None) -> Result:
    """The result that the output of pytest tells; `code` is None if its time was over."""
    tests = _TEST.findall(text)
    failed = [name for name, outcome in tests if outcome in ("FAILED", "ERROR")]
    summary = text.rstrip().rpartition("\n")[2]
    counts = {outcome: int(count) for count, outcome in _COUNT.findall(summary)}
    if code in (0, 1, 5) and (counts or code == 5):
        return Result(counts, seconds, failed)
    counts = {"passed": sum(outcome == "PASSED" for _, outcome in tests), "failed": len(failed)}
    last = tests[-1][0] if tests else "no test"
    if code is None:
        return Result(counts, seconds, failed, False)
    return Result(counts, seconds, [*failed, f"{last} ended the process: {code}"])


class Runner:
    """The emulated process that runs modules of tests."""

    def __init__(self, variables: dict[str, str]) -> None:
        command = [python(), str(Path(__file__).with_name("runner.py"))]
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, module: str, limit: float, options: list[str]) -> Result:
        """Run the tests of a module."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        log = folder() / "logs" / f"{module.replace('/', '.')}.txt"
        log.parent.mkdir(exist_ok=True)
        log.write_text("", encoding="utf-8")
        arguments = ["-n", "0", "-v", "--tb=short", *WITHOUT, *options, module]
        began = time.monotonic()
        self.process.stdin.write(json.dumps([limit, str(log), arguments]) + "\n")
        self.process.stdin.flush()
        code = json.loads(self.process.stdout.readline() or "-1")
        return result_of(log.read_text(encoding="utf-8", errors="replace"), time.monotonic() - began, code)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.emulated", description=__doc__)
    parser.add_argument("names", nargs="*", default=CHOSEN, help="files and folders of tests (default: see CHOSEN)")
    parser.add_argument("--limit", type=float, default=1800, help="seconds for a module (default 1800)")
    parser.add_argument("--cpu", default="neoverse-n1", help="the CPU, as QEMU and LLVM name it (default neoverse-n1)")
    parser.add_argument("--features", default="", help="its features for LLVM, as in NUMBA_CPU_FEATURES")
    parser.add_argument("--pytest", action="append", default=[], help="an option for pytest, such as --pytest=-x")
    options = parser.parse_args()
    prepare()
    runner = Runner(environment(options.cpu, options.features))
    sys.stdout.write(HEADING)
    failed: list[str] = []
    for module in modules(list(options.names)):
        result = runner.run(module, options.limit, options.pytest)
        sys.stdout.write(result.row(module))
        sys.stdout.flush()
        failed += result.failed
    sys.stdout.write("".join(f"{name}\n" for name in failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
