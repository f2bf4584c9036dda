"""Transforms of Tensors: elementwise functions, and maps between vectors or matrices and their constraints.

The Jacobians of stick breaking and of the Cholesky factor follow the reference manual of Stan, "Constraint transforms".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tracegrad.avals import Size
from tracegrad.errors import located
from tracegrad.torch.distributions import constraints
from tracegrad.torch.distributions.joined_transforms import CatTransform, StackTransform
from tracegrad.torch.distributions.transform import (
    ComposeTransform,
    IndependentTransform,
    Transform,
    identity_transform,
    require_rank,
    sum_rightmost,
)
from tracegrad.torch.distributions.utils import broadcast_all, clamp_open, tril_matrix_to_vec, vec_to_tril_matrix
from tracegrad.torch.functions.core.registry import FUNCTIONS
from tracegrad.torch.nn import functional as F
from tracegrad.torch.tape.tensors.dtypes import finfo
from tracegrad.torch.tape.tensors.factories import arange, eye, full_like

__all__ = [
    "AbsTransform",
    "AffineTransform",
    "CatTransform",
    "ComposeTransform",
    "CorrCholeskyTransform",
    "CumulativeDistributionTransform",
    "ExpTransform",
    "IndependentTransform",
    "LowerCholeskyTransform",
    "PositiveDefiniteTransform",
    "PowerTransform",
    "ReshapeTransform",
    "SigmoidTransform",
    "SoftmaxTransform",
    "SoftplusTransform",
    "StackTransform",
    "StickBreakingTransform",
    "TanhTransform",
    "Transform",
    "identity_transform",
]


# -- elementwise ---------------------------------------------------------------------------------------------------
class _WithoutParameters(Transform):
    """Transform that is equal to all others of its class."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    __hash__ = object.__hash__


class _Increasing(_WithoutParameters):
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

    def _call(self, x: Any) -> Any:
        return x.exp()

    def _inverse(self, y: Any) -> Any:
        return y.log()

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return x


class SigmoidTransform(_Increasing):
    """y = 1 / (1 + exp(-x)).

    >>> import tracegrad as tg
    >>> SigmoidTransform()(tg.tensor(0.0))
    tensor(0.5000)
    """

    codomain = constraints.unit_interval

    def _call(self, x: Any) -> Any:
        return clamp_open(x.sigmoid())

    def _inverse(self, y: Any) -> Any:
        y = clamp_open(y)
        return y.log() - (-y).log1p()

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return F.logsigmoid(x) + F.logsigmoid(-x)


class SoftplusTransform(_Increasing):
    """y = log(1 + exp(x)).

    >>> import tracegrad as tg
    >>> SoftplusTransform()(tg.tensor(0.0))
    tensor(0.6931)
    """

    codomain = constraints.positive

    def _call(self, x: Any) -> Any:
        return F.softplus(x)

    def _inverse(self, y: Any) -> Any:
        return (-y).expm1().neg().log() + y

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return F.logsigmoid(x)


class TanhTransform(_Increasing):
    """y = tanh(x).

    >>> import tracegrad as tg
    >>> TanhTransform()(tg.tensor(0.0))
    tensor(0.)
    """

    codomain = constraints.interval(-1.0, 1.0)

    def _call(self, x: Any) -> Any:
        return x.tanh()

    def _inverse(self, y: Any) -> Any:
        return y.atanh()

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        # log(1 - tanh(x)**2) without cancellation
        return 2.0 * (math.log(2.0) - x + F.logsigmoid(2.0 * x))


class AbsTransform(_WithoutParameters):
    """y = abs(x); the inverse returns the positive number.

    >>> import tracegrad as tg
    >>> AbsTransform()(tg.tensor(-1.0))
    tensor(1.)
    """

    domain = constraints.real
    codomain = constraints.positive

    def _call(self, x: Any) -> Any:
        return x.abs()

    def _inverse(self, y: Any) -> Any:
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

    def __init__(self, exponent: Any, cache_size: int = 0):
        super().__init__(cache_size=cache_size)
        (self.exponent,) = broadcast_all(exponent)

    @property
    def sign(self) -> Any:
        """Sign of the derivative, which is that of the exponent."""
        return self.exponent.sign()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PowerTransform) and bool(self.exponent.eq(other.exponent).all())

    __hash__ = object.__hash__

    def _call(self, x: Any) -> Any:
        return x.pow(self.exponent)

    def _inverse(self, y: Any) -> Any:
        return y.pow(1 / self.exponent)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return (self.exponent * y / x).abs().log()

    def forward_shape(self, shape: Any) -> Any:
        return FUNCTIONS["broadcast_shapes"](shape, self.exponent.shape)

    inverse_shape = forward_shape


