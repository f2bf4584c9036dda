"""Distributions of `torch.distributions` against SciPy, differences, and their own samples."""

from __future__ import annotations

import builtins
import contextlib
import datetime
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.special
import scipy.stats as st

import tracegrad as tg
from tracegrad import distributions as D

t = tg.tensor
A, B = np.array([0.7, 2.5]), np.array([1.3, 0.6])
P = np.array([0.2, 0.7])
ROWS = np.array([[0.2, 0.3, 0.5], [0.6, 0.1, 0.3]])
COV = np.array([[2.0, 0.3], [0.3, 0.5]])

# Distribution, SciPy's distribution, and whether the entropy is known.
LIKE_SCIPY: dict[str, tuple[Callable[[], Any], Any, bool]] = {
    "Normal": (lambda: D.Normal(t(A), t(B)), st.norm(A, B), True),
    "LogNormal": (lambda: D.LogNormal(t(A), t(B)), st.lognorm(B, scale=np.exp(A)), True),
    "HalfNormal": (lambda: D.HalfNormal(t(B)), st.halfnorm(scale=B), True),
    "Uniform": (lambda: D.Uniform(t(-A), t(B)), st.uniform(-A, A + B), True),
    "Laplace": (lambda: D.Laplace(t(A), t(B)), st.laplace(A, B), True),
    "Cauchy": (lambda: D.Cauchy(t(A), t(B)), st.cauchy(A, B), True),
    "HalfCauchy": (lambda: D.HalfCauchy(t(B)), st.halfcauchy(scale=B), True),
    "Gumbel": (lambda: D.Gumbel(t(A), t(B)), st.gumbel_r(A, B), True),
    "StudentT": (lambda: D.StudentT(t(A + 2), t(A), t(B)), st.t(A + 2, A, B), True),
    "VonMises": (lambda: D.VonMises(t(A), t(B)), st.vonmises(B, A), False),
    "Exponential": (lambda: D.Exponential(t(A)), st.expon(scale=1 / A), True),
    "Gamma": (lambda: D.Gamma(t(A), t(B)), st.gamma(A, scale=1 / B), True),
    "Chi2": (lambda: D.Chi2(t(A)), st.chi2(A), True),
    "InverseGamma": (lambda: D.InverseGamma(t(A + 2), t(B)), st.invgamma(A + 2, scale=B), True),
    "Weibull": (lambda: D.Weibull(t(A), t(B)), st.weibull_min(B, scale=A), True),
    "Pareto": (lambda: D.Pareto(t(B), t(A + 2)), st.pareto(A + 2, scale=B), True),
    "FisherSnedecor": (lambda: D.FisherSnedecor(t(A), t(B + 5)), st.f(A, B + 5), False),
    "GeneralizedPareto": (lambda: D.GeneralizedPareto(t(A), t(B), t(-P)), st.genpareto(-P, A, B), True),
    "GeneralizedParetoOfLongTail": (
        lambda: D.GeneralizedPareto(t(A), t(B), t([0.0, 0.2])),
        st.genpareto([0.0, 0.2], A, B),
        True,
    ),
    "Beta": (lambda: D.Beta(t(A), t(B)), st.beta(A, B), True),
    "Bernoulli": (lambda: D.Bernoulli(t(P)), st.bernoulli(P), True),
    "BernoulliLogits": (lambda: D.Bernoulli(logits=t(A)), st.bernoulli(scipy.special.expit(A)), True),
    "Geometric": (lambda: D.Geometric(t(P)), st.geom(P, loc=-1), True),
    "Binomial": (lambda: D.Binomial(5, t(P)), st.binom(5, P), True),
    "NegativeBinomial": (lambda: D.NegativeBinomial(t(A), t(P)), st.nbinom(A, 1 - P), False),
    "Poisson": (lambda: D.Poisson(t(A)), st.poisson(A), False),
}
VECTORS: dict[str, tuple[Callable[[], Any], Any]] = {
    "Dirichlet": (lambda: D.Dirichlet(t(A)), st.dirichlet(A)),
    "Multinomial": (lambda: D.Multinomial(4, t(ROWS[0])), st.multinomial(4, ROWS[0])),
    "MultivariateNormal": (lambda: D.MultivariateNormal(t(A), t(COV)), st.multivariate_normal(A, COV)),
    "precision": (
        lambda: D.MultivariateNormal(t(A), precision_matrix=t(np.linalg.inv(COV))),
        st.multivariate_normal(A, COV),
    ),
    "scale_tril": (
        lambda: D.MultivariateNormal(t(A), scale_tril=t(np.linalg.cholesky(COV))),
        st.multivariate_normal(A, COV),
    ),
    "LowRankMultivariateNormal": (
        lambda: D.LowRankMultivariateNormal(t(A), t([[1.0], [0.5]]), t(B)),
        st.multivariate_normal(A, np.array([[1.0, 0.5], [0.5, 0.25]]) + np.diag(B)),
    ),
}
# Distributions that SciPy does not have.
OTHERS: dict[str, Callable[[], Any]] = {
    "Kumaraswamy": lambda: D.Kumaraswamy(t(A + 1), t(B + 1)),
    "LKJCholesky": lambda: D.LKJCholesky(3, t(A)),
    "Wishart": lambda: D.Wishart(t(A + 4), t(COV)),
    "Categorical": lambda: D.Categorical(t(ROWS)),
    "OneHotCategorical": lambda: D.OneHotCategorical(t(ROWS)),
    "OneHotCategoricalStraightThrough": lambda: D.OneHotCategoricalStraightThrough(logits=t(ROWS)),
    "ContinuousBernoulli": lambda: D.ContinuousBernoulli(t([0.2, 0.5003])),
    "RelaxedBernoulli": lambda: D.RelaxedBernoulli(t(0.7), t(P)),
    "RelaxedOneHotCategorical": lambda: D.RelaxedOneHotCategorical(t(0.7), t(ROWS)),
    "LogisticNormal": lambda: D.LogisticNormal(t(ROWS), 1.0),
    "Independent": lambda: D.Independent(D.Normal(t(ROWS), 1.0), 1),
    "MixtureSameFamily": lambda: D.MixtureSameFamily(D.Categorical(t(ROWS)), D.Normal(t(ROWS), t(ROWS))),
    "MixtureOfVectors": lambda: D.MixtureSameFamily(
        D.Categorical(t(ROWS)), D.Independent(D.Normal(tg.ones(2, 3, 4), 1.0), 1)
    ),
    "TransformedDistribution": lambda: D.TransformedDistribution(
        D.Normal(t(A), 1.0), [D.AffineTransform(1.0, t(B)), D.SigmoidTransform()]
    ),
}
ALL = {**{name: row[0] for name, row in (LIKE_SCIPY | VECTORS).items()}, **OTHERS}


