"""Registries of transforms from unconstrained Tensors to constraints: `biject_to` and `transform_to`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tracegrad.torch.distributions import constraints, transforms

if TYPE_CHECKING:
    from tracegrad.torch.distributions.constraints import (
        Constraint,
        _CatConstraint,
        _IndependentConstraint,
        _StackConstraint,
    )
    from tracegrad.torch.distributions.joined_transforms import StackTransform
    from tracegrad.torch.distributions.transform import IndependentTransform, Transform
    from tracegrad.torch.tape.tensors.tensor import Tensor


__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]


class ConstraintRegistry:
    """Registry of functions that make a transform from a constraint, by the constraint's class.

    >>> import tracegrad as tg
    >>> transform_to(constraints.positive)(tg.tensor(0.0))
    tensor(1.)
    """

    def __init__(self) -> None:
        self._registry: dict[type, Callable[[Any], Any]] = {}

    def register(self, constraint: object, factory: Callable[[Any], Any] | None = None) -> Any:
        """Register `factory(constraint)` for a constraint or a class of constraints; also a decorator.

        TypeError for other objects.
        """
        if factory is None:
            return lambda function: self.register(constraint, function)
        if isinstance(constraint, constraints.Constraint):
            constraint = type(constraint)
        if not isinstance(constraint, type) or not issubclass(constraint, constraints.Constraint):
            raise TypeError(f"Expected constraint to be either a Constraint subclass or instance, but got {constraint}")
        self._registry[constraint] = factory
        return factory

    def __call__(self, constraint: Any) -> Transform:
        factory = self._registry.get(type(constraint))
        if factory is None:
            raise NotImplementedError(f"Cannot transform {type(constraint).__name__} constraints")
        result: Transform = factory(constraint)
        return result


biject_to, transform_to = ConstraintRegistry(), ConstraintRegistry()


def _registered(
    *rows: object, registries: Sequence[ConstraintRegistry] = (biject_to, transform_to)
) -> Callable[[Any], Any]:
    def declare(factory: Callable[[Any], Any]) -> Callable[[Any], Any]:
        for registry in registries:
            for constraint in rows:
                registry.register(constraint, factory)
        return factory

    return declare


@_registered(constraints.real)
def _identity(constraint: Constraint) -> Transform:
    return transforms.identity_transform


@_registered(constraints.positive, constraints.nonnegative)
def _above(constraint: Any) -> Transform:
    parts = [transforms.ExpTransform(), transforms.AffineTransform(constraint.lower_bound, 1)]
    return parts[0] if _is_zero(constraint.lower_bound) else transforms.ComposeTransform(parts)


@_registered(constraints.less_than)
def _below(constraint: Any) -> Transform:
    return transforms.ComposeTransform(
        [transforms.ExpTransform(), transforms.AffineTransform(constraint.upper_bound, -1)]
    )


@_registered(constraints.interval, constraints.half_open_interval)
def _between(constraint: Any) -> Transform:
    low, high = constraint.lower_bound, constraint.upper_bound
    if _is_zero(low) and isinstance(high, int | float) and high == 1:
        return transforms.SigmoidTransform()
    return transforms.ComposeTransform(
        [transforms.SigmoidTransform(), transforms.AffineTransform(loc=low, scale=high - low)]
    )


def _is_zero(bound: Tensor | float) -> bool:
    return isinstance(bound, int | float) and bound == 0


@_registered(constraints.simplex, registries=[biject_to])
def _stick_breaking(constraint: Constraint) -> Transform:
    return transforms.StickBreakingTransform()


@_registered(constraints.simplex, registries=[transform_to])
def _softmax(constraint: Constraint) -> Transform:
    return transforms.SoftmaxTransform()


@_registered(constraints.lower_cholesky, registries=[transform_to])
def _cholesky(constraint: Constraint) -> Transform:
    return transforms.LowerCholeskyTransform()


@_registered(constraints.positive_definite, constraints.positive_semidefinite, registries=[transform_to])
def _positive_definite(constraint: Constraint) -> Transform:
    return transforms.PositiveDefiniteTransform()


@_registered(constraints.corr_cholesky)
def _correlations(constraint: Constraint) -> Transform:
    return transforms.CorrCholeskyTransform()


def _of_parts(registry: ConstraintRegistry) -> None:
    """Register constraints that are made of others: each part has its transform in the same registry."""

    def independent(constraint: _IndependentConstraint) -> IndependentTransform:
        base = registry(constraint.base_constraint)
        return transforms.IndependentTransform(base, constraint.reinterpreted_batch_ndims)

    def cat(constraint: _CatConstraint) -> Transform:
        parts = [registry(c) for c in constraint.cseq]
        return transforms.CatTransform(parts, constraint.dim, constraint.lengths)

    def stack(constraint: _StackConstraint) -> StackTransform:
        return transforms.StackTransform([registry(c) for c in constraint.cseq], constraint.dim)

    for constraint, factory in (
        (constraints.independent, independent),
        (constraints.cat, cat),
        (constraints.stack, stack),
    ):
        registry.register(constraint, factory)


_of_parts(biject_to)
_of_parts(transform_to)
