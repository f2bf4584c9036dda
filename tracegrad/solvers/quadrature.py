"""Integrals of functions, of `scipy.integrate`.

The derivative of an integral is the integral of the derivative, and with respect to a bound the function itself. The
derivative is an integral of several functions at once, so it has derivatives too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.control.operands import inlined
from tracegrad.errors import UnsupportedError, located
from tracegrad.ir import Graph, build, replay
from tracegrad.numpy_api.registry import refuse
from tracegrad.ops import Carrier, TapeCarrier
from tracegrad.ops.calls.custom_call import custom_call, opaque
from tracegrad.ops.core.recorders import aside
from tracegrad.ops.elementwise.table import absolute, add, cos, divide, less, multiply, negative, sin, subtract, where
from tracegrad.ops.shape.linear import reduce_sum
from tracegrad.solvers.callbacks import Callback
from tracegrad.solvers.packing import flat, unflatten
from tracegrad.solvers.scipy_function import SolverArguments, solver, with_args
from tracegrad.solvers.solver_node import Functions, OpaqueCall, SolverRule, node_name, shaped
from tracegrad.trace.driver.region import weakened
from tracegrad.transforms.jvp_graph import pushed
from tracegrad.transforms.vjp_graph import joint

if TYPE_CHECKING:
    from tracegrad.typing import Array, NDArray, Number


Ends = tuple[float | None, float | None]

# The largest number of integrals that QUADPACK computes one by one, in C; `quad_vec` in Python computes larger vectors.
MAX_QUADPACK_SIZE = 16


class _Quadrature(OpaqueCall):
    """Integral of a graph of a number and values, between `ends`; ends that are None are the first inputs."""

    def __init__(self, graph: Graph, ends: Ends, options: dict[str, object], is_vector: bool = False):
        self.graph, self.ends, self.options = graph, ends, options
        self._callback, self.is_vector = Callback(graph, "scipy.integrate.quad"), is_vector
        self.name = node_name("scipy.integrate.quad", f"{graph} {ends} {options!r} {is_vector}")

    def __call__(self, *inputs: Array) -> tuple[NDArray, ...]:
        from scipy import integrate

        args = [np.asarray(x) for x in inputs]
        a, b = (args.pop(0).item() if x is None else x for x in self.ends)
        aval = self.graph.outputs[0].aval
        with aside():
            f = self._callback.at(args)
            if self.is_vector:
                results = integrate.quad_vec(f, a, b, **self.options)
            elif not aval.ndim:
                results = integrate.quad(f, a, b, **self.options)
            elif aval.size <= MAX_QUADPACK_SIZE or "weight" in self.options:  # only QUADPACK has weights
                at = functools.cache(f)  # the integrals share many points
                each = [integrate.quad(lambda x, k=k: at(x).item(k), a, b, **self.options) for k in range(aval.size)]
                results = [x for x, _ in each], max([error for _, error in each], default=0.0)
            else:
                known = {k: v for k, v in self.options.items() if k in ("epsabs", "epsrel", "points")}
                results = integrate.quad_vec(f, a, b, norm="max", **known)
        return np.asarray(results[0], np.float64).reshape(aval.shape), np.asarray(results[1], np.float64)


def _integral(
    graph: Graph, ends: Sequence[Any], values: list[Array], options: dict[str, object], is_vector: bool = False
) -> tuple[Array, ...]:
    """Integrate `graph(x, *values)` between the ends, numbers or values; also estimate the error.

    `quad_vec` computes the integral of `is_vector` functions.
    """
    moving = [x for x in ends if isinstance(x, Carrier)]
    first, last = (None if isinstance(x, Carrier) else float(x) for x in ends)
    call = _Quadrature(graph, (first, last), options, is_vector)
    results = ((graph.outputs[0].aval.shape, "f64"), ((), "f64"))
    outputs = opaque(*moving, *values, results=results, call=call)
    result = custom_call(*outputs, *moving, *values, count=2, rule=_derivative_rule(call))
    return result[0], result[1]


def _derivative_rule(call: _Quadrature) -> SolverRule:
    """Return the rule of an integral, with respect to the traced ends and the values."""
    graph, ends, options = call.graph, call.ends, call.options
    count = sum(x is None for x in ends)
    signs = [sign for x, sign in zip(ends, (-1.0, 1.0)) if x is None]
    wrt = [i for i, a in enumerate(graph.avals) if i and a.is_float]

    def all_ends(moving: tuple[Array, ...]) -> list[Array | Number]:
        supply = iter(moving)
        return [next(supply) if x is None else x for x in ends]

    def pull(cts: tuple[Array, ...], outputs: tuple[Array, ...], inputs: tuple[Array, ...]) -> dict[int, Array]:
        moving, values = inputs[:count], inputs[count:]
        heights = [_height(call, x, sign, values) for x, sign in zip(moving, signs)]
        table = {k: _summed(multiply(cts[0], y)) for k, y in enumerate(heights)}
        both, positions = joint(graph, wrt, [0])
        if not positions:
            return table
        avals = [graph.avals[i] for i in positions]
        inside = build(lambda *args: [flat(replay(both, args)[0][1:])], both.avals)
        whole, _ = _integral(inside, all_ends(moving), [*values, cts[0]], options, call.is_vector)
        return table | dict(zip([count + i - 1 for i in positions], unflatten(whole, avals)))

    def push(tangents: tuple[Array, ...], outputs: tuple[Array, ...], inputs: tuple[Array, ...]) -> dict[int, Array]:
        moving, values = inputs[:count], inputs[count:]
        terms = [multiply(t, _height(call, x, sign, values)) for x, sign, t in zip(moving, signs, tangents)]
        both, table = pushed(graph, wrt)
        if table:
            inside = build(lambda *args: replay(both, args)[0][1:], both.avals)
            terms.append(_integral(inside, all_ends(moving), [*values, *tangents[count:]], options, call.is_vector)[0])
        return {0: _total(terms)} if terms else {}

    return SolverRule(call.name, {"pull": pull, "push": push})


def _height(call: Any, x: Array, sign: float, values: tuple[Array, ...]) -> Array:
    """Evaluate the function at an end, with its weight and a sign; 0 at infinity."""
    finite = less(absolute(x), np.inf)
    point = where(finite, x, 0.0)
    y = replay(call.graph, [point, *values])[0][0]
    if "weight" in call.options:
        y = multiply(y, _WEIGHTS[call.options["weight"]](point, call.options["wvar"]))
    return where(finite, y if sign > 0 else negative(y), 0.0)


# The weights that are finite at the ends, by name.
_WEIGHTS: dict[str, Callable[[Any, float], Any]] = {
    "cos": lambda x, w: cos(multiply(x, float(w))),
    "sin": lambda x, w: sin(multiply(x, float(w))),
    "cauchy": lambda x, c: divide(1.0, subtract(x, float(c))),
}


def _summed(x: Array) -> Array:
    return reduce_sum(x, axes=tuple(range(len(x.shape)))) if x.shape else x


def _total(terms: Sequence[Array]) -> Any:
    total = terms[0]
    for term in terms[1:]:
        total = add(total, term)
    return total


@solver("integrate.quad", "full_output", "wopts")
def quad(inputs: SolverArguments) -> tuple[Array, ...]:
    """`scipy.integrate.quad`: the integral and an estimate of its error, which has no derivative."""
    api_name = inputs.api_name
    if inputs.pop("complex_func"):
        func, others = inputs.pop("func"), {k: x for k, x in inputs.items() if k != "func"}
        integrals = [
            quad(lambda x, *xs, component=component: component(inlined(func)(x, *xs)), **others)
            for component in (np.real, np.imag)
        ]
        return tuple([x + 1j * y for x, y in zip(*integrals)])
    if inputs["weight"] is None:
        del inputs["wvar"]
    elif isinstance(inputs["wvar"], Carrier):
        raise refuse(f"a traced wvar= of {api_name}", "let the function have the weight as a factor")
    elif inputs["weight"] not in _WEIGHTS and any(isinstance(inputs[name], Carrier) for name in ("a", "b")):
        raise refuse(
            f"{api_name} between traced ends with weight={inputs['weight']!r}", "integrate over a fixed interval"
        )
    functions = Functions(api_name, [(with_args(inputs.pop("func"), inputs.pop("args")), ())], None)
    ends = [_end(api_name, inputs.pop(name)) for name in ("a", "b")]
    options = inputs.options()
    result = _integral(functions.graphs[0], ends, functions.captured, options)
    return weakened(result[0]), weakened(result[1])


def _end(api_name: str, x: object) -> object:
    if isinstance(x, TapeCarrier):
        raise UnsupportedError(located(f"{api_name} between Tensors is not supported; give it numbers"))
    return shaped(x, ()) if isinstance(x, Carrier) else x


@solver("integrate.quad_vec", "full_output", "workers")
def quad_vec(inputs: SolverArguments) -> object:
    """`scipy.integrate.quad_vec`: the integrals and an estimate of their errors, which has no derivative."""
    api_name = inputs.api_name
    functions = Functions(api_name, [(with_args(inputs.pop("f"), inputs.pop("args")), None)], None)
    ends = [_end(api_name, inputs.pop(name)) for name in ("a", "b")]
    options = inputs.options()
    result = _integral(functions.graphs[0], ends, functions.captured, options, is_vector=True)
    return result if result[0].shape else (weakened(result[0]), weakened(result[1]))


@solver("integrate.fixed_quad")
def fixed_quad(inputs: SolverArguments) -> object:
    """`scipy.integrate.fixed_quad`: a weighted sum of the function, which is called once with all points."""
    a, b = inputs["a"], inputs["b"]
    if not any(isinstance(x, Carrier) for x in (a, b)) and (np.isinf(a) or np.isinf(b)):
        raise ValueError("Gaussian quadrature is only available for finite limits.")
    nodes, weights = np.polynomial.legendre.leggauss(inputs["n"])
    extra_args = inputs["args"]
    y = inlined(inputs["func"])((b - a) * (nodes + 1.0) / 2.0 + a, *extra_args)
    return (b - a) / 2.0 * np.sum(weights * y, axis=-1), None
