"""`scipy.optimize`: roots and fixed points."""

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
from tracegrad.solvers.solver_node import Functions, Result, Starts, called, plain_options, shaped
from tracegrad.trace.driver.region import weakened

__all__ = ["bound", "real", "with_args"]

_COUNTS = (((), "i64"), ((), "i64"), ((), "bool"))


def real(name: str) -> Any:
    """SciPy's own function."""
    from scipy import optimize

    return getattr(optimize, name)


def bound(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """By name, the arguments of a function of SciPy's, with its defaults."""
    found = inspect.signature(real(name)).bind(*args, **kwargs)
    found.apply_defaults()
    return dict(found.arguments)


def with_args(f: Any, args: Any) -> Callable[[Any], Any]:
    """`f` as a function of its first argument."""
    several = args if isinstance(args, tuple) else (args,)
    return lambda x: inlined(f)(x, *several)


def _functions(what: str, fs: Sequence[Any], args: Any) -> Functions:
    return Functions(what, [(with_args(f, args), ()) for f in fs], None)


def _root(functions: Functions, starts: Starts, run: Any, kinds: Any, text: str) -> tuple[Any, ...]:
    """The root of the first function and what else the solver gives."""
    ways = functools.partial(solution, equation=functions.graphs[0], what=functions.what)
    root, *others = called(functions, starts, run, kinds, text, ways)
    return weakened(root) if functions.x is None else root, *others


def _bracketed(name: str) -> None:
    what = f"scipy.optimize.{name}"

    @shadow(what, of_functions=True)
    def find(*args: Any, **kwargs: Any) -> Any:
        given = bound(name, args, kwargs)
        functions = _functions(what, [given.pop("f")], given.pop("args"))
        starts = Starts({k: given.pop(k) for k in ("a", "b")})
        full = given.pop("full_output")
        options = plain_options(what, given)

        def run(fs: Any, ends: Any) -> Any:
            root, found = real(name)(fs[0], **ends, **options, full_output=True)
            return root, found.iterations, found.function_calls, found.converged

        root, *others = _root(functions, starts, run, (((), "f64"), *_COUNTS), repr(options))
        return (root, _results(what, root, others)) if full else root


for _name in ("brentq", "brenth", "bisect", "ridder", "toms748"):
    _bracketed(_name)


def _results(what: str, root: Any, others: Sequence[Any]) -> Result:
    iterations, calls, converged = others
    return Result(what, root=root, iterations=iterations, function_calls=calls, converged=converged)


@shadow("scipy.optimize.root_scalar", of_functions=True)
def root_scalar(*args: Any, **kwargs: Any) -> Any:
    """`scipy.optimize.root_scalar`"""
    what = "scipy.optimize.root_scalar"
    given = bound("root_scalar", args, kwargs)
    f, slopes = _several(given)
    functions = _functions(what, [f, *slopes.values()], given.pop("args"))
    starts = Starts({k: given.pop(k) for k in ("bracket", "x0", "x1") if given[k] is not None})
    options = plain_options(what, {k: v for k, v in given.items() if v is not None})

    def run(fs: Any, begin: Any) -> Any:
        found = real("root_scalar")(fs[0], **dict(zip(slopes, fs[1:])), **begin, **options)
        return found.root, found.iterations, found.function_calls, found.converged

    root, *others = _root(functions, starts, run, (((), "f64"), *_COUNTS), f"{options!r} {list(slopes)}")
    return _results(what, root, others)


def _several(given: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The function of `root_scalar`, and its slopes by name; True for those that the function gives too."""
    f = given.pop("f")
    slopes = {k: given.pop(k) for k in ("fprime", "fprime2")}
    given_by = [k for k, g in slopes.items() if g is not None and not callable(g) and g]
    slopes = {k: g for k, g in slopes.items() if callable(g)}
    if not given_by:
        return f, slopes
    # A function that gives its second slope gives the first too.
    names = ("fprime", "fprime2") if "fprime2" in given_by else ("fprime",)
    return _part(f, 0), {name: _part(f, k) for k, name in enumerate(names, 1)} | slopes


def _part(f: Callable[..., Any], k: int) -> Callable[..., Any]:
    """Of a function with several results, one."""
    return lambda *args: inlined(f)(*args)[k]


@shadow("scipy.optimize.newton", of_functions=True)
def newton(*args: Any, **kwargs: Any) -> Any:
    """`scipy.optimize.newton`"""
    what = "scipy.optimize.newton"
    given = bound("newton", args, kwargs)
    slopes = {k: given.pop(k) for k in ("fprime", "fprime2")}
    slopes = {k: f for k, f in slopes.items() if f is not None}
    shape = np.shape(given["x0"])
    fs, full, others = [given.pop("func"), *slopes.values()], given.pop("full_output"), given.pop("args")
    if full and shape:
        raise refuse(f"{what} with full_output=True and several starts")
    functions = Functions(what, [(with_args(f, others), shape) for f in fs], shape or None)
    starts = Starts({k: given.pop(k) for k in ("x0", "x1") if given[k] is not None})
    options = plain_options(what, given)

    def run(fs: Any, begin: Any) -> Any:
        ways = dict(zip(slopes, fs[1:]))
        if shape:
            return (real("newton")(fs[0], **ways, **begin, **options),)
        root, found = real("newton")(fs[0], **ways, **begin, **options, full_output=True)
        return root, found.iterations, found.function_calls, found.converged

    kinds = ((shape, "f64"), *(() if shape else _COUNTS))
    root, *counts = _root(functions, starts, run, kinds, f"{options!r} {list(slopes)}")
    return (root, _results(what, root, counts)) if full else root


@shadow("scipy.optimize.root", of_functions=True)
def root(*args: Any, **kwargs: Any) -> Any:
    """`scipy.optimize.root`"""
    what = "scipy.optimize.root"
    given = bound("root", args, kwargs)
    x0 = shaped(given.pop("x0"), None)
    shape = np.shape(x0) or (1,)
    fun, slope, others = given.pop("fun"), given.pop("jac"), given.pop("args")
    if not callable(slope) and slope:
        fun, slope = _part(fun, 0), _part(fun, 1)
    fs: list[Any] = [(with_args(fun, others), shape)]
    if callable(slope):
        fs.append((with_args(slope, others), None))
    functions = Functions(what, fs, shape)
    options = plain_options(what, {k: v for k, v in given.items() if v is not None})

    def run(fs: Any, begin: Any) -> Any:
        found = real("root")(fs[0], begin["x0"], jac=fs[1] if len(fs) > 1 else None, **options)
        return found.x, found.get("nfev", found.get("nit", 0)), found.success

    kinds = ((shape, "f64"), ((), "i64"), ((), "bool"))
    x, calls, success = _root(functions, Starts({"x0": x0}), run, kinds, repr(options))
    return Result(what, x=x, fun=replay(functions.graphs[0], [x, *functions.captured])[0][0], success=success,
                  **({"nfev": calls} if given["method"] in ("hybr", "lm", "df-sane") else {"nit": calls}))  # fmt: skip


def _of_shape(what: str, f: Callable[[Any], Any], shape: tuple[int, ...]) -> Callable[[Any], Any]:
    """`f`, whose results have to have this shape."""

    def call(x: Any) -> Any:
        y = shaped(f(x), None)
        if y.shape != shape:
            raise refuse(f"{what} of a function whose result has the shape {y.shape} and its argument {shape}")
        return y

    return call


def _nonlinear(name: str) -> None:
    what = f"scipy.optimize.{name}"

    @shadow(what, of_functions=True)
    def find(*args: Any, **kwargs: Any) -> Any:
        given = bound(name, args, kwargs)
        given |= given.pop("kw", {})
        f, x0 = given.pop("F"), shaped(given.pop("xin"), None)
        shape = np.shape(x0)
        functions = Functions(what, [(_of_shape(what, with_args(f, ()), shape), shape)], shape)
        options = plain_options(what, {k: v for k, v in given.items() if v is not None})

        def run(fs: Any, begin: Any) -> Any:
            return (real(name)(fs[0], begin["x0"], **options),)

        return _root(functions, Starts({"x0": x0}), run, ((shape, "f64"),), repr(options))[0]


for _name in ("anderson", "broyden1", "broyden2", "diagbroyden", "excitingmixing", "linearmixing", "newton_krylov"):
    _nonlinear(_name)


@shadow("scipy.optimize.fixed_point", of_functions=True)
def fixed_point(*args: Any, **kwargs: Any) -> Any:
    """`scipy.optimize.fixed_point`"""
    what = "scipy.optimize.fixed_point"
    given = bound("fixed_point", args, kwargs)
    x0 = shaped(given.pop("x0"), None)
    shape = np.shape(x0)
    # SciPy hands an array to the function in any case.
    functions = Functions(what, [(with_args(given.pop("func"), given.pop("args")), shape)], shape)
    options = plain_options(what, given)

    def run(fs: Any, begin: Any) -> Any:
        return (real("fixed_point")(fs[0], begin["x0"], **options),)

    ways = functools.partial(solution, equation=_gap(functions.graphs[0]), what=what)
    starts = Starts({"x0": x0})
    return called(functions, starts, run, ((shape, "f64"),), repr(options), ways)[0]


def _gap(graph: Graph) -> Graph:
    """f(x) - x"""
    return build(lambda x, *rest: [subtract(replay(graph, [x, *rest])[0][0], x)], graph.avals)
