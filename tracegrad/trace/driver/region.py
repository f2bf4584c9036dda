"""Trace a function without values to a closed graph, a *region* that can be a parameter of a node.

`closed(fn, args, what)` runs `fn` inside the current trace, on tracers that stand for `args` and have no value. The
operations are recorded in a graph of their own. A value of an enclosing trace or an array from outside that `fn` uses
becomes an input of the region and is listed in `captured`. The caller applies the graph to `(*leaves of args,
*captured)`. Regions nest to any depth. Derivatives, traced functions and custom rules work in regions as in traces.

Reading a value (`if`, `int`, an index) that depends on the arguments raises a `TraceError`, which names an
alternative. The enclosing trace provides any other value. An in-place update of an array from outside is also an error,
and so is storing a value of a region for later. An exception leaves the enclosing trace unchanged.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad import tree
from tracegrad.avals import LITERALS, Aval, aval_of, supported
from tracegrad.errors import TraceError, UnsupportedError, located
from tracegrad.ir import Graph, GraphNode, GraphValue, recording, replay
from tracegrad.ir.batch import replay_batched
from tracegrad.ir.builder import sliced
from tracegrad.numpy_api.boolean_mask import COUNT_QUERY
from tracegrad.ops import DispatchLevel, TensorCarrier
from tracegrad.ops.shape.linear import full
from tracegrad.trace.builder.builder import TraceBuilder, current_trace
from tracegrad.trace.builder.layout import UNKNOWN
from tracegrad.trace.driver.closed_rules import ClosedRule, NotYet, RuleGraph
from tracegrad.trace.random.example_draws import ExampleDraws
from tracegrad.trace.values.number import Number
from tracegrad.trace.values.tracer import Tracer
from tracegrad.utils.lazy_dataclass import record

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Operand


# The number of times that a rule which calls its own function is recorded, until it captures no new value.
_MAX_ITERATIONS = 8
_DTYPES: dict[type, str] = {float: "float64", int: "int64", bool: "bool"}


@record(frozen=True, slots=True, eq=False)
class ClosedFunction:
    """A function as a graph.

    The inputs of `graph` are the leaves of the arguments and then one for each of `captured`, which are values of the
    enclosing trace (tracers, and Tensors if the function read Tensors). Its outputs are the leaves of the result, all
    of them arrays; `structure` is the structure of the result. For each output, `weak` says whether it is a Python
    number, and `tensors` whether it is a Tensor.
    """

    graph: Graph
    captured: tuple[Any, ...]
    structure: tree.TreeDef
    weak: tuple[bool, ...]
    tensors: tuple[bool, ...]
    mapped: tuple[bool, ...] = ()

    @property
    def avals(self) -> tuple[Aval, ...]:
        """The shapes and dtypes of the outputs."""
        return tuple([x.aval for x in self.graph.outputs])

    def result(self, outputs: list[Operand]) -> Any:
        """The result of the function, from the values of the outputs in a trace."""
        leaves = [weakened(x) if weak else x for x, weak in zip(outputs, self.weak)]
        return tree.unflatten(self.structure, leaves)


class Like:
    """A kind of argument: an aval, whether it is `x` or a row of it, and a Tensor if `x` is one."""

    __slots__ = ("aval", "of_tensor", "x")

    def __init__(self, aval: Aval, x: Any):
        self.aval, self.of_tensor, self.x = aval, isinstance(x, TensorCarrier), x


def _example(like: object) -> Any:
    """The value of an argument of this kind in the call being traced; None if there is none."""
    if isinstance(like, Like):
        whole, aval = _example(like.x), like.aval
        if whole is None or whole.shape == aval.shape:
            return None if whole is None else whole.astype(aval.dtype)
        return whole[0] if len(whole) else None
    x = like.array if isinstance(like, TensorCarrier) else like
    if isinstance(x, GraphValue):
        return x.builder.example(x.node)  # type: ignore[attr-defined]
    return None if isinstance(x, Aval) else np.asarray(x)


def _lie_as_example_of(whole: Any, array: Any) -> None:
    """Give `array` the memory layout of one example, a row of `whole`."""
    whole = whole.array if isinstance(whole, TensorCarrier) else whole
    if not isinstance(whole, Tracer) or not whole.shape[0]:
        array.layout_inputs = UNKNOWN
        return
    array.layout_inputs = whole.layout_inputs
    if not whole._is_plain():
        array.stand_in = whole._layout()[0, ...]  # a view, which reads no memory


def _has_derivative(like: object, builder: TraceBuilder) -> bool:
    """Whether a derivative flows through the argument of this kind."""
    x = like.x if isinstance(like, Like) else like
    x = x.array if isinstance(x, TensorCarrier) else x
    return isinstance(x, GraphValue) and builder.has_derivative(x.node)


def closed(
    fn: Callable[..., object],
    args: Sequence[object],
    description: str,
    once: bool = False,
    examples: int = 1,
    draws: ExampleDraws | None = None,
) -> ClosedFunction:
    """Trace `fn(*args)` to a graph inside the current trace; messages call `fn` by `description`.

    The leaves of `args` give the kinds of the arguments: anything with a shape and a dtype, an `Aval` or a `Like`.
    Python numbers and `weak` values stand for Python numbers, and Tensors for Tensors. The leaves of the result must be
    arrays or Python numbers, else a `TraceError` is raised. A side effect of `fn` on outside objects raises an
    `UnsupportedError` unless calls run `fn` exactly `once`, as often as it is recorded. The graph will be computed for
    a batch of `examples` examples.
    """
    outer = current_trace()
    if outer is None:
        raise TraceError(located(f"{description} cannot be recorded, because no trace is under way"))
    with _region(outer.innermost(), description, examples) as region:
        region.is_of_examples, region.example_draws = draws is not None, draws or ExampleDraws()
        leaves, structure = tree.flatten(tuple(args))
        inside = tree.unflatten(structure, [region.parameter(x) for x in leaves])
        before = [] if once else outer.world.writes.written_locations()
        flat, shape = tree.flatten(outer.world.inline(fn)(*inside))
        if not once:
            _require_no_writes(outer.world.writes.written_locations(), before, description)
        outputs = [region.output(x, path) for x, path in zip(flat, tree.paths(shape, "the result"))]
        new = region.rolled(outputs)
        graph = sliced(region.inputs, region.nodes, [new.get(x, x) for x in outputs])
        used = {*graph.outputs, *(x for n in graph.nodes for x in n.operands)}
        captured = [(value, node) for value, node in region.captured.values() if node in used]
        return ClosedFunction(
            Graph((*graph.inputs, *(node for _, node in captured)), graph.nodes, graph.outputs),
            tuple([value for value, _ in captured]),
            shape,
            tuple([type(x) in LITERALS or getattr(x, "weak", False) for x in flat]),
            tuple([isinstance(x, TensorCarrier) for x in flat]),
            tuple([node in region.mapped for _, node in captured]),
        )


def _require_no_writes(now: list[tuple[object, str]], before: list[tuple[object, str]], description: str) -> None:
    known = {location for location, _ in before}
    for location, text in now:
        if location not in known:
            raise UnsupportedError(
                located(
                    f"{description} changes {text}, which it would have to do at each iteration: return the new value "
                    "instead"
                )
            )


def emitted(graph: Graph, operands: Sequence[object]) -> list[Any]:
    """Record the nodes of `graph`, applied to these values, in the current trace, with their original user lines.
    Returns the outputs."""
    with at_their_lines():
        return replay(graph, operands)[0]


@contextmanager
def at_their_lines() -> Iterator[None]:
    """Give replayed nodes the user lines of the nodes of the graph (context manager)."""
    builder = current_trace()
    assert builder is not None
    before = builder.location
    try:
        yield
    finally:
        builder.location = before


def weakened(x: object) -> Any:
    """The traced value as a Python number."""
    return Number(x.builder, x.node) if isinstance(x, Tracer) else x


@contextmanager
def _region(outer: TraceBuilder, description: str, examples: int) -> Iterator[Region]:
    region = Region(outer, description, examples)
    outer.inner = region
    try:
        with recording(region):
            yield region
    finally:
        outer.inner = None
        region.close()


class NoValueError(TraceError, RuntimeError):
    """Code asks for a value that depends on the arguments of a region: a TraceError, and PyTorch's RuntimeError."""


