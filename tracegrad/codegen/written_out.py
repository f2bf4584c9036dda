"""Reductions over a few elements that lie apart, as the windows of a pooling, written out.

Such loops would stand around the innermost one, and a result be combined in memory with each element of its window.
Written out, an element of the result is a few loads and what combines them.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import Any

from tracegrad.codegen.loops import Compute, Index, Kernel, Load, Operand, Reduce, Store
from tracegrad.codegen.poly import Poly

__all__ = ["write_out_reductions"]

MOST = 64  # instructions
MOST_TIMES = 16


def write_out_reductions(kernel: Kernel) -> None:
    """Leave out the loops of a kernel that all of its results reduce over, if these are short, in place.

    What they leave is the same for each turn of theirs, one after the other.
    """
    reductions = [x for x in kernel.body if isinstance(x, Reduce)]
    short = [loop for loop in kernel.loops if loop.extent.value is not None] if reductions else []
    if not short or not _is_plain(kernel.body):
        return
    short = [loop for loop in short if _is_apart(kernel, loop.var) and _is_alike(kernel, reductions, loop.var)]
    extents = [loop.extent.value or 0 for loop in short]
    times = math.prod(extents)
    few = 1 < times <= MOST_TIMES and times * len(kernel.body) <= MOST
    if not few or len(short) == len(kernel.loops):
        return
    kernel.body[:] = _Copies(kernel).written({loop.var for loop in short}, extents, [loop.var for loop in short])
    kernel.loops[:] = [loop for loop in kernel.loops if loop not in short]
    kernel.cost *= times


def _is_plain(body: list[Any]) -> bool:
    """Whether a kernel computes, and reduces each result to an element of its own."""
    for x in body:
        if not isinstance(x, Compute | Load | Index | Reduce) or (isinstance(x, Reduce) and x.scatters):
            return False
    return True


def _is_apart(kernel: Kernel, var: str) -> bool:
    """Whether no access runs along memory with `var`, or all can run along another loop."""
    accesses = [x for x in kernel.body if isinstance(x, Load | Reduce)]
    if not any(x.address.coefficient(var).value in (-1, 1) for x in accesses):
        return True
    others = [loop.var for loop in kernel.loops if loop.var != var]
    return any(all(_runs_along(x, other) for x in accesses) for other in others)


def _runs_along(x: Load | Reduce, var: str) -> bool:
    step = x.address.coefficient(var)
    return step == 1 if isinstance(x, Reduce) else step in (0, 1)


def _is_alike(kernel: Kernel, reductions: list[Reduce], var: str) -> bool:
    """Whether all results reduce over a loop; or over all that are not short, and have an element for each turn.

    A loop that can be one with another is left to that.
    """
    if all(var in x.over for x in reductions):
        return True
    moves = [x for x in kernel.body if isinstance(x, Load | Reduce)]
    for loop in kernel.loops:
        if all(x.address.coefficient(var) == x.address.coefficient(loop.var) * loop.extent for x in moves):
            return False
    long = {loop.var for loop in kernel.loops if loop.extent.value is None}
    return bool(long) and all(var not in x.over and long == {*x.over} for x in reductions)


class _Copies:
    """The body of a kernel, once for each turn of some of its loops."""

    def __init__(self, kernel: Kernel):
        self.kernel = kernel
        self.body: list[Any] = []
        self.count = 0
        self.loads: dict[tuple[str, Poly], Operand] = {}
        self.totals: dict[tuple[int, Poly], Operand] = {}

    def written(self, gone: set[str], extents: list[int], names: list[str]) -> list[Any]:
        for turn in product(*map(range, extents)):
            self._copy({name: Poly.constant(i) for name, i in zip(names, turn)})
        for (k, address), total in self.totals.items():
            x = self.kernel.body[k]
            over = tuple(var for var in x.over if var not in gone)
            reduced = replace(x, address=address, value=total, over=over)
            self.body.append(reduced if over else Store(x.buffer, address, total))
        return self.body

    def _copy(self, at: dict[str, Poly]) -> None:
        names: dict[str, Operand] = {}

        def moved(p: Poly) -> Poly:
            return p.substitute(at | {name: Poly.symbol(x.name) for name, x in names.items()})

        def named(x: Operand) -> Operand:
            return names.get(x.name, x)

        for k, x in enumerate(self.kernel.body):
            match x:
                case Load():
                    key = (x.buffer, moved(x.address))
                    if key not in self.loads:
                        self.loads[key] = self._emit(Load(self._new(x.out), *key))
                    names[x.out.name] = self.loads[key]
                case Index():
                    names[x.out.name] = self._emit(Index(self._new(x.out), moved(x.value)))
                case Compute():
                    args = tuple(map(named, x.args))
                    names[x.out.name] = self._emit(Compute(self._new(x.out), x.op, args, x.rounded))
                case Reduce():
                    self._add((k, moved(x.address)), x.combiner, named(x.value))

    def _add(self, k: tuple[int, Poly], combiner: str, value: Operand) -> None:
        before = self.totals.get(k)
        self.totals[k] = value if before is None else self._emit(Compute(self._new(value), combiner, (before, value)))

    def _new(self, like: Operand) -> Operand:
        self.count += 1
        return Operand(f"v{self.count - 1}", like.dtype)

    def _emit(self, x: Any) -> Operand:
        self.body.append(x)
        out: Operand = x.out
        return out
