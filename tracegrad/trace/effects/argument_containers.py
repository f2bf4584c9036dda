"""Track copies of argument containers (aliasing): one container has one copy, however traced code reaches it."""

from __future__ import annotations

from typing import Any, NamedTuple

from tracegrad.errors import UnsupportedError
from tracegrad.trace.builder.abort import RunsPlainly
from tracegrad.trace.effects.effects import WatchedCopy
from tracegrad.trace.sources.sources import Source


class _KnownContainer(NamedTuple):
    real: Any
    copy: Any
    source: Source


class Containers:
    """The argument containers of one trace."""

    def __init__(self, world: Any):
        self._world = world
        self.known: dict[int, _KnownContainer] = {}  # by the id of the container
        self.again: set[int] = set()  # the ids of the copies that have a second name
        self.derived: set[int] = set()  # the ids of the copies that transforms pass to functions
        self._duplicated = ""  # names a container with several copies, which is part of several arguments

    def enter(self, copy: WatchedCopy) -> None:
        """Record a copy of an argument container of the current call."""
        real = copy.source.read()
        known = self.known.setdefault(id(real), _KnownContainer(real, copy.copy, copy.source))
        if known.copy is not copy.copy:
            self.again |= {id(known.copy), id(copy.copy)}
            self._duplicated = f"{known.source} is {copy.source}"

    def handed(self, real: object, source: Source) -> object:
        """The copy that traced code gets if another source leads to an argument container."""
        known = self.known[id(real)]
        self._world.assume(source, "same", known.source)
        self.again.add(id(known.copy))
        return known.copy

    def require_one(self) -> None:
        """Abort the trace if containers are compared by identity and one has several copies."""
        if self._duplicated and self._world.by_identity:
            raise RunsPlainly(f"{self._duplicated}, and containers are compared by identity")

    def real_and_source(self, result: object) -> tuple[object, Source] | None:
        """The object that `result` stands for, and its source; None if it stands for nothing from outside. Raises
        UnsupportedError for a copy made by a transform."""
        if id(result) in self.derived:
            description = f"id() of a {type(result).__name__} that is differentiated"
            raise UnsupportedError.everywhere(f"{description} is that of a copy; use something that it holds")
        results = [(x.real, x.source) for x in self.known.values() if x.copy is result]
        seen, sources = self._world._translations.items(), self._world._sources
        results += [(x, sources[key]) for key, (x, each) in seen if each is result and x is not result]
        return results[0] if results else None

    def sources(self) -> list[tuple[type, Source]]:
        """The class and the source of each container."""
        return [(type(x.real), x.source) for x in self.known.values()]
