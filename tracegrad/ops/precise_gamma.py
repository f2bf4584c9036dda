"""The logarithm of the gamma function with its digits next to its roots, 1 and 2, where SciPy's has none.

From 1/2 to 5/2 it is (x - 1) * (x - 2) * p((x - 5/4) / (x + 1)), p interpolating at Chebyshev's points, for a relative
error under 2**-56; elsewhere it is SciPy's, which has no digits next to the roots between negative whole numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracegrad.ops.precise import in_double, polynomial

__all__ = ["lgamma"]

BETWEEN = (
    0.5241164609163369,
    -0.4152563649828362,
    0.06348268380928447,
    -0.09876754712660431,
    0.02470338563319271,
    -0.04116226678895408,
    0.010139290577691158,
    -0.020521422969994846,
    0.004018677235279147,
    -0.011329994195239184,
    0.0012867910590866557,
    -0.006737514544083022,
    4.8952034124326345e-05,
    -0.004260269833936313,
    -0.0004769923421324052,
    -0.0028597270592145307,
    -0.0007993837395979,
    -0.001992681610480415,
    -0.00031457149290121326,
    -0.0012942744339286645,
    -0.0017322340867545805,
    -0.0019703251722606335,
)


@in_double
def lgamma(x: Any) -> Any:
    """log(abs(gamma(x)))"""
    import scipy.special

    found = np.asarray(scipy.special.gammaln(x))
    near = np.abs(x - 1.5) < 1
    if near.any():
        x = x[near]
        found[near] = (x - 1) * (x - 2) * polynomial(BETWEEN, (x - 1.25) / (x + 1)) + 0.0
    return found
