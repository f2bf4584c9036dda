"""How optima move with hyperparameters, by `vittles`: repeated derivatives, against optima that are found again."""

from __future__ import annotations

from typing import Any

import autograd
import autograd.numpy as np
import numpy
import pytest
import vittles

RNG = numpy.random.default_rng(0)
DATA = RNG.normal(size=(8, 3))
WEIGHTS = numpy.ones(8)


def objective(par: Any, weights: Any) -> Any:
    """A robust regression, whose optimum has no formula."""
    residuals = np.dot(DATA, par) - numpy.arange(8.0) / 4
    return np.sum(weights * np.log(np.cosh(residuals))) + 0.1 * np.sum(par**2) + 0.01 * np.sum(np.exp(par))


def optimum(weights: Any) -> Any:
    par = numpy.zeros(3)
    gradient, hessian = autograd.grad(objective), autograd.hessian(objective)
    for _ in range(30):
        par = par - numpy.linalg.solve(hessian(par, weights), gradient(par, weights))
    return par


@pytest.fixture(scope="module")
def best() -> Any:
    return optimum(WEIGHTS)


def differences(f: Any, x: Any, step: float = 1e-5) -> Any:
    moves = step * numpy.eye(len(x))
    return numpy.stack([(f(x + move) - f(x - move)) / (2 * step) for move in moves], axis=-1)


def test_the_linear_approximation_is_the_derivative_of_the_optimum(best: Any) -> None:
    linear = vittles.HyperparameterSensitivityLinearApproximation(
        objective_fun=objective, opt_par_value=best, hyper_par_value=WEIGHTS, validate_optimum=True
    )
    numpy.testing.assert_allclose(linear.get_dopt_dhyper(), differences(optimum, WEIGHTS), rtol=1e-4, atol=1e-7)
    moved = WEIGHTS + 0.001 * RNG.normal(size=8)
    numpy.testing.assert_allclose(linear.predict_opt_par_from_hyper_par(moved), optimum(moved), atol=1e-5)


def test_the_optimum_is_a_function_with_derivatives_of_its_own(best: Any) -> None:
    linear = vittles.HyperparameterSensitivityLinearApproximation(
        objective_fun=objective, opt_par_value=best, hyper_par_value=WEIGHTS
    )
    f = linear.get_opt_par_function()
    numpy.testing.assert_allclose(autograd.jacobian(f)(WEIGHTS), linear.get_dopt_dhyper(), rtol=1e-8)
    numpy.testing.assert_allclose(autograd.make_jvp(f)(WEIGHTS)(WEIGHTS)[1], linear.get_dopt_dhyper() @ WEIGHTS)


@pytest.mark.parametrize(("forward", "order"), [(True, 3), (False, 2)])
def test_taylor_series_come_nearer_with_each_order(best: Any, forward: bool, order: int) -> None:
    series = vittles.ParametricSensitivityTaylorExpansion.optimization_objective(
        objective, best, WEIGHTS, order, forward_mode=forward, max_input_order=order, max_hyper_order=1
    )
    moved = WEIGHTS + numpy.linspace(-0.2, 0.2, 8)
    expected = optimum(moved)
    orders = range(1, order + 1)
    errors = [numpy.max(numpy.abs(series.evaluate_taylor_series(moved, max_order=k) - expected)) for k in orders]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-2


def test_a_hessian_of_blocks_is_the_dense_one() -> None:
    blocks = numpy.arange(6).reshape(3, 2)

    def f(x: Any) -> Any:
        return sum(np.sum(np.exp(x[block] * (k + 1))) * np.prod(x[block]) for k, block in enumerate(blocks))

    x = RNG.normal(size=6)
    result = vittles.SparseBlockHessian(f, blocks).get_block_hessian(x)
    numpy.testing.assert_allclose(result.toarray(), autograd.hessian(f)(x), atol=1e-10)


def test_covariances_of_linear_response_are_those_of_a_normal() -> None:
    precision = numpy.array([[2.0, 0.7, 0.0], [0.7, 1.5, 0.2], [0.0, 0.2, 1.0]])

    def f(par: Any) -> Any:
        mean, log_scale = par[:3], par[3:]
        return 0.5 * mean @ precision @ mean + 0.5 * np.sum(np.diag(precision) * np.exp(2 * log_scale)) - sum(log_scale)

    best = numpy.concatenate([numpy.zeros(3), -0.5 * numpy.log(numpy.diag(precision))])
    response = vittles.LinearResponseCovariances(f, best, validate_optimum=True)
    numpy.testing.assert_allclose(
        response.get_lr_covariance(lambda par: par[:3]), numpy.linalg.inv(precision), atol=1e-8
    )
