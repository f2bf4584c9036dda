"""Kinds of objects from outside: what traced code receives, how each call guards it, and what becomes of writes.

`VALUE_KINDS`, `OBJECT_KINDS` and `LIBRARY_KINDS` are ordered tables. The first row whose classes fit, and whose
`stand_in` does not answer `OTHER`, decides. Objects of the last two tables are translated once in a trace. The table in
this package's README.md is made from the rows.
"""

from __future__ import annotations

import array
import dataclasses
import functools
import logging
import pathlib
import types
from collections import ChainMap
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad import tree
from tracegrad.errors import UnsupportedError, located
from tracegrad.numpy_api.lazy_registry import SHADOWS
from tracegrad.ops import Carrier
from tracegrad.scipy_api import Attributes, is_factors, replacement_of
from tracegrad.trace.proxies import function_proxies
from tracegrad.trace.proxies.ambient_state import ContextVariable, of_settings
from tracegrad.trace.proxies.file_access import path
from tracegrad.trace.proxies.logging_proxy import Logger
from tracegrad.trace.proxies.module_proxies import module, replacement
from tracegrad.trace.proxies.opaque_proxies import opaque_function, opaque_object
from tracegrad.trace.proxies.opaque_state import C_FUNCTIONS, is_constant
from tracegrad.trace.random.methods import is_random, random_of
from tracegrad.trace.random.rejected_reads import read_up
from tracegrad.trace.sources.class_patching import CACHED
from tracegrad.trace.sources.code_origin import is_of_numba, opaque_package
from tracegrad.trace.sources.consumed_iterators import is_read_up
from tracegrad.trace.sources.sources import Attribute, Child, Fixed, Item, Source
from tracegrad.trace.sources.state_sources import FunctionResult, underlying_mapping
from tracegrad.trace.values.container_proxies import PROXIED_CLASSES
from tracegrad.trace.world.guards import copied, keys_of
from tracegrad.trace.world.lru_cache import cached
from tracegrad.utils.lazy_dataclass import record

if TYPE_CHECKING:
    from tracegrad.trace.world.world import World

OTHER = object()  # the answer of a `stand_in` for an object that is not of its kind

StandIn = Callable[["World", Any, Source], Any]

# What becomes of writes of traced code.
NEVER = "impossible"
REPEATED = "repeated at each call"
REFUSED = "end the trace"
UNDONE = "undone; end the trace"


@record(frozen=True)
class ObjectKind:
    """Kind of an object that traced code reads from outside.

    `receives` says what traced code gets, `guards` are the kinds of guards (`GUARD_KINDS`) that a read makes, and
    `writes` says what becomes of writes of traced code.
    """

    name: str
    classes: Any
    stand_in: StandIn
    receives: str
    guards: str
    writes: str


def stand_in(kinds: Sequence[ObjectKind], world: World, value: object, source: Source) -> Any:
    """Return what traced code receives for `value`, by the first row of `kinds` that fits; `OTHER` if none does."""
    for kind in kinds:
        if isinstance(value, kind.classes):
            result = kind.stand_in(world, value, source)
            if result is not OTHER:
                return result
    return OTHER


# -- values ------------------------------------------------------------------------------------------------------------
def _random(world: World, value: object, source: Source) -> object:
    return random_of(world, value, source) if is_random(value) else OTHER


VALUE_KINDS = (
    ObjectKind(
        "array", np.ndarray, lambda world, value, source: world.array(value, source),
        "tracer of an input, read again at each call; an array of objects is copied, with its elements translated",
        "dtype and shape, by the program; `is` for an array of objects", REPEATED,
    ),
    ObjectKind(
        "Tensor", Carrier, lambda world, value, source: world.carrier(value, source),
        "Tensor whose array is a tracer of an input", "dtype and shape, by the program", REPEATED,
    ),
    ObjectKind(
        "number, text, or other immutable value", function_proxies.VALUES,
        lambda world, value, source: world.number_or_value(value, source),
        "the value; a float that has changed once becomes an input", "`equals`", NEVER,
    ),
    ObjectKind(
        "random generator", object, _random,
        "proxy that draws NumPy's numbers again at each call", "`type`", REPEATED,
    ),
)  # fmt: skip


