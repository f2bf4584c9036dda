"""Orthogonal polynomials against SciPy's, their derivatives against complex step, traced and eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special as sc

import tracegrad as tg
from tracegrad.torch.functions.math.orthogonal_polynomials import POLYNOMIALS

# Third and fourth kind: cos and sin of (n + 1/2) t over those of t / 2, which are U[n] -+ U[n - 1].
REFERENCES: dict[str, Callable[..., Any]] = {
    "chebyshev_polynomial_t": sc.eval_chebyt,
    "chebyshev_polynomial_u": sc.eval_chebyu,
    "chebyshev_polynomial_v": lambda n, x: sc.eval_chebyu(n, x) - sc.eval_chebyu(n - 1, x),
    "chebyshev_polynomial_w": lambda n, x: sc.eval_chebyu(n, x) + sc.eval_chebyu(n - 1, x),
    "hermite_polynomial_h": sc.eval_hermite,
    "hermite_polynomial_he": sc.eval_hermitenorm,
    "laguerre_polynomial_l": sc.eval_laguerre,
    "legendre_polynomial_p": sc.eval_legendre,
}
X = np.array([-1.5, -1.0, -0.3, -0.0, 0.0, 0.5, 1.0, 2.0])
DEGREES = np.arange(8)


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_values_are_scipys_and_derivatives_those_of_differences(name: str) -> None:
    of_x, polynomial = REFERENCES[name.removeprefix("shifted_")], getattr(tg.special, name)

    def expected(x: Any) -> Any:
        return of_x(DEGREES, 2 * x - 1 if name.startswith("shifted") else x)

    x = tg.tensor(X, requires_grad=True)
    for f in (polynomial, tg.trace(lambda x: polynomial(x, DEGREES))):
        y = f(x, tg.tensor(DEGREES)) if f is polynomial else f(x)
        np.testing.assert_allclose(y.detach(), expected(X), 1e-12, 1e-13)
        (gradient,) = tg.autograd.grad(y.sum(), x)
        np.testing.assert_allclose(gradient, (expected(X + 1e-6) - expected(X - 1e-6)) / 2e-6, 1e-6, 1e-6)
    assert polynomial(x.float(), 3).dtype == tg.float32
    assert polynomial(tg.tensor([1, 2]), 3).dtype == tg.get_default_dtype()
    assert polynomial(x[:, None], tg.arange(3)).shape == (8, 3)
    assert polynomial(x, tg.tensor(2.7)).tolist() == polynomial(x, 2).tolist()
    assert polynomial(0.5, tg.tensor([-1, 0])).tolist() == [0.0, 1.0]
    assert polynomial(tg.tensor([]), 3).shape == (0,)
    assert polynomial(tg.tensor([float("nan"), float("inf")]), 1).isfinite().tolist() == [False, False]
    assert tg.autograd.gradgradcheck(lambda x: polynomial(x, DEGREES), (x,))
    with pytest.raises(TypeError, match="invalid combination of arguments"):
        polynomial(0.5, 2)
