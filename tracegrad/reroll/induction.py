"""What counts with the counter of a loop: a carry to which each turn adds the same integer is computed from that.

So the turns of the loop do not wait for it, what it indexes is indexed by the counter, and the number it ends with is
known where the loop is recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracegrad.avals import aval_of
from tracegrad.control.trip_count import counters, in_turn
from tracegrad.ir import Graph, build, replay
from tracegrad.ops.elementwise.table import add, floor_divide, subtract
from tracegrad.utils.lazy_dataclass import record

__all__ = ["Counted", "counted"]


@record(frozen=True, slots=True)
class Counted:
    """A loop without the carries that count. The inputs of its body are the carries that are `kept`, the number, the
    constants, and what those that count `begin` with. `last` are the values behind the loop."""

    body: Graph
    kept: list[int]
    begin: list[Any]
    last: dict[int, Any]

    def all(self, found: Sequence[Any]) -> list[Any]:
        """The last values of all carries, given those of the carries that are kept."""
        known = dict(zip(self.kept, found)) | self.last
        return [known[k] for k in range(len(known))]


def counted(body: Graph, inits: Sequence[Any], numbers: range) -> Counted:
    """The loop over these numbers with a body whose inputs are carries, the number and constants."""
    n = len(inits)
    steps = counters(body, n)
    kept = [k for k in range(n) if k not in steps]
    if not steps:
        return Counted(body, kept, [], {})
    begin = [inits[k] for k in steps]

    def turn(*args: Any) -> list[Any]:
        number, behind, starts = args[len(kept)], args[len(kept) + 1 : -len(begin)], args[-len(begin) :]
        at = number
        if (numbers.start, numbers.step) != (0, 1):
            at = floor_divide(subtract(number, numbers.start), numbers.step)
        values = dict(zip(kept, args))
        values |= {k: in_turn(start, at, step) for (k, step), start in zip(steps.items(), starts)}
        found, _ = replay(body, [*(values[k] for k in range(n)), number, *behind])
        return [found[k] for k in kept]

    avals = [x.aval for x in body.inputs]
    inputs = [*(avals[k] for k in kept), *avals[n:], *map(aval_of, begin)]
    last = {k: add(inits[k], len(numbers) * step) for k, step in steps.items()}
    return Counted(build(turn, inputs), kept, begin, last)
