"""Transforms with the names and parameters of `torch.func`.

They take Tensors, ndarrays and pytrees of them, nest in any order, and are compiled like the other transforms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tracegrad import api
from tracegrad.errors import UnsupportedError, located

if TYPE_CHECKING:
    from tracegrad.torch.nn.functional_call import functional_call, stack_module_state

__all__ = [
    "functional_call",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "linearize",
    "stack_module_state",
    "vjp",
    "vmap",
]

Function = Callable[..., Any]
Argnums = int | tuple[int, ...]


def _once(argnums: Argnums) -> None:
    if isinstance(argnums, tuple) and len(set(argnums)) < len(argnums):
        raise RuntimeError(located(f"argnums elements must be unique, got {argnums}"))


def grad(func: Function, argnums: Argnums = 0, has_aux: bool = False) -> Function:
    """Return the function `(*args) -> gradient` of a scalar function. See `tracegrad.grad`.

    Parameters
    ----------
    func : callable
        Function whose value is a floating scalar.
    argnums : int or tuple of int
        Positional arguments to differentiate with respect to.
    has_aux : bool
        Whether `func` returns `(value, aux)`; the result is then `(gradient, aux)`.

    Returns
    -------
    callable
        Function to the gradient.

    Raises
    ------
    RuntimeError
        If `argnums` names an argument twice.

    Examples
    --------
    >>> print(grad(lambda x: x**3)(2.0))
    12.0
    """
    _once(argnums)
    return api.grad(func, argnums, has_aux)


def grad_and_value(func: Function, argnums: Argnums = 0, has_aux: bool = False) -> Function:
    """Return the function `(*args) -> (gradient, value)` of a scalar function.

    Parameters
    ----------
    func : callable
        Function whose value is a floating scalar.
    argnums : int or tuple of int
        Positional arguments to differentiate with respect to.
    has_aux : bool
        Whether `func` returns `(value, aux)`; the result is then `(gradient, (value, aux))`.

    Returns
    -------
    callable
        Function to the gradient and the value.

    Raises
    ------
    RuntimeError
        If `argnums` names an argument twice.

    Examples
    --------
    >>> gradient, value = grad_and_value(lambda x: x**3)(2.0)
    >>> print(gradient, value)
    12.0 8.0
    """
    _once(argnums)
    both = api.value_and_grad(func, argnums, has_aux)

    def call(*args: Any, **kwargs: object) -> tuple[Any, Any]:
        value, gradient = both(*args, **kwargs)
        return gradient, value

    return call


def vjp(func: Function, *primals: Any, has_aux: bool = False) -> Any:
    """Compute the output of a function and the function of its vector-Jacobian products. See `tracegrad.vjp`.

    Parameters
    ----------
    func : callable
        Function whose output is a pytree of arrays.
    *primals : pytree of arrays
        Arguments of `func`.
    has_aux : bool
        Whether `func` returns `(output, aux)`.

    Returns
    -------
    output, vjp_fn, aux : pytree, callable, Any
        `vjp_fn(ct)` is the tuple of the primals' cotangents, a tuple for one primal too. `aux` is there with `has_aux`.

    Examples
    --------
    >>> output, vjp_fn = vjp(lambda x: x * x, 3.0)
    >>> print(output, *vjp_fn(1.0))
    9.0 6.0
    """
    return api.vjp(func, *primals, has_aux=has_aux)


def jvp(
    func: Function,
    primals: Any,
    tangents: Any,
    *,
    strict: bool = False,
    has_aux: bool = False,
) -> Any:
    """Compute the output of a function and its directional derivative. See `tracegrad.jvp`.

    Parameters
    ----------
    func : callable
        Function whose output is a pytree of arrays.
    primals, tangents : tuple or list
        The point and the direction, with one entry for each positional argument.
    strict : bool
        Must be False: an output that does not depend on the inputs has the tangent 0.
    has_aux : bool
        Whether `func` returns `(output, aux)`.

    Returns
    -------
    output, tangent, aux : pytree, pytree, Any
        Output and its tangent; `aux` is there with `has_aux`.

    Raises
    ------
    UnsupportedError
        If `strict` is true.

    Examples
    --------
    >>> output, tangent = jvp(lambda x: x * x, (3.0,), (1.0,))
    >>> print(output, tangent)
    9.0 6.0
    """
    if strict:
        raise UnsupportedError(located("jvp: strict=True is not supported; a tangent that is independent is 0"))
    return api.jvp(func, primals, tangents, has_aux=has_aux)


def linearize(func: Function, *primals: Any) -> tuple[Any, Function]:
    """Compute the output of a function and the linear function to its tangent. See `tracegrad.linearize`.

    Parameters
    ----------
    func : callable
        Function whose output is a pytree of arrays.
    *primals : pytree of arrays
        Arguments of `func`.

    Returns
    -------
    output, jvp_fn : pytree, callable
        `jvp_fn(*tangents)` is the tangent of the output.

    Examples
    --------
    >>> output, jvp_fn = linearize(lambda x: x * x, 3.0)
    >>> print(output, jvp_fn(1.0), jvp_fn(2.0))
    9.0 6.0 12.0
    """
    results: tuple[Any, Function] = api.linearize(func, *primals)
    return results


def jacrev(func: Function, argnums: Argnums = 0, *, has_aux: bool = False, chunk_size: int | None = None) -> Function:
    """Return the function to the Jacobian, computed in reverse mode. See `tracegrad.jacrev`.

    Parameters
    ----------
    func : callable
        Function whose output is a pytree of floating arrays.
    argnums : int or tuple of int
        Positional arguments to differentiate with respect to.
    has_aux : bool
        Whether `func` returns `(output, aux)`.
    chunk_size : int, optional
        Rows computed at a time; default: all at once.

    Returns
    -------
    callable
        Function to the Jacobian, or to `(Jacobian, aux)`.

    Examples
    --------
    >>> import numpy as np
    >>> print(jacrev(lambda x: x * x)(np.array([1.0, 2.0])))
    [[2. 0.]
     [0. 4.]]
    """
    function: Function = api.jacrev(func, argnums, has_aux=has_aux, chunk_size=chunk_size)
    return function


def jacfwd(func: Function, argnums: Argnums = 0, has_aux: bool = False, *, randomness: str = "error") -> Function:
    """Return the function to the Jacobian, computed in forward mode. See `tracegrad.jacfwd`.

    Parameters
    ----------
    func : callable
        Function whose output is a pytree of arrays.
    argnums : int or tuple of int
        Positional arguments to differentiate with respect to.
    has_aux : bool
        Whether `func` returns `(output, aux)`.
    randomness : str
        As in `vmap`.

    Returns
    -------
    callable
        Function to the Jacobian, or to `(Jacobian, aux)`.

    Examples
    --------
    >>> import numpy as np
    >>> print(jacfwd(lambda x: x * x)(np.array([1.0, 2.0])))
    [[2. 0.]
     [0. 4.]]
    """
    _require_no_randomness("jacfwd", randomness)
    function: Function = api.jacfwd(func, argnums, has_aux=has_aux)
    return function


def hessian(func: Function, argnums: Argnums = 0) -> Function:
    """Return the function to the matrix of second derivatives, forward over reverse. See `tracegrad.hessian`.

    Parameters
    ----------
    func : callable
        Function whose value is a floating scalar.
    argnums : int or tuple of int
        Positional arguments to differentiate with respect to.

    Returns
    -------
    callable
        Function to the Hessian.

    Examples
    --------
    >>> import numpy as np
    >>> print(hessian(lambda x: np.prod(x))(np.array([1.0, 2.0])))
    [[0. 1.]
     [1. 0.]]
    """
    function: Function = api.hessian(func, argnums)
    return function


def vmap(
    func: Function,
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Function:
    """Vectorize a function over the dimensions `in_dims` of its arguments. See `tracegrad.vmap`.

    Parameters
    ----------
    func : callable
        Function of one example.
    in_dims, out_dims : int, None or pytree of them
        Mapped dimensions of the arguments, and the batch dimension of the outputs.
    randomness : str
        Must be "error": random numbers inside are refused.
    chunk_size : int, optional
        Elements computed at a time, for intermediate values that would take too much memory; default: all at once.

    Returns
    -------
    callable
        Function of batches.

    Raises
    ------
    UnsupportedError
        If `randomness` is "different" or "same".
    ValueError
        If `randomness` is an unknown word, or `chunk_size` is not positive.
    TypeError
        If `chunk_size` is neither an int nor None.

    Examples
    --------
    >>> import numpy as np
    >>> print(vmap(lambda x, y: x * y, in_dims=(0, None))(np.arange(3.0), 2.0))
    [0. 2. 4.]
    """
    _require_no_randomness("vmap", randomness)
    if chunk_size is not None and type(chunk_size) is not int:
        raise TypeError(located(f"vmap: chunk_size should be None or an int, got a {type(chunk_size).__name__}"))
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError(located(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})"))
    function: Function = api.vmap_in_chunks(func, in_dims, out_dims, None, chunk_size)
    return function


def _require_no_randomness(name: str, randomness: str) -> None:
    if randomness not in ("error", "different", "same"):
        raise ValueError(located(f"{name}: randomness must be 'error', 'different' or 'same', got {randomness!r}"))
    if randomness != "error":
        raise UnsupportedError(located(f"{name}: random numbers inside are refused, so randomness must be 'error'"))


def __getattr__(name: str) -> Any:
    if name in ("functional_call", "stack_module_state"):
        from tracegrad.torch.nn import functional_call as stateless

        return getattr(stateless, name)
    if name == "functionalize":
        raise UnsupportedError("tracegrad.func has no functionalize: traces take updates in place as they are")
    raise AttributeError(f"module 'tracegrad.func' has no attribute {name!r}")
