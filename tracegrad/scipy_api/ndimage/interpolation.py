"""Image resampling of `scipy.ndimage` (`map_coordinates`, `shift`, `zoom`, `rotate`, `affine_transform`).

A result is a sum of B-splines around each coordinate. The spline coefficients are a linear filter of the image: along
an axis a matrix, which SciPy computes. `mode` says which elements replace neighbours outside the image.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracegrad.numpy_api.operands import arrays, to_dtype, to_float
from tracegrad.numpy_api.registry import refuse
from tracegrad.ops.core.op import dispatch_operand
from tracegrad.scipy_api.ndimage.filters import product
from tracegrad.scipy_api.registry import shadow
from tracegrad.typing import Array, ArrayLike, DTypeLike, NDArray, Number, Shape

_PAD = 12  # elements at each side, as SciPy pads images for modes without a spline filter of their own
_F8 = np.dtype(np.float64)


# -- coordinates and elements outside the image ------------------------------------------------------------------------
def _triangle(x: Array, n: int) -> Array:
    """Reflect a coordinate at the centres of the image's first and last elements."""
    period = 2.0 * n - 2.0
    rest = np.remainder(np.abs(x), period)
    return np.where(rest >= np.where(x < 0, n - 1, n), period - rest, rest)


def _halves(x: Array, n: int) -> Array:
    """Reflect a coordinate at the outer edges of the image's first and last elements."""
    rest = np.where(x < 0, -1.0 - x, x)
    rest = rest - 2.0 * n * np.trunc(rest / (2.0 * n))
    return np.where((x >= 0) & (x <= n - 1), x, np.where(rest >= n, 2.0 * n - 1.0 - rest, rest))


def _around(x: Array, n: int) -> Array:
    """Wrap a coordinate around an image whose last element coincides with its first."""
    length = n - 1.0
    low, high = x + length * (np.floor(-x / length) + 1.0), x - length * np.floor(x / length)
    return np.where(x < 0, low, np.where(x > length, high, x))


# By mode, the function that maps a coordinate into the image; `_ELEMENTS` has the functions that map an index.
_COORDINATES: dict[str, Callable[[Any, int], Any]] = {
    "mirror": _triangle,
    "reflect": _halves,
    "grid-mirror": _halves,
    "wrap": _around,
    "nearest": lambda x, n: np.clip(x, 0.0, n - 1.0),
}


def _mirrored(i: Array, n: int) -> Array:
    rest = np.remainder(i, 2 * n - 2)
    return np.where(rest >= n, 2 * n - 2 - rest, rest)


def _reflected(i: Array, n: int) -> Array:
    rest = np.remainder(i, 2 * n)
    return np.where(rest >= n, 2 * n - 1 - rest, rest)


_ELEMENTS: dict[str, Callable[[Any, int], Any]] = {
    "mirror": _mirrored,
    "wrap": _mirrored,
    "constant": _mirrored,
    "reflect": _reflected,
    "grid-mirror": _reflected,
    "nearest": lambda i, n: np.clip(i, 0, n - 1),
    "grid-constant": lambda i, n: np.clip(i, 0, n - 1),
    "grid-wrap": lambda i, n: np.remainder(i, n),
}


def _weight(order: int, t: Array, k: int) -> Array:
    """Evaluate the B-spline of this order `k` elements from its centre, as a sum of truncated powers.

    `t` is the distance from the nearest element or, for odd orders, from the element below.
    """
    if order == 0:
        return t * 0.0 + 1.0
    reach, middle = 0.5 * (order + 1), 0.5 * (order % 2)
    total: Any = 0.0
    for j in range(order + 2):
        if middle - k + reach - j > 0:
            total = total + (-1.0) ** j * math.comb(order + 1, j) * (t + (reach - j - k)) ** order
    result: Array = total / math.factorial(order)
    return result


