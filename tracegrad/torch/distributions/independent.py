"""Batch dimensions of a distribution as dimensions of its events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

from tracegrad.errors import located
from tracegrad.torch.distributions import constraints
from tracegrad.torch.distributions.distribution import Distribution
from tracegrad.torch.distributions.transform import sum_rightmost

if TYPE_CHECKING:
    from tracegrad.torch.distributions.constraints import Constraint
    from tracegrad.torch.tape.tensors.tensor import Tensor


__all__ = ["Independent"]


class Independent(Distribution):
    """Distribution of several independent values: the last batch dimensions of another belong to its events.

    ValueError for more dimensions than the batch has.

    >>> import tracegrad as tg
    >>> from tracegrad.distributions import Normal
    >>> Independent(Normal(tg.zeros(3), 1.0), 1).log_prob(tg.zeros(3))
    tensor(-2.7568)
    """

    arg_constraints = {}  # noqa: RUF012

    base_dist: Any

    def __init__(
        self, base_distribution: Distribution, reinterpreted_batch_ndims: int, validate_args: bool | None = None
    ):
        rank = len(base_distribution.batch_shape)
        if reinterpreted_batch_ndims > rank:
            raise ValueError(
                located(
                    "Expected reinterpreted_batch_ndims <= len(base_distribution.batch_shape), actual "
                    f"{reinterpreted_batch_ndims} vs {rank}"
                )
            )
        shape = base_distribution.batch_shape + base_distribution.event_shape
        cut = rank - reinterpreted_batch_ndims
        self.base_dist, self.reinterpreted_batch_ndims = base_distribution, reinterpreted_batch_ndims
        super().__init__(shape[:cut], shape[cut:], validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Self | None = None) -> Self:
        new = super().expand(batch_shape, _instance)
        moved = self._event_shape[: self.reinterpreted_batch_ndims]
        new.base_dist = self.base_dist.expand((*batch_shape, *moved))
        return new

    _unexpanded = ("base_dist",)

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        """Whether samples have derivatives."""
        return bool(self.base_dist.has_rsample)

    @property
    def has_enumerate_support(self) -> bool:  # type: ignore[override]
        """Whether the values can be enumerated."""
        return self.reinterpreted_batch_ndims == 0 and bool(self.base_dist.has_enumerate_support)

    @constraints.dependent_property
    def support(self) -> Constraint:
        result = self.base_dist.support
        count = self.reinterpreted_batch_ndims
        return constraints.independent(result, count) if count else result

    @property
    def mean(self) -> Tensor:
        result: Tensor = self.base_dist.mean
        return result

    @property
    def mode(self) -> Tensor:
        result: Tensor = self.base_dist.mode
        return result

    @property
    def variance(self) -> Tensor:
        result: Tensor = self.base_dist.variance
        return result

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        result: Tensor = self.base_dist.sample(sample_shape)
        return result

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        result: Tensor = self.base_dist.rsample(sample_shape)
        return result

    def log_prob(self, value: Tensor) -> Tensor:
        return sum_rightmost(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self) -> Tensor:
        return sum_rightmost(self.base_dist.entropy(), self.reinterpreted_batch_ndims)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        if self.reinterpreted_batch_ndims > 0:
            raise NotImplementedError("Enumeration over cartesian product is not implemented")
        result: Tensor = self.base_dist.enumerate_support(expand=expand)
        return result

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_dist}, {self.reinterpreted_batch_ndims})"
