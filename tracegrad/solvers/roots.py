"""Roots and fixed points, of `scipy.optimize`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.control.operands import inlined
from tracegrad.ir import Graph, build, replay
from tracegrad.numpy_api.registry import refuse
from tracegrad.ops.elementwise.table import subtract
from tracegrad.solvers.implicit import solved
from tracegrad.solvers.scipy_function import SolverArguments, solver, with_args
from tracegrad.solvers.solver_node import Functions, SolverResult, Starts, shaped
from tracegrad.trace.driver.region import weakened

if TYPE_CHECKING:
    from tracegrad.typing import Array


_COUNTS = (((), "i64"), ((), "i64"), ((), "bool"))


def _functions(api_name: str, fs: list[Callable[..., object]], args: object) -> Functions:
    return Functions(api_name, [(with_args(f, args), ()) for f in fs], None)


def _root(
    functions: Functions,
    starts: Starts,
    run: Callable[..., object],
    kinds: tuple[tuple[tuple[int, ...], str], ...],
    text: str,
) -> tuple[Array, ...]:
    """Compute the root of the first function, and the solver's other results."""
    root, *others = solved(functions, starts, run, kinds, text, functions.graphs[0])
    return weakened(root) if functions.x is None else root, *others


def _bracketed(name: str) -> None:
    @solver(f"optimize.{name}")
    def find(inputs: SolverArguments) -> tuple[Array, SolverResult] | Array:
        functions = _functions(inputs.api_name, [inputs.pop("f")], inputs.pop("args"))
        starts = Starts({k: inputs.pop(k) for k in ("a", "b")})
        full = inputs.pop("full_output")
        options = inputs.options()

        def run(fs: Any, ends: Any) -> Any:
            root, result = inputs.real(fs[0], **ends, **options, full_output=True)
            return root, result.iterations, result.function_calls, result.converged

        root, *others = _root(functions, starts, run, (((), "f64"), *_COUNTS), repr(options))
        return (root, _results(inputs.api_name, root, others)) if full else root


for _name in ("brentq", "brenth", "bisect", "ridder", "toms748"):
    _bracketed(_name)


def _results(api_name: str, root: object, others: list[Array]) -> SolverResult:
    iterations, calls, converged = others
    return SolverResult(api_name, root=root, iterations=iterations, function_calls=calls, converged=converged)


@solver("optimize.root_scalar")
def root_scalar(inputs: SolverArguments) -> SolverResult:
    """`scipy.optimize.root_scalar`"""
    f, derivatives = _split_derivatives(inputs)
    functions = _functions(inputs.api_name, [f, *derivatives.values()], inputs.pop("args"))
    starts = Starts({k: inputs.pop(k) for k in ("bracket", "x0", "x1") if inputs[k] is not None})
    options = inputs.options()

    def run(fs: Any, begin: Any) -> Any:
        result = inputs.real(fs[0], **dict(zip(derivatives, fs[1:])), **begin, **options)
        return result.root, result.iterations, result.function_calls, result.converged

    root, *others = _root(functions, starts, run, (((), "f64"), *_COUNTS), f"{options!r} {list(derivatives)}")
    return _results(inputs.api_name, root, others)


