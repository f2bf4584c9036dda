"""Transforms of reverse mode: gradients, vector-Jacobian products, and constants of derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracegrad import tree
from tracegrad.ops import Carrier
from tracegrad.ops.shape import linear
from tracegrad.runtime.dispatch.closure_families import remembered
from tracegrad.traced_function import Parameters, Traced
from tracegrad.transform_support import check, derived, require_callable, second_program, standing_for, taken_eagerly
from tracegrad.transforms import vjp_function
from tracegrad.transforms.split_program import pulled, pulled_again

__all__ = ["grad", "stop_gradient", "value_and_grad", "vjp"]

Function = Callable[..., Any]
Argnums = int | tuple[int, ...]


def value_and_grad(
    fun: Callable[Parameters, Any], argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = False, *,
    tiered: bool | None = None, optimize: int | None = None,
) -> Traced[Parameters, tuple[Any, Any]]:  # fmt: skip
    """Differentiate a scalar function: compute its value and its gradient in one program (reverse mode).

    Parameters
    ----------
    fun : callable; its value is a floating scalar
    argnums : int or tuple of int; positional arguments, floating or complex
    has_aux : bool; whether `fun` returns `(value, aux)`
    holomorphic : bool; whether value and arguments are complex, and the gradient is the complex derivative
    tiered, optimize : as for `trace`; default: the options of `fun`

    Returns
    -------
    Traced
        Function `(*args) -> (value, gradient)`, or with `has_aux` `((value, aux), gradient)`. The gradient is with
        respect to the positional argument `argnums`, with its structure, shapes and dtypes; a tuple for a tuple of
        argnums. With respect to x + iy it is dL/dx + i dL/dy, as in PyTorch (JAX gives the conjugate).

    Raises
    ------
    DTypeError (a TypeError) if an argument to differentiate is neither floating nor complex
    TypeError (a `ShapeError` too) if the value is not a scalar
    ValueError if `argnums` names no argument, or a static one

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
    fun: Callable[Parameters, Any], argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = False, *,
    tiered: bool | None = None, optimize: int | None = None,
) -> Traced[Parameters, Any]:  # fmt: skip
    """Return the function `(*args) -> gradient`, with `has_aux` `(gradient, aux)`; all else as for `value_and_grad`.

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

        def body(*args: Any, **kwargs: Any) -> Any:
            value, gradient = both(*args, **kwargs)
            return (gradient, value[1]) if has_aux else gradient

        return derived(fun, body, grad, (argnums, has_aux, holomorphic), (tiered, optimize))

    return remembered(fun, ("grad", argnums, has_aux, holomorphic, tiered, optimize), make)


def vjp(fun: Function, *primals: Any, has_aux: bool = False) -> Any:
    """Compute `out = fun(*primals)` and the function of its vector-Jacobian products (reverse mode).

    Parameters
    ----------
    fun : callable; its result is a pytree of arrays
    *primals : pytrees of floating or complex arrays
    has_aux : bool; whether `fun` returns `(out, aux)`

    Returns
    -------
    (out, vjp_fn) or (out, vjp_fn, aux)
        `vjp_fn(ct)` is the tuple of the primals' cotangents. `ct` has the structure, shapes and dtypes of `out`;
        numbers stand for scalars. `vjp_fn` is a separate compiled program with copies of its residuals, callable any
        number of times. It reruns `fun` only if a `custom_vjp` rule asks for a cotangent's value, or changes something.

    Raises
    ------
    DTypeError if a primal is neither floating nor complex; ShapeError if a cotangent's structure or shape differs

    Examples
    --------
    >>> import numpy as np
    >>> out, vjp_fn = vjp(lambda x, y: x * y, np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    >>> print(*vjp_fn(np.array([1.0, 10.0])))
    [ 3. 40.] [ 1. 20.]
    """
    require_callable(fun, "vjp")
    leaves, structure = tree.flatten(primals)
    if taken_eagerly(leaves):
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
    """Return `x`, an array or a pytree of arrays, as a constant for every derivative.

    >>> print(grad(lambda x: x * stop_gradient(x))(3.0))
    3.0
    """
    return tree.map(lambda leaf: linear.stop_gradient(leaf) if isinstance(leaf, Carrier) else leaf, x)
