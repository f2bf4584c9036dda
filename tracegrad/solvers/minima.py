"""`scipy.optimize`: minima and assignments.

A minimum is where the gradient is zero; what lies at a bound moves as that does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad.ir import Graph, build, replay
from tracegrad.numpy_api.operands import arrays
from tracegrad.numpy_api.registry import refuse
from tracegrad.ops.custom import opaque
from tracegrad.ops.elementwise import greater, where
from tracegrad.ops.op import lead
from tracegrad.scipy_api.registry import shadow
from tracegrad.solvers.host import Functions, Result, Starts, called, plain_options, shaped
from tracegrad.solvers.implicit import gradient_of, solution
from tracegrad.solvers.kkt import constrained
from tracegrad.solvers.roots import bound, real, with_args

__all__ = ["SLOPES", "begin", "found_by", "refuse_unless"]

SLOPES = (None, False, "2-point", "3-point")
_AT_BOUNDS = (None, "L-BFGS-B", "TNC", "SLSQP")  # the methods whose results lie on bounds exactly


def refuse_unless(what: str, given: dict[str, Any], **usual: Any) -> None:
    """UnsupportedError for arguments that are not as usual; they are taken out."""
    for name, default in usual.items():
        value = given.pop(name)
        if lead((value,)) is not None or (value is not default and value != default):
            raise refuse(f"the argument {name}= of {what}")


def begin(what: str, x0: Any) -> tuple[Any, tuple[int, ...]]:
    x0 = shaped(x0, None)
    if len(x0.shape) > 1:
        raise ValueError(f"{what}: x0 must not have more than one dimension, but has the shape {x0.shape}")
    return x0, x0.shape or (1,)


def _minimum(what: str, functions: Functions, equation: Graph, starts: Starts, run: Any, text: str) -> tuple[Any, ...]:
    """The minimum, the numbers of evaluations and iterations, the status and whether it is one."""
    kinds = ((functions.x, "f64"), ((), "i64"), ((), "i64"), ((), "i64"), ((), "bool"))
    ways = functools.partial(solution, equation=equation, what=what)
    return called(functions, starts, run, kinds, text, ways)  # type: ignore[arg-type]


def found_by(found: Any) -> tuple[Any, ...]:
    return found.x, found.get("nfev", 0), found.get("nit", 0), found.status, found.success


@shadow("scipy.optimize.minimize", of_functions=True)
def minimize(*args: Any, **kwargs: Any) -> Any:
    """`scipy.optimize.minimize`"""
    what = "scipy.optimize.minimize"
    given = bound("minimize", args, kwargs)
    x0, shape = begin(what, given.pop("x0"))
    refuse_unless(what, given, hess=None, hessp=None, callback=None)
    fun, slope, limits = with_args(given.pop("fun"), given["args"]), given.pop("jac"), given.pop("bounds")
    others = given.pop("args")
    fs: list[tuple[Callable[..., Any], Any]] = [(fun, ())]
    if slope is True:
        fs = [(lambda x: fun(x)[0], ()), (lambda x: fun(x)[1], shape)]
    elif callable(slope):
        fs.append((with_args(slope, others), shape))
    elif slope not in SLOPES:
        raise refuse(f"{what} with jac={slope!r}")
    count = len(fs)
    start = {"x0": x0}
    if limits is not None:
        if given["method"] not in _AT_BOUNDS:
            raise refuse(f"{what} with bounds and method={given['method']!r}", "use L-BFGS-B, TNC or SLSQP")
        start |= _ends(limits, shape)
    between = [] if limits is None else _at_bounds(start["low"], start["high"], shape)
    constraints = given.pop("constraints")
    options = plain_options(what, {k: v for k, v in given.items() if v is not None})
    if constraints != ():
        x, functions, facts = constrained(what, fs, slope, start, between, constraints, options, shape)
        return _told(what, functions, x, facts)
    functions = Functions(what, [*fs, *between], shape)

    def run(fs: Any, begin: Any) -> Any:
        limits = None if "low" not in begin else real("Bounds")(begin["low"], begin["high"])
        way = fs[1] if count == 2 else slope
        return found_by(real("minimize")(lambda x: float(fs[0](x)), begin["x0"], jac=way, bounds=limits, **options))

    equation = gradient_of(functions.graphs[0])
    if limits is not None:
        equation = _limited(equation, *functions.graphs[count:])
    text = f"{options!r} {slope!r}" if count == 1 else repr(options)
    x, *facts = _minimum(what, functions, equation, Starts(start), run, text)
    return _told(what, functions, x, facts)


def _told(what: str, functions: Functions, x: Any, facts: Any) -> Result:
    calls, turns, status, success = facts
    return Result(what, x=x, fun=_value(functions, x), nfev=calls, nit=turns, status=status, success=success)


def _value(functions: Functions, x: Any) -> Any:
    return replay(functions.graphs[0], [x, *functions.captured])[0][0]


def _ends(limits: Any, shape: tuple[int, ...]) -> dict[str, Any]:
    """The lower and the upper bounds."""
    if hasattr(limits, "lb"):
        pairs = limits.lb, limits.ub
    else:
        low, high = zip(*limits)
        pairs = [-np.inf if x is None else x for x in low], [np.inf if x is None else x for x in high]
    return {k: shaped(np.broadcast_to(arrays(x)[0], shape), shape) for k, x in zip(("low", "high"), pairs)}


def _at_bounds(low: Any, high: Any, shape: tuple[int, ...]) -> list[tuple[Callable[..., Any], Any]]:
    """Functions: what is between the bounds (1) and not (0), and how far it is from the nearer."""
    return [
        (lambda x: np.where((x > low) & (x < high), 1.0, 0.0), shape),
        (lambda x: np.where(x <= low, x - low, x - high), shape),
    ]


def _limited(gradient: Graph, between: Graph, off: Graph) -> Graph:
    def fn(*args: Any) -> list[Any]:
        free, slope, distance = (replay(graph, args)[0][0] for graph in (between, gradient, off))
        return [where(greater(free, 0.5), slope, distance)]

    return build(fn, gradient.avals)


class _Assignment:
    """What `scipy.optimize.linear_sum_assignment` computes."""

    def __init__(self, maximize: bool):
        self.maximize = maximize

    def __repr__(self) -> str:
        return repr(f"linear_sum_assignment, maximize={self.maximize}")

    def __call__(self, cost: Any) -> Any:
        return real("linear_sum_assignment")(cost, maximize=self.maximize)


@shadow("scipy.optimize.linear_sum_assignment")
def linear_sum_assignment(cost_matrix: Any, maximize: bool = False) -> Any:
    """`scipy.optimize.linear_sum_assignment`: places, which have no derivative."""
    (cost,) = arrays(cost_matrix)
    if len(cost.shape) != 2:
        raise ValueError(f"expected a matrix (2-D array), got a {len(cost.shape)} array")
    if lead((cost,)) is None:
        return real("linear_sum_assignment")(cost, maximize)
    kind = (min(cost.shape),), "i64"
    return tuple(opaque(cost, results=(kind, kind), call=_Assignment(bool(maximize))))
