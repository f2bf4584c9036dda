"""Linear programs: derivatives of the vertex that `scipy.optimize.linprog` finds.

At a vertex, as many constraints are active as there are unknowns. The vertex solves the active constraints as
equations, which define its derivatives. If more constraints are active, some of them are the equations, first the
constraints with multipliers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import Aval
from tracegrad.ir import build, replay
from tracegrad.ops.indexing.gather_scatter import gather
from tracegrad.ops.shape.linear import stop_gradient
from tracegrad.solvers.implicit import columns, solved
from tracegrad.solvers.minimize import ends
from tracegrad.solvers.scipy_function import SolverArguments, solver
from tracegrad.solvers.solver_node import Functions, SolverResult, Starts, shaped

if TYPE_CHECKING:
    from tracegrad.typing import Array, NDArray


_NEAR = 1e-7  # largest residual of an active constraint, relative to 1 + the largest element of the solution


@solver("optimize.linprog", "callback", "integrality", "x0")
def linprog(inputs: SolverArguments) -> SolverResult:
    """`scipy.optimize.linprog`"""
    cost = shaped(inputs.pop("c"), None)
    cost = np.reshape(cost, -1) if len(cost.shape) != 1 else cost
    n = cost.shape[0]
    held = {k: shaped(inputs.pop(k), None) for k in ("A_ub", "b_ub", "A_eq", "b_eq") if inputs[k] is not None}
    held = {k: np.reshape(v, (-1, n) if k[0] == "A" else -1) for k, v in held.items()}
    limits = ends(_pairs(inputs.pop("bounds"), n), (n,))
    options = inputs.options()

    def off(kind: str) -> Callable[[Any], Any]:
        return lambda x: held[f"A_{kind}"] @ x - held[f"b_{kind}"]

    def residuals(x: Array) -> Array:
        results = [off(kind)(x) for kind in ("eq", "ub") if f"A_{kind}" in held]
        results += [x - np.where(np.isfinite(end), end, 0.0) for end in limits.values()]
        return np.concatenate([*results, x - stop_gradient(x)])

    functions = Functions(inputs.api_name, [(residuals, None)], (n,))
    graph = functions.graphs[0]
    functions.graphs.append(build(lambda *args: [columns(graph, args, inputs.api_name)], graph.avals))
    equals = 0 if "A_eq" not in held else held["A_eq"].shape[0]

    def run(fs: Any, start: Any) -> Any:
        arrays = {k: v for k, v in start.items() if k not in ("low", "high")}
        results = inputs.real(**arrays, bounds=np.stack([start["low"], start["high"]], axis=1), **options)
        if results.x is None:
            x, chosen = np.full(n, np.nan), np.arange(n) - n
        else:
            finite = [np.isfinite(start[k]) for k in ("low", "high")]
            x = np.asarray(results.x)
            chosen = _holding(fs[0](x), np.reshape(fs[1](x), (n, -1)).T, x, _forces(results, equals), finite)
        return x, chosen % graph.outputs[0].aval.size, results.get("nit", 0), results.status, results.success

    def fn(x: Array, *rest: Array) -> list[Array]:
        *captured, chosen = rest
        return [gather(replay(graph, [x, *captured])[0][0], chosen, axes=(0,))]

    equation = build(fn, [*graph.avals, Aval((n,), np.dtype(np.int64))])
    kinds = (((n,), "f64"), ((n,), "i64"), ((), "i64"), ((), "i64"), ((), "bool"))
    starts = Starts({"c": cost} | held | limits)
    x, _, iterations, status, success = solved(functions, starts, run, kinds, repr(options), equation, 1)
    slack, con = (-off(k)(x) if f"A_{k}" in held else np.zeros(0) for k in ("ub", "eq"))
    return SolverResult(
        inputs.api_name, x=x, fun=cost @ x, slack=slack, con=con, nit=iterations, status=status, success=success
    )


def _is_pair(x: Any) -> bool:
    return isinstance(x, tuple | list) or (x is not None and np.ndim(x) == 1)


def _pairs(bounds: Any, n: int) -> Any:
    """Return a pair of bounds for each unknown."""
    if bounds is None:
        return [(0.0, None)] * n
    is_per_unknown = len(bounds) == n and all(_is_pair(x) for x in bounds)
    return bounds if is_per_unknown or len(bounds) != 2 else [tuple(bounds)] * n


def _forces(result: Any, equals: int) -> Any:
    """Return the share of the cost that each constraint carries; equality constraints carry an infinite share."""
    rest = [np.abs(getattr(result.get(k), "marginals", ())) for k in ("ineqlin", "lower", "upper")]
    return np.concatenate([np.full(equals, np.inf), *rest])


def _holding(values: NDArray, derivatives: NDArray, x: NDArray, forces: NDArray, finite: Sequence[NDArray]) -> Any:
    """Return the positions of n active constraints at `x` with independent gradients.

    If there are fewer, some of the last n rows of the constraints, which are always active, complete them.
    """
    n, size = len(x), len(values)
    near = np.abs(values) <= _NEAR * (1.0 + np.max(np.abs(x), initial=0.0))
    near[size - 3 * n : size - n] &= np.concatenate(finite)
    weight = np.zeros(size)
    weight[: len(forces)] = forces
    order = [k for k in np.argsort(-weight[: size - n], kind="stable") if near[k]] + list(range(size - n, size))
    basis, chosen = np.zeros((0, n)), []
    for k in order:
        row = derivatives[k] - basis.T @ (basis @ derivatives[k])
        row -= basis.T @ (basis @ row)
        length = np.linalg.norm(row)
        if length > 1e-9 * np.linalg.norm(derivatives[k]):
            basis = np.concatenate([basis, row[None] / length])
            chosen.append(k)
        if len(chosen) == n:
            break
    return np.array(chosen)
