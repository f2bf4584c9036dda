"""SciPy's own signal processing, and a convolution of arrays along chosen axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from tracegrad.errors import located
from tracegrad.utils.lazy_import import mirrored

__getattr__, __dir__ = mirrored(globals(), "scipy.signal")


def convolve(
    A: Any,
    B: Any,
    axes: Sequence[Sequence[int]] | None = None,
    dot_axes: Sequence[Sequence[int]] = ((), ()),
    mode: str = "full",
) -> Any:
    """Convolve `A` and `B` along the pairs `axes` (all), and contract them along the pairs `dot_axes`.

    The axes of the result are the other axes of `A`, the other axes of `B`, and the convolved axes.

    >>> print(convolve(np.array([1.0, 2.0, 3.0]), np.array([1.0, 10.0])))
    [ 1. 12. 23. 30.]
    """
    if mode not in ("valid", "full", "same"):
        raise AssertionError(located(f"Mode {mode} undefined, it can be one of 'valid', 'full', and 'same'"))
    along = axes or [range(np.ndim(A)), range(np.ndim(B))]
    pairs, dots = list(zip(*along)), list(zip(*dot_axes))
    padding, flipped = [(0, 0)] * np.ndim(A), [slice(None)] * np.ndim(B)
    for i, k in pairs:
        padding[i] = _padding(np.shape(A)[i], np.shape(B)[k], mode)
        flipped[k] = slice(None, None, -1)
    if (
        mode == "valid"
        and len({np.shape(A)[i] >= np.shape(B)[k] for i, k in pairs if np.shape(A)[i] != np.shape(B)[k]}) > 1
    ):
        raise ValueError(located("One array must be larger than the other along all convolved dimensions"))
    windows = sliding_window_view(np.pad(A, padding), [np.shape(B)[k] for _, k in pairs], [i for i, _ in pairs])  # type: ignore[call-overload]
    # The axes of A, then the axes of the windows; axes with equal numbers are summed over.
    of_a = [*range(np.ndim(A)), *(np.ndim(A) + k for _, k in pairs)]
    of_b = [np.ndim(A) + k for k in range(np.ndim(B))]
    for i, k in dots:
        of_b[k] = i
    convolved = [i for i, _ in pairs]
    others_a = [i for i in range(np.ndim(A)) if i not in convolved and i not in [i for i, _ in dots]]
    others_b = [of_b[k] for k in range(np.ndim(B)) if k not in [k for pair in (pairs, dots) for _, k in pair]]
    return np.einsum(windows, of_a, B[tuple(flipped)], of_b, [*others_a, *others_b, *convolved])


def _padding(a: int, b: int, mode: str) -> tuple[int, int]:
    """Return the numbers of zeros before and after `a` elements that are convolved with windows of `b`."""
    if mode == "full":
        return b - 1, b - 1
    if mode == "valid":
        return (max(b - a, 0),) * 2
    before = b - 1 - (b - 1) // 2
    return before, b - 1 - before
