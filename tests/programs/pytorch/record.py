"""Record what the programs of this folder compute with PyTorch: `python -m tests.programs.pytorch.record [NAME ...]`.

Writes `NAME.json` next to `NAME.py`, for all programs or the named ones. Needs PyTorch, which the tests do not.
"""

from __future__ import annotations

import json
import sys

import torch
from tests.programs.pytorch.play import DTYPES, PROGRAMS, played

DIGITS = {"float32": 8, "float64": 12}


def main(names: list[str]) -> None:
    """Record the programs whose stems are in `names`, or all."""
    for program in PROGRAMS:
        if names and program.stem not in names:
            continue
        parts = []
        for dtype in DTYPES:
            rows = []
            for entry in played(program, torch, dtype, lambda f: f):
                numbers = [float(f"{x:.{DIGITS[dtype]}g}") for x in entry.numbers]
                rows.append(json.dumps([entry.name, entry.dtype, entry.shape, numbers], separators=(",", ":")))
            parts.append(f'"{dtype}":[\n' + ",\n".join(rows) + "]")
        program.with_suffix(".json").write_text("{" + ",\n".join(parts) + "}\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
