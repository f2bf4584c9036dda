"""Derivatives of functions of one argument, with autograd's conventions, by tracegrad's transforms.

Its cotangents of complex numbers are the conjugates of tracegrad's. Arrays of integers are taken as floating.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad import api, tree
from tracegrad.compat.autograd.wrap_util import parts_of
from tracegrad.ops import Carrier

__all__ = ["conjugate", "make_jvp", "make_vjp", "point", "scalar_derivative"]

Function = Callable[..., Any]


def point(x: Any) -> Any:
    """Where a derivative is taken: arrays of integers as floating ones, and complex numbers as NumPy's."""
    return tree.map(_floating, x)


def _floating(x: Any) -> Any:
    if isinstance(x, np.ndarray) and x.dtype.kind in "iub":
        return x.astype(float)
    return np.complex128(x) if type(x) is complex else x


def conjugate(x: Any) -> Any:
    """A pytree with the conjugates of its complex leaves."""
    return tree.map(lambda leaf: np.conj(leaf) if np.iscomplexobj(leaf) else leaf, x)


def make_vjp(fun: Function, x: Any) -> tuple[Function, Any]:
    """`(vjp, value)`: the value at `x`, and from its cotangents to those of `x`.

    >>> vjp, value = make_vjp(lambda x: x**2, 3.0)
    >>> print(value, vjp(10.0))
    9.0 60.0
    """
    out, pull = api.vjp(fun, point(x))

    def vjp(g: Any) -> Any:
        (found,) = pull(conjugate(_fitted(g, out)))
        return conjugate(found)

    return vjp, out


def _fitted(g: Any, out: Any) -> Any:
    """A cotangent or tangent of the shapes and dtypes of `out`."""
    return tree.map(_fitted_leaf, g, out) if tree.structure(g) == tree.structure(out) else g


def _fitted_leaf(g: Any, like: Any) -> Any:
    dtype, shape = np.result_type(like), np.shape(like)
    if not isinstance(g, Carrier | np.ndarray):
        g = np.asarray(g)
    if dtype.kind in "fc" and g.dtype != dtype:
        g = (np.real(g) if dtype.kind == "f" else g).astype(dtype)
    return np.reshape(g, shape) if g.size == 1 and g.shape != shape else g


def make_jvp(fun: Function, x: Any) -> Function:
    """The function from a tangent of `x` to the value and its tangent.

    >>> print(*make_jvp(lambda x: x**2, 3.0)(10.0))
    9.0 60.0
    """
    start = point(x)

    def jvp(g: Any) -> tuple[Any, Any]:
        value, tangent = api.jvp(fun, (start,), (_fitted(g, start),))
        return value, tangent

    return jvp


def scalar_derivative(fun: Function, x: Any, name: str, has_aux: bool = False) -> tuple[Any, Any, Any]:
    """The value of a function with one number for output, its gradient, and what else it gives (`has_aux`)."""

    of_rest, rest = parts_of(fun)

    def scalar(x: Any, rest: Any) -> tuple[Any, Any]:
        found = of_rest(x, rest)
        value, aux = found if has_aux else (found, None)
        if isinstance(value, tuple | list | dict) or np.size(value) != 1 or np.iscomplexobj(value):
            raise TypeError(
                f"{name} only applies to real scalar-output functions. Try jacobian, elementwise_grad or "
                "holomorphic_grad."
            )
        return np.reshape(value, ()), (value, aux)

    (_, (value, aux)), gradient = api.value_and_grad(scalar, has_aux=True)(point(x), rest)
    return value, conjugate(gradient), aux
