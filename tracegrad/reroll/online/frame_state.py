"""Capture and compare abstract frame states at loop heads (`FrameState`).

A state is taken at a conditional jump, where the frame's stack holds only the condition. The same frame may reach this
jump again in an equal state, in which only values of tracers differ. The same value of the condition then leads along
the same path again: a loop. The state consists of the local and closure variables of the frame, everything reachable
from them, and the writes to outside objects. A frame with a value that is not understood (an iterator, a generator, a
Tensor, a view at a computed position) has no state.
"""

from __future__ import annotations

import types
from collections import deque
from functools import partial
from operator import setitem
from typing import Any

import numpy as np

from tracegrad.avals import is_huge
from tracegrad.cpython.references import other_references
from tracegrad.ir.builder import node_of
from tracegrad.ops.core.memory_order import is_row_major
from tracegrad.ops.shape.linear import fresh, full
from tracegrad.trace.builder.builder import TraceBuilder
from tracegrad.trace.builder.facts import VariableFact, Variation
from tracegrad.trace.builder.inlinable import DERIVED, Inlinable
from tracegrad.trace.bytecode.frame_locals import set_variables, variables
from tracegrad.trace.effects.result_template import ConstantTemplate
from tracegrad.trace.loops.appended_list import History, enter_loop, lengths
from tracegrad.trace.loops.control_flow import LoopJump
from tracegrad.trace.loops.indexed_list import StackedList
from tracegrad.trace.loops.separate_views import Ends, has_views, separate_views
from tracegrad.trace.loops.varying_scalars import trace_scalars
from tracegrad.trace.proxies import function_proxies
from tracegrad.trace.random.draws import GeneratorProxy
from tracegrad.trace.sources.code_origin import is_user_class
from tracegrad.trace.sources.signature import exact
from tracegrad.trace.values.container_proxies import Shadowed, real_of
from tracegrad.trace.values.float_or_scalar import Either, is_float, of_a_loop
from tracegrad.trace.values.number import Number
from tracegrad.trace.values.python_arithmetic import bounds
from tracegrad.trace.values.tracer import Tracer

# Largest constant array, in bytes, that is compared by its elements.
_MAX_CONSTANT_BYTES = 1 << 20
# Kinds of effects that assign one attribute or one item.
_ASSIGNMENTS = frozenset({"field", "attribute", "item"})
_OF_NUMPY = (Tracer, Either)


class _Unsupported(Exception):
    """A value that is not understood, with its description if there is one."""


