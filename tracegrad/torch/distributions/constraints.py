"""Constraints: sets of values that parameters and samples of distributions belong to.

`check` tells for each event whether it is in the set. The last `event_dim` dimensions of a value are one event.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tracegrad.torch.functions.core.registry import FUNCTIONS
from tracegrad.torch.functions.linalg.matrices import eigvalsh
from tracegrad.torch.tape import Tensor
from tracegrad.torch.tape.tensors.dtypes import finfo
from tracegrad.torch.tape.tensors.factories import full

__all__ = [
    "Constraint",
    "MixtureSameFamilyConstraint",
    "boolean",
    "cat",
    "corr_cholesky",
    "dependent",
    "dependent_property",
    "greater_than",
    "greater_than_eq",
    "half_open_interval",
    "independent",
    "integer_interval",
    "interval",
    "is_dependent",
    "less_than",
    "lower_cholesky",
    "lower_triangular",
    "multinomial",
    "nonnegative",
    "nonnegative_integer",
    "one_hot",
    "positive",
    "positive_definite",
    "positive_integer",
    "positive_semidefinite",
    "real",
    "real_vector",
    "simplex",
    "square",
    "stack",
    "symmetric",
    "unit_interval",
]

Fact = TypeVar("Fact")


class Constraint:
    """Set of values. A subclass defines `check`, and may set `is_discrete` and `event_dim`.

    >>> import tracegrad as tg
    >>> positive.check(tg.tensor([-1.0, 1.0]))
    tensor([False,  True])
    """

    is_discrete: Any = False
    event_dim: Any = 0

    def check(self, value: Tensor) -> Tensor:
        """Tell for each event in `value` whether it is in the set, as booleans."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__[1:]}()"


# -- sets that depend on parameters --------------------------------------------------------------------------------
class _Dependent(Constraint):
    """Support that depends on parameters, and is only known for a distribution."""

    def __init__(self, *, is_discrete: bool = NotImplemented, event_dim: int = NotImplemented):
        self._is_discrete, self._event_dim = is_discrete, event_dim

    @property
    def is_discrete(self) -> bool:
        """Whether the set is discrete; NotImplementedError if that depends on the parameters."""
        return self._known(self._is_discrete, "is_discrete")

    @property
    def event_dim(self) -> int:
        """Number of dimensions of an event; NotImplementedError if that depends on the parameters."""
        return self._known(self._event_dim, "event_dim")

    def _known(self, value: Fact, name: str) -> Fact:
        if value is NotImplemented:
            raise NotImplementedError(f".{name} cannot be determined statically")
        return value

    def __call__(self, *, is_discrete: bool = NotImplemented, event_dim: int = NotImplemented) -> Constraint:
        return _Dependent(
            is_discrete=self._is_discrete if is_discrete is NotImplemented else is_discrete,
            event_dim=self._event_dim if event_dim is NotImplemented else event_dim,
        )

    def check(self, value: Tensor) -> Tensor:
        raise ValueError("Cannot determine validity of dependent constraint")


class _DependentProperty(property, _Dependent):
    """Property whose value is a constraint; on the class it is a dependent constraint."""

    def __init__(self, fn: Any = None, *, is_discrete: bool = NotImplemented, event_dim: int = NotImplemented):
        super().__init__(fn)
        self._is_discrete, self._event_dim = is_discrete, event_dim

    def __call__(self, fn: Callable[[Any], Any]) -> Constraint:  # type: ignore[override]
        return _DependentProperty(fn, is_discrete=self._is_discrete, event_dim=self._event_dim)


def is_dependent(constraint: Constraint) -> bool:
    """Whether a constraint is known only for a distribution with its parameters.

    >>> is_dependent(real), is_dependent(dependent)
    (False, True)
    """
    return isinstance(constraint, _Dependent)


# -- numbers -------------------------------------------------------------------------------------------------------
class _RealNumbers(Constraint):
    def check(self, value: Tensor) -> Tensor:
        return value == value

    def __repr__(self) -> str:
        return "Real()"


class _TwoValues(Constraint):
    """The numbers 0 and 1."""

    is_discrete = True

    def check(self, value: Tensor) -> Tensor:
        return (value == 0) | (value == 1)

    def __repr__(self) -> str:
        return "Boolean()"


class _Bounded(Constraint):
    """Numbers between bounds; subclasses say whether a bound is in the set."""

    _bounds: tuple[str, ...]

    def __init__(self, *bounds: Tensor | float, **named: Tensor | float):
        self.__dict__.update(zip(self._bounds, bounds), **named)
        if set(self.__dict__) != set(self._bounds) or len(bounds) > len(self._bounds):
            raise TypeError(f"{type(self).__name__[1:]} takes {' and '.join(self._bounds)}")
        super().__init__()

    def __repr__(self) -> str:
        return f"{type(self).__name__[1:]}({', '.join(f'{name}: {getattr(self, name)}' for name in self._bounds)})"


