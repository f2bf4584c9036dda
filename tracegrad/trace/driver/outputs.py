"""Build the outputs of a trace: graph outputs, and templates of the result and of the effects.

Returned arrays share memory as in NumPy wherever that is visible: overlapping and read-only arrays are built as views
of one output.
"""

from __future__ import annotations

import functools
import itertools
import types
from collections import Counter, deque
from collections.abc import Callable, Collection, Coroutine, Iterator, Sequence
from typing import Any

import numpy as np

from tracegrad.errors import OVERLAPPING, TraceError, UnsupportedError, located
from tracegrad.ir import GraphValue
from tracegrad.ops import DispatchLevel, TapeCarrier
from tracegrad.ops.shape.linear import full, inverse_permutation
from tracegrad.trace.builder.builder import TraceBuilder
from tracegrad.trace.builder.layout import axes_of
from tracegrad.trace.effects import result_template
from tracegrad.trace.effects.effects import Effect, contents, plain_key
from tracegrad.trace.effects.result_template import (
    CallTemplate,
    Closure,
    ConstantTemplate,
    EitherOutput,
    Instance,
    Output,
    ResultTemplate,
    SharedTemplate,
    SourceTemplate,
    TensorOutput,
    ViewTemplate,
    attributes,
)
from tracegrad.trace.proxies.function_proxies import VALUES, Globals, is_user_object
from tracegrad.trace.random.draws import GeneratorProxy
from tracegrad.trace.random.rejected_reads import ClassProxy
from tracegrad.trace.sources.consumed_iterators import IteratorProxy
from tracegrad.trace.values.float_or_scalar import Either
from tracegrad.trace.values.tracer import Tracer
from tracegrad.trace.world.world import World
from tracegrad.tree.registry import kind_of

# The number of pairs of escaping arrays that are compared; further pairs count as overlapping.
_MAX_PAIRS = 1000
# The arguments with which a call of the class makes a collection.
_ARGUMENTS: dict[type, Callable[[Any], Sequence[object]]] = {
    set: lambda x: [[plain_key(each) for each in x]],
    frozenset: lambda x: [[plain_key(each) for each in x]],
    deque: lambda x: [list(x), x.maxlen],
    Counter: lambda x: [dict(x)],
}
_KINDS = {"f": float, "i": int, "b": bool, "c": complex}