class _Axis:
    """Elements around the coordinates along one axis, their weights, and the mask of points outside."""

    def __init__(self, x: Array, n: int, order: int, mode: str):
        self.outside: Any = None
        if mode == "constant":
            self.outside = (x < 0) | (x > n - 1)
        elif n > 1:
            x = _COORDINATES[mode](x, n) if mode in _COORDINATES else x
        base = np.floor(x) if order % 2 else np.floor(x + 0.5)
        t, start = x - base, to_dtype(base, np.dtype(np.int64))
        self.taps = []
        for k in range(-(order // 2), order - order // 2 + 1):
            i = start + k
            index = _ELEMENTS[mode](i, n) if n > 1 else i * 0
            missing = (i < 0) | (i > n - 1) if mode == "grid-constant" else None
            self.taps.append((index, _weight(order, t, k), missing))


def _sampled(c: Array, coordinates: Sequence[Array], order: int, mode: str, cval: float) -> Array:
    """Evaluate the sum of B-splines with coefficients `c` at the coordinates, a list of arrays of one shape."""
    axes = [_Axis(x, n, order, mode) for x, n in zip(coordinates, c.shape)]
    flat = c.reshape(-1)
    total: Any = None
    for taps in itertools.product(*[axis.taps for axis in axes]):
        index, weight, missing = taps[0]
        for n, (p, w, m) in zip(c.shape[1:], taps[1:]):
            index, weight = index * n + p, weight * w
            missing = m if missing is None else missing | m
        result = np.take(flat, index)
        term = weight * (result if missing is None else np.where(missing, cval, result))
        total = term if total is None else total + term
    for axis in axes:
        if axis.outside is not None:
            total = np.where(axis.outside, cval, total)
    output: Array = total
    return output


# -- from an image to coefficients -------------------------------------------------------------------------------------
def _filtered(c: Array, order: int, mode: str) -> Array:
    import scipy.ndimage

    for axis, n in enumerate(c.shape):
        if n > 1:
            everywhere = 0.0 * np.sum(c, axis=axis, keepdims=True)  # SciPy's recursion carries nan along the axis
            c = product(scipy.ndimage.spline_filter1d(np.eye(n), order, axis=0, mode=mode), c, axis) + everywhere
    return c


def _resampled(
    name: str,
    input: ArrayLike,
    coordinates: Sequence[Array],
    output: DTypeLike,
    order: int,
    mode: str,
    cval: float,
    prefilter: bool,
) -> Array:
    """Resample the image at coordinates, an array for each of its axes."""
    api_name = f"scipy.ndimage.{name}"
    if mode not in _ELEMENTS or dispatch_operand((cval,)) is not None or not 0 <= order <= 5:
        raise refuse(f"{api_name} with order={order!r}, mode={mode!r} and cval={cval!r}")
    (image,) = arrays(input)
    if isinstance(output, np.ndarray) or dispatch_operand((output,)) is not None:
        raise refuse(f"the argument output= of {api_name}", "use the result")
    dtype = np.dtype(output) if output is not None else image.dtype
    if dtype.kind != "f":
        raise refuse(f"{api_name} of integers", "give output=np.float64")
    c = to_dtype(to_float(image), _F8)
    coordinates = [to_dtype(to_float(x), _F8) for x in coordinates]
    if prefilter and order > 1:
        if mode in ("nearest", "grid-constant"):
            how: dict[str, Any] = {"mode": "edge"} if mode == "nearest" else {"constant_values": cval}
            c, coordinates = np.pad(c, _PAD, **how), [x + float(_PAD) for x in coordinates]
        c = _filtered(c, order, mode)
    return to_dtype(_sampled(c, coordinates, order, mode, cval), dtype)


@shadow("scipy.ndimage.map_coordinates")
def map_coordinates(
    input: Any,
    coordinates: ArrayLike,
    output: DTypeLike = None,
    order: int = 3,
    mode: str = "constant",
    cval: float = 0.0,
    prefilter: bool = True,
) -> Array:
    """`scipy.ndimage.map_coordinates`, with derivatives in the image and the coordinates."""
    (points,) = arrays(coordinates)
    if points.shape[0] != len(np.shape(input)):
        raise RuntimeError("invalid shape for coordinate array")
    args = [points[k] for k in range(points.shape[0])]
    return _resampled("map_coordinates", input, args, output, order, mode, cval, prefilter)


@shadow("scipy.ndimage.spline_filter")
def spline_filter(input: ArrayLike, order: int = 3, output: DTypeLike = np.float64, mode: str = "mirror") -> Array:
    """`scipy.ndimage.spline_filter`"""
    if np.dtype(output) != _F8:
        raise refuse("the argument output= of scipy.ndimage.spline_filter")
    c = to_dtype(to_float(arrays(input)[0]), _F8)
    return c if order in (0, 1) else _filtered(c, order, mode)


def _grid(shape: Shape) -> list[NDArray]:
    """Return the coordinates of the elements of an array of this shape."""
    return [np.asarray(x, np.float64) for x in np.indices(shape)]


def _each(x: ArrayLike, rank: int) -> list[Array]:
    """Return a number for each axis."""
    (x,) = arrays(x)
    return [x[k] for k in range(rank)] if x.shape else [x] * rank


@shadow("scipy.ndimage.shift")
def shift(
    input: Array | Number,
    shift: ArrayLike,
    output: DTypeLike = None,
    order: int = 3,
    mode: str = "constant",
    cval: float = 0.0,
    prefilter: bool = True,
) -> Array:
    """`scipy.ndimage.shift`, with derivatives in the image and the shift."""
    shape = np.shape(input)
    args = [x - s for x, s in zip(_grid(shape), _each(shift, len(shape)))]
    return _resampled("shift", input, args, output, order, mode, cval, prefilter)


@shadow("scipy.ndimage.zoom")
def zoom(
    input: ArrayLike,
    zoom: float | Sequence[float],
    output: DTypeLike = None,
    order: int = 3,
    mode: str = "constant",
    cval: float = 0.0,
    prefilter: bool = True,
    *,
    grid_mode: bool = False,
) -> Array:
    """`scipy.ndimage.zoom`, with a derivative in the image."""
    if dispatch_operand((zoom,)) is not None:
        raise refuse("scipy.ndimage.zoom by a traced factor", "use affine_transform")
    (image,) = arrays(input)
    shape = image.shape
    factors = [float(z) for z in np.broadcast_to(zoom, (len(shape),))]
    wanted = [round(n * z) for n, z in zip(shape, factors)]
    offset = 0 if grid_mode else 1
    scales = [(n - offset) / (m - offset) if m != offset else 1.0 for n, m in zip(shape, wanted)]
    if all(z == 1 for z in factors) and prefilter and output is None:
        return image * 1
    args = [(x + 0.5) * s - 0.5 if grid_mode else x * s for x, s in zip(_grid(tuple(wanted)), scales)]
    return _resampled("zoom", input, args, output, order, mode, cval, prefilter)


@shadow("scipy.ndimage.affine_transform")
def affine_transform(
    input: Any,
    matrix: Any,
    offset: Any = 0.0,
    output_shape: Any = None,
    output: DTypeLike = None,
    order: int = 3,
    mode: str = "constant",
    cval: float = 0.0,
    prefilter: bool = True,
) -> Array:
    """`scipy.ndimage.affine_transform`, with derivatives in the image, the matrix and the offset."""
    rank, (a,) = len(np.shape(input)), arrays(matrix)
    if len(a.shape) == 2 and a.shape[1] == rank + 1:
        a, offset = a[:rank, :rank], a[:rank, rank]
    grid, begin = _grid(np.shape(input) if output_shape is None else output_shape), _each(offset, rank)
    if len(a.shape) == 1:
        args = [a[k] * x + begin[k] for k, x in enumerate(grid)]
    else:
        args = [sum((a[k, j] * x for j, x in enumerate(grid)), begin[k]) for k in range(rank)]
    return _resampled("affine_transform", input, args, output, order, mode, cval, prefilter)


@shadow("scipy.ndimage.rotate")
def rotate(
    input: Array | Number,
    angle: int,
    axes: Sequence[int] = (1, 0),
    reshape: bool = True,
    output: DTypeLike = None,
    order: int = 3,
    mode: str = "constant",
    cval: float = 0.0,
    prefilter: bool = True,
) -> Array:
    """`scipy.ndimage.rotate` of a matrix, with derivatives in the image and, without `reshape`, in the angle."""
    from scipy import special

    shape = np.shape(input)
    if len(shape) != 2 or (reshape and dispatch_operand((angle,)) is not None):
        raise refuse("scipy.ndimage.rotate of more axes than two, or by a traced angle with reshape=True")
    c, s = special.cosdg(angle), special.sindg(angle)
    wanted = shape
    if reshape:
        corners = np.array([[c, s], [-s, c]]) @ [[0, 0, shape[0], shape[0]], [0, shape[1], 0, shape[1]]]
        wanted = tuple((np.ptp(corners, axis=1) + 0.5).astype(int).tolist())
    y, x = (v - (n - 1) / 2 for v, n in zip(_grid(wanted), wanted))
    args = [c * y + s * x + (shape[0] - 1) / 2, c * x - s * y + (shape[1] - 1) / 2]
    return _resampled("rotate", input, args, output, order, mode, cval, prefilter)
