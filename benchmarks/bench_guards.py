"""What does a call cost if its function reads state, or has an effect? At most 0.1 and 1 microseconds.

Each figure is the difference between two compiled functions with the same result. One of them reads or writes one more
thing. The minima of many short, alternating runs are compared. The peers have no such effects, so tracegrad is alone.
"""

from __future__ import annotations

import contextvars
import math
import os
import threading
import time
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.harness import Case, Run, Settings, Timed
from benchmarks.peers import need

PACKAGES = ("tracegrad",)
X = np.array([0.5, 1.0, 2.0])
BURSTS, CALLS = 60, 100

Function = Callable[[Any], Any]


class Model:
    """An object with state."""

    scale = 2.0

    def __init__(self) -> None:
        self.factor, self.steps, self.total = 2.0, 0, 0.0
        self.table: dict[str, Any] = {"factor": 2.0}
        self.weight = np.ones(3)


class Local(threading.local):
    """State of a thread."""

    factor = 2.0


FACTOR, TOTAL = 2.0, 0.0
TABLE: dict[str, Any] = {"factor": 2.0}
ITEMS = [2.0, 3.0]
HISTORY: list[Any] = []
MODEL, LOCAL, MANY = Model(), Local(), Model()
vars(MANY).update({f"p{k}": 2.0 / 44 for k in range(44)})
MODULE = types.ModuleType("benchmarked")
MODULE.factor = 2.0  # type: ignore[attr-defined]
CONTEXT: contextvars.ContextVar[float] = contextvars.ContextVar("CONTEXT", default=2.0)
STORE = np.zeros(3)


def twice(x: Any) -> Any:
    """Reads nothing."""
    return x * 2.0


def _closure() -> Function:
    factor = 2.0

    def read(x: Any) -> Any:
        return x * factor

    return read


def _written_closure() -> Function:
    last = 0.0

    def write(x: Any) -> Any:
        nonlocal last
        y = x * 2.0
        last = y
        return y

    return write


def _global(x: Any) -> Any:
    global TOTAL
    y = x * 2.0
    TOTAL = y
    return y


def _attribute(x: Any) -> Any:
    y = x * 2.0
    MODEL.total = y
    return y


def _counter(x: Any) -> Any:
    MODEL.steps += 1
    return x * 2.0


def _item(x: Any) -> Any:
    y = x * 2.0
    TABLE["last"] = y
    return y


def _append(x: Any) -> Any:
    y = x * 2.0
    HISTORY.append(y)
    return y


def _array(x: Any) -> Any:
    y = x * 2.0
    STORE[...] = y
    return y


def _environment(x: Any) -> Any:
    return x * float(os.environ.get("BENCHMARKED_FACTOR", "2"))


def _present(x: Any) -> Any:
    return x * float(os.environ["BENCHMARKED_SCALE"])


def _errors(x: Any) -> Any:
    return x * (2.0 if np.geterr()["over"] == "warn" else 3.0)


# What is read, each with the function to compare with.
READS: dict[str, tuple[Function, Function]] = {
    "a global variable": (lambda x: x * FACTOR, twice),
    "a closure variable": (_closure(), twice),
    "an attribute": (lambda x: x * MODEL.factor, twice),
    "44 attributes of an object": (lambda x: x * sum([getattr(MANY, f"p{k}") for k in range(44)]), twice),
    "an attribute of the class": (lambda x: x * MODEL.scale, twice),
    "an attribute of a module": (lambda x: x * MODULE.factor, twice),
    "a function of a module": (lambda x: x * math.sqrt(4.0), twice),
    "an item of a dict": (lambda x: x * TABLE["factor"], twice),
    "an item of a list": (lambda x: x * ITEMS[0], twice),
    "the length of a list": (lambda x: x * len(ITEMS), twice),
    "a key that is there": (lambda x: x * (2.0 if "factor" in TABLE else 3.0), twice),
    "a key that is not there": (lambda x: x * (3.0 if "absent" in TABLE else 2.0), twice),
    "an attribute that is not there": (lambda x: x * getattr(MODEL, "absent", 2.0), twice),
    "a built-in": (lambda x: x * float(2), twice),
    "an environment variable": (_present, twice),
    "no environment variable": (_environment, twice),
    "NumPy's error state": (_errors, twice),
    "a context variable": (lambda x: x * CONTEXT.get(), twice),
    "an attribute of a thread": (lambda x: x * LOCAL.factor, twice),
    "the sign of an element": (lambda x: x * 2.0 if x[0] > 0 else x, twice),
    "a captured array": (lambda x: x * MODEL.weight * 2.0, lambda x: x * np.ones(3) * 2.0),
}
EFFECTS: dict[str, Function] = {
    "an attribute": _attribute,
    "a counter": _counter,
    "an item of a dict": _item,
    "an append to a list": _append,
    "a global variable": _global,
    "a closure variable": _written_closure(),
    "an ndarray": _array,
}


def _least(run: Run) -> float:
    start = time.perf_counter()
    for _ in range(CALLS):
        run()
    HISTORY.clear()
    return (time.perf_counter() - start) / CALLS


def difference(with_it: Function, without: Function) -> Run:
    """How much longer a call of the one takes than one of the other."""
    trace = need("tracegrad").trace
    one, two = trace(with_it), trace(without)

    def run() -> Timed:
        times = [(_least(lambda: one(X)), _least(lambda: two(X))) for _ in range(BURSTS)]
        first, second = map(min, zip(*times))
        return Timed(max(first - second, 1e-10), one(X))  # ratios need a time

    return run


def cases(settings: Settings) -> list[Case]:
    os.environ["BENCHMARKED_SCALE"] = "2"
    os.environ.pop("BENCHMARKED_FACTOR", None)
    results = []
    for name, (one, two) in READS.items():
        results.append(
            Case(
                f"guard: {name}",
                {"tracegrad": lambda one=one, two=two: difference(one, two)},  # type: ignore[misc]
                lambda: twice(X),
                once=True,
                brief=True,
            )
        )
    for name, one in EFFECTS.items():
        results.append(
            Case(
                f"effect: {name}",
                {"tracegrad": lambda one=one: difference(one, twice)},  # type: ignore[misc]
                lambda: twice(X),
                once=True,
                brief=True,
            )
        )
    return results
