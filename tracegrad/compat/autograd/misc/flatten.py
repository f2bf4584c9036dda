"""Flatten nested containers of arrays into one vector."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad import tree

__all__ = ["flatten", "flatten_func"]


def flatten(value: Any) -> tuple[Any, Callable[[Any], Any]]:
    """Flatten the arrays in a container into a vector; return it with the inverse function.

    >>> vector, unflatten = flatten({"b": 3.0, "a": np.array([1.0, 2.0])})
    >>> print(vector, unflatten(10 * vector)["a"])
    [1. 2. 3.] [10. 20.]
    """
    leaves, structure = tree.flatten(value)
    shapes = [np.shape(x) for x in leaves]
    sizes = [int(np.prod(shape)) for shape in shapes]
    vector = np.concatenate([np.ravel(x) for x in leaves]) if leaves else np.array([])

    def unflatten(vector: Any) -> Any:
        result, start = [], 0
        for shape, size in zip(shapes, sizes):
            result.append(np.reshape(vector[start : start + size], shape))
            start += size
        return tree.unflatten(structure, result)

    return vector, unflatten


def flatten_func(func: Callable[..., object], example: object) -> tuple[Callable[..., Any], Callable[[Any], Any], Any]:
    """Convert a function of containers to one of vectors; also return the unflattening, and the example's vector.

    >>> flat, unflatten, vector = flatten_func(lambda pair: [2 * x for x in pair], [1.0, np.ones(2)])
    >>> print(flat(vector))
    [2. 2. 2.]
    """
    vector, unflatten = flatten(example)
    return lambda x, *args: flatten(func(unflatten(x), *args))[0], unflatten, vector
