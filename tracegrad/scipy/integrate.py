"""Initial value problems and integrals, `solve_ivp` and `quad`, with compiled functions and Jacobians."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracegrad import tree
from tracegrad.locks import cached_property
from tracegrad.scipy.ravel_pytree import Vector, array_if_list
from tracegrad.scipy.vector_functions import ResidualFunction, compiled, number, of_scipy

__all__ = ["quad", "solve_ivp"]

_IMPLICIT = ("Radau", "BDF", "LSODA")


def quad(func: Callable[..., object], a: object, b: object, args: object = (), **options: object) -> Any:
    """Integrate a function of a number, with the arguments and the result of `scipy.integrate.quad`.

    Parameters
    ----------
    func : callable
        Integrand `func(x, *args)`. It is compiled.
    a, b : float
        Bounds of the integral; `-numpy.inf` and `numpy.inf` are permitted.
    args : tuple
        Further arguments of `func`.
    **options
        Other arguments of `scipy.integrate.quad`.

    Returns
    -------
    y : float
        Integral.
    abserr : float
        Estimate of the absolute error.

    Notes
    -----
    In a traced function, it is the `scipy.integrate.quad` of traced code. The integral then has derivatives with
    respect to the bounds and to the values that the integrand reads.

    Examples
    --------
    >>> print(f"{quad(lambda x, k: np.exp(-k * x**2), -np.inf, np.inf, 2.0)[0]:.12f}")
    1.253314137316
    """
    api_name = "tracegrad.scipy.quad"
    value = number(compiled(func, ("value", api_name), lambda f: f, api_name))
    return of_scipy("integrate.quad")(value, a, b, args, **options)


def solve_ivp(
    fun: Callable[..., object],
    t_span: Sequence[float],
    y0: object,
    method: object = "RK45",
    t_eval: object = None,
    dense_output: bool = False,
    events: object = None,
    vectorized: bool = False,
    args: object = None,
    **options: object,
) -> Any:
    """Solve an initial value problem, with the arguments and the result of `scipy.integrate.solve_ivp`.

    Parameters
    ----------
    fun : callable
        Right-hand side `fun(t, y, *args)`. It receives and returns the structure and shapes of `y0`, and is compiled.
    t_span : pair of float
        Initial and final time.
    y0 : array, list of numbers, or pytree of arrays
        Initial state.
    method : str or OdeSolver
        Method of SciPy. For "Radau", "BDF" and "LSODA", the Jacobian is derived and compiled unless `jac` is passed.
    t_eval : array, optional
        Times at which the solution is stored.
    dense_output : bool
        Whether the result has a continuous solution `sol`.
    events : callable or list of callables, optional
        Events `event(t, y, *args)`, as in SciPy.
    vectorized : bool
        Whether `fun` takes a matrix of states, as in SciPy.
    args : tuple, optional
        Further arguments of `fun` and of the events.
    **options
        Options of the method, for example `rtol` and `atol`.

    Returns
    -------
    OdeResult
        Result of SciPy. `y` has the structure of `y0`, with the times as a last axis of each leaf.

    Raises
    ------
    ShapeError
        If the result of `fun` does not match `y0`.

    Notes
    -----
    In a traced function, it is the `scipy.integrate.solve_ivp` of traced code. The solution then has derivatives with
    respect to `y0`, `t_span`, `t_eval`, and the values that `fun` reads. SciPy's own errors are unchanged.

    Examples
    --------
    >>> result = solve_ivp(lambda t, y: {"x": y["v"], "v": -y["x"]}, (0, np.pi), {"x": 1.0, "v": 0.0}, rtol=1e-8)
    >>> print(f"{result.y['x'][-1]:.4f}")
    -1.0000
    """
    y0 = array_if_list(y0)
    vector = Vector("tracegrad.scipy.solve_ivp", "y0", y0)
    derivative = Derivative(fun, vector, 1)
    f: Callable[..., Any] = derivative
    if vectorized:
        f = lambda t, y, *args: vector.pack(_column(fun(t, vector.along(y[:, None], (1,)), *args)))  # noqa: E731
    elif method in _IMPLICIT and options.get("jac") is None:
        options["jac"] = derivative.jacobian
    result = of_scipy("integrate.solve_ivp")(
        f, t_span, vector.pack(y0), method, t_eval, dense_output, _events(vector, events), args=args, **options
    )
    return result if vector.flat else _unpacked(vector, result)


class Derivative(ResidualFunction):
    """Right-hand side of a system, a function whose result has the structure of its argument."""

    @cached_property
    def _elements(self) -> Any:
        return self.transformed("derivative", lambda flat: lambda *args: self.vector.pack(flat(*args)))


def _column(y: object) -> object:
    return tree.map(lambda leaf: np.asarray(leaf)[..., 0], y)


def _events(vector: Vector, events: Any) -> object:
    """Convert events to SciPy's format, as functions of the vector."""
    if events is None or vector.flat:
        return events
    return [_event(vector, event) for event in ([events] if callable(events) else events)]


def _event(vector: Vector, event: Callable[..., object]) -> Callable[..., object]:
    def call(t: object, v: object, *args: object) -> Any:
        return event(t, vector.unpack(v), *args)

    vars(call).update({k: getattr(event, k) for k in ("terminal", "direction") if hasattr(event, k)})
    return call


def _unpacked(vector: Vector, solution: Any) -> Any:
    """Convert a solution to one whose states are pytrees."""
    solution["y"] = vector.along(solution["y"], np.shape(solution["t"]))
    inside = solution.get("sol")
    if inside is not None:
        solution["sol"] = lambda t: vector.along(inside(t), np.shape(t))
    if solution.get("y_events") is not None:
        solution["y_events"] = [
            vector.along(np.reshape(y, (-1, vector.size)).T, (len(y),)) for y in solution["y_events"]
        ]
    return solution
