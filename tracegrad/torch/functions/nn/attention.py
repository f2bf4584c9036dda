"""Scaled dot-product attention, pairwise distances of rows, and pixel shuffles."""

from __future__ import annotations

import math

from tracegrad.errors import located
from tracegrad.numpy_api.operands import arrays, promoted
from tracegrad.numpy_api.selection import band
from tracegrad.ops.core.op import named
from tracegrad.ops.elementwise.table import add, equal, multiply, subtract, where
from tracegrad.ops.linalg.contraction import matmul, matrix_transpose
from tracegrad.ops.shape.linear import reshape, transpose
from tracegrad.torch.functions.core.operands import as_node, in_floats
from tracegrad.torch.functions.core.promotion import require_one_dtype
from tracegrad.torch.functions.core.registry import FUNCTIONS
from tracegrad.torch.functions.math import reductions
from tracegrad.torch.functions.nn.activations import softmax
from tracegrad.torch.functions.nn.dropout import dropout
from tracegrad.typing import Array, ArrayLike


def pairwise_distance(x1: ArrayLike, x2: ArrayLike, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Array:
    """Return the p-norm of x1 - x2 + eps along the last dimension."""
    x, y = promoted(in_floats(arrays(x1, x2)))
    return as_node("NormBackward1", _length, add(subtract(x, y), eps), p, keepdim)


def _length(x: Array, p: float, keepdim: bool) -> Array:
    return reductions.norm(x, p, -1, keepdim=keepdim)


def channel_shuffle(input: ArrayLike, groups: int) -> Array:
    """Take the channels of `groups` groups in turn: channel k of each group, for k = 0, 1, ...

    The input is (N, C, ...). RuntimeError unless the number of channels C is divisible by `groups`.
    """
    (x,) = arrays(input)
    if len(x.shape) < 3:
        raise RuntimeError(located(f"channel_shuffle expects input with > 2 dims, but got input with sizes {x.shape}"))
    if groups <= 0 or x.shape[1] % groups:
        raise RuntimeError(
            located(f"Number of channels must be divisible by groups. Got {x.shape[1]} channels and {groups} groups.")
        )
    split_shape = (x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
    order = (0, 2, 1, *range(3, len(split_shape)))
    return as_node("NativeChannelShuffleBackward0", _moved, x, split_shape, order, x.shape)


def pixel_shuffle(input: ArrayLike, upscale_factor: int) -> Array:
    """Rearrange (..., C r r, H, W) as (..., C, H r, W r), for r = `upscale_factor`.

    RuntimeError if the sizes do not fit.
    """
    (x,), r = arrays(input), upscale_factor
    *batch_shape, channels, height, width = _image_shape("pixel_shuffle", x, r)
    if channels % (r * r):
        raise RuntimeError(
            located(
                "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of "
                f"upscale_factor, but input.size(-3)={channels} is not divisible by {r * r}"
            )
        )
    split_shape = (*batch_shape, channels // (r * r), r, r, height, width)
    shape = (*batch_shape, channels // (r * r), height * r, width * r)
    return as_node("PixelShuffleBackward0", _moved, x, split_shape, (0, 3, 1, 4, 2), shape)


def pixel_unshuffle(input: ArrayLike, downscale_factor: int) -> Array:
    """Rearrange (..., C, H r, W r) as (..., C r r, H, W), for r = `downscale_factor`.

    RuntimeError if the sizes do not fit.
    """
    (x,), r = arrays(input), downscale_factor
    *batch_shape, channels, height, width = _image_shape("pixel_unshuffle", x, r)
    for name, k, n in (("height", -2, height), ("width", -1, width)):
        if n % r:
            raise RuntimeError(
                located(
                    f"pixel_unshuffle expects {name} to be divisible by downscale_factor, but input.size({k})={n} is "
                    f"not divisible by {r}"
                )
            )
    split_shape = (*batch_shape, channels, height // r, r, width // r, r)
    shape = (*batch_shape, channels * r * r, height // r, width // r)
    return as_node("PixelUnshuffleBackward0", _moved, x, split_shape, (0, 2, 4, 1, 3), shape)


def _image_shape(name: str, x: Array, factor: int) -> tuple[int, ...]:
    if len(x.shape) < 3:
        raise RuntimeError(
            located(
                f"{name} expects input to have at least 3 dimensions, but got input with {len(x.shape)} dimension(s)"
            )
        )
    if factor <= 0:
        raise RuntimeError(located(f"{name} expects a positive factor, but got {factor}"))
    shape: tuple[int, ...] = x.shape
    return shape


def _moved(x: Array, split_shape: tuple[int, ...], last: tuple[int, ...], shape: tuple[int, ...]) -> Array:
    batch_rank = len(split_shape) - len(last)
    perm = (*range(batch_rank), *(batch_rank + k for k in last))
    return reshape(transpose(reshape(x, shape=split_shape), perm=perm), shape=shape)


_ONE_DTYPE = "Expected query, key, and value to have the same dtype, but got {a} of query and {b} of another"


# -- attention ---------------------------------------------------------------------------------------------------------
def scaled_dot_product_attention(
    query: Array,
    key: Array,
    value: Array,
    attn_mask: Array | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Array:
    """softmax(query @ key.T * scale + mask) @ value.

    The shapes are (..., L, E), (..., S, E) and (..., S, V). The default of `scale` is 1 / sqrt(E). A boolean mask is
    true at positions that take part, and a floating mask is added. `is_causal` masks later positions, and excludes
    another mask (RuntimeError). Rows that are masked completely are 0. Weights are dropped with probability
    `dropout_p`. With `enable_gqa`, `key` and `value` (..., H, S, E) may have fewer heads than `query`; each head is
    then used for several heads of `query`.
    """
    if is_causal and attn_mask is not None:
        raise RuntimeError(
            located("_scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True")
        )
    for other in (key, value):
        require_one_dtype(query, other, _ONE_DTYPE)
    q, k, v = arrays(query, key, value)
    if enable_gqa:
        k, v = (FUNCTIONS["repeat_interleave"](x, q.shape[-3] // x.shape[-3], -3) for x in (k, v))
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = matmul(multiply(q, factor), matrix_transpose(k))
    mask = band(q.shape[-2], k.shape[-2], 0) if is_causal else attn_mask
    if mask is not None:
        (mask,) = arrays(mask)
        scores = where(mask, scores, -math.inf) if mask.dtype.kind == "b" else add(scores, mask)
        hidden = reductions.all_(equal(scores, -math.inf), -1, keepdim=True)
        weights = where(hidden, 0.0, softmax(where(hidden, 0.0, scores), -1))
    else:
        weights = softmax(scores, -1)
    out = matmul(dropout(weights, dropout_p), v) if dropout_p else matmul(weights, v)
    return named("MmBackward0" if len(out.shape) == 2 else "UnsafeViewBackward0", out)
