"""Normal distributions of vectors, with full covariances and with covariances of low rank."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tracegrad.errors import located
from tracegrad.torch.distributions import constraints
from tracegrad.torch.distributions.distribution import Distribution
from tracegrad.torch.distributions.utils import FUNCTIONS, broadcast_shapes, lazy_property
from tracegrad.torch.functions.linalg.matrices import solve_triangular
from tracegrad.torch.tape.tensors.factories import eye
from tracegrad.torch.tape.tensors.random import randn

if TYPE_CHECKING:
    from tracegrad.torch.tape.tensors.tensor import Tensor


__all__ = ["LowRankMultivariateNormal", "MultivariateNormal"]

_cholesky, _matmul = FUNCTIONS["cholesky"], FUNCTIONS["matmul"]


def batch_mv(matrix: Tensor, vector: Tensor) -> Tensor:
    """Multiply matrices by vectors, both with batch dimensions."""
    return _matmul(matrix, vector.unsqueeze(-1)).squeeze(-1)


def solved(factor: Tensor, x: Tensor) -> Tensor:
    """Return L^-1 x for lower triangular matrices L."""
    return solve_triangular(factor, x, upper=False)  # type: ignore[return-value]  # of a Tensor


def batch_mahalanobis(factor: Tensor, x: Tensor) -> Tensor:
    """Return x . (L L^T)^-1 x for Cholesky factors L and vectors x, with batch dimensions."""
    return solved(factor, x.unsqueeze(-1)).squeeze(-1).square().sum(-1)


def half_log_det(factor: Tensor) -> Tensor:
    """Return half the logarithm of the determinant of L L^T."""
    return factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def _inverse(factor: Tensor) -> Tensor:
    """Return the inverse of L L^T."""
    inverse = solved(factor, eye(factor.shape[-1], dtype=factor.dtype))
    return inverse.mT @ inverse


def one_matrix(**choices: Tensor | None) -> tuple[str, Tensor]:
    """Return the name and the value of the matrix that was passed; ValueError unless it is one of them."""
    matrices = [(name, x) for name, x in choices.items() if x is not None]
    if len(matrices) != 1:
        raise ValueError(
            located("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
        )
    return matrices[0]


class MultivariateNormal(Distribution):
    """Normal distribution of vectors with mean `loc` (..., n) and a matrix (..., n, n).

    The matrix is the covariance, its inverse (the precision), or the lower triangular factor of the covariance.
    ValueError unless one of them is passed, or for wrong numbers of dimensions.

    >>> import tracegrad as tg
    >>> MultivariateNormal(tg.zeros(2), tg.eye(2)).log_prob(tg.zeros(2))
    tensor(-1.8379)
    """

    arg_constraints = {  # noqa: RUF012
        "loc": constraints.real_vector,
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }
    support = constraints.real_vector
    has_rsample = True
    _unexpanded = ("_unbroadcasted_scale_tril",)

    def __init__(
        self,
        loc: Tensor,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ):
        if len(loc.shape) < 1:
            raise ValueError(located("loc must be at least one-dimensional."))
        name, matrix = one_matrix(
            scale_tril=scale_tril, covariance_matrix=covariance_matrix, precision_matrix=precision_matrix
        )
        if len(matrix.shape) < 2:
            raise ValueError(
                located(f"{name} matrix must be at least two-dimensional, with optional leading batch dimensions")
            )
        batch_shape = broadcast_shapes(matrix.shape[:-2], loc.shape[:-1])
        setattr(self, name, matrix.expand((*batch_shape, *matrix.shape[-2:])))
        self.loc = loc.expand((*batch_shape, loc.shape[-1]))
        super().__init__(batch_shape, self.loc.shape[-1:], validate_args=validate_args)
        self._unbroadcasted_scale_tril = self._factor(name, matrix)

    @staticmethod
    def _factor(name: str, matrix: Tensor) -> Tensor:
        if name == "precision_matrix":  # L^-T of the precision, by the Cholesky factor of the flipped matrix
            flipped = _cholesky(matrix.flip((-2, -1))).flip((-2, -1)).mT
            return solved(flipped, eye(matrix.shape[-1], dtype=matrix.dtype))
        return matrix if name == "scale_tril" else _cholesky(matrix)

    def _in_batch(self, matrix: Tensor) -> Tensor:
        return matrix.expand((*self._batch_shape, *self._event_shape, *self._event_shape))

    @lazy_property
    def scale_tril(self) -> Tensor:
        """Cholesky factor of the covariance."""
        return self._in_batch(self._unbroadcasted_scale_tril)

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """Covariance."""
        return self._in_batch(self._unbroadcasted_scale_tril @ self._unbroadcasted_scale_tril.mT)

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """Inverse of the covariance."""
        return self._in_batch(_inverse(self._unbroadcasted_scale_tril))

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return self._unbroadcasted_scale_tril.square().sum(-1).expand((*self._batch_shape, *self._event_shape))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        noise = randn(self._extended_shape(sample_shape), dtype=self.loc.dtype)
        return self.loc + batch_mv(self._unbroadcasted_scale_tril, noise)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        factor = self._unbroadcasted_scale_tril
        distance = batch_mahalanobis(factor, value - self.loc)
        result: Tensor = -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + distance) - half_log_det(factor)
        return result

    def entropy(self) -> Tensor:
        result = 0.5 * self._event_shape[0] * (1.0 + math.log(2 * math.pi)) + half_log_det(
            self._unbroadcasted_scale_tril
        )
        output: Tensor = result.expand(self._batch_shape)
        return output


class LowRankMultivariateNormal(Distribution):
    """Normal distribution of vectors with covariance W W^T + diag(D), for a factor W (..., n, k) and a diagonal D.

    Determinants and inverses are those of matrices (k, k): Woodbury's identity, and the matrix determinant lemma.

    >>> import tracegrad as tg
    >>> LowRankMultivariateNormal(tg.zeros(2), tg.ones(2, 1), tg.ones(2)).variance
    tensor([2., 2.])
    """

    arg_constraints = {  # noqa: RUF012
        "loc": constraints.real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }
    support = constraints.real_vector
    has_rsample = True

    def __init__(self, loc: Tensor, cov_factor: Tensor, cov_diag: Tensor, validate_args: bool | None = None):
        if len(loc.shape) < 1:
            raise ValueError(located("loc must be at least one-dimensional."))
        n = loc.shape[-1]
        if len(cov_factor.shape) < 2:
            raise ValueError(
                located("cov_factor must be at least two-dimensional, with optional leading batch dimensions")
            )
        if cov_factor.shape[-2] != n:
            raise ValueError(located(f"cov_factor must be a batch of matrices with shape {n} x m"))
        if cov_diag.shape[-1:] != (n,):
            raise ValueError(located(f"cov_diag must be a batch of vectors with shape ({n},)"))
        batch = broadcast_shapes(loc.shape[:-1], cov_factor.shape[:-2], cov_diag.shape[:-1])
        self.loc, self.cov_diag = loc.expand((*batch, n)), cov_diag.expand((*batch, n))
        self.cov_factor = cov_factor.expand((*batch, *cov_factor.shape[-2:]))
        super().__init__(batch, (n,), validate_args=validate_args)
        scaled = self.cov_factor / self.cov_diag.unsqueeze(-1)
        rank = cov_factor.shape[-1]
        self._capacitance_tril = _cholesky(self.cov_factor.mT @ scaled + eye(rank, dtype=loc.dtype))

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return self.cov_factor.square().sum(-1) + self.cov_diag

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """Covariance."""
        return self.cov_factor @ self.cov_factor.mT + self.cov_diag.diag_embed()

    @lazy_property
    def scale_tril(self) -> Tensor:
        """Cholesky factor of the covariance."""
        return _cholesky(self.covariance_matrix)

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """Inverse of the covariance."""
        scaled = self.cov_factor / self.cov_diag.unsqueeze(-1)
        reduced = solved(self._capacitance_tril, scaled.mT)
        return self.cov_diag.reciprocal().diag_embed() - reduced.mT @ reduced

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        low = randn((*shape[:-1], self.cov_factor.shape[-1]), dtype=self.loc.dtype)
        noise = self.cov_diag.sqrt() * randn(shape, dtype=self.loc.dtype)
        return self.loc + batch_mv(self.cov_factor, low) + noise

    def _log_det(self) -> Tensor:
        return 2 * half_log_det(self._capacitance_tril) + self.cov_diag.log().sum(-1)

    def _distance(self, x: Tensor) -> Tensor:
        """Return the squared Mahalanobis distance."""
        scaled = batch_mv((self.cov_factor / self.cov_diag.unsqueeze(-1)).mT, x)
        return (x.square() / self.cov_diag).sum(-1) - batch_mahalanobis(self._capacitance_tril, scaled)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        size = self._event_shape[0] * math.log(2 * math.pi)
        result: Tensor = -0.5 * (size + self._log_det() + self._distance(value - self.loc))
        return result

    def entropy(self) -> Tensor:
        result: Tensor = 0.5 * (self._event_shape[0] * (1.0 + math.log(2 * math.pi)) + self._log_det())
        return result
