"""Writes random programs: some pieces, some of what each can do in the function, and how the world changes."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from typing import Any

from fuzz_python.pieces import AROUND, FACES, PIECES

__all__ = ["CHANGES", "WAYS", "Program", "write"]

NUMBERS = ("0.5", "-0.25", "0.8", "0.3", "-0.7", "1.2", "0.1", "1.0", "-1.0")
CHANGES = ("change 0", "change 1", "change 2")
# How a program is run to be compared with itself; of most programs, only two of these are.
WAYS = ("traced", "grad", "eager", "jvp", "second")


@dataclass(frozen=True)
class Program:
    """Lines of each kind: of the world, of what can be seen of it, of the function, of changes between its calls; and
    whether it is an installed module, what the function is when it is called, and how it is run."""

    lines: tuple[tuple[str, str], ...]
    installed: bool = False
    face: str = ""
    ways: tuple[str, ...] = WAYS[:-1]

    def of(self, kind: str) -> list[str]:
        return [text for k, text in self.lines if k == kind]

    @property
    def text(self) -> str:
        """The module: the world, and a function `f(x, n)` that returns its arrays and what else it has learnt."""
        body = [line for text in self.of("body") for line in text.split("\n")]
        shared = [line for line in dict.fromkeys(body) if line.startswith("global ")]
        arrays = dict.fromkeys(name for line in body for name in re.findall(r"\bv\d+\b(?= = )", line))
        lines = [*shared, "facts = []", *[line for line in body if line not in shared]]
        lines.append(f"return [{', '.join(arrays)}], facts")
        world = "\n".join(self.of("world"))
        return f"{world}\ndef f(x, n):\n" + "".join(f"    {line}\n" for line in lines) + FACES[self.face] + "\n"

    def told(self) -> str:
        """All of it, for people."""
        rest = [f"# {kind}: {text!r}" for kind, text in self.lines if kind == "state" or kind in CHANGES]
        return "\n".join([self.text + f"# installed: {self.installed}, ways: {self.ways}", *rest, ""])


def _filled(rng: random.Random, text: str, i: int, arrays: list[str], new: str = "", numbers: Any = NUMBERS) -> str:
    holes: dict[str, Any] = {
        "i": str(i),
        "m": str(rng.randint(0, 3)),
        "v": new,
        "A": rng.choice(arrays[-3:]),
        "B": rng.choice(arrays),
        "c": rng.choice(numbers),
        "d": rng.choice(numbers),
    }
    return re.sub(r"@([imvABcd])(?![a-z])", lambda m: holes[m[1]], text)


def _placed(rng: random.Random, use: str) -> str:
    """The use, with something around it now and then."""
    depth = 0
    while rng.random() < 0.35:
        around = rng.choice(AROUND)
        shared = [line for line in use.split("\n") if line.startswith("global ")]
        lines = [line for line in use.split("\n") if line not in shared]
        if "def " in around:
            lines = [*shared, *lines]
        indent = re.search(r"( +)@u", around)
        assert indent is not None
        depth += 1
        use = around.replace("@n", f"local{depth}").replace("@u", f"\n{indent[1]}".join(lines))
        if "def " not in around:
            use = "\n".join([*shared, use])
    return use


def write(seed: int) -> Program:
    """The program of this seed. It may be none that Python runs: whoever uses it asks Python first."""
    rng = random.Random(seed)
    pieces = [*enumerate(rng.sample(PIECES, rng.randint(2, 5)))]
    world = [("world", _filled(rng, piece.world, i, ["x"])) for i, piece in pieces if piece.world]
    state = [("state", _filled(rng, text, i, ["x"])) for i, piece in pieces for text in piece.state]
    numbers = [*NUMBERS, *[_filled(rng, text, i, ["x"]) for i, piece in pieces for text in piece.numbers * 2]]
    uses = [(i, rng.choice(piece.uses)) for i, piece in pieces for _ in range(rng.choice([1, 1, 2]))]
    rng.shuffle(uses)
    arrays, body = ["x", "x"], []
    for i, use in uses:
        new = f"v{len(body)}"
        some = [*numbers, f"float({rng.choice(arrays)}[{rng.randint(0, 2)}])", f"{rng.choice(arrays)}[0]"]
        body.append(("body", _filled(rng, _placed(rng, use), i, arrays, new, some)))
        arrays.append(new)
    changes = [
        (rng.choice(CHANGES), _filled(rng, rng.choice(piece.changes), i, ["x"], "", numbers))
        for i, piece in pieces
        if piece.changes
        for _ in range(rng.choice([1, 1, 2]))
    ]
    face = rng.choice([*FACES, *[""] * 6])
    ways = WAYS if seed % 20 == 0 else tuple(w for w in WAYS if w in rng.sample([*WAYS[:-1], *WAYS], 2))
    return Program((*world, *state, *body, *changes), rng.random() < 0.5, face, ways)
