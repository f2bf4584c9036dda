"""Activations of `torch.nn.functional`; at a kink the derivative is PyTorch's.

All except `relu` convert integers to float64, and return an array of the same shape. `inplace=True` updates the input.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.errors import located
from tracegrad.numpy_api.joining import along
from tracegrad.numpy_api.operands import arrays
from tracegrad.ops.core.op import Carrier, named, one_node
from tracegrad.ops.elementwise.table import (
    absolute,
    add,
    divide,
    greater,
    greater_equal,
    less,
    less_equal,
    logaddexp,
    multiply,
    sigmoid,
    subtract,
    where,
)
from tracegrad.ops.elementwise.table import tanh as tanh_of
from tracegrad.ops.nn import activations
from tracegrad.ops.shape import linear
from tracegrad.torch.functions.core.dims import dim_of, one, size_error, type_name
from tracegrad.torch.functions.core.generator import stream
from tracegrad.torch.functions.core.operands import floating, in_floats, is_whole, pair
from tracegrad.torch.functions.core.promotion import require_one_dtype
from tracegrad.torch.functions.core.registry import FUNCTIONS
from tracegrad.torch.functions.math import reductions
from tracegrad.typing import Array, ArrayLike, DTypeLike, Results

if TYPE_CHECKING:
    from tracegrad.avals import Size


def updating(fn: Callable[..., Results]) -> Callable[..., Results]:
    """Add PyTorch's last argument, `inplace`, to `fn`."""

    count = fn.__code__.co_argcount - 1

    @functools.wraps(fn)
    def call(input: Any, *args: Size | float, inplace: bool = False, **kwargs: object) -> Any:
        if len(args) > count:
            *args, inplace = args  # type: ignore[assignment]
        result = fn(input, *args, **kwargs)
        if not inplace:
            return result
        if isinstance(input, Carrier):
            return input._update(result)  # type: ignore[attr-defined]
        input[...] = result
        return input

    return call


# -- rectifiers ----------------------------------------------------------------------------------------------------
@updating
def relu(input: ArrayLike) -> Array:
    """max(x, 0), with the derivative 0 at 0."""
    result: Array = activations.relu(one(input))
    return result


@updating
def leaky_relu(input: Array, negative_slope: float = 0.01) -> Array:
    """x for x > 0, and negative_slope * x otherwise."""
    result: Array = activations.leaky_relu(floating(input), negative_slope=float(negative_slope))
    return result


@updating
def rrelu(input: Array, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False) -> Array:
    """x for x > 0, and otherwise x times a slope: in training a random one in [lower, upper), else their mean.

    Source: B. Xu, N. Wang, T. Chen, M. Li, "Empirical evaluation of rectified activations in convolutional network",
    2015. RuntimeError if `lower` is above `upper`.
    """
    if lower > upper:
        raise RuntimeError(located("Lower bound should be less than or equal to the upper bound"))
    x = floating(input)
    factors = stream("rrelu").random(x.shape, np.float64) * (upper - lower) + lower if training else None
    return _rrelu(x, (lower + upper) / 2 if factors is None else factors.astype(x.dtype))


@one_node("RreluWithNoiseBackward0")
def _rrelu(x: Array, factors: Array | float) -> Array:
    x, y = pair(x, factors)
    return where(greater(x, 0.0), x, multiply(x, y))


@updating
def elu(input: Array, alpha: float = 1.0) -> Array:
    """x for x > 0, and alpha * (exp(x) - 1) otherwise."""
    result: Array = activations.elu(floating(input), alpha=float(alpha), scale=1.0, input_scale=1.0)
    return result


@updating
def selu(input: Array) -> Array:
    """`elu` with the scales that keep mean 0 and variance 1.

    Source: Klambauer et al. 2017, "Self-Normalizing Neural Networks".
    """
    result: Array = activations.elu(
        floating(input), alpha=1.6732632423543772, scale=1.0507009873554805, input_scale=1.0
    )
    return result


@updating
def celu(input: Array, alpha: float = 1.0) -> Array:
    """x for x > 0, and alpha * (exp(x / alpha) - 1) otherwise."""
    out = activations.elu(floating(input), alpha=float(alpha), scale=1.0, input_scale=1 / alpha)
    result: Array = named("CeluBackward0", out)
    return result