class Outputs:
    """The outputs of the graph under construction, and templates of values that need them."""

    def __init__(self, builder: TraceBuilder, world: World, bases: Collection[int] = ()):
        self.builder, self.world = builder, world
        self._bases = bases  # the ids of the arrays that are outputs for their views
        self._escaping: dict[int, list[Tracer]] = {}  # escaping arrays, by the id of the base whose memory they share
        self.nodes: list[Any] = []
        self.roots: list[Any] = []
        self._leaves: list[Any] = []  # new Tensors that require grad
        self._positions: dict[int, Output] = {}
        self._values: list[Any] = []
        self._inside: set[int] = set()
        self._first: dict[int, SharedTemplate] = {}
        self.tensors = False  # whether the outputs contain Tensors

    def of_call(self, result: object) -> tuple[ResultTemplate, list[Effect]]:
        """The template of the result, and the effects."""
        template, writes = self.template(result), self.world.writes
        done = [*self.world.moved(self.output), *writes.arrays(self.output)]
        if self.builder.has_tensors:
            done += self.builder.tensors.effects(self.template, self.tensor)
        done += writes.effects(self.template)
        nodes = {x._edge_of() for x in self._leaves}
        if nodes:
            from tracegrad.torch.tape.backward.functional import reachable_nodes

            if any(not nodes.isdisjoint(reachable_nodes(root)) for root in self.roots):
                raise self.builder.abort("a result of it depends on a Tensor that it makes, which requires grad")
        return template, done

    def output(self, x: Any) -> ResultTemplate:
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
        return [*self._values, *itertools.chain(*self._escaping.values())]

    def views(self) -> set[int]:
        """The ids of the arrays that must be whole outputs, because escaping parts of their memory overlap or are
        read-only."""
        return {i for i, result in self._escaping.items() if any(_is_read_only(x) for x in result) or _overlap(result)}

    def _array(self, x: Tracer) -> ResultTemplate:
        """The template of a traced array."""
        if isinstance(x, Either) and x.python.node.op is not full and x.dtype.kind == "f":
            self._values.append(x)
            self.nodes += [x.node, x.python.node]
            return EitherOutput(len(self.nodes) - 2, len(self.nodes) - 1)
        root = x.join()._root()
        if not (x.shape or x.is_array):
            return self.output(x)
        self._escaping.setdefault(id(root), []).append(x)
        if x.origin is not None:
            self.builder.memory.guarded |= x.origin.layout_inputs
        view = None if root is x else self._view(x, root)
        return view or (self._ordered(x) if len(x.shape) > 1 else self.output(x))

    def _view(self, x: Tracer, root: Tracer) -> ResultTemplate | None:
        """The template of a view of an outside array, or of an array that is an output for its views."""
        base = self.world.writes.template_of(root)
        if base is None:
            if id(root) not in self._bases:
                return None
            base = self.template(root) if root.shape or root.is_array else self._as_array(root)
        (layout,), (root_layout,) = x._visible_layouts(x), root._visible_layouts(root)
        offset = layout.__array_interface__["data"][0] - root_layout.__array_interface__["data"][0]
        moves = [(self.output(index), stride) for index, stride in x.moves()]
        return ViewTemplate(base, (x.shape, x.dtype, offset, layout.strides), layout.flags.writeable, moves)

    def _as_array(self, x: Tracer) -> ResultTemplate:
        """The template of the array that NumPy makes of a number, as the base of views."""
        self.nodes.append(x.node)
        return Output(len(self.nodes) - 1, np.asarray)

    def _ordered(self, x: Tracer) -> ResultTemplate:
        """The template of an array with NumPy's memory layout; programs return row-major arrays."""
        self.builder.memory.ordered |= x.layout_inputs
        order = None if x.stand_in is None else axes_of(x.stand_in)
        if order is None:
            return self.output(x)
        self.nodes.append(x.in_memory(order).node)
        return Output(len(self.nodes) - 1, None, inverse_permutation(order))

    def template(self, x: Any) -> ResultTemplate:
        """The template of any value."""
        if getattr(x, "level", None) is DispatchLevel.SPAN:
            x = x.exact()
        if type(x) in (ClassProxy, IteratorProxy):
            return ConstantTemplate(x.real)
        has_tracers = type(x) is frozenset and any(isinstance(each, Tracer) for each in x)
        if isinstance(x, VALUES) and not has_tracers and not isinstance(x, GraphValue):
            return ConstantTemplate(x)
        result = self.world.writes.template_of(x)
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
            output = self._built(x)
        finally:
            self._inside.remove(id(x))
        plain = isinstance(output, Output) and output.kind is output.axes is None
        if plain or isinstance(output, ConstantTemplate | SourceTemplate) or type(x) is tuple:
            return output
        self._values.append(x)
        result = self._first[id(x)] = SharedTemplate(output)
        return result

    def _built(self, x: object) -> ResultTemplate:
        if isinstance(x, Tracer):
            return self._array(x)
        return self._tensor(x) if isinstance(x, TapeCarrier) else self._held(x)

    def _held(self, x: Any) -> ResultTemplate:
        if type(x) is GeneratorProxy:
            return self._generator(x)
        if type(x) in _ARGUMENTS:
            return CallTemplate(type(x), [self.template(part) for part in _ARGUMENTS[type(x)](x)])
        if type(x) is dict:
            x = contents(x)
        kind = kind_of(type(x))
        if kind is not None:
            children, aux = kind.flatten(x)
            children = list(children)
            templates = {i: self.template(children[i]) for i in result_template.in_iteration(kind, aux, len(children))}
            return result_template.ContainerTemplate(kind, aux, [templates[i] for i in range(len(children))])
        if isinstance(x, types.FunctionType) and isinstance(x.__globals__, Globals):
            cells = tuple([c.cell_contents for c in x.__closure__ or ()])
            fields: Any = (cells, x.__defaults__, x.__kwdefaults__, dict(x.__dict__))
            return Closure(x, x.__globals__.real, [self.template(field) for field in fields])
        if isinstance(x, types.MethodType):
            return CallTemplate(types.MethodType, [self.template(x.__func__), self.template(x.__self__)])
        if isinstance(x, functools.partial):
            return CallTemplate(partial, [self.template(y) for y in (x.func, x.args, x.keywords)])
        if is_user_object(x):
            held = attributes(x)
            return Instance(type(x), tuple(held), [self.template(value) for value in held.values()])
        if _is_of_trace(x):
            make, templates = x.parts()
            return CallTemplate(make, [self.template(field) for field in templates])
        return ConstantTemplate(_constant(x))

    def _generator(self, x: GeneratorProxy) -> ResultTemplate:
        if x.source is None:
            raise self.builder.abort("a random generator that traced code makes leaves the traced function")
        return SourceTemplate(x.source)

    def _tensor(self, x: Any) -> ResultTemplate:
        if x.level is not DispatchLevel.TRACED_TENSOR:
            x = self.builder.tensors.of(x)
        outside = self.builder.tensors.real_of(x)
        if outside is not None:
            return SourceTemplate(outside.source)
        view = x._as_view_of_outside()
        if view is not None:
            outside, make, how = view
            return CallTemplate(make, [SourceTemplate(outside.source), *map(ConstantTemplate, how)])
        if x.requires_grad and x.is_leaf:
            self._leaves.append(x)
            is_param = ConstantTemplate(getattr(x, "_is_param", False))
            return CallTemplate(new_leaf, [self.tensor(x, False), self.template(x._grad), is_param])
        return self.tensor(x, x.requires_grad)

    def tensor(self, x: Any, derived: bool) -> ResultTemplate:
        """The template of a Tensor that each call makes, with or without a derivative."""
        root = -1
        if derived:
            root = len(self.roots)
            self.roots.append(x)
        self.tensors = True
        self.nodes.append(self.builder.lift(x.array).node)
        return TensorOutput(len(self.nodes) - 1, root)


