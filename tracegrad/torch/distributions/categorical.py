"""Distributions of a choice among several: categorical, one-hot, multinomial, and relaxed ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tracegrad.avals import Size
from tracegrad.errors import located
from tracegrad.torch.distributions import constraints, draws
from tracegrad.torch.distributions.counts import Binomial, ProbsOrLogits, enumerated, one_of_two
from tracegrad.torch.distributions.distribution import Distribution
from tracegrad.torch.distributions.utils import FUNCTIONS
from tracegrad.torch.modes import no_grad
from tracegrad.torch.tape.tensors.dtypes import finfo
from tracegrad.torch.tape.tensors.factories import eye, full_like
from tracegrad.torch.tape.tensors.ranges import arange

if TYPE_CHECKING:
    from tracegrad.torch.distributions.constraints import Constraint
    from tracegrad.torch.tape.tensors.tensor import Tensor


__all__ = ["Categorical", "Multinomial", "OneHotCategorical", "OneHotCategoricalStraightThrough"]


class Categorical(ProbsOrLogits):
    """Categorical distribution of the integers below K, with probabilities proportional to `probs` (..., K).

    >>> import tracegrad as tg
    >>> Categorical(tg.tensor([1.0, 3.0])).log_prob(tg.tensor(1)).exp()
    tensor(0.7500)
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}  # noqa: RUF012
    has_enumerate_support = True

    def __init__(self, probs: Tensor | None = None, logits: Tensor | None = None, validate_args: bool | None = None):
        name = one_of_two(probs, logits)
        values: Any = logits if probs is None else probs
        if len(values.shape) < 1:
            raise ValueError(located(f"`{name}` parameter must be at least one-dimensional."))
        if probs is None:
            self.logits = values - values.logsumexp(-1, True)
        else:
            self.probs = values / values.sum(-1, True)
        self._num_events = values.shape[-1]
        super().__init__(values.shape[:-1], validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Constraint:
        return constraints.integer_interval(0, self._num_events - 1)

    @property
    def mean(self) -> Tensor:
        return full_like(self._param[..., 0], math.nan)

    @property
    def mode(self) -> Tensor:
        result: Tensor = self.probs.argmax(-1)
        return result

    @property
    def variance(self) -> Tensor:
        return full_like(self._param[..., 0], math.nan)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draw integers: the first of independent exponential times with these rates."""
        shape = (*self._extended_shape(sample_shape), self._num_events)
        with no_grad():
            result: Tensor = (draws.exponential(shape, self._param.dtype) / self.probs).argmin(-1)
            return result

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        index, logits = FUNCTIONS["broadcast_tensors"](value.long().unsqueeze(-1), self.logits)
        return logits.gather(-1, index[..., :1]).squeeze(-1)

    def entropy(self) -> Tensor:
        logits = self.logits.clamp(min=float(finfo(self.logits.dtype).min))
        result: Tensor = -(logits * self.probs).sum(-1)
        return result

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return enumerated(self._num_events, self._batch_shape, "int64", expand)


class OfCategorical(Distribution):
    """Distributions of vectors that are made of a categorical distribution."""

    _categorical: Categorical

    def _begin_categorical(self, probs: Tensor | None, logits: Tensor | None, validate_args: bool | None) -> None:
        self._categorical = Categorical(probs, logits)
        shape = self._categorical.param_shape
        Distribution.__init__(self, shape[:-1], shape[-1:], validate_args)

    @property
    def logits(self) -> Tensor:
        """Logarithms of the probabilities."""
        result: Tensor = self._categorical.logits
        return result

    @property
    def probs(self) -> Tensor:
        """Probabilities."""
        result: Tensor = self._categorical.probs
        return result

    @property
    def _param(self) -> Tensor:
        return self._categorical._param

    @property
    def param_shape(self) -> Size:
        """Shape of the parameter."""
        return self._categorical.param_shape

    def _one_hot(self, index: Tensor) -> Tensor:
        classes = arange(self._event_shape[0])
        return (index.unsqueeze(-1) == classes).to(self._param.dtype)


class OneHotCategorical(OfCategorical):
    """Categorical distribution of one-hot vectors.

    >>> import tracegrad as tg
    >>> OneHotCategorical(tg.tensor([1.0, 3.0])).mode
    tensor([0., 1.])
    """

    arg_constraints = Categorical.arg_constraints
    support = constraints.one_hot
    has_enumerate_support = True

    def __init__(self, probs: Tensor | None = None, logits: Tensor | None = None, validate_args: bool | None = None):
        self._begin_categorical(probs, logits, validate_args)

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        return self._one_hot(self.probs.argmax(-1))

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self._one_hot(self._categorical.sample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        return self._categorical.log_prob(value.argmax(-1))

    def entropy(self) -> Tensor:
        return self._categorical.entropy()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        n = self._event_shape[0]
        values = eye(n, dtype=self._param.dtype).reshape((n, *(1,) * len(self._batch_shape), n))
        return values.expand((n, *self._batch_shape, n)) if expand else values


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """One-hot vectors whose derivative is that of the probabilities (straight-through estimator).

    Y. Bengio, N. Leonard and A. Courville, "Estimating or propagating gradients through stochastic neurons for
    conditional computation", 2013.

    >>> import tracegrad as tg
    >>> OneHotCategoricalStraightThrough(tg.tensor([0.0, 1.0])).rsample()
    tensor([0., 1.])
    """

    has_rsample = True

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.sample(sample_shape) + (self.probs - self.probs.detach())


class Multinomial(OfCategorical):
    """Multinomial distribution: how often each of K values is drawn in `total_count` draws.

    >>> import tracegrad as tg
    >>> Multinomial(2, tg.tensor([0.5, 0.5])).log_prob(tg.tensor([1.0, 1.0])).exp()
    tensor(0.5000)
    """

    arg_constraints = Categorical.arg_constraints

    def __init__(
        self,
        total_count: int = 1,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ):
        if not isinstance(total_count, int):
            raise NotImplementedError("inhomogeneous total_count is not supported")
        self.total_count = total_count
        self._begin_categorical(probs, logits, validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> Constraint:
        return constraints.multinomial(self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.probs * self.total_count

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self._one_hot(self._categorical.sample((self.total_count, *sample_shape))).sum(0)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        ways = (value.sum(-1) + 1).lgamma() - (value + 1).lgamma().sum(-1)
        never = (value == 0) & (self.logits == -math.inf)
        return ways + FUNCTIONS["where"](never, 0.0, self.logits * value).sum(-1)

    def entropy(self) -> Tensor:
        n = self.total_count
        counts = Binomial(n, probs=self.probs)
        support = counts.enumerate_support(expand=False)[1:]
        weights = counts.log_prob(support).exp() * (support + 1).lgamma()
        return n * self._categorical.entropy() - math.lgamma(n + 1) + weights.sum((0, -1))
