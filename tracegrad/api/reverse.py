"""Transforms of reverse mode: gradients, vector-Jacobian products, and constants of derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tracegrad import tree
from tracegrad.ops import Carrier
from tracegrad.ops.shape import linear
from tracegrad.runtime.dispatch.closure_families import remembered
from tracegrad.traced_function import Parameters, Traced
from tracegrad.transform_support import check, derived, is_eager, require_callable, second_program, standing_for
from tracegrad.transforms import vjp_function
from tracegrad.transforms.split_program import pulled, pulled_again

if TYPE_CHECKING:
    from tracegrad.typing import Array


__all__ = ["grad", "stop_gradient", "value_and_grad", "vjp"]

Function = Callable[..., Any]
Argnums = int | tuple[int, ...]


def value_and_grad(
    fun: Callable[Parameters, Any],
    argnums: Argnums = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    *,
    tiered: bool | None = None,
    optimize: int | None = None,
) -> Traced[Parameters, tuple[Any, Any]]:
    """Return the function to the value and the gradient of a scalar function (reverse mode).

    Parameters
    ----------
    fun : callable
        Function whose value is a floating scalar.
    argnums : int or tuple of int
        Positions of the arguments to differentiate with respect to. Their arrays are floating or complex.
    has_aux : bool
        Whether `fun` returns `(value, aux)`. The auxiliary result `aux` is not differentiated.
    holomorphic : bool
        Whether `fun` is a holomorphic function of complex arguments, with a complex value. The result is then its
        complex derivative.
    tiered : bool, optional
        Option as for `trace`. The default is the option of `fun`.
    optimize : {1, 2, 3}, optional
        Option as for `trace`. The default is the option of `fun`.

    Returns
    -------
    Traced
        Function `(*args) -> (value, gradient)`; with `has_aux`, `(*args) -> ((value, aux), gradient)`. The gradient
        has the structure, shapes and dtypes of the argument `argnums`. For a tuple of argnums it is a tuple. Both
        results are computed by one program.

    Raises
    ------
    DTypeError
        If an argument to differentiate is neither floating nor complex (a TypeError).
    ShapeError
        If the value is not a scalar (a TypeError too).
    ValueError
        If `argnums` names no argument, or a static one.

    See Also
    --------
    grad : Gradient without the value.
    vjp : Products with the Jacobian of a function with many outputs.

    Notes
    -----
    The gradient of a real function L with respect to a complex number x + iy is dL/dx + i dL/dy, as in PyTorch. JAX
    returns the complex conjugate.

    Examples
    --------
    >>> value, gradient = value_and_grad(lambda x: x * x)(3.0)
    >>> print(value, gradient)
    9.0 6.0
    """
    check(fun, argnums, "value_and_grad", (tiered, optimize))

    def make() -> Traced[Parameters, tuple[Any, Any]]:
        body = vjp_function.value_and_grad(fun, argnums, has_aux, holomorphic)
        return derived(fun, body, value_and_grad, (argnums, has_aux, holomorphic), (tiered, optimize))

    return remembered(fun, ("value_and_grad", argnums, has_aux, holomorphic, tiered, optimize), make)


def grad(
    fun: Callable[Parameters, Any],
    argnums: Argnums = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    *,
    tiered: bool | None = None,
    optimize: int | None = None,
) -> Traced[Parameters, Any]:
    """Return the function to the gradient of a scalar function (reverse mode).

    Parameters
    ----------
    fun : callable
        Function whose value is a floating scalar.
    argnums : int or tuple of int
        Positions of the arguments to differentiate with respect to. Their arrays are floating or complex.
    has_aux : bool
        Whether `fun` returns `(value, aux)`. The auxiliary result `aux` is not differentiated.
    holomorphic : bool
        Whether `fun` is a holomorphic function of complex arguments, with a complex value. The result is then its
        complex derivative.
    tiered : bool, optional
        Option as for `trace`. The default is the option of `fun`.
    optimize : {1, 2, 3}, optional
        Option as for `trace`. The default is the option of `fun`.

    Returns
    -------
    Traced
        Function `(*args) -> gradient`; with `has_aux`, `(*args) -> (gradient, aux)`. The gradient has the structure,
        shapes and dtypes of the argument `argnums`. For a tuple of argnums it is a tuple.

    Raises
    ------
    DTypeError
        If an argument to differentiate is neither floating nor complex (a TypeError).
    ShapeError
        If the value is not a scalar (a TypeError too).
    ValueError
        If `argnums` names no argument, or a static one.

    See Also
    --------
    value_and_grad : Gradient together with the value.
    jacrev, hessian : Derivatives of arrays, and second derivatives.

    Notes
    -----
    The gradient of a real function L with respect to a complex number x + iy is dL/dx + i dL/dy, as in PyTorch. JAX
    returns the complex conjugate.

    Examples
    --------
    >>> import numpy as np
    >>> print(grad(lambda x: np.sum(x**3))(np.array([1.0, 2.0])))
    [ 3. 12.]
    >>> print(grad(grad(np.sin))(0.5) == -np.sin(0.5))
    True
    >>> print(grad(lambda z: z**2, holomorphic=True)(np.complex128(1 + 2j)))
    (2+4j)
    """
    check(fun, argnums, "grad", (tiered, optimize))

    def make() -> Traced[Parameters, Any]:
        both = vjp_function.value_and_grad(fun, argnums, has_aux, holomorphic)

        def body(*args: object, **kwargs: Array) -> Any:
            value, gradient = both(*args, **kwargs)
            return (gradient, value[1]) if has_aux else gradient

        return derived(fun, body, grad, (argnums, has_aux, holomorphic), (tiered, optimize))

    return remembered(fun, ("grad", argnums, has_aux, holomorphic, tiered, optimize), make)


def vjp(fun: Function, *primals: Any, has_aux: bool = False) -> Any:
    """Compute `out = fun(*primals)`, and return a function to vector-Jacobian products (reverse mode).

    Parameters
    ----------
    fun : callable
        Function whose result is a pytree of arrays.
    *primals : pytree of array
        Arguments of `fun`, of floating or complex arrays.
    has_aux : bool
        Whether `fun` returns `(out, aux)`. The auxiliary result `aux` is not differentiated.

    Returns
    -------
    out : pytree of array
        Result of `fun`.
    vjp_fn : callable
        Function `vjp_fn(ct)` to the tuple of the cotangents of the primals, which is the product of `ct` and the
        Jacobian. `ct` has the structure, shapes and dtypes of `out`; Python numbers stand for scalars.
    aux : pytree
        Auxiliary result, only with `has_aux`.

    Raises
    ------
    DTypeError
        If a primal is neither floating nor complex.
    ShapeError
        If the structure or a shape of a cotangent differs from `out`.

    Notes
    -----
    `vjp_fn` is a compiled program with its own copies of the residuals. It can be called any number of times. It runs
    `fun` again only if a `custom_vjp` rule asks for the value of a cotangent, or has side effects.

    Examples
    --------
    >>> import numpy as np
    >>> out, vjp_fn = vjp(lambda x, y: x * y, np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    >>> print(*vjp_fn(np.array([1.0, 10.0])))
    [ 3. 40.] [ 1. 20.]
    """
    require_callable(fun, "vjp")
    leaves, structure = tree.flatten(primals)
    if is_eager(leaves):
        now, pull, aux = vjp_function.pull_back(fun, primals, has_aux)
        return (now, pull, aux) if has_aux else (now, pull)
    forward = remembered(fun, ("vjp", has_aux), lambda: standing_for(fun, pulled(fun, has_aux), "vjp"))
    result, saved, half = forward(primals)
    if half is not None:
        pull, primals = second_program(half, "vjp", fun), saved
    else:
        pull = remembered(fun, ("pull", has_aux), lambda: standing_for(fun, pulled_again(fun, has_aux), "vjp"))
        primals = tree.unflatten(structure, saved)
    out, aux = result if has_aux else (result, None)

    def vjp_fn(cotangent: Any) -> Any:
        return pull(primals, cotangent)

    return (out, vjp_fn, aux) if has_aux else (out, vjp_fn)


def stop_gradient(x: Any) -> Any:
    """Return a value as a constant: its derivative is zero in every transform.

    Parameters
    ----------
    x : pytree of array
        Value.

    Returns
    -------
    pytree of array
        The same value. Leaves that are neither traced arrays nor Tensors are the same objects.

    Examples
    --------
    >>> print(grad(lambda x: x * stop_gradient(x))(3.0))
    3.0
    """
    return tree.map(lambda leaf: linear.stop_gradient(leaf) if isinstance(leaf, Carrier) else leaf, x)
