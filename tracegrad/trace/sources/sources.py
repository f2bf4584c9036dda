"""Access paths to external state (*sources*), which each call reads again."""

from __future__ import annotations

import contextlib
import keyword
import threading
import types
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from tracegrad import tree
from tracegrad.ops import Carrier
from tracegrad.trace.sources.class_patching import genuine

Names = Callable[[Any], str]


class Source:
    """Access path to a value: `name` in `parent`, which is another source or an object.

    `text(name)` is Python code for `read()`; the function `name` gives objects their names in it. `path` is how a user
    would write it; in messages, `kind` precedes the path of a variable.
    """

    __slots__ = ("_key", "name", "parent")
    kind = ""

    def __init__(self, parent: Any, name: Any):
        self.parent, self.name = parent, name
        self._key: Hashable = None

    @property
    def key(self) -> Hashable:
        """Equal for equal paths, as long as the objects on the path live."""
        if self._key is None:
            above = self.parent.key if isinstance(self.parent, Source) else id(self.parent)
            self._key = type(self), above, _key_of(self.name)
        return self._key

    @property
    def acts(self) -> bool:
        """Whether reading it runs a user function, which may have side effects."""
        return isinstance(self.parent, Source) and self.parent.acts

    def read(self) -> Any:
        """The present value; LookupError, AttributeError, ValueError or ReferenceError if it no longer exists."""
        raise NotImplementedError

    def text(self, name: Names) -> str:
        raise NotImplementedError

    def absent(self, name: Names) -> str | None:
        """Python code for "the value is missing"; None if only a failing `text` shows that."""
        return None

    @property
    def path(self) -> str:
        return str(self.name)

    def __str__(self) -> str:
        root = self
        while isinstance(root.parent, Source):
            root = root.parent
        return root.kind + self.path


def _key_of(name: object) -> Hashable:
    """A key of a name or of a dict key; an object is identified by itself, not by its text."""
    if type(name) is str or name is None:
        return name
    if type(name) is tuple:
        return tuple(map(_key_of, name))
    return type(name), repr(name) if isinstance(name, int | float | complex | bytes | np.generic) else id(name)


class ModuleGlobal(Source):
    """A global variable; the parent is the dict of its module."""

    __slots__ = ()
    kind = "the global "

    def read(self) -> Any:
        return self.parent[self.name]

    def text(self, name: Names) -> str:
        return f"{name(self.parent)}[{self.name!r}]"

    def absent(self, name: Names) -> str:
        return f"{self.name!r} not in {name(self.parent)}"


_EMPTY = types.CellType()


class ClosureCell(Source):
    """A variable of an enclosing function; the parent is its cell."""

    __slots__ = ()
    kind = "the closure variable "

    def read(self) -> Any:
        return self.parent.cell_contents

    def text(self, name: Names) -> str:
        return f"{name(self.parent)}.cell_contents"

    def absent(self, name: Names) -> str | None:
        return f"{name(self.parent)} == {name(_EMPTY)}"  # two empty cells are equal


class Fixed(Source):
    """The parent itself, an object."""

    __slots__ = ()

    def read(self) -> Any:
        return self.parent

    def text(self, name: Names) -> str:
        return name(self.parent)


class Weak(Source):
    """An object held by weak reference, so that it can die before its trace."""

    __slots__ = ()

    def read(self) -> Any:
        result = self.parent()
        if result is None:
            raise ReferenceError(f"{self.name} is gone")
        return result

    def text(self, name: Names) -> str:
        return f"{name(self.parent)}()"


class Attribute(Source):
    """An attribute of the parent."""

    __slots__ = ()

    def read(self) -> Any:
        return getattr(self.parent.read(), self.name)

    def text(self, name: Names) -> str:
        if self.name.isidentifier() and not keyword.iskeyword(self.name):
            return f"{self.parent.text(name)}.{self.name}"
        return f"{name(getattr)}({self.parent.text(name)}, {self.name!r})"

    def absent(self, name: Names) -> str:
        return f"not {name(hasattr)}({self.parent.text(name)}, {self.name!r})"

    @property
    def path(self) -> str:
        return f"{self.parent.path}.{self.name}"


def _raw_attribute(cls: type, name: str) -> Any:
    for base in cls.__mro__:
        if name in vars(base):
            return genuine(vars(base)[name])
    raise AttributeError(name)


class Static(Source):
    """The raw attribute of a class (the parent) or its bases: functions and properties unbound."""

    __slots__ = ()

    def read(self) -> Any:
        return _raw_attribute(self.parent, self.name)

    def inherited(self) -> Static:
        """The source in the class that defines it."""
        owner = next((cls for cls in self.parent.__mro__ if self.name in vars(cls)), self.parent)
        return self if owner is self.parent else Static(owner, self.name)

    def text(self, name: Names) -> str:
        return f"{name(_raw_attribute)}({name(self.parent)}, {self.name!r})"

    @property
    def path(self) -> str:
        return f"{self.parent.__name__}.{self.name}"


class Hiding(Source):
    """The first of some names (a frozenset) that a class, the parent, or a base defines; None if it defines none. One
    lookup covers all names."""

    __slots__ = ()

    def read(self) -> Any:
        for cls in self.parent.__mro__[:-1]:
            if not self.name.isdisjoint(vars(cls)):
                return min(self.name & vars(cls).keys())
        return None

    def text(self, name: Names) -> str:
        return f"{name(self.read)}()"

    @property
    def path(self) -> str:
        return f"what {self.parent.__name__} has under {len(self.name)} names that were not there"


