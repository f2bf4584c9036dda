"""Sources: where in the program's world a trace has read something, so that it can be read again at each call."""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from tracegrad import tree

__all__ = ["Attribute", "Cell", "Child", "Fixed", "Global", "Item", "Source", "Weak"]

Names = Callable[[Any], str]


class Source:
    """A place that holds a value. `text(name)` is Python code for `read()`, `name` giving objects their names in it."""

    __slots__ = ()

    @property
    def key(self) -> Hashable:
        """Equal for equal places, while the objects of the path live."""
        raise NotImplementedError

    def read(self) -> Any:
        """What the place holds now; LookupError, AttributeError or ValueError when it is gone."""
        raise NotImplementedError

    def text(self, name: Names) -> str:
        raise NotImplementedError


@dataclass(frozen=True, slots=True, eq=False)
class Global(Source):
    """A global variable of a module."""

    namespace: dict[str, Any]
    name: str

    @property
    def key(self) -> Hashable:
        return "global", id(self.namespace), self.name

    def read(self) -> Any:
        return self.namespace[self.name]

    def text(self, name: Names) -> str:
        return f"{name(self.namespace)}[{self.name!r}]"

    def __str__(self) -> str:
        return f"the global {self.name}"


@dataclass(frozen=True, slots=True, eq=False)
class Cell(Source):
    """A variable of an enclosing function."""

    cell: types.CellType
    name: str

    @property
    def key(self) -> Hashable:
        return "cell", id(self.cell)

    def read(self) -> Any:
        return self.cell.cell_contents

    def text(self, name: Names) -> str:
        return f"{name(self.cell)}.cell_contents"

    def __str__(self) -> str:
        return f"the closure variable {self.name}"


@dataclass(frozen=True, slots=True, eq=False)
class Fixed(Source):
    """An object itself."""

    value: Any
    name: str

    @property
    def key(self) -> Hashable:
        return "fixed", id(self.value)

    def read(self) -> Any:
        return self.value

    def text(self, name: Names) -> str:
        return name(self.value)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True, eq=False)
class Weak(Source):
    """An object that its trace must not keep alive."""

    reference: weakref.ref[Any]
    name: str

    @property
    def key(self) -> Hashable:
        return "weak", id(self.reference)

    def read(self) -> Any:
        found = self.reference()
        if found is None:
            raise ReferenceError(f"{self.name} is gone")
        return found

    def text(self, name: Names) -> str:
        return f"{name(self.reference)}()"

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True, eq=False)
class Attribute(Source):
    """An attribute of an object."""

    parent: Source
    name: str

    @property
    def key(self) -> Hashable:
        return "attribute", self.parent.key, self.name

    def read(self) -> Any:
        return getattr(self.parent.read(), self.name)

    def text(self, name: Names) -> str:
        return f"{self.parent.text(name)}.{self.name}"

    def __str__(self) -> str:
        return f"{self.parent}.{self.name}"


@dataclass(frozen=True, slots=True, eq=False)
class Item(Source):
    """An item of a tuple, list or dict."""

    parent: Source
    index: Any

    @property
    def key(self) -> Hashable:
        return "item", self.parent.key, repr(self.index)

    def read(self) -> Any:
        return self.parent.read()[self.index]

    def text(self, name: Names) -> str:
        key = repr(self.index) if type(self.index) in (int, str) else name(self.index)
        return f"{self.parent.text(name)}[{key}]"

    def __str__(self) -> str:
        return f"{self.parent}[{self.index!r}]"


@dataclass(frozen=True, slots=True, eq=False)
class Child(Source):
    """A child of a registered pytree node."""

    parent: Source
    position: int

    @property
    def key(self) -> Hashable:
        return "child", self.parent.key, self.position

    def read(self) -> Any:
        return tree.children(self.parent.read())[self.position]

    def text(self, name: Names) -> str:
        return f"{name(tree.children)}({self.parent.text(name)})[{self.position}]"

    def __str__(self) -> str:
        return f"{self.parent}<child {self.position}>"
