"""Callbacks of solvers: graphs compiled as separate programs, and NumPy substitutes for them.

A solver calls a function thousands of times with the same captured values. If its machine code is not cached, NumPy
evaluates the function until the time equals that of compiling (`tracegrad.runtime.execution.tiers`). The calls of
several solutions count together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.ir import Graph, replayer
from tracegrad.locks import cached_property
from tracegrad.runtime.execution.program import MISS, Program, compile_program, conformed
from tracegrad.settings import jit_disabled, settings, waits_for_compiler
from tracegrad.typing import ArrayLike

if TYPE_CHECKING:
    from tracegrad.avals import Aval
    from tracegrad.typing import NDArray


class Callback:
    """Graph that a solver calls, compiled once as a program.

    The first `count` inputs are arguments: float64 arrays, or numbers if they have no axes. The other inputs are
    captured values, read at each call. `api_name` is the name of the solver.
    """

    def __init__(self, graph: Graph, api_name: str, count: int = 1):
        self.graph, self.api_name, self.count = graph, api_name, count
        self._arguments = graph.avals[:count]

    @cached_property
    def program(self) -> Program:
        """Return the program; NumPy may evaluate it until its machine code is ready."""
        kinds = tuple([_kind(x.ndim) if i < self.count else "array" for i, x in enumerate(self.graph.avals)])
        first_call = "iterations" if settings.first_call == "replay" else settings.first_call
        name = f"a function that {self.api_name} calls"
        return compile_program(self.graph, kinds, True, name, first_call=first_call, optimize=settings.optimize)

    @cached_property
    def _by_numpy(self) -> Callable[[Sequence[NDArray]], list[NDArray]]:
        return replayer(self.graph)

    def at(self, values: Sequence[ArrayLike]) -> Callable[..., Any]:
        """Return the function of the arguments, for these captured values.

        The function returns new arrays, or a number. Errors of ops name the user's line.
        """
        if jit_disabled():
            args = [np.asarray(x) for x in values]
            return lambda *xs: _owned_copy(self._by_numpy([*(np.asarray(x, np.float64) for x in xs), *args])[0])
        program, rest = self.program, [conformed(x) for x in values]
        number = not self._arguments[0].ndim

        def call(x: NDArray | float, *others: NDArray | float) -> object:
            result = program.entry(float(x) if number else x, *others, *rest)
            return program.run([*map(_argument, (x, *others), self._arguments), *rest]) if result is MISS else result

        return call


class Substitute:
    """Graph that computes the result of a SciPy solver.

    SciPy computes the first call, and the compiled graph computes later calls. The first `numbers` inputs are floats,
    and there are several outputs.
    """

    def __init__(self, make: Callable[[], Graph], api_name: str, numbers: int):
        self._make, self.api_name, self.numbers, self._was_called = make, api_name, numbers, False

    @cached_property
    def program(self) -> Program:
        """Return the program."""
        graph = self._make()
        kinds = tuple(["float"] * self.numbers + ["array"] * (len(graph.inputs) - self.numbers))
        first_call = "background" if settings.first_call == "background" else "compile"
        return compile_program(graph, kinds, False, self.api_name, first_call=first_call, optimize=settings.optimize)

    def compute(self, *leaves: object) -> Sequence[NDArray] | None:
        """Compute the outputs; None if SciPy has to compute them."""
        waits = settings.first_call == "compile" or waits_for_compiler()
        if jit_disabled() or not (self._was_called or waits):
            self._was_called = True
            return None
        tier: Any = self.program.tier
        if tier is not None:  # another thread compiles
            tier.begin(self.program)
            return None
        result: Sequence[NDArray] | None = self.program.run([conformed(x) for x in leaves])
        return result


def _kind(ndim: int) -> str:
    return "array" if ndim else "float"


def _argument(x: Any, aval: Aval) -> object:
    """Convert an argument for a program."""
    return conformed(np.asarray(x, np.float64).reshape(aval.shape)) if aval.ndim else float(x)


def _owned_copy(x: NDArray) -> object:
    return np.array(x) if x.ndim else x[()]
