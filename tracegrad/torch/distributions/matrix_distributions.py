"""Distributions of matrices: Wishart, and Cholesky factors of correlation matrices."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

from tracegrad.errors import located
from tracegrad.torch.distributions import constraints, draws
from tracegrad.torch.distributions.distribution import Distribution
from tracegrad.torch.distributions.gamma import Beta
from tracegrad.torch.distributions.multivariate_normal import MultivariateNormal, half_log_det, one_matrix
from tracegrad.torch.distributions.utils import FUNCTIONS, lazy_property
from tracegrad.torch.functions.math import special
from tracegrad.torch.tape.tensors.dtypes import finfo
from tracegrad.torch.tape.tensors.factories import tensor, zeros
from tracegrad.torch.tape.tensors.random import randn
from tracegrad.torch.tape.tensors.ranges import arange

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracegrad.torch.tape.tensors.tensor import Tensor

__all__ = ["LKJCholesky", "Wishart"]

_broadcast_shapes, _cat, _where = (FUNCTIONS[name] for name in ("broadcast_shapes", "cat", "where"))


class Wishart(Distribution):
    """Distribution of positive definite matrices (n, n): x x^T for `df` normal vectors x, and for any df > n - 1.

    The matrix is the covariance of the vectors, its inverse (the precision), or the lower triangular factor of the
    covariance. Samples are those of Bartlett's decomposition, with derivatives. ValueError unless one matrix is
    passed, for wrong numbers of dimensions, or degrees of freedom that are too few.

    >>> import tracegrad as tg
    >>> Wishart(tg.tensor(3.0), tg.eye(2)).mean.tolist()
    [[3.0, 0.0], [0.0, 3.0]]
    """

    arg_constraints = {  # noqa: RUF012
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
        "df": constraints.greater_than(0),
    }
    support = constraints.positive_definite
    has_rsample = True
    df: Tensor

    def __init__(
        self,
        df: Tensor | float,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ):
        name, matrix = one_matrix(
            scale_tril=scale_tril, covariance_matrix=covariance_matrix, precision_matrix=precision_matrix
        )
        if len(matrix.shape) < 2:
            text = f"{name} must be at least two-dimensional, with optional leading batch dimensions"
            raise ValueError(located(text))
        count = matrix.shape[-1]
        degrees = tensor(df, dtype=matrix.dtype) if isinstance(df, int | float) else df
        if (degrees <= count - 1).any():
            text = f"Value of df={df} expected to be greater than ndim - 1 = {count - 1}."
            raise ValueError(located(text))
        if (degrees < count).any():
            text = "Low df values detected. Singular samples are highly likely to occur for ndim - 1 < df < ndim."
            warnings.warn(located(text), UserWarning, stacklevel=2)
        batch: Any = _broadcast_shapes(matrix.shape[:-2], degrees.shape)
        setattr(self, name, matrix.expand((*batch, count, count)))
        self.df = degrees.expand(batch)
        super().__init__(batch, (count, count), validate_args=validate_args)
        self._factor = MultivariateNormal._factor(name, getattr(self, name))

    @lazy_property
    def scale_tril(self) -> Tensor:
        """Cholesky factor of the covariance."""
        result: Tensor = self._factor
        return result

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """Covariance of the vectors."""
        result: Tensor = self._factor @ self._factor.mT
        return result

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """Inverse of the covariance."""
        return FUNCTIONS["cholesky_inverse"](self._factor)

    @property
    def _degrees(self) -> Tensor:
        return self.df.unsqueeze(-1).unsqueeze(-1)

    @property
    def mean(self) -> Tensor:
        result: Tensor = self._degrees * self.covariance_matrix
        return result

    @property
    def mode(self) -> Tensor:
        factor = self._degrees - self._event_shape[0] - 1
        return _where(factor > 0, factor * self.covariance_matrix, math.nan)

    @property
    def variance(self) -> Tensor:
        diagonal = self.covariance_matrix.diagonal(dim1=-2, dim2=-1)
        products = diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2)
        result: Tensor = self._degrees * (self.covariance_matrix.square() + products)
        return result

    def rsample(self, sample_shape: Sequence[int] = (), max_try_correction: int | None = None) -> Tensor:
        """Draw samples; `max_try_correction` is accepted as in PyTorch, and nothing has to be corrected here."""
        shape, count = self._extended_shape(sample_shape), self._event_shape[0]
        halves = (self.df.unsqueeze(-1) - arange(count, dtype=self.df.dtype)) / 2
        diagonal = (2 * draws.gamma(halves.expand(shape[:-1]))).sqrt()
        noise = randn(shape, dtype=self._factor.dtype).tril(-1) + diagonal.diag_embed()
        product = self._factor @ noise
        result: Tensor = product @ product.mT
        return result

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        count, half = self._event_shape[0], self.df / 2
        solved = FUNCTIONS["cholesky_solve"](value, self._factor)
        log_det = FUNCTIONS["slogdet"](value)[1]
        normalizer = self.df * (count * math.log(2) / 2 + half_log_det(self._factor))
        normalizer = normalizer + special.multigammaln(half, count)
        trace = solved.diagonal(dim1=-2, dim2=-1).sum(-1)
        result: Tensor = (self.df - count - 1) / 2 * log_det - trace / 2 - normalizer
        return result

    def entropy(self) -> Tensor:
        count, half = self._event_shape[0], self.df / 2
        digammas = (half.unsqueeze(-1) - arange(count, dtype=self.df.dtype) / 2).digamma().sum(-1)
        result = (count + 1) * (count * math.log(2) / 2 + half_log_det(self._factor))
        result = result + special.multigammaln(half, count) - (half - (count + 1) / 2) * digammas
        output: Tensor = result + self.df * count / 2
        return output


class LKJCholesky(Distribution):
    """Distribution of Cholesky factors of correlation matrices C (dim, dim): density of C as det(C)**(conc. - 1).

    Samples are drawn row by row: the squared length of a row's part below the diagonal has a Beta distribution.
    ValueError for fewer than two dimensions. Source: D. Lewandowski, D. Kurowicka and H. Joe, "Generating random
    correlation matrices based on vines and extended onion method", 2009, 3.2.

    >>> LKJCholesky(2, 1.0).event_shape
    torch.Size([2, 2])
    """

    arg_constraints = {"concentration": constraints.positive}  # noqa: RUF012
    support = constraints.corr_cholesky
    concentration: Tensor

    def __init__(self, dim: int, concentration: Tensor | float = 1.0, validate_args: bool | None = None):
        if dim < 2:
            raise ValueError(located(f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}."))
        self._begin(validate_args, concentration=concentration)
        self.dim, self._event_shape = dim, type(self._batch_shape)((dim, dim))
        rows = arange(dim - 1, dtype=self.concentration.dtype)
        orders = _cat([zeros(1, dtype=rows.dtype), rows])
        marginal = self.concentration + 0.5 * (dim - 2)
        self._lengths = Beta(orders + 0.5, marginal.unsqueeze(-1) - 0.5 * orders)

    def expand(self, batch_shape: Sequence[int], _instance: LKJCholesky | None = None) -> LKJCholesky:
        new = self._get_checked_instance(LKJCholesky, _instance)
        LKJCholesky.__init__(new, self.dim, self.concentration.expand(batch_shape), validate_args=False)
        new._validate_args = self._validate_args
        return new

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        squares = self._lengths.sample(sample_shape).unsqueeze(-1)
        numbers = randn(self._extended_shape(sample_shape), dtype=self.concentration.dtype).tril(-1)
        lengths = numbers.square().sum(-1, True).sqrt()
        rows = squares.sqrt() * numbers / _where(lengths > 0, lengths, 1.0)
        rest = (1 - rows.square().sum(-1)).clamp(min=float(finfo(rows.dtype).tiny))
        result: Tensor = rows + rest.sqrt().diag_embed()
        return result

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        diagonal = value.diagonal(dim1=-2, dim2=-1)[..., 1:]
        powers = 2 * (self.concentration - 1).unsqueeze(-1) + self.dim - arange(2, self.dim + 1)
        size = self.dim - 1
        total = self.concentration + 0.5 * size
        constant = 0.5 * size * math.log(math.pi) + special.multigammaln(total - 0.5, size)
        result: Tensor = (powers * diagonal.log()).sum(-1) - (constant - total.lgamma() * size)
        return result