# -- containers --------------------------------------------------------------------------------------------------------
def _opaque(world: World, value: object, source: Source) -> object:
    package = "" if world.once or isinstance(value, types.FunctionType) else opaque_package(value)
    return opaque_object(world, value, package) if package else OTHER


def _proxied(world: World, value: object, source: Source) -> object:
    if type(value) not in PROXIED_CLASSES:
        return OTHER
    world.assume(source, "type", type(value))
    return world.writes.container_proxy(value, source, world)


def _collection(world: World, value: object, source: Source) -> object:
    return OTHER if tree.is_node(value) else world.writes.copied(copied(value), source, world, value)


def _node(world: World, value: object, source: Source) -> Any:
    if not tree.is_node(value) or function_proxies.is_user_object(value):
        return OTHER
    world.assume(source, "keys", keys_of(value))
    if isinstance(value, tuple):
        return tuple.__new__(type(value), [world.translate(x, Item(source, i)) for i, x in enumerate(value)])
    children = tree.children(value)
    child_sources: list[Source] = [Attribute(source, f.name) for f in _fields(value)]
    if isinstance(value, dict):
        skeleton: Any = tree.skeleton(value)
        child_sources = [Item(source, k) for k in skeleton[1][0]]
    child_sources = child_sources or [Child(source, i) for i in range(len(children))]
    translated = [world.translate(x, child_source) for x, child_source in zip(children, child_sources)]
    return world.writes.copied(tree.with_children(value, translated), source)


def _fields(x: object) -> list[Any]:
    """The field children of a dataclass, if it is flattened as one."""
    result = [f for f in dataclasses.fields(x) if not f.metadata.get("static")] if dataclasses.is_dataclass(x) else []
    children = tree.children(x)
    same = len(result) == len(children) and all(getattr(x, f.name) is c for f, c in zip(result, children))
    return result if same else []


# -- functions and objects of the user -------------------------------------------------------------------------------
def _function(world: World, value: types.FunctionType, source: Source) -> object:
    if function_proxies.is_dispatched(value):
        return function_proxies.dispatched(world, value, Fixed(value, value.__name__))
    if package := opaque_package(value):
        return opaque_function(world, value, package)
    function_source = source if world.shared is not None else Fixed(value, value.__name__)
    return function_proxies.function(world, value, function_source)


def _method(world: World, value: types.MethodType, source: Source) -> Any:
    owner = world.translate(value.__self__, Attribute(source, "__self__"))
    if replacement(value.__self__) is not None:
        return getattr(owner, value.__name__)  # the stand-in of the object has its own methods
    return types.MethodType(world.translate(value.__func__, Attribute(source, "__func__")), owner)


def _partial(world: World, value: functools.partial[Any], source: Source) -> object:
    args = [world.translate(x, Item(Attribute(source, "args"), i)) for i, x in enumerate(value.args)]
    keywords = {k: world.translate(x, Item(Attribute(source, "keywords"), k)) for k, x in value.keywords.items()}
    return world.note_callable(
        functools.partial(world.translate(value.func, Attribute(source, "func")), *args, **keywords)
    )


def _vectorized(world: World, value: np.vectorize, source: Source) -> object:
    if type(value) is not np.vectorize:
        return OTHER
    function = world.translate(value.pyfunc, Attribute(source, "pyfunc"))
    how = {name: world.translate(getattr(value, name), Attribute(source, name)) for name in ("otypes", "signature")}
    return world.note_callable(SHADOWS["vectorize"](function, excluded=value.excluded, **how))


def _user_object(world: World, value: object, source: Source) -> object:
    return function_proxies.user_object(world, value, source) if function_proxies.is_user_object(value) else OTHER


