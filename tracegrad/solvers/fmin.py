"""`scipy.optimize.fmin` and its kin: `minimize` by the old names, as in SciPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracegrad.numpy_api.registry import refuse
from tracegrad.scipy_api.registry import shadow
from tracegrad.solvers.minimize import minimize
from tracegrad.solvers.roots import bound
from tracegrad.solvers.solver_node import Result

__all__: list[str] = []

# By name: the method, its options that have another name in `minimize`, and what full_output=True gives.
_METHODS: dict[str, tuple[str, dict[str, str], tuple[str, ...]]] = {
    "fmin": ("Nelder-Mead", {"xtol": "xatol", "ftol": "fatol", "maxfun": "maxfev", "maxiter": "maxiter",
                             "initial_simplex": "initial_simplex"}, ("x", "fun", "nit", "nfev", "status")),
    "fmin_powell": ("Powell", {"xtol": "xtol", "ftol": "ftol", "maxfun": "maxfev", "maxiter": "maxiter",
                               "direc": "direc"}, ()),
    "fmin_bfgs": ("BFGS", {"epsilon": "eps", **{k: k for k in (
        "gtol", "norm", "maxiter", "xrtol", "c1", "c2", "hess_inv0")}}, ()),
    "fmin_cg": ("CG", {"epsilon": "eps", **{k: k for k in ("gtol", "norm", "maxiter", "c1", "c2")}},
                ("x", "fun", "nfev", "njev", "status")),
    "fmin_ncg": ("Newton-CG", {"epsilon": "eps", "avextol": "xtol", "maxiter": "maxiter", "c1": "c1", "c2": "c2"},
                 ("x", "fun", "nfev", "njev", "nhev", "status")),
}  # fmt: skip


def _plain(what: str, given: dict[str, Any]) -> None:
    for name in ("retall", "callback"):
        if given.get(name):
            raise refuse(f"the argument {name}= of {what}")
    slope = given.get("fprime")
    if slope is not None and not callable(slope):
        raise refuse(f"{what} with fprime={slope!r}")


def _minimizer(name: str) -> None:
    method, names, facts = _METHODS[name]
    what = f"scipy.optimize.{name}"

    @shadow(what, of_functions=True)
    def find(*args: Any, **kwargs: Any) -> Any:
        given = bound(name, args, kwargs)
        _plain(what, given)
        full = given["full_output"]
        if full and not facts:
            raise refuse(f"the argument full_output= of {what}", "use scipy.optimize.minimize")
        options = {new: given[old] for old, new in names.items()} | {"disp": given["disp"]}
        options = {k: v for k, v in options.items() if v is not None}
        f = given["f"] if "f" in given else given["func"]
        found = minimize(f, given["x0"], given["args"], method, given.get("fprime"), given.get("fhess"),
                         given.get("fhess_p"), options=options)  # fmt: skip
        return tuple([found[k] for k in facts]) if full else found.x


for _name in _METHODS:
    _minimizer(_name)


def _slope(given: dict[str, Any]) -> Any:
    """`jac` of `minimize`: without a function for it and for differences, the function gives both."""
    if given["approx_grad"]:
        return None
    return True if given["fprime"] is None else given["fprime"]


@shadow("scipy.optimize.fmin_l_bfgs_b", of_functions=True)
def fmin_l_bfgs_b(*args: Any, **kwargs: Any) -> Any:
    """`scipy.optimize.fmin_l_bfgs_b`"""
    what = "scipy.optimize.fmin_l_bfgs_b"
    given = bound("fmin_l_bfgs_b", args, kwargs)
    _plain(what, given)
    names = {"m": "maxcor", "pgtol": "gtol", "epsilon": "eps", "maxfun": "maxfun", "maxiter": "maxiter",
             "maxls": "maxls"}  # fmt: skip
    options = {new: given[old] for old, new in names.items()} | {"ftol": given["factr"] * np.finfo(float).eps}
    found = minimize(given["func"], given["x0"], given["args"], "L-BFGS-B", _slope(given), bounds=given["bounds"],
                     options=options)  # fmt: skip
    facts = Result(what, funcalls=found.nfev, nit=found.nit, warnflag=found.status)
    return found.x, found.fun, facts


@shadow("scipy.optimize.fmin_tnc", of_functions=True)
def fmin_tnc(*args: Any, **kwargs: Any) -> Any:
    """`scipy.optimize.fmin_tnc`"""
    what = "scipy.optimize.fmin_tnc"
    given = bound("fmin_tnc", args, kwargs)
    _plain(what, given)
    names = {"epsilon": "eps", "pgtol": "gtol", "fmin": "minfev", **{k: k for k in (
        "scale", "offset", "maxCGit", "maxfun", "eta", "stepmx", "accuracy", "ftol", "xtol", "rescale")}}  # fmt: skip
    options = {new: given[old] for old, new in names.items()}
    options = {k: v for k, v in options.items() if v is not None}
    found = minimize(given["func"], given["x0"], given["args"], "TNC", _slope(given), bounds=given["bounds"],
                     options=options)  # fmt: skip
    return found.x, found.nfev, found.status


@shadow("scipy.optimize.fmin_slsqp", of_functions=True)
def fmin_slsqp(*args: Any, **kwargs: Any) -> Any:
    """`scipy.optimize.fmin_slsqp`"""
    what = "scipy.optimize.fmin_slsqp"
    given = bound("fmin_slsqp", args, kwargs)
    _plain(what, given)
    if given["full_output"]:
        raise refuse(f"the argument full_output= of {what}", "use scipy.optimize.minimize")
    constraints = []
    for kind in ("eq", "ieq"):
        each = {"type": "eq" if kind == "eq" else "ineq", "args": given["args"]}
        constraints += [each | {"fun": c} for c in given[f"{kind}cons"]]
        if given[f"f_{kind}cons"] is not None:
            slope = given[f"fprime_{kind}cons"]
            constraints.append(each | {"fun": given[f"f_{kind}cons"]} | ({} if slope is None else {"jac": slope}))
    talk = given["iprint"] if given["disp"] is None else given["disp"]
    options = {"maxiter": given["iter"], "ftol": given["acc"], "eps": given["epsilon"], "iprint": talk,
               "disp": talk != 0}  # fmt: skip
    bounds = given["bounds"] if len(given["bounds"]) else None
    return minimize(given["func"], given["x0"], given["args"], "SLSQP", given["fprime"], bounds=bounds,
                    constraints=tuple(constraints), options=options).x  # fmt: skip


@shadow("scipy.optimize.fmin_cobyla", of_functions=True)
def fmin_cobyla(*args: Any, **kwargs: Any) -> Any:
    """`scipy.optimize.fmin_cobyla`"""
    what = "scipy.optimize.fmin_cobyla"
    given = bound("fmin_cobyla", args, kwargs)
    _plain(what, given)
    each = given["cons"] if isinstance(given["cons"], list | tuple) else (given["cons"],)
    others = given["args"] if given["consargs"] is None else given["consargs"]
    constraints = tuple([{"type": "ineq", "fun": c, "args": others} for c in each])
    options = {"rhobeg": given["rhobeg"], "tol": given["rhoend"], "maxiter": given["maxfun"], "catol": given["catol"]}
    return minimize(given["func"], given["x0"], given["args"], "COBYLA", constraints=constraints, options=options).x
