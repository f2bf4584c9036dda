"""Minima and assignments, of `scipy.optimize`.

At a minimum the gradient is zero; a component at a bound moves with the bound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.control.operands import inlined
from tracegrad.ir import Graph, build, replay
from tracegrad.numpy_api.operands import arrays
from tracegrad.numpy_api.registry import refuse
from tracegrad.ops.calls.custom_call import opaque
from tracegrad.ops.core.op import dispatch_operand
from tracegrad.ops.elementwise.table import greater, where
from tracegrad.scipy_api.registry import shadow
from tracegrad.solvers.blas_threads import threads_for
from tracegrad.solvers.implicit import gradient_of, solved
from tracegrad.solvers.kkt import FACTS, Between, Run, ScipyConstraint, constrained
from tracegrad.solvers.scipy_function import SolverArguments, arguments_tuple, scipy_function, solver, with_args
from tracegrad.solvers.solver_node import Functions, OpaqueCall, SolverResult, Starts, shaped

if TYPE_CHECKING:
    from tracegrad.trace.values.container_proxies import ListProxy
    from tracegrad.typing import Array, ArrayLike, NDArray, Number


NUMERICAL_JACS = (None, False, "2-point", "3-point")
_AT_BOUNDS = ("", "l-bfgs-b", "slsqp")  # methods whose results are exactly at active bounds


def begin(api_name: str, x0: Array | Number | ListProxy) -> tuple[Array, tuple[int, ...]]:
    x0 = shaped(x0, None)
    if len(x0.shape) > 1:
        raise ValueError(f"{api_name}: x0 must not have more than one dimension, but has the shape {x0.shape}")
    return x0, x0.shape or (1,)


class Objective:
    """Function and the derivatives that the user passes, as functions and as arguments of the solver."""

    def __init__(self, api_name: str, fun: Any, args: Any, inputs: dict[str, Any], shape: tuple[int, ...]):
        jac, hess, hessp = (inputs.pop(name, None) for name in ("jac", "hess", "hessp"))
        f = with_args(fun, args)
        self.fs: list[Any] = [(f, ())]
        self.options: dict[str, Any] = {}
        self.names: list[str] = []
        if jac is True:
            self.fs = [(lambda x: f(x)[0], ())]
            self._add("jac", lambda x: f(x)[1], shape)
        else:
            self._add_user(api_name, "jac", jac, args, shape)
        self._add_user(api_name, "hess", hess, args, shape * 2)
        if hessp is not None:
            extra_args = arguments_tuple(args)
            self._add("hessp", lambda z: inlined(hessp)(z[0], z[1], *extra_args), shape, (2, *shape))

    def _add(self, name: str, *entry: object) -> None:
        self.fs.append(entry)
        self.names.append(name)

    def _add_user(self, api_name: str, name: str, f: object, args: object, shape: tuple[int, ...]) -> None:
        if callable(f):
            self._add(name, with_args(f, args), shape)
        elif f not in NUMERICAL_JACS:
            raise refuse(f"{api_name} with {name}={f!r}")
        elif f is not None:
            self.options[name] = f

    def to_scipy(self, fs: Sequence[Any]) -> dict[str, Any]:
        """Return the derivative arguments of the solver for these compiled functions."""
        table = dict(zip(self.names, fs[1:]))
        if "hessp" in table:
            product = table["hessp"]
            table["hessp"] = lambda x, p: product(np.stack([x, p]))
        return self.options | table


def minimum(
    api_name: str,
    derivatives: Objective,
    start: dict[str, Any],
    constraints: Sequence[Any],
    run: Run,
    text: str,
    shape: tuple[int, ...],
    exact: bool = False,
) -> SolverResult:
    """Compute the result of a solver: `run(functions, start, constraints)`.

    Its bounds are `low` and `high` in `start`. Elements with an active bound are at the bound exactly if `exact`,
    otherwise near it.
    """
    bounded = "low" in start
    between = _at_bounds(start["low"], start["high"], shape) if bounded and exact else []
    if bounded and not exact:
        constraints = [*constraints, Between(start["low"], start["high"])]
    text = f"{text} {derivatives.options!r} {derivatives.names}"
    if constraints:
        x, functions, facts = constrained(api_name, derivatives.fs, start, between, constraints, run, text, shape)
    else:
        functions = Functions(api_name, [*derivatives.fs, *between], shape)
        equation = gradient_of(functions.graphs[0])
        if between:
            equation = _limited(equation, *functions.graphs[len(derivatives.fs) :])
        x, *facts = solved(
            functions, Starts(start), lambda fs, b: run(fs, b, ()), ((shape, "f64"), *FACTS), text, equation
        )
    names = ("nfev", "nit", "njev", "nhev", "status", "success")
    return SolverResult(api_name, x=x, fun=functions.value(0, x), **dict(zip(names, facts)))


def facts_of(result: Any) -> tuple[NDArray | int, ...]:
    """Return the facts of SciPy's result, in the order of `FACTS`."""
    counts = [result.get(name, 0) for name in ("nfev", "nit", "njev", "nhev", "status")]
    return result.x, *counts, result.get("success", True)


