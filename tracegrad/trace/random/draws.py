"""Draw random numbers at each call, from the same stream as NumPy.

A draw is an input of the graph. Its source is a step: a generator method with its arguments. The steps of a trace run
in order before its program. They use the generators that the call reads from the traced sources, so each generator
ends in NumPy's state. If a guard fails or the call runs as plain Python, the generators are rewound first. NumPy
evaluates arguments of a step that depend on inputs, from the recorded nodes.

Location and scale are not arguments of a step: the graph multiplies and adds them, as NumPy does, and they have
derivatives.
"""

from __future__ import annotations

import contextlib
import operator
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tracegrad.errors import RANDOMNESS, UnsupportedError, located
from tracegrad.ir import GraphNode, GraphValue, evaluate
from tracegrad.numpy_api.operands import from_sequence
from tracegrad.ops.calls.random_streams import GeneratorSnapshot, have_disjoint_state, is_stream, read_state
from tracegrad.trace.builder.builder import TraceBuilder, current_trace
from tracegrad.trace.builder.facts import TraceFact
from tracegrad.trace.builder.hooks import HOOKS
from tracegrad.trace.loops.range_counter import before_output
from tracegrad.trace.random.example_draws import of_examples
from tracegrad.trace.random.generator_state import Stream, are_wanted, require
from tracegrad.trace.sources.consumed_iterators import Items, position_record, restore_position
from tracegrad.trace.sources.sources import CURRENT, CallArgument, ClosureCell, Fixed, ModuleGlobal, Names, Source
from tracegrad.utils.lazy_dataclass import record

if TYPE_CHECKING:
    from tracegrad.trace.sources.signature import BoundCall


_DISCRETE = frozenset(
    {
        "binomial",
        "choice",
        "geometric",
        "hypergeometric",
        "integers",
        "logseries",
        "multinomial",
        "multivariate_hypergeometric",
        "negative_binomial",
        "permutation",
        "permuted",
        "poisson",
        "randint",
        "random_integers",
        "zipf",
    }
)


def is_generator(x: object) -> bool:
    """Whether `x` is a NumPy random generator, new or legacy."""
    return isinstance(x, np.random.Generator | np.random.RandomState)


# -- the generators of a call --------------------------------------------------------------------------------------
class CallDraws:
    """The draws of a call: functions that rewind the generators, and the results of the steps."""

    __slots__ = ("before", "generators", "results")

    def __init__(self) -> None:
        self.before: dict[int, tuple[Any, Any]] = {}
        self.generators: list[Any] = []
        self.results: list[Any] = []

    def moving(self, generator: int, draw_number: int) -> GeneratorSnapshot:
        """The generator of this number, and the state read by this step."""
        return GeneratorSnapshot(self.generators[generator], self.results[draw_number])


def _noted(call: BoundCall, x: object) -> object:
    """The generator, after recording its state at the beginning of the call."""
    if call.drawn is None:
        call.drawn = CallDraws()
    _note(call.drawn, x)
    return x


def note(x: object) -> Any:
    """Record the state of a generator or iterator before the current call draws from it, so that it is rewound with the
    others. Returns the record, if there is a current call."""
    if CURRENT.call is None:
        return None
    _noted(CURRENT.call, x)
    return CURRENT.call.drawn.before[id(x)][1]


def _note(drawn: CallDraws, x: object) -> None:
    if id(x) not in drawn.before:
        drawn.before[id(x)] = x, _state(x)


def _state(x: object) -> Any:
    if isinstance(x, random.Random):
        return x.getstate()
    if isinstance(x, np.random.Generator):
        return x.bit_generator.state
    return x.get_state(legacy=False) if isinstance(x, np.random.RandomState) else position_record(x)


def rewind(call: Any) -> None:
    """Restore the states that the generators had when the call began."""
    if call is not None and call.drawn is not None:
        restore_states(call.drawn)


def restore_states(drawn: CallDraws | None) -> None:
    """Restore the states that the generators had before this draw."""
    if drawn is None:
        return
    for x, state in drawn.before.values():
        if isinstance(x, random.Random):
            x.setstate(state)
        elif isinstance(x, np.random.RandomState):
            x.set_state(state)
        elif isinstance(x, np.random.Generator):
            x.bit_generator.state = state
        else:
            restore_position(x, state)


@contextlib.contextmanager
def again(call: object) -> Iterator[None]:
    """Give the generators the states at the beginning of the call within the block, and the present states after it."""
    drawn = getattr(call, "drawn", None)
    present = CallDraws()
    for x, state in drawn.before.values() if drawn is not None else ():
        if type(state) is not Items:
            _note(present, x)
    rewind(call)
    try:
        yield
    finally:
        restore_states(present)