class AffineTransform(Transform):
    """y = loc + scale * x.

    >>> import tracegrad as tg
    >>> AffineTransform(1.0, 2.0)(tg.tensor(3.0))
    tensor(7.)
    """

    bijective = True
    _arguments = "loc", "scale", "event_dim"

    def __init__(self, loc: Any, scale: Any, event_dim: int = 0, cache_size: int = 0):
        super().__init__(cache_size=cache_size)
        self.loc, self.scale, self._event_dim = loc, scale, event_dim

    @property
    def event_dim(self) -> int:
        """Number of dimensions of an event."""
        return self._event_dim

    @property
    def domain(self) -> Any:
        """Constraint of the input."""
        return constraints.real if self.event_dim == 0 else constraints.independent(constraints.real, self.event_dim)

    codomain = domain

    @property
    def sign(self) -> Any:
        """Sign of the derivative, which is that of the scale."""
        scale: Any = self.scale
        return scale.sign() if hasattr(scale, "sign") else (scale > 0) - (scale < 0)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AffineTransform) and all(
            x is y or _all(x == y) for x, y in ((self.loc, other.loc), (self.scale, other.scale))
        )

    __hash__ = object.__hash__

    def _call(self, x: Any) -> Any:
        return self.loc + self.scale * x

    def _inverse(self, y: Any) -> Any:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        scale: Any = self.scale
        result = scale.abs().log() if hasattr(scale, "abs") else full_like(x, math.log(abs(scale)))
        shape = FUNCTIONS["broadcast_shapes"](result.shape, x.shape)
        return sum_rightmost(result.expand(shape), self.event_dim)

    def forward_shape(self, shape: Any) -> Any:
        shapes = [getattr(parameter, "shape", ()) for parameter in (self.loc, self.scale)]
        return FUNCTIONS["broadcast_shapes"](shape, *shapes)

    inverse_shape = forward_shape


def _all(x: Any) -> bool:
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

    def __init__(self, distribution: Any, cache_size: int = 0):
        super().__init__(cache_size=cache_size)
        self.distribution = distribution

    @property
    def domain(self) -> Any:
        """Constraint of the input: the support of the distribution."""
        return self.distribution.support

    def _call(self, x: Any) -> Any:
        return self.distribution.cdf(x)

    def _inverse(self, y: Any) -> Any:
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return self.distribution.log_prob(x)


# -- vectors and matrices ------------------------------------------------------------------------------------------
class ReshapeTransform(Transform):
    """Reshape of events from `in_shape` to `out_shape`; ValueError for other numbers of elements.

    >>> import tracegrad as tg
    >>> ReshapeTransform((4,), (2, 2))(tg.zeros(3, 4)).shape
    torch.Size([3, 2, 2])
    """

    bijective = True
    _arguments = "in_shape", "out_shape"

    def __init__(self, in_shape: Sequence[int], out_shape: Sequence[int], cache_size: int = 0):
        super().__init__(cache_size=cache_size)
        self.in_shape, self.out_shape = Size(in_shape), Size(out_shape)
        if math.prod(self.in_shape) != math.prod(self.out_shape):
            raise ValueError(located("in_shape, out_shape have different numbers of elements"))

    @property
    def domain(self) -> Any:
        """Constraint of the input."""
        return constraints.independent(constraints.real, len(self.in_shape))

    @property
    def codomain(self) -> Any:
        """Constraint of the output."""
        return constraints.independent(constraints.real, len(self.out_shape))

    def _call(self, x: Any) -> Any:
        return x.reshape(_swapped(x.shape, self.in_shape, self.out_shape))

    def _inverse(self, y: Any) -> Any:
        return y.reshape(_swapped(y.shape, self.out_shape, self.in_shape))

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return x.new_zeros(x.shape[: len(x.shape) - len(self.in_shape)])

    def forward_shape(self, shape: Any) -> Any:
        return _swapped(shape, self.in_shape, self.out_shape)

    def inverse_shape(self, shape: Any) -> Any:
        return _swapped(shape, self.out_shape, self.in_shape)


def _swapped(shape: Any, ending: Size, new: Size) -> Size:
    """Replace the last dimensions; ValueError unless they are `ending`."""
    require_rank(shape, len(ending))
    cut = len(shape) - len(ending)
    if tuple(shape[cut:]) != ending:
        raise ValueError(located(f"Shape mismatch: expected {ending} but got {shape[cut:]}"))
    return Size((*shape[:cut], *new))


class SoftmaxTransform(_WithoutParameters):
    """y = exp(x), normalized; the inverse is the logarithm, up to a constant. It is not bijective.

    >>> import tracegrad as tg
    >>> SoftmaxTransform()(tg.zeros(2))
    tensor([0.5000, 0.5000])
    """

    domain = constraints.real_vector
    codomain = constraints.simplex

    def _call(self, x: Any) -> Any:
        return F.softmax(x, dim=-1)

    def _inverse(self, y: Any) -> Any:
        return y.log()

    def forward_shape(self, shape: Any) -> Any:
        require_rank(shape, 1)
        return shape

    inverse_shape = forward_shape


