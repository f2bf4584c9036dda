"""Bounds and constraints of SciPy's minimizers, as pytrees."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracegrad.errors import located
from tracegrad.scipy.ravel_pytree import Vector
from tracegrad.scipy.vector_functions import OfVector, ResidualFunction

__all__ = ["bounds_of", "constraints_of"]


def bounds_of(vector: Vector, bounds: Any) -> Any:
    """Convert bounds to SciPy's format for the elements of the vector.

    Bounds of an array already have SciPy's format. Bounds of a pytree are a pair of pytrees; ValueError otherwise.
    """
    if bounds is None or (vector.is_array and not hasattr(bounds, "lb")):
        return bounds
    from scipy.optimize import Bounds

    if vector.is_array:
        low, high, feasible = bounds.lb, bounds.ub, vector.spread(bounds.keep_feasible, 0.0) > 0
    elif isinstance(bounds, tuple | list) and len(bounds) == 2:
        (low, high), feasible = bounds, np.array(False)
    else:
        raise ValueError(located(f"{vector.api_name}: bounds for a pytree must be a pair (low, high), got {bounds!r}"))
    return Bounds(vector.spread(low, -np.inf), vector.spread(high, np.inf), feasible)


def constraints_of(vector: Vector, constraints: Any, with_hessian: bool) -> Any:
    """Convert constraints to SciPy's format, as functions of the vector.

    Missing Jacobians are derived and compiled, and missing Hessians too if the method uses Hessians.
    """
    if isinstance(constraints, dict) or hasattr(constraints, "lb"):
        return _constraint(vector, constraints, with_hessian)
    return [_constraint(vector, c, with_hessian) for c in constraints]


def _constraint(vector: Vector, constraint: Any, with_hessian: bool) -> object:
    if isinstance(constraint, dict):
        fun = ResidualFunction(constraint["fun"], vector)
        jac = constraint.get("jac")
        return {**constraint, "fun": fun, "jac": OfVector(jac, vector) if callable(jac) else fun.jacobian}
    if hasattr(constraint, "A"):
        if not vector.is_array:
            text = "a LinearConstraint is of one array; write a function, and give a NonlinearConstraint"
            raise TypeError(located(f"{vector.api_name}: {text}"))
        return constraint
    from scipy.optimize import BFGS, NonlinearConstraint

    fun = ResidualFunction(constraint.fun, vector)
    jac = OfVector(constraint.jac, vector) if callable(constraint.jac) else fun.jacobian
    hess = constraint.hess
    if callable(hess) and not isinstance(hess, BFGS):
        hess = OfVector(hess, vector)
    elif with_hessian and isinstance(hess, BFGS):  # SciPy's default
        hess = fun.weighted_hessian()
    return NonlinearConstraint(fun, constraint.lb, constraint.ub, jac, hess, constraint.keep_feasible)
