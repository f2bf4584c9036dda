"""Losses of `torch.nn.functional`, with PyTorch's signatures: `reduction` is "mean", "sum" or "none"."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

from tracegrad.errors import located
from tracegrad.numpy_api.operands import arrays, broadcast_arrays, promoted, size_of, to_float
from tracegrad.ops.core.op import Carrier, bind, named, one_node
from tracegrad.ops.elementwise.table import (
    absolute,
    add,
    divide,
    equal,
    exp,
    less,
    less_equal,
    logaddexp,
    multiply,
    negative,
    square,
    subtract,
    where,
)
from tracegrad.ops.indexing.gather_scatter import gather
from tracegrad.ops.nn import activations, losses
from tracegrad.ops.reduce import reductions as reduction
from tracegrad.ops.shape.linear import cast, reduce_sum, reshape
from tracegrad.torch.functions.core.dims import lengths, one, size_error, type_name
from tracegrad.torch.functions.core.operands import alike, as_node, floating, in_floats, is_number, pair
from tracegrad.torch.functions.core.promotion import require_one_dtype
from tracegrad.torch.functions.math import reductions
from tracegrad.torch.functions.math.special import xlogy
from tracegrad.typing import Array, ArrayLike

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Operand
    from tracegrad.typing import DType


def checked(reduction: str) -> str:
    """Return `reduction`; ValueError if it is unknown."""
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(located(f"{reduction} is not a valid value for reduction"))
    return reduction


def mean_or_sum(loss: Array, how: str) -> Array:
    """Reduce the losses as `how` says: "mean", "sum" or "none"."""
    axes = tuple(range(len(loss.shape)))
    if how == "mean":
        return reduction.mean(loss, axes=axes)
    return reduce_sum(loss, axes=axes) if how == "sum" else loss


# -- of differences ------------------------------------------------------------------------------------------------
def _loss_operands(input: Array, target: Array) -> tuple[Array, Array]:
    """Convert input and target to one floating dtype; warn if their shapes differ."""
    x, y = pair(input, target)
    if not is_number(y) and x.dtype.kind == "f" and alike((x, y)) is not None:
        return x, y
    x, y = promoted(in_floats(arrays(x, y)))
    if x.shape != y.shape:
        warnings.warn(
            f"Using a target size ({y.shape}) that is different to the input size ({x.shape}). This "
            "will likely lead to incorrect results due to broadcasting. Please ensure they have the same size.",
            stacklevel=3,
        )
    return x, y


def _in_dtype_of(like: Array, *xs: Array) -> list[Array]:
    """Cast values to the dtype of `like` if it is a floating Tensor, for functions that do not promote."""
    if getattr(like, "common_dtype", None) is None or like.dtype.kind != "f":
        return list(xs)
    return [x if x.dtype == like.dtype else cast(x, dtype=like.dtype.name) for x in xs]


def mse_loss(input: Array, target: Array, *, reduction: str = "mean") -> Array:
    """(input - target)**2.

    >>> import numpy as np
    >>> mse_loss(np.array([1.0, 2.0]), np.array([1.0, 4.0])).item()
    2.0
    """
    if reduction == "mean" and input.__class__ is target.__class__ and isinstance(input, Carrier):
        shape = alike((input, target))
        if shape is not None and input.dtype.kind == "f":
            return bind(losses.mse_loss, (input, target), {"axes": reductions.axes_of(None, len(shape))})
    return _mse_loss(*_loss_operands(input, target), checked(reduction))


@one_node("MseLossBackward0")
def _mse_loss(x: Array, y: Array, how: str) -> Array:
    return mean_or_sum(square(subtract(x, y)), how)


def l1_loss(input: Array, target: Array, *, reduction: str = "mean") -> Array:
    """abs(input - target)."""
    x, y = _loss_operands(input, target)
    how, loss = checked(reduction), absolute(subtract(x, y))
    return loss if how == "none" else reductions.mean(loss) if how == "mean" else reductions.sum(loss)


def smooth_l1_loss(input: Array, target: Array, *, reduction: str = "mean", beta: float = 1.0) -> Array:
    """d**2 / (2 * beta) if abs(d) < beta, and abs(d) - beta / 2 otherwise, for d = input - target.

    Source: Girshick 2015, "Fast R-CNN". RuntimeError if `beta` is negative.
    """
    if beta < 0:
        raise RuntimeError(located("smooth_l1_loss does not support negative values for beta."))
    if beta == 0:
        return l1_loss(input, target, reduction=reduction)
    return _smooth_l1_loss(*_loss_operands(input, target), checked(reduction), beta)


@one_node("SmoothL1LossBackward0")
def _smooth_l1_loss(x: Array, y: Array, how: str, beta: float) -> Array:
    difference = subtract(x, y)
    size = absolute(difference)
    near = multiply(square(difference), 0.5 / beta)
    return mean_or_sum(where(less(size, beta), near, subtract(size, 0.5 * beta)), how)


def huber_loss(
    input: Array, target: Array, *, reduction: str = "mean", weight: Array | None = None, delta: float = 1.0
) -> Array:
    """d**2 / 2 if abs(d) <= delta, and delta * (abs(d) - delta / 2) otherwise, for d = input - target.

    Source: Huber 1964. RuntimeError if `delta` is not positive.
    """
    if delta <= 0:
        raise RuntimeError(located("huber_loss does not support non-positive values for delta."))
    how, (x, y) = checked(reduction), _loss_operands(input, target)
    x, y = _in_dtype_of(input, x, y)
    if weight is None:
        return _huber_loss(x, y, how, delta)
    return as_node("HuberLossBackward0", _weighted_huber_loss, x, y, floating(weight), how, delta)


@one_node("HuberLossBackward0")
def _huber_loss(x: Array, y: Array, how: str, delta: float) -> Array:
    return mean_or_sum(_huber(x, y, delta), how)


def _weighted_huber_loss(x: Array, y: Array, weight: Array, how: str, delta: float) -> Array:
    loss = multiply(_huber(x, y, delta), weight)
    return divide(mean_or_sum(loss, "sum"), mean_or_sum(weight, "sum")) if how == "mean" else mean_or_sum(loss, how)


def _huber(x: Array, y: Array, delta: float) -> Array:
    difference = subtract(x, y)
    size = absolute(difference)
    far = multiply(subtract(size, 0.5 * delta), delta)
    return where(less_equal(size, delta), multiply(square(difference), 0.5), far)


def cosine_similarity(x1: ArrayLike, x2: ArrayLike, dim: int = 1, eps: float = 1e-8) -> Array:
    """Return the cosine of the angle between vectors along `dim`; norms are at least `eps`."""
    x, y = broadcast_arrays("cosine_similarity", promoted(in_floats(arrays(x1, x2))))
    return reductions.sum(multiply(*(_unit(v, dim, eps) for v in (x, y))), dim)


def _unit(x: Array, dim: int, eps: float) -> Array:
    length = reductions.norm(x, 2, dim, keepdim=True)
    return divide(x, where(less(length, eps), eps, length))


# -- of probabilities ----------------------------------------------------------------------------------------------
def nll_loss(
    input: Array,
    target: Array,
    weight: Operand | None = None,
    size_average: None = None,
    ignore_index: int = -100,
    reduce: None = None,
    reduction: str = "mean",
) -> Array:
    """Return the negative log-likelihood, -input[n, target[n]].

    The log-probabilities are (N, C), (C,) or (N, C, d1, ...), and the classes are (N,), () or (N, d1, ...). The mean is
    weighted by `weight`. Elements of the class `ignore_index` are left out. IndexError for another class out of range.
    """
    require_one_dtype(input, weight, "expected scalar type {A} but found {B}")
    x, y = arrays(input, target)
    rank = len(x.shape)
    if not rank:
        raise ValueError(located("Expected 1 or more dimensions (got 0)"))
    _check_classes(x.shape, y.shape)
    name = "NllLossBackward0" if rank < 3 else "NllLoss2DBackward0"
    x, how = to_float(x), checked(reduction)
    try:
        skipped, classes, factor = _class_weights(cast(y, dtype="int64"), weight, ignore_index, x.dtype)
        factor = negative(divide(factor, mean_or_sum(factor, "sum")) if how == "mean" else factor)
        return as_node(name, _nll_loss, x, skipped, classes, factor, how)
    except IndexError:
        raise IndexError(located("a target is out of bounds")) from None


def _check_classes(shape: tuple[int, ...], of_target: tuple[int, ...]) -> None:
    axis = 0 if len(shape) == 1 else 1
    wanted = shape[:axis] + shape[axis + 1 :]
    if of_target == wanted:
        return
    if axis and of_target[:1] != shape[:1]:
        batch = of_target[0] if of_target else 0
        raise ValueError(located(f"Expected input batch_size ({shape[0]}) to match target batch_size ({batch})."))
    if len(shape) < 3:
        raise size_error("0D or 1D target tensor expected, multi-target not supported")
    raise size_error(f"Expected target size {lengths(wanted)}, got {lengths(of_target)}")


def _class_weights(y: Array, weight: Any, ignored: int, dtype: DType) -> tuple[Array, Array, Array]:
    """Return the ignored targets, the classes of the others (0 for ignored ones), and their weights (0 likewise)."""
    skipped = equal(y, ignored)
    classes = where(skipped, 0, y)
    if weight is None:
        return skipped, classes, cast(equal(skipped, False), dtype=dtype.name)
    return skipped, classes, where(skipped, 0.0, gather(one(weight), classes, axes=(0,)))


def _nll_loss(x: Array, skipped: Array, classes: Array, factor: Array, how: str) -> Array:
    picked = where(skipped, 0.0, reduction.pick(x, classes, axis=0 if len(x.shape) == 1 else 1))
    loss = multiply(picked, factor)
    if how == "mean" and not size_of(loss):
        return multiply(mean_or_sum(loss, "sum"), math.nan)
    return loss if how == "none" else mean_or_sum(loss, "sum")


def cross_entropy(
    input: ArrayLike,
    target: ArrayLike,
    weight: Operand | None = None,
    size_average: None = None,
    ignore_index: int = -100,
    reduce: None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Array:
    """Return the negative logarithm of the softmax over the classes, at the target classes.

    The classes are dimension 1, or dimension 0 of a vector. If the target has probabilities of the classes, the result
    is the average with these weights. With `label_smoothing` the target is mixed with the uniform distribution (Szegedy
    et al. 2016, "Rethinking the Inception Architecture"). RuntimeError if `label_smoothing` is not between 0 and 1.

    >>> import numpy as np
    >>> round(cross_entropy(np.array([[0.0, 0.0]]), np.array([1])).item(), 4)
    0.6931
    """
    if not 0.0 <= label_smoothing <= 1.0:
        raise RuntimeError(located(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}"))
    x, y = arrays(input, target)
    axis = 0 if len(x.shape) == 1 else 1
    logs = reductions.log_softmax(x, axis)
    if y.dtype.kind == "f":
        return _soft_cross_entropy(logs, y, weight, checked(reduction), label_smoothing, axis)
    loss = nll_loss(logs, y, weight, None, ignore_index, None, reduction)
    if not label_smoothing:
        return loss
    skipped, _, factor = _class_weights(y, weight, ignore_index, logs.dtype)
    smooth = as_node("SumBackward1", _smooth_loss, logs, weight, skipped, axis, reduction)
    if reduction == "mean":
        smooth = divide(smooth, mean_or_sum(factor, "sum"))
    return add(multiply(loss, 1 - label_smoothing), multiply(smooth, label_smoothing / logs.shape[axis]))


def _smooth_loss(logs: Array, weight: ArrayLike, skipped: Array, axis: int, how: str) -> Array:
    weighted = logs if weight is None else multiply(logs, _by_class(one(weight), logs.shape, axis))
    loss = where(skipped, 0.0, negative(reduce_sum(weighted, axes=(axis,))))
    return mean_or_sum(loss, "sum" if how == "mean" else how)


def _by_class(weight: Array, shape: tuple[int, ...], axis: int) -> Array:
    return reshape(weight, shape=tuple(shape[axis] if k == axis else 1 for k in range(len(shape))))


def _soft_cross_entropy(logs: Array, y: Array, weight: Any, how: str, smoothing: float, axis: int) -> Array:
    if y.shape != logs.shape:
        _check_classes(logs.shape, y.shape)
        raise RuntimeError(located(f"expected scalar type Long but found {type_name(y.dtype)}"))
    if smoothing:
        y = add(multiply(y, 1 - smoothing), smoothing / logs.shape[axis])
    product = multiply(logs, y)
    if weight is not None:
        product = multiply(product, _by_class(one(weight), logs.shape, axis))
    if how == "none":
        return negative(reductions.sum(product, axis))
    total = negative(reductions.sum(product))
    if how == "sum":
        return total
    return named("DivBackward1", divide(total, size_of(logs) / logs.shape[axis]))


def binary_cross_entropy(
    input: Array,
    target: Array,
    weight: Array | None = None,
    size_average: None = None,
    reduce: None = None,
    reduction: str = "mean",
) -> Array:
    """-(target * log(input) + (1 - target) * log(1 - input)); the logarithms are at least -100.

    ValueError if the shapes differ.
    """
    require_one_dtype(target, input, "Found dtype {A} but expected {B}")
    x, y = promoted(in_floats(arrays(input, target)))
    if x.shape != y.shape:
        raise ValueError(
            located(
                f"Using a target size ({y.shape}) that is different to the input size ({x.shape}) is "
                "deprecated. Please ensure they have the same size."
            )
        )
    weight = None if weight is None else floating(weight)
    loss = as_node("BinaryCrossEntropyBackward0", _binary_cross_entropy, x, y, weight, checked(reduction))
    return _in_dtype_of(input, loss)[0]


def _binary_cross_entropy(x: Array, y: Array, weight: Array, how: str) -> Array:
    loss = activations.binary_cross_entropy(x, y)
    return mean_or_sum(loss if weight is None else multiply(loss, weight), how)


def binary_cross_entropy_with_logits(
    input: ArrayLike,
    target: Array,
    weight: ArrayLike | None = None,
    size_average: None = None,
    reduce: None = None,
    reduction: str = "mean",
    pos_weight: ArrayLike | None = None,
) -> Array:
    """`binary_cross_entropy` of sigmoid(input), without overflow.

    The term with the target is multiplied by `pos_weight`. ValueError if the shapes differ.

    >>> import numpy as np
    >>> binary_cross_entropy_with_logits(np.array([1000.0, -1000.0]), np.array([1.0, 1.0]), reduction="none").tolist()
    [0.0, 1000.0]
    """
    x, y = promoted(in_floats(arrays(input, target)))
    if x.shape != y.shape:
        raise ValueError(located(f"Target size ({y.shape}) must be the same as input size ({x.shape})"))
    weight, pos_weight = (None if v is None else floating(v) for v in (weight, pos_weight))
    name = "BinaryCrossEntropyWithLogitsBackward0"
    return _in_dtype_of(target, as_node(name, _with_logits, x, y, weight, pos_weight, checked(reduction)))[0]


def _with_logits(x: Array, y: Array, weight: Array, pos_weight: Array | None, how: str) -> Array:
    tail = logaddexp(negative(x), 0.0)
    if pos_weight is not None:
        tail = multiply(tail, add(multiply(subtract(pos_weight, 1), y), 1))
    loss = add(multiply(subtract(1, y), x), tail)
    return mean_or_sum(loss if weight is None else multiply(loss, weight), how)


def kl_div(
    input: ArrayLike,
    target: ArrayLike,
    size_average: None = None,
    reduce: None = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Array:
    """target * (log(target) - input), for log-probabilities `input`.

    `reduction` may also be "batchmean": the sum divided by the size of dimension 0.
    """
    x, y = promoted(in_floats(arrays(input, target)))
    loss = multiply(exp(y), subtract(y, x)) if log_target else subtract(xlogy(y, y), multiply(y, x))
    if reduction == "batchmean":
        return divide(reductions.sum(loss), float(x.shape[0] if x.shape else 1))
    how = checked(reduction)
    return loss if how == "none" else reductions.mean(loss) if how == "mean" else reductions.sum(loss)
