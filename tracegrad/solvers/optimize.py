"""`scipy.optimize`: the modules that have its shadows, and what is refused by name."""

from __future__ import annotations

from typing import Any

from tracegrad.numpy_api.registry import refuse
from tracegrad.scipy_api.registry import shadow
from tracegrad.solvers import fmin as old_names
from tracegrad.solvers import global_minimizers as everywhere
from tracegrad.solvers import least_squares as fits
from tracegrad.solvers import linprog as linear
from tracegrad.solvers import minimize as minima
from tracegrad.solvers import minimize_scalar as scalar
from tracegrad.solvers import roots, rosenbrock

__all__ = ["everywhere", "fits", "linear", "minima", "old_names", "roots", "rosenbrock", "scalar"]

_INSTEAD = {
    "approx_fprime": "use tracegrad.grad", "check_grad": "use tracegrad.grad", "bracket": "use minimize_scalar",
    "milp": "its solution does not move", "quadratic_assignment": "its solution does not move",
}  # fmt: skip


def _refused(name: str, instead: str) -> None:
    @shadow(f"scipy.optimize.{name}", of_functions=True)
    def call(*args: Any, **kwargs: Any) -> Any:
        raise refuse(f"scipy.optimize.{name}", instead)


for _name, _instead in _INSTEAD.items():
    _refused(_name, _instead)
