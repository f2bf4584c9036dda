"""Random programs with loops: what rolling makes of them against NumPy, and their gradients against unrolled ones.

Loops of those with odd numbers are folded while they are recorded. Most are not compiled: their graphs run op by op,
which takes a tenth of the time.
`python tests/samples/random_loops.py FIRST LAST` tries the seeds from FIRST to before LAST.
"""

from __future__ import annotations

import importlib
import linecache
import random
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import tracegrad as tg
from tracegrad.ir.interpreter import run
from tracegrad.runtime.dispatch import dispatcher
from tracegrad.trace.builder.hooks import HOOKS

counters: Any = importlib.import_module("tracegrad.trace.loops.range_counter")
lengthy: Any = importlib.import_module("tracegrad.trace.loops.long_loop_hints")
ROWS, WIDTH = 24, 4
UNARY = ("np.sin({})", "np.tanh({})", "{} * 0.5", "-{}", "np.exp(-{} ** 2)", "{} * {}", "1.0 / (1.0 + {} ** 2)")
BINARY = ("{} + {}", "{} - {}", "{} * {}", "np.maximum({}, {})", "np.where({} > 0.1, {}, 0.3)", "0.7 * {} + 0.2 * {}")


class Writer:
    """Writes the source of one program of vectors a, b (carried), of x (given) and of a table t (updated in place)."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.depth = 1

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def place(self, counter: str) -> str:
        """A row of the table or of the argument, which lies in it for every counter from 2 to 2 less than `ROWS`."""
        choice = self.random.choice
        return choice(
            [
                counter,
                counter,
                f"{counter} - 1",
                f"{counter} + 1",
                f"-{counter}",
                f"({counter} * 7) % {ROWS}",
                str(self.random.randrange(ROWS)),
                f"{counter} - 2",
            ]
        )

    def window(self, array: str, counter: str) -> str:
        """A vector of `WIDTH` elements out of an array of `ROWS` by `WIDTH`."""
        kind = self.random.randrange(5)
        if kind == 0:
            return f"{array}[{counter} - 2 : {counter} + 2, {self.random.randrange(WIDTH)}]"
        if kind == 1:
            return f"{array}[{self.place(counter)}, ::-1]"
        return f"{array}[{self.place(counter)}]"

    def atom(self, counter: str) -> str:
        choice = self.random.choice
        if self.random.random() < 0.5:
            return choice("aabbc")
        if self.random.random() < 0.5:
            return self.window(choice("xtt"), counter)
        return choice([f"0.01 * {counter}", f"(-1) ** {counter}", f"RATES[{counter}]"])

    def value(self, counter: str, depth: int = 2) -> str:
        if depth == 0 or self.random.random() < 0.2:
            return self.atom(counter)
        form = self.random.choice(UNARY + BINARY)
        parts = [self.value(counter, depth - 1) for _ in range(form.count("{}"))]
        if form in UNARY:
            parts = parts[:1] * len(parts)
        return "(" + form.format(*parts) + ")"

    def statement(self, counter: str) -> None:
        kind = self.random.randrange(11)
        value = self.value(counter)
        if kind < 3:
            self.line(f"{self.random.choice('ab')} = np.sin({value} + c)")
        elif kind < 5:
            self.line(f"{self.window('t', counter)}[:] = np.tanh({value} + b)")
        elif kind == 5:
            self.line(f"t[{self.place(counter)}, {self.random.randrange(WIDTH)}] += 0.1 * np.sum({value} + a)")
        elif kind == 6:
            self.line("a, b = b, 0.9 * a")
        elif kind == 7:
            self.line(f"seen.append(np.sum({value} * a))")
        elif kind == 8:
            self.line(f"if {counter} % {self.random.choice([2, 3, 5])} == 0:")
            self.depth += 1
            self.line(f"b = np.cos(b) * {self.atom(counter)}")
            self.depth -= 1
        elif kind == 9:
            self.line(f"c = c * 0.9 + 0.01 * np.sum({value} * b)")
        else:
            self.line(f"t[{self.place(counter)}] *= 0.9")

    def loop(self, counter: str, deepest: int) -> None:
        low, high = self.random.choice([(2, 20), (2, 12), (3, 22)])
        step = self.random.choice([1, 1, 1, 2])
        span = f"range({low}, {high}, {step})" if self.random.random() < 0.75 else f"range({high - 1}, {low}, -{step})"
        form = self.random.choice([f"for {counter} in {span}:"] * 3 + [f"for {counter} in reversed({span}):"])
        self.line(form)
        self.depth += 1
        for _ in range(self.random.randint(1, 4)):
            self.statement(counter)
        if deepest and self.random.random() < 0.35:
            self.loop("j" if counter == "i" else "k", deepest - 1)
            self.statement(counter)
        self.depth -= 1

    def program(self) -> str:
        self.line("a, b, c, t, seen = x[0] * 1.0, np.cos(x[1]), 0.1 * np.sum(x[2]), x * 0.5, []")
        for _ in range(self.random.randint(1, 2)):
            self.loop("i", 1)
        self.line("total = np.sum(t**2) + np.sum(a * b) + c")
        self.line("return total + sum(seen[::3])")
        return "\n".join(["def program(x):", *self.lines])


class UnevenWriter(Writer):
    """Writes loops over pieces, of a size of their own in each iteration, of vectors a and t and of a matrix m."""

    PIECES = (":i", "i:", ":i + 1", "i - 1:", "1:i")
    VECTORS = (
        "{0}",
        "np.sin({0})",
        "np.log(1.5 + {0} ** 2)",
        "{0} / (0.1 + a[{1}] ** 2)",
        "0.3 * i * {0}",
        "{0} ** 2",
        "np.sqrt(1.1 + np.sin({0}))",
        "m[{1}, 2] * {0}",
        "np.exp(-{0} ** 2)",
    )
    NUMBERS = (
        "np.sum({0})",
        "{0} @ ({1})",
        "np.mean(({0}) * ({1}))",
        "np.max({0})",
        "np.min(({0}) - ({1}))",
        "np.sum(m[:i, :i] * np.outer(t[:i], a[:i]))",
        "np.sum(m[i:, :i] @ t[:i])",
        "np.sum(({0})[::-1] * ({1})[::-1])",
    )

    def vector(self, piece: str) -> str:
        return self.random.choice(self.VECTORS).format(f"{self.random.choice('ta')}[{piece}]", piece)

    def number(self) -> str:
        piece = self.random.choice(self.PIECES)
        return self.random.choice(self.NUMBERS).format(self.vector(piece), self.vector(piece))

    def statement(self, counter: str) -> None:
        piece = self.random.choice(self.PIECES)
        self.line(
            self.random.choice(
                [
                    f"t[i] = np.tanh({self.number()} + a[i])",
                    f"s = np.tanh({self.number()} + s)",
                    f"t[{piece}] = np.tanh({self.vector(piece)} + s * {self.vector(piece)})",
                    f"t[{piece}] -= 0.1 * s * ({self.vector(piece)})",
                    "m[i:, i:] = np.cos(m[i:, i:] - 0.1 * np.outer(t[i:], a[i:]))",
                    "m[i, :i] = m[i, :i] * 0.5 + t[:i] * s",
                    f"seen.append({self.number()})",
                ]
            )
        )

    def program(self) -> str:
        self.line("a, t, m = x[:4].ravel(), np.cos(x[4:8]).ravel(), x[:16] @ x[:16].T")
        self.line("s, seen = 0.1, []")
        span = self.random.choice(["range(1, 15)", "range(2, 15)", "range(14, 0, -1)", "range(1, 16)"])
        self.line(f"for i in {span}:")
        self.depth += 1
        for _ in range(self.random.randint(2, 4)):
            self.statement("i")
        self.depth -= 1
        self.line("return np.sum(t**2) + np.sum(m**2) + s + sum(seen)")
        return "\n".join(["def program(x):", *self.lines])


def program(seed: int) -> tuple[Any, str]:
    """The function, and its source. Every third has arrays of a size of their own in each iteration."""
    writer = UnevenWriter(seed) if seed % 3 == 2 else Writer(seed)
    source, name = writer.program(), f"<loops {seed}>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    names: dict[str, Any] = {"np": np, "RATES": [1.0 / (k + 1) for k in range(ROWS)]}
    exec(compile(source, name, "exec"), names)
    return names["program"], source


class Recorded(BaseException):
    """Ends a call when it has been recorded, before it is compiled."""


@contextmanager
def folding(most: int, fewest: int) -> Iterator[None]:
    """While loops are folded that come to so many nodes, and those within that have so many iterations."""
    before = counters.MAX_RECORDED_NODES, counters.MIN_FOLDED
    counters.MAX_RECORDED_NODES, counters.MIN_FOLDED = most, fewest
    try:
        yield
    finally:
        counters.MAX_RECORDED_NODES, counters.MIN_FOLDED = before
        lengthy._known.clear()


def interpreted(fun: Any, x: Any, roll: Any) -> Any:
    """Value and gradient, op by op by NumPy; with this way to roll loops."""
    trace_call = dispatcher.trace_call

    def stop(*args: Any) -> None:
        raise Recorded(trace_call(*args))

    saved = HOOKS.roll
    dispatcher.trace_call, HOOKS.roll = stop, roll
    try:
        tg.value_and_grad(fun)(x)
    except Recorded as recorded:
        trace = recorded.args[0]
        return run(trace.graph, [x, *(c.array for c in trace.captures)])[:2]
    finally:
        dispatcher.trace_call, HOOKS.roll = trace_call, saved
    raise AssertionError("nothing was recorded")


def faults(seed: int) -> Iterator[str]:
    """What is wrong with what comes of the program with this seed."""
    fun, source = program(seed)
    x = np.random.default_rng(seed).normal(size=(ROWS, WIDTH))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        try:
            expected = fun(x)
        except (ZeroDivisionError, ValueError):  # what Python and NumPy refuse: the greatest element of nothing
            return
        if not abs(expected) < 1e6:
            return
        roll = HOOKS.roll
        with folding(1_000_000, 1_000_000):
            plain, derivative = interpreted(fun, x, lambda *_: {})
        with folding(*((0, 2) if seed % 2 else (3000, 8))):
            value, gradient = interpreted(fun, x, roll) if seed % 20 else tg.value_and_grad(fun)(x)
    scale = 1 + np.max(np.abs(derivative))
    if not np.allclose(value, expected, rtol=1e-9) or not np.allclose(plain, expected, rtol=1e-9):
        yield f"seed {seed}: value {value}, unrolled {plain}, NumPy {expected}\n{source}"
    if not np.allclose(gradient / scale, derivative / scale, atol=1e-8):
        yield f"seed {seed}: gradient off by {np.max(np.abs(gradient - derivative)) / scale}\n{source}"


if __name__ == "__main__":
    first, last = map(int, sys.argv[1:])
    count = 0
    for seed in range(first, last):
        try:
            found = list(faults(seed))
        except Exception as error:
            found = [f"seed {seed}: {type(error).__name__}: {error}\n{program(seed)[1]}"]
        for text in found:
            count += 1
            sys.stdout.write(f"{text}\n")
    sys.stdout.write(f"{last - first} programs, {count} faults\n")
