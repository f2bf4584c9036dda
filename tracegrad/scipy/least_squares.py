"""Least squares and curve fits, `least_squares` and `curve_fit`, with compiled Jacobians."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad import api, tree
from tracegrad.scipy.loss_plot import LossPlot
from tracegrad.scipy.progress import Progress
from tracegrad.scipy.ravel_pytree import Vector, array_if_list, joined
from tracegrad.scipy.vector_functions import OfVector, ResidualFunction, compiled, of_scipy
from tracegrad.trace.builder.builder import current_trace
from tracegrad.transforms.flat_function import inlined

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Operand
    from tracegrad.typing import Array


__all__ = ["curve_fit", "least_squares"]


def least_squares(
    fun: Callable[..., Any],
    x0: Any,
    jac: Any = None,
    bounds: Any = (-np.inf, np.inf),
    *,
    x_scale: object = None,
    args: object = (),
    kwargs: Mapping[str, Any] | None = None,
    disp: bool = False,
    **options: Any,
) -> Any:
    """Minimize a sum of squares of residuals, with the arguments and the result of `scipy.optimize.least_squares`.

    Parameters
    ----------
    fun : callable
        Residuals `fun(x, *args, **kwargs)`, a pytree of floating arrays. It receives `x` with the structure and shapes
        of `x0`.
    x0 : array, list of numbers, or pytree of arrays
        Initial guess.
    jac : callable or str, optional
        Jacobian of the residuals. If it is None, it is derived by the cheaper mode, and compiled.
    bounds : pair (low, high)
        Bounds: numbers, arrays, or pytrees of the structure of `x0`.
    x_scale : float, array, pytree, or str, optional
        Characteristic scale of each variable.
    args : tuple
        Further arguments of `fun`.
    kwargs : mapping, optional
        Keyword arguments of `fun`.
    disp : bool
        Whether a line on stderr shows the number of Jacobians, the number of evaluations, and half the sum of squares.
    **options
        Other arguments of `scipy.optimize.least_squares`, for example `method` and `loss`.

    Returns
    -------
    OptimizeResult
        Result of SciPy. `x` and `grad` have the structure and shapes of `x0`.

    Notes
    -----
    In a traced function, it is the `scipy.optimize.least_squares` of traced code, and the result has derivatives.
    SciPy's own errors are unchanged.

    Examples
    --------
    >>> t = np.linspace(0, 1, 20)
    >>> result = least_squares(lambda p: p["a"] * np.exp(-p["k"] * t) - 3 * np.exp(-2 * t), {"a": 1.0, "k": 0.0})
    >>> print(f"{result.x['a']:.6f} {result.x['k']:.6f}")
    3.000000 2.000000
    """
    x0 = array_if_list(x0)
    vector = Vector("tracegrad.scipy.least_squares", "x0", x0)
    residuals = ResidualFunction(functools.partial(fun, **kwargs) if kwargs else fun, vector)
    if jac is None:
        jac = residuals.jacobian
    elif callable(jac):
        jac = OfVector(functools.partial(jac, **kwargs) if kwargs else jac, vector)
    low, high = (bounds.lb, bounds.ub) if hasattr(bounds, "lb") else bounds
    if x_scale is not None:
        options["x_scale"] = x_scale if isinstance(x_scale, str) else vector.spread(x_scale, 1.0)
    limits = vector.spread(low, -np.inf), vector.spread(high, np.inf)
    solver, start = of_scipy("optimize.least_squares"), vector.pack(x0)
    if current_trace() is not None:
        result = solver(residuals, start, jac, limits, args=args, **options)
    else:
        with Progress("least_squares", disp) as progress:
            fun, jac = progress.counting(residuals, _cost), progress.iterating(jac)
            result = solver(fun, start, jac, limits, args=args, **options)
        if isinstance(options.get("callback"), LossPlot):
            options["callback"].finish()
    vector.unpack_fields(result, "x", "grad", "active_mask")
    return result


def _cost(residuals: Array) -> float:
    return 0.5 * float(np.sum(np.square(residuals)))


def curve_fit(
    f: Callable[..., Any],
    xdata: object,
    ydata: Any,
    p0: Any = None,
    sigma: Any = None,
    absolute_sigma: bool = False,
    check_finite: bool | None = None,
    bounds: Any = (-np.inf, np.inf),
    method: str | None = None,
    jac: Any = None,
    **options: Any,
) -> tuple[Operand | dict[str, Operand] | str, ...]:
    """Fit the parameters of a model to data, with the arguments and the result of `scipy.optimize.curve_fit`.

    Parameters
    ----------
    f : callable
        Model `f(xdata, *parameters)`, where the parameters are numbers; or `f(xdata, parameters)` if `p0` is a pytree,
        for example a dict.
    xdata : array or pytree of arrays
        Independent variables.
    ydata : array or pytree of arrays
        Data, with the structure and shapes of the result of `f`.
    p0 : list of numbers, or pytree of arrays, optional
        Initial guess. The default is 1 for each parameter of `f`.
    sigma : array or pytree of arrays, optional
        Uncertainties of `ydata`.
    absolute_sigma : bool
        Whether `sigma` is absolute. Otherwise only the ratios of its elements count.
    check_finite : bool, optional
        Whether to check that the data have no nan and no inf.
    bounds : pair (low, high)
        Bounds: numbers, arrays, or pytrees of the structure of `p0`.
    method : {"lm", "trf", "dogbox"}, optional
        Method of SciPy.
    jac : callable or str, optional
        Jacobian of the model. If it is None, it is derived and compiled.
    **options
        Options of the method, as in SciPy.

    Returns
    -------
    popt : array or pytree of arrays
        Fitted parameters, with the structure of `p0`.
    pcov : ndarray of shape (n, n)
        Covariance of the n parameters, in the order of the leaves.

    Notes
    -----
    In a traced function, it is the `scipy.optimize.curve_fit` of traced code, and both results have derivatives.
    SciPy's own errors are unchanged.

    Examples
    --------
    >>> t = np.linspace(0, 1, 20)
    >>> parameters, covariance = curve_fit(lambda t, a, k: a * np.exp(-k * t), t, 3 * np.exp(-2 * t))
    >>> print(parameters.round(6), covariance.shape)
    [3. 2.] (2, 2)
    """
    api_name = "tracegrad.scipy.curve_fit"
    p0, ydata, vector, data = array_if_list(p0), array_if_list(ydata), None, None
    if p0 is not None and (tree.is_node(p0) or np.ndim(p0) > 1):
        vector = Vector(api_name, "p0", p0)
        bounds = (vector.spread(bounds[0], -np.inf), vector.spread(bounds[1], np.inf))
        p0 = vector.pack(p0)
    if tree.is_node(ydata):
        data = Vector(api_name, "ydata", ydata)
        ydata, sigma = data.pack(ydata), data.pack(sigma) if sigma is not None and tree.is_node(sigma) else sigma
    cache_key = tuple([None if each is None else each.key for each in (vector, data)])

    def of_vector(f: Callable[..., object]) -> Callable[..., Any]:
        def model(x: Array | dict[str, Array], v: Array) -> Any:
            args = [v[k] for k in range(v.shape[0])] if vector is None else [vector.unpack(v)]
            result = inlined(f)(x, *args)
            return result if data is None else data.pack(result)

        model.__wrapped__ = f  # type: ignore[attr-defined]
        return model

    value = compiled(f, ("value", api_name, cache_key), of_vector, api_name)
    if jac is None:
        derivatives = compiled(
            f, ("derivatives", api_name, cache_key), lambda f: api.jacfwd(of_vector(f), 1), f"{api_name}: Jacobian"
        )
        jac = lambda x, *p: derivatives(x, joined(p))  # noqa: E731

    @functools.wraps(f)
    def model(x: object, *p: object) -> Any:
        return value(x, joined(p))

    result, *others = of_scipy("optimize.curve_fit")(
        model, xdata, ydata, p0, sigma, absolute_sigma, check_finite, bounds, method, jac, **options
    )
    return (result if vector is None else vector.unpack(result), *others)
