"""Proxies of library objects: objects of Python and SciPy, and instances of C classes.

Many objects stand for themselves, and their state is guarded (`tracegrad.trace.proxies.opaque_state`). An object whose
results change between calls is replaced by a proxy that reads it again. A bound method of a built-in class is the
method of its owner's proxy.
"""

from __future__ import annotations

import array
import logging
import pathlib
import types
from collections import ChainMap
from contextvars import ContextVar
from typing import Any

from tracegrad.errors import UnsupportedError, located
from tracegrad.scipy_api import Attributes, is_factors, replacement_of
from tracegrad.trace.proxies.ambient_state import ContextVariable, of_settings
from tracegrad.trace.proxies.file_access import path
from tracegrad.trace.proxies.logging_proxy import Logger
from tracegrad.trace.proxies.module_proxies import replacement
from tracegrad.trace.proxies.opaque_state import C_FUNCTIONS, is_constant
from tracegrad.trace.random.rejected_reads import read_up
from tracegrad.trace.sources.consumed_iterators import is_read_up
from tracegrad.trace.sources.sources import Attribute, Item, Source
from tracegrad.trace.sources.state_sources import FunctionResult, underlying_mapping

__all__ = ["of_python"]


def of_python(world: Any, value: Any, source: Source) -> Any:
    """The stand-in of an object of Python or of an installed package."""
    replaced = of_settings(world, value)
    if replaced is None:
        replaced = replacement(value)
    if replaced is None and (type(value).__module__.startswith("scipy.") or is_factors(value)):
        replaced = replacement_of(value, _AttributeReader(world, value, source))
    if replaced is not None:
        return replaced
    for classes, result in _PROXIES:
        if isinstance(value, classes):
            return result(world, value, source)
    if isinstance(value, C_FUNCTIONS) and not is_constant(value):
        owner = world.translate(value.__self__, Attribute(source, "__self__"))
        return value if owner is value.__self__ else getattr(owner, value.__name__)
    if is_read_up(value):
        return read_up(value, str(source))
    world.natives.note_object(value, source)
    return value


class _AttributeReader(Attributes):
    """Reader of the attributes of a SciPy object from outside."""

    def __init__(self, world: Any, value: Any, source: Source):
        super().__init__(value)
        self._world, self._source = world, source

    def __call__(self, name: str) -> Any:
        return self._world.translate(getattr(self.value, name), Attribute(self._source, name))

    def whole(self) -> None:
        self._world.natives.note_object(self.value, self._source)


def _chained(world: Any, value: Any, source: Source) -> Any:
    maps = Attribute(source, "maps")
    world.assume(maps, "keys", (list, len(value.maps)))
    return type(value)(*[world.translate(x, Item(maps, i)) for i, x in enumerate(value.maps)])


def _proxy(world: Any, value: Any, source: Source) -> Any:
    mapping = underlying_mapping(value)
    if not _is_of_class(mapping):
        return types.MappingProxyType(world.translate(mapping, FunctionResult(underlying_mapping, (value,))))
    world.assume(source, "keys", (type(value), tuple(value)))
    return types.MappingProxyType({k: world.translate(x, Item(source, k)) for k, x in value.items()})


def _is_of_class(x: Any) -> bool:
    """Whether a mapping is the namespace of a class, whose attributes are guarded one by one."""
    return type(x) is dict and "__module__" in x and "__doc__" in x


def _view(world: Any, value: Any, source: Source) -> Any:
    held = world.translate(value.mapping, Attribute(source, "mapping"))
    return getattr(held, type(value).__name__.rpartition("_")[2])()


def _buffer(world: Any, value: Any, source: Source) -> Any:
    text = f"{source} is a {type(value).__name__}, whose items change unseen; use np.asarray of it instead"
    raise UnsupportedError(located(text))


_PROXIES: tuple[tuple[Any, Any], ...] = (
    (pathlib.Path, lambda world, value, source: path(value)),
    (ContextVar, lambda world, value, source: ContextVariable(value)),
    ((logging.Logger, logging.LoggerAdapter), lambda world, value, source: Logger(value)),
    (ChainMap, _chained),
    (types.MappingProxyType, _proxy),
    ((type({}.keys()), type({}.values()), type({}.items())), _view),
    ((array.array, memoryview), _buffer),
)