def near(x: Any, y: Any, rtol: float = 1e-9) -> None:
    np.testing.assert_allclose(np.asarray(x.detach() if isinstance(x, tg.Tensor) else x), y, rtol=rtol, atol=1e-12)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    tg.manual_seed(1)


@pytest.mark.parametrize("name", LIKE_SCIPY)
def test_densities_and_moments_are_those_of_scipy(name: str) -> None:
    create, known, has_entropy = LIKE_SCIPY[name]
    d = create()
    x = d.sample((7,))
    density = known.logpmf if hasattr(known.dist, "logpmf") else known.logpdf
    near(d.log_prob(x), density(x.numpy()))
    if name not in ("Cauchy", "HalfCauchy", "VonMises"):
        near(d.mean, known.mean())
        near(d.variance, known.var())
        near(d.stddev, known.std())
    if has_entropy:
        near(d.entropy(), known.entropy(), 1e-7)
        near(d.perplexity(), np.exp(known.entropy()), 1e-7)


@pytest.mark.parametrize("name", LIKE_SCIPY)
def test_distribution_functions_are_those_of_scipy_and_have_inverses(name: str) -> None:
    create, known, _ = LIKE_SCIPY[name]
    d = create()
    x = d.sample((7,))
    try:
        p = d.cdf(x)
    except NotImplementedError:
        return
    near(p, known.cdf(x.numpy()), 1e-8)
    with contextlib.suppress(NotImplementedError):
        near(d.icdf(p), x.numpy(), 1e-6)


@pytest.mark.parametrize("name", VECTORS)
def test_densities_of_vectors_are_those_of_scipy(name: str) -> None:
    create, known = VECTORS[name]
    d = create()
    x = d.sample((5,))
    density = known.logpmf if hasattr(known, "logpmf") else known.logpdf
    near(d.log_prob(x), [density(row) for row in x.numpy()], 1e-8)
    near(d.entropy(), known.entropy(), 1e-8)