class Item(Source):
    """An item of a tuple, list or dict."""

    __slots__ = ()

    def read(self) -> Any:
        return _item(self.parent.read(), self.name)

    def text(self, name: Names) -> str:
        index = repr(self.name) if type(self.name) in (int, str) else name(self.name)
        return f"{self.parent.text(name)}[{index}]"

    def absent(self, name: Names) -> str:
        known = None
        with contextlib.suppress(LookupError):  # arguments can be read in calls only
            known = self.parent.read()
        if isinstance(known, dict):
            return f"{name(self.name)} not in {self.parent.text(name)}"
        return f"{name(_lacks)}({self.parent.text(name)}, {name(self.name)})"

    @property
    def path(self) -> str:
        return f"{self.parent.path}[{'a Tensor' if isinstance(self.name, Carrier) else repr(self.name)}]"


class AnyIdentical(Source):
    """Whether some of the sources in `name` lead to the same object."""

    __slots__ = ()

    @property
    def key(self) -> Hashable:
        return AnyIdentical, *[source.key for source in self.name]

    def read(self) -> Any:
        return len({id(source.read()) for source in self.name}) < len(self.name)

    def text(self, name: Names) -> str:
        texts = [source.text(name) for source in self.name]
        if len(texts) == 2:
            return f"({texts[0]} is {texts[1]})"
        ids = ", ".join([f"{name(id)}({text})" for text in texts])
        return f"(len({{{ids}}}) < {len(texts)})"

    @property
    def path(self) -> str:
        return f"one of {', '.join([each.path for each in self.name])} being another"


class Child(Source):
    """A child of a registered pytree node."""

    __slots__ = ()

    def read(self) -> Any:
        return tree.children(self.parent.read())[self.name]

    def text(self, name: Names) -> str:
        return f"{name(tree.children)}({self.parent.text(name)})[{self.name}]"

    @property
    def path(self) -> str:
        return f"{self.parent.path}<child {self.name}>"


_ABSENT = object()


def _item(container: Any, key: Any) -> Any:
    """`container[key]`, if the key exists. A dict's `__missing__` is not called, because it could insert a default or
    run user code."""
    if not isinstance(container, dict) or not hasattr(type(container), "__missing__"):
        return container[key]
    result = dict.get(container, key, _ABSENT)
    if result is _ABSENT:
        raise KeyError(key)
    return result


def _lacks(container: Any, key: object) -> bool:
    """Whether a mapping has no such key, or a sequence no such position. A dict item is not read, because a default
    could be inserted."""
    if isinstance(container, dict):
        return key not in container
    try:
        container[key]
    except (LookupError, TypeError):
        return True
    return False


# -- the current call --------------------------------------------------------------------------------------------------
class _CurrentCall(threading.local):
    """The current call of this thread."""

    call: Any = None


CURRENT = _CurrentCall()


class on_call:
    """Resolve argument sources in `call` (context manager)."""

    def __init__(self, call: Any):
        self.call = call

    def __enter__(self) -> None:
        self.before, CURRENT.call = CURRENT.call, self.call

    def __exit__(self, *_: object) -> None:
        CURRENT.call = self.before


def _current_call() -> Any:
    if CURRENT.call is None:
        raise LookupError("no call is under way")
    return CURRENT.call


class ArgumentLeaf(Source):
    """Leaf number `name` of the arguments of the current call: an array, or the Tensor."""

    __slots__ = ()

    def read(self) -> Any:
        call = _current_call()
        result = call.tensors.get(self.name)
        return call.leaves[self.name] if result is None else result

    def text(self, name: Names) -> str:
        return name(self)

    def among(self, leaves: Sequence[str], args: Sequence[str], kwargs: Mapping[str, str]) -> str:
        """Its expression, from the expressions of the leaves and of the canonical arguments."""
        return leaves[int(self.name)]

    @property
    def path(self) -> str:
        return f"the array number {self.name} of the arguments"


class CalledFunction(Source):
    """The function of the current call, where functions with equal code share programs."""

    __slots__ = ()

    def read(self) -> Any:
        return _current_call().function

    def text(self, name: Names) -> str:
        return name(self)


class ClosureVariable(ClosureCell):
    """As a `ClosureCell`, for a closure variable, by number, of the function that the source `function` leads to."""

    __slots__ = ("cell_source",)

    def __init__(self, parent: Any, name: Any, function: Source, number: int):
        super().__init__(parent, name)
        self.cell_source = Attribute(Item(Attribute(function, "__closure__"), number), "cell_contents")

    @property
    def key(self) -> Hashable:
        return self.cell_source.key

    def read(self) -> Any:
        return self.cell_source.read()

    def text(self, name: Names) -> str:
        return self.cell_source.text(name)

    def absent(self, name: Names) -> str | None:
        return None


class CallArgument(Source):
    """The argument of the current call at a position, or with a keyword, in canonical form."""

    __slots__ = ()

    def read(self) -> Any:
        call = _current_call()
        return call.args[self.name] if isinstance(self.name, int) else call.kwargs[self.name]

    def text(self, name: Names) -> str:
        return name(self)

    def among(self, leaves: Sequence[str], args: Sequence[str], kwargs: Mapping[str, str]) -> str:
        """As `ArgumentLeaf.among`."""
        arguments: Any = args if isinstance(self.name, int) else kwargs
        return str(arguments[self.name])

    @property
    def path(self) -> str:
        return f"the argument {self.name}"