def _numba(world: World, value: Any, source: Source) -> object:
    return world.translate(value.py_func, Attribute(source, "py_func")) if is_of_numba(value) else OTHER


# -- objects of Python and of packages -------------------------------------------------------------------------------
def _library_object(world: World, value: object, source: Source) -> object:
    replaced = of_settings(world, value)
    return stand_in(LIBRARY_KINDS, world, value, source) if replaced is None else replaced


def _replaced(world: World, value: object, source: Source) -> object:
    result = replacement(value)
    return OTHER if result is None else result


def _scipy_object(world: World, value: object, source: Source) -> object:
    if not (type(value).__module__.startswith("scipy.") or is_factors(value)):
        return OTHER
    result = replacement_of(value, _AttributeReader(world, value, source))
    return OTHER if result is None else result


class _AttributeReader(Attributes):
    """Reader of the attributes of a SciPy object from outside."""

    def __init__(self, world: World, value: Any, source: Source):
        super().__init__(value)
        self._world, self._source = world, source

    def __call__(self, name: str) -> Any:
        return self._world.translate(getattr(self.value, name), Attribute(self._source, name))

    def whole(self) -> None:
        self._world.natives.note_object(self.value, self._source)


def _chained(world: World, value: ChainMap[Any, Any], source: Source) -> object:
    maps = Attribute(source, "maps")
    world.assume(maps, "keys", (list, len(value.maps)))
    return type(value)(*[world.translate(x, Item(maps, i)) for i, x in enumerate(value.maps)])


def _mapping_proxy(world: World, value: types.MappingProxyType[Any, Any], source: Source) -> object:
    mapping = underlying_mapping(value)
    if not _is_of_class(mapping):
        return types.MappingProxyType(world.translate(mapping, FunctionResult(underlying_mapping, (value,))))
    world.assume(source, "keys", (type(value), tuple(value)))
    return types.MappingProxyType({k: world.translate(x, Item(source, k)) for k, x in value.items()})


def _is_of_class(x: object) -> bool:
    """Whether a mapping is the namespace of a class, whose attributes are guarded one by one."""
    return type(x) is dict and "__module__" in x and "__doc__" in x


def _view(world: World, value: Any, source: Source) -> object:
    held = world.translate(value.mapping, Attribute(source, "mapping"))
    return getattr(held, type(value).__name__.rpartition("_")[2])()


def _buffer(world: World, value: object, source: Source) -> object:
    text = f"{source} is a {type(value).__name__}, whose items change unseen; use np.asarray of it instead"
    raise UnsupportedError(located(text))


def _c_method(world: World, value: Any, source: Source) -> object:
    if is_constant(value):
        return OTHER
    owner = world.translate(value.__self__, Attribute(source, "__self__"))
    return value if owner is value.__self__ else getattr(owner, value.__name__)


def _consumed(world: World, value: object, source: Source) -> object:
    return read_up(value, str(source)) if is_read_up(value) else OTHER


def _as_it_is(world: World, value: object, source: Source) -> object:
    world.natives.note_object(value, source)
    return value


