"""What a random program may consist of: the texts in `pieces/`, about statements, classes, Python's library.

A piece is a block of them. `--- world` stands outside of the function, each `--- use` is a statement in it, each
`--- change` happens between its calls, each `--- number` is an expression for a number, which other pieces may use, and
each `--- state` is an expression for what can be seen after a call. In the texts `@i` is the number of the piece, `@A`
and `@B` are arrays of three numbers, `@c` and `@d` are numbers, `@m` is a small int, `@v` is a new array, and `n` is
the int that the function is called with.

`AROUND` has what may stand around a use, and `FACES` what the function may be when it is called.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["AROUND", "FACES", "PIECES", "Piece"]

TEXTS = Path(__file__).parent / "pieces"
# How often a piece of each text is taken, the first of "functions", arithmetic, apart.
OFTEN = {"functions": 1, "classes": 2, "containers": 2, "protocols": 2, "library": 2, "flow": 2}
ARITHMETIC = 6
LISTS = ("use", "change", "state", "number")

# In these `@u` is the use, `@n` a name of its own, and the rest is to be read as in a piece. A `def` is a scope of its
# own, the others stay in the function's.
AROUND = (
    "for t@n in range(2):\n    @u",
    "@v = @A\nfor t@n in range(n % 3):\n    @u",
    "if n % 2:\n    @u\nelse:\n    @v = @B",
    "if @A[@m % 3] > @c:\n    @u\nelse:\n    @v = @B * 0.5",
    "try:\n    @u\nfinally:\n    facts.append(n)",
    "try:\n    @u\nexcept (ValueError, LookupError, AttributeError, TypeError) as error:\n"
    "    facts.append(type(error).__name__)\n    @v = @B",
    "with package.logged(facts):\n    @u",
    "with package.override(factor=@c):\n    @u",
    "while True:\n    @u\n    break",
    "@v = @A\nwhile np.sum(@v) < @c:\n    @u\n    if np.sum(@v) < 9.0:\n        break",
    "match n % 2:\n    case 1:\n        @u\n    case _:\n        @v = @B",
    "def @n():\n    @u\n    return @v\n@v = @n()",
    "def @n():\n    @u\n    return @v\n@v = [@n() for _ in range(2)][-1]",
    "def @n(k):\n    if k:\n        return @n(k - 1) * 0.9\n    @u\n    return @v\n@v = @n(n % 3)",
    "def @n():\n    for _ in range(2):\n        @u\n        yield @v\n*_, @v = @n()",
    "@package.wrapped\ndef @n():\n    @u\n    return @v\n@v = @n()",
    "@package.counted\ndef @n():\n    @u\n    return @v\n@v = @n() + @n()",
    "class @n:\n    def __call__(self):\n        @u\n        return @v\n@v = @n()()",
    "class @n:\n    @property\n    def value(self):\n        @u\n        return @v\n@v = @n().value",
    "def @n(_, a=@A):\n    @u\n    return @v + a\n@v = sum(map(@n, range(2)))",
    "def @n():\n    try:\n        @u\n        return @v\n    finally:\n        facts.append('out')\n@v = @n()",
    "def @n(): # a key\n    @u\n    return np.sum(@v)\n@v = max([@A, @B], key=lambda a: @n() * a[0])",
)
FACES = {
    "": "",
    "decorated": "f = package.decorated(f)",
    "wrapped": "f = package.wrapped(f)",
    "timed": "f = package.timed(f)",
    "method": "class Face:\n    def run(self, x, n):\n        return self.inner(x, n)\n"
    "    inner = staticmethod(f)\nf = Face().run",
    "object": "class Face:\n    calls = 0\n    inner = staticmethod(f)\n    def __call__(self, *args, **kwargs):\n"
    "        self.calls += 1\n        arrays, facts = self.inner(*args, **kwargs)\n"
    "        return arrays, [*facts, self.calls]\nf = Face()",
    "partial": "f = functools.partial(lambda scale, x, n, inner=f: inner(x * scale, n), 0.9)",
    "closure": "def face(inner):\n    calls = 0\n    def call(x, n):\n        nonlocal calls\n        calls += 1\n"
    "        arrays, facts = inner(x, n)\n        return [a + calls * 0.01 for a in arrays], facts\n    return call\n"
    "f = face(f)",
    "classmethod": "class Face:\n    gain = 0.8\n    inner = f\n    @classmethod\n    def run(cls, x, n):\n"
    "        return cls.inner(cls.gain * x, n)\nf = Face.run",
    "retried": "f = package.retried(f)",
}


@dataclass(frozen=True)
class Piece:
    """The texts of one block."""

    world: str
    uses: tuple[str, ...]
    changes: tuple[str, ...]
    state: tuple[str, ...]
    numbers: tuple[str, ...]


def _pieces(name: str) -> list[Piece]:
    pieces = []
    for block in (TEXTS / f"{name}.txt").read_text().split("\n\n"):
        parts: dict[str, list[str]] = {kind: [] for kind in ("world", *LISTS)}
        for part in block.removeprefix("--- ").split("\n--- "):
            kind, _, text = part.partition("\n")
            parts[kind].append(text.rstrip("\n"))
        pieces.append(Piece("\n".join(parts["world"]), *[tuple(parts[kind]) for kind in LISTS]))
    return pieces


PIECES = [piece for name, n in OFTEN.items() for piece in _pieces(name) * n]
PIECES += PIECES[:1] * ARITHMETIC
