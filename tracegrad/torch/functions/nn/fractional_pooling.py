"""Fractional max pooling: maxima of windows at random places (Graham 2014), with PyTorch's signatures."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.errors import DTypeError, located
from tracegrad.numpy_api.operands import arrays
from tracegrad.ops.elementwise.table import floor, multiply, subtract
from tracegrad.ops.shape.linear import cast, reshape
from tracegrad.torch.functions.core.dims import dim_of, integers, size_error
from tracegrad.torch.functions.core.generator import stream
from tracegrad.torch.functions.core.operands import as_node
from tracegrad.torch.functions.core.registry import FUNCTIONS
from tracegrad.torch.functions.math import extrema  # noqa: F401  (it registers `max`)
from tracegrad.torch.functions.nn.windows import for_each

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracegrad.typing import Array, Sizes

_SIDES = {2: ("height", "width"), 3: ("time", "height", "width")}


def fractional_max_pool2d(
    input: Array,
    kernel_size: Sizes,
    output_size: Sizes | None = None,
    output_ratio: float | Sequence[float] | None = None,
    return_indices: bool = False,
    _random_samples: Array | None = None,
) -> Array | tuple[Array, Array]:
    """Return the maxima of `output_size` windows at random places of the last two dimensions.

    The windows of an example and channel are about as far from each other as `output_size`, or `output_ratio` times the
    size of the input, requires. In a trace, they are drawn at each call. Source: B. Graham, "Fractional max-pooling",
    2014. ValueError unless one of the two is passed; RuntimeError for windows that do not fit.

    >>> fractional_max_pool2d(np.ones((1, 1, 6, 6)), 2, output_size=3).shape
    (1, 1, 3, 3)
    """
    return _fractional_max_pool(2, input, kernel_size, output_size, output_ratio, return_indices, _random_samples)


def fractional_max_pool3d(
    input: Array,
    kernel_size: Sizes,
    output_size: Sizes | None = None,
    output_ratio: float | Sequence[float] | None = None,
    return_indices: bool = False,
    _random_samples: Array | None = None,
) -> Array | tuple[Array, Array]:
    """Return the maxima of `output_size` windows at random places of the last three dimensions.

    Otherwise as `fractional_max_pool2d`.

    >>> fractional_max_pool3d(np.ones((1, 6, 6, 6)), 2, output_ratio=0.5).shape
    (1, 3, 3, 3)
    """
    return _fractional_max_pool(3, input, kernel_size, output_size, output_ratio, return_indices, _random_samples)


def _fractional_max_pool(
    count: int,
    input: Array,
    kernel_size: Sizes,
    output_size: Sizes | None,
    output_ratio: float | Sequence[float] | None,
    return_indices: bool,
    samples: Array | None,
) -> Array | tuple[Array, Array]:
    name = f"fractional_max_pool{count}d"
    (x,) = arrays(input)
    rank = len(x.shape)
    if rank not in (count + 1, count + 2):
        dim_of(-count - 1, rank)
        raise size_error(f"{name}(): Expected {count + 1}D or {count + 2}D tensor, but got a {rank}D input")
    if x.dtype.kind != "f":
        raise DTypeError(located(f"{name} is not implemented for dtype {x.dtype.name}"))
    sizes, kernel = x.shape[rank - count :], for_each(kernel_size, count)
    out = _output_size(name, sizes, output_size, output_ratio)
    for side, size, k, n in zip(_SIDES[count], sizes, kernel, out):
        if n + k - 1 > size:
            raise RuntimeError(located(f"{name}(): pool {side} {k} too large relative to input {side} {size}"))
    lead = x.shape[: rank - count]
    if samples is None:
        drawn = stream(name).random((*(1,) * (count + 2 - rank), *lead, count), np.float64)
        samples = drawn if x.dtype.itemsize == 8 else drawn.astype(x.dtype)
    (samples,) = arrays(samples)
    values, index = as_node(
        f"FractionalMaxPool{count}DBackward0", _maxima, x, reshape(samples, shape=(*lead, count)), kernel, out
    )
    return (values, index) if return_indices else values


def _output_size(
    name: str, sizes: Sequence[int], output_size: Sizes | None, ratio: float | Sequence[float] | None
) -> Sequence[int]:
    if output_size is not None:
        return integers((for_each(output_size, len(sizes)),))
    if ratio is None:
        raise ValueError(located(f"{name} requires specifying either an output_size or an output_ratio"))
    ratios = [float(ratio)] * len(sizes) if isinstance(ratio, int | float) else ratio
    return [int(n * r) for n, r in zip(sizes, ratios)]


def _maxima(x: Array, samples: Array, kernel: Sequence[int], out: Sequence[int]) -> tuple[Array, Array]:
    count = len(kernel)
    lead, sizes = x.shape[: len(x.shape) - count], x.shape[len(x.shape) - count :]
    place: Any = 0
    for k in range(count):
        # PyTorch's samples of planes have the width first, and those of volumes the time.
        starts = _starts(samples[..., count - 1 - k if count == 2 else k], sizes[k], out[k], kernel[k])
        along = reshape(starts, shape=(*lead, out[k], 1)) + np.arange(kernel[k])
        shape = [1] * (2 * count)
        shape[k], shape[count + k] = out[k], kernel[k]
        place = place * sizes[k] + reshape(along, shape=(*lead, *shape))
    flat = reshape(x, shape=(*lead, math.prod(sizes)))
    index = reshape(place, shape=(*lead, math.prod(out) * math.prod(kernel)))
    windows = reshape(FUNCTIONS["gather"](flat, -1, index), shape=(*lead, *out, math.prod(kernel)))
    values, chosen = FUNCTIONS["max"](windows, -1)
    index = reshape(index, shape=(*lead, *out, math.prod(kernel)))
    places = FUNCTIONS["gather"](index, -1, reshape(chosen, shape=(*lead, *out, 1)))
    return values, reshape(places, shape=(*lead, *out))


def _starts(sample: Array, size: int, out: int, kernel: int) -> Array:
    """Return the first elements of `out` windows, in ascending order; the last window ends with the input."""
    step = (size - kernel) / (out - 1) if out > 1 else 0.0
    sample = reshape(sample, shape=(*sample.shape, 1))
    places = subtract(floor(multiply(sample + np.arange(out, dtype=sample.dtype), step)), floor(multiply(sample, step)))
    starts: Array = FUNCTIONS["where"](np.arange(out) == out - 1, size - kernel, cast(places, dtype="int64"))
    return starts
