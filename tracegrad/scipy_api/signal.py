"""`scipy.signal`: convolutions and recursive filters of real signals."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracegrad.numpy_api.operands import arrays, promoted, to_float
from tracegrad.numpy_api.registry import refuse
from tracegrad.ops.filters import lfilter as _lfilter
from tracegrad.scipy_api.registry import shadow

__all__ = ["correlated"]

_MOST_TERMS = 32  # of a sum that is written down term by term


def _full(x: Any, y: Any) -> Any:
    """The sums of all x[i] * y[j] with the same i + j, for each axis."""
    if x.size < y.size:
        x, y = y, x
    shape = tuple([m + n - 1 for m, n in zip(x.shape, y.shape)])
    wide = np.pad(x, [(n - 1, n - 1) for n in y.shape])
    flipped = np.flip(y).reshape(-1)
    # Of each element of the result, the places of what is summed.
    places = np.zeros((1,) * len(shape) + y.shape, np.int64)
    for axis, (m, n) in enumerate(zip(shape, y.shape)):
        step = int(np.prod(wide.shape[axis + 1 :], dtype=np.int64))
        along = [1] * (2 * len(shape))
        along[axis], along[len(shape) + axis] = m, n
        places = places + step * (np.arange(m)[:, None] + np.arange(n)).reshape(along)
    places = places.reshape(*shape, -1)
    if flipped.size > _MOST_TERMS:
        return np.take(wide.reshape(-1), places) @ flipped
    total = np.take(wide.reshape(-1), places[..., 0]) * flipped[0]
    for k in range(1, flipped.size):
        total = total + np.take(wide.reshape(-1), places[..., k]) * flipped[k]
    return total


def _cut(x: Any, sizes: Any) -> Any:
    """The middle of `x`, of these sizes."""
    return x[tuple([slice((n - m) // 2, (n - m) // 2 + m) for n, m in zip(x.shape, sizes)])]


def convolved(name: str, in1: Any, in2: Any, mode: str) -> Any:
    x, y = promoted([to_float(v) for v in arrays(in1, in2)])
    if len(x.shape) != len(y.shape) or not x.shape or mode not in ("full", "same", "valid"):
        raise ValueError(f"{name}: in1 and in2 should have the same dimensionality, and mode be full, same or valid")
    if mode == "full":
        return _full(x, y)
    if mode == "same":
        return _cut(_full(x, y), x.shape)
    if any(m < n for m, n in zip(x.shape, y.shape)):
        x, y = y, x
    return _cut(_full(x, y), [m - n + 1 for m, n in zip(x.shape, y.shape)])


@shadow("scipy.signal.convolve")
def convolve(in1: Any, in2: Any, mode: str = "full", method: str = "auto") -> Any:
    """`scipy.signal.convolve`"""
    return convolved("convolve", in1, in2, mode)


@shadow("scipy.signal.fftconvolve", "scipy.signal.oaconvolve")
def fftconvolve(in1: Any, in2: Any, mode: str = "full", axes: Any = None) -> Any:
    """`scipy.signal.fftconvolve`, without a Fourier transform."""
    if axes is not None:
        raise refuse("the argument axes= of scipy.signal.fftconvolve")
    return convolved("fftconvolve", in1, in2, mode)


@shadow("scipy.signal.correlate")
def correlated(in1: Any, in2: Any, mode: str = "full", method: str = "auto") -> Any:
    """`scipy.signal.correlate`"""
    (y,) = arrays(in2)
    if mode == "valid" and any(m < n for m, n in zip(np.shape(in1), y.shape)):
        raise refuse("scipy.signal.correlate with mode='valid' and a longer second signal")
    return convolved("correlate", in1, np.flip(y), mode)


@shadow("scipy.signal.lfilter")
def lfilter(b: Any, a: Any, x: Any, axis: int = -1, zi: Any = None) -> Any:
    """`scipy.signal.lfilter`, from rest."""
    if zi is not None:
        raise refuse("the argument zi= of scipy.signal.lfilter")
    b, a, x = promoted([to_float(v) for v in arrays(b, a, x)])
    b, a = (v if v.shape else v.reshape(1) for v in (b, a))
    return np.moveaxis(_lfilter(b, a, np.moveaxis(x, axis, -1)), -1, axis)


@shadow("scipy.signal.sosfilt")
def sosfilt(sos: Any, x: Any, axis: int = -1, zi: Any = None) -> Any:
    """`scipy.signal.sosfilt`, from rest."""
    if zi is not None:
        raise refuse("the argument zi= of scipy.signal.sosfilt")
    sos, x = arrays(sos, x)
    for section in range(sos.shape[0]):
        x = lfilter(sos[section, :3], sos[section, 3:], x, axis)
    return x
