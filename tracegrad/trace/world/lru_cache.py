"""Trace functions with a `functools.lru_cache`: each call queries the real cache.

The result is the cached one, even if outside state has changed since. On a cache miss the function runs with its side
effects. Traced numbers are read as keys, as for dicts. The function runs on the traced number itself only if reading
would lose a derivative, or if the function depends on nothing else, so that the cache makes no difference.
"""

from __future__ import annotations

import functools
import gc
import types
from collections.abc import Hashable, Iterator
from typing import Any

import numpy as np

from tracegrad import tree
from tracegrad.ops import Carrier
from tracegrad.trace.bytecode.code_queries import assigned_variables
from tracegrad.trace.proxies import function_proxies
from tracegrad.trace.proxies.opaque_state import is_constant
from tracegrad.trace.sources.class_patching import CACHED
from tracegrad.trace.sources.code_origin import is_user_code, is_user_function, is_user_module
from tracegrad.trace.sources.sources import Names, Source
from tracegrad.trace.values.text_conversions import spells
from tracegrad.trace.world.mutation_snapshots import Unseen
from tracegrad.trace.world.reachable_writes import WrittenObjects, variables


class Cached(Source):
    """The result of a cached function, the parent, for the positional and keyword arguments in `name`."""

    __slots__ = ()
    acts = True

    @property
    def key(self) -> Hashable:
        args, kwargs = self.name
        return Cached, id(self.parent), tuple(map(_key, args)), tuple([(k, _key(x)) for k, x in kwargs.items()])

    def read(self) -> Any:
        args, kwargs = self.name
        try:
            return self.parent(*args, **kwargs)
        except Exception as error:  # the function raises it again where it is called
            raise LookupError(str(error)) from None

    def text(self, name: Names) -> str:
        return f"{name(self.read)}()"

    @property
    def path(self) -> str:
        args, kwargs = self.name
        inputs = [*map(repr, args), *(f"{k}={x!r}" for k, x in kwargs.items())]
        return f"{self.parent.__name__}({', '.join(inputs)})"


class Remembered(Cached):
    """The cached result of a function, read only if the cache surely has it, because the function may have side
    effects.

    A full cache drops a result when it stores another one, and an emptied cache drops all and resets its counts.
    """

    __slots__ = ("_misses", "_total")

    def __init__(self, parent: Any, name: Any):
        super().__init__(parent, name)
        self._note()

    def _note(self) -> None:
        info = self.parent.cache_info()
        self._misses, self._total = info.misses, info.hits + info.misses

    def read(self) -> Any:
        info = self.parent.cache_info()
        has_room = info.maxsize is None or info.currsize < info.maxsize
        known = _has(self.parent, *self.name)
        if known is None:
            known = info.hits + info.misses >= self._total
        if not known or not (info.misses == self._misses or has_room):
            raise LookupError(f"the cache of {self.parent.__name__} may have forgotten an answer")
        result = super().read()
        self._note()
        return result


def _has(fun: Any, args: Any, kwargs: Any) -> bool | None:
    """Whether the cache of a function has a result; None if this cannot be determined without calling it."""
    if kwargs or fun.cache_parameters()["typed"]:
        return None
    size = fun.cache_info().currsize
    caches = [x for x in gc.get_referents(fun) if type(x) is dict and x is not fun.__dict__ and len(x) == size]
    key = args[0] if len(args) == 1 and type(args[0]) in (int, str) else args
    return key in caches[0] if len(caches) == 1 else None


def _key(x: object) -> Hashable:
    if type(x) is tuple:
        return tuple, *map(_key, x)
    return type(x), x if isinstance(x, function_proxies.VALUES) else id(x)


class _TraceInternal(Exception):
    """Raised for a value made by the trace itself, which cannot be a cache key."""


def cached(real: Any, within: Source, world: Any) -> Any:
    """The stand-in of a cached function; `within` is the source of the wrapped function."""

    @functools.wraps(real.__wrapped__)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not world.open:
            return real(*args, **kwargs)
        every = (*args, *kwargs.values())
        may_differ = any(_state(real, every))
        try:
            inputs = _cache_arguments(args, kwargs, world, may_differ)
        except _TraceInternal:
            inside = _run(world, real, within, args, kwargs)
            if _is_value(inside):
                return inside
            try:  # a mutable result must be the object in the cache
                inputs = _cache_arguments(args, kwargs, world, True)
            except _TraceInternal:
                return inside
        result, kind = _queried(world, real, *inputs)
        return world.translate(result, kind(real, inputs))

    def refused(*_: Any, **__: Any) -> Any:
        raise world.builder.abort(f"the cache of {real.__name__} is looked at or emptied")

    vars(call).update(cache_info=real.cache_info, cache_clear=real.cache_clear)
    if not world.once:
        vars(call).update(cache_info=refused, cache_clear=refused)
    world.enter(real, call)
    vars(call).update(__wrapped__=world.translate(real.__wrapped__, within))
    return call


