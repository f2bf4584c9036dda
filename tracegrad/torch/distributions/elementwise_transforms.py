"""Transforms of each element: common functions, affine maps, and distribution functions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tracegrad.torch.distributions import constraints
from tracegrad.torch.distributions.transform import Transform, WithoutParameters, sum_rightmost
from tracegrad.torch.distributions.utils import broadcast_all, broadcast_shapes, clamp_open
from tracegrad.torch.nn import functional as F
from tracegrad.torch.tape.tensors.factories import full_like

if TYPE_CHECKING:
    from tracegrad.torch.distributions.constraints import Constraint
    from tracegrad.torch.distributions.distribution import Distribution
    from tracegrad.torch.tape.tensors.tensor import Tensor
    from tracegrad.typing import Shape


__all__ = [
    "AbsTransform",
    "AffineTransform",
    "CumulativeDistributionTransform",
    "ExpTransform",
    "PowerTransform",
    "SigmoidTransform",
    "SoftplusTransform",
    "TanhTransform",
]


class _Increasing(WithoutParameters):
    """Bijective increasing function."""

    domain = constraints.real
    bijective = True
    sign = 1


class ExpTransform(_Increasing):
    """y = exp(x).

    >>> import tracegrad as tg
    >>> ExpTransform()(tg.tensor(0.0))
    tensor(1.)
    """

    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return x.exp()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x


class SigmoidTransform(_Increasing):
    """y = 1 / (1 + exp(-x)).

    >>> import tracegrad as tg
    >>> SigmoidTransform()(tg.tensor(0.0))
    tensor(0.5000)
    """

    codomain = constraints.unit_interval

    def _call(self, x: Tensor) -> Tensor:
        return clamp_open(x.sigmoid())

    def _inverse(self, y: Tensor) -> Tensor:
        y = clamp_open(y)
        return y.log() - (-y).log1p()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return F.logsigmoid(x) + F.logsigmoid(-x)  # type: ignore[return-value]  # of a Tensor


class SoftplusTransform(_Increasing):
    """y = log(1 + exp(x)).

    >>> import tracegrad as tg
    >>> SoftplusTransform()(tg.tensor(0.0))
    tensor(0.6931)
    """

    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return F.softplus(x)  # type: ignore[return-value]  # of a Tensor

    def _inverse(self, y: Tensor) -> Tensor:
        return (-y).expm1().neg().log() + y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return F.logsigmoid(x)  # type: ignore[return-value]  # of a Tensor


class TanhTransform(_Increasing):
    """y = tanh(x).

    >>> import tracegrad as tg
    >>> TanhTransform()(tg.tensor(0.0))
    tensor(0.)
    """

    codomain = constraints.interval(-1.0, 1.0)

    def _call(self, x: Tensor) -> Tensor:
        return x.tanh()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.atanh()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        # log(1 - tanh(x)**2) without cancellation
        return 2.0 * (math.log(2.0) - x + F.logsigmoid(2.0 * x))


class AbsTransform(WithoutParameters):
    """y = abs(x); the inverse returns the positive number.

    >>> import tracegrad as tg
    >>> AbsTransform()(tg.tensor(-1.0))
    tensor(1.)
    """

    domain = constraints.real
    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return x.abs()

    def _inverse(self, y: Tensor) -> Tensor:
        return y


class PowerTransform(Transform):
    """y = x**exponent, between positive numbers.

    >>> import tracegrad as tg
    >>> PowerTransform(2.0)(tg.tensor(3.0))
    tensor(9.)
    """

    domain = codomain = constraints.positive
    bijective = True
    _arguments = ("exponent",)

    def __init__(self, exponent: object, cache_size: int = 0):
        super().__init__(cache_size=cache_size)
        (self.exponent,) = broadcast_all(exponent)

    @property
    def sign(self) -> Any:
        """Sign of the derivative, which is that of the exponent."""
        return self.exponent.sign()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PowerTransform) and bool(self.exponent.eq(other.exponent).all())

    __hash__ = object.__hash__

    def _call(self, x: Tensor) -> Tensor:
        return x.pow(self.exponent)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.pow(1 / self.exponent)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return (self.exponent * y / x).abs().log()

    def forward_shape(self, shape: Shape) -> Shape:
        return broadcast_shapes(shape, self.exponent.shape)

    inverse_shape = forward_shape


class AffineTransform(Transform):
    """y = loc + scale * x.

    >>> import tracegrad as tg
    >>> AffineTransform(1.0, 2.0)(tg.tensor(3.0))
    tensor(7.)
    """

    bijective = True
    _arguments = "loc", "scale", "event_dim"

    def __init__(self, loc: Tensor | float, scale: Tensor | float, event_dim: int = 0, cache_size: int = 0):
        super().__init__(cache_size=cache_size)
        self.loc, self.scale, self._event_dim = loc, scale, event_dim

    @property
    def event_dim(self) -> int:
        """Number of dimensions of an event."""
        return self._event_dim

    @property
    def domain(self) -> Constraint:
        """Constraint of the input."""
        return constraints.real if self.event_dim == 0 else constraints.independent(constraints.real, self.event_dim)

    codomain = domain

    @property
    def sign(self) -> Any:
        """Sign of the derivative, which is that of the scale."""
        scale: Any = self.scale
        result: Tensor = scale.sign() if hasattr(scale, "sign") else (scale > 0) - (scale < 0)
        return result

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AffineTransform) and all(
            x is y or _all(x == y) for x, y in ((self.loc, other.loc), (self.scale, other.scale))
        )

    __hash__ = object.__hash__

    def _call(self, x: Tensor) -> Tensor:
        return self.loc + self.scale * x

    def _inverse(self, y: Tensor) -> Tensor:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        scale: Any = self.scale
        result = scale.abs().log() if hasattr(scale, "abs") else full_like(x, math.log(abs(scale)))
        shape = broadcast_shapes(result.shape, x.shape)
        return sum_rightmost(result.expand(shape), self.event_dim)

    def forward_shape(self, shape: Shape) -> Shape:
        shapes = [getattr(parameter, "shape", ()) for parameter in (self.loc, self.scale)]
        return broadcast_shapes(shape, *shapes)

    inverse_shape = forward_shape


def _all(x: Tensor | bool) -> bool:
    return bool(x.all() if hasattr(x, "all") else x)


class CumulativeDistributionTransform(Transform):
    """y = cdf(x) of a distribution, whose values are between 0 and 1.

    >>> import tracegrad as tg
    >>> from tracegrad.distributions import Normal
    >>> CumulativeDistributionTransform(Normal(0.0, 1.0))(tg.tensor(0.0))
    tensor(0.5000)
    """

    bijective = True
    codomain = constraints.unit_interval
    sign = 1
    _arguments = ("distribution",)

    def __init__(self, distribution: Distribution, cache_size: int = 0):
        super().__init__(cache_size=cache_size)
        self.distribution = distribution

    @property
    def domain(self) -> Constraint:
        """Constraint of the input: the support of the distribution."""
        return self.distribution.support

    def _call(self, x: Tensor) -> Tensor:
        return self.distribution.cdf(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return self.distribution.log_prob(x)
