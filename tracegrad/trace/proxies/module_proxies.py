"""Proxies of modules, and replacements for library functions that do not dispatch on argument types.

NumPy's proxy has array creation functions that traces see, `math`'s handles traced numbers, and SciPy's computes with
ops (`tracegrad.scipy_api`). Members of other modules are read through the world, so a changed value is noticed. The
functions and classes of Python, NumPy and SciPy are assumed to stay the same.
`tracegrad.trace.proxies.standard_library` classifies functions of the standard library.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import json
import math
import sys
import types
import typing
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from tracegrad.numpy_api.creation import REPLACEMENTS
from tracegrad.numpy_api.lazy_registry import MATRICES, POLYNOMIAL, SHADOWS, Unless
from tracegrad.numpy_api.registry import FUNCTIONS
from tracegrad.scipy_api import is_fortran, is_special, replacement_of, routine, shadow_of
from tracegrad.trace.builder.builder import current_trace, repeats
from tracegrad.trace.bytecode.exception_regions import within_try
from tracegrad.trace.proxies.ambient_state import READERS, Modules
from tracegrad.trace.proxies.builtin_proxies import OTHERS
from tracegrad.trace.proxies.file_access import FILES, file_by_name
from tracegrad.trace.proxies.logging_proxy import TALK
from tracegrad.trace.proxies.standard_library import of_library, refused_effect, type_hints
from tracegrad.trace.random.draws import is_generator
from tracegrad.trace.random.methods import MAKERS, RANDOM, method_of_global
from tracegrad.trace.random.rejected_reads import BY_NAME, REFUSED, ClassProxy, drawing, draws, refused_by_name
from tracegrad.trace.rewriting.call_sites import MARK, callee
from tracegrad.trace.sources.code_origin import is_library_module, is_user_module
from tracegrad.trace.sources.sources import Attribute, Fixed, Item, ModuleGlobal, Source
from tracegrad.trace.values.array_creation import making, of_lists, ufunc_of_lists
from tracegrad.trace.values.math_functions import MATH
from tracegrad.trace.values.number_builtins import unbound
from tracegrad.trace.values.statistics_functions import average
from tracegrad.trace.values.text_conversions import digesting, reads


class _ModuleProxy(types.ModuleType):
    """Base of module proxies. `vars` and `dir` list the real module."""

    def __init__(self, real: types.ModuleType, world: Any = None):
        super().__init__(real.__name__, real.__doc__)
        _held(self)[_REAL] = real, world

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        return _Everything(self, _held(self)[_REAL][0])

    def __dir__(self) -> list[str]:
        return dir(_held(self)[_REAL][0])


_held = vars(types.ModuleType)["__dict__"].__get__
_REAL = "(module)"  # not a valid attribute name


class _Everything(dict[str, Any]):
    """The `__dict__` of a module: its items are the attributes of the module's proxy `proxy`."""

    def __init__(self, proxy: object, real: types.ModuleType):
        super().__init__(vars(real))
        self.proxy = proxy

    def __getitem__(self, name: str) -> Any:
        return getattr(self.proxy, name) if name in self else super().__getitem__(name)

    def __iter__(self) -> Iterator[str]:  # so that `dict` does not bypass these methods
        return super().__iter__()

    def get(self, name: str, default: object = None) -> Any:
        return self[name] if self.__contains__(name) else default

    def values(self) -> Any:
        return [self[name] for name in self]

    def items(self) -> Any:
        return [(name, self[name]) for name in self]

    def copy(self) -> dict[str, Any]:
        return dict(self.items())


class _Numpy(_ModuleProxy):
    """Proxy of NumPy, with array creation functions that traces see."""

    def __getattr__(self, name: str) -> Any:
        if name.endswith(MARK):
            return callee(getattr(self, name[: -len(MARK)]))
        result = getattr(np, name)
        if isinstance(result, types.ModuleType) and is_user_module(result):  # `np.polynomial`, read by each trace anew
            return module(getattr(current_trace(), "world", None), result)
        value = module(None, result) if isinstance(result, types.ModuleType) else replacement(result) or result
        setattr(self, name, value)
        return value


class _Math(_ModuleProxy):
    """Proxy of `math`, with functions that handle traced numbers."""

    def __getattr__(self, name: str) -> Any:
        value = replacement(getattr(math, name)) or getattr(math, name)
        setattr(self, name, value)
        return value


class _Replaced(_ModuleProxy):
    """Proxy of `np.linalg` or of a SciPy module, with replacements for functions that do not dispatch."""

    def __getattr__(self, name: str) -> Any:
        result = getattr(_held(self)[_REAL][0], name)
        inner = isinstance(result, types.ModuleType) and (result.__name__ in _INNER or _is_of_scipy(result.__name__))
        value = _Replaced(result) if inner else replacement(result) or result
        setattr(self, name, value)
        return value


