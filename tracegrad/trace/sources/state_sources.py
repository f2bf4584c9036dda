"""Access paths to state that is not a variable: built-in names, context variables, and results of functions."""

from __future__ import annotations

import builtins
import gc
import types
from typing import Any

from tracegrad.trace.sources.sources import Names, Source


class Name(Source):
    """A built-in name, unless a global variable hides it; the parent is the dict of the module."""

    __slots__ = ()
    kind = "the name "

    @property
    def beneath(self) -> dict[str, Any]:
        """The namespace of the built-ins."""
        result = self.parent.get("__builtins__", builtins)
        return result if isinstance(result, dict) else vars(result)

    def read(self) -> Any:
        return self.parent[self.name] if self.name in self.parent else self.beneath[self.name]

    def text(self, name: Names) -> str:
        space, beneath = name(self.parent), name(self.beneath)
        return f"({space} if {self.name!r} in {space} else {beneath})[{self.name!r}]"

    def absent(self, name: Names) -> str:
        return f"{self.name!r} not in {name(self.parent)} and {self.name!r} not in {name(self.beneath)}"


class Context(Source):
    """The value of a `contextvars.ContextVar`, the parent, if one is set."""

    __slots__ = ()
    kind = "the context variable "
    UNSET: Any = object()

    def read(self) -> Any:
        result = self.parent.get(self.UNSET)
        if result is self.UNSET:
            raise LookupError(self.name)
        return result

    def text(self, name: Names) -> str:
        return f"{name(self.parent)}.get({name(self.UNSET)})"

    def absent(self, name: Names) -> str:
        return f"{self.text(name)} is {name(self.UNSET)}"


class FunctionResult(Source):
    """The result of a function, the parent, for the arguments `name`."""

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
    """Whether a class is a subclass of a base class now. Third parties may register classes with an abstract base class
    at any time."""
    try:
        return issubclass(cls, base)
    except TypeError:  # a protocol with attributes tests objects only
        return False


def underlying_mapping(proxy: types.MappingProxyType[object, object]) -> object:
    """The underlying mapping of a mapping proxy, which others may change."""
    return gc.get_referents(proxy)[0]
