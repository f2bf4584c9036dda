"""Serialize references to objects so that another process finds the same objects (object references).

A trace assumes values at *sources* (`tracegrad.trace.sources.sources`), which begin at root objects: the namespace of a
function, a cell, a class. Another process has other objects at the same sources. `ObjectWriter` makes a list of the
objects: each with the path to it, from the traced function or from an earlier object, and its fingerprint
(`tracegrad.runtime.compile.fingerprint`). `ObjectReader` follows the list. It succeeds if each path ends at an equal
object, as far as a process can tell, and if distinct objects are still distinct.

Everything is serialized as JSON: lists, texts, numbers, booleans and None.
"""

from __future__ import annotations

import enum
import os
import sys
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from tracegrad.runtime.compile.fingerprint import (
    Unkept,
    consists_of_functions,
    described,
    functions_of,
    library_name,
    resolve_name,
    traced,
)
from tracegrad.runtime.persistence.pytree_fingerprint import registration
from tracegrad.settings import settings
from tracegrad.target.tuning import TUNING
from tracegrad.tensor_dtype import TensorDType
from tracegrad.trace.driver.tensor_effects import DefaultDtype, GradMode
from tracegrad.trace.proxies.function_proxies import is_user_object
from tracegrad.trace.sources.code_origin import is_user_code, is_user_function
from tracegrad.trace.sources.sources import (
    AnyIdentical,
    ArgumentLeaf,
    Attribute,
    CallArgument,
    CalledFunction,
    Child,
    ClosureCell,
    ClosureVariable,
    Fixed,
    Hiding,
    Item,
    ModuleGlobal,
    Source,
    Static,
    Weak,
)
from tracegrad.trace.sources.state_sources import Context, FunctionResult, Name, is_subclass, underlying_mapping
from tracegrad.tree import TreeDef
from tracegrad.tree.registry import FIXED_KIND, KINDS, LEAF_KIND, NodeKind, kind_of
from tracegrad.utils.errstate import handling


class Changed(Exception):
    """An object differs from the stored one."""


# Objects of this process that are stored by name.
_KNOWN: dict[str, Callable[[], Any]] = {
    "sys.modules": lambda: sys.modules,
    "os.environ": lambda: vars(os.environ)["_data"],
    "settings": lambda: vars(settings),
}
# The functions in class members.
_MEMBER_FUNCTIONS: dict[Any, Sequence[str]] = {
    property: ("fget", "fset", "fdel"),
    (classmethod, staticmethod): ("__func__",),
}
_OF_PARENT: tuple[type[Source], ...] = (Attribute, Item, Child)
_OF_OBJECT: tuple[type[Source], ...] = (ModuleGlobal, ClosureCell, Fixed, Static, Hiding, Name, Context)
_OF_CALL: tuple[type[Source], ...] = (ArgumentLeaf, CalledFunction, CallArgument, GradMode, DefaultDtype)
_SOURCES: dict[str, Any] = {cls.__name__: cls for cls in (*_OF_PARENT, *_OF_OBJECT, *_OF_CALL)}
# The functions whose results can be recomputed in another process.
_RECOMPUTED: dict[str, Callable[..., Any]] = {f.__name__: f for f in (handling, is_subclass, underlying_mapping)}
_MAX_ARRAY_BYTES = TUNING.caches.stored_array_bytes