def _queried(world: Any, real: Any, args: Any, kwargs: Any) -> tuple[Any, type[Cached]]:
    """The result of the cache, or else of the function, outside of the trace, and the source class that reads it
    again."""
    name = real.__name__
    if world.changed and WrittenObjects(world).may_be_reached([real, *args, *kwargs.values()]):
        raise world.builder.abort(f"{name}, which has a cache, may read what was written before it is called")
    if world.once:
        return real(*args, **kwargs), Cached
    # Guards read the cache before it is known whether a call reaches this line.
    acts = any(x for *_, x in _state(real, (*args, *kwargs.values())))
    kind = Remembered if acts and world.builder.guards else Cached
    missed, held, snapshot = real.cache_info().misses, world.held(), Unseen()
    for fun in _reached(real):
        snapshot.watch(fun)
    try:
        with world.builder.aside():
            result = real(*args, **kwargs)
    except Exception as error:  # no cache stores exceptions, so a call runs the function again
        snapshot.restore()
        raise world.builder.abort(f"{name}, which has a cache, raises {type(error).__name__}") from error
    changed = [g for g in held if not g.holds()] if real.cache_info().misses != missed else []
    if changed:
        raise world.builder.abort(f"{name}, which has a cache, changes {changed[0].source}, which was read before")
    return result, kind


def _run(world: Any, real: Any, within: Source, args: Any, kwargs: Any) -> object:
    """Run the function in the trace."""
    before = world.writes.written_locations()
    result = world.translate(real.__wrapped__, within)(*args, **kwargs)
    if world.writes.written_locations() != before and not world.once:
        raise world.builder.abort(f"{real.__name__} changes something, which its cache keeps from happening again")
    return result


def _cache_arguments(args: Any, kwargs: Any, world: Any, may_differ: bool) -> tuple[Any, dict[str, Any]]:
    return _outside(args, world, may_differ), {k: _outside(x, world, may_differ) for k, x in kwargs.items()}


def _outside(x: Any, world: Any, may_differ: bool) -> Any:
    """The argument to pass to the cache; raises an exception if it must not be a key. A traced number is read only if
    the result of the cache may differ from the result of the function, which is the last argument."""
    if isinstance(x, Carrier):
        return _read_number(x, may_differ)
    if isinstance(x, function_proxies.VALUES):
        if isinstance(x, str) and spells(x):
            raise _TraceInternal  # the trace follows the uses of the text
        return x
    if type(x) is tuple:
        return tuple([_outside(y, world, may_differ) for y in x])
    if type(x).__hash__ is None:
        hash(function_proxies.unshadowed(x))  # raises Python's error
    result = function_proxies.unshadowed(x)
    if result is x:
        result = world.real_of(x)
    if result is x and (isinstance(x, types.FunctionType) or tree.is_node(x) or function_proxies.is_user_object(x)):
        raise _TraceInternal
    return result


def _read_number(x: Any, may_differ: bool) -> object:
    builder = getattr(x, "builder", None)
    if builder is None:
        raise _TraceInternal
    if x.shape or x.is_array:
        hash(x)  # raises Python's error
    innermost = builder.innermost()
    if not innermost.knows(x) or innermost.has_derivative(x.node) or not may_differ:
        raise _TraceInternal
    return x._plain("hash()")


def _state(real: object, args: Any) -> Iterator[tuple[Source | None, Any, bool]]:
    """The mutable state that a function may read, its own cache included: the source if it is in a variable, the
    object, and whether the function may change it."""
    yield from ((None, x, True) for x in args if not _is_immutable(x))
    for fun in _reached(real):
        defaults = (*(fun.__defaults__ or ()), *(fun.__kwdefaults__ or {}).values())
        yield from ((None, x, True) for x in defaults if not _is_immutable(x))
        assigned = {name for _, name in assigned_variables(fun.__code__)}
        for source, value in variables(fun):
            if value is real:
                yield source, None, False
            elif not _is_function(value) and not _is_code(value):
                yield (
                    source,
                    value,
                    source.name in assigned or not isinstance(value, (*function_proxies.VALUES, np.ndarray)),
                )


def _is_value(x: object) -> bool:
    """Whether a result cannot be distinguished from an equal one."""
    if type(x) is tuple:
        return all(map(_is_value, x))
    if isinstance(x, Carrier):
        number: Any = x
        return not (number.shape or number.is_array)
    return isinstance(x, (type, *function_proxies.VALUES))


def _is_immutable(x: object) -> bool:
    return all(map(_is_immutable, x)) if type(x) is tuple else isinstance(x, (*function_proxies.VALUES, Carrier))


def _reached(real: object) -> list[types.FunctionType]:
    """The user functions that a function may run: itself, and the functions that it names."""
    table: dict[types.FunctionType, None] = {}
    waiting = [real]
    while waiting:
        fun = waiting.pop()
        fun = getattr(fun, "__wrapped__", fun)
        if isinstance(fun, types.FunctionType) and fun not in table:
            table[fun] = None
            waiting += [value for _, value in variables(fun) if _is_function(value)]
    return list(table)


def _is_function(x: object) -> bool:
    return is_user_function(x) or isinstance(x, CACHED)


def _is_code(x: object) -> bool:
    if isinstance(x, types.ModuleType):
        return not is_user_module(x)
    if isinstance(x, type):
        return not is_user_code(x)
    return not isinstance(x, np.ndarray) and is_constant(x)
