"""Namespace of `torch.nn.utils.parametrizations`: normalized and orthogonal weights.

M. Lezcano Casado, "Trivializations for gradient-based optimization on manifolds", NeurIPS 2019.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracegrad.torch.functions.core.registry import FUNCTIONS
from tracegrad.torch.functions.linalg import matrices
from tracegrad.torch.nn import functional as F
from tracegrad.torch.nn.docs import MODULE_DOCS
from tracegrad.torch.nn.module import Module
from tracegrad.torch.nn.utils.parametrize import register_parametrization
from tracegrad.torch.nn.utils.weights import as_matrix, divided_by_norm, iterate, norms, spectral_dim, unit_vector
from tracegrad.torch.tape.tensors.factories import eye, zeros_like
from tracegrad.torch.tape.tensors.random import randn

if TYPE_CHECKING:
    from tracegrad.torch.tape.tensors.tensor import Tensor


__all__ = ["orthogonal", "spectral_norm", "weight_norm"]

_MAPS = ("matrix_exp", "cayley", "householder")


class _WeightNormParametrization(Module):
    """Weight of norms and directions."""

    def __init__(self, dim: int | None):
        super().__init__()
        self.dim = dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return weight_v * (weight_g / norms(weight_v, self.dim))

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return norms(weight, self.dim), weight


class _SpectralNormParametrization(Module):
    """Weight divided by its greatest singular value, which power iterations estimate; a vector by its norm."""

    def __init__(self, weight: Tensor, n_power_iterations: int, dim: int, eps: float):
        super().__init__()
        self.n_power_iterations, self.dim, self.eps = n_power_iterations, dim, eps
        if len(weight.shape) > 1:
            matrix = as_matrix(weight.detach(), dim)
            for name, count in zip(("_u", "_v"), matrix.shape):
                self.register_buffer(name, unit_vector(count, weight, eps))
            iterate(matrix.mT, self._v, self._u, 15, eps)

    def forward(self, weight: Tensor) -> Any:
        if len(weight.shape) == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        matrix = as_matrix(weight, self.dim)
        if self.training:
            iterate(matrix.mT, self._v, self._u, self.n_power_iterations, self.eps)
        return divided_by_norm(weight, matrix, self._u.clone(), self._v.clone())

    def right_inverse(self, value: Tensor) -> Tensor:
        return value


def _reflections(x: Tensor) -> Tensor:
    """Return the product of the Householder reflections whose vectors are the columns below the diagonal."""
    rows, columns = x.shape[-2:]
    vectors = x.tril(-1) + eye(rows, columns, dtype=x.dtype)
    weights = 2 / vectors.square().sum(-2)
    result = eye(rows, columns, dtype=x.dtype)
    for k in reversed(range(columns)):
        v = vectors[..., k : k + 1]
        result = result - weights[..., k, None, None] * v @ (v.mT @ result)
    return result


class _Orthogonal(Module):
    """Orthonormal columns, or rows of a wide matrix: an orthogonal function of a matrix, times any `base`."""

    base: Any

    def __init__(self, shape: tuple[int, ...], orthogonal_map: str, use_trivialization: bool):
        super().__init__()
        self.shape, self.orthogonal_map = shape, orthogonal_map
        self.use_trivialization = use_trivialization
        if use_trivialization:
            self.register_buffer("base", None)

    def _map(self, tall: Tensor) -> Tensor:
        if self.orthogonal_map == "householder":
            signs = tall.diagonal(dim1=-2, dim2=-1).int().unsqueeze(-2)
            return _reflections(tall) * signs
        rows, columns = tall.shape[-2:]
        lower = F.pad(tall.tril(), [0, rows - columns])
        skew = lower - lower.mT
        if self.orthogonal_map == "cayley":
            one = eye(rows, dtype=tall.dtype)
            solution: Any = matrices.solve(one - skew / 2, one + skew / 2)
            output: Tensor = solution[..., :columns]
            return output
        result: Tensor = FUNCTIONS["matrix_exp"](skew)[..., :columns]
        return result

    def forward(self, x: Tensor) -> Tensor:
        is_wide = x.shape[-2] < x.shape[-1]
        result = self._map(x.mT if is_wide else x)
        if self.use_trivialization:
            result = self.base @ result
        return result.mT if is_wide else result

    def right_inverse(self, weight: Tensor) -> Tensor:
        if tuple(weight.shape) != tuple(self.shape):
            raise ValueError(
                f"Expected a matrix or batch of matrices of shape {self.shape}. Got a tensor of shape {weight.shape}."
            )
        if not self.use_trivialization:
            raise NotImplementedError(
                f"It is not possible to assign to the {self.orthogonal_map} parametrization "
                "when use_trivialization=False."
            )
        tall = weight.mT if weight.shape[-2] < weight.shape[-1] else weight
        rows, columns = tall.shape[-2:]
        more = randn(*tall.shape[:-1], rows - columns, dtype=tall.dtype)
        self.base = _orthonormal(FUNCTIONS["cat"]([tall, more], dim=-1))
        result = zeros_like(weight)
        result.diagonal(dim1=-2, dim2=-1).fill_(-1)
        return result


def _orthonormal(x: Tensor) -> Tensor:
    """Return the orthogonal factor of square matrices, of which the triangular factor has no negative diagonal."""
    q, r = matrices.qr(x)
    signs = FUNCTIONS["where"](r.diagonal(dim1=-2, dim2=-1) < 0, -1.0, 1.0)
    result: Tensor = q * signs.unsqueeze(-2).to(q.dtype)
    return result


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Compute a weight of its norms `original0` and its directions `original1`; returns the module.

    >>> from tracegrad.nn import Linear
    >>> [name for name, _ in weight_norm(Linear(2, 3, bias=False)).named_parameters()]
    ['parametrizations.weight.original0', 'parametrizations.weight.original1']
    """
    return register_parametrization(module, name, _WeightNormParametrization(dim), unsafe=True)


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Module:
    """Divide a weight by its greatest singular value at each read; returns the module.

    ValueError unless there is at least one power iteration.

    >>> from tracegrad.nn import Linear
    >>> [name for name, _ in spectral_norm(Linear(2, 3, bias=False)).named_parameters()]
    ['parametrizations.weight.original']
    """
    dim = spectral_dim(module, name, n_power_iterations, dim)
    norm = _SpectralNormParametrization(getattr(module, name), n_power_iterations, dim, eps)
    return register_parametrization(module, name, norm)


