"""Boundary value problems: `scipy.integrate.solve_bvp`.

SciPy's solution satisfies the collocation equations on a mesh (J. Kierzenka and L. Shampine, "A BVP solver based on
residual control and the MATLAB PSE", ACM TOMS 27(3), 2001): for the values y at its nodes, and unknown parameters p,

    y[k+1] - y[k] = h/6 (f[k] + 4 f[k+1/2] + f[k+1]),    y[k+1/2] = (y[k] + y[k+1])/2 - h/8 (f[k+1] - f[k])

and the boundary conditions. The equations give the derivatives of the solution with respect to the values that the
functions read and to the two ends. The mesh is SciPy's: its nodes have fixed relative positions between the ends.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import Aval
from tracegrad.control.operands import inlined
from tracegrad.ir import Graph, build, replay, replayer
from tracegrad.ir.batch import replay_batched
from tracegrad.numpy_api.registry import refuse
from tracegrad.ops.calls.custom_call import custom_call, opaque
from tracegrad.ops.elementwise.table import add, multiply, subtract
from tracegrad.ops.shape.batching import repeated
from tracegrad.ops.shape.linear import broadcast_to, full, reshape, slice, transpose
from tracegrad.scipy_api.registry import shadow_of
from tracegrad.solvers.implicit import solution
from tracegrad.solvers.packing import flat, unflatten
from tracegrad.solvers.scipy_function import SolverArguments, scipy_function, solver
from tracegrad.solvers.solver_node import LastResult, OpaqueCall, SolverResult, node_name, recorded, shaped

if TYPE_CHECKING:
    from tracegrad.typing import Array, NDArray


API_NAME = "scipy.integrate.solve_bvp"
_COUNTS = 2  # elements of the counts: niter and status


@solver("integrate.solve_bvp", "verbose")
def solve_bvp(inputs: SolverArguments) -> SolverResult:
    """`scipy.integrate.solve_bvp` without `S`. `fun_jac` and `bc_jac` are not called; SciPy uses differences."""
    if inputs.pop("S") is not None:
        raise refuse(f"the argument S= of {API_NAME}", "write its term in the law, and begin beside the singular point")
    x, y = shaped(inputs.pop("x"), None), shaped(inputs.pop("y"), None)
    p: Any = None if inputs["p"] is None else shaped(inputs["p"], None)
    if len(x.shape) != 1 or y.shape[1:] != x.shape:
        raise refuse(f"{API_NAME} with x of shape {x.shape} and y of shape {y.shape}", "give y a column for each x")
    unknown = [] if p is None else [p]
    captured, law, at_ends = _recorded(inputs.pop("fun"), inputs.pop("bc"), y.shape[0], unknown)
    for name in ("p", "fun_jac", "bc_jac"):
        del inputs[name]
    options = inputs.options()
    problem = Problem(law, at_ends, y.shape[0], 0 if p is None else p.size, options)
    return _solved(problem, x, [y, *unknown], captured)


def _recorded(
    fun: Callable[..., object], bc: Callable[..., object], n: int, unknown: list[NDArray]
) -> tuple[list[Array], Graph, Graph]:
    """Record the functions; return their captures, the graph of one column, and the graph of the ends."""
    count = n + sum(p.size for p in unknown)
    like = [Aval(shape, np.dtype(np.float64)) for shape in ((1,), (n, 1), (n,), (n,), *(p.shape for p in unknown))]
    parameters = like[4:]

    def of_column(x: Array, y: Array, *p: Array) -> object:
        return shaped(inlined(fun)(x, y, *p), (n, 1))

    def of_ends(a: Array, b: Array, *p: Array) -> object:
        return shaped(inlined(bc)(a, b, *p), (count,))

    fs = [(of_column, (*like[:2], *parameters)), (of_ends, (*like[2:4], *parameters))]
    captured, (law, at_ends) = recorded(API_NAME, fs, "Tensors")
    return captured, law, at_ends


def _solved(problem: Problem, x: Array, start: list[Array], captured: list[Array]) -> SolverResult:
    """Compute the result on a mesh with a known number of nodes."""
    inputs = [x, *start, *captured]
    count: Any
    (count,) = opaque(*inputs, results=(((), "i64"),), call=_BvpCall(problem, 0))
    m = int(count.concrete(f"the number of nodes of the mesh of {API_NAME}").item())
    kinds = (((problem.size(m),), "f64"), ((m,), "f64"), ((m - 1,), "f64"), ((_COUNTS,), "i64"))
    u, nodes, residuals, counts = opaque(*inputs, results=kinds, call=_BvpCall(problem, m))
    first, last = x[0], x[-1]
    mesh = first + (last - first) * nodes
    rule = solution(problem.name, problem.equation(m, captured), API_NAME)
    (u,) = custom_call(u, mesh, *captured, count=1, rule=rule)
    y, *p = unflatten(u, problem.avals(m))
    derivatives = problem.derivatives(mesh, y, [*p, *captured])
    sol = shadow_of(scipy_function("interpolate.CubicHermiteSpline"))(mesh, y, derivatives, 1)
    return SolverResult(
        API_NAME,
        sol=sol,
        p=p[0] if p else None,
        x=mesh,
        y=y,
        yp=derivatives,
        rms_residuals=residuals,
        niter=counts[0],
        status=counts[1],
        success=counts[1] == 0,
    )


class Problem:
    """Boundary value problem: graphs of the right-hand side of one column and of the conditions at the ends.

    There are `n` functions and `k` unknown parameters. The last solution is cached.
    """

    def __init__(self, law: Graph, ends: Graph, n: int, k: int, options: Mapping[str, object]):
        self.law, self.ends, self.n, self.k, self.options = law, ends, n, k, dict(options)
        self.name = node_name(API_NAME, f"{law} {ends} {self.options!r}")
        self._at_ends = replayer(ends)
        self._of_columns = functools.cache(self._iterations)
        self._last = LastResult()

    def size(self, m: int) -> int:
        """Return the number of unknowns."""
        return self.n * m + self.k

    def avals(self, m: int) -> list[Aval]:
        """Return the avals of the unknowns: values at the nodes, and parameters."""
        shapes = [(self.n, m), *([(self.k,)] if self.k else [])]
        return [Aval(shape, np.dtype(np.float64)) for shape in shapes]

    def derivatives(self, x: Array, y: Array, rest: Sequence[Array]) -> Array:
        """Evaluate the right-hand side at several columns."""
        m = x.shape[0]
        columns = [reshape(x, shape=(m, 1)), reshape(transpose(y, perm=(1, 0)), shape=(m, self.n, 1))]
        outputs, is_batched = replay_batched(self.law, m, [True, True, *[False] * len(rest)], [*columns, *rest])
        result = outputs[0] if is_batched[0] else repeated(m, [False], outputs)[0]
        return transpose(reshape(result, shape=(m, self.n)), perm=(1, 0))

    def equation(self, m: int, captured: Sequence[Array]) -> Graph:
        """Return the graph (unknowns, mesh, captured) -> residuals of the collocation equations."""
        n, avals = self.n, self.avals(m)

        def column_range(x: Array, low: int, high: int) -> Array:
            one = (low,), (high,), (1,)
            start, stop, step = one if len(x.shape) == 1 else ((0, *one[0]), (n, *one[1]), (1, 1))
            return slice(x, start=start, stop=stop, step=step)

        def scaled(x: Array, factor: float) -> Array:
            return multiply(x, full(shape=x.shape, value=factor, dtype="float64"))

        def middle(x: Array) -> Array:
            return scaled(add(column_range(x, 0, m - 1), column_range(x, 1, m)), 0.5)

        def spacings(x: Array) -> Array:
            return subtract(column_range(x, 1, m), column_range(x, 0, m - 1))

        def fn(u: Array, mesh: Array, *captured: Array) -> list[Array]:
            y, *p = unflatten(u, avals)
            rest = [*p, *captured]
            h = broadcast_to(reshape(spacings(mesh), shape=(1, m - 1)), shape=(n, m - 1))
            f = self.derivatives(mesh, y, rest)
            between = subtract(middle(y), scaled(multiply(h, spacings(f)), 0.125))
            inside = add(scaled(middle(f), 2.0), scaled(self.derivatives(middle(mesh), between, rest), 4.0))
            missed = subtract(spacings(y), scaled(multiply(h, inside), 1 / 6))
            a, b = (reshape(column_range(y, k, k + 1), shape=(n,)) for k in (0, m - 1))
            return [flat([missed, replay(self.ends, [a, b, *rest])[0][0]])]

        vector_avals = [Aval(shape, np.dtype(np.float64)) for shape in ((self.size(m),), (m,))]
        return build(fn, [*vector_avals, *(Aval(x.shape, np.dtype(x.dtype)) for x in captured)])

    def solved(self, x: NDArray, start: Sequence[NDArray], values: Sequence[NDArray]) -> Any:
        """Return SciPy's solution, computed or cached."""
        return self._last.get((x, *start, *values), lambda: self._solve(x, start, values))

    def _solve(self, x: NDArray, start: Sequence[NDArray], values: Sequence[NDArray]) -> Any:
        from scipy import integrate

        def fun(x: NDArray, y: NDArray, *p: NDArray) -> NDArray:
            return np.array(self._of_columns(len(x))([np.asarray(x), np.asarray(y), *p, *values])[0])

        def bc(a: object, b: object, *p: object) -> NDArray:
            return np.array(self._at_ends([np.asarray(a), np.asarray(b), *p, *values])[0])

        return integrate.solve_bvp(fun, bc, x, *start, **self.options)

    def _iterations(self, m: int) -> Callable[[Sequence[NDArray]], list[NDArray]]:
        """Return the right-hand side for this number of columns, as a function of arrays."""
        of = [Aval(shape, np.dtype(np.float64)) for shape in ((m,), (self.n, m))]
        return replayer(build(lambda x, y, *rest: [self.derivatives(x, y, rest)], [*of, *self.law.avals[2:]]))


class _BvpCall(OpaqueCall):
    """Opaque call that computes a solution with `m` nodes, or the number of nodes if `m` is 0."""

    def __init__(self, problem: Problem, m: int):
        self.problem, self.m, self.name = problem, m, f"{problem.name} {m}"

    def __call__(self, *inputs: Array) -> tuple[NDArray, ...]:
        x, y, *rest = [np.array(value) for value in inputs]
        unknown = 1 if self.problem.k else 0
        result = self.problem.solved(x, [y, *rest[:unknown]], rest[unknown:])
        if not self.m:
            return (np.asarray(result.x.size),)
        u = np.concatenate([result.y.ravel(), *([result.p] if unknown else [])])
        nodes = (result.x - result.x[0]) / (result.x[-1] - result.x[0])
        return u, nodes, result.rms_residuals, np.array([result.niter, result.status])
