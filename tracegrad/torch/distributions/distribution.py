"""Class `Distribution`: shapes, sampling, validation and expansion that all distributions share."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

from tracegrad.avals import Size
from tracegrad.errors import located
from tracegrad.torch.distributions import constraints
from tracegrad.torch.distributions.utils import FUNCTIONS, broadcast_all, lazy_property
from tracegrad.torch.modes import no_grad
from tracegrad.torch.tape import Tensor

if TYPE_CHECKING:
    from tracegrad.torch.distributions.constraints import Constraint
    from tracegrad.torch.tape.tensors.tensor import Tensor


__all__ = ["Distribution"]


class Distribution:
    """Base class of probability distributions: a batch of `batch_shape`, with samples of `event_shape`.

    A subclass sets `arg_constraints` and `support`, and defines `rsample` or `sample`, and `log_prob`. Parameters and
    samples are checked unless `validate_args` is False; ValueError for values outside.

    >>> from tracegrad.distributions import Normal
    >>> Distribution.__subclasses__() != [], isinstance(Normal(0.0, 1.0), Distribution)
    (True, True)
    """

    has_rsample = False
    has_enumerate_support = False
    _validate_args = __debug__
    arg_constraints: ClassVar[Mapping[str, Any]]
    # Attributes that do not belong to the batch.
    _unexpanded: ClassVar[tuple[str, ...]] = ()

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Set whether distributions check their arguments by default; ValueError unless it is a boolean."""
        if value not in [True, False]:
            raise ValueError(located("validate_args must be True or False"))
        Distribution._validate_args = value

    def __init__(
        self, batch_shape: Sequence[int] = (), event_shape: Sequence[int] = (), validate_args: bool | None = None
    ):
        self._batch_shape, self._event_shape = Size(batch_shape), Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._check_parameters()

    def _begin(self, validate_args: bool | None, **parameters: Tensor | float) -> None:
        """Set parameters that are broadcast to the batch shape, and initialize a distribution of numbers."""
        self.__dict__.update(zip(parameters, broadcast_all(*parameters.values())))
        Distribution.__init__(self, next(iter(self.__dict__.values())).shape, validate_args=validate_args)

    def _check_parameters(self) -> None:
        try:
            arg_constraints = self.arg_constraints
        except (NotImplementedError, AttributeError):
            warnings.warn(
                f"{type(self)} does not define `arg_constraints`. Please set `arg_constraints = {{}}` or initialize "
                "the distribution with `validate_args=False` to turn off validation.",
                stacklevel=4,
            )
            return
        for name, constraint in arg_constraints.items():
            if constraints.is_dependent(constraint):
                continue
            if name not in self.__dict__ and isinstance(getattr(type(self), name, None), lazy_property):
                continue
            value = getattr(self, name)
            if not constraint.check(value).all():
                raise ValueError(
                    located(
                        f"Expected parameter {name} ({type(value).__name__} of shape {tuple(value.shape)}) of "
                        f"distribution {self!r} to satisfy the constraint {constraint!r}, but found invalid "
                        f"values:\n{value}"
                    )
                )

    # -- shapes and parameters -----------------------------------------------------------------------------------
    @property
    def batch_shape(self) -> Size:
        """Shape over which the parameters are batched."""
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        """Shape of one sample, without the batch."""
        return self._event_shape

    @property
    def support(self) -> Constraint:
        """Constraint of the samples."""
        raise NotImplementedError

    def expand(self, batch_shape: Sequence[int], _instance: Self | None = None) -> Self:
        """Return the distribution with parameters that are expanded to `batch_shape`, as views.

        NotImplementedError for a subclass of the user with an `__init__` and without `expand`.
        """
        owner = next(cls for cls in type(self).__mro__ if "arg_constraints" in cls.__dict__ or cls is Distribution)
        new = self._get_checked_instance(owner, _instance)
        shape = Size(batch_shape)
        for name, value in self.__dict__.items():
            new.__dict__[name] = value if name in self._unexpanded else self._expanded(value, shape)
        new._batch_shape = shape
        return new

    def _expanded(self, value: Tensor, shape: Sequence[int]) -> Any:
        """Return a parameter for another batch shape; other attributes stay unchanged."""
        rank = len(self._batch_shape)
        if isinstance(value, Distribution):
            return value.expand(shape)
        if isinstance(value, Tensor) and value.shape[:rank] == self._batch_shape:
            return FUNCTIONS["broadcast_to"](value, (*shape, *value.shape[rank:]))
        return value

    def _get_checked_instance(self, cls: type[Distribution], _instance: Self | None = None) -> Self:
        if _instance is None and type(self).__init__ != cls.__init__:
            raise NotImplementedError(
                located(
                    f"Subclass {type(self).__name__} of {cls.__name__} that defines a custom __init__ method must "
                    "also define a custom .expand() method."
                )
            )
        return self.__new__(type(self)) if _instance is None else _instance

    def _extended_shape(self, sample_shape: Sequence[int] = ()) -> Size:
        """Return the shape of samples: `sample_shape`, the batch and the event."""
        return Size((*sample_shape, *self._batch_shape, *self._event_shape))

    # -- moments -------------------------------------------------------------------------------------------------
    @property
    def mean(self) -> Tensor:
        """Mean."""
        raise NotImplementedError

    @property
    def mode(self) -> Tensor:
        """Mode: the most likely value."""
        raise NotImplementedError(f"{type(self)} does not implement mode")

    @property
    def variance(self) -> Tensor:
        """Variance."""
        raise NotImplementedError

    @property
    def stddev(self) -> Tensor:
        """Standard deviation."""
        return self.variance.sqrt()

    # -- samples -------------------------------------------------------------------------------------------------
    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draw samples of shape `sample_shape + batch_shape + event_shape`, without a history."""
        with no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draw samples that have derivatives with respect to the parameters."""
        raise NotImplementedError

    def sample_n(self, n: int) -> Tensor:
        """Draw `n` samples; the same as `sample((n,))`."""
        warnings.warn("sample_n will be deprecated. Use .sample((n,)) instead", UserWarning, stacklevel=2)
        return self.sample(Size((n,)))

    # -- probabilities -------------------------------------------------------------------------------------------
    def log_prob(self, value: Tensor) -> Tensor:
        """Return the logarithm of the density or probability at `value`, for each event."""
        raise NotImplementedError

    def cdf(self, value: Tensor) -> Tensor:
        """Return the probability of samples up to `value`."""
        raise NotImplementedError

    def icdf(self, value: Tensor) -> Tensor:
        """Return the quantile at the probability `value`."""
        raise NotImplementedError

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """Return all values of a discrete distribution along dimension 0, with the batch expanded or of size 1."""
        raise NotImplementedError

    def entropy(self) -> Tensor:
        """Return the entropy of each distribution of the batch."""
        raise NotImplementedError

    def perplexity(self) -> Tensor:
        """Return exp(entropy)."""
        return self.entropy().exp()

    def _check_sample(self, value: Tensor) -> None:
        if self._validate_args:
            self._validate_sample(value)

    def _validate_sample(self, value: Tensor) -> None:
        """Raise ValueError unless `value` has the right shape and is in the support."""
        if not isinstance(value, Tensor):
            raise ValueError(located("The value argument to log_prob must be a Tensor"))
        actual, expected = Size(value.shape), self._batch_shape + self._event_shape
        if actual[len(actual) - len(self._event_shape) :] != self._event_shape:
            raise ValueError(
                located(f"The right-most size of value must match event_shape: {actual} vs {self._event_shape}.")
            )
        for i, j in zip(reversed(actual), reversed(expected)):
            if i not in (1, j) and j != 1:
                raise ValueError(
                    located(f"Value is not broadcastable with batch_shape+event_shape: {actual} vs {expected}.")
                )
        try:
            support = self.support
        except NotImplementedError:
            warnings.warn(
                f"{type(self)} does not define `support` to enable sample validation. Please initialize the "
                "distribution with `validate_args=False` to turn off validation.",
                stacklevel=3,
            )
            return
        if not support.check(value).all():
            raise ValueError(
                located(
                    f"Expected value argument ({type(value).__name__} of shape {tuple(value.shape)}) to be within the "
                    f"support ({support!r}) of the distribution {self!r}, but found invalid values:\n{value}"
                )
            )

    def __repr__(self) -> str:
        values = {name: self.__dict__[name] for name in self.arg_constraints if name in self.__dict__}
        shown = [f"{name}: {x if x.numel() == 1 else x.size()}" for name, x in values.items()]
        return f"{type(self).__name__}({', '.join(shown)})"
