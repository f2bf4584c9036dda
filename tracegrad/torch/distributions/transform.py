"""Base class of transforms of Tensors, their inverses and compositions, with log determinants of Jacobians."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from tracegrad.errors import located
from tracegrad.torch.distributions import constraints
from tracegrad.torch.tape.tensors.factories import zeros_like

if TYPE_CHECKING:
    from tracegrad.torch.distributions.constraints import Constraint
    from tracegrad.torch.tape.tensors.tensor import Tensor
    from tracegrad.typing import Shape


__all__ = ["ComposeTransform", "IndependentTransform", "Transform", "identity_transform", "sum_rightmost"]


def sum_rightmost(value: Tensor, count: int) -> Tensor:
    """Sum the last `count` dimensions."""
    return value if count == 0 else value.reshape((*value.shape[:-count], -1)).sum(-1)


def require_rank(shape: Sequence[int], rank: int) -> None:
    """Raise ValueError if an input or output has fewer dimensions than `rank`."""
    if len(shape) < rank:
        raise ValueError(located("Too few dimensions on input"))


class Transform:
    """Base class of transforms; a subclass defines `_call`, `_inverse` and `log_abs_det_jacobian`.

    `domain` and `codomain` are constraints. With `cache_size=1`, the inverse of the last result is stored.

    >>> import tracegrad as tg
    >>> class Shift(Transform):
    ...     domain = codomain = constraints.real
    ...     bijective = True
    ...     def _call(self, x):
    ...         return x + 1
    ...     def _inverse(self, y):
    ...         return y - 1
    >>> Shift().inv(Shift()(tg.tensor([0.0, 1.0])))
    tensor([0., 1.])
    """

    bijective = False
    domain: Any
    codomain: Any
    # The attributes that are the arguments of `__init__` before `cache_size`, of a class that has its own `__init__`.
    _arguments: ClassVar[tuple[str, ...]]

    def __init__(self, cache_size: int = 0):
        if cache_size not in (0, 1):
            raise ValueError(located("cache_size must be 0 or 1"))
        self._cache_size = cache_size
        self._cached_x_y: tuple[Any, Any] = (None, None)

    @property
    def event_dim(self) -> int:
        """Number of dimensions of an event, which must be that of the domain and of the codomain."""
        if self.domain.event_dim == self.codomain.event_dim:
            return int(self.domain.event_dim)
        raise ValueError(located("Please use either .domain.event_dim or .codomain.event_dim"))

    @property
    def inv(self) -> Transform:
        """Inverse transform."""
        return _InverseTransform(self)

    @property
    def sign(self) -> int:
        """Sign of the derivative of a monotone transform."""
        raise NotImplementedError

    def with_cache(self, cache_size: int = 1) -> Transform:
        """Return the transform with this size of the cache."""
        if self._cache_size == cache_size:
            return self
        if type(self).__init__ is Transform.__init__:
            return type(self)(cache_size=cache_size)
        owner: Any = next((cls for cls in type(self).__mro__ if "_arguments" in vars(cls)), None)
        if owner is None:
            raise NotImplementedError(f"{type(self)}.with_cache is not implemented")
        result: Transform = owner(*[getattr(self, name) for name in owner._arguments], cache_size=cache_size)
        return result

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    def __call__(self, x: Tensor) -> Tensor:
        if self._cache_size == 0:
            return self._call(x)
        if x is self._cached_x_y[0]:
            result: Tensor = self._cached_x_y[1]
            return result
        y = self._call(x)
        self._cached_x_y = x, y
        return y

    def _inv_call(self, y: Tensor) -> Tensor:
        if self._cache_size == 0:
            return self._inverse(y)
        if y is self._cached_x_y[1]:
            result: Tensor = self._cached_x_y[0]
            return result
        x = self._inverse(y)
        self._cached_x_y = x, y
        return x

    def _call(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def _inverse(self, y: Tensor) -> Tensor:
        raise NotImplementedError

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Return log |det dy/dx| of each event, at the input `x` and the output `y`."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def forward_shape(self, shape: Shape) -> Shape:
        """Return the shape of the output from the shape of the input."""
        return shape

    def inverse_shape(self, shape: Shape) -> Shape:
        """Return the shape of the input from the shape of the output."""
        return shape


class _InverseTransform(Transform):
    """Inverse of a transform."""

    def __init__(self, transform: Transform):
        super().__init__(cache_size=transform._cache_size)
        self._inv = transform

    @property
    def domain(self) -> Constraint:
        """Constraint of the input."""
        result: Constraint = self._inv.codomain
        return result

    @property
    def codomain(self) -> Constraint:
        """Constraint of the output."""
        result: Constraint = self._inv.domain
        return result

    @property
    def bijective(self) -> bool:  # type: ignore[override]
        """Whether the transform has an inverse."""
        return self._inv.bijective

    @property
    def sign(self) -> int:
        """Sign of the derivative."""
        return self._inv.sign

    @property
    def inv(self) -> Transform:
        """The transform itself."""
        return self._inv

    def with_cache(self, cache_size: int = 1) -> Transform:
        return self._inv.with_cache(cache_size).inv

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _InverseTransform) and self._inv == other._inv

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._inv!r})"

    def __call__(self, x: Tensor) -> Tensor:
        return self._inv._inv_call(x)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -self._inv.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape: Shape) -> Shape:
        return self._inv.inverse_shape(shape)

    def inverse_shape(self, shape: Shape) -> Shape:
        return self._inv.forward_shape(shape)


class WithoutParameters(Transform):
    """Transform that is equal to all others of its class."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    __hash__ = object.__hash__


