"""Serialize the guards, captures, templates and effects of a trace for another process.

`serialize_...` and `restore_...` are inverse functions, given the list of objects of
`tracegrad.runtime.persistence.object_refs`.
"""

from __future__ import annotations

import types
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tracegrad.avals import Aval
from tracegrad.ir import GraphNode as Value
from tracegrad.ir import parse
from tracegrad.runtime.compile.fingerprint import Unkept
from tracegrad.runtime.execution.image import require_plain
from tracegrad.runtime.persistence.object_refs import ObjectReader, ObjectWriter
from tracegrad.target.tuning import TUNING
from tracegrad.trace.builder.value_guards import Capture
from tracegrad.trace.driver.outputs import new_leaf, partial
from tracegrad.trace.effects.effects import Effect
from tracegrad.trace.effects.result_template import (
    CallTemplate,
    ConstantTemplate,
    ContainerTemplate,
    EitherOutput,
    Instance,
    Output,
    ResultTemplate,
    SharedTemplate,
    SourceTemplate,
    TensorOutput,
    ViewTemplate,
)
from tracegrad.trace.world.guards import SourceGuard
from tracegrad.transforms.split_program import DerivativeProgram


# -- guards ------------------------------------------------------------------------------------------------------------
def serialize_guard(to: ObjectWriter, guard: SourceGuard) -> list[object]:
    """Serialize a guard."""
    kind, expected = guard.kind, guard.expected
    results: Any
    if kind == "state":
        raise Unkept(f"the state of {guard.source}")
    if kind == "same":
        results = to.source(expected)
    elif kind == "aval":
        results = [expected[0].str, list(expected[1])]
    elif kind == "items":
        if len(expected) > _MAX_ITEMS:
            raise Unkept(f"the {len(expected) - 1} items of {guard.source}")
        results = [to.number(expected[0]), *map(to.value, expected[1:])]
    else:
        # A tuple compared by identity is the defaults of a function.
        results = ["object", to.number(expected)] if kind == "is" and type(expected) is tuple else to.value(expected)
    if (
        kind == "is"
        and type(results) not in (bool, type(None))
        and not (type(results) is list and results[0] in _SINGLE)
    ):
        raise Unkept(f"the object that {guard.source} is")
    return [to.source(guard.source), kind, results]


_MAX_ITEMS = TUNING.caches.stored_items
_SINGLE = ("object", "constant")  # kinds compared by identity


def restore_guard(of: ObjectReader, x: Sequence[Any]) -> SourceGuard:
    """Restore a guard."""
    source, kind, result = x
    expected: Any
    if kind == "same":
        expected = of.source(result)
    elif kind == "aval":
        expected = np.dtype(result[0]), tuple(result[1])
    elif kind == "items":
        expected = [of.held[result[0]], *map(of.value, result[1:])]
    else:
        expected = of.value(result)
    return SourceGuard(of.source(source), kind, expected)


def serialize_capture(to: ObjectWriter, x: Capture) -> list[object]:
    """Serialize a captured array or number; with its elements if no variable leads to it."""
    aval = x.node.aval
    number = None if x.number is None else to.number(x.number)
    source = to.value(np.asarray(x.array)) if x.source is None else to.source(x.source)
    return [aval.dtype.str, list(aval.shape), number, x.source is None, source]


def restore_capture(of: ObjectReader, x: Sequence[Any]) -> Capture:
    """Restore a capture."""
    dtype, shape, number, is_held, result = x
    node = Value(None, (), (), Aval(tuple(shape), np.dtype(dtype)))
    array, source = (of.value(result), None) if is_held else (None, of.source(result))
    return Capture(array, None, node, source, None if number is None else of.held[number])


# -- templates ---------------------------------------------------------------------------------------------------------
_KINDS: tuple[Any, ...] = (None, float, int, bool, np.asarray)
_CALLED: tuple[Any, ...] = (set, frozenset, deque, Counter, types.MethodType, partial, new_leaf)


class Templates:
    """The templates of one trace, some of whose pieces occur repeatedly."""

    def __init__(self, by: ObjectWriter | ObjectReader):
        self._by: Any = by
        self._shared: dict[Any, Any] = {}

    def serialize(self, x: ResultTemplate) -> list[Any]:
        """Serialize a template: the name of its class, and its fields."""
        if isinstance(x, SharedTemplate):
            number = self._shared.setdefault(x, len(self._shared))
            return [_SHARED, number, x.again, self.serialize(x.template)]
        if isinstance(x, ConstantTemplate) and isinstance(x.value, DerivativeProgram):
            return [_PROGRAM, *_serialize_program(x.value, self._by)]
        form = _FORMATS.get(type(x).__name__)
        if form is None:
            raise Unkept(f"a result with a {type(x).__name__}")
        return [type(x).__name__, *form.serialize(x, self._by, self.serialize)]

    def read(self, x: Sequence[Any]) -> ResultTemplate:
        """Restore a template."""
        kind, *fields = x
        if kind == _PROGRAM:
            return ConstantTemplate(_restore_program(self._by, *fields))
        if kind != _SHARED:
            return _FORMATS[kind].restore(self._by, self.read, *fields)
        number, again, encoded = fields
        if number not in self._shared:
            self._shared[number] = SharedTemplate(self.read(encoded))
            self._shared[number].again = again
        result: ResultTemplate = self._shared[number]
        return result


