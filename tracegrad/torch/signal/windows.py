"""Namespace of `torch.signal.windows`: window functions, and those that PyTorch has by longer names.

A window of M elements is symmetric, or with `sym=False` the first M elements of a symmetric one of M + 1 elements. It
is computed in float64 and rounded once. ValueError for a negative M, another dtype than float32 and float64, and other
arguments out of range.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.errors import located
from tracegrad.torch.functions.core.device import check_device
from tracegrad.torch.tape.tensors.factories import dtype_of, wrap
from tracegrad.utils.doc_table import DocTable

if TYPE_CHECKING:
    from tracegrad.torch.tape.tensors.tensor import Tensor
    from tracegrad.typing import DeviceLike, DTypeLike, NDArray

__all__ = [
    "bartlett",
    "blackman",
    "cosine",
    "exponential",
    "gaussian",
    "general_cosine",
    "general_hamming",
    "hamming",
    "hann",
    "kaiser",
    "nuttall",
]

_PARAMETERS = """
M window_length : int | Number of elements.
a : sequence of float | Weights.
alpha : float | Weight of the constant.
hamming_window.beta : float | Weight of the cosine.
beta : float | Shape: 0 gives ones.
center : float | Place of the maximum, by default the middle; only for windows that are not symmetric.
device : str or device | Device, which is "cpu".
dtype : dtype | Dtype, float32 or float64; by default the default dtype.
layout : object | Without effect.
periodic : bool | Whether the window is one period of a periodic function; otherwise it is symmetric.
requires_grad : bool | Whether operations on the result are recorded.
std : float | Standard deviation.
sym : bool | Whether the window is symmetric; otherwise it is one period of a periodic function.
tau : float | Distance in which the window falls by 1 / e.
"""
_NAMES = "bartlett blackman cosine exponential gaussian general_cosine general_hamming hamming hann kaiser nuttall"
_LONG_NAMES = "bartlett_window blackman_window hamming_window hann_window kaiser_window"
WINDOW_DOCS = DocTable(_PARAMETERS, f"{_NAMES} {_LONG_NAMES} : Tensor | Window, a vector.")


def _window(
    name: str,
    M: int,
    sym: bool,
    dtype: DTypeLike,
    device: DeviceLike,
    requires_grad: bool,
    formula: Callable[[NDArray, int], NDArray],
) -> Tensor:
    """Make a window; `formula(i, n)` computes elements i of a symmetric window whose last one is n."""
    check_device(device)
    if M < 0:
        raise ValueError(located(f"{name} requires non-negative window length, got M={M}"))
    kind = dtype_of(dtype)
    if kind not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise ValueError(located(f"{name} expects float32 or float64 dtypes, got: {kind}"))
    last = M - 1 if sym or M == 1 else M
    is_lone = M == 1 and name != "exponential"  # whose maximum may be elsewhere
    values = np.ones(1) if is_lone else formula(np.arange(M, dtype=np.float64), last)
    return wrap(values.astype(kind), requires_grad)


def _triangle(i: NDArray, n: int) -> NDArray:
    return 1 - np.abs(2 * i / n - 1)


_BLACKMAN = (0.42, 0.5, 0.08)


def _of_cosines(weights: Sequence[float]) -> Callable[[NDArray, int], NDArray]:
    """Return the formula of a sum of cosines with alternating signs."""
    return lambda i, n: sum(
        ((-1) ** k * a * np.cos(2 * math.pi * k * i / n) for k, a in enumerate(weights)), np.zeros(len(i))
    )


def _kaiser(beta: float) -> Callable[[NDArray, int], NDArray]:
    def formula(i: NDArray, n: int) -> NDArray:
        return np.i0(beta * np.sqrt(np.maximum(1 - (2 * i / n - 1) ** 2, 0))) / np.i0(beta)

    return formula


def bartlett(
    M: int,
    *,
    sym: bool = True,
    dtype: DTypeLike = None,
    layout: object = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return the Bartlett window: 1 - |2 i / (M - 1) - 1|.

    >>> bartlett(5)
    tensor([0.0000, 0.5000, 1.0000, 0.5000, 0.0000])
    """
    return _window("bartlett", M, sym, dtype, device, requires_grad, _triangle)


