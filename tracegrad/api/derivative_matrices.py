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
    is_eager,
    require_callable,
    require_sequences,
    standing_for,
)

__all__ = ["hessian", "hvp", "jacfwd", "jacobian", "jacrev"]

Function = Callable[..., Any]
Argnums = int | tuple[int, ...]


def jacrev(
    fun: Callable[Parameters, Any],
    argnums: Argnums = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    *,
    chunk_size: int | None = None,
    tiered: bool | None = None,
    optimize: int | None = None,
) -> Traced[Parameters, Any]:
    """Return the function to the Jacobian of a function, computed row by row (reverse mode).

    It is the faster choice for more inputs than outputs.

    Parameters
    ----------
    fun : callable
        Function whose result is a pytree of floating arrays.
    argnums : int or tuple of int
        Positions of the arguments to differentiate with respect to. Their arrays are floating or complex.
    has_aux : bool
        Whether `fun` returns `(out, aux)`. The auxiliary result `aux` is not differentiated.
    holomorphic : bool
        Whether `fun` is a holomorphic function of complex arguments, with complex results.
    chunk_size : int, optional
        Number of rows that are computed at a time. The default is all rows.
    tiered : bool, optional
        Option as for `trace`. The default is the option of `fun`.
    optimize : {1, 2, 3}, optional
        Option as for `trace`. The default is the option of `fun`.

    Returns
    -------
    Traced
        Function `(*args) -> jacobian`; with `has_aux`, `(*args) -> (jacobian, aux)`. The Jacobian has the structure of
        the output, and in place of each leaf the structure of the argument, or a tuple for a tuple of argnums. Its
        arrays have the axes of the output, followed by the axes of the argument.

    Raises
    ------
    DTypeError
        If an output is not floating, or an argument to differentiate is neither floating nor complex. With
        `holomorphic`, if an output or argument is not complex.
    ValueError
        If `argnums` names no argument, or a static one, or `chunk_size` is not positive.

    See Also
    --------
    jacfwd : The same, computed column by column.

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
    fun: Callable[Parameters, Any],
    argnums: Argnums = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    *,
    chunk_size: int | None = None,
    tiered: bool | None = None,
    optimize: int | None = None,
) -> Traced[Parameters, Any]:
    """Return the function to the Jacobian of a function, computed column by column (forward mode).

    It is the faster choice for more outputs than inputs.

    Parameters
    ----------
    fun : callable
        Function whose result is a pytree of floating or complex arrays.
    argnums : int or tuple of int
        Positions of the arguments to differentiate with respect to. Their arrays are floating.
    has_aux : bool
        Whether `fun` returns `(out, aux)`. The auxiliary result `aux` is not differentiated.
    holomorphic : bool
        Whether `fun` is a holomorphic function of complex arguments, with complex results.
    chunk_size : int, optional
        Number of columns that are computed at a time. The default is all columns.
    tiered : bool, optional
        Option as for `trace`. The default is the option of `fun`.
    optimize : {1, 2, 3}, optional
        Option as for `trace`. The default is the option of `fun`.

    Returns
    -------
    Traced
        Function `(*args) -> jacobian`; with `has_aux`, `(*args) -> (jacobian, aux)`. Structure and shapes are those of
        `jacrev`.

    Raises
    ------
    DTypeError
        If an argument to differentiate is not floating, or an output is neither floating nor complex. With
        `holomorphic`, if an output or argument is not complex.
    ValueError
        If `argnums` names no argument, or a static one, or `chunk_size` is not positive.

    See Also
    --------
    jacrev : The same, computed row by row.

    Examples
    --------
    >>> import numpy as np
    >>> print(jacfwd(lambda x: np.array([x, x**2, x**3]))(2.0))
    [ 1.  4. 12.]
    """
    return _of_elements(
        fun, (argnums, has_aux, holomorphic, chunk_size), (tiered, optimize), jacfwd, jacobians.forward_jacobian
    )


jacobian = jacrev


def hessian(
    fun: Callable[Parameters, object],
    argnums: Argnums = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    *,
    chunk_size: int | None = None,
    tiered: bool | None = None,
    optimize: int | None = None,
) -> Traced[Parameters, Any]:
    """Return the function to the Hessian of a function: the matrix of second derivatives, forward over reverse mode.

    Parameters
    ----------
    fun : callable
        Function whose result is a floating scalar, or a pytree of floating arrays.
    argnums : int or tuple of int
        Positions of the arguments to differentiate with respect to. Their arrays are floating.
    has_aux : bool
        Whether `fun` returns `(out, aux)`. The auxiliary result `aux` is not differentiated.
    holomorphic : bool
        Whether `fun` is a holomorphic function of complex arguments, with complex results.
    chunk_size : int, optional
        Number of columns that are computed at a time. The default is all columns.
    tiered : bool, optional
        Option as for `trace`. The default is the option of `fun`.
    optimize : {1, 2, 3}, optional
        Option as for `trace`. The default is the option of `fun`.

    Returns
    -------
    Traced
        Function `(*args) -> hessian`; with `has_aux`, `(*args) -> (hessian, aux)`. The Hessian has the structure of the
        output, with the structure of the argument twice in place of each leaf. Its arrays have the axes of the output,
        followed by the axes of the argument, twice.

    Raises
    ------
    DTypeError
        If an output or an argument to differentiate is not floating. With `holomorphic`, if one is not complex.
    ValueError
        If `argnums` names no argument, or a static one, or `chunk_size` is not positive.

    See Also
    --------
    hvp : Product of the Hessian and a vector, without the matrix.

    Examples
    --------
    >>> import numpy as np
    >>> print(hessian(lambda x: x[0] ** 2 * x[1])(np.array([1.0, 2.0])))
    [[4. 2.]
     [2. 0.]]
    """
    return _of_elements(
        fun, (argnums, has_aux, holomorphic, chunk_size), (tiered, optimize), hessian, jacobians.hessian_of
    )


def hvp(fun: Function, primals: Any, tangents: Any) -> Any:
    """Compute the product of the Hessian of a scalar function and a vector, at the cost of a few gradients.

    Parameters
    ----------
    fun : callable
        Function whose value is a floating scalar.
    primals : tuple or list
        Point: one entry for each positional argument.
    tangents : tuple or list
        Vector, with the structure, shapes and dtypes of the primals.

    Returns
    -------
    pytree of array
        Product with the structure of the primal, or a tuple of products if there are several primals.

    Raises
    ------
    TypeError
        If primals or tangents are no sequence, or a structure or dtype differs.
    ShapeError
        If a shape differs, or the value is not a scalar.

    See Also
    --------
    hessian : The whole matrix.

    Examples
    --------
    >>> import numpy as np
    >>> print(hvp(lambda x: np.sum(x**3), (np.array([1.0, 2.0]),), (np.array([1.0, 10.0]),)))
    [  6. 120.]
    """
    require_callable(fun, "hvp")
    require_sequences(fun, primals, tangents, "hvp")
    if is_eager(tree.leaves((tuple(primals), tuple(tangents)))):
        return jacobians.hvp_at(fun, primals, tangents)
    return remembered(fun, ("hvp",), lambda: _hessian_product(fun))(tuple(primals), tuple(tangents))


def _hessian_product(fun: Function) -> Any:
    def product(primals: Any, tangents: Any) -> Any:
        return jacobians.hvp_at(fun, primals, tangents)

    return standing_for(fun, product, "hvp")


def _of_elements(
    fun: Callable[Parameters, Any],
    arguments: tuple[Argnums, bool, bool, Any],
    options: Options,
    transform: Any,
    make: Any,
) -> Traced[Parameters, Any]:
    name, (argnums, *_, chunk_size) = transform.__name__, arguments
    check(fun, argnums, name, options)
    if chunk_size is not None and (type(chunk_size) is not int or chunk_size < 1):
        raise ValueError(located(f"{name}: chunk_size must be a positive int or None, got {chunk_size!r}"))
    description = describe(fun, f"{name} of ")

    def make_derived() -> Traced[Parameters, Any]:
        return derived(
            fun, make(fun, *arguments, description), transform, arguments[:3], options, chunk_size=chunk_size
        )

    return remembered(fun, (name, arguments, options), make_derived)
