"""The functions of `autograd_gamma`, and likelihoods as lifelines writes them, against differences."""

from __future__ import annotations

from typing import Any

import autograd.numpy as np
import autograd_gamma as ag
import numpy
import pytest
from autograd import elementwise_grad, grad, hessian
from autograd.test_util import check_grads

X = numpy.array([0.3, 0.9, 2.1])


@pytest.mark.parametrize("name", ["gammainc", "gammaincc", "gammaincln", "gammainccln"])
def test_incomplete_gamma(name: str) -> None:
    f = getattr(ag, name)
    check_grads(f, argnum=(0, 1), modes=["rev"], order=1)(numpy.array([1.2, 2.3, 0.7]), X)
    numeric = (f(1.5 + 1e-5, X) - f(1.5 - 1e-5, X)) / 2e-5
    numpy.testing.assert_allclose(grad(lambda a: np.sum(f(a, X)))(1.5), numeric.sum(), rtol=1e-5)
    numpy.testing.assert_allclose(elementwise_grad(f, 1)(1.5, X), (f(1.5, X + 1e-5) - f(1.5, X - 1e-5)) / 2e-5, 1e-5)


@pytest.mark.parametrize("name", ["betainc", "betaincln"])
def test_incomplete_beta(name: str) -> None:
    f, x = getattr(ag, name), numpy.array([0.2, 0.5, 0.9])
    for k in range(3):
        args = [1.5, 2.5, x]

        def at(v: Any, k: int = k, args: Any = args) -> Any:
            return np.sum(f(*[v if i == k else y for i, y in enumerate(args)]))

        step = 1e-5
        exact = grad(at)(args[k])
        ahead, behind = at(args[k] + step), at(args[k] - step)
        numpy.testing.assert_allclose(np.sum(exact), (ahead - behind) / (2 * step), rtol=1e-4)


def test_inverses() -> None:
    p = numpy.array([0.2, 0.5, 0.9])
    for name in ("gammaincinv", "gammainccinv"):
        f = getattr(ag, name)
        numpy.testing.assert_allclose(
            elementwise_grad(f, 1)(1.5, p), (f(1.5, p + 1e-6) - f(1.5, p - 1e-6)) / 2e-6, 1e-5
        )


def test_a_generalized_gamma_likelihood_has_a_gradient_and_a_hessian() -> None:
    times = numpy.array([0.5, 1.2, 2.2, 3.1])
    observed = numpy.array([1.0, 0.0, 1.0, 0.0])

    def loss(params: Any) -> Any:
        a, b = np.exp(params)
        log_survival = ag.gammainccln(a, times / b)
        log_density = (a - 1) * np.log(times / b) - times / b - np.log(b) - np.log(ag.gamma(numpy.exp(0.1)))
        return -np.sum(observed * log_density + (1 - observed) * log_survival)

    x = numpy.array([0.1, 0.3])
    steps = 1e-5 * numpy.eye(2)
    numeric = [(loss(x + s) - loss(x - s)) / 2e-5 for s in steps]
    numpy.testing.assert_allclose(grad(loss)(x), numeric, rtol=1e-5)
    numeric = [(grad(loss)(x + s) - grad(loss)(x - s)) / 2e-5 for s in steps]
    numpy.testing.assert_allclose(hessian(loss)(x), numeric, rtol=1e-3)