_OF_ITEMS = "its items are translated and guarded when they are read"
OBJECT_KINDS = (
    ObjectKind(
        "class or object of a package that `opaque` names", object, _opaque,
        "the class, which may only be compared; an object ends the trace", "`is`", REFUSED,
    ),
    ObjectKind(
        "list, dict, set, or deque", tuple(PROXIED_CLASSES), _proxied,
        f"proxy; {_OF_ITEMS}", "`is`, `type`; `keys` or `items` when it is read whole", REPEATED,
    ),
    ObjectKind(
        "other mutable collection", function_proxies.COLLECTIONS, _collection,
        "copy", "`is`, `items`", REPEATED,
    ),
    ObjectKind(
        "tuple, named tuple, or registered pytree", object, _node,
        "copy with translated children", "`keys`", REPEATED,
    ),
    ObjectKind(
        "function", types.FunctionType, _function,
        "shadow: the same code with translated globals, cells, and defaults; a function of a library runs as it is",
        "`is`", REPEATED,
    ),
    ObjectKind(
        "bound method", types.MethodType, _method,
        "method of the translated owner", "`is`", REPEATED,
    ),
    ObjectKind(
        "`functools.partial`", functools.partial, _partial,
        "partial function of translated parts", "`is`", NEVER,
    ),
    ObjectKind(
        "`np.vectorize`", np.vectorize, _vectorized,
        "vectorized shadow of its function", "`is`", NEVER,
    ),
    ObjectKind(
        "function of `functools.lru_cache`", CACHED,
        lambda world, value, source: cached(value, Attribute(source, "__wrapped__"), world),
        "proxy that queries the cache again at each call", "`is`", REPEATED,
    ),
    ObjectKind(
        "module", types.ModuleType, lambda world, value, source: module(world, value),
        "proxy; its attributes are translated", "`is`", REPEATED,
    ),
    ObjectKind(
        "object of a user class, dataclasses included", object, _user_object,
        "shadow; its attributes are translated, and its methods run as shadows",
        "`is`, or `type` if it is a pytree", REPEATED,
    ),
    ObjectKind(
        "function compiled by Numba", object, _numba,
        "shadow of its Python function", "`is`", NEVER,
    ),
    ObjectKind(
        "object of Python or of a package", object, _library_object,
        "see the next table", "`is`; the settings of `decimal` and `datetime`", UNDONE,
    ),
)  # fmt: skip
LIBRARY_KINDS = (
    ObjectKind(
        "function or object that has a replacement", object, _replaced,
        "replacement that handles traced values, reads again at each call, or ends the trace", "`is`", NEVER,
    ),
    ObjectKind(
        "object of SciPy that has a replacement", object, _scipy_object,
        "replacement over ops; its attributes are translated", "`is`", NEVER,
    ),
    ObjectKind(
        "`pathlib.Path`", pathlib.Path, lambda world, value, source: path(value),
        "proxy that reads the file system again at each call", "`is`", REFUSED,
    ),
    ObjectKind(
        "context variable", ContextVar, lambda world, value, source: ContextVariable(value),
        "proxy; its value is translated", "`is`", REFUSED,
    ),
    ObjectKind(
        "logger", (logging.Logger, logging.LoggerAdapter), lambda world, value, source: Logger(value),
        "proxy that logs the values of the traced call", "`is`", REFUSED,
    ),
    ObjectKind(
        "`collections.ChainMap`", ChainMap, _chained,
        f"chain of translated mappings; {_OF_ITEMS}", "`is`, `keys`", REPEATED,
    ),
    ObjectKind(
        "mapping proxy", types.MappingProxyType, _mapping_proxy,
        f"proxy of the translated mapping; {_OF_ITEMS}", "`is`; `keys` of the namespace of a class", NEVER,
    ),
    ObjectKind(
        "view of a dict", (type({}.keys()), type({}.values()), type({}.items())), _view,
        f"view of the translated dict; {_OF_ITEMS}", "`is`", NEVER,
    ),
    ObjectKind(
        "`array.array` or memory view", (array.array, memoryview), _buffer,
        "an error", "none", NEVER,
    ),
    ObjectKind(
        "method of a built-in class", C_FUNCTIONS, _c_method,
        "method of the translated owner", "`is`", REPEATED,
    ),
    ObjectKind(
        "iterator, file, or other object that reading uses up", object, _consumed,
        "proxy; reading ends the trace, or is replayed when the trace begins again", "`is`", REFUSED,
    ),
    ObjectKind(
        "any other object", object, _as_it_is,
        "the object; its reachable state is compared before each call", "`is`, `state`", UNDONE,
    ),
)  # fmt: skip
KINDS = {"Values": VALUE_KINDS, "Objects": OBJECT_KINDS, "Objects of Python and of packages": LIBRARY_KINDS}
