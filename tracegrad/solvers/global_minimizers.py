"""Global minimizers of `scipy.optimize`, differentiated like any minimum.

Random numbers are drawn as in SciPy: from the integer seed `rng=`, or without a seed at each call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracegrad.numpy_api.registry import refuse
from tracegrad.scipy_api.registry import shadow
from tracegrad.solvers.minimize import (
    Objective,
    begin,
    constraints_of,
    ends,
    facts_of,
    limits_of,
    minimum,
    number,
    refuse_unless,
)
from tracegrad.solvers.roots import bound, real, with_args
from tracegrad.solvers.solver_node import Functions, SolverResult, SolverRule, Starts, called, plain_options

__all__: list[str] = []

_COUNTS = {
    "differential_evolution": ("nfev", "nit", "success"),
    "direct": ("nfev", "nit", "status", "success"),
    "dual_annealing": ("nfev", "nit", "njev", "nhev", "status", "success"),
    "shgo": ("nfev", "nit", "success"),
    "basinhopping": ("nfev", "nit", "njev", "success"),
}
# Supported values of arguments that are functions, or that change how the objective is called.
_PLAIN: dict[str, dict[str, Any]] = {
    "differential_evolution": {"callback": None, "workers": 1, "integrality": None, "vectorized": False},
    "direct": {"callback": None},
    "dual_annealing": {"callback": None},
    "shgo": {"callback": None, "workers": 1},
    "basinhopping": {"callback": None, "take_step": None, "accept_test": None},
}


def _public_result(name: str, result: SolverResult) -> SolverResult:
    return SolverResult(f"scipy.optimize.{name}", **{k: result[k] for k in ("x", "fun", *_COUNTS[name])})


def _bounded(name: str) -> None:
    api_name = f"scipy.optimize.{name}"

    @shadow(api_name, of_functions=True)
    def find(*args: Any, **kwargs: Any) -> Any:
        inputs = bound(name, args, kwargs)
        refuse_unless(api_name, inputs, **_PLAIN[name])
        limits = inputs.pop("bounds")
        shape = np.shape(limits.lb) if hasattr(limits, "lb") else (len(limits),)
        derivatives = Objective(api_name, inputs.pop("func"), inputs.pop("args"), {}, shape)
        constraints = constraints_of(api_name, inputs.pop("constraints", None))
        start = ends(limits, shape)
        if inputs.get("x0") is not None:
            start["x0"] = begin(api_name, inputs.pop("x0"))[0]
        options = plain_options(api_name, {k: v for k, v in inputs.items() if v is not None})

        def run(fs: Any, start: Any, result: Any) -> Any:
            extra = {"constraints": result} if result else {}
            extra |= {"x0": start["x0"]} if "x0" in start else {}
            bounds = list(zip(start["low"], start["high"]))
            return facts_of(real(name)(number(fs[0]), bounds, **extra, **options))

        return _public_result(name, minimum(api_name, derivatives, start, constraints, run, repr(options), shape))


for _name in ("differential_evolution", "direct", "dual_annealing", "shgo"):
    _bounded(_name)


@shadow("scipy.optimize.basinhopping", of_functions=True)
def basinhopping(*args: Any, **kwargs: Any) -> Any:
    """`scipy.optimize.basinhopping`"""
    api_name = "scipy.optimize.basinhopping"
    inputs = bound("basinhopping", args, kwargs)
    refuse_unless(api_name, inputs, **_PLAIN["basinhopping"])
    x0, shape = begin(api_name, inputs.pop("x0"))
    local = dict(inputs.pop("minimizer_kwargs") or {})
    derivatives = Objective(api_name, inputs.pop("func"), local.pop("args", ()), local, shape)
    limits, constraints = local.pop("bounds", None), constraints_of(api_name, local.pop("constraints", None))
    options = plain_options(api_name, {k: v for k, v in inputs.items() if v is not None})
    local = plain_options(api_name, local)
    start = {"x0": x0} | (ends(limits, shape) if limits is not None else {})

    def run(fs: Any, start: Any, output: Any) -> Any:
        extra = local | derivatives.to_scipy(fs) | ({"constraints": output} if output else {})
        result = limits_of(start)
        extra |= {} if result is None else {"bounds": result}
        return facts_of(real("basinhopping")(number(fs[0]), start["x0"], minimizer_kwargs=extra, **options))

    result = minimum(api_name, derivatives, start, constraints, run, f"{options!r} {local!r}", shape)
    return _public_result("basinhopping", result)


@shadow("scipy.optimize.brute", of_functions=True)
def brute(*args: Any, **kwargs: Any) -> Any:
    """`scipy.optimize.brute`; with `finish=None`, a point of the grid, which has no derivative."""
    api_name = "scipy.optimize.brute"
    inputs = bound("brute", args, kwargs)
    refuse_unless(api_name, inputs, full_output=0, workers=1)
    finish, ranges = inputs.pop("finish"), inputs.pop("ranges")
    finish = getattr(finish, "__wrapped__", finish)
    if finish not in (None, real("fmin")):
        raise refuse(f"{api_name} with finish={finish!r}", "give None, or leave it out, and go on with scipy.optimize")
    shape = (len(ranges),)
    rows: Sequence[Any] = [(x.start, x.stop, x.step) if isinstance(x, slice) else tuple(x) for x in ranges]
    start = {f"range {k}": row for k, row in enumerate(rows)}
    options = plain_options(api_name, {k: v for k, v in inputs.items() if k not in ("func", "args") and v is not None})
    text = f"{options!r} {finish is None} {[isinstance(x, slice) for x in ranges]}"

    def run(fs: Any, start: Any, result: Any = ()) -> Any:
        each = [slice(*r) if isinstance(x, slice) else r for x, r in zip(ranges, start.values())]
        x = real("brute")(number(fs[0]), tuple(each), finish=finish, **options)
        return np.reshape(x, shape), 0, 0, 0, 0, 0, True

    derivatives = Objective(api_name, inputs["func"], inputs["args"], {}, shape)
    if finish is not None:
        return minimum(api_name, derivatives, start, (), run, text, shape).x
    functions = Functions(api_name, [(with_args(inputs["func"], inputs["args"]), ())], shape)
    (x,) = called(functions, Starts(start), lambda fs, s: run(fs, s)[:1], ((shape, "f64"),), text, _still)
    return x[0] if shape == (1,) else x


def _still(name: str) -> SolverRule:
    """Return the derivative rule of a result without derivatives."""
    return SolverRule(name, dict.fromkeys(("pull", "push"), lambda *_: {}))
