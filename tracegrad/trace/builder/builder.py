"""Trace builder: record ops applied to tracers, and compute the values that Python code reads.

While a region is recorded (`trace.driver.region`), its builder is the `inner` builder of the enclosing trace. An
operation on a value of the enclosing trace is then recorded in the region.

The builder also records the dependencies of the graph. *Captures* are arrays from outside; each is an input of the
graph, looked up by identity. *Value guards* are values that Python code has read: the node, the value and the user's
line.
NumPy computes a value from the real inputs when Python code needs it, and computes only the nodes it depends on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tracegrad.avals import is_literal, supported
from tracegrad.errors import READ_ONLY, TraceError, located, lost
from tracegrad.ir import GraphNode, GraphValue, evaluate, recorder, recording
from tracegrad.ir.builder import sliced
from tracegrad.numpy_api.protocols import as_operand
from tracegrad.ops import Carrier, DispatchLevel, Op, TapeCarrier
from tracegrad.ops.calls.failure import failure, failure_number
from tracegrad.ops.core.recorders import RECORDERS
from tracegrad.ops.shape.linear import full
from tracegrad.target.tuning import TUNING
from tracegrad.trace.builder.abort import Restarts, RunsPlainly
from tracegrad.trace.builder.facts import Fact, text_of
from tracegrad.trace.builder.hooks import HOOKS
from tracegrad.trace.builder.layout import LayoutTracker
from tracegrad.trace.builder.recording import ESCAPED, EscapedError, NodeRecorder
from tracegrad.trace.builder.traced_loops import TracedLoops
from tracegrad.trace.builder.value_guards import (
    IMPLICIT,
    NUMBERS,
    Capture,
    GuardLog,
    TextNumbers,
    ValueGuard,
    guarded_value,
    value_key,
)
from tracegrad.trace.bytecode.exception_regions import within_try
from tracegrad.typing import NDArray
from tracegrad.utils.log import enabled, log

__all__ = [
    "ESCAPED",
    "Capture",
    "TraceBuilder",
    "ValueGuard",
    "current_trace",
    "repeats",
    "value_key",
]


MAX_UNROLLED_NODES = TUNING.loops.max_unrolled_nodes


class TraceBuilder(NodeRecorder):
    """Recorder of one call. `make` and `number` convert a node to a tracer of an array and of a Python number;
    `guard_values` are the values of the first guards.

    Its parts are the log of `guards`, what it knows of `loops`, the layouts in `memory`, and `text_numbers`.
    """

    def __init__(self, make: Any, number: Any, guard_values: Sequence[NDArray] = ()) -> None:
        super().__init__(make)
        self.make_number = number
        self.loops = TracedLoops()
        self.captures: dict[int, Capture] = {}
        self.guards = GuardLog(guard_values)
        self._tensors: Any = None
        self.inner: TraceBuilder | None = None
        self.abort_error: RunsPlainly | None = None
        self.memory = LayoutTracker()
        self.rules: list[Any] = []  # custom rules that regions are recording
        self._tags = 0
        self._computed: dict[GraphNode, Any] = {}
        self.differentiated: list[GraphNode] = []
        self.raising: list[GraphNode] = []  # nodes that may raise, recorded outside of derivatives, or checks
        self._foreseeing = False
        self.makes_views = True  # whether results of ops are views if NumPy's are
        self.bounds: dict[GraphNode, tuple[int, int]] = {}  # see `tracegrad.trace.values.python_arithmetic`
        self.text_numbers = TextNumbers()
        self.output_at = -1  # the number of nodes when code last printed or logged

    outer: TraceBuilder | None = None  # the enclosing trace, if this one is a region
    is_of_examples = False  # whether it is the region of one example of a batch (`vmap`)

    # The constants computed while tracing that have joined the graph: see `tracegrad.trace.values.constant_array`.
    constant_arrays: Any = None

    # Array creation functions receive the builder in place of a tracer.
    level = DispatchLevel.VALUE

    # -- abstract methods of Builder ------------------------------------------------------------
    def value(self, node: GraphNode) -> Any:
        result = self.make(self, node)
        return self._input_as_outside(result) if node.op is None else result

    def _input_as_outside(self, result: Any) -> Any:
        """A tracer of an input, with the memory layout of the outside array."""
        result.outside = True
        result.layout_inputs, result.stand_in = self.memory.of_input(result.node)
        return result

    def lift(self, x: object) -> Any:
        if is_literal(x):
            return x
        if isinstance(x, GraphValue):
            if x.builder is self and self.open:
                return x
            raise EscapedError(located(ESCAPED))
        if isinstance(x, np.ndarray):
            return self.capture(as_operand(x, self)).value
        if isinstance(x, TapeCarrier):
            return self.lift(x.stored(None))  # type: ignore[attr-defined]
        if isinstance(x, np.generic):
            dtype = supported(x.dtype, "a NumPy scalar")
            return full(shape=(), value=x.item(), dtype=dtype.name)
        if isinstance(x, Carrier) and x.level is DispatchLevel.SPAN:
            return self.lift(x.exact())  # type: ignore[attr-defined]
        raise TraceError(located(f"a value of type {type(x).__name__} cannot be recorded in a trace"))

    def _lift(self, x: object) -> Any:
        return self.lift(x)

    def _constant(self, x: object) -> Any:
        value = self.lift(x)
        return value._alias() if isinstance(x, np.ndarray) else value  # a new array, which may be updated in place

    def abort(self, why: str) -> RunsPlainly:
        """Return the exception that aborts the trace; the trace ends even if user code catches it."""
        if self.outer is not None:
            return self.outer.abort(why)
        self.abort_error = self.abort_error or RunsPlainly(why)
        return self.abort_error

    refusal = abort

    def restarts(self, fact: Fact, why: str = "another trace is better") -> RunsPlainly:
        """Return the exception that restarts the trace with another fact."""
        if self.loops.detector is not None:
            self.loops.detector.restart(why)
        if enabled("loops"):
            log("loops", "%s: traced again, because %s: %s", self.locate(), why, text_of(fact))
        self.abort_error = Restarts(why, fact)
        return self.abort_error

    def python_number(self, node: GraphNode) -> Any:
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

    def reset_numbering(self) -> None:
        """Begin an iteration: give later computations new nodes, even if equal nodes exist."""
        self._nodes, self.loops.iteration_began = {}, len(self.nodes)

    def close(self) -> None:
        """End the trace: escaped tracers raise an error from now on, and hold no references."""
        self.open = False
        for component in (self._tensors, self.loops.detector):
            if component is not None:
                component.close()
        self.nodes, self.captures, self.loops = [], {}, TracedLoops()
        saved = (
            self._nodes,
            self._computed,
            self.guards.known,
            self._lines,
            self._avals,
            self.plans,
            self.results,
            self.bounds,
            self.raising,
            self._failed,
        )
        for memory in saved:
            memory.clear()

    def sized(self, op: Op, operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
        return HOOKS.ragged_arrays().of_size(op, operands, params)

    # -- Tensors ----------------------------------------------------------------------------------
    @property
    def tensors(self) -> Any:
        """The Tensors of the trace (`trace.driver.tensors`)."""
        if self.outer is not None:
            return self.outer.tensors
        if self._tensors is None:
            self._tensors = HOOKS.tensors(self)
        return self._tensors

    @property
    def has_tensors(self) -> bool:
        """Whether there are Tensors from outside in the trace."""
        return self._tensors is not None and self._tensors.any

    # -- regions ----------------------------------------------------------------------------------
    def innermost(self) -> TraceBuilder:
        """The builder that records operations on values of this trace: the innermost region, or itself."""
        result = self
        while result.inner is not None:
            result = result.inner
        return result

    def outside(self) -> _RecordingOutside:
        """Record into this trace although a region of it is being recorded (context manager)."""
        return _RecordingOutside(self)

    def entered(self, tensor: object) -> Any:
        """The stand-in of a Tensor of the trace: the Tensor itself."""
        return tensor

    def closed_rule(self, call: Any, outputs: Sequence[Any], inputs: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
        """The derivative rule of a call (see `torch.autograd.function_in_trace`), and the values that it reads in
        addition to the outputs and inputs. In a trace it is the rule itself, which runs where a derivative is taken."""
        return call.rule, ()

    # -- inputs -----------------------------------------------------------------------------------
    def argument(self, kind: Any, array: NDArray) -> Any:
        """An input that a caller passes; `array` is its value in the call being traced."""
        node = GraphNode(None, (), (), self.aval(array.shape, array.dtype))
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

    def capture(self, array: NDArray, source: object = None) -> Capture:
        """The input that stands for `array`; `source`, if known, is where each call reads it."""
        result = self.captures.get(id(array))
        if result is None:
            description = f"the array captured from {source}" if source else "an array used by the traced function"
            dtype = supported(array.dtype, description)
            node = GraphNode(None, (), (), self.aval(array.shape, dtype))
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

    def capture_number(self, x: object, source: object) -> Any:
        """The input that stands for the Python or NumPy number that `source` holds."""
        array = np.asarray(x)
        node = GraphNode(None, (), (), self.aval((), array.dtype))
        self._computed[node] = array
        make = self.make if isinstance(x, np.generic) else self.make_number
        capture = Capture(x, make(self, node), node, source, number=type(x))
        self.captures[id(capture)] = capture
        capture.value.frozen = "a number from outside the traced function"
        return self.python_number(node) if type(x) is bool else capture.value

    def cotangent(self, like: Any) -> Any:
        """An input that stands for the cotangent of `like`."""
        node = GraphNode(None, (), (), like.aval)
        self._computed[node] = np.ones(node.aval.shape, node.aval.dtype)
        return self.value(node)

    # -- values ------------------------------------------------------------------------------------
    def observe(self, x: Any, query: str) -> NDArray:
        """The value of tracer `x`, for a Python operation, which messages name; records a guard."""
        self.require_open()
        if query in NUMBERS and self.has_derivative(x.node):
            raise lost(query)
        may_close_loop = query == "bool()" and self.inner is None and self.loops.may_close
        detector = HOOKS.loop_detector(self) if may_close_loop else None
        with self.outside():
            node = guarded_value(x, query, self.compute(x.node)).node
            node, known = (node, None) if detector is None else detector.process_condition(node)
        if known is not None:
            value = np.asarray(known)
            self.guards.script.append(value)
            return value
        value = self._guarded(node, query)
        if detector is not None:
            detector.process_outcome(bool(value.item()))
        return value

    def holds(self, x: Any) -> bool:
        """Whether the boolean `x`, usually True, is True in the call being traced; records an implicit guard."""
        self.require_open()
        return bool(self._guarded(x.node, IMPLICIT))

    def assume(self, node: GraphNode) -> bool:
        """Record an implicit guard on a boolean that is not computed now; False if it is known not to hold."""
        value = self.guards.next_value()
        value = np.asarray(True) if value is None else value
        self.guards.add(node, value, IMPLICIT, self.locate())
        return bool(value)

    def _guarded(self, node: GraphNode, query: str) -> NDArray:
        """The value of a guarded node, prescribed or computed in the call; records a guard if it has none."""
        value = self.guards.known.get(node)
        if value is None:
            value = self.guards.next_value()
            value = self.guards.known[node] = self.compute(node) if value is None else value
            self.guards.add(node, value, query, self.locate())
        return value

    def has_next_iteration(self, condition: GraphNode) -> bool:
        """Whether a counted loop has another iteration; records a guard if it depends on an input."""
        value = self.guards.known.get(condition)
        if value is None:
            inputs = {*self.inputs, *(c.node for c in self.captures.values() if c.source is not None)}
            depends = condition.depends_on(inputs)
            value = self._guarded(condition, "bool()") if depends else self.compute(condition)
        return bool(value.item())

    def knows(self, x: Any) -> bool:
        """Whether the value of `x` can be read."""
        return self.open and x.builder.open

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Run code that is not recorded, on the values of the call being traced (context manager)."""
        with recording(None), self.world.writes.excluded():
            yield

    @contextmanager
    def differentiating(self, nodes: Sequence[GraphNode]) -> Iterator[None]:
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

    def sources(self) -> set[GraphNode]:
        """The nodes with respect to which derivatives are being computed."""
        return set(self.differentiated)

    def has_derivative(self, wanted: GraphNode) -> bool:
        """Whether a derivative being computed flows through the node."""
        sources, visited, stack = self.sources(), set(), [wanted]
        while sources and stack:
            node = stack.pop()
            if node in sources:
                return True
            carries = node.is_multi_result or node.aval.dtype.kind in "fc"
            if (
                node not in visited
                and carries
                and (node.op is None or node.result_index is not None or node.op.differentiable)
            ):
                visited.add(node)
                stack.extend(node.operands)
        return False

    def constant(self, x: Any) -> NDArray | None:
        """The value of `x` if it depends on no argument, else None; records a guard on captured variables."""
        dependencies, stack = {x.node}, [x.node]
        while stack:
            fresh = set(stack.pop().operands) - dependencies
            dependencies |= fresh
            stack.extend(fresh)
        if not dependencies.isdisjoint(self.inputs):
            return None
        captured = any(c.node in dependencies for c in self.captures.values() if c.source is not None)
        if captured:
            return self.observe(x, "a boolean index")
        self.loops.constant_nodes.append(x.node)
        return self.compute(x.node)

    def compute(self, wanted: GraphNode) -> NDArray:
        """The value of a node in the call being traced."""
        with recording(None):
            result: NDArray = evaluate(wanted, self._computed)
        return result

    def know(self, node: GraphNode, value: object) -> None:
        """Set the value of a node in the call being traced."""
        self._computed[node] = np.asarray(value)

    def example(self, wanted: GraphNode) -> NDArray:
        """An example value of a node, for code that only needs its kind. In a region it is the value in the first
        iteration."""
        return self.compute(wanted)

    def foresee(self, node: GraphNode) -> None:
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

    def rolled(self, wanted: Sequence[GraphNode], start: int = 0) -> dict[GraphNode, GraphNode]:
        """Replacements of the nodes in `wanted` that are computed by rerolled loops."""
        rolls = not self.world.once
        count = len(self.nodes)
        new = HOOKS.roll(self, wanted, start) if rolls else {}
        if self.loops.iterated and rolls:
            self._fold_unrolled_loop([new.get(x, x) for x in wanted], count)
        if new:
            # The loops compute these nodes now, and may raise themselves.
            done = set(sliced([], self.nodes, list(new)).nodes)
            self.raising = [node for node in self.raising if node not in done]
        for old, node in new.items():
            if old in self._computed:
                self._computed[node] = self._computed[old]
        return new

    def _fold_unrolled_loop(self, wanted: Sequence[GraphNode], count: int) -> None:
        """Restart with a loop folded that was recorded iteration by iteration and could not be rerolled; there were
        `count` nodes before rerolling."""
        fact, within = max(self.loops.iterated.items(), key=lambda x: sum(map(len, x[1])))
        if fact in self.world.facts or sum(map(len, within)) < MAX_UNROLLED_NODES:
            return
        others = set(self.nodes[:count]).difference(*[self.nodes[x.start : x.stop] for x in within])
        if len(set(sliced([], self.nodes, wanted).nodes) - others) >= MAX_UNROLLED_NODES:
            raise self.restarts(fact)

    def expect(self, node: GraphNode, unless_raises: GraphNode | None = None) -> Exception | None:
        """The exception that a node raises for the values of the call being traced; records a guard."""
        assert node.op is not None
        error: Exception | None = None
        try:
            self.compute(node)
        except Exception as raised:  # of any class, because Python would have raised it
            error, unless_raises = raised, None
        operands = tuple([x if is_literal(x) else self.value(x) for x in node.inputs])
        self._foreseeing = True
        try:
            number = failure(node.op, operands, dict(node.params)).node
        finally:
            self._foreseeing = False
        value = self._computed[number] = np.asarray(failure_number(error))
        self.guards.add(number, value, f"whether {node.op.name} raises", self.locate(), unless_raises)
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


class _RecordingOutside:
    """Context in which values are recorded into a trace outside of the region that is being recorded. An interrupt
    leaves no generator, which would restore the recorder when it is freed."""

    def __init__(self, builder: TraceBuilder):
        self.builder = builder

    def __enter__(self) -> None:
        self.before, RECORDERS.current = RECORDERS.current, self.builder
        self.inner, self.builder.inner = self.builder.inner, None

    def __exit__(self, *_: object) -> None:
        self.builder.inner = self.inner
        RECORDERS.current = self.before


def current_trace() -> TraceBuilder | None:
    """The current trace of this thread."""
    result = recorder()
    return result if isinstance(result, TraceBuilder) else None


def repeats() -> bool:
    """Whether a trace is being recorded in this thread that later calls will replay."""
    trace = current_trace()
    return trace is not None and trace.world.open and not trace.world.once
