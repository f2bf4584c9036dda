"""Run the tests of public packages on tracegrad: `python -m tests.packages`.

Each package is installed from PyPI into an environment of its own under the temporary folder, which is kept; its tests
run with autograd itself, and again with `tracegrad.compat.autograd` in its place. What is told is a table: of the tests
that pass with autograd, how many do with tracegrad, and why the others fail. With `--write` it goes into
docs/packages.md; the exit code says whether fewer than 97 % pass.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the tests are no package: they find each other by name

from packages.catalogue import PACKAGES, Package
from packages.running import ROOT, Row, folder, installed, run

GOAL = 0.97
BETWEEN = "<!-- table -->"


def passed(rows: dict[str, Row]) -> list[str]:
    return [name for name, row in rows.items() if row["outcome"] == "passed"]


def compared(package: Package, options: argparse.Namespace) -> tuple[int, list[tuple[str, str]]]:
    """How many tests pass with autograd, and those of them that do not with tracegrad, with the reasons."""
    known = run(package, False, options.limit, options.each)
    ours = run(package, True, 4 * options.limit, 4 * options.each)
    failing = [
        (name, ours[name]["why"] if name in ours else "not run in time")
        for name in passed(known)
        if name not in ours or ours[name]["outcome"] != "passed"
    ]
    return len(passed(known)), failing


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.packages", description=__doc__)
    parser.add_argument("names", nargs="*", help="packages (default: all)")
    parser.add_argument("--limit", type=float, default=300, help="seconds for a package's tests (default 300)")
    parser.add_argument("--each", type=float, default=30, help="seconds for one test with autograd (default 30)")
    parser.add_argument("--write", action="store_true", help="write the table into docs/packages.md")
    options = parser.parse_args()
    rows, total, right = [], 0, 0
    for package in PACKAGES:
        if options.names and package.name not in options.names:
            continue
        error = installed(package)
        if error:
            sys.stdout.write(f"{package.name}: {error}\n")
            continue
        count, failing = compared(package, options)
        total, right = total + count, right + count - len(failing)
        rows.append(f"| {package.name} {package.version} | {package.about} | {count} | {count - len(failing)} |")
        sys.stdout.write(rows[-1] + "\n")
        for why, times in Counter(why.split("\n")[0][:160] for _, why in failing).most_common(12):
            sys.stdout.write(f"    {times:4} {why}\n")
        for name, why in failing:
            with open(folder() / f"{package.name}.failing.txt", "a", encoding="utf-8") as file:
                file.write(f"{name}\n    {why}\n")
        sys.stdout.flush()
    sys.stdout.write(f"{right} of {total}\n")
    if options.write:
        page = ROOT / "docs" / "packages.md"
        before, _, after = page.read_text(encoding="utf-8").split(BETWEEN)
        table = "\n".join(["| package | about | pass with autograd | with tracegrad |", "|---|---|---|---|", *rows])
        page.write_text(f"{before}{BETWEEN}\n{table}\n{BETWEEN}{after}", encoding="utf-8")
    return 0 if right >= GOAL * total else 1


if __name__ == "__main__":
    sys.exit(main())
