"""Iterate over `range` in traced `for` loops, with a traced induction variable if the loop is long.

A long loop is *folded*: it counts with a traced number from the beginning, and the test for another iteration is part
of the trace. The iterations then record the same nodes, so `tracegrad.reroll.online.loop_detector` can make them
one loop. Short loops count as Python does, because recording every iteration is faster for them.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from operator import index
from types import CodeType
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from tracegrad.cpython.frames import frame_at, instruction_of
from tracegrad.ir.builder import node_of
from tracegrad.ops.elementwise.table import greater, less
from tracegrad.ops.shape.linear import fresh, full
from tracegrad.settings import disabled
from tracegrad.target.tuning import TUNING
from tracegrad.trace.builder.builder import TraceBuilder, current_trace
from tracegrad.trace.builder.facts import LoopFact, LoopFactKind
from tracegrad.trace.builder.hooks import HOOKS
from tracegrad.trace.loops.long_loop_hints import LoopSignature, loop_signature, note_long, was_long
from tracegrad.trace.ragged.symbolic_size import difference_bounds, is_of_a_loop
from tracegrad.trace.values.number import Number
from tracegrad.trace.values.python_arithmetic import bounded, bounds

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Operand


MAX_RECORDED_NODES = TUNING.loops.max_recorded_nodes
MIN_FOLDED = TUNING.loops.min_folded
MIN_FOLDED_AROUND = TUNING.loops.min_folded_around
MIN_FOLDED_WITHIN = TUNING.loops.min_folded_within
MIN_REMAINING_PART = TUNING.loops.min_remaining_ratio
ESTIMATED_AFTER = TUNING.loops.estimated_after


class Counter:
    """Iterator over a range; its loop is identified by the frame and the instruction that requests the next number."""

    __slots__ = (
        "__weakref__",
        "at",
        "builder",
        "first",
        "first_node",
        "folded",
        "instruction",
        "iterations",
        "looked",
        "looped",
        "number",
        "span",
        "start",
        "step",
        "stop",
    )

    def __init__(self, builder: TraceBuilder, start: Any, stop: Any, step: int):
        self.builder, self.start, self.stop, self.step = builder, start, stop, step
        self.at: Any = start
        self.iterations, self.folded = 0, False
        self.looped = False  # whether iterations were closed into a loop, so their number is unknown
        self.first_node = len(builder.nodes)
        self.first = self.first_node  # the number of nodes at the end of the first iteration
        self.looked: LoopSignature = ()  # the kinds of the variables at the beginning, if the loop may be long
        self.instruction: tuple[CodeType, int] | None = None
        self.number = 0  # greater than the numbers of enclosing loops

    def __iter__(self) -> Counter:
        return self

    def __next__(self) -> Any:
        if self.instruction is None:
            self._begin(frame_at(1))
        return self.item(self._folded_next() if self.folded else self._next())

    def item(self, at: Any) -> Any:
        """The item of the iteration with this number."""
        return at

    @property
    def shows_all(self) -> bool:
        """Whether iterations differ only in the position."""
        return True

    @property
    def held(self) -> tuple[Any, ...]:
        """The arrays that items are read from."""
        return ()

    def _next(self) -> Any:
        at = self.at
        if self.iterations == 1:
            self.first = len(self.builder.nodes)
        elif self.iterations > 1 and self._is_long and self._is_better_folded:
            note_long(self.fact(LoopFactKind.FOLDED), self.looked, self.length or 0)
            raise self.builder.restarts(self.fact(LoopFactKind.FOLDED))
        if not (at < self.stop if self.step > 0 else at > self.stop):
            if self._may_be_folded:
                self.builder.loops.iterated.setdefault(self.fact(LoopFactKind.FOLDED), []).append(
                    range(self.first_node, len(self.builder.nodes))
                )
            raise StopIteration
        self.iterations += 1
        self.at = at + self.step
        return at

    def _begin(self, frame: Any) -> None:
        self.instruction, self.number = (frame.f_code, instruction_of(frame)), next(_NUMBERS)
        _COUNTERS[id(frame), instruction_of(frame)] = self
        if self._may_fold and (self._is_wanted_folded or self._is_foreseen(frame)):
            self._fold()
        else:
            self.at, self.stop = index(self.at), index(self.stop)

    @property
    def length(self) -> int | None:
        """The trip count, if it is known."""
        known = type(self.start) is int and type(self.stop) is int
        return len(range(self.start, self.stop, self.step)) if known else None

    @property
    def is_sure(self) -> bool:
        """Whether it is known, for all possible limits, whether there is another iteration."""
        if self.looped:
            return False
        (low, high), (a, b), (c, d) = self.span[0], bounds(self.start), bounds(self.stop)
        advance = self.iterations * self.step
        low, high = max(low, c - b) - advance, min(high, d - a) - advance
        return low > 0 or high <= 0 if self.step > 0 else low >= 0 or high < 0

    def fold_around(self) -> None:
        """Restart the trace with this loop folded, because an inner loop is folded or an iteration reads values."""
        length = self.length
        if not self.folded and length is not None and length >= MIN_FOLDED_AROUND and self._may_fold:
            raise self.builder.restarts(self.fact(LoopFactKind.FOLDED))

    def note_read(self) -> None:
        """Note that an iteration reads a value. Another iteration may read another one, and a trace per pattern of
        values, or too many paths through the outer loop, would follow."""
        if self.iterations > 1 and not self.folded:
            if MIN_FOLDED_WITHIN <= (self.length or 0) < MIN_FOLDED and self._is_within and self._may_fold:
                raise self.builder.restarts(self.fact(LoopFactKind.WITHIN))
            self.fold_around()

    # -- whether to fold ---------------------------------------------------------------------------
    def fact(self, kind: LoopFactKind) -> LoopFact:
        """A fact about this loop."""
        assert self.instruction is not None
        return LoopFact(kind, *self.instruction)

    @property
    def _may_fold(self) -> bool:
        builder = self.builder
        free = builder.open and builder.inner is None and builder.loops.may_close and not builder.has_tensors
        return (
            free
            and self.fact(LoopFactKind.ITERATION_BY_ITERATION) not in builder.world.facts
            and not disabled("loop-folding")
        )

    @property
    def _is_wanted_folded(self) -> bool:
        length = self.length
        facts = self.builder.world.facts
        if length is None or self.fact(LoopFactKind.FOLDED) in facts:
            return length != 0
        return (length >= MIN_FOLDED or self.fact(LoopFactKind.WITHIN) in facts) and self._is_within

    def _is_foreseen(self, frame: Any) -> bool:
        """Whether a similar loop was long. The loop then becomes a fact, so it must not have begun before in this
        trace."""
        builder, folded, length = self.builder, self.fact(LoopFactKind.FOLDED), self.length or 0
        if length < MIN_FOLDED or folded in builder.loops.unfolded:
            builder.loops.unfolded.add(folded)
            return False
        builder.loops.unfolded.add(folded)
        self.looked = loop_signature(frame)
        if not builder.loops.foresees or not was_long(folded, self.looked, length):
            return False
        builder.world.facts.add(folded)
        return True

    @property
    def _is_within(self) -> bool:
        """Whether an enclosing loop is folded."""
        return any(x.folded and x.number < self.number for x in _active_counters(self.builder))

    @property
    def _nodes(self) -> int:
        """The number of nodes recorded by iterations of this loop, in its earlier runs too."""
        return (
            len(self.builder.nodes)
            - self.first_node
            + sum(map(len, self.builder.loops.iterated.get(self.fact(LoopFactKind.FOLDED), ())))
        )

    @property
    def _is_long(self) -> bool:
        """Whether the iterations have recorded many nodes, or are estimated to record enough to profit from folding."""
        of_all = self._per_iteration * (self.length or 0)
        return self._nodes > MAX_RECORDED_NODES or (
            self.iterations == ESTIMATED_AFTER and of_all > MIN_REMAINING_PART * MAX_RECORDED_NODES
        )

    @property
    def _per_iteration(self) -> float:
        """The number of nodes that an iteration after the first has recorded."""
        return (len(self.builder.nodes) - self.first) / (self.iterations - 1)

    @property
    def _may_be_folded(self) -> bool:
        return (self.length or 0) >= MIN_FOLDED and self._may_fold and not self.builder.output_at >= self.first_node

    @property
    def _is_better_folded(self) -> bool:
        # A loop with only a few more iterations than the least trip count is not profitable to fold.
        iterations_left = (self.length or 0) - max(self.iterations, MIN_FOLDED)
        is_long = iterations_left * self._per_iteration > MIN_REMAINING_PART * MAX_RECORDED_NODES
        return self._may_be_folded and (is_long or self.fact(LoopFactKind.FOLDED) in self.builder.loops.iterated)

    # -- folded ------------------------------------------------------------------------------------
    def _limits(self) -> tuple[int, int]:
        """The least and the greatest number of the range."""
        (low, high), (first, last) = bounds(self.start), bounds(self.stop)
        return (low, last - 1) if self.step > 0 else (first + 1, high)

    def _fold(self) -> None:
        # The bounds of the distance from start to stop, and the nodes that the distance depends on.
        self.span = difference_bounds(self.stop, self.start)
        low, high = self._limits()
        past = low + min(self.step, 0), high + max(self.step, 0)
        start = bounds(self.start)
        limits = min(past[0], start[0]), max(past[1], start[1])
        self.at, self.folded = number_of_loop(self.builder, self.start, *limits), True

    def _folded_next(self) -> Any:
        at = self.at
        condition = less(at, self.stop) if self.step > 0 else greater(at, self.stop)
        if not HOOKS.loop_detector(self.builder, within=True).iteration(self, node_of(condition)):
            raise StopIteration
        at = self.at
        bounded(at, *self._limits())
        self.iterations += 1
        self.at = at + self.step
        return at


# The counters of open loops, by frame and instruction.
_COUNTERS: WeakValueDictionary[tuple[int, int], Counter] = WeakValueDictionary()
_NUMBERS = count(1)


def counter_of(frame: object, instruction: int) -> Counter | None:
    """The counter of the loop whose iterations begin at this instruction of a frame."""
    return _COUNTERS.get((id(frame), instruction))


def _active_counters(builder: TraceBuilder) -> list[Counter]:
    known = [ref() for ref in _COUNTERS.valuerefs()]  # other threads may add theirs meanwhile
    return [x for x in known if x is not None and x.builder is builder]


def fold_around(builder: TraceBuilder, inner: Counter | None) -> None:
    """Fold the loops around a loop that is folded, or that reads values."""
    for each in _active_counters(builder):
        if each is not inner:
            each.fold_around()


def before_output(instead: Callable[[], None] | None = None) -> None:
    """Prepare an observable action such as logging: folded loops are recorded iteration by iteration from now on,
    unless `instead` ends the trace."""
    builder = current_trace()
    if builder is None or not builder.open:
        return
    builder.output_at = len(builder.nodes)
    folded = [x for x in _active_counters(builder) if x.folded and x.iterations]
    if folded:
        if instead is not None:
            instead()
        raise builder.restarts(folded[-1].fact(LoopFactKind.ITERATION_BY_ITERATION))


def counting(*args: Any) -> Any:
    """`range`, for `for` loops of traced code."""
    builder = current_trace()
    if builder is None or not builder.open:
        return range(*args)
    start, stop, step = (0, *args, 1) if len(args) == 1 else (*args, 1) if len(args) == 2 else args
    if builder.inner is None and type(step) is int and step and any(map(is_of_a_loop, (start, stop))):
        return Counter(builder, start, stop, step)
    numbers = range(*args)
    return Counter(builder, numbers.start, numbers.stop, numbers.step)


# -- numbers that vary between iterations --------------------------------------------------------------------------
def number_of_loop(builder: TraceBuilder, x: Operand, low: int, high: int) -> Number:
    """A traced number for a Python number that varies between iterations; these are the bounds of an integer."""
    if not isinstance(x, Number):
        x = full(shape=(), value=x, dtype="int64" if type(x) is int else "float64")
    node = node_of(fresh(x, tag=builder.new_tag()))
    if node.aval.dtype.kind == "i":
        builder.bounds[node] = low, high
        builder.loops.varying.add(node)
    return Number(builder, node)