_SHARED, _PROGRAM = SharedTemplate.__name__, DerivativeProgram.__name__


def _serialize_program(x: DerivativeProgram, by: ObjectWriter) -> list[object]:
    """Serialize the second program of `vjp` or `linearize`."""
    require_plain(x.graph)
    outputs = x.outputs and [by.value(x.outputs[0]), [[aval.dtype.str, list(aval.shape)] for aval in x.outputs[1]]]
    return [x.text, x.__name__, by.value(x.structure), outputs, x.label]


def _restore_program(
    by: ObjectReader, text: str, name: str, structure: Any, outputs: Any, label: str
) -> DerivativeProgram:
    if outputs is not None:
        avals = tuple([Aval(tuple(shape), np.dtype(dtype)) for dtype, shape in outputs[1]])
        outputs = by.value(outputs[0]), avals
    program = DerivativeProgram(lambda: parse(text), name, by.value(structure), outputs, label)
    program.text = text
    return program


class TemplateFormat(NamedTuple):
    """How a class of templates is stored: functions from a template to its fields, and back."""

    serialize: Callable[[Any, ObjectWriter, Callable[[ResultTemplate], list[Any]]], list[Any]]
    restore: Callable[..., ResultTemplate]


def _serialize_view(x: ViewTemplate, by: ObjectWriter, serialize: Any) -> list[object]:
    shape, dtype, offset, strides = x.layout
    layout = [list(shape), dtype.str, int(offset), list(strides)]
    moves = [[serialize(template), int(step)] for template, step in x.moves]
    return [serialize(x.base), layout, x.writeable, moves]


def _restore_view(
    by: ObjectReader, read: Any, base: Any, encoded_layout: Any, writeable: bool, moves: Any
) -> ResultTemplate:
    shape, dtype, offset, strides = encoded_layout
    layout = tuple(shape), np.dtype(dtype), offset, tuple(strides)
    return ViewTemplate(read(base), layout, writeable, [(read(encoded), step) for encoded, step in moves])


def _serialize_constant(x: ConstantTemplate, by: ObjectWriter, serialize: object) -> list[object]:
    if isinstance(x.value, np.ndarray):
        raise Unkept("a result that is always the same array")
    return [by.value(x.value)]


def _serialize_call(x: CallTemplate, by: ObjectWriter, serialize: Any) -> list[object]:
    if x.function not in _CALLED:
        raise Unkept("a result that is made by a call")
    return [_CALLED.index(x.function), [serialize(arg) for arg in x.args]]


_FORMATS = {
    cls.__name__: TemplateFormat(serialize, restore)
    for cls, serialize, restore in (
        (
            Output,
            lambda x, by, serialize: [x.position, _KINDS.index(x.kind), x.axes and list(map(int, x.axes))],
            lambda by, read, position, kind, axes: Output(position, _KINDS[kind], axes and tuple(axes)),
        ),
        (
            EitherOutput,
            lambda x, by, serialize: [x.position, x.python],
            lambda by, read, position, python: EitherOutput(position, python),
        ),
        (
            TensorOutput,
            lambda x, by, serialize: [x.position, x.root],
            lambda by, read, position, root: TensorOutput(position, root),
        ),
        (
            SourceTemplate,
            lambda x, by, serialize: [by.source(x.source)],
            lambda by, read, source: SourceTemplate(by.source(source)),
        ),
        (ViewTemplate, _serialize_view, _restore_view),
        (ConstantTemplate, _serialize_constant, lambda by, read, value: ConstantTemplate(by.value(value))),
        (
            ContainerTemplate,
            lambda x, by, serialize: [by.value(x.kind), by.value(x.aux), [serialize(part) for part in x.children]],
            lambda by, read, kind, aux, parts: ContainerTemplate(
                by.value(kind), by.value(aux), [read(part) for part in parts]
            ),
        ),
        (
            Instance,
            lambda x, by, serialize: [by.number(x.cls), list(x.names), [serialize(part) for part in x.children]],
            lambda by, read, cls, names, parts: Instance(by.held[cls], names, [read(part) for part in parts]),
        ),
        (
            CallTemplate,
            _serialize_call,
            lambda by, read, name, parts: CallTemplate(_CALLED[name], [read(part) for part in parts]),
        ),
    )
}


# -- effects -----------------------------------------------------------------------------------------------------------
def serialize_effect(to: ObjectWriter, templates: Templates, x: Effect) -> list[object]:
    """Serialize the effect of a call on an object."""
    if x.kind == "tensor":
        raise Unkept("an effect on a Tensor")
    return [x.kind, to.source(x.holder), to.value(x.key), templates.serialize(x.template)]


def restore_effect(of: ObjectReader, templates: Templates, x: Sequence[Any]) -> Effect:
    """Restore an effect."""
    kind, holder, key, encoded = x
    return Effect(kind, of.source(holder), of.value(key), templates.read(encoded))
