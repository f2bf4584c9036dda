"""Graphs as programs of their own, where a solver needs them: of what it calls, and of what takes its place.

A solver calls a function thousands of times with values that stay as they are. Where its machine code is not known,
NumPy answers until that has taken as long as compiling it does (`tracegrad.runtime.execution.tiers`), in this solution
or a later one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracegrad.ir import Graph, turns
from tracegrad.locks import cached_property
from tracegrad.runtime.execution.program import MISS, Program, compile_program, conformed
from tracegrad.settings import jit_disabled, settings, waits_for_compiler

__all__ = ["Callback", "Substitute"]


class Callback:
    """A graph of `count` arguments, numbers (f64 without axes) and arrays of float64, and of values; `what` calls it.

    It is compiled once, whatever the values are: they are read at each call.
    """

    def __init__(self, graph: Graph, what: str, count: int = 1):
        self.graph, self.what, self.count = graph, what, count
        self._arguments = graph.avals[:count]

    @cached_property
    def program(self) -> Program:
        """What computes it, once the machine code is known."""
        kinds = tuple([_kind(x.ndim) if i < self.count else "array" for i, x in enumerate(self.graph.avals)])
        first_call = "turns" if settings.first_call == "replay" else settings.first_call
        name = f"a function that {self.what} calls"
        return compile_program(self.graph, kinds, True, name, first_call=first_call, optimize=settings.optimize)

    @cached_property
    def _by_numpy(self) -> Callable[[Sequence[Any]], list[Any]]:
        return turns(self.graph)

    def at(self, values: Sequence[Any]) -> Callable[..., Any]:
        """The function of the arguments, for these values. It gives arrays of its own, or a number. What an op raises
        names the user's line."""
        if jit_disabled():
            given = [np.asarray(x) for x in values]
            return lambda *xs: _own(self._by_numpy([*(np.asarray(x, np.float64) for x in xs), *given])[0])
        program, rest = self.program, [conformed(x) for x in values]
        number = not self._arguments[0].ndim

        def call(x: Any, *more: Any) -> Any:
            found = program.entry(float(x) if number else x, *more, *rest)
            return program.run([*map(_argument, (x, *more), self._arguments), *rest]) if found is MISS else found

        return call


class Substitute:
    """A graph that computes what a solver of SciPy's does. SciPy answers the first call, others the compiled graph; its
    first `numbers` inputs are floats, its outputs several."""

    def __init__(self, make: Callable[[], Graph], what: str, numbers: int):
        self._make, self.what, self.numbers, self._begun = make, what, numbers, False

    @cached_property
    def program(self) -> Program:
        """What computes it."""
        graph = self._make()
        kinds = tuple(["float"] * self.numbers + ["array"] * (len(graph.inputs) - self.numbers))
        first_call = "background" if settings.first_call == "background" else "compile"
        return compile_program(graph, kinds, False, self.what, first_call=first_call, optimize=settings.optimize)

    def answer(self, *leaves: Any) -> Any:
        """The outputs; None where SciPy is to answer."""
        waits = settings.first_call == "compile" or waits_for_compiler()
        if jit_disabled() or not (self._begun or waits):
            self._begun = True
            return None
        tier: Any = self.program.tier
        if tier is not None:  # another thread compiles
            tier.begin(self.program)
            return None
        return self.program.run([conformed(x) for x in leaves])


def _kind(ndim: int) -> str:
    return "array" if ndim else "float"


def _argument(x: Any, aval: Any) -> Any:
    """An argument as a program takes it."""
    return conformed(np.asarray(x, np.float64).reshape(aval.shape)) if aval.ndim else float(x)


def _own(x: Any) -> Any:
    return np.array(x) if x.ndim else x[()]
