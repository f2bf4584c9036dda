"""Continuous relaxations of discrete distributions, whose samples have derivatives.

C. J. Maddison, A. Mnih and Y. W. Teh, "The concrete distribution", ICLR 2017; E. Jang, S. Gu and B. Poole,
"Categorical reparameterization with Gumbel-softmax", ICLR 2017.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tracegrad.torch.distributions import constraints, draws
from tracegrad.torch.distributions.categorical import Categorical, OfCategorical
from tracegrad.torch.distributions.counts import BinaryLogits
from tracegrad.torch.distributions.transformed_distribution import TransformedDistribution
from tracegrad.torch.distributions.transforms import ExpTransform, SigmoidTransform
from tracegrad.torch.distributions.utils import broadcast_all
from tracegrad.torch.nn import functional as F

if TYPE_CHECKING:
    from tracegrad.torch.tape.tensors.tensor import Tensor


__all__ = ["LogitRelaxedBernoulli", "RelaxedBernoulli", "RelaxedOneHotCategorical"]


class LogitRelaxedBernoulli(BinaryLogits):
    """Distribution of the log odds of a `RelaxedBernoulli`.

    >>> import tracegrad as tg
    >>> LogitRelaxedBernoulli(tg.tensor(1.0), probs=tg.tensor(0.5)).log_prob(tg.tensor(0.0)).exp()
    tensor(0.2500)
    """

    arg_constraints = BinaryLogits.arg_constraints
    support = constraints.real
    has_rsample = True

    def __init__(
        self,
        temperature: Tensor | float,
        probs: Tensor | float | None = None,
        logits: Tensor | float | None = None,
        validate_args: bool | None = None,
    ):
        self._begin_binary(probs, logits, validate_args)
        self.temperature = temperature

    _unexpanded = ("temperature",)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        u = draws.uniform(self._extended_shape(sample_shape), self._param.dtype)
        result: Tensor = (u.log() - (-u).log1p() + self.logits) / self.temperature
        return result

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        logits, value = broadcast_all(self.logits, value)
        difference = logits - value * self.temperature
        temperature = math.log(self.temperature) if isinstance(self.temperature, float) else self.temperature.log()
        return temperature + difference + 2 * F.logsigmoid(-difference)


class OfRelaxed(TransformedDistribution):
    """Transformed relaxed distributions, whose parameters are those of the base."""

    @property
    def temperature(self) -> Any:
        """Temperature."""
        return self.base_dist.temperature

    @property
    def logits(self) -> Tensor:
        """Logarithms of the probabilities, or log odds if there are two values."""
        result: Tensor = self.base_dist.logits
        return result

    @property
    def probs(self) -> Tensor:
        """Probabilities."""
        result: Tensor = self.base_dist.probs
        return result


class RelaxedBernoulli(OfRelaxed):
    """Relaxed Bernoulli distribution on (0, 1), which approaches 0 and 1 as the temperature approaches 0.

    >>> import tracegrad as tg
    >>> RelaxedBernoulli(tg.tensor(0.5), probs=tg.tensor(0.9)).rsample().shape
    torch.Size([])
    """

    arg_constraints = BinaryLogits.arg_constraints
    support = constraints.unit_interval
    has_rsample = True

    def __init__(
        self,
        temperature: Tensor | float,
        probs: Tensor | float | None = None,
        logits: Tensor | float | None = None,
        validate_args: bool | None = None,
    ):
        base = LogitRelaxedBernoulli(temperature, probs, logits, validate_args)
        super().__init__(base, SigmoidTransform(), validate_args=validate_args)


class ExpRelaxedCategorical(OfCategorical):
    """Distribution of the logarithm of a `RelaxedOneHotCategorical`.

    >>> import tracegrad as tg
    >>> ExpRelaxedCategorical(tg.tensor(1.0), tg.tensor([0.5, 0.5])).event_shape
    torch.Size([2])
    """

    arg_constraints = Categorical.arg_constraints
    support = constraints.real_vector
    has_rsample = True
    _unexpanded = ("temperature",)

    def __init__(
        self,
        temperature: Tensor | float,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ):
        self.temperature = temperature
        self._begin_categorical(probs, logits, validate_args)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        times = draws.exponential(self._extended_shape(sample_shape), self.logits.dtype)
        scores = (self.logits - times.log()) / self.temperature
        return scores - scores.logsumexp(-1, True)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        k = self._event_shape[0]
        logits, value = broadcast_all(self.logits, value)
        (temperature,) = broadcast_all(self.temperature)
        score = logits - value * temperature
        score = (score - score.logsumexp(-1, True)).sum(-1)
        result: Tensor = score + math.lgamma(k) + (k - 1) * temperature.log()
        return result


class RelaxedOneHotCategorical(OfRelaxed):
    """Relaxed one-hot vectors on the simplex (Gumbel-softmax), which approach one-hot vectors at temperature 0.

    >>> import tracegrad as tg
    >>> sample = RelaxedOneHotCategorical(tg.tensor(0.5), probs=tg.tensor([0.2, 0.8])).rsample()
    >>> bool(abs(sample.sum() - 1.0) < 1e-6)
    True
    """

    arg_constraints = Categorical.arg_constraints
    support = constraints.simplex
    has_rsample = True

    def __init__(
        self,
        temperature: Tensor | float,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ):
        base = ExpRelaxedCategorical(temperature, probs, logits, validate_args)
        super().__init__(base, ExpTransform(), validate_args=validate_args)
