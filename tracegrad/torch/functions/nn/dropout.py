"""Dropout functions: zero random elements or channels, anew at each call of a traced function."""

from __future__ import annotations

import warnings

import numpy as np

from tracegrad.errors import located
from tracegrad.numpy_api.operands import operands
from tracegrad.ops.elementwise.table import multiply
from tracegrad.torch.functions.core.generator import stream
from tracegrad.torch.functions.core.operands import floating
from tracegrad.torch.functions.nn.activations import updating
from tracegrad.typing import Array


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
