"""Transforms with the names and parameters of `torch.func`.

They take Tensors, ndarrays and pytrees of them, nest in any order, and are compiled like the other transforms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tracegrad import api, jacobians, tree
from tracegrad.api.batching import vmap_of_dims
from tracegrad.errors import UnsupportedError, located
from tracegrad.runtime.dispatch.closure_families import remembered
from tracegrad.trace.sources.describe import describe
from tracegrad.transform_support import check, derived, require_callable
from tracegrad.transforms import tensor_rules, vjp_function

if TYPE_CHECKING:
    from tracegrad.torch.nn.functional_call import (
        functional_call,
        replace_all_batch_norm_modules_,
        stack_module_state,
    )
    from tracegrad.traced_function import Traced

__all__ = [
    "functional_call",
    "functionalize",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "linearize",
    "replace_all_batch_norm_modules_",
    "stack_module_state",
    "vjp",
    "vmap",
]

Function = Callable[..., Any]
Argnums = int | tuple[int, ...]


def _derived(
    func: Function, transform: Function, body: Function, argnums: Argnums, real: str = "", **options: object
) -> Function:
    """Trace `body`, which computes a derivative of `func`: the result of `transform(func, argnums, **options)`.

    Texts name it `real` if its arguments must be real.
    """

    def call(*args: object, **kwargs: object) -> Any:
        if tensor_rules.has_tensor((args, kwargs)):
            operands, _ = vjp_function.positional(func, args, kwargs)
            tensor_rules.require_differentiable(operands, argnums, real)
        return body(*args, **kwargs)

    result: Traced[..., Any] = derived(func, call, transform, (), (None, None))
    result.recipe = transform, (argnums,), options
    return result


def _gradient(func: Function, argnums: Argnums, has_aux: bool, transform: Function, select: Function) -> Function:
    """Return the function to what `select(value, gradient)` selects."""
    tensor_rules.require_argnums(argnums)
    check(func, argnums, transform.__name__, (None, None))

    def make() -> Any:
        checked = tensor_rules.checked(func, tensor_rules.scalar_result(has_aux))
        both = vjp_function.value_and_grad(checked, argnums, has_aux)

        def body(*args: object, **kwargs: object) -> Any:
            return select(*both(*args, **kwargs))

        return _derived(func, transform, body, argnums, has_aux=has_aux)

    return _remembered(func, (transform.__name__, argnums, has_aux), make)


def _remembered(func: Function, key: tuple[object, ...], make: Callable[[], Any]) -> Function:
    """Return the result of an earlier `make` for this function and key."""
    result: Function = remembered(func, ("func", *key), make)
    return result


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
        If `argnums` names an argument twice. With Tensors also if it names none, an argument is not floating, or the
        value is not a scalar Tensor.

    Examples
    --------
    >>> print(grad(lambda x: x**3)(2.0))
    12.0
    """
    return _gradient(func, argnums, has_aux, grad, _gradient_and_aux if has_aux else _gradient_alone)


def _gradient_alone(value: object, gradient: object) -> object:
    return gradient


