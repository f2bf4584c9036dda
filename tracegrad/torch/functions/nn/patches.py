"""Sliding windows as columns, of `torch.nn.functional`: `unfold` (im2col), and its adjoint `fold` (col2im)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tracegrad.errors import located
from tracegrad.ops.shape import linear
from tracegrad.ops.shape.linear import reshape, transpose
from tracegrad.torch.functions.core.dims import integers, lengths, one
from tracegrad.torch.functions.core.operands import as_node
from tracegrad.torch.functions.core.registry import FUNCTIONS
from tracegrad.torch.functions.nn.windows import Sizes, Windows, for_each, window_count
from tracegrad.typing import Array, ArrayLike


def _windows(size: Sizes, kernel: int | Sequence[int], dilation: object, padding: object, stride: object) -> Windows:
    kernels, dilations, pads, strides = (for_each(value, 2) for value in (kernel, dilation, padding, stride))
    spans = tuple(d * (k - 1) + 1 for d, k in zip(dilations, kernels))
    out = tuple(max(window_count(*row), 0) for row in zip(size, spans, strides, pads))
    if not all(out):
        raise RuntimeError(
            located(
                f"Given input with spatial size {lengths(size)}, kernel_size={kernels}, dilation={dilations}, "
                f"padding={pads}, calculated shape of the array of sliding blocks as ({out[0]}, {out[1]}), but its "
                "components must be at least one."
            )
        )
    return Windows(size, kernels, strides, dilations, pads, pads, out)


def unfold(
    input: ArrayLike,
    kernel_size: int | Sequence[int],
    dilation: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    stride: int | Sequence[int] = 1,
) -> Array:
    """Return the windows of images (N, C, H, W) as columns: (N, C * kernel height * kernel width, windows).

    RuntimeError for an input of other dimensions, or too small for a window.

    >>> import numpy as np
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
    windows = _windows(batch.shape[2:], kernel_size, dilation, padding, stride)
    out = as_node("Im2ColBackward0", _unfold, batch, windows)
    return out if len(x.shape) == 4 else reshape(out, shape=out.shape[1:])


def _unfold(x: Array, windows: Windows) -> Array:
    elements, within = windows.of(x, 0.0)
    among = [k for k in range(2, 6) if k not in within]
    split = transpose(elements, perm=(0, 1, *within, *among))
    return reshape(split, shape=(x.shape[0], x.shape[1] * math.prod(windows.kernel), math.prod(windows.out)))


def fold(
    input: ArrayLike,
    output_size: int | Sequence[int],
    kernel_size: int | Sequence[int],
    dilation: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    stride: int | Sequence[int] = 1,
) -> Array:
    """Add columns (N, C * kernel height * kernel width, windows) to the places of their windows in images.

    The result is (N, C, *output_size). RuntimeError for columns that do not fit.

    >>> import numpy as np
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
    windows = _windows(size, kernel_size, dilation, padding, stride)
    (kh, kw), (height, width) = windows.kernel, windows.out
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
    out = as_node("Col2ImBackward0", _fold, batch, windows)
    return out if len(x.shape) == 3 else reshape(out, shape=out.shape[1:])


def _fold(x: Array, windows: Windows) -> Array:
    (kh, kw), (height, width) = windows.kernel, windows.out
    n, c = x.shape[0], x.shape[1] // (kh * kw)
    split = transpose(reshape(x, shape=(n, c, kh, kw, height, width)), perm=(0, 1, 2, 4, 3, 5))
    out = reshape(split, shape=(n, c, kh * height, kw * width))
    for dim, (length, margin) in enumerate(zip(windows.shape, windows.low), 2):
        shape = (*out.shape[:dim], length + 2 * margin, *out.shape[dim + 1 :])
        zeros = linear.full(shape=shape, value=0.0, dtype=x.dtype.name)
        out = FUNCTIONS["index_add"](zeros, dim, windows.places(dim - 2).ravel(), out)
        out = FUNCTIONS["narrow"](out, dim, margin, length)
    return out
