"""`scipy.optimize.linprog`: the corner in which a linear program ends.

A corner is where as many constraints hold as there are unknowns. It moves as the solution of these equations does;
where more of them hold, as that of some, those that carry the cost first.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad.avals import Aval
from tracegrad.ir import build, replay
from tracegrad.ops.indexing.gather_scatter import gather
from tracegrad.ops.shape.linear import stop_gradient
from tracegrad.scipy_api.registry import shadow
from tracegrad.solvers.implicit import columns, solution
from tracegrad.solvers.minimize import ends, refuse_unless
from tracegrad.solvers.roots import bound, real
from tracegrad.solvers.solver_node import Functions, Result, Starts, called, plain_options, shaped

__all__: list[str] = []

_NEAR = 1e-7  # how far from zero, beside the solution, a constraint may be and hold


@shadow("scipy.optimize.linprog", of_functions=True)
def linprog(*args: Any, **kwargs: Any) -> Any:
    """`scipy.optimize.linprog`"""
    what = "scipy.optimize.linprog"
    given = bound("linprog", args, kwargs)
    refuse_unless(what, given, callback=None, integrality=None, x0=None)
    cost = shaped(given.pop("c"), None)
    cost = np.reshape(cost, -1) if len(cost.shape) != 1 else cost
    n = cost.shape[0]
    held = {k: shaped(given.pop(k), None) for k in ("A_ub", "b_ub", "A_eq", "b_eq") if given[k] is not None}
    given = {k: v for k, v in given.items() if k not in ("A_ub", "b_ub", "A_eq", "b_eq")}
    held = {k: np.reshape(v, (-1, n) if k[0] == "A" else -1) for k, v in held.items()}
    limits = ends(_pairs(given.pop("bounds"), n), (n,))
    options = plain_options(what, {k: v for k, v in given.items() if v is not None})

    def off(kind: str) -> Callable[[Any], Any]:
        return lambda x: held[f"A_{kind}"] @ x - held[f"b_{kind}"]

    def rows(x: Any) -> Any:
        found = [off(kind)(x) for kind in ("eq", "ub") if f"A_{kind}" in held]
        found += [x - np.where(np.isfinite(end), end, 0.0) for end in limits.values()]
        return np.concatenate([*found, x - stop_gradient(x)])

    functions = Functions(what, [(rows, None)], (n,))
    graph = functions.graphs[0]
    functions.graphs.append(build(lambda *args: [columns(graph, args, what)], graph.avals))
    equals = 0 if "A_eq" not in held else held["A_eq"].shape[0]

    def run(fs: Any, start: Any) -> Any:
        given = {k: v for k, v in start.items() if k not in ("low", "high")}
        found = real("linprog")(**given, bounds=np.stack([start["low"], start["high"]], axis=1), **options)
        if found.x is None:
            x, chosen = np.full(n, np.nan), np.arange(n) - n
        else:
            finite = [np.isfinite(start[k]) for k in ("low", "high")]
            x = np.asarray(found.x)
            chosen = _holding(fs[0](x), np.reshape(fs[1](x), (n, -1)).T, x, _forces(found, equals), finite)
        return x, chosen % graph.outputs[0].aval.size, found.get("nit", 0), found.status, found.success

    def fn(x: Any, *rest: Any) -> list[Any]:
        *captured, chosen = rest
        return [gather(replay(graph, [x, *captured])[0][0], chosen, axes=(0,))]

    equation = build(fn, [*graph.avals, Aval((n,), np.dtype(np.int64))])
    ways = functools.partial(solution, equation=equation, what=what, known=1)
    kinds = (((n,), "f64"), ((n,), "i64"), ((), "i64"), ((), "i64"), ((), "bool"))
    starts = Starts({"c": cost} | held | limits)
    x, _, turns, status, success = called(functions, starts, run, kinds, repr(options), ways)
    slack, con = (-off(k)(x) if f"A_{k}" in held else np.zeros(0) for k in ("ub", "eq"))
    return Result(what, x=x, fun=cost @ x, slack=slack, con=con, nit=turns, status=status, success=success)


def _is_pair(x: Any) -> bool:
    return isinstance(x, tuple | list) or (x is not None and np.ndim(x) == 1)


def _pairs(bounds: Any, n: int) -> Any:
    """A pair for each unknown."""
    if bounds is None:
        return [(0.0, None)] * n
    several = len(bounds) == n and all(_is_pair(x) for x in bounds)
    return bounds if several or len(bounds) != 2 else [tuple(bounds)] * n


def _forces(found: Any, equals: int) -> Any:
    """How much of the cost each constraint carries: those that have to hold, infinitely much."""
    rest = [np.abs(getattr(found.get(k), "marginals", ())) for k in ("ineqlin", "lower", "upper")]
    return np.concatenate([np.full(equals, np.inf), *rest])


def _holding(values: Any, slopes: Any, x: Any, forces: Any, finite: Any) -> Any:
    """Places of n constraints that hold at `x` and have independent slopes; of the last ones, which always hold, where
    there are not as many."""
    n, size = len(x), len(values)
    near = np.abs(values) <= _NEAR * (1.0 + np.max(np.abs(x), initial=0.0))
    near[size - 3 * n : size - n] &= np.concatenate(finite)
    weight = np.zeros(size)
    weight[: len(forces)] = forces
    order = [k for k in np.argsort(-weight[: size - n], kind="stable") if near[k]] + list(range(size - n, size))
    basis, chosen = np.zeros((0, n)), []
    for k in order:
        row = slopes[k] - basis.T @ (basis @ slopes[k])
        row -= basis.T @ (basis @ row)
        length = np.linalg.norm(row)
        if length > 1e-9 * np.linalg.norm(slopes[k]):
            basis = np.concatenate([basis, row[None] / length])
            chosen.append(k)
        if len(chosen) == n:
            break
    return np.array(chosen)