class _TwoBounds(_Bounded):
    _bounds = "lower_bound", "upper_bound"
    lower_bound: Tensor | float
    upper_bound: Tensor | float


class _LowerBound(_Bounded):
    _bounds = ("lower_bound",)
    lower_bound: Tensor | float


class _UpperBound(_Bounded):
    _bounds = ("upper_bound",)
    upper_bound: Tensor | float


class _Interval(_TwoBounds):
    def check(self, value: Tensor) -> Tensor:
        return (self.lower_bound <= value) & (value <= self.upper_bound)


class _HalfOpenInterval(_TwoBounds):
    def check(self, value: Tensor) -> Tensor:
        return (self.lower_bound <= value) & (value < self.upper_bound)


class _IntegerInterval(_TwoBounds):
    is_discrete = True

    def check(self, value: Tensor) -> Tensor:
        return (value % 1 == 0) & (self.lower_bound <= value) & (value <= self.upper_bound)


class _GreaterThan(_LowerBound):
    def check(self, value: Tensor) -> Tensor:
        return self.lower_bound < value


class _GreaterThanEq(_LowerBound):
    def check(self, value: Tensor) -> Tensor:
        return self.lower_bound <= value


class _IntegerGreaterThan(_LowerBound):
    is_discrete = True

    def check(self, value: Tensor) -> Tensor:
        return (value % 1 == 0) & (value >= self.lower_bound)


class _LessThan(_UpperBound):
    def check(self, value: Tensor) -> Tensor:
        return value < self.upper_bound


# -- vectors -------------------------------------------------------------------------------------------------------
class _OneHot(Constraint):
    """Vectors with one 1, and zeros elsewhere."""

    is_discrete = True
    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        return ((value == 0) | (value == 1)).all(-1) & value.sum(-1).eq(1)


class _Simplex(Constraint):
    """Vectors of probabilities, whose sum is 1 up to 1e-6."""

    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        return (value >= 0).all(-1) & ((value.sum(-1) - 1).abs() < 1e-6)


class _Counts(Constraint):
    """Vectors of counts, whose sum is at most `upper_bound`."""

    is_discrete = True
    event_dim = 1

    def __init__(self, upper_bound: Tensor | float):
        self.upper_bound = upper_bound

    def check(self, value: Tensor) -> Tensor:
        return (value >= 0).all(-1) & (value.sum(-1) <= self.upper_bound)

    def __repr__(self) -> str:
        return "Multinomial()"


# -- matrices ------------------------------------------------------------------------------------------------------
class _LowerTriangular(Constraint):
    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        return (value.tril() == value).all(-1).all(-1)


class _LowerCholesky(_LowerTriangular):
    """Lower triangular matrices with a positive diagonal."""

    def check(self, value: Tensor) -> Tensor:
        return super().check(value) & (value.diagonal(dim1=-2, dim2=-1) > 0).all(-1)


class _CorrCholesky(_LowerCholesky):
    """Cholesky factors of correlation matrices: their rows have norm 1, up to rounding."""

    def check(self, value: Tensor) -> Tensor:
        tolerance = finfo(value.dtype).eps * value.shape[-1] * 10
        rows = value.square().sum(-1)
        result: Tensor = ((rows - 1).abs() <= tolerance).all(-1) & super().check(value)
        return result


class _Square(Constraint):
    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        return full(value.shape[:-2], value.shape[-2] == value.shape[-1])


class _Symmetric(_Square):
    def check(self, value: Tensor) -> Tensor:
        square = super().check(value)
        if value.shape[-2] != value.shape[-1]:
            return square
        result: Tensor = FUNCTIONS["isclose"](value, value.mT, atol=1e-6).all(-1).all(-1)
        return result


class _PositiveSemidefinite(_Symmetric):
    _smallest_exclusive = False

    def check(self, value: Tensor) -> Tensor:
        symmetric = super().check(value)
        if not symmetric.all():
            return symmetric
        smallest = eigvalsh(value.detach())[..., 0]
        return smallest > 0 if self._smallest_exclusive else smallest >= 0  # type: ignore[return-value]  # of a Tensor


class _PositiveDefinite(_PositiveSemidefinite):
    _smallest_exclusive = True


