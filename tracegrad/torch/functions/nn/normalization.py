"""Normalization functions: to mean 0 and variance 1 (batch, layer, group), or to unit length."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.errors import located
from tracegrad.ops.core.op import named
from tracegrad.ops.elementwise.table import add, divide, multiply, power, rsqrt, square, subtract
from tracegrad.ops.reduce import reductions as reduction
from tracegrad.ops.shape.linear import broadcast_to, cast, reduce_sum, reshape, stop_gradient, unreduce
from tracegrad.torch.functions.core.dims import integers, lengths, one, size_error
from tracegrad.torch.functions.core.operands import as_node, floating
from tracegrad.torch.functions.core.out import store
from tracegrad.torch.functions.core.promotion import require_one_dtype
from tracegrad.torch.functions.math import reductions
from tracegrad.torch.functions.math.pointwise import clamp_min
from tracegrad.torch.functions.nn.windows import padded_by
from tracegrad.typing import Array, ArrayLike

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Operand


def _standard(x: Array, axes: tuple[int, ...], eps: float) -> Array:
    """Shift and scale `x` to mean 0 and variance 1 over `axes`."""
    centred = subtract(x, unreduce(reduction.mean(x, axes=axes), x.shape, axes))
    scale = rsqrt(add(reduction.var(x, axes=axes, ddof=0), eps))
    return multiply(centred, unreduce(scale, x.shape, axes))


def _scaled(x: Array, weight: Array, bias: Array, shape: tuple[int, ...]) -> Array:
    """Compute `x * weight + bias`, either of which may be None, after reshaping them to `shape`."""
    x = x if weight is None else multiply(x, reshape(weight, shape=shape))
    return x if bias is None else add(x, reshape(bias, shape=shape))


def _checked_params(x: Array, *values: Any) -> list[Operand | None]:
    """Convert parameters to the dtype of the input `x`, unless it is float16."""
    if x.dtype.name != "float16":
        for v in values:
            require_one_dtype(x, v, "mixed dtype (CPU): expect parameter to have scalar type of {A}")
    return [None if v is None else one(v) for v in values]


# -- over the last dimensions --------------------------------------------------------------------------------------
def normalize(input: Array, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Array:
    """Divide by the p-norm along `dim`, or by `eps` if the norm is smaller.

    >>> normalize(np.array([[3.0, 4.0]])).tolist()
    [[0.6, 0.8]]
    """
    x = floating(input)
    length = clamp_min(reductions.norm(x, p, dim, keepdim=True), eps)
    return divide(x, named("ExpandBackward0", broadcast_to(length, shape=x.shape)))


def _last(
    input: Array, normalized_shape: Sequence[int], **parameters: Any
) -> tuple[Array, tuple[int, ...], list[Array | None]]:
    """Return the input, the checked `normalized_shape`, and the parameters, whose shapes must be equal to it."""
    shape = integers((normalized_shape,))
    x = floating(input)
    for name, v in parameters.items():
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
    return x, shape, list(parameters.values())


def layer_norm(
    input: Array,
    normalized_shape: Sequence[int],
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-5,
) -> Array:
    """Normalize the last dimensions to mean 0 and variance 1 (Ba et al. 2016, "Layer Normalization").

    The result is multiplied by `weight`, and `bias` is added. RuntimeError if the shapes do not fit.

    >>> layer_norm(np.array([[1.0, 3.0]]), (2,), eps=0.0).tolist()
    [[-1.0, 1.0]]
    """
    x, shape, rest = _last(input, normalized_shape, weight=weight, bias=bias)
    return as_node("NativeLayerNormBackward0", _layer_norm, x, *_checked_params(x, *rest), len(shape), eps)


def _layer_norm(x: Array, weight: Array, bias: Array, count: int, eps: float) -> Array:
    out = _standard(x, tuple(range(len(x.shape) - count, len(x.shape))), eps)
    out = out if weight is None else multiply(out, weight)
    return out if bias is None else add(out, bias)


def rms_norm(
    input: Array, normalized_shape: Sequence[int], weight: ArrayLike | None = None, eps: float | None = None
) -> Array:
    """Divide by the root mean square over the last dimensions (Zhang and Sennrich 2019).

    The result is multiplied by `weight`. The default of `eps` is the distance of 1 to the next number.

    >>> rms_norm(np.array([[3.0, 3.0]]), (2,), eps=0.0).tolist()
    [[1.0, 1.0]]
    """
    x, shape, (weight,) = _last(input, normalized_shape, weight=weight)
    scale = None if weight is None else one(weight)
    return as_node(
        "MulBackward0", _rms_norm, x, scale, len(shape), float(np.finfo(x.dtype).eps) if eps is None else eps
    )


def _rms_norm(x: Array, weight: Array, count: int, eps: float) -> Array:
    axes = tuple(range(len(x.shape) - count, len(x.shape)))
    scale = rsqrt(add(reduction.mean(square(x), axes=axes), eps))
    out = multiply(x, unreduce(scale, x.shape, axes))
    if weight is None:
        return out
    out = multiply(out, weight)
    return out if out.dtype == x.dtype or x.dtype.kind != "f" else cast(out, dtype=x.dtype.name)


# -- over channels, which are the second dimension -----------------------------------------------------------------
def _per_channel(x: Array) -> tuple[int, ...]:
    return (1, x.shape[1], *(1 for _ in x.shape[2:]))


def batch_norm(
    input: ArrayLike,
    running_mean: Array | None,
    running_var: Array | None,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Array:
    """Normalize each channel of an input (N, C, ...) to mean 0 and variance 1 (Ioffe and Szegedy 2015).

    The result is multiplied by `weight`, and `bias` is added. In training, the mean and the variance are those of the
    input, and they update `running_mean` and `running_var` with the share `momentum`. Otherwise these running
    statistics are used. RuntimeError if the sizes do not fit.

    >>> batch_norm(np.array([[1.0], [3.0]]), None, None, training=True, eps=0.0).tolist()
    [[-1.0], [1.0]]
    """
    x = floating(input)
    for name, v in (("running_mean", running_mean), ("running_var", running_var), ("weight", weight), ("bias", bias)):
        if v is None and not training and name.startswith("running"):
            raise RuntimeError(located("Expected running_mean and running_var to be defined when training=False"))
        if v is not None and math.prod(one(v).shape) != x.shape[1]:
            raise size_error(f"{name} should contain {x.shape[1]} elements not {math.prod(one(v).shape)}")
    scale, shift = _checked_params(x, weight, bias)
    if not training:
        mean, var = _checked_params(x, running_mean, running_var)
        return as_node("NativeBatchNormBackward0", _by_statistics, x, mean, var, scale, shift, eps)
    axes = (0, *range(2, len(x.shape)))
    count = math.prod(x.shape[k] for k in axes)
    if count == 1:
        raise ValueError(
            located(
                f"Expected more than 1 value per channel when training, got input size torch.Size({lengths(x.shape)})"
            )
        )
    if count:
        _mix(running_mean, running_var, x, axes, momentum)
    return as_node("NativeBatchNormBackward0", _by_batch, x, scale, shift, eps)


def _mix(
    running_mean: ArrayLike | None, running_var: ArrayLike | None, x: Array, axes: tuple[int, ...], momentum: float
) -> None:
    """Update the running statistics with the statistics of `x`."""
    still = stop_gradient(x)
    for running, op, params in ((running_mean, reduction.mean, {}), (running_var, reduction.var, {"ddof": 1})):
        if running is not None:
            new = op(still, axes=axes, **params)
            store(running, add(multiply(one(running), 1 - momentum), multiply(new, momentum)))


def _by_batch(x: Array, weight: Array, bias: Array, eps: float) -> Array:
    return _scaled(_standard(x, (0, *range(2, len(x.shape))), eps), weight, bias, _per_channel(x))


def _by_statistics(x: Array, mean: Array, var: Array, weight: Array, bias: Array, eps: float) -> Array:
    shape = _per_channel(x)
    centred = subtract(x, reshape(mean, shape=shape))
    return _scaled(multiply(centred, reshape(rsqrt(add(var, eps)), shape=shape)), weight, bias, shape)


def instance_norm(
    input: Array,
    running_mean: Array | None = None,
    running_var: Array | None = None,
    weight: object = None,
    bias: object = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Array:
    """Normalize each channel of each example to mean 0 and variance 1 (Ulyanov et al. 2016)."""
    x = floating(input)
    if not use_input_stats:
        return batch_norm(x, running_mean, running_var, weight, bias, False, momentum, eps)
    axes = tuple(range(2, len(x.shape)))
    if math.prod(x.shape[k] for k in axes) == 1:
        size = f"torch.Size({lengths(x.shape)})"
        raise ValueError(located(f"Expected more than 1 spatial element when training, got input size {size}"))
    still = stop_gradient(x)
    for running, op, params in ((running_mean, reduction.mean, {}), (running_var, reduction.var, {"ddof": 1})):
        if running is not None:
            new = reduction.mean(op(still, axes=axes, **params), axes=(0,))
            store(running, add(multiply(one(running), 1 - momentum), multiply(new, momentum)))
    return as_node("ViewBackward0", _by_example, x, *_checked_params(x, weight, bias), eps)


def _by_example(x: Array, weight: Array, bias: Array, eps: float) -> Array:
    return _scaled(_standard(x, tuple(range(2, len(x.shape))), eps), weight, bias, _per_channel(x))


def group_norm(input: Array, num_groups: int, weight: object = None, bias: object = None, eps: float = 1e-5) -> Array:
    """Normalize groups of channels of each example to mean 0 and variance 1 (Wu and He 2018).

    The input is (N, C, ...). The result is multiplied by `weight`, and `bias` is added. RuntimeError if the channels
    cannot be divided into `num_groups` groups.

    >>> group_norm(np.array([[1.0, 3.0, 2.0, 6.0]]), 2, eps=0.0).tolist()
    [[-1.0, 1.0, -1.0, 1.0]]
    """
    x = floating(input)
    if len(x.shape) < 2:
        raise size_error(f"Expected at least 2 dimensions for input tensor but received {len(x.shape)}")
    if x.shape[1] % num_groups:
        raise size_error(
            "Expected number of channels in input to be divisible by num_groups, but got input of shape "
            f"{lengths(x.shape)} and num_groups={num_groups}"
        )
    return as_node("NativeGroupNormBackward0", _group_norm, x, *_checked_params(x, weight, bias), num_groups, eps)


def _group_norm(x: Array, weight: Array, bias: Array, groups: int, eps: float) -> Array:
    grouped = reshape(x, shape=(x.shape[0], groups, math.prod(x.shape[1:]) // groups))
    return _scaled(reshape(_standard(grouped, (2,), eps), shape=x.shape), weight, bias, _per_channel(x))


def local_response_norm(input: Array, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Array:
    """Divide by (k + alpha * m)**beta, where m is the mean of squares of neighbouring channels.

    The input is (N, C, ...). Source: Krizhevsky et al. 2012.
    """
    x = floating(input)
    return as_node("DivBackward0", _local_response_norm, x, size, alpha, beta, k)


def _local_response_norm(x: Array, size: int, alpha: float, beta: float, k: float) -> Array:
    n, rest = x.shape[1], math.prod(x.shape[2:])
    squares = reshape(square(x), shape=(x.shape[0], 1, n, rest))
    padded = padded_by(squares, (size // 2, 0), ((size - 1) // 2, 0), 0.0)
    windows = np.arange(n)[:, None] + np.arange(size)
    mean = divide(reduce_sum(padded[:, 0][:, windows], axes=(2,)), float(size))
    return divide(x, reshape(power(add(multiply(mean, alpha), k), beta), shape=x.shape))
