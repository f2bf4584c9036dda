"""Short-time Fourier transforms against loops over frames, and windows against SciPy's."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.signal

import tracegrad as tg
from tracegrad.typing import NDArray

RNG = np.random.default_rng(6)
REAL, ROWS = RNG.normal(size=20), RNG.normal(size=(2, 17))
COMPLEX = REAL + 1j * RNG.normal(size=20)


def frames_of(x: NDArray, n_fft: int, settings: dict[str, Any]) -> tuple[NDArray, NDArray, int]:
    """The frames of the padded signal times the window, the window, and the hop length."""
    hop, width = settings.get("hop_length", n_fft // 4), settings.get("win_length", n_fft)
    left = (n_fft - width) // 2
    window = np.pad(settings.get("window", np.ones(width)), (left, n_fft - width - left))
    if settings.get("center", True):
        x = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(n_fft // 2,) * 2], mode=settings.get("pad_mode", "reflect"))
    firsts = range(0, x.shape[-1] - n_fft + 1, hop)
    return np.stack([x[..., k : k + n_fft] * window for k in firsts], -2), window, hop


def stft(x: NDArray, n_fft: int, settings: dict[str, Any]) -> NDArray:
    frames, window, _ = frames_of(x, n_fft, settings)
    is_half = settings.get("onesided", not (np.iscomplexobj(x) or np.iscomplexobj(window)))
    spectra = (np.fft.rfft if is_half else np.fft.fft)(frames)
    return np.swapaxes(spectra / math.sqrt(n_fft) if settings.get("normalized") else spectra, -1, -2)


CASES: list[tuple[NDArray, int, dict[str, Any]]] = [
    (REAL, 4, {}),
    (REAL, 5, {"hop_length": 2}),
    (ROWS, 6, {"win_length": 4, "hop_length": 1, "window": RNG.random(4) + 0.1}),
    (ROWS, 8, {"window": np.hanning(9)[:8] + 0.01, "normalized": True}),
    (REAL, 4, {"onesided": False}),
    (REAL, 4, {"center": False, "hop_length": 1}),
    (REAL, 6, {"pad_mode": "constant", "window": np.hamming(6)}),
    (COMPLEX, 7, {"win_length": 5, "hop_length": 3}),
]


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize(("x", "n_fft", "settings"), CASES)
def test_frames_are_transformed_and_joined_again(
    x: NDArray, n_fft: int, settings: dict[str, Any], traced: bool
) -> None:
    expected = stft(x, n_fft, settings)
    options = settings | ({"window": tg.tensor(settings["window"])} if "window" in settings else {})
    back = {k: v for k, v in options.items() if k != "pad_mode"} | {"return_complex": np.iscomplexobj(x)}

    def forth(x: Any) -> Any:
        return tg.stft(x, n_fft, return_complex=True, **options)

    def forth_and_back(x: Any) -> Any:
        return tg.istft(forth(x), n_fft, length=x.shape[-1], **back)

    both = (tg.trace(forth), tg.trace(forth_and_back)) if traced else (forth, forth_and_back)
    leaf = tg.tensor(x, requires_grad=True)
    np.testing.assert_allclose(both[0](leaf).detach(), expected, atol=1e-12)
    hop = settings.get("hop_length", n_fft // 4)
    if settings.get("center", True) or hop == 1:
        end = (expected.shape[-1] - 1) * hop + (n_fft // 2 if settings.get("center", True) else n_fft)
        np.testing.assert_allclose(both[1](leaf).detach()[..., :end], x[..., :end], atol=1e-12)
    if not traced:
        assert tg.autograd.gradcheck(forth, [leaf])
        spectrum = tg.tensor(expected, requires_grad=True)
        # Negative frequencies of a real signal do not count, so their derivative is not that of the sum of both.
        if settings.get("onesided") is not False:
            assert tg.autograd.gradcheck(lambda s: tg.istft(s, n_fft, **back), [spectrum])


def test_a_signal_is_cut_or_padded_to_its_length() -> None:
    spectrum = tg.stft(tg.tensor(REAL), 4, return_complex=True)
    assert tg.istft(spectrum, 4).shape == (20,)
    np.testing.assert_allclose(tg.istft(spectrum, 4, length=9), REAL[:9])
    longer = tg.istft(spectrum, 4, length=30)  # 2 elements of the padding, then zeros
    np.testing.assert_allclose(longer, [*REAL, *REAL[-2:-4:-1], *[0.0] * 8], atol=1e-15)
    with pytest.warns(UserWarning, match="return_complex=False is deprecated"):
        parts = tg.tensor(REAL).stft(4, return_complex=False)
    assert parts.tolist() == tg.view_as_real(spectrum).tolist()


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda x, s: tg.stft(x, 4), "requires the return_complex parameter be given for real inputs"),
        (lambda x, s: tg.stft(x, 40, center=False, return_complex=True), "expected 0 < n_fft <= 20, but got n_fft=40"),
        (lambda x, s: tg.stft(x, 4, 0, return_complex=True), "expected hop_length > 0, but got hop_length=0"),
        (lambda x, s: tg.stft(x, 4, win_length=5, return_complex=True), "expected 0 < win_length <= n_fft"),
        (lambda x, s: tg.stft(x, 4, window=tg.ones(5), return_complex=True), "expected a 1D window tensor of size"),
        (lambda x, s: tg.stft(x[None, None], 4, return_complex=True), "expected a 1D or 2D tensor"),
        (lambda x, s: tg.stft(x.long(), 4, return_complex=True), "expected a tensor of floating point or complex"),
        (lambda x, s: tg.stft(x + 0j, 4, onesided=True), "Cannot have onesided output if window or input is complex"),
        (lambda x, s: tg.istft(x, 4), "requires a complex-valued input tensor"),
        (lambda x, s: tg.istft(s, 6), "frequency dimension"),
        (lambda x, s: tg.istft(s, 4, 5), "expected 0 < hop_length <= win_length"),
        (lambda x, s: tg.istft(s, 4, center=False, window=tg.hann_window(4)), "window overlap add min: 1"),
        (lambda x, s: tg.istft(s, 4, window=tg.ones(3)), "Invalid window shape"),
        (lambda x, s: tg.istft(s, 4, return_complex=True), "Cannot have onesided output"),
        (lambda x, s: tg.istft(s[:, :0], 4), "input tensor cannot be empty"),
        (lambda x, s: tg.hann_window(-1), "requires non-negative window_length"),
        (lambda x, s: tg.hann_window(4, dtype=tg.int64), "expects floating point dtypes"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(call: Any, text: str) -> None:
    x = tg.tensor(REAL)
    with pytest.raises(RuntimeError, match=text):
        call(x, tg.stft(x, 4, return_complex=True))


# -- windows -----------------------------------------------------------------------------------------------------------
WINDOWS: list[tuple[str, dict[str, Any], tuple[Any, ...]]] = [
    ("bartlett", {}, ("bartlett",)),
    ("blackman", {}, ("blackman",)),
    ("cosine", {}, ("cosine",)),
    ("exponential", {"tau": 2.0}, ("exponential", None, 2.0)),
    ("gaussian", {"std": 1.5}, ("gaussian", 1.5)),
    ("general_cosine", {"a": [0.4, 0.5, 0.1]}, ("general_cosine", [0.4, 0.5, 0.1])),
    ("general_hamming", {"alpha": 0.7}, ("general_hamming", 0.7)),
    ("hamming", {}, ("hamming",)),
    ("hann", {}, ("hann",)),
    ("kaiser", {"beta": 3.0}, ("kaiser", 3.0)),
    ("nuttall", {}, ("nuttall",)),
]
LONG = {"bartlett": (), "blackman": (), "hamming": (), "hann": (), "kaiser": (3.0,)}


@pytest.mark.parametrize(("name", "settings", "scipys"), WINDOWS)
def test_windows_are_scipys(name: str, settings: dict[str, Any], scipys: tuple[Any, ...]) -> None:
    for count in (0, 1, 2, 7, 8):
        for sym in (True, False):
            expected = scipy.signal.get_window(scipys, count, fftbins=not sym) if count else np.zeros(0)
            window = getattr(tg.signal.windows, name)(count, sym=sym, dtype=np.float32, **settings)
            np.testing.assert_allclose(window, expected, atol=1e-6)
            assert window.dtype == np.float32
            if name in LONG:
                window = getattr(tg, f"{name}_window")(count, not sym, *LONG[name], dtype=np.float64)
                np.testing.assert_allclose(window, expected, atol=1e-15)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda w: w.hann(-1), ValueError, "requires non-negative window length, got M=-1"),
        (lambda w: w.hann(5, dtype=np.int64), ValueError, "expects float32 or float64 dtypes"),
        (lambda w: w.gaussian(5, std=-1), ValueError, "Standard deviation must be positive, got: -1"),
        (lambda w: w.exponential(5, tau=-1), ValueError, "Tau must be positive, got: -1"),
        (lambda w: w.exponential(5, center=1), ValueError, "Center must be None for symmetric windows"),
        (lambda w: w.kaiser(5, beta=-1), ValueError, "beta must be non-negative, got: -1"),
        (lambda w: w.general_cosine(5, a=[]), ValueError, "Coefficients cannot be empty"),
        (lambda w: w.general_cosine(5, a=1.0), TypeError, "Coefficients must be a list/tuple"),
        (lambda w: tg.hann_window(4.5), TypeError, "'window_length' .* must be int, not float"),
        (lambda w: tg.hann_window(4, True, 0.5), TypeError, "takes from 1 to 2 positional arguments"),
    ],
)
def test_windows_that_do_not_exist_are_refused(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call(tg.signal.windows)


def test_windows_take_the_options_of_factories() -> None:
    assert tg.signal.windows.exponential(5, center=1, sym=False).argmax() == 1
    assert tg.hann_window(4, dtype=tg.float16, layout=tg.strided, requires_grad=True).requires_grad
    assert tg.signal.windows.hann(4, requires_grad=True).requires_grad
