"""Windows of arrays: sizes, padding, and the elements of all windows, for convolution, pooling and patches."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from tracegrad.numpy_api.operands import constant, peer_of
from tracegrad.ops.elementwise.table import add
from tracegrad.ops.indexing import gather_scatter as ops
from tracegrad.ops.nn.im2col import patches
from tracegrad.ops.shape import linear
from tracegrad.ops.shape.linear import concatenate, reduce_sum, reshape
from tracegrad.torch.functions.core.dims import integers, lengths, size_error
from tracegrad.typing import Array, NDArray
from tracegrad.utils.lazy_dataclass import record

Sizes = tuple[int, ...]


def for_each(value: Any, count: int) -> Sizes:
    """Return one number for each of `count` dimensions."""
    result = integers((value,)) if isinstance(value, tuple | list) else (value.__index__(),)
    if len(result) not in (1, count):
        raise size_error(f"expected one number or {count}, got {lengths(result)}")
    return result * count if len(result) == 1 else result


def with_batch(x: Array, count: int, name: str) -> tuple[Array, bool]:
    """Add a batch dimension to `x` if it has none; also return whether it had one."""
    if len(x.shape) == count + 2:
        return x, True
    if len(x.shape) != count + 1:
        raise size_error(
            f"Expected {count + 1}D (unbatched) or {count + 2}D (batched) input to {name}, but got input of size: "
            f"{lengths(x.shape)}"
        )
    return reshape(x, shape=(1, *x.shape)), False


def windows_of(x: Array, kernel: Sizes, stride: Sizes, dilation: Sizes, out: Sizes) -> Array:
    """Return the elements of all windows of `x`, (N, C, d1, ...), as (N, C, offsets in a window, windows...)."""
    batch_shape = x.shape[:2]
    window_slices = []
    for offset in itertools.product(*map(range, kernel)):
        start = tuple(i * d for i, d in zip(offset, dilation))
        stop = tuple(a + (n - 1) * s + 1 for a, n, s in zip(start, out, stride))
        window_slice = linear.slice(x, start=(0, 0, *start), stop=(*batch_shape, *stop), step=(1, 1, *stride))
        window_slices.append(reshape(window_slice, shape=(*batch_shape, 1, *out)))
    return concatenate(*window_slices, axis=2) if len(window_slices) > 1 else window_slices[0]


def padded_by(x: Array, low: Sizes, high: Sizes, value: float) -> Array:
    if not any(low) and not any(high):
        return x
    none = (0,) * len(x.shape)
    return linear.pad(x, low=(0, 0, *low), high=(0, 0, *high), interior=none, value=value)


def window_count(n: int, span: int, stride: int, padding: int, ceil_mode: bool = False) -> int:
    """Return the number of windows along a dimension of length `n`, padded at both ends."""
    rest = n + 2 * padding - span
    if not ceil_mode:
        return rest // stride + 1
    out = -(-rest // stride) + 1
    # A window that would start in the padding after the input is omitted.
    return out - 1 if (out - 1) * stride >= n + padding else out


@record(frozen=True)
class Windows:
    """Positions of windows of the size `kernel` in dimensions of the lengths `shape`, padded by `low` and `high`."""

    shape: Sizes
    kernel: Sizes
    stride: Sizes
    dilation: Sizes
    low: Sizes
    high: Sizes
    out: Sizes

    def of(self, x: Array, value: float) -> tuple[Array, tuple[int, ...]]:
        """Return the elements of all windows of `x`, (N, C, d1, ...), padded with `value`, and a window's axes."""
        x, count = padded_by(x, self.low, self.high, value), len(self.kernel)
        if self.kernel != self.stride or any(d != 1 for d in self.dilation):
            batch_shape = x.shape[:2]
            windows = patches(
                x,
                counts=(*batch_shape, *self.out),
                sizes=(1, 1, *self.kernel),
                start=(0,) * (2 + count),
                step=(1, 1, *self.stride),
                gap=(1, 1, *self.dilation),
            )
            within = tuple(range(2 + count, 2 + 2 * count))
            return reshape(windows, shape=(*batch_shape, *self.out, *self.kernel)), within
        # Windows that tile the array contain each element once, so a reshape is enough.
        stop = (*x.shape[:2], *(m * k for m, k in zip(self.out, self.kernel)))
        if x.shape != stop:
            x = linear.slice(x, start=(0,) * len(stop), stop=stop, step=(1,) * len(stop))
        tiled = reshape(x, shape=(*x.shape[:2], *itertools.chain(*zip(self.out, self.kernel))))
        return tiled, tuple(range(3, len(tiled.shape), 2))

    def counts(self, inside: bool) -> Array:
        """Count the elements of each window: of the input, if `inside`, or with `padding` included."""
        marks = np.ones((1, 1, *self.shape))
        around = [(0, 0), (0, 0), *((a, min(a, b)) for a, b in zip(self.low, self.high))]
        marks = np.pad(marks, around, constant_values=0.0 if inside else 1.0)
        marks = np.pad(marks, [(0, 0), (0, 0), *((0, max(b - a, 0)) for a, b in zip(self.low, self.high))])
        return reduce_sum(windows_of(marks, self.kernel, self.stride, (1,) * len(self.kernel), self.out), axes=(2,))

    def places(self, axis: int) -> NDArray:
        """Return the padded positions of the elements of all windows along one dimension: (kernel, windows)."""
        offsets = np.arange(self.kernel[axis]) * self.dilation[axis]
        return offsets[:, None] + np.arange(self.out[axis]) * self.stride[axis]

    def numbers(self, positions: Array) -> Array:
        """Return the row-major numbers of the input elements at the positions `positions` in the windows."""
        axis_strides = [math.prod(self.shape[k + 1 :]) for k in range(len(self.shape))]
        inside = [
            sum(i * d * s for i, d, s in zip(offset, self.dilation, axis_strides))
            for offset in itertools.product(*map(range, self.kernel))
        ]
        firsts: Any = 0
        for n, stride, low, axis_stride in zip(self.out, self.stride, self.low, axis_strides):
            firsts = np.add.outer(firsts, (np.arange(n) * stride - low) * axis_stride)
        peer = peer_of(positions)
        return add(ops.gather(constant(np.array(inside), peer), positions, axes=(0,)), constant(firsts, peer))