# -- the draws of a trace ------------------------------------------------------------------------------------------
@record(frozen=True, slots=True, eq=False)
class Needed:
    """An argument of a step that is the value of a node."""

    node: GraphNode


@record(frozen=True, slots=True, eq=False)
class CreatedGenerator:
    """A generator that traced code creates, with this function."""

    function: Callable[..., Any]
    args: tuple[Any, ...] = ()


@record(frozen=True, slots=True, eq=False)
class Spawned:
    """Generator number `number` of `count` generators that traced code spawns from another generator."""

    parent: int
    number: int
    count: int


@record(frozen=True, slots=True, eq=False)
class DrawCall:
    """A generator method with its arguments; the result is converted to a NumPy scalar if requested."""

    generator: int
    method: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    strong: bool

    def done(self, generator: object, value: Callable[..., object]) -> Any:
        """Run the step and return the result."""
        options = {k: value(x) for k, x in self.kwargs.items()}
        result = getattr(generator, self.method)(*[value(x) for x in self.args], **options)
        return np.float64(result) if self.strong and not isinstance(result, np.ndarray) else result


@record(frozen=True, slots=True, eq=False)
class Beginning:
    """A step that reads the state of a generator whose state is a traced value."""

    generator: int
    args = ()
    kwargs: ClassVar[dict[str, Any]] = {}

    def done(self, generator: object, value: Callable[..., object]) -> Any:
        """The state."""
        return read_state(generator)


class Draws:
    """The steps of one trace, the sources of the generators, and their states during tracing."""

    def __init__(self) -> None:
        self.origins: list[Source | CreatedGenerator | Spawned] = []
        self.reals: list[Any] = []
        self.draw_calls: list[DrawCall | Beginning] = []
        self.streams: dict[int, Stream] = {}  # by generator number
        self._inputs: dict[GraphNode, Any] = {}  # that arguments depend on: a leaf number or a capture

    def needs(self, builder: TraceBuilder, node: GraphNode) -> Needed:
        """Make the value of a node an argument."""
        captures = {c.node: c for c in builder.captures.values()}
        numbers = {x: i for i, x in enumerate(builder.inputs)}
        visited, stack = {node}, [node]
        while stack:
            x = stack.pop()
            if x.op is None:
                self._inputs[x] = numbers[x] if x in numbers else captures[x]
            fresh = set(x.operands) - visited
            visited |= fresh
            stack.extend(fresh)
        return Needed(node)

    @property
    def at_hand(self) -> bool:
        """Whether the steps need no computed values: all generators have fixed sources or are arguments of the call,
        and all arguments of steps are constants."""
        args = [x for draw_call in self.draw_calls for x in (*draw_call.args, *draw_call.kwargs.values())]
        fixed = all(
            isinstance(x, Source) and type(_root(x)) in (Fixed, ModuleGlobal, ClosureCell, CallArgument)
            for x in self.origins
        )
        return fixed and not any(isinstance(x, Needed) for x in args)

    def passed_generators(self) -> dict[int, object]:
        """The generators among the arguments of the current call, by their numbers."""
        sources = {
            k: x for k, x in enumerate(self.origins) if isinstance(x, Source) and isinstance(_root(x), CallArgument)
        }
        return {k: x.read() for k, x in sources.items()}

    def draw(self, passed: Mapping[int, object]) -> CallDraws:
        """Run all steps if they need nothing from the call, which receives these generators. If a step raises, nothing
        has been drawn."""
        result = CallDraws()
        generators = [passed[k] if k in passed else x.read() for k, x in enumerate(self.origins)]  # type: ignore[union-attr]
        self._require_disjoint(generators)
        for x in generators:
            _note(result, x)
        result.generators = generators
        try:
            result.results = [draw_call.done(generators[draw_call.generator], _itself) for draw_call in self.draw_calls]
        except BaseException:
            restore_states(result)
            raise
        return result

    def run(self) -> None:
        """Run all steps for the current call. Raises the error of a source that no longer exists."""
        call, computed = CURRENT.call, dict[GraphNode, Any]()

        def value(x: object) -> Any:
            if not isinstance(x, Needed):
                return x
            for node, source in self._inputs.items():
                if node not in computed and (known := _input(node, source, call)) is not None:
                    computed[node] = known
            result = evaluate(x.node, computed)
            return result.item() if not result.ndim else result

        outputs: list[Any] = []
        for origin in self.origins:
            if isinstance(origin, Spawned):
                if origin.number == 0:
                    outputs.extend(outputs[origin.parent].spawn(origin.count))
                continue
            fresh = isinstance(origin, CreatedGenerator)
            outputs.append(origin.function(*map(value, origin.args)) if fresh else _noted(call, origin.read()))  # type: ignore[union-attr]
        self._require_disjoint(outputs)
        results: list[Any] = []
        call.drawn = call.drawn or CallDraws()
        call.drawn.generators, call.drawn.results = outputs, results
        for draw_call in self.draw_calls:
            results.append(draw_call.done(outputs[draw_call.generator], value))

    def _require_disjoint(self, generators: Sequence[object]) -> None:
        """Raise a LookupError if two generators whose states are traced values share one state."""
        if len(self.streams) > 1 and not have_disjoint_state([generators[k] for k in self.streams]):
            raise LookupError("generators of random numbers share their state")

    def moved(self) -> Iterator[tuple[AdvancedGenerator, Any]]:
        """The generators whose states are traced values, with their last states."""
        for k, stream in self.streams.items():
            if isinstance(self.origins[k], Source) and stream.moved:
                yield AdvancedGenerator(self, (k, stream.draw_number)), stream.value


