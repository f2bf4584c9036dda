"""Convolutions and correlations of `scipy.signal`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracegrad.numpy_api.operands import arrays, promoted, to_float
from tracegrad.numpy_api.registry import refuse
from tracegrad.ops.elementwise.complex import conjugated
from tracegrad.scipy_api.registry import shadow
from tracegrad.typing import Array, ArrayLike, Axes, Sizes


def over_windows(x: Array, w: Array) -> Array:
    """Sum the products of `w` with each window of `x` that has its shape."""
    rank = len(x.shape)
    if rank == 1:
        return np.correlate(x, conjugated(w), "valid")  # np.correlate conjugates its second argument
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape)
    result: Array = np.sum(windows * w, axis=tuple(range(rank, 2 * rank)))
    return result


def _full(x: Any, y: Any) -> Array:
    """Sum all x[i] * y[j] with the same i + j, for each axis."""
    if x.size < y.size:
        x, y = y, x
    return over_windows(np.pad(x, [(n - 1, n - 1) for n in y.shape]), np.flip(y))


def _cut(x: Array, sizes: Sequence[int]) -> Array:
    """Return the middle part of `x` with these sizes."""
    return x[tuple([slice((n - m) // 2, (n - m) // 2 + m) for n, m in zip(x.shape, sizes)])]


def convolved(name: str, in1: ArrayLike, in2: ArrayLike, mode: str) -> Array:
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
def convolve(in1: ArrayLike, in2: ArrayLike, mode: str = "full", method: str = "auto") -> Array:
    """`scipy.signal.convolve`"""
    return convolved("convolve", in1, in2, mode)


@shadow("scipy.signal.convolve2d")
def convolve2d(in1: ArrayLike, in2: ArrayLike, mode: str = "full", boundary: str = "fill", fillvalue: int = 0) -> Array:
    """`scipy.signal.convolve2d`, of images that are padded with zeros."""
    if boundary not in ("fill", "pad") or fillvalue != 0:
        raise refuse("scipy.signal.convolve2d with boundary= or fillvalue=", "use scipy.ndimage.convolve")
    return convolved("convolve2d", in1, in2, mode)


@shadow("scipy.signal.fftconvolve", "scipy.signal.oaconvolve")
def fftconvolve(in1: ArrayLike, in2: ArrayLike, mode: str = "full", axes: Axes = None) -> Array:
    """`scipy.signal.fftconvolve`; only a convolution along some `axes` uses a Fourier transform."""
    return convolved("fftconvolve", in1, in2, mode) if axes is None else _along(axes, in1, in2, mode)


def _along(axes: Sizes, in1: ArrayLike, in2: ArrayLike, mode: str) -> Array:
    x, y = promoted([to_float(v) for v in arrays(in1, in2)])
    rank = len(x.shape)
    if rank != len(y.shape) or mode not in ("full", "same", "valid"):
        raise ValueError(
            "fftconvolve: in1 and in2 should have the same dimensionality, and mode be full, same or valid"
        )
    along = sorted({a % rank for a in np.atleast_1d(axes).tolist()})
    if mode == "valid" and any(x.shape[a] < y.shape[a] for a in along):
        x, y = y, x
    sizes = [x.shape[a] + y.shape[a] - 1 for a in along]
    forward, inverse = (np.fft.fftn, np.fft.ifftn) if x.dtype.kind == "c" else (np.fft.rfftn, np.fft.irfftn)
    full: Any = inverse(forward(x, sizes, along) * forward(y, sizes, along), sizes, along)
    if mode == "full":
        result: Array = full
        return result
    short = [x.shape[a] if mode == "same" else x.shape[a] - y.shape[a] + 1 for a in along]
    middle = dict(zip(along, short))
    return _cut(full, [middle.get(a, n) for a, n in enumerate(full.shape)])


@shadow("scipy.signal.correlate")
def correlated(in1: ArrayLike, in2: ArrayLike, mode: str = "full", method: str = "auto") -> Array:
    """`scipy.signal.correlate`"""
    x, y = arrays(in1, in2)
    if mode == "valid" and any(m < n for m, n in zip(x.shape, y.shape)):
        return conjugated(np.flip(correlated(in2, in1, mode)))
    return convolved("correlate", x, conjugated(np.flip(y)), mode)


@shadow("scipy.signal.correlate2d")
def correlate2d(
    in1: ArrayLike, in2: ArrayLike, mode: str = "full", boundary: str = "fill", fillvalue: int = 0
) -> Array:
    """`scipy.signal.correlate2d`, of images that are padded with zeros."""
    if boundary not in ("fill", "pad") or fillvalue != 0:
        raise refuse("scipy.signal.correlate2d with boundary= or fillvalue=", "use scipy.ndimage.correlate")
    return correlated(in1, in2, mode)
