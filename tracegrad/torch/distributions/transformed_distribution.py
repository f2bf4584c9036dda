"""Distributions of transformed samples: `TransformedDistribution`, log-normal, logistic-normal, Kumaraswamy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

from tracegrad.avals import Size
from tracegrad.errors import located
from tracegrad.torch.distributions import constraints
from tracegrad.torch.distributions.distribution import Distribution
from tracegrad.torch.distributions.independent import Independent
from tracegrad.torch.distributions.location_scale import Uniform
from tracegrad.torch.distributions.normal import Normal
from tracegrad.torch.distributions.transform import ComposeTransform, Transform, sum_rightmost
from tracegrad.torch.distributions.transforms import (
    AffineTransform,
    ExpTransform,
    PowerTransform,
    StickBreakingTransform,
)
from tracegrad.torch.distributions.utils import EULER, FUNCTIONS, broadcast_all
from tracegrad.torch.modes import no_grad
from tracegrad.torch.tape.tensors.factories import ones_like, zeros_like

if TYPE_CHECKING:
    from tracegrad.torch.distributions.constraints import Constraint
    from tracegrad.torch.tape.tensors.tensor import Tensor


__all__ = ["Kumaraswamy", "LogNormal", "LogisticNormal", "TransformedDistribution"]


def _list_of(transforms: Transform | list[Transform]) -> list[Transform]:
    if isinstance(transforms, Transform):
        return [transforms]
    if not isinstance(transforms, list):
        raise ValueError(located(f"transforms must be a Transform or list, but was {transforms}"))
    if not all(isinstance(t, Transform) for t in transforms):
        raise ValueError(located("transforms must be a Transform or a list of Transforms"))
    return transforms


class TransformedDistribution(Distribution):
    """Distribution of the samples of another one after transforms, from the first to the last.

    ValueError for other objects than transforms, or a base with too few dimensions.

    >>> import tracegrad as tg
    >>> from tracegrad.distributions import Uniform
    >>> from tracegrad.distributions.transforms import AffineTransform
    >>> TransformedDistribution(Uniform(0.0, 1.0), [AffineTransform(1.0, 2.0)]).cdf(tg.tensor(2.0))
    tensor(0.5000)
    """

    arg_constraints = {}  # noqa: RUF012
    _unexpanded = ("base_dist",)
    base_dist: Any

    def __init__(
        self,
        base_distribution: Distribution,
        transforms: Transform | list[Transform],
        validate_args: bool | None = None,
    ):
        self.transforms = _list_of(transforms)
        base_shape = base_distribution.batch_shape + base_distribution.event_shape
        base_event_dim = len(base_distribution.event_shape)
        transform = ComposeTransform(self.transforms)
        domain_dim, codomain_dim = transform.domain.event_dim, transform.codomain.event_dim
        if len(base_shape) < domain_dim:
            raise ValueError(
                located(f"base_distribution needs to have shape with size at least {domain_dim}, but got {base_shape}.")
            )
        shape = transform.forward_shape(base_shape)
        expanded = transform.inverse_shape(shape)
        if base_shape != expanded:
            base_distribution = base_distribution.expand(expanded[: len(expanded) - base_event_dim])
        if domain_dim > base_event_dim:
            base_distribution = Independent(base_distribution, domain_dim - base_event_dim)
        self.base_dist = base_distribution
        cut = len(shape) - max(codomain_dim, base_event_dim + codomain_dim - domain_dim)
        super().__init__(shape[:cut], shape[cut:], validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Self | None = None) -> Self:
        new = super().expand(batch_shape, _instance)
        shape: Any = Size((*batch_shape, *self._event_shape))
        for transform in reversed(self.transforms):
            shape = transform.inverse_shape(shape)
        new.base_dist = self.base_dist.expand(shape[: len(shape) - len(self.base_dist.event_shape)])
        return new

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        """Whether samples have derivatives."""
        return bool(self.base_dist.has_rsample)

    @constraints.dependent_property(is_discrete=False)
    def support(self) -> Constraint:
        if not self.transforms:
            output: Constraint = self.base_dist.support
            return output
        result = self.transforms[-1].codomain
        more = len(self._event_shape) - result.event_dim
        return constraints.independent(result, more) if more > 0 else result

    def _transformed(self, x: Tensor) -> Tensor:
        for transform in self.transforms:
            x = transform(x)
        return x

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with no_grad():
            return self._transformed(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self._transformed(self.base_dist.rsample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        event_dim, y = len(self._event_shape), value
        result: Any = 0.0
        for transform in reversed(self.transforms):
            x = transform.inv(y)
            event_dim += transform.domain.event_dim - transform.codomain.event_dim
            term = transform.log_abs_det_jacobian(x, y)
            result = result - sum_rightmost(term, event_dim - transform.domain.event_dim)
            y = x
        output: Tensor = result + sum_rightmost(self.base_dist.log_prob(y), event_dim - len(self.base_dist.event_shape))
        return output

    def _increasing(self, probability: Tensor) -> Tensor:
        """Return p if all transforms together are increasing, and 1 - p if they are decreasing."""
        sign: Any = 1
        for transform in self.transforms:
            sign = sign * transform.sign
        return probability if isinstance(sign, int) and sign == 1 else sign * (probability - 0.5) + 0.5

    def cdf(self, value: Tensor) -> Tensor:
        for transform in reversed(self.transforms):
            value = transform.inv(value)
        return self._increasing(self.base_dist.cdf(value))

    def icdf(self, value: Tensor) -> Tensor:
        return self._transformed(self.base_dist.icdf(self._increasing(value)))


class LogNormal(TransformedDistribution):
    """Distribution of exp(x) for a normal x with mean `loc` and standard deviation `scale`.

    >>> LogNormal(0.0, 1.0).mean
    tensor(1.6487)
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}  # noqa: RUF012
    support = constraints.positive
    has_rsample = True

    def __init__(self, loc: Tensor | float, scale: Tensor | float, validate_args: bool | None = None):
        super().__init__(Normal(loc, scale, validate_args=validate_args), ExpTransform(), validate_args=validate_args)

    @property
    def loc(self) -> Tensor:
        """Mean of the logarithm."""
        result: Tensor = self.base_dist.loc
        return result

    @property
    def scale(self) -> Tensor:
        """Standard deviation of the logarithm."""
        result: Tensor = self.base_dist.scale
        return result

    @property
    def mean(self) -> Tensor:
        return (self.loc + self.scale.square() / 2).exp()

    @property
    def mode(self) -> Tensor:
        return (self.loc - self.scale.square()).exp()

    @property
    def variance(self) -> Tensor:
        square = self.scale.square()
        return square.expm1() * (2 * self.loc + square).exp()

    def entropy(self) -> Tensor:
        result: Tensor = self.base_dist.entropy() + self.loc
        return result


