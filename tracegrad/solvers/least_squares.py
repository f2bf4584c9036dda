"""Least squares with bounds and losses, and curve fits, of `scipy.optimize`.

At a minimum the gradient of the sum is zero; a component at a bound moves with the bound. Some solvers approach a bound
and never reach it. A component counts as at the bound if the gradient toward the bound exceeds the curvature of the sum
times the distance.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import Aval
from tracegrad.ir import Graph, build, replay
from tracegrad.numpy_api.boolean_mask import known
from tracegrad.numpy_api.registry import refuse
from tracegrad.ops import Carrier
from tracegrad.ops.elementwise.table import (
    add,
    arctan,
    equal,
    greater,
    less_equal,
    log1p,
    multiply,
    sqrt,
    square,
    subtract,
    where,
)
from tracegrad.ops.shape.linear import reduce_sum, stop_gradient
from tracegrad.scipy_api.linalg.functions import solve_triangular
from tracegrad.scipy_api.registry import shadow
from tracegrad.solvers.implicit import columns, gradient_of, solved
from tracegrad.solvers.minimize import NUMERICAL_JACS, begin, low_and_high, pair_of
from tracegrad.solvers.scipy_function import SolverArguments, plain_options, scipy_function, solver, with_args
from tracegrad.solvers.solver_node import Functions, SolverResult, Starts, shaped

if TYPE_CHECKING:
    from tracegrad.typing import Array, NDArray, Number


Fs = list[tuple[Callable[..., Any], Any]]


def _soft(z: Array) -> Array:
    return multiply(subtract(sqrt(add(z, 1.0)), 1.0), 2.0)


def _huber(z: Array) -> Array:
    near = less_equal(z, 1.0)
    return where(near, z, subtract(multiply(sqrt(where(near, 1.0, z)), 2.0), 1.0))


# The losses rho(z) with z = (residual / f_scale)**2, by SciPy's names.
_LOSSES: dict[str, Callable[[Any], Any]] = {
    "linear": lambda z: z,
    "soft_l1": _soft,
    "huber": _huber,
    "cauchy": log1p,
    "arctan": arctan,
}


class _Fit:
    """Least-squares problem of the residual function `rest`, with optional bounds."""

    def __init__(
        self,
        api_name: str,
        rest: Any,
        others: Fs,
        shape: tuple[int, ...],
        limits: Any,
        loss: str = "linear",
        scale: float = 1.0,
    ):
        self.limits = limits
        fs: Fs = [(_flat(rest), None), *others]
        self.count = len(fs)
        if limits is not None:
            low, high = limits["low"], limits["high"]
            fs += [(lambda x: x - low, shape), (lambda x: x - high, shape)]
        self.functions = Functions(api_name, fs, shape)
        graph = self.functions.graphs[0]
        self.derivatives = build(lambda *args: [columns(graph, args, api_name)], graph.avals)
        self.gradient = gradient_of(_cost(graph, loss, scale))
        self.off = self.functions.graphs[self.count :]
        self.functions.graphs += [self.derivatives, self.gradient]

    def solved(self, run: Callable[..., Any], starts: Starts, kinds: Sequence[Any], text: str) -> tuple[Array, ...]:
        """Compute `run(fs, starts)`; return the solution, the active bounds, and the other results."""
        n = self.functions.x

        def both(fs: object, start: object) -> tuple[Array | Number, ...]:
            x, *others = run(fs, start)
            return x, self._held(fs, np.asarray(x), start), *others

        kinds = ((n, "f64"), (n, "i64"), *kinds)
        return solved(self.functions, starts, both, kinds, text, self._equation(), 1)

    def _held(self, fs: Any, x: Any, start: Any) -> Any:
        """Return -1 for elements at their lower bounds, 1 at their upper bounds, 0 for others."""
        if self.limits is None:
            return np.zeros(x.shape, np.int64)
        derivative, curvatures = fs[-1](x), np.sum(np.reshape(fs[-2](x), (x.size, -1)) ** 2, axis=1)
        low = (derivative > 0) & ((x - start["low"]) * curvatures < derivative)
        high = (derivative < 0) & ((start["high"] - x) * curvatures < -derivative)
        return high.astype(np.int64) - low

    def _equation(self) -> Graph:
        def fn(*args: Array) -> list[Array]:
            *point, held = args
            result = replay(self.gradient, point)[0][0]
            if self.limits is not None:
                below, above = (replay(graph, point)[0][0] for graph in self.off)
                result = where(equal(held, -1), below, where(equal(held, 1), above, result))
            return [result]

        avals = self.gradient.avals
        return build(fn, [*avals, Aval(avals[0].shape, np.dtype(np.int64))])


def _cost(graph: Graph, loss: str, scale: float) -> Graph:
    def fn(*args: object) -> list[Array]:
        return [_sum(replay(graph, args)[0][0], loss, scale)]

    return build(fn, graph.avals)


def _sum(rest: Array, loss: str, scale: float) -> Array:
    each = _LOSSES[loss](square(multiply(rest, 1.0 / scale)))
    return multiply(reduce_sum(each, axes=(0,)), 0.5 * scale**2)


def _flat(f: Callable[..., object]) -> Callable[[Array], Array]:
    def call(x: object) -> Array:
        y = shaped(f(x), None)
        return np.reshape(y, -1) if len(y.shape) != 1 else y

    return call


def _limits(bounds: Any, shape: tuple[int, ...]) -> Any:
    """Return the lower and the upper bounds; None if there are none."""
    pair = pair_of(bounds)
    plain = [known(x) if isinstance(x, Carrier) else x for x in pair]
    is_unbounded = all(x is not None and not np.any(np.isfinite(x)) for x in plain)
    return None if is_unbounded else low_and_high(pair, shape)


def _within(start: Any) -> Any:
    return (start["low"], start["high"]) if "low" in start else (-np.inf, np.inf)


@solver("optimize.least_squares", "jac_sparsity", "kwargs", "callback", "workers", "verbose")
def least_squares(inputs: SolverArguments) -> SolverResult:
    """`scipy.optimize.least_squares`"""
    api_name = inputs.api_name
    x0, shape = begin(api_name, inputs.pop("x0"))
    limits, loss = _limits(inputs.pop("bounds"), shape), inputs["loss"]
    if loss not in _LOSSES:
        raise refuse(f"{api_name} with a loss= that is no name of SciPy's")
    derivative, others, fun = inputs.pop("jac"), inputs.pop("args"), inputs.pop("fun")
    jacobians: Fs = [(with_args(derivative, others), None)] if callable(derivative) else []
    if not jacobians and derivative not in NUMERICAL_JACS:
        raise refuse(f"{api_name} with jac={derivative!r}")
    options = inputs.options()
    fit = _Fit(api_name, with_args(fun, others), jacobians, shape, limits, loss, float(options["f_scale"]))

    def run(fs: Any, start: Any) -> tuple[Array | Number, ...]:
        jac_argument = fs[1] if jacobians else derivative
        result = inputs.real(fs[0], start["x0"], jac=jac_argument, bounds=_within(start), **options)
        return result.x, result.active_mask, result.cost, result.nfev, result.status, result.success

    kinds = ((shape, "i64"), ((), "f64"), ((), "i64"), ((), "i64"), ((), "bool"))
    starts = Starts({"x0": x0} | (limits or {}))
    text = f"{options!r} {bool(jacobians) or derivative!r}"
    x, _, mask, _, calls, status, success = fit.solved(run, starts, kinds, text)
    rest = fit.functions.value(0, x)
    cost = _sum(rest, loss, float(options["f_scale"]))
    return SolverResult(
        api_name, x=x, fun=rest, cost=cost, active_mask=mask, nfev=calls, status=status, success=success
    )


@solver("optimize.curve_fit", "full_output", "nan_policy")
def curve_fit(inputs: SolverArguments) -> tuple[Array, ...]:
    """`scipy.optimize.curve_fit`.

    The parameters have the derivatives of the minimum of the sum of squares. Their covariance has the derivatives of
    the inverse Gauss-Newton matrix.
    """
    inputs.update(inputs.pop("kwargs", {}))
    f, xdata, jac = inputs.pop("f"), inputs.pop("xdata"), inputs.pop("jac")
    bounds, sigma, absolute = inputs.pop("bounds"), inputs.pop("sigma"), inputs["absolute_sigma"]
    p0 = _begin(f, inputs.pop("p0"), bounds)
    shape, y = p0.shape, np.reshape(shaped(inputs.pop("ydata"), None), -1)
    limits = _limits(bounds, shape)
    sigma = None if sigma is None else shaped(sigma, None)

    def model(p: Array) -> object:
        return f(xdata, *[p[k] for k in range(shape[0])])

    def rest(p: Array) -> Array:
        residuals = np.reshape(shaped(model(p), None), -1) - y
        if sigma is None or len(np.shape(sigma)) < 2:
            result: Array = residuals if sigma is None else residuals / sigma
            return result
        return solve_triangular(np.linalg.cholesky(sigma), residuals, lower=True)

    others: Fs = [(_flat(model), None)]
    if callable(jac):
        others.append((lambda p: jac(xdata, *[p[k] for k in range(shape[0])]), None))
    fit = _Fit(inputs.api_name, rest, others, shape, limits)
    options = inputs.options()

    def run(fs: Sequence[Callable[..., object]], start: Any) -> Any:
        jac_argument = (lambda _, *p: fs[2](np.array(p))) if len(others) == 2 else jac
        return inputs.real(
            lambda _, *p: fs[1](np.array(p)),
            np.zeros(1),
            start["y"],
            start["p0"],
            start["sigma"],
            jac=jac_argument,
            bounds=_within(start),
            **options,
        )

    n, starts = shape[0], Starts({"p0": p0, "y": y, "sigma": sigma} | (limits or {}))
    p, _, covariance = fit.solved(run, starts, (((n, n), "f64"),), f"{options!r} {jac if isinstance(jac, str) else ''}")
    derivatives, residuals = replay(fit.derivatives, [p, *fit.functions.captured])[0][0], fit.functions.value(0, p)
    derivatives = derivatives.reshape(n, -1)
    moved = np.linalg.inv(derivatives @ derivatives.T)
    if not absolute and residuals.shape[0] > n:
        moved = moved * (np.sum(residuals * residuals) / (residuals.shape[0] - n))
    return p, covariance + (moved - stop_gradient(moved))


def _begin(f: Callable[..., object], p0: object, bounds: object) -> NDArray:
    """Return SciPy's start value: ones, or a point within the bounds."""
    if p0 is not None:
        return np.reshape(shaped(p0, None), -1)
    results = list(inspect.signature(f).parameters.values())
    count = sum(x.kind in (x.POSITIONAL_ONLY, x.POSITIONAL_OR_KEYWORD) for x in results) - 1
    if count < 1:
        raise ValueError("Unable to determine number of fit parameters.")
    limits = _limits(bounds, (count,))
    if limits is None:
        return np.ones(count)
    low, high = limits["low"], limits["high"]
    below, above = np.isfinite(low), np.isfinite(high)
    near = [np.where(known, x, 0.0) for known, x in ((below, low), (above, high))]
    one = np.where(below, near[0] + 1.0, np.where(above, near[1] - 1.0, 1.0))
    return np.where(below & above, 0.5 * (near[0] + near[1]), one)


