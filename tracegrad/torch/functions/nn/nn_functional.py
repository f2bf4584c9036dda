"""Namespace of `torch.nn.functional`: the functions of this folder.

Every function takes arrays, Tensors and traced arrays, with PyTorch's signature.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tracegrad.errors import located
from tracegrad.numpy_api.joining import along
from tracegrad.numpy_api.lazy.pad import pad as numpy_pad
from tracegrad.numpy_api.registry import refuse
from tracegrad.ops.elementwise.table import equal
from tracegrad.ops.shape import linear as moves
from tracegrad.ops.shape.linear import cast, reshape
from tracegrad.torch.functions.core.dims import integers, one, size_error
from tracegrad.torch.functions.core.operands import as_node
from tracegrad.torch.functions.core.parameter_table import FUNCTION_DOCS
from tracegrad.torch.functions.math.extrema import amax, amin
from tracegrad.torch.functions.math.statistics import pdist
from tracegrad.torch.functions.nn.activations import (
    IN_PLACE_FORMS,
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
    rrelu,
    selu,
    silu,
    softmax,
    softmin,
    softplus,
    softshrink,
    softsign,
    tanhshrink,
    threshold,
)
from tracegrad.torch.functions.nn.activations import sigmoid_ as sigmoid
from tracegrad.torch.functions.nn.activations import tanh_ as tanh
from tracegrad.torch.functions.nn.attention import (
    channel_shuffle,
    pairwise_distance,
    pixel_shuffle,
    pixel_unshuffle,
    scaled_dot_product_attention,
)
from tracegrad.torch.functions.nn.convolution import (
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
)
from tracegrad.torch.functions.nn.ctc import ctc_loss
from tracegrad.torch.functions.nn.dropout import (
    alpha_dropout,
    dropout,
    dropout1d,
    dropout2d,
    dropout3d,
    feature_alpha_dropout,
    gumbel_softmax,
)
from tracegrad.torch.functions.nn.fractional_pooling import fractional_max_pool2d, fractional_max_pool3d
from tracegrad.torch.functions.nn.interpolation import interpolate, upsample, upsample_bilinear, upsample_nearest
from tracegrad.torch.functions.nn.linear_layers import bilinear, embedding, embedding_bag, linear
from tracegrad.torch.functions.nn.losses import (
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
from tracegrad.torch.functions.nn.margin_losses import (
    cosine_embedding_loss,
    gaussian_nll_loss,
    hinge_embedding_loss,
    margin_ranking_loss,
    multi_margin_loss,
    multilabel_margin_loss,
    multilabel_soft_margin_loss,
    poisson_nll_loss,
    soft_margin_loss,
    triplet_margin_loss,
    triplet_margin_with_distance_loss,
)
from tracegrad.torch.functions.nn.multi_head_attention import multi_head_attention_forward
from tracegrad.torch.functions.nn.normalization import (
    batch_norm,
    group_norm,
    instance_norm,
    layer_norm,
    local_response_norm,
    normalize,
    rms_norm,
)
from tracegrad.torch.functions.nn.patches import fold, unfold
from tracegrad.torch.functions.nn.pooling import (
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
from tracegrad.torch.functions.nn.sampling import affine_grid, grid_sample
from tracegrad.typing import Array, ArrayLike

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d",
    "adaptive_max_pool3d", "affine_grid", "alpha_dropout", "avg_pool1d", "avg_pool2d", "avg_pool3d", "batch_norm",
    "bilinear", "binary_cross_entropy", "binary_cross_entropy_with_logits", "celu", "channel_shuffle", "conv1d",
    "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "cosine_embedding_loss",
    "cosine_similarity", "cross_entropy", "ctc_loss", "dropout", "dropout1d", "dropout2d", "dropout3d", "elu",
    "embedding", "embedding_bag", "feature_alpha_dropout", "fold", "fractional_max_pool2d", "fractional_max_pool3d",
    "gaussian_nll_loss", "gelu", "glu", "grid_sample", "group_norm", "gumbel_softmax", "hardshrink", "hardsigmoid",
    "hardswish", "hardtanh", "hinge_embedding_loss", "huber_loss", "instance_norm", "interpolate", "kl_div", "l1_loss",
    "layer_norm", "leaky_relu", "linear", "local_response_norm", "log_softmax", "logsigmoid", "lp_pool1d", "lp_pool2d",
    "lp_pool3d", "margin_ranking_loss", "max_pool1d", "max_pool2d", "max_pool3d", "max_unpool1d", "max_unpool2d",
    "max_unpool3d", "mish", "mse_loss", "multi_head_attention_forward", "multi_margin_loss", "multilabel_margin_loss",
    "multilabel_soft_margin_loss", "nll_loss", "normalize", "one_hot", "pad", "pairwise_distance", "pdist",
    "pixel_shuffle", "pixel_unshuffle", "poisson_nll_loss", "prelu", "relu", "relu6", "rms_norm", "rrelu",
    "scaled_dot_product_attention", "selu", "sigmoid", "silu", "smooth_l1_loss", "soft_margin_loss", "softmax",
    "softmin", "softplus", "softshrink", "softsign", "tanh", "tanhshrink", "threshold", "triplet_margin_loss",
    "triplet_margin_with_distance_loss", "unfold", "upsample", "upsample_bilinear", "upsample_nearest",
]  # fmt: skip

# Updates in place, under PyTorch's names with an underscore.
celu_, elu_, hardtanh_, leaky_relu_, relu_, rrelu_, selu_, threshold_ = IN_PLACE_FORMS.values()
__all__ += list(IN_PLACE_FORMS)


def one_hot(tensor: ArrayLike, num_classes: int = -1) -> Array:
    """Encode each integer k as a row of `num_classes` integers, 1 at k and 0 elsewhere.

    RuntimeError for an integer that is negative or too large. In `vmap`, where no integer is known, such an integer has
    a row of zeros, as in PyTorch.

    >>> one_hot(np.array([1, 0]), 3).tolist()
    [[0, 1, 0], [1, 0, 0]]
    """
    x = one(tensor)
    if x.dtype.kind not in "iu":
        raise RuntimeError(located("one_hot is only applicable to index tensor of type LongTensor."))
    n = _number_of_classes(x, num_classes)
    classes = moves.arange(start=0, step=1, length=n, dtype=x.dtype.name)
    return cast(equal(reshape(x, shape=(*x.shape, 1)), classes), dtype="int64")


def _number_of_classes(x: Array, num_classes: int) -> int:
    if not _is_known(x):
        if num_classes <= 0:
            text = (
                "When vmap-ing torch.nn.functional.one_hot, please provide an explicit positive num_classes argument."
            )
            raise RuntimeError(located(text))
        return num_classes
    if not math.prod(x.shape):
        if num_classes <= 0:
            raise RuntimeError(located("Can not infer total number of classes from empty tensor."))
        return num_classes
    if int(amin(x)) < 0:
        raise RuntimeError(located("Class values must be non-negative."))
    largest = int(amax(x))
    if num_classes != -1 and largest >= num_classes:
        raise RuntimeError(located("Class values must be smaller than num_classes."))
    return largest + 1 if num_classes == -1 else num_classes


def _is_known(x: Array) -> bool:
    """Whether the value can be queried: it is not one example of a `vmap`."""
    held = getattr(x, "array", x)
    builder = getattr(held, "builder", None)
    return builder is None or builder.innermost().knows(held)


# -- padding -------------------------------------------------------------------------------------------------------
_NUMPY_MODE = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}
_NODE = {"reflect": "ReflectionPad", "replicate": "ReplicationPad"}


def pad(input: ArrayLike, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Any:
    """Add elements at the ends of the last dimensions.

    `pad` has a pair of counts for the last dimension, then a pair for the dimension before it, and so on. A negative
    count removes elements. In mode "constant" the new elements are `value`, or 0; in the other modes they are elements
    of the input.

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


