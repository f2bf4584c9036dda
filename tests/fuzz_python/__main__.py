"""Check random Python programs from the command line: `python -m tests.fuzz_python --count 20000 --seed 0`.

Each program is run op by op, and each hundredth compiled too; a failing one is shrunk, told, and kept as a test with
`--keep`. The exit code says whether one failed.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the tests are no package: they find each other by name

from fuzz.shrinking import shrunk

from fuzz_python.checking import Invalid, check
from fuzz_python.kept import keep
from fuzz_python.writer import Program, write


def _failure(program: Program, compiled: bool, counts: Counter[str] | None = None) -> str | None:
    """How the program fails: the kind of error and what it is about, or None."""
    try:
        check(program, compiled, counts)
    except Invalid as error:
        if counts is not None:
            counts["invalid"] += 1
            counts[f"invalid: {str(error)[:100]}"] += 1
        return None
    except Exception as error:
        return f"{type(error).__name__}: {str(error).split(',')[0][:60]}"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz_python", description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="how many programs (default 1000)")
    parser.add_argument("--seed", type=int, default=0, help="the first one's seed (default 0)")
    parser.add_argument("--every", type=int, default=100, help="compile each n-th, 0 for none (default 100)")
    parser.add_argument("--keep", action="store_true", help="keep what fails, shrunk, as a test")
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    failed = 0
    for seed in range(options.seed, options.seed + options.count):
        compiled = bool(options.every) and seed % options.every == 0
        program = write(seed)
        failure = _failure(program, compiled, counts)
        if failure:
            failed += 1
            small = shrunk(program, lambda p, compiled=compiled: _failure(p, compiled), installed=False)
            sys.stdout.write(f"-- {seed}{' compiled' * compiled}: {failure}\n{small.told()}")
            try:
                check(small, compiled)
            except Exception as error:
                sys.stdout.write(f"{type(error).__name__}: {str(error)[:600]}\n")
            if options.keep:
                keep(small, seed)
            sys.stdout.flush()
    for what, n in sorted(counts.items()):
        sys.stdout.write(f"{n:7} {what}\n")
    sys.stdout.write(f"{options.count} programs from {options.seed} on, {failed} failed\n")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