def _root(source: Source) -> Source:
    while isinstance(source.parent, Source):
        source = source.parent
    return source


def _itself(x: object) -> object:
    return x


def _input(node: GraphNode, source: int, call: BoundCall) -> object:
    """The value of a graph input; None if it has not been drawn yet."""
    if isinstance(source, int):
        return np.asarray(call.leaves[source], node.aval.dtype)
    if isinstance(source.source, Drawn) and source.source.number >= len(call.drawn.results):
        return None
    result = source.array if source.source is None else source.source.read()
    return np.asarray(result, node.aval.dtype)


class Drawn(Source):
    """The result of a step as a source; the parent is the draws, the name is the number of the step."""

    __slots__ = ()

    @property
    def number(self) -> int:
        """The number of the step."""
        return int(self.name)

    def read(self) -> Any:
        return CURRENT.call.drawn.results[self.number]

    def text(self, name: Names) -> str:
        return f"{name(self.read)}()"

    @property
    def path(self) -> str:
        return f"random numbers {self.name}"


class AdvancedGenerator(Source):
    """A generator moved by the call, as a source; the parent is the draws, the name is its number and the number of the
    step that has read its state."""

    __slots__ = ()

    def read(self) -> Any:
        return CURRENT.call.drawn.moving(*self.name)

    def text(self, name: Names) -> str:
        return f"{name(self.read)}()"

    @property
    def path(self) -> str:
        return f"the generator of random numbers {self.name[0]}"


