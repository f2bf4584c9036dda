"""Filters of `scipy.signal` and `scipy.ndimage` in traced code: values, states, complex signals, and slopes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from along import check_along, differences, named, replayed
from scipy import ndimage, signal

import tracegrad as tg
from tracegrad.errors import UnsupportedError

V = np.array([0.3, 1.2, -0.4, 0.9, 0.1, 0.7, 2.0, -0.8])
LONG = np.concatenate([V, V[::-1] * 0.7, V + 0.1, np.cos(V)])
M = np.array([[0.3, 1.2, -0.4], [0.9, 0.1, 0.7], [-1.1, 0.5, 0.2], [0.6, -0.8, 1.5], [0.05, 0.33, -0.6]])
H = np.array([0.5, -0.2, 0.1])
SOS = signal.butter(4, 0.3, output="sos")
B, A = signal.butter(3, 0.3)

CASES: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "lfilter, zi": (lambda x: signal.lfilter(H, [2.0, 0.3, 0.2], x, zi=x[:2])[0], V),
    "lfilter, zi of coefficients": (
        lambda x: np.concatenate(signal.lfilter(x[:3], [x[1] + 3.0, 0.3, x[3], 0.1], V, zi=x[4:7])),
        V,
    ),
    "lfilter, zi after a short signal": (
        lambda x: np.concatenate(signal.lfilter(H, [1.0, 0.3, 0.2, 0.1, 0.4], x[:2], zi=x[2:6])),
        V,
    ),
    "lfilter, zi along an axis": (lambda x: np.concatenate(signal.lfilter(H, [1, 0.3], x, 0, zi=x[:2] * 0.5)), M),
    "lfilter, zi of a filter without poles": (lambda x: np.concatenate(signal.lfilter(x[:3], 1.0, V, zi=x[3:5])), V),
    "lfilter_zi": (lambda x: signal.lfilter_zi(x[:2], [1.0 + x[1], 0.3, 0.1 * x[2]]), V),
    "sosfilt, zi": (lambda x: signal.sosfilt(SOS, x, zi=signal.sosfilt_zi(SOS) * x[0])[0], V),
    "sosfilt, zi along an axis": (lambda x: signal.sosfilt(SOS, x, axis=0, zi=np.ones((2, 2, 3)) * x[0])[1], M),
    "sosfilt_zi": (lambda x: signal.sosfilt_zi(SOS * x[1] ** 2 / x[1] ** 2), V),
    "filtfilt": (lambda x: signal.filtfilt(B, A, x), LONG),
    "filtfilt, even": (lambda x: signal.filtfilt(B, A, x, axis=0, padtype="even", padlen=3), M),
    "filtfilt, constant": (lambda x: signal.filtfilt(B, A, x, padtype="constant", padlen=5), V),
    "filtfilt, no padding": (lambda x: signal.filtfilt(B, A, x, padtype=None), V),
    "sosfiltfilt": (lambda x: signal.sosfiltfilt(SOS, x), LONG),
    "savgol_filter": (lambda x: signal.savgol_filter(x, 5, 2), V),
    "savgol_filter, slopes": (lambda x: signal.savgol_filter(x, 3, 1, 1, 0.1, axis=0, mode="constant", cval=2.0), M),
    "detrend": (lambda x: signal.detrend(x, axis=0) + signal.detrend(x, type="constant"), M),
    "detrend, in two parts": (lambda x: signal.detrend(x, bp=[4]), V),
    "hilbert": (lambda x: np.abs(signal.hilbert(x)), V),
    "hilbert, another length": (lambda x: np.angle(signal.hilbert(x, N=9, axis=0))[:5], M),
    "fftconvolve, an axis": (lambda x: signal.fftconvolve(x, x[:2] * 0.5, "same", axes=0), M),
    "fftconvolve, valid along an axis": (lambda x: signal.fftconvolve(x[:1, :2], x, "valid", axes=[1]), M),
    "convolve2d": (lambda x: signal.convolve2d(x, x[:2, 1:], "same") + signal.correlate2d(x, x[:3, :1], "same"), M),
    "correlate, valid in a longer one": (lambda x: signal.correlate(x[:3], x, "valid"), V),
    "uniform_filter1d, by name": (lambda x: ndimage.uniform_filter1d(x, size=3, mode="wrap"), V),
    "uniform_filter": (lambda x: ndimage.uniform_filter(x, (2, 3), mode=["wrap", "nearest"], origin=-1), M),
    "sobel": (lambda x: ndimage.sobel(x, 0) ** 2 + ndimage.sobel(x) + ndimage.prewitt(x, mode="constant"), M),
    "ndimage.laplace": (lambda x: ndimage.laplace(x, mode="mirror"), M),
    "ndimage.convolve, origin": (lambda x: ndimage.convolve(x, M[:3], origin=(-1, 1)), M),
    "ndimage.correlate, origin": (lambda x: ndimage.correlate(x, M[:2], mode="wrap", origin=[0, 1]), M),
}


@pytest.mark.parametrize("name", CASES)
def test_values_are_scipys_and_derivatives_those_of_differences(name: str) -> None:
    check_along(*CASES[name], name, (1e-9, 1e-11), (1e-7, 1e-8), (1e-6, 1e-6))


def test_compiled_filters_keep_their_state_from_block_to_block() -> None:
    @tg.trace
    def whole(x: Any) -> Any:
        state, parts = signal.lfilter_zi(B, A) * x[0], []
        for k in range(4):
            y, state = signal.lfilter(B, A, x[8 * k : 8 * k + 8], zi=state)
            parts.append(y)
        return np.concatenate(parts)

    for x in (LONG, LONG[::-1] + 1.0):
        want, _ = signal.lfilter(B, A, x, zi=signal.lfilter_zi(B, A) * x[0])
        np.testing.assert_allclose(whole(x), want, rtol=1e-10, atol=1e-12)


W = np.array([0.5 + 0.2j, -0.3 + 1.0j, 0.7 - 0.4j])
COMPLEX: dict[str, Callable[[Any], Any]] = {
    "convolve": lambda z: signal.convolve(z, W),
    "convolve, of a real one": lambda z: signal.convolve(np.real(z), W, "same"),
    "convolve, images": lambda z: signal.convolve(z.reshape(2, 4), W.reshape(1, 3)),
    "fftconvolve": lambda z: signal.fftconvolve(z, z[:3], "valid"),
    "fftconvolve, an axis": lambda z: signal.fftconvolve(z.reshape(2, 4), z.reshape(2, 4), axes=1),
    "correlate": lambda z: signal.correlate(z, W),
    "correlate, same": lambda z: signal.correlate(W, z, "same"),
    "correlate, valid in a longer one": lambda z: signal.correlate(W, z, "valid"),
    "correlate, images": lambda z: signal.correlate(z.reshape(2, 4), W.reshape(1, 3)),
    "lfilter": lambda z: signal.lfilter(B, A, z),
}


@pytest.mark.parametrize("name", COMPLEX)
def test_filters_of_complex_signals_are_scipys(name: str) -> None:
    f, z, v = COMPLEX[name], V + 1j * np.roll(V, 3), np.cos(V) + 1j * np.sin(2 * V)

    def power(z: Any) -> Any:
        y = f(z)
        return np.sum(np.real(y) ** 2 + np.imag(y) * np.cos(np.arange(y.size)).reshape(y.shape))

    with replayed():
        np.testing.assert_allclose(tg.trace(named(f, name))(z), f(z), rtol=1e-10, atol=1e-12)
        derivative = tg.grad(named(power, name))(z)
    want = differences(power, z, v)
    assert np.sum(np.real(np.conj(derivative) * v)) == pytest.approx(want, rel=1e-7, abs=1e-8)


@pytest.mark.parametrize(
    ("f", "what"),
    [
        (lambda x: signal.filtfilt(B, A, x, method="gust"), r"scipy\.signal\.filtfilt with method='gust'"),
        (lambda x: signal.lfilter(B, [1, 0.5j], x), r"scipy\.signal\.lfilter|lfilter of complex numbers"),
        (lambda x: signal.convolve2d(x[None], M, boundary="wrap"), r"scipy\.signal\.convolve2d with boundary="),
        (lambda x: ndimage.laplace(x, axes=0), r"axes= of scipy\.ndimage\.laplace"),
    ],
)
def test_what_is_not_known_is_refused_by_name(f: Any, what: str) -> None:
    with pytest.raises(UnsupportedError, match=what):
        tg.trace(f)(V)
