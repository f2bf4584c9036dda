"""Programs that once failed, shrunk: one file each in `data/fuzz_python/`, which `test_fuzz_python.py` runs."""

from __future__ import annotations

import json
from pathlib import Path

from fuzz_python.writer import WAYS, Program

__all__ = ["keep", "kept"]

FOLDER = Path(__file__).parents[1] / "data" / "fuzz_python"


def keep(program: Program, seed: int) -> None:
    """Write the program down, so that it is tested from now on."""
    FOLDER.mkdir(exist_ok=True)
    about = {"installed": program.installed, "face": program.face, "ways": program.ways, "lines": program.lines}
    (FOLDER / f"{seed}.json").write_text(json.dumps(about, indent=1) + "\n")


def kept() -> dict[str, Program]:
    """The programs by the seeds that wrote them."""
    programs = {}
    for path in sorted(FOLDER.glob("*.json")):
        about = json.loads(path.read_text())
        lines, ways = tuple((kind, text) for kind, text in about["lines"]), tuple(about.get("ways", WAYS[:-1]))
        programs[path.stem] = Program(lines, about["installed"], about.get("face", ""), ways)
    return programs
