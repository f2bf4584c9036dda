"""Compute fingerprints of functions, classes and modules that are equal in every process.

A user's function is fingerprinted by its code, without its source position, and by the values of its defaults; guards
check what it reads from outside. A class is fingerprinted by its bases, its functions and its values. An object of
Python, NumPy, SciPy or this package is identified by its name, as long as the name still leads to it. The versions of
these packages are part of every key. Any other object raises `Unkept`: a trace that depends on it is not
stored for other processes.
"""

from __future__ import annotations

import abc
import dataclasses
import enum
import functools
import hashlib
import sys
import types
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from tracegrad.numpy_api.registry import FUNCTIONS
from tracegrad.ops import TABLE
from tracegrad.runtime.compile.jit import cpu_key, source_stamps
from tracegrad.trace.builder.inlinable import DERIVED, Inlinable
from tracegrad.trace.bytecode.code_queries import bytes_of, makes_sets, uses_constant_sets
from tracegrad.trace.bytecode.nested_code import code_objects
from tracegrad.trace.proxies.function_proxies import is_user_object
from tracegrad.trace.sources.code_origin import is_user_code, is_user_function, is_user_module
from tracegrad.trace.sources.describe import Description
from tracegrad.tree import FIXED_KIND
from tracegrad.tree.registry import LEAF_KIND


class Unkept(Exception):
    """A trace depends on an object without a fingerprint in another process: `args[0]` names it."""


# Modules whose functions are deterministic.
_STEADY = frozenset([
    "_collections_abc", "_operator", "_thread", "abc", "bisect", "builtins", "cmath", "collections", "contextlib",
    "copy", "dataclasses", "enum", "fractions", "functools", "heapq", "itertools", "math", "numbers", "numpy",
    "operator", "reprlib", "scipy", "statistics", "string", "tracegrad", "types", "typing",
])  # fmt: skip
# Names whose value differs between processes, or that have side effects only in the first call.
_UNSTEADY = frozenset(
    [
        "breakpoint",
        "frozenset",
        "hash",
        "id",
        "print",
        "set",
        "set_trace",
        "warn",
        "warn_explicit",
    ]
)
_PLAIN = (bool, int, float, complex, str, bytes, type(None), np.dtype, type(...), type(NotImplemented))
# Class attributes without influence on behaviour.
_LABELS = frozenset(
    [
        "__module__",
        "__doc__",
        "__dict__",
        "__weakref__",
        "__annotations__",
        "__annotate_func__",
        "__annotations_cache__",
        "__classdictcell__",
        "__firstlineno__",
        "__static_attributes__",
        "__abstractmethods__",
        "_abc_impl",
        DERIVED,
    ]
)


def digest(text: str) -> str:
    """A short digest of a text."""
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


# -- values ------------------------------------------------------------------------------------------------------------
def plain(x: Any) -> str:
    """The text of a value of a plain type, which identifies it; `Unkept` for any other object."""
    cls = type(x)
    if cls is tuple:
        return f"({', '.join(map(plain, x))})"
    if cls in _PLAIN or isinstance(x, np.dtype):
        return f"{cls.__name__} {x!r}"
    if isinstance(x, np.generic) and cls.__module__ == "numpy" and x.dtype.kind in "biufcSU":
        return f"{x.dtype.str} {x.tobytes().hex()}"
    if cls is slice:
        return f"slice {plain((x.start, x.stop, x.step))}"
    if cls is range:
        return f"range {plain((x.start, x.stop, x.step))}"
    if cls is frozenset:
        return f"frozenset {sorted(map(plain, x))}"
    if isinstance(x, enum.Enum):
        return f"{class_key(cls)} {plain(x.value)}"
    raise Unkept(f"a {cls.__qualname__}")


# -- code --------------------------------------------------------------------------------------------------------------
@functools.lru_cache(maxsize=4096)
def code_key(code: types.CodeType) -> str:
    """The identity of a code object, without its source position."""
    consts = [code_key(x) if isinstance(x, types.CodeType) else _const(x) for x in code.co_consts]
    fields = (
        *bytes_of(code),
        code.co_names,
        code.co_varnames,
        code.co_freevars,
        code.co_cellvars,
        code.co_argcount,
        code.co_posonlyargcount,
        code.co_kwonlyargcount,
        code.co_flags,
        code.co_name,
    )
    return digest(f"{fields}{consts}")


def _const(x: object) -> str:
    if type(x) is tuple:
        return f"({', '.join(map(_const, x))})"
    return f"{sorted(map(_const, x))}" if type(x) is frozenset else f"{type(x).__name__} {x!r}"


