"""Linear image filters of `scipy.ndimage`: along each axis a matrix, which SciPy itself computes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from tracegrad.numpy_api.operands import arrays, to_float
from tracegrad.numpy_api.registry import refuse
from tracegrad.ops.core.op import dispatch_operand
from tracegrad.scipy_api.convolution import over_windows
from tracegrad.scipy_api.registry import shadow
from tracegrad.typing import Array, ArrayLike, Axes, NDArray, Number

# Size of elements, relative to the largest in the row of a filter's matrix, that do not change a sum; rows of a block.
# The elements decrease with the distance from the diagonal, for a spline of order 3 by a factor of about 4 per step.
_NOTHING, _BLOCK_ROWS = 1e-20, 128


def along_axis(filtered: Callable[[NDArray], NDArray], x: Array, axis: int) -> Array:
    """Apply a linear filter along an axis: the matrix of its results for the identity, and its constant term.

    The filter is a function of arrays along their first axis.
    """
    n = x.shape[axis]
    added = filtered(np.zeros((n, 1)))[:, 0]
    matrix = filtered(np.eye(n)) - added[:, None]
    result = product(matrix.astype(x.dtype), x, axis)
    if np.any(added):
        result = result + added.astype(x.dtype).reshape([len(added) if i == axis else 1 for i in range(len(x.shape))])
    return result


def product(matrix: Array, x: Array, axis: int) -> Array:
    """Multiply `x` along an axis by a banded matrix, for blocks of rows with the elements that they reach."""
    result, counts = [], np.abs(matrix) > _NOTHING * np.max(np.abs(matrix), axis=1, keepdims=True)
    for i in range(0, len(matrix), _BLOCK_ROWS):
        rows = matrix[i : i + _BLOCK_ROWS]
        reached = np.flatnonzero(np.any(counts[i : i + _BLOCK_ROWS], axis=0)).tolist() or [0]
        first, last = reached[0], reached[-1] + 1
        block = x[(*[slice(None)] * axis, slice(first, last))]
        result.append(np.tensordot(rows[:, first:last], block, axes=(1, axis)))
    return np.moveaxis(result[0] if len(result) == 1 else np.concatenate(result), 0, axis)


def _along(name: str, x: Array, axis: int, *args: object, **kwargs: object) -> Array:
    """Apply SciPy's filter `name` along an axis."""
    import scipy.ndimage

    if dispatch_operand((*args, *kwargs.values())) is not None:
        raise refuse(f"scipy.ndimage.{name} with traced parameters", "only the image may be traced")
    filtered = getattr(scipy.ndimage, name)
    return along_axis(lambda v: filtered(v, *args, axis=0, **kwargs), x, axis)


def _one_axis(name: str) -> None:
    @shadow(f"scipy.ndimage.{name}")
    def filtered(*args: Array | Number, **kwargs: object) -> Array:
        import scipy.ndimage

        inputs = inspect.signature(getattr(scipy.ndimage, name)).bind(*args, **kwargs).arguments
        if inputs.pop("output", None) is not None:
            raise refuse(f"the argument output= of scipy.ndimage.{name}")
        inputs.update(inputs.pop("kwargs", {}))
        x = to_float(arrays(inputs.pop("input"))[0])
        return _along(name, x, inputs.pop("axis", -1) % len(x.shape), **inputs)


for _name in ("correlate1d", "convolve1d", "gaussian_filter1d", "uniform_filter1d"):
    _one_axis(_name)


def _edges(name: str, across: tuple[float, float, float]) -> None:
    @shadow(f"scipy.ndimage.{name}")
    def derivative(
        input: ArrayLike, axis: int = -1, output: ArrayLike | None = None, mode: str = "reflect", cval: float = 0.0
    ) -> Array:
        if output is not None:
            raise refuse(f"the argument output= of scipy.ndimage.{name}")
        x = to_float(arrays(input)[0])
        for k, m in _modes(x, mode):
            weights = (-1.0, 0.0, 1.0) if k == axis % len(x.shape) else across
            x = _along("correlate1d", x, k, weights, mode=m, cval=cval)
        return x


_edges("sobel", (1.0, 2.0, 1.0))
_edges("prewitt", (1.0, 1.0, 1.0))


def _modes(x: Array, mode: str) -> Iterable[tuple[int, str]]:
    """Return each axis, and the mode along it."""
    return enumerate(mode if isinstance(mode, list | tuple) else [mode] * len(x.shape))


