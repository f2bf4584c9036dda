"""Scalar minimization of `scipy.optimize`, and its legacy names.

At an interior minimum the derivative is zero; a minimum at a bound moves with the bound.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import Aval
from tracegrad.ir import Graph, build, replay
from tracegrad.ops.elementwise.table import equal, where
from tracegrad.solvers.implicit import gradient_of, solved
from tracegrad.solvers.scipy_function import SolverArguments, solver, with_args
from tracegrad.solvers.solver_node import Functions, SolverResult, Starts
from tracegrad.trace.driver.region import weakened

if TYPE_CHECKING:
    from tracegrad.typing import Array, Number


@solver("optimize.minimize_scalar")
def minimize_scalar(inputs: SolverArguments) -> SolverResult:
    """`scipy.optimize.minimize_scalar`"""
    fs: list[Any] = [(with_args(inputs.pop("fun"), inputs.pop("args")), ())]
    starts: dict[str, Any] = {k: inputs.pop(k) for k in ("bracket", "bounds") if inputs[k] is not None}
    ends = tuple(starts.get("bounds", ()))
    fs += [(functools.partial(_off, end), ()) for end in ends]
    functions = Functions(inputs.api_name, fs, None)
    gradient = gradient_of(functions.graphs[0])
    off = functions.graphs[1:]
    functions.graphs.append(gradient)
    options = inputs.options()

    def run(fs: Any, begin: Any) -> Any:
        result = inputs.real(fs[0], **begin, **options)
        x = float(result.x)
        return x, _held(fs[-1], x, begin.get("bounds", ())), result.nfev, result.get("nit", 0), result.success

    equation = _equation(gradient, off)
    kinds = (((), "f64"), ((), "i64"), ((), "i64"), ((), "i64"), ((), "bool"))
    x, _, calls, iterations, success = solved(functions, Starts(starts), run, kinds, repr(options), equation, 1)
    value = weakened(functions.value(0, x))
    return SolverResult(inputs.api_name, x=weakened(x), fun=value, nfev=calls, nit=iterations, success=success)


def _off(end: Array | Number, x: Array) -> Array:
    return x - end


def _held(derivative: Callable[[float], float], x: float, bounds: Sequence[float]) -> int:
    """Return 1 or 2 for a minimum at the first or second bound, 0 otherwise.

    A minimum is at a bound if the derivative toward the bound exceeds the curvature times the distance.
    """
    step = 1e-4 * (1.0 + abs(x))
    bend = (derivative(x + step) - derivative(x - step)) / (2.0 * step)
    for k, end in enumerate(bounds):
        if abs(x - end) * abs(bend) < abs(derivative(x)) and (derivative(x) > 0) == (k == 0):
            return k + 1
    return 0


def _equation(gradient: Graph, off: list[Graph]) -> Graph:
    def fn(*args: Array) -> list[Array]:
        *point, held = args
        result = replay(gradient, point)[0][0]
        for k, graph in enumerate(off):
            result = where(equal(held, k + 1), replay(graph, point)[0][0], result)
        return [result]

    return build(fn, [*gradient.avals, Aval((), np.dtype(np.int64))])


def _bracketed(name: str, options: dict[str, str], facts: tuple[str, ...]) -> None:
    @solver(f"optimize.{name}")
    def find(inputs: SolverArguments) -> object:
        passed = {new: inputs[old] for old, new in options.items()}
        result = minimize_scalar(inputs["func"], inputs["brack"], None, inputs["args"], name, None, passed)
        return tuple([result[k] for k in facts]) if inputs["full_output"] else result.x


_OPTIONS = {"tol": "xtol", "maxiter": "maxiter"}
_bracketed("brent", _OPTIONS, ("x", "fun", "nit", "nfev"))
_bracketed("golden", _OPTIONS, ("x", "fun", "nfev"))


@solver("optimize.fminbound")
def fminbound(inputs: SolverArguments) -> object:
    """`scipy.optimize.fminbound`"""
    options = {"xatol": inputs["xtol"], "maxiter": inputs["maxfun"], "disp": inputs["disp"]}
    ends = inputs["x1"], inputs["x2"]
    result = minimize_scalar(inputs["func"], None, ends, inputs["args"], "bounded", None, options)
    if not inputs["full_output"]:
        return result.x
    return result.x, result.fun, np.where(result.success, 0, 1), result.nfev
