"""Sliding windows as columns, of `torch.nn.functional`: `unfold` (im2col), and its adjoint `fold` (col2im)."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracegrad.errors import located
from tracegrad.ops.shape import linear as moves
from tracegrad.ops.shape.linear import reshape, transpose
from tracegrad.torch.functions.core.dims import integers, lengths, one
from tracegrad.torch.functions.core.operands import as_node
from tracegrad.torch.functions.core.registry import FUNCTIONS
from tracegrad.torch.functions.nn.convolution import for_each
from tracegrad.typing import Array, NDArray


def _places(n: int, kernel: int, dilation: int, padding: int, stride: int) -> NDArray:
    """Return the padded positions of the elements of all windows along one dimension: (kernel, windows)."""
    count = (n + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
    return np.arange(kernel)[:, None] * dilation + np.arange(max(count, 0)) * stride


def _all_places(
    size: tuple[int, ...], kernel: Any, dilation: Any, padding: Any, stride: Any
) -> tuple[list[NDArray], tuple[int, ...]]:
    options = [for_each(value, 2) for value in (kernel, dilation, padding, stride)]
    results = [_places(n, *row) for n, row in zip(size, zip(*options))]
    if not all(x.shape[1] > 0 for x in results):
        raise RuntimeError(
            located(
                f"Given input with spatial size {lengths(size)}, kernel_size={tuple(options[0])}, "
                f"dilation={tuple(options[1])}, padding={tuple(options[2])}, calculated shape of the array of sliding "
                f"blocks as ({results[0].shape[1]}, {results[1].shape[1]}), but its components must be at least one."
            )
        )
    return results, tuple(options[2])


def unfold(input: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Array:
    """Return the windows of images (N, C, H, W) as columns: (N, C * kernel height * kernel width, windows).

    RuntimeError for an input of other dimensions, or too small for a window.

    >>> unfold(np.arange(4.0).reshape(1, 1, 2, 2), (1, 2)).tolist()
    [[[0.0, 2.0], [1.0, 3.0]]]
    """
    x = one(input)
    if len(x.shape) not in (3, 4):
        raise RuntimeError(
            located(
                "Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other non-zero dimensions for "
                f"input, but got: {lengths(x.shape)}"
            )
        )
    batch = x if len(x.shape) == 4 else reshape(x, shape=(1, *x.shape))
    places, padding = _all_places(batch.shape[2:], kernel_size, dilation, padding, stride)
    out = as_node("Im2ColBackward0", _unfold, batch, places, padding)
    return out if len(x.shape) == 4 else reshape(out, shape=out.shape[1:])


def _unfold(x: Array, places: list[NDArray], padding: tuple[int, ...]) -> Array:
    ends = (0, 0, *padding)
    if any(padding):
        x = moves.pad(x, low=ends, high=ends, interior=(0,) * 4, value=0.0)
    for dim, at in enumerate(places, 2):
        x = FUNCTIONS["index_select"](x, dim, at.ravel())
    (kh, height), (kw, width) = (at.shape for at in places)
    n, c = x.shape[:2]
    split = transpose(reshape(x, shape=(n, c, kh, height, kw, width)), perm=(0, 1, 2, 4, 3, 5))
    return reshape(split, shape=(n, c * kh * kw, height * width))


def fold(input: Any, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Array:
    """Add columns (N, C * kernel height * kernel width, windows) to the places of their windows in images.

    The result is (N, C, *output_size). RuntimeError for columns that do not fit.

    >>> fold(np.ones((1, 2, 2)), (1, 3), (1, 2)).tolist()
    [[[[1.0, 2.0, 1.0]]]]
    """
    x = one(input)
    if len(x.shape) not in (2, 3):
        raise RuntimeError(
            located(
                "Expected 2D or 3D (batch mode) tensor for input with possibly 0 batch size and non-zero dimensions "
                f"for input, but got: {lengths(x.shape)}"
            )
        )
    size = integers((for_each(output_size, 2),))
    batch = x if len(x.shape) == 3 else reshape(x, shape=(1, *x.shape))
    places, padding = _all_places(size, kernel_size, dilation, padding, stride)
    (kh, height), (kw, width) = (at.shape for at in places)
    if batch.shape[1] % (kh * kw):
        raise RuntimeError(
            located(
                "Expected size of input's dimension 1 to be divisible by the product of kernel_size, but got "
                f"input.size(1)={batch.shape[1]} and kernel_size=({kh}, {kw})."
            )
        )
    if batch.shape[2] != height * width:
        raise RuntimeError(
            located(
                f"Given output_size={size}, expected size of input's dimension 2 to match the calculated number of "
                f"sliding blocks {height} * {width} = {height * width}, but got input.size(2)={batch.shape[2]}."
            )
        )
    out = as_node("Col2ImBackward0", _fold, batch, size, places, padding)
    return out if len(x.shape) == 3 else reshape(out, shape=out.shape[1:])


def _fold(x: Array, size: tuple[int, ...], places: list[NDArray], padding: tuple[int, ...]) -> Array:
    (kh, height), (kw, width) = (at.shape for at in places)
    n, c = x.shape[0], x.shape[1] // (kh * kw)
    split = transpose(reshape(x, shape=(n, c, kh, kw, height, width)), perm=(0, 1, 2, 4, 3, 5))
    out = reshape(split, shape=(n, c, kh * height, kw * width))
    for dim, (at, length, margin) in enumerate(zip(places, size, padding), 2):
        shape = (*out.shape[:dim], length + 2 * margin, *out.shape[dim + 1 :])
        zeros = moves.full(shape=shape, value=0.0, dtype=x.dtype.name)
        out = FUNCTIONS["index_add"](zeros, dim, at.ravel(), out)
        out = FUNCTIONS["narrow"](out, dim, margin, length)
    return out
