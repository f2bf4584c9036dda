"""`scipy.signal`: convolutions and recursive filters of real signals."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracegrad.numpy_api.operands import arrays, promoted, to_float
from tracegrad.numpy_api.registry import refuse
from tracegrad.ops.filters import lfilter as _lfilter
from tracegrad.scipy_api.registry import shadow

__all__ = ["correlated", "over_windows"]


def over_windows(x: Any, w: Any) -> Any:
    """Of each window of `x` that has the shape of `w`, the sum of its products with `w`."""
    rank = len(x.shape)
    if rank == 1:
        return np.correlate(x, w, "valid")
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape)
    return np.sum(windows * w, axis=tuple(range(rank, 2 * rank)))


def _full(x: Any, y: Any) -> Any:
    """The sums of all x[i] * y[j] with the same i + j, for each axis."""
    if x.size < y.size:
        x, y = y, x
    return over_windows(np.pad(x, [(n - 1, n - 1) for n in y.shape]), np.flip(y))


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
