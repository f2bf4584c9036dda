"""`scipy.optimize`: what has a shadow, and what is refused by name."""

from __future__ import annotations

from typing import Any

from tracegrad.numpy_api.registry import refuse
from tracegrad.scipy_api.registry import shadow
from tracegrad.solvers import fits, minima, roots

__all__ = ["fits", "minima", "roots"]

_INSTEAD = {
    "minimize": (
        "fmin", "fmin_bfgs", "fmin_cg", "fmin_l_bfgs_b", "fmin_ncg", "fmin_powell", "fmin_slsqp",
        "fmin_tnc", "fminbound", "brent", "golden", "basinhopping", "brute", "differential_evolution", "direct",
        "dual_annealing", "shgo",
    ),
    "least_squares": ("leastsq", "lsq_linear"),
    "root": ("anderson", "broyden1", "broyden2", "newton_krylov"),
}  # fmt: skip


def _refused(name: str, instead: str) -> None:
    @shadow(f"scipy.optimize.{name}", of_functions=True)
    def call(*args: Any, **kwargs: Any) -> Any:
        raise refuse(f"scipy.optimize.{name}", f"use scipy.optimize.{instead}")


for _instead, _names in _INSTEAD.items():
    for _name in _names:
        _refused(_name, _instead)