@shadow("scipy.optimize.nnls", of_functions=True)
def nnls(A: Array, b: Array, **others: object) -> tuple[Array, ...]:
    """`scipy.optimize.nnls`: the solution, and the norm of the residuals."""
    api_name = "scipy.optimize.nnls"
    matrix, right = (shaped(v, None) for v in (A, b))
    shape = matrix.shape[1:]
    options = plain_options(api_name, {k: v for k, v in others.items() if v is not None})
    functions = Functions(api_name, [(lambda x: matrix @ x - right, right.shape)], shape)
    gradient = gradient_of(_cost(functions.graphs[0], "linear", 1.0))

    def fn(x: Array, *rest: Array) -> list[Array]:
        return [where(greater(x, 0.0), replay(gradient, [x, *rest])[0][0], x)]

    def run(_: object, start: Any) -> Any:
        return (scipy_function("optimize.nnls")(start["A"], start["b"], **options)[0],)

    equation = build(fn, gradient.avals)
    (x,) = solved(functions, Starts({"A": matrix, "b": right}), run, ((shape, "f64"),), repr(options), equation)
    residuals = functions.value(0, x)
    return x, np.sqrt(np.sum(residuals * residuals))


@solver("optimize.leastsq", "full_output", "col_deriv")
def leastsq(inputs: SolverArguments) -> tuple[Array, ...]:
    """`scipy.optimize.leastsq`: the solution and SciPy's status code."""
    x0, shape = begin(inputs.api_name, inputs.pop("x0"))
    func, derivative, others = inputs.pop("func"), inputs.pop("Dfun"), inputs.pop("args")
    jacobians: Fs = [(with_args(derivative, others), None)] if derivative is not None else []
    options = inputs.options()
    fit = _Fit(inputs.api_name, with_args(func, others), jacobians, shape, None)

    def run(fs: Any, start: Any) -> Any:
        x, status = inputs.real(fs[0], start["x0"], Dfun=fs[1] if jacobians else None, **options)
        return np.reshape(x, shape), status

    x, _, status = fit.solved(run, Starts({"x0": x0}), (((), "i64"),), repr(options))
    return x, status