def _function(fun: Any) -> list[Any]:
    """The fingerprint of a user's function; arrays among its defaults are only marked."""
    defaults = [_default(x) for x in fun.__defaults__ or ()]
    keywords = [[k, _default(x)] for k, x in (fun.__kwdefaults__ or {}).items()]
    held = sorted(k for k in vars(fun) if k not in (DERIVED, "__wrapped__"))
    return ["function", code_key(fun.__code__), fun.__name__, defaults, keywords, held]


def _default(x: object) -> str:
    try:
        return plain(x)
    except Unkept:
        return "*"


# -- objects of libraries ----------------------------------------------------------------------------------------------
def library(name: str) -> bool:
    """Whether a module is deterministic, and its version is part of the key of every trace."""
    return name.partition(".")[0] in _STEADY and not name.startswith("numpy.random")


def library_name(x: object) -> tuple[str, str] | None:
    """The module and the qualified name of a function, class or module of a library; None for anything else."""
    if isinstance(x, types.ModuleType):
        return (x.__name__, "") if library(x.__name__) and sys.modules.get(x.__name__) is x else None
    if not isinstance(x, _NAMED):
        return None
    module = "numpy" if isinstance(x, np.ufunc) else getattr(x, "__module__", None)
    owner = getattr(x, "__objclass__", None)
    module = module or (owner.__module__ if owner is not None else "builtins")
    name = getattr(x, "__qualname__", None) or getattr(x, "__name__", None)
    if not isinstance(module, str) or not isinstance(name, str) or not library(module):
        return None
    candidates = (module, name), (module.partition(".")[0], name.rpartition(".")[2]), ("types", name)
    return next((candidate for candidate in candidates if resolve_name(candidate) is x), None)


_NOTHING: Any = object()
# Types that are identified by name.
_NAMED = (
    type,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    np.ufunc,
    type(np.dot),
)


def resolve_name(qualified_name: tuple[str, str] | list[str]) -> Any:
    """The object under a name of an imported module; a sentinel if there is none."""
    result: Any = sys.modules.get(qualified_name[0], _NOTHING)
    for name in qualified_name[1].split(".") if qualified_name[1] else ():
        # Do not trigger a module's lazy attributes.
        result = (
            vars(result).get(name, _NOTHING) if type(result) is types.ModuleType else getattr(result, name, _NOTHING)
        )
    return result


def names_in(codes: Iterable[types.CodeType]) -> set[str]:
    """The names and texts in code; `Unkept` for code whose calls differ between processes."""
    every = [each for code in codes for each in code_objects(code)]
    names = {x for code in every for x in (*code.co_names, *(x for x in code.co_consts if isinstance(x, str)))}
    if not names.isdisjoint(_UNSTEADY):
        raise Unkept(f"code that calls {', '.join(sorted(names & _UNSTEADY))}")
    if any(makes_sets(x) or uses_constant_sets(x) for x in every):
        raise Unkept("code that makes a set, whose order is another in each process")
    return names


def untouched(modules: Iterable[types.ModuleType], names: set[str]) -> list[list[str]]:
    """The meanings of names in library modules, which change if a library is patched.

    `Unkept` if a user's function replaces a library function.
    """
    result, waiting, seen = list[list[str]](), list(modules), set[str]()
    while waiting:
        module = waiting.pop()
        if module.__name__ in seen:
            continue
        seen.add(module.__name__)
        for name in sorted(names & vars(module).keys()):
            x = vars(module)[name]
            if isinstance(x, types.ModuleType) and library(x.__name__):
                waiting.append(x)
            result.append([module.__name__, name, meaning(x)])
    return sorted(result)


def meaning(x: object) -> str:
    """The fingerprint of an object in a library module: its names."""
    if isinstance(x, types.FunctionType) and is_user_function(x):
        raise Unkept(f"{x.__qualname__}, which stands in the place of a function of a library")
    if callable(x) or isinstance(x, types.ModuleType):
        names = (getattr(x, each, "") for each in ("__module__", "__qualname__", "__name__"))
        return f"{type(x).__name__} {' '.join(str(each) for each in names)}"
    return _default(x)


# -- objects -----------------------------------------------------------------------------------------------------------
def described(x: object) -> list[Any]:
    """The fingerprint of an object, which differs for objects that are not equivalent; `Unkept` if it is not known."""
    if isinstance(x, types.FunctionType) and is_user_function(x):
        return _function(x)
    if isinstance(x, types.ModuleType) and is_user_module(x):
        return ["module", x.__name__]
    qualified_name = library_name(x)
    if qualified_name is not None:
        return ["library", *qualified_name]
    if consists_of_functions(x):
        return ["traced", digest(traced(x)[0])]
    for cls, describe in _DESCRIBED:
        if isinstance(x, cls):
            return describe(x)
    if is_user_object(x) or (library_name(type(x)) and isinstance(x, dict | list | set | tuple)):
        return ["object", class_key(type(x))]
    raise Unkept(f"the {type(x).__qualname__} {getattr(x, '__name__', '')}".rstrip())


