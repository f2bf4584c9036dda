"""Transforms of the parts of a value along a dimension: `CatTransform` and `StackTransform`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tracegrad.torch.distributions import constraints
from tracegrad.torch.distributions.transform import Transform, sum_rightmost
from tracegrad.torch.distributions.utils import FUNCTIONS

if TYPE_CHECKING:
    from tracegrad.torch.distributions.constraints import Constraint
    from tracegrad.torch.tape.tensors.tensor import Tensor


__all__ = ["CatTransform", "StackTransform"]


class _PartwiseTransform(Transform):
    """One transform for each part of a value; a subclass cuts a value into parts and joins them."""

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0):
        if not all(isinstance(t, Transform) for t in tseq):
            raise AssertionError("all elements of tseq must be transforms")
        super().__init__(cache_size=cache_size)
        self.transforms = [t.with_cache(cache_size) for t in tseq] if cache_size else list(tseq)
        self.dim = dim

    @property
    def bijective(self) -> bool:  # type: ignore[override]
        """Whether all transforms have an inverse."""
        return all(t.bijective for t in self.transforms)

    def _require_length(self, value: Tensor, length: int) -> None:
        if value.shape[self.dim] != length:
            raise AssertionError(f"dimension {self.dim} must have {length} elements, got {value.shape[self.dim]}")

    def _parts(self, value: Tensor) -> list[Tensor]:
        raise NotImplementedError

    def _joined(self, parts: list[Tensor]) -> Tensor:
        raise NotImplementedError

    def _call(self, x: Tensor) -> Tensor:
        return self._joined([t(part) for t, part in zip(self.transforms, self._parts(x))])

    def _inverse(self, y: Tensor) -> Tensor:
        return self._joined([t.inv(part) for t, part in zip(self.transforms, self._parts(y))])

    def _terms(self, x: Tensor, y: Tensor) -> Iterator[tuple[Transform, Tensor]]:
        for t, before, after in zip(self.transforms, self._parts(x), self._parts(y)):
            yield t, t.log_abs_det_jacobian(before, after)


class CatTransform(_PartwiseTransform):
    """Transforms of parts of these lengths along a dimension, which are concatenated.

    >>> import tracegrad as tg
    >>> from tracegrad.distributions.transforms import ExpTransform, identity_transform
    >>> CatTransform([identity_transform, ExpTransform()], lengths=[2, 1])(tg.zeros(3))
    tensor([0., 0., 1.])
    """

    _arguments = "transforms", "dim", "lengths"

    def __init__(
        self, tseq: Sequence[Transform], dim: int = 0, lengths: Sequence[int] | None = None, cache_size: int = 0
    ):
        super().__init__(tseq, dim, cache_size)
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.transforms):
            raise AssertionError("lengths and tseq must have the same length")

    @property
    def event_dim(self) -> int:
        """Largest number of dimensions of an event of the parts."""
        return max(int(t.event_dim) for t in self.transforms)

    @property
    def length(self) -> int:
        """Length of all parts together."""
        return sum(self.lengths)

    @property
    def domain(self) -> Constraint:
        """Constraint of the input."""
        return constraints.cat([t.domain for t in self.transforms], dim=self.dim, lengths=self.lengths)

    @property
    def codomain(self) -> Constraint:
        """Constraint of the output."""
        return constraints.cat([t.codomain for t in self.transforms], dim=self.dim, lengths=self.lengths)

    def _parts(self, value: Tensor) -> list[Tensor]:
        self._require_length(value, self.length)
        return list(value.split(self.lengths, self.dim))

    def _joined(self, parts: list[Tensor]) -> Tensor:
        return FUNCTIONS["cat"](parts, self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        terms = [sum_rightmost(term, self.event_dim - t.event_dim) for t, term in self._terms(x, y)]
        dim = self.dim if self.dim < 0 else self.dim - len(x.shape)
        dim += self.event_dim
        return FUNCTIONS["cat"](terms, dim) if dim < 0 else sum(terms[1:], terms[0])


class StackTransform(_PartwiseTransform):
    """Transforms of the elements of a dimension.

    >>> import tracegrad as tg
    >>> from tracegrad.distributions.transforms import ExpTransform, identity_transform
    >>> StackTransform([identity_transform, ExpTransform()])(tg.zeros(2, 1)).tolist()
    [[0.0], [1.0]]
    """

    _arguments = "transforms", "dim"

    @property
    def domain(self) -> Constraint:
        """Constraint of the input."""
        return constraints.stack([t.domain for t in self.transforms], self.dim)

    @property
    def codomain(self) -> Constraint:
        """Constraint of the output."""
        return constraints.stack([t.codomain for t in self.transforms], self.dim)

    def _parts(self, value: Tensor) -> list[Tensor]:
        self._require_length(value, len(self.transforms))
        return list(value.unbind(self.dim))

    def _joined(self, parts: list[Tensor]) -> Tensor:
        return FUNCTIONS["stack"](parts, self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return FUNCTIONS["stack"]([term for _, term in self._terms(x, y)], self.dim)
