"""Compute fingerprints of pytree registrations: the flatten and unflatten functions of containers.

No trace guards the reads of the two functions. Their fingerprint therefore includes everything that they could read:
code, defaults and variables, and recursively the functions and classes that they name. An object without a text (an
array or a list from outside, a user's module) raises `Unkept`, because it may differ in the next process.
"""

from __future__ import annotations

import functools
import types
from typing import Any

from tracegrad.runtime.compile.fingerprint import (
    Unkept,
    class_key,
    code_key,
    digest,
    library,
    library_name,
    names_in,
    plain,
    untouched,
)
from tracegrad.trace.bytecode.code_queries import changes_variables, loaded_globals
from tracegrad.trace.bytecode.nested_code import code_objects
from tracegrad.trace.sources.code_origin import is_user_code, is_user_function
from tracegrad.tree.registry import registered

# Special methods that only serve display.
_SHOWN = frozenset(["__repr__", "__str__", "__format__", "__doc__", "__dir__", "__sizeof__"])
_MEMBER_FUNCTIONS: dict[Any, tuple[str, ...]] = {
    property: ("fget", "fset", "fdel"),
    (classmethod, staticmethod): ("__func__",),
}


def registration(cls: Any) -> str:
    """The fingerprint of the flatten and unflatten functions of a registered class; "" for another class."""
    functions = registered(cls)
    if functions is None:
        return ""
    return digest(_Reached(cls).text(functions)) if functions else "leaf"


class _Reached:
    """The objects that functions may read, each once, and the classes among them."""

    def __init__(self, cls: object):
        self._seen: dict[int, int] = {}
        self._alive: list[Any] = []
        self._classes: list[type] = []
        self._codes: list[types.CodeType] = []
        self._modules: list[types.ModuleType] = []
        self._cls = cls

    def text(self, functions: Any) -> str:
        """The text of functions that receive instances of the class."""
        results = [self._of(self._cls), *map(self._of, functions)]
        while methods := self._methods():
            results += map(self._of, methods)
        names = names_in(self._codes)
        return f"{results} {untouched(self._modules, names)}"

    def _methods(self) -> list[Any]:
        """The methods of the classes that may be called, by their names, and are not yet included."""
        names = {name for code in self._codes for each in code_objects(code) for name in each.co_names}
        results = []
        for cls in self._classes:
            for name, x in vars(cls).items():
                wanted = name in names or (name[:2] == "__" and name not in _SHOWN)
                results += [function for function in _functions(x) if wanted and id(function) not in self._seen]
        return results

    def _of(self, x: object) -> str:
        known = self._seen.get(id(x))
        if known is not None:
            return f"again {known}"
        if x is None or type(x) in (bool, int, float, str, tuple, frozenset, bytes):
            return plain(x)
        self._seen[id(x)] = len(self._seen)
        self._alive.append(x)
        return self._of_object(x)

    def _of_object(self, x: object) -> str:
        if isinstance(x, types.ModuleType):
            if library_name(x) is None:
                raise Unkept(f"the module {x.__name__}, which the function of a registered container names")
            self._modules.append(x)
            return x.__name__
        qualified_name = library_name(x)
        if qualified_name is not None:
            return ".".join(qualified_name)
        if isinstance(x, type):
            return self._of_class(x)
        if isinstance(x, types.FunctionType):
            return self._of_function(x)
        if isinstance(x, types.MethodType):
            return f"method {self._of(x.__func__)} {self._of(x.__self__)}"
        if type(x) is functools.partial and not vars(x):
            values = [x.func, *x.args, *x.keywords, *x.keywords.values()]
            return f"partial {[self._of(value) for value in values]}"
        return plain(x)

    def _of_class(self, cls: type) -> str:
        self._classes += [each for of in (cls, type(cls)) for each in of.__mro__ if is_user_code(each)]
        return class_key(cls)

    def _of_function(self, x: types.FunctionType) -> str:
        if not is_user_function(x):
            if not library(str(x.__globals__.get("__name__"))):
                raise Unkept(f"the function {x.__qualname__}")
            return f"inner {code_key(x.__code__)} {[self._of(cell.cell_contents) for cell in x.__closure__ or ()]}"
        self._codes.append(x.__code__)
        keywords = x.__kwdefaults__ or {}
        held = [*(x.__defaults__ or ()), *keywords, *keywords.values()]
        held += [cell.cell_contents for cell in x.__closure__ or ()]
        return f"{code_key(x.__code__)} {[*map(self._of, held)]} {[self._named(x, name) for name in _loaded(x)]}"

    def _named(self, x: Any, name: str) -> str:
        """The text of a name's meaning in a function."""
        if name in x.__globals__:
            return f"{name} {self._of(x.__globals__[name])}"
        builtins = x.__builtins__
        return f"{name} {self._of(builtins[name])}" if name in builtins else name


def _loaded(x: types.FunctionType) -> list[str]:
    """The global names that a function reads; `Unkept` for a function that assigns variables of others."""
    codes = list(code_objects(x.__code__))
    if any(map(changes_variables, codes)):
        raise Unkept(f"the function {x.__qualname__} of a registered container, which changes variables")
    return sorted({name for code in codes for name in loaded_globals(code)})


def _functions(x: object) -> list[Any]:
    """The functions of a class member."""
    names = next((names for cls, names in _MEMBER_FUNCTIONS.items() if isinstance(x, cls)), None)
    functions = [x] if names is None else [getattr(x, name) for name in names]
    return [
        function for function in functions if isinstance(function, types.FunctionType) and is_user_function(function)
    ]
