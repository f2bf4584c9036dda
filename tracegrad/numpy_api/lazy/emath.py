"""Functions of `np.emath`: complex results where real ones would be nan.

The domain is a query for a value, which leaves a guard; a batch has no value to query.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracegrad.numpy_api.operands import arrays, has_value, to_dtype
from tracegrad.numpy_api.reductions import any_
from tracegrad.numpy_api.registry import implements, refuse
from tracegrad.ops.elementwise.table import absolute, greater, less
from tracegrad.ops.shape.linear import stop_gradient
from tracegrad.typing import Array, ArrayLike

if TYPE_CHECKING:
    from collections.abc import Callable


def _complex(x: Array) -> Array:
    return to_dtype(x, np.result_type(x.dtype, np.complex64))


def _any(mask: Array) -> bool:
    result = any_(mask)
    if not has_value(result):
        raise refuse(
            "np.emath of an element of a batch", "use NumPy's function, of complex numbers if it may be needed"
        )
    return bool(result)


def _not_negative(x: ArrayLike, kind: Callable[[Array], Array] = _complex) -> Array:
    """`x`, of another kind if one of its elements is a negative real number."""
    (x,) = arrays(x)
    return kind(x) if x.dtype.kind in "fi" and _any(less(stop_gradient(x), 0)) else x


def _in_unit_interval(x: ArrayLike) -> Array:
    (x,) = arrays(x)
    return _complex(x) if x.dtype.kind != "c" and _any(greater(absolute(stop_gradient(x)), 1)) else x


@implements(np.emath.logn)
def logn(n: ArrayLike, x: ArrayLike) -> Array:
    """`np.emath.logn`."""
    x, n = _not_negative(x), _not_negative(n)
    result: Array = np.log(x) / np.log(n)
    return result


@implements(np.emath.power)
def power(x: ArrayLike, p: ArrayLike) -> Array:
    """`np.emath.power`."""
    result: Array = np.power(_not_negative(x), _not_negative(p, lambda y: y * 1.0))
    return result


def _of(function: Callable[..., object], real: Callable[[Array], Array], fitting: Callable[[ArrayLike], Array]) -> None:
    def call(x: ArrayLike) -> Array:
        return real(fitting(x))

    call.__doc__ = f"`np.emath.{function.__name__}`."
    implements(function)(call)


for _name in ("sqrt", "log", "log2", "log10"):
    _of(getattr(np.emath, _name), getattr(np, _name), _not_negative)
for _name in ("arccos", "arcsin", "arctanh"):
    _of(getattr(np.emath, _name), getattr(np, _name), _in_unit_interval)
