"""Keys of random numbers, and the random words that a key gives (Threefry-2x32)."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from tracegrad.ops.elementwise.bits import bitwise_or, bitwise_xor, left_shift, right_shift
from tracegrad.ops.elementwise.table import add, multiply
from tracegrad.ops.shape.fill import arange, full
from tracegrad.ops.shape.linear import cast, reshape
from tracegrad.random.docs import RANDOM_DOCS
from tracegrad.typing import Array, DTypeLike

__all__ = ["Shape", "bits", "fold_in", "key", "shape_of", "shape_or_broadcast", "split", "threefry", "unit_interval"]

Shape = int | tuple[int, ...]

_ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)
_PARITY = 0x1BD11BDA
# The second word of a counter: what the block is for.
_DRAW, _SPLIT, _FOLD = 0, 0xFFFFFFFF, 0xFFFFFFFE


def threefry(key: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """Compute the Threefry blocks of the counters (x, y)."""
    first, second = key[0], key[1]
    keys = first, second, bitwise_xor(bitwise_xor(first, second), np.uint32(_PARITY))
    x, y = add(x, keys[0]), add(y, keys[1])
    for i in range(5):
        for r in _ROTATIONS[i % 2]:
            x = add(x, y)
            y = bitwise_xor(bitwise_or(left_shift(y, np.uint32(r)), right_shift(y, np.uint32(32 - r))), x)
        x, y = add(x, keys[(i + 1) % 3]), add(add(y, keys[(i + 2) % 3]), np.uint32(i + 1))
    return x, y


def _checked(key: Any) -> Any:
    if getattr(key, "shape", None) != (2,) or key.dtype != np.uint32:
        raise TypeError(f"a key is a uint32 array of 2 elements, as tracegrad.random.key gives it, got {key!r:.80}")
    return key


def _blocks(key: Any, count: int, kind: int = _DRAW) -> tuple[Any, Any]:
    """Compute `count` blocks, as two arrays of 32-bit words."""
    if count > 2**32:
        raise ValueError(f"a key gives at most 2**32 elements, asked for {count}: split it")
    numbers = arange(start=0, step=1, length=count, dtype="uint32")
    return threefry(_checked(key), numbers, full(shape=(count,), value=kind, dtype="uint32"))


def key(seed: int) -> Array:
    """Make a key of an integer.

    >>> print(key(2**32 + 7))
    [1 7]
    """
    number = operator.index(seed) & 0xFFFFFFFFFFFFFFFF
    return np.array([number >> 32, number & 0xFFFFFFFF], np.uint32)


def split(key: Any, num: int = 2) -> Array:
    """Split a key into new keys.

    >>> print(split(key(0)).shape)
    (2, 2)
    """
    return np.stack(_blocks(key, num, _SPLIT), axis=1)


def fold_in(key: Any, data: Array) -> Array:
    """Make a new key of a key and an integer, such as the number of an iteration or of an example.

    >>> bool(np.all(fold_in(key(0), 1) == fold_in(key(0), 2)))
    False
    """
    word = np.uint32(operator.index(data) & 0xFFFFFFFF) if isinstance(data, int) else cast(data, dtype="uint32")
    return np.stack(threefry(_checked(key), word, np.uint32(_FOLD)))


def shape_of(shape: Shape) -> tuple[int, ...]:
    return tuple(map(operator.index, shape)) if isinstance(shape, tuple | list) else (operator.index(shape),)


def shape_or_broadcast(shape: Shape | None, *xs: Any) -> tuple[int, ...]:
    return np.broadcast_shapes(*[np.shape(x) for x in xs]) if shape is None else shape_of(shape)


def bits(key: Any, shape: Shape = ()) -> Array:
    """Draw random 32-bit words.

    They are those of Threefry-2x32 with 20 rounds (J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel random
    numbers: as easy as 1, 2, 3", SC 2011).

    >>> print(bits(key(0), 2))
    [1797259609 1351547692]
    """
    shape = shape_of(shape)
    return reshape(_blocks(key, math.prod(shape))[0], shape=shape)


def unit_interval(key: Any, shape: tuple[int, ...], dtype: DTypeLike, inside: bool = False) -> Array:
    """Draw numbers from [0, 1), in steps of 2**-53 (2**-24), or with `inside` from (0, 1), in steps twice as long."""
    x, y = _blocks(key, math.prod(shape))
    if np.dtype(dtype) == np.float32:
        u = cast(right_shift(x, np.uint32(9 if inside else 8)), dtype="float32")
        u = multiply(add(u, 0.5 if inside else 0.0), 2.0**-23 if inside else 2.0**-24)
    elif np.dtype(dtype) == np.float64:
        high, low = right_shift(x, np.uint32(6 if inside else 5)), right_shift(y, np.uint32(6))
        u = add(multiply(cast(high, dtype="float64"), 2.0**26), cast(low, dtype="float64"))
        u = multiply(add(u, 0.5 if inside else 0.0), 2.0**-52 if inside else 2.0**-53)
    else:
        raise TypeError(f"random numbers are float64 or float32, not {np.dtype(dtype)}")
    return reshape(u, shape=shape)


RANDOM_DOCS.document(globals(), __all__)
