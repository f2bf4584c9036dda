"""Fourier transforms of `scipy.fft`, which are NumPy's, and sine and cosine transforms.

A sine or cosine transform is one node, computed by SciPy. It is linear. Its transpose is a transform of the inverse
type, with weights for the elements at the ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from tracegrad.avals import short_name
from tracegrad.errors import located
from tracegrad.numpy_api.lazy.fft import TRANSFORMS, line, resized, transform_nd
from tracegrad.numpy_api.operands import arrays, to_float
from tracegrad.numpy_api.registry import refuse
from tracegrad.ops.calls.custom_call import custom_call, opaque
from tracegrad.ops.elementwise.table import divide, multiply
from tracegrad.scipy_api.registry import shadow
from tracegrad.typing import Array, ArrayLike, Axes, NDArray, Sizes

_INVERSE = {1: 1, 2: 3, 3: 2, 4: 4}
_OTHER = {"backward": "forward", "forward": "backward", "ortho": "ortho"}


class _FourierTransform:
    """Sine or cosine transform along a negative axis; the object is also its own derivative rule."""

    def __init__(self, name: str, kind: int, norm: str, axis: int):
        self.name, self.kind, self.norm, self.axis = name, kind, norm, axis

    def __repr__(self) -> str:
        return repr(f"scipy.fft.{self.name} {self.kind} {self.norm} {self.axis}")

    def __call__(self, x: Array) -> tuple[NDArray, ...]:
        from scipy import fft

        return (np.asarray(getattr(fft, self.name)(x, self.kind, axis=self.axis, norm=self.norm)),)

    def of(self, x: Array) -> Array:
        """Apply the transform to a value."""
        outputs = opaque(x, results=((x.shape, short_name(x.dtype)),), call=self)
        return custom_call(*outputs, x, count=1, rule=self)[0]

    def transposed(self, ct: Array) -> Array:
        """Apply the transpose of the transform to a value."""
        if self.name.startswith("i"):
            return _FourierTransform(self.name[1:], _INVERSE[self.kind], _OTHER[self.norm], self.axis).transposed(ct)
        back = _FourierTransform(self.name, _INVERSE[self.kind], self.norm, self.axis)
        weights = self._weights(ct)
        if self.norm == "ortho" or weights is None:
            return back.of(ct)
        if self.kind == 2:
            return back.of(multiply(ct, weights))
        if self.kind == 3:
            return divide(back.of(ct), weights)
        return multiply(back.of(divide(ct, weights)), weights)

    def _weights(self, x: Any) -> Array | None:
        """Return the weights by which the transpose differs from the inverse type; None if all are 1."""
        n = x.shape[self.axis]
        weights = np.ones(n, x.dtype)
        if self.kind in (2, 3):
            weights[0 if self.name == "dct" else -1] = 2.0
        elif (self.name, self.kind) == ("dct", 1):
            weights[1:-1] = 2.0
        else:
            return None
        column = weights.reshape(n, *(1,) * (-1 - self.axis))
        result: Array | None = x._lift(np.broadcast_to(column, x.shape).copy())
        return result

    def pull(self, cotangents: tuple[Array, ...], outputs: tuple[Array, ...], inputs: tuple[Array, ...]) -> list[Array]:
        return [None if cotangents[0] is None else self.transposed(cotangents[0])]

    def push(self, tangents: tuple[Array, ...], outputs: tuple[Array, ...], inputs: tuple[Array, ...]) -> list[Array]:
        return [None if tangents[0] is None else self.of(tangents[0])]

    def batched(self, size: int) -> _FourierTransform:
        return self


def _one(name: str) -> Callable[..., Array]:
    api_name = f"scipy.fft.{name}"

    @shadow(api_name)
    def transform(
        x: Array,
        type: int = 2,
        n: int | None = None,
        axis: int = -1,
        norm: str | None = None,
        overwrite_x: bool = False,
        workers: int | None = None,
        orthogonalize: object = None,
    ) -> Array:
        (x,) = arrays(x)
        x = to_float(x)
        if x.dtype.kind != "f":
            raise refuse(f"{api_name} of complex numbers")
        if orthogonalize is not None and orthogonalize != (norm == "ortho"):
            raise refuse(f"the argument orthogonalize= of {api_name}")
        if not -len(x.shape) <= axis < len(x.shape):
            raise ValueError(f"{api_name}: axis {axis} is out of range for an array of {len(x.shape)} dimensions")
        axis = axis if axis < 0 else axis - len(x.shape)
        return _FourierTransform(name, type, norm or "backward", axis).of(resized(x, n, axis + len(x.shape)))

    return transform


def _register_nd(name: str, one: Callable[..., Array]) -> None:
    @shadow(f"scipy.fft.{name}n")
    def transform(
        x: ArrayLike,
        type: int = 2,
        s: Sizes | None = None,
        axes: Axes = None,
        norm: str | None = None,
        overwrite_x: bool = False,
        workers: int | None = None,
        *,
        orthogonalize: object = None,
    ) -> Array:
        (x,) = arrays(x)
        if axes is None:
            axes = range(-len(x.shape) if s is None else -len(tuple(np.atleast_1d(s))), 0)
        axes = [int(a) for a in np.atleast_1d(list(axes) if isinstance(axes, range) else axes)]
        sizes = [None] * len(axes) if s is None else [int(k) for k in np.atleast_1d(s)]
        if len(set(axes)) != len(axes) or len(sizes) != len(axes):
            raise ValueError(f"scipy.fft.{name}n: axes must be unique, and s and axes of one length")
        for axis, size in zip(axes, sizes):
            x = one(x, type, size, axis, norm, orthogonalize=orthogonalize)
        return x


for _name in ("dct", "dst", "idct", "idst"):
    _register_nd(_name, _one(_name))


# -- Fourier transforms ------------------------------------------------------------------------------------------
def _numbers(api_name: str, name: str, x: ArrayLike) -> Array:
    (x,) = arrays(x)
    if name in ("rfft", "ihfft") and x.dtype.kind == "c":
        raise TypeError(located(f"{api_name}: x must be a real sequence"))
    return to_float(x)


def _register_fft(name: str) -> None:
    api_name = f"scipy.fft.{name}"

    @shadow(api_name)
    def transform(
        x: ArrayLike,
        n: int | None = None,
        axis: int = -1,
        norm: str | None = None,
        overwrite_x: bool = False,
        workers: int | None = None,
        *,
        plan: object = None,
    ) -> Array:
        return line(name, _numbers(api_name, name, x), n, axis, norm)


def _register_fft_nd(name: str, ending: str) -> None:
    api_name = f"scipy.fft.{name}{ending}"
    default = (-2, -1) if ending == "2" else None

    @shadow(api_name)
    def transform(
        x: ArrayLike,
        s: Sizes | None = None,
        axes: Axes = default,
        norm: str | None = None,
        overwrite_x: bool = False,
        workers: int | None = None,
        *,
        plan: object = None,
    ) -> Array:
        x = _numbers(api_name, name, x)
        sizes = None if s is None else [int(k) for k in np.atleast_1d(s)]
        if axes is None:
            axes = range(-len(x.shape) if sizes is None else -len(sizes), 0)
        axes = [int(a) for a in np.atleast_1d(list(axes) if isinstance(axes, range) else axes)]
        if len({a % max(len(x.shape), 1) for a in axes}) != len(axes) or len(sizes or axes) != len(axes):
            raise ValueError(located(f"{api_name}: axes must be unique, and s and axes of one length"))
        return transform_nd(name, x, sizes or [None] * len(axes), axes, norm)


for _name in TRANSFORMS:
    _register_fft(_name)
    for _ending in ("2", "n"):
        _register_fft_nd(_name, _ending)


@shadow("scipy.fft.fftshift")
def fftshift(x: ArrayLike, axes: Axes = None) -> Array:
    """`scipy.fft.fftshift`."""
    return np.fft.fftshift(arrays(x)[0], axes)


@shadow("scipy.fft.ifftshift")
def ifftshift(x: ArrayLike, axes: Axes = None) -> Array:
    """`scipy.fft.ifftshift`."""
    return np.fft.ifftshift(arrays(x)[0], axes)


def _refused(name: str) -> None:
    @shadow(f"scipy.fft.{name}")
    def call(*args: ArrayLike, **kwargs: object) -> NoReturn:
        raise refuse(f"scipy.fft.{name}", "there are the transforms of Fourier's, and scipy.fft.dct and dst")


for _name in ("fht", "ifht"):
    _refused(_name)
