"""SciPy's face of a carried value: what stands in traced code for functions and objects of SciPy.

A function of SciPy's is known by its public name. `shadow_of` answers with its *shadow*, which is a function over ops
and lies in the module of this folder that has the name of SciPy's; that is imported when the first of its functions is
asked for. Universal functions need none: they come by NumPy's protocol (`tracegrad.numpy_api.registry`).
"""

from tracegrad.scipy_api.registry import (
    Attributes,
    is_factors,
    is_fortran,
    is_special,
    of_ufunc,
    routine,
    shadow,
    shadow_of,
    shadows,
    stand_in,
)

__all__ = [
    "Attributes", "is_factors", "is_fortran", "is_special", "of_ufunc", "routine", "shadow", "shadow_of", "shadows",
    "stand_in",
]  # fmt: skip
