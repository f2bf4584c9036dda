"""Filters of `scipy.signal`: recursive filters in one or both directions, smoothing, and the analytic signal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad.numpy_api.operands import arrays, promoted, to_float
from tracegrad.numpy_api.registry import refuse
from tracegrad.numpy_api.shapes import moveaxis
from tracegrad.ops.signal.lfilter import lfilter as _lfilter
from tracegrad.scipy_api.ndimage.filters import along_axis
from tracegrad.scipy_api.registry import shadow
from tracegrad.typing import Array, ArrayLike


def _filtered(b: Array, a: Array, x: Array) -> Array:
    """Apply the filter from rest, along the last axis."""
    if x.dtype.kind != "c":
        return _lfilter(b, a, x)
    if "c" in (b.dtype.kind, a.dtype.kind):
        raise refuse("scipy.signal.lfilter with complex coefficients")
    return _lfilter(b, a, np.real(x)) + 1j * _lfilter(b, a, np.imag(x))


def _coefficients(b: ArrayLike, a: ArrayLike, x: ArrayLike) -> list[Array]:
    b, a, x = (to_float(v) for v in arrays(b, a, x))
    if x.dtype.kind == "c" and "c" not in (b.dtype.kind, a.dtype.kind):
        b, a = promoted([b, a], np.real(x).dtype)
    else:
        b, a, x = promoted([b, a, x])
    return [v if v.shape else v.reshape(1) for v in (b, a)] + [x]


@shadow("scipy.signal.lfilter")
def lfilter(
    b: ArrayLike, a: ArrayLike, x: ArrayLike, axis: int = -1, zi: ArrayLike | None = None
) -> Array | tuple[Array, ...]:
    """`scipy.signal.lfilter`: the signal, and with `zi` the final state of the filter."""
    b, a, x = _coefficients(b, a, x)
    x = moveaxis(x, axis, -1)
    if zi is None:
        return moveaxis(_filtered(b, a, x), -1, axis)
    count = max(b.shape[0], a.shape[0]) - 1
    held = moveaxis(to_float(arrays(zi, x)[0]), axis, -1)
    if held.shape[-1] != count:
        raise ValueError(
            f"Unexpected shape for zi: {arrays(zi)[0].shape}, where the axis of the signal has {count} elements"
        )
    held = np.broadcast_to(held, (*x.shape[:-1], count))
    b, a = (np.pad(v, (0, count + 1 - v.shape[0])) / a[0] for v in (b, a))
    # The state of a filter enters after the zeros, so only the poles act on it.
    size = x.shape[-1]
    late = np.pad(held, [*[(0, 0)] * (len(x.shape) - 1), (0, max(size - count, 0))])
    y = _filtered(b, a, x) + _filtered(np.ones_like(a[:1]), a, late[..., :size])
    return moveaxis(y, -1, axis), moveaxis(_held(b, a, x, y, late[..., size:]), -1, axis)


def _held(b: Array, a: Array, x: Array, y: Array, unused_state: Array) -> Array:
    """Compute the final state of the filter; `unused_state` is the unused part of the initial state."""
    count = b.shape[0] - 1
    before = [*[(0, 0)] * (len(x.shape) - 1), (count, 0)]
    x, y = (np.pad(v, before)[..., -count:] if count else v[..., :0] for v in (x, y))
    unused_state = np.pad(unused_state, [*[(0, 0)] * (len(x.shape) - 1), (0, count - unused_state.shape[-1])])
    states = [
        np.sum(x[..., k:] * b[:k:-1] - y[..., k:] * a[:k:-1], axis=-1) + unused_state[..., k] for k in range(count)
    ]
    return np.stack(states, axis=-1) if states else unused_state


@shadow("scipy.signal.lfilter_zi")
def lfilter_zi(b: ArrayLike, a: ArrayLike) -> Array:
    """`scipy.signal.lfilter_zi`: the filter state in the steady state of a step response."""
    b, a, _ = _coefficients(b, a, 0.0)
    count = max(b.shape[0], a.shape[0])
    b, a = (np.pad(v, (0, count - v.shape[0])) / a[0] for v in (b, a))
    rest = b - a * b[0]
    first = np.sum(rest[1:]) / np.sum(a)
    result: Array = np.cumsum(a)[:-1] * first - np.concatenate([np.zeros(1), np.cumsum(rest[1:])])[:-1]
    return result


@shadow("scipy.signal.sosfilt")
def sosfilt(sos: ArrayLike, x: ArrayLike, axis: int = -1, zi: ArrayLike | None = None) -> Any:
    """`scipy.signal.sosfilt`: the signal, and with `zi` the final state of each section."""
    sos, x = arrays(sos, x)
    if zi is None:
        for section in range(sos.shape[0]):
            x = lfilter(sos[section, :3], sos[section, 3:], x, axis)
        return x
    axis %= len(x.shape)
    held, last = arrays(zi, x)[0], []
    for section in range(sos.shape[0]):
        x, end = lfilter(sos[section, :3], sos[section, 3:], x, axis, held[section])
        last.append(end)
    return x, np.stack(last)


@shadow("scipy.signal.sosfilt_zi")
def sosfilt_zi(sos: ArrayLike) -> Array:
    """`scipy.signal.sosfilt_zi`: the section states in the steady state of a step response."""
    sos = to_float(arrays(sos)[0])
    result, scale = [], 1.0
    for section in range(sos.shape[0]):
        b, a = sos[section, :3], sos[section, 3:]
        result.append(scale * lfilter_zi(b, a))
        scale = scale * np.sum(b) / np.sum(a)
    return np.stack(result)


# -- forwards and backwards -----------------------------------------------------------------------------------------
def _extended(x: Array, padtype: str | None, count: int) -> Array:
    """Extend `x` by `count` elements at each end of its last axis."""
    if padtype is None or not count:
        return x
    if padtype not in ("odd", "even", "constant"):
        raise ValueError(
            f"Unknown value {padtype!r} given to padtype. padtype must be 'even', 'odd', 'constant', or None."
        )
    if x.shape[-1] <= count:
        raise ValueError(f"The length of the input vector x must be greater than padlen, which is {count}.")
    first, last = x[..., :1], x[..., -1:]
    before, after = x[..., count:0:-1], x[..., -2 : -count - 2 : -1]
    if padtype == "odd":
        before, after = 2.0 * first - before, 2.0 * last - after
    elif padtype == "constant":
        before, after = first + 0.0 * before, last + 0.0 * after
    return np.concatenate([before, x, after], axis=-1)


def _forward_backward(
    run: Callable[[Array, Array], Array], x: Array, axis: int, padtype: str | None, count: int
) -> Array:
    """Apply `run(signal, first element)` along an axis, forwards and then backwards."""
    extended = _extended(moveaxis(x, axis, -1), padtype, count)
    forward = run(extended, extended[..., :1])
    backward = np.flip(run(np.flip(forward, -1), forward[..., -1:]), -1)
    count = 0 if padtype is None else count
    return moveaxis(backward[..., count : backward.shape[-1] - count], -1, axis)


@shadow("scipy.signal.filtfilt")
def filtfilt(
    b: ArrayLike,
    a: ArrayLike,
    x: ArrayLike,
    axis: int = -1,
    padtype: str | None = "odd",
    padlen: int | None = None,
    method: str = "pad",
    irlen: object = None,
) -> Array:
    """`scipy.signal.filtfilt`, with ends that are padded."""
    if method != "pad":
        raise refuse(f"scipy.signal.filtfilt with method={method!r}", "use method='pad'")
    b, a, x = _coefficients(b, a, x)
    start = lfilter_zi(b, a)
    count = 3 * max(b.shape[0], a.shape[0]) if padlen is None else int(padlen)
    return _forward_backward(lambda v, first: lfilter(b, a, v, -1, start * first)[0], x, axis, padtype, count)


@shadow("scipy.signal.sosfiltfilt")
def sosfiltfilt(
    sos: ArrayLike, x: ArrayLike, axis: int = -1, padtype: str | None = "odd", padlen: int | None = None
) -> Array:
    """`scipy.signal.sosfiltfilt`"""
    sos, x = (to_float(v) for v in arrays(sos, x))
    start = sosfilt_zi(sos)
    start = start.reshape(start.shape[0], *(1,) * (len(x.shape) - 1), 2)
    if padlen is None:
        # Poles and zeros at 0 do not make the filter longer.
        short = min(int(np.sum(sos[:, 2] == 0)), int(np.sum(sos[:, 5] == 0)))
        padlen = 3 * (2 * sos.shape[0] + 1 - short)
    return _forward_backward(lambda v, first: sosfilt(sos, v, -1, start * first)[0], x, axis, padtype, int(padlen))


# -- filters that are matrices --------------------------------------------------------------------------------------
@shadow("scipy.signal.savgol_filter")
def savgol_filter(
    x: ArrayLike,
    window_length: int,
    polyorder: int,
    deriv: int = 0,
    delta: float = 1.0,
    axis: int = -1,
    mode: str = "interp",
    cval: float = 0.0,
) -> Array:
    """`scipy.signal.savgol_filter`"""
    from scipy import signal

    v = to_float(arrays(x)[0])
    options = (window_length, polyorder, deriv, delta, 0, mode, cval)
    return along_axis(lambda y: signal.savgol_filter(y, *options), v, axis % len(v.shape))


@shadow("scipy.signal.detrend")
def detrend(data: ArrayLike, axis: int = -1, type: str = "linear", bp: int = 0, overwrite_data: bool = False) -> Array:
    """`scipy.signal.detrend`"""
    from scipy import signal

    v = to_float(arrays(data)[0])
    return along_axis(lambda y: signal.detrend(y, 0, type, bp), v, axis % len(v.shape))


@shadow("scipy.signal.hilbert")
def hilbert(x: ArrayLike, N: int | None = None, axis: int = -1) -> Array:
    """`scipy.signal.hilbert`: the analytic signal."""
    v = to_float(arrays(x)[0])
    if v.dtype.kind == "c":
        raise ValueError("x must be real.")
    axis %= len(v.shape)
    size = v.shape[axis] if N is None else int(N)
    k = np.arange(size)
    weight = np.where((k == 0) | (2 * k == size), 1.0, np.where(2 * k < size, 2.0, 0.0))
    weight = weight.reshape([size if i == axis else 1 for i in range(len(v.shape))])
    return np.fft.ifft(np.fft.fft(v, size, axis) * weight.astype(v.dtype), axis=axis)
