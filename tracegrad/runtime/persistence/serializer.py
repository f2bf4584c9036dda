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
from tracegrad.ir import Node as Value
from tracegrad.ir import parse
from tracegrad.runtime.compile.fingerprint import Unkept
from tracegrad.runtime.execution.image import require_plain
from tracegrad.runtime.persistence.object_refs import Reader, Writer
from tracegrad.target.tuning import TUNING
from tracegrad.trace.builder.value_guards import Capture
from tracegrad.trace.driver.outputs import partial
from tracegrad.trace.effects.effects import Effect
from tracegrad.trace.effects.result_template import (
    Call,
    EitherOutput,
    Found,
    Instance,
    Node,
    Once,
    Output,
    Piece,
    Same,
    TensorOutput,
    View,
)
from tracegrad.trace.world.guards import Guard
from tracegrad.transforms.split_program import Half

__all__ = ["Templates", "read_capture", "read_effect", "read_guard", "spell_capture", "spell_effect", "spell_guard"]


# -- guards ------------------------------------------------------------------------------------------------------------
def spell_guard(to: Writer, guard: Guard) -> list[Any]:
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
        if len(expected) > _MOST_ITEMS:
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


_MOST_ITEMS = TUNING.caches.stored_items
_SINGLE = ("object", "constant")  # kinds compared by identity


def read_guard(of: Reader, x: Sequence[Any]) -> Guard:
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
    return Guard(of.source(source), kind, expected)


def spell_capture(to: Writer, x: Capture) -> list[Any]:
    """Serialize a captured array or number; with its elements if no variable leads to it."""
    aval = x.node.aval
    number = None if x.number is None else to.number(x.number)
    source = to.value(np.asarray(x.array)) if x.source is None else to.source(x.source)
    return [aval.dtype.str, list(aval.shape), number, x.source is None, source]


def read_capture(of: Reader, x: Sequence[Any]) -> Capture:
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

    def __init__(self, by: Writer | Reader):
        self._by: Any = by
        self._once: dict[Any, Any] = {}

    def spell(self, x: Piece) -> list[Any]:
        """Serialize a template."""
        by, cls = self._by, type(x)
        spell = _SPELL.get(cls)
        if spell is not None:
            results: list[Any] = spell(x, by, self.spell)
            return results
        if isinstance(x, Once):
            number = self._once.setdefault(x, len(self._once))
            return ["Once", number, x.again, self.spell(x.piece)]
        raise Unkept(f"a result with a {cls.__name__}")

    def read(self, x: Sequence[Any]) -> Piece:
        """Restore a template."""
        kind, *rest = x
        if kind != "Once":
            return _READ[kind](self._by, self.read, *rest)
        number, again, piece = rest
        if number not in self._once:
            self._once[number] = Once(self.read(piece))
            self._once[number].again = again
        result: Piece = self._once[number]
        return result


def _spell_view(x: View, by: Writer, spell: Any) -> list[Any]:
    shape, dtype, offset, strides = x.place
    place = [list(shape), dtype.str, int(offset), list(strides)]
    return ["View", spell(x.base), place, x.writeable, [[spell(piece), int(step)] for piece, step in x.moves]]


def _spell_same(x: Same, by: Writer, spell: Any) -> list[Any]:
    if isinstance(x.value, Half):
        return _spell_half(x.value, by)
    if isinstance(x.value, np.ndarray):
        raise Unkept("a result that is always the same array")
    return ["Same", by.value(x.value)]


def _spell_half(x: Half, by: Writer) -> list[Any]:
    """Serialize the second program of `vjp` or `linearize`."""
    require_plain(x.graph)
    outputs = x.outputs and [by.value(x.outputs[0]), [[aval.dtype.str, list(aval.shape)] for aval in x.outputs[1]]]
    return ["Half", x.text, x.__name__, by.value(x.structure), outputs, x.label]


def _read_half(by: Reader, read: Any, text: str, name: str, structure: Any, outputs: Any, label: str) -> Piece:
    if outputs is not None:
        avals = tuple([Aval(tuple(shape), np.dtype(dtype)) for dtype, shape in outputs[1]])
        outputs = by.value(outputs[0]), avals
    half = Half(lambda: parse(text), name, by.value(structure), outputs, label)
    half.text = text
    return Same(half)


def _spell_call(x: Call, by: Writer, spell: Any) -> list[Any]:
    if x.made not in _CALLED:
        raise Unkept("a result that is made by a call")
    return ["Call", _CALLED.index(x.made), [spell(part) for part in x.parts]]


_SPELL: dict[Any, Callable[[Any, Writer, Any], list[Any]]] = {
    Output: lambda x, by, spell: [
        "Output", x.position, _KINDS.index(x.kind), x.axes and list(map(int, x.axes)),
    ],
    EitherOutput: lambda x, by, spell: ["EitherOutput", x.position, x.python],
    TensorOutput: lambda x, by, spell: ["TensorOutput", x.position, x.root],
    Found: lambda x, by, spell: ["Found", by.source(x.source)],
    View: _spell_view,
    Same: _spell_same,
    Node: lambda x, by, spell: ["Node", by.value(x.kind), by.value(x.aux), [spell(part) for part in x.parts]],
    Instance: lambda x, by, spell: ["Instance", by.number(x.cls), list(x.names), [spell(part) for part in x.parts]],
    Call: _spell_call,
}  # fmt: skip


def _read_view(by: Reader, read: Any, base: Any, place: Any, writeable: bool, moves: Any) -> Piece:
    shape, dtype, offset, strides = place
    where = tuple(shape), np.dtype(dtype), offset, tuple(strides)
    return View(read(base), where, writeable, [(read(piece), step) for piece, step in moves])


_READ: dict[str, Callable[..., Piece]] = {
    "Output": lambda by, read, position, kind, axes: Output(position, _KINDS[kind], axes and tuple(axes)),
    "EitherOutput": lambda by, read, position, python: EitherOutput(position, python),
    "TensorOutput": lambda by, read, position, root: TensorOutput(position, root),
    "Found": lambda by, read, source: Found(by.source(source)),
    "View": _read_view,
    "Same": lambda by, read, value: Same(by.value(value)),
    "Half": _read_half,
    "Node": lambda by, read, kind, aux, parts: Node(by.value(kind), by.value(aux), [read(part) for part in parts]),
    "Instance": lambda by, read, cls, names, parts: Instance(by.held[cls], names, [read(part) for part in parts]),
    "Call": lambda by, read, made, parts: Call(_CALLED[made], [read(part) for part in parts]),
}


# -- effects -----------------------------------------------------------------------------------------------------------
def spell_effect(to: Writer, templates: Templates, x: Effect) -> list[Any]:
    """Serialize the effect of a call on an object."""
    if x.kind == "tensor":
        raise Unkept("an effect on a Tensor")
    return [x.kind, to.source(x.holder), to.value(x.key), templates.spell(x.piece)]


def read_effect(of: Reader, templates: Templates, x: Sequence[Any]) -> Effect:
    """Restore an effect."""
    kind, holder, key, piece = x
    return Effect(kind, of.source(holder), of.value(key), templates.read(piece))
