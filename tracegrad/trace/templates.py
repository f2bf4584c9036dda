"""Templates: what a call gives back, and what it leaves behind, to be filled with the outputs of the program.

A template is a tree of pieces. `make(outputs, tensor)` fills it; `text(code)` is Python code that does the same, where
`code.name(x)` names an object and `code.output(k)` an output. `tensor(array, root)` makes a Tensor of an output.

What is made inside the function is made anew in each call, containers and objects of the user's included; what comes
from outside is that very object, found again where the trace found it.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from typing import Any

from tracegrad.tree.kinds import Kind

__all__ = ["Call", "Closure", "Found", "Instance", "Node", "Output", "Piece", "Same", "TensorOutput", "attributes"]

Outputs = Sequence[Any]
ToTensor = Callable[[Any, int], Any]


class Piece:
    """A part of a template."""

    __slots__ = ()

    def make(self, outputs: Outputs, tensor: ToTensor) -> Any:
        raise NotImplementedError

    def text(self, code: Any) -> str:
        raise NotImplementedError


class Output(Piece):
    """The output of the program at `position`, as a Python number of type `kind` if that is not None."""

    __slots__ = ("kind", "position")

    def __init__(self, position: int, kind: Any = None):
        self.position, self.kind = position, kind

    def make(self, outputs: Outputs, tensor: ToTensor) -> Any:
        found = outputs[self.position]
        return found if self.kind is None else self.kind(found)

    def text(self, code: Any) -> str:
        found: str = code.output(self.position)
        return found if self.kind is None else f"{self.kind.__name__}({found})"


class TensorOutput(Piece):
    """A Tensor of the output at `position`; `root` is its number among those with a derivative, or -1."""

    __slots__ = ("position", "root")

    def __init__(self, position: int, root: int):
        self.position, self.root = position, root

    def make(self, outputs: Outputs, tensor: ToTensor) -> Any:
        return tensor(outputs[self.position], self.root)

    def text(self, code: Any) -> str:
        return f"tensor({code.output(self.position)}, {self.root})"


class Found(Piece):
    """What a source leads to."""

    __slots__ = ("source",)

    def __init__(self, source: Any):
        self.source = source

    def make(self, outputs: Outputs, tensor: ToTensor) -> Any:
        return self.source.read()

    def text(self, code: Any) -> str:
        found: str = self.source.text(code.name)
        return found


class Same(Piece):
    """An object that is the same in every call."""

    __slots__ = ("value",)

    def __init__(self, value: Any):
        self.value = value

    def make(self, outputs: Outputs, tensor: ToTensor) -> Any:
        return self.value

    def text(self, code: Any) -> str:
        return "None" if self.value is None else str(code.name(self.value))


class Node(Piece):
    """A container with these parts."""

    __slots__ = ("aux", "kind", "parts")

    def __init__(self, kind: Kind, aux: Any, parts: Sequence[Piece]):
        self.kind, self.aux, self.parts = kind, aux, parts

    def make(self, outputs: Outputs, tensor: ToTensor) -> Any:
        return self.kind.unflatten(self.aux, [x.make(outputs, tensor) for x in self.parts])

    def text(self, code: Any) -> str:
        cls, parts = self.kind.cls, [x.text(code) for x in self.parts]
        if cls is type(None):
            return "None"
        if cls is list:
            return f"[{', '.join(parts)}]"
        several = f"({''.join(p + ', ' for p in parts)})"
        if cls is tuple:
            return several
        if cls is dict and all(type(k) in (str, int) for k in self.aux[0]):
            values = dict(zip(self.aux[0], parts))
            return "{" + ", ".join(f"{k!r}: {values[k]}" for k in self.aux[2] or self.aux[0]) + "}"
        return f"{code.name(self.kind.unflatten)}({code.name(self.aux)}, {several})"


class Instance(Piece):
    """A new object of a class of the user's with these attributes, made without a call of its `__init__`."""

    __slots__ = ("cls", "names", "parts")

    def __init__(self, cls: type, names: Sequence[str], parts: Sequence[Piece]):
        self.cls, self.names, self.parts = cls, tuple(names), parts

    def make(self, outputs: Outputs, tensor: ToTensor) -> Any:
        return self._filled([x.make(outputs, tensor) for x in self.parts])

    def text(self, code: Any) -> str:
        return f"{code.name(self._filled)}(({''.join(x.text(code) + ', ' for x in self.parts)}))"

    def _filled(self, values: Sequence[Any]) -> Any:
        made: Any = object.__new__(self.cls)
        for name, value in zip(self.names, values):
            object.__setattr__(made, name, value)
        return made


class Closure(Piece):
    """A new function like `like`, with these globals and with the parts in its closure."""

    __slots__ = ("like", "parts", "space")

    def __init__(self, like: types.FunctionType, space: dict[str, Any], parts: Sequence[Piece]):
        self.like, self.space, self.parts = like, space, parts

    def make(self, outputs: Outputs, tensor: ToTensor) -> Any:
        return self._filled([x.make(outputs, tensor) for x in self.parts])

    def text(self, code: Any) -> str:
        return f"{code.name(self._filled)}(({''.join(x.text(code) + ', ' for x in self.parts)}))"

    def _filled(self, values: Sequence[Any]) -> Any:
        like = self.like
        cells = tuple([types.CellType(x) for x in values])
        made = types.FunctionType(like.__code__, self.space, like.__name__, like.__defaults__, cells)
        made.__kwdefaults__, made.__qualname__ = like.__kwdefaults__, like.__qualname__
        made.__dict__.update(like.__dict__)
        return made


class Call(Piece):
    """What `made(*parts)` gives: a bound method, a partial function."""

    __slots__ = ("made", "parts")

    def __init__(self, made: Callable[..., Any], parts: Sequence[Piece]):
        self.made, self.parts = made, parts

    def make(self, outputs: Outputs, tensor: ToTensor) -> Any:
        return self.made(*[x.make(outputs, tensor) for x in self.parts])

    def text(self, code: Any) -> str:
        return f"{code.name(self.made)}({', '.join(x.text(code) for x in self.parts)})"


def attributes(x: Any) -> dict[str, Any]:
    """The attributes that an object of a class of the user's holds itself, those in slots included."""
    found = dict(getattr(x, "__dict__", ()))
    for cls in type(x).__mro__:
        slots = vars(cls).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(x, name):
                found[name] = getattr(x, name)
    return found
