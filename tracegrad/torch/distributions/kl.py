"""Kullback-Leibler divergences of pairs of distributions, and the registry of their formulas."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tracegrad.torch.autograd import grad
from tracegrad.torch.distributions.categorical import Categorical, OneHotCategorical
from tracegrad.torch.distributions.counts import Bernoulli, Binomial, ContinuousBernoulli, Geometric, Poisson
from tracegrad.torch.distributions.distribution import Distribution
from tracegrad.torch.distributions.exp_family import ExponentialFamily, differentiable
from tracegrad.torch.distributions.gamma import Beta, Dirichlet, Exponential, Gamma, Pareto
from tracegrad.torch.distributions.independent import Independent
from tracegrad.torch.distributions.location_scale import Gumbel, Laplace, Uniform
from tracegrad.torch.distributions.multivariate_normal import (
    LowRankMultivariateNormal,
    MultivariateNormal,
    batch_mahalanobis,
    half_log_det,
    solved,
)
from tracegrad.torch.distributions.normal import HalfNormal, Normal
from tracegrad.torch.distributions.transform import sum_rightmost
from tracegrad.torch.distributions.transformed_distribution import TransformedDistribution
from tracegrad.torch.distributions.utils import EULER, FUNCTIONS
from tracegrad.torch.nn import functional as F
from tracegrad.torch.tape.tensors.factories import full_like
from tracegrad.utils.pair_registry import PairRegistry

if TYPE_CHECKING:
    from tracegrad.torch.tape.tensors.tensor import Tensor


__all__ = ["kl_divergence", "register_kl"]

_FORMULAS: dict[tuple[type, type], Callable[..., Any]] = {}  # traced code reads it, and traces the formula
_REGISTRY = PairRegistry(_FORMULAS)
_where = FUNCTIONS["where"]


def register_kl(type_p: type, type_q: type) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function of (p, q) for `kl_divergence`, as a decorator; also for subclasses.

    TypeError for other objects than classes of distributions.

    >>> class Point(Distribution):
    ...     pass
    >>> @register_kl(Point, Point)
    ... def between_points(p, q):
    ...     return 0.0
    """
    for name, cls in (("type_p", type_p), ("type_q", type_q)):
        if not isinstance(cls, type) or not issubclass(cls, Distribution):
            raise TypeError(f"Expected {name} to be a Distribution subclass but got {cls}")

    def declare(function: Callable[..., object]) -> Callable[..., object]:
        _REGISTRY.add(type_p, type_q, function)
        return function

    return declare


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """Return the divergence KL(p || q) = E_p[log p(x) - log q(x)] for each element of the batch.

    NotImplementedError if no formula of the pair is registered.

    >>> kl_divergence(Normal(0.0, 1.0), Normal(1.0, 1.0))
    tensor(0.5000)
    """
    pair = _REGISTRY.find(type(p), type(q))
    if pair is None:
        raise NotImplementedError(
            f"No KL(p || q) is implemented for p type {type(p).__name__} and q type {type(q).__name__}"
        )
    result: Tensor = _FORMULAS[pair](p, q)
    return result


# -- general ones --------------------------------------------------------------------------------------------------
@register_kl(ExponentialFamily, ExponentialFamily)
def _of_exponential_families(p: ExponentialFamily, q: ExponentialFamily) -> Tensor:
    """Compute the Bregman divergence of the log normalizer."""
    if type(p) is not type(q):
        raise NotImplementedError(
            "The cross KL-divergence between different exponential families cannot be computed using Bregman "
            "divergences"
        )
    parameters = [differentiable(x) for x in p._natural_params]
    normalizer = p._log_normalizer(*parameters)
    gradients = grad(normalizer.sum(), parameters, create_graph=True)
    result = q._log_normalizer(*q._natural_params) - normalizer
    for of_p, of_q, gradient in zip(parameters, q._natural_params, gradients):
        result = result - sum_rightmost((of_q - of_p) * gradient, len(q.event_shape))
    return result


@register_kl(Independent, Independent)
def _of_independent(p: Independent, q: Independent) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


@register_kl(TransformedDistribution, TransformedDistribution)
def _of_transformed(p: TransformedDistribution, q: TransformedDistribution) -> Tensor:
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), len(p.event_shape) - len(p.base_dist.event_shape))


