"""Random programs with state, run plainly and traced: what they return, raise and leave behind is the same.

`PYTHONPATH=tests/helpers python tests/samples/random_state.py FIRST LAST` runs the programs with these seeds and prints
those that differ.
"""

from __future__ import annotations

import copy
import random
import re
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from meaning import Raised, seen, tell_apart

import tracegrad as tg
from tracegrad.ir import run
from tracegrad.runtime.dispatch import dispatcher
from tracegrad.runtime.execution.entry_callable import MISS

# Values: floats (numbers or scalars), and arrays of three elements.
FLOATS = (
    "{f} * 0.5",
    "{f} + {g}",
    "{a}.sum()",
    "{a}[0] * 2",
    "o.t",
    "o.n * 0.25",
    "G",
    "{f} - o.n",
    "float(len(L))",
    "D.get('k', 0.5)",
    "abs({f})",
    "max({f}, {g})",
    "{a}.mean()",
)
ARRAYS = (
    "{a} * 0.5",
    "{a} + {b}",
    "np.sin({a})",
    "{a} * {f}",
    "o.w",
    "o.v",
    "x",
    "y",
    "W",
    "{a}[::-1] * 1.0",
    "np.where({a} > {f}, {a}, {b})",
    "{a}.copy()",
    "np.ones(3) * {f}",
    "L[0] if L and isinstance(L[0], np.ndarray) else {a}",
)
STATEMENTS = (
    "o.t = {f}", "o.t *= 0.5", "o.n += 1", "o.w = {a}", "o.w += {a}", "o.w[1] = {f}", "o.v, o.w = o.w, o.v",
    "L.append({f})", "L.append({a})", "L.insert(0, {a})", "L and L.pop()", "L.reverse()", "L[:1] = [{a}]", "L.clear()",
    "D['k'] = {f}", "D['a'] = {a}", "D.pop('k', None)", "D['n'] = D.get('n', 0) + 1", "D.setdefault('s', {f})",
    "x += 1", "x[0] = {f}", "v = x[1:]; v *= 0.5", "x[::-1] += {a}", "W[:] = {a}", "W *= 0.5", "y = {a}", "y += {b}",
    "o.c = Box({a}, {f})", "o.c.w = o.c.w + {a}", "o.c.n += 1", "o.c.w[2] = {f}", "o.c = Box(o.w, o.t)",
    "global G; G = {f}", "T.append(({f}, {a}))", "S.add(o.n % 3)", "Q.append({f})", "Q and Q.popleft()",
    "o.m = {{'k': {a}, 'l': [{f}]}}", "o.m['l'].append({f})", "o.m['k'] = o.m['k'] * 0.5",
    "o.f = lambda z, s={f}: z * s", "y = o.f({a})", "np.multiply({a}, 0.5, out=y)", "z = o.w; z -= 0.25",
    "x = x + {a}", "t = {f}\n    o.t = t if t < 2 else 0.5",
)  # fmt: skip
SIMPLE = [s for s in STATEMENTS if "\n" not in s and ";" not in s]
CHOICES = (
    "if o.n % 2: {s}",
    "if {f} > {g}: {s}\n    else: {r}",
    "if len(L) > 2: {s}",
    "if {f} > 4: raise ValueError('large')",
    "try:\n        if {f} > 1: raise KeyError('k')\n        {s}\n    except KeyError: {r}",
    "for i in range(2): {s}",
    "for z in L[:2]: o.t = o.t + np.sum(z)",
    "assert {f} < 9, 'much'",
    "if 'k' in D: {s}",
)
RESULTS = ("{f}", "{a}", "({a}, {f})", "{{'a': {a}, 'o': o.n}}", "[{a}, L]", "o.c.w", "x", "None")
BETWEEN = (
    "o.t = 0.75",
    "o.n = 5",
    "L.append(1.5)",
    "L.clear()",
    "D['k'] = 0.5",
    "D.clear()",
    "W[:] = 0.25",
    "G = 2.0",
    "o.w = np.zeros(3)",
    "o.c = Box(np.ones(3), 1.0)",
    "pass",
    "pass",
    "S.clear()",
    "o.v = o.w",
)


class Box:
    """An object of the programs."""

    def __init__(self, w: Any, n: Any) -> None:
        self.w, self.n = w, n