_INNER = ("numpy.lib.stride_tricks",)


class _UserModule(_ModuleProxy):
    """Proxy of a user module: all its attributes are read through the world."""

    def __init__(self, world: Any, real: types.ModuleType):
        super().__init__(real, world.writes.globals_of(real.__dict__, world))
        for name in _OF_PYTHON:
            del _held(self)[name]

    def __getattr__(self, name: str) -> Any:
        real, space = _held(self)[_REAL]
        if name.endswith(MARK):  # a module called `np` that has NumPy's names
            return callee(getattr(self, name[: -len(MARK)]))
        if name in real.__dict__ or dict.__contains__(space, name):
            return space[name]
        if not space.world.open:
            return getattr(real, name)
        return _lacking(space, real, name)

    def __setattr__(self, name: str, value: object) -> None:
        _held(self)[_REAL][1][name] = value

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        real, space = _held(self)[_REAL]
        return space if space.world.open else real.__dict__

    @property
    def __doc__(self) -> Any:  # type: ignore[override]
        return self.__getattr__("__doc__")


_OF_PYTHON = ("__name__", "__package__", "__loader__", "__spec__")


def _lacking(space: Any, real: types.ModuleType, name: str) -> object:
    """The result of the module's `__getattr__` for a missing attribute, if it has one."""
    if "__getattr__" in space:
        space.world.assume(ModuleGlobal(real.__dict__, name), "absent", None)
        return space["__getattr__"](name)
    return _read(space.world, real, name)


class _LibraryModule(_ModuleProxy):
    """Proxy of a module of Python, NumPy, SciPy or Numba."""

    def __init__(self, world: Any, real: types.ModuleType):
        super().__init__(real, world)

    def __getattr__(self, name: str) -> Any:
        real, world = _held(self)[_REAL]
        if name.endswith(MARK):
            return callee(getattr(self, name[: -len(MARK)]))
        if not world.open:
            return getattr(real, name)
        value = _held(self)[name] = _read(world, real, name)
        return value


_CODE = (types.FunctionType, types.BuiltinFunctionType, types.ModuleType, type, np.ufunc, property)


def _read(world: Any, real: types.ModuleType, name: str) -> Any:
    """The attribute `name` of a module, translated for traced code."""
    source: Source = ModuleGlobal(real.__dict__, name)
    try:
        result = getattr(real, name)
    except AttributeError:
        world.assume(source, "absent", None)
        raise
    if name not in real.__dict__:  # made by the module's own __getattr__
        source = Attribute(Fixed(real, real.__name__), name)
    if isinstance(result, _CODE) and is_library_module(real) and of_library(result) is None:
        return world.translate(result, source, guard=False)
    return world.translate(result, source)


class _RandomModule(_ModuleProxy):
    """Proxy of `random`: a call that draws runs as plain Python, because compiled programs have no such generator."""

    def __getattr__(self, name: str) -> Any:
        result = getattr(_held(self)[_REAL][0], name)
        if not repeats():
            return drawing(result)
        if not callable(result):
            return result
        description = f"random.{name} draws random numbers, or makes what does"
        trace: Any = current_trace()
        raise trace.abort(f"{description}; draw by a generator of np.random's to have the call compiled")


class _MaskedArrayModule(_ModuleProxy):
    """Proxy of `np.ma`, whose functions refuse traced values."""

    def __getattr__(self, name: str) -> object:
        result = getattr(np.ma, name)
        instead = "use np.where, and the argument where= of reductions"
        value = Unless(result, f"np.ma.{name}", instead) if callable(result) else result
        setattr(self, name, value)
        return value


def _is_of_scipy(name: str) -> bool:
    return name.partition(".")[0] == "scipy"


_NUMPY, _MATH = _Numpy(np), _Math(math)


def module(world: object, real: types.ModuleType) -> Any:
    """The proxy of a module."""
    if real is np:
        return _NUMPY
    if real is math:
        return _MATH
    if real.__name__ == "numpy.ma":
        return _MaskedArrayModule(real)
    if real is np.random:
        return RANDOM
    if real.__name__ == "random":
        return _RandomModule(real)
    if real.__name__ in ("numpy.linalg", "numpy.lib", *_INNER) or _is_of_scipy(real.__name__):
        return _Replaced(real)
    if world is None:
        return real
    return _UserModule(world, real) if is_user_module(real) else _LibraryModule(world, real)


def imported(world: Any, real: types.ModuleType, *names: str) -> object:
    """The proxy of a module imported under one of these names."""
    if not world.open:
        return real
    name = next((name for name in (real.__name__, *names) if sys.modules.get(name) is real), "")
    # Code that catches an ImportError depends on the existence of standard library modules too.
    known = name != "" and (not is_library_module(real) or within_try())
    source = Item(Fixed(sys.modules, "sys.modules"), name) if known else Fixed(real, real.__name__)
    return world.translate(real, source, guard=known)


