"""`scipy.optimize`: minima of functions of a number, and those functions by their old names.

A minimum inside is where the slope is zero; one at a bound moves as that does.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from tracegrad.avals import Aval
from tracegrad.ir import Graph, build, replay
from tracegrad.ops.elementwise.table import equal, where
from tracegrad.scipy_api.registry import shadow
from tracegrad.solvers.implicit import gradient_of, solution
from tracegrad.solvers.roots import bound, real, with_args
from tracegrad.solvers.solver_node import Functions, Result, Starts, called, plain_options
from tracegrad.trace.driver.region import weakened

__all__: list[str] = []


@shadow("scipy.optimize.minimize_scalar", of_functions=True)
def minimize_scalar(*args: Any, **kwargs: Any) -> Any:
    """`scipy.optimize.minimize_scalar`"""
    what = "scipy.optimize.minimize_scalar"
    given = bound("minimize_scalar", args, kwargs)
    fs: list[Any] = [(with_args(given.pop("fun"), given.pop("args")), ())]
    given = {k: v for k, v in given.items() if v is not None}
    starts: dict[str, Any] = {k: given.pop(k) for k in ("bracket", "bounds") if k in given}
    ends = tuple(starts.get("bounds", ()))
    fs += [(functools.partial(_off, end), ()) for end in ends]
    functions = Functions(what, fs, None)
    gradient = gradient_of(functions.graphs[0])
    off = functions.graphs[1:]
    functions.graphs.append(gradient)
    options = plain_options(what, given)

    def run(fs: Any, begin: Any) -> Any:
        found = real("minimize_scalar")(fs[0], **begin, **options)
        x = float(found.x)
        return x, _held(fs[-1], x, begin.get("bounds", ())), found.nfev, found.get("nit", 0), found.success

    ways = functools.partial(solution, equation=_equation(gradient, off), what=what, known=1)
    kinds = (((), "f64"), ((), "i64"), ((), "i64"), ((), "i64"), ((), "bool"))
    x, _, calls, turns, success = called(functions, Starts(starts), run, kinds, repr(options), ways)
    value = replay(functions.graphs[0], [x, *functions.captured])[0][0]
    return Result(what, x=weakened(x), fun=weakened(value), nfev=calls, nit=turns, success=success)


def _off(end: Any, x: Any) -> Any:
    return x - end


def _held(slope: Any, x: float, bounds: Any) -> int:
    """1 and 2 for a minimum at the first and the second bound: where the slope pushes to it harder than the function
    bends on the way there."""
    step = 1e-4 * (1.0 + abs(x))
    bend = (slope(x + step) - slope(x - step)) / (2.0 * step)
    for k, end in enumerate(bounds):
        if abs(x - end) * abs(bend) < abs(slope(x)) and (slope(x) > 0) == (k == 0):
            return k + 1
    return 0


def _equation(gradient: Graph, off: list[Graph]) -> Graph:
    def fn(*args: Any) -> list[Any]:
        *point, held = args
        found = replay(gradient, point)[0][0]
        for k, graph in enumerate(off):
            found = where(equal(held, k + 1), replay(graph, point)[0][0], found)
        return [found]

    return build(fn, [*gradient.avals, Aval((), np.dtype(np.int64))])


def _bracketed(name: str, options: dict[str, str], facts: tuple[str, ...]) -> None:
    @shadow(f"scipy.optimize.{name}", of_functions=True)
    def find(*args: Any, **kwargs: Any) -> Any:
        given = bound(name, args, kwargs)
        more = {new: given[old] for old, new in options.items()}
        found = minimize_scalar(given["func"], given["brack"], None, given["args"], name, None, more)
        return tuple([found[k] for k in facts]) if given["full_output"] else found.x


_OPTIONS = {"tol": "xtol", "maxiter": "maxiter"}
_bracketed("brent", _OPTIONS, ("x", "fun", "nit", "nfev"))
_bracketed("golden", _OPTIONS, ("x", "fun", "nfev"))


@shadow("scipy.optimize.fminbound", of_functions=True)
def fminbound(*args: Any, **kwargs: Any) -> Any:
    """`scipy.optimize.fminbound`"""
    given = bound("fminbound", args, kwargs)
    options = {"xatol": given["xtol"], "maxiter": given["maxfun"], "disp": given["disp"]}
    ends = given["x1"], given["x2"]
    found = minimize_scalar(given["func"], None, ends, given["args"], "bounded", None, options)
    if not given["full_output"]:
        return found.x
    return found.x, found.fun, np.where(found.success, 0, 1), found.nfev