def source(seed: int) -> tuple[str, list[str]]:
    """The text of a function `f(x)`, and what happens between its calls."""
    rng = random.Random(seed)

    def value(kinds: tuple[str, ...], depth: int) -> str:
        kind = rng.choice(kinds if depth > 0 else [k for k in kinds if "{" not in k])
        return f"({fill(kind, depth - 1)})"

    def fill(text: str, depth: int) -> str:
        table = {}
        for name in sorted(set(re.findall(r"\{([a-z])\}", text))):
            if name in "rs":
                table[name] = fill(rng.choice(SIMPLE), 1)
            else:
                table[name] = value(FLOATS if name in "fg" else ARRAYS, depth)
        return text.format(**table)

    lines = []
    for _ in range(rng.randint(2, 7)):
        lines.append(fill(rng.choice(CHOICES if rng.random() < 0.3 else STATEMENTS), rng.randint(0, 2)))
    declared = any("global G" in line for line in lines)
    lines = ["global G", *(line.replace("global G; ", "") for line in lines)] if declared else lines
    body = "\n    ".join(["y = np.arange(3.0)", *lines, f"return {fill(rng.choice(RESULTS), 1)}"])
    if declared:
        body = body.replace("y = np.arange(3.0)\n    global G", "global G\n    y = np.arange(3.0)")
    return f"def f(x):\n    {body}\n", [rng.choice(BETWEEN) for _ in range(4)]


def play(text: str, between: list[str], decorate: Callable[[Any], Any], name: str) -> list[Any]:
    """Run the program: what each call returned or raised, and the world after it."""
    import collections

    o = Box(np.array([0.5, -1.0, 2.0]), 0)
    o.t, o.v, o.c = 1.0, np.ones(3), Box(np.full(3, 0.5), 0.5)  # type: ignore[attr-defined]
    o.m, o.f = {"k": np.ones(3), "l": [1.0]}, lambda z: z  # type: ignore[attr-defined]
    space: dict[str, Any] = {
        "np": np,
        "Box": Box,
        "o": o,
        "L": [np.zeros(3), 0.5],
        "D": {"k": 0.25},
        "W": np.ones(3),
        "G": 0.5,
        "T": [],
        "S": set(),
        "Q": collections.deque([1.0], 3),
        "__name__": "program",
    }
    exec(compile(text, f"<{name}>", "exec"), space)
    f, outcomes = decorate(space["f"]), []
    for change in ["pass", *between]:
        exec(change, space)
        x = np.array([1.0, -0.5, 0.25])
        try:
            result = seen(f(x))
        except Exception as error:  # whatever it is, it is compared
            result = Raised(error, text=False)
        o.__dict__.pop("f", None) if not callable(o.__dict__.get("f")) else None
        state = {k: space[k] for k in ("L", "D", "W", "G", "T", "S")}
        state["Q"], state["o"] = list(space["Q"]), {k: v for k, v in vars(o).items() if k != "f"}
        outcomes.append((result, seen(x), seen(copy.copy(state)), seen(o.f(1.5))))  # type: ignore[attr-defined]
    return outcomes


class Replayed:
    """A program that is not compiled: the graph, run by NumPy."""

    report, checked, tier = None, False, None

    def __init__(self, graph: Any, kinds: Any, single: bool, name: str = "", checked: bool = False, *_: Any):
        self.graph, self.kinds, self.single, self.checked = graph, kinds, single, checked

    def entry(self, *leaves: Any) -> Any:
        if any(type(x) is not (float if kind == "float" else np.ndarray) for x, kind in zip(leaves, self.kinds)):
            return MISS
        args = [np.asarray(x) for x in leaves]
        if [(x.shape, x.dtype) for x in args] != [(a.shape, a.dtype) for a in self.graph.avals]:
            return MISS
        try:
            with np.errstate(all="ignore"):
                outputs = [x[()] if x.ndim == 0 else x.copy() for x in run(self.graph, args)]
        except Exception:  # the call meets it again
            return MISS
        if self.checked and not outputs.pop():
            return MISS
        return outputs[0] if self.single else tuple(outputs)

    def run(self, leaves: Any) -> Any:
        return self.entry(*leaves)

    def attempt(self, leaves: Any) -> Any:
        result = self.entry(*leaves)
        return None if result is MISS else result


def difference(seed: int, decorate: Callable[[Any], Any]) -> str | None:
    """What a program with this seed does otherwise when it is decorated."""
    text, between = source(seed)
    plain = play(text, between, lambda f: f, f"plain {seed}")
    try:
        traced = play(text, between, decorate, f"traced {seed}")
        for k, (a, b) in enumerate(zip(plain, traced)):
            tell_apart(a, b, f"call {k}")
    except tg.UnsupportedError:
        return None  # said, and named
    except Exception as error:  # whatever it is, it is a difference
        if "UnsupportedError" in str(error):
            return None
        return f"{text}{between}\n{type(error).__name__}: {error}"
    return None


if __name__ == "__main__":
    dispatcher.compile_program = Replayed  # type: ignore[assignment,misc]
    for seed in range(int(sys.argv[1]), int(sys.argv[2])):
        text = difference(seed, tg.trace)
        if text:
            sys.stdout.write(f"--- {seed}\n{text}\n\n")
