"""Roots and fixed points, of `scipy.optimize`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tracegrad.control.operands import inlined
from tracegrad.ir import Graph, build, replay
from tracegrad.numpy_api.registry import refuse
from tracegrad.ops.elementwise.table import subtract
from tracegrad.scipy_api.registry import shadow
from tracegrad.solvers.implicit import solution
from tracegrad.solvers.solver_node import Functions, SolverResult, Starts, called, plain_options, shaped
from tracegrad.trace.driver.region import weakened

__all__ = ["bound", "real", "with_args"]

_COUNTS = (((), "i64"), ((), "i64"), ((), "bool"))


def real(name: str) -> Any:
    """Return SciPy's own function of this name."""
    from scipy import optimize

    return getattr(optimize, name)


def bound(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Bind the arguments of a SciPy function by name, with its defaults."""
    result = inspect.signature(real(name)).bind(*args, **kwargs)
    result.apply_defaults()
    return dict(result.arguments)


def with_args(f: Any, args: Any) -> Callable[[Any], Any]:
    """Bind all arguments of `f` except the first."""
    extra_args = args if isinstance(args, tuple) else (args,)
    return lambda x: inlined(f)(x, *extra_args)


def _functions(api_name: str, fs: Sequence[Any], args: Any) -> Functions:
    return Functions(api_name, [(with_args(f, args), ()) for f in fs], None)


def _root(functions: Functions, starts: Starts, run: Any, kinds: Any, text: str) -> tuple[Any, ...]:
    """Compute the root of the first function, and the solver's other results."""
    make_rule = functools.partial(solution, equation=functions.graphs[0], api_name=functions.api_name)
    root, *others = called(functions, starts, run, kinds, text, make_rule)
    return weakened(root) if functions.x is None else root, *others


def _bracketed(name: str) -> None:
    api_name = f"scipy.optimize.{name}"

    @shadow(api_name, of_functions=True)
    def find(*args: Any, **kwargs: Any) -> Any:
        inputs = bound(name, args, kwargs)
        functions = _functions(api_name, [inputs.pop("f")], inputs.pop("args"))
        starts = Starts({k: inputs.pop(k) for k in ("a", "b")})
        full = inputs.pop("full_output")
        options = plain_options(api_name, inputs)

        def run(fs: Any, ends: Any) -> Any:
            root, result = real(name)(fs[0], **ends, **options, full_output=True)
            return root, result.iterations, result.function_calls, result.converged

        root, *others = _root(functions, starts, run, (((), "f64"), *_COUNTS), repr(options))
        return (root, _results(api_name, root, others)) if full else root


for _name in ("brentq", "brenth", "bisect", "ridder", "toms748"):
    _bracketed(_name)


def _results(api_name: str, root: Any, others: Sequence[Any]) -> SolverResult:
    iterations, calls, converged = others
    return SolverResult(api_name, root=root, iterations=iterations, function_calls=calls, converged=converged)


@shadow("scipy.optimize.root_scalar", of_functions=True)
def root_scalar(*args: Any, **kwargs: Any) -> Any:
    """`scipy.optimize.root_scalar`"""
    api_name = "scipy.optimize.root_scalar"
    inputs = bound("root_scalar", args, kwargs)
    f, derivatives = _split_derivatives(inputs)
    functions = _functions(api_name, [f, *derivatives.values()], inputs.pop("args"))
    starts = Starts({k: inputs.pop(k) for k in ("bracket", "x0", "x1") if inputs[k] is not None})
    options = plain_options(api_name, {k: v for k, v in inputs.items() if v is not None})

    def run(fs: Any, begin: Any) -> Any:
        result = real("root_scalar")(fs[0], **dict(zip(derivatives, fs[1:])), **begin, **options)
        return result.root, result.iterations, result.function_calls, result.converged

    root, *others = _root(functions, starts, run, (((), "f64"), *_COUNTS), f"{options!r} {list(derivatives)}")
    return _results(api_name, root, others)


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


def _nth_result(f: Callable[..., Any], k: int) -> Callable[..., Any]:
    """Select one result of a function with several results."""
    return lambda *args: inlined(f)(*args)[k]


@shadow("scipy.optimize.newton", of_functions=True)
def newton(*args: Any, **kwargs: Any) -> Any:
    """`scipy.optimize.newton`"""
    api_name = "scipy.optimize.newton"
    inputs = bound("newton", args, kwargs)
    derivatives = {k: inputs.pop(k) for k in ("fprime", "fprime2")}
    derivatives = {k: f for k, f in derivatives.items() if f is not None}
    shape = np.shape(inputs["x0"])
    fs, full, others = [inputs.pop("func"), *derivatives.values()], inputs.pop("full_output"), inputs.pop("args")
    if full and shape:
        raise refuse(f"{api_name} with full_output=True and several starts")
    functions = Functions(api_name, [(with_args(f, others), shape) for f in fs], shape or None)
    starts = Starts({k: inputs.pop(k) for k in ("x0", "x1") if inputs[k] is not None})
    options = plain_options(api_name, inputs)

    def run(fs: Any, begin: Any) -> Any:
        derivative_args = dict(zip(derivatives, fs[1:]))
        if shape:
            return (real("newton")(fs[0], **derivative_args, **begin, **options),)
        root, result = real("newton")(fs[0], **derivative_args, **begin, **options, full_output=True)
        return root, result.iterations, result.function_calls, result.converged

    kinds = ((shape, "f64"), *(() if shape else _COUNTS))
    root, *counts = _root(functions, starts, run, kinds, f"{options!r} {list(derivatives)}")
    return (root, _results(api_name, root, counts)) if full else root


@shadow("scipy.optimize.root", of_functions=True)
def root(*args: Any, **kwargs: Any) -> Any:
    """`scipy.optimize.root`"""
    api_name = "scipy.optimize.root"
    inputs = bound("root", args, kwargs)
    x0 = shaped(inputs.pop("x0"), None)
    shape = np.shape(x0) or (1,)
    fun, derivative, others = inputs.pop("fun"), inputs.pop("jac"), inputs.pop("args")
    if not callable(derivative) and derivative:
        fun, derivative = _nth_result(fun, 0), _nth_result(fun, 1)
    fs: list[Any] = [(with_args(fun, others), shape)]
    if callable(derivative):
        fs.append((with_args(derivative, others), None))
    functions = Functions(api_name, fs, shape)
    options = plain_options(api_name, {k: v for k, v in inputs.items() if v is not None})

    def run(fs: Any, begin: Any) -> Any:
        result = real("root")(fs[0], begin["x0"], jac=fs[1] if len(fs) > 1 else None, **options)
        return result.x, result.get("nfev", result.get("nit", 0)), result.success

    kinds = ((shape, "f64"), ((), "i64"), ((), "bool"))
    x, calls, success = _root(functions, Starts({"x0": x0}), run, kinds, repr(options))
    return SolverResult(
        api_name,
        x=x,
        fun=replay(functions.graphs[0], [x, *functions.captured])[0][0],
        success=success,
        **({"nfev": calls} if inputs["method"] in ("hybr", "lm", "df-sane") else {"nit": calls}),
    )


def _of_shape(api_name: str, f: Callable[[Any], Any], shape: tuple[int, ...]) -> Callable[[Any], Any]:
    """Wrap `f`; refuse results of another shape."""

    def call(x: Any) -> Any:
        y = shaped(f(x), None)
        if y.shape != shape:
            raise refuse(f"{api_name} of a function whose result has the shape {y.shape} and its argument {shape}")
        return y

    return call


def _nonlinear(name: str) -> None:
    api_name = f"scipy.optimize.{name}"

    @shadow(api_name, of_functions=True)
    def find(*args: Any, **kwargs: Any) -> Any:
        inputs = bound(name, args, kwargs)
        inputs |= inputs.pop("kw", {})
        f, x0 = inputs.pop("F"), shaped(inputs.pop("xin"), None)
        shape = np.shape(x0)
        functions = Functions(api_name, [(_of_shape(api_name, with_args(f, ()), shape), shape)], shape)
        options = plain_options(api_name, {k: v for k, v in inputs.items() if v is not None})

        def run(fs: Any, begin: Any) -> Any:
            return (real(name)(fs[0], begin["x0"], **options),)

        return _root(functions, Starts({"x0": x0}), run, ((shape, "f64"),), repr(options))[0]


for _name in ("anderson", "broyden1", "broyden2", "diagbroyden", "excitingmixing", "linearmixing", "newton_krylov"):
    _nonlinear(_name)


@shadow("scipy.optimize.fixed_point", of_functions=True)
def fixed_point(*args: Any, **kwargs: Any) -> Any:
    """`scipy.optimize.fixed_point`"""
    api_name = "scipy.optimize.fixed_point"
    inputs = bound("fixed_point", args, kwargs)
    x0 = shaped(inputs.pop("x0"), None)
    shape = np.shape(x0)
    # SciPy always passes an array to the function.
    functions = Functions(api_name, [(with_args(inputs.pop("func"), inputs.pop("args")), shape)], shape)
    options = plain_options(api_name, inputs)

    def run(fs: Any, begin: Any) -> Any:
        return (real("fixed_point")(fs[0], begin["x0"], **options),)

    make_rule = functools.partial(solution, equation=_difference(functions.graphs[0]), api_name=api_name)
    starts = Starts({"x0": x0})
    return called(functions, starts, run, ((shape, "f64"),), repr(options), make_rule)[0]


def _difference(graph: Graph) -> Graph:
    """Return the graph of f(x) - x."""
    return build(lambda x, *rest: [subtract(replay(graph, [x, *rest])[0][0], x)], graph.avals)
