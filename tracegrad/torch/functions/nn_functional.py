"""What `tracegrad.torch.nn.functional` offers: the layers below, and what the modules of activations,
losses and convolution have.

Every function takes arrays, Tensors and traced arrays, with PyTorch's signature.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tracegrad.errors import located
from tracegrad.numpy_api.joining import along
from tracegrad.numpy_api.on_demand.padding import pad as numpy_pad
from tracegrad.numpy_api.operands import arrays, operands
from tracegrad.numpy_api.registry import refuse
from tracegrad.ops import linear as moves
from tracegrad.ops import reduction
from tracegrad.ops.elementwise import add, divide, equal, multiply, rsqrt, subtract, where
from tracegrad.ops.indexing import gather
from tracegrad.ops.linear import broadcast_to, cast, reshape, stop_gradient, transpose, unreduce
from tracegrad.ops.op import named
from tracegrad.torch.functions import reductions
from tracegrad.torch.functions.activations import (
    celu,
    elu,
    gelu,
    glu,
    hardshrink,
    hardsigmoid,
    hardswish,
    hardtanh,
    leaky_relu,
    log_softmax,
    logsigmoid,
    mish,
    prelu,
    relu,
    relu6,
    selu,
    silu,
    softmax,
    softmin,
    softplus,
    softshrink,
    softsign,
    tanhshrink,
    threshold,
    updating,
)  # fmt: skip
from tracegrad.torch.functions.activations import sigmoid_ as sigmoid
from tracegrad.torch.functions.activations import tanh_ as tanh
from tracegrad.torch.functions.arguments import as_node, floating
from tracegrad.torch.functions.convolution import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    conv1d,
    conv2d,
    conv3d,
    max_pool1d,
    max_pool2d,
    max_pool3d,
)
from tracegrad.torch.functions.dims import integers, lengths, one, size_error, type_name
from tracegrad.torch.functions.extrema import amax, amin
from tracegrad.torch.functions.generator import source
from tracegrad.torch.functions.losses import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cosine_similarity,
    cross_entropy,
    huber_loss,
    kl_div,
    l1_loss,
    mse_loss,
    nll_loss,
    smooth_l1_loss,
)
from tracegrad.torch.functions.pointwise import clamp_min
from tracegrad.torch.functions.products import addmm, matmul, mm

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "avg_pool1d", "avg_pool2d", "avg_pool3d", "binary_cross_entropy",
    "binary_cross_entropy_with_logits", "celu", "conv1d", "conv2d", "conv3d", "cosine_similarity", "cross_entropy",
    "dropout", "elu", "embedding", "gelu", "glu", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "huber_loss",
    "kl_div", "l1_loss", "layer_norm", "leaky_relu", "linear", "log_softmax", "logsigmoid", "max_pool1d",
    "max_pool2d", "max_pool3d", "mish", "mse_loss", "nll_loss", "normalize", "one_hot", "pad", "prelu", "relu",
    "relu6", "selu", "sigmoid", "silu", "smooth_l1_loss", "softmax", "softmin", "softplus", "softshrink", "softsign",
    "tanh", "tanhshrink", "threshold",
]  # fmt: skip


# -- products ------------------------------------------------------------------------------------------------------
def linear(input: Any, weight: Any, bias: Any = None) -> Any:
    """input @ weight.T + bias, for an input of shape (..., n), a weight of shape (m, n) or (n), a bias of shape (m).

    RuntimeError if the sizes do not fit.

    >>> linear(np.array([[1.0, 2.0]]), np.array([[3.0, 4.0], [5.0, 6.0]]), np.array([0.5, 0.0])).tolist()
    [[11.5, 17.0]]
    """
    x, w, *rest = arrays(*(v for v in (input, weight, bias) if v is not None))
    if len(w.shape) != 2:
        product = matmul(x, w)
        return add(product, rest[0]) if rest else product
    turned = named("TBackward0", transpose(w, perm=(1, 0)))
    if len(x.shape) == 2:
        return addmm(rest[0], x, turned) if rest else mm(x, turned)
    if len(x.shape) == 1 and not rest:
        return matmul(x, turned)
    rows = named("ViewBackward0", reshape(x, shape=(math.prod(x.shape[:-1]), *x.shape[-1:])))
    out = addmm(rest[0], rows, turned) if rest else mm(rows, turned)
    return named("ViewBackward0" if rest else "UnsafeViewBackward0", reshape(out, shape=(*x.shape[:-1], w.shape[0])))


def embedding(input: Any, weight: Any, padding_idx: int | None = None) -> Any:
    """The rows of `weight` at the indices `input`; the row `padding_idx` gets no gradient.

    IndexError for an index out of range.

    >>> embedding(np.array([2, 0]), np.array([[1.0], [2.0], [3.0]])).tolist()
    [[3.0], [1.0]]
    """
    index, table = arrays(input, weight)
    if index.dtype.kind not in "iu":
        raise RuntimeError(
            located(
                "Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; but "
                f"got {type_name(index.dtype)} instead (while checking arguments for embedding)"
            )
        )
    return as_node("EmbeddingBackward0", _embedding, table, index, padding_idx)


def _embedding(table: Any, index: Any, padding: int | None) -> Any:
    try:
        rows = gather(table, index, axes=(0,))
    except IndexError:
        raise IndexError(located("index out of range in self")) from None
    if padding is None:
        return rows
    blank = reshape(equal(index, padding % table.shape[0]), shape=(*index.shape, *(1 for _ in table.shape[1:])))
    return where(blank, stop_gradient(rows), rows)


def one_hot(tensor: Any, num_classes: int = -1) -> Any:
    """For each integer k of `tensor` a row of `num_classes` integers, 1 at k and 0 elsewhere.

    Without `num_classes` the largest integer decides. RuntimeError for one that is negative or too large.

    >>> one_hot(np.array([1, 0]), 3).tolist()
    [[0, 1, 0], [1, 0, 0]]
    """
    x = one(tensor)
    if x.dtype.kind not in "iu":
        raise RuntimeError(located("one_hot is only applicable to index tensor of type LongTensor."))
    if math.prod(x.shape):
        if int(amin(x)) < 0:
            raise RuntimeError(located("Class values must be non-negative."))
        most = int(amax(x))
        if num_classes != -1 and most >= num_classes:
            raise RuntimeError(located("Class values must be smaller than num_classes."))
    elif num_classes <= 0:
        raise RuntimeError(located("Can not infer total number of classes from empty tensor."))
    n = most + 1 if num_classes == -1 else num_classes
    classes = moves.arange(start=0, step=1, length=n, dtype=x.dtype.name)
    return cast(equal(reshape(x, shape=(*x.shape, 1)), classes), dtype="int64")


# -- normalization -------------------------------------------------------------------------------------------------
def normalize(input: Any, p: float = 2.0, dim: Any = 1, eps: float = 1e-12) -> Any:
    """`input` over its p-norm along `dim`, the norm being taken as at least `eps`.

    >>> normalize(np.array([[3.0, 4.0]])).tolist()
    [[0.6, 0.8]]
    """
    x = floating(input)
    length = clamp_min(reductions.norm(x, p, dim, keepdim=True), eps)
    return divide(x, named("ExpandBackward0", broadcast_to(length, shape=x.shape)))


def layer_norm(input: Any, normalized_shape: Sequence[int], weight: Any = None, bias: Any = None,
               eps: float = 1e-5) -> Any:  # fmt: skip
    """`input` with mean 0 and variance 1 over its last dimensions, which have `normalized_shape`; then times `weight`
    plus `bias` of that shape (Ba et al. 2016, "Layer Normalization").

    RuntimeError if the shapes do not fit.

    >>> layer_norm(np.array([[1.0, 3.0]]), (2,), eps=0.0).tolist()
    [[-1.0, 1.0]]
    """
    shape = integers((normalized_shape,))
    x = floating(input)
    for name, v in (("weight", weight), ("bias", bias)):
        if v is not None and tuple(one(v).shape) != shape:
            raise size_error(
                f"Expected {name} to be of same shape as normalized_shape, but got {name} of shape "
                f"{lengths(one(v).shape)} and normalized_shape = {lengths(shape)}"
            )
    if not shape or x.shape[len(x.shape) - len(shape) :] != shape:
        raise size_error(
            f"Given normalized_shape={lengths(shape)}, expected input with shape [*, {lengths(shape)[1:]}, but got "
            f"input of size{lengths(x.shape)}"
        )
    rest = [None if v is None else one(v) for v in (weight, bias)]
    return as_node("NativeLayerNormBackward0", _layer_norm, x, *rest, len(shape), eps)


def _layer_norm(x: Any, weight: Any, bias: Any, count: int, eps: float) -> Any:
    axes = tuple(range(len(x.shape) - count, len(x.shape)))
    centred = subtract(x, unreduce(reduction.mean(x, axes=axes), x.shape, axes))
    scale = rsqrt(add(reduction.var(x, axes=axes, ddof=0), eps))
    out = multiply(centred, unreduce(scale, x.shape, axes))
    out = out if weight is None else multiply(out, weight)
    return out if bias is None else add(out, bias)


# -- noise ---------------------------------------------------------------------------------------------------------
def dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """`input` with each element 0 with probability `p`, and the others larger by 1 / (1 - p); not changed unless
    `training`.

    Draws from the default generator, which `manual_seed` sets; refused inside a trace. ValueError if p is no
    probability.

    >>> dropout(np.ones(2), training=False).tolist()
    [1.0, 1.0]
    """
    if not 0.0 <= p <= 1.0:
        raise ValueError(located(f"dropout probability has to be between 0 and 1, but got {p}"))
    return _dropout(floating(input), p, inplace=inplace) if training else input


@updating
def _dropout(x: Any, p: float) -> Any:
    kept = source("dropout").random(x.shape) >= p
    noise = (kept / (1 - p) if p < 1 else np.zeros(x.shape)).astype(x.dtype)
    return multiply(*operands(x, noise))


# -- padding -------------------------------------------------------------------------------------------------------
_NUMPY_MODE = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}
_NODE = {"reflect": "ReflectionPad", "replicate": "ReplicationPad"}


def pad(input: Any, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Any:
    """`input` with elements put before and after each dimension: `pad` has a pair of counts for the last dimension,
    then for the one before it, and so on; a negative count takes elements away.

    `mode` says which: "constant", `value` or 0; "reflect", "replicate" or "circular", those of `input`.

    >>> pad(np.array([[1, 2]]), (1, 2)).tolist()
    [[0, 1, 2, 0, 0]]
    """
    x, counts = one(input), integers((pad,))
    if len(counts) % 2:
        raise size_error("Padding length must be divisible by 2")
    if len(counts) > 2 * len(x.shape):
        raise size_error(
            f"Padding length should be less than or equal to two times the input dimension but got padding length "
            f"{len(counts)} and input of dimension {len(x.shape)}"
        )
    untouched = [(0, 0)] * (len(x.shape) - len(counts) // 2)
    pairs = [*untouched, *((counts[i], counts[i + 1]) for i in range(len(counts) - 2, -1, -2))]
    if mode == "constant":
        return as_node("ConstantPadNdBackward0", _padded, x, pairs, 0 if value is None else value)
    if mode not in _NUMPY_MODE:
        raise refuse(f"pad with mode={mode!r}", 'the modes are "constant", "reflect", "replicate" and "circular"')
    name = f"{_NODE[mode]}{len(counts) // 2}DBackward0" if mode in _NODE else "CopySlices"
    return as_node(name, _repeated, x, pairs, _NUMPY_MODE[mode])


def _padded(x: Any, pairs: list[tuple[int, int]], value: float) -> Any:
    for k, (before, after) in enumerate(pairs):
        if before < 0 or after < 0:
            n = x.shape[k]
            if n + before + after < 0 or n + min(before, 0) + min(after, 0) < 0:
                raise size_error(f"The input size {n}, plus negative padding {before} and {after}, is negative")
            x = along(x, k, max(-before, 0), n - max(-after, 0))
    low, high = (tuple(max(pair[end], 0) for pair in pairs) for end in (0, 1))
    value = np.asarray(value).astype(x.dtype).item()
    return moves.pad(x, low=low, high=high, interior=(0,) * len(x.shape), value=value)


def _repeated(x: Any, pairs: list[tuple[int, int]], mode: str) -> Any:
    return numpy_pad(x, pairs, mode)
