"""Transforms to whole matrices of derivatives, Jacobians and Hessians, and to products with a Hessian."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracegrad import jacobians, tree
from tracegrad.errors import located
from tracegrad.runtime.dispatch.closure_families import remembered
from tracegrad.trace.sources.describe import describe
from tracegrad.traced_function import Parameters, Traced
from tracegrad.transform_support import (
    Options,
    check,
    derived,
    require_callable,
    require_sequences,
    standing_for,
    taken_eagerly,
)

__all__ = ["hessian", "hvp", "jacfwd", "jacobian", "jacrev"]

Function = Callable[..., Any]
Argnums = int | tuple[int, ...]


def jacrev(
    fun: Callable[Parameters, Any], argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = False, *,
    chunk_size: int | None = None, tiered: bool | None = None, optimize: int | None = None,
) -> Traced[Parameters, Any]:  # fmt: skip
    """Return the function `(*args) -> Jacobian`, computed row by row: for more inputs than outputs (reverse mode).

    Parameters
    ----------
    fun, argnums, has_aux, holomorphic, tiered, optimize : as for `value_and_grad`; `fun` returns a pytree of arrays
    chunk_size : int, optional; rows computed at a time, by default all

    Returns
    -------
    Traced
        Function to the Jacobian, or `(Jacobian, aux)`: the output's structure, each leaf replaced by the argument's (by
        a tuple for a tuple of argnums). Arrays have the output's axes, then the argument's.

    Raises
    ------
    DTypeError (a TypeError) for outputs not floating, arguments not floating or complex; `jacfwd`: the other way round
    DTypeError with `holomorphic` for outputs or arguments not complex; ValueError as for `value_and_grad`

    Examples
    --------
    >>> import numpy as np
    >>> print(jacrev(lambda x: x[:2] * x[2])(np.array([1.0, 2.0, 3.0])))
    [[3. 0. 1.]
     [0. 3. 2.]]
    """
    return _of_elements(
        fun, (argnums, has_aux, holomorphic, chunk_size), (tiered, optimize), jacrev, jacobians.reverse_jacobian
    )


def jacfwd(
    fun: Callable[Parameters, Any], argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = False, *,
    chunk_size: int | None = None, tiered: bool | None = None, optimize: int | None = None,
) -> Traced[Parameters, Any]:  # fmt: skip
    """Return the function `(*args) -> Jacobian`, as `jacrev`, but column by column: for more outputs than inputs.

    >>> import numpy as np
    >>> print(jacfwd(lambda x: np.array([x, x**2, x**3]))(2.0))
    [ 1.  4. 12.]
    """
    return _of_elements(
        fun, (argnums, has_aux, holomorphic, chunk_size), (tiered, optimize), jacfwd, jacobians.forward_jacobian
    )


jacobian = jacrev


def hessian(
    fun: Callable[Parameters, Any], argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = False, *,
    chunk_size: int | None = None, tiered: bool | None = None, optimize: int | None = None,
) -> Traced[Parameters, Any]:  # fmt: skip
    """Return the function `(*args) -> Hessian`, forward mode over reverse mode; all else as for `jacrev`, twice.

    >>> import numpy as np
    >>> print(hessian(lambda x: x[0] ** 2 * x[1])(np.array([1.0, 2.0])))
    [[4. 2.]
     [2. 0.]]
    """
    return _of_elements(
        fun, (argnums, has_aux, holomorphic, chunk_size), (tiered, optimize), hessian, jacobians.hessian_of
    )


def hvp(fun: Function, primals: Any, tangents: Any) -> Any:
    """Compute a Hessian-vector product of a scalar function, at the cost of a few gradients.

    `primals` (the point) and `tangents` (the vector) are tuples or lists with one entry for each positional argument,
    as for `jvp`. The result has the structure of the only primal, or is a tuple with the structure of each.

    >>> import numpy as np
    >>> print(hvp(lambda x: np.sum(x**3), (np.array([1.0, 2.0]),), (np.array([1.0, 10.0]),)))
    [  6. 120.]
    """
    require_callable(fun, "hvp")
    require_sequences(fun, primals, tangents, "hvp")
    if taken_eagerly(tree.leaves((tuple(primals), tuple(tangents)))):
        return jacobians.hvp_at(fun, primals, tangents)
    return remembered(fun, ("hvp",), lambda: _hessian_product(fun))(tuple(primals), tuple(tangents))


def _hessian_product(fun: Function) -> Any:
    def product(primals: Any, tangents: Any) -> Any:
        return jacobians.hvp_at(fun, primals, tangents)

    return standing_for(fun, product, "hvp")


def _of_elements(
    fun: Callable[Parameters, Any], given: tuple[Argnums, bool, bool, Any], options: Options, transform: Any, make: Any
) -> Traced[Parameters, Any]:
    name, (argnums, *_, chunk_size) = transform.__name__, given
    check(fun, argnums, name, options)
    if chunk_size is not None and (type(chunk_size) is not int or chunk_size < 1):
        raise ValueError(located(f"{name}: chunk_size must be a positive int or None, got {chunk_size!r}"))
    who = describe(fun, f"{name} of ")

    def made() -> Traced[Parameters, Any]:
        return derived(fun, make(fun, *given, who), transform, given[:3], options, chunk_size=chunk_size)

    return remembered(fun, (name, given, options), made)
