"""Orthogonal polynomials of `torch.special`, by their three-term recurrences; element by element, of any degree.

Unlike PyTorch's they have derivatives. Source of the recurrences: M. Abramowitz and I. Stegun, "Handbook of
Mathematical Functions", 22.7; polynomials of the third and fourth kind: J. Mason and D. Handscomb, "Chebyshev
Polynomials", 1.2.3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad.ops.elementwise.table import add, equal, multiply, where
from tracegrad.ops.shape.linear import zeros_like
from tracegrad.torch.functions.core.operands import TensorOperands, as_node, in_floats, is_number, pair
from tracegrad.typing import Array

# (k, x, p[k], p[k - 1]) -> p[k + 1]
Recurrence = Callable[[int, Any, Any, Any], Any]


def _chebyshev(k: int, x: Any, p: Any, before: Any) -> Any:
    return 2 * x * p - before


# Name -> the factor and the term of the polynomial of degree 1, the recurrence, and the summary.
_POLYNOMIALS: dict[str, tuple[int, int, Recurrence, str]] = {
    "chebyshev_polynomial_t": (1, 0, _chebyshev, "The Chebyshev polynomial of the first kind"),
    "chebyshev_polynomial_u": (2, 0, _chebyshev, "The Chebyshev polynomial of the second kind"),
    "chebyshev_polynomial_v": (2, -1, _chebyshev, "The Chebyshev polynomial of the third kind"),
    "chebyshev_polynomial_w": (2, 1, _chebyshev, "The Chebyshev polynomial of the fourth kind"),
    "hermite_polynomial_h": (2, 0, lambda k, x, p, q: 2 * x * p - 2 * k * q, "The physicist's Hermite polynomial"),
    "hermite_polynomial_he": (1, 0, lambda k, x, p, q: x * p - k * q, "The probabilist's Hermite polynomial"),
    "laguerre_polynomial_l": (
        -1,
        1,
        lambda k, x, p, q: ((2 * k + 1 - x) * p - k * q) / (k + 1),
        "The Laguerre polynomial",
    ),
    "legendre_polynomial_p": (
        1,
        0,
        lambda k, x, p, q: ((2 * k + 1) * x * p - k * q) / (k + 1),
        "The Legendre polynomial",
    ),
}
_SHIFTED = {f"shifted_{name}": row for name, row in _POLYNOMIALS.items() if name.startswith("chebyshev")}


def _evaluated(x: Any, n: Any, row: tuple[int, int, Recurrence, str], shifted: bool) -> Array:
    """Return the polynomials of the degrees `n`, which are rounded toward 0; a negative degree has the value 0."""
    factor, term, step, _ = row
    x = 2 * x - 1 if shifted else x
    result, before = zeros_like(add(x, n)), add(zeros_like(x), 1)
    current: Any = add(multiply(x, factor), term)
    degrees = np.trunc(np.asarray(n))
    for k in range(int(np.max(degrees, initial=-1.0)) + 1):
        result = where(equal(degrees, k), before, result)
        before, current = current, step(k + 1, x, current, before)
    return result


def _define(name: str, row: tuple[int, int, Recurrence, str]) -> Callable[[Array, Array], Array]:
    rule = TensorOperands(f"special_{name}", "one")
    node = f"Special{name.title().replace('_', '')}Backward0"

    def polynomial(input: Array, n: Array) -> Array:
        x, degrees = in_floats(pair(input, n, rule))
        x = np.asarray(x) if is_number(x) else x
        result: Array = as_node(node, lambda x: _evaluated(x, degrees, row, name.startswith("shifted")), x)
        return result

    polynomial.__name__ = polynomial.__qualname__ = name
    polynomial.__doc__ = (
        f"{row[3]}{' on [0, 1]' if name.startswith('shifted') else ''} of degree `n`, element by element."
    )
    return polynomial


(
    chebyshev_polynomial_t,
    chebyshev_polynomial_u,
    chebyshev_polynomial_v,
    chebyshev_polynomial_w,
    hermite_polynomial_h,
    hermite_polynomial_he,
    laguerre_polynomial_l,
    legendre_polynomial_p,
    shifted_chebyshev_polynomial_t,
    shifted_chebyshev_polynomial_u,
    shifted_chebyshev_polynomial_v,
    shifted_chebyshev_polynomial_w,
) = [_define(_name, _row) for _name, _row in {**_POLYNOMIALS, **_SHIFTED}.items()]
POLYNOMIALS = [*_POLYNOMIALS, *_SHIFTED]
