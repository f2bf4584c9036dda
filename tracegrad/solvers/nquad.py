"""Multiple integrals of `scipy.integrate`, as nested integrals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracegrad.control.operands import inlined
from tracegrad.numpy_api.registry import refuse
from tracegrad.ops.calls.custom_call import opaque
from tracegrad.ops.core.recorders import aside
from tracegrad.solvers.quadrature import quad
from tracegrad.solvers.scipy_function import SolverArguments, arguments_tuple, plain_options, solver
from tracegrad.solvers.solver_node import Functions, OpaqueCall, node_name, shaped
from tracegrad.trace.driver.region import weakened
from tracegrad.typing import Array, ArrayLike, NDArray

Ranges = Sequence[Callable[..., Any]]


def _nested(
    func: Callable[..., object],
    ranges: Ranges,
    args: tuple[object, ...],
    options: Sequence[dict[str, object]],
    *outer: object,
) -> Array:
    """Integrate over the variables before the `outer` ones."""
    k = len(ranges) - len(outer) - 1
    low, high = ranges[k](*outer, *args)
    if k == 0:
        output: Array = quad(lambda x: func(x, *outer, *args), low, high, **options[k])[0]
        return output
    result: Array = quad(lambda x: _nested(func, ranges, args, options, x, *outer), low, high, **options[k])[0]
    return result


class _NquadErrorEstimate(OpaqueCall):
    """Opaque call that computes the error estimate of `scipy.integrate.nquad`."""

    def __init__(self, functions: Functions, options: Sequence[dict[str, object]]):
        self.functions, self.options = functions, list(options)
        key = "".join(map(str, functions.graphs)) + repr(self.options)
        self.name = node_name("scipy.integrate.nquad", key)

    def __call__(self, *values: NDArray) -> tuple[NDArray]:
        from scipy import integrate

        f, *ranges = self.functions.to_scipy([np.asarray(x) for x in values])
        n = len(ranges)

        def ends(k: int) -> Callable[..., object]:
            return lambda *outer: ranges[k](np.array([0.0] * (n - len(outer)) + list(outer))).tolist()

        with aside():
            result = integrate.nquad(lambda *xs: float(f(np.array(xs))), [ends(k) for k in range(n)], opts=self.options)
        return (np.asarray(result[1]),)


def _integrated(
    func: Callable[..., object], ranges: Ranges, args: tuple[object, ...], options: Sequence[dict[str, object]]
) -> tuple[Array, Array]:
    """Return the integral and an estimate of its error, which is computed only if it is used."""
    n = len(ranges)

    def on_all(f: Callable[..., object], first: int) -> Callable[..., object]:
        return lambda z: f(*[z[i] for i in range(first, n)], *args)

    def both(f: Callable[..., Sequence[ArrayLike]]) -> Callable[..., Array]:
        return lambda *xs: np.stack([shaped(x, ()) for x in f(*xs)])

    ends = [(on_all(both(f), k + 1), (2,)) for k, f in enumerate(ranges)]
    functions = Functions("scipy.integrate.nquad", [(on_all(inlined(func), 0), ()), *ends], (n,))
    value = _nested(inlined(func), ranges, args, options)
    (error,) = opaque(*functions.captured, results=(((), "f64"),), call=_NquadErrorEstimate(functions, options))
    return value, weakened(error)


def _ends(x: object) -> Callable[..., object]:
    return inlined(x) if callable(x) else lambda *_: x


def _end(x: object, *args: object) -> object:
    return inlined(x)(*args) if callable(x) else x


@solver("integrate.nquad", "full_output")
def nquad(inputs: SolverArguments) -> tuple[Array, Array]:
    """`scipy.integrate.nquad`"""
    ranges, others, options = [_ends(x) for x in inputs["ranges"]], inputs["args"] or (), inputs["opts"] or {}
    per_range = [options] * len(ranges) if isinstance(options, dict) else list(options)
    if any(callable(x) for x in per_range):
        raise refuse("scipy.integrate.nquad with opts= of functions")
    per_range = [plain_options("scipy.integrate.nquad", x) for x in per_range]
    return _integrated(inputs["func"], ranges, arguments_tuple(others), per_range)


@solver("integrate.dblquad")
def dblquad(inputs: SolverArguments) -> object:
    """`scipy.integrate.dblquad`"""
    ranges: Ranges = [
        lambda x, *_: (_end(inputs["gfun"], x), _end(inputs["hfun"], x)),
        _ends((inputs["a"], inputs["b"])),
    ]
    return _integrated(inputs["func"], ranges, inputs["args"], [_tolerances(inputs)] * 2)


@solver("integrate.tplquad")
def tplquad(inputs: SolverArguments) -> object:
    """`scipy.integrate.tplquad`"""
    ranges: Ranges = [
        lambda y, x, *_: (_end(inputs["qfun"], x, y), _end(inputs["rfun"], x, y)),
        lambda x, *_: (_end(inputs["gfun"], x), _end(inputs["hfun"], x)),
        _ends((inputs["a"], inputs["b"])),
    ]
    return _integrated(inputs["func"], ranges, inputs["args"], [_tolerances(inputs)] * 3)


def _tolerances(inputs: SolverArguments) -> dict[str, object]:
    return plain_options(inputs.api_name, {k: inputs[k] for k in ("epsabs", "epsrel")})
