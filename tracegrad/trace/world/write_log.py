"""What one trace has written: to attributes, items, names and arrays from outside, none of which has changed yet."""

from __future__ import annotations

import types
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from operator import setitem
from typing import Any

from tracegrad.trace.builder.inlinable import DERIVED
from tracegrad.trace.effects.effects import (
    Effect,
    Template,
    Watched,
    appended,
    attribute_kind,
    changed_names,
    changes,
    contents,
    delete_attribute,
    fill,
    fixed,
    place_of,
    plain_key,
    set_attribute,
    watched,
)
from tracegrad.trace.effects.result_template import Found, Node, Piece, Same, attributes
from tracegrad.trace.proxies import function_proxies as shadow
from tracegrad.trace.proxies.class_attributes import dict_of, is_dict_of, lend_dict
from tracegrad.trace.sources.class_patching import genuine
from tracegrad.trace.sources.code_origin import is_user_code
from tracegrad.trace.sources.sources import Attribute, Cell, Fixed, Item, Source, Static, Variable
from tracegrad.trace.values.container_proxies import LENT, lend
from tracegrad.trace.world.guards import keys_of

__all__ = ["Writes"]


class Writes:
    """The stand-ins that one trace has given out, and what was done to them."""

    def __init__(self) -> None:
        self._copies: dict[int, Watched] = {}
        self._lent: dict[int, Any] = {}
        self._reals: dict[int, Any] = {}  # the same by what they stand for
        self._objects: dict[int, Any] = {}
        self._owners: dict[int, Any] = {}  # the same by their `__dict__`, which may be found by itself
        # Classes and traced functions, which are given out as they are; and the tracers put in them for numbers.
        self._open: dict[Any, dict[str, Any]] = {}
        self._planted: dict[Hashable, tuple[Any, Any, Any, Any]] = {}
        self._held: dict[int, tuple[Any, Any, Source]] = {}  # containers of classes
        self._functions: list[tuple[Any, Any, dict[str, Any]]] = []
        self._spaces: dict[int, shadow.Globals] = {}
        self._cells: dict[int, tuple[types.CellType, types.CellType, Source]] = {}
        self._filled: dict[int, Any] = {}
        self._unfilled: dict[int, Source] = {}
        self._arrays: dict[int, tuple[Any, Any, Source]] = {}

    # -- what is given out -------------------------------------------------------------------------
    def lend(self, real: Any, source: Source, world: Any) -> Any:
        """What stands for a list, dict, set or deque."""
        made = lend(real, source, world)
        self._lent[id(made)] = made
        self._reals[id(real)] = made
        owner = self._owners.get(id(real))
        if owner is not None:
            is_dict_of(made, owner)
        return made

    @property
    def lent(self) -> list[Any]:
        """The lent containers."""
        return list(self._lent.values())

    def copied(self, made: Any, source: Source, world: Any = None, real: Any = None) -> Any:
        """`made`, the copy of the container that `source` has; given the world and the `real` container, with what
        stands for its attributes."""
        if world is not None:
            world.enter(real, made)
            cls: Any = type(real)
            if is_user_code(cls) and hasattr(real, "__dict__"):
                world.assume(Attribute(source, "__dict__"), "keys", keys_of(vars(real)))
            for name, x in attributes(made).items():
                object.__setattr__(made, name, world.translate(x, Attribute(source, name)))
        self._copies[id(made)] = Watched(made, source)
        return made

    def passed(self, x: Any, source: Source) -> list[Watched]:
        """`x` is a copy of the argument that `source` has: the containers in it, to which code may write."""
        found = [*watched(x, source)]
        self._copies |= {id(copy.copy): copy for copy in found}
        return found

    def array(self, value: Any, source: Source) -> None:
        """`value` is the tracer of the array that `source` has."""
        self._arrays[id(value)] = value, value.node, source

    def watch(self, x: Any, world: Any) -> None:
        """Traced code is given a class, or a traced function, as it is: but for numbers that vary."""
        if x in self._open:
            return
        for name, held in _attributes(x).items():
            place = place_of(x, name)
            self._plant(x, name, place, world)
            if type(held) in LENT:
                for k in held if isinstance(held, dict) else ():
                    self._plant(held, k, Item(place, k), world)
                self._held[id(held)] = held, contents(held), place
        self._open[x] = _attributes(x)

    def _plant(self, holder: Any, name: Any, place: Source, world: Any) -> None:
        """Put a tracer where a number is that varies."""
        if world.varying and place.key in world.varying:
            real = _at(holder, name)
            made = world.translate(real, place)
            self._planted[place.key] = holder, name, made, real
            _put(holder, name, made)

    def planted(self, place: Source) -> Source | None:
        """Where a tracer stood for the number at this place, which needs no guard then: there, or in a base class."""
        if not self._planted:
            return None
        place = place.inherited() if isinstance(place, Static) else place
        return place if place.key in self._planted else None

    def rewritten(self, cls: type, name: str) -> Static | None:
        """Where a class has an attribute that is no more what it was before the call."""
        place = Static(cls, name).inherited()
        before = self._open.get(place.parent)
        if before is None or (_at(place.parent, name) is before.get(name, self) and place.key not in self._planted):
            return None
        return place

    def renamed(self, source: Source) -> bool:
        """Whether traced code has assigned the variable at a source."""
        if isinstance(source, Cell):
            mine = next((made for made, real, _ in self._cells.values() if real is source.parent), None)
            return mine is not None and shadow.contents(mine) is not self._filled.get(id(mine), shadow.EMPTY)
        space = self._spaces.get(id(source.parent))
        return space is not None and dict.__contains__(space, source.name)

    def watch_function(self, real: Any, made: Any) -> None:
        """`made` is the shadow of a function."""
        self._functions.append((real, made, dict(made.__dict__)))

    def watch_object(self, made: Any) -> None:
        """`made` is the shadow of an object."""
        self._objects[id(made)] = made
        held = dict_of(made)
        if held is not None:
            self._owners[id(held)] = made
            if id(held) in self._reals:
                lend_dict(made)

    def globals_of(self, real: dict[str, Any], world: Any) -> shadow.Globals:
        """The namespace that shadows of functions with these globals run in."""
        found = self._spaces.get(id(real))
        if found is None:
            found = self._spaces[id(real)] = shadow.Globals(real, world)
        return found

    def cell(self, real: types.CellType, source: Cell) -> types.CellType:
        """The cell that shadows have for `real`; `fill` gives it its contents."""
        found = self._cells.get(id(real))
        if found is None:
            found = self._cells[id(real)] = (types.CellType(), real, source)
            self._unfilled[id(found[0])] = source
        return found[0]

    def fill(self, cell: types.CellType, translate: Callable[[Any, Source], Any]) -> None:
        """Translate what a cell is to hold, once; one that is empty stays so."""
        source = self._unfilled.pop(id(cell), None)
        # The source may lead through a class, which has functions of ours in the place of its own for now.
        held = shadow.EMPTY if source is None else shadow.contents(source.parent)
        if source is not None and held is not shadow.EMPTY:
            cell.cell_contents = translate(held, source)
            self._filled[id(cell)] = cell.cell_contents

    # -- the end -----------------------------------------------------------------------------------
    def piece_of(self, x: Any) -> Piece | None:
        """The template of what stands for something from outside; None for other values."""
        key = id(x)
        if key in self._arrays:
            return Found(self._arrays[key][2])
        if key in self._lent:
            return Found(x._loan.source)
        if key in self._copies:
            return Found(self._copies[key].source)
        source = shadow.source_of(x)
        if source is not None:
            return Found(source)
        if isinstance(x, types.FunctionType):
            return next((Same(real) for real, made, _ in self._functions if made is x), None)
        real = shadow.unshadowed(x)
        return None if real is x else Same(real)

    def arrays(self, output: Callable[[Any], Piece]) -> Iterator[Effect]:
        """What was written into arrays; `output` makes the template of a traced value."""
        for value, node, source in self._arrays.values():
            if value.origin is None and value.node is not node:  # into a view is into its base
                yield Effect("data", source, None, output(value))

    def effects(self, template: Template) -> Iterator[Effect]:
        """What else was written; `template` makes the template of a value."""
        yield from self._containers(template)
        yield from self._names(template)

    def putters(self) -> dict[tuple[Hashable, Any], Callable[[Any], None]]:
        """What puts another value into the place of one that was written, by the holder's key and the name or key:
        attributes of objects, items of dicts, and global variables."""
        found: dict[tuple[Hashable, Any], Callable[[Any], None]] = {}
        for made in self._objects.values():
            now, _, source = shadow.written(made)
            found |= {(source.key, k): partial(shadow.write, made, k) for k in now}
        for lent in self._lent.values():
            if isinstance(lent, dict):
                key = lent._loan.source.key  # type: ignore[attr-defined]
                found |= {(key, k): partial(setitem, lent, k) for k in contents(lent)}
        for space in self._spaces.values():
            holder = Fixed(space.real, "the globals")
            found |= {(holder.key, k): partial(dict.__setitem__, space, k) for k in dict.keys(space)}
        return found

    def to_tell_apart(
        self, effects: Sequence[Effect], is_fixed: Callable[[Source], bool]
    ) -> tuple[tuple[Source, ...], ...]:
        """Where containers, or objects, of one type are found of which the `effects` change one: what was several while
        the function was traced must not be one. Of objects only those that are not always the same ones."""
        found: dict[type, dict[Hashable, Source]] = {}
        places = [(type(x._loan.real), x._loan.source) for x in self._lent.values()]
        places += [(type(x.copy), x.source) for x in self._copies.values()]
        objects = [(type(x), shadow.written(x)[2]) for x in self._objects.values()]
        for cls, source in (*places, *(each for each in objects if not is_fixed(each[1]))):
            found.setdefault(cls, {})[source.key] = source
        written = {e.holder.key for e in effects}
        return tuple([(*group.values(),) for group in found.values() if len(group) > 1 and written & group.keys()])

    def places(self) -> list[tuple[Any, str]]:
        """All that has been written until now: what tells the place and the value from others, and its name."""
        found = []
        for e in self.effects(Same):
            assert isinstance(e.piece, Same | Node)
            values = [e.piece] if isinstance(e.piece, Same) else e.piece.parts
            key = (e.kind, e.holder.key, repr(e.key), *(id(x.value) for x in values if isinstance(x, Same)))
            found.append((key, str(e.holder) if e.key is None else f"{e.key!r} of {e.holder}"))
        return found

    def _containers(self, template: Template) -> Iterator[Effect]:
        for lent in list(self._lent.values()):
            lent.settle()
            loan = lent._loan
            if loan.added and not loan.whole:
                kind = "added" if isinstance(loan.real, set) else "extended"
                yield appended(loan.added, loan.source, template, kind)
            else:
                yield from changes(
                    lent, contents(loan.before), loan.source, template, dict.fromkeys(map(plain_key, loan.blind))
                )
        for copy in list(self._copies.values()):
            yield from copy.changes(template)
        for x, before, source in self._held.values():
            yield from changes(x, before, source, template)

    def _names(self, template: Template) -> Iterator[Effect]:
        for made in list(self._objects.values()):
            now, before, source = shadow.written(made)
            yield from changed_names(now, before, source, template, attribute_kind(shadow.real_class(made)))
        for space in self._spaces.values():
            holder = Fixed(space.real, "the globals")
            for k, x in list(dict.items(space)):
                if k != "__builtins__":
                    yield Effect("item", holder, k, template(x))
        for mine, real, source in self._cells.values():
            if shadow.contents(mine) is not self._filled.get(id(mine), shadow.EMPTY):
                yield Effect("cell", _cell_of(source, real), None, template(mine.cell_contents))
        for x, before in self._open.items():
            yield from changed_names(_attributes(x), before, fixed(x), template, "static")
        for real, made, before in self._functions:
            now, then = ({k: x for k, x in held.items() if k != DERIVED} for held in (made.__dict__, before))
            yield from changed_names(now, then, fixed(real), template, "static")

    @contextmanager
    def apart(self) -> Iterator[None]:
        """While code runs that each call will run: what it does to classes is not for calls to repeat.

        Only where the traced code has done nothing yet; else it cannot be told who did what.
        """
        held = [k for k, (x, before, source) in self._held.items() if not any(changes(x, before, source, Same))]
        known = [x for x, before in self._open.items() if _same(_attributes(x), before)]
        planted = {key: each for key, each in self._planted.items() if _at(*each[:2]) is each[2]}
        for holder, name, _, real in planted.values():
            _put(holder, name, real)
        try:
            yield
        finally:
            for key, (holder, name, made, real) in planted.items():
                if _at(holder, name) is real:
                    _put(holder, name, made)
                else:
                    del self._planted[key]
            for k in held:
                x, _, source = self._held[k]
                self._held[k] = x, contents(x), source
            for x in known:
                self._open[x] = _attributes(x)

    def restore(self) -> None:
        """Leave classes and traced functions as they were."""
        for x, before, _ in self._held.values():
            fill(x, before)
        for x, before in self._open.items():
            for name in [k for k in _attributes(x) if k not in before]:
                delete_attribute(x, name)
            for name, value in before.items():
                if _attributes(x).get(name, shadow.EMPTY) is not value:
                    set_attribute(x, name, value)
        for holder, name, _, real in self._planted.values():
            _put(holder, name, real)


def _attributes(x: Any) -> dict[str, Any]:
    """What a class holds, or users have put into a traced function."""
    return {k: genuine(held) for k, held in vars(x).items()} if isinstance(x, type) else x.labels()


def _at(holder: Any, name: Any) -> Any:
    """What a class, a traced function or a dict holds; EMPTY for nothing."""
    return genuine((holder if isinstance(holder, dict) else vars(holder)).get(name, shadow.EMPTY))


def _put(holder: Any, name: Any, value: Any) -> None:
    """Let it hold `value`, whatever a metaclass does to attributes that are set."""
    if isinstance(holder, dict):
        holder[name] = value
    else:
        set_attribute(holder, name, value)


def _same(now: dict[str, Any], before: dict[str, Any]) -> bool:
    return now.keys() == before.keys() and all(x is before[k] for k, x in now.items())


def _cell_of(source: Source, real: types.CellType) -> Source:
    """Where the cell is found that `source` reads."""
    return source.place.parent if isinstance(source, Variable) else Fixed(real, source.name)
