"""Differential operators of functions of several arguments, by autograd's names; `argnum` chooses the argument."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad import api, tree
from tracegrad.compat.autograd import transforms
from tracegrad.compat.autograd.spaces import vspace
from tracegrad.compat.autograd.transforms import conjugate, point, scalar_derivative
from tracegrad.compat.autograd.wrap_util import split_function, unary_to_nary
from tracegrad.control.checkpoint import checkpoint as checkpointed

__all__ = [
    "checkpoint",
    "deriv",
    "elementwise_grad",
    "grad",
    "grad_and_aux",
    "grad_named",
    "hessian",
    "hessian_tensor_product",
    "hessian_vector_product",
    "holomorphic_grad",
    "jacobian",
    "make_ggnvp",
    "make_hvp",
    "make_jvp",
    "make_jvp_reversemode",
    "make_vjp",
    "multigrad_dict",
    "tensor_jacobian_product",
    "value_and_grad",
    "vector_jacobian_product",
]

Function = Callable[..., Any]

make_vjp = unary_to_nary(transforms.make_vjp)
make_jvp = unary_to_nary(transforms.make_jvp)


@unary_to_nary
def grad(fun: Function, x: object) -> Any:
    """Return the function to the gradient of `fun`, whose output is one real number, in an array of any shape.

    >>> print(grad(lambda x, y: x * y**2, 1)(3.0, 2.0))
    12.0
    """
    return scalar_derivative(fun, x, "Grad")[1]


@unary_to_nary
def value_and_grad(fun: Function, x: object) -> tuple[Any, Any]:
    """Return the function to the value of `fun` and its gradient.

    >>> print(*value_and_grad(lambda x: x**2)(3.0))
    9.0 6.0
    """
    return scalar_derivative(fun, x, "value_and_grad")[:2]


@unary_to_nary
def grad_and_aux(fun: Function, x: object) -> tuple[Any, Any]:
    """Return the function to the gradient of the first output of `fun`, and its second output.

    >>> print(*grad_and_aux(lambda x: (x**2, x + 1.0))(3.0))
    6.0 4.0
    """
    _, gradient, aux = scalar_derivative(fun, x, "grad_and_aux", has_aux=True)
    return gradient, aux


@unary_to_nary
def elementwise_grad(fun: Function, x: object) -> Any:
    """Return the function to the sum of each column of the Jacobian of `fun`, which is real.

    >>> print(elementwise_grad(np.square)(np.array([1.0, 2.0])))
    [2. 4.]
    """

    of_rest, rest = split_function(fun)

    def total(x: Any, rest: Any) -> Any:
        leaves = tree.leaves(of_rest(x, rest))
        if any(np.iscomplexobj(leaf) for leaf in leaves):
            raise TypeError("Elementwise_grad only applies to real-output functions.")
        return sum(np.sum(leaf) for leaf in leaves)

    return conjugate(api.grad(total)(point(x), rest))


@unary_to_nary
def deriv(fun: Function, x: object) -> Any:
    """Return the function to the derivative of `fun` along the vector of ones.

    >>> print(deriv(np.square)(np.array([1.0, 2.0])))
    [2. 4.]
    """
    return transforms.make_jvp(fun, x)(vspace(point(x)).ones())[1]


@unary_to_nary
def jacobian(fun: Function, x: object) -> Any:
    """Return the function to the Jacobian of `fun`: an array of the output's shape, then the argument's.

    >>> print(jacobian(lambda x: x**2)(np.array([1.0, 2.0])))
    [[2. 0.]
     [0. 4.]]
    """
    of_rest, rest = split_function(fun)
    return conjugate(api.jacrev(of_rest)(point(x), rest))


@unary_to_nary
def hessian(fun: Function, x: object) -> Any:
    """Return the function to the Hessian of `fun`.

    >>> print(hessian(lambda x: np.sum(x**3))(np.array([1.0, 2.0])))
    [[ 6.  0.]
     [ 0. 12.]]
    """
    of_rest, rest = split_function(fun)
    return api.jacrev(api.jacrev(of_rest))(point(x), rest)


@unary_to_nary
def holomorphic_grad(fun: Function, x: object) -> Any:
    """Return the function to the derivative of a holomorphic function.

    >>> print(holomorphic_grad(lambda z: z**2)(1.0 + 2.0j))
    (2+4j)
    """
    if not vspace(x).iscomplex:
        warnings.warn("Input to holomorphic_grad is not complex", stacklevel=2)
    return grad(lambda x: np.real(fun(x)))(x)


def grad_named(fun: Function, argname: str) -> Function:
    """Return the function to the gradient with respect to a named argument.

    >>> print(grad_named(lambda x, y: x * y**2, "y")(3.0, 2.0))
    12.0
    """
    function: Function = grad(fun, list(inspect.signature(fun).parameters).index(argname))
    return function


@unary_to_nary
def make_hvp(fun: Function, x: object) -> tuple[Function, Any]:
    """Return the function to `(hvp, gradient)`: the gradient, and the Hessian-vector product.

    >>> hvp, gradient = make_hvp(lambda x: x**3)(2.0)
    >>> print(hvp(1.0), gradient)
    12.0 12.0
    """
    return transforms.make_vjp(grad(fun), x)


def hessian_tensor_product(fun: Function, argnum: int = 0) -> Function:
    """Return the function with a tensor as a last argument, to the product of the Hessian with it.

    >>> print(hessian_tensor_product(lambda x: np.sum(x**3))(np.array([1.0, 2.0]), np.array([1.0, 10.0])))
    [  6. 120.]
    """
    fun_grad = grad(fun, argnum)

    def vector_dot_grad(*args: Any, **kwargs: Any) -> Any:
        args, vector = args[:-1], args[-1]
        return np.tensordot(fun_grad(*args, **kwargs), vector, np.ndim(vector))

    function: Function = grad(vector_dot_grad, argnum)
    return function


hessian_vector_product = hessian_tensor_product


def tensor_jacobian_product(fun: Function, argnum: int = 0) -> Function:
    """Return the function with a tensor as a last argument, to its product with the Jacobian.

    >>> print(tensor_jacobian_product(lambda x: x**2)(np.array([1.0, 2.0]), np.array([1.0, 10.0])))
    [ 2. 40.]
    """

    def vector_dot_fun(*args: Any, **kwargs: Any) -> Any:
        args, vector = args[:-1], args[-1]
        return np.tensordot(vector, fun(*args, **kwargs), axes=np.ndim(vector))

    function: Function = jacobian(vector_dot_fun, argnum)
    return function


vector_jacobian_product = tensor_jacobian_product


@unary_to_nary
def make_jvp_reversemode(fun: Function, x: object) -> Function:
    """Return the function to the pushforward, from a tangent to the output's tangent.

    >>> print(make_jvp_reversemode(lambda x: x**2)(3.0)(10.0))
    60.0
    """
    jvp = transforms.make_jvp(fun, x)
    return lambda g: jvp(g)[1]


def _half_square_norm(x: Any) -> object:
    return 1.0 / 2 * np.sum(x**2, axis=-1)


def make_ggnvp(f: Function, g: Function = _half_square_norm, f_argnum: int = 0) -> Function:
    """Return the function to products of vectors with the generalized Gauss-Newton matrix of `g(f(x))`.

    >>> print(make_ggnvp(lambda x: x**2)(np.array([1.0, 2.0]))(np.ones(2)))
    [ 4. 16.]
    """

    @unary_to_nary
    def ggnvp_maker(f: Function, x: object) -> Function:
        f_vjp, f_x = transforms.make_vjp(f, x)
        g_hvp, _ = transforms.make_vjp(grad(g), f_x)
        f_jvp = transforms.make_jvp(f, x)
        return lambda v: f_vjp(g_hvp(f_jvp(v)[1]))

    function: Function = ggnvp_maker(f, f_argnum)
    return function


def multigrad_dict(fun: Function) -> Function:
    """Return the function to the gradients with respect to all arguments, in a dict by their names.

    >>> found = multigrad_dict(lambda x, y: x * y**2)(3.0, y=2.0)
    >>> print(found["x"], found["y"])
    4.0 12.0
    """
    signature = inspect.signature(fun)

    def gradfun(*args: object, **kwargs: object) -> dict[str, object]:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()

        def of_dict(arguments: dict[str, object]) -> object:
            again = inspect.BoundArguments(signature, arguments)
            return fun(*again.args, **again.kwargs)

        table: dict[str, Any] = grad(of_dict)(dict(bound.arguments))
        return table

    return gradfun


def checkpoint(fun: Function) -> Function:
    """Rematerialize a function: its derivative recomputes values instead of saving them.

    >>> print(grad(checkpoint(lambda x: x**2))(3.0))
    6.0
    """
    return checkpointed(fun)