class ObjectWriter:
    """The list of objects under construction. `roots` are the traced functions; `places` lead to the others."""

    def __init__(self, roots: Sequence[Any], sources: Iterable[tuple[Any, Source]]):
        self.objects: list[Any] = []
        self.held: list[Any] = []
        self._roots = {id(x): i for i, x in reversed([*enumerate(roots)])}
        self._sources: dict[int, Source] = {}
        self._inside: dict[int, tuple[Any, int]] = {}  # its owner (a traced function or a class), and its index
        self._numbers: dict[int, int] = {}
        self._started: set[int] = set()
        self._functions = [x for x in roots if isinstance(x, types.FunctionType)]
        for x, source in sources:
            self._enter(x, source)
            for name in next((names for cls, names in _MEMBER_FUNCTIONS.items() if isinstance(x, cls)), ()):
                self._enter(getattr(x, name), Attribute(source, name))

    def _enter(self, x: object, source: Source) -> None:
        self._sources.setdefault(id(x), source)
        for i, inner in enumerate(_contained(x)):
            self._inside.setdefault(id(inner), (x, i))
            self._note(inner)
        self._note(x)

    def _note(self, x: object) -> None:
        if isinstance(x, types.FunctionType) and is_user_function(x):
            self._functions.append(x)

    # -- objects ---------------------------------------------------------------------------------------------------
    def number(self, x: object) -> int:
        """The number of an object in the list, appended if necessary."""
        known = self._numbers.get(id(x))
        if known is not None:
            return known
        if id(x) in self._started:
            raise Unkept(f"a {type(x).__qualname__} that only itself leads to")
        self._started.add(id(x))
        path = self._path_to(x)
        fingerprint = _fingerprint(x, path)
        number = self._numbers[id(x)] = len(self.objects)
        self.objects.append([path, [*fingerprint, _space(x, self._numbers)]])
        self.held.append(x)
        return number

    def _path_to(self, x: object) -> list[object]:
        root, qualified_name = self._roots.get(id(x)), library_name(x)
        if root is not None:
            return ["root", root]
        if qualified_name is not None:
            return ["library", *qualified_name]
        for name, known in _KNOWN.items():
            if x is known():
                return ["known", name]
        if isinstance(x, dict):
            return self._to_space(x)
        if isinstance(x, types.CellType):
            return self._to_cell(x)
        source = self._sources.get(id(x))
        if source is not None:
            return ["at", self.source(source)]
        if id(x) in self._inside:
            owner, i = self._inside[id(x)]
            return ["part", self.number(owner), i]
        qualified_name = getattr(x, "__module__", ""), getattr(x, "__qualname__", "")
        if isinstance(x, type) and resolve_name(qualified_name) is x:
            return ["named", *qualified_name]
        raise Unkept(f"a {type(x).__qualname__} that no name leads to")

    def _to_space(self, x: dict[str, object]) -> list[object]:
        for function in self._functions:
            if function.__globals__ is x and id(function) not in self._started - self._numbers.keys():
                return ["attribute", self.number(function), "__globals__"]
        module = sys.modules.get(str(x.get("__name__")))
        if module is not None and vars(module) is x:
            return ["attribute", self.number(module), "__dict__"]
        source = self._sources.get(id(x))
        if source is None:
            raise Unkept("a namespace that no function leads to")
        return ["at", self.source(source)]

    def _to_cell(self, x: types.CellType) -> list[object]:
        for function in self._functions:
            for i, cell in enumerate(function.__closure__ or ()):
                if cell is x:
                    return ["cell", self.number(function), i]
        raise Unkept("a variable of a function that no name leads to")

    # -- sources ---------------------------------------------------------------------------------------------------
    def source(self, x: Source) -> list[Any]:
        """Serialize a source."""
        cls = type(x)
        if cls in _OF_PARENT and isinstance(x.parent, Source):
            return [cls.__name__, self.source(x.parent), self.value(x.name)]
        if cls in _OF_OBJECT and not isinstance(x.parent, Source):
            return [cls.__name__, self.number(x.parent), self.value(x.name)]
        if cls in _OF_CALL:
            return [cls.__name__, None, self.value(x.name)]
        if cls is Weak:
            return [cls.__name__, x.name]
        if cls is AnyIdentical:
            return [cls.__name__, [self.source(each) for each in x.name]]
        if isinstance(x, ClosureVariable):
            item = x.cell_source.parent
            return [ClosureVariable.__name__, self.source(item.parent.parent), item.name, x.name]
        if cls is FunctionResult and x.parent in _RECOMPUTED.values():
            return [cls.__name__, x.parent.__name__, self.value(x.name)]
        raise Unkept(f"{x}")

    # -- values ----------------------------------------------------------------------------------------------------
    def value(self, x: Any) -> Any:
        """Serialize a value, and the objects in it."""
        cls = type(x)
        if cls in (str, int, bool, float, type(None)):
            return x
        result = _serialize_plain(x)
        if result is not None:
            return result
        if cls in (tuple, TreeDef):
            return [cls.__name__, *map(self.value, x)]
        if cls is frozenset:
            return ["frozenset", *map(self.value, sorted(x, key=repr))]
        if cls is NodeKind:
            return self._kind(x)
        if isinstance(x, enum.Enum):
            return ["enum", self.number(cls), self.value(x.value)]
        return ["object", self.number(x)]

    def _kind(self, x: NodeKind) -> list[object]:
        """Serialize a container kind, by its class."""
        if x is LEAF_KIND or x is FIXED_KIND:
            return ["kind", x is FIXED_KIND]
        return ["kind", self.number(x.cls)]