def number(f: Callable[[NDArray], float]) -> Callable[..., object]:
    return lambda x, *_: float(f(x))


def limits_of(begin: dict[str, Any]) -> Any:
    """Return the bounds as an argument of SciPy."""
    return None if "low" not in begin else scipy_function("optimize.Bounds")(begin["low"], begin["high"])


def constraints_of(api_name: str, constraints: Any) -> list[ScipyConstraint]:
    is_single = isinstance(constraints, dict) or hasattr(constraints, "lb")
    return [ScipyConstraint(api_name, c) for c in ([constraints] if is_single else constraints or ())]


_WITHOUT_DERIVATIVES = ("nelder-mead", "powell", "cobyla", "cobyqa")
_WITH_HESSIAN = ("newton-cg", "dogleg", "trust-ncg", "trust-krylov", "trust-exact", "trust-constr")


@solver("optimize.minimize", "callback")
def minimize(inputs: SolverArguments) -> SolverResult:
    """`scipy.optimize.minimize`"""
    api_name = inputs.api_name
    x0, shape = begin(api_name, inputs.pop("x0"))
    derivatives = Objective(api_name, inputs.pop("fun"), inputs.pop("args"), inputs, shape)
    limits, constraints = inputs.pop("bounds"), constraints_of(api_name, inputs.pop("constraints"))
    options = inputs.options()
    method = str(inputs["method"] or "").lower()
    start = {"x0": x0} | (ends(limits, shape) if limits is not None else {})

    def run(fs: Any, begin: Any, output: Any) -> Any:
        extra = derivatives.to_scipy(fs) | options
        with threads_for(method):
            result = inputs.real(number(fs[0]), begin["x0"], bounds=limits_of(begin), constraints=output, **extra)
        return facts_of(result)

    result = minimum(api_name, derivatives, start, constraints, run, repr(options), shape, method in _AT_BOUNDS)
    absent = {"njev": method in _WITHOUT_DERIVATIVES, "nhev": method not in _WITH_HESSIAN}
    return SolverResult(api_name, **{k: v for k, v in result.items() if not absent.get(k)})


def ends(limits: Any, shape: tuple[int, ...]) -> dict[str, Array]:
    """Return the lower and the upper bounds: those of SciPy's `Bounds`, or of one pair for each element."""
    if not hasattr(limits, "lb"):
        low, high = zip(*limits)
        limits = [-np.inf if x is None else x for x in low], [np.inf if x is None else x for x in high]
    return low_and_high(pair_of(limits), shape)


def pair_of(limits: Any) -> tuple[Array, Array]:
    """Return the lower and the upper bounds of SciPy's `Bounds`, or of a pair, as arrays."""
    low, high = (limits.lb, limits.ub) if hasattr(limits, "lb") else limits
    return arrays(low)[0], arrays(high)[0]


def low_and_high(pair: tuple[Array, Array], shape: tuple[int, ...]) -> dict[str, Array]:
    """Return arguments of a solver: the bounds of each element."""
    return {k: shaped(np.broadcast_to(x, shape), shape) for k, x in zip(("low", "high"), pair)}


def _at_bounds(
    low: object, high: object, shape: tuple[int, ...]
) -> list[tuple[Callable[..., object], tuple[int, ...]]]:
    """Make functions for the mask of elements between the bounds, and their distance to the nearer bound."""
    return [
        (lambda x: np.where((x > low) & (x < high), 1.0, 0.0), shape),
        (lambda x: np.where(x <= low, x - low, x - high), shape),
    ]


def _limited(gradient: Graph, between: Graph, off: Graph) -> Graph:
    def fn(*args: object) -> list[Array]:
        free, derivative, distance = (replay(graph, args)[0][0] for graph in (between, gradient, off))
        return [where(greater(free, 0.5), derivative, distance)]

    return build(fn, gradient.avals)


class _Assignment(OpaqueCall):
    """Opaque call of `scipy.optimize.linear_sum_assignment`."""

    def __init__(self, maximize: bool):
        self.maximize, self.name = maximize, f"linear_sum_assignment, maximize={maximize}"

    def __call__(self, cost: NDArray) -> tuple[NDArray, NDArray]:
        result: tuple[NDArray, NDArray] = scipy_function("optimize.linear_sum_assignment")(cost, maximize=self.maximize)
        return result


@shadow("scipy.optimize.linear_sum_assignment")
def linear_sum_assignment(cost_matrix: ArrayLike, maximize: bool = False) -> tuple[Array, ...]:
    """`scipy.optimize.linear_sum_assignment`: indices, which have no derivative."""
    (cost,) = arrays(cost_matrix)
    if len(cost.shape) != 2:
        raise ValueError(f"expected a matrix (2-D array), got a {len(cost.shape)} array")
    if dispatch_operand((cost,)) is None:
        result: tuple[Array, ...] = scipy_function("optimize.linear_sum_assignment")(cost, maximize)
        return result
    kind = (min(cost.shape),), "i64"
    return tuple(opaque(cost, results=(kind, kind), call=_Assignment(bool(maximize))))
