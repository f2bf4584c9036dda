"""Distributions of two values, and of counts until or among them: Bernoulli, geometric, binomial and others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tracegrad.avals import Size
from tracegrad.errors import located
from tracegrad.torch.distributions import constraints, draws
from tracegrad.torch.distributions.distribution import Distribution
from tracegrad.torch.distributions.exp_family import ExponentialFamily
from tracegrad.torch.distributions.utils import (
    FUNCTIONS,
    broadcast_all,
    clamp_probs,
    lazy_property,
    logits_to_probs,
    probs_to_logits,
)
from tracegrad.torch.functions.math import special
from tracegrad.torch.modes import no_grad
from tracegrad.torch.nn import functional as F
from tracegrad.torch.tape import Tensor
from tracegrad.torch.tape.tensors.factories import zeros_like
from tracegrad.torch.tape.tensors.random import binomial, poisson, rand
from tracegrad.torch.tape.tensors.ranges import arange
from tracegrad.typing import DTypeLike

if TYPE_CHECKING:
    from tracegrad.torch.distributions.constraints import _IntegerInterval
    from tracegrad.torch.tape.tensors.tensor import Tensor


__all__ = ["Bernoulli", "Binomial", "ContinuousBernoulli", "Geometric", "NegativeBinomial", "Poisson"]

_where = FUNCTIONS["where"]


def one_of_two(probs: Tensor | float | None, logits: Tensor | float | None) -> str:
    """Return the name of the parameter that is not None; ValueError unless it is one of the two."""
    if (probs is None) == (logits is None):
        raise ValueError(located("Either `probs` or `logits` must be specified, but not both."))
    return "logits" if probs is None else "probs"


class ProbsOrLogits(Distribution):
    """Distributions of probabilities or of logits; the others are computed."""

    _is_binary = False

    @lazy_property
    def logits(self) -> Tensor:
        """Logarithms of the probabilities, or log odds if there are two values."""
        return probs_to_logits(self.probs, self._is_binary)

    @lazy_property
    def probs(self) -> Tensor:
        """Probabilities."""
        return logits_to_probs(self.logits, self._is_binary)

    @property
    def param_shape(self) -> Size:
        """Shape of the parameter."""
        return self._param.shape  # type: ignore[no-any-return]

    @property
    def _param(self) -> Tensor:
        result: Tensor = self.probs if "probs" in self.__dict__ else self.logits
        return result


class BinaryLogits(ProbsOrLogits):
    """Distributions of the probability of one of two values, or of its log odds."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}  # noqa: RUF012
    _is_binary = True

    def _begin_binary(
        self,
        probs: Tensor | float | None,
        logits: Tensor | float | None,
        validate_args: bool | None,
        **others: Tensor | float,
    ) -> None:
        name = one_of_two(probs, logits)
        value: Any = logits if probs is None else probs
        self._begin(validate_args, **{name: value}, **others)


def _cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    logits, target = broadcast_all(logits, target)
    return F.binary_cross_entropy_with_logits(logits, target, reduction="none")  # type: ignore[return-value]  # of a Tensor


class Bernoulli(BinaryLogits, ExponentialFamily):
    """Bernoulli distribution: 1 with probability `probs`, and 0 otherwise. ValueError unless one parameter is passed.

    >>> import tracegrad as tg
    >>> Bernoulli(probs=tg.tensor(0.25)).log_prob(tg.tensor(1.0)).exp()
    tensor(0.2500)
    """

    support = constraints.boolean
    arg_constraints = BinaryLogits.arg_constraints
    has_enumerate_support = True
    _mean_carrier_measure = 0

    def __init__(
        self,
        probs: Tensor | float | None = None,
        logits: Tensor | float | None = None,
        validate_args: bool | None = None,
    ):
        self._begin_binary(probs, logits, validate_args)

    @property
    def mean(self) -> Tensor:
        result: Tensor = self.probs
        return result

    @property
    def mode(self) -> Tensor:
        return _where(self.probs == 0.5, math.nan, (self.probs >= 0.5).to(self._param.dtype))

    @property
    def variance(self) -> Tensor:
        result: Tensor = self.probs * (1 - self.probs)
        return result

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with no_grad():
            drawn = rand(self._extended_shape(sample_shape), dtype=self._param.dtype)
            result: Tensor = (drawn < self.probs).to(self._param.dtype)
            return result

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        return -_cross_entropy(self.logits, value)

    def entropy(self) -> Tensor:
        return _cross_entropy(self.logits, self.probs)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return enumerated(2, self._batch_shape, self._param.dtype, expand)

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.logits,)

    def _log_normalizer(self, x: Tensor) -> Tensor:
        return -F.logsigmoid(-x)  # type: ignore[return-value]  # of a Tensor


def enumerated(count: int, batch_shape: Size, dtype: DTypeLike, expand: bool) -> Tensor:
    """Return the integers below `count` along dimension 0, for a batch of this shape or of size 1."""
    values = arange(count, dtype=dtype).reshape((-1, *(1,) * len(batch_shape)))
    return values.expand((-1, *batch_shape)) if expand else values


