"""The containers among the arguments, of which traced code has copies: one that code reads by another name too, or that
is several arguments, is one copy."""

from __future__ import annotations

from typing import Any, NamedTuple

from tracegrad.errors import UnsupportedError
from tracegrad.trace.builder.abort import RunsPlainly
from tracegrad.trace.effects.effects import Watched
from tracegrad.trace.sources.sources import Source

__all__ = ["Containers"]


class _Passed(NamedTuple):
    real: Any
    copy: Any
    source: Source


class Containers:
    """Those of one trace."""

    def __init__(self, world: Any):
        self._world = world
        self.known: dict[int, _Passed] = {}  # by the id of the container
        self.again: set[int] = set()  # the ids of the copies that have a second name
        self.derived: set[int] = set()  # those of the copies that transforms give functions
        self._several = ""  # a container with several copies, as it is part of several arguments

    def enter(self, copy: Watched) -> None:
        """Traced code has this copy of a container of the arguments of the call under way."""
        real = copy.source.read()
        known = self.known.setdefault(id(real), _Passed(real, copy.copy, copy.source))
        if known.copy is not copy.copy:
            self.again |= {id(known.copy), id(copy.copy)}
            self._several = f"{known.source} is {copy.source}"

    def handed(self, real: Any, source: Source) -> Any:
        """What traced code gets for a container of the arguments that another source leads to."""
        known = self.known[id(real)]
        self._world.assume(source, "same", known.source)
        self.again.add(id(known.copy))
        return known.copy

    def require_one(self) -> None:
        """End the trace where containers are compared by identity, and one has several copies."""
        if self._several and self._world.by_identity:
            raise RunsPlainly(f"{self._several}, and containers are compared by identity")

    def place_of(self, made: Any) -> tuple[Any, Source] | None:
        """What `made` stands for, and where that is; None for what stands for nothing from outside. UnsupportedError
        for a copy that a transform has made."""
        if id(made) in self.derived:
            what = f"id() of a {type(made).__name__} that is differentiated"
            raise UnsupportedError.everywhere(f"{what} is that of a copy; use something that it holds")
        found = [(x.real, x.source) for x in self.known.values() if x.copy is made]
        seen, places = self._world._seen.items(), self._world._places
        found += [(x, places[key]) for key, (x, each) in seen if each is made and x is not made]
        return found[0] if found else None

    def sources(self) -> list[tuple[type, Source]]:
        """The class of each, and where it is."""
        return [(type(x.real), x.source) for x in self.known.values()]