# -- proxies of generators -----------------------------------------------------------------------------------------
class GeneratorProxy:
    """Proxy of a random generator."""

    __slots__ = ("_number", "_real", "_world")

    def __init__(self, world: Any, real: Any, origin: Source | CreatedGenerator | Spawned):
        if world.draws is None:
            world.draws = Draws()
        self._world, self._real, self._number = world, real, len(world.draws.origins)
        world.draws.origins.append(origin)
        world.draws.reals.append(real)
        if are_wanted(world):
            self._stream()  # before any loop, if possible

    @property
    def number(self) -> int:
        """The number of the generator."""
        return self._number

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return type(self._real)

    def __getattr__(self, name: str) -> Any:
        if not self._world.open:
            return getattr(self._real, name)
        return HOOKS.generator_method(self, name)

    @property
    def source(self) -> Source | None:
        """The source where each call reads it; None for a generator that traced code has created."""
        origin = self._world.draws.origins[self._number]
        return origin if isinstance(origin, Source) else None

    def spawn(self, count: int) -> list[GeneratorProxy]:
        """Spawned generators of a generator that traced code has created."""
        world, count = self._world, operator.index(count)
        if not isinstance(world.draws.origins[self._number], CreatedGenerator | Spawned):
            raise UnsupportedError(
                located(
                    "spawn of a random generator from outside of the traced function is not supported; spawn outside "
                    "and pass the generators, or make the generator inside"
                )
            )
        reals = self._real.spawn(count)
        world.created_generators.update({id(real): real for real in reals})
        return [GeneratorProxy(world, real, Spawned(self._number, k, count)) for k, real in enumerate(reals)]

    @property
    def is_old(self) -> bool:
        """Whether it is a `RandomState`."""
        return isinstance(self._real, np.random.RandomState)

    def draw(self, method: str, args: Sequence[Any], kwargs: dict[str, Any], strong: bool = False) -> Any:
        """The result of a method that runs at each call, as a tracer."""
        builder: TraceBuilder = self._world.builder
        if builder.inner is not None or current_trace() is not builder:
            return self._draw_for_examples(method, args, kwargs, strong)
        return self._draw(method, args, kwargs, strong)

    def _draw_for_examples(self, method: str, args: Sequence[Any], kwargs: dict[str, Any], strong: bool) -> Any:
        """The result of a method in the function of one example, drawn for all examples at once."""
        builder: TraceBuilder = self._world.builder
        regions: list[Any] = []
        while (regions[-1] if regions else builder).inner is not None:
            regions.append((regions[-1] if regions else builder).inner)
        modes = [x.example_draws.randomness for x in regions]
        if "error" in modes:
            raise RuntimeError(located(RANDOMNESS))
        inside = [x for x in (*args, *kwargs.values()) if isinstance(x, GraphValue) and x.builder is not builder]
        if not regions or "" in modes or inside:
            raise UnsupportedError(
                located(
                    f"{method} in a function that runs for several examples or iterations (tg.vmap, tg.scan, tg.cond, "
                    "...) "
                    "would be drawn once; draw outside of it and pass the array, or use tracegrad.random with a key "
                    "for each"
                )
            )
        sizes = tuple([x.example_draws.size for x in regions if x.example_draws.randomness == "different"])
        if sizes:
            method, args, kwargs = of_examples(method, args, kwargs, sizes)
        with builder.outside():
            result = self._draw(method, args, kwargs, strong)
        for region in regions:
            result = region.drawn(result)
        return result

    def _draw(self, method: str, args: Sequence[Any], kwargs: dict[str, Any], strong: bool) -> Any:
        world = self._world
        builder: TraceBuilder = world.builder
        if are_wanted(world):
            options = {k: self._argument(method, x) for k, x in kwargs.items()}
            return self._stream().draw(method, [self._argument(method, x) for x in args], options, strong)
        before_output(lambda: require(builder))
        options = {k: self._argument(method, x) for k, x in kwargs.items()}
        draw_call = DrawCall(self._number, method, tuple([self._argument(method, x) for x in args]), options, strong)
        if CURRENT.call is not None and id(self._real) not in world.created_generators:
            _noted(CURRENT.call, self._real)
        result = draw_call.done(self._real, lambda x: _shown(builder, x))
        world.draws.draw_calls.append(draw_call)
        if result is None:
            return None
        source = Drawn(world.draws, len(world.draws.draw_calls) - 1)
        if isinstance(result, np.ndarray):
            return world.builder.capture(result, source).value._alias().zero_d()
        return world.builder.capture_number(result, source)

    def _stream(self) -> Stream:
        """The state, an input from its first use on."""
        world, number = self._world, self._number
        result: Stream | None = world.draws.streams.get(number)
        if result is None:
            builder, draws = world.builder, world.draws
            others = [draws.reals[k] for k in draws.streams]
            if not is_stream(self._real) or not have_disjoint_state([*others, self._real]):
                raise builder.restarts(TraceFact.NO_STREAMS, "a state of a generator of random numbers is not known")
            if CURRENT.call is not None:
                CURRENT.call.drawn = CURRENT.call.drawn or CallDraws()
                CURRENT.call.drawn.generators = draws.reals
            draws.draw_calls.append(Beginning(number))
            draw_number, now = len(draws.draw_calls) - 1, read_state(self._real)
            if CURRENT.call is not None:
                CURRENT.call.drawn.results = [*CURRENT.call.drawn.results[:draw_number], now]
            state = builder.capture(now, Drawn(draws, draw_number)).value
            result = draws.streams[number] = Stream(builder, self._real, state, draw_number)
        return result

    def _argument(self, method: str, x: Any) -> Any:
        if isinstance(x, tuple | list):
            if any(isinstance(each, GraphValue) and each.aval.dtype.kind == "f" for each in x):
                return self._argument(method, from_sequence(x, self._world.builder))
            sizes = [_size(each) if isinstance(each, GraphValue) else each for each in x]
            return tuple(sizes) if isinstance(x, tuple) else sizes
        if not isinstance(x, GraphValue):
            return x
        builder = self._world.builder
        x = builder.lift(x)
        if method not in _DISCRETE and builder.has_derivative(x.node):
            raise UnsupportedError(
                located(
                    f"{method} has no derivative with respect to this argument; draw standard random numbers and "
                    "transform them, or take the derivative of the logarithm of its density"
                )
            )
        return x if are_wanted(self._world) else self._world.draws.needs(builder, x.node)


def _size(x: Any) -> int:
    return operator.index(x)


def _shown(builder: TraceBuilder, x: float | None) -> object:
    if not isinstance(x, Needed):
        return x
    result = builder.compute(x.node)
    return result.item() if not result.ndim else result
