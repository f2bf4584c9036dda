"""Legacy names of `minimize`: `scipy.optimize.fmin` and the like."""

from __future__ import annotations

import numpy as np

from tracegrad.numpy_api.registry import refuse
from tracegrad.solvers.minimize import minimize
from tracegrad.solvers.scipy_function import SolverArguments, solver
from tracegrad.solvers.solver_node import SolverResult
from tracegrad.typing import Array

_FULL = ("x", "fun", "nfev", "njev", "status")
_SEARCH = {"epsilon": "eps", "maxiter": "maxiter", "c1": "c1", "c2": "c2", "disp": "disp"}

# By name: the method, a map of option names to the names in `minimize`, and the fields that full_output=True returns.
_METHODS: dict[str, tuple[str, dict[str, str], tuple[str, ...]]] = {
    "fmin": (
        "Nelder-Mead",
        {
            "xtol": "xatol",
            "ftol": "fatol",
            "maxfun": "maxfev",
            "maxiter": "maxiter",
            "initial_simplex": "initial_simplex",
            "disp": "disp",
        },
        ("x", "fun", "nit", "nfev", "status"),
    ),
    "fmin_powell": (
        "Powell",
        {"maxfun": "maxfev", **{k: k for k in ("xtol", "ftol", "maxiter", "direc", "disp")}},
        (),
    ),
    "fmin_bfgs": ("BFGS", {**_SEARCH, **{k: k for k in ("gtol", "norm", "xrtol", "hess_inv0")}}, ()),
    "fmin_cg": ("CG", {**_SEARCH, **{k: k for k in ("gtol", "norm")}}, _FULL),
    "fmin_ncg": ("Newton-CG", {**_SEARCH, "avextol": "xtol"}, (*_FULL[:4], "nhev", "status")),
}


def _minimum(inputs: SolverArguments, method: str, names: dict[str, str], **extra: object) -> SolverResult:
    """Call `minimize` with the arguments of a legacy function; `names` maps the names of options.

    `extra` are further options, and the constraints.
    """
    for name in ("retall", "callback"):
        if inputs.get(name):
            raise refuse(f"the argument {name}= of {inputs.api_name}")
    jac = inputs.get("fprime")
    if jac is not None and not callable(jac):
        raise refuse(f"{inputs.api_name} with fprime={jac!r}")
    if "approx_grad" in inputs:  # without fprime, the function returns its gradient too
        jac = None if inputs["approx_grad"] else True if jac is None else jac
    constraints, bounds = extra.pop("constraints", ()), inputs.get("bounds")
    options = {new: inputs[old] for old, new in names.items()} | extra
    result: SolverResult = minimize(
        inputs["f"] if "f" in inputs else inputs["func"],
        inputs["x0"],
        inputs["args"],
        method,
        jac,
        inputs.get("fhess"),
        inputs.get("fhess_p"),
        bounds=None if bounds is None or not len(bounds) else bounds,
        constraints=constraints,
        options={k: v for k, v in options.items() if v is not None},
    )
    return result


def _minimizer(name: str) -> None:
    method, names, fields = _METHODS[name]

    @solver(f"optimize.{name}")
    def find(inputs: SolverArguments) -> object:
        full = inputs["full_output"]
        if full and not fields:
            raise refuse(f"the argument full_output= of {inputs.api_name}", "use scipy.optimize.minimize")
        result = _minimum(inputs, method, names)
        return tuple([result[k] for k in fields]) if full else result.x


for _name in _METHODS:
    _minimizer(_name)


@solver("optimize.fmin_l_bfgs_b")
def fmin_l_bfgs_b(inputs: SolverArguments) -> tuple[object, ...]:
    """`scipy.optimize.fmin_l_bfgs_b`"""
    names = {"m": "maxcor", "pgtol": "gtol", "epsilon": "eps", **{k: k for k in ("maxfun", "maxiter", "maxls")}}
    result = _minimum(inputs, "L-BFGS-B", names, ftol=inputs["factr"] * np.finfo(float).eps)
    facts = SolverResult(inputs.api_name, funcalls=result.nfev, nit=result.nit, warnflag=result.status)
    return result.x, result.fun, facts


@solver("optimize.fmin_tnc")
def fmin_tnc(inputs: SolverArguments) -> tuple[object, ...]:
    """`scipy.optimize.fmin_tnc`"""
    same = ("scale", "offset", "maxCGit", "maxfun", "eta", "stepmx", "accuracy", "ftol", "xtol", "rescale")
    names = {"epsilon": "eps", "pgtol": "gtol", "fmin": "minfev", **{k: k for k in same}}
    result = _minimum(inputs, "TNC", names)
    return result.x, result.nfev, result.status


@solver("optimize.fmin_slsqp")
def fmin_slsqp(inputs: SolverArguments) -> object:
    """`scipy.optimize.fmin_slsqp`"""
    if inputs["full_output"]:
        raise refuse(f"the argument full_output= of {inputs.api_name}", "use scipy.optimize.minimize")
    constraints = []
    for kind in ("eq", "ieq"):
        each = {"type": "eq" if kind == "eq" else "ineq", "args": inputs["args"]}
        constraints += [each | {"fun": c} for c in inputs[f"{kind}cons"]]
        if inputs[f"f_{kind}cons"] is not None:
            derivative = inputs[f"fprime_{kind}cons"]
            constraints.append(
                each | {"fun": inputs[f"f_{kind}cons"]} | ({} if derivative is None else {"jac": derivative})
            )
    talk = inputs["iprint"] if inputs["disp"] is None else inputs["disp"]
    names = {"iter": "maxiter", "acc": "ftol", "epsilon": "eps"}
    return _minimum(inputs, "SLSQP", names, constraints=tuple(constraints), iprint=talk, disp=talk != 0).x


@solver("optimize.fmin_cobyla")
def fmin_cobyla(inputs: SolverArguments) -> Array:
    """`scipy.optimize.fmin_cobyla`"""
    each = inputs["cons"] if isinstance(inputs["cons"], list | tuple) else (inputs["cons"],)
    others = inputs["args"] if inputs["consargs"] is None else inputs["consargs"]
    constraints = tuple([{"type": "ineq", "fun": c, "args": others} for c in each])
    names = {"rhobeg": "rhobeg", "rhoend": "tol", "maxfun": "maxiter", "catol": "catol"}
    result: Array = _minimum(inputs, "COBYLA", names, constraints=constraints).x
    return result