# -- made of others ------------------------------------------------------------------------------------------------
class ComposeTransform(Transform):
    """Composition of transforms, applied from the first to the last.

    >>> import tracegrad as tg
    >>> from tracegrad.distributions.transforms import AffineTransform, ExpTransform
    >>> ComposeTransform([ExpTransform(), AffineTransform(1.0, 2.0)])(tg.tensor(0.0))
    tensor(3.)
    """

    _arguments = ("parts",)

    def __init__(self, parts: Sequence[Transform], cache_size: int = 0):
        super().__init__(cache_size=cache_size)
        self.parts = [part.with_cache(cache_size) for part in parts] if cache_size else list(parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ComposeTransform) and self.parts == other.parts

    __hash__ = object.__hash__

    def _at_end(self, parts: Sequence[Transform], start: str, end: str) -> Constraint:
        """Return the constraint at one end, with the dimensions of events that the other parts need."""
        if not parts:
            return constraints.real
        result = getattr(parts[0], start)
        count = getattr(parts[-1], end).event_dim
        for part in reversed(parts):
            count += getattr(part, start).event_dim - getattr(part, end).event_dim
            count = max(count, getattr(part, start).event_dim)
        more = count - result.event_dim
        return constraints.independent(result, more) if more > 0 else result

    @property
    def domain(self) -> Constraint:
        """Constraint of the input."""
        return self._at_end(self.parts, "domain", "codomain")

    @property
    def codomain(self) -> Constraint:
        """Constraint of the output."""
        return self._at_end(self.parts[::-1], "codomain", "domain")

    @property
    def bijective(self) -> bool:  # type: ignore[override]
        """Whether all parts have an inverse."""
        return all(part.bijective for part in self.parts)

    @property
    def sign(self) -> int:
        """Sign of the derivative: the product of the signs of the parts."""
        return math.prod(part.sign for part in self.parts)

    @property
    def inv(self) -> Transform:
        """Inverse transform."""
        return ComposeTransform([part.inv for part in reversed(self.parts)], self._cache_size)

    def __call__(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        if not self.parts:
            return zeros_like(x)
        values = [x]
        for part in self.parts[:-1]:
            values.append(part(values[-1]))
        values.append(y)
        terms, count = [], self.domain.event_dim
        for part, before, after in zip(self.parts, values, values[1:]):
            term = part.log_abs_det_jacobian(before, after)
            terms.append(sum_rightmost(term, count - part.domain.event_dim))
            count += part.codomain.event_dim - part.domain.event_dim
        return sum(terms[1:], terms[0])

    def forward_shape(self, shape: Shape) -> Shape:
        for part in self.parts:
            shape = part.forward_shape(shape)
        return shape

    def inverse_shape(self, shape: Shape) -> Shape:
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return shape

    def __repr__(self) -> str:
        inside = ",\n    ".join(repr(part) for part in self.parts)
        return f"{type(self).__name__}(\n    {inside}\n)"


identity_transform = ComposeTransform([])


class IndependentTransform(Transform):
    """Another transform, with more dimensions of a value in one event.

    >>> import tracegrad as tg
    >>> from tracegrad.distributions.transforms import ExpTransform
    >>> x = tg.tensor([[1.0, 2.0]])
    >>> IndependentTransform(ExpTransform(), 1).log_abs_det_jacobian(x, x.exp())
    tensor([3.])
    """

    _arguments = "base_transform", "reinterpreted_batch_ndims"

    def __init__(self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0):
        super().__init__(cache_size=cache_size)
        self.base_transform = base_transform.with_cache(cache_size)
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    @property
    def domain(self) -> Constraint:
        """Constraint of the input."""
        return constraints.independent(self.base_transform.domain, self.reinterpreted_batch_ndims)

    @property
    def codomain(self) -> Constraint:
        """Constraint of the output."""
        return constraints.independent(self.base_transform.codomain, self.reinterpreted_batch_ndims)

    @property
    def bijective(self) -> bool:  # type: ignore[override]
        """Whether the transform has an inverse."""
        return bool(self.base_transform.bijective)

    @property
    def sign(self) -> Any:
        """Sign of the derivative."""
        return self.base_transform.sign

    def _call(self, x: Tensor) -> Tensor:
        require_rank(x.shape, self.domain.event_dim)
        return self.base_transform(x)

    def _inverse(self, y: Tensor) -> Tensor:
        require_rank(y.shape, self.codomain.event_dim)
        return self.base_transform.inv(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return sum_rightmost(self.base_transform.log_abs_det_jacobian(x, y), self.reinterpreted_batch_ndims)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_transform!r}, {self.reinterpreted_batch_ndims})"

    def forward_shape(self, shape: Shape) -> Shape:
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape: Shape) -> Shape:
        return self.base_transform.inverse_shape(shape)
