"""Spectra of `scipy.signal` in traced code: values, shapes and dtypes of SciPy's, slopes by differences."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from along import check_along, differences, named, replayed, weighted
from scipy import signal

import tracegrad as tg

RNG = np.random.default_rng(5)
V = RNG.normal(size=33)
M = RNG.normal(size=(21, 2))
W = np.hanning(10)[1:-1]


def power(z: Any) -> Any:
    return np.real(z) ** 2 + np.imag(z) * np.cos(np.arange(z.size)).reshape(z.shape)


CASES: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "periodogram": (lambda x: signal.periodogram(x)[1], V),
    "periodogram, longer": (lambda x: signal.periodogram(x, 2.0, "hann", 40, "linear", scaling="spectrum")[1], V),
    "periodogram, shorter along an axis": (lambda x: signal.periodogram(x, nfft=8, axis=0)[1], M),
    "periodogram, two sides": (lambda x: signal.periodogram(x, return_onesided=False, detrend=False)[1], V),
    "welch": (lambda x: signal.welch(x, nperseg=8)[1], V),
    "welch, odd parts": (lambda x: signal.welch(x, 3.0, nperseg=7, noverlap=5, nfft=9, axis=0)[1], M),
    "welch, median": (lambda x: signal.welch(x, nperseg=8, average="median", window=W)[1], V),
    "welch, a function of the parts": (lambda x: signal.welch(x, nperseg=8, detrend=lambda v: v - v[..., :1])[1], V),
    "welch, weights": (lambda w: signal.welch(V[:20], window=w)[1], W + 0.1),
    "csd": (lambda x: power(signal.csd(x, x[::-1] ** 2, nperseg=8)[1]), V),
    "csd, median": (lambda x: power(signal.csd(x, np.sin(x), nperseg=8, average="median")[1]), V),
    "csd, of another length": (lambda x: power(signal.csd(x, V[:20], nperseg=8, detrend="linear")[1]), V),
    "csd, along an axis": (lambda x: power(signal.csd(x, x[::-1], nperseg=6, axis=0)[1]), M),
    "coherence": (lambda x: signal.coherence(x, np.roll(x, 2) + V**2, nperseg=8)[1], V),
    "spectrogram": (lambda x: signal.spectrogram(x, nperseg=8)[2], V),
    "spectrogram, along an axis": (lambda x: signal.spectrogram(x, nperseg=6, axis=0, scaling="spectrum")[2], M),
    **{
        f"spectrogram, {mode}": (lambda x, mode=mode: signal.spectrogram(x, 2.0, nperseg=8, nfft=10, mode=mode)[2], V)
        for mode in ("magnitude", "angle", "phase")
    },
    "spectrogram, complex": (lambda x: power(signal.spectrogram(x, nperseg=8, mode="complex")[2]), V),
    **{
        f"stft, {b}": (lambda x, b=b: power(signal.stft(x, 2.0, nperseg=8, boundary=b)[2]), V)
        for b in ("zeros", "even", "odd", "constant", None)
    },
    "stft, as it is": (lambda x: power(signal.stft(x, nperseg=8, boundary=None, padded=False, scaling="psd")[2]), V),
    "stft, along an axis": (lambda x: power(signal.stft(x, nperseg=5, noverlap=3, axis=0, detrend="constant")[2]), M),
    "istft": (lambda x: signal.istft(signal.stft(x, nperseg=8)[2] ** 2, nperseg=8)[1], V),
    "istft, odd parts": (
        lambda x: signal.istft(
            signal.stft(x, nperseg=7, noverlap=5, scaling="psd")[2], 2.0, nperseg=7, noverlap=5, scaling="psd"
        )[1],
        V,
    ),
    "istft, without ends": (
        lambda x: signal.istft(x.reshape(11, 3) * (1 + 1j), boundary=False, window="boxcar", noverlap=3)[1],
        V,
    ),
    "istft, other axes": (
        lambda x: signal.istft(signal.stft(x, nperseg=6, axis=0)[2] ** 2, nperseg=6, time_axis=2, freq_axis=0)[1],
        M,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_values_are_scipys_and_derivatives_those_of_differences(name: str) -> None:
    check_along(*CASES[name], name, (1e-9, 1e-11), (1e-7, 1e-8), (1e-6, 1e-6))


OF_ALL: dict[str, Callable[[Any], Any]] = {
    "periodogram": signal.periodogram,
    "welch": lambda x: signal.welch(x, 2.0, nperseg=8),
    "csd": lambda x: signal.csd(x, x[::-1], nperseg=8, noverlap=2),
    "coherence": lambda x: signal.coherence(x, x[::-1] ** 2, nperseg=8),
    "spectrogram": lambda x: signal.spectrogram(x, nperseg=8),
    "stft": lambda x: signal.stft(x, 2.0, nperseg=8),
    "istft": lambda x: signal.istft(signal.stft(x, nperseg=8, return_onesided=False)[2], 2.0, input_onesided=False),
}


@pytest.mark.parametrize("dtype", ["f8", "f4", "c16", "i8"])
@pytest.mark.parametrize("name", OF_ALL)
@pytest.mark.filterwarnings("ignore")
def test_frequencies_times_and_dtypes_are_scipys(name: str, dtype: str) -> None:
    f, x = OF_ALL[name], (V + 1j * V[::-1] if dtype == "c16" else 9 * V).astype(dtype)
    with replayed():
        got = tg.trace(named(lambda x: f(x), f"{name} {dtype}"))(x)
    for ours, theirs in zip(got, f(x), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=1e-4 if dtype == "f4" else 1e-9, atol=1e-6)


def test_derivatives_of_complex_signals_are_those_of_differences() -> None:
    z, v = V + 1j * V[::-1], np.cos(V) + 1j * np.sin(V)
    of = weighted(lambda z: power(signal.csd(z, z[::-1], nperseg=8)[1]), "complex csd")
    with replayed():
        derivative = tg.grad(of)(z)
    assert np.sum(np.real(np.conj(derivative) * v)) == pytest.approx(differences(of, z, v), rel=1e-7)


@pytest.mark.parametrize(
    ("f", "text"),
    [
        (lambda x: signal.welch(x, nperseg=8, noverlap=8), "noverlap.* must be less than nperseg"),
        (lambda x: signal.welch(x, nperseg=8, nfft=4), "nfft"),
        (lambda x: signal.welch(x, nperseg=8, average="mode"), "average"),
        (lambda x: signal.stft(x, nperseg=8, boundary="far"), "boundary"),
        (lambda x: signal.istft(x), "at least 2d"),
    ],
)
def test_what_scipy_refuses_is_refused_as_there(f: Any, text: str) -> None:
    for call in (f, tg.trace(f)):
        with pytest.raises(ValueError, match=text):
            call(V)


def test_a_signal_shorter_than_a_part_is_warned_of() -> None:
    f = lambda x: signal.welch(x)[1]  # noqa: E731
    with pytest.warns(UserWarning, match="nperseg"), replayed():
        got = tg.trace(f)(V)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.testing.assert_allclose(got, f(V))
