"""Log the writes of one trace to attributes, items, names and arrays from outside, which have not changed yet."""

from __future__ import annotations

import types
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from operator import setitem
from typing import Any

from tracegrad.trace.builder.facts import NumberFact
from tracegrad.trace.builder.inlinable import DERIVED
from tracegrad.trace.effects.effects import (
    Effect,
    Template,
    WatchedCopy,
    appended,
    attribute_kind,
    attribute_source,
    changed_names,
    changes,
    contents,
    delete_attribute,
    fill,
    fixed,
    plain_key,
    set_attribute,
    watched,
)
from tracegrad.trace.effects.result_template import (
    ConstantTemplate,
    ContainerTemplate,
    ResultTemplate,
    SourceTemplate,
    attributes,
)
from tracegrad.trace.proxies import function_proxies
from tracegrad.trace.proxies.class_attributes import dict_of, is_dict_of, proxy_of_dict
from tracegrad.trace.sources.class_patching import genuine
from tracegrad.trace.sources.code_origin import is_user_code
from tracegrad.trace.sources.sources import Attribute, ClosureCell, ClosureVariable, Fixed, Item, Source, Static
from tracegrad.trace.values.container_proxies import PROXIED_CLASSES, container_proxy
from tracegrad.trace.world.guards import keys_of


