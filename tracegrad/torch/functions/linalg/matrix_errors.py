"""Errors of matrices that cannot be factored: on Tensors, a RuntimeError that is NumPy's LinAlgError too."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from tracegrad.errors import located

if TYPE_CHECKING:
    from tracegrad.typing import Array


F = TypeVar("F", bound=Callable[..., Any])


class LinAlgError(RuntimeError, np.linalg.LinAlgError):
    """A matrix that is singular, not positive definite, or for which an algorithm does not converge."""


# NumPy's message -> PyTorch's message, without the number of the batch element.
_TEXTS = {
    "Singular matrix": "linalg: The solver failed because the input matrix is singular.",
    "Matrix is not positive definite": "linalg.cholesky: The factorization could not be completed because the input is "
    "not positive-definite.",
    "SVD did not converge": "linalg.svd: The algorithm failed to converge.",
    "SVD did not converge in Linear Least Squares": "linalg.lstsq: The algorithm failed to converge.",
    "Eigenvalues did not converge": "linalg.eigh: The algorithm failed to converge.",
}


def of_tensors(error: BaseException) -> BaseException:
    """Return the error to raise on Tensors where NumPy raises `error` on arrays.

    >>> isinstance(of_tensors(np.linalg.LinAlgError("Singular matrix")), RuntimeError)
    True
    """
    if type(error) is not np.linalg.LinAlgError:  # the error of a non-square matrix stays
        return error
    return LinAlgError(located(_TEXTS.get(str(error), str(error))))


def factors(fn: F) -> F:
    """Decorate a function that factors matrices, so that it raises PyTorch's errors."""

    @functools.wraps(fn)
    def call(*args: Array, **kwargs: object) -> Any:
        try:
            return fn(*args, **kwargs)
        except np.linalg.LinAlgError as error:
            raise of_tensors(error) from None

    return call  # type: ignore[return-value]