@pytest.mark.parametrize("name", ALL)
def test_samples_have_the_mean_and_the_variance(name: str) -> None:
    d = ALL[name]()
    x = d.sample((20000,)).numpy()
    assert x.shape == (20000, *d.batch_shape, *d.event_shape)
    try:
        mean, variance = d.mean.numpy(), d.variance.numpy()
    except NotImplementedError:
        return
    if name == "VonMises":  # the variance is that on the circle
        near(np.abs(np.mean(np.exp(1j * x), axis=0)), 1 - variance, 0.05)
    elif np.isfinite(variance).all():
        assert (np.abs(x.mean(0) - mean) <= 5 * np.sqrt(variance / 20000) + 1e-12).all()
        if name not in ("StudentT", "Pareto", "InverseGamma", "LogNormal"):
            near(x.var(0), variance, 0.1)


@pytest.mark.parametrize("name", ALL)
def test_expand_repeats_the_batch(name: str) -> None:
    d = ALL[name]()
    wide = d.expand((3, *d.batch_shape))
    assert (wide.batch_shape, wide.event_shape) == ((3, *d.batch_shape), d.event_shape)
    assert type(wide) is type(d)
    x = wide.sample()
    near(wide.log_prob(x), d.log_prob(x).numpy())


@pytest.mark.parametrize("name", ALL)
def test_a_traced_step_draws_and_differentiates_as_an_eager_one(name: str) -> None:
    def step() -> tuple[Any, Any]:
        d = ALL[name]()
        x = d.rsample((2,)) if d.has_rsample else d.sample((2,))
        return x, d.log_prob(x.detach())

    traced = tg.trace(step)
    results = []
    for function in (step, traced):
        tg.manual_seed(3)
        results.append([function() for _ in range(3)])
    for (x, p), (y, q) in zip(*results):
        near(y, x.numpy(), 1e-12)
        near(q, p.numpy(), 1e-8)
    assert traced.cache_info().traces == 1


def test_packages_may_keep_objects_of_c_among_the_builtins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vars(builtins), "__pybind11_internals_v4__", datetime.datetime_CAPI)

    def step() -> Any:
        d = ALL["Uniform"]()
        return d.log_prob(d.rsample((2,)).detach())

    traced = tg.trace(step)
    assert traced().tolist() == step().tolist()
    assert traced.cache_info().traces == 1


def _symmetric_normal(loc: Any, matrix: Any, **options: Any) -> Any:
    return D.MultivariateNormal(loc, (matrix + matrix.mT) / 2, **options)


WITH_GRADIENTS = {
    "Normal": (D.Normal, (A, B)),
    "LogNormal": (D.LogNormal, (A, B)),
    "Laplace": (D.Laplace, (A, B)),
    "Cauchy": (D.Cauchy, (A, B)),
    "Gumbel": (D.Gumbel, (A, B)),
    "StudentT": (D.StudentT, (A, A, B)),
    "VonMises": (D.VonMises, (A, B)),
    "Exponential": (D.Exponential, (A,)),
    "Gamma": (D.Gamma, (A, B)),
    "Chi2": (D.Chi2, (A,)),
    "Weibull": (D.Weibull, (A, B)),
    "Beta": (D.Beta, (A, B)),
    "Dirichlet": (D.Dirichlet, (ROWS,)),
    "Bernoulli": (D.Bernoulli, (P,)),
    "ContinuousBernoulli": (D.ContinuousBernoulli, (P,)),
    "Geometric": (D.Geometric, (P,)),
    "NegativeBinomial": (D.NegativeBinomial, (A, P)),
    "Poisson": (D.Poisson, (A,)),
    "Categorical": (D.Categorical, (ROWS,)),
    "MultivariateNormal": (_symmetric_normal, (A, COV)),
    "LowRankMultivariateNormal": (D.LowRankMultivariateNormal, (A, COV, B)),
    "FisherSnedecor": (D.FisherSnedecor, (A, B)),
    "GeneralizedPareto": (D.GeneralizedPareto, (A, B, P)),
    "Kumaraswamy": (D.Kumaraswamy, (A, B)),
    "LKJCholesky": (partial(D.LKJCholesky, 3), (A,)),
    "Wishart": (lambda df, x, **options: D.Wishart(df, (x + x.mT) / 2, **options), (A + 4, COV)),
}


@pytest.mark.parametrize("name", WITH_GRADIENTS)
def test_densities_and_entropies_have_right_derivatives(name: str) -> None:
    create, parameters = WITH_GRADIENTS[name]
    inputs = [t(x, requires_grad=True) for x in parameters]
    x = create(*inputs).sample((2,))
    assert tg.autograd.gradcheck(lambda *p: create(*p, validate_args=False).log_prob(x), inputs)
    if name not in ("NegativeBinomial", "Poisson", "VonMises", "FisherSnedecor", "LKJCholesky"):
        assert tg.autograd.gradcheck(lambda *p: create(*p, validate_args=False).entropy(), inputs)