def prelu(input: Array, weight: Array) -> Array:
    """x for x > 0, and weight * x otherwise.

    The weight is one number, or one number for each channel, which is dimension 1.
    """
    require_one_dtype(input, weight, "prelu: Type promoting not supported. Got {A} and {B}")
    x, w = in_floats(arrays(input, weight))
    if not x.shape and w.shape == (1,):
        w = named("ViewBackward0", linear.reshape(w, shape=()))
    if w.shape not in ((), (1,)):
        if len(w.shape) != 1 or len(x.shape) < 2 or w.shape[0] != x.shape[1]:
            channels = x.shape[1] if len(x.shape) > 1 else 1
            raise size_error(
                f"Mismatch of parameter numbers and input channel size. Found parameter numbers = {math.prod(w.shape)} "
                f"and channel size = {channels}."
            )
        w = named("ViewBackward0", linear.reshape(w, shape=(w.shape[0], *(1 for _ in x.shape[2:]))))
    return _prelu(x, w)


@one_node("PreluKernelBackward0")
def _prelu(x: Array, w: Array) -> Array:
    return where(greater(x, 0), x, multiply(w, x))


# -- smooth ones ---------------------------------------------------------------------------------------------------
def gelu(input: Array, approximate: str = "none") -> Array:
    """x times the probability that a standard normal variable is below x.

    Source: Hendrycks and Gimpel 2016, "Gaussian Error Linear Units". RuntimeError for an unknown `approximate`.
    """
    if approximate not in ("none", "tanh"):
        raise RuntimeError(located("approximate argument must be either none or tanh."))
    result: Array = activations.gelu(floating(input), approximate=approximate)
    return result


@updating
def silu(input: Array) -> Array:
    """x * sigmoid(x)."""
    return activations.silu(floating(input))


@updating
def mish(input: Array) -> Array:
    """x * tanh(softplus(x))."""
    return _mish(floating(input))


@one_node("MishBackward0")
def _mish(x: Array) -> Array:
    return multiply(x, tanh_of(logaddexp(x, 0.0)))


def softplus(input: Array, beta: float = 1.0, threshold: float = 20.0) -> Array:
    """log(1 + exp(beta * x)) / beta, and x if beta * x is above `threshold`."""
    result: Array = activations.softplus(floating(input), beta=float(beta), threshold=float(threshold))
    return result


def logsigmoid(input: Array) -> Array:
    """log(sigmoid(x)), precise for all x."""
    result: Array = activations.log_sigmoid(floating(input))
    return result


def softsign(input: Array) -> Array:
    """x / (1 + |x|)."""
    x = floating(input)
    return divide(x, add(absolute(x), 1))


def tanhshrink(input: Array) -> Array:
    """x - tanh(x)."""
    x = floating(input)
    return subtract(x, tanh_of(x))


def sigmoid_(input: Array) -> Array:
    """1 / (1 + exp(-x))."""
    return sigmoid(floating(input))


def tanh_(input: Array) -> Array:
    """The hyperbolic tangent."""
    return tanh_of(floating(input))


def glu(input: Array, dim: int = -1) -> Array:
    """Multiply the first half along `dim` by the sigmoid of the second half.

    RuntimeError if the length is odd.
    """
    x = floating(input)
    if not x.shape:
        raise size_error("glu does not support scalars because halving size must be even")
    k = dim_of(dim, len(x.shape))
    if x.shape[k] % 2:
        raise size_error(f"Halving dimension must be even, but dimension {k} is size {x.shape[k]}")
    return _glu(x, k)


@one_node("GluBackward0")
def _glu(x: Array, dim: int) -> Array:
    half = x.shape[dim] // 2
    return multiply(along(x, dim, 0, half), sigmoid(along(x, dim, half, 2 * half)))


# -- in pieces -----------------------------------------------------------------------------------------------------
@updating
def hardtanh(input: Array, min_val: float = -1.0, max_val: float = 1.0) -> Array:
    """Clamp x to at least min_val and at most max_val, with derivative 0 on these bounds."""
    if min_val > max_val:
        raise ValueError(located("min_val cannot be greater than max_val"))
    return _bounded(input, min_val, max_val)


def _bounded(input: Array, low: float, high: float) -> Array:
    if is_whole(input):
        return _hardtanh(input, int(low), int(high))
    return _hardtanh(floating(input), low, high)


