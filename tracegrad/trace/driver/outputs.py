"""Build the outputs of a trace: graph outputs, and templates of the result and of the effects.

Returned arrays share memory as in NumPy wherever that is visible: overlapping and read-only arrays are built as views
of one output.
"""

from __future__ import annotations

import functools
import itertools
import types
from collections.abc import Collection, Coroutine, Iterator, Sequence
from typing import Any

import numpy as np

from tracegrad.errors import OVERLAPPING, TraceError, UnsupportedError, located
from tracegrad.ir import Value
from tracegrad.ops import Level, TapeCarrier
from tracegrad.ops.shape.linear import full, inverse_permutation
from tracegrad.trace.builder.builder import TraceBuilder
from tracegrad.trace.builder.layout import axes_of
from tracegrad.trace.effects import result_template
from tracegrad.trace.effects.effects import Effect, contents, plain_key
from tracegrad.trace.effects.result_template import (
    Call,
    Closure,
    EitherOutput,
    Found,
    Instance,
    Once,
    Output,
    Piece,
    Same,
    TensorOutput,
    View,
    attributes,
)
from tracegrad.trace.proxies.function_proxies import VALUES, Globals, is_user_object
from tracegrad.trace.random.draws import Traced
from tracegrad.trace.random.rejected_reads import InPlace
from tracegrad.trace.sources.consumed_iterators import Taken
from tracegrad.trace.values.float_or_scalar import Either
from tracegrad.trace.values.tracer import Tracer
from tracegrad.trace.world.world import World
from tracegrad.tree.registry import kind_of

__all__ = ["Outputs", "partial"]

# The number of pairs of escaping arrays that are compared; further pairs count as overlapping.
_MOST_PAIRS = 1000
_KINDS = {"f": float, "i": int, "b": bool, "c": complex}