@shadow("scipy.ndimage.uniform_filter")
def uniform_filter(
    input: ArrayLike,
    size: int = 3,
    output: ArrayLike | None = None,
    mode: str = "reflect",
    cval: float = 0.0,
    origin: int = 0,
    *,
    axes: Axes = None,
) -> Array:
    """`scipy.ndimage.uniform_filter`"""
    if output is not None or axes is not None:
        raise refuse("the argument output= or axes= of scipy.ndimage.uniform_filter")
    x = to_float(arrays(input)[0])
    sizes, origins = (v if isinstance(v, list | tuple) else [v] * len(x.shape) for v in (size, origin))
    for axis, m in _modes(x, mode):
        if sizes[axis] > 1:
            x = _along("uniform_filter1d", x, axis, sizes[axis], mode=m, cval=cval, origin=origins[axis])
    return x


@shadow("scipy.ndimage.laplace")
def laplace(
    input: ArrayLike, output: ArrayLike | None = None, mode: str = "reflect", cval: float = 0.0, *, axes: Axes = None
) -> Any:
    """`scipy.ndimage.laplace`"""
    if output is not None or axes is not None:
        raise refuse("the argument output= or axes= of scipy.ndimage.laplace")
    x = to_float(arrays(input)[0])
    return sum(_along("correlate1d", x, k, (1.0, -2.0, 1.0), mode=m, cval=cval) for k, m in _modes(x, mode))


@shadow("scipy.ndimage.gaussian_filter")
def gaussian_filter(
    input: ArrayLike,
    sigma: float,
    order: int = 0,
    output: ArrayLike | None = None,
    mode: str = "reflect",
    cval: float = 0.0,
    truncate: float = 4.0,
    *,
    radius: object = None,
    axes: Axes = None,
) -> Array:
    """`scipy.ndimage.gaussian_filter`"""
    if output is not None:
        raise refuse("the argument output= of scipy.ndimage.gaussian_filter")
    x = to_float(arrays(input)[0])
    along = range(len(x.shape)) if axes is None else [a % len(x.shape) for a in np.atleast_1d(axes).tolist()]
    each = [v if isinstance(v, list | tuple) else [v] * len(along) for v in (sigma, order, mode, radius)]
    for axis, s, o, m, r in zip(along, *each):
        if s > 1e-15:
            x = _along("gaussian_filter1d", x, axis, s, order=o, mode=m, cval=cval, truncate=truncate, radius=r)
    return x


_PADDING = {"reflect": "symmetric", "mirror": "reflect", "nearest": "edge", "wrap": "wrap", "constant": "constant"}


def _correlated(
    name: str, input: ArrayLike, weights: ArrayLike, output: object, mode: str, cval: float, origin: int, flipped: bool
) -> Array:
    if output is not None:
        raise refuse(f"the argument output= of scipy.ndimage.{name}")
    if mode not in _PADDING:
        raise refuse(f"scipy.ndimage.{name} with mode={mode!r}")
    x, w = (to_float(v) for v in arrays(input, weights))
    w = np.flip(w) if flipped else w
    moved = [origin] * len(w.shape) if isinstance(origin, int) else list(origin)
    before = [(n - 1) // 2 - o if flipped else n // 2 + o for n, o in zip(w.shape, moved)]
    sides = [(b, n - 1 - b) for b, n in zip(before, w.shape)]
    extra = {"constant_values": cval} if mode == "constant" else {}
    padded = np.pad(x, sides, mode=_PADDING[mode], **extra)  # type: ignore[call-overload]
    return over_windows(padded, w)


@shadow("scipy.ndimage.correlate")
def correlate(
    input: ArrayLike,
    weights: ArrayLike,
    output: ArrayLike | None = None,
    mode: str = "reflect",
    cval: float = 0.0,
    origin: int = 0,
) -> Array:
    """`scipy.ndimage.correlate`"""
    return _correlated("correlate", input, weights, output, mode, cval, origin, flipped=False)


@shadow("scipy.ndimage.convolve")
def convolve(
    input: ArrayLike,
    weights: ArrayLike,
    output: object = None,
    mode: str = "reflect",
    cval: float = 0.0,
    origin: int = 0,
) -> Array:
    """`scipy.ndimage.convolve`"""
    return _correlated("convolve", input, weights, output, mode, cval, origin, flipped=True)