class FrameState:
    """Abstract frame state. `tokens` are equal for states that differ only in the values of tracers. It also holds the
    tracers, their nodes and integer bounds, and the words that are numbers: in local variables (by name) or elsewhere
    (with a function that replaces the value)."""

    def __init__(self, builder: TraceBuilder, jump: LoopJump):
        self.builder, self.jump = builder, jump
        self.tokens: list[Any] = []
        self.names: dict[int, tuple[str, Any]] = {}  # local variables, by the index of their first word
        self.tracers: list[Tracer] = []
        self.numbers: dict[int, tuple[Any, Any]] = {}
        self.floats: dict[int, tuple[str, Any]] = {}  # floats of any kind in local variables
        self.integers: dict[int, tuple[str, tuple[int, int]]] = {}  # constant or traced integers, with bounds
        self.flags: dict[int, tuple[str, Any]] = {}  # booleans in local variables
        self._eithers: list[Either] = []
        self._pinned: list[Any] = []  # objects whose id is in a word
        self._known: dict[int, tuple[int, Any]] = {}
        self._alike: dict[Any, int] = {}
        held = variables(jump.frame)
        self.lengths = lengths(held)
        for name, x in sorted(held.items()):
            if name in jump.dead:
                continue
            self.names[len(self.tokens)] = name, x
            self.tokens.append(name)
            try:
                self._add(x, name)
            except _Unsupported:
                raise _Unsupported(f"{name}, of type {type(x).__name__}, is not understood") from None
        for counter in jump.counters:
            self.tokens.append(counter.step)
            self._add(counter.stop)
            self._add(counter.at, partial(setattr, counter, "at"))
            for x in counter.held:
                self._add(x)
        self.drawn = builder.world.drawn
        self.tokens.append(self.drawn)  # a draw changes it, so states are equal only if generator states are values
        self._add(builder.world.states)
        writes = builder.world.writes
        effects = [*writes.arrays(ConstantTemplate), *writes.effects(ConstantTemplate)]
        putters = writes.putters() if any(e.kind in _ASSIGNMENTS for e in effects) else {}
        for effect in effects:
            self.tokens.append((effect.kind, effect.holder.key, repr(effect.key)))
            if isinstance(effect.template, ConstantTemplate):
                target = putters.get((effect.holder.key, effect.key)) if effect.kind in _ASSIGNMENTS else None
                self._add(effect.template.value, target)
            else:
                for x in effect.template.children:
                    self._add(x.value if isinstance(x, ConstantTemplate) else x)
        self.size = len(self.tokens)
        for either in self._eithers:
            self._tracer(either.python)
        self.record_values()
        self.ends = Ends(self.separated)
        del self._known, self._alike, self._eithers

    def record_values(self) -> None:
        """Record the present values of the tracers."""
        self.nodes = [x.node for x in self.tracers]
        self.objects = {id(x): x.node for x in self.tracers}
        self.numbered = list(map(id, self.tracers))
        known = [self.builder.loops.separated.get(x) for x in self.numbered]
        self.separated = {k: x for k, x in enumerate(known) if x is not None and x.views}
        self.asks = [x.layout_inputs for x in self.tracers]
        self.bounds = [bounds(x) if x.dtype.kind == "i" and x.weak else None for x in self.tracers]

    def follows(self, before: FrameState) -> bool:
        """Whether the state equals `before`, except for the values of tracers, and depends on no further input
        layouts."""
        return self.tokens == before.tokens and not any(now & ~then for now, then in zip(self.asks, before.asks))

    def is_within(self, before: FrameState) -> bool:
        """Whether the state follows `before`, with integers inside its bounds."""
        limits = [(x, y) for x, y in zip(self.bounds, before.bounds) if x is not None and y is not None]
        return self.follows(before) and all(y[0] <= x[0] and x[1] <= y[1] for x, y in limits)

    def fact(self, kind: Variation, variable: str, low: int = 0, high: int = 0) -> VariableFact:
        """The fact that a local variable varies between iterations here."""
        return VariableFact(kind, *self.jump.instruction, variable, low, high)

    def exchange(self, numbers: list[int]) -> None:
        """Store the numbers of these words back to their origins."""
        new = {}
        for k in numbers:
            target, x = self.numbers[k]
            if type(target) is str:
                new[target] = x
            else:
                target(x)
        if new:
            set_variables(self.jump.frame, new)

    def forget(self) -> None:
        """Release references to local values."""
        self.names = {}
        self.tracers, self.numbers = [], {k: (None, x) for k, (_, x) in self.numbers.items()}
        self.floats = {k: (name, type(x)) for k, (name, x) in self.floats.items()}
        self.flags = {k: (name, None) for k, (name, _) in self.flags.items()}

    def _add(self, x: Any, target: Any = None) -> None:
        cls = type(x)
        if target is not None and cls in (int, float) and not is_huge(x):
            self.numbers[len(self.tokens)] = target, x
        if type(target) is str and is_float(x):
            self.floats[len(self.tokens)] = target, x
        elif type(target) is str and not is_huge(x) and (cls is int or (cls is Number and x.dtype.kind == "i")):
            self.integers[len(self.tokens)] = target, bounds(x)
        elif type(target) is str and (cls is bool or (cls is Number and x.dtype.kind == "b")):
            self.flags[len(self.tokens)] = target, x
        if isinstance(x, function_proxies.VALUES) and not isinstance(x, Tracer) and cls is not slice:
            self.tokens.append(exact(x))
            return
        again = self._known.get(id(x))
        if again is not None:
            self.tokens.append(("again", again[0]))
            return
        self._known[id(x)] = len(self.tokens), x
        if isinstance(x, Tracer):
            self._tracer(x)
        elif real_of(x) is not x or issubclass(cls, Shadowed) or isinstance(x, np.ufunc | types.ModuleType):
            self.tokens.append(("is", id(x)))  # its updates are effects
            self._pinned.append(x)
        elif cls is types.FunctionType:
            self._function(x)
        else:
            self._add_components(cls, x)

    def _tracer(self, x: Any) -> None:
        _detach_view(x.join())
        plain = x.stand_in is None or (is_row_major(x.stand_in) and x.stand_in.flags.writeable)
        if x.builder is not self.builder or not plain:
            raise _Unsupported
        if isinstance(x, Either):
            self._eithers.append(x)
        alike = self._alike.setdefault(x.node, len(self.tokens))
        self.tokens.append((type(x), x.aval, x.frozen, x.is_array and not x.shape, x.outside, alike))
        self.tracers.append(x)
        if x.origin is not None or has_views(x):
            self._relatives(x)

    def _relatives(self, x: Any) -> None:
        """Arrays that share memory with an array. All are loop-carried values, because an update changes each, and they
        stay views of one another if the state holds the same objects."""
        if x.origin is not None:
            if not x.origin.shared or x.origin.layout_inputs or x.origin.view_update is None or x.origin.starts:
                raise _Unsupported
            self.tokens.append(("of", id(x.origin)))
            self._pinned.append(x.origin)
            self._add(x.origin.base)
        for view in [r() for r in x.views]:
            if view is not None and id(view) not in self.builder.loops.separated:
                self._add(view)

    def _function(self, f: Any) -> None:
        self.tokens.append((f.__code__, id(f.__globals__)))
        for component in (f.__defaults__, f.__kwdefaults__, {k: x for k, x in f.__dict__.items() if k != DERIVED}):
            self._add(component)
        for cell in f.__closure__ or ():
            held = function_proxies.contents(cell)
            self.tokens.append(held is function_proxies.EMPTY)
            if held is not function_proxies.EMPTY:
                self._add(held, partial(setattr, cell, "cell_contents"))

    def _add_components(self, cls: Any, x: Any) -> None:
        """The parts of a container or an object that traced code has created."""
        is_user_object = is_user_class(cls) and not any(vars(c).get("__slots__") for c in cls.__mro__)
        items: Any = enumerate(x) if cls in (list, deque) else x.items() if cls is dict else None
        if cls in (list, deque, dict):
            components = [len(x), getattr(x, "maxlen", None)]
        elif isinstance(x, tuple):
            components = [*x, *vars(x).values()] if hasattr(x, "__dict__") else list(x)
        elif cls in _COMPONENTS:
            components = _COMPONENTS[cls](x)
        elif isinstance(x, Inlinable) and isinstance(getattr(x, "fun", None), types.FunctionType):
            self._pinned.append(x)
            components = [id(x), x.fun]  # type: ignore[attr-defined]
        elif is_user_object and not isinstance(x, Inlinable):
            components, items, x = [len(vars(x))], vars(x).items(), vars(x)
        else:
            raise _Unsupported
        self.tokens.append((cls, len(components)))
        for component in components:
            self._add(component)
        for key, component in items or ():
            if cls not in (list, deque):
                self._add(key)
            self._add(component, partial(setitem, x, key))


