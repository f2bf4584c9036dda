"""Trace one call: from a function and the leaves of its arguments to a graph, its guards and its captures."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np

import tracegrad.trace.driver.late_imports
import tracegrad.trace.values.fast_recording  # noqa: F401 (adds fast paths to ops)
from tracegrad import tree
from tracegrad.avals import is_constant
from tracegrad.errors import (
    DTypeError,
    LostDerivativeError,
    ShapeError,
    TracegradError,
    is_internal,
    located,
    uncaught,
    user_file,
)
from tracegrad.ir import Graph, GraphNode, recording
from tracegrad.ir.builder import sliced
from tracegrad.ops.core.forms import Gather, Scatter
from tracegrad.ops.elementwise.table import logical_and, logical_not
from tracegrad.settings import disabled, unusual
from tracegrad.torch.modes import as_usual
from tracegrad.trace.builder.abort import Attempts, Restarts, RunsPlainly
from tracegrad.trace.builder.builder import TraceBuilder
from tracegrad.trace.builder.facts import Fact, LoopFact, LoopFactKind, TraceFact
from tracegrad.trace.builder.layout import LayoutGuard
from tracegrad.trace.builder.value_guards import Capture, GuardValues, ValueGuard, value_key
from tracegrad.trace.driver.outputs import Outputs
from tracegrad.trace.driver.tensor_effects import TapeTrace
from tracegrad.trace.effects.effects import Effect, writer
from tracegrad.trace.effects.result_template import (
    ConstantTemplate,
    Filling,
    ResultTemplate,
)
from tracegrad.trace.loops.appended_list import require_restored
from tracegrad.trace.loops.indexed_list import require_unchanged
from tracegrad.trace.loops.long_loop_hints import forget_short
from tracegrad.trace.random.draws import is_generator, rewind
from tracegrad.trace.random.methods import generator_of
from tracegrad.trace.random.rejected_reads import read_up
from tracegrad.trace.sources.consumed_iterators import is_read_up
from tracegrad.trace.sources.describe import describe
from tracegrad.trace.sources.signature import BoundCall, Field, child_items
from tracegrad.trace.sources.sources import ArgumentLeaf, Attribute, CallArgument, Fixed, Item, Source, on_call
from tracegrad.trace.values.constant_array import Constants
from tracegrad.trace.values.exceptions import is_internal_raise, is_interrupt, is_of_loops, is_plain, is_pythons
from tracegrad.trace.values.number import Number
from tracegrad.trace.values.tracer import Tracer
from tracegrad.trace.values.views import require_views
from tracegrad.trace.world.guards import Assumptions
from tracegrad.trace.world.memoized_results import note_written
from tracegrad.trace.world.world import World
from tracegrad.utils.lazy_dataclass import record

_LEAF_CLASSES = (np.ndarray, np.generic, float, int, complex)
_DTYPES: dict[type, str] = {float: "float64", int: "int64", bool: "bool"}


@record(slots=True, eq=False)
class Trace:
    """The recording of one call.

    The inputs of `graph` are the leaves of the arguments and then the `captures`. Its outputs are the arrays of the
    result and of the effects, and then one value for each guard with an output. `checked` replaces the implicit guards
    by one boolean, the last output: whether all of them hold. A template describes the result.

    Each of the `groups` lists containers that must be distinct objects, because some of them are written to.

    The `script` has the values of all guards, in order, including values without a guard.

    A call that `raised` has no result, only guards; `error` is the exception, if Python would have raised the same.
    """

    graph: Graph
    kinds: tuple[str, ...]
    result: ResultTemplate
    effects: tuple[Effect, ...]
    guards: tuple[ValueGuard, ...]
    captures: tuple[Capture, ...]
    world: Assumptions
    arrays: int = field(default=0)
    tape: TapeTrace | None = None
    raised: str = ""
    error: BaseException | None = None
    layouts: tuple[LayoutGuard, ...] = ()
    groups: tuple[tuple[Source, ...], ...] = ()
    unrolled: tuple[tuple[str, str], ...] = ()  # why the loop at a line was not rerolled
    divided: tuple[tuple[str, str], ...] = ()  # the residuals of loops that run in segments
    script: tuple[Any, ...] = ()
    facts: frozenset[Fact] = frozenset()  # when the trace began
    write: Callable[[Any, Any], None] | None = None  # writes the effects; compiled on first use

    def fits(self, inputs: Sequence[Any]) -> bool:
        """Whether the arrays have the assumed memory layouts; programs check row-major layouts themselves."""
        return not self.layouts or all(x.fits(np.asarray(inputs[x.number])) for x in self.layouts)

    def input_names(self, arguments: Sequence[str]) -> list[str]:
        """The names of the graph inputs, given the names of the argument leaves."""
        return [*arguments, *("" if c.source is None else _as_inside(c.source.path) for c in self.captures)]

    @property
    def implicit(self) -> bool:
        """Whether there are implicit guards."""
        return any(g.implicit for g in self.guards)

    def explicit_guards(self, checked: bool) -> tuple[ValueGuard, ...]:
        """The guards with an output of the graph, or of `checked`."""
        return tuple([g for g in self.guards if g.unless_raises is None and not (checked and g.implicit)])

    def checked(self) -> Graph:
        """The graph with one output for all implicit guards."""
        nodes = list(self.graph.nodes)
        every: GraphNode | None = None
        for guard in self.guards:
            if not guard.implicit:
                continue
            holds = guard.node
            if not guard.value:
                holds = GraphNode(logical_not, (holds,), (), holds.aval)
                nodes.append(holds)
            if every is not None:
                holds = GraphNode(logical_and, (every, holds), (), holds.aval)
                nodes.append(holds)
            every = holds
        assert every is not None
        visible = self.graph.outputs[: self.arrays]
        return Graph(self.graph.inputs, tuple(nodes), (*visible, *(g.node for g in self.explicit_guards(True)), every))

    def can_fail(self, program: Any) -> bool:
        """Whether the optimized program still has a node that raises where an unchecked guard fails."""
        unasked = {g.unless_raises for g in self.guards} - {None}
        if not unasked:
            return True
        return bool(len(unasked) <= program.foreseen)

    def diverges(self, values: Iterable[Any]) -> GuardValues | None:
        """The guard values up to the first one that differs from the recorded value, given the `values` of the guards;
        None if all are equal."""
        for guard, value in zip(self.guards, values):
            if value_key(value) != guard.key:
                return GuardValues((*self.script[: guard.number], value), self.facts)
        return None

    def guard_values(self, outputs: Sequence[Any], checked: bool) -> Iterator[Any]:
        """The values of all guards, from the outputs of a successful call of `graph`, or `checked`."""
        values, with_output = iter(outputs[self.arrays :]), set(self.explicit_guards(checked))
        return (next(values) if g in with_output else g.value for g in self.guards)

    def finish(self, outputs: Sequence[Any], tensor: Any = None, effects: bool = True) -> Any:
        """The value of the function, from the outputs of the program; replays the effects."""
        call = Filling(outputs, tensor)
        result = self.result.make(call)
        if effects and self.effects:
            if self.write is None:
                self.write = writer(self.effects)
            holders, values = [e.holder.read() for e in self.effects], [e.template.make(call) for e in self.effects]
            self.write(holders, values)
        return result

    def mixes(self) -> bool:
        """Whether containers that were distinct in the trace are one object now. Must run within `on_call`."""
        return any(len({id(source.read()) for source in group}) < len(group) for group in self.groups)

    @property
    def written(self) -> list[Any]:
        """The sources of the arrays that each call writes to."""
        return [source for e in self.effects if (source := e.memory) is not None]


def _as_inside(path: str) -> str:
    """`path` as written inside a method: callers reach `self` as `model.call.__self__`."""
    _, method, rest = path.rpartition(".__self__")
    return f"self{rest}" if method else path


def trace_call(
    fun: Callable[..., Any],
    body: object,
    call: BoundCall,
    guard_values: GuardValues | None = None,
    known_facts: set[Fact] | None = None,
    shared: bool = False,
) -> Trace:
    """Run `body` on tracers of the leaves of `call`; messages name `fun`.

    `guard_values` are the values of the first guards, if a compiled program has computed them. Floats whose
    `NumberFact` is in `known_facts` become inputs. A trace that is `shared` is valid for other functions with equal
    code: it reads their state through the function of the call.

    No trace state remains after a function that raises. Errors of tracegrad name the user's line. Printed output is
    held back in `world.printed` until it is known whether the call ends with this trace.
    """
    facts = set() if known_facts is None else known_facts
    attempts, endless = Attempts(), None
    while True:
        now = frozenset(facts)
        args = guard_values.values if guard_values is not None and guard_values.facts == now else ()
        result = _trace_call(fun, body, call, args, facts, shared, endless)
        late = result.world.late if isinstance(result, Trace) else result
        if isinstance(late, Restarts):
            endless = attempts.again(late, now, facts)
            continue
        assert isinstance(result, Trace)
        result = result if late is None else _aborted(result, str(late))
        # Facts about loops that hints have added count as known when the trace began.
        result.facts = now | {x for x in facts - now if isinstance(x, LoopFact) and x.kind is LoopFactKind.FOLDED}
        forget_short(facts)
        return result


def _pass(world: World, call: BoundCall, args: list[Any], kwargs: dict[str, Any]) -> None:
    """Replace random generators by their stand-ins, and record the kinds of the arguments."""
    positions: list[tuple[Any, Any]] = [(args, i) for i in range(len(args))]
    positions += [(kwargs, name) for name in kwargs]
    paths = set(call.generators)
    for container, index in positions:
        container[index] = _shown(world, container[index], CallArgument(None, index), (index,), paths)
    for container, index in positions:
        source = CallArgument(None, index)
        if (index,) in paths:
            continue
        if id(source.read()) in world.containers.known:
            container[index] = world.containers.handed(source.read(), source)
            continue
        for copy in world.writes.passed(container[index], source):
            world.containers.enter(copy)


def _shown(world: World, x: Any, source: Source, path: tuple[Any, ...], paths: Collection[Any]) -> Any:
    """The container with stand-ins for its generators; a generator at a known path may be any one of its class."""
    if is_generator(x):
        return generator_of(world, x, source if path in paths else Fixed(x, "a random generator"))

    def inside(key: object, each: object) -> Any:
        child_source = Attribute(source, key.name) if type(key) is Field else Item(source, key)
        return _shown(world, each, child_source, (*path, key), paths)

    new = [(key, each, inside(key, each)) for key, each in child_items(x)]
    if all(each is shown for _, each, shown in new):
        return x
    if isinstance(x, tuple):
        return tuple.__new__(type(x), [shown for _, _, shown in new])
    for key, _, shown in new:
        object.__setattr__(x, key.name, shown) if type(key) is Field else operator.setitem(x, key, shown)
    return x


def _trace_call(
    fun: Callable[..., Any],
    body: object,
    call: BoundCall,
    guard_values: Sequence[Any],
    facts: set[Fact],
    shared: bool,
    endless: RunsPlainly | None,
) -> Trace | Restarts:
    """As `trace_call`, or the restart exception. If restarts are `endless`, the call runs as plain Python."""
    rewind(call)
    builder = TraceBuilder(Tracer, Number, guard_values)
    builder.loops.foresees = not guard_values  # hints would change the guards that the answers belong to
    if TraceFact.ITERATION_BY_ITERATION in facts or disabled("loop-capture"):
        builder.loops.may_close = False
    if TraceFact.COMPUTED not in facts:
        builder.constant_arrays = Constants()
    builder.world = world = World(builder, facts, fun if shared else None)
    with recording(builder):
        leaves = [world.passed(x, i, _argument(builder, call, i, x)) for i, x in enumerate(call.leaves)]
    args, kwargs = call.rebuild(leaves)
    block = object()
    unusual[block] = None
    try:
        with recording(builder), on_call(call), as_usual():
            _pass(world, call, args, kwargs)
            if endless is not None:
                raise endless
            with uncaught():
                result = world.inline(body)(*map(world.adopt, args), **{k: world.adopt(x) for k, x in kwargs.items()})
            disturbed = world.natives.disturbed()
            if disturbed or builder.abort_error is not None:
                raise builder.abort(disturbed)
            require_restored(builder.loops.histories)
            return _finish(builder, world, call, result)
    except (KeyboardInterrupt, GeneratorExit):
        world.printed.release()
        raise
    except Restarts as restart:
        restart.location = _user_line(restart)
        world.natives.rewind()
        return restart.with_traceback(None)
    except BaseException as error:
        loops = builder.loops.detector is not None and builder.loops.detector.has_traced_values
        if loops and is_of_loops(error):
            # It may concern the final values of the loops, which are not constants, or an iteration after the last.
            world.natives.rewind()
            return Restarts("what loops leave is asked for", TraceFact.ITERATION_BY_ITERATION)
        _require_result(error, world, fun, call)
        return (_ended if world.once and is_pythons(error) else _raised)(builder, world, call, error)
    finally:
        unusual.pop(block, None)
        with on_call(call):
            world.close()


def _require_result(error: BaseException, world: World, fun: Any, call: BoundCall) -> None:
    """Reraise an exception that is not a result of the function: tracegrad's, or a signal handler's."""
    if world.once:
        call.writes = world.changed
    if isinstance(error, RunsPlainly):
        return
    # NumPy, or PyTorch for Tensors, raises these errors too, after the effects of earlier code.
    own_classes = TracegradError if world.builder.has_tensors else (TracegradError, RuntimeError)
    is_numpys = isinstance(error, ShapeError | DTypeError) or not isinstance(error, own_classes)
    is_own = is_internal_raise(error) and not (is_numpys and _has_acted(world, call))
    if is_own:
        _name_location(error, describe(fun))
    if is_own or is_interrupt(error):
        rewind(call)
        if not world.once or isinstance(error, LostDerivativeError):  # else the call runs on the tape
            world.printed.release()
        world.natives.rewind()
        raise error


def _has_acted(world: World, call: BoundCall) -> bool:
    """Whether the traced code has had lasting effects; a caller may catch its exception."""
    has_output = world.printed.texts or (
        world.once and world.builder.output_at >= 0
    )  # otherwise the plain call prints again
    return bool(has_output or world.changed or call.drawn or world.natives.disturbed() or world.natives.wrote)


def _argument(builder: TraceBuilder, call: BoundCall, i: int, x: Any) -> Any:
    tensor = call.tensors.get(i)
    if tensor is not None:
        return builder.tensors.argument(i, tensor, builder.argument(Tracer, x).node)
    if is_constant(x) or not isinstance(x, _LEAF_CLASSES):  # a constant of this trace, whose input is not used
        builder.argument(Number, np.asarray(0))
        return read_up(x, f"argument {i}") if is_read_up(x) else x
    if type(x) in _DTYPES:
        result = builder.argument(Number, np.asarray(x, _DTYPES[type(x)]))
        return builder.python_number(result.node) if type(x) is bool else result
    value = builder.argument(Tracer, np.asarray(x))
    unusual = call.key[1][i][2:]
    value.is_array = unusual != (np.generic,)
    if value.is_array:
        builder.world.natives.classes_of_arrays.update(unusual)
        builder.world.writes.array(value, ArgumentLeaf(None, i))
    return value


def _finish(builder: TraceBuilder, world: World, call: BoundCall, result: object) -> Trace:
    if world.once:
        builder.guards.clear()  # no other call is checked against them
    output = Outputs(builder, world)
    template, done = output.of_call(result)
    bases = output.views()
    if bases:
        output = Outputs(builder, world, bases)
        template, done = output.of_call(result)
    require_unchanged(builder, output.handed)
    require_views(builder, output.handed)
    outputs, roots = output.nodes, output.roots
    untaken = list(builder.raising)
    cts, cotangents, wanted, spent = builder.tensors.swept(roots) if builder.has_tensors else ([], [], [], "")
    guards = _resolved_guards(builder, outputs, untaken)
    new = builder.rolled([*outputs, *(g.node for g in guards), *cotangents])
    if new:
        outputs, cotangents = ([new.get(x, x) for x in nodes] for nodes in (outputs, cotangents))
        guards = tuple([replace(g, node=new.get(g.node, g.node)) for g in guards])
    guard_nodes = [g.node for g in guards if g.unless_raises is None]
    everything = [*builder.inputs, *(c.node for c in builder.captures.values()), *cts]
    joint = sliced(everything, builder.nodes, [*outputs, *guard_nodes, *cotangents])
    captures = _used_captures(builder, world, joint, done)
    inputs = [*builder.inputs, *(c.node for c in captures)]
    if cotangents:
        graph = sliced(inputs, builder.nodes, [*outputs, *guard_nodes])
    else:
        graph = Graph(tuple(inputs), joint.nodes, joint.outputs)
    tape = None
    if builder.has_tensors or output.tensors:
        tape = TapeTrace(
            builder.tensors.input_positions(inputs),
            tuple(wanted),
            tuple([x.array.aval for x in roots]),
            Graph((*inputs, *cts), joint.nodes, joint.outputs) if cotangents else None,
            spent,
        )
    world.rewritten = frozenset(e.location for e in done)
    note_written(call.function, world.rewritten)
    return Trace(
        graph,
        _kinds(call, captures),
        template,
        tuple(done),
        guards,
        tuple(captures),
        world,
        len(outputs),
        tape,
        layouts=builder.memory.layouts(inputs),
        groups=world.writes.distinct_groups(done, world.is_fixed),
        unrolled=tuple(builder.loops.unrolled.items()),
        divided=tuple(builder.loops.divided.items()),
        script=tuple(builder.guards.script),
    )


def _used_captures(builder: TraceBuilder, world: World, joint: Graph, done: Sequence[Effect]) -> list[Capture]:
    """The captures that the graph needs as inputs; of the others, the values are assumed not to matter."""
    captures = list(builder.captures.values())
    if not captures:
        return captures
    used = {*joint.outputs, *(x for n in joint.nodes for x in n.operands)}
    if any(e.memory is not None for e in done):
        # A written array may share memory with any other array that was read (see `Path.overlaps`).
        used |= {c.node for c in captures if c.source is not None and c.number is None}
    unused = [c for c in captures if c.node not in used and not builder.memory.is_guarded(c.node)]
    world.saw(unused)
    return [c for c in captures if c not in unused]


def _ended(builder: TraceBuilder, world: World, call: BoundCall, error: BaseException) -> Trace:
    """The trace of one call that ended in an exception, with its effects so far."""
    error.args = tuple(tree.map(lambda x: x.shown() if isinstance(x, Tracer) else x, list(error.args)))
    with recording(builder), on_call(call), as_usual():
        trace = _finish(builder, world, call, None)
    trace.error = error
    return trace


def _resolved_guards(builder: TraceBuilder, outputs: Sequence[Any], raising: Sequence[Any]) -> tuple[ValueGuard, ...]:
    """The guards, with one for each node of `raising` that the outputs do not depend on. A guard without an output,
    because the outputs depend on the raising node, stays without one."""
    if not raising and all([g.unless_raises is None for g in builder.guards]):  # noqa: C419
        return tuple(builder.guards)
    live = _needed(builder, [*outputs, *(g.node for g in builder.guards if g.unless_raises is None)])
    checked = {_indexed(node) for node in live} if raising else set()
    for node in raising:
        if node not in live and not node.regions and (_indexed(node) or node) not in checked:
            error = builder.expect(node)
            if error is not None:  # plain Python decides whether user code catches it
                raise RunsPlainly(f"it raises, or catches, {type(error).__name__}: {error}")
    guards = []
    for guard in builder.guards:
        if guard.unless_raises is not None and guard.unless_raises not in live:
            guard = replace(guard, unless_raises=None)
            live |= _needed(builder, [guard.node])
        guards.append(guard)
    return tuple(guards)


def _indexed(node: Any) -> Any:
    """The shape, the axes and the indices of a node that raises for an index: a read, or its cotangent."""
    if not isinstance(node.op and node.op.form, Gather | Scatter):
        return None
    params = dict(node.params)
    shape = params["shape"] if "shape" in params else node.inputs[0].aval.shape
    return shape, params["axes"], node.inputs[1:]


def _needed(builder: TraceBuilder, outputs: Sequence[Any]) -> set[Any]:
    return set(sliced([], builder.nodes, outputs).nodes)


def _raised(builder: TraceBuilder, world: World, call: BoundCall, error: BaseException) -> Trace:
    """The trace of a call that ended in an exception: its guards so far."""
    captures = list(builder.captures.values())
    inputs = [*builder.inputs, *(c.node for c in captures)]
    graph = sliced(inputs, builder.nodes, [g.node for g in builder.guards])
    alike = is_plain(error) and not world.changed and not world.natives.disturbed() and builder.all_succeed()
    fault = ", which is an internal error of tracegrad: please report it" if is_internal(error) else ""
    line = error.location if isinstance(error, RunsPlainly) else ""
    why = str(error) if isinstance(error, RunsPlainly) else f"tracing it raised {type(error).__name__}: {error}{fault}"
    return Trace(
        graph,
        _kinds(call, captures),
        ConstantTemplate(None),
        (),
        tuple(builder.guards),
        tuple(captures),
        world,
        raised=located(why, line or _user_line(error)),
        error=error if alike else None,
        layouts=builder.memory.layouts(inputs),
        script=tuple(builder.guards.script),
    )


def _aborted(trace: Trace, why: str) -> Trace:
    """A trace whose calls must run as plain Python, which was known only at its end."""
    graph = sliced(trace.graph.inputs, trace.graph.nodes, [g.node for g in trace.guards])
    return Trace(
        graph,
        trace.kinds,
        ConstantTemplate(None),
        (),
        trace.guards,
        trace.captures,
        trace.world,
        raised=trace.raised or located(why),
        layouts=trace.layouts,
        script=trace.script,
    )


def _kinds(call: BoundCall, captures: Sequence[Capture]) -> tuple[str, ...]:
    return tuple(["float" if type(x) is float else "array" for x in (*call.leaves, *(c.array for c in captures))])


def _name_location(error: BaseException, function: object) -> None:
    """Add the user's innermost line: to the message of tracegrad's own errors, if it names none; else as a note."""
    line = _user_line(error)
    if isinstance(error, TracegradError) and line and error.args and ".py:" not in str(error.args[0]):
        error.args = (located(str(error.args[0]), line), *error.args[1:])
    error.add_note(f"while tracing {function}" + (f", at {line}" if line else ""))


def _user_line(error: BaseException) -> str:
    """The user's innermost line that an exception passed through."""
    line, traceback = "", error.__traceback__
    while traceback is not None:
        if user_file(traceback.tb_frame.f_code.co_filename):
            line = f"{traceback.tb_frame.f_code.co_filename}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    return line