class StickBreakingTransform(_WithoutParameters):
    """Map of vectors with n elements to the simplex with n + 1 elements, by fractions of what is left of 1.

    >>> import tracegrad as tg
    >>> StickBreakingTransform()(tg.zeros(2))
    tensor([0.3333, 0.3333, 0.3333])
    """

    domain = constraints.real_vector
    codomain = constraints.simplex
    bijective = True

    def _offset(self, count: int, x: Any) -> Any:
        return arange(count, 0, -1, dtype=x.dtype).log()

    def _call(self, x: Any) -> Any:
        fraction = SigmoidTransform()(x - self._offset(x.shape[-1], x))
        left = (1 - fraction).cumprod(-1)
        return F.pad(fraction, [0, 1], value=1) * F.pad(left, [1, 0], value=1)

    def _inverse(self, y: Any) -> Any:
        cropped = y[..., :-1]
        left = (1 - cropped.cumsum(-1)).clamp(min=float(finfo(y.dtype).tiny))
        return cropped.log() - left.log() + self._offset(cropped.shape[-1], y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        x = x - self._offset(x.shape[-1], x)
        return (-x + F.logsigmoid(x) + y[..., :-1].log()).sum(-1)

    def forward_shape(self, shape: Any) -> Any:
        require_rank(shape, 1)
        return Size((*shape[:-1], shape[-1] + 1))

    def inverse_shape(self, shape: Any) -> Any:
        require_rank(shape, 1)
        return Size((*shape[:-1], shape[-1] - 1))


class LowerCholeskyTransform(_WithoutParameters):
    """Map of matrices to Cholesky factors: the lower triangle, with exp of the diagonal.

    >>> import tracegrad as tg
    >>> LowerCholeskyTransform()(tg.zeros(2, 2)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.lower_cholesky

    def _call(self, x: Any) -> Any:
        return x.tril(-1) + x.diagonal(dim1=-2, dim2=-1).exp().diag_embed()

    def _inverse(self, y: Any) -> Any:
        return y.tril(-1) + y.diagonal(dim1=-2, dim2=-1).log().diag_embed()


class PositiveDefiniteTransform(_WithoutParameters):
    """Map of matrices to positive definite ones: L @ L.mT of `LowerCholeskyTransform`.

    >>> import tracegrad as tg
    >>> PositiveDefiniteTransform()(tg.zeros(2, 2)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.positive_definite

    def _call(self, x: Any) -> Any:
        factor = LowerCholeskyTransform()(x)
        return factor @ factor.mT

    def _inverse(self, y: Any) -> Any:
        return LowerCholeskyTransform().inv(FUNCTIONS["cholesky"](y))


class CorrCholeskyTransform(_WithoutParameters):
    """Map of n (n - 1) / 2 numbers to the Cholesky factor of a correlation matrix (n, n), by partial correlations.

    D. Lewandowski, D. Kurowicka and H. Joe, "Generating random correlation matrices based on vines and extended onion
    method", J. Multivariate Anal. 100 (2009).

    >>> import tracegrad as tg
    >>> CorrCholeskyTransform()(tg.zeros(1)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    domain = constraints.real_vector
    codomain = constraints.corr_cholesky
    bijective = True

    def _call(self, x: Any) -> Any:
        eps = float(finfo(x.dtype).eps)
        partial = vec_to_tril_matrix(x.tanh().clamp(min=-1 + eps, max=1 - eps), diag=-1)
        left = (1 - partial.square()).sqrt().cumprod(-1)
        return (partial + eye(partial.shape[-1], dtype=x.dtype)) * F.pad(left[..., :-1], [1, 0], value=1)

    def _inverse(self, y: Any) -> Any:
        left = 1 - y.square().cumsum(-1)
        left = tril_matrix_to_vec(F.pad(left[..., :-1], [1, 0], value=1), diag=-1)
        partial = tril_matrix_to_vec(y, diag=-1) / left.sqrt()
        return (partial.log1p() - partial.neg().log1p()) / 2

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        left = 1 - y.square().cumsum(-1)
        terms = 0.5 * tril_matrix_to_vec(left, diag=-2).log().sum(-1) if y.shape[-1] > 2 else 0.0
        return terms - 2 * (x - F.logsigmoid(2 * x) - math.log(2.0)).sum(-1)

    def forward_shape(self, shape: Any) -> Any:
        require_rank(shape, 1)
        n = round((0.25 + 2 * shape[-1]) ** 0.5 + 0.5)
        if n * (n - 1) // 2 != shape[-1]:
            raise ValueError(located("Input is not a flattened lower-diagonal number"))
        return Size((*shape[:-1], n, n))

    def inverse_shape(self, shape: Any) -> Any:
        require_rank(shape, 2)
        if shape[-2] != shape[-1]:
            raise ValueError(located("Input is not square"))
        return Size((*shape[:-2], shape[-1] * (shape[-1] - 1) // 2))