def _gradient_and_aux(value: tuple[object, object], gradient: object) -> tuple[object, object]:
    return gradient, value[1]


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
        As for `grad`.

    Examples
    --------
    >>> gradient, value = grad_and_value(lambda x: x**3)(2.0)
    >>> print(gradient, value)
    12.0 8.0
    """
    return _gradient(func, argnums, has_aux, grad_and_value, _gradient_and_value)


def _gradient_and_value(value: object, gradient: object) -> tuple[object, object]:
    return gradient, value


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
        `vjp_fn(ct)` is the tuple of the primals' cotangents, a tuple for one primal too. It can be called any number of
        times, so PyTorch's options `retain_graph` and `create_graph` change nothing. `aux` is there with `has_aux`.

    Raises
    ------
    RuntimeError
        If a primal or an output is a Tensor that is not floating, an output is no Tensor, or the structure or a shape
        of the cotangent differs from the output.
    ValueError
        If primals are Tensors and others.

    Examples
    --------
    >>> output, vjp_fn = vjp(lambda x: x * x, 3.0)
    >>> print(output, *vjp_fn(1.0))
    9.0 6.0
    """
    if not tensor_rules.has_tensor(primals):
        return api.vjp(func, *primals, has_aux=has_aux)
    require_callable(func, "vjp")
    tensor_rules.require_primals(primals)
    checked = tensor_rules.checked(func, tensor_rules.tensor_results("vjp(f, *primals)", has_aux, floating=True))
    output, pull, *aux = api.vjp(checked, *primals, has_aux=has_aux)

    def vjp_fn(cotangent: object, retain_graph: bool = True, create_graph: bool | None = None) -> Any:
        tensor_rules.require_cotangent(output, cotangent)
        return pull(cotangent)

    return output, vjp_fn, *aux


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
        Whether outputs that do not depend on the inputs are refused. Their tangent is 0 otherwise.
    has_aux : bool
        Whether `func` returns `(output, aux)`.

    Returns
    -------
    output, tangent, aux : pytree, pytree, Any
        Output and its tangent; `aux` is there with `has_aux`.

    Raises
    ------
    RuntimeError
        If there are no primals. With Tensors also if structures or shapes of primals and tangents differ, an output is
        no Tensor, or `strict` refuses one.
    UnsupportedError
        If `strict` is true and there is no Tensor.

    Examples
    --------
    >>> output, tangent = jvp(lambda x: x * x, (3.0,), (1.0,))
    >>> print(output, tangent)
    9.0 6.0
    """
    if tensor_rules.has_tensor((primals, tangents)) or not tree.leaves((primals, tangents)):
        require_callable(func, "jvp")
        tensor_rules.require_tangents(primals, tangents)
        what = "jvp(f, primals, tangents)"
        checked = tensor_rules.checked(func, tensor_rules.tensor_results(what, has_aux, strict=strict))
        return api.jvp(checked, primals, tangents, has_aux=has_aux)
    if strict:
        raise UnsupportedError(located("jvp: strict=True is for Tensors; a tangent that is independent is 0"))
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
    output, push = api.linearize(func, *primals)
    if not tensor_rules.has_tensor(primals):
        return output, push

    def jvp_fn(*tangents: object) -> Any:
        tensor_rules.require_linear_tangents(primals, tangents)
        return push(*tangents)

    return output, jvp_fn


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
    return _jacobian(func, argnums, has_aux, chunk_size, jacrev, jacobians.reverse_jacobian, "vjp(f, *primals)")


def _jacobian(
    func: Function,
    argnums: Argnums,
    has_aux: bool,
    chunk_size: int | None,
    transform: Function,
    make_body: Callable[..., Function],
    what: str,
) -> Function:
    tensor_rules.require_argnums(argnums)
    check(func, argnums, transform.__name__, (None, None))
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError(located(f"{transform.__name__}: `chunk_size` should be greater than 0. (got {chunk_size})"))
    description = describe(func, f"{transform.__name__} of ")

    name = "jacrev" if transform is jacrev else "jacfwd"  # whose texts `hessian` has

    def make() -> Any:
        real = "" if transform is hessian else name
        results = tensor_rules.tensor_results(what, has_aux, floating=transform is jacrev, real=real)
        checked = tensor_rules.checked(func, results)
        body = make_body(checked, argnums, has_aux, False, chunk_size, description)
        options: dict[str, object] = {} if transform is hessian else {"has_aux": has_aux}
        options |= {"chunk_size": chunk_size} if transform is jacrev else {}
        return _derived(func, transform, body, argnums, name, **options)

    return _remembered(func, (transform.__name__, argnums, has_aux, chunk_size), make)


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
    randomness : {"error", "same"}
        The function runs once for all columns, so its random numbers are the same for all.

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
    tensor_rules.require_randomness(randomness)
    if randomness == "different":
        raise UnsupportedError(located("jacfwd: the function runs once, so all columns have the same random numbers"))
    what = "jvp(f, primals, tangents)"
    return _jacobian(func, argnums, has_aux, None, jacfwd, jacobians.forward_jacobian, what)


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
    return _jacobian(func, argnums, False, None, hessian, jacobians.hessian_of, "vjp(f, *primals)")


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
        Mapped dimensions of the positional arguments, and the batch dimension of the outputs. Keyword arguments are
        shared by all examples.
    randomness : {"error", "same", "different"}
        Whether random functions inside are refused, draw the same numbers for all examples, or others for each.
    chunk_size : int, optional
        Elements computed at a time, for intermediate values that would take too much memory; default: all at once.

    Returns
    -------
    callable
        Function of batches.

    Raises
    ------
    RuntimeError
        If `randomness` is an unknown word, or a random function is called in the mode "error".
    ValueError
        If `in_dims`, `out_dims` or `chunk_size` is invalid, or the function of one example returns no Tensor for
        Tensors.
    TypeError
        If `chunk_size` is neither an int nor None.

    Examples
    --------
    >>> import numpy as np
    >>> print(vmap(lambda x, y: x * y, in_dims=(0, None))(np.arange(3.0), 2.0))
    [0. 2. 4.]
    """
    return vmap_of_dims(func, in_dims, out_dims, randomness, chunk_size)


def functionalize(func: Function, *, remove: str = "mutations") -> Function:
    """Return a function without in-place updates; traces take updates as they are, so this is the function itself.

    Parameters
    ----------
    func : callable
        Function of Tensors.
    remove : {"mutations", "mutations_and_views"}
        What PyTorch would remove.

    Returns
    -------
    callable
        The function `func`.

    Raises
    ------
    RuntimeError
        If `remove` is another word.

    Examples
    --------
    >>> import tracegrad as tg
    >>> print(functionalize(lambda x: x.clone().mul_(2))(tg.ones(2)))
    tensor([2., 2.])
    """
    if remove not in ("mutations", "mutations_and_views"):
        text = f"received invalid argument for remove={remove}. Valid options are:"
        raise RuntimeError(located(f"functionalize(f, remove='mutations'): {text} 'mutations', 'mutations_and_views'"))
    require_callable(func, "functionalize")
    return func


def __getattr__(name: str) -> Any:
    if name in ("functional_call", "replace_all_batch_norm_modules_", "stack_module_state"):
        from tracegrad.torch.nn import functional_call as stateless

        return getattr(stateless, name)
    raise AttributeError(f"module 'tracegrad.func' has no attribute {name!r}")
