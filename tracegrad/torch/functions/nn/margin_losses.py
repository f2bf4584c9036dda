"""Margin losses of scores and distances, and negative log likelihoods, of `torch.nn.functional`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad.errors import located
from tracegrad.numpy_api.operands import arrays, promoted
from tracegrad.ops.elementwise.table import (
    add,
    divide,
    equal,
    exp,
    greater,
    log,
    log1p,
    logical_and,
    logical_not,
    minimum,
    multiply,
    negative,
    not_equal,
    sqrt,
    square,
    subtract,
    where,
)
from tracegrad.ops.indexing.gather_scatter import gather
from tracegrad.ops.shape.linear import cast, reshape, stop_gradient
from tracegrad.torch.functions.core.dims import lengths, size_error
from tracegrad.torch.functions.core.operands import as_node, floating, in_floats
from tracegrad.torch.functions.core.registry import FUNCTIONS
from tracegrad.torch.functions.math import reductions
from tracegrad.torch.functions.math.pointwise import clamp_min
from tracegrad.torch.functions.nn.activations import logsigmoid
from tracegrad.torch.functions.nn.attention import pairwise_distance
from tracegrad.torch.functions.nn.losses import checked, mean_or_sum
from tracegrad.typing import Array, ArrayLike


def _floats(*xs: ArrayLike) -> list[Any]:
    return promoted(in_floats(arrays(*xs)))


def margin_ranking_loss(
    input1: Array,
    input2: Array,
    target: Array,
    margin: float = 0,
    size_average: None = None,
    reduce: None = None,
    reduction: str = "mean",
) -> Array:
    """max(0, margin - target * (input1 - input2)).

    The target is 1 if the first input is to be the larger one, and -1 otherwise.
    """
    x, y, t = _floats(input1, input2, target)
    if not len(x.shape) == len(y.shape) == len(t.shape):
        raise size_error(
            "margin_ranking_loss : All input tensors should have same dimension but got sizes: "
            f"input1: {x.shape}, input2: {y.shape}, target: {t.shape} "
        )
    return mean_or_sum(clamp_min(add(multiply(negative(t), subtract(x, y)), margin), 0), checked(reduction))


def hinge_embedding_loss(
    input: Array,
    target: Array,
    margin: float = 1.0,
    size_average: None = None,
    reduce: None = None,
    reduction: str = "mean",
) -> Array:
    """`input` for the target 1, and max(0, margin - input) for the target -1."""
    x, t = _floats(input, target)
    dissimilar = where(not_equal(t, 1), clamp_min(subtract(margin, x), 0), 0.0)
    return mean_or_sum(add(dissimilar, where(not_equal(t, -1), x, 0.0)), checked(reduction))


def cosine_embedding_loss(
    input1: Array,
    input2: Array,
    target: Array,
    margin: float = 0,
    size_average: None = None,
    reduce: None = None,
    reduction: str = "mean",
) -> Array:
    """1 - cos for the target 1, and max(0, cos - margin) for the target -1.

    cos is the cosine of the angle between vectors, or between rows of matrices.
    """
    x, y, t = _floats(input1, input2, target)
    if len(t.shape) > 1:
        raise size_error("0D or 1D target tensor expected, multi-target not supported")
    along = len(t.shape)
    lengths = multiply(*(add(reductions.sum(square(v), along), 1e-12) for v in (x, y)))
    cosine = divide(reductions.sum(multiply(x, y), along), sqrt(lengths))
    dissimilar = where(equal(t, -1), clamp_min(subtract(cosine, margin), 0), 0.0)
    return mean_or_sum(add(where(equal(t, 1), subtract(1, cosine), 0.0), dissimilar), checked(reduction))


def triplet_margin_loss(
    anchor: Array,
    positive: Array,
    negative: Array,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: None = None,
    reduce: None = None,
    reduction: str = "mean",
) -> Array:
    """max(0, margin + d(anchor, positive) - d(anchor, negative)), for the p-norm d of a difference.

    With `swap`, d(positive, negative) is used if it is smaller than d(anchor, negative).
    """
    if margin <= 0:
        raise ValueError(located(f"margin must be greater than 0, got {margin}"))
    near, far = (pairwise_distance(anchor, x, p, eps) for x in (positive, negative))
    if swap:
        far = minimum(far, pairwise_distance(positive, negative, p, eps))
    return mean_or_sum(clamp_min(subtract(add(margin, near), far), 0), checked(reduction))


def soft_margin_loss(
    input: Array, target: Array, size_average: None = None, reduce: None = None, reduction: str = "mean"
) -> Array:
    """log(1 + exp(-target * input)), for targets of 1 and -1."""
    x, t = _floats(input, target)
    return mean_or_sum(log1p(exp(multiply(negative(t), x))), checked(reduction))


def poisson_nll_loss(
    input: Array,
    target: Array,
    log_input: bool = True,
    full: bool = False,
    size_average: None = None,
    eps: float = 1e-8,
    reduce: None = None,
    reduction: str = "mean",
) -> Array:
    """Return the negative logarithm of a Poisson probability of `target`, whose mean is exp(input).

    Without `log_input`, the mean is `input`. The part that depends on the target only is left out, unless `full`: then
    Stirling's approximation is added for targets above 1.
    """
    x, t = _floats(input, target)
    loss = subtract(exp(x), multiply(t, x)) if log_input else subtract(x, multiply(t, log(add(x, eps))))
    if full:
        above_one = greater(t, 1)
        n = where(above_one, t, 1.0)
        stirling = add(subtract(multiply(n, log(n)), n), multiply(0.5, log(multiply(2 * math.pi, n))))
        loss = add(loss, where(above_one, stirling, 0.0))
    return mean_or_sum(loss, checked(reduction))


def gaussian_nll_loss(
    input: Array, target: Array, var: ArrayLike, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Array:
    """Return the negative logarithm of a Gaussian density of `target` with mean `input` and variance `var`.

    The variance is clamped to at least `eps`, without an effect on its derivative. With `full`, log(2 pi) / 2 is added.
    """
    x, t, v = _floats(input, target, var)
    if v.shape != x.shape and v.shape == x.shape[:-1]:
        v = v.reshape((*v.shape, 1))
    v = add(v, stop_gradient(subtract(clamp_min(v, eps), v)))
    loss = multiply(0.5, add(log(v), divide(square(subtract(x, t)), v)))
    return mean_or_sum(add(loss, 0.5 * math.log(2 * math.pi)) if full else loss, checked(reduction))


def _scores(name: str, input: Array, target: Array, shape: tuple[int, ...]) -> None:
    if len(input.shape) not in (1, 2) or tuple(target.shape) != shape:
        raise RuntimeError(
            located(
                f"{name}: inconsistent target size: {lengths(target.shape)} for input of size: {lengths(input.shape)}"
            )
        )


def multi_margin_loss(
    input: Array,
    target: Array,
    p: int = 1,
    margin: float = 1.0,
    weight: Array | None = None,
    size_average: None = None,
    reduce: None = None,
    reduction: str = "mean",
) -> Array:
    """Sum of max(0, margin - x[y] + x[i])**p over the classes i except the target y, divided by their number.

    The scores x are (N, C) or (C,), and the targets (N,) or (). ValueError unless p is 1 or 2.
    """
    if p not in (1, 2):
        raise ValueError(located("only p == 1 and p == 2 supported"))
    x, y = arrays(input, target)
    x = x if x.shape else reshape(x, shape=(1,))
    if len(x.shape) == 1 and y.shape == (1,):
        y = reshape(y, shape=())
    _scores("multi_margin_loss", x, y, x.shape[:-1])
    how = checked(reduction)
    weight = None if weight is None else floating(weight)
    if weight is not None and len(weight.shape) != 1:
        raise ValueError(located("weight must be one-dimensional"))
    if weight is not None and weight.shape != x.shape[-1:]:
        raise size_error(f"inconsistent weight size, expected {x.shape[-1]} but got {list(weight.shape)}")
    return mean_or_sum(as_node("MultiMarginLossBackward0", _multi_margin_loss, floating(x), y, p, margin, weight), how)


def _multi_margin_loss(x: Array, y: Array, p: int, margin: float, weight: Array) -> Array:
    index = reshape(y, shape=(*y.shape, 1))
    terms = clamp_min(add(subtract(x, FUNCTIONS["take_along_dim"](x, index, -1)), margin), 0)
    terms = square(terms) if p == 2 else terms
    terms = where(equal(index, np.arange(x.shape[-1])), 0.0, terms)
    terms = terms if weight is None else multiply(terms, gather(weight, index, axes=(0,)))
    return divide(reductions.sum(terms, -1), x.shape[-1])


def multilabel_margin_loss(
    input: Array, target: Array, size_average: None = None, reduce: None = None, reduction: str = "mean"
) -> Array:
    """Sum of max(0, 1 - (x[j] - x[i])) over the target classes j and the other classes i, divided by C.

    The scores x are (N, C) or (C,). The targets are class numbers of the same shape; those from the first -1 on are
    ignored.
    """
    x, y = (v if v.shape else reshape(v, shape=(1,)) for v in arrays(input, target))
    _scores("multilabel_margin_loss", x, y, x.shape)
    how = checked(reduction)
    return mean_or_sum(as_node("MultilabelMarginLossBackward0", _multilabel_margin_loss, floating(x), y), how)


def _multilabel_margin_loss(x: Array, y: Array) -> Array:
    counts = FUNCTIONS["cumprod"](cast(greater(y, -1), dtype="int64"), -1)
    index = where(equal(counts, 1), y, 0)
    column = (*y.shape, 1)
    used = reshape(equal(counts, 1), shape=column)
    hits = logical_and(used, equal(reshape(index, shape=column), np.arange(x.shape[-1])))
    others = logical_not(FUNCTIONS["any"](hits, -2))
    scores = reshape(FUNCTIONS["take_along_dim"](x, index, -1), shape=column)
    row = (*x.shape[:-1], 1, x.shape[-1])
    terms = clamp_min(add(subtract(reshape(x, shape=row), scores), 1), 0)
    paired = logical_and(used, reshape(others, shape=row))
    return divide(reductions.sum(where(paired, terms, 0.0), (-2, -1)), x.shape[-1])


def multilabel_soft_margin_loss(
    input: Array,
    target: Array,
    weight: Array | None = None,
    size_average: None = None,
    reduce: None = None,
    reduction: str = "mean",
) -> Array:
    """Mean over the classes of the binary cross entropy of sigmoid(input) and the targets, which are 0 or 1."""
    x, t = _floats(input, target)
    loss = negative(add(multiply(t, logsigmoid(x)), multiply(subtract(1, t), logsigmoid(negative(x)))))
    loss = loss if weight is None else multiply(loss, floating(weight))
    return mean_or_sum(reductions.mean(loss, -1), checked(reduction))


def triplet_margin_with_distance_loss(
    anchor: ArrayLike,
    positive: ArrayLike,
    negative: ArrayLike,
    *,
    distance_function: Callable[..., Array] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Array:
    """max(0, margin + d(anchor, positive) - d(anchor, negative)), for any distance d; by default the 2-norm.

    With `swap`, d(positive, negative) is used if it is smaller. ValueError unless the margin is positive.
    """
    if margin <= 0:
        raise ValueError(located(f"margin must be greater than 0, got {margin}"))
    distance = pairwise_distance if distance_function is None else distance_function
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = minimum(far, distance(positive, negative))
    return mean_or_sum(clamp_min(add(subtract(near, far), margin), 0), checked(reduction))