# -- of one family -------------------------------------------------------------------------------------------------
@register_kl(Bernoulli, Bernoulli)
def _of_bernoulli(p: Bernoulli, q: Bernoulli) -> Tensor:
    terms = []
    for sign, chance, other in ((1, p.probs, q.probs), (-1, 1 - p.probs, 1 - q.probs)):
        term = chance * (F.logsigmoid(sign * p.logits) - F.logsigmoid(sign * q.logits))
        terms.append(_where(chance == 0, 0.0, _where(other == 0, math.inf, term)))
    return terms[0] + terms[1]


@register_kl(Binomial, Binomial)
def _of_binomial(p: Binomial, q: Binomial) -> Tensor:
    if (p.total_count < q.total_count).any():
        raise NotImplementedError("KL between Binomials where q.total_count > p.total_count is not implemented")
    logs = p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p()
    return _where(p.total_count > q.total_count, math.inf, p.total_count * logs)


@register_kl(Categorical, Categorical)
def _of_categorical(p: Categorical, q: Categorical) -> Tensor:
    terms = p.probs * (p.logits - q.logits)
    return _where(p.probs == 0, 0.0, _where(q.probs == 0, math.inf, terms)).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _of_one_hot_categorical(p: OneHotCategorical, q: OneHotCategorical) -> Tensor:
    result: Tensor = _of_categorical(p._categorical, q._categorical)
    return result


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _of_continuous_bernoulli(p: ContinuousBernoulli, q: ContinuousBernoulli) -> Tensor:
    logs = p.mean * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p()
    result: Tensor = logs + p._log_norm() - q._log_norm()
    return result


@register_kl(Beta, Beta)
def _of_beta(p: Beta, q: Beta) -> Tensor:
    one, zero = p.concentration1, p.concentration0
    terms = (one - q.concentration1) * one.digamma() + (zero - q.concentration0) * zero.digamma()
    return q._log_beta() - p._log_beta() + terms + (q._total - p._total) * p._total.digamma()


@register_kl(Dirichlet, Dirichlet)
def _of_dirichlet(p: Dirichlet, q: Dirichlet) -> Tensor:
    a, b = p.concentration, q.concentration
    terms = (a - b) * (a.digamma() - a.sum(-1, True).digamma())
    return q._log_normalizer(b) - p._log_normalizer(a) + terms.sum(-1)


@register_kl(Exponential, Exponential)
def _of_exponential(p: Exponential, q: Exponential) -> Tensor:
    ratio = q.rate / p.rate
    return ratio - ratio.log() - 1


@register_kl(Gamma, Gamma)
def _of_gamma(p: Gamma, q: Gamma) -> Tensor:
    a, b = p.concentration, q.concentration
    terms = b * (p.rate / q.rate).log() + b.lgamma() - a.lgamma()
    return terms + (a - b) * a.digamma() + (q.rate - p.rate) * (a / p.rate)


@register_kl(Geometric, Geometric)
def _of_geometric(p: Geometric, q: Geometric) -> Tensor:
    result: Tensor = -p.entropy() - (-q.probs).log1p() / p.probs - q.logits
    return result


@register_kl(Gumbel, Gumbel)
def _of_gumbel(p: Gumbel, q: Gumbel) -> Tensor:
    ratio, distance = p.scale / q.scale, (p.loc - q.loc) / q.scale
    moment = ((1 + ratio).lgamma() - distance).exp()
    return distance - ratio.log() + ratio * EULER + moment - (1 + EULER)


def _of_scales(p: Any, q: Any) -> Tensor:
    square = (p.scale / q.scale).square()
    result: Tensor = 0.5 * (square - 1 - square.log())
    return result


@register_kl(Normal, Normal)
def _of_normal(p: Any, q: Any) -> Tensor:
    result: Tensor = _of_scales(p, q) + 0.5 * ((p.loc - q.loc) / q.scale).square()
    return result


register_kl(HalfNormal, HalfNormal)(_of_scales)


@register_kl(Laplace, Laplace)
def _of_laplace(p: Laplace, q: Laplace) -> Tensor:
    ratio, distance = p.scale / q.scale, (p.loc - q.loc).abs()
    return distance / q.scale + ratio * (-distance / p.scale).exp() - ratio.log() - 1


@register_kl(Pareto, Pareto)
def _of_pareto(p: Pareto, q: Pareto) -> Tensor:
    ratio = q.alpha / p.alpha
    result = q.alpha * (p.scale / q.scale).log() - ratio.log() + ratio - 1
    return _where(p.scale < q.scale, math.inf, result)