def orthogonal(
    module: Module, name: str = "weight", orthogonal_map: str | None = None, *, use_trivialization: bool = True
) -> Module:
    """Make the columns of a weight orthonormal, or its rows if it has more columns; returns the module.

    It begins at the orthogonal factor of the present weight, except without trivialization. ValueError for a weight
    with fewer than two dimensions, for an unknown map, and for rectangular matrices with "matrix_exp" or "cayley" and
    no trivialization.

    >>> from tracegrad.nn import Linear
    >>> w = orthogonal(Linear(2, 3)).weight
    >>> bool((w.mT @ w - w.new_tensor([[1.0, 0.0], [0.0, 1.0]])).abs().max() < 1e-6)
    True
    """
    weight = getattr(module, name)
    if len(weight.shape) < 2:
        raise ValueError(f"Expected a matrix or batch of matrices. Got a tensor of {len(weight.shape)} dimensions.")
    if orthogonal_map is None:
        orthogonal_map = "matrix_exp" if weight.shape[-2] == weight.shape[-1] else "householder"
    if orthogonal_map not in _MAPS:
        raise ValueError(
            f'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". Got: {orthogonal_map}'
        )
    parametrization = _Orthogonal(tuple(weight.shape), orthogonal_map, use_trivialization)
    return register_parametrization(module, name, parametrization, unsafe=True)


MODULE_DOCS.document(globals(), __all__)