@pytest.mark.parametrize(
    "name",
    [
        "Normal",
        "LogNormal",
        "Laplace",
        "Cauchy",
        "Gumbel",
        "Exponential",
        "Weibull",
        "GeneralizedPareto",
        "Kumaraswamy",
    ],
)
def test_samples_have_right_derivatives(name: str) -> None:
    create, parameters = WITH_GRADIENTS[name]

    def draw(*p: Any) -> Any:
        tg.manual_seed(5)
        return create(*p).rsample((3,))

    assert tg.autograd.gradcheck(draw, [t(x, requires_grad=True) for x in parameters])


def test_samples_of_gamma_move_with_the_concentration_as_quantiles_do() -> None:
    a = t(A, requires_grad=True)
    x = D.Gamma(a, 2.0).rsample()
    x.sum().backward()
    level = scipy.special.gammainc(A, 2 * x.detach().numpy())
    high, low = (scipy.special.gammaincinv(A + h, level) / 2 for h in (1e-5, -1e-5))
    near(a.grad, (high - low) / 2e-5, 1e-6)


@pytest.mark.parametrize("create", [lambda a: D.Beta(a, 1.5), lambda a: D.Dirichlet(tg.stack([a, 2 * a]))])
def test_derivatives_of_samples_average_to_that_of_the_mean(create: Callable[[Any], Any]) -> None:
    a = t(0.8, requires_grad=True)
    d = create(a)
    (expected,) = tg.autograd.grad(d.mean.square().sum() + d.variance.sum(), a)
    (result,) = tg.autograd.grad(create(a).rsample((40000,)).square().sum() / 40000, a)
    assert abs(result - expected) < 0.02


def test_densities_of_matrices_are_those_of_scipy_and_sum_to_one() -> None:
    d = D.Wishart(t([3.5, 2.5]), t(COV))
    x = d.sample((3,))
    for k, df in enumerate((3.5, 2.5)):
        known = st.wishart(df, COV)
        near(d.log_prob(x)[:, k], known.logpdf(np.moveaxis(x[:, k].numpy(), 0, -1)), 1e-9)
        near(d.entropy()[k], known.entropy(), 1e-9)
        near(d.mean[k], known.mean())
        near(d.variance[k], known.var())
    near(d.mode[0], st.wishart(3.5, COV).mode())
    assert d.mode[1].isnan().all()
    for matrix in ("precision_matrix", "scale_tril"):
        same = D.Wishart(t([3.5, 2.5]), **{matrix: getattr(d, matrix)})
        near(same.log_prob(x), d.log_prob(x).numpy())
        near(same.covariance_matrix, d.covariance_matrix.numpy())
    for concentration in (0.5, 1.0, 3.0):
        correlations, weights = np.polynomial.legendre.leggauss(200)
        rest = np.sqrt(1 - correlations**2)
        factors = np.array([[np.ones(200), np.zeros(200)], [correlations, rest]]).transpose(2, 0, 1)
        density = D.LKJCholesky(2, concentration).log_prob(t(factors)).exp().numpy()
        assert np.sum(weights * density) == pytest.approx(1.0, rel=0.02)
    factor = np.linalg.cholesky(np.array([[1, 0.2, 0.3], [0.2, 1, -0.4], [0.3, -0.4, 1]]))
    near(D.LKJCholesky(3, 0.5).log_prob(t(factor)), -2.34519038, 1e-8)  # PyTorch 2.13


def test_values_of_discrete_distributions_are_enumerated() -> None:
    for create in (D.Bernoulli, D.Categorical, D.OneHotCategorical):
        d = create(t(P))
        assert abs(d.log_prob(d.enumerate_support()).exp().sum(0) - 1).max() < 1e-12
    assert D.Binomial(2, t(P)).enumerate_support(expand=False).tolist() == [[0.0], [1.0], [2.0]]
    assert D.Categorical(t(ROWS)).enumerate_support().shape == (3, 2)


def test_entropies_are_expectations_of_the_logarithm() -> None:
    for d in (D.Categorical(t(ROWS)), D.OneHotCategorical(t(ROWS)), D.Binomial(4, t(P))):
        logs = d.log_prob(d.enumerate_support())
        near(d.entropy(), -(logs.exp() * logs).sum(0).numpy())
    family = D.ExponentialFamily.entropy
    for e in (D.Normal(t(A), t(B)), D.Gamma(t(A), t(B)), D.Exponential(t(A)), D.Bernoulli(t(P))):
        near(family(e), e.entropy().numpy())


