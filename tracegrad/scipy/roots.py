"""Root finding, `root` and `root_scalar` of `scipy.optimize`, with compiled derivatives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tracegrad import api
from tracegrad.scipy.ravel_pytree import Vector, array_if_list
from tracegrad.scipy.vector_functions import OfVector, ResidualFunction, compiled, number, of_scipy
from tracegrad.trace.builder.builder import current_trace

__all__ = ["root", "root_scalar"]

_JACOBIANS = ("hybr", "lm")  # the methods of `root` that take one


def root(
    fun: Callable[..., object],
    x0: object,
    args: object = (),
    method: str = "hybr",
    jac: object = None,
    tol: float | None = None,
    callback: Any = None,
    options: Mapping[str, object] | None = None,
) -> Any:
    """Find a root of a function of several variables, with the arguments and the result of `scipy.optimize.root`.

    Parameters
    ----------
    fun : callable
        Function `fun(x, *args)` to a pytree of floating arrays, with as many elements as `x`. It receives `x` with the
        structure and shapes of `x0`.
    x0 : array, list of numbers, or pytree of arrays
        Initial guess.
    args : tuple
        Further arguments of `fun`.
    method : str
        Method of SciPy.
    jac : callable or bool, optional
        Jacobian. If it is None, it is derived and compiled for the methods "hybr" and "lm".
    tol : float, optional
        Tolerance.
    callback : callable, optional
        Function that is called after each iteration, with the current point.
    options : mapping, optional
        Options of the method.

    Returns
    -------
    OptimizeResult
        Result of SciPy. `x` has the structure and shapes of `x0`.

    Raises
    ------
    TypeError
        If `fun` is not callable.

    Notes
    -----
    In a traced function, it is the `scipy.optimize.root` of traced code, and the result has derivatives by the implicit
    function theorem. SciPy's own errors are unchanged.

    Examples
    --------
    >>> result = root(lambda p: {"sum": p["a"] + p["b"] - 3.0, "product": p["a"] * p["b"] - 2.0}, {"a": 0.5, "b": 5.0})
    >>> print(f"{result.x['a']:.6f} {result.x['b']:.6f}")
    1.000000 2.000000
    """
    x0 = array_if_list(x0)
    vector = Vector("tracegrad.scipy.root", "x0", x0)
    residuals = ResidualFunction(fun, vector)
    f: Callable[..., Any] = residuals
    if callable(jac):
        jac = OfVector(jac, vector)
    elif jac is None and method in _JACOBIANS:
        jac = residuals.jacobian
    elif jac is True:
        f = residuals.with_jacobian
    mapping = {"method": method, "jac": jac, "tol": tol, "options": None if options is None else dict(options)}
    if callback is not None and current_trace() is None:
        mapping["callback"] = lambda v, f: callback(vector.unpack(v), f)
    result = of_scipy("optimize.root")(f, vector.pack(x0), args, **mapping)
    vector.unpack_fields(result, "x")
    return result


def root_scalar(
    f: Callable[..., object],
    args: object = (),
    method: str | None = None,
    bracket: object = None,
    fprime: object = None,
    fprime2: object = None,
    x0: object = None,
    x1: object = None,
    xtol: float | None = None,
    rtol: float | None = None,
    maxiter: int | None = None,
    options: Mapping[str, object] | None = None,
) -> Any:
    """Find a root of a function of a number, with the arguments and the result of `scipy.optimize.root_scalar`.

    Parameters
    ----------
    f : callable
        Function `f(x, *args)` to a number.
    args : tuple
        Further arguments of `f`.
    method : str, optional
        Method of SciPy. With `x0` alone the default is "newton". "halley" uses the second derivative too.
    bracket : pair of float, optional
        Interval at whose ends the function has different signs.
    fprime, fprime2 : callable, optional
        First and second derivative. If the method needs one and it is None, it is derived and compiled.
    x0, x1 : float, optional
        Initial guess, and a second one.
    xtol, rtol : float, optional
        Absolute and relative tolerance of the root.
    maxiter : int, optional
        Largest number of iterations.
    options : mapping, optional
        Options of the method.

    Returns
    -------
    RootResults
        Result of SciPy.

    Notes
    -----
    In a traced function, it is the `scipy.optimize.root_scalar` of traced code, and the root has derivatives. SciPy's
    own errors are unchanged.

    Examples
    --------
    >>> result = root_scalar(lambda x, a: x**3 - a, 8.0, x0=1.0)
    >>> print(f"{result.root:.12f} {result.method}")
    2.000000000000 newton
    """
    api_name = "tracegrad.scipy.root_scalar"
    if method is None and bracket is None and x1 is None and fprime2 is None and x0 is not None:
        method = "newton"
    if method == "halley" and fprime2 is None:
        fprime2 = number(compiled(f, ("second", api_name), _second, f"{api_name}: second derivative"))
    if method in ("newton", "halley") and fprime is None:
        fprime = number(compiled(f, ("first", api_name), api.grad, f"{api_name}: derivative"))
    if fprime is not True:
        f = number(compiled(f, ("value", api_name), lambda f: f, api_name))
    mapping = {"fprime": fprime, "fprime2": fprime2, "x0": x0, "x1": x1, "bracket": bracket, "method": method}
    mapping |= {"xtol": xtol, "rtol": rtol, "maxiter": maxiter, "options": None if options is None else dict(options)}
    return of_scipy("optimize.root_scalar")(f, args, **mapping)


def _second(f: Callable[..., object]) -> Callable[..., object]:
    return api.grad(api.grad(f))
