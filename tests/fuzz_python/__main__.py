"""Check random Python programs from the command line: `python -m tests.fuzz_python --count 20000 --seed 0`.

Each program is run plainly, and in two of five ways (traced, its gradient, that without jit, tangents, a second
derivative), each twentieth in all of them; op by op, and each hundredth compiled instead. A failing one is shrunk,
told, and kept as a test with `--keep`. The exit code says whether one failed.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

# The tests are no package: they find each other by name.
sys.path.insert(0, str(Path(__file__).parents[1] / "samples"))
sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from fuzz.command import Kind, main

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


KIND = Kind(write, check, _failure, Program.told, keep, {"installed": False, "face": ""}, "--count", 100)

if __name__ == "__main__":
    sys.exit(main(KIND, "python -m tests.fuzz_python", __doc__))
