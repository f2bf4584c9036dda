"""Implicit functions, `tg.implicit`: solutions of equations, with derivatives by the implicit function theorem.

The steps of the solver are not differentiated. If r(x, v) = 0 defines x(v), then r_x dx + r_v dv = 0: one linear system
at the solution, for any solver and any number of steps.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from tracegrad import scipy, tree
from tracegrad.runtime.dispatch.closure_families import remembered
from tracegrad.scipy.ravel_pytree import Vector, array_if_list, joined
from tracegrad.scipy.vector_functions import of_scipy
from tracegrad.solvers.implicit import gradient_of, solution
from tracegrad.solvers.solver_node import Functions, Starts, called
from tracegrad.trace.builder.builder import current_trace
from tracegrad.transform_support import require_callable, standing_for
from tracegrad.transforms.flat_function import inlined

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Operand
    from tracegrad.typing import Array


__all__ = ["fixed_point", "minimizer", "root"]

Function = Callable[..., Any]


def root(f: Function, *, solver: Function | None = None, **options: Any) -> Any:
    """Return the compiled function `(x0, *args) -> x` with `f(x, *args) = 0`, differentiable in `args` to any order.

    Parameters
    ----------
    f : callable
        Residual `f(x, *args)`, with as many elements as `x`.
    solver : callable, optional
        Function `solver(x0, *args) -> x` of ndarrays and numbers, which need not be traceable. Default:
        `scipy.optimize.root`.
    **options
        Options of the default solver.

    Returns
    -------
    callable
        Function of the start `x0`, an array or a pytree of arrays, and of `args`; `x` has the structure and shapes of
        `x0`.

    Raises
    ------
    TypeError
        If `f` or `solver` is not a function.
    ShapeError
        If `solver` returns another structure or shape than `x0` has.

    Notes
    -----
    Every result of the solver counts as a solution; use `tracegrad.scipy.root` to ask for `success`.

    Examples
    --------
    >>> import tracegrad as tg
    >>> cube_root = root(lambda x, a: x**3 - a)
    >>> print(f"{cube_root(1.0, 8.0):.6f} {tg.grad(cube_root, argnums=1)(1.0, 8.0):.6f}")
    2.000000 0.083333
    """
    return _transform("root", f, solver, options, lambda x0, args: scipy.root(f, x0, args, **options).x, f)


def fixed_point(f: Function, *, solver: Function | None = None, **options: object) -> Any:
    """Return the function `(x0, *args) -> x` with `f(x, *args) = x`, differentiable in `args` to any order.

    Parameters
    ----------
    f : callable
        Function `f(x, *args)` with the structure and shapes of `x`.
    solver : callable, optional
        As for `root`. Default: `scipy.optimize.fixed_point`.
    **options
        Options of the default solver.

    Returns
    -------
    callable
        Function of `x0` and `args`, as for `root`.

    Raises
    ------
    TypeError, ShapeError
        As for `root`.

    Examples
    --------
    >>> import numpy as np
    >>> import tracegrad as tg
    >>> cosine = fixed_point(lambda x, a: np.cos(a * x), xtol=1e-12)
    >>> print(f"{cosine(0.5, 1.0):.6f} {tg.grad(cosine, argnums=1)(0.5, 1.0):.6f}")
    0.739085 -0.297474
    """

    def solve(x0: Any, args: tuple[Array, ...]) -> Any:
        vector = Vector("tracegrad.implicit.fixed_point", "x0", x0)

        def flat(v: Array) -> Any:
            return vector.pack(inlined(f)(vector.unpack(v), *args))

        return vector.unpack(of_scipy("optimize.fixed_point")(flat, vector.pack(x0), **options))

    def difference(x: dict[str, Operand], *args: Operand) -> Any:
        return tree.map(lambda new, old: new - old, inlined(f)(x, *args), x)

    return _transform("fixed_point", f, solver, options, solve, difference)


def minimizer(f: Function, *, solver: Function | None = None, **options: Any) -> Any:
    """Return the function `(x0, *args) -> x` to the minimum of `f(x, *args)`, differentiable in `args` to any order.

    Parameters
    ----------
    f : callable
        Scalar function `f(x, *args)`.
    solver : callable, optional
        As for `root`; the minimum is then where the gradient is zero. Default: `tracegrad.scipy.minimize`.
    **options
        Options of the default solver, bounds and constraints among them.

    Returns
    -------
    callable
        Function of `x0` and `args`, as for `root`.

    Raises
    ------
    TypeError, ShapeError
        As for `root`.

    Examples
    --------
    >>> import numpy as np
    >>> import tracegrad as tg
    >>> ridge = minimizer(lambda w, a: np.sum((w - 1.0) ** 2) + a * np.sum(w**2))
    >>> print(ridge(np.zeros(2), 1.0).round(6), tg.jacfwd(ridge, argnums=1)(np.zeros(2), 1.0).round(6))
    [0.5 0.5] [-0.25 -0.25]
    """
    return _transform("minimizer", f, solver, options, lambda x0, args: scipy.minimize(f, x0, args, **options).x, None)


def _transform(
    name: str, f: Function, solver: Function | None, options: dict[str, Any], solve: Function, equation: Function | None
) -> Any:
    """Return the function to a solution, by `solve(x0, args)` or by the user's solver of `equation`.

    Without `equation`, the equation is that the gradient of `f` is zero.
    """
    require_callable(f, name)
    api_name = f"tracegrad.implicit.{name}"

    def body(x0: Any, *args: Array) -> Any:
        inputs = array_if_list(x0)
        return solve(inputs, args) if solver is None else _solved(api_name, f, equation, inputs, args, solver)

    def make() -> Any:
        return standing_for(f, body, name)

    if solver is None:
        try:
            return remembered(f, ("implicit", name, tuple(sorted(options.items()))), make)
        except TypeError:  # options that cannot be hashed
            return make()
    require_callable(solver, f"{name}: solver=")
    return make()


def _solved(
    api_name: str,
    f: Function,
    equation: Function | None,
    x0: Any,
    args: tuple[Array, ...],
    solver: Function,
) -> Any:
    vector = Vector(api_name, "x0", x0)
    trace = current_trace()
    if trace is None:  # the call runs again as plain Python, because an op has raised
        return vector.unpack(vector.pack(solver(x0, *args)))
    solver = trace.world.real_of(solver)  # the solver runs at each call, outside the trace

    def flat(v: Operand) -> Any:
        result = inlined(f if equation is None else equation)(vector.unpack(v), *args)
        return result if equation is None else joined(tree.leaves(result))

    def run(_: Any, start: dict[str, Any]) -> tuple[Any]:
        return (vector.pack(solver(start["x0"], *start["args"])),)

    shape = (vector.size,)
    functions = Functions(api_name, [(flat, () if equation is None else shape)], shape)
    graph = functions.graphs[0]
    make_rule = partial(solution, equation=gradient_of(graph) if equation is None else graph, api_name=api_name)
    starts = Starts({"x0": x0, "args": args})
    (x,) = called(functions, starts, run, ((shape, "f64"),), f"{solver!r} {id(solver)}", make_rule)
    return vector.unpack(x)
