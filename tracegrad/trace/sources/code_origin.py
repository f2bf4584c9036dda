"""Classify functions, classes and modules by origin: user code or a known library.

The known libraries are Python, NumPy, SciPy, Numba and tracegrad. All other Python code is user code, wherever it is
stored: in an installed package, a zip file, a notebook, or no file. The modules and optimizers of tracegrad count as
user code, because they are traced. Classes in C have no code to trace and are neither.
"""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
import os
import sys
import threading
import types
from typing import Any

import numpy as np

from tracegrad.errors import PACKAGE
from tracegrad.platform.files import INSTALLED
from tracegrad.settings import settings

_KNOWN = ("numpy", "scipy", "numba", "llvmlite", "tracegrad")  # with Python: libraries that have shadows or rules


def _folders(name: str) -> list[str]:
    """The folders of an installed package, without importing it."""
    spec = importlib.util.find_spec(name)
    return [os.path.join(path, "") for path in (spec and spec.submodule_search_locations) or ()]


def standard_library_folders() -> tuple[str, ...]:
    """The folders of the standard library: of its Python code, and of what is built for the machine.

    `sysconfig` has the same paths, and reads all variables of Python's makefile for them.

    >>> import sysconfig
    >>> paths = {os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "platstdlib")}
    >>> paths <= {*standard_library_folders()}
    True
    """
    pure = os.path.dirname(os.__file__)
    built = os.path.join(sys.exec_prefix, sys.platlibdir, os.path.basename(pure))
    return tuple({os.path.join(path, "") for path in (pure, built)})


_PYTHON = standard_library_folders()
# Folders of installed packages, which in some installations are within the folder of the standard library.
_INSTALLED = tuple(os.path.join(path, name, "") for path in _PYTHON for name in INSTALLED)
_LIBRARIES = (PACKAGE, *[path for name in _KNOWN[:-1] for path in _folders(name)])
# Folders and modules whose code is traced like user code: `numpy.polynomial`, which only calls NumPy; modules,
# optimizers and scalers, which read and write objects of users; and wrappers that create a function in each call.
_TRACED = (
    os.path.join(os.path.dirname(np.__file__), "polynomial", ""),
    *[os.path.join(PACKAGE, "torch", name, "") for name in ("amp", "distributions", "nn", "optim")],
    *[
        os.path.join(PACKAGE, "compat", "autograd", name)
        for name in ("transforms", "differential", "wrap_util", "misc")
    ],
)
# Modules of decorators that run a user function.
_DECORATORS = [
    os.path.join(PACKAGE, "torch", *place) for place in (("modes.py",), ("autograd", "once_differentiable.py"))
]
_HEAP = 1 << 9  # flag of classes that are created at run time, by a statement or in C
_IN_C_FILES = tuple(importlib.machinery.EXTENSION_SUFFIXES)
_IN_C = (types.WrapperDescriptorType, types.MethodDescriptorType)
_OF_PYTHON = sys.stdlib_module_names | set(sys.builtin_module_names)


@functools.cache
def is_user_file(filename: str) -> bool:
    """Whether the code of a file is user code, or is treated as user code."""
    if filename.startswith(_TRACED):
        return True
    if filename.startswith((*_LIBRARIES, "<frozen", "<__array_function__")):
        return False
    return filename.startswith(_INSTALLED) or not filename.startswith(_PYTHON)


def is_library_module(x: types.ModuleType) -> bool:
    """Whether a module belongs to Python, NumPy, SciPy or Numba; its functions and classes are assumed to stay the
    same."""
    root = x.__name__.partition(".")[0]
    return root != "__main__" and (root in _OF_PYTHON or root in _KNOWN)


def is_user_module(x: types.ModuleType) -> bool:
    """Whether a module is the user's: from a user file, or created at run time without a file."""
    if _opaque_name(x.__name__):
        return False
    filename = getattr(x, "__file__", None)
    return is_user_file(str(filename)) if filename else not is_library_module(x)


def is_user_function(x: object) -> bool:
    """Whether `x` is a user function, or a wrapper of one, as made by `contextmanager` and `no_grad`."""
    while isinstance(x, types.FunctionType) and not opaque_package(x):
        if is_user_file(x.__code__.co_filename):
            return True
        if x.__code__.co_filename.startswith(PACKAGE) and not is_decorated(x):
            return False
        x = getattr(x, "__wrapped__", None)
    return False


def is_decorated(x: types.FunctionType) -> bool:
    """Whether a decorator of tracegrad that sets a mode, such as `no_grad`, made the function."""
    return x.__code__.co_filename in _DECORATORS and hasattr(x, "__wrapped__")


@functools.lru_cache(maxsize=4096)
def is_user_code(cls: object) -> bool:
    """Whether a class comes from a user module."""
    if cls.__module__ == "builtins":
        return _is_written(cls)  # its namespace has no module name
    if cls.__module__ in sys.stdlib_module_names or _opaque_name(cls.__module__):
        return False
    filename = getattr(sys.modules.get(cls.__module__), "__file__", "") or ""
    return is_user_file(filename) and not filename.endswith(_IN_C_FILES)


@functools.lru_cache(maxsize=4096)
def is_user_class(cls: type) -> bool:
    """Whether `cls` is a user class written in Python without a built-in base."""
    return is_user_code(cls) and all(c is object or _is_written(c) for c in cls.__mro__)


def _is_written(cls: Any) -> bool:
    """Whether a class is made by a class statement. C types increasingly are heap types made at run time too, and their
    instances hold fields in no namespace; `threading.local` is recognized by name."""
    attributes = vars(cls)
    result = attributes.get("__new__")
    in_c = isinstance(result, types.BuiltinFunctionType) and result.__self__ is cls
    in_c = in_c or any(isinstance(x, _IN_C) and x.__objclass__ is cls for x in attributes.values())
    return bool(cls.__flags__ & _HEAP) and (not in_c or cls is threading.local)


def is_internal_class(cls: object) -> bool:
    """Whether a class belongs to tracegrad; it is assumed to stay the same, and its methods are traced."""
    return bool(cls.__module__.partition(".")[0] == "tracegrad")


def is_of_numba(x: object) -> bool:
    """Whether `x` is a function compiled by Numba's `njit` or `jit`; the user's function is its `py_func`."""
    return type(x).__module__.startswith("numba.") and isinstance(getattr(x, "py_func", None), types.FunctionType)


# -- packages that are not to be traced -------------------------------------------------------------------------------
# Data frames store their numbers, indices and caches in C code, where no trace sees them.
_ALWAYS = ("pandas",)


@functools.cache
def _opaque_name(module: object) -> str:
    """The untraced package that a module belongs to; "" for others."""
    names = (*settings.opaque_packages, *_ALWAYS) if isinstance(module, str) else ()
    return next((x for x in names if f"{module}.".startswith(f"{x}.")), "")


def opaque_package(x: object) -> str:
    """The untraced package that a function, class or object belongs to; "" for others."""
    if isinstance(x, types.FunctionType):
        return _opaque_name(dict.get(x.__globals__, "__name__"))
    if isinstance(x, type | types.BuiltinFunctionType | functools._lru_cache_wrapper):
        return _opaque_name(x.__module__)
    return _opaque_name(type(x).__module__)


def _forget() -> None:
    for cached in (_opaque_name, is_user_code, is_user_class):
        cached.cache_clear()


settings.watch("opaque_packages", _forget)
