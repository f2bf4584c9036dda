"""Constrained minima: KKT systems of the active constraints, and their derivatives.

The solver finds the minimum; non-negative least squares of the gradients finds the active constraints and their
multipliers. Minimum and multipliers then satisfy the equations of W. Karush, H. Kuhn and A. Tucker, with the active
constraints as equations; the equations define the derivatives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import Aval
from tracegrad.ir import Graph, build, replay
from tracegrad.numpy_api.boolean_mask import known
from tracegrad.numpy_api.registry import refuse
from tracegrad.ops import Carrier
from tracegrad.ops.elementwise.table import equal, greater, multiply, subtract, where
from tracegrad.ops.shape.linear import concatenate, reduce_sum, slice
from tracegrad.solvers.implicit import columns, gradient_of, solved
from tracegrad.solvers.scipy_function import scipy_function, with_args
from tracegrad.solvers.solver_node import Functions, Starts, shaped

if TYPE_CHECKING:
    from tracegrad.typing import Array, NDArray


Fs = list[tuple[Callable[..., Any], Any]]
Run = Callable[[Any, Any, Any], tuple[Any, ...]]

# Shapes and dtypes of the results of a solver after the minimum: nfev, nit, njev, nhev, status, success.
FACTS = (*((((), "i64"),) * 5), ((), "bool"))

_NEAR = 1e-3  # largest residual of an active constraint, relative to 1 + the largest residual
_FORCE = 1e-6  # smallest multiplier of an active inequality, relative to 1 + the largest gradient element


class ScipyConstraint:
    """Constraint in a form of SciPy: a dictionary, a `LinearConstraint` or a `NonlinearConstraint`."""

    def __init__(self, api_name: str, constraint: Any):
        self.constraint, self.type = constraint, constraint["type"] if isinstance(constraint, dict) else ""
        self.jac: Any = constraint.get("jac") if self.type else getattr(constraint, "jac", None)
        if self.type:
            others = constraint.get("args", ())
            self.fun = with_args(constraint["fun"], others)
            self.jac = with_args(self.jac, others) if callable(self.jac) else self.jac
        elif hasattr(constraint, "A"):
            matrix = shaped(constraint.A, None)
            matrix = matrix if len(matrix.shape) == 2 else matrix.reshape(1, -1)
            self.fun, self.jac = (lambda x: matrix @ x), (lambda x: matrix)
        else:
            self.fun = with_args(constraint.fun, ())
        self.low, self.high = (_static(api_name, v) for v in ((0, 0) if self.type else (constraint.lb, constraint.ub)))
        if callable(getattr(constraint, "hess", None)):
            raise refuse(f"{api_name} with hess= of a constraint")

    def functions(self) -> Fs:
        """Return the functions that the solver calls."""
        return [(_flat(self.fun), None), *([(self.jac, None)] if callable(self.jac) else [])]

    def to_scipy(self, fs: list[Callable[..., object]], x: object) -> object:
        """Make SciPy's constraint from these functions."""
        jac = fs[1] if callable(self.jac) else self.jac
        if self.type:
            return {"type": self.type, "fun": fs[0], **({} if jac is None else {"jac": jac})}
        if hasattr(self.constraint, "A"):
            return scipy_function("optimize.LinearConstraint")(jac(x), self.low, self.high)
        return scipy_function("optimize.NonlinearConstraint")(fs[0], self.low, self.high, jac=jac)

    def residuals(self, x: object) -> tuple[list[Array], list[bool]]:
        """Return the residuals that must be zero, or nonnegative, and for each element whether it must be zero."""
        y = _flat(self.fun)(x)
        n = y.shape[0]
        if self.type:
            return [y], [self.type == "eq"] * n
        low, high = np.broadcast_to(self.low, n), np.broadcast_to(self.high, n)
        same = low == high
        each = [np.flatnonzero(m) for m in (same, np.isfinite(low) & ~same, np.isfinite(high) & ~same)]
        results = [y[each[0]] - low[each[0]], y[each[1]] - low[each[1]], high[each[2]] - y[each[2]]]
        return results, [True] * len(each[0]) + [False] * (len(each[1]) + len(each[2]))


def _static(api_name: str, x: object) -> NDArray:
    result = known(x) if isinstance(x, Carrier) else x
    if result is None or isinstance(result, Carrier):
        raise refuse(f"{api_name} with traced bounds of a constraint", "subtract them in its function")
    return np.asarray(result, np.float64)


def _flat(f: Callable[..., object]) -> Callable[[object], Array]:
    return lambda x: np.reshape(shaped(f(x), None), -1)


