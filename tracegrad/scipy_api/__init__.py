"""SciPy front end: replacements in traced code for SciPy's functions and objects.

A SciPy function is known by its public name. `shadow_of` returns its *shadow*: a function over ops, in the module of
this folder that has the name of SciPy's module. The module is imported at the first use of one of its functions. Ufuncs
need no shadow: they use NumPy's protocol (`tracegrad.numpy_api.registry`).
"""

from tracegrad.scipy_api.registry import (
    Attributes,
    is_factors,
    is_fortran,
    is_special,
    of_ufunc,
    replacement_of,
    routine,
    shadow,
    shadow_of,
    shadows,
)

__all__ = [
    "Attributes",
    "is_factors",
    "is_fortran",
    "is_special",
    "of_ufunc",
    "replacement_of",
    "routine",
    "shadow",
    "shadow_of",
    "shadows",
]
