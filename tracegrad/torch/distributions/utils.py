"""Helpers of distributions: broadcasting of parameters, cached properties, and logits."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from numbers import Number
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.errors import located
from tracegrad.torch.functions.core import registry
from tracegrad.torch.modes import enable_grad
from tracegrad.torch.nn import functional as F
from tracegrad.torch.tape import Tensor
from tracegrad.torch.tape.tensors.dtypes import finfo, get_default_dtype
from tracegrad.torch.tape.tensors.factories import tensor, zeros

if TYPE_CHECKING:
    from tracegrad.avals import Size
    from tracegrad.torch.tape.tensors.tensor import Tensor


__all__ = [
    "broadcast_all",
    "clamp_probs",
    "lazy_property",
    "logits_to_probs",
    "probs_to_logits",
    "tril_matrix_to_vec",
    "vec_to_tril_matrix",
]

FUNCTIONS: Mapping[str, Callable[..., Tensor]] = registry.FUNCTIONS  # of Tensors
broadcast_shapes: Callable[..., Size] = registry.FUNCTIONS["broadcast_shapes"]

EULER = 0.57721566490153286061  # the Euler-Mascheroni constant


def broadcast_all(*values: object) -> tuple[Tensor, ...]:
    """Broadcast Tensors and numbers to one shape; numbers get the dtype of the first Tensor.

    ValueError for other values.

    >>> loc, scale = broadcast_all(0.0, tensor([1.0, 2.0]))
    >>> loc
    tensor([0., 0.])
    """
    if not all(isinstance(v, Tensor | Number) for v in values):
        raise ValueError(
            located(
                "Input arguments must all be instances of Number, torch.Tensor or objects implementing "
                "__torch_function__."
            )
        )
    dtype = next((v.dtype for v in values if isinstance(v, Tensor)), None)
    kind = get_default_dtype() if dtype is None else dtype
    xs = [v if isinstance(v, Tensor) else tensor(v, dtype=kind) for v in values]
    if all(x.shape == xs[0].shape for x in xs):
        return tuple(xs)  # the same objects: a traced step may then go backward into parameters from outside
    return registry.FUNCTIONS["broadcast_tensors"](*xs)  # type: ignore[no-any-return]


def clamp_probs(probs: Tensor) -> Tensor:
    """Move probabilities away from 0 and 1 by the machine epsilon of their dtype.

    >>> clamp_probs(tensor([0.0, 0.5])).tolist()
    [2.220446049250313e-16, 0.5]
    """
    eps = float(finfo(probs.dtype).eps)
    return probs.clamp(min=eps, max=1 - eps)


def clamp_open(x: Tensor) -> Tensor:
    """Move numbers of [0, 1] into the open interval: up to the smallest normal number, and down by the epsilon."""
    limits = finfo(x.dtype)
    return x.clamp(min=float(limits.tiny), max=1.0 - float(limits.eps))


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    """Convert logits to probabilities: sigmoid if `is_binary`, otherwise softmax over the last dimension.

    >>> logits_to_probs(tensor([0.0, 0.0]))
    tensor([0.5000, 0.5000])
    """
    return logits.sigmoid() if is_binary else F.softmax(logits, dim=-1)  # type: ignore[return-value]  # of a Tensor


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """Convert probabilities to logits, or to log odds if `is_binary`; 0 and 1 are clamped.

    >>> probs_to_logits(tensor([0.5]), is_binary=True)
    tensor([0.])
    """
    clamped = clamp_probs(probs)
    return clamped.log() - (-clamped).log1p() if is_binary else clamped.log()


def vec_to_tril_matrix(vec: Tensor, diag: int = 0) -> Tensor:
    """Fill the lower triangle of matrices row by row with the elements of vectors.

    >>> vec_to_tril_matrix(tensor([1.0, 2.0, 3.0])).tolist()
    [[1.0, 0.0], [2.0, 3.0]]
    """
    count = vec.shape[-1]
    n = int((-(1 + 2 * diag) + ((1 + 2 * diag) ** 2 + 8 * count + 4 * abs(diag) * (diag + 1)) ** 0.5) / 2)
    matrix = zeros(*vec.shape[:-1], n, n, dtype=vec.dtype)
    matrix[(..., *np.tril_indices(n, diag))] = vec
    return matrix


def tril_matrix_to_vec(mat: Tensor, diag: int = 0) -> Tensor:
    """Return the elements of the lower triangle of matrices, row by row.

    ValueError if the diagonal is outside of the matrix.

    >>> tril_matrix_to_vec(tensor([[1.0, 0.0], [2.0, 3.0]]))
    tensor([1., 2., 3.])
    """
    n = mat.shape[-1]
    if not -n <= diag < n:
        raise ValueError(located(f"diag ({diag}) provided is outside [{-n}, {n - 1}]."))
    return mat[(..., *np.tril_indices(n, diag))]


class lazy_property:
    """Property whose value is computed once and then stored as an attribute of the object.

    >>> class Circle:
    ...     radius = 2.0
    ...     @lazy_property
    ...     def area(self):
    ...         return 3.0 * self.radius**2
    >>> circle = Circle()
    >>> circle.area, circle.__dict__
    (12.0, {'area': 12.0})
    """

    def __init__(self, wrapped: Callable[[Any], Any]):
        self.wrapped = wrapped
        functools.update_wrapper(self, wrapped)  # type: ignore[arg-type]

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        with enable_grad():
            value = self.wrapped(instance)
        setattr(instance, self.wrapped.__name__, value)
        return value
