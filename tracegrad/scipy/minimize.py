"""`scipy.optimize.minimize` with compiled derivatives, of functions of pytrees."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tracegrad.scipy.constraints import bounds_of, constraints_of
from tracegrad.scipy.loss_plot import LossPlot
from tracegrad.scipy.progress import Progress
from tracegrad.scipy.ravel_pytree import Vector, as_given
from tracegrad.scipy.vector_functions import Both, OfVector, WithGradient, checked, number, of_scipy
from tracegrad.solvers.blas_threads import threads_for
from tracegrad.trace.builder.builder import current_trace

__all__ = ["minimize"]

WHAT = "tracegrad.scipy.minimize"

# What each method takes beside the function; one that is not here takes its gradient, as a method of the user's may.
_NOTHING = ("nelder-mead", "powell", "cobyla", "cobyqa")
_HESSIANS = ("dogleg", "trust-exact")
_PRODUCTS = ("newton-cg", "trust-ncg", "trust-krylov", "trust-constr")


def minimize(
    fun: Callable[..., Any], x0: Any, args: Any = (), method: Any = None, jac: Any = None, hess: Any = None,
    hessp: Any = None, bounds: Any = None, constraints: Any = (), tol: float | None = None, callback: Any = None,
    options: Mapping[str, Any] | None = None, *, disp: bool = False,
) -> Any:  # fmt: skip
    """The minimum of a scalar function, by `scipy.optimize.minimize`, whose arguments and result these are.

    `x0` is an array of any shape, a list of numbers, or a pytree of arrays; `fun` gets, and the result has as `x` and
    `jac`, what has its structure and shapes. Where a method takes a gradient, a Hessian or the product of that with a
    vector, and none is given, it is derived from `fun` and compiled. So are the derivatives of constraints, whose
    functions get what `fun` gets. `bounds` are those of SciPy for an array; for a pytree a pair `(low, high)` of
    pytrees or numbers, with None for what has none. `args` may be arrays or pytrees. With `disp`, a line on stderr
    tells of the iterations; `LossPlot()` as `callback` draws the loss.

    In a traced function it is `scipy.optimize.minimize` there: compiled with the rest, with derivatives of the result
    by the implicit function theorem with respect to what `fun` reads.

    Raises TypeError (a `ShapeError` too) where `fun` gives no scalar, FloatingPointError where a gradient is nan,
    which it names, and what SciPy raises.

    >>> found = minimize(lambda p: np.sum((p["w"] - 1) ** 2) + p["b"] ** 2, {"w": np.zeros(2), "b": 1.0})
    >>> found.x["w"].round(6), found.success
    (array([1., 1.]), True)
    """
    x0 = as_given(x0)
    vector = Vector(WHAT, "x0", x0)
    name = method.lower() if isinstance(method, str) else ""
    args = args if isinstance(args, tuple) else (args,)
    objective = (WithGradient if jac is True else OfVector)(fun, vector)
    given = _derivatives(objective, name, jac, hess, hessp)
    constraints = constraints_of(vector, constraints, bends=name == "trust-constr")
    given |= {"bounds": bounds_of(vector, bounds), "constraints": constraints, "tol": tol}
    given |= {"args": args, "method": method, "options": None if options is None else dict(options)}
    solver = of_scipy("optimize.minimize")
    if current_trace() is not None:
        found = solver(x0=vector.pack(x0), callback=callback, **given)
    else:
        with Progress(f"minimize{f', {method}' if name else ''}", disp) as progress, threads_for(name):
            given["fun"] = progress.counting(given["fun"])
            told = _callback(vector, callback, progress, lambda v: given["fun"](v, *args))
            found = solver(x0=vector.pack(x0), callback=told, **given)
        if isinstance(callback, LossPlot):
            callback.finish()
    for field in ("x", "jac", "grad"):
        if field in found and np.shape(found[field]) == (vector.size,):
            found[field] = vector.unpack(found[field])
    return found


def _derivatives(objective: OfVector, method: str, jac: Any, hess: Any, hessp: Any) -> dict[str, Any]:
    """The function and its derivatives as SciPy takes them."""
    vector, given = objective.vector, dict[str, Any]()
    if jac is True or (jac is None and method not in _NOTHING):
        both = objective.value_and_gradient()
        apart = Both(both if jac is True else checked(vector, both))
        given = {"fun": apart.value, "jac": apart.gradient} if current_trace() is None else {"fun": both, "jac": True}
    elif method in _NOTHING or not callable(jac):
        given = {"fun": number(objective.value()), "jac": jac}
    else:
        given = {"fun": number(objective), "jac": _packed(OfVector(jac, vector))}
    if hess is None and hessp is None:
        if method in _HESSIANS:
            given["hess"] = objective.hessian()
        elif method in _PRODUCTS:
            given["hessp"] = objective.product()
    if hess is not None:
        given["hess"] = OfVector(hess, vector) if callable(hess) else hess
    if hessp is not None:
        given["hessp"] = lambda v, p, *args: vector.pack(hessp(vector.unpack(v), vector.unpack(p), *args))
    return given


def _packed(gradient: OfVector) -> Callable[..., Any]:
    return lambda v, *args: gradient.vector.pack(gradient(v, *args))


def _callback(vector: Vector, callback: Any, progress: Progress, value: Callable[[Any], Any]) -> Any:
    """What SciPy calls after each iteration: it looks at the names of the arguments to know what to give, but gives
    some methods a place alone. `value` is the function of that."""
    if callback is None:
        return (lambda *_: progress.iterated()) if progress.shown else None
    if set(inspect.signature(callback).parameters) == {"intermediate_result"}:
        from scipy.optimize import OptimizeResult

        def of_result(intermediate_result: Any) -> Any:
            progress.iterated()
            if isinstance(intermediate_result, np.ndarray):
                intermediate_result = OptimizeResult(x=intermediate_result, fun=value(intermediate_result))
            given = OptimizeResult(intermediate_result)
            given.x = vector.unpack(np.array(given.x))
            return callback(intermediate_result=given)

        return of_result

    def of_place(x: Any, *more: Any) -> Any:
        progress.iterated()
        return callback(vector.unpack(np.array(x)), *more)

    return of_place
