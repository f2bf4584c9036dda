"""Transforms, constraints and divergences of `torch.distributions`, against derivatives and integrals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.integrate

import tracegrad as tg
from tracegrad import distributions as D
from tracegrad.distributions import constraints as C
from tracegrad.distributions import transforms as T

t = tg.tensor
X = np.array([0.3, -1.2, 0.9])
BIJECTIVE: dict[str, Callable[[], Any]] = {
    "exp": T.ExpTransform,
    "sigmoid": T.SigmoidTransform,
    "softplus": T.SoftplusTransform,
    "tanh": T.TanhTransform,
    "affine": lambda: T.AffineTransform(1.0, t([2.0, -3.0, 0.5])),
    "affine of numbers": lambda: T.AffineTransform(1.0, -2.0),
    "affine of vectors": lambda: T.AffineTransform(1.0, 2.0, event_dim=1),
    "stick breaking": T.StickBreakingTransform,
    "correlations": T.CorrCholeskyTransform,
    "composition": lambda: T.ComposeTransform([T.TanhTransform(), T.AffineTransform(0.0, 2.0), T.ExpTransform()]),
    "composition of vectors": lambda: T.ComposeTransform([T.ExpTransform(), T.AffineTransform(0.0, 2.0, event_dim=1)]),
    "power": lambda: T.ComposeTransform([T.ExpTransform(), T.PowerTransform(2.0)]),
    "inverse": lambda: T.ComposeTransform([T.ExpTransform(), T.SoftplusTransform().inv]),
    "independent": lambda: T.IndependentTransform(T.ExpTransform(), 1),
    "reshape": lambda: T.ReshapeTransform((3,), (3, 1)),
    "cat": lambda: T.CatTransform([T.ExpTransform(), T.TanhTransform()], lengths=[2, 1]),
    "stack": lambda: T.StackTransform([T.ExpTransform(), T.TanhTransform(), T.SigmoidTransform()]),
    "distribution function": lambda: T.CumulativeDistributionTransform(D.Normal(0.0, 1.0)),
}


@pytest.mark.parametrize("name", BIJECTIVE)
def test_a_transform_has_an_inverse_and_the_determinant_of_its_jacobian(name: str) -> None:
    transform = BIJECTIVE[name]()
    x = t(X)
    y = transform(x)
    assert tg.allclose(transform.inv(y), x, rtol=1e-7)
    assert transform.forward_shape(x.shape) == y.shape
    assert transform.inverse_shape(y.shape) == x.shape
    assert transform.codomain.check(y).all()
    flat = {"stick breaking": lambda x: transform(x)[:-1], "correlations": lambda x: transform(x)[[1, 2, 2], [0, 0, 1]]}
    jacobian = tg.autograd.functional.jacobian(flat.get(name, transform), x).reshape(3, 3)
    expected = np.linalg.slogdet(jacobian.numpy())[1]
    near = pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert float(transform.log_abs_det_jacobian(x, y).sum()) == near
    assert -float(transform.inv.log_abs_det_jacobian(y, x).sum()) == near
    assert repr(transform.inv.inv) == repr(transform)


@pytest.mark.parametrize("name", BIJECTIVE)
def test_a_transform_with_a_cache_is_the_same_transform(name: str) -> None:
    transform = BIJECTIVE[name]()
    cached = transform.with_cache()
    assert type(cached) is type(transform)
    assert cached._cache_size == 1
    assert cached.with_cache() is cached
    assert tg.equal(cached(t(X)), transform(t(X)))


def test_transforms_that_are_not_bijective_return_values_in_their_codomain() -> None:
    x = t(np.arange(8.0).reshape(2, 2, 2))
    for transform in (T.SoftmaxTransform(), T.LowerCholeskyTransform(), T.PositiveDefiniteTransform()):
        y = transform(x)
        assert transform.codomain.check(y).all()
        assert tg.allclose(transform(transform.inv(y)), y)
    assert T.AbsTransform()(t([-1.0])) == 1.0


def test_a_transform_with_a_cache_returns_the_same_object() -> None:
    transform = T.ExpTransform(cache_size=1)
    x = t(X)
    assert transform.inv(transform(x)) is x
    assert T.ComposeTransform([T.ExpTransform()]).with_cache(1).parts[0]._cache_size == 1


def test_transforms_are_equal_by_their_parameters() -> None:
    assert T.ExpTransform() == T.ExpTransform()
    assert T.ExpTransform().inv == T.ExpTransform().inv
    assert T.AffineTransform(1.0, 2.0) == T.AffineTransform(1.0, 2.0) != T.AffineTransform(1.0, 3.0)
    assert T.AffineTransform(t([1.0, 2.0]), 2.0) != T.AffineTransform(t([1.0, 3.0]), 2.0)


INSIDE: list[tuple[Any, Any, Any]] = [
    (C.real, [1.0, np.nan], [True, False]),
    (C.boolean, [0.0, 0.5], [True, False]),
    (C.positive, [0.0, 0.5], [False, True]),
    (C.nonnegative, [0.0, -0.5], [True, False]),
    (C.less_than(1.0), [0.0, 1.0], [True, False]),
    (C.unit_interval, [1.0, 1.5], [True, False]),
    (C.half_open_interval(0.0, 1.0), [0.0, 1.0], [True, False]),
    (C.integer_interval(0, 3), [3.0, 1.5], [True, False]),
    (C.nonnegative_integer, [0.0, -1.0], [True, False]),
    (C.positive_integer, [1.0, 0.0], [True, False]),
    (C.multinomial(3), [[1.0, 2.0], [2.0, 2.0]], [True, False]),
    (C.one_hot, [[1.0, 0.0], [1.0, 1.0]], [True, False]),
    (C.simplex, [[0.5, 0.5], [0.5, 0.6]], [True, False]),
    (C.real_vector, [[0.5, 0.5], [0.5, np.nan]], [True, False]),
    (C.lower_triangular, [[[1.0, 0.0], [1.0, 1.0]], [[1.0, 1.0], [0.0, 1.0]]], [True, False]),
    (C.lower_cholesky, [[[1.0, 0.0], [1.0, 1.0]], [[-1.0, 0.0], [0.0, 1.0]]], [True, False]),
    (C.corr_cholesky, [[[1.0, 0.0], [0.6, 0.8]], [[1.0, 0.0], [1.0, 1.0]]], [True, False]),
    (C.positive_definite, [[[2.0, 1.0], [1.0, 2.0]], [[1.0, 2.0], [2.0, 1.0]]], [True, False]),
    (C.positive_semidefinite, [[[1.0, 0.0], [0.0, 0.0]]], [True]),
    (C.symmetric, [[[2.0, 1.0], [1.0, 2.0]], [[1.0, 2.0], [3.0, 1.0]]], [True, False]),
    (C.square, [[[2.0, 1.0]]], [False]),
    (C.independent(C.positive, 1), [[1.0, 1.0], [1.0, -1.0]], [True, False]),
    (C.cat([C.positive, C.real], lengths=[1, 1]), [-1.0, -1.0], [False, True]),
    (C.stack([C.positive, C.real]), [-1.0, -1.0], [False, True]),
]


@pytest.mark.parametrize(("constraint", "value", "expected"), INSIDE, ids=lambda x: str(x)[:40])
def test_constraints_tell_what_is_inside(constraint: Any, value: Any, expected: Any) -> None:
    assert constraint.check(t(value)).tolist() == expected


REGISTERED = [
    C.real,
    C.positive,
    C.greater_than(2.0),
    C.greater_than_eq(2.0),
    C.less_than(-1.0),
    C.unit_interval,
    C.interval(-1.0, 3.0),
    C.simplex,
    C.corr_cholesky,
    C.independent(C.positive, 1),
    C.cat([C.positive, C.real], lengths=[1, 2]),
    C.stack([C.positive, C.real, C.unit_interval]),
]


@pytest.mark.parametrize("constraint", REGISTERED, ids=str)
@pytest.mark.parametrize("registry", [D.biject_to, D.transform_to])
def test_registered_transforms_return_values_of_the_constraint(registry: Any, constraint: Any) -> None:
    transform = registry(constraint)
    assert constraint.check(transform(t(X))).all()
    assert transform.bijective or registry is D.transform_to


def test_matrices_have_transforms_and_other_constraints_none() -> None:
    x = t(np.arange(4.0).reshape(2, 2))
    for constraint in (C.lower_cholesky, C.positive_definite):
        assert constraint.check(D.transform_to(constraint)(x)).all()
    with pytest.raises(NotImplementedError, match="Cannot transform _TwoValues constraints"):
        D.biject_to(C.boolean)


def test_supports_of_distributions_depend_on_parameters() -> None:
    assert C.is_dependent(D.Uniform.support)
    assert repr(D.Uniform(0.0, 1.0).support) == "Interval(lower_bound: 0.0, upper_bound: 1.0)"
    assert D.Independent(D.Normal(t(X), 1.0), 1).support.event_dim == 1
    with pytest.raises(NotImplementedError, match="cannot be determined statically"):
        D.Independent.support.event_dim  # noqa: B018


# -- divergences ---------------------------------------------------------------------------------------------------
CONTINUOUS = {
    "Normal": [D.Normal(0.3, 1.2), D.Normal(-0.4, 0.7)],
    "Laplace": [D.Laplace(0.3, 1.2), D.Laplace(-0.4, 0.7)],
    "Gumbel": [D.Gumbel(0.3, 0.6), D.Gumbel(-0.4, 0.9)],
    "Exponential": [D.Exponential(1.3), D.Exponential(0.4)],
    "Gamma": [D.Gamma(1.7, 1.3), D.Gamma(0.8, 2.0)],
    "Beta": [D.Beta(2.0, 3.0), D.Beta(0.7, 1.5)],
    "ContinuousBernoulli": [D.ContinuousBernoulli(t(0.2)), D.ContinuousBernoulli(t(0.6))],
    "Pareto": [D.Pareto(1.5, 3.0), D.Pareto(1.0, 2.2)],
    "Uniform": [D.Uniform(0.2, 0.9), D.Uniform(-1.0, 2.0)],
    "HalfNormal": [D.HalfNormal(0.6), D.HalfNormal(1.1)],
    "LogNormal": [D.LogNormal(0.3, 1.2), D.LogNormal(-0.4, 0.7)],
}
PAIRS = [(p, p) for p in CONTINUOUS] + [
    *[(p, "Normal") for p in ("Beta", "ContinuousBernoulli", "Exponential", "Gamma", "Gumbel", "Laplace", "Uniform")],
    *[(p, "Exponential") for p in ("Beta", "ContinuousBernoulli", "Gamma", "Pareto")],
    *[("Exponential", "Gamma"), ("Beta", "Gamma"), ("Gamma", "Gumbel"), ("Normal", "Gumbel"), ("Normal", "Laplace")],
]
INTERVALS = {"Uniform": (0.2, 0.9), "Pareto": (1.5, np.inf), "Beta": (0, 1), "ContinuousBernoulli": (0, 1)}


def log_density(d: Any, x: float) -> float:
    return float(d.log_prob(t(x)))


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_divergences_are_integrals(one: str, other: str) -> None:
    p, q = CONTINUOUS[one][0], CONTINUOUS[other][1]
    positive = ("Exponential", "Gamma", "HalfNormal", "LogNormal")
    low, high = INTERVALS.get(one, (1e-12, np.inf) if one in positive else (-25, 25))

    def term(x: float) -> float:
        log_p = log_density(p, x)
        return float(np.exp(log_p)) * (log_p - log_density(q, x))

    points = None if np.isinf(high) else [x for x in (-0.4, 0.3) if low < x < high] or None
    expected = scipy.integrate.quad(term, low, high, limit=200, points=points)[0]
    assert float(D.kl_divergence(p, q)) == pytest.approx(expected, rel=2e-6)


DISCRETE = [
    (D.Bernoulli(t(0.2)), D.Bernoulli(t(0.7))),
    (D.Binomial(4, t(0.2)), D.Binomial(4, t(0.7))),
    (D.Categorical(t([0.2, 0.3, 0.5])), D.Categorical(t([0.6, 0.3, 0.1]))),
    (D.OneHotCategorical(t([0.2, 0.3, 0.5])), D.OneHotCategorical(t([0.6, 0.3, 0.1]))),
    (D.Poisson(2.0), D.Poisson(3.5)),
    (D.Geometric(0.4), D.Geometric(0.2)),
    (D.Bernoulli(t(0.2)), D.Poisson(1.5)),
]


@pytest.mark.parametrize(("p", "q"), DISCRETE, ids=str)
def test_divergences_of_counts_are_sums(p: Any, q: Any) -> None:
    values = p.enumerate_support() if p.has_enumerate_support else t(np.arange(80.0))
    logs = p.log_prob(values)
    expected = float((logs.exp() * (logs - q.log_prob(values))).sum())
    assert float(D.kl_divergence(p, q)) == pytest.approx(expected, rel=1e-9)


def test_divergences_of_vectors_average_the_difference_of_the_logarithms() -> None:
    tg.manual_seed(2)
    loc, cov = tg.zeros(2), t([[2.0, 0.3], [0.3, 0.5]])
    pairs = [
        (D.MultivariateNormal(loc, cov), D.MultivariateNormal(loc + 0.5, tg.eye(2))),
        (D.LowRankMultivariateNormal(loc, tg.ones(2, 1), tg.ones(2)), D.MultivariateNormal(loc + 0.5, cov)),
        (D.MultivariateNormal(loc, cov), D.LowRankMultivariateNormal(loc, tg.ones(2, 1), tg.ones(2))),
        (D.Dirichlet(t([1.5, 2.0])), D.Dirichlet(t([0.9, 1.2]))),
        (D.Independent(D.Normal(loc, 1.0), 1), D.Independent(D.Normal(loc + 0.5, 2.0), 1)),
    ]
    for p, q in pairs:
        x = p.sample((100000,))
        difference = p.log_prob(x) - q.log_prob(x)
        error = 5 * float(difference.std()) / 100000**0.5
        assert float(D.kl_divergence(p, q)) == pytest.approx(float(difference.mean()), abs=error)


def test_divergences_are_infinite_where_the_second_distribution_has_no_value() -> None:
    for p, q in ((D.Normal(0.0, 1.0), D.Exponential(1.0)), (D.Uniform(0.0, 2.0), D.Uniform(0.0, 1.0))):
        assert D.kl_divergence(p, q) == np.inf
    assert D.kl_divergence(D.Categorical(t([0.5, 0.5])), D.Categorical(t([1.0, 0.0]))) == np.inf
    assert D.kl_divergence(D.Categorical(t([1.0, 0.0])), D.Categorical(t([0.5, 0.5]))) == pytest.approx(np.log(2))


def test_divergences_have_right_derivatives_of_both_arguments() -> None:
    parameters = [t(x, requires_grad=True) for x in (0.3, 1.2, -0.4, 0.7)]
    for create in (D.Normal, D.Gumbel, D.Laplace, D.LogNormal):
        assert tg.autograd.gradcheck(lambda a, b, c, d, f=create: D.kl_divergence(f(a, b), f(c, d)), parameters)
    positive = [t(x, requires_grad=True) for x in (0.3, 1.2, 0.4, 0.7)]
    for create in (D.Gamma, D.Beta):
        assert tg.autograd.gradcheck(lambda a, b, c, d, f=create: D.kl_divergence(f(a, b), f(c, d)), positive)
    bregman = D.kl._of_exponential_families
    assert tg.autograd.gradcheck(lambda a, b, c, d: bregman(D.Gamma(a, b), D.Gamma(c, d)), positive)


def test_the_users_divergences_are_those_of_subclasses_too() -> None:
    class Own(D.Normal):
        pass

    assert D.kl_divergence(Own(0.0, 1.0), D.Normal(1.0, 1.0)) == 0.5

    @D.register_kl(Own, Own)
    def between(p: Any, q: Any) -> float:
        return 7.0

    assert D.kl_divergence(Own(0.0, 1.0), Own(1.0, 1.0)) == 7.0
    with pytest.raises(NotImplementedError, match=r"No KL.* for p type Cauchy and q type Normal"):
        D.kl_divergence(D.Cauchy(0.0, 1.0), D.Normal(0.0, 1.0))
    with pytest.raises(TypeError, match="Expected type_p to be a Distribution subclass"):
        D.register_kl(int, Own)


def test_a_variational_step_compiles() -> None:
    loc, log_scale = tg.zeros(2, requires_grad=True), tg.zeros(2, requires_grad=True)

    def step() -> Any:
        posterior = D.Independent(D.Normal(loc, log_scale.exp()), 1)
        prior = D.Independent(D.Normal(tg.zeros(2), tg.ones(2)), 1)
        z = posterior.rsample((8,))
        loss = D.kl_divergence(posterior, prior) + (z - 3.0).square().sum(-1).mean()
        loc.grad = log_scale.grad = None
        loss.backward()
        with tg.no_grad():
            loc.sub_(0.1 * loc.grad)
            log_scale.sub_(0.1 * log_scale.grad)
        return loss.detach()

    results = []
    for function in (step, tg.trace(step)):
        tg.manual_seed(4)
        with tg.no_grad():
            loc.zero_()
            log_scale.zero_()
        results.append([float(function()) for _ in range(5)])
    assert results[1] == pytest.approx(results[0], rel=1e-12)
    assert results[0][-1] < results[0][0]


def test_a_trace_reads_the_distributions_within_those_from_outside() -> None:
    prior = D.Independent(D.Normal(t([0.0, 1.0]), t([1.0, 2.0])), 1)
    compiled = tg.trace(lambda loc: D.kl_divergence(D.Independent(D.Normal(loc, t([1.0, 2.0])), 1), prior))
    assert [float(compiled(t([0.0, 1.0 + shift]))) for shift in (0.0, 2.0)] == [0.0, 0.5]
    prior.base_dist.loc += 2.0
    assert float(compiled(t([2.0, 3.0]))) == 0.0
    assert compiled.cache_info().traces == 1
