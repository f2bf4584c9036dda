"""Templates of results and effects, filled with the outputs of the compiled program.

A template is a tree of pieces. `make(Filling(outputs, tensor))` fills it. `text(code)` is Python code that does the
same; `code.name(x)` names an object and `code.output(k)` names an output. `tensor(array, root)` makes a Tensor from an
output. An object that occurs several times (`Once`) is made at its first occurrence; later occurrences use its name.

Each call makes new containers and new objects of user classes, if the function made them. An object from outside is
returned itself, read from its source again.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracegrad.ops.core.memory_order import stand_in
from tracegrad.trace.rewriting.call_sites import unmarked
from tracegrad.tree.registry import Kind

__all__ = [
    "Call", "Closure", "EitherOutput", "Filling", "Found", "Instance", "Node", "Once", "Output", "Piece", "Same",
    "TensorOutput", "View", "attributes", "in_iteration",
]  # fmt: skip

Outputs = Sequence[Any]
ToTensor = Callable[[Any, int], Any]


class Filling:
    """The outputs of one call, and the objects made from them so far."""

    __slots__ = ("made", "outputs", "tensor")

    def __init__(self, outputs: Outputs, tensor: ToTensor):
        self.outputs, self.tensor = outputs, tensor
        self.made: dict[Any, Any] = {}


class Piece:
    """A part of a template."""

    __slots__ = ()

    def make(self, call: Filling) -> Any:
        raise NotImplementedError

    def text(self, code: Any) -> str:
        raise NotImplementedError


class Output(Piece):
    """The output of the program at `position`, as a Python number of type `kind` if that is not None; with its `axes`
    in this order if that is not None."""

    __slots__ = ("axes", "kind", "position")

    def __init__(self, position: int, kind: Any = None, axes: tuple[int, ...] | None = None):
        self.position, self.kind, self.axes = position, kind, axes

    def make(self, call: Filling) -> Any:
        result = call.outputs[self.position]
        if self.axes is not None:
            return result.transpose(self.axes)
        return result if self.kind is None else self.kind(result)

    def text(self, code: Any) -> str:
        result: str = code.output(self.position)
        if self.axes is not None:
            return f"{result}.transpose({self.axes})"
        return result if self.kind is None else f"{self.kind.__name__}({result})"


class EitherOutput(Piece):
    """The float at `position`: a Python float if the output at `python` is true, else an `np.float64`."""

    __slots__ = ("position", "python")

    def __init__(self, position: int, python: int):
        self.position, self.python = position, python

    def make(self, call: Filling) -> Any:
        result = call.outputs[self.position]
        return float(result) if call.outputs[self.python] else np.float64(result)

    def text(self, code: Any) -> str:
        result = code.output(self.position)
        return f"(float({result}) if {code.output(self.python)} else {code.name(np.float64)}({result}))"


class TensorOutput(Piece):
    """A Tensor of the output at `position`; `root` is its number among the Tensors with a derivative, or -1."""

    __slots__ = ("position", "root")

    def __init__(self, position: int, root: int):
        self.position, self.root = position, root

    def make(self, call: Filling) -> Any:
        return call.tensor(call.outputs[self.position], self.root)

    def text(self, code: Any) -> str:
        return f"tensor({code.output(self.position)}, {self.root}, node)"


class Found(Piece):
    """The object that a source leads to."""

    __slots__ = ("source",)

    def __init__(self, source: Any):
        self.source = source

    def make(self, call: Filling) -> Any:
        return self.source.read()

    def text(self, code: Any) -> str:
        result: str = self.source.text(code.name)
        return result


class View(Piece):
    """A view of the array that `base` makes: its shape, dtype, first byte in the base, and strides. `moves` are
    computed positions, each with the number of bytes by which one step moves the view."""

    __slots__ = ("base", "moves", "place", "writeable")

    def __init__(self, base: Piece, place: tuple[Any, ...], writeable: bool, moves: Sequence[tuple[Piece, int]] = ()):
        if 0 in place[0]:  # an empty view may begin anywhere
            place = (*place[:2], 0, None)
        self.base, self.place, self.writeable, self.moves = base, place, writeable, tuple(moves)

    def make(self, call: Filling) -> Any:
        return self._of(self.base.make(call), *[place.make(call) for place, _ in self.moves])

    def text(self, code: Any) -> str:
        parts = [self.base.text(code), *(place.text(code) for place, _ in self.moves)]
        return f"{code.name(self._of)}({', '.join(parts)})"

    def _of(self, base: Any, *places: Any) -> Any:
        shape, dtype, offset, strides = self.place
        for place, (_, step) in zip(places, self.moves):
            offset += int(place) * step
        if base.flags.forc:
            result = np.ndarray(shape, dtype, base, offset, strides)
        else:
            address = base.__array_interface__["data"][0] + offset
            result = stand_in(shape, dtype, strides, address, base)
        if not self.writeable or not base.flags.writeable:
            result.flags.writeable = False
        return result


class Same(Piece):
    """An object that is the same in every call."""

    __slots__ = ("value",)

    def __init__(self, value: Any):
        self.value = value

    def make(self, call: Filling) -> Any:
        return self.value

    def text(self, code: Any) -> str:
        return "None" if self.value is None else str(code.name(self.value))


def in_iteration(kind: Kind, aux: Any, count: int) -> Sequence[int]:
    """The numbers of the children of a container, in its iteration order."""
    if kind.cls is not dict or aux[2] is None:
        return range(count)
    places = {key: i for i, key in enumerate(aux[0])}
    return [places[key] for key in aux[2]]


class Node(Piece):
    """A container with these parts, which are made in its iteration order."""

    __slots__ = ("aux", "kind", "parts")

    def __init__(self, kind: Kind, aux: Any, parts: Sequence[Piece]):
        self.kind, self.aux, self.parts = kind, aux, parts

    def make(self, call: Filling) -> Any:
        results: list[Any] = [None] * len(self.parts)
        for i in in_iteration(self.kind, self.aux, len(self.parts)):
            results[i] = self.parts[i].make(call)
        return self.kind.unflatten(self.aux, results)

    def text(self, code: Any) -> str:
        cls, iterations = self.kind.cls, in_iteration(self.kind, self.aux, len(self.parts))
        parts = [self.parts[i].text(code) for i in iterations]
        if cls is type(None):
            return "None"
        if cls is list:
            return f"[{', '.join(parts)}]"
        several = f"({''.join(p + ', ' for p in parts)})"
        if cls is tuple:
            return several
        if cls is dict and all(type(k) in (str, int) for k in self.aux[0]):
            return "{" + ", ".join(f"{self.aux[0][i]!r}: {part}" for i, part in zip(iterations, parts)) + "}"
        if cls is dict:
            keys = tuple([self.aux[0][i] for i in iterations])
            return f"dict(zip({code.name(keys)}, {several}))"
        return f"{code.name(self.kind.unflatten)}({code.name(self.aux)}, {several})"


class Once(Piece):
    """The object of `piece`, made once per call; `again` says whether the template contains it several times."""

    __slots__ = ("again", "piece")

    def __init__(self, piece: Piece):
        self.piece, self.again = piece, False

    def make(self, call: Filling) -> Any:
        if self not in call.made:
            call.made[self] = self.piece.make(call)
        return call.made[self]

    def text(self, code: Any) -> str:
        if not self.again:
            return self.piece.text(code)
        known: str | None = code.made.get(self)
        if known is None:
            text = self.piece.text(code)
            result = code.made[self] = f"m{len(code.made)}"
            return f"({result} := {text})"
        return known


class Instance(Piece):
    """A new object of a user class with these attributes, made without a call of its `__init__`."""

    __slots__ = ("cls", "names", "parts")

    def __init__(self, cls: type, names: Sequence[str], parts: Sequence[Piece]):
        self.cls, self.names, self.parts = cls, tuple(names), parts

    def make(self, call: Filling) -> Any:
        return self._filled([x.make(call) for x in self.parts])

    def text(self, code: Any) -> str:
        return f"{code.name(self._filled)}(({''.join(x.text(code) + ', ' for x in self.parts)}))"

    def _filled(self, values: Sequence[Any]) -> Any:
        result: Any = object.__new__(self.cls)
        for name, value in zip(self.names, values):
            object.__setattr__(result, name, value)
        return result


class Closure(Piece):
    """A new function with the code of `like` and these globals; the parts are its closure, its defaults, its keyword
    defaults and its attributes."""

    __slots__ = ("code", "like", "parts", "space")

    def __init__(self, like: types.FunctionType, space: dict[str, Any], parts: Sequence[Piece]):
        self.like, self.space, self.parts = like, space, parts
        self.code = unmarked(like.__code__)

    def make(self, call: Filling) -> Any:
        return self._filled(*[x.make(call) for x in self.parts])

    def text(self, code: Any) -> str:
        return f"{code.name(self._filled)}({', '.join(x.text(code) for x in self.parts)})"

    def _filled(self, held: Any, defaults: Any, keywords: Any, attributes: Any) -> Any:
        like = self.like
        cells = tuple([types.CellType(x) for x in held])
        result = types.FunctionType(self.code, self.space, like.__name__, defaults, cells)
        result.__kwdefaults__, result.__qualname__, result.__doc__ = keywords, like.__qualname__, like.__doc__
        result.__dict__.update(attributes)
        return result


class Call(Piece):
    """The result of a function applied to the parts: a bound method, a partial function."""

    __slots__ = ("made", "parts")

    def __init__(self, result: Callable[..., Any], parts: Sequence[Piece]):
        self.made, self.parts = result, parts

    def make(self, call: Filling) -> Any:
        return self.made(*[x.make(call) for x in self.parts])

    def text(self, code: Any) -> str:
        return f"{code.name(self.made)}({', '.join(x.text(code) for x in self.parts)})"


def attributes(x: Any) -> dict[str, Any]:
    """The attributes stored in an object of a user class itself, including slots."""
    table = dict(getattr(x, "__dict__", ()))
    for cls in type(x).__mro__:
        slots = vars(cls).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(x, name):
                table[name] = getattr(x, name)
    return table
