"""Minimization, `scipy.optimize.minimize`, with compiled derivatives of functions of pytrees."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.scipy.constraints import bounds_of, constraints_of
from tracegrad.scipy.loss_plot import LossPlot
from tracegrad.scipy.progress import Progress
from tracegrad.scipy.ravel_pytree import Vector, array_if_list
from tracegrad.scipy.vector_functions import Both, OfVector, WithGradient, checked, number, of_scipy
from tracegrad.solvers.blas_threads import threads_for
from tracegrad.trace.builder.builder import current_trace

if TYPE_CHECKING:
    from tracegrad.typing import Array


__all__ = ["minimize"]

API_NAME = "tracegrad.scipy.minimize"

# The methods without derivatives, with Hessians, and with Hessian-vector products. All methods that are not in the
# first list use gradients, and so may a method of the user.
_NOTHING = ("nelder-mead", "powell", "cobyla", "cobyqa")
_HESSIANS = ("dogleg", "trust-exact")
_PRODUCTS = ("newton-cg", "trust-ncg", "trust-krylov", "trust-constr")


def minimize(
    fun: Callable[..., Any],
    x0: object,
    args: object = (),
    method: object = None,
    jac: object = None,
    hess: object = None,
    hessp: object = None,
    bounds: object = None,
    constraints: object = (),
    tol: float | None = None,
    callback: object = None,
    options: Mapping[str, Any] | None = None,
    *,
    disp: bool = False,
) -> Any:
    """Minimize a scalar function of a pytree, with the arguments and the result of `scipy.optimize.minimize`.

    Parameters
    ----------
    fun : callable
        Objective `fun(x, *args)`, a floating scalar. It receives `x` with the structure and shapes of `x0`.
    x0 : array, list of numbers, or pytree of arrays
        Initial guess.
    args : tuple
        Further arguments of `fun`: arrays or pytrees.
    method : str or callable, optional
        Method of SciPy. The default depends on bounds and constraints, as in SciPy.
    jac : callable, bool, or str, optional
        Gradient. If the method needs it and it is None, it is derived from `fun` and compiled.
    hess : callable, str, or HessianUpdateStrategy, optional
        Hessian. If the method needs it, and neither `hess` nor `hessp` is passed, the method's choice of a Hessian or
        of Hessian-vector products is derived and compiled.
    hessp : callable, optional
        Product of the Hessian and a vector.
    bounds : optional
        For an array, bounds as in SciPy. For a pytree, a pair `(low, high)` of pytrees or numbers, with None for no
        bound.
    constraints : dict or constraint object, or sequence of them
        Constraints as in SciPy. Their functions take the argument of `fun`, and their derivatives are derived.
    tol : float, optional
        Tolerance.
    callback : callable, optional
        Function that is called after each iteration, for example a `LossPlot`.
    options : mapping, optional
        Options of the method.
    disp : bool
        Whether a line on stderr shows the iterations.

    Returns
    -------
    OptimizeResult
        Result of SciPy. `x` and `jac` have the structure and shapes of `x0`.

    Raises
    ------
    ShapeError
        If the result of `fun` is not a scalar (a TypeError too).
    FloatingPointError
        If a gradient is nan. The text names the leaf.

    Notes
    -----
    In a traced function, it is the `scipy.optimize.minimize` of traced code: it is compiled with the rest of the
    function. The result has derivatives, by the implicit function theorem, with respect to the values that `fun` reads.
    SciPy's own errors are unchanged.

    Examples
    --------
    >>> result = minimize(lambda p: np.sum((p["w"] - 1) ** 2) + p["b"] ** 2, {"w": np.zeros(2), "b": 1.0})
    >>> result.x["w"].round(6), result.success
    (array([1., 1.]), True)
    """
    x0 = array_if_list(x0)
    vector = Vector(API_NAME, "x0", x0)
    name = method.lower() if isinstance(method, str) else ""
    args = args if isinstance(args, tuple) else (args,)
    objective = (WithGradient if jac is True else OfVector)(fun, vector)
    inputs = _derivatives(objective, name, jac, hess, hessp)
    constraints = constraints_of(vector, constraints, with_hessian=name == "trust-constr")
    inputs |= {"bounds": bounds_of(vector, bounds), "constraints": constraints, "tol": tol}
    inputs |= {"args": args, "method": method, "options": None if options is None else dict(options)}
    solver = of_scipy("optimize.minimize")
    if current_trace() is not None:
        result = solver(x0=vector.pack(x0), callback=callback, **inputs)
    else:
        with Progress(f"minimize{f', {method}' if name else ''}", disp) as progress, threads_for(name):
            inputs["fun"] = progress.counting(inputs["fun"])
            reporting = _callback(vector, callback, progress, lambda v: inputs["fun"](v, *args))
            result = solver(x0=vector.pack(x0), callback=reporting, **inputs)
        if isinstance(callback, LossPlot):
            callback.finish()
    vector.unpack_fields(result, "x", "jac", "grad")
    return result


def _derivatives(objective: OfVector, method: str, jac: object, hess: object, hessp: Any) -> dict[str, Any]:
    """Return the function and its derivatives as arguments of SciPy."""
    vector, options = objective.vector, dict[str, Any]()
    if jac is True or (jac is None and method not in _NOTHING):
        both = objective.value_and_gradient()
        split = Both(both if jac is True else checked(vector, both))
        options = {"fun": split.value, "jac": split.gradient} if current_trace() is None else {"fun": both, "jac": True}
    elif method in _NOTHING or not callable(jac):
        options = {"fun": number(objective.value()), "jac": jac}
    else:
        options = {"fun": number(objective), "jac": _packed(OfVector(jac, vector))}
    if hess is None and hessp is None:
        if method in _HESSIANS:
            options["hess"] = objective.hessian()
        elif method in _PRODUCTS:
            options["hessp"] = objective.product()
    if hess is not None:
        options["hess"] = OfVector(hess, vector) if callable(hess) else hess
    if hessp is not None:
        options["hessp"] = lambda v, p, *args: vector.pack(hessp(vector.unpack(v), vector.unpack(p), *args))
    return options


def _packed(gradient: OfVector) -> Callable[..., object]:
    return lambda v, *args: gradient.vector.pack(gradient(v, *args))


def _callback(vector: Vector, callback: Any, progress: Progress, value: Callable[..., object]) -> Any:
    """Make the function that SciPy calls after each iteration; `value` evaluates the objective.

    SciPy chooses the arguments by the callback's parameter names, but some methods pass the point alone.
    """
    if callback is None:
        return (lambda *_: progress.iterated()) if progress.shown else None
    if set(inspect.signature(callback).parameters) == {"intermediate_result"}:
        from scipy.optimize import OptimizeResult

        def of_result(intermediate_result: Any) -> object:
            progress.iterated()
            if isinstance(intermediate_result, np.ndarray):
                intermediate_result = OptimizeResult(x=intermediate_result, fun=value(intermediate_result))
            args = OptimizeResult(intermediate_result)
            args.x = vector.unpack(np.array(args.x))
            return callback(intermediate_result=args)

        return of_result

    def of_vector(x: Array, *extra: Any) -> Any:
        progress.iterated()
        return callback(vector.unpack(np.array(x)), *extra)

    return of_vector
