"""What `torch.func` offers, with its names of arguments: the transforms of `tracegrad` for those who come from there.

They work on Tensors, ndarrays and pytrees of them, nest in any order, and are compiled like the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tracegrad import api
from tracegrad.errors import UnsupportedError, located

if TYPE_CHECKING:
    from tracegrad.torch.nn.functional_call import functional_call, stack_module_state

__all__ = [
    "functional_call", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize",
    "stack_module_state", "vjp", "vmap",
]  # fmt: skip

Function = Callable[..., Any]
Argnums = int | tuple[int, ...]


def _once(argnums: Argnums) -> None:
    if isinstance(argnums, tuple) and len(set(argnums)) < len(argnums):
        raise RuntimeError(located(f"argnums elements must be unique, got {argnums}"))


def grad(func: Function, argnums: Argnums = 0, has_aux: bool = False) -> Function:
    """The function `(*args) -> gradient` of a scalar function; with `has_aux`, `(gradient, aux)`. See `tracegrad.grad`.

    >>> print(grad(lambda x: x**3)(2.0))
    12.0
    """
    _once(argnums)
    return api.grad(func, argnums, has_aux)


def grad_and_value(func: Function, argnums: Argnums = 0, has_aux: bool = False) -> Function:
    """The function `(*args) -> (gradient, value)`; with `has_aux`, `(gradient, (value, aux))`.

    >>> gradient, value = grad_and_value(lambda x: x**3)(2.0)
    >>> print(gradient, value)
    12.0 8.0
    """
    _once(argnums)
    both = api.value_and_grad(func, argnums, has_aux)

    def call(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        value, gradient = both(*args, **kwargs)
        return gradient, value

    return call


def vjp(func: Function, *primals: Any, has_aux: bool = False) -> Any:
    """`(output, vjp_fn)`, or `(output, vjp_fn, aux)`; for one primal `vjp_fn` gives a tuple too. See `tracegrad.vjp`.

    >>> output, vjp_fn = vjp(lambda x: x * x, 3.0)
    >>> print(output, *vjp_fn(1.0))
    9.0 6.0
    """
    return api.vjp(func, *primals, has_aux=has_aux)


def jvp(func: Function, primals: Any, tangents: Any, *, strict: bool = False, has_aux: bool = False) -> Any:
    """`(output, tangent of the output)`, or with `has_aux` `(output, tangent, aux)`. See `tracegrad.jvp`.

    UnsupportedError for `strict`: an output that does not depend on the inputs has the tangent 0.

    >>> output, tangent = jvp(lambda x: x * x, (3.0,), (1.0,))
    >>> print(output, tangent)
    9.0 6.0
    """
    if strict:
        raise UnsupportedError(located("jvp: strict=True is not supported; a tangent that is independent is 0"))
    return api.jvp(func, primals, tangents, has_aux=has_aux)


def linearize(func: Function, *primals: Any) -> tuple[Any, Function]:
    """`(output, jvp_fn)`, where `jvp_fn(*tangents)` is the tangent of the output. See `tracegrad.linearize`.

    >>> output, jvp_fn = linearize(lambda x: x * x, 3.0)
    >>> print(output, jvp_fn(1.0), jvp_fn(2.0))
    9.0 6.0 12.0
    """
    found: tuple[Any, Function] = api.linearize(func, *primals)
    return found


def jacrev(func: Function, argnums: Argnums = 0, *, has_aux: bool = False, chunk_size: int | None = None) -> Function:
    """The function that computes the Jacobian in reverse mode, `chunk_size` rows at a time. See `tracegrad.jacrev`.

    >>> import numpy as np
    >>> print(jacrev(lambda x: x * x)(np.array([1.0, 2.0])))
    [[2. 0.]
     [0. 4.]]
    """
    made: Function = api.jacrev(func, argnums, has_aux=has_aux, chunk_size=chunk_size)
    return made


def jacfwd(func: Function, argnums: Argnums = 0, has_aux: bool = False, *, randomness: str = "error") -> Function:
    """The function that computes the Jacobian in forward mode. See `tracegrad.jacfwd`; `randomness` as in `vmap`.

    >>> import numpy as np
    >>> print(jacfwd(lambda x: x * x)(np.array([1.0, 2.0])))
    [[2. 0.]
     [0. 4.]]
    """
    _require_no_randomness("jacfwd", randomness)
    made: Function = api.jacfwd(func, argnums, has_aux=has_aux)
    return made


def hessian(func: Function, argnums: Argnums = 0) -> Function:
    """The function that computes the matrix of second derivatives, forward over reverse. See `tracegrad.hessian`.

    >>> import numpy as np
    >>> print(hessian(lambda x: np.prod(x))(np.array([1.0, 2.0])))
    [[0. 1.]
     [1. 0.]]
    """
    made: Function = api.hessian(func, argnums)
    return made


def vmap(
    func: Function, in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error", *, chunk_size: int | None = None
) -> Function:
    """`func` for each element along the dimensions `in_dims` of its arguments, at once. See `tracegrad.vmap`.

    Random numbers inside are refused, so `randomness` must be "error" (UnsupportedError otherwise, ValueError for an
    unknown word). With `chunk_size`, so many elements at a time, one chunk after the other: for functions whose
    intermediate values would take too much memory for all at once. ValueError unless it is positive.

    >>> import numpy as np
    >>> print(vmap(lambda x, y: x * y, in_dims=(0, None))(np.arange(3.0), 2.0))
    [0. 2. 4.]
    """
    _require_no_randomness("vmap", randomness)
    if chunk_size is not None and type(chunk_size) is not int:
        raise TypeError(located(f"vmap: chunk_size should be None or an int, got a {type(chunk_size).__name__}"))
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError(located(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})"))
    made: Function = api.vmap_in_chunks(func, in_dims, out_dims, None, chunk_size)
    return made


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
