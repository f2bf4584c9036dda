"""Derivatives of functions of one argument, with autograd's conventions, by tracegrad's transforms.

Complex cotangents are the conjugates of tracegrad's. Integer arrays are converted to floating.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad import api, tree
from tracegrad.compat.autograd.wrap_util import split_function
from tracegrad.ops import Carrier

__all__ = ["conjugate", "make_jvp", "make_vjp", "point", "scalar_derivative"]

Function = Callable[..., Any]


def point(x: object) -> Any:
    """Convert a point of differentiation: integer arrays to floating, complex numbers to NumPy's."""
    return tree.map(_floating, x)


def _floating(x: object) -> object:
    if isinstance(x, np.ndarray) and x.dtype.kind in "iub":
        return x.astype(float)
    return np.complex128(x) if type(x) is complex else x


def conjugate(x: Any) -> Any:
    """Conjugate the complex leaves of a pytree."""
    return tree.map(lambda leaf: np.conj(leaf) if np.iscomplexobj(leaf) else leaf, x)


def make_vjp(fun: Function, x: Any) -> tuple[Function, Any]:
    """Compute `(vjp, value)`: the value at `x`, and the function from its cotangents to cotangents of `x`.

    >>> vjp, value = make_vjp(lambda x: x**2, 3.0)
    >>> print(value, vjp(10.0))
    9.0 60.0
    """
    out, pull = api.vjp(fun, point(x))

    def vjp(g: Any) -> Any:
        (result,) = pull(conjugate(_fitted(g, out)))
        return conjugate(result)

    return vjp, out


def _fitted(g: object, out: object) -> Any:
    """Convert a cotangent or tangent to the shapes and dtypes of `out`."""
    return tree.map(_fitted_leaf, g, out) if tree.structure(g) == tree.structure(out) else g


def _fitted_leaf(g: Any, like: Any) -> Any:
    dtype, shape = np.result_type(like), np.shape(like)
    if not isinstance(g, Carrier | np.ndarray):
        g = np.asarray(g)
    if dtype.kind in "fc" and g.dtype != dtype:
        g = (np.real(g) if dtype.kind == "f" else g).astype(dtype)
    return np.reshape(g, shape) if g.size == 1 and g.shape != shape else g


def make_jvp(fun: Function, x: object) -> Function:
    """Return the function from a tangent of `x` to the value and its tangent.

    >>> print(*make_jvp(lambda x: x**2, 3.0)(10.0))
    9.0 60.0
    """
    start = point(x)

    def jvp(g: object) -> tuple[Any, Any]:
        value, tangent = api.jvp(fun, (start,), (_fitted(g, start),))
        return value, tangent

    return jvp


def scalar_derivative(fun: Function, x: object, name: str, has_aux: bool = False) -> tuple[Any, Any, Any]:
    """Compute the value of a scalar function, its gradient, and its other results (`has_aux`)."""

    of_rest, rest = split_function(fun)

    def scalar(x: object, rest: Any) -> tuple[Any, Any]:
        result = of_rest(x, rest)
        value, aux = result if has_aux else (result, None)
        if isinstance(value, tuple | list | dict) or np.size(value) != 1 or np.iscomplexobj(value):
            raise TypeError(
                f"{name} only applies to real scalar-output functions. Try jacobian, elementwise_grad or "
                "holomorphic_grad."
            )
        return np.reshape(value, ()), (value, aux)

    (_, (value, aux)), gradient = api.value_and_grad(scalar, has_aux=True)(point(x), rest)
    return value, conjugate(gradient), aux
