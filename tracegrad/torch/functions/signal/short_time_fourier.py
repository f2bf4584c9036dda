"""Short-time Fourier transform and its inverse, as in PyTorch.

The transform of a signal is that of its frames: windows of `n_fft` elements, `hop_length` elements apart. Errors are
RuntimeErrors that name the argument.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.errors import located
from tracegrad.numpy_api.operands import array, constant, peer_of
from tracegrad.ops.shape.linear import broadcast_to, reshape
from tracegrad.torch.functions.core.operands import as_array
from tracegrad.torch.functions.core.registry import FUNCTIONS, METHODS, function
from tracegrad.torch.functions.math.complex import view_as_real
from tracegrad.torch.functions.nn import nn_functional as F

if TYPE_CHECKING:
    from tracegrad.typing import Array

_ONE_SIDED = "Cannot have onesided output if window or input is complex"
_NO_RETURN = (
    "stft requires the return_complex parameter be given for real inputs, and will further require that "
    "return_complex=True in a future PyTorch release."
)


def _require(name: str, condition: bool, text: str) -> None:
    if not condition:
        raise RuntimeError(located(f"{name}: {text}"))


@function("stft")
def stft(
    input: Array,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Array | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Array:
    """Return the Fourier transforms of the frames of a signal, (frequencies, frames), or of a batch of signals.

    With `center`, frame t is centered at element t * hop_length of the signal, which is padded by `pad_mode`. A window
    of `win_length` elements is padded with zeros to `n_fft`. `normalized` divides by sqrt(n_fft). The frequencies are
    the n_fft // 2 + 1 ones from 0 on, and all n_fft ones if the signal or the window is complex, or `onesided` is
    False. RuntimeError without `return_complex` for a real signal and window.

    >>> stft(np.array([0.0, 1.0, 0.0, 1.0]), 2, hop_length=2, center=False, return_complex=True).tolist()
    [[(1+0j), (1+0j)], [(-1+0j), (-1+0j)]]
    """
    x = as_array(input)
    hop, width = n_fft // 4 if hop_length is None else hop_length, n_fft if win_length is None else win_length
    _require("stft", x.dtype.kind in "fc", "expected a tensor of floating point or complex values")
    _require("stft", len(x.shape) in (1, 2), "expected a 1D or 2D tensor")
    is_complex = x.dtype.kind == "c" or (window is not None and window.dtype.kind == "c")
    if return_complex is None and not is_complex:
        raise RuntimeError(located(_NO_RETURN))
    if align_to_window is not None:
        _require("stft", not center, "align_to_window should only be set when center = false.")
        _require("stft", not align_to_window, "align_to_window=True is not supported")
    if center:
        padded = F.pad(reshape(x, shape=(*(1,) * (3 - len(x.shape)), *x.shape)), [n_fft // 2] * 2, pad_mode)
        x = reshape(padded, shape=(*x.shape[:-1], padded.shape[-1]))
    length = x.shape[-1]
    _require("stft", 0 < n_fft <= length, f"expected 0 < n_fft <= {length}, but got n_fft={n_fft}")
    _require("stft", hop > 0, f"expected hop_length > 0, but got hop_length={hop}")
    _require("stft", 0 < width <= n_fft, f"expected 0 < win_length <= n_fft, but got win_length={width}")
    if onesided is None:
        onesided = not is_complex
    elif onesided and is_complex:
        raise RuntimeError(located(_ONE_SIDED))
    frames: Any = METHODS["unfold"](x, -1, n_fft, hop)
    if window is not None or width < n_fft:
        frames = frames * _window("stft", window, width, n_fft, x)
    transform = np.fft.rfft if onesided else np.fft.fft
    spectra: Any = transform(frames, None, -1, "ortho" if normalized else "backward")
    result = FUNCTIONS["transpose"](spectra, -1, -2)
    if return_complex is False:
        text = "stft with return_complex=False is deprecated. In a future pytorch release, stft will return complex"
        warnings.warn(located(f"{text} tensors for all inputs"), UserWarning, stacklevel=2)
        return view_as_real(result)
    output: Array = result
    return output


def _window(name: str, window: Array | None, width: int, n_fft: int, x: Array) -> Array:
    """Return the window, or ones, padded with zeros to `n_fft` elements."""
    if window is None:
        kind = np.dtype(x.dtype.char.lower()) if x.dtype.kind == "c" else x.dtype
        window = constant(np.ones(width, kind), peer_of(x))
    elif tuple(window.shape) != (width,):
        shape = list(window.shape)
        text = f"expected a 1D window tensor of size equal to win_length={width}, but got window with size {shape}"
        if name == "istft":
            text = "Invalid window shape. window has to be 1D and length of `win_length`"
        raise RuntimeError(located(f"{name}: {text}"))
    window = array(window, peer_of(x))
    left = (n_fft - width) // 2
    return F.pad(window, [left, n_fft - width - left]) if width < n_fft else window


@function("istft")
def istft(
    input: Array,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Array | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Any:
    """Return the signal whose `stft` is closest to `input`, (frequencies, frames) or a batch of them.

    The frames are added where they overlap, and divided by the sum of the squares of the windows. With `length` the
    signal is cut or padded with zeros. Source: D. Griffin and J. Lim, "Signal estimation from modified short-time
    Fourier transform", 1984. RuntimeError if the windows leave an element of the signal out.

    >>> x = np.array([0.0, 1.0, 0.0, 1.0])
    >>> istft(stft(x, 2, hop_length=1, return_complex=True), 2, hop_length=1).tolist()
    [0.0, 1.0, 0.0, 1.0]
    """
    x: Any = as_array(input)
    hop, width = n_fft // 4 if hop_length is None else hop_length, n_fft if win_length is None else win_length
    is_complex = x.dtype.kind == "c"
    text = "requires a complex-valued input tensor matching the output from stft with return_complex=True."
    _require("istft", is_complex, text)
    _require("istft", 0 not in x.shape, "input tensor cannot be empty.")
    _require("istft", len(x.shape) in (2, 3), "expected a tensor with 2 or 3 dimensions")
    count = x.shape[-2]
    onesided = count != n_fft if onesided is None else onesided
    wanted = n_fft // 2 + 1 if onesided else n_fft
    side = "n_fft / 2 + 1 when onesided=True" if onesided else "n_fft when onesided=False"
    text = f"expected the frequency dimension (3rd to the last) of the input tensor to match {side}, but got {count}"
    _require("istft", count == wanted, text)
    _require("istft", 0 < hop <= width, "expected 0 < hop_length <= win_length")
    _require("istft", 0 < width <= n_fft, "expected 0 < win_length <= n_fft")
    if onesided and (return_complex or (window is not None and window.dtype.kind == "c")):
        raise RuntimeError(located(_ONE_SIDED))
    batched = x if len(x.shape) == 3 else reshape(x, shape=(1, *x.shape))
    norm: Any = "ortho" if normalized else "backward"
    spectra = FUNCTIONS["transpose"](batched, -1, -2)
    if return_complex:
        frames: Any = np.fft.ifft(spectra, n_fft, -1, norm)
    else:  # as in PyTorch, the negative frequencies do not count
        frames = np.fft.irfft(spectra[..., : n_fft // 2 + 1], n_fft, -1, norm)
    weights = _window("istft", window, width, n_fft, x)
    signal = _overlapped(frames * weights, hop)
    envelope = _overlapped(broadcast_to(weights * weights, shape=(1, *frames.shape[1:])), hop)
    start = n_fft // 2 if center else 0
    end = signal.shape[-1] - start if length is None else start + length
    signal, envelope = signal[:, start:end], envelope[:, start:end]
    _require("istft", not envelope.shape[-1] or float(abs(envelope).min()) > 1e-11, "window overlap add min: 1")
    signal = signal / envelope
    missing = 0 if length is None else length - signal.shape[-1]
    signal = F.pad(signal, [0, missing]) if missing > 0 else signal
    return signal if len(x.shape) == 3 else signal[0]


def _overlapped(frames: Any, hop: int) -> Any:
    """Add frames, (N, T, n), where they overlap: (N, n + (T - 1) * hop)."""
    if frames.dtype.kind == "c":
        result: Array = FUNCTIONS["complex"](_overlapped(frames.real, hop), _overlapped(frames.imag, hop))
        return result
    count, size = frames.shape[1:]
    total = size + (count - 1) * hop
    columns = FUNCTIONS["transpose"](frames, 1, 2)
    sums = F.fold(columns, (1, total), (1, size), stride=(1, hop))
    return reshape(sums, shape=(frames.shape[0], total))