# -- made of others ------------------------------------------------------------------------------------------------
class _IndependentConstraint(Constraint):
    """Events of another constraint, with more dimensions of a value in one event."""

    def __init__(self, base_constraint: Constraint, reinterpreted_batch_ndims: int):
        self.base_constraint, self.reinterpreted_batch_ndims = base_constraint, reinterpreted_batch_ndims

    @property
    def is_discrete(self) -> bool:
        """Whether the set is discrete."""
        result: bool = self.base_constraint.is_discrete
        return result

    @property
    def event_dim(self) -> int:
        """Number of dimensions of an event."""
        result: int = self.base_constraint.event_dim + self.reinterpreted_batch_ndims
        return result

    def check(self, value: Tensor) -> Tensor:
        result = self.base_constraint.check(value)
        if len(result.shape) < self.reinterpreted_batch_ndims:
            expected = self.event_dim
            raise ValueError(f"Expected value.dim() >= {expected} but got {len(value.shape)}")
        for _ in range(self.reinterpreted_batch_ndims):
            result = result.all(-1)
        return result

    def __repr__(self) -> str:
        return f"IndependentConstraint({self.base_constraint!r}, {self.reinterpreted_batch_ndims})"


class MixtureSameFamilyConstraint(Constraint):
    """Events of the components of a mixture, with one dimension more for the components.

    Parameters
    ----------
    base_constraint : Constraint
        Support of the components.

    Examples
    --------
    >>> MixtureSameFamilyConstraint(real)
    MixtureSameFamilyConstraint(Real())
    """

    def __init__(self, base_constraint: Constraint):
        self.base_constraint = base_constraint

    @property
    def is_discrete(self) -> bool:
        """Whether the set is discrete."""
        result: bool = self.base_constraint.is_discrete
        return result

    @property
    def event_dim(self) -> int:
        """Number of dimensions of an event."""
        result: int = self.base_constraint.event_dim
        return result

    def check(self, value: Tensor) -> Tensor:
        """Tell for each event whether all components contain it."""
        result = self.base_constraint.check(value.unsqueeze(-1 - self.event_dim))
        return result.all(-1)

    def __repr__(self) -> str:
        return f"MixtureSameFamilyConstraint({self.base_constraint!r})"


class _Joined(Constraint):
    """Constraints of the parts of a value along a dimension."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0):
        if not all(isinstance(c, Constraint) for c in cseq):
            raise AssertionError("all elements of cseq must be constraints")
        self.cseq, self.dim = list(cseq), dim

    @property
    def is_discrete(self) -> bool:
        """Whether a part is discrete."""
        return any(c.is_discrete for c in self.cseq)

    @property
    def event_dim(self) -> int:
        """Largest number of dimensions of an event of the parts."""
        result: int = max(c.event_dim for c in self.cseq)
        return result


class _CatConstraint(_Joined):
    """Constraints of parts of these lengths along a dimension."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0, lengths: Sequence[int] | None = None):
        super().__init__(cseq, dim)
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.cseq):
            raise AssertionError("lengths and cseq must have the same length")

    def check(self, value: Tensor) -> Tensor:
        parts, start = [], 0
        for constraint, length in zip(self.cseq, self.lengths):
            parts.append(constraint.check(value.narrow(self.dim, start, length)))
            start += length
        result: Tensor = FUNCTIONS["cat"](parts, self.dim)
        return result

    def __repr__(self) -> str:
        return "Cat()"


class _StackConstraint(_Joined):
    """Constraints of the elements of a dimension."""

    def check(self, value: Tensor) -> Tensor:
        parts = [c.check(value.select(self.dim, k)) for k, c in enumerate(self.cseq)]
        result: Tensor = FUNCTIONS["stack"](parts, self.dim)
        return result

    def __repr__(self) -> str:
        return "Stack()"


dependent, dependent_property, independent = _Dependent(), _DependentProperty, _IndependentConstraint
real, boolean, one_hot = _RealNumbers(), _TwoValues(), _OneHot()
greater_than, greater_than_eq, less_than, multinomial = _GreaterThan, _GreaterThanEq, _LessThan, _Counts
interval, half_open_interval, integer_interval = _Interval, _HalfOpenInterval, _IntegerInterval
nonnegative_integer, positive_integer = _IntegerGreaterThan(0), _IntegerGreaterThan(1)
positive, nonnegative, unit_interval = _GreaterThan(0.0), _GreaterThanEq(0.0), _Interval(0.0, 1.0)
real_vector, simplex = _IndependentConstraint(real, 1), _Simplex()
lower_triangular, lower_cholesky, corr_cholesky = _LowerTriangular(), _LowerCholesky(), _CorrCholesky()
square, symmetric = _Square(), _Symmetric()
positive_semidefinite, positive_definite = _PositiveSemidefinite(), _PositiveDefinite()
cat, stack = _CatConstraint, _StackConstraint
