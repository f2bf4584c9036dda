"""Spectral analysis of `scipy.signal`, with sliding windows."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from tracegrad.numpy_api.operands import arrays, promoted, to_float
from tracegrad.numpy_api.shapes import moveaxis
from tracegrad.ops import Carrier
from tracegrad.ops.elementwise.complex import complex_of
from tracegrad.scipy_api.registry import shadow
from tracegrad.scipy_api.signal.filters import detrend as without_trend
from tracegrad.typing import Array, ArrayLike, NDArray, Number

_SCALES = ("density", "spectrum")


# The elements of a window, or its name in SciPy, with its parameters.
Window: TypeAlias = "ArrayLike | str | tuple[str | float, ...]"


class _Frames:
    """Framing of signals for spectra: `size` elements each, one frame every `step` elements."""

    def __init__(
        self,
        length: int,
        fs: float,
        window: Window,
        nperseg: int | None,
        noverlap: int | None,
        nfft: int | None,
        detrend: bool | str | Callable[[Array], Array],
        scaling: str,
    ):
        self.window, self.size = _window(window, nperseg, length)
        self.fs, self.detrend = fs, detrend
        self.nfft = self.size if nfft is None else int(nfft)
        if self.nfft < self.size:
            raise ValueError("nfft must be greater than or equal to nperseg.")
        self.overlap = self.size // 2 if noverlap is None else int(noverlap)
        if self.overlap >= self.size:
            raise ValueError("noverlap must be less than nperseg.")
        self.step = self.size - self.overlap
        if scaling not in _SCALES:
            raise ValueError(f"Unknown scaling: {scaling!r}, must be one of {_SCALES}")
        weights = self.window
        self.scale = 1.0 / (np.sum(weights * weights) * fs if scaling == "density" else np.sum(weights) ** 2)

    def spectra(self, x: Array, onesided: bool, axis: int = -1) -> Array:
        """Return the spectra of the frames, with the axes (..., frame, frequency)."""
        frames = np.lib.stride_tricks.sliding_window_view(x, self.size, axis=-1)[..., :: self.step, :]
        return self._fourier(self._flat(frames, axis) * self.window, onesided)

    def _flat(self, frames: Array, axis: int) -> Array:
        """Detrend the frames."""
        how: Any = self.detrend
        if not how:
            return frames
        if callable(how):
            return moveaxis(how(moveaxis(frames, -1, axis)), axis, -1)
        if how == "constant":
            result: Array = frames - np.mean(frames, axis=-1, keepdims=True)
            return result
        return without_trend(frames, type=how)

    def _fourier(self, frames: Array, onesided: bool) -> Array:
        return np.fft.rfft(frames, self.nfft) if onesided else np.fft.fft(frames, self.nfft)

    def frequencies(self, onesided: bool) -> NDArray:
        return (np.fft.rfftfreq if onesided else np.fft.fftfreq)(self.nfft, 1.0 / self.fs)

    def both_sides(self, power: Array, onesided: bool) -> Array:
        """Double powers whose negative frequencies are omitted."""
        if not onesided:
            return power
        count = power.shape[-1]
        unpaired = np.zeros(count, bool)
        unpaired[0] = True
        unpaired[-1] |= self.nfft % 2 == 0
        return power * np.where(unpaired, 1.0, 2.0).astype(np.real(power).dtype)


def _window(window: Window, nperseg: int | None, length: int) -> tuple[NDArray, int]:
    """Return the window, and its length."""
    if isinstance(window, str | tuple):
        from scipy.signal import get_window

        size = 256 if nperseg is None else int(nperseg)
        if size < 1:
            raise ValueError("nperseg must be a positive integer")
        if size > length:
            text = f"nperseg = {size:d} is greater than input length = {length:d}, using nperseg = {length:d}"
            warnings.warn(text, stacklevel=2)
            size = length
        name = window.removesuffix("_periodic") if isinstance(window, str) else window  # older SciPys lack the suffix
        return get_window(name, size), size
    weights: Any = window if isinstance(window, Carrier) else np.asarray(window)
    if len(weights.shape) != 1:
        raise ValueError("window must be 1-D")
    if length < weights.shape[0]:
        raise ValueError("window is longer than input signal")
    if nperseg is not None and int(nperseg) != weights.shape[0]:
        raise ValueError("value specified for nperseg is different from length of window")
    return weights, weights.shape[0]


def _signals(*xs: ArrayLike, axis: int) -> list[Array]:
    """Return floating arrays of one dtype and one length, with the signal axis last."""
    results = [moveaxis(to_float(x), axis, -1) for x in arrays(*xs)]
    if all(x is xs[0] for x in xs):
        return [results[0]] * len(xs)
    length = max(x.shape[-1] for x in results)
    ends = [[*[(0, 0)] * (len(x.shape) - 1), (0, length - x.shape[-1])] for x in results]
    return [np.pad(x, end) if end[-1][1] else x for x, end in zip(promoted(results), ends)]


def _is_onesided(wanted: bool, *xs: Array) -> bool:
    return bool(wanted) and all(x.dtype.kind != "c" for x in xs)


def _as(x: Array, *like: Array) -> Array:
    """Convert `x` to the complex dtype with the precision of the signals."""
    dtype = complex_of(np.result_type(*[v.dtype for v in like]))
    return x if x.dtype == dtype else x.astype(dtype)


_HANN = "hann_periodic"


@shadow("scipy.signal.csd")
def csd(
    x: ArrayLike,
    y: ArrayLike,
    fs: float = 1.0,
    window: Window = _HANN,
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: str = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    axis: int = -1,
    average: str = "mean",
) -> tuple[NDArray, Array]:
    """`scipy.signal.csd`"""
    same = x is y
    x, y = _signals(x, y, axis=axis)
    frames = _Frames(x.shape[-1], fs, window, nperseg, noverlap, nfft, detrend, scaling)
    onesided = _is_onesided(return_onesided, x, y)
    first = frames.spectra(x, onesided)
    second = first if same else frames.spectra(y, onesided)
    power = frames.both_sides(np.conj(first) * second * frames.scale, onesided)
    result: Any = _averaged(np.real(power) if same else power, average)
    result = moveaxis(result if same else _as(result, x, y), -1, axis)
    return frames.frequencies(onesided), result.astype(np.real(x).dtype) if same else result


def _averaged(power: Array, average: str) -> Array:
    """Average powers over the frames, by mean or median."""
    count = power.shape[-2]
    if average not in ("mean", "median"):
        raise ValueError(f"Parameter average={average!r} must be 'median' or 'mean'!")
    if average == "mean" or count == 1:
        output: Array = np.mean(power, axis=-2)
        return output
    even = 2.0 * np.arange(1.0, (count - 1) // 2 + 1)
    bias = 1.0 + np.sum(1.0 / (even + 1.0) - 1.0 / even)  # bias of the median of chi-squared powers
    if power.dtype.kind != "c":
        return np.median(power, axis=-2) / bias
    result: Array = (np.median(np.real(power), axis=-2) + 1j * np.median(np.imag(power), axis=-2)) / bias
    return result


@shadow("scipy.signal.welch")
def welch(x: ArrayLike, *args: Any, **kwargs: Any) -> tuple[NDArray, Array]:
    """`scipy.signal.welch`"""
    return csd(x, x, *args, **kwargs)


@shadow("scipy.signal.periodogram")
def periodogram(
    x: ArrayLike,
    fs: float = 1.0,
    window: Window | None = "boxcar",
    nfft: int | None = None,
    detrend: str = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    axis: int = -1,
) -> tuple[NDArray, Array]:
    """`scipy.signal.periodogram`"""
    (x,) = arrays(x)
    size = x.shape[axis]
    if nfft is not None and nfft < size:
        x, size, nfft = moveaxis(moveaxis(x, axis, -1)[..., :nfft], -1, axis), nfft, None
    window = "boxcar" if window is None else window
    return csd(x, x, fs, window, size, 0, nfft, detrend, return_onesided, scaling, axis)


@shadow("scipy.signal.coherence")
def coherence(
    x: ArrayLike,
    y: ArrayLike,
    fs: float = 1.0,
    window: str = _HANN,
    nperseg: object = None,
    noverlap: object = None,
    nfft: object = None,
    detrend: str = "constant",
    axis: int = -1,
) -> tuple[NDArray, Array]:
    """`scipy.signal.coherence`"""
    options: dict[str, Any] = {
        "fs": fs,
        "window": window,
        "nperseg": nperseg,
        "noverlap": noverlap,
        "nfft": nfft,
        "detrend": detrend,
        "axis": axis,
    }
    frequencies, of_x = csd(x, x, **options)
    of_y, both = csd(y, y, **options)[1], csd(x, y, **options)[1]
    return frequencies, (np.real(both) ** 2 + np.imag(both) ** 2) / of_x / of_y


# -- spectra that are functions of time --------------------------------------------------------------------------------
def _over_time(frames: _Frames, x: Array, axis: int, onesided: bool, boundary: bool = False) -> tuple[NDArray, Array]:
    """Return the times of the frames, and their spectra."""
    half = frames.size / 2
    times = np.arange(half, x.shape[-1] - half + 1, frames.step) / float(frames.fs)
    return times - half / frames.fs if boundary else times, frames.spectra(x, onesided, axis)


def _placed(result: Array | Number, axis: int) -> Array:
    """Move the frequencies to the position of the signal axis; the frames are last."""
    return moveaxis(result, -1, axis - 1 if axis < 0 else axis)


@shadow("scipy.signal.spectrogram")
def spectrogram(
    x: ArrayLike,
    fs: float = 1.0,
    window: Window = ("tukey_periodic", 0.25),
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: str = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    axis: int = -1,
    mode: str = "psd",
) -> tuple[NDArray, NDArray, Array]:
    """`scipy.signal.spectrogram`"""
    if mode not in ("psd", "complex", "magnitude", "angle", "phase"):
        raise ValueError(f"unknown value for mode {mode}")
    (x,) = _signals(x, axis=axis)
    window, size = _window(window, nperseg, x.shape[-1])
    frames = _Frames(x.shape[-1], fs, window, size, size // 8 if noverlap is None else noverlap, nfft, detrend, scaling)
    onesided = _is_onesided(return_onesided, x)
    times, result = _over_time(frames, x, axis, onesided)
    if mode == "psd":
        result = frames.both_sides((np.real(result) ** 2 + np.imag(result) ** 2) * frames.scale, onesided)
        result = result.astype(np.real(x).dtype)
    else:
        result = _as(result * np.sqrt(frames.scale), x)
    result = _placed(result, axis)
    if mode == "magnitude":
        result = np.abs(result)
    elif mode != "psd" and mode != "complex":
        result = np.angle(result)
        result = np.unwrap(result, axis=axis - 1 if axis < 0 else axis) if mode == "phase" else result
    return frames.frequencies(onesided), times, result


@shadow("scipy.signal.stft")
def stft(
    x: ArrayLike,
    fs: float = 1.0,
    window: str = _HANN,
    nperseg: int = 256,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: bool = False,
    return_onesided: bool = True,
    boundary: str = "zeros",
    padded: bool = True,
    axis: int = -1,
    scaling: str = "spectrum",
) -> tuple[NDArray, NDArray, Array]:
    """`scipy.signal.stft`"""
    if scaling not in ("spectrum", "psd"):
        raise ValueError(f"Parameter scaling={scaling!r} not in ['spectrum', 'psd']!")
    if boundary not in ("even", "odd", "constant", "zeros", None):
        raise ValueError(f"Unknown boundary option '{boundary}'")
    (x,) = _signals(x, axis=axis)
    scaling = "density" if scaling == "psd" else scaling
    frames = _Frames(x.shape[-1], fs, window, nperseg, noverlap, nfft, detrend, scaling)
    no_padding = [(0, 0)] * (len(x.shape) - 1)
    if boundary is not None:
        half = (frames.size // 2, frames.size // 2)
        modes: dict[str, dict[str, Any]] = {
            "zeros": {},
            "constant": {"mode": "edge"},
            "even": {"mode": "reflect"},
            "odd": {"mode": "reflect", "reflect_type": "odd"},
        }
        x = np.pad(x, [*no_padding, half], **modes[boundary])
    if padded:
        extra = (-(x.shape[-1] - frames.size) % frames.step) % frames.size
        x = np.pad(x, [*no_padding, (0, extra)]) if extra else x
    onesided = _is_onesided(return_onesided, x)
    times, result = _over_time(frames, x, axis, onesided, boundary is not None)
    return frames.frequencies(onesided), times, _placed(_as(result * np.sqrt(frames.scale), x), axis)


@shadow("scipy.signal.istft")
def istft(
    Zxx: ArrayLike,
    fs: float = 1.0,
    window: str = _HANN,
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    input_onesided: bool = True,
    boundary: bool = True,
    time_axis: int = -1,
    freq_axis: int = -2,
    scaling: str = "spectrum",
) -> tuple[NDArray, Array]:
    """`scipy.signal.istft`"""
    (z,) = (to_float(v) for v in arrays(Zxx))
    rank = len(z.shape)
    if rank < 2:
        raise ValueError("Input stft must be at least 2d!")
    if freq_axis == time_axis:
        raise ValueError("Must specify differing time and frequency axes!")
    time_axis, freq_axis = time_axis % rank, freq_axis % rank
    z = moveaxis(z, (time_axis, freq_axis), (-2, -1))
    usual = 2 * (z.shape[-1] - 1) if input_onesided else z.shape[-1]
    size = usual if nperseg is None else int(nperseg)
    if nfft is None:
        nfft = size if input_onesided and size == usual + 1 else usual
    if scaling not in ("spectrum", "psd"):
        raise ValueError(f"Parameter scaling={scaling!r} not in ['spectrum', 'psd']!")
    frames = _Frames(size, fs, window, size, noverlap, nfft, False, "density" if scaling == "psd" else scaling)
    segments = np.fft.irfft(z, frames.nfft) if input_onesided else np.fft.ifft(z, frames.nfft)
    weights: Any = frames.window
    weights = weights if isinstance(weights, Carrier) else frames.window.astype(np.real(segments).dtype)
    scale = np.sum(weights) if scaling == "spectrum" else np.sqrt(fs * np.sum(weights**2))
    count = segments.shape[-2]
    x = _overlaid(segments[..., :size] * (weights * scale), frames.step)
    total = _overlaid(np.broadcast_to(weights**2, (count, size)), frames.step)
    if boundary:
        inside = slice(size // 2, -(size // 2))
        x, total = x[..., inside], total[inside]
    if not isinstance(total, Carrier) and not np.all(total > 1e-10):
        hint = "" if boundary else " Possibly due to missing boundary"
        warnings.warn(f"NOLA condition failed, STFT may not be invertible.{hint}", stacklevel=2)
    x = x / np.where(total > 1e-10, total, 1.0)
    if len(x.shape) > 1 and time_axis != rank - 1:
        x = moveaxis(x, -1, time_axis - (freq_axis < time_axis))
    return np.arange(x.shape[0]) / float(fs), x


def _overlaid(segments: Array, step: int) -> Array:
    """Overlap-add frames (..., count, size) that begin one `step` after the other."""
    *batch_shape, count, size = segments.shape
    iterations = -(-size // step)
    still = [(0, 0)] * len(batch_shape)
    blocks = np.pad(segments, [*still, (0, 0), (0, iterations * step - size)]).reshape(
        *batch_shape, count, iterations, step
    )
    total: Any = 0.0
    for k in range(iterations):
        total = total + np.pad(blocks[..., k, :], [*still, (k, iterations - 1 - k), (0, 0)])
    result: Array = total.reshape(*batch_shape, (count + iterations - 1) * step)[..., : size + (count - 1) * step]
    return result
