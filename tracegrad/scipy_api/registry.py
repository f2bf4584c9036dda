"""Registry of shadows: the SciPy functions that have one, and their lookup.

`@shadow("scipy.linalg.cholesky")` registers a function with SciPy's own signature. It is called if an argument, or an
element of a list argument, is a carrier; otherwise SciPy's own function is called.
"""

from __future__ import annotations

import functools
import importlib
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tracegrad.numpy_api import registry
from tracegrad.numpy_api.registry import Function
from tracegrad.ops.core.op import dispatch_operand
from tracegrad.ops.core.recorders import active_recorder
from tracegrad.typing import Array

Implementation = Callable[..., Any]

SHADOWS: dict[str, Implementation] = {}

# The names of functions with function arguments, which may capture traced values.
_OF_FUNCTIONS: set[str] = set()

# The packages of SciPy that have shadows, with the modules that register them.
_HOMES: dict[str, tuple[str, ...]] = {}

# By package, the factory of replacements. It gets the object and, for an object from outside, a reader of attributes.
_OBJECTS: dict[str, Callable[[Any, Any], Any]] = {}


def add_homes(package: str, homes: Mapping[str, Sequence[str]]) -> None:
    """Add modules of a package of tracegrad, by the package of SciPy that they register shadows for.

    The modules are imported at the first use of a function of the package of SciPy.
    """
    for name, modules in homes.items():
        _HOMES[name] = _HOMES.get(name, ()) + tuple([f"{package}.{module}" for module in modules])


def shadow(*names: str, of_functions: bool = False) -> Callable[[Function], Function]:
    """Register the decorated function as the shadow of SciPy's functions of these names.

    A shadow with `of_functions` is called in every trace, because function arguments may capture traced values.
    """

    def declare(implementation: Function) -> Function:
        for name in names:
            SHADOWS[name] = implementation
            if of_functions:
                _OF_FUNCTIONS.add(name)
        return implementation

    return declare


def replaces_objects(package: str) -> Callable[[Function], Function]:
    """Register the decorated function as the factory of replacements for a package's objects, or None."""

    def declare(function: Function) -> Function:
        _OBJECTS[package] = function
        return function

    return declare


class Attributes:
    """Attribute access on an object that traced code has created: unguarded."""

    def __init__(self, value: Array):
        self.value = value

    def __call__(self, name: str) -> Any:
        return getattr(self.value, name)

    def whole(self) -> None:
        """Do nothing: an object created in the trace needs no guard."""


def replacement_of(value: object, read: Attributes | None = None) -> Any:
    """Return the replacement of a SciPy object in traced code; None if there is none.

    `read` reads an attribute of an object; on an object from outside it also guards the attribute. `read.whole()`
    guards the whole object.
    """
    package = "scipy.sparse.linalg" if is_factors(value) else _package(type(value).__module__)
    if package not in _HOMES:
        return None
    _import(package)
    result = _OBJECTS.get(package)
    return None if result is None else result(value, read)


def is_factors(value: object) -> bool:
    """Whether it is a result of `scipy.sparse.linalg.splu`, whose class has no public module."""
    return type(value).__name__ == "SuperLU" and type(value).__module__ == "builtins"


def is_fortran(value: object) -> bool:
    """Whether it is a Fortran routine, whose class has no public module."""
    return type(value).__name__ == "fortran" and type(value).__module__ in ("builtins", "fortran")


def routine(value: Any) -> Callable[..., object]:
    """Return the replacement of a Fortran routine in traced code."""
    from tracegrad.scipy_api.linalg.blas_lapack import of_fortran

    result: Callable[..., object] = of_fortran(value)
    return result


def _import(package: str) -> None:
    """Import the shadows of a package."""
    for home in _HOMES[package]:
        importlib.import_module(home)


def _package(module: str) -> str:
    """Return the public package that a SciPy module belongs to."""
    path = module.split(".")
    return ".".join(path[: next((i for i, part in enumerate(path) if part.startswith("_")), len(path))])


def public_name(x: object) -> str:
    """Return the name by which users find a SciPy function or class; "" for others.

    >>> import scipy.linalg
    >>> scipy.linalg.cho_factor.__module__, public_name(scipy.linalg.cho_factor)
    ('scipy.linalg._decomp_cholesky', 'scipy.linalg.cho_factor')
    """
    home = _package(getattr(x, "__module__", None) or "")
    if home.partition(".")[0] != "scipy":
        return ""
    name = getattr(x, "__name__", "")
    return f"{home}.{name}" if getattr(sys.modules.get(home), name, None) is x else ""


def _refuse_carriers(name: str, *_: object, **__: object) -> object:
    """Refuse to call a C function of SciPy that has no shadow: no frame of it would tell its name."""
    raise registry.refuse(name)


@functools.lru_cache(maxsize=4096)
def shadow_of(function: Any) -> Any:
    """Return the shadow of a SciPy function; None if it needs none, or is unknown."""
    name = public_name(function)
    package = name.rpartition(".")[0]
    if package not in _HOMES:
        return None
    _import(package)
    replacement = SHADOWS.get(name)
    if replacement is None and isinstance(function, types.BuiltinFunctionType):
        replacement = functools.partial(_refuse_carriers, name)
    if replacement is None or isinstance(replacement, type):
        return replacement

    @functools.wraps(function, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        is_traced = name in _OF_FUNCTIONS and active_recorder() is not None
        if is_traced or dispatch_operand((*args, *kwargs.values())) is not None:
            return replacement(*args, **kwargs)
        result = function(*args, **kwargs)
        if not isinstance(function, type):
            return result
        return replacement_of(result, Attributes(result)) or result

    return call


def is_special(function: Callable[..., object]) -> bool:
    """Whether a universal function is one of `scipy.special`, and none of NumPy's."""
    home, name = sys.modules.get("scipy.special"), function.__name__
    return getattr(home, name, None) is function and getattr(np, name, None) is not function


def of_ufunc(function: np.ufunc) -> Any:
    """Return the implementation of a `scipy.special` ufunc on carriers."""
    from tracegrad.scipy_api.special import on_carriers

    return on_carriers(function)


registry.LOOKUPS.append(of_ufunc)

add_homes(
    "tracegrad.scipy_api",
    {
        "scipy.fft": ["fft"],
        "scipy.integrate": ["integrate"],
        "scipy.interpolate": ["interpolate.splines", "interpolate.grids", "interpolate.objects"],
        "scipy.linalg": [
            "linalg.functions",
            "linalg.lu",
            "linalg.matrix_equations",
            "linalg.banded",
            "spatial.procrustes",
        ],
        "scipy.ndimage": ["ndimage.filters", "ndimage.interpolation"],
        "scipy.signal": ["convolution", "signal.filters", "signal.spectral"],
        "scipy.sparse": ["sparse"],
        "scipy.sparse.linalg": ["sparse"],
        "scipy.spatial": ["spatial.kdtree", "spatial.procrustes"],
        "scipy.spatial.distance": ["spatial.distance"],
        "scipy.spatial.transform": ["spatial.rotations"],
        "scipy.special": ["special"],
        "scipy.stats": ["stats.distributions", "stats.sample_statistics"],
    },
)


def shadows() -> list[str]:
    """Return the names of SciPy's functions that traced code can call, except those that SciPy itself computes.

    >>> {"scipy.special.softmax", "scipy.special.gammaln", "scipy.special.comb"} <= set(shadows())
    True
    """
    for package in _HOMES:
        _import(package)
    return sorted(name for name in SHADOWS if "._" not in name)
