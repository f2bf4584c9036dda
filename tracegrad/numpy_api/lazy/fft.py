"""Discrete Fourier transforms (`np.fft`), composed of three ops along one axis; `scipy.fft` uses them too."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tracegrad.errors import located
from tracegrad.numpy_api.complex import conjugate
from tracegrad.numpy_api.joining import along
from tracegrad.numpy_api.operands import arrays, to_dtype, to_float
from tracegrad.numpy_api.registry import implements
from tracegrad.ops.core.half_rounding import HALF
from tracegrad.ops.core.op import normalize_axis
from tracegrad.ops.elementwise.complex import complex_of
from tracegrad.ops.shape.linear import pad
from tracegrad.ops.signal import fft
from tracegrad.typing import Array, ArrayLike, Axes

# A transform along one axis: `line(x, n, axis, norm)`.
Line = Callable[[Array, int | None, int, str | None], Array]


def _norm(norm: str | None) -> str:
    if norm not in (None, "backward", "ortho", "forward"):
        raise ValueError(located(f'Invalid norm value {norm}; should be "backward", "ortho" or "forward".'))
    return norm or "backward"


def resized(x: Array, n: int | None, axis: int) -> Array:
    """Truncate `x` to `n` elements along an axis, or append zeros; None leaves it unchanged."""
    have, rank = x.shape[axis], len(x.shape)
    if n is None or n == have:
        return x
    if n < have:
        return along(x, axis, 0, n)
    high = tuple([n - have if k == axis else 0 for k in range(rank)])
    return pad(x, low=(0,) * rank, high=high, interior=(0,) * rank, value=0)


def _length(n: int | None, usual: int) -> int:
    n = usual if n is None else n.__index__()
    if n < 1:
        raise ValueError(located(f"Invalid number of FFT data points ({n}) specified."))
    return int(n)


# -- along one axis ----------------------------------------------------------------------------------------------
def _complex(inverse: bool) -> Line:
    def transform(x: Array, n: int | None, axis: int, norm: str | None) -> Array:
        n = _length(n, x.shape[axis])
        return fft.fft(resized(x, n, axis), axis=axis, inverse=inverse, norm=_norm(norm))

    return transform


def _rfft(x: Array, n: int | None, axis: int, norm: str | None) -> Array:
    n = _length(n, x.shape[axis])
    return fft.rfft(resized(x, n, axis), axis=axis, norm=_norm(norm))


def _irfft(x: Array, n: int | None, axis: int, norm: str | None) -> Array:
    n = _length(n, 2 * (x.shape[axis] - 1))
    args = resized(to_dtype(x, complex_of(x.dtype)), n // 2 + 1, axis)
    result = fft.irfft(args, n=n, axis=axis, norm=_norm(norm))
    return to_dtype(result, x.dtype) if x.dtype == HALF else result


def _hfft(x: Array, n: int | None, axis: int, norm: str | None) -> Array:
    return _irfft(conjugate(x), n, axis, fft.TRANSPOSED[_norm(norm)])


def _ihfft(x: Array, n: int | None, axis: int, norm: str | None) -> Array:
    return conjugate(_rfft(x, n, axis, fft.TRANSPOSED[_norm(norm)]))


TRANSFORMS: dict[str, Line] = {
    "fft": _complex(False),
    "ifft": _complex(True),
    "rfft": _rfft,
    "irfft": _irfft,
    "hfft": _hfft,
    "ihfft": _ihfft,
}


def line(name: str, a: ArrayLike, n: int | None, axis: int, norm: str | None) -> Array:
    """Apply the transform of this name along an axis."""
    x = to_float(*arrays(a))
    return TRANSFORMS[name](x, n, normalize_axis(name, axis, len(x.shape)), norm)


# -- along several axes --------------------------------------------------------------------------------------------
def transform_nd(name: str, x: Array, s: Sequence[int | None], axes: Sequence[int], norm: str | None) -> Array:
    """Apply the transform of this name along `axes`, of the lengths `s` (None: unchanged)."""
    axes = [normalize_axis(f"{name}n", axis, len(x.shape)) for axis in axes]
    if not axes:
        return x
    one, pairs = TRANSFORMS[name], list(zip(s, axes))
    if name in ("fft", "ifft"):
        for n, axis in reversed(pairs):
            x = one(x, n, axis, norm)
        return x
    # The axis with half of the coefficients is the first to be transformed from real numbers, and the last to be
    # transformed back to real numbers.
    (length, last), rest = pairs[-1], pairs[:-1]
    if name in ("rfft", "ihfft"):
        x = one(x, length, last, norm)
        for n, axis in reversed(rest):
            x = TRANSFORMS["ifft" if name == "ihfft" else "fft"](x, n, axis, norm)
        return x
    for n, axis in rest:
        x = TRANSFORMS["ifft" if name == "irfft" else "fft"](x, n, axis, norm)
    return one(x, length, last, norm)


def _lengths(x: Array, s: Sequence[int] | None, axes: Sequence[int] | None) -> tuple[list[int | None], list[int]]:
    """Return lengths and axes by NumPy's rules; None stands for the default length."""
    if axes is None:
        axes = range(-len(x.shape) if s is None else -len(s), 0)
    axes = [axis.__index__() for axis in axes]
    lengths: list[int | None] = [None] * len(axes) if s is None else list(s)
    if len(lengths) != len(axes):
        raise ValueError(located("Shape and axes have different lengths."))
    return [x.shape[axis] if n == -1 else n for n, axis in zip(lengths, axes)], axes


# -- NumPy's names ---------------------------------------------------------------------------------------------------
NAMES = ("fft", "ifft", "rfft", "irfft")


def _along_one(name: str) -> None:
    @implements(getattr(np.fft, name), refuses=("out",))
    def transform(
        a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None, out: Array | None = None
    ) -> Array:
        return line(name, a, n, axis, norm)


def _register_nd(name: str, ending: str) -> None:
    default = (-2, -1) if ending == "2" else None

    @implements(getattr(np.fft, name + ending), refuses=("out",))
    def transform(
        a: ArrayLike,
        s: Sequence[int] | None = None,
        axes: Sequence[int] | None = default,
        norm: str | None = None,
        out: Array | None = None,
    ) -> Array:
        x = to_float(*arrays(a))
        return transform_nd(name, x, *_lengths(x, s, axes), norm)


for _name in TRANSFORMS:
    _along_one(_name)
for _name in NAMES:
    for _ending in ("2", "n"):
        _register_nd(_name, _ending)


def _shifted(x: ArrayLike, axes: Axes, sign: int) -> Array:
    (v,) = arrays(x)
    if axes is None:
        axes = range(len(v.shape))
    axes = tuple([a.__index__() for a in (axes if hasattr(axes, "__iter__") else (axes,))])
    return np.roll(v, [sign * (v.shape[a] // 2) for a in axes], axes)


@implements(np.fft.fftshift)
def fftshift(x: ArrayLike, axes: Axes = None) -> Array:
    """`np.fft.fftshift`."""
    return _shifted(x, axes, 1)


@implements(np.fft.ifftshift)
def ifftshift(x: ArrayLike, axes: Axes = None) -> Array:
    """`np.fft.ifftshift`."""
    return _shifted(x, axes, -1)