def _of_array(x: Any) -> list[Any]:
    if x.dtype.kind not in "biufc" or x.nbytes > _MAX_CONSTANT_BYTES:
        raise _Unsupported
    return [str(x.dtype), x.shape, x.tobytes()]


_COMPONENTS: dict[Any, Any] = {
    GeneratorProxy: lambda x: [x.number],
    History: lambda x: x.state,
    StackedList: lambda x: x.state,
    slice: lambda x: [x.start, x.stop, x.step],
    np.ndarray: _of_array,
    partial: lambda x: [x.func, x.args, x.keywords],
    types.MethodType: lambda x: [x.__self__, x.__func__],
    types.BuiltinFunctionType: lambda x: [x.__name__, None if isinstance(x.__self__, types.ModuleType) else x.__self__],
}


def capture_state(builder: TraceBuilder, jump: LoopJump, enters: bool = False) -> FrameState | None:
    """The state at a jump, possibly a loop entry; None if it is not understood."""
    try:
        enter_loop(builder, jump)
        trace_scalars(builder, jump, known_variations(builder, jump, Variation.SCALAR))
        separate_views(builder, jump, known_variations(builder, jump, Variation.SEPARATE) if enters else {})
        return _with_kinds(builder, jump, FrameState(builder, jump))
    except _Unsupported as error:
        builder.loops.not_closed = str(error) or "something outside that it has changed is not understood"
        return None


