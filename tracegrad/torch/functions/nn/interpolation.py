"""Resampling to other sizes, of `torch.nn.functional`: `interpolate`.

An output is a weighted sum of a few inputs along each dimension in turn; the places and weights are constants. The
cubic kernel is by R. Keys, "Cubic convolution interpolation for digital image processing", IEEE Trans. ASSP 29 (1981),
with a = -0.75, and with a = -0.5 for `antialias`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracegrad.errors import located
from tracegrad.ops.elementwise.table import add, multiply
from tracegrad.torch.functions.core.dims import integers, lengths, one
from tracegrad.torch.functions.core.operands import as_node
from tracegrad.torch.functions.core.registry import FUNCTIONS
from tracegrad.torch.functions.nn.pooling import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d
from tracegrad.typing import Array, NDArray

if TYPE_CHECKING:
    from tracegrad.typing import Sizes


_index_select = FUNCTIONS["index_select"]

# Modes by the number of spatial dimensions that they need; None for any.
_MODES = {
    "nearest": None,
    "nearest-exact": None,
    "area": None,
    "linear": 1,
    "bilinear": 2,
    "bicubic": 2,
    "trilinear": 3,
}
_POOLS = {1: adaptive_avg_pool1d, 2: adaptive_avg_pool2d, 3: adaptive_avg_pool3d}


class _Taps(NamedTuple):
    """For each output along a dimension, the inputs that it is made of, and their weights."""

    places: NDArray
    weights: NDArray


def interpolate(
    input: Array,
    size: object = None,
    scale_factor: Sizes | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Array:
    """Resample the dimensions after (N, C) to `size`, or by `scale_factor`.

    ValueError unless one of them is passed, or for an unknown combination of options; NotImplementedError for a mode
    that needs another number of dimensions.

    >>> interpolate(np.array([[[1.0, 2.0]]]), scale_factor=2, mode="linear").tolist()
    [[[1.0, 1.25, 1.75, 2.0]]]
    """
    x = one(input)
    spatial = x.shape[2:]
    _check(x.shape, mode, align_corners, antialias)
    sizes, factors = _sizes(spatial, size, scale_factor)
    if recompute_scale_factor and size is not None:
        raise ValueError(located("recompute_scale_factor is not meaningful with an explicit size."))
    if mode == "area":
        return _POOLS[len(spatial)](x, sizes)
    scales = [None if recompute_scale_factor else factor for factor in factors]
    taps = [_taps(mode, n, m, factor, bool(align_corners), antialias) for n, m, factor in zip(spatial, sizes, scales)]
    kind = mode.title().replace("-", "")
    return as_node(f"Upsample{kind}{len(spatial)}D{'Aa' if antialias else ''}Backward0", _resampled, x, taps)


def upsample(
    input: Any,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Array:
    """`interpolate`, by its older name."""
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(input: Any, size: Any = None, scale_factor: Any = None) -> Array:
    """`interpolate` with the nearest elements."""
    return interpolate(input, size, scale_factor, "nearest")


def upsample_bilinear(input: Any, size: Any = None, scale_factor: Any = None) -> Array:
    """`interpolate` with `mode="bilinear"` and aligned corners."""
    return interpolate(input, size, scale_factor, "bilinear", True)


def _check(shape: Sequence[int], mode: str, align_corners: bool | None, antialias: bool) -> None:
    rank = len(shape) - 2
    if mode not in _MODES or rank not in (1, 2, 3):
        modes = "nearest | linear | bilinear | bicubic | trilinear | area | nearest-exact"
        raise NotImplementedError(
            located(
                f"Input Error: Only 3D, 4D and 5D input Tensors supported (got {len(shape)}D) for the modes: {modes} "
                f"(got {mode})"
            )
        )
    if _MODES[mode] not in (None, rank):
        needed = (_MODES[mode] or 0) + 2
        raise NotImplementedError(located(f"Got {rank + 2}D input, but {mode} mode needs {needed}D input"))
    if align_corners is not None and _MODES[mode] is None:
        raise ValueError(
            located(
                "align_corners option can only be set with the interpolating modes: linear | bilinear | bicubic | "
                "trilinear"
            )
        )
    if antialias and mode not in ("bilinear", "bicubic"):
        raise ValueError(
            located("Anti-alias option is restricted to bilinear and bicubic modes and requires a 4-D tensor as input")
        )


def _sizes(spatial: tuple[int, ...], size: Any, scale_factor: Any) -> tuple[tuple[int, ...], list[float | None]]:
    """Return the output sizes, and the factors that are passed."""
    if (size is None) == (scale_factor is None):
        text = "either size or scale_factor should be defined"
        raise ValueError(located(text if size is None else "only one of size or scale_factor should be defined"))
    rank = len(spatial)
    if size is not None:
        sizes = integers((size,)) if isinstance(size, tuple | list) else integers(((size,) * rank,))
        if len(sizes) != rank:
            raise ValueError(
                located(
                    "Input and output must have the same number of spatial dimensions, but got input with spatial "
                    f"dimensions of {lengths(spatial)} and output size of {size}. Please provide input tensor in (N, "
                    "C, d1, d2, ...,dK) format and output size in (o1, o2, ...,oK) format."
                )
            )
        return sizes, [None] * rank
    factors = list(scale_factor) if isinstance(scale_factor, tuple | list) else [scale_factor] * rank
    if len(factors) != rank:
        raise ValueError(
            located(
                "Input and scale_factor must have the same number of spatial dimensions, but got input with spatial "
                f"dimensions of {lengths(spatial)} and scale_factor of shape {scale_factor}. Please provide input "
                "tensor in (N, C, d1, d2, ...,dK) format and scale_factor in (s1, s2, ...,sK) format."
            )
        )
    numbers = [float(factor) for factor in factors]
    return tuple(math.floor(n * factor) for n, factor in zip(spatial, numbers)), list(numbers)


def _taps(mode: str, n: int, m: int, factor: float | None, align: bool, antialias: bool) -> _Taps:
    """Return the taps from `n` inputs to `m` outputs."""
    outputs, step = np.arange(m), _step(n, m, factor, align)
    if mode.startswith("nearest"):
        shift = 0.5 if mode == "nearest-exact" else 0.0
        places = np.minimum(np.floor((outputs + shift) * step).astype(np.int64), n - 1)
        return _Taps(places[:, None], np.ones((m, 1)))
    if antialias:
        return _smooth_taps(mode, n, m, step)
    at = outputs * step if align else (outputs + 0.5) * step - 0.5
    if mode != "bicubic":
        at = np.maximum(at, 0.0)
        low = np.minimum(np.floor(at).astype(np.int64), n - 1)
        rest = np.clip(at - low, 0.0, 1.0)
        return _Taps(np.stack([low, np.minimum(low + 1, n - 1)], 1), np.stack([1 - rest, rest], 1))
    low = np.floor(at).astype(np.int64)
    places = low[:, None] + np.arange(-1, 3)
    return _Taps(np.clip(places, 0, n - 1), cubic(at[:, None] - places, -0.75))


def _step(n: int, m: int, factor: float | None, align: bool) -> float:
    """Return the distance of two outputs, in inputs."""
    if align:
        return (n - 1) / (m - 1) if m > 1 else 0.0
    return 1 / factor if factor else n / m


def cubic(distance: NDArray, a: float) -> NDArray:
    """Return the cubic kernel at distances."""
    d = np.abs(distance)
    near, far = cubic_pieces(d, a)
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


def cubic_pieces(d: Any, a: float) -> tuple[Array, Array]:
    """Return the polynomials of the cubic kernel at distances up to 1, and from 1 to 2."""
    return ((a + 2) * d - (a + 3)) * d * d + 1, ((a * d - 5 * a) * d + 8 * a) * d - 4 * a


def _smooth_taps(mode: str, n: int, m: int, step: float) -> _Taps:
    """Return taps whose kernel is stretched to cover all inputs between two outputs."""
    stretch, radius = max(step, 1.0), 1 if mode == "bilinear" else 2
    centers = step * (np.arange(m) + 0.5)
    first = np.maximum((centers - radius * stretch + 0.5).astype(np.int64), 0)
    last = np.minimum((centers + radius * stretch + 0.5).astype(np.int64), n)
    places = first[:, None] + np.arange(int((last - first).max()))
    distance = (places - centers[:, None] + 0.5) / stretch
    weights = np.maximum(1 - np.abs(distance), 0.0) if mode == "bilinear" else cubic(distance, -0.5)
    weights = np.where(places < last[:, None], weights, 0.0)
    return _Taps(np.minimum(places, n - 1), weights / weights.sum(1, keepdims=True))


def _resampled(x: Any, taps: list[_Taps]) -> Array:
    for dim, (places, weights) in enumerate(taps, 2):
        parts = [_index_select(x, dim, np.ascontiguousarray(column)) for column in places.T]
        if len(parts) > 1:
            shape = (-1, *(1,) * (len(x.shape) - dim - 1))
            factors = [column.reshape(shape).astype(x.dtype) for column in weights.T]
            parts = [multiply(part, factor) for part, factor in zip(parts, factors)]
        x = reduce(add, parts)
    return x  # type: ignore[no-any-return]