def _split_derivatives(inputs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the function of `root_scalar`, and its derivatives by name; True means that the function returns it."""
    f = inputs.pop("f")
    derivatives = {k: inputs.pop(k) for k in ("fprime", "fprime2")}
    returned = [k for k, g in derivatives.items() if g is not None and not callable(g) and g]
    derivatives = {k: g for k, g in derivatives.items() if callable(g)}
    if not returned:
        return f, derivatives
    # A function that returns its second derivative returns the first one too.
    names = ("fprime", "fprime2") if "fprime2" in returned else ("fprime",)
    return _nth_result(f, 0), {name: _nth_result(f, k) for k, name in enumerate(names, 1)} | derivatives


def _nth_result(f: Callable[..., Any], k: int) -> Callable[..., object]:
    """Select one result of a function with several results."""
    return lambda *args: inlined(f)(*args)[k]


@solver("optimize.newton")
def newton(inputs: SolverArguments) -> object:
    """`scipy.optimize.newton`"""
    api_name = inputs.api_name
    derivatives = {k: inputs.pop(k) for k in ("fprime", "fprime2")}
    derivatives = {k: f for k, f in derivatives.items() if f is not None}
    shape = np.shape(inputs["x0"])
    fs, full, others = [inputs.pop("func"), *derivatives.values()], inputs.pop("full_output"), inputs.pop("args")
    if full and shape:
        raise refuse(f"{api_name} with full_output=True and several starts")
    functions = Functions(api_name, [(with_args(f, others), shape) for f in fs], shape or None)
    starts = Starts({k: inputs.pop(k) for k in ("x0", "x1") if inputs[k] is not None})
    options = inputs.options()

    def run(fs: Any, begin: Any) -> Any:
        derivative_args = dict(zip(derivatives, fs[1:]))
        if shape:
            return (inputs.real(fs[0], **derivative_args, **begin, **options),)
        root, result = inputs.real(fs[0], **derivative_args, **begin, **options, full_output=True)
        return root, result.iterations, result.function_calls, result.converged

    kinds = ((shape, "f64"), *(() if shape else _COUNTS))
    root, *counts = _root(functions, starts, run, kinds, f"{options!r} {list(derivatives)}")
    return (root, _results(api_name, root, counts)) if full else root


@solver("optimize.root")
def root(inputs: SolverArguments) -> SolverResult:
    """`scipy.optimize.root`"""
    x0 = shaped(inputs.pop("x0"), None)
    shape = np.shape(x0) or (1,)
    fun, derivative, others = inputs.pop("fun"), inputs.pop("jac"), inputs.pop("args")
    if not callable(derivative) and derivative:
        fun, derivative = _nth_result(fun, 0), _nth_result(fun, 1)
    fs: list[Any] = [(with_args(fun, others), shape)]
    if callable(derivative):
        fs.append((with_args(derivative, others), None))
    functions = Functions(inputs.api_name, fs, shape)
    options = inputs.options()

    def run(fs: Any, begin: Any) -> Any:
        result = inputs.real(fs[0], begin["x0"], jac=fs[1] if len(fs) > 1 else None, **options)
        return result.x, result.get("nfev", result.get("nit", 0)), result.success

    kinds = ((shape, "f64"), ((), "i64"), ((), "bool"))
    x, calls, success = _root(functions, Starts({"x0": x0}), run, kinds, repr(options))
    return SolverResult(
        inputs.api_name,
        x=x,
        fun=functions.value(0, x),
        success=success,
        **({"nfev": calls} if inputs["method"] in ("hybr", "lm", "df-sane") else {"nit": calls}),
    )


def _of_shape(api_name: str, f: Callable[..., object], shape: tuple[int, ...]) -> Callable[..., object]:
    """Wrap `f`; refuse results of another shape."""

    def call(x: object) -> Array:
        y = shaped(f(x), None)
        if y.shape != shape:
            raise refuse(f"{api_name} of a function whose result has the shape {y.shape} and its argument {shape}")
        return y

    return call


def _nonlinear(name: str) -> None:
    @solver(f"optimize.{name}")
    def find(inputs: SolverArguments) -> Array:
        inputs.update(inputs.pop("kw", {}))
        api_name = inputs.api_name
        f, x0 = inputs.pop("F"), shaped(inputs.pop("xin"), None)
        shape = np.shape(x0)
        functions = Functions(api_name, [(_of_shape(api_name, with_args(f, ()), shape), shape)], shape)
        options = inputs.options()

        def run(fs: Any, begin: Any) -> Any:
            return (inputs.real(fs[0], begin["x0"], **options),)

        return _root(functions, Starts({"x0": x0}), run, ((shape, "f64"),), repr(options))[0]


for _name in ("anderson", "broyden1", "broyden2", "diagbroyden", "excitingmixing", "linearmixing", "newton_krylov"):
    _nonlinear(_name)


@solver("optimize.fixed_point")
def fixed_point(inputs: SolverArguments) -> Array:
    """`scipy.optimize.fixed_point`"""
    x0 = shaped(inputs.pop("x0"), None)
    shape = np.shape(x0)
    # SciPy always passes an array to the function.
    functions = Functions(inputs.api_name, [(with_args(inputs.pop("func"), inputs.pop("args")), shape)], shape)
    options = inputs.options()

    def run(fs: Any, begin: Any) -> Any:
        return (inputs.real(fs[0], begin["x0"], **options),)

    equation = _difference(functions.graphs[0])
    return solved(functions, Starts({"x0": x0}), run, ((shape, "f64"),), repr(options), equation)[0]


def _difference(graph: Graph) -> Graph:
    """Return the graph of f(x) - x."""
    return build(lambda x, *rest: [subtract(replay(graph, [x, *rest])[0][0], x)], graph.avals)
