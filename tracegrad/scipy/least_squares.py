"""Least squares and curve fits, `least_squares` and `curve_fit`, with compiled Jacobians."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tracegrad import api, tree
from tracegrad.scipy.loss_plot import LossPlot
from tracegrad.scipy.progress import Progress
from tracegrad.scipy.ravel_pytree import Vector, as_given, joined
from tracegrad.scipy.vector_functions import OfVector, Residuals, compiled, of_scipy
from tracegrad.trace.builder.builder import current_trace
from tracegrad.transforms.flat_function import inlined

__all__ = ["curve_fit", "least_squares"]


def least_squares(
    fun: Callable[..., Any], x0: Any, jac: Any = None, bounds: Any = (-np.inf, np.inf), *, x_scale: Any = None,
    args: Any = (), kwargs: Mapping[str, Any] | None = None, disp: bool = False, **options: Any,
) -> Any:  # fmt: skip
    """Minimize a sum of squares of residuals, with the arguments and result of `scipy.optimize.least_squares`.

    `x0` is an array of any shape, a list of numbers, or a pytree of arrays; `fun` receives its structure and shapes,
    and the result has them as `x` and `grad`. The result of `fun`, of any structure, is the residuals. Their Jacobian
    is derived, by the cheaper mode, and compiled, if `jac` is None. `bounds` is a pair `(low, high)` of numbers or of
    pytrees, and `x_scale` may be one. With `disp`, a line on stderr shows the number of Jacobians and of evaluations of
    `fun`, and half the sum of squares. `options` are SciPy's other arguments, `method` and the like. In a traced
    function it is the `scipy.optimize.least_squares` of traced code, with derivatives of the result.

    >>> t = np.linspace(0, 1, 20)
    >>> found = least_squares(lambda p: p["a"] * np.exp(-p["k"] * t) - 3 * np.exp(-2 * t), {"a": 1.0, "k": 0.0})
    >>> print(f"{found.x['a']:.6f} {found.x['k']:.6f}")
    3.000000 2.000000
    """
    x0 = as_given(x0)
    vector = Vector("tracegrad.scipy.least_squares", "x0", x0)
    residuals = Residuals(functools.partial(fun, **kwargs) if kwargs else fun, vector)
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
    for field in ("x", "grad", "active_mask"):
        if field in result:
            result[field] = vector.unpack(result[field])
    return result


def _cost(residuals: Any) -> float:
    return 0.5 * float(np.sum(np.square(residuals)))


def curve_fit(
    f: Callable[..., Any], xdata: Any, ydata: Any, p0: Any = None, sigma: Any = None, absolute_sigma: bool = False,
    check_finite: bool | None = None, bounds: Any = (-np.inf, np.inf), method: str | None = None, jac: Any = None,
    **options: Any,
) -> Any:  # fmt: skip
    """Fit the parameters of a model to data, with the arguments and result of `scipy.optimize.curve_fit`.

    The model is `f(xdata, *parameters)`, numbers that begin at the list `p0`, or `f(xdata, parameters)` if `p0` is a
    pytree, such as a dictionary. In that case the fitted parameters are a pytree too, and the covariance has its
    elements in the order of the leaves. `xdata` may be a pytree, and so may `ydata`, the result of the model, and
    `sigma`. The Jacobian of the model is derived and compiled if `jac` is None. In a traced function it is the
    `scipy.optimize.curve_fit` of traced code, with derivatives of both results.

    >>> t = np.linspace(0, 1, 20)
    >>> found, covariance = curve_fit(lambda t, a, k: a * np.exp(-k * t), t, 3 * np.exp(-2 * t))
    >>> print(found.round(6), covariance.shape)
    [3. 2.] (2, 2)
    """
    what = "tracegrad.scipy.curve_fit"
    p0, ydata, vector, data = as_given(p0), as_given(ydata), None, None
    if p0 is not None and (tree.is_node(p0) or np.ndim(p0) > 1):
        vector = Vector(what, "p0", p0)
        bounds = (vector.spread(bounds[0], -np.inf), vector.spread(bounds[1], np.inf))
        p0 = vector.pack(p0)
    if tree.is_node(ydata):
        data = Vector(what, "ydata", ydata)
        ydata, sigma = data.pack(ydata), data.pack(sigma) if sigma is not None and tree.is_node(sigma) else sigma
    place = tuple([None if part is None else part.key for part in (vector, data)])

    def of_vector(f: Callable[..., Any]) -> Callable[..., Any]:
        def model(x: Any, v: Any) -> Any:
            args = [v[k] for k in range(v.shape[0])] if vector is None else [vector.unpack(v)]
            result = inlined(f)(x, *args)
            return result if data is None else data.pack(result)

        model.__wrapped__ = f  # type: ignore[attr-defined]
        return model

    value = compiled(f, ("value", what, place), of_vector, what)
    if jac is None:
        derivatives = compiled(
            f, ("derivatives", what, place), lambda f: api.jacfwd(of_vector(f), 1), f"{what}: Jacobian"
        )
        jac = lambda x, *p: derivatives(x, joined(p))  # noqa: E731

    @functools.wraps(f)
    def model(x: Any, *p: Any) -> Any:
        return value(x, joined(p))

    result, *others = of_scipy("optimize.curve_fit")(
        model, xdata, ydata, p0, sigma, absolute_sigma, check_finite, bounds, method, jac, **options
    )
    return (result if vector is None else vector.unpack(result), *others)
