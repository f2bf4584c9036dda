"""Modules with the shadows of `scipy.optimize`, and the functions that are refused by name."""

from __future__ import annotations

from typing import NoReturn

from tracegrad.numpy_api.registry import refuse
from tracegrad.scipy_api.registry import shadow
from tracegrad.solvers import (
    fmin,
    global_minimizers,
    least_squares,
    linprog,
    minimize,
    minimize_scalar,
    roots,
    rosenbrock,
)

__all__ = [
    "fmin",
    "global_minimizers",
    "least_squares",
    "linprog",
    "minimize",
    "minimize_scalar",
    "roots",
    "rosenbrock",
]

_INSTEAD = {
    "approx_fprime": "use tracegrad.grad",
    "check_grad": "use tracegrad.grad",
    "bracket": "use minimize_scalar",
    "milp": "its solution does not move",
    "quadratic_assignment": "its solution does not move",
}


def _refused(name: str, instead: str) -> None:
    @shadow(f"scipy.optimize.{name}", of_functions=True)
    def call(*args: object, **kwargs: object) -> NoReturn:
        raise refuse(f"scipy.optimize.{name}", instead)


for _name, _instead in _INSTEAD.items():
    _refused(_name, _instead)