class Region(TraceBuilder):
    """Recorder of a function of unknown values, inside the trace `outer`."""

    def __init__(self, outer: TraceBuilder, description: str, examples: int):
        super().__init__(outer.make, outer.make_number)
        self.loops.may_close = False
        self.outer: TraceBuilder = outer
        self.around, self.examples, self.text_numbers = outer, examples, outer.text_numbers
        self.description = description
        self.world, self.rules, self.memory = outer.world, outer.rules, outer.memory
        # The outside value and the input that stands for it, by the outside node and the id of a Tensor.
        self.captured: dict[tuple[GraphNode, int], tuple[Any, GraphNode]] = {}
        self.likes: dict[GraphNode, Any] = {}  # the kinds of the arguments, by their inputs
        self.example_draws = ExampleDraws()
        self.mapped: set[GraphNode] = set()  # stand-ins of captured values that have a row for each example

    # -- inputs and outputs -------------------------------------------------------------------------
    def parameter(self, like: object) -> Any:
        """The stand-in of an argument of this kind."""
        number = type(like) in _DTYPES
        aval = Aval((), np.dtype(_DTYPES[type(like)])) if number else like if isinstance(like, Aval) else aval_of(like)
        supported(aval.dtype, f"an argument of {self.description}")
        node = GraphNode(None, (), (), aval)
        self.inputs.append(node)
        self.likes[node] = like
        value = self._standing(node, like, f"an argument of {self.description}")
        array = value.array if isinstance(value, TensorCarrier) else value
        if self.is_of_examples and isinstance(like, Like):
            _lie_as_example_of(like.x, array)
        else:
            array.layout_inputs = UNKNOWN if len(aval.shape) > 1 else 0
        return value

    def output(self, x: object, path: str) -> GraphNode:
        """The node of a leaf of the result."""
        if type(x) in _DTYPES:
            x = full(shape=(), value=x, dtype=_DTYPES[type(x)])
        if isinstance(x, TensorCarrier):
            x = self.entered(x if x.level is DispatchLevel.TRACED_TENSOR else self.tensors.of(x)).array
        if (
            not isinstance(x, GraphValue | np.ndarray | np.generic)
            and getattr(x, "level", None) is not DispatchLevel.SPAN
        ):
            raise TraceError(located(f"{self.description} must return arrays, but {path} is a {type(x).__name__}"))
        node: GraphNode = self.lift(x).node
        return node

    def lift(self, x: object) -> Any:
        self.require_open()
        if isinstance(x, np.ndarray) or (isinstance(x, GraphValue) and x.builder is not self):
            value = self.outer.lift(x)
            return self._from_outside(value, self.outer.value(value.node))
        return super().lift(x)

    def entered(self, tensor: Any) -> Any:
        """The stand-in of a Tensor of the trace in this region: the value of a Tensor from outside."""
        if tensor.level is not DispatchLevel.TRACED_TENSOR or tensor.array.builder is self:
            return tensor
        outside = self.outer.entered(tensor)
        return self._from_outside(outside, outside)

    def _from_outside(self, like: object, value: Any) -> Any:
        node = value.array.node if isinstance(value, TensorCarrier) else value.node
        key = node, id(value) if isinstance(value, TensorCarrier) else 0
        if key not in self.captured:
            self.captured[key] = value, GraphNode(None, (), (), node.aval)
        result = self._standing(self.captured[key][1], like, f"an array from outside of {self.description}")
        if isinstance(result, Tracer) and isinstance(like, Tracer):
            result.share_layout(like)
        return result

    def drawn(self, value: Any) -> Any:
        """The stand-in of random numbers that were drawn in the enclosing trace."""
        return self.lift(value) if self.example_draws.randomness != "different" else self.example_of(value)

    def example_of(self, value: Any) -> Any:
        """The stand-in of the example in `value`, an array or a Tensor of the enclosing trace with a row for each."""
        outside = value.array if isinstance(value, TensorCarrier) else value
        node = GraphNode(None, (), (), Aval(outside.shape[1:], outside.dtype))
        self.captured[outside.node, id(value) if outside is not value else 0] = value, node
        self.mapped.add(node)
        result = self._standing(node, value, "")
        array = result.array if isinstance(result, TensorCarrier) else result
        array.layout_inputs = UNKNOWN if len(node.aval.shape) > 1 else 0
        return result

    def batches(self, nodes: Sequence[GraphNode]) -> tuple[list[Any], list[bool]]:
        """The values of these nodes for all examples, in the enclosing trace, and which of them have a row for each."""
        inputs = [*self.inputs, *(parameter for _, parameter in self.captured.values())]
        values = [*(self.likes[x].x for x in self.inputs), *(value for value, _ in self.captured.values())]
        flags = [x in self.mapped or x in self.likes for x in inputs]
        with self.outer.outside(), at_their_lines():
            return replay_batched(sliced(inputs, self.nodes, nodes), self.example_draws.size, flags, values)

    def _standing(self, node: GraphNode, like: object, frozen: str) -> Any:
        weak = type(like) in _DTYPES or getattr(like.array if isinstance(like, TensorCarrier) else like, "weak", False)
        value = (Number if weak else Tracer)(self, node)
        value.frozen = frozen
        value.is_array = getattr(like, "is_array", isinstance(like, np.ndarray))
        if not isinstance(like, TensorCarrier) and not getattr(like, "of_tensor", False):
            return value
        from tracegrad.torch.tape import TracedTensor

        return TracedTensor(value)

    def capture(self, array: Any, source: Any = None) -> Any:
        return self.outer.capture(array, source)

    def closed_rule(self, call: Any, outputs: Sequence[Any], inputs: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
        # The rule runs now, in both directions, because the values that it reads end with the region.
        known = next((x for x in self.rules if x.key == call.key), None)
        if known is not None:
            known.called = True
            return known.rule, known.captured
        record = _RuleRecord(call, outputs, inputs)
        self.rules.append(record)
        try:
            record.run()
        finally:
            self.rules.remove(record)
        return record.rule, record.captured

    def new_tag(self) -> int:
        return self.outer.new_tag()

    def locate(self) -> str:
        return self.location or self.outer.location or super().locate()

    def close(self) -> None:
        self.open, self.nodes = False, []
        memories = (
            self._nodes,
            self._lines,
            self._avals,
            self.plans,
            self.results,
            self._computed,
            self.captured,
            self.bounds,
            self.likes,
        )
        for memory in memories:
            memory.clear()

    # -- reads of values ----------------------------------------------------------------------------
    def observe(self, x: Any, query: str) -> Any:
        known = self.known_outside(x.node)
        if known is None:
            text = f"{query} of a value inside {self.description}, which has no value yet: {_instead(query)}"
            raise NoValueError(located(f"{self._refusal(query)}{text}"))
        return self.outer.observe(known, query)

    def _refusal(self, query: str) -> str:
        """The sentence that begins PyTorch's error, for examples of Tensors."""
        if not self.is_of_examples or not any(getattr(x, "of_tensor", False) for x in self.likes.values()):
            return ""
        if query == "bool()":
            return "vmap: It looks like you're attempting to use a Tensor in some data-dependent control flow. "
        if query in ("a boolean index", COUNT_QUERY):
            return "vmap: We do not support batching operators that can output dynamic shape. "
        return ""

    def holds(self, x: Any) -> bool:
        known = self.known_outside(x.node)
        return True if known is None else self.outer.holds(known)

    def knows(self, x: Any) -> bool:
        return super().knows(x) and (x.builder is not self or self.known_outside(x.node) is not None)

    def has_derivative(self, wanted: GraphNode) -> bool:
        if wanted not in {*self.inputs, *self.nodes, *(parameter for _, parameter in self.captured.values())}:
            return self.outer.has_derivative(wanted)  # a node of the enclosing trace
        return super().has_derivative(wanted)

    def sources(self) -> set[GraphNode]:
        result, outer = super().sources(), self.outer
        if outer.derives():
            result.update(
                [parameter for (outside, _), (_, parameter) in self.captured.items() if outer.has_derivative(outside)]
            )
            result.update([parameter for parameter, like in self.likes.items() if _has_derivative(like, outer)])
        return result

    def constant(self, x: Any) -> Any:
        known = self.known_outside(x.node)
        return None if known is None else self.outer.constant(known)

    def compute(self, wanted: GraphNode) -> Any:
        known = self.known_outside(wanted)
        if known is None:
            raise TraceError(
                located(f"the code needs the value of an array inside {self.description}, which has none yet")
            )
        return self.outer.compute(known.node)

    def foresee(self, node: GraphNode) -> None:
        pass  # a region has no values that could raise

    def spring(self, node: GraphNode) -> None:
        pass

    def example(self, wanted: GraphNode) -> Any:
        for (outside, _), (_, parameter) in self.captured.items():
            if parameter not in self._computed and wanted.depends_on({parameter}):
                whole = self.outer.example(outside)
                self._computed[parameter] = whole[0] if parameter in self.mapped else whole
        for node, like in self.likes.items():
            if node not in self._computed and wanted.depends_on({node}):
                result = _example(like)
                if result is None:
                    return self.compute(wanted)
                self._computed[node] = result
        return super().compute(wanted)

    def known_outside(self, node: GraphNode) -> Any:
        """The value in the enclosing trace of a node that does not depend on the arguments; else None."""
        self.require_open()
        if node.depends_on({*self.inputs, *self.mapped}):
            return None
        inputs = [parameter for _, parameter in self.captured.values()]
        values = [self.outer.value(outside) for outside, _ in self.captured]
        with self.outer.outside():
            return self.outer.lift(emitted(sliced(inputs, self.nodes, [node]), values)[0])


def _instead(query: str) -> str:
    """The alternative to suggest for a value read."""
    if query.startswith("bool"):
        return (
            "choose element by element with tg.where(condition, x, y), between computations with "
            "tg.cond(condition, f, g, ...), and repeat while a condition holds with tg.while_loop"
        )
    if query.startswith("int") or query == "an index":
        return (
            "an array can be indexed by it as it is; for a number of iterations use tg.fori_loop or tg.while_loop, and "
            "for "
            "a choice tg.where or tg.cond"
        )
    if query == "the size of an array":
        return (
            "arrays of a size that differs from iteration to iteration can be computed with element by element, "
            "summed, "
            "multiplied and assigned where they are known to be of one size; for more, use an array of the greatest "
            "size and tg.where"
        )
    if query in ("a boolean index", COUNT_QUERY):
        return (
            "a shape would depend on it; what a mask chooses can be computed with element by element, reduced, and "
            "written where the same mask is true; for more use tg.where(mask, x, 0) or the three-argument np.where"
        )
    return "compute with the value itself, and choose with tg.where or tg.cond"


class _RuleRecord:
    """The rule of a call while its graphs are recorded, and their captured values."""

    def __init__(self, call: Any, outputs: Sequence[Any], inputs: Sequence[Any]):
        self.call, self.outputs, self.inputs = call, list(outputs), list(inputs)
        self.key = call.key
        self.rule = ClosedRule(call.name, len(inputs))
        self.captured: list[Any] = []
        self.called = False  # whether its own rule calls it, and reads all captured values

    def run(self) -> None:
        for iteration in itertools.count():
            before, rule = len(self.captured), self.rule
            if iteration == _MAX_ITERATIONS:
                text = f"the rule of {self.call.name} calls it, and makes other arrays of constants each time"
                raise UnsupportedError(located(f"{text}; make these outside of the function"))
            rule.pushed = self.direction(self.call.push, self.inputs)
            rule.pulled = self.direction(self.call.pull, self.outputs)
            again = isinstance(rule.pushed, Exception)
            first, rule.then = rule.pushed, self.direction(self.call.push, self.inputs) if again else rule.pushed
            if isinstance(first, NotYet):
                rule.pushed = rule.then
            if not self.called or len(self.captured) == before:
                break
        rule.freeze()

    def direction(self, run: Callable[..., Any], moved: Sequence[Any]) -> Any:
        kinds = [x.aval if x.dtype.kind in "fc" else None for x in moved]
        try:
            result = closed(run, (kinds, self.outputs, self.inputs), f"the derivative of {self.call.name}", once=True)
        except Exception as error:  # raised when the derivative is taken
            return error
        known = {x.node: k for k, x in enumerate(self.captured)}
        reads = [x.array if isinstance(x, TensorCarrier) else x for x in result.captured]
        for x in reads:
            if known.setdefault(x.node, len(self.captured)) == len(self.captured):
                self.captured.append(x)
        numbers = tree.unflatten(result.structure, range(len(result.avals)))
        positions = [k for k, number in enumerate(numbers) if number is not None]
        return RuleGraph(result.graph, [known[x.node] for x in reads], positions)
