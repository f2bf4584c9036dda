"""Random functions: dropout, and `gumbel_softmax`. A traced function draws at each call."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from tracegrad.errors import located
from tracegrad.numpy_api.operands import operands
from tracegrad.ops.elementwise.table import add, divide, equal, log, multiply, negative, subtract
from tracegrad.ops.shape.linear import cast, stop_gradient
from tracegrad.torch.functions.core.generator import stream
from tracegrad.torch.functions.core.operands import floating
from tracegrad.torch.functions.core.registry import FUNCTIONS
from tracegrad.torch.functions.nn.activations import softmax, updating
from tracegrad.typing import Array, ArrayLike


def dropout(input: Array, p: float = 0.5, training: bool = True, inplace: bool = False) -> Array:
    """Set elements to 0 with probability `p`, and multiply the others by 1 / (1 - p).

    Without `training`, the input is returned. Random numbers come from the default generator, which `manual_seed` sets;
    in a trace, they are drawn at each call. ValueError if `p` is no probability.

    >>> dropout(np.ones(2), training=False).tolist()
    [1.0, 1.0]
    """
    x = _with_noise("dropout", input, p)
    return _dropout(x, p, x.shape, inplace=inplace) if training else input


def dropout1d(input: Array, p: float = 0.5, training: bool = True, inplace: bool = False) -> Array:
    """Apply `dropout` to whole channels of an input (N, C, L) or (C, L)."""
    return _of_channels("dropout1d", input, 1, p, training, inplace)


def dropout2d(input: Array, p: float = 0.5, training: bool = True, inplace: bool = False) -> Array:
    """Apply `dropout` to whole channels of an input (N, C, H, W) or (C, H, W)."""
    return _of_channels("dropout2d", input, 2, p, training, inplace)


def dropout3d(input: Array, p: float = 0.5, training: bool = True, inplace: bool = False) -> Array:
    """Apply `dropout` to whole channels of an input (N, C, D, H, W) or (C, D, H, W)."""
    return _of_channels("dropout3d", input, 3, p, training, inplace)


def _of_channels(name: str, input: Array, count: int, p: float, training: bool, inplace: bool) -> Array:
    x = _with_noise(name, input, p)
    if len(x.shape) == 2 and count > 1:
        text = f"{name}: Received a 2-D input to {name}, which is deprecated and will result in an error in a future"
        warnings.warn(located(f"{text} release; dropout does the same."), UserWarning, stacklevel=2)
        return _dropout(x, p, x.shape, inplace=inplace) if training else input
    if len(x.shape) not in (count + 1, count + 2):
        raise RuntimeError(
            located(f"{name}: Expected {count + 1}D or {count + 2}D input, but received a {len(x.shape)}D input")
        )
    shape = (*x.shape[: len(x.shape) - count], *(1,) * count)
    return _dropout(x, p, shape, inplace=inplace) if training else input


def _with_noise(name: str, input: Array, p: float) -> Array:
    if not 0.0 <= p <= 1.0:
        raise ValueError(located(f"{name} probability has to be between 0 and 1, but got {p}"))
    return floating(input)


@updating
def _dropout(x: Array, p: float, shape: tuple[int, ...]) -> Array:
    if p == 1:
        return multiply(x, 0.0)
    saved = stream("dropout").random(shape, np.float32) >= p
    return multiply(*operands(x, saved.astype(x.dtype) * (1 / (1 - p))))


def alpha_dropout(input: Array, p: float = 0.5, training: bool = False, inplace: bool = False) -> Array:
    """Set elements to the lower limit of `selu` with probability `p`, then restore the mean 0 and the variance 1.

    Source: G. Klambauer, T. Unterthiner, A. Mayr, S. Hochreiter, "Self-normalizing neural networks", NeurIPS 2017.
    ValueError if `p` is no probability.
    """
    x = _with_noise("alpha_dropout", input, p)
    return _alpha_dropout(x, p, x.shape, inplace=inplace) if training else input


def feature_alpha_dropout(input: Array, p: float = 0.5, training: bool = False, inplace: bool = False) -> Array:
    """Apply `alpha_dropout` to whole channels of an input (N, C, ...)."""
    x = _with_noise("feature_alpha_dropout", input, p)
    shape = (*x.shape[:2], *(1,) * (len(x.shape) - 2))
    return _alpha_dropout(x, p, shape, inplace=inplace) if training else input


@updating
def _alpha_dropout(x: Array, p: float, shape: tuple[int, ...]) -> Array:
    if p == 1:
        return multiply(x, 0.0)
    limit = -1.7580993408473766  # -scale * alpha of selu
    factor = 1 / math.sqrt((1 - p) * (1 + p * limit**2))
    saved = stream("alpha_dropout").random(shape, np.float32) >= p
    mask = operands(x, saved.astype(x.dtype))[1]
    return add(multiply(x, multiply(mask, factor)), add(multiply(mask, -factor * limit), factor * limit * (1 - p)))


def gumbel_softmax(logits: ArrayLike, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Array:
    """Draw from the relaxed categorical distribution: softmax((logits + Gumbel noise) / tau).

    With `hard`, the result is one-hot, and has the derivative of the softmax. In a trace, the noise is drawn at each
    call. Source: E. Jang, S. Gu, B. Poole, "Categorical reparameterization with Gumbel-softmax", ICLR 2017.

    >>> gumbel_softmax(np.array([0.0, 1000.0]), hard=True).tolist()
    [0.0, 1.0]
    """
    x: Any = floating(logits)
    limits = np.finfo(x.dtype)
    u = stream("gumbel_softmax").random(x.shape, np.float32 if x.dtype.itemsize < 8 else np.float64)
    x, u = operands(x, np.maximum(u.astype(x.dtype), limits.tiny))
    noise = negative(log(negative(log(subtract(u, float(limits.epsneg) / 2)))))
    soft = softmax(divide(add(x, noise), tau), dim)
    if not hard:
        return soft
    axis = dim % len(x.shape)
    place = FUNCTIONS["argmax"](soft, axis, keepdim=True)
    classes = np.arange(x.shape[axis]).reshape((-1, *(1,) * (len(x.shape) - axis - 1)))
    choice = cast(equal(place, classes), dtype=x.dtype.name)
    return add(subtract(choice, stop_gradient(soft)), soft)
