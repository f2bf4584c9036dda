"""Initial value problems: the arguments of `solve_ivp` and `odeint` in traced code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import Aval
from tracegrad.control.operands import inlined
from tracegrad.ir import Graph, build, replay
from tracegrad.numpy_api.operands import arrays
from tracegrad.numpy_api.registry import refuse
from tracegrad.ops import Carrier
from tracegrad.ops.shape.linear import full, reshape
from tracegrad.solvers.events import Event, Events
from tracegrad.solvers.ode_sensitivity import NUMBER, System, solution
from tracegrad.solvers.scipy_function import SolverArguments, arguments_tuple, plain_options, solver
from tracegrad.solvers.solver_node import SolverResult, recorded, shaped
from tracegrad.typing import ArrayLike

if TYPE_CHECKING:
    from tracegrad.typing import Array


def _recorded(
    api_name: str,
    fun: Callable[..., object],
    jac: Callable[..., object] | None,
    y0: ArrayLike,
    args: Sequence[object],
    events: Sequence[Callable[..., object]] = (),
) -> tuple[Array, list[Array], list[Graph]]:
    """Return the initial value, the captures of the functions, and their graphs.

    The graphs are of the right-hand side, its Jacobian if there is one, and the events.
    """
    y0 = shaped(y0, None)
    if len(y0.shape) > 1:
        raise ValueError(f"{api_name}: y0 must be 1-dimensional, but has the shape {y0.shape}")
    n = y0.shape[0] if y0.shape else 1
    like = (0.0, Aval((n,), np.dtype(np.float64)))
    fs = [(fun, (n,)), *([(jac, (n, n))] if jac is not None else []), *[(event, ()) for event in events]]
    captured, graphs = recorded(api_name, [(_one(f, shape, args), like) for f, shape in fs], "Tensors", [y0])
    return reshape(y0, shape=(n,)), captured, graphs


def _one(f: Callable[..., object], shape: tuple[int, ...], args: Sequence[object]) -> Callable[..., Array]:
    return lambda t, y: shaped(inlined(f)(t, y, *args), shape)


def _system(y0: Array, graphs: Sequence[Graph], method: str, options: Mapping[str, object]) -> System:
    """Make the system whose first value is the initial value."""
    rest = graphs[0].avals[2:]
    begin = build(lambda t, y, *_: [y], [NUMBER, Aval(y0.shape, np.dtype(np.float64)), *rest])
    derivative, *jac = [_with_initial_value(graph, y0) for graph in graphs]
    return System(begin, derivative, method, options, jac[0] if jac else None)


def _with_initial_value(graph: Graph, y0: Array) -> Graph:
    """Add the initial value to the inputs of `graph`, before the captures."""
    avals = graph.avals
    first = Aval(y0.shape, np.dtype(np.float64))
    return build(lambda t, z, y, *rest: replay(graph, [t, z, *rest])[0], [*avals[:2], first, *avals[2:]])


def _scalar(x: Carrier | float) -> Array:
    return shaped(x, ()) if isinstance(x, Carrier) else full(shape=(), value=float(x), dtype="float64")


@solver("integrate.solve_ivp")
def solve_ivp(inputs: SolverArguments) -> SolverResult:
    """`scipy.integrate.solve_ivp`.

    Without `t_eval`, the times between the ends are SciPy's steps, which have no derivatives. Event times have
    derivatives, and so has the end at a terminal event.
    """
    api_name, options = inputs.api_name, inputs.pop("options")
    first = arrays(inputs["y0"])[0]
    if first.dtype.kind == "c":
        return _of_complex(first, inputs, options)
    method = inputs["method"]
    if method not in ("RK23", "RK45", "DOP853", "Radau", "BDF", "LSODA"):
        raise refuse(f"{api_name} with method={method!r}", "use a method's name")
    jac = options.pop("jac", None)
    if jac is not None and not callable(jac):
        matrix = jac
        jac = lambda t, y: matrix  # noqa: E731
    events = inputs["events"]
    events = [] if events is None else [events] if callable(events) else list(events)
    y0, captured, graphs = _recorded(api_name, inputs["fun"], jac, inputs["y0"], inputs["args"] or (), events)
    count = len(graphs) - len(events)
    system = _system(y0, graphs[:count], method, plain_options(api_name, options))
    times = None if inputs["t_eval"] is None else shaped(inputs["t_eval"], None)
    ends, values = [_scalar(x) for x in inputs["t_span"]], [y0, *captured]
    if events:
        rules = [Event(_with_initial_value(graph, y0), event) for graph, event in zip(graphs[count:], events)]
        result = Events(system, rules, ends, times, values)
        times, y, facts = result.times, result.y, result.facts
        marks: Any = result.marks
    else:
        times, y, facts = solution(system, ends, times, values)
        marks = None, None
    nfev, njev, nlu, status = (facts[k] for k in range(4))
    dense = _Dense(system, ends, values) if inputs["dense_output"] else None
    return SolverResult(
        api_name,
        t=times,
        y=np.transpose(y),
        sol=dense,
        t_events=marks[0],
        y_events=marks[1],
        nfev=nfev,
        njev=njev,
        nlu=nlu,
        status=status,
        success=status >= 0,
    )


class _Dense:
    """Solution as a function of time between the ends, as SciPy's dense output, which interpolates."""

    def __init__(self, system: System, ends: Sequence[Array], values: list[Array]):
        self._of = system, ends, values

    def __call__(self, t: Array) -> Array:
        system, ends, values = self._of
        times = shaped(t, None)
        flat_times = np.reshape(times, (-1,))
        order = np.argsort(np.where(ends[1] >= ends[0], flat_times, -flat_times))
        _, y, _ = solution(system, ends, np.take(flat_times, order), values)
        result = np.take(np.transpose(y), np.argsort(order), axis=1)
        return result if times.shape else np.reshape(result, (-1,))