class ContinuousBernoulli(BinaryLogits, ExponentialFamily):
    """Distribution on [0, 1] with a density proportional to probs**x (1 - probs)**(1 - x).

    Formulas near probs = 1/2, within `lims`, are Taylor series. G. Loaiza-Ganem and J. P. Cunningham, "The continuous
    Bernoulli: fixing a pervasive error in variational autoencoders", NeurIPS 2019.

    >>> import tracegrad as tg
    >>> ContinuousBernoulli(tg.tensor(0.5)).mean
    tensor(0.5000)
    """

    support = constraints.unit_interval
    arg_constraints = BinaryLogits.arg_constraints
    has_rsample = True
    _mean_carrier_measure = 0

    def __init__(
        self,
        probs: Tensor | float | None = None,
        logits: Tensor | float | None = None,
        lims: tuple[float, float] = (0.499, 0.501),
        validate_args: bool | None = None,
    ):
        self._begin_binary(probs, logits, validate_args)
        self._lims = lims
        if probs is not None:
            self.__dict__["probs"] = clamp_probs(self.probs)

    def _far(self) -> Tensor:
        result: Tensor = (self.probs <= self._lims[0]) | (self.probs > self._lims[1])
        return result

    def _far_probs(self) -> Tensor:
        """Return the probabilities, with one outside of `lims` in place of those inside."""
        return _where(self._far(), self.probs, self._lims[0])

    def _log_norm(self) -> Tensor:
        p = self._far_probs()
        below, above = _where(p <= 0.5, p, 0.0), _where(p >= 0.5, p, 1.0)
        ratio = ((-p).log1p() - p.log()).abs().log()
        norm = ratio - _where(p <= 0.5, (-2.0 * below).log1p(), (2.0 * above - 1.0).log())
        x = (self.probs - 0.5).square()
        return _where(self._far(), norm, math.log(2.0) + (4.0 / 3.0 + 104.0 / 45.0 * x) * x)

    @property
    def mean(self) -> Tensor:
        p, x = self._far_probs(), self.probs - 0.5
        far = p / (2.0 * p - 1.0) + 1.0 / ((-p).log1p() - p.log())
        return _where(self._far(), far, 0.5 + (1.0 / 3.0 + 16.0 / 45.0 * x.square()) * x)

    @property
    def variance(self) -> Tensor:
        p, x = self._far_probs(), (self.probs - 0.5).square()
        far = p * (p - 1.0) / (1.0 - 2.0 * p).square() + 1.0 / ((-p).log1p() - p.log()).square()
        return _where(self._far(), far, 1.0 / 12.0 - (1.0 / 15.0 - 128.0 / 945.0 * x) * x)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.icdf(draws.uniform(self._extended_shape(sample_shape), self.probs.dtype))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        return -_cross_entropy(self.logits, value) + self._log_norm()

    def cdf(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        p = self._far_probs()
        far = (p**value * (1.0 - p) ** (1.0 - value) + p - 1.0) / (2.0 * p - 1.0)
        return _where(self._far(), far, value).clamp(min=0.0, max=1.0)

    def icdf(self, value: Tensor) -> Tensor:
        p = self._far_probs()
        low = (-p).log1p()
        far = ((-p + value * (2.0 * p - 1.0)).log1p() - low) / (p.log() - low)
        return _where(self._far(), far, value)

    def entropy(self) -> Tensor:
        low, high = (-self.probs).log1p(), self.probs.log()
        result: Tensor = self.mean * (low - high) - self._log_norm() - low
        return result

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.logits,)

    def _log_normalizer(self, x: Tensor) -> Tensor:
        near = (x > self._lims[0] - 0.5) & (x < self._lims[1] - 0.5)
        far_x = _where(near, 1.0, x)
        return _where(near, x / 2.0 + x.square() / 24.0, (far_x.expm1() / far_x).log())


class Geometric(BinaryLogits):
    """Geometric distribution: the number of failures before the first success of probability `probs`.

    >>> Geometric(0.25).mean
    tensor(3.)
    """

    arg_constraints = BinaryLogits.arg_constraints
    support = constraints.nonnegative_integer

    def __init__(
        self,
        probs: Tensor | float | None = None,
        logits: Tensor | float | None = None,
        validate_args: bool | None = None,
    ):
        self._begin_binary(probs, logits, validate_args)
        if self._validate_args and probs is not None and not (self.probs > 0).all():
            raise ValueError(
                located(
                    f"Expected parameter probs ({type(self.probs).__name__} of shape {tuple(self.probs.shape)}) of "
                    f"distribution {self!r} to be positive but found invalid values:\n{self.probs}"
                )
            )

    @property
    def mean(self) -> Tensor:
        result: Tensor = 1.0 / self.probs - 1.0
        return result

    @property
    def mode(self) -> Tensor:
        return zeros_like(self.probs)

    @property
    def variance(self) -> Tensor:
        result: Tensor = (1.0 / self.probs - 1.0) / self.probs
        return result

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with no_grad():
            u = draws.uniform(self._extended_shape(sample_shape), self.probs.dtype)
            result: Tensor = (u.log() / (-self.probs).log1p()).floor()
            return result

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        result: Tensor = special.xlog1py(value, -self.probs) + self.probs.log()
        return result

    def entropy(self) -> Tensor:
        result: Tensor = _cross_entropy(self.logits, self.probs) / self.probs
        return result


