"""Record what PyTorch prints for the scripts of this folder: `python -m tests.transcripts.record [NAME ...]`.

Writes `NAME.txt` beside `NAME.py`, for all scripts or those named. Needs PyTorch, which the tests do not.
"""

from __future__ import annotations

import sys

import torch
from tests.transcripts.play import HEADING, SCRIPTS, play, sections


def main(names: list[str]) -> None:
    """Record the scripts whose stems are in `names`, or all; fail where a section ends with an error."""
    torch.set_default_dtype(torch.float64)
    torch.set_warn_always(True)
    for script in SCRIPTS:
        if names and script.stem not in names:
            continue
        told = []
        for section in sections(script):
            lines = [line.text for line in play(section, torch)]
            if lines and lines[-1].startswith("ends with "):
                sys.exit(f"{script.name}, {section.title}: {lines[-1]}")
            told += [HEADING + section.title, *lines]
        script.with_suffix(".txt").write_text("\n".join(told) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
