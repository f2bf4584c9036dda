"""Legacy names of `minimize`: `scipy.optimize.fmin` and the like."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracegrad.numpy_api.registry import refuse
from tracegrad.solvers.minimize import minimize
from tracegrad.solvers.scipy_function import SolverArguments, solver
from tracegrad.solvers.solver_node import SolverResult

__all__: list[str] = []

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
        },
        ("x", "fun", "nit", "nfev", "status"),
    ),
    "fmin_powell": (
        "Powell",
        {"xtol": "xtol", "ftol": "ftol", "maxfun": "maxfev", "maxiter": "maxiter", "direc": "direc"},
        (),
    ),
    "fmin_bfgs": (
        "BFGS",
        {"epsilon": "eps", **{k: k for k in ("gtol", "norm", "maxiter", "xrtol", "c1", "c2", "hess_inv0")}},
        (),
    ),
    "fmin_cg": (
        "CG",
        {"epsilon": "eps", **{k: k for k in ("gtol", "norm", "maxiter", "c1", "c2")}},
        ("x", "fun", "nfev", "njev", "status"),
    ),
    "fmin_ncg": (
        "Newton-CG",
        {"epsilon": "eps", "avextol": "xtol", "maxiter": "maxiter", "c1": "c1", "c2": "c2"},
        ("x", "fun", "nfev", "njev", "nhev", "status"),
    ),
}


def _refuse_unusual(inputs: SolverArguments) -> None:
    for name in ("retall", "callback"):
        if inputs.get(name):
            raise refuse(f"the argument {name}= of {inputs.api_name}")
    derivative = inputs.get("fprime")
    if derivative is not None and not callable(derivative):
        raise refuse(f"{inputs.api_name} with fprime={derivative!r}")


def _minimizer(name: str) -> None:
    method, names, facts = _METHODS[name]

    @solver(f"optimize.{name}")
    def find(inputs: SolverArguments) -> Any:
        _refuse_unusual(inputs)
        full = inputs["full_output"]
        if full and not facts:
            raise refuse(f"the argument full_output= of {inputs.api_name}", "use scipy.optimize.minimize")
        options = {new: inputs[old] for old, new in names.items()} | {"disp": inputs["disp"]}
        options = {k: v for k, v in options.items() if v is not None}
        f = inputs["f"] if "f" in inputs else inputs["func"]
        result = minimize(
            f,
            inputs["x0"],
            inputs["args"],
            method,
            inputs.get("fprime"),
            inputs.get("fhess"),
            inputs.get("fhess_p"),
            options=options,
        )
        return tuple([result[k] for k in facts]) if full else result.x


for _name in _METHODS:
    _minimizer(_name)


def _jac_argument(inputs: dict[str, Any]) -> Any:
    """Return `jac` of `minimize`: None for differences, and True if the function returns its gradient too."""
    if inputs["approx_grad"]:
        return None
    return True if inputs["fprime"] is None else inputs["fprime"]


@solver("optimize.fmin_l_bfgs_b")
def fmin_l_bfgs_b(inputs: SolverArguments) -> Any:
    """`scipy.optimize.fmin_l_bfgs_b`"""
    _refuse_unusual(inputs)
    names = {
        "m": "maxcor",
        "pgtol": "gtol",
        "epsilon": "eps",
        "maxfun": "maxfun",
        "maxiter": "maxiter",
        "maxls": "maxls",
    }
    options = {new: inputs[old] for old, new in names.items()} | {"ftol": inputs["factr"] * np.finfo(float).eps}
    result = minimize(
        inputs["func"],
        inputs["x0"],
        inputs["args"],
        "L-BFGS-B",
        _jac_argument(inputs),
        bounds=inputs["bounds"],
        options=options,
    )
    facts = SolverResult(inputs.api_name, funcalls=result.nfev, nit=result.nit, warnflag=result.status)
    return result.x, result.fun, facts


@solver("optimize.fmin_tnc")
def fmin_tnc(inputs: SolverArguments) -> Any:
    """`scipy.optimize.fmin_tnc`"""
    _refuse_unusual(inputs)
    names = {
        "epsilon": "eps",
        "pgtol": "gtol",
        "fmin": "minfev",
        **{
            k: k
            for k in ("scale", "offset", "maxCGit", "maxfun", "eta", "stepmx", "accuracy", "ftol", "xtol", "rescale")
        },
    }
    options = {new: inputs[old] for old, new in names.items()}
    options = {k: v for k, v in options.items() if v is not None}
    result = minimize(
        inputs["func"],
        inputs["x0"],
        inputs["args"],
        "TNC",
        _jac_argument(inputs),
        bounds=inputs["bounds"],
        options=options,
    )
    return result.x, result.nfev, result.status


@solver("optimize.fmin_slsqp")
def fmin_slsqp(inputs: SolverArguments) -> Any:
    """`scipy.optimize.fmin_slsqp`"""
    _refuse_unusual(inputs)
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
    options = {
        "maxiter": inputs["iter"],
        "ftol": inputs["acc"],
        "eps": inputs["epsilon"],
        "iprint": talk,
        "disp": talk != 0,
    }
    bounds = inputs["bounds"] if len(inputs["bounds"]) else None
    return minimize(
        inputs["func"],
        inputs["x0"],
        inputs["args"],
        "SLSQP",
        inputs["fprime"],
        bounds=bounds,
        constraints=tuple(constraints),
        options=options,
    ).x


@solver("optimize.fmin_cobyla")
def fmin_cobyla(inputs: SolverArguments) -> Any:
    """`scipy.optimize.fmin_cobyla`"""
    _refuse_unusual(inputs)
    each = inputs["cons"] if isinstance(inputs["cons"], list | tuple) else (inputs["cons"],)
    others = inputs["args"] if inputs["consargs"] is None else inputs["consargs"]
    constraints = tuple([{"type": "ineq", "fun": c, "args": others} for c in each])
    options = {
        "rhobeg": inputs["rhobeg"],
        "tol": inputs["rhoend"],
        "maxiter": inputs["maxfun"],
        "catol": inputs["catol"],
    }
    return minimize(inputs["func"], inputs["x0"], inputs["args"], "COBYLA", constraints=constraints, options=options).x
