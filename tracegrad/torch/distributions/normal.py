"""Normal distributions, and base classes for a location and a scale, and for halves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tracegrad.torch.distributions import constraints
from tracegrad.torch.distributions.distribution import Distribution
from tracegrad.torch.distributions.exp_family import ExponentialFamily
from tracegrad.torch.distributions.utils import FUNCTIONS
from tracegrad.torch.tape import Tensor
from tracegrad.torch.tape.tensors.random import randn

if TYPE_CHECKING:
    from tracegrad.torch.tape.tensors.tensor import Tensor


__all__ = ["HalfNormal", "Normal"]


class LocationScale(Distribution):
    """Distributions of loc + scale * x for a standard variable x, with the mean and the mode `loc`."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}  # noqa: RUF012
    support = constraints.real
    has_rsample = True
    loc: Tensor
    scale: Tensor

    def __init__(self, loc: Tensor | float, scale: Tensor | float, validate_args: bool | None = None):
        self._begin(validate_args, loc=loc, scale=scale)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc


class Folded(Distribution):
    """Distributions of |x| for an x of a distribution that is symmetric around 0, `_base`."""

    arg_constraints = {"scale": constraints.positive}  # noqa: RUF012
    support = constraints.nonnegative
    has_rsample = True
    scale: Tensor

    def __init__(self, scale: Tensor | float, validate_args: bool | None = None):
        self._begin(validate_args, scale=scale)

    @property
    def _base(self) -> LocationScale:
        raise NotImplementedError

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self._base.rsample(sample_shape).abs()

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        return FUNCTIONS["where"](value >= 0, self._base.log_prob(value) + math.log(2), -math.inf)

    def cdf(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        return 2 * self._base.cdf(value) - 1

    def icdf(self, value: Tensor) -> Tensor:
        return self._base.icdf((value + 1) / 2)

    def entropy(self) -> Tensor:
        return self._base.entropy() - math.log(2)


class Normal(LocationScale, ExponentialFamily):
    """Normal (Gaussian) distribution with mean `loc` and standard deviation `scale`.

    >>> import tracegrad as tg
    >>> Normal(0.0, 1.0).log_prob(tg.tensor(0.0))
    tensor(-0.9189)
    """

    arg_constraints = LocationScale.arg_constraints
    _mean_carrier_measure = 0

    @property
    def stddev(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        return self.scale.square()

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return self.loc + self.scale * randn(shape, dtype=self.loc.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        distance = (value - self.loc) / self.scale
        return -0.5 * distance.square() - self.scale.log() - 0.5 * math.log(2 * math.pi)

    def cdf(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        return 0.5 * (1 + ((value - self.loc) / self.scale / math.sqrt(2)).erf())

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc + self.scale * (2 * value - 1).erfinv() * math.sqrt(2)

    def entropy(self) -> Tensor:
        return 0.5 + 0.5 * math.log(2 * math.pi) + self.scale.log()

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return self.loc / self.scale.square(), -0.5 / self.scale.square()

    def _log_normalizer(self, x: Tensor, y: Tensor) -> Tensor:
        return -0.25 * x.square() / y + 0.5 * (-math.pi / y).log()


class HalfNormal(Folded):
    """Distribution of |x| for a normal x with mean 0 and standard deviation `scale`.

    >>> import tracegrad as tg
    >>> HalfNormal(1.0).log_prob(tg.tensor(0.0))
    tensor(-0.2258)
    """

    arg_constraints = Folded.arg_constraints

    @property
    def _base(self) -> Normal:
        return Normal(0.0, self.scale, validate_args=False)

    @property
    def mean(self) -> Tensor:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def mode(self) -> Tensor:
        return self.scale * 0

    @property
    def variance(self) -> Tensor:
        return self.scale.square() * (1 - 2 / math.pi)
