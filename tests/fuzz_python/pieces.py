"""What a random program may consist of: the texts in `pieces/`, about functions and statements, classes, containers.

A piece is a block of them. `--- world` stands outside of the function, each `--- use` is a statement in it, each
`--- change` happens between its calls, and each `--- state` is an expression for what can be seen after a call. In the
texts `@i` is the number of the piece, `@A` and `@B` are arrays of three numbers, `@c` and `@d` are numbers, `@m` is a
small int, `@v` is a new array, and `n` is the int that the function is called with.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["PIECES", "Piece"]

TEXTS = Path(__file__).parent / "pieces"
# How often a piece of each text is taken, the first of "functions", arithmetic, apart.
OFTEN = {"functions": 1, "classes": 2, "containers": 2}
ARITHMETIC = 6


@dataclass(frozen=True)
class Piece:
    """The texts of one block."""

    world: str
    uses: tuple[str, ...]
    changes: tuple[str, ...]
    state: tuple[str, ...]


def _pieces(name: str) -> list[Piece]:
    pieces = []
    for block in (TEXTS / f"{name}.txt").read_text().split("\n\n"):
        parts: dict[str, list[str]] = {"world": [], "use": [], "change": [], "state": []}
        for part in block.removeprefix("--- ").split("\n--- "):
            kind, _, text = part.partition("\n")
            parts[kind].append(text.rstrip("\n"))
        pieces.append(Piece("\n".join(parts["world"]), *[tuple(parts[kind]) for kind in ("use", "change", "state")]))
    return pieces


PIECES = [piece for name, n in OFTEN.items() for piece in _pieces(name) * n]
PIECES += PIECES[:1] * ARITHMETIC
