"""Functions that join arrays, and take generators too, as autograd's users expect."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Operand


__all__ = ["column_stack", "concatenate", "hstack", "stack", "vstack"]


def _listed(arrays: Iterable[Any]) -> Any:
    return arrays if hasattr(arrays, "__getitem__") else list(arrays)


def stack(arrays: Iterable[Any], *args: Any, **kwargs: Any) -> Any:
    """`np.stack`, also of iterables.

    >>> print(stack(map(np.ones, (1, 1))).tolist())
    [[1.0], [1.0]]
    """
    return np.stack(_listed(arrays), *args, **kwargs)


def concatenate(arrays: Iterable[Any], *args: Any, **kwargs: Any) -> Any:
    """`np.concatenate`, also of iterables.

    >>> print(concatenate(map(np.ones, (1, 2))))
    [1. 1. 1.]
    """
    return np.concatenate(_listed(arrays), *args, **kwargs)


def vstack(tup: Iterable[Any], **kwargs: Any) -> Any:
    """`np.vstack`, also of iterables.

    >>> print(vstack(map(np.ones, (1, 1))).tolist())
    [[1.0], [1.0]]
    """
    return np.vstack(_listed(tup), **kwargs)


def hstack(tup: Iterable[Any], **kwargs: Any) -> Any:
    """`np.hstack`, also of iterables.

    >>> print(hstack(map(np.ones, (1, 2))))
    [1. 1. 1.]
    """
    return np.hstack(_listed(tup), **kwargs)


def column_stack(tup: Iterable[Any]) -> Operand:
    """`np.column_stack`, also of iterables.

    >>> print(column_stack(map(np.ones, (1, 1))).tolist())
    [[1.0, 1.0]]
    """
    return np.column_stack(_listed(tup))