def blackman(
    M: int,
    *,
    sym: bool = True,
    dtype: DTypeLike = None,
    layout: object = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return the Blackman window, `general_cosine` with the weights 0.42, 0.5 and 0.08.

    >>> blackman(3).round(decimals=4).abs()
    tensor([0., 1., 0.])
    """
    return _window("blackman", M, sym, dtype, device, requires_grad, _of_cosines(_BLACKMAN))


def cosine(
    M: int,
    *,
    sym: bool = True,
    dtype: DTypeLike = None,
    layout: object = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return half a period of a sine, without its zeros.

    >>> cosine(3)
    tensor([0.5000, 1.0000, 0.5000])
    """
    return _window("cosine", M, sym, dtype, device, requires_grad, lambda i, n: np.sin(math.pi * (i + 0.5) / (n + 1)))


def exponential(
    M: int,
    *,
    center: float | None = None,
    tau: float = 1.0,
    sym: bool = True,
    dtype: DTypeLike = None,
    layout: object = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return exp(-|i - center| / tau).

    >>> exponential(3)
    tensor([0.3679, 1.0000, 0.3679])
    """
    if tau <= 0:
        raise ValueError(located(f"Tau must be positive, got: {tau} instead."))
    if sym and center is not None:
        raise ValueError(located("Center must be None for symmetric windows"))
    return _window(
        "exponential",
        M,
        sym,
        dtype,
        device,
        requires_grad,
        lambda i, n: np.exp(-np.abs(i - (n / 2 if center is None else center)) / tau),
    )


def gaussian(
    M: int,
    *,
    std: float = 1.0,
    sym: bool = True,
    dtype: DTypeLike = None,
    layout: object = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return the bell curve of Gauss around the middle.

    >>> gaussian(3)
    tensor([0.6065, 1.0000, 0.6065])
    """
    if std <= 0:
        raise ValueError(located(f"Standard deviation must be positive, got: {std} instead."))
    return _window(
        "gaussian", M, sym, dtype, device, requires_grad, lambda i, n: np.exp(-((i - n / 2) ** 2) / (2 * std**2))
    )


def general_cosine(
    M: int,
    *,
    a: Sequence[float],
    sym: bool = True,
    dtype: DTypeLike = None,
    layout: object = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return the sum of (-1)**k a[k] cos(2 pi k i / (M - 1)).

    >>> general_cosine(3, a=[0.5, 0.5])
    tensor([0., 1., 0.])
    """
    if not isinstance(a, list | tuple):
        raise TypeError(located("Coefficients must be a list/tuple"))
    if not a:
        raise ValueError(located("Coefficients cannot be empty"))
    return _window("general_cosine", M, sym, dtype, device, requires_grad, _of_cosines(a))


def general_hamming(
    M: int,
    *,
    alpha: float = 0.54,
    sym: bool = True,
    dtype: DTypeLike = None,
    layout: object = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return alpha - (1 - alpha) cos(2 pi i / (M - 1)).

    >>> general_hamming(3, alpha=0.75)
    tensor([0.5000, 1.0000, 0.5000])
    """
    return _window("general_hamming", M, sym, dtype, device, requires_grad, _of_cosines((alpha, 1 - alpha)))


def hamming(
    M: int,
    *,
    sym: bool = True,
    dtype: DTypeLike = None,
    layout: object = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return the Hamming window, `general_hamming` with `alpha=0.54`.

    >>> hamming(3)
    tensor([0.0800, 1.0000, 0.0800])
    """
    return _window("hamming", M, sym, dtype, device, requires_grad, _of_cosines((0.54, 0.46)))


def hann(
    M: int,
    *,
    sym: bool = True,
    dtype: DTypeLike = None,
    layout: object = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return the Hann window, `general_hamming` with `alpha=0.5`.

    >>> hann(4, sym=False)
    tensor([0.0000, 0.5000, 1.0000, 0.5000])
    """
    return _window("hann", M, sym, dtype, device, requires_grad, _of_cosines((0.5, 0.5)))


def kaiser(
    M: int,
    *,
    beta: float = 12.0,
    sym: bool = True,
    dtype: DTypeLike = None,
    layout: object = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return I0(beta sqrt(1 - (2 i / (M - 1) - 1)**2)) / I0(beta), the Kaiser window.

    >>> kaiser(3, beta=3.0)
    tensor([0.2049, 1.0000, 0.2049])
    """
    if beta < 0:
        raise ValueError(located(f"beta must be non-negative, got: {beta} instead."))
    return _window("kaiser", M, sym, dtype, device, requires_grad, _kaiser(beta))


def nuttall(
    M: int,
    *,
    sym: bool = True,
    dtype: DTypeLike = None,
    layout: object = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return the minimum 4-term Blackman-Harris window of Nuttall (1981).

    >>> nuttall(4, sym=False)
    tensor([3.6280e-04, 2.2698e-01, 1.0000e+00, 2.2698e-01])
    """
    return _window(
        "nuttall", M, sym, dtype, device, requires_grad, _of_cosines((0.3635819, 0.4891775, 0.1365995, 0.0106411))
    )


# -- windows by longer names -------------------------------------------------------------------------------------------
def _of_length(
    name: str,
    window_length: int,
    periodic: bool,
    dtype: DTypeLike,
    device: DeviceLike,
    requires_grad: bool,
    formula: Callable[[NDArray, int], NDArray],
) -> Tensor:
    """Make a window of any floating dtype."""
    check_device(device)
    if isinstance(window_length, float):
        raise TypeError(located(f"{name}(): argument 'window_length' (position 1) must be int, not float"))
    if window_length < 0:
        text = f"{name} requires non-negative window_length, got window_length={window_length}"
        raise RuntimeError(located(text))
    kind = dtype_of(dtype)
    if kind.kind != "f":
        raise RuntimeError(located(f"{name} expects floating point dtypes, got: {kind}"))
    double = _window(name, window_length, not periodic, np.float64, None, False, formula)
    return wrap(double.numpy().astype(kind), requires_grad)


def bartlett_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: DTypeLike = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return the window `signal.windows.bartlett` of a length and of a floating dtype; by default one period of it.

    >>> bartlett_window(4)
    tensor([0.0000, 0.5000, 1.0000, 0.5000])
    """
    return _of_length("bartlett_window", window_length, periodic, dtype, device, requires_grad, _triangle)


def blackman_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: DTypeLike = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return the window `signal.windows.blackman` of a length and of a floating dtype; by default one period of it.

    >>> blackman_window(3, False)
    tensor([-1.3878e-17,  1.0000e+00, -1.3878e-17])
    """
    return _of_length("blackman_window", window_length, periodic, dtype, device, requires_grad, _of_cosines(_BLACKMAN))


def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    *,
    dtype: DTypeLike = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return the window `signal.windows.hamming` of a length and of a floating dtype; by default one period of it.

    >>> hamming_window(4, True, 0.5, 0.5)
    tensor([0.0000, 0.5000, 1.0000, 0.5000])
    """
    return _of_length(
        "hamming_window", window_length, periodic, dtype, device, requires_grad, _of_cosines((alpha, beta))
    )


def hann_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: DTypeLike = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return the window `signal.windows.hann` of a length and of a floating dtype; by default one period of it.

    >>> hann_window(4)
    tensor([0.0000, 0.5000, 1.0000, 0.5000])
    """
    return _of_length("hann_window", window_length, periodic, dtype, device, requires_grad, _of_cosines((0.5, 0.5)))


def kaiser_window(
    window_length: int,
    periodic: bool = True,
    beta: float = 12.0,
    *,
    dtype: DTypeLike = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return the window `signal.windows.kaiser` of a length and of a floating dtype; by default one period of it.

    >>> kaiser_window(3, False, 3.0)
    tensor([0.2049, 1.0000, 0.2049])
    """
    return _of_length("kaiser_window", window_length, periodic, dtype, device, requires_grad, _kaiser(beta))


_LONG = (bartlett_window, blackman_window, hamming_window, hann_window, kaiser_window)
LONG_NAMES: dict[str, Callable[..., Any]] = {fn.__name__: fn for fn in _LONG}

WINDOW_DOCS.document(globals(), [*__all__, *LONG_NAMES])
