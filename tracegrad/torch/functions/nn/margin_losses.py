"""Margin losses and negative log likelihoods of distributions, of `torch.nn.functional`."""

from __future__ import annotations

import math
from typing import Any

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
    minimum,
    multiply,
    negative,
    not_equal,
    sqrt,
    square,
    subtract,
    where,
)
from tracegrad.ops.shape.linear import stop_gradient
from tracegrad.torch.functions.core.dims import size_error
from tracegrad.torch.functions.core.operands import in_floats
from tracegrad.torch.functions.math import reductions
from tracegrad.torch.functions.math.pointwise import clamp_min
from tracegrad.torch.functions.nn.attention import pairwise_distance
from tracegrad.torch.functions.nn.losses import checked, mean_or_sum
from tracegrad.typing import Array, ArrayLike


def _floats(*xs: ArrayLike) -> list[Any]:
    return promoted(in_floats(arrays(*xs)))


def margin_ranking_loss(
    input1: Any,
    input2: Any,
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
    input1: Any,
    input2: Any,
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
    input: Array, target: Array, var: Any, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
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