class Writes:
    """Proxies made by one trace, and the writes to them."""

    def __init__(self) -> None:
        self._copies: dict[int, WatchedCopy] = {}
        self._proxies: dict[int, Any] = {}
        self._reals: dict[int, Any] = {}  # container proxies, by the id of the real container
        self._objects: dict[int, Any] = {}
        self._owners: dict[int, Any] = {}  # object shadows, by the id of the real `__dict__`
        # Classes and traced functions, which traced code receives unchanged, and tracers that replace numbers in them.
        self._open: dict[Any, dict[str, Any]] = {}
        self._planted: dict[Hashable, tuple[Any, Any, Any, Any]] = {}
        self._held: dict[int, tuple[Any, Any, Source]] = {}  # containers in class attributes
        self._functions: list[tuple[Any, Any, dict[str, Any]]] = []
        self._spaces: dict[int, function_proxies.Globals] = {}
        self._cells: dict[int, tuple[types.CellType, types.CellType, Source]] = {}
        self._filled: dict[int, Any] = {}
        self._unfilled: dict[int, Source] = {}
        self._arrays: dict[int, tuple[Any, Any, Source]] = {}

    # -- proxies and copies ------------------------------------------------------------------------
    def container_proxy(self, real: object, source: Source, world: object) -> object:
        """The proxy of a list, dict, set or deque."""
        result = container_proxy(real, source, world)
        self._proxies[id(result)] = result
        self._reals[id(real)] = result
        owner = self._owners.get(id(real))
        if owner is not None:
            is_dict_of(result, owner)
        return result

    @property
    def container_proxies(self) -> list[Any]:
        """The container proxies."""
        return list(self._proxies.values())

    def copied(self, result: Any, source: Source, world: Any = None, real: Any = None) -> Any:
        """Record `result`, the copy of the container at `source`.

        With the world and the `real` container, its attributes become proxies too.
        """
        if world is not None:
            world.enter(real, result)
            cls: Any = type(real)
            if is_user_code(cls) and hasattr(real, "__dict__"):
                world.assume(Attribute(source, "__dict__"), "keys", keys_of(vars(real)))
            for name, x in attributes(result).items():
                object.__setattr__(result, name, world.translate(x, Attribute(source, name)))
        self._copies[id(result)] = WatchedCopy(result, source)
        return result

    def passed(self, x: object, source: Source) -> list[WatchedCopy]:
        """Record the containers in `x`, a copy of the argument at `source`, because code may write to them."""
        results = [*watched(x, source)]
        self._copies |= {id(copy.copy): copy for copy in results}
        return results

    def array(self, value: Any, source: Source) -> None:
        """Record `value`, the tracer of the array at `source`."""
        self._arrays[id(value)] = value, value.node, source

    def watch(self, x: object, world: object) -> None:
        """Record a class or a traced function that traced code receives unchanged, except for numbers that vary."""
        if x in self._open:
            return
        for name, held in _attributes(x).items():
            source = attribute_source(x, name)
            self._plant(x, name, source, world)
            if type(held) in PROXIED_CLASSES:
                for k in held if isinstance(held, dict) else ():
                    self._plant(held, k, Item(source, k), world)
                self._held[id(held)] = held, contents(held), source
        self._open[x] = _attributes(x)

    def _plant(self, holder: Any, name: Any, source: Source, world: Any) -> None:
        """Replace a varying number by a tracer."""
        if world.facts and NumberFact(source.key) in world.facts:
            real = _at(holder, name)
            result = world.translate(real, source)
            self._planted[source.key] = holder, name, result, real
            _set_value(holder, name, result)

    def planted(self, source: Source) -> Source | None:
        """The location where a tracer replaces the number at this source, which then needs no guard: the source itself,
        or a base class."""
        if not self._planted:
            return None
        source = source.inherited() if isinstance(source, Static) else source
        return source if source.key in self._planted else None

    def rewritten(self, cls: type, name: str) -> Static | None:
        """The source of a class attribute that differs from its value before the call; None if it is unchanged."""
        attribute = Static(cls, name).inherited()
        before = self._open.get(attribute.parent)
        if before is None or (
            _at(attribute.parent, name) is before.get(name, self) and attribute.key not in self._planted
        ):
            return None
        return attribute

    def renamed(self, source: Source) -> bool:
        """Whether traced code has assigned the variable at a source."""
        if isinstance(source, ClosureCell):
            shadow_cell = next((result for result, real, _ in self._cells.values() if real is source.parent), None)
            return shadow_cell is not None and function_proxies.contents(shadow_cell) is not self._filled.get(
                id(shadow_cell), function_proxies.EMPTY
            )
        space = self._spaces.get(id(source.parent))
        return space is not None and dict.__contains__(space, source.name)

    def watch_function(self, real: object, result: object) -> None:
        """Record `result`, the shadow of a function."""
        self._functions.append((real, result, dict(result.__dict__)))

    def watch_object(self, result: object) -> None:
        """Record `result`, the shadow of an object."""
        self._objects[id(result)] = result
        held = dict_of(result)
        if held is not None:
            self._owners[id(held)] = result
            if id(held) in self._reals:
                proxy_of_dict(result)

    def globals_of(self, real: dict[str, Any], world: object) -> function_proxies.Globals:
        """The namespace of shadows of functions with these globals."""
        result = self._spaces.get(id(real))
        if result is None:
            result = self._spaces[id(real)] = function_proxies.Globals(real, world)
        return result

    def cell(self, real: types.CellType, source: ClosureCell) -> types.CellType:
        """The cell for shadows instead of `real`; `fill` sets its contents."""
        results = self._cells.get(id(real))
        if results is None:
            results = self._cells[id(real)] = (types.CellType(), real, source)
            self._unfilled[id(results[0])] = source
        return results[0]

    def fill(self, cell: types.CellType, translate: Callable[[Any, Source], Any]) -> None:
        """Translate the contents of a cell once; an empty cell stays empty."""
        source = self._unfilled.pop(id(cell), None)
        # The source may lead through a class, whose functions are replaced during the trace.
        held = function_proxies.EMPTY if source is None else function_proxies.contents(source.parent)
        if source is not None and held is not function_proxies.EMPTY:
            cell.cell_contents = translate(held, source)
            self._filled[id(cell)] = cell.cell_contents

    # -- the end -----------------------------------------------------------------------------------
    def template_of(self, x: Any) -> ResultTemplate | None:
        """The template of the stand-in of an outside object; None for other values."""
        key = id(x)
        if key in self._arrays:
            return SourceTemplate(self._arrays[key][2])
        if key in self._proxies:
            return SourceTemplate(x._state.source)
        if key in self._copies:
            return SourceTemplate(self._copies[key].source)
        source = function_proxies.source_of(x)
        if source is not None:
            return SourceTemplate(source)
        if isinstance(x, types.FunctionType):
            return next((ConstantTemplate(real) for real, result, _ in self._functions if result is x), None)
        real = function_proxies.unshadowed(x)
        return None if real is x else ConstantTemplate(real)

    def arrays(self, output: Callable[[Any], ResultTemplate]) -> Iterator[Effect]:
        """The effects on arrays; `output` makes the template of a traced value."""
        for value, node, source in self._arrays.values():
            if value.origin is None and value.node is not node:  # a write into a view is a write into its base
                yield Effect("data", source, None, output(value))

    def effects(self, template: Template) -> Iterator[Effect]:
        """The other effects; `template` makes the template of a value."""
        yield from self._containers(template)
        yield from self._names(template)

    def putters(self) -> dict[tuple[Hashable, Any], Callable[[Any], None]]:
        """Functions that replace a written value, by the holder's key and the name or key: attributes of objects, items
        of dicts, and global variables."""
        table: dict[tuple[Hashable, Any], Callable[[Any], None]] = {}
        for result in self._objects.values():
            now, _, source = function_proxies.written(result)
            table |= {(source.key, k): partial(function_proxies.write, result, k) for k in now}
        for proxy in self._proxies.values():
            if isinstance(proxy, dict):
                key = proxy._state.source.key  # type: ignore[attr-defined]
                table |= {(key, k): partial(setitem, proxy, k) for k in contents(proxy)}
        for space in self._spaces.values():
            holder = Fixed(space.real, "the globals")
            table |= {(holder.key, k): partial(dict.__setitem__, space, k) for k in dict.keys(space)}
        return table

    def distinct_groups(
        self, effects: Sequence[Effect], is_fixed: Callable[[Source], bool]
    ) -> tuple[tuple[Source, ...], ...]:
        """The sources of containers and objects of one type if the `effects` change one of them: distinct objects must
        stay distinct. Objects at fixed sources are excluded."""
        table: dict[type, dict[Hashable, Source]] = {}
        containers = [(type(x._state.real), x._state.source) for x in self._proxies.values()]
        containers += [(type(x.copy), x.source) for x in self._copies.values()]
        objects = [(type(x), function_proxies.written(x)[2]) for x in self._objects.values()]
        for cls, source in (*containers, *(each for each in objects if not is_fixed(each[1]))):
            table.setdefault(cls, {})[source.key] = source
        written = {e.holder.key for e in effects}
        return tuple([(*group.values(),) for group in table.values() if len(group) > 1 and written & group.keys()])

    def written_locations(self) -> list[tuple[Any, str]]:
        """All locations written so far: a key of location and value, and the name."""
        results = []
        for e in self.effects(ConstantTemplate):
            assert isinstance(e.template, ConstantTemplate | ContainerTemplate)
            values = [e.template] if isinstance(e.template, ConstantTemplate) else e.template.children
            key = (e.kind, e.holder.key, repr(e.key), *(id(x.value) for x in values if isinstance(x, ConstantTemplate)))
            results.append((key, str(e.holder) if e.key is None else f"{e.key!r} of {e.holder}"))
        return results

    def _containers(self, template: Template) -> Iterator[Effect]:
        for proxy in list(self._proxies.values()):
            proxy.flush()
            state = proxy._state
            if state.added and not state.whole:
                kind = "added" if isinstance(state.real, set) else "extended"
                yield appended(state.added, state.source, template, kind)
            else:
                yield from changes(
                    proxy, contents(state.before), state.source, template, dict.fromkeys(map(plain_key, state.blind))
                )
        for copy in list(self._copies.values()):
            yield from copy.changes(template)
        for x, before, source in self._held.values():
            yield from changes(x, before, source, template)

    def _names(self, template: Template) -> Iterator[Effect]:
        for result in list(self._objects.values()):
            now, before, source = function_proxies.written(result)
            yield from changed_names(now, before, source, template, attribute_kind(function_proxies.real_class(result)))
        for space in self._spaces.values():
            holder = Fixed(space.real, "the globals")
            for k, x in list(dict.items(space)):
                if k != "__builtins__":
                    yield Effect("item", holder, k, template(x))
        for shadow_cell, real, source in self._cells.values():
            if function_proxies.contents(shadow_cell) is not self._filled.get(id(shadow_cell), function_proxies.EMPTY):
                yield Effect("cell", _cell_of(source, real), None, template(shadow_cell.cell_contents))
        for x, before in self._open.items():
            yield from changed_names(_attributes(x), before, fixed(x), template, "static")
        for real, result, before in self._functions:
            now, then = ({k: x for k, x in held.items() if k != DERIVED} for held in (result.__dict__, before))
            yield from changed_names(now, then, fixed(real), template, "static")

    @contextmanager
    def excluded(self) -> Iterator[None]:
        """Run code that each call will run again: its changes to classes are not effects (context manager).

        It covers only objects that the traced code has not changed, because changes of both cannot be separated.
        """
        held = [
            k for k, (x, before, source) in self._held.items() if not any(changes(x, before, source, ConstantTemplate))
        ]
        known = [x for x, before in self._open.items() if _same(_attributes(x), before)]
        planted = {key: each for key, each in self._planted.items() if _at(*each[:2]) is each[2]}
        for holder, name, _, real in planted.values():
            _set_value(holder, name, real)
        try:
            yield
        finally:
            for key, (holder, name, result, real) in planted.items():
                if _at(holder, name) is real:
                    _set_value(holder, name, result)
                else:
                    del self._planted[key]
            for k in held:
                x, _, source = self._held[k]
                self._held[k] = x, contents(x), source
            for x in known:
                self._open[x] = _attributes(x)

    def restore(self) -> None:
        """Restore classes and traced functions."""
        for x, before, _ in self._held.values():
            fill(x, before)
        for x, before in self._open.items():
            for name in [k for k in _attributes(x) if k not in before]:
                delete_attribute(x, name)
            for name, value in before.items():
                if _attributes(x).get(name, function_proxies.EMPTY) is not value:
                    set_attribute(x, name, value)
        for holder, name, _, real in self._planted.values():
            _set_value(holder, name, real)


def _attributes(x: Any) -> dict[str, Any]:
    """The attributes of a class, or the user-set attributes of a traced function."""
    return {k: genuine(held) for k, held in vars(x).items()} if isinstance(x, type) else x.labels()


def _at(holder: Any, name: object) -> Any:
    """An attribute or item of a class, a traced function or a dict; EMPTY if there is none."""
    return genuine((holder if isinstance(holder, dict) else vars(holder)).get(name, function_proxies.EMPTY))


def _set_value(holder: Any, name: Any, value: object) -> None:
    """Set it to `value`, bypassing a metaclass's `__setattr__`."""
    if isinstance(holder, dict):
        holder[name] = value
    else:
        set_attribute(holder, name, value)


def _same(now: dict[str, object], before: dict[str, object]) -> bool:
    return now.keys() == before.keys() and all(x is before[k] for k, x in now.items())


def _cell_of(source: Source, real: types.CellType) -> Source:
    """The source of the cell that `source` reads."""
    return source.cell_source.parent if isinstance(source, ClosureVariable) else Fixed(real, source.name)