@register_kl(Poisson, Poisson)
def _of_poisson(p: Poisson, q: Poisson) -> Tensor:
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(Uniform, Uniform)
def _of_uniform(p: Uniform, q: Uniform) -> Tensor:
    result = ((q.high - q.low) / (p.high - p.low)).log()
    return _where((q.low > p.low) | (q.high < p.high), math.inf, result)


def _of_multivariate_normal(p: Any, q: Any) -> Tensor:
    n = p.event_shape[0]
    spread = solved(q.scale_tril, p.scale_tril).square().sum((-2, -1))
    distance = batch_mahalanobis(q.scale_tril, q.loc - p.loc)
    result: Tensor = half_log_det(q.scale_tril) - half_log_det(p.scale_tril) + 0.5 * (spread + distance - n)
    return result


def _register(types_p: Sequence[type], types_q: Sequence[type], function: Callable[..., object]) -> None:
    """Register one function for each pair."""
    for type_p in types_p:
        for type_q in types_q:
            register_kl(type_p, type_q)(function)


_vectors = MultivariateNormal, LowRankMultivariateNormal
_register(_vectors, _vectors, _of_multivariate_normal)


# -- of two families -----------------------------------------------------------------------------------------------
def _to_normal(p: Distribution, q: Normal) -> Tensor:
    square = q.scale.square()
    spread = (p.variance + (p.mean - q.loc).square()) / (2 * square)
    return spread + 0.5 * (2 * math.pi * square).log() - p.entropy()


def _to_exponential(p: Distribution, q: Exponential) -> Tensor:
    return q.rate * p.mean - q.rate.log() - p.entropy()


def _infinite(p: Distribution, q: Distribution) -> Tensor:
    return full_like(p.mean + q.mean, math.inf)


_register((Beta, ContinuousBernoulli, Exponential, Gamma, Gumbel, Laplace, Uniform), (Normal,), _to_normal)
_register((Beta, ContinuousBernoulli, Gamma, Pareto), (Exponential,), _to_exponential)

# The first distribution has values that the second one does not have.
_on_interval = Beta, ContinuousBernoulli, Uniform
_register((Gumbel, Laplace, Normal), (*_on_interval, Exponential, Gamma, Pareto), _infinite)
_register((Exponential, Gamma), (*_on_interval, Pareto), _infinite)
_register((Pareto,), _on_interval, _infinite)
_register((Beta, ContinuousBernoulli), (Pareto,), _infinite)
_register((Poisson,), (Bernoulli, Binomial), _infinite)


@register_kl(Bernoulli, Poisson)
def _from_bernoulli_to_poisson(p: Any, q: Any) -> Tensor:
    result: Tensor = q.rate - p.probs * q.rate.log() - p.entropy()
    return result


@register_kl(Exponential, Gamma)
def _from_exponential_to_gamma(p: Exponential, q: Gamma) -> Tensor:
    a, ratio = q.concentration, q.rate / p.rate
    return ratio - a * ratio.log() + a.lgamma() + a * EULER - (1 + EULER)


@register_kl(Beta, Gamma)
def _from_beta_to_gamma(p: Beta, q: Gamma) -> Tensor:
    a = q.concentration
    logs = (a - 1) * (p.concentration1.digamma() - p._total.digamma())
    return q.rate * p.mean + a.lgamma() - a * q.rate.log() - logs - p.entropy()


@register_kl(Gamma, Gumbel)
def _from_gamma_to_gumbel(p: Gamma, q: Gumbel) -> Tensor:
    scaled = p.rate * q.scale
    moment = (q.loc / q.scale - p.concentration * (1 / scaled).log1p()).exp()
    return moment + p.concentration / scaled - q.loc / q.scale + q.scale.log() - p.entropy()


@register_kl(Normal, Gumbel)
def _from_normal_to_gumbel(p: Normal, q: Gumbel) -> Tensor:
    distance, ratio = (p.loc - q.loc) / q.scale, (p.scale / q.scale).square()
    return (0.5 * ratio - distance).exp() + distance + q.scale.log() - p.entropy()


@register_kl(Normal, Laplace)
def _from_normal_to_laplace(p: Normal, q: Laplace) -> Tensor:
    distance = (p.loc - q.loc) / p.scale
    deviation = math.sqrt(2 / math.pi) * (-0.5 * distance.square()).exp() + distance * (distance / math.sqrt(2)).erf()
    return p.scale * deviation / q.scale + (2 * q.scale).log() - p.entropy()
