"""What counts with the counter of a loop: a carry to which each turn adds the same integer is computed from that.

So the turns of the loop do not wait for it, what it indexes is indexed by the counter, and the number it ends with is
known where the loop is recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracegrad.avals import aval_of, is_literal
from tracegrad.control.counters import counters, range_of
from tracegrad.ir import Graph, Node, Value, build, replay
from tracegrad.ops.elementwise import add, floor_divide, minimum, multiply, subtract
from tracegrad.ops.linear import full
from tracegrad.ops.op import Op
from tracegrad.records import record

__all__ = ["Counted", "counted"]


@record(frozen=True, slots=True)
class Counted:
    """A loop without the carries that count. The inputs of its body are the carries that are `kept`, the number, the
    constants, and what those that count begin with, if that is none: `begin`. `last` are the values behind the loop."""

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
    starts = {k: _known(inits[k]) for k in steps}
    begin = {k: inits[k] for k, x in starts.items() if x is None}
    last = {k: _counted_to(inits[k] if k in begin else starts[k], len(numbers), step) for k, step in steps.items()}
    ranges: dict[Node, Any] = {}

    def turn(*args: Any) -> list[Any]:
        number, behind = args[len(kept)], args[len(kept) + 1 : len(args) - len(begin)]
        ranges[number.node] = min(numbers[0], numbers[-1]), max(numbers[0], numbers[-1])
        at = number if (numbers.start, numbers.step) == (0, 1) else _turn_of(number, numbers)
        given = dict(zip(begin, args[len(args) - len(begin) :])) | {k: x for k, x in starts.items() if x is not None}
        values = dict(zip(kept, args)) | {k: _counted_to(given[k], at, step) for k, step in steps.items()}
        found, _ = replay(body, [*(values[k] for k in range(n)), number, *behind])
        return [found[k] for k in kept]

    def shorter(op: Op, operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """What is never above a bound needs none."""
        below = op is minimum and type(operands[1]) is int and range_of(operands[0], ranges)[1] <= operands[1]
        return operands[0] if below else None

    avals = [x.aval for x in body.inputs]
    inputs = [*(avals[k] for k in kept), *avals[n:], *map(aval_of, begin.values())]
    return Counted(build(turn, inputs, shorter), kept, list(begin.values()), last)


def _known(x: Any) -> int | None:
    """The integer that a value is known to be."""
    node = x.node if isinstance(x, Value) else x
    if isinstance(node, Node) and node.op is full:
        node = dict(node.params)["value"]
    return node if is_literal(node) and type(node) is int else None


def _turn_of(number: Any, numbers: range) -> Any:
    return floor_divide(subtract(number, numbers.start), numbers.step)


def _counted_to(start: Any, turns: Any, step: int) -> Any:
    """What has counted from here on for so many turns."""
    if type(turns) is int:
        more = turns * step
        return full(shape=(), value=start + more, dtype="int64") if type(start) is int else add(start, more)
    more = turns if step == 1 else multiply(turns, step)
    return more if type(start) is int and not start else add(more, start)
