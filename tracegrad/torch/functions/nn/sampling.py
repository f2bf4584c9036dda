"""Sampling of images at points, of `torch.nn.functional`: `affine_grid` and `grid_sample`.

Source: M. Jaderberg, K. Simonyan, A. Zisserman, K. Kavukcuoglu, "Spatial transformer networks", NeurIPS 2015.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any

import numpy as np

from tracegrad.errors import located
from tracegrad.numpy_api.operands import arrays, constant, peer_of
from tracegrad.ops.elementwise.table import (
    add,
    floor,
    greater_equal,
    less,
    less_equal,
    logical_and,
    multiply,
    rint,
    subtract,
    where,
)
from tracegrad.ops.linalg.contraction import matmul_any, matrix_transpose
from tracegrad.ops.shape.linear import cast, reshape, stop_gradient
from tracegrad.torch.functions.core.dims import integers, lengths, one, size_error
from tracegrad.torch.functions.core.operands import as_node
from tracegrad.torch.functions.core.registry import FUNCTIONS
from tracegrad.torch.functions.nn.interpolation import cubic_pieces
from tracegrad.typing import Array, ArrayLike

_take, _clamp, _remainder = (FUNCTIONS[name] for name in ("take_along_dim", "clamp", "remainder"))
_PADDINGS = ("zeros", "border", "reflection")


def _warned(align_corners: bool | None, name: str) -> bool:
    if align_corners is None:
        warnings.warn(
            f"Default {name} behavior has changed to align_corners=False since 1.3.0. Please specify "
            "align_corners=True if the old behavior is desired. See the documentation of grid_sample for details.",
            stacklevel=3,
        )
    return bool(align_corners)


def affine_grid(theta: ArrayLike, size: Sequence[int], align_corners: bool | None = None) -> Array:
    """Return the points (x, y) or (x, y, z) of a grid after affine maps `theta`, for `grid_sample`.

    `theta` is (N, 2, 3) and `size` (N, C, H, W), or (N, 3, 4) and (N, C, D, H, W). ValueError for other shapes.

    >>> affine_grid(np.eye(3)[None, :2], (1, 1, 1, 2), align_corners=False).tolist()
    [[[[-0.5, 0.0], [0.5, 0.0]]]]
    """
    x, shape = one(theta), integers((size,))
    if x.dtype.kind != "f":
        raise ValueError(located(f"Expected theta to have floating point type, but got {x.dtype}"))
    rank = len(shape) - 2
    if rank not in (2, 3):
        raise NotImplementedError(
            located(
                "affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms, respectively. Got size "
                f"{lengths(shape)}"
            )
        )
    if tuple(x.shape[1:]) != (rank, rank + 1) or len(x.shape) != 3:
        raise ValueError(
            located(
                f"Expected a batch of {rank}D affine matrices of shape Nx{rank}x{rank + 1} for size {lengths(shape)}. "
                f"Got {lengths(x.shape)}."
            )
        )
    align = _warned(align_corners, "affine_grid")
    axes = [_centers(n, align) for n in shape[2:]]
    mesh = np.meshgrid(*axes, indexing="ij")[::-1]
    points = np.stack([*mesh, np.ones(shape[2:])], -1).reshape(-1, rank + 1).astype(x.dtype)
    return as_node("AffineGridGeneratorBackward0", _affine_grid, x, points, (shape[0], *shape[2:], rank))


def _centers(n: int, align: bool) -> Array:
    return np.linspace(-1, 1, n) * (1 if align else (n - 1) / n) if n > 1 else np.zeros(1)


def _affine_grid(theta: Array, points: Array, shape: tuple[int, ...]) -> Array:
    return reshape(matmul_any(constant(points, peer_of(theta)), matrix_transpose(theta)), shape=shape)


def grid_sample(
    input: Array,
    grid: object,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Array:
    """Sample images at the points of `grid`, whose coordinates (x, y) or (x, y, z) are from -1 to 1.

    The input is (N, C, H, W) and the grid (N, H', W', 2), or with one dimension more. With `align_corners`, -1 and 1
    are the centers of the corner pixels, otherwise their outer corners. ValueError for an unknown mode, RuntimeError
    for shapes that do not fit.

    >>> image = np.array([[[[1.0, 2.0]]]])
    >>> grid_sample(image, np.zeros((1, 1, 1, 2)), align_corners=False).tolist()
    [[[[1.5]]]]
    """
    if mode not in ("bilinear", "nearest", "bicubic"):
        text = "nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', but got: "
        raise ValueError(located(f"{text}'{mode}'"))
    if padding_mode not in _PADDINGS:
        text = "nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or 'reflection', but got: "
        raise ValueError(located(f"{text}'{padding_mode}'"))
    x, points = arrays(input, grid)
    align = _warned(align_corners, "grid_sample")
    rank = len(x.shape) - 2
    if rank not in (2, 3) or len(points.shape) != rank + 2:
        raise size_error(
            "grid_sampler(): expected 4D or 5D input and grid with same number of dimensions, but got input with "
            f"sizes {lengths(x.shape)} and grid with sizes {lengths(points.shape)}"
        )
    if x.shape[0] != points.shape[0]:
        raise size_error(
            "grid_sampler(): expected grid and input to have same batch size, but got input with sizes "
            f"{lengths(x.shape)} and grid with sizes {lengths(points.shape)}"
        )
    if points.shape[-1] != rank:
        raise size_error(
            f"grid_sampler(): expected grid to have size {rank} in last dimension, but got grid with sizes "
            f"{lengths(points.shape)}"
        )
    if mode == "bicubic" and rank == 3:
        raise RuntimeError(located("grid_sampler(): bicubic interpolation only supports 4D input"))
    return as_node(f"GridSampler{rank}DBackward0", _grid_sample, x, points, mode, padding_mode, align)


def _grid_sample(x: Array, points: Array, mode: str, padding: str, align: bool) -> Array:
    n, c, *sizes = x.shape
    count = math.prod(points.shape[1:-1])
    flat, at = reshape(x, shape=(n, c, math.prod(sizes))), reshape(points, shape=(n, count, len(sizes)))
    taps = [
        list(_axis_taps(_pixels(at[..., k], size, align), size, mode, padding, align))
        for k, size in enumerate(sizes[::-1])
    ][::-1]
    result: Any = None
    for corner in itertools.product(*taps):
        index = corner[0][0]
        for (place, _, _), size in zip(corner[1:], sizes[1:]):
            index = add(multiply(index, size), place)
        values = _take(flat, reshape(index, shape=(n, 1, count)), 2)
        inside = reduce(logical_and, [known for _, known, _ in corner])
        part = where(reshape(inside, shape=(n, 1, count)), values, 0.0)
        if mode != "nearest":
            weight = reduce(multiply, [factor for _, _, factor in corner])
            part = multiply(part, reshape(weight, shape=(n, 1, count)))
        result = part if result is None else add(result, part)
    return reshape(result, shape=(n, c, *points.shape[1:-1]))


def _pixels(at: Array, size: int, align: bool) -> Array:
    """Convert coordinates from [-1, 1] to numbers of pixels."""
    return (at + 1) * ((size - 1) / 2) if align else ((at + 1) * size - 1) * 0.5


def _padded(at: Array, size: int, padding: str, align: bool) -> Array:
    """Move coordinates into the image, as the padding says."""
    if padding == "reflection":
        low, span = (0.0, size - 1.0) if align else (-0.5, float(size))
        if span == 0:
            return at * 0
        distance = abs(at - low)
        rest = _remainder(distance, 2 * span)
        at = where(less_equal(rest, span), rest, subtract(2 * span, rest)) + low
    return at if padding == "zeros" else _clamp(at, 0, size - 1)


def _axis_taps(at: Any, size: int, mode: str, padding: str, align: bool) -> Iterator[tuple[Any, Any, Any]]:
    """Yield the pixels along one axis that points are made of: numbers, whether they are inside, and weights."""
    if mode == "bicubic":
        low = floor(stop_gradient(at))
        rest = subtract(at, low)
        for k in range(-1, 3):
            place = stop_gradient(_padded(add(low, k), size, padding, align))
            yield *_inside(place, size), _cubic(subtract(rest, k))
        return
    at = _padded(at, size, padding, align)
    if mode == "nearest":
        yield *_inside(rint(stop_gradient(at)), size), None
        return
    low = floor(stop_gradient(at))
    rest = subtract(at, low)
    yield *_inside(low, size), subtract(1, rest)
    yield *_inside(add(low, 1), size), rest


def _inside(place: Array, size: int) -> tuple[Array, Array]:
    inside = logical_and(greater_equal(place, 0), less(place, size))
    return cast(where(inside, place, 0.0), dtype="int64"), inside


def _cubic(distance: Array) -> Array:
    """Return the cubic kernel with a = -0.75, at distances up to 2."""
    d = abs(distance)
    return where(less_equal(d, 1), *cubic_pieces(d, -0.75))
