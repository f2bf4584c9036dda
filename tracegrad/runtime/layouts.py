"""How the arrays of a call lie in memory, where that is not row by row; and graphs of arrays that do.

A program takes arrays in row-major order. One whose axes only stand in another order, as in Fortran's, is in that order
when it is transposed, which costs nothing: a program of its own takes it so (`laid`), and reads it along memory. What
has gaps is copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tracegrad.avals import Aval
from tracegrad.ir import Graph, build, replay
from tracegrad.ops.linear import transpose
from tracegrad.runtime.program import conformed
from tracegrad.trace.memory import Layout

__all__ = ["Lie", "Lies", "copied", "laid", "lies_of"]


class Lie(NamedTuple):
    """How an array lies that is not in row-major order: its axes from the outermost to the innermost, if it has no
    gaps; and its strides, where a trace depends on them."""

    axes: tuple[int, ...] | None
    strides: tuple[int, ...] | None
    copied: bool = False

    def rows(self, x: Any) -> Any:
        """The array as a program takes it."""
        return conformed(x if self.axes is None or self.copied else x.transpose(self.axes))

    def text(self, x: str) -> str:
        """Code for that."""
        if self.axes is None or self.copied:
            return f"rows({x})"
        return f"{x}.T" if self.axes == tuple(range(len(self.axes)))[::-1] else f"{x}.transpose({self.axes})"

    def checks(self, x: str) -> list[str]:
        """Code that is true for arrays that lie so, as far as the program does not see it."""
        found = [f"type({x}) is ndarray"]
        if self.axes is None:
            found.append(f"not {x}.flags.forc")  # for these others are better
        if self.strides is not None and (self.axes is None or self.copied):
            found.append(f"{x}.strides == {self.strides}")
        return found


Lies = tuple[Lie | None, ...]


def lies_of(inputs: Sequence[Any], layouts: Sequence[Layout]) -> Lies:
    """How each array lies that is not in row-major order; nothing if all are. `layouts` are what the trace assumes."""
    found = [None if type(x) is not np.ndarray or x.flags.c_contiguous else _axes(x) for x in inputs]
    if found.count(None) == len(found):
        return ()
    asked = {layout.number for layout in layouts}
    return tuple(
        [
            None if axes is None else Lie(axes or None, x.strides if i in asked else None)
            for i, (x, axes) in enumerate(zip(inputs, found))
        ]
    )


def _axes(x: np.ndarray[Any, Any]) -> tuple[int, ...]:
    """The order in which the axes have no gaps; none if there is no such order."""
    axes = tuple(sorted(range(x.ndim), key=lambda k: -x.strides[k]))
    return axes if x.transpose(axes).flags.c_contiguous else ()


def copied(lies: Lies) -> Lies:
    """The same, but for programs that take row-major order only."""
    return tuple([lie and lie._replace(copied=True) for lie in lies])


def laid(graph: Graph, lies: Lies) -> Graph:
    """The graph of the arrays in row-major order, where these have no gaps."""
    every = [lie.axes if lie is not None else None for lie in lies]

    def computed(*given: Any) -> Any:
        found = [x if axes is None else _back(x, axes) for x, axes in zip(given, every)]
        return replay(graph, found)[0]

    avals = [x.aval if axes is None else _turned(x.aval, axes) for x, axes in zip(graph.inputs, every, strict=True)]
    return build(computed, avals)


def _turned(aval: Aval, axes: Sequence[int]) -> Aval:
    return Aval(tuple([aval.shape[k] for k in axes]), aval.dtype)


def _back(x: Any, axes: Sequence[int]) -> Any:
    return transpose(x, perm=tuple([axes.index(k) for k in range(len(axes))]))