def _of_library(x: types.FunctionType) -> list[object]:
    """The fingerprint of a closure created by a library function."""
    if not library(str(x.__globals__.get("__name__"))):
        raise Unkept(f"the function {x.__qualname__}")
    return ["inner", code_key(x.__code__), *(plain(cell.cell_contents) for cell in x.__closure__ or ())]


def _dynamic(x: types.DynamicClassAttribute) -> list[object]:
    """The fingerprint of a property of instances only, as enumerations have."""
    if not isinstance(x.fget, types.FunctionType) or not library(x.fget.__module__):
        raise Unkept(f"the {type(x).__qualname__}")
    return ["dynamic", x.fget.__module__, x.fget.__qualname__]


def _partial(x: functools.partial[Any]) -> list[object]:
    if type(x) is not functools.partial or vars(x):
        raise Unkept(f"the {type(x).__qualname__}")
    return ["partial", len(x.args), *x.keywords]


def class_key(cls: Any, inside: tuple[Any, ...] = ()) -> str:
    """The identity of a class."""
    qualified_name = library_name(cls)
    if qualified_name is not None:
        return ".".join(qualified_name)
    if cls in inside:
        return f"itself {inside.index(cls)}"
    if not is_user_code(cls):
        raise Unkept(f"the class {cls.__qualname__}")
    if "_abc_impl" in vars(cls) and abc._get_dump(cls)[0]:  # type: ignore[attr-defined]
        raise Unkept(f"the class {cls.__qualname__}, of which others were registered")
    inside = (*inside, cls)
    members = [_member(k, x, inside) for k, x in vars(cls).items() if k not in _LABELS]
    above = [class_key(base, inside) for base in cls.__bases__]
    return digest(f"{cls.__qualname__} {above} {class_key(type(cls), inside)} {members}")


def functions_of(cls: type) -> list[types.FunctionType]:
    """The user's functions in a class and its bases."""
    results = [x for base in cls.__mro__ for x in vars(base).values()]
    members = [member for x in results for member in ((x.fget, x.fset) if isinstance(x, property) else (_bare(x),))]
    return [x for x in members if isinstance(x, types.FunctionType) and is_user_function(x)]


def _bare(x: object) -> object:
    return x.__func__ if isinstance(x, classmethod | staticmethod) else x


def _member(name: str, x: Any, inside: tuple[object, ...] = ()) -> str:
    """The fingerprint of a class member."""
    if isinstance(x, property):
        return f"{name}: property {[_member('', f) for f in (x.fget, x.fset, x.fdel)]}"
    if isinstance(x, classmethod | staticmethod):
        return f"{name}: {type(x).__name__} {_member('', x.__func__)}"
    if isinstance(x, types.FunctionType):
        return f"{name}: {_function(x)}"
    if isinstance(x, type):
        is_internal = x.__module__.startswith("tracegrad.")  # for instance the node class of a `Function`
        return f"{name}: {x.__module__} {x.__qualname__}" if is_internal else f"{name}: {class_key(x, inside)}"
    if name == "__dataclass_fields__":
        return f"{name}: {[_field(f) for f in x.values()]}"
    if isinstance(x, enum.Enum):
        return f"{name}: {_default(x.value)}"
    if consists_of_functions(x):
        return f"{name}: {traced(x)[0]}"
    return f"{name}: {type(x).__qualname__} {_default(x)}"


_DESCRIBED: tuple[tuple[Any, Callable[[Any], list[Any]]], ...] = (
    (types.CodeType, lambda x: ["code", code_key(x)]),
    (types.FunctionType, _of_library),
    (type, lambda x: ["class", class_key(x)]),
    ((property, classmethod, staticmethod), lambda x: ["member", _member("", x)]),
    (types.MethodType, lambda x: ["method"]),
    (types.DynamicClassAttribute, _dynamic),
    (functools.partial, _partial),
)


def _field(f: dataclasses.Field[object]) -> str:
    held = {str(k): plain(x) for k, x in f.metadata.items()}
    return f"{f.name} {f.init} {f.kw_only} {f.default_factory is dataclasses.MISSING} {held}"


