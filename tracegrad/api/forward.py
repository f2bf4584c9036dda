"""Transforms of forward mode: Jacobian-vector products, once (`jvp`) or any number of times (`linearize`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.runtime.dispatch.closure_families import remembered
from tracegrad.trace.sources.describe import describe
from tracegrad.transform_support import (
    is_eager,
    require_callable,
    require_sequences,
    second_program,
    standing_for,
)
from tracegrad.transforms import jvp_function as forward
from tracegrad.transforms.split_program import linearized

if TYPE_CHECKING:
    from tracegrad.typing import Array


__all__ = ["jvp", "linearize"]

Function = Callable[..., Any]


def jvp(fun: Function, primals: Any, tangents: Any, has_aux: bool = False) -> Any:
    """Compute `out = fun(*primals)` and its directional derivative along `tangents` (forward mode).

    Parameters
    ----------
    fun : callable
        Function whose result is a pytree of arrays.
    primals : tuple or list
        Arguments of `fun`, one entry for each positional argument.
    tangents : tuple or list
        Direction, with the structure, shapes and dtypes of the primals. Integers and booleans have the tangent 0,
        whatever is passed for them. Python numbers stand for scalars.
    has_aux : bool
        Whether `fun` returns `(out, aux)`. The auxiliary result `aux` is not differentiated.

    Returns
    -------
    out : pytree of array
        Result of `fun`.
    tangent : pytree of array
        Product of the Jacobian and the tangents, with the structure of `out`.
    aux : pytree
        Auxiliary result, only with `has_aux`.

    Raises
    ------
    TypeError
        If a structure or dtype differs, or `fun` calls a `custom_vjp` function, which has no forward mode.
    ShapeError
        If a shape differs (a ValueError).

    Notes
    -----
    Forward mode takes about twice the time of `fun`, for any number of outputs.

    Examples
    --------
    >>> import numpy as np
    >>> out, tangent = jvp(lambda x, y: x * y, (np.array([1.0, 2.0]), 3.0), (np.array([1.0, 0.0]), 10.0))
    >>> print(out, tangent)
    [3. 6.] [13. 20.]
    """
    require_callable(fun, "jvp")
    description = require_sequences(fun, primals, tangents, "jvp")
    # The usual case is told in less time than its arguments are checked: a program is known for those that fit.
    args = (*primals, *tangents)
    if not all(type(x) is np.ndarray and x.dtype.kind == "f" for x in args) or is_eager(args):
        point = forward.LinearizationPoint(primals, description)
        moved = point.tangents(tangents)
        if is_eager([*point.leaves, *moved]):
            result = forward.jvp(fun, point, moved, has_aux)
            return result if has_aux else result[:2]
        tangents = point.filled(moved)
    result = remembered(fun, ("jvp", has_aux), lambda: _pushed(fun, has_aux))(tuple(primals), tuple(tangents))
    return result if has_aux else result[:2]


def _pushed(fun: Function, has_aux: bool) -> Any:
    def pushed(primals: Any, tangents: Any) -> Any:
        point = forward.LinearizationPoint(primals, describe(fun, "jvp of "))
        return forward.jvp(fun, point, point.tangents(tangents), has_aux)

    return standing_for(fun, pushed, "jvp")


def linearize(fun: Function, *primals: Any, has_aux: bool = False) -> Any:
    """Compute `out = fun(*primals)`, and return the linear function from tangents to the tangent of `out`.

    Parameters
    ----------
    fun : callable
        Function whose result is a pytree of arrays.
    *primals : pytree of array
        Arguments of `fun`.
    has_aux : bool
        Whether `fun` returns `(out, aux)`. The auxiliary result `aux` is not differentiated.

    Returns
    -------
    out : pytree of array
        Result of `fun`.
    f_jvp : callable
        Function `f_jvp(*tangents)`, with one tangent for each primal. It is a compiled program, which recomputes
        nothing that does not depend on the tangents.
    aux : pytree
        Auxiliary result, only with `has_aux`.

    Raises
    ------
    TypeError, ShapeError
        As for `jvp`.

    Examples
    --------
    >>> import numpy as np
    >>> out, f_jvp = linearize(np.exp, np.array([0.0, 1.0]))
    >>> print(out == f_jvp(np.array([1.0, 1.0])))
    [ True  True]
    """
    require_callable(fun, "linearize")
    point = forward.LinearizationPoint(primals, describe(fun, "linearize of "))
    if is_eager(point.leaves):
        out, push, aux = forward.linear(fun, point, has_aux)

        def f_jvp(*tangents: Array) -> Any:
            return push(point.tangents(tangents))
    else:
        key = "linearize", has_aux
        first = remembered(fun, key, lambda: standing_for(fun, linearized(fun, has_aux), "linearize"))
        out, aux, saved, half = first(primals)
        second = second_program(half, "f_jvp", fun)

        def f_jvp(*tangents: Array) -> Any:
            return second(saved, point.tangents(tangents))

    return (out, f_jvp, aux) if has_aux else (out, f_jvp)
