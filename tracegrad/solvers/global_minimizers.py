"""Global minimizers of `scipy.optimize`, differentiated like any minimum.

Random numbers are drawn as in SciPy: from the integer seed `rng=`, or without a seed at each call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracegrad.numpy_api.registry import refuse
from tracegrad.solvers.minimize import (
    Objective,
    begin,
    constraints_of,
    ends,
    facts_of,
    limits_of,
    minimum,
    number,
)
from tracegrad.solvers.scipy_function import SolverArguments, plain_options, scipy_function, solver, with_args
from tracegrad.solvers.solver_node import Functions, SolverResult, SolverRule, Starts, called

_COUNTS = {
    "differential_evolution": ("nfev", "nit", "success"),
    "direct": ("nfev", "nit", "status", "success"),
    "dual_annealing": ("nfev", "nit", "njev", "nhev", "status", "success"),
    "shgo": ("nfev", "nit", "success"),
    "basinhopping": ("nfev", "nit", "njev", "success"),
}
# Arguments that are functions, or that change how the objective is called; they must have their defaults.
_USUAL = {
    "differential_evolution": ("callback", "workers", "integrality", "vectorized"),
    "direct": ("callback",),
    "dual_annealing": ("callback",),
    "shgo": ("callback", "workers"),
}


def _public_result(name: str, result: SolverResult) -> SolverResult:
    return SolverResult(f"scipy.optimize.{name}", **{k: result[k] for k in ("x", "fun", *_COUNTS[name])})


def _bounded(name: str) -> None:
    @solver(f"optimize.{name}", *_USUAL[name])
    def find(inputs: SolverArguments) -> Any:
        api_name = inputs.api_name
        limits = inputs.pop("bounds")
        shape = np.shape(limits.lb) if hasattr(limits, "lb") else (len(limits),)
        derivatives = Objective(api_name, inputs.pop("func"), inputs.pop("args"), {}, shape)
        constraints = constraints_of(api_name, inputs.pop("constraints", None))
        start = ends(limits, shape)
        if inputs.get("x0") is not None:
            start["x0"] = begin(api_name, inputs.pop("x0"))[0]
        options = inputs.options()

        def run(fs: Any, start: Any, result: Any) -> Any:
            extra = {"constraints": result} if result else {}
            extra |= {"x0": start["x0"]} if "x0" in start else {}
            bounds = list(zip(start["low"], start["high"]))
            return facts_of(inputs.real(number(fs[0]), bounds, **extra, **options))

        return _public_result(name, minimum(api_name, derivatives, start, constraints, run, repr(options), shape))


for _name in ("differential_evolution", "direct", "dual_annealing", "shgo"):
    _bounded(_name)


@solver("optimize.basinhopping", "callback", "take_step", "accept_test")
def basinhopping(inputs: SolverArguments) -> SolverResult:
    """`scipy.optimize.basinhopping`"""
    api_name = inputs.api_name
    x0, shape = begin(api_name, inputs.pop("x0"))
    local = dict(inputs.pop("minimizer_kwargs") or {})
    derivatives = Objective(api_name, inputs.pop("func"), local.pop("args", ()), local, shape)
    limits, constraints = local.pop("bounds", None), constraints_of(api_name, local.pop("constraints", None))
    options = inputs.options()
    local = plain_options(api_name, local)
    start = {"x0": x0} | (ends(limits, shape) if limits is not None else {})

    def run(fs: Any, start: Any, output: Any) -> Any:
        extra = local | derivatives.to_scipy(fs) | ({"constraints": output} if output else {})
        result = limits_of(start)
        extra |= {} if result is None else {"bounds": result}
        return facts_of(inputs.real(number(fs[0]), start["x0"], minimizer_kwargs=extra, **options))

    result = minimum(api_name, derivatives, start, constraints, run, f"{options!r} {local!r}", shape)
    return _public_result("basinhopping", result)


@solver("optimize.brute", "full_output", "workers")
def brute(inputs: SolverArguments) -> Any:
    """`scipy.optimize.brute`; with `finish=None`, a point of the grid, which has no derivative."""
    api_name = inputs.api_name
    finish, ranges = inputs.pop("finish"), inputs.pop("ranges")
    finish = getattr(finish, "__wrapped__", finish)
    if finish not in (None, scipy_function("optimize.fmin")):
        raise refuse(f"{api_name} with finish={finish!r}", "give None, or leave it out, and go on with scipy.optimize")
    shape = (len(ranges),)
    rows: Sequence[Any] = [(x.start, x.stop, x.step) if isinstance(x, slice) else tuple(x) for x in ranges]
    start = {f"range {k}": row for k, row in enumerate(rows)}
    func, others = inputs.pop("func"), inputs.pop("args")
    options = inputs.options()
    text = f"{options!r} {finish is None} {[isinstance(x, slice) for x in ranges]}"

    def run(fs: Any, start: Any, result: object = ()) -> Any:
        each = [slice(*r) if isinstance(x, slice) else r for x, r in zip(ranges, start.values())]
        x = inputs.real(number(fs[0]), tuple(each), finish=finish, **options)
        return np.reshape(x, shape), 0, 0, 0, 0, 0, True

    derivatives = Objective(api_name, func, others, {}, shape)
    if finish is not None:
        return minimum(api_name, derivatives, start, (), run, text, shape).x
    functions = Functions(api_name, [(with_args(func, others), ())], shape)
    (x,) = called(functions, Starts(start), lambda fs, s: run(fs, s)[:1], ((shape, "f64"),), text, _still)
    return x[0] if shape == (1,) else x


def _still(name: str) -> SolverRule:
    """Return the derivative rule of a result without derivatives."""
    return SolverRule(name, dict.fromkeys(("pull", "push"), lambda *_: {}))