class ObjectReader:
    """The objects of a list written by `ObjectWriter`, found in this process; `Changed` if one is missing."""

    def __init__(self, roots: Sequence[Any], objects: Sequence[Any], weak: object = None):
        self.held: list[Any] = []
        self._roots, self._weak = roots, weak
        self._numbers: dict[int, int] = {}
        for path, fingerprint in objects:
            x = self._follow(*path)
            if id(x) in self._numbers or not self._is(x, path, fingerprint):
                raise Changed(str(path))
            self._numbers[id(x)] = len(self.held)
            self.held.append(x)

    def _is(self, x: object, path: Sequence[object], fingerprint: Sequence[object]) -> bool:
        try:
            return [*_fingerprint(x, path), _space(x, self._numbers)] == fingerprint
        except Unkept:
            return False

    def _follow(self, kind: str, *path: Any) -> Any:
        if kind == "root":
            return self._roots[path[0]]
        if kind in ("library", "named"):
            return resolve_name((path[0], path[1]))
        if kind == "known":
            return _KNOWN[path[0]]()
        try:
            if kind == "at":
                return self.source(path[0]).read()
            owner = self.held[path[0]]
            if kind == "part":
                return _contained(owner)[path[1]]
            return owner.__closure__[path[1]] if kind == "cell" else getattr(owner, path[1])
        except (LookupError, AttributeError, ValueError, ReferenceError, TypeError) as error:
            raise Changed(str(path)) from error

    def source(self, x: Sequence[Any]) -> Source:
        """Restore a source."""
        kind, *rest = x
        if kind == Weak.__name__:
            return Weak(self._weak, rest[0])
        if kind == AnyIdentical.__name__:
            return AnyIdentical(None, tuple([self.source(each) for each in rest[0]]))
        if kind == ClosureVariable.__name__:
            return ClosureVariable(None, rest[2], self.source(rest[0]), rest[1])
        if kind == FunctionResult.__name__:
            return FunctionResult(_RECOMPUTED[rest[0]], self.value(rest[1]))
        cls, name = _SOURCES[kind], self.value(rest[1])
        parent = None if rest[0] is None else self.source(rest[0]) if type(rest[0]) is list else self.held[rest[0]]
        result: Source = cls(parent, name)
        return result

    def value(self, x: object) -> Any:
        """Restore a value."""
        if type(x) is not list:
            return x
        kind, *rest = x
        if kind == "object":
            return self.held[rest[0]]
        if kind == "kind":
            return self._kind(rest[0])
        if kind == "enum":
            return self.held[rest[0]](self.value(rest[1]))
        if kind in _SEQUENCES:
            return _SEQUENCES[kind]([self.value(each) for each in rest])
        return _CONSTRUCTORS[kind](*rest)

    def _kind(self, encoded: Any) -> Any:
        if type(encoded) is bool:
            return FIXED_KIND if encoded else LEAF_KIND
        cls = self.held[encoded]
        result = KINDS.get(cls) or kind_of(cls)
        if result is None:
            raise Changed("a class of containers")
        return result


def _contained(x: object) -> list[Any]:
    """The objects in a traced function, and the functions in a class."""
    if consists_of_functions(x):
        return traced(x)[1]
    return functions_of(x) if isinstance(x, type) and is_user_code(x) else []


def _fingerprint(x: object, path: Sequence[object]) -> list[object]:
    """The fingerprint of an object, without the path to it."""
    if path[0] in ("known", "attribute", "cell"):
        return [type(x).__name__]
    if type(x) is tuple:  # the defaults of a function; guards check its values that are not plain
        return ["tuple", len(x)]
    result = described(x)
    if isinstance(x, type):
        return [*result, registration(x)]
    return [*result, registration(type(x))] if is_user_object(x) else result


def _space(x: object, numbers: dict[int, int]) -> int:
    """The number of the namespace of a function, if it is already in the list; else -1."""
    return numbers.get(id(x.__globals__), -1) if isinstance(x, types.FunctionType) else -1


# -- values without objects in them ------------------------------------------------------------------------------------
def _serialize_plain(x: Any) -> Any:
    """The JSON list of a plain value, except a tuple; None for other values."""
    cls = type(x)
    if cls is complex:
        return ["complex", x.real, x.imag]
    if cls is bytes:
        return ["bytes", x.hex()]
    if x is ... or x is NotImplemented:
        return ["constant", x is ...]
    if cls in (slice, range) and all(type(each) in (int, type(None)) for each in (x.start, x.stop, x.step)):
        return [cls.__name__, x.start, x.stop, x.step]
    if cls is TensorDType:
        return ["tensor_dtype", str(x)]
    if isinstance(x, np.dtype) and x.kind in "biufcSU":
        return ["dtype", x.str]
    if isinstance(x, np.generic) and cls.__module__ == "numpy" and x.dtype.kind in "biufc":
        return ["scalar", x.dtype.str, x.tobytes().hex()]
    if cls is np.ndarray and x.dtype.kind in "biufc" and x.nbytes <= _MAX_ARRAY_BYTES:
        return ["array", x.dtype.str, list(x.shape), x.tobytes().hex()]
    return None


def _array(dtype: str, shape: Sequence[int], data: str) -> np.ndarray[Any, Any]:
    return np.frombuffer(bytes.fromhex(data), dtype).reshape(shape).copy()


_SEQUENCES: dict[str, Callable[[list[Any]], Any]] = {"tuple": tuple, "frozenset": frozenset, "TreeDef": TreeDef}
_CONSTRUCTORS: dict[str, Callable[..., Any]] = {
    "complex": complex,
    "bytes": bytes.fromhex,
    "constant": lambda first: ... if first else NotImplemented,
    "slice": slice,
    "range": range,
    "dtype": np.dtype,
    "tensor_dtype": TensorDType,
    "scalar": lambda dtype, data: np.frombuffer(bytes.fromhex(data), dtype)[0],
    "array": _array,
}
