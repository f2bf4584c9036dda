"""Parameters that `paragami` folds and unfolds: the derivatives of what it transforms, against differences."""

from __future__ import annotations

from typing import Any

import autograd
import autograd.numpy as np
import numpy
import paragami
import pytest
from autograd.test_util import check_grads
from scipy import sparse

RNG = numpy.random.default_rng(0)
if not hasattr(np, "product"):  # what NumPy 1 had, for which the package was written
    np.product = np.prod


def patterns() -> dict[str, Any]:
    several = paragami.PatternDict(free_default=True)
    several["mean"] = paragami.NumericVectorPattern(2, lb=-1.0)
    several["scale"] = paragami.NumericScalarPattern(lb=0.0, ub=4.0)
    several["cov"] = paragami.PSDSymmetricMatrixPattern(size=3)
    several["weights"] = paragami.SimplexArrayPattern(3, (2,))
    return {
        "array": paragami.NumericArrayPattern((2, 2), lb=0.0),
        "matrix": paragami.PSDSymmetricMatrixPattern(size=3),
        "simplex": paragami.SimplexArrayPattern(simplex_size=3, array_shape=(2,)),
        "matrices": paragami.PatternArray((2,), paragami.PSDSymmetricMatrixPattern(size=2)),
        "several": several,
    }


def differences(f: Any, x: Any, step: float = 1e-6) -> Any:
    moves = step * numpy.eye(len(x))
    return numpy.stack([(f(x + move) - f(x - move)) / (2 * step) for move in moves], axis=-1)


def total(folded: Any) -> Any:
    if isinstance(folded, dict):
        return sum(total(folded[name]) for name in folded)
    return np.sum(np.sin(folded) + folded**2)


@pytest.mark.parametrize("name", list(patterns()))
def test_what_is_folded_has_the_gradient_and_the_hessian_of_differences(name: str) -> None:
    pattern = patterns()[name]
    x = RNG.normal(size=pattern.flat_length(free=True))

    def f(x: Any) -> Any:
        return total(pattern.fold(x, free=True))

    numpy.testing.assert_allclose(autograd.grad(f)(x), differences(f, x), rtol=1e-5, atol=1e-7)
    numpy.testing.assert_allclose(autograd.hessian(f)(x), differences(autograd.grad(f), x), rtol=1e-5, atol=1e-6)
    check_grads(f, modes=["fwd", "rev"], order=2)(x)


@pytest.mark.parametrize("name", list(patterns()))
def test_freeing_and_unfreeing_have_jacobians_that_are_inverse(name: str) -> None:
    pattern = patterns()[name]
    folded = pattern.fold(RNG.normal(size=pattern.flat_length(free=True)), free=True)
    freeing = pattern.freeing_jacobian(folded, sparse=False)
    unfreeing = pattern.unfreeing_jacobian(folded, sparse=False)
    numpy.testing.assert_allclose(freeing @ unfreeing, numpy.eye(len(freeing)), atol=1e-8)


def test_a_function_of_folded_arguments_is_one_of_a_vector() -> None:
    pattern = patterns()["several"]

    def model(par: Any, data: Any, power: int = 2) -> Any:
        z = np.linalg.solve(par["cov"], data.T)
        determinant = np.linalg.slogdet(par["cov"])[1]
        return np.sum(data.T * z) ** (power / 2) + determinant + np.sum(par["mean"] ** 2 / par["scale"])

    data = RNG.normal(size=(4, 3))
    flat = paragami.FlattenFunctionInput(model, patterns=pattern, free=True, argnums=0)
    x = RNG.normal(size=pattern.flat_length(free=True)) * 0.3
    exact = autograd.grad(flat)(x, data, power=4)
    numpy.testing.assert_allclose(exact, differences(lambda x: flat(x, data, power=4), x), rtol=1e-4, atol=1e-5)
    weights = autograd.grad(flat, 1)(x, data)
    numpy.testing.assert_allclose(
        weights.ravel(), differences(lambda d: flat(x, d.reshape(4, 3)), data.ravel()), rtol=1e-5
    )


def test_an_objective_is_minimized_behind_a_preconditioner() -> None:
    target = numpy.array([1.0, -2.0, 0.5])
    scales = numpy.array([1.0, 50.0, 0.1])

    def f(x: Any) -> Any:
        return np.sum(scales * (x - target) ** 2) + np.sum((x - target) ** 4)

    preconditioned = paragami.PreconditionedFunction(f)
    preconditioned.set_preconditioner_with_hessian(numpy.zeros(3), ev_min=1e-3)
    objective = paragami.OptimizationObjective(preconditioned, print_every=0)
    x = preconditioned.precondition(numpy.zeros(3))
    numpy.testing.assert_allclose(objective.grad(x), differences(objective.f, x), rtol=1e-5)
    numpy.testing.assert_allclose(objective.hessian_vector_product(x, target), objective.hessian(x) @ target)
    for _ in range(20):
        x = x - numpy.linalg.solve(objective.hessian(x), objective.grad(x))
    numpy.testing.assert_allclose(preconditioned.unprecondition(x), target, atol=1e-5)
    assert objective.num_iterations() > 0


def test_products_with_sparse_matrices_have_both_rules() -> None:
    matrix = sparse.csr_matrix(RNG.normal(size=(4, 3)) * (RNG.uniform(size=(4, 3)) > 0.4))
    product, transposed = paragami.autograd_supplement_lib.get_sparse_product(matrix)
    check_grads(lambda b: np.sin(product(b)), modes=["fwd", "rev"], order=2)(RNG.normal(size=3))
    check_grads(lambda b: np.sin(transposed(b)), modes=["fwd", "rev"], order=2)(RNG.normal(size=(4, 2)))
    numpy.testing.assert_allclose(autograd.jacobian(product)(numpy.ones(3)), matrix.toarray())
