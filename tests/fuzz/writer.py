"""Writes random programs: each line is run by NumPy while the program is written, and left out where it fails."""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from random_programs import LAYOUTS as laid

from fuzz import complexes, grammar, matrices, statements

__all__ = ["Program", "argument", "write"]

Array = Any
MOST_ELEMENTS = 400
LARGEST, SMALLEST = 1e3, 1e-6
SIZES = (0, 1, 7, 8, 9, 33, 100)
SHAPES = ((3, 4), (7, 1), (8, 9), (33, 3), (1, 9), (0, 3), (9, 9), (2, 3, 4), (4, 4), (1, 1), (3, 7))
NUMBERS = ("0.5", "-1.25", "2.0", "0.3", "3", "-0.7", "1")
GROUPS = {
    "ELEMENTWISE": 8,
    "REDUCTIONS": 4,
    "UFUNC_METHODS": 2,
    "VIEWS": 3,
    "CHOICES": 3,
    "MASKS": 3,
    "PRODUCTS": 3,
    "ARRAYS": 3,
    "INTEGERS": 3,
    "SETS": 0.3,
    "UPDATES": 5,
    "FLOW": 4,
    "MATRICES": 2,
    "OF_COMPLEX": 1,
    "COMPLEX": 2,
    "COMPLEX_UPDATES": 1,
}
# What some programs begin with, so that there are numbers of all kinds to go on with.
OTHERS = ("np.floor(x.real * 3.0).astype(int)", "x.real > 0.2", "x.real + 1j * np.sin(x.real)", "x.real * 2.0")
# How much more often what is about complex numbers stands in a program whose arguments are complex.
OF_COMPLEX_ARGUMENTS = 6
LINES = {name: lines for part in (grammar, statements, complexes, matrices) for name, lines in vars(part).items()}

LAYOUTS = ("C", "F", "strided", "backwards")


@dataclass(frozen=True)
class Program:
    """A function `f(x, y)` as text: its lines, the shapes and dtypes of its arguments, and the layout of the first."""

    lines: tuple[str, ...]
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    dtype: str = "float64"
    layout: str = "C"

    @property
    def text(self) -> str:
        result = dict.fromkeys(name for line in self.lines for name in re.findall(r"\bv\d+\b", line))
        body = [part for line in self.lines for part in line.split("\n")]
        lines = [*body, f"return [{', '.join(result)}]"]
        return "def f(x, y):\n" + "".join(f"    {line}\n" for line in lines)

    def function(self) -> Callable[..., Any]:
        space: dict[str, Any] = {"np": np}
        exec(compile(self.text, "<program>", "exec"), space)
        return space["f"]  # type: ignore[no-any-return]

    def is_double(self, results: list[Any]) -> bool:
        """Whether all numbers are of double precision, as far as its text and its results show."""
        single = "float32" in self.text or "complex64" in self.text
        return (
            self.dtype in ("float64", "complex128")
            and not single
            and not any(np.asarray(a).dtype in ("float32", "float16", "complex64") for a in results)
        )

    def arguments(self) -> tuple[Array, Array]:
        x, y = (argument(shape, self.dtype, k) for k, shape in enumerate(self.shapes))
        return laid[self.layout](x), y


def argument(shape: tuple[int, ...], dtype: str, at: int) -> Array:
    """Numbers between -1.5 and 1.5, none close to another or to a round number, or complex ones of such parts.

    Nor are the steps from one to the next equal, as those of multiples of a number would be.
    """
    if dtype == "complex128":
        return np.asarray(argument(shape, "float64", at) + 1j * argument(shape, "float64", at + 2))
    iterations = np.arange(float(np.prod(shape))) * 1.618033 + 0.1234567 * (at + 1)
    return (3.0 * (iterations % 1.0) - 1.5 + 0.004 * np.sin(3.1 * iterations**2)).reshape(shape).astype(dtype)


def _fits(x: Any) -> bool:
    if not isinstance(x, np.ndarray | np.generic | float | int | bool | complex):
        return False
    result = np.asarray(x)
    small = result.size <= MOST_ELEMENTS and result.ndim <= 4 and result.dtype.kind in "fiubc"
    sizes = np.abs([result.real, result.imag]).astype(float)
    # Numbers that are zero but for rounding make programs differ that are the same.
    return bool(
        small and np.all(np.isfinite(result)) and np.all((sizes < LARGEST) & ((sizes == 0) | (sizes > SMALLEST)))
    )


