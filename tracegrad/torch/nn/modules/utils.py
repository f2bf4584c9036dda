"""Sizes as tuples, for layers that users write: PyTorch's `_single`, `_pair`, `_triple` and `_quadruple`."""

from __future__ import annotations

from collections.abc import Callable, Iterable

Sizes = int | Iterable[int]


def _ntuple(n: int) -> Callable[[Sizes], tuple[int, ...]]:
    """Make a function that returns an iterable as a tuple, and repeats another object `n` times.

    >>> _ntuple(2)(3), _ntuple(2)([1, 2])
    ((3, 3), (1, 2))
    """
    return lambda x: tuple(x) if isinstance(x, Iterable) else (x,) * n


_single, _pair, _triple, _quadruple = _ntuple(1), _ntuple(2), _ntuple(3), _ntuple(4)
