"""Track the outside state that traced code reads, and guard it.

Traced code runs as *shadows* (`tracegrad.trace.proxies.function_proxies`): every global variable, closure variable,
attribute and item that it reads goes through `World.translate`, which handles it by kind (`object_kinds.py`) and
records its *source*. State that functions and objects may read outside of shadows is guarded at the end
(`untraced_reads.py`). An array is read from its source again at each call, so in-place updates and rebinding to an
array of the same dtype and shape are seen. A float that has changed once becomes an input, so that a decaying learning
rate does not compile a program for each value.

A trace sees all reads of Python user code through names, attributes and items, at any depth, in called functions and
installed packages too, and also reads that find nothing. It does not see reads by functions of NumPy, SciPy and C code;
all attributes of an object whose methods they call are guarded. An array from an unseen read is captured by identity
when an operation combines it with a traced value. Values that cannot be read again (clocks, iterators, buffers) are
refused. Random numbers are drawn at each call (`tracegrad.trace.random.draws`).

Traced code does not change the world during tracing. Its writes are logged (`write_log.py`) and become effects, which
every call repeats. A number that a function writes is an input from the second trace on.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracegrad import tree
from tracegrad.avals import is_plain_array
from tracegrad.errors import WARNED, TraceError, UnsupportedError, located
from tracegrad.ir import GraphValue
from tracegrad.numpy_api.protocols import not_plain
from tracegrad.ops import Carrier, DispatchLevel, TensorCarrier
from tracegrad.trace.builder.abort import RunsPlainly
from tracegrad.trace.builder.builder import TraceBuilder
from tracegrad.trace.builder.element_identity import guard_distinct
from tracegrad.trace.builder.facts import Fact, NumberFact, TraceFact
from tracegrad.trace.builder.inlinable import Inlinable
from tracegrad.trace.builder.value_guards import Capture
from tracegrad.trace.effects.argument_containers import Containers
from tracegrad.trace.effects.effects import lookup_key
from tracegrad.trace.effects.result_template import ConstantTemplate
from tracegrad.trace.proxies import function_metadata, function_proxies
from tracegrad.trace.random.draws import Drawn, GeneratorProxy, is_generator
from tracegrad.trace.random.methods import generator_of
from tracegrad.trace.sources.code_origin import is_of_numba, is_user_function
from tracegrad.trace.sources.sources import (
    ArgumentLeaf,
    Attribute,
    CalledFunction,
    Fixed,
    Item,
    Source,
    Static,
    Weak,
)
from tracegrad.trace.values.container_proxies import PROXIED_CLASSES, ProxyState, read
from tracegrad.trace.world.guards import Assumptions, SourceGuard, all_of, is_number, keys_of
from tracegrad.trace.world.object_kinds import OBJECT_KINDS, OTHER, VALUE_KINDS, stand_in
from tracegrad.trace.world.untraced_reads import Natives
from tracegrad.trace.world.view_bases import Views
from tracegrad.trace.world.write_log import Writes

# The size limit of an array of objects, each of which is guarded.
MAX_OBJECTS = 1000


def _is_rate(value: object, source: Source) -> bool:
    """Whether this is a learning rate of an optimizer's parameter group, or one of its `betas`; schedules change them,
    so they are inputs from the first trace on."""
    if type(value) is not float or type(source) is not Item or type(source.parent) is not Item:
        return False
    item = source.parent if source.parent.name == "betas" else source
    group = item.parent
    return item.name in ("lr", "betas") and isinstance(group, Item) and group.parent.name == "param_groups"


class World(Assumptions):
    """Reads of one trace from outside; `inline` and `adopt` make the shadows it runs."""

    def __init__(self, builder: TraceBuilder, facts: set[Fact] | None = None, shared: object = None):
        super().__init__()
        facts = set() if facts is None else facts
        self.builder, self.facts, self.once = builder, facts, TraceFact.STEPS in facts
        self.shared = shared  # the function, if other functions of equal code may use the trace
        self.by_identity = False
        self._one, self._whole = TraceFact.ARRAYS in facts, False
        self.adds_to_sets: bool | None = False  # whether code only adds to sets; None if some code uses them otherwise
        self._compares = False
        self._warned = WARNED.count
        self._partials: list[Any] = []  # partial functions made for traced code
        self._of_objects: list[tuple[Source, Any, Any]] = []  # arrays of objects: stand-in, and its copy
        self._is_duplicated = False  # whether traced code has several traced values for one array
        self._passed: dict[int, tuple[Any, Any, Source]] = {}
        self._views = Views(self)
        self.containers = Containers(self)
        self._sources: dict[int, Source] = {}
        self._structural: list[tuple[Source, Any]] = []
        self.open = True
        self._guards: dict[Any, SourceGuard] = {}
        self._translations: dict[int, tuple[Any, Any]] = {}
        self.writes = Writes()
        self.booleans = TraceFact.BOOLEANS in facts
        self.gave_booleans = False
        self.generators: dict[int, Any] = {}  # outside random generators and their stand-ins, by id
        self.created_generators: dict[int, Any] = {}  # random generators that traced code has made, by id
        self.natives = Natives(self)

    # -- entry points ------------------------------------------------------------------------------
    def inline(self, fun: object) -> Callable[..., Any]:
        """The callable to run instead of `fun` inside this trace."""
        if isinstance(fun, Inlinable):
            inlined: Callable[..., Any] = fun.inlined(self)
            return inlined
        called: Callable[..., Any] = self.adopt(fun)
        return called

    def adopt(self, x: object) -> Any:
        """The stand-in of `x`, a function or object passed in without a source."""
        if issubclass(type(x), function_proxies.VALUES):
            self.natives.note_passed(x)
        if isinstance(x, (Carrier, np.ndarray, *function_proxies.VALUES)):
            return x
        if type(x) is GeneratorProxy or any([x is result for result in self._partials]):  # noqa: C419
            return x
        if is_generator(x):
            return generator_of(self, x, Fixed(x, "a random generator"))
        self.natives.note_all(x)
        leaves = tree.leaves(x) if tree.is_node(x) else ()
        if any([is_generator(leaf) and type(leaf) is not GeneratorProxy for leaf in leaves]):  # noqa: C419
            return tree.map(lambda leaf: self.adopt(leaf) if is_generator(leaf) else leaf, x)
        if any([isinstance(leaf, Carrier) for leaf in leaves]):  # noqa: C419
            return x
        function = isinstance(x, types.FunctionType | types.MethodType | functools.partial) or is_of_numba(x)
        if function or function_proxies.is_user_object(x):
            name = getattr(x, "__name__", type(x).__name__)
            source = CalledFunction(None, name) if x is self.shared else Fixed(x, name)
            return self.translate(x, source, guard=False)
        return x

    # -- reading -----------------------------------------------------------------------------------
    def translate(self, value: object, source: Source, guard: bool = True) -> Any:
        """The value for traced code that reads `value` from `source`."""
        result = stand_in(VALUE_KINDS, self, value, source)
        if result is not OTHER:
            return result
        if id(value) in self.containers.known:
            return self.containers.handed(value, source)
        known = self._translations.get(id(value))
        self._sources.setdefault(id(value), source)
        collection = isinstance(value, function_proxies.COLLECTIONS) and not tree.is_node(value)
        copied = tree.is_node(value) and not function_proxies.is_user_object(value)
        if guard:
            self._guard_object(value, source, known is not None)
        if isinstance(value, type):
            self.natives.note(value)
        else:
            self.natives.note(type(value), methods=copied or collection)
        if known is None:
            # Some kinds enter a stand-in before they fill it, because it may refer to itself.
            result = stand_in(OBJECT_KINDS, self, value, source)
            known = self._translations[id(value)] = (value, result)
            if self._whole or (type(value) is set and not self.adds_to_sets):
                read(result)
        return known[1]

    def generator_in(self, holder: object, name: str) -> object:
        """The proxy of a random generator that an outside object has as an attribute."""
        return generator_of(self, getattr(holder, name), Attribute(Fixed(holder, type(holder).__name__), name))

    def number_or_value(self, value: Any, source: Source) -> Any:
        """What traced code receives for an immutable value: usually the value itself."""
        planted = self.writes.planted(source)
        varies = is_number(value) and (
            (bool(self.facts) and NumberFact(source.key) in self.facts) or _is_rate(value, source)
        )
        if planted is None and varies:
            return self.builder.capture_number(value, source)
        if planted is None:
            self._value(value, source)
        elif isinstance(source, Static):
            self.inherits(source.parent, planted)
        return value

    def held(self) -> list[SourceGuard]:
        """The guards on all reads so far."""
        return [g for g in self._guards.values() if g.holds()]

    def numbers_read(self) -> set[float]:
        """The floats read from outside that are constants of the trace."""
        return {g.expected for g in self.guards_on_floats()} | self.natives.numbers

    def guards_on_floats(self) -> list[SourceGuard]:
        """The guards on the values of floats."""
        return [g for g in self._guards.values() if g.is_of_number and isinstance(g.expected, float)]

    def inherits(self, cls: type, source: Source) -> None:
        """Guard that a class does not override the attribute of a base class at this source."""
        for each in cls.__mro__[: cls.__mro__.index(source.parent)]:
            self.assume(Item(Attribute(Fixed(each, each.__name__), "__dict__"), source.name), "absent", None)

    def _guard_object(self, value: object, source: Source, known: bool) -> None:
        if self.shared is not None and function_proxies.is_structural(value):
            # The trace is valid for another function or object of the class if all values read from it are the same.
            first = self._sources[id(value)]
            if first.key != source.key:
                self.assume(source, "same", first)
            elif not isinstance(value, types.FunctionType):
                self.assume(source, "type", type(value))
            self._structural.append((source, value))
        elif known or not tree.is_node(value):
            self.assume(source, "is", value)
        elif function_proxies.is_user_object(value):
            self.assume(source, "type", type(value))
        collection = isinstance(value, function_proxies.COLLECTIONS) and not tree.is_node(value)
        if collection and type(value) not in PROXIED_CLASSES:
            self.assume(source, "items", all_of(value))

    def _value(self, value: object, source: Source) -> None:
        self.assume(source, "equals", value)
        self.natives.note_value(value, source)
        if isinstance(value, frozenset):
            self._require_values(value, f"{source} holds")

    def _require_values(self, xs: Any, description: str) -> None:
        """Abort if a set or the keys of a dict contain user objects or functions."""
        if not self.once and any(function_proxies.is_user_object(x) or is_user_function(x) for x in xs):
            raise self.builder.abort(
                f"{description} objects or functions, into which a trace cannot see there; use a list of them"
            )

    def note_callable(self, result: object) -> object:
        """Note a partial function that was made for traced code, and return it."""
        self._partials.append(result)
        return result

    def enter(self, value: object, result: object) -> Any:
        """Record `result` as the stand-in of `value`."""
        self._translations[id(value)] = (value, result)
        return result

    def assume(self, source: Source, kind: str, expected: object) -> None:
        self._guards.setdefault((source.key, kind), SourceGuard(source, kind, expected))

    def passed(self, x: object, number: int, result: object) -> Any:
        """The value for traced code of argument leaf `number`, `x`, whose translation is `result`."""
        if not isinstance(x, np.ndarray):
            return result
        source = ArgumentLeaf(None, number)
        known = self._passed.setdefault(id(x), (x, result, source))
        if known[1] is result or not self._one:
            self._is_duplicated = self._is_duplicated or known[1] is not result
            return result
        self.assume(source, "same", known[2])
        return known[1]

    def note_identity(self) -> None:
        """Note that traced code reads which objects are identical."""
        if self._is_duplicated:
            raise self.builder.restarts(TraceFact.ARRAYS, "arrays are compared by identity")
        self.by_identity = True

    def compares(self, always: bool = False) -> None:
        """Note a comparison of two objects by identity or memory, or, with `always`, any future one: objects must then
        keep their identity as in Python."""
        self._compares = self._compares or always
        if self.builder.loops.elements.used and TraceFact.LISTS not in self.facts:
            raise self.builder.restarts(TraceFact.LISTS, "elements of lists are compared by identity")

    @property
    def must_keep_lists(self) -> bool:
        """Whether lists must not become arrays, whose elements would be new objects."""
        return self._compares or TraceFact.LISTS in self.facts

    def read_whole(self) -> None:
        """Note that traced code may bypass container methods: all containers are read whole."""
        self._whole = True
        for proxy in self.writes.container_proxies:
            read(proxy)

    def note_boolean_identity(self) -> None:
        """Note that traced code compares booleans by identity, which traced booleans would break."""
        if not self.booleans and self.gave_booleans:
            raise self.builder.restarts(TraceFact.BOOLEANS, "truths are compared by identity")
        self.booleans = True

    def real_of(self, result: object) -> Any:
        """The object that `result` stands for."""
        return next((value for value, x in self._translations.values() if x is result), result)

    def saw(self, captures: Sequence[Capture]) -> None:
        """Note values that were only read and not used in computations: only their identity matters."""
        for c in captures:
            if isinstance(c.source, Drawn):
                continue
            if c.source is not None and c.number is not None:
                self.assume(c.source, "type", c.number)
            elif c.source is not None and type(c.array) is np.ndarray:
                self.assume(c.source, "aval", (c.array.dtype, c.array.shape))

    def array(self, value: Any, source: Source) -> Any:
        """What traced code receives for an array: usually a captured input."""
        if (passed := self._passed.get(id(value))) is not None and (self.by_identity or self._one):
            self.assume(source, "same", passed[2])
            return passed[1]
        self._is_duplicated = self._is_duplicated or passed is not None
        if not is_plain_array(value):
            raise self.builder.abort(f"{source} is {not_plain(value)}")
        if value.dtype.hasobject:
            return self._objects(value, source)
        self.natives.note_array(value, source)
        view = self._views.of(value, source)
        if view is not None:
            return view
        result = self.builder.capture(value, source)
        if result.source is source:
            self.writes.array(result.value, source)
        elif result.source.key != source.key:
            self.assume(source, "same", result.source)
        return result.value

    def _objects(self, value: Any, source: Source) -> Any:
        """An object array of the same shape with the translated elements."""
        if value.dtype != object:
            raise self.builder.abort(f"{source} is an array of records that hold objects")
        if value.size > MAX_OBJECTS:
            raise self.builder.abort(f"{source} is an array of more than {MAX_OBJECTS} objects")
        self.assume(source, "is", value)
        if id(value) not in self._translations:
            self.enter(value, np.empty(value.shape, object))
            result = self._translations[id(value)][1]
            for index in np.ndindex(value.shape):
                result[index] = self.translate(value[index], Item(source, index))
            self._of_objects.append((source, result, result.copy()))
        return self._translations[id(value)][1]

    def _require_as_they_were(self) -> None:
        """Abort if traced code has written into an array of objects."""
        for source, result, before in self._of_objects:
            if any([x is not y for x, y in zip(result.ravel(), before.ravel())]):  # noqa: C419
                raise RunsPlainly(f"{source} is an array of objects that is written into")

    def carrier(self, value: object, source: Source) -> Any:
        """What traced code receives for a Tensor or a traced value."""
        if isinstance(value, GraphValue) and getattr(value.builder, "world", None) is self:
            return value
        if isinstance(value, GraphValue):
            raise TraceError(located(f"{source} holds a traced value that escaped from another trace"))
        if isinstance(value, TensorCarrier):
            if value.level is DispatchLevel.TRACED_TENSOR:
                return value
            return self.builder.tensors.captured(value, source)
        raise UnsupportedError(
            located(f"{source} is a {type(value).__name__}; pass it to the traced function as an argument")
        )

    def method(self, real: types.FunctionType) -> Callable[..., Any]:
        """The function that runs for a method of a class that traced code receives unchanged."""
        if not self.open or self.natives.is_suspect(real):
            return real
        result: Callable[..., Any] = self.adopt(real)
        return lambda *args, **kwargs: result(*[self.natives.descriptor(x) for x in args[:1]], *args[1:], **kwargs)

    def items_of(self, state: ProxyState) -> list[tuple[Any, Any]]:
        """All keys (or positions) and translated items of a container proxy; records guards."""
        real, source = state.real, state.source
        if self.open and isinstance(real, dict | set):
            self._require_values(real, f"the keys of {source} are" if isinstance(real, dict) else f"{source} holds")
        if not self.open or isinstance(real, set):
            if self.open:
                self.assume(source, "items", all_of(real))
            return [*enumerate(real)]
        self.assume(source, "keys", keys_of(real))
        items = list(real.items() if isinstance(real, dict) else enumerate(real))
        return [(k, self.translate(x, Item(source, k))) for k, x in items]

    def item_of(self, state: ProxyState, key: object) -> Any:
        """The translated item of a dict proxy with this key."""
        result = state.real[key]
        return self.translate(result, Item(state.source, lookup_key(key))) if self.open else result

    def lacks(self, state: ProxyState, key: object) -> None:
        """Guard that a dict proxy has no such key."""
        if self.open:
            self.assume(Item(state.source, lookup_key(key)), "absent", None)

    # -- the end -----------------------------------------------------------------------------------
    @property
    def changed(self) -> list[Any]:
        """The effects on outside objects so far, without their values."""
        nothing, writes = ConstantTemplate(None), self.writes
        results = [x for of in (self.moved, writes.arrays, writes.effects) for x in of(lambda _: nothing)]
        if self.builder.has_tensors:
            results += self.builder.tensors.effects(lambda _: nothing, lambda *_: nothing)
        return results

    def is_fixed(self, source: Source) -> bool:
        """Whether a source leads to the same object at each call."""
        return isinstance(source, Fixed | Weak) or (source.key, "is") in self._guards

    def close(self) -> None:
        """End the trace: restore classes, and guard reads of untraced code."""
        self.facts, self.once = set(), False
        self.writes.restore()
        self.natives.restore()
        if self.by_identity:
            guard_distinct(self)
        for source, value in self._structural if self.by_identity or self.reads_functions else ():
            self.assume(source, "is", value)
        function_metadata.guard(self, [value for value, _ in self._translations.values()])
        try:
            self._require_as_they_were()
            self.containers.require_one()
            self.natives.guard(result for _, result in self._translations.values())
        except RunsPlainly as late:
            self.late = late
        finally:
            self.natives.restore()  # for the classes that `guard` has noted
        self.open = False
        self.guards = [g for g in self._guards.values() if g.holds()]
        for each in (
            self._guards,
            self._translations,
            self._sources,
            self._structural,
            self._partials,
            self._of_objects,
        ):
            each.clear()
        for saved in (self._passed, self._views, self.containers.known, self.generators, self.created_generators):
            saved.clear()
        self.shared = None
        self.writes = Writes()
        self.has_output = self.builder.output_at >= 0 or WARNED.count != self._warned
        self.builder.close()
