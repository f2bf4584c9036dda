"""What `for` loops over a `range` count with in traced code: the position can be seen, and become a traced number.

A long loop is *folded*: it counts with a traced number from the beginning, and asks at each turn whether there is
another one. What happens in a turn is then the same for all, and one loop is made of it when it has been seen to be so
(`tracegrad.reroll.online.loop_closing`). Until then loops count as Python does, since short ones are better recorded as
they are.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from itertools import count
from operator import index
from types import CodeType
from typing import Any
from weakref import WeakValueDictionary

from tracegrad.ops.elementwise.table import greater, less
from tracegrad.ops.shape.linear import fresh, full
from tracegrad.trace.builder.abort import FOLDED, TURN_BY_TURN, WITHIN
from tracegrad.trace.builder.builder import TraceBuilder, current_trace
from tracegrad.trace.loops.long_loop_hints import Look, look, note_long, was_long
from tracegrad.trace.ragged.symbolic_size import apart, is_of_a_loop
from tracegrad.trace.values.number import Number
from tracegrad.trace.values.python_arithmetic import bounded, bounds

__all__ = ["FEWEST_AROUND", "Counter", "counter_of", "counting", "fold_around", "number_of_loop"]

# A loop is folded if its turns have come to so many nodes, and there are a part of that to come, or it has run before;
# or if one within or around it is folded. It has so many turns then, or around one so many. If its turns ask for values
# it is folded too, and has so many turns around none, or within one. After three turns it is folded if all seem to come
# to that part of so many nodes; what all turns share is recorded in the first of them, which tells nothing of the rest.
MOST_NODES, FEWEST_TURNS, FEWEST_AROUND, FEWEST_WITHIN, PART, SEEN = 3000, 8, 4, 3, 0.3, 3


class Counter:
    """The iterator over a range, which is known by the frame and the instruction that asks it for the next number."""

    __slots__ = (
        "__weakref__", "at", "begun", "builder", "first", "folded", "instruction", "looked", "looped", "number",
        "span", "start", "step", "stop", "turns",
    )  # fmt: skip

    def __init__(self, builder: TraceBuilder, start: Any, stop: Any, step: int):
        self.builder, self.start, self.stop, self.step = builder, start, stop, step
        self.at: Any = start
        self.turns, self.folded = 0, False
        self.looped = False  # whether a loop was made of turns: how many there were is not known then
        self.begun = len(builder.nodes)
        self.first = self.begun  # where the first turn has ended
        self.looked: Look = ()  # like what it began, if it is known then that it may be long
        self.instruction: tuple[CodeType, int] | None = None
        self.number = 0  # those of loops around it are less

    def __iter__(self) -> Counter:
        return self

    def __next__(self) -> Any:
        if self.instruction is None:
            self._begin(sys._getframe(1))
        return self.item(self._folded_next() if self.folded else self._next())

    def item(self, at: Any) -> Any:
        """What the turn with this number is given."""
        return at

    @property
    def shows_all(self) -> bool:
        """Whether nothing but the position differs from turn to turn."""
        return True

    @property
    def held(self) -> tuple[Any, ...]:
        """The arrays that turns are given pieces of."""
        return ()

    def _next(self) -> Any:
        at = self.at
        if self.turns == 1:
            self.first = len(self.builder.nodes)
        elif self.turns > 1 and self._is_long and self._is_better_folded:
            note_long(self.key(FOLDED), self.looked, self.length or 0)
            raise self.builder.restarts(self.key(FOLDED))
        if not (at < self.stop if self.step > 0 else at > self.stop):
            if self._may_be_folded:
                self.builder.turned.setdefault(self.key(FOLDED), []).append(range(self.begun, len(self.builder.nodes)))
            raise StopIteration
        self.turns += 1
        self.at = at + self.step
        return at

    def _begin(self, frame: Any) -> None:
        self.instruction, self.number = (frame.f_code, frame.f_lasti), next(_NUMBERS)
        _COUNTERS[id(frame), frame.f_lasti] = self
        if self._may_fold and (self._is_wanted_folded or self._is_foreseen(frame)):
            self._fold()
        else:
            self.at, self.stop = index(self.at), index(self.stop)

    @property
    def length(self) -> int | None:
        """The number of turns, if that is known."""
        known = type(self.start) is int and type(self.stop) is int
        return len(range(self.start, self.stop, self.step)) if known else None

    @property
    def is_sure(self) -> bool:
        """Whether it is known, of any numbers it may begin and end with, whether there is another turn now."""
        if self.looped:
            return False
        (low, high), (a, b), (c, d) = self.span[0], bounds(self.start), bounds(self.stop)
        gone = self.turns * self.step
        low, high = max(low, c - b) - gone, min(high, d - a) - gone
        return low > 0 or high <= 0 if self.step > 0 else low >= 0 or high < 0

    def fold_around(self) -> None:
        """Begin the trace again with this loop folded, if it is not: one within it is, or its turns ask for values."""
        length = self.length
        if not self.folded and length is not None and length >= FEWEST_AROUND and self._may_fold:
            raise self.builder.restarts(self.key(FOLDED))

    def asks(self) -> None:
        """A turn asks for a value. Another one might have another answer, and a few would make a trace for each pattern
        of them, or too many ways through a turn of the loop around."""
        if self.turns > 1 and not self.folded:
            if FEWEST_WITHIN <= (self.length or 0) < FEWEST_TURNS and self._is_within and self._may_fold:
                raise self.builder.restarts(self.key(WITHIN))
            self.fold_around()

    # -- whether to fold ---------------------------------------------------------------------------
    def key(self, what: str) -> Hashable:
        """What is `varying` of this loop."""
        assert self.instruction is not None
        return (what, *self.instruction)

    @property
    def _may_fold(self) -> bool:
        builder = self.builder
        free = builder.open and builder.inner is None and builder.find_circles is not None and not builder.has_tensors
        return free and self.key(TURN_BY_TURN) not in builder.world.varying

    @property
    def _is_wanted_folded(self) -> bool:
        length = self.length
        varying = self.builder.world.varying
        if length is None or self.key(FOLDED) in varying:
            return length != 0
        return (length >= FEWEST_TURNS or self.key(WITHIN) in varying) and self._is_within

    def _is_foreseen(self, frame: Any) -> bool:
        """Whether one like it was long. It is `varying` then, so it must not have begun before in this trace."""
        builder, key, length = self.builder, self.key(FOLDED), self.length or 0
        if length < FEWEST_TURNS or key in builder.unfolded:
            builder.unfolded.add(key)
            return False
        builder.unfolded.add(key)
        self.looked = look(frame)
        if not builder.foresees or not was_long(key, self.looked, length):
            return False
        builder.world.varying.add(key)
        return True

    @property
    def _is_within(self) -> bool:
        """Whether a loop around this one is folded."""
        return any(x.folded and x.number < self.number for x in _under_way(self.builder))

    @property
    def _nodes(self) -> int:
        """How much was recorded in turns of this loop, and when it ran before."""
        return len(self.builder.nodes) - self.begun + sum(map(len, self.builder.turned.get(self.key(FOLDED), ())))

    @property
    def _is_long(self) -> bool:
        """Whether its turns have come to many nodes, or all of them seem to come to as many as are worth it."""
        of_all = self._per_turn * (self.length or 0)
        return self._nodes > MOST_NODES or (self.turns == SEEN and of_all > PART * MOST_NODES)

    @property
    def _per_turn(self) -> float:
        """How much a turn behind the first has recorded."""
        return (len(self.builder.nodes) - self.first) / (self.turns - 1)

    @property
    def _may_be_folded(self) -> bool:
        return (self.length or 0) >= FEWEST_TURNS and self._may_fold and not self.builder.told >= self.begun

    @property
    def _is_better_folded(self) -> bool:
        # A loop of the fewest turns and a few more is as well recorded turn by turn.
        turns_left = (self.length or 0) - max(self.turns, FEWEST_TURNS)
        goes_on = turns_left * self._per_turn > PART * MOST_NODES
        return self._may_be_folded and (goes_on or self.key(FOLDED) in self.builder.turned)

    # -- folded ------------------------------------------------------------------------------------
    def _limits(self) -> tuple[int, int]:
        """The least and the greatest number that is counted."""
        (low, high), (first, last) = bounds(self.start), bounds(self.stop)
        return (low, last - 1) if self.step > 0 else (first + 1, high)

    def _fold(self) -> None:
        # Between which numbers lies how far it counts, and the nodes that this is computed from.
        self.span = apart(self.stop, self.start)
        low, high = self._limits()
        past = low + min(self.step, 0), high + max(self.step, 0)
        start = bounds(self.start)
        limits = min(past[0], start[0]), max(past[1], start[1])
        self.at, self.folded = number_of_loop(self.builder, self.start, *limits), True

    def _folded_next(self) -> Any:
        at = self.at
        goes_on = less(at, self.stop) if self.step > 0 else greater(at, self.stop)
        if not self.builder.find_circles(self.builder, within=True).turn(self, goes_on.node):
            raise StopIteration
        at = self.at
        bounded(at, *self._limits())
        self.turns += 1
        self.at = at + self.step
        return at


# Those of loops under way: a loop that begins enters its own.
_COUNTERS: WeakValueDictionary[tuple[int, int], Counter] = WeakValueDictionary()
_NUMBERS = count(1)


def counter_of(frame: Any, instruction: int) -> Counter | None:
    """What the loop counts with that this instruction of a frame begins the turns of."""
    return _COUNTERS.get((id(frame), instruction))


def _under_way(builder: TraceBuilder) -> list[Counter]:
    return [x for x in list(_COUNTERS.values()) if x.builder is builder]


def fold_around(builder: TraceBuilder, inner: Counter | None) -> None:
    """Fold the loops around one that is folded, or that asks for values."""
    for each in _under_way(builder):
        if each is not inner:
            each.fold_around()


def tell(instead: Callable[[], None] | None = None) -> None:
    """Before something is told: loops that are folded are recorded turn by turn then, unless `instead` ends the
    trace."""
    builder = current_trace()
    if builder is None or not builder.open:
        return
    builder.told = len(builder.nodes)
    folded = [x for x in _under_way(builder) if x.folded and x.turns]
    if folded:
        if instead is not None:
            instead()
        raise builder.restarts(folded[-1].key(TURN_BY_TURN))


def counting(*args: Any) -> Any:
    """`range`, as `for` loops of traced code call it."""
    builder = current_trace()
    if builder is None or not builder.open:
        return range(*args)
    start, stop, step = (0, *args, 1) if len(args) == 1 else (*args, 1) if len(args) == 2 else args
    if builder.inner is None and type(step) is int and step and any(map(is_of_a_loop, (start, stop))):
        return Counter(builder, start, stop, step)
    numbers = range(*args)
    return Counter(builder, numbers.start, numbers.stop, numbers.step)


# -- numbers that differ from turn to turn -------------------------------------------------------------------------
def number_of_loop(builder: TraceBuilder, x: Any, low: int, high: int) -> Number:
    """A traced number for one of Python's that differs from turn to turn; an integer has these bounds."""
    if not isinstance(x, Number):
        x = full(shape=(), value=x, dtype="int64" if type(x) is int else "float64")
    node = fresh(x, tag=builder.new_tag()).node
    if node.aval.dtype.kind == "i":
        builder.bounds[node] = low, high
        builder.of_loops.add(node)
    return Number(builder, node)