def _detach_view(x: Any) -> None:
    """Make a view an independent array if nothing else holds its base, such as the reshaped product of
    matrices."""
    base = x.origin.base if x.origin is not None and x.origin.shared and not x.origin.layout_inputs else None
    if base is None or base.origin is not None or base.outside or other_references(base) != 1:  # that of the origin
        return
    others = [view for r in base.views if (view := r()) is not None and view is not x]
    if not others and is_row_major(x._layout()):
        x.origin = None


def difference(before: FrameState, now: FrameState) -> str:
    """Describe the difference between the two states, for messages."""
    # Numbers may differ, because widening makes them values of the loop.
    other = [
        k
        for k, (x, y) in enumerate(zip(before.tokens, now.tokens))
        if x != y and not (k in before.numbers and k in now.numbers)
    ]
    k = other[0] if other else min(len(before.tokens), len(now.tokens)) - 1
    results = [(at, name, x) for at, (name, x) in now.names.items() if at <= k]
    if not results:
        return "something outside is not the same in each iteration"
    at, name, x = results[-1]
    grows = type(x) in (list, dict, deque) and k == at + 2  # words: name, class, length
    return f"the {type(x).__name__} {name} grows" if grows else f"{name} is not the same in each iteration"


# -- local variables ---------------------------------------------------------------------------------------------
def drop_dead_views(jump: LoopJump) -> None:
    """Drop views in dead local variables, so that their bases can be understood."""
    held = variables(jump.frame)
    dead_names = [name for name in jump.dead if _has_view(held.get(name))]
    if dead_names:
        set_variables(jump.frame, dict.fromkeys(dead_names))


def _has_view(x: Any) -> bool:
    if type(x) is tuple:
        return all(isinstance(each, Tracer) for each in x) and any(map(_has_view, x))
    return isinstance(x, Tracer) and x.origin is not None


def _with_kinds(builder: TraceBuilder, jump: LoopJump, now: FrameState) -> FrameState:
    """The state with floats of either kind and traced booleans, for variables that differed at this jump before."""
    known = known_variations(builder, jump, Variation.KIND, anywhere=True)
    new = {
        name: of_a_loop(x, builder) for name, x in now.floats.values() if name in known and not isinstance(x, Either)
    }
    if not builder.world.booleans:
        new |= {name: _boolean(x, builder) for name, x in now.flags.values() if name in known and type(x) is bool}
    if not new:
        return now
    set_variables(jump.frame, new)
    return FrameState(builder, jump)


def _boolean(x: bool, builder: TraceBuilder) -> Any:
    return builder.python_number(node_of(fresh(full(shape=(), value=x, dtype="bool"), tag=builder.new_tag())))


def known_variations(
    builder: TraceBuilder, jump: LoopJump, kind: Variation, anywhere: bool = False
) -> dict[str, list[VariableFact]]:
    """The facts that local variables vary in this way at a jump, or anywhere in the code, by variable."""
    table: dict[str, list[VariableFact]] = {}
    code, number = jump.instruction
    for x in builder.world.facts:
        if isinstance(x, VariableFact) and x.kind is kind and x.code == code and (anywhere or x.instruction == number):
            table.setdefault(x.variable, []).append(x)
    return table
