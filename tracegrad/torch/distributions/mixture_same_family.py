"""Mixtures of distributions of one family."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from tracegrad.errors import located
from tracegrad.torch.distributions import constraints
from tracegrad.torch.distributions.categorical import Categorical
from tracegrad.torch.distributions.constraints import MixtureSameFamilyConstraint
from tracegrad.torch.distributions.distribution import Distribution
from tracegrad.torch.modes import no_grad
from tracegrad.torch.nn import functional as F

if TYPE_CHECKING:
    from tracegrad.torch.tape.tensors.tensor import Tensor


__all__ = ["MixtureSameFamily"]


class MixtureSameFamily(Distribution):
    """Mixture whose components are the last batch dimension of a distribution, with weights of a `Categorical`.

    ValueError for other distributions, or weights of another shape.

    >>> import tracegrad as tg
    >>> from tracegrad.distributions import Normal
    >>> weights = Categorical(tg.tensor([0.5, 0.5]))
    >>> MixtureSameFamily(weights, Normal(tg.tensor([-1.0, 1.0]), 1.0)).variance
    tensor(2.)
    """

    arg_constraints = {}  # noqa: RUF012
    has_rsample = False

    def __init__(
        self, mixture_distribution: Categorical, component_distribution: Distribution, validate_args: bool | None = None
    ):
        self._mixture_distribution, self._component_distribution = mixture_distribution, component_distribution
        if not isinstance(mixture_distribution, Categorical):
            raise ValueError(
                located(" The Mixture distribution needs to be an  instance of torch.distributions.Categorical")
            )
        if not isinstance(component_distribution, Distribution):
            raise ValueError(
                located("The Component distribution need to be an instance of torch.distributions.Distribution")
            )
        weights_batch, batch = mixture_distribution.batch_shape, component_distribution.batch_shape[:-1]
        for size1, size2 in zip(reversed(weights_batch), reversed(batch)):
            if size1 not in (1, size2) and size2 != 1:
                raise ValueError(
                    located(
                        f"`mixture_distribution.batch_shape` ({weights_batch}) is not compatible with "
                        f"`component_distribution.batch_shape`({batch})"
                    )
                )
        count, components = mixture_distribution.param_shape[-1], component_distribution.batch_shape[-1]
        if count != components:
            raise ValueError(
                located(
                    f"`mixture_distribution component` ({count}) does not equal "
                    f"`component_distribution.batch_shape[-1]` ({components})"
                )
            )
        self._num_component = count
        super().__init__(batch, component_distribution.event_shape, validate_args=validate_args)

    _unexpanded = ("_mixture_distribution", "_component_distribution")

    def expand(self, batch_shape: Sequence[int], _instance: Self | None = None) -> Self:
        new = super().expand(batch_shape, _instance)
        new._component_distribution = self._component_distribution.expand((*batch_shape, self._num_component))
        new._mixture_distribution = self._mixture_distribution.expand(batch_shape)
        return new

    @constraints.dependent_property
    def support(self) -> MixtureSameFamilyConstraint:
        return MixtureSameFamilyConstraint(self._component_distribution.support)

    @property
    def mixture_distribution(self) -> Categorical:
        """Distribution of the components' numbers."""
        return self._mixture_distribution

    @property
    def component_distribution(self) -> Distribution:
        """Distribution of the components."""
        return self._component_distribution

    @property
    def mean(self) -> Tensor:
        weights = self._padded(self._mixture_distribution.probs)
        return (weights * self._component_distribution.mean).sum(-1 - len(self._event_shape))

    @property
    def variance(self) -> Tensor:
        """Mean of the variances, plus the variance of the means."""
        weights, along = self._padded(self._mixture_distribution.probs), -1 - len(self._event_shape)
        inside = (weights * self._component_distribution.variance).sum(along)
        difference = self._component_distribution.mean - self.mean.unsqueeze(along)
        return inside + (weights * difference.square()).sum(along)

    def cdf(self, value: Tensor) -> Tensor:
        parts = self._component_distribution.cdf(value.unsqueeze(-1 - len(self._event_shape)))
        result: Tensor = (parts * self._mixture_distribution.probs).sum(-1)
        return result

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        parts = self._component_distribution.log_prob(value.unsqueeze(-1 - len(self._event_shape)))
        weights = F.log_softmax(self._mixture_distribution.logits, dim=-1)
        return (parts + weights).logsumexp(-1)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with no_grad():
            rank = len(self._event_shape)
            along = len(sample_shape) + len(self._batch_shape)
            number = self._mixture_distribution.sample(sample_shape)
            samples = self._component_distribution.sample(sample_shape)
            index = number.reshape((*number.shape, *(1,) * (rank + 1)))
            index = index.expand((*samples.shape[:along], 1, *self._event_shape))
            return samples.gather(along, index).squeeze(along)

    def _padded(self, x: Tensor) -> Tensor:
        return x.reshape((*x.shape, *(1,) * len(self._event_shape)))

    def __repr__(self) -> str:
        return f"MixtureSameFamily(\n  {self._mixture_distribution}, \n  {self._component_distribution})"