class Binomial(BinaryLogits):
    """Binomial distribution: the number of successes in `total_count` trials.

    >>> import tracegrad as tg
    >>> Binomial(2, tg.tensor(0.5)).log_prob(tg.tensor(1.0)).exp()
    tensor(0.5000)
    """

    arg_constraints = {  # noqa: RUF012
        "total_count": constraints.nonnegative_integer,
        "probs": constraints.unit_interval,
        "logits": constraints.real,
    }
    has_enumerate_support = True
    total_count: Tensor

    def __init__(
        self,
        total_count: Tensor | float = 1,
        probs: Tensor | float | None = None,
        logits: Tensor | float | None = None,
        validate_args: bool | None = None,
    ):
        self._begin_binary(probs, logits, validate_args, total_count=total_count)
        self.total_count = self.total_count.type_as(self._param)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> _IntegerInterval:
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self) -> Tensor:
        result: Tensor = self.total_count * self.probs
        return result

    @property
    def mode(self) -> Tensor:
        return FUNCTIONS["minimum"](((self.total_count + 1) * self.probs).floor(), self.total_count)

    @property
    def variance(self) -> Tensor:
        result: Tensor = self.total_count * self.probs * (1 - self.probs)
        return result

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with no_grad():
            return binomial(self.total_count.expand(shape), self.probs.expand(shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        n = self.total_count
        ways = (n + 1).lgamma() - (value + 1).lgamma() - (n - value + 1).lgamma()
        return ways + value * F.logsigmoid(self.logits) + (n - value) * F.logsigmoid(-self.logits)

    def entropy(self) -> Tensor:
        if not self.total_count.min() == self.total_count.max():
            raise NotImplementedError("Inhomogeneous total count not supported by `entropy`.")
        logs = self.log_prob(self.enumerate_support(False))
        return -(logs.exp() * logs).sum(0)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        largest = int(self.total_count.max())
        if not self.total_count.min() == largest:
            raise NotImplementedError("Inhomogeneous total count not supported by `enumerate_support`.")
        return enumerated(1 + largest, self._batch_shape, self._param.dtype, expand)


class NegativeBinomial(BinaryLogits):
    """Negative binomial distribution: the number of successes of probability `probs` before `total_count` failures.

    >>> import tracegrad as tg
    >>> NegativeBinomial(3.0, tg.tensor(0.5)).mean
    tensor(3.)
    """

    arg_constraints = {  # noqa: RUF012
        "total_count": constraints.greater_than_eq(0),
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }
    support = constraints.nonnegative_integer
    total_count: Tensor

    def __init__(
        self,
        total_count: Tensor | float,
        probs: Tensor | float | None = None,
        logits: Tensor | float | None = None,
        validate_args: bool | None = None,
    ):
        self._begin_binary(probs, logits, validate_args, total_count=total_count)
        self.total_count = self.total_count.type_as(self._param)

    @property
    def mean(self) -> Tensor:
        result: Tensor = self.total_count * self.logits.exp()
        return result

    @property
    def mode(self) -> Tensor:
        result: Tensor = ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0.0)
        return result

    @property
    def variance(self) -> Tensor:
        result: Tensor = self.mean / (-self.logits).sigmoid()
        return result

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with no_grad():
            rates = draws.gamma(self.total_count.expand(self._extended_shape(sample_shape)))
            return poisson(rates * self.logits.exp())

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        n = self.total_count
        logs = n * F.logsigmoid(-self.logits) + value * F.logsigmoid(self.logits)
        norm = -(n + value).lgamma() + (1.0 + value).lgamma() + n.lgamma()
        return logs - _where(n + value == 0.0, 0.0, norm)


class Poisson(ExponentialFamily):
    """Poisson distribution of counts with mean `rate`.

    >>> import tracegrad as tg
    >>> Poisson(1.0).log_prob(tg.tensor(0.0))
    tensor(-1.)
    """

    arg_constraints = {"rate": constraints.nonnegative}  # noqa: RUF012
    support = constraints.nonnegative_integer
    rate: Tensor

    def __init__(self, rate: Tensor | float, validate_args: bool | None = None):
        self._begin(validate_args, rate=rate)

    @property
    def mean(self) -> Tensor:
        return self.rate

    @property
    def mode(self) -> Tensor:
        return self.rate.floor()

    @property
    def variance(self) -> Tensor:
        return self.rate

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with no_grad():
            return poisson(self.rate.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        return value.xlogy(self.rate) - self.rate - (value + 1).lgamma()

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.rate.log(),)

    def _log_normalizer(self, x: Tensor) -> Tensor:
        return x.exp()