# -- traced functions --------------------------------------------------------------------------------------------------
class Roots:
    """A traced function: its objects, in the order of their discovery, and the texts of everything else."""

    def __init__(self) -> None:
        self.objects: list[Any] = []
        self._known: dict[int, str] = {}
        self._alive: list[Any] = []

    def text(self, x: object) -> str:
        """The text of a function, or of an object in the closure of a tracegrad function."""
        known = self._known.get(id(x))
        if known is None:
            self._known[id(x)] = f"again {len(self._known)}"
            self._alive.append(x)
            known = self._text(x)
        return known

    def _text(self, x: object) -> str:
        if isinstance(x, types.FunctionType) and not is_user_function(x):
            return self._package_function(x)
        if isinstance(x, Description):
            return f"description {x.role}"
        if isinstance(x, list | tuple):
            return f"{type(x).__name__} {[self.text(each) for each in x]}"
        if type(x) is dict:
            return f"dict {[(self.text(key), self.text(each)) for key, each in x.items()]}"
        fields = _function_fields(x)
        if fields:
            return f"{fields} {[self.text(getattr(x, name)) for name in fields]}"
        return self._object(x)

    def _object(self, x: object) -> str:
        try:
            return plain(x)
        except Unkept:
            self.objects.append(x)
            if isinstance(x, types.MethodType):
                return f"method {self.text(x.__func__)} {self.text(x.__self__)}"
            return f"{described(x)}"

    def _package_function(self, x: Any) -> str:
        qualified_name = library_name(x)
        if qualified_name is not None:
            return ".".join(qualified_name)
        if not x.__module__.startswith("tracegrad."):
            raise Unkept(f"the function {x.__qualname__}")
        held = [self.text(cell.cell_contents) for cell in x.__closure__ or ()]
        return f"{x.__module__} {x.__qualname__} {x.__code__.co_firstlineno} {held} {self.text(x.__defaults__)}"

    def structure(self, spec: Any) -> str:
        """The text of an argument structure, whose classes are objects."""
        kind, aux, children = spec
        if kind is LEAF_KIND:
            return "*"
        if kind is FIXED_KIND:
            return f"fixed {self.static(aux)}"
        if library_name(kind.cls) is None:
            self.objects.append(kind.cls)
        return f"{class_key(kind.cls)} {self.static(aux)} {[self.structure(each) for each in children]}"

    def static(self, x: object) -> str:
        """The text of static data, which may contain classes."""
        if type(x) is tuple:
            return f"({', '.join(map(self.static, x))})"
        cls = x if isinstance(x, type) else type(x) if isinstance(x, enum.Enum) else None
        if cls is not None and library_name(cls) is None:
            self.objects.append(cls)
        return class_key(x) if isinstance(x, type) else plain(x)


# The parts of traced functions, of methods of instances, and of functions with derivative rules.
_OF_TRACED = {
    "tracegrad.traced_function.Traced": ("fun", "body"),
    "tracegrad.runtime.dispatch.bound_method.BoundMethod": ("__wrapped__", "instance"),
    "tracegrad.transforms.custom_rules.custom_vjp": ("fun", "fwd", "bwd", "nondiff_argnums"),
    "tracegrad.transforms.custom_rules.custom_jvp": ("fun", "jvp", "nondiff_argnums"),
}


def _function_fields(x: object) -> tuple[str, ...]:
    cls = getattr(x, "_plain", type(x)) if isinstance(x, Inlinable) else type(x)  # a fast path is a generated class
    return _OF_TRACED.get(f"{cls.__module__}.{cls.__qualname__}", ())


def consists_of_functions(x: object) -> bool:
    """Whether `x` is a traced function, or a function with a custom rule."""
    return bool(_function_fields(x))


def traced(x: object) -> tuple[str, list[Any]]:
    """The text of a traced function or a function with a custom rule, and the objects in it; `Unkept` for any other
    object."""
    if not consists_of_functions(x):
        raise Unkept(f"a {type(x).__qualname__}")
    roots = Roots()
    return roots.text(x), roots.objects


# -- this process ------------------------------------------------------------------------------------------------------
@functools.cache
def process_key() -> str:
    """The key common to all traces: Python, the versions of the packages that traces take for granted, and this
    package."""
    parts = [cpu_key(), sys.version, np.__version__, *source_stamps()]
    return digest("\n".join(parts))


def is_extended() -> bool:
    """Whether the user has added ops, or NumPy functions."""
    return _extended(tuple(TABLE), tuple(FUNCTIONS.values()))  # not their number: the package's own are added lazily


@functools.lru_cache(maxsize=4)
def _extended(ops: tuple[str, ...], functions: tuple[Callable[..., object], ...]) -> bool:
    rules = [x for op in TABLE.values() for x in (op.impl_unchecked, *op._vjp.values(), op._jvp, op._batch)]
    modules = {x.__module__ for x in (*rules, *functions) if isinstance(x, types.FunctionType)}
    return not all(module.startswith("tracegrad.") for module in modules)
