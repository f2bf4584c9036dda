"""Check random programs from the command line: `python -m tests.fuzz --programs 20000`.

Each program is run op by op, and each tenth compiled too; a failing one is shrunk, told, and kept as a test with
`--keep`. The exit code says whether one failed.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

# The tests are no package: they find each other by name.
sys.path.insert(0, str(Path(__file__).parents[1] / "samples"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from fuzz.checking import check
from fuzz.command import Kind, main
from fuzz.kept import keep
from fuzz.writer import Program, write


def _failure(program: Program, compiled: bool, counts: Counter[str] | None = None) -> str | None:
    """How the program fails: the kind of error and what it is about, or None."""
    try:
        program.function()(*program.arguments())
    except Exception:
        return "NumPy refuses it"
    try:
        check(program, compiled, counts)
    except Exception as error:
        return f"{type(error).__name__}: {str(error).split(':')[0][:60]}"
    return None


def _told(program: Program) -> str:
    return f"{program.text}{program.shapes} {program.dtype} {program.layout}\n"


KIND = Kind(write, check, _failure, _told, keep, {"layout": "C"}, "--programs", 10)

if __name__ == "__main__":
    sys.exit(main(KIND, "python -m tests.fuzz", __doc__))
