"""Derivatives of solutions of equations, by the implicit function theorem.

If r(x, v) = 0 defines x(v), then r_x dx + r_v dv = 0. Both modes solve with the matrix r_x at the solution, which is
computed column by column, as one batch. The solves are recorded, so that they have derivatives themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from tracegrad.errors import UnsupportedError, located
from tracegrad.ir import Graph, build, replay
from tracegrad.ir.batch import replay_batched
from tracegrad.ops.elementwise.table import divide, equal, negative
from tracegrad.ops.linalg.contraction import matrix_transpose
from tracegrad.ops.linalg.solve import solve
from tracegrad.ops.shape.batching import repeated
from tracegrad.ops.shape.linear import arange, cast, full, reshape
from tracegrad.solvers.solver_node import Functions, Kinds, SolverRule, Starts, called
from tracegrad.transforms.jvp_graph import pushed
from tracegrad.transforms.vjp_graph import joint

if TYPE_CHECKING:
    from tracegrad.typing import Array


def gradient_of(graph: Graph) -> Graph:
    """Return the graph (x, values) -> gradient of a scalar function with respect to x."""
    both, result = joint(graph, [0], [0])

    def fn(*args: object) -> list[Array]:
        if not result:
            return [full(shape=graph.avals[0].shape, value=0.0, dtype="float64")]
        return replay(both, [*args, full(shape=(), value=1.0, dtype="float64")])[0][1:]

    return build(fn, graph.avals)


def solved(
    functions: Functions,
    starts: Starts,
    run: Callable[..., object],
    kinds: Kinds,
    text: str,
    equation: Graph,
    known: int = 0,
) -> tuple[Array, ...]:
    """Call a solver as a node whose first result solves `equation`."""
    make_rule = partial(solution, equation=equation, api_name=functions.api_name, known=known)
    return called(functions, starts, run, kinds, text, make_rule)


def solution(name: str, equation: Graph, api_name: str, known: int = 0) -> SolverRule:
    """Return the derivative rule of a solver whose first output solves `equation`.

    The equation is a graph of the solution, the inputs, and the first `known` of the other outputs, integers that
    describe the kind of the solution. The other outputs have no derivative.
    """
    size = equation.avals[0].size
    wrt = [i for i, a in enumerate(equation.avals) if i and a.is_float]

    def pull(cts: tuple[Array, ...], outputs: tuple[Array, ...], inputs: tuple[Array, ...]) -> dict[int, Array]:
        point = [outputs[0], *inputs, *outputs[1 : 1 + known]]
        both, result = joint(equation, wrt, [0])
        weights = _solve(columns(equation, point, api_name), cts[0], size)
        return dict(zip([i - 1 for i in result], replay(both, [*point, negative(weights)])[0][1:]))

    def push(tangents: tuple[Array, ...], outputs: tuple[Array, ...], inputs: tuple[Array, ...]) -> dict[int, Array]:
        point = [outputs[0], *inputs, *outputs[1 : 1 + known]]
        both, result = pushed(equation, wrt)
        if not result:
            return {}
        moved = negative(replay(both, [*point, *tangents])[0][1])
        each = columns(equation, point, api_name)
        return {0: _solve(each if size == 1 else matrix_transpose(each), moved, size)}

    return SolverRule(name, {"pull": pull, "push": push})


def columns(equation: Graph, point: list[Array] | tuple[Array, ...], api_name: str) -> Array:
    """Compute the derivatives of a graph with respect to the elements of its first input, as rows of flat results."""
    both, result = pushed(equation, [0])
    if not result:
        text = "its function does not depend on what is solved for, or its derivative does not"
        raise UnsupportedError(located(f"the result of {api_name} has no derivative: {text}"))
    aval = equation.avals[0]
    n, m = aval.size, equation.outputs[0].aval.size
    if n == m == 1:
        output: Array = replay(both, [*point, full(shape=aval.shape, value=1.0, dtype="float64")])[0][1]
        return output
    numbers = [reshape(arange(start=0, step=1, length=n, dtype="int64"), shape=s) for s in ((n, 1), (1, n))]
    basis = reshape(cast(equal(*numbers), dtype="float64"), shape=(n, *aval.shape))
    outputs, is_batched = replay_batched(both, n, [False] * len(point) + [True], [*point, basis])
    rows = outputs[1] if is_batched[1] else repeated(n, [False], [outputs[1]])[0]
    return reshape(rows, shape=(n, m))


def _solve(matrix: Array, right: Array, size: int) -> Array:
    """Solve `matrix @ y = right`, with the shape of `right`."""
    if size == 1:
        return divide(right, matrix)
    return reshape(solve(matrix, reshape(right, shape=(size, 1))), shape=right.shape)
