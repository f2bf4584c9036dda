"""Distributions of numbers with a location and a scale: Cauchy, Gumbel, Laplace, uniform and others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tracegrad.errors import located
from tracegrad.torch.distributions import constraints, draws
from tracegrad.torch.distributions.distribution import Distribution
from tracegrad.torch.distributions.normal import Folded, LocationScale
from tracegrad.torch.distributions.utils import EULER, FUNCTIONS
from tracegrad.torch.functions.math import special
from tracegrad.torch.tape import Tensor
from tracegrad.torch.tape.tensors.factories import full_like, zeros_like
from tracegrad.torch.tape.tensors.random import draw_with, rand, randn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracegrad.torch.distributions.constraints import Constraint, _Interval
    from tracegrad.torch.tape.tensors.tensor import Tensor


__all__ = ["Cauchy", "GeneralizedPareto", "Gumbel", "HalfCauchy", "Laplace", "StudentT", "Uniform", "VonMises"]

_where = FUNCTIONS["where"]
_i0e: Any = special.i0e
_i1e: Any = special.i1e


class Uniform(Distribution):
    """Uniform distribution on the interval from `low` to `high`; ValueError unless low < high.

    >>> import tracegrad as tg
    >>> Uniform(0.0, 2.0).log_prob(tg.tensor([1.0])).exp()
    tensor([0.5000])
    """

    arg_constraints = {  # noqa: RUF012
        "low": constraints.dependent(is_discrete=False, event_dim=0),
        "high": constraints.dependent(is_discrete=False, event_dim=0),
    }
    has_rsample = True
    low: Tensor
    high: Tensor

    def __init__(self, low: Tensor | float, high: Tensor | float, validate_args: bool | None = None):
        self._begin(validate_args, low=low, high=high)
        if self._validate_args and not (self.low < self.high).all():
            raise ValueError(located("Uniform is not defined when low>= high"))

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> _Interval:
        return constraints.interval(self.low, self.high)

    @property
    def mean(self) -> Tensor:
        return (self.high + self.low) / 2

    @property
    def mode(self) -> Tensor:
        return math.nan * self.high

    @property
    def variance(self) -> Tensor:
        return (self.high - self.low).square() / 12

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return self.low + rand(shape, dtype=self.low.dtype) * (self.high - self.low)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        inside = ((value >= self.low) & (value < self.high)).to(self.low.dtype)
        return inside.log() - (self.high - self.low).log()

    def cdf(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        return ((value - self.low) / (self.high - self.low)).clamp(min=0, max=1)

    def icdf(self, value: Tensor) -> Tensor:
        return value * (self.high - self.low) + self.low

    def entropy(self) -> Tensor:
        return (self.high - self.low).log()


class Laplace(LocationScale):
    """Laplace distribution: density exp(-|x - loc| / scale) / (2 scale).

    >>> import tracegrad as tg
    >>> Laplace(0.0, 1.0).cdf(tg.tensor(0.0))
    tensor(0.5000)
    """

    arg_constraints = LocationScale.arg_constraints

    @property
    def variance(self) -> Tensor:
        return 2 * self.scale.square()

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        u = draws.uniform(self._extended_shape(sample_shape), self.loc.dtype)
        return self.icdf(u)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        return -(2 * self.scale).log() - (value - self.loc).abs() / self.scale

    def cdf(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        distance = (value - self.loc) / self.scale
        return 0.5 - 0.5 * distance.sign() * distance.abs().neg().expm1()

    def icdf(self, value: Tensor) -> Tensor:
        term = value - 0.5
        return self.loc - self.scale * term.sign() * (-2 * term.abs()).log1p()

    def entropy(self) -> Tensor:
        return 1 + (2 * self.scale).log()


class Cauchy(LocationScale):
    """Cauchy distribution with median `loc` and half width `scale`; it has no mean.

    >>> import tracegrad as tg
    >>> Cauchy(0.0, 1.0).cdf(tg.tensor(1.0))
    tensor(0.7500)
    """

    arg_constraints = LocationScale.arg_constraints

    @property
    def mean(self) -> Tensor:
        return full_like(self.loc, math.nan)

    @property
    def variance(self) -> Tensor:
        return full_like(self.loc, math.inf)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.icdf(draws.uniform(self._extended_shape(sample_shape), self.loc.dtype))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        return -math.log(math.pi) - self.scale.log() - ((value - self.loc) / self.scale).square().log1p()

    def cdf(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        return ((value - self.loc) / self.scale).atan() / math.pi + 0.5

    def icdf(self, value: Tensor) -> Tensor:
        return (math.pi * (value - 0.5)).tan() * self.scale + self.loc

    def entropy(self) -> Tensor:
        return math.log(4 * math.pi) + self.scale.log()


class HalfCauchy(Folded):
    """Distribution of |x| for an x of the Cauchy distribution with `loc` 0.

    >>> import tracegrad as tg
    >>> HalfCauchy(1.0).cdf(tg.tensor(1.0))
    tensor(0.5000)
    """

    arg_constraints = Folded.arg_constraints

    @property
    def _base(self) -> Cauchy:
        return Cauchy(0.0, self.scale, validate_args=False)

    @property
    def mean(self) -> Tensor:
        return full_like(self.scale, math.inf)

    @property
    def mode(self) -> Tensor:
        return zeros_like(self.scale)

    @property
    def variance(self) -> Tensor:
        return full_like(self.scale, math.inf)


class Gumbel(LocationScale):
    """Gumbel distribution: distribution function exp(-exp(-(x - loc) / scale)).

    >>> import tracegrad as tg
    >>> Gumbel(0.0, 1.0).log_prob(tg.tensor(0.0))
    tensor(-1.)
    """

    arg_constraints = LocationScale.arg_constraints

    @property
    def mean(self) -> Tensor:
        return self.loc + self.scale * EULER

    @property
    def variance(self) -> Tensor:
        return self.scale.square() * (math.pi**2 / 6)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.loc - self.scale * draws.exponential(self._extended_shape(sample_shape), self.loc.dtype).log()

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        y = (self.loc - value) / self.scale
        return y - y.exp() - self.scale.log()

    def cdf(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        return ((self.loc - value) / self.scale).exp().neg().exp()

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc - self.scale * value.log().neg().log()

    def entropy(self) -> Tensor:
        return self.scale.log() + (1 + EULER)


class StudentT(Distribution):
    """Student's t distribution with `df` degrees of freedom, moved by `loc` and scaled by `scale`.

    >>> import tracegrad as tg
    >>> StudentT(1.0).log_prob(tg.tensor(0.0))
    tensor(-1.1447)
    """

    arg_constraints = {  # noqa: RUF012
        "df": constraints.positive,
        "loc": constraints.real,
        "scale": constraints.positive,
    }
    support = constraints.real
    has_rsample = True
    df: Tensor
    loc: Tensor
    scale: Tensor

    def __init__(
        self,
        df: Tensor | float,
        loc: Tensor | float = 0.0,
        scale: Tensor | float = 1.0,
        validate_args: bool | None = None,
    ):
        self._begin(validate_args, df=df, loc=loc, scale=scale)

    @property
    def mean(self) -> Tensor:
        return _where(self.df > 1, self.loc, math.nan)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        finite = self.scale.square() * self.df / _where(self.df > 2, self.df - 2, 1.0)
        return _where(self.df > 2, finite, _where(self.df > 1, full_like(self.df, math.inf), math.nan))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        half = 0.5 * self.df
        spread = (half / draws.gamma(half.expand(shape))).sqrt()
        return self.loc + self.scale * (randn(shape, dtype=self.df.dtype) * spread)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        y = (value - self.loc) / self.scale
        normalizer = self.scale.log() + 0.5 * (self.df * math.pi).log() + (0.5 * self.df).lgamma()
        normalizer = normalizer - (0.5 * (self.df + 1)).lgamma()
        return -0.5 * (self.df + 1) * (y.square() / self.df).log1p() - normalizer

    def entropy(self) -> Tensor:
        half, above = 0.5 * self.df, 0.5 * (self.df + 1)
        log_beta = half.lgamma() + math.lgamma(0.5) - above.lgamma()
        return self.scale.log() + above * (above.digamma() - half.digamma()) + 0.5 * self.df.log() + log_beta


class VonMises(Distribution):
    """Von Mises distribution of angles: density proportional to exp(concentration cos(x - loc)).

    >>> import tracegrad as tg
    >>> VonMises(0.0, 1.0).log_prob(tg.tensor(0.0))
    tensor(-1.0738)
    """

    arg_constraints = {"loc": constraints.real, "concentration": constraints.positive}  # noqa: RUF012
    support = constraints.real
    has_rsample = False
    loc: Tensor
    concentration: Tensor

    def __init__(self, loc: Tensor | float, concentration: Tensor | float, validate_args: bool | None = None):
        self._begin(validate_args, loc=loc, concentration=concentration)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        """Circular variance, 1 - I1 / I0."""
        result: Tensor = 1 - _i1e(self.concentration) / _i0e(self.concentration)
        return result

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        parameters = [x.detach().expand(shape) for x in (self.loc, self.concentration)]
        return draw_with("VonMises", "vonmises", parameters, self.loc.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        # I0(k) = i0e(k) exp(k)
        normalizer = _i0e(self.concentration).log() + math.log(2 * math.pi)
        result: Tensor = self.concentration * ((value - self.loc).cos() - 1) - normalizer
        return result


class GeneralizedPareto(Distribution):
    """Generalized Pareto distribution: distribution function 1 - (1 + c y)**(-1 / c) for y = (x - loc) / scale.

    c is the concentration; for c = 0 the distribution is exponential, and for c < 0 it ends at loc - scale / c.

    >>> GeneralizedPareto(0.0, 1.0, 0.5).mean
    tensor(2.)
    """

    arg_constraints = {  # noqa: RUF012
        "loc": constraints.real,
        "scale": constraints.positive,
        "concentration": constraints.real,
    }
    has_rsample = True
    loc: Tensor
    scale: Tensor
    concentration: Tensor

    def __init__(
        self,
        loc: Tensor | float,
        scale: Tensor | float,
        concentration: Tensor | float,
        validate_args: bool | None = None,
    ):
        self._begin(validate_args, loc=loc, scale=scale, concentration=concentration)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Constraint:
        end = self.loc - self.scale / self._nonzero
        return constraints.interval(self.loc, _where(self.concentration < 0, end, math.inf))

    @property
    def _nonzero(self) -> Tensor:
        """The concentration, and 1 in place of 0."""
        return _where(self.concentration == 0, 1.0, self.concentration)

    @property
    def mean(self) -> Tensor:
        c = self.concentration
        return _where(c < 1, self.loc + self.scale / (1 - c), math.nan)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        c = self.concentration
        return _where(c < 0.5, self.scale.square() / ((1 - c).square() * (1 - 2 * c)), math.nan)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.icdf(rand(self._extended_shape(sample_shape), dtype=self.loc.dtype))

    def _log_survival(self, value: Tensor) -> Tensor:
        y, c = (value - self.loc) / self.scale, self._nonzero
        return _where(self.concentration == 0, -y, -(c * y).log1p() / c)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        return (1 + self.concentration) * self._log_survival(value) - self.scale.log()

    def log_survival_function(self, value: Tensor) -> Tensor:
        """Return the logarithm of the probability of samples above `value`."""
        self._check_sample(value)
        return self._log_survival(value)

    def log_cdf(self, value: Tensor) -> Tensor:
        """Return the logarithm of the probability of samples up to `value`."""
        result: Tensor = (-self.log_survival_function(value).exp()).log1p()
        return result

    def cdf(self, value: Tensor) -> Tensor:
        result: Tensor = -self.log_survival_function(value).expm1()
        return result

    def icdf(self, value: Tensor) -> Tensor:
        c, times = self._nonzero, -(-value).log1p()
        return self.loc + self.scale * _where(self.concentration == 0, times, (c * times).expm1() / c)

    def entropy(self) -> Tensor:
        return self.scale.log() + self.concentration + 1
