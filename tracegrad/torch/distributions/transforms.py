"""Transforms of Tensors: maps between vectors or matrices and their constraints, and all others.

The Jacobians of stick breaking and of the Cholesky factor follow the reference manual of Stan, "Constraint transforms".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tracegrad.avals import Size
from tracegrad.errors import located
from tracegrad.torch.distributions import constraints
from tracegrad.torch.distributions.elementwise_transforms import (
    AbsTransform,
    AffineTransform,
    CumulativeDistributionTransform,
    ExpTransform,
    PowerTransform,
    SigmoidTransform,
    SoftplusTransform,
    TanhTransform,
)
from tracegrad.torch.distributions.joined_transforms import CatTransform, StackTransform
from tracegrad.torch.distributions.transform import (
    ComposeTransform,
    IndependentTransform,
    Transform,
    WithoutParameters,
    identity_transform,
    require_rank,
)
from tracegrad.torch.distributions.utils import FUNCTIONS, tril_matrix_to_vec, vec_to_tril_matrix
from tracegrad.torch.nn import functional as F
from tracegrad.torch.tape.tensors.dtypes import finfo
from tracegrad.torch.tape.tensors.factories import eye
from tracegrad.torch.tape.tensors.ranges import arange

if TYPE_CHECKING:
    from tracegrad.torch.distributions.constraints import Constraint
    from tracegrad.torch.tape.tensors.tensor import Tensor
    from tracegrad.typing import Shape


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
    def domain(self) -> Constraint:
        """Constraint of the input."""
        return constraints.independent(constraints.real, len(self.in_shape))

    @property
    def codomain(self) -> Constraint:
        """Constraint of the output."""
        return constraints.independent(constraints.real, len(self.out_shape))

    def _call(self, x: Tensor) -> Tensor:
        return x.reshape(_swapped(x.shape, self.in_shape, self.out_shape))

    def _inverse(self, y: Tensor) -> Tensor:
        return y.reshape(_swapped(y.shape, self.out_shape, self.in_shape))

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x.new_zeros(x.shape[: len(x.shape) - len(self.in_shape)])

    def forward_shape(self, shape: Shape) -> Shape:
        return _swapped(shape, self.in_shape, self.out_shape)

    def inverse_shape(self, shape: Shape) -> Shape:
        return _swapped(shape, self.out_shape, self.in_shape)


def _swapped(shape: Sequence[int], ending: Size, new: Size) -> Size:
    """Replace the last dimensions; ValueError unless they are `ending`."""
    require_rank(shape, len(ending))
    cut = len(shape) - len(ending)
    if tuple(shape[cut:]) != ending:
        raise ValueError(located(f"Shape mismatch: expected {ending} but got {shape[cut:]}"))
    return Size((*shape[:cut], *new))


class SoftmaxTransform(WithoutParameters):
    """y = exp(x), normalized; the inverse is the logarithm, up to a constant. It is not bijective.

    >>> import tracegrad as tg
    >>> SoftmaxTransform()(tg.zeros(2))
    tensor([0.5000, 0.5000])
    """

    domain = constraints.real_vector
    codomain = constraints.simplex

    def _call(self, x: Tensor) -> Tensor:
        return F.softmax(x, dim=-1)  # type: ignore[return-value]  # of a Tensor

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def forward_shape(self, shape: Shape) -> Shape:
        require_rank(shape, 1)
        return shape

    inverse_shape = forward_shape


class StickBreakingTransform(WithoutParameters):
    """Map of vectors with n elements to the simplex with n + 1 elements, by fractions of what is left of 1.

    >>> import tracegrad as tg
    >>> StickBreakingTransform()(tg.zeros(2))
    tensor([0.3333, 0.3333, 0.3333])
    """

    domain = constraints.real_vector
    codomain = constraints.simplex
    bijective = True

    def _offset(self, count: int, x: Tensor) -> Tensor:
        return arange(count, 0, -1, dtype=x.dtype).log()

    def _call(self, x: Tensor) -> Tensor:
        fraction = SigmoidTransform()(x - self._offset(x.shape[-1], x))
        left = (1 - fraction).cumprod(-1)
        result: Tensor = F.pad(fraction, [0, 1], value=1) * F.pad(left, [1, 0], value=1)
        return result

    def _inverse(self, y: Tensor) -> Tensor:
        cropped = y[..., :-1]
        left = (1 - cropped.cumsum(-1)).clamp(min=float(finfo(y.dtype).tiny))
        return cropped.log() - left.log() + self._offset(cropped.shape[-1], y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        x = x - self._offset(x.shape[-1], x)
        return (-x + F.logsigmoid(x) + y[..., :-1].log()).sum(-1)

    def forward_shape(self, shape: Shape) -> Shape:
        require_rank(shape, 1)
        return Size((*shape[:-1], shape[-1] + 1))

    def inverse_shape(self, shape: Shape) -> Shape:
        require_rank(shape, 1)
        return Size((*shape[:-1], shape[-1] - 1))


class LowerCholeskyTransform(WithoutParameters):
    """Map of matrices to Cholesky factors: the lower triangle, with exp of the diagonal.

    >>> import tracegrad as tg
    >>> LowerCholeskyTransform()(tg.zeros(2, 2)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.lower_cholesky

    def _call(self, x: Tensor) -> Tensor:
        return x.tril(-1) + x.diagonal(dim1=-2, dim2=-1).exp().diag_embed()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.tril(-1) + y.diagonal(dim1=-2, dim2=-1).log().diag_embed()


class PositiveDefiniteTransform(WithoutParameters):
    """Map of matrices to positive definite ones: L @ L.mT of `LowerCholeskyTransform`.

    >>> import tracegrad as tg
    >>> PositiveDefiniteTransform()(tg.zeros(2, 2)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.positive_definite

    def _call(self, x: Tensor) -> Tensor:
        factor = LowerCholeskyTransform()(x)
        return factor @ factor.mT

    def _inverse(self, y: Tensor) -> Tensor:
        return LowerCholeskyTransform().inv(FUNCTIONS["cholesky"](y))


class CorrCholeskyTransform(WithoutParameters):
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

    def _call(self, x: Tensor) -> Tensor:
        eps = float(finfo(x.dtype).eps)
        partial = vec_to_tril_matrix(x.tanh().clamp(min=-1 + eps, max=1 - eps), diag=-1)
        left = (1 - partial.square()).sqrt().cumprod(-1)
        result: Tensor = (partial + eye(partial.shape[-1], dtype=x.dtype)) * F.pad(left[..., :-1], [1, 0], value=1)
        return result

    def _inverse(self, y: Tensor) -> Tensor:
        left = 1 - y.square().cumsum(-1)
        left = tril_matrix_to_vec(F.pad(left[..., :-1], [1, 0], value=1), diag=-1)
        partial = tril_matrix_to_vec(y, diag=-1) / left.sqrt()
        return (partial.log1p() - partial.neg().log1p()) / 2

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        left = 1 - y.square().cumsum(-1)
        terms = 0.5 * tril_matrix_to_vec(left, diag=-2).log().sum(-1) if y.shape[-1] > 2 else 0.0
        return terms - 2 * (x - F.logsigmoid(2 * x) - math.log(2.0)).sum(-1)

    def forward_shape(self, shape: Shape) -> Shape:
        require_rank(shape, 1)
        n = round((0.25 + 2 * shape[-1]) ** 0.5 + 0.5)
        if n * (n - 1) // 2 != shape[-1]:
            raise ValueError(located("Input is not a flattened lower-diagonal number"))
        return Size((*shape[:-1], n, n))

    def inverse_shape(self, shape: Shape) -> Shape:
        require_rank(shape, 2)
        if shape[-2] != shape[-1]:
            raise ValueError(located("Input is not square"))
        return Size((*shape[:-2], shape[-1] * (shape[-1] - 1) // 2))
