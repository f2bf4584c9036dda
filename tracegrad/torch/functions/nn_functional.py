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
from tracegrad.ops.elementwise import add, equal, multiply, where
from tracegrad.ops.indexing import gather
from tracegrad.ops.linear import cast, reshape, stop_gradient, transpose
from tracegrad.ops.op import named
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
from tracegrad.torch.functions.attention import (
    pairwise_distance,
    pixel_shuffle,
    pixel_unshuffle,
    scaled_dot_product_attention,
)
from tracegrad.torch.functions.convolution import conv1d, conv2d, conv3d
from tracegrad.torch.functions.dims import integers, one, size_error, type_name
from tracegrad.torch.functions.extrema import amax, amin
from tracegrad.torch.functions.generator import stream
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
from tracegrad.torch.functions.margins import (
    cosine_embedding_loss,
    gaussian_nll_loss,
    hinge_embedding_loss,
    margin_ranking_loss,
    poisson_nll_loss,
    soft_margin_loss,
    triplet_margin_loss,
)
from tracegrad.torch.functions.normalization import (
    batch_norm,
    group_norm,
    instance_norm,
    layer_norm,
    local_response_norm,
    normalize,
    rms_norm,
)
from tracegrad.torch.functions.pooling import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    adaptive_max_pool3d,
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    lp_pool1d,
    lp_pool2d,
    lp_pool3d,
    max_pool1d,
    max_pool2d,
    max_pool3d,
    max_unpool1d,
    max_unpool2d,
    max_unpool3d,
)
from tracegrad.torch.functions.products import addmm, matmul, mm
from tracegrad.torch.functions.statistics import pdist

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d",
    "adaptive_max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d", "batch_norm", "binary_cross_entropy",
    "binary_cross_entropy_with_logits", "celu", "conv1d", "conv2d", "conv3d", "cosine_embedding_loss",
    "cosine_similarity", "cross_entropy", "dropout", "dropout1d", "dropout2d", "dropout3d",
    "elu", "embedding", "gaussian_nll_loss", "gelu", "glu",
    "group_norm", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "hinge_embedding_loss", "huber_loss",
    "instance_norm", "kl_div", "l1_loss", "layer_norm", "leaky_relu", "linear", "local_response_norm", "log_softmax",
    "logsigmoid", "lp_pool1d", "lp_pool2d", "lp_pool3d", "margin_ranking_loss", "max_pool1d", "max_pool2d",
    "max_pool3d", "max_unpool1d", "max_unpool2d", "max_unpool3d", "mish", "mse_loss", "nll_loss", "normalize",
    "one_hot", "pad", "pairwise_distance", "pdist", "pixel_shuffle", "pixel_unshuffle", "poisson_nll_loss", "prelu",
    "relu", "relu6", "rms_norm", "scaled_dot_product_attention", "selu", "sigmoid", "silu", "smooth_l1_loss",
    "soft_margin_loss", "softmax", "softmin", "softplus", "softshrink", "softsign", "tanh", "tanhshrink", "threshold",
    "triplet_margin_loss",
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


# -- noise ---------------------------------------------------------------------------------------------------------
def dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """`input` with each element 0 with probability `p`, and the others larger by 1 / (1 - p); not changed unless
    `training`.

    Draws from the default generator, which `manual_seed` sets; within a trace, at each call. ValueError if p is no
    probability.

    >>> dropout(np.ones(2), training=False).tolist()
    [1.0, 1.0]
    """
    x = _with_noise("dropout", input, p)
    return _dropout(x, p, x.shape, inplace=inplace) if training else input


def dropout1d(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """`dropout` of whole channels: of (N, C, L), or of (C, L)."""
    return _of_channels("dropout1d", input, 1, p, training, inplace)


def dropout2d(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """`dropout` of whole channels: of (N, C, H, W), or of (C, H, W)."""
    return _of_channels("dropout2d", input, 2, p, training, inplace)


def dropout3d(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """`dropout` of whole channels: of (N, C, D, H, W), or of (C, D, H, W)."""
    return _of_channels("dropout3d", input, 3, p, training, inplace)


def _of_channels(name: str, input: Any, count: int, p: float, training: bool, inplace: bool) -> Any:
    x = _with_noise(name, input, p)
    if len(x.shape) not in (count + 1, count + 2):
        raise RuntimeError(
            located(f"{name}: Expected {count + 1}D or {count + 2}D input, but received a {len(x.shape)}D input")
        )
    shape = (*x.shape[: len(x.shape) - count], *(1,) * count)
    return _dropout(x, p, shape, inplace=inplace) if training else input


def _with_noise(name: str, input: Any, p: float) -> Any:
    if not 0.0 <= p <= 1.0:
        raise ValueError(located(f"{name} probability has to be between 0 and 1, but got {p}"))
    return floating(input)


@updating
def _dropout(x: Any, p: float, shape: tuple[int, ...]) -> Any:
    if p == 1:
        return multiply(x, 0.0)
    kept = stream("dropout").random(shape, np.float32) >= p
    return multiply(*operands(x, kept.astype(x.dtype) * (1 / (1 - p))))


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
    if mode == "wrap":  # what is cut off is not repeated
        return numpy_pad(_cut(x, pairs), _positive(pairs), mode)
    return _cut(numpy_pad(x, _positive(pairs), mode), pairs)


def _positive(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return [(max(before, 0), max(after, 0)) for before, after in pairs]


def _cut(x: Any, pairs: list[tuple[int, int]]) -> Any:
    for k, (before, after) in enumerate(pairs):
        if before < 0 or after < 0:
            x = along(x, k, max(-before, 0), x.shape[k] - max(-after, 0))
    return x