@one_node("HardtanhBackward0")
def _hardtanh(x: Array, low: float, high: float) -> Array:
    return where(less_equal(x, low), low, where(greater_equal(x, high), high, x))


@updating
def relu6(input: Array) -> Array:
    """min(max(x, 0), 6)."""
    return _bounded(input, 0.0, 6.0)


@updating
def hardsigmoid(input: Array) -> Array:
    """min(max(x + 3, 0), 6) / 6."""
    return _hardsigmoid(floating(input))


@one_node("HardsigmoidBackward0")
def _hardsigmoid(x: Array) -> Array:
    return where(less_equal(x, -3), 0.0, where(greater_equal(x, 3), 1.0, divide(add(x, 3), 6)))


@updating
def hardswish(input: Array) -> Array:
    """x * hardsigmoid(x)."""
    return _hardswish(floating(input))


@one_node("HardswishBackward0")
def _hardswish(x: Array) -> Array:
    return where(less_equal(x, -3), 0.0, where(greater_equal(x, 3), x, divide(multiply(x, add(x, 3)), 6)))


def hardshrink(input: Array, lambd: float = 0.5) -> Array:
    """0 for abs(x) <= lambd, and x otherwise."""
    return _hardshrink(floating(input), lambd)


@one_node("HardshrinkBackward0")
def _hardshrink(x: Array, lambd: float) -> Array:
    return where(less_equal(absolute(x), lambd), 0.0, x)


def softshrink(input: Array, lambd: float = 0.5) -> Array:
    """0 for abs(x) <= lambd, and x moved towards 0 by lambd otherwise.

    RuntimeError if lambd is negative.
    """
    x = floating(input)
    if lambd < 0:
        largest = np.finfo(x.dtype).max
        raise RuntimeError(
            located(
                f"lambda must be in range [0, {largest:g}] for input dtype {type_name(x.dtype)}, but found {lambd:g}"
            )
        )
    return _softshrink(x, lambd)


@one_node("SoftshrinkBackward0")
def _softshrink(x: Array, lambd: float) -> Array:
    return where(greater(x, lambd), subtract(x, lambd), where(less(x, -lambd), add(x, lambd), multiply(x, 0.0)))


@updating
def threshold(input: ArrayLike, threshold: float, value: float) -> Array:
    """x for x > threshold, and `value` otherwise."""
    x = one(input)
    if is_whole(x):
        threshold, value = int(threshold), int(value)
    return _threshold(x, threshold, value)


@one_node("ThresholdBackward0")
def _threshold(x: Array, at: float, value: float) -> Array:
    return where(less_equal(x, at), value, x)


# -- over a dimension ----------------------------------------------------------------------------------------------
def softmax(input: Array, dim: int, _stacklevel: int = 3, dtype: DTypeLike = None) -> Array:
    """exp(x) / sum(exp(x)) along `dim`, without overflow."""
    return reductions.softmax(input, dim, dtype)


def softmin(input: Array, dim: int, _stacklevel: int = 3, dtype: DTypeLike = None) -> Array:
    """`softmax` of -x."""
    return reductions.softmax(FUNCTIONS["neg"](input), dim, dtype)


def log_softmax(input: Array, dim: int, _stacklevel: int = 3, dtype: DTypeLike = None) -> Array:
    """log(softmax(x)) along `dim`, precise where the softmax is small."""
    return reductions.log_softmax(input, dim, dtype)


# -- in place --------------------------------------------------------------------------------------------------------
_IN_PLACE_DOC = """Update a Tensor in place, as `{name}(input, ..., inplace=True)`.

Parameters
----------
input : Tensor
    Tensor to update.
*args, **kwargs
    Other arguments of `{name}`.

Returns
-------
Tensor
    The input.
"""


def _in_place(fn: Callable[..., Any]) -> Callable[..., Any]:
    def update(input: Array, *args: object, **kwargs: object) -> Array:
        result: Array = fn(input, *args, inplace=True, **kwargs)
        return result

    name = fn.__name__
    update.__name__ = update.__qualname__ = f"{name}_"
    update.__doc__ = _IN_PLACE_DOC.format(name=name)
    return update


# PyTorch's functions with an underscore.
IN_PLACE_FORMS: dict[str, Callable[..., Any]] = {
    f"{fn.__name__}_": _in_place(fn) for fn in (celu, elu, hardtanh, leaky_relu, relu, rrelu, selu, threshold)
}