def _padded(x: Array, pairs: list[tuple[int, int]], value: float) -> Array:
    for k, (before, after) in enumerate(pairs):
        if before < 0 or after < 0:
            n = x.shape[k]
            if n + before + after < 0 or n + min(before, 0) + min(after, 0) < 0:
                raise size_error(f"The input size {n}, plus negative padding {before} and {after}, is negative")
            x = along(x, k, max(-before, 0), n - max(-after, 0))
    low, high = (tuple(max(pair[end], 0) for pair in pairs) for end in (0, 1))
    value = np.asarray(value).astype(x.dtype).item()
    return moves.pad(x, low=low, high=high, interior=(0,) * len(x.shape), value=value)


def _repeated(x: Array, pairs: list[tuple[int, int]], mode: str) -> Array:
    if mode == "wrap":  # elements that are cut off are not repeated
        return numpy_pad(_cut(x, pairs), _positive(pairs), mode)
    return _cut(numpy_pad(x, _positive(pairs), mode), pairs)


def _positive(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return [(max(before, 0), max(after, 0)) for before, after in pairs]


def _cut(x: Array, pairs: list[tuple[int, int]]) -> Array:
    for k, (before, after) in enumerate(pairs):
        if before < 0 or after < 0:
            x = along(x, k, max(-before, 0), x.shape[k] - max(-after, 0))
    return x


FUNCTION_DOCS.document(globals(), __all__)