def _is_read_only(x: Tracer) -> bool:
    return x.origin is not None and not x._layout().flags.writeable


def _overlap(arrays: Sequence[Tracer]) -> bool:
    """Whether arrays in one block of memory share elements (a cheap, conservative test)."""
    if any(x.frozen is OVERLAPPING for x in arrays):
        return True
    if len(arrays) == 1:
        return False
    if any(x.moves() for x in arrays):
        return True
    pairs = itertools.combinations(arrays[0]._visible_layouts(*arrays), 2)
    return any(np.shares_memory(x, y) for x, y in itertools.islice(pairs, _MAX_PAIRS)) or next(pairs, None) is not None


def new_leaf(tensor: Any, grad: Any, is_param: bool) -> Any:
    """The Tensor as a leaf that requires grad, with this gradient."""
    tensor._requires, tensor._grad = True, grad
    if is_param:
        tensor._is_param = True
    return tensor


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
    children = x.parts() if getattr(type(x), "remembers", False) else None
    return children is not None and any(map(_is_of_trace, children[1]))


def _constant(x: object) -> Any:
    """A leaf of the result that every call returns unchanged."""
    if isinstance(x, Iterator | Coroutine):
        description = f"a {type(x).__name__}, which can be read only once"
        raise TraceError(located(f"the result of a traced function holds {description}; return a list or a tuple"))
    return x