class LogisticNormal(TransformedDistribution):
    """Distribution on the simplex: stick breaking of independent normal numbers.

    >>> import tracegrad as tg
    >>> LogisticNormal(tg.zeros(2), tg.ones(2)).event_shape
    torch.Size([3])
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}  # noqa: RUF012
    support = constraints.simplex
    has_rsample = True

    def __init__(self, loc: Tensor | float, scale: Tensor | float, validate_args: bool | None = None):
        base = Normal(loc, scale, validate_args=validate_args)
        if not base.batch_shape:
            base = base.expand([1])
        super().__init__(base, StickBreakingTransform(), validate_args=validate_args)

    @property
    def loc(self) -> Tensor:
        """Means of the normal numbers."""
        result: Tensor = self.base_dist.base_dist.loc
        return result

    @property
    def scale(self) -> Tensor:
        """Standard deviations of the normal numbers."""
        result: Tensor = self.base_dist.base_dist.scale
        return result


class Kumaraswamy(TransformedDistribution):
    """Kumaraswamy distribution: distribution function 1 - (1 - x**concentration1)**concentration0 on (0, 1).

    >>> Kumaraswamy(1.0, 1.0).mean
    tensor(0.5000)
    """

    arg_constraints = {"concentration1": constraints.positive, "concentration0": constraints.positive}  # noqa: RUF012
    support = constraints.unit_interval
    has_rsample = True

    def __init__(
        self, concentration1: Tensor | float, concentration0: Tensor | float, validate_args: bool | None = None
    ):
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        base = Uniform(zeros_like(self.concentration0), ones_like(self.concentration0), validate_args=validate_args)
        steps = [
            PowerTransform(self.concentration0.reciprocal()),
            AffineTransform(1.0, -1.0),
            PowerTransform(self.concentration1.reciprocal()),
        ]
        super().__init__(base, steps, validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Kumaraswamy | None = None) -> Kumaraswamy:
        new = self._get_checked_instance(Kumaraswamy, _instance)
        one, zero = (x.expand(batch_shape) for x in (self.concentration1, self.concentration0))
        Kumaraswamy.__init__(new, one, zero, validate_args=False)
        new._validate_args = self._validate_args
        return new

    def _moment(self, n: int) -> Tensor:
        """Return the mean of x**n: b B(1 + n / a, b)."""
        b, first = self.concentration0, 1 + n / self.concentration1
        result: Tensor = (b.log() + first.lgamma() + b.lgamma() - (first + b).lgamma()).exp()
        return result

    @property
    def mean(self) -> Tensor:
        return self._moment(1)

    @property
    def mode(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        value = ((a - 1) / (a * b - 1)) ** a.reciprocal()
        return FUNCTIONS["where"]((a < 1) | (b < 1), math.nan, value)

    @property
    def variance(self) -> Tensor:
        return self._moment(2) - self._moment(1).square()

    def entropy(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        harmonic = (b + 1).digamma() + EULER
        result: Tensor = 1 - b.reciprocal() + (1 - a.reciprocal()) * harmonic - a.log() - b.log()
        return result
