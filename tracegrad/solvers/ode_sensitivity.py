"""Sensitivities of initial value problems, `solve_ivp` and `odeint`.

The derivative of a solution along a direction solves a differential equation too: with dz/dt = f(t, z, v), the tangent
s = dz satisfies ds/dt = f_z s + f_v dv. Both are solved as one system by the same method, with the same tolerances. A
derivative is therefore itself a solution, and has derivatives. In reverse mode, one system has the tangents for all
wanted elements, n elements for each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import Aval, name_of
from tracegrad.ir import Graph, build, replay, replayer
from tracegrad.ir.batch import replay_batched
from tracegrad.ops.calls.custom_call import custom_call, opaque
from tracegrad.ops.elementwise.table import add, equal, multiply, negative
from tracegrad.ops.shape.batching import repeated
from tracegrad.ops.shape.linear import arange, broadcast_to, cast, concatenate, full, reduce_sum, reshape, slice
from tracegrad.solvers.callbacks import Callback, Substitute
from tracegrad.solvers.packing import flat, unflatten
from tracegrad.solvers.runge_kutta import METHODS, fits, integrator, tables, tolerances
from tracegrad.solvers.solver_node import LastResult, OpaqueCall, SolverRule, node_name
from tracegrad.transforms.jvp_graph import pushed

if TYPE_CHECKING:
    from tracegrad.typing import Array, NDArray


NUMBER = Aval((), np.dtype(np.float64))


class System:
    """Initial value problem z(t0) = begin(t0, *values), dz/dt = derivative(t, z, *values), with z flat.

    `jac` is a graph of the Jacobian of `derivative` with respect to z, or None. The last solution is cached.
    """

    def __init__(
        self, begin: Graph, derivative: Graph, method: str, options: Mapping[str, object], jac: Graph | None = None
    ):
        self.begin, self.derivative, self.method, self.options = begin, derivative, method, dict(options)
        self.size = derivative.avals[1].size
        api_name = f"scipy.integrate.{method}"
        self._begin, self._rhs = replayer(begin), Callback(derivative, api_name, 2)
        self._jac = Callback(jac, api_name, 2) if jac is not None else None
        self._loops: dict[int, Substitute] = {}
        self.name = node_name(api_name, f"{begin} {derivative} {method} {self.options!r} {jac}")
        self._last = LastResult()

    def solved(self, ends: Sequence[float], times: NDArray | None, values: Sequence[NDArray]) -> Any:
        """Compute SciPy's solution between the ends, at the times, or at the solver's steps if `times` is None."""
        return self._last.get((*ends, times, *values), lambda: self._solve(ends, times, values))

    def _solve(self, ends: Sequence[float], times: NDArray | None, values: Sequence[NDArray]) -> Any:
        if self.method == "odeint":
            return self._by_odeint(ends, times, values)
        if times is not None and self.method in METHODS and fits(self.options, self.size, ends, times):
            result = self._by_loop(ends, times, values)
            if result is not None:
                return result
        result = self.run(ends, times, values)
        rows = np.transpose(result.y) if len(result.y) else np.zeros((0, self.size))
        return np.asarray(result.t), rows, (result.nfev, result.njev, result.nlu, result.status)

    def run(self, ends: Sequence[float], times: NDArray | None, values: Sequence[NDArray], **extra: object) -> Any:
        """Call `scipy.integrate.solve_ivp`."""
        from scipy import integrate

        first, derivative, jac = self._bind(ends, values)
        jac_option = {"jac": jac} if jac else {}
        return integrate.solve_ivp(derivative, ends, first, self.method, times, **jac_option, **extra, **self.options)

    def _by_loop(
        self, ends: Sequence[float], times: NDArray, values: Sequence[NDArray]
    ) -> tuple[NDArray, NDArray, tuple[NDArray, int, int, NDArray]] | None:
        """Compute the same solution without SciPy; None if the loop is not compiled."""
        count = len(times)
        loop = self._loops.get(count)
        if loop is None:
            loop_args = self.begin, self.derivative, self.method, self.options, count
            loop = self._loops[count] = Substitute(lambda: integrator(*loop_args), f"scipy.integrate.{self.method}", 2)
        result = loop.compute(*ends, times, *tolerances(self.options), *tables(self.method), *values)
        if result is None:
            return None
        rows, calls, status = result
        return times, rows, (calls, 0, 0, status)

    def _by_odeint(self, ends: Sequence[float], times: NDArray | None, values: Sequence[NDArray]) -> Any:
        from scipy import integrate

        first, derivative, jac = self._bind(ends, values)
        jac_option = {"Dfun": jac} if jac else {}
        y, facts = integrate.odeint(
            derivative, first, times, tfirst=True, full_output=True, **jac_option, **self.options
        )
        return times, y, (facts["message"] == "Integration successful.",)

    def _bind(self, ends: Sequence[float], values: Sequence[NDArray]) -> tuple[Any, Any, Any]:
        """Return the initial value, the right-hand side, and its Jacobian or None."""
        first = np.array(self._begin([np.asarray(ends[0], np.float64), *values])[0])
        return first, self._rhs.at(values), self._jac.at(values) if self._jac is not None else None


class _Solution(OpaqueCall):
    """Opaque call that computes a system's solution at `count` times.

    With `kind` "steps" the times are the solver's steps, and with "count" the result is the number of steps alone.
    If the solver does not reach the end, the remaining values are nan.
    """

    def __init__(self, system: System, kind: str, count: int = 0):
        self.system, self.kind, self.count = system, kind, count
        self.name = f"{system.name} {kind} {count}"

    def __call__(self, first: NDArray, last: NDArray, *rest: NDArray) -> tuple[NDArray, ...]:
        rest = tuple([np.asarray(x, order="C") for x in rest])
        times, values = (rest[0], rest[1:]) if self.kind == "at" else (None, rest)
        t, y, facts = self.system.solved((float(first), float(last)), times, values)
        if self.kind == "count":
            return (np.asarray(len(t)),)
        y, numbers = of_length(y, self.count), np.asarray(facts, np.int64)
        return (y, numbers) if self.kind == "at" else (y, numbers, of_length(t, self.count))


def of_length(x: NDArray, n: int) -> NDArray:
    result = np.full((n, *x.shape[1:]), np.nan)
    result[: len(x)] = x[:n]
    return result


def solution(system: System, ends: Sequence[Array], times: Array | None, values: Sequence[Array]) -> tuple[Array, ...]:
    """Compute the times, the solution at each of them, and facts of the solver."""
    facts = (4,) if system.method != "odeint" else (1,)
    count: Any
    result: Sequence[Any]
    if times is None:
        (count,) = opaque(*ends, *values, results=(((), "i64"),), call=_Solution(system, "count"))
        n = int(count.concrete("the number of steps of scipy.integrate.solve_ivp without t_eval=").item())
        kinds: Any = (((n, system.size), "f64"), (facts, "i64"), ((n,), "f64"))
        *result, steps = opaque(*ends, *values, results=kinds, call=_Solution(system, "steps", n))
        inner = slice(steps, start=(1,), stop=(n - 1,), step=(1,))
        times = concatenate(one_element(ends[0]), inner, one_element(ends[1]), axis=0)
    else:
        n = times.shape[0]
        kinds = (((n, system.size), "f64"), (facts, "i64"))
        result = opaque(*ends, times, *values, results=kinds, call=_Solution(system, "at", n))
    y, numbers = custom_call(*result, *ends, times, *values, count=2, rule=_derivative_rule(system))
    return times, y, numbers


def one_element(x: Array) -> Array:
    return reshape(x, shape=(1,))


def _tangents(graph: Graph, wrt: Sequence[int]) -> Callable[..., Any]:
    """Return the graph (inputs, tangents of the inputs `wrt`) -> output and its tangent, also for a batch of `size`."""
    both, result = pushed(graph, wrt)
    aval = graph.outputs[0].aval

    def one(args: list[Array], moved: list[Array] | tuple[Array, ...]) -> tuple[Array, ...]:
        out = replay(both, [*args, *moved])[0]
        return out[0], out[1] if result else full(shape=aval.shape, value=0.0, dtype="float64")

    def batched_tangents(args: list[Array], moved: list[Array] | tuple[Array, ...], size: int) -> tuple[Array, ...]:
        flags = [False] * len(args) + [True] * len(moved)
        out, batches = replay_batched(both, size, flags, [*args, *moved])
        if not result:
            return out[0], full(shape=(size, *aval.shape), value=0.0, dtype="float64")
        return out[0], out[1] if batches[1] else repeated(size, [False], [out[1]])[0]

    return lambda args, moved, size=0: batched_tangents(args, moved, size) if size else one(args, moved)


def _widened(system: System, moved: Sequence[int], size: int) -> System:
    """Extend a system with the tangents of its solution, for `size` directions at once, or for one (0).

    The inputs `moved` are t0 (0) and the values (from 1 on); their tangents follow the values.
    """
    derivative, n, wrt = system.derivative, system.size, [i for i in moved if i]
    first, rest = _tangents(system.begin, moved), _tangents(derivative, [1, *(i + 1 for i in wrt)])
    like = [system.begin.avals[i] for i in moved]
    extra = [Aval((size, *a.shape), a.dtype) if size else a for a in like]
    count = len(system.begin.avals) - 1

    def begin(t: Array, *args: Array) -> list[Array]:
        values, directions = args[:count], args[count:]
        z, s = first([t, *values], directions, size)
        if 0 in moved:
            # The same state at a later start: the state at the old start is earlier by the shift times dz/dt.
            height = replay(derivative, [t, z, *values])[0][0]
            t_moved = (
                reshape(directions[list(moved).index(0)], shape=(size, 1)) if size else directions[list(moved).index(0)]
            )
            s = add(s, negative(multiply(_per_direction(height, size), _filled(t_moved, size, n))))
        return [flat([z, s])]

    def both(t: Array, z: Array, *args: Array) -> list[Array]:
        values = args[:count]
        directions = [w for i, w in zip(moved, args[count:]) if i]
        state, s = unflatten(
            z, [Aval((n,), np.dtype(np.float64)), Aval((size, n) if size else (n,), np.dtype(np.float64))]
        )
        return [flat(list(rest([t, state, *values], [s, *directions], size)))]

    state_aval = Aval((n * (1 + (size or 1)),), np.dtype(np.float64))
    return System(
        build(begin, [*system.begin.avals, *extra]),
        build(both, [NUMBER, state_aval, *system.derivative.avals[2:], *extra]),
        system.method,
        _tolerances(system.options, size or 1),
    )


def _per_direction(x: Array, size: int) -> Array:
    return repeated(size, [False], [x])[0] if size else x


def _filled(x: Array, size: int, n: int) -> Array:
    return broadcast_to(x, shape=(size, n) if size else (n,))


def _tolerances(options: Mapping[str, Any], multiple: int) -> dict[str, Any]:
    """Return the options for a system with a multiple of the elements."""
    table = {k: v for k, v in options.items() if k not in ("jac", "jac_sparsity", "lband", "uband", "ml", "mu")}
    return {k: np.tile(v, 1 + multiple) if k in ("rtol", "atol") and np.ndim(v) else v for k, v in table.items()}


def _derivative_rule(system: System) -> SolverRule:
    """Return the rule of a solution, with respect to the two ends, the times and the values."""

    def derivatives_at(outputs: tuple[Array, ...], inputs: tuple[Array, ...]) -> Array:
        """Evaluate dz/dt at each of the times."""
        n = inputs[2].shape[0]
        flags = [True, True, *[False] * len(inputs[3:])]
        result: Array = replay_batched(system.derivative, n, flags, [inputs[2], outputs[0], *inputs[3:]])[0][0]
        return result

    def pull(
        cts: tuple[Array, ...], outputs: tuple[Array, ...], inputs: tuple[Array, ...], wanted: tuple[int, ...]
    ) -> dict[int, Array]:
        table = {}
        if 2 in wanted:
            table[2] = reduce_sum(multiply(cts[0], derivatives_at(outputs, inputs)), axes=(1,))
        indices = [i for i in wanted if i == 0 or i > 2]
        if indices:
            avals = [Aval(inputs[i].shape, np.dtype(inputs[i].dtype)) for i in indices]
            size = sum(a.size for a in avals)
            wider = _widened(system, [i and i - 2 for i in indices], size)
            _, both, _ = solution(wider, inputs[:2], inputs[2], [*inputs[3:], *_basis(avals, size)])
            count, n = outputs[0].shape
            s = reshape(slice(both, start=(0, n), stop=both.shape, step=(1, 1)), shape=(count, size, n))
            total = reduce_sum(multiply(s, reshape(cts[0], shape=(count, 1, n))), axes=(0, 2))
            table |= dict(zip(indices, unflatten(total, avals)))
        return table

    def push(
        tangents: tuple[Array, ...], outputs: tuple[Array, ...], inputs: tuple[Array, ...], moved: tuple[int, ...]
    ) -> dict[int, Array]:
        options = dict(zip(moved, tangents))
        terms = []
        if 2 in options:
            terms.append(multiply(derivatives_at(outputs, inputs), reshape(options[2], shape=(inputs[2].shape[0], 1))))
        indices = [i for i in moved if i == 0 or i > 2]
        if indices:
            wider = _widened(system, [i and i - 2 for i in indices], 0)
            _, both, _ = solution(wider, inputs[:2], inputs[2], [*inputs[3:], *(options[i] for i in indices)])
            terms.append(slice(both, start=(0, system.size), stop=both.shape, step=(1, 1)))
        return {0: terms[0] if len(terms) == 1 else add(*terms)} if terms else {}

    return SolverRule(system.name, {"pull": pull, "push": push}, chooses=True)


def _basis(avals: Sequence[Aval], size: int) -> list[Array]:
    """Return the basis vectors of values with these avals, as batches of `size`."""
    numbers = [reshape(arange(start=0, step=1, length=size, dtype="int64"), shape=s) for s in ((size, 1), (1, size))]
    unit = cast(equal(*numbers), dtype="float64")
    result, start = [], 0
    for aval in avals:
        columns = slice(unit, start=(0, start), stop=(size, start + aval.size), step=(1, 1))
        result.append(cast(reshape(columns, shape=(size, *aval.shape)), dtype=name_of(aval.dtype)))
        start += aval.size
    return result
