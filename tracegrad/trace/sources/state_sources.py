"""Sources of state that is no variable: names of built-ins, context variables, and the answers of functions."""

from __future__ import annotations

import builtins
import gc
import types
from typing import Any

from tracegrad.trace.sources.sources import Names, Source

__all__ = ["Called", "Context", "Name", "is_subclass", "mapping_behind"]


class Name(Source):
    """A name that is no global variable: a built-in, unless a global variable hides it; the parent is the dict of the
    module."""

    __slots__ = ()
    kind = "the name "

    @property
    def beneath(self) -> dict[str, Any]:
        """The namespace of the built-ins."""
        found = self.parent.get("__builtins__", builtins)
        return found if isinstance(found, dict) else vars(found)

    def read(self) -> Any:
        return self.parent[self.name] if self.name in self.parent else self.beneath[self.name]

    def text(self, name: Names) -> str:
        space, beneath = name(self.parent), name(self.beneath)
        return f"({space} if {self.name!r} in {space} else {beneath})[{self.name!r}]"

    def absent(self, name: Names) -> str:
        return f"{self.name!r} not in {name(self.parent)} and {self.name!r} not in {name(self.beneath)}"


class Context(Source):
    """The value of a `contextvars.ContextVar`, the parent, where one is set."""

    __slots__ = ()
    kind = "the context variable "
    UNSET: Any = object()

    def read(self) -> Any:
        found = self.parent.get(self.UNSET)
        if found is self.UNSET:
            raise LookupError(self.name)
        return found

    def text(self, name: Names) -> str:
        return f"{name(self.parent)}.get({name(self.UNSET)})"

    def absent(self, name: Names) -> str:
        return f"{self.text(name)} is {name(self.UNSET)}"


class Called(Source):
    """What a function, the parent, answers to the arguments `name`."""

    __slots__ = ()

    def read(self) -> Any:
        try:
            return self.parent(*self.name)
        except OSError as error:
            raise LookupError(str(error)) from None

    def text(self, name: Names) -> str:
        return f"{name(self.parent)}({', '.join(map(name, self.name))})"

    @property
    def path(self) -> str:
        args = [x.__name__ if isinstance(x, type) else repr(x) for x in self.name]
        return f"{self.parent.__name__}({', '.join(args)})"


def is_subclass(cls: type, base: type) -> bool:
    """Whether a class is one of a base class's now. Those that an abstract base class knows grow: whoever has written
    neither may register one with the other."""
    try:
        return issubclass(cls, base)
    except TypeError:  # protocols with attributes, which are asked of each object
        return False


def mapping_behind(proxy: types.MappingProxyType[Any, Any]) -> Any:
    """The mapping that a proxy shows, which others write to."""
    return gc.get_referents(proxy)[0]