class Outputs:
    """The outputs of the graph under construction, and templates of values that need them."""

    def __init__(self, builder: TraceBuilder, world: World, bases: Collection[int] = ()):
        self.builder, self.world = builder, world
        self._bases = bases  # the ids of the arrays that are outputs for their views
        self._left: dict[int, list[Tracer]] = {}  # escaping arrays, by the id of the base whose memory they share
        self.nodes: list[Any] = []
        self.roots: list[Any] = []
        self._positions: dict[int, Output] = {}
        self._values: list[Any] = []
        self._inside: set[int] = set()
        self._first: dict[int, Once] = {}
        self.tensors = False  # whether the outputs contain Tensors

    def of_call(self, result: Any) -> tuple[Piece, list[Effect]]:
        """The template of the result, and the effects."""
        answer, writes = self.template(result), self.world.writes
        done = [*self.world.moved(self.output), *writes.arrays(self.output)]
        if self.builder.has_tensors:
            done += self.builder.tensors.effects(self.template, self.tensor)
        return answer, [*done, *writes.effects(self.template)]

    def output(self, x: Any) -> Piece:
        """The template of a traced value, or of an array that was made while tracing."""
        result = self._positions.get(id(x))
        if result is None:
            kind: Any = _KINDS[x.dtype.kind] if isinstance(x, Tracer) and x.weak else None
            if not x.shape and kind is None and not getattr(x, "_immutable_scalars", False):
                kind = np.asarray  # programs return scalars
            result = self._positions[id(x)] = Output(len(self.nodes), kind)
            self._values.append(x)
            self.nodes.append(self.builder.lift(x).node)
        return result

    @property
    def handed(self) -> list[Any]:
        """The arrays and objects that escape the trace."""
        return [*self._values, *itertools.chain(*self._left.values())]

    def views(self) -> set[int]:
        """The ids of the arrays that must be whole outputs, because escaping parts of their memory overlap or are
        read-only."""
        return {i for i, result in self._left.items() if any(_is_read_only(x) for x in result) or _overlap(result)}

    def _array(self, x: Tracer) -> Piece:
        """The template of a traced array."""
        if isinstance(x, Either) and x.python.node.op is not full and x.dtype.kind == "f":
            self._values.append(x)
            self.nodes += [x.node, x.python.node]
            return EitherOutput(len(self.nodes) - 2, len(self.nodes) - 1)
        root = x.join()._root()
        if not (x.shape or x.is_array):
            return self.output(x)
        self._left.setdefault(id(root), []).append(x)
        if x.origin is not None:
            self.builder.memory.asked |= x.origin.asks
        view = None if root is x else self._view(x, root)
        return view or (self._laid(x) if len(x.shape) > 1 else self.output(x))

    def _view(self, x: Tracer, root: Tracer) -> Piece | None:
        """The template of a view of an outside array, or of an array that is an output for its views."""
        base = self.world.writes.piece_of(root)
        if base is None:
            if id(root) not in self._bases:
                return None
            base = self.template(root) if root.shape or root.is_array else self._as_array(root)
        (here,), (there,) = x._lying(x), root._lying(root)
        offset = here.__array_interface__["data"][0] - there.__array_interface__["data"][0]
        moves = [(self.output(place), step) for place, step in x.moves()]
        return View(base, (x.shape, x.dtype, offset, here.strides), here.flags.writeable, moves)

    def _as_array(self, x: Tracer) -> Piece:
        """The template of the array that NumPy makes of a number, as the base of views."""
        self.nodes.append(x.node)
        return Output(len(self.nodes) - 1, np.asarray)

    def _laid(self, x: Tracer) -> Piece:
        """The template of an array with NumPy's memory layout; programs return row-major arrays."""
        self.builder.memory.ordered |= x.asks
        order = None if x.stand_in is None else axes_of(x.stand_in)
        if order is None:
            return self.output(x)
        self.nodes.append(x.in_memory(order).node)
        return Output(len(self.nodes) - 1, None, inverse_permutation(order))

    def template(self, x: Any) -> Piece:
        """The template of any value."""
        if getattr(x, "level", None) is Level.SPAN:
            x = x.exact()
        if type(x) in (InPlace, Taken):
            return Same(x.real)
        several = type(x) is frozenset and any(isinstance(each, Tracer) for each in x)
        if isinstance(x, VALUES) and not several and not isinstance(x, Value):
            return Same(x)
        result = self.world.writes.piece_of(x)
        if result is not None:
            return result
        if isinstance(x, np.ndarray):
            return self.output(x)
        first = self._first.get(id(x))
        if first is not None:
            first.again = True
            return first
        if id(x) in self._inside:
            raise UnsupportedError(located(f"a {type(x).__name__} that holds itself leaves the traced function"))
        self._inside.add(id(x))
        try:
            output = self._made(x)
        finally:
            self._inside.remove(id(x))
        plain = isinstance(output, Output) and output.kind is output.axes is None
        if plain or isinstance(output, Same | Found) or type(x) is tuple:
            return output
        self._values.append(x)
        result = self._first[id(x)] = Once(output)
        return result

    def _made(self, x: Any) -> Piece:
        if isinstance(x, Tracer):
            return self._array(x)
        return self._tensor(x) if isinstance(x, TapeCarrier) else self._held(x)

    def _held(self, x: Any) -> Piece:
        if type(x) is Traced:
            return self._generator(x)
        if type(x) in (set, frozenset):
            return Call(type(x), [self.template([plain_key(each) for each in x])])
        if type(x) is dict:
            x = contents(x)
        kind = kind_of(type(x))
        if kind is not None:
            children, aux = kind.flatten(x)
            children = list(children)
            parts = {i: self.template(children[i]) for i in result_template.in_iteration(kind, aux, len(children))}
            return result_template.Node(kind, aux, [parts[i] for i in range(len(children))])
        if isinstance(x, types.FunctionType) and isinstance(x.__globals__, Globals):
            cells = tuple([c.cell_contents for c in x.__closure__ or ()])
            several: Any = (cells, x.__defaults__, x.__kwdefaults__, dict(x.__dict__))
            return Closure(x, x.__globals__.real, [self.template(part) for part in several])
        if isinstance(x, types.MethodType):
            return Call(types.MethodType, [self.template(x.__func__), self.template(x.__self__)])
        if isinstance(x, functools.partial):
            return Call(partial, [self.template(y) for y in (x.func, x.args, x.keywords)])
        if is_user_object(x):
            held = attributes(x)
            return Instance(type(x), tuple(held), [self.template(value) for value in held.values()])
        if _is_of_trace(x):
            make, parts = x.parts()
            return Call(make, [self.template(part) for part in parts])
        return Same(_constant(x))

    def _generator(self, x: Traced) -> Piece:
        if x.source is None:
            raise self.builder.gives_up("a random generator that traced code makes leaves the traced function")
        return Found(x.source)

    def _tensor(self, x: Any) -> Piece:
        if x.level is not Level.TRACED_TENSOR:
            x = self.builder.tensors.of(x)
        outside = self.builder.tensors.real_of(x)
        return self.tensor(x, x.requires_grad) if outside is None else Found(outside.source)

    def tensor(self, x: Any, derived: bool) -> Piece:
        """The template of a Tensor that each call makes, with or without a derivative."""
        root = -1
        if derived:
            root = len(self.roots)
            self.roots.append(x)
        self.tensors = True
        self.nodes.append(x.array.node)
        return TensorOutput(len(self.nodes) - 1, root)


def _is_read_only(x: Tracer) -> bool:
    return x.origin is not None and not x._place().flags.writeable


def _overlap(found: Sequence[Tracer]) -> bool:
    """Whether arrays in one block of memory share elements (a cheap, conservative test)."""
    if any(x.frozen is OVERLAPPING for x in found):
        return True
    if len(found) == 1:
        return False
    if any(x.moves() for x in found):
        return True
    pairs = itertools.combinations(found[0]._lying(*found), 2)
    return any(np.shares_memory(x, y) for x, y in itertools.islice(pairs, _MOST_PAIRS)) or next(pairs, None) is not None


def partial(func: Any, args: Any, keywords: Any) -> Any:
    """The partial function with these parts."""
    return functools.partial(func, *args, **keywords)


def _is_of_trace(x: Any) -> bool:
    """Whether this is a function of traced code, or one that tracegrad derived from it, such as a derivative or a
    rule."""
    if isinstance(x, types.FunctionType):
        return isinstance(x.__globals__, Globals)
    if isinstance(x, tuple | list | dict):
        return any(map(_is_of_trace, x.values() if isinstance(x, dict) else x))
    parts = x.parts() if getattr(type(x), "remembers", False) else None
    return parts is not None and any(map(_is_of_trace, parts[1]))


def _constant(x: Any) -> Any:
    """A leaf of the result that every call returns unchanged."""
    if isinstance(x, Iterator | Coroutine):
        what = f"a {type(x).__name__}, which can be read only once"
        raise TraceError(located(f"the result of a traced function holds {what}; return a list or a tuple"))
    return x