@solver("optimize.lsq_linear")
def lsq_linear(inputs: SolverArguments) -> SolverResult:
    """`scipy.optimize.lsq_linear`"""
    api_name = inputs.api_name
    if not isinstance(inputs["A"], Carrier) and hasattr(inputs["A"], "tocsr"):
        raise refuse(f"{api_name} of a sparse matrix", "use .toarray()")
    matrix, right = (shaped(inputs.pop(name), None) for name in "Ab")
    if len(matrix.shape) != 2 or len(right.shape) != 1:
        raise ValueError(
            f"{api_name}: A must be a matrix and b a vector, got the shapes {matrix.shape} and {right.shape}"
        )
    shape = tuple(matrix.shape[1:])
    limits = _limits(inputs.pop("bounds"), shape)
    options = inputs.options()
    fit = _Fit(api_name, lambda x: matrix @ x - right, [], shape, limits)

    def run(_: object, start: Any) -> Any:
        result = inputs.real(start["A"], start["b"], bounds=_within(start), **options)
        return result.x, result.active_mask, result.nit, result.status, result.success

    kinds = ((shape, "i64"), ((), "i64"), ((), "i64"), ((), "bool"))
    starts = Starts({"A": matrix, "b": right} | (limits or {}))
    x, _, mask, iterations, status, success = fit.solved(run, starts, kinds, repr(options))
    rest = fit.functions.value(0, x)
    return SolverResult(
        api_name,
        x=x,
        fun=rest,
        cost=_sum(rest, "linear", 1.0),
        active_mask=mask,
        nit=iterations,
        status=status,
        success=success,
    )


@solver("optimize.fsolve", "full_output", "col_deriv")
def fsolve(inputs: SolverArguments) -> object:
    """`scipy.optimize.fsolve`"""
    x0, others, derivative = shaped(inputs.pop("x0"), None), inputs.pop("args"), inputs.pop("fprime")
    shape = np.shape(x0) or (1,)
    fs: Fs = [(with_args(inputs.pop("func"), others), shape)]
    if derivative is not None:
        fs.append((with_args(derivative, others), None))
    functions = Functions(inputs.api_name, fs, shape)
    options = inputs.options()

    def run(fs: Any, start: Any) -> Any:
        return (inputs.real(fs[0], start["x0"], fprime=fs[1] if len(fs) > 1 else None, **options),)

    return solved(functions, Starts({"x0": x0}), run, ((shape, "f64"),), repr(options), functions.graphs[0])[0]
