"""Recognize induction variables: compute a carry with a constant integer step from the loop counter.

The iterations then do not depend on each other through the carry. Indices become functions of the counter, and the
final value is known where the loop is recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tracegrad.analysis.trip_count import counters, in_iteration
from tracegrad.avals import aval_of
from tracegrad.ir import Graph, build, replay
from tracegrad.ops.elementwise.table import add, floor_divide, subtract
from tracegrad.settings import disabled
from tracegrad.utils.lazy_dataclass import record

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Operand


@record(frozen=True, slots=True)
class ReducedLoop:
    """A loop without induction variables. The inputs of its body are the carries that are `carries`, the counter, the
    constants, and the initial values `begin` of the induction variables. `last` are the final values."""

    body: Graph
    carries: list[int]
    begin: list[Any]
    last: dict[int, Any]

    def all(self, results: tuple[Operand, ...]) -> list[Any]:
        """The final values of all carries, given the final values of the remaining ones."""
        known = dict(zip(self.carries, results)) | self.last
        return [known[k] for k in range(len(known))]


def reduce_induction(body: Graph, inits: Sequence[Any], numbers: range) -> ReducedLoop:
    """The loop over these numbers with a body whose inputs are carries, the counter and constants."""
    n = len(inits)
    steps = {} if disabled("induction-variables") else counters(body, n)
    remaining = [k for k in range(n) if k not in steps]
    if not steps:
        return ReducedLoop(body, remaining, [], {})
    begin = [inits[k] for k in steps]

    def iteration(*args: Operand) -> list[Any]:
        number, constants, starts = args[len(remaining)], args[len(remaining) + 1 : -len(begin)], args[-len(begin) :]
        at = number
        if (numbers.start, numbers.step) != (0, 1):
            at = floor_divide(subtract(number, numbers.start), numbers.step)
        values = dict(zip(remaining, args))
        values |= {k: in_iteration(start, at, step) for (k, step), start in zip(steps.items(), starts)}
        result, _ = replay(body, [*(values[k] for k in range(n)), number, *constants])
        return [result[k] for k in remaining]

    avals = [x.aval for x in body.inputs]
    inputs = [*(avals[k] for k in remaining), *avals[n:], *map(aval_of, begin)]
    last = {k: add(inits[k], len(numbers) * step) for k, step in steps.items()}
    return ReducedLoop(build(iteration, inputs), remaining, begin, last)
