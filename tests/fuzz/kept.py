"""Programs that once failed, shrunk: one file each in `data/fuzz/`, which `test_fuzz.py` runs."""

from __future__ import annotations

import json
from pathlib import Path

from fuzz.writer import Program

__all__ = ["keep", "kept"]

FOLDER = Path(__file__).parents[1] / "data" / "fuzz"


def keep(program: Program, seed: int) -> None:
    """Write the program down, so that it is tested from now on."""
    FOLDER.mkdir(exist_ok=True)
    about = {"shapes": program.shapes, "dtype": program.dtype, "layout": program.layout, "lines": program.lines}
    (FOLDER / f"{seed}.json").write_text(json.dumps(about, indent=1) + "\n")


def kept() -> dict[str, Program]:
    """The programs by the seeds that wrote them."""
    table = {}
    for path in sorted(FOLDER.glob("*.json")):
        about = json.loads(path.read_text())
        x, y = (tuple(shape) for shape in about["shapes"])
        table[path.stem] = Program(tuple(about["lines"]), (x, y), about["dtype"], about["layout"])
    return table