def test_modes() -> None:
    assert D.Categorical(t(ROWS)).mode.tolist() == [2, 0]
    assert D.OneHotCategorical(t(ROWS)).mode.tolist() == [[0, 0, 1], [1, 0, 0]]
    assert D.Beta(t([3.0, 0.5, 0.5]), t([2.0, 2.0, 0.5])).mode.tolist()[:2] == pytest.approx([2 / 3, 0.0])
    assert D.Dirichlet(t([[3.0, 2.0], [0.5, 0.7]])).mode.tolist()[1] == [0.0, 1.0]
    assert D.Poisson(2.5).mode == 2
    assert D.FisherSnedecor(t([6.0, 2.0]), 3.0).mode.tolist() == pytest.approx([2 / 3 * 3 / 5, np.nan], nan_ok=True)
    assert D.GeneralizedPareto(1.0, 2.0, 0.5).mode == 1
    mode = D.Kumaraswamy(t([1.7, 0.5]), 2.3).mode
    near(mode[0], (0.7 / (1.7 * 2.3 - 1)) ** (1 / 1.7))
    assert mode[1].isnan()


def test_float32_stays_float32() -> None:
    a = t(A, dtype=tg.float32)
    for d in (D.Normal(a, 1.0), D.Gamma(a, 1.0), D.Bernoulli(logits=a), D.Poisson(a), D.Categorical(logits=a)):
        assert d.log_prob(d.sample()).dtype == tg.float32
    assert D.Beta(a, 1).rsample().dtype == tg.float32
    assert D.StudentT(a).rsample().dtype == D.VonMises(a, 1.0).sample().dtype == tg.float32
    assert D.Binomial(3, probs=t(P, dtype=tg.float32)).sample().dtype == tg.float32


def test_texts_are_those_of_pytorch() -> None:
    assert repr(D.Normal(0.0, t([1.0]))) == "Normal(loc: tensor([0.]), scale: tensor([1.]))"
    assert repr(D.Normal(0.0, t(A))) == "Normal(loc: torch.Size([2]), scale: torch.Size([2]))"
    with pytest.raises(ValueError, match=r"Expected parameter scale \(Tensor of shape \(2,\)\) of distribution Normal"):
        D.Normal(0.0, t([1.0, -1.0]))
    with pytest.raises(ValueError, match=r"within the support \(GreaterThanEq\(lower_bound: 0.0\)\)"):
        D.Exponential(1.0).log_prob(t(-1.0))
    with pytest.raises(ValueError, match="The value argument to log_prob must be a Tensor"):
        D.Normal(0.0, 1.0).log_prob(1.0)
    with pytest.raises(ValueError, match="Either `probs` or `logits` must be specified, but not both"):
        D.Bernoulli()
    with pytest.raises(ValueError, match="Input arguments must all be instances of Number"):
        D.Normal([0.0], 1.0)
    with pytest.raises(ValueError, match="right-most size of value must match event_shape"):
        D.Dirichlet(t(A)).log_prob(tg.ones(3))
    with pytest.raises(ValueError, match="Value is not broadcastable with batch_shape"):
        D.Normal(t(A), 1.0).log_prob(tg.ones(3))
    assert D.Exponential(1.0, validate_args=False).log_prob(t(-1.0)) == 1.0


def test_a_subclass_of_the_user_needs_its_own_expand() -> None:
    class Shifted(D.Normal):
        def __init__(self, loc: Any):
            super().__init__(loc, 1.0)

    with pytest.raises(NotImplementedError, match=r"Subclass Shifted of Normal that defines a custom __init__"):
        Shifted(0.0).expand((2,))


def test_each_module_of_pytorch_can_be_imported() -> None:
    from tracegrad.distributions.beta import Beta
    from tracegrad.distributions.normal import Normal
    from tracegrad.distributions.studentT import StudentT

    from tracegrad.distributions.utils import broadcast_all

    assert (Beta, Normal, StudentT) == (D.Beta, D.Normal, D.StudentT)
    assert [x.shape for x in broadcast_all(1.0, t(A))] == [(2,), (2,)]


def test_a_policy_gradient_step_compiles() -> None:
    weight = tg.zeros(4, 3, requires_grad=True)

    @tg.trace
    def step(state: Any, reward: Any) -> Any:
        d = D.Categorical(logits=state @ weight)
        action = d.sample()
        loss = -(d.log_prob(action) * reward).mean() - 0.01 * d.entropy().mean()
        weight.grad = None
        loss.backward()
        return action

    for _ in range(4):
        action = step(tg.ones(5, 4), tg.ones(5))
    assert step.cache_info().traces == 1
    assert set(action.tolist()) <= {0, 1, 2}
    assert weight.grad.shape == (4, 3)
