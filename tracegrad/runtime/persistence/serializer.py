"""Serialize the guards, captures, templates and effects of a trace for another process.

`spell_...` and `read_...` are inverse functions, given the list of objects of
`tracegrad.runtime.persistence.object_refs`.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracegrad.avals import Aval
from tracegrad.ir import GraphNode as Value
from tracegrad.ir import parse
from tracegrad.runtime.compile.fingerprint import Unkept
from tracegrad.runtime.execution.image import require_plain
from tracegrad.runtime.persistence.object_refs import ObjectReader, ObjectWriter
from tracegrad.target.tuning import TUNING
from tracegrad.trace.builder.value_guards import Capture
from tracegrad.trace.driver.outputs import partial
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

__all__ = [
    "Templates",
    "restore_capture",
    "restore_effect",
    "restore_guard",
    "serialize_capture",
    "serialize_effect",
    "serialize_guard",
]


# -- guards ------------------------------------------------------------------------------------------------------------
def serialize_guard(to: ObjectWriter, guard: SourceGuard) -> list[Any]:
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


def serialize_capture(to: ObjectWriter, x: Capture) -> list[Any]:
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
_CALLED: tuple[Any, ...] = (set, frozenset, types.MethodType, partial)


class Templates:
    """The templates of one trace, some of whose pieces occur repeatedly."""

    def __init__(self, by: ObjectWriter | ObjectReader):
        self._by: Any = by
        self._once: dict[Any, Any] = {}

    def serialize(self, x: ResultTemplate) -> list[Any]:
        """Serialize a template."""
        by, cls = self._by, type(x)
        serializer = _SERIALIZERS.get(cls)
        if serializer is not None:
            results: list[Any] = serializer(x, by, self.serialize)
            return results
        if isinstance(x, SharedTemplate):
            number = self._once.setdefault(x, len(self._once))
            return ["Once", number, x.again, self.serialize(x.template)]
        raise Unkept(f"a result with a {cls.__name__}")

    def read(self, x: Sequence[Any]) -> ResultTemplate:
        """Restore a template."""
        kind, *rest = x
        if kind != "Once":
            return _RESTORERS[kind](self._by, self.read, *rest)
        number, again, encoded = rest
        if number not in self._once:
            self._once[number] = SharedTemplate(self.read(encoded))
            self._once[number].again = again
        result: ResultTemplate = self._once[number]
        return result


def _serialize_view(x: ViewTemplate, by: ObjectWriter, serialize: Any) -> list[Any]:
    shape, dtype, offset, strides = x.layout
    layout = [list(shape), dtype.str, int(offset), list(strides)]
    return [
        "View",
        serialize(x.base),
        layout,
        x.writeable,
        [[serialize(template), int(step)] for template, step in x.moves],
    ]


def _serialize_same(x: ConstantTemplate, by: ObjectWriter, serialize: Any) -> list[Any]:
    if isinstance(x.value, DerivativeProgram):
        return _serialize_half(x.value, by)
    if isinstance(x.value, np.ndarray):
        raise Unkept("a result that is always the same array")
    return ["Same", by.value(x.value)]


def _serialize_half(x: DerivativeProgram, by: ObjectWriter) -> list[Any]:
    """Serialize the second program of `vjp` or `linearize`."""
    require_plain(x.graph)
    outputs = x.outputs and [by.value(x.outputs[0]), [[aval.dtype.str, list(aval.shape)] for aval in x.outputs[1]]]
    return ["Half", x.text, x.__name__, by.value(x.structure), outputs, x.label]


def _restore_half(
    by: ObjectReader, read: Any, text: str, name: str, structure: Any, outputs: Any, label: str
) -> ResultTemplate:
    if outputs is not None:
        avals = tuple([Aval(tuple(shape), np.dtype(dtype)) for dtype, shape in outputs[1]])
        outputs = by.value(outputs[0]), avals
    half = DerivativeProgram(lambda: parse(text), name, by.value(structure), outputs, label)
    half.text = text
    return ConstantTemplate(half)


def _serialize_call(x: CallTemplate, by: ObjectWriter, serialize: Any) -> list[Any]:
    if x.function not in _CALLED:
        raise Unkept("a result that is made by a call")
    return ["Call", _CALLED.index(x.function), [serialize(arg) for arg in x.args]]


_SERIALIZERS: dict[Any, Callable[[Any, ObjectWriter, Any], list[Any]]] = {
    Output: lambda x, by, spell: [
        "Output",
        x.position,
        _KINDS.index(x.kind),
        x.axes and list(map(int, x.axes)),
    ],
    EitherOutput: lambda x, by, spell: ["EitherOutput", x.position, x.python],
    TensorOutput: lambda x, by, spell: ["TensorOutput", x.position, x.root],
    SourceTemplate: lambda x, by, spell: ["Found", by.source(x.source)],
    ViewTemplate: _serialize_view,
    ConstantTemplate: _serialize_same,
    ContainerTemplate: lambda x, by, spell: [
        "Node",
        by.value(x.kind),
        by.value(x.aux),
        [spell(part) for part in x.children],
    ],
    Instance: lambda x, by, spell: ["Instance", by.number(x.cls), list(x.names), [spell(part) for part in x.children]],
    CallTemplate: _serialize_call,
}


def _restore_view(
    by: ObjectReader, read: Any, base: Any, encoded_layout: Any, writeable: bool, moves: Any
) -> ResultTemplate:
    shape, dtype, offset, strides = encoded_layout
    layout = tuple(shape), np.dtype(dtype), offset, tuple(strides)
    return ViewTemplate(read(base), layout, writeable, [(read(encoded), step) for encoded, step in moves])


_RESTORERS: dict[str, Callable[..., ResultTemplate]] = {
    "Output": lambda by, read, position, kind, axes: Output(position, _KINDS[kind], axes and tuple(axes)),
    "EitherOutput": lambda by, read, position, python: EitherOutput(position, python),
    "TensorOutput": lambda by, read, position, root: TensorOutput(position, root),
    "Found": lambda by, read, source: SourceTemplate(by.source(source)),
    "View": _restore_view,
    "Same": lambda by, read, value: ConstantTemplate(by.value(value)),
    "Half": _restore_half,
    "Node": lambda by, read, kind, aux, parts: ContainerTemplate(
        by.value(kind), by.value(aux), [read(part) for part in parts]
    ),
    "Instance": lambda by, read, cls, names, parts: Instance(by.held[cls], names, [read(part) for part in parts]),
    "Call": lambda by, read, name, parts: CallTemplate(_CALLED[name], [read(part) for part in parts]),
}


# -- effects -----------------------------------------------------------------------------------------------------------
def serialize_effect(to: ObjectWriter, templates: Templates, x: Effect) -> list[Any]:
    """Serialize the effect of a call on an object."""
    if x.kind == "tensor":
        raise Unkept("an effect on a Tensor")
    return [x.kind, to.source(x.holder), to.value(x.key), templates.serialize(x.template)]


def restore_effect(of: ObjectReader, templates: Templates, x: Sequence[Any]) -> Effect:
    """Restore an effect."""
    kind, holder, key, encoded = x
    return Effect(kind, of.source(holder), of.value(key), templates.read(encoded))