KINDS: dict[str, Callable[[Array], bool]] = {
    "F": lambda x: x.dtype.kind == "f",
    "V": lambda x: x.dtype.kind == "f" and x.ndim == 1,
    "M": lambda x: x.dtype.kind == "f" and x.ndim == 2,
    "Q": lambda x: x.dtype.kind == "f" and x.ndim == 2 and x.shape[0] == x.shape[1] > 0,
    "S": lambda x: x.dtype.kind == "f" and x.ndim == 0,
    "C": lambda x: x.dtype.kind == "c",
    "Z": lambda x: x.dtype.kind == "c" and x.ndim == 1,
    "K": lambda x: x.dtype.kind == "c" and x.ndim == 2,
    "T": lambda x: x.dtype.kind == "c" and x.ndim == 0,
    "I": lambda x: x.dtype.kind in "iu",
    "B": lambda x: x.dtype.kind == "b",
    "A": lambda x: True,
}
# Of arrays that may be updated, and of those that go with another, the kinds of numbers that they hold.
UPDATED = {"U": "f", "W": "c", "J": "iu"}
BESIDE = {"G": "f", "Y": "c"}


class _Writer:
    def __init__(self, seed: int):
        self.rng = rng = random.Random(seed)
        n, shape = rng.choice(SIZES), rng.choice(SHAPES)
        shapes = rng.choice([((n,), (n,)), (shape, shape[-1:]), (shape, shape), ((n,), ()), (shape, (shape[0], 1))])
        self.program = Program((), shapes, rng.choice(["float64"] * 8 + ["float32", "complex128"]), rng.choice(LAYOUTS))
        x, y = self.program.arguments()
        self.outside = (x, y)
        self.space: dict[str, Any] = {"np": np, "x": x, "y": y}
        self.names = ["x", "y", "x"]
        for text in ("v0 = x * 1.0", f"v1 = np.sum(y) * {self.number()}"):
            self.run(text, text[:2])
        for text in rng.sample(OTHERS, rng.choice([0, 0, 1, 2])):
            self.run(f"v{len(self.program.lines)} = {text}", f"v{len(self.program.lines)}")
        more = OF_COMPLEX_ARGUMENTS if self.program.dtype == "complex128" else 1
        self.weights = [n * more if "COMPLEX" in group else n for group, n in GROUPS.items()]
        wanted = rng.randint(3, 10)
        for _ in range(120):
            if len(self.program.lines) >= wanted + 2:
                break
            self.add()

    # -- holes -----------------------------------------------------------------------------------------------
    def number(self) -> str:
        return self.rng.choice(NUMBERS)

    def variable(self, kind: str, first: Array | None) -> str | None:
        """The name of a variable of this kind, or None: often a late one."""
        names = [name for name in dict.fromkeys(self.names) if self.suits(name, kind, first)]
        if not names:
            return None
        return self.rng.choice(names[-3:] if self.rng.random() < 0.5 else names)

    def suits(self, name: str, kind: str, first: Array | None) -> bool:
        x = np.asarray(self.space[name])
        if kind in BESIDE:
            return x.dtype.kind == BESIDE[kind] and first is not None and _broadcasts(x.shape, first.shape)
        if kind not in UPDATED:
            return KINDS[kind](x)
        value = self.space[name]
        owned = isinstance(value, np.ndarray) and value.flags.writeable and value.ndim > 0
        owned = owned and value.dtype.kind in UPDATED[kind]
        apart = owned and value.size and not any(np.may_share_memory(value, z) for z in self.outside)
        return bool(apart)

    def about(self, hole: str, name: str, x: Array) -> str:
        """What a hole about the first variable of the line, `x` of this name, is filled with."""
        rng, axes = self.rng, range(-x.ndim, x.ndim)
        if hole == "axis":
            return str(rng.choice(axes)) if axes else "None"
        if hole == "axes":
            return str(tuple(rng.sample(range(x.ndim), min(2, x.ndim))))
        if hole == "mask":
            return rng.choice([f"{name} > {self.number()}", f"{name} < 0.1", f"({name} > -0.5) & ({name} < 0.8)"])
        if hole == "order":
            n = x.shape[0] if x.ndim else 1
            return str([rng.randrange(-n, n) for _ in range(rng.randint(1, 4))]) if n else "[]"
        if hole == "cells":
            n = x.shape[0] if x.ndim else 0
            return str(rng.sample(range(n), min(n, rng.randint(1, 3))))
        if hole == "shape":
            return rng.choice(["-1", f"({x.size},)", f"(1, {x.size})", f"({x.size}, 1)", "(2, -1)", "(-1, 3)"])
        return self.index(x)

    def index(self, x: Array) -> str:
        parts = []
        for n in x.shape:
            k = self.rng.randrange(n) if n else 0
            parts.append(
                self.rng.choice([":", "::-1", "::2", f"{k}", f"{k}:", f":{n - 1}", "-1", "1:", "::-2", f"-{k + 1}"])
            )
        parts = parts[: self.rng.randint(0, len(parts))]
        if self.rng.random() < 0.15:
            parts.append("None")
        if self.rng.random() < 0.3 or not parts:
            parts.insert(self.rng.choice([0, len(parts)]), "...")
        return ", ".join(parts)

    def filled(self, template: str) -> str | None:
        """The template with its holes filled, or None where no variable suits."""
        table: dict[str, str] = {}
        first: Array | None = None
        name = ""
        holes = sorted(dict.fromkeys(re.findall(r"\{(\w+)\}", template)), key=str.islower)  # variables first
        for hole in holes:
            if hole[0].isupper():
                picked = self.variable(hole[0], first)
                if picked is None:
                    return None
                if first is None:
                    name, first = picked, np.asarray(self.space[picked])
                table[hole] = picked
            elif hole in ("c", "c2"):
                table[hole] = self.number()
            elif hole == "p":
                table[hole] = self.rng.choice(["0.5", "1.3", "2.0"])
            elif hole == "k":
                table[hole] = str(self.rng.randint(0, 5))
            elif hole == "dtype":
                table[hole] = self.rng.choice(["float", "np.float32", "np.float64", "int", "bool"])
            elif first is not None:
                table[hole] = self.about(hole, name, first)
        return re.sub(r"\{(\w+)\}", lambda m: table[m[1]], template)

    # -- lines -----------------------------------------------------------------------------------------------
    def add(self) -> None:
        group = self.rng.choices([*GROUPS], self.weights)[0]
        line = self.filled(self.rng.choice(LINES[group]))
        if line is None:
            return
        if group in ("UPDATES", "COMPLEX_UPDATES"):
            self.run(line, "")
            return
        new = f"v{len(self.program.lines)}"
        self.run(line.replace("NEW", new) if group == "FLOW" else f"{new} = {line}", new)

    def run(self, line: str, new: str) -> None:
        """Add the line, which makes the variable `new` if that is a name, where it runs and all numbers stay small."""
        before = {k: v.copy() if type(v) is np.ndarray else v for k, v in self.space.items()}
        try:
            with np.errstate(all="raise"), warnings.catch_warnings():
                warnings.simplefilter("error")
                exec(line, self.space)
        except Exception:
            good = False
        else:
            good = all(_fits(v) for k, v in self.space.items() if k in self.names or k == new)
        if not good:
            self.replay(before)
            return
        self.program = Program(
            (*self.program.lines, line), self.program.shapes, self.program.dtype, self.program.layout
        )
        if new:
            self.names.append(new)

    def replay(self, before: dict[str, Any]) -> None:
        """Put the numbers back that a line has changed before it failed, where they are: views stay views."""
        for name in [*self.space]:
            if name not in before:
                del self.space[name]
            elif type(value := self.space[name]) is np.ndarray:
                if value.flags.writeable:
                    value[...] = before[name]
            else:
                self.space[name] = before[name]


def _broadcasts(shape: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return all(n in (m, 1) for n, m in zip(shape[::-1], other[::-1])) and len(shape) <= len(other)


def write(seed: int) -> Program:
    """The program of this seed."""
    return _Writer(seed).program
