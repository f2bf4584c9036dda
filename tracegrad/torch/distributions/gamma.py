"""Distributions of positive numbers and of probabilities: the gamma family, Weibull, Pareto, Beta and Dirichlet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tracegrad.errors import located
from tracegrad.torch.distributions import constraints, draws
from tracegrad.torch.distributions.distribution import Distribution
from tracegrad.torch.distributions.exp_family import ExponentialFamily
from tracegrad.torch.distributions.utils import EULER, FUNCTIONS, broadcast_all
from tracegrad.torch.functions.math import special
from tracegrad.torch.tape import Tensor
from tracegrad.torch.tape.tensors.factories import zeros_like
from tracegrad.torch.tape.tensors.ranges import arange

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracegrad.torch.distributions.constraints import _GreaterThanEq
    from tracegrad.torch.tape.tensors.tensor import Tensor


__all__ = ["Beta", "Chi2", "Dirichlet", "Exponential", "FisherSnedecor", "Gamma", "InverseGamma", "Pareto", "Weibull"]

_where = FUNCTIONS["where"]


class Exponential(ExponentialFamily):
    """Exponential distribution: density rate exp(-rate x).

    >>> import tracegrad as tg
    >>> Exponential(2.0).mean
    tensor(0.5000)
    """

    arg_constraints = {"rate": constraints.positive}  # noqa: RUF012
    support = constraints.nonnegative
    has_rsample = True
    _mean_carrier_measure = 0
    rate: Tensor

    def __init__(self, rate: Tensor | float, validate_args: bool | None = None):
        self._begin(validate_args, rate=rate)

    @property
    def mean(self) -> Tensor:
        return self.rate.reciprocal()

    @property
    def mode(self) -> Tensor:
        return zeros_like(self.rate)

    @property
    def stddev(self) -> Tensor:
        return self.rate.reciprocal()

    @property
    def variance(self) -> Tensor:
        return self.rate.pow(-2)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return draws.exponential(self._extended_shape(sample_shape), self.rate.dtype) / self.rate

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        return self.rate.log() - self.rate * value

    def cdf(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        return -(-self.rate * value).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        return -(-value).log1p() / self.rate

    def entropy(self) -> Tensor:
        return 1.0 - self.rate.log()

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (-self.rate,)

    def _log_normalizer(self, x: Tensor) -> Tensor:
        return -(-x).log()


class Gamma(ExponentialFamily):
    """Gamma distribution: density proportional to x**(concentration - 1) exp(-rate x).

    Samples have derivatives with respect to both parameters.

    >>> import tracegrad as tg
    >>> Gamma(2.0, 4.0).mean
    tensor(0.5000)
    """

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}  # noqa: RUF012
    support = constraints.nonnegative
    has_rsample = True
    _mean_carrier_measure = 0
    concentration: Tensor
    rate: Tensor

    def __init__(self, concentration: Tensor | float, rate: Tensor | float, validate_args: bool | None = None):
        self._begin(validate_args, concentration=concentration, rate=rate)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.rate

    @property
    def mode(self) -> Tensor:
        return ((self.concentration - 1) / self.rate).clamp(min=0)

    @property
    def variance(self) -> Tensor:
        return self.concentration / self.rate.square()

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return draws.gamma(self.concentration.expand(self._extended_shape(sample_shape))) / self.rate

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        power = (self.concentration - 1).xlogy(value) + self.concentration * self.rate.log()
        return power - self.rate * value - self.concentration.lgamma()

    def cdf(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        return special.gammainc(self.concentration, self.rate * value)  # type: ignore[return-value]  # of a Tensor

    def entropy(self) -> Tensor:
        concentration = self.concentration
        result = concentration - self.rate.log() + concentration.lgamma()
        return result + (1.0 - concentration) * concentration.digamma()

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return self.concentration - 1, -self.rate

    def _log_normalizer(self, x: Tensor, y: Tensor) -> Tensor:
        return (x + 1).lgamma() - (x + 1) * (-y).log()


class Chi2(Gamma):
    """Chi-square distribution with `df` degrees of freedom.

    >>> Chi2(3.0).mean
    tensor(3.)
    """

    arg_constraints = {"df": constraints.positive}  # noqa: RUF012

    def __init__(self, df: Tensor | float, validate_args: bool | None = None):
        (df,) = broadcast_all(df)
        super().__init__(0.5 * df, 0.5, validate_args=validate_args)

    @property
    def df(self) -> Tensor:
        """Degrees of freedom."""
        return self.concentration * 2


class FisherSnedecor(Distribution):
    """F distribution: the ratio of two chi-square numbers, each divided by its degrees of freedom `df1` and `df2`.

    Samples have derivatives with respect to both parameters.

    >>> FisherSnedecor(2.0, 4.0).mean
    tensor(2.)
    """

    arg_constraints = {"df1": constraints.positive, "df2": constraints.positive}  # noqa: RUF012
    support = constraints.positive
    has_rsample = True
    df1: Tensor
    df2: Tensor

    def __init__(self, df1: Tensor | float, df2: Tensor | float, validate_args: bool | None = None):
        self._begin(validate_args, df1=df1, df2=df2)

    @property
    def mean(self) -> Tensor:
        return _where(self.df2 > 2, self.df2 / (self.df2 - 2), math.nan)

    @property
    def mode(self) -> Tensor:
        return _where(self.df1 > 2, (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2), math.nan)

    @property
    def variance(self) -> Tensor:
        a, b = self.df1, self.df2
        value = 2 * b.square() * (a + b - 2) / (a * (b - 2).square() * (b - 4))
        return _where(b > 4, value, math.nan)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        first, second = (draws.gamma((df / 2).expand(shape)) / df for df in (self.df1, self.df2))
        result: Tensor = first / second
        return result

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        a, b, ratio = self.df1 / 2, self.df2 / 2, self.df1 / self.df2
        constant = (a + b).lgamma() - a.lgamma() - b.lgamma() + a * ratio.log()
        return constant + (a - 1) * value.log() - (a + b) * (ratio * value).log1p()


class InverseGamma(Distribution):
    """Distribution of 1 / x for an x of the gamma distribution.

    >>> InverseGamma(2.0, 3.0).mean
    tensor(3.)
    """

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}  # noqa: RUF012
    support = constraints.positive
    has_rsample = True
    concentration: Tensor
    rate: Tensor

    def __init__(self, concentration: Tensor | float, rate: Tensor | float, validate_args: bool | None = None):
        self._begin(validate_args, concentration=concentration, rate=rate)

    @property
    def mean(self) -> Tensor:
        return _where(self.concentration > 1, self.rate / (self.concentration - 1), math.inf)

    @property
    def mode(self) -> Tensor:
        return self.rate / (self.concentration + 1)

    @property
    def variance(self) -> Tensor:
        a = self.concentration
        return _where(a > 2, self.rate.square() / ((a - 1).square() * (a - 2)), math.inf)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.rate / draws.gamma(self.concentration.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        a = self.concentration
        return a * self.rate.log() - a.lgamma() - (a + 1) * value.log() - self.rate / value

    def cdf(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        return special.gammaincc(self.concentration, self.rate / value)  # type: ignore[return-value]  # of a Tensor

    def entropy(self) -> Tensor:
        a = self.concentration
        return a + self.rate.log() + a.lgamma() - (1 + a) * a.digamma()


class Weibull(Distribution):
    """Weibull distribution: distribution function 1 - exp(-(x / scale)**concentration).

    >>> Weibull(2.0, 1.0).mean
    tensor(2.)
    """

    arg_constraints = {"scale": constraints.positive, "concentration": constraints.positive}  # noqa: RUF012
    support = constraints.positive
    has_rsample = True
    scale: Tensor
    concentration: Tensor

    def __init__(self, scale: Tensor | float, concentration: Tensor | float, validate_args: bool | None = None):
        self._begin(validate_args, scale=scale, concentration=concentration)

    @property
    def mean(self) -> Tensor:
        return self.scale * (1 + self.concentration.reciprocal()).lgamma().exp()

    @property
    def mode(self) -> Tensor:
        base = ((self.concentration - 1) / self.concentration).clamp(min=0)
        return self.scale * base ** self.concentration.reciprocal()

    @property
    def variance(self) -> Tensor:
        inverse = self.concentration.reciprocal()
        return self.scale.square() * ((1 + 2 * inverse).lgamma().exp() - (2 * (1 + inverse).lgamma()).exp())

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        times = draws.exponential(self._extended_shape(sample_shape), self.scale.dtype)
        return self.scale * times ** self.concentration.reciprocal()

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        ratio = value / self.scale
        power = (self.concentration - 1) * ratio.log() - ratio**self.concentration
        return (self.concentration / self.scale).log() + power

    def cdf(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        return -(-((value / self.scale) ** self.concentration)).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        return self.scale * (-(-value).log1p()) ** self.concentration.reciprocal()

    def entropy(self) -> Tensor:
        inverse = self.concentration.reciprocal()
        return EULER * (1 - inverse) + (self.scale * inverse).log() + 1


class Pareto(Distribution):
    """Pareto distribution: distribution function 1 - (scale / x)**alpha for x >= scale.

    >>> Pareto(1.0, 3.0).mean
    tensor(1.5000)
    """

    arg_constraints = {"alpha": constraints.positive, "scale": constraints.positive}  # noqa: RUF012
    has_rsample = True
    scale: Tensor
    alpha: Tensor

    def __init__(self, scale: Tensor | float, alpha: Tensor | float, validate_args: bool | None = None):
        self._begin(validate_args, scale=scale, alpha=alpha)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> _GreaterThanEq:
        return constraints.greater_than_eq(self.scale)

    @property
    def mean(self) -> Tensor:
        a = self.alpha.clamp(min=1)
        return a * self.scale / (a - 1)

    @property
    def mode(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        a = self.alpha.clamp(min=2)
        return self.scale.square() * a / ((a - 1).square() * (a - 2))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.scale * (draws.exponential(self._extended_shape(sample_shape), self.scale.dtype) / self.alpha).exp()

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        return self.alpha.log() + self.alpha * self.scale.log() - (self.alpha + 1) * value.log()

    def cdf(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        return -(self.alpha * (self.scale / value).log()).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        return self.scale * (-(-value).log1p() / self.alpha).exp()

    def entropy(self) -> Tensor:
        return (self.scale / self.alpha).log() + (1 + self.alpha.reciprocal())


class Beta(ExponentialFamily):
    """Beta distribution: density proportional to x**(concentration1 - 1) (1 - x)**(concentration0 - 1).

    Samples have derivatives with respect to both parameters.

    >>> Beta(1.0, 3.0).mean
    tensor(0.2500)
    """

    arg_constraints = {"concentration1": constraints.positive, "concentration0": constraints.positive}  # noqa: RUF012
    support = constraints.unit_interval
    has_rsample = True
    _mean_carrier_measure = 0
    concentration1: Tensor
    concentration0: Tensor

    def __init__(
        self, concentration1: Tensor | float, concentration0: Tensor | float, validate_args: bool | None = None
    ):
        self._begin(validate_args, concentration1=concentration1, concentration0=concentration0)

    @property
    def _total(self) -> Tensor:
        return self.concentration1 + self.concentration0

    @property
    def mean(self) -> Tensor:
        return self.concentration1 / self._total

    @property
    def mode(self) -> Tensor:
        one, zero = self.concentration1, self.concentration0
        inside = (one - 1) / _where((one > 1) & (zero > 1), self._total - 2, 1.0)
        at_ends = _where(one == zero, math.nan, (one > zero).to(one.dtype))
        at_ends = _where((one == 1) & (zero > 1), 0.0, _where((zero == 1) & (one > 1), 1.0, at_ends))
        return _where((one > 1) & (zero > 1), inside, at_ends)

    @property
    def variance(self) -> Tensor:
        return self.concentration1 * self.concentration0 / (self._total.square() * (self._total + 1))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        one, zero = draws.gamma(self.concentration1.expand(shape)), draws.gamma(self.concentration0.expand(shape))
        return one / (one + zero)

    def _log_beta(self) -> Tensor:
        return self.concentration1.lgamma() + self.concentration0.lgamma() - self._total.lgamma()

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        powers = (self.concentration1 - 1).xlogy(value) + special.xlog1py(self.concentration0 - 1, -value)
        return powers - self._log_beta()

    def entropy(self) -> Tensor:
        terms = [(c - 1) * c.digamma() for c in (self.concentration1, self.concentration0)]
        return self._log_beta() - sum(terms) + (self._total - 2) * self._total.digamma()

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return self.concentration1, self.concentration0

    def _log_normalizer(self, x: Tensor, y: Tensor) -> Tensor:
        return x.lgamma() + y.lgamma() - (x + y).lgamma()


class Dirichlet(ExponentialFamily):
    """Dirichlet distribution of probabilities: density proportional to the product of x**(concentration - 1).

    Samples have derivatives with respect to the concentrations. ValueError for a concentration without dimensions.

    >>> import tracegrad as tg
    >>> Dirichlet(tg.tensor([1.0, 3.0])).mean
    tensor([0.2500, 0.7500])
    """

    arg_constraints = {"concentration": constraints.independent(constraints.positive, 1)}  # noqa: RUF012
    support = constraints.simplex
    has_rsample = True
    _mean_carrier_measure = 0

    def __init__(self, concentration: Tensor, validate_args: bool | None = None):
        if len(concentration.shape) < 1:
            raise ValueError(located("`concentration` parameter must be at least one-dimensional."))
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.concentration.sum(-1, True)

    @property
    def mode(self) -> Tensor:
        above = (self.concentration - 1).clamp(min=0)
        corner = self.concentration.argmax(-1).unsqueeze(-1) == arange(self._event_shape[0])
        at_corner = (self.concentration < 1).all(-1).unsqueeze(-1)
        return _where(at_corner, corner.to(above.dtype), above / above.sum(-1, True))

    @property
    def variance(self) -> Tensor:
        total = self.concentration.sum(-1, True)
        return self.concentration * (total - self.concentration) / (total.square() * (total + 1))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        numbers = draws.gamma(self.concentration.expand(self._extended_shape(sample_shape)))
        return numbers / numbers.sum(-1, True)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        return (self.concentration - 1).xlogy(value).sum(-1) - self._log_normalizer(self.concentration)

    def entropy(self) -> Tensor:
        k, total = self._event_shape[0], self.concentration.sum(-1)
        terms = ((self.concentration - 1) * self.concentration.digamma()).sum(-1)
        result: Tensor = self._log_normalizer(self.concentration) + (total - k) * total.digamma() - terms
        return result

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.concentration,)

    def _log_normalizer(self, x: Tensor) -> Tensor:
        return x.lgamma().sum(-1) - x.sum(-1).lgamma()