def _of_complex(y0: Array, inputs: dict[str, Any], options: dict[str, object]) -> SolverResult:
    """Solve a complex system, by the system of its real and imaginary parts."""
    if options.get("jac") is not None:
        raise refuse("the argument jac= of scipy.integrate.solve_ivp of complex systems")
    if inputs["events"] is not None:
        raise refuse("the argument events= of scipy.integrate.solve_ivp of complex systems", "solve for two real parts")
    n, fun, args = y0.shape[0] if y0.shape else 1, inputs["fun"], inputs["args"] or ()

    def both(z: Array) -> Array:
        (z,) = arrays(z)
        z = np.reshape(z, (-1,))
        return np.concatenate([np.real(z), np.imag(z)])

    def right_hand_side(t: Array, z: Array, *rest: object) -> object:
        return both(inlined(fun)(t, z[:n] + 1j * z[n:], *rest))

    names = {k: inputs[k] for k in ("t_span", "method", "t_eval", "dense_output")}
    result = solve_ivp(right_hand_side, y0=both(y0), args=args, **names, **options)
    dense = result["sol"]

    def whole(z: Array) -> Array:
        return z[:n] + 1j * z[n:]

    result["y"] = whole(result["y"])
    if dense is not None:
        result["sol"] = lambda t: whole(dense(t))
    output: SolverResult = result
    return output


@solver("integrate.odeint", "full_output", "col_deriv", "ixpr", "printmessg")
def odeint(inputs: SolverArguments) -> Array:
    """`scipy.integrate.odeint`"""
    others = arguments_tuple(inputs.pop("args"))
    times = shaped(inputs.pop("t"), None)
    func, jac = (
        f if f is None or inputs["tfirst"] else _with_swapped_args(f) for f in (inputs.pop("func"), inputs.pop("Dfun"))
    )
    y0, captured, graphs = _recorded(inputs.api_name, func, jac, inputs.pop("y0"), others)
    del inputs["tfirst"]
    options = inputs.options()
    ends = [times[0], times[-1]]
    return solution(_system(y0, graphs, "odeint", options), ends, times, [y0, *captured])[1]


def _with_swapped_args(f: Callable[..., object]) -> Callable[..., object]:
    return lambda t, y, *rest: inlined(f)(y, t, *rest)