class Between:
    """Bounds that are active if the result of a solver is near them; it need not be at them exactly."""

    def __init__(self, low: Array, high: Array):
        self.low, self.high = low, high

    def functions(self) -> Fs:
        """Return no functions, because the solver gets the bounds themselves."""
        return []

    def residuals(self, x: Array) -> tuple[list[NDArray], list[bool]]:
        """Return the distances to the bounds, 1 for infinite bounds."""
        ends = [np.where(np.isfinite(end), end, 0.0) for end in (self.low, self.high)]
        off = [np.where(np.isfinite(end), d, 1.0) for end, d in ((self.low, x - ends[0]), (self.high, ends[1] - x))]
        return off, [False] * (2 * x.shape[0])


def constrained(
    api_name: str,
    fs: list[tuple[Callable[..., object], tuple[int, ...]]],
    start: dict[str, object],
    bounded: Fs,
    constraints: Sequence[Any],
    run: Run,
    text: str,
    shape: tuple[int, ...],
) -> tuple[Array, Functions, list[Array]]:
    """Compute the constrained minimum, the functions, and the solver's other results.

    `run(functions, start, constraints)` returns SciPy's result and its facts. `bounded` has the functions for the mask
    of elements between bounds, and for the distances to the bounds.
    """
    equals: list[bool] = []

    def residuals(x: Array) -> Array:
        results = [c.residuals(x) for c in constraints]
        equals[:] = [e for _, each in results for e in each]
        return np.concatenate([y for ys, _ in results for y in ys])

    function_lists, count, first = [c.functions() for c in constraints], len(fs), len(fs) + len(bounded)
    functions = Functions(
        api_name, [*fs, *bounded, (residuals, None), *(f for each in function_lists for f in each)], shape
    )
    graphs, same = list(functions.graphs), np.array(equals)
    cost, held = graphs[0], graphs[first]
    functions.graphs += [gradient_of(cost), build(lambda *args: [columns(held, args, api_name)], held.avals)]

    def solve_kkt(fs: Any, begin: object) -> tuple[NDArray | int, ...]:
        supply = iter(fs[first + 1 : -2])
        outputs = [
            c.to_scipy([next(supply) for _ in each], np.zeros(shape))
            for c, each in zip(constraints, function_lists)
            if each
        ]
        x, *facts = run(fs[:count], begin, outputs)
        free = np.ones(shape, bool) if not bounded else fs[count](x) > 0.5
        force = _forces(fs[-2](x), np.reshape(fs[-1](x), (*shape, -1)), fs[first](x), same, free)
        return np.concatenate([x, force]), (force != 0) | same, *facts

    n, m = shape[0], len(equals)
    equation = _equation(cost, held, graphs[count:first], n, m)
    kinds = (((n + m,), "f64"), ((m,), "i64"), *FACTS)
    text = f"{text} {[(c.type, c.low, c.high) for c in constraints if isinstance(c, ScipyConstraint)]}"
    results, _, *facts = solved(functions, Starts(start), solve_kkt, kinds, text, equation, 1)
    return results[:n], functions, facts


def _forces(gradient: NDArray, jacobian: NDArray, values: NDArray, same: NDArray, free: NDArray) -> NDArray:
    """Compute the multipliers of constraints: 0 for inactive ones."""
    near = same | (values <= _NEAR * (1.0 + np.max(np.abs(values), initial=0.0)))
    a, b = jacobian[free][:, near], gradient[free]
    both = same[near]
    if not a.size:
        return np.zeros(len(values))
    multipliers = scipy_function("optimize.nnls")(np.concatenate([a, -a[:, both]], axis=1), b)[0]
    result = np.zeros(len(values))
    result[near] = multipliers[: a.shape[1]]
    result[near & same] -= multipliers[a.shape[1] :]
    return np.where(same | (result > _FORCE * (1.0 + np.max(np.abs(b), initial=0.0))), result, 0.0)


def _equation(cost: Graph, held: Graph, bounded: Sequence[Graph], n: int, m: int) -> Graph:
    """Return the KKT equations of the minimum and the multipliers, the captures, and the active constraints."""
    first, *captured = cost.avals
    forces = Aval((m,), np.dtype(np.float64))

    def difference(x: Array, force: Array, *rest: Array) -> list[Array]:
        pulled = reduce_sum(multiply(force, replay(held, [x, *rest])[0][0]), axes=(0,))
        return [subtract(replay(cost, [x, *rest])[0][0], pulled)]

    derivative = gradient_of(build(difference, [first, forces, *captured]))

    def fn(u: Array, *rest: Array) -> list[Array]:
        *values, active = rest
        x, force = (slice(u, start=(i,), stop=(j,), step=(1,)) for i, j in ((0, n), (n, n + m)))
        top = replay(derivative, [x, force, *values])[0][0]
        if bounded:
            between, off = (replay(graph, [x, *values])[0][0] for graph in bounded)
            top = where(greater(between, 0.5), top, off)
        bottom = where(equal(active, 1), replay(held, [x, *values])[0][0], force)
        return [concatenate(top, bottom, axis=0)]

    return build(fn, [Aval((n + m,), first.dtype), *captured, Aval((m,), np.dtype(np.int64))])
