"""Trace builder: record ops applied to tracers, and compute the values that Python code reads.

While a region is recorded (`trace.driver.region`), its builder is the `inner` builder of the enclosing trace. An
operation on a value of the enclosing trace is then recorded in the region.

The builder also records the dependencies of the graph. *Captures* are arrays from outside; each is an input of the
graph, looked up by identity. *Value guards* are values that Python code has read: the node, the value and the user's
line.
NumPy computes a value from the real inputs when Python code needs it, and computes only the nodes it depends on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tracegrad.avals import is_literal, supported
from tracegrad.errors import READ_ONLY, TraceError, located, lost
from tracegrad.ir import Node, Value, evaluate, recorder, recording
from tracegrad.ir.builder import sliced
from tracegrad.numpy_api.protocols import as_operand
from tracegrad.ops import Carrier, Level, Op, TapeCarrier
from tracegrad.ops.calls.failure import failure, failure_number
from tracegrad.ops.shape.linear import full
from tracegrad.target.tuning import TUNING
from tracegrad.trace.builder import hooks
from tracegrad.trace.builder.abort import STEPS, Restarts, RunsPlainly
from tracegrad.trace.builder.element_identity import Elements
from tracegrad.trace.builder.layout import Memory
from tracegrad.trace.builder.recording import ESCAPED, Recording
from tracegrad.trace.builder.value_guards import IMPLICIT, NUMBERS, Capture, Spelled, ValueGuard, question, value_key
from tracegrad.trace.bytecode.exception_regions import within_try

__all__ = [
    "ESCAPED",
    "Capture",
    "TraceBuilder",
    "ValueGuard",
    "current_trace",
    "repeats",
    "value_key",
]


MOST_LEFT = TUNING.loops.max_unrolled_nodes


class TraceBuilder(Recording):
    """Recorder of one call. `make` and `number` convert a node to a tracer of an array and of a Python number;
    `answers` are the values of the first guards."""

    def __init__(self, make: Any, number: Any, answers: Sequence[np.ndarray[Any, Any]] = ()) -> None:
        super().__init__(make)
        self.make_number = number
        self.captures: dict[int, Capture] = {}
        self.guards: list[ValueGuard] = []
        self._tensors: Any = None
        self.inner: TraceBuilder | None = None
        self.given_up: RunsPlainly | None = None
        self.memory = Memory()
        self.rules: list[Any] = []  # custom rules that regions are recording
        self._tags = 0
        self._computed: dict[Node, Any] = {}
        self._asked: dict[Node, np.ndarray[Any, Any]] = {}
        self._answers = answers
        # The values of all reads, in order; a guard has the position of its value.
        self.script: list[np.ndarray[Any, Any]] = []
        self.settled: list[Node] = []  # nodes taken as constants, because they depend on no input
        self.circles: Any = None
        self.differentiated: list[Node] = []
        self.raising: list[Node] = []  # nodes that may raise, recorded outside of derivatives, or checks
        self._foreseeing = False
        self.makes_views = True  # whether results of ops are views if NumPy's are
        self.unrolled: dict[str, str] = {}  # why a loop was not rerolled, by the user's line
        self.divided: dict[str, str] = {}  # the residuals of loops that run in segments, by the user's line
        self.not_closed = ""  # what prevents closing a loop at the last condition
        self.replaced: set[Node] = set()  # nodes that rerolled loops have replaced
        self.bounds: dict[Node, tuple[int, int]] = {}  # see `tracegrad.trace.values.python_arithmetic`
        self.of_loops: set[Node] = set()  # integers that vary between iterations of an open loop
        # The ranges of nodes recorded by loops that can be folded, by the key of the loop.
        self.iterated: dict[Any, list[range]] = {}
        # Separate arrays that replace views in loops, and the bases of the views: see
        # `tracegrad.trace.loops.separate_views`.
        self.apart: dict[int, Any] = {}
        # Arrays in histories, and their bases, each with the `varying` key of the loop.
        self.listed: dict[int, tuple[Any, Any]] = {}
        self.histories: list[Any] = []  # of open loops: see `tracegrad.trace.loops.appended_list`
        self.elements = Elements()  # the elements of their lists
        self.given: list[Any] = []  # elements of tables: see `tracegrad.trace.loops.indexed_list`
        self.spelled = Spelled()
        self.hashed: Any = None  # where a differentiated value was hashed
        self.told = -1  # the number of nodes when code last printed or logged

    outer: TraceBuilder | None = None  # the enclosing trace, if this one is a region

    # The function that rerolls loops among the nodes from a number on, and returns the replacements of wanted nodes.
    # `tracegrad.reroll` sets it.
    roll: Callable[[TraceBuilder, Sequence[Node], int], dict[Node, Node]] | None = None

    # The constants computed while tracing that have joined the graph: see `tracegrad.trace.values.constant_array`.
    hosts: Any = None

    # The detector of loops whose conditions traced code reads. `tracegrad.reroll` sets it.
    find_circles: Any = None

    # Array creation functions receive the builder in place of a tracer.
    level = Level.VALUE

    # -- abstract methods of Builder ------------------------------------------------------------
    def value(self, node: Node) -> Any:
        result = self.make(self, node)
        return self._input_as_outside(result) if node.op is None else result

    def _input_as_outside(self, result: Any) -> Any:
        """A tracer of an input, with the memory layout of the outside array."""
        result.outside = True
        result.asks, result.stand_in = self.memory.of_input(result.node)
        return result

    def lift(self, x: Any) -> Any:
        if is_literal(x):
            return x
        if isinstance(x, Value):
            if x.builder is self and self.open:
                return x
            raise TraceError(located(ESCAPED))
        if isinstance(x, np.ndarray):
            return self.capture(as_operand(x, self)).value
        if isinstance(x, TapeCarrier):
            return self.lift(x.stored(None))  # type: ignore[attr-defined]
        if isinstance(x, np.generic):
            dtype = supported(x.dtype, "a NumPy scalar")
            return full(shape=(), value=x.item(), dtype=dtype.name)
        if isinstance(x, Carrier) and x.level is Level.SPAN:
            return self.lift(x.exact())  # type: ignore[attr-defined]
        raise TraceError(located(f"a value of type {type(x).__name__} cannot be recorded in a trace"))

    def _lift(self, x: Any) -> Any:
        return self.lift(x)

    _constant = _lift

    def gives_up(self, why: str) -> RunsPlainly:
        """Return the exception that aborts the trace; the trace ends even if user code catches it."""
        if self.outer is not None:
            return self.outer.gives_up(why)
        self.given_up = self.given_up or RunsPlainly(why)
        return self.given_up

    refusal = gives_up

    def restarts(self, key: Any = None, why: str = "another trace is better") -> RunsPlainly:
        """Return the exception that restarts the trace with `key` in `varying`."""
        self.given_up = Restarts(why, key)
        return self.given_up

    def python_number(self, node: Node) -> Any:
        """The node as a Python number. If booleans are compared by identity, a boolean is read at once."""
        result, world = self.make_number(self, node), self.world
        if node.aval.dtype.kind != "b" or not world.open:
            return result
        if self.outer is not None and not (world.booleans and self.knows(result)):
            return result
        if world.booleans:
            return bool(result)
        world.gave_booleans = True
        return result

    def close(self) -> None:
        """End the trace: escaped tracers raise an error from now on, and hold no references."""
        self.open = False
        self.nodes, self.captures, self.apart, self.listed, self.histories, self.given = [], {}, {}, {}, [], []
        self.elements = Elements()
        for part in (self._tensors, self.circles):
            if part is not None:
                part.close()
        saved = (
            self._nodes, self._computed, self._asked, self._places, self._avals, self.plans, self.results, self.bounds,
            self.raising, self._failed, self.of_loops,
        )  # fmt: skip
        for memory in saved:
            memory.clear()

    def sized(self, op: Op, operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
        return hooks.ragged_arrays().of_size(op, operands, params)

    # -- Tensors ----------------------------------------------------------------------------------
    @property
    def tensors(self) -> Any:
        """The Tensors of the trace (`trace.driver.tensors`)."""
        if self.outer is not None:
            return self.outer.tensors
        if self._tensors is None:
            self._tensors = hooks.tensors().Tensors(self)
        return self._tensors

    @property
    def has_tensors(self) -> bool:
        """Whether there are Tensors from outside in the trace."""
        return self._tensors is not None and self._tensors.any

    # -- regions ----------------------------------------------------------------------------------
    def here(self) -> TraceBuilder:
        """The builder that records operations on values of this trace: the innermost region, or itself."""
        result = self
        while result.inner is not None:
            result = result.inner
        return result

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Record into this trace although a region of it is being recorded (context manager)."""
        inner, self.inner = self.inner, None
        try:
            with recording(self):
                yield
        finally:
            self.inner = inner

    def entered(self, tensor: Any) -> Any:
        """The stand-in of a Tensor of the trace: the Tensor itself."""
        return tensor

    def closed_rule(self, call: Any, outputs: Sequence[Any], inputs: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
        """The derivative rule of a call (see `torch.autograd.function_in_trace`), and the values that it reads in
        addition to the outputs and inputs. In a trace it is the rule itself, which runs where a derivative is taken."""
        return call.rule, ()

    # -- inputs -----------------------------------------------------------------------------------
    def argument(self, kind: Any, array: np.ndarray[Any, Any]) -> Any:
        """An input that a caller passes; `array` is its value in the call being traced."""
        node = Node(None, (), (), self.aval(array.shape, array.dtype))
        self.inputs.append(node)
        self._computed[node] = array
        self.memory.enter(node, array)
        value = self._input_as_outside(kind(self, node))
        if not array.flags.writeable:
            value.frozen = READ_ONLY
        return value

    def new_tag(self) -> int:
        """A number for `fresh` that this trace has not used."""
        self._tags += 1
        return self._tags

    def capture(self, array: np.ndarray[Any, Any], source: Any = None) -> Capture:
        """The input that stands for `array`; `source`, if known, is where each call reads it."""
        result = self.captures.get(id(array))
        if result is None:
            what = f"the array captured from {source}" if source else "an array used by the traced function"
            dtype = supported(array.dtype, what)
            node = Node(None, (), (), self.aval(array.shape, dtype))
            self._computed[node] = array
            self.memory.enter(node, array)
            result = self.captures[id(array)] = Capture(array, self.value(node), node, source)
            result.value.is_array = True
        elif result.source is None:
            result.source = source
        # Each call may make a new array if no source leads to it.
        why = "" if result.source is not None else "an array that no name outside the traced function leads to"
        result.value.frozen = why if array.flags.writeable else READ_ONLY
        return result

    def capture_number(self, x: Any, source: Any) -> Any:
        """The input that stands for the Python or NumPy number that `source` holds."""
        array = np.asarray(x)
        node = Node(None, (), (), self.aval((), array.dtype))
        self._computed[node] = array
        make = self.make if isinstance(x, np.generic) else self.make_number
        capture = Capture(x, make(self, node), node, source, number=type(x))
        self.captures[id(capture)] = capture
        capture.value.frozen = "a number from outside the traced function"
        return self.python_number(node) if type(x) is bool else capture.value

    def cotangent(self, like: Any) -> Any:
        """An input that stands for the cotangent of `like`."""
        node = Node(None, (), (), like.aval)
        self._computed[node] = np.ones(node.aval.shape, node.aval.dtype)
        return self.value(node)

    # -- values ------------------------------------------------------------------------------------
    def observe(self, x: Any, asked: str) -> np.ndarray[Any, Any]:
        """The value of tracer `x`, for a Python operation, which messages name; records a guard."""
        self.require_open()
        if asked in NUMBERS and self.has_derivative(x.node):
            raise lost(asked)
        looks = asked == "bool()" and self.inner is None and self.find_circles is not None
        circles = self.find_circles(self) if looks else None
        with self.outside():
            node = question(x, asked, self.compute(x.node)).node
            node, known = (node, None) if circles is None else circles.meet(node)
        if known is not None:
            self.script.append(np.asarray(known))
            return self.script[-1]
        answer = self._asked.get(node)
        if answer is None:
            answer = self._answered(node, asked)
        if circles is not None:
            circles.answered(bool(answer.item()))
        return answer

    def holds(self, x: Any) -> bool:
        """Whether the boolean `x`, usually True, is True in the call being traced; records an implicit guard."""
        self.require_open()
        answer = self._asked.get(x.node)
        return bool(self._answered(x.node, IMPLICIT) if answer is None else answer)

    def assume(self, node: Node) -> bool:
        """Record an implicit guard on a boolean that is not computed now; False if it is known not to hold."""
        number = len(self.script)
        answer = np.asarray(self._answers[number] if number < len(self._answers) else True)
        self.script.append(answer)
        self.guards.append(
            ValueGuard(node, answer, value_key(answer), IMPLICIT, self.locate(), implicit=True, number=number)
        )
        return bool(answer)

    def _answered(self, node: Node, asked: str) -> np.ndarray[Any, Any]:
        """The value of a new guard, prescribed or computed in the call; records the guard."""
        number = len(self.script)
        answer = np.asarray(self._answers[number]) if number < len(self._answers) else self.compute(node)
        self._asked[node] = answer
        self.script.append(answer)
        implicit = asked is IMPLICIT
        self.guards.append(ValueGuard(node, answer, value_key(answer), asked, self.locate(), implicit, number=number))
        return answer

    def goes_on(self, question: Node) -> bool:
        """Whether a counted loop has another iteration; records a guard if it depends on an input."""
        answer = self._asked.get(question)
        if answer is None:
            inputs = {*self.inputs, *(c.node for c in self.captures.values() if c.source is not None)}
            depends = question.depends_on(inputs)
            answer = self._answered(question, "bool()") if depends else self.compute(question)
        return bool(answer.item())

    def retract(self, first: int) -> None:
        """Remove the guards from this one on; a repeated read records a new guard."""
        for guard in self.guards[first:]:
            self._asked.pop(guard.node, None)
        del self.guards[first:]

    def knows(self, x: Any) -> bool:
        """Whether the value of `x` can be read."""
        return self.open and x.builder.open

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Run code that is not recorded, on the values of the call being traced (context manager)."""
        with recording(None), self.world.writes.apart():
            yield

    @contextmanager
    def differentiating(self, nodes: Sequence[Node]) -> Iterator[None]:
        """Mark `nodes` as differentiated while a function runs (context manager)."""
        before = self.differentiated
        self.differentiated = [*before, *nodes]
        try:
            yield
        finally:
            self.differentiated = before

    def derives(self) -> bool:
        """Whether a derivative is being computed, here or in an enclosing trace."""
        return bool(self.differentiated) or (self.outer is not None and self.outer.derives())

    def sources(self) -> set[Node]:
        """The nodes with respect to which derivatives are being computed."""
        return set(self.differentiated)

    def has_derivative(self, wanted: Node) -> bool:
        """Whether a derivative being computed flows through the node."""
        sources, seen, stack = self.sources(), set(), [wanted]
        while sources and stack:
            node = stack.pop()
            if node in sources:
                return True
            carries = node.several or node.aval.dtype.kind in "fc"
            if node not in seen and carries and (node.op is None or node.picks is not None or node.op.differentiable):
                seen.add(node)
                stack.extend(node.operands)
        return False

    def constant(self, x: Any) -> np.ndarray[Any, Any] | None:
        """The value of `x` if it depends on no argument, else None; records a guard on captured variables."""
        seen, stack = {x.node}, [x.node]
        while stack:
            fresh = set(stack.pop().operands) - seen
            seen |= fresh
            stack.extend(fresh)
        if not seen.isdisjoint(self.inputs):
            return None
        captured = any(c.node in seen for c in self.captures.values() if c.source is not None)
        if captured:
            return self.observe(x, "a boolean index")
        self.settled.append(x.node)
        return self.compute(x.node)

    def compute(self, wanted: Node) -> np.ndarray[Any, Any]:
        """The value of a node in the call being traced."""
        with recording(None):
            result: np.ndarray[Any, Any] = evaluate(wanted, self._computed)
        return result

    def know(self, node: Node, value: Any) -> None:
        """Set the value of a node in the call being traced."""
        self._computed[node] = np.asarray(value)

    def example(self, wanted: Node) -> np.ndarray[Any, Any]:
        """An example value of a node, for code that only needs its kind. In a region it is the value in the first
        iteration."""
        return self.compute(wanted)

    def foresee(self, node: Node) -> None:
        """Raise the exception of a new node, if traced code may catch it; records a guard on whether it raises."""
        assert node.op is not None
        if self._foreseeing:
            return
        if self.world.once or (node.op.form.foreseen and within_try()):
            error = self.expect(node, node)
            if error is not None:
                self._failed[node] = error
                raise error
        elif not self.differentiated or node.op.form.checks:
            self.raising.append(node)

    def rolled(self, wanted: Sequence[Node], start: int = 0) -> dict[Node, Node]:
        """Replacements of the nodes in `wanted` that are computed by rerolled loops."""
        roll = None if STEPS in self.world.varying else type(self).roll
        count = len(self.nodes)
        new = {} if roll is None else roll(self, wanted, start)
        if self.iterated and roll is not None:
            self._fold_what_is_left([new.get(x, x) for x in wanted], count)
        if new:
            # The loops compute these nodes now, and may raise themselves.
            done = set(sliced([], self.nodes, list(new)).nodes)
            self.raising = [node for node in self.raising if node not in done]
        for old, node in new.items():
            if old in self._computed:
                self._computed[node] = self._computed[old]
        return new

    def _fold_what_is_left(self, wanted: Sequence[Node], count: int) -> None:
        """Restart with a loop folded that was recorded iteration by iteration and could not be rerolled; there were
        `count` nodes before rerolling."""
        key, within = max(self.iterated.items(), key=lambda x: sum(map(len, x[1])))
        if key in self.world.varying or sum(map(len, within)) < MOST_LEFT:
            return
        others = set(self.nodes[:count]).difference(*[self.nodes[x.start : x.stop] for x in within])
        if len(set(sliced([], self.nodes, wanted).nodes) - others) >= MOST_LEFT:
            raise self.restarts(key)

    def expect(self, node: Node, unless_raises: Node | None = None) -> Exception | None:
        """The exception that a node raises for the values of the call being traced; records a guard."""
        assert node.op is not None
        error: Exception | None = None
        try:
            self.compute(node)
        except Exception as found:  # of any class, because Python would have raised it
            error, unless_raises = found, None
        operands = tuple([x if is_literal(x) else self.value(x) for x in node.inputs])
        self._foreseeing = True
        try:
            number = failure(node.op, operands, dict(node.params)).node
        finally:
            self._foreseeing = False
        seen = self._computed[number] = np.asarray(failure_number(error))
        asked = f"whether {node.op.name} raises"
        guard = ValueGuard(
            number, seen, value_key(seen), asked, self.locate(), unless_raises=unless_raises, number=len(self.script)
        )
        self.script.append(seen)
        self.guards.append(guard)
        return error

    def all_succeed(self) -> bool:
        """Whether no operation recorded so far raises for the values of the call being traced."""
        try:
            for node in self.nodes:
                if node.op is not None and node.op.form.raises:
                    self.compute(node)
        except Exception:  # of any class, because Python would have raised it
            return False
        return True


def current_trace() -> TraceBuilder | None:
    """The current trace of this thread."""
    result = recorder()
    return result if isinstance(result, TraceBuilder) else None


def repeats() -> bool:
    """Whether a trace is being recorded in this thread that later calls will replay."""
    trace = current_trace()
    return trace is not None and trace.world.open and not trace.world.once