def _import_module(name: str, package: str | None = None) -> object:
    trace, result = current_trace(), importlib.import_module(name, package)
    return result if trace is None else imported(trace.world, result, name)


class FunctionKind(NamedTuple):
    """Kind of functions that have replacements in traced code: the replacements by the id of the function.

    `result` says what a call in traced code does. Later kinds have precedence.
    """

    name: str
    replacements: dict[int, Any]
    result: str


_PARSERS = (ast.literal_eval, json.load, json.loads, np.fromstring, float.fromhex)
_DIGESTS = [getattr(hashlib, name) for name in ("new", *hashlib.algorithms_guaranteed)]
_MATRIX = Unless(np.matrix, "np.matrix", MATRICES)
FUNCTION_KINDS = (
    FunctionKind(
        "array creation of NumPy",
        {id(getattr(np, name)): making(getattr(np, name), ours) for name, ours in REPLACEMENTS.items()},
        "makes an array that the trace sees",
    ),
    FunctionKind("function of `math` and of Python's numbers", MATH, "computes with traced numbers"),
    FunctionKind("clock, entropy, or input", REFUSED, "raises `UnsupportedError`"),
    FunctionKind("read of the process or the system", READERS, "is called again at each call, and its result guarded"),
    FunctionKind("file or process", FILES, "raises `UnsupportedError` if it reads, and ends the trace if it writes"),
    FunctionKind("log, warning, or JSON text", TALK, "gets the values of the traced call"),
    FunctionKind(
        "parser of text",
        {id(f): reads(f) for f in _PARSERS},
        "raises `LostDerivativeError` for the text of a value with a derivative",
    ),
    FunctionKind(
        "digest", {id(f): digesting(f) for f in _DIGESTS}, "raises `LostDerivativeError` for a value with a derivative"
    ),
    FunctionKind("import", {id(importlib.import_module): _import_module}, "returns the proxy of the module"),
    FunctionKind(
        "NumPy function that dispatches on arrays", {id(f): of_lists(f) for f in FUNCTIONS}, "also takes lists of them"
    ),
    FunctionKind(
        "NumPy function that does not dispatch",
        {id(getattr(np, name)): shadow for name, shadow in SHADOWS.items()},
        "is computed over ops",
    ),
    FunctionKind(
        "evaluation of annotations", {id(typing.get_type_hints): type_hints}, "guards the names that they contain"
    ),
    FunctionKind("identity, class, or container read in C", OTHERS, "sees the object that a proxy stands for"),
    FunctionKind(
        "matrix or polynomial class of NumPy",
        {
            id(np.matrix): ClassProxy("matrix", (), {"real": np.matrix, "other": {"__call__": _MATRIX}}),
            id(np.poly1d): ClassProxy("poly1d", (), {"real": np.poly1d, "other": {"__call__": POLYNOMIAL}}),
        },
        "refuses traced values",
    ),
    FunctionKind(
        "maker of random generators",
        {id(getattr(np.random, name)): x for name, x in MAKERS.items()},
        "makes a generator that each call makes again",
    ),
)
_REPLACED = {key: value for kind in FUNCTION_KINDS for key, value in kind.replacements.items()}


def _is_function(value: object) -> bool:
    """Whether it is a function or a class; the functions of `scipy.fft` have a class of their own."""
    functions = types.FunctionType, types.BuiltinFunctionType, type
    return isinstance(value, functions) or type(value).__module__ == "uarray"


def _one_replaced(value: object) -> object:
    result = _REPLACED.get(id(value))
    return unbound(value) if result is None else result


def _by_name(value: object) -> object:
    result = file_by_name(value) if isinstance(value, types.FunctionType | type) else None
    return of_library(value) if result is None else result


def replacement(value: object) -> Any:
    """The replacement of a function or object of Python, NumPy or SciPy in traced code; None if there is none."""
    if isinstance(value, types.BuiltinMethodType | types.MethodType) and draws(value.__self__):
        if is_generator(value.__self__):
            return method_of_global(value)
        return refused_effect(value, f"random.{value.__name__}") if repeats() else drawing(value)
    if _is_function(value) and _is_of_scipy(value.__module__ or ""):
        return shadow_of(value)
    if _is_of_scipy(type(value).__module__):
        return replacement_of(value)
    if isinstance(value, np.ufunc) and is_special(value):
        return ufunc_of_lists(value)
    if is_fortran(value):
        return routine(value)
    if value is sys.modules:
        return Modules()
    if isinstance(value, types.FunctionType) and value.__module__ == "statistics":
        return average(value)
    if isinstance(value, types.FunctionType) and value.__module__ in BY_NAME:
        return refused_by_name(value)
    result = _one_replaced(value)
    return _by_name(value) if result is None else result
