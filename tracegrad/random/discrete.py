"""Discrete distributions, permutations and choices: random numbers of keys."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tracegrad.ops.shape.linear import cast, reshape
from tracegrad.random.continuous import gumbel
from tracegrad.random.docs import RANDOM_DOCS
from tracegrad.random.keys import Shape, shape_of, shape_or_broadcast, unit_interval
from tracegrad.typing import Array, DTypeLike, Number

__all__ = ["bernoulli", "categorical", "choice", "permutation", "rademacher", "randint"]


def bernoulli(key: object, p: Array | Number = 0.5, shape: Shape | None = None) -> Array:
    """Draw booleans.

    >>> from tracegrad import random
    >>> print(random.bernoulli(random.key(0), 0.5, (3,)))
    [ True  True  True]
    """
    return unit_interval(key, shape_or_broadcast(shape, p), np.float64) < p


def rademacher(key: Any, shape: Shape = (), dtype: DTypeLike = np.int64) -> Array:
    """Draw -1 or 1 with equal probabilities.

    >>> from tracegrad import random
    >>> print(random.rademacher(random.key(1), (4,)))
    [-1 -1 -1  1]
    """
    return cast(np.where(unit_interval(key, shape_of(shape), np.float64) < 0.5, -1, 1), dtype=np.dtype(dtype).name)


def randint(key: Any, shape: Shape, minval: Any, maxval: Any, dtype: DTypeLike = np.int64) -> Any:
    """Draw integers uniformly from [minval, maxval).

    >>> from tracegrad import random
    >>> print(random.randint(random.key(0), (3,), 0, 6))
    [2 1 2]
    """
    u = unit_interval(key, shape_of(shape), np.float64)
    return cast(np.floor(u * (maxval - minval)), dtype=np.dtype(dtype).name) + minval


def categorical(key: Any, logits: Any, axis: int = -1, shape: Shape | None = None) -> Any:
    """Draw indices along an axis, with probabilities proportional to exp(logits).

    The index is the argument of the maximum of logits plus Gumbel numbers.

    >>> from tracegrad import random
    >>> print(random.categorical(random.key(0), np.log([0.2, 0.8]), shape=(4,)))
    [1 1 1 0]
    """
    whole = np.shape(logits) if shape is None else (*shape_of(shape), *np.shape(logits))
    return np.argmax(logits + gumbel(key, whole), axis=axis)


def permutation(key: Any, x: Any, axis: int = 0) -> Array:
    """Permute an array along an axis, or the integers below a number.

    >>> from tracegrad import random
    >>> print(random.permutation(random.key(0), 4))
    [1 2 0 3]
    """
    count = x if isinstance(x, int) else np.shape(x)[axis]
    order = np.argsort(unit_interval(key, (count,), np.float64))
    return order if isinstance(x, int) else np.take(x, order, axis=axis)


def choice(key: Any, a: Any, shape: Shape = (), replace: bool = True, p: Any = None, axis: int = 0) -> Any:
    """Choose elements of an array along an axis, or integers below a number.

    Parameters
    ----------
    key : uint32 array of shape (2,)
        Key, which must not be used for anything else.
    a : array or int
        Array, or number of integers.
    shape : int or tuple of int
        Shape of the choice.
    replace : bool
        Whether an element may be chosen more than once.
    p : array, optional
        Probabilities of the elements. The default is equal probabilities.
    axis : int
        Axis to choose along.

    Returns
    -------
    array
        Chosen elements, with `shape` in place of `axis`.

    Raises
    ------
    ValueError
        If more elements are wanted than there are, without `replace`.

    Examples
    --------
    >>> from tracegrad import random
    >>> print(random.choice(random.key(0), 5, (2,), replace=False))
    [1 2]
    """
    shape, count = shape_of(shape), a if isinstance(a, int) else np.shape(a)[axis]
    wanted = math.prod(shape)
    if not replace and wanted > count:
        raise ValueError(f"choice of {wanted} out of {count} without replacement")
    if replace:
        index = randint(key, shape, 0, count) if p is None else categorical(key, np.log(p), shape=shape)
    else:
        rank = unit_interval(key, (count,), np.float64) if p is None else -np.log(p) - gumbel(key, (count,))
        index = reshape(np.argsort(rank)[:wanted], shape=shape)
    return index if isinstance(a, int) else np.take(a, index, axis=axis)


RANDOM_DOCS.document(globals(), __all__)
