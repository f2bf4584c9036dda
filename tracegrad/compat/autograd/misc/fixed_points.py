"""Fixed points with implicit derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracegrad import implicit

__all__ = ["fixed_point"]


def fixed_point(f: Callable[..., Any], a: Any, x0: Any, distance: Callable[..., Any], tol: float) -> Any:
    """Iterate `x = f(a)(x)` from `x0` until `distance(x, before) <= tol`; the result is differentiable in `a`.

    >>> newton = lambda a: lambda x: 0.5 * (x + a / x)
    >>> print(f"{fixed_point(newton, 2.0, 1.0, lambda x, y: abs(x - y), 1e-12):.6f}")
    1.414214
    """

    def solver(start: Any, a: Any) -> Any:
        step = f(a)
        x, before = step(start), start
        while distance(x, before) > tol:
            x, before = step(x), x
        return x

    return implicit.fixed_point(lambda x, a: f(a)(x), solver=solver)(x0, a)
