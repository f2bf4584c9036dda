"""Random numbers from explicit keys: they work in `vmap` over keys, in `scan`, and in compiled loops.

A function of a key gives the same numbers at each call, eager, compiled and in a batch; `split` makes new keys. Keys
are uint32 arrays of two elements; other keys raise TypeError, and more than 2**32 elements of one key raise ValueError.
The bits come from Threefry-2x32 with 20 rounds (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2,
3, SC 2011), applied to the key and the number of the element; they will not change. `jax.random` has the same names
and arguments, but other bits.

>>> import numpy as np, tracegrad as tg
>>> a, b = tg.random.split(tg.random.key(0))
>>> tg.random.normal(a, (2, 3)).shape, bool(np.all(tg.random.uniform(a, (3,)) == tg.random.uniform(b, (3,))))
((2, 3), False)
>>> tg.vmap(lambda key: tg.random.normal(key, (3,)))(tg.random.split(a, 5)).shape
(5, 3)
"""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from tracegrad.ops.elementwise.bits import bitwise_or, bitwise_xor, left_shift, right_shift
from tracegrad.ops.elementwise.table import add, multiply
from tracegrad.ops.shape.fill import arange, full
from tracegrad.ops.shape.linear import cast, reshape
from tracegrad.scipy_api.special import call

__all__ = [
    "bernoulli", "beta", "bits", "categorical", "cauchy", "choice", "dirichlet", "exponential", "fold_in", "gamma",
    "gumbel", "key", "laplace", "logistic", "multivariate_normal", "normal", "permutation", "rademacher", "randint",
    "split", "t", "truncated_normal", "uniform",
]  # fmt: skip

Shape = int | tuple[int, ...]

_ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)
_PARITY = 0x1BD11BDA
# The second word of a counter: the purpose of the block.
_DRAW, _SPLIT, _FOLD = 0, 0xFFFFFFFF, 0xFFFFFFFE


# -- keys and bits -----------------------------------------------------------------------------------------------
def _threefry(key: Any, x: Any, y: Any) -> tuple[Any, Any]:
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
    return _threefry(_checked(key), numbers, full(shape=(count,), value=kind, dtype="uint32"))


def key(seed: int) -> Any:
    """Make a key of an integer.

    Parameters
    ----------
    seed : int
        Integer, of which the low 64 bits count.

    Returns
    -------
    uint32 array of shape (2,)
        The high and the low 32 bits.

    Examples
    --------
    >>> print(key(2**32 + 7))
    [1 7]
    """
    number = operator.index(seed) & 0xFFFFFFFFFFFFFFFF
    return np.array([number >> 32, number & 0xFFFFFFFF], np.uint32)


def split(key: Any, num: int = 2) -> Any:
    """Split a key into `num` new keys; the key itself must not be used again.

    Parameters
    ----------
    key : uint32 array of shape (2,)
    num : int

    Returns
    -------
    uint32 array of shape (num, 2)
    """
    return np.stack(_blocks(key, num, _SPLIT), axis=1)


def fold_in(key: Any, data: Any) -> Any:
    """Make a new key of a key and an integer, such as the number of an iteration or of an example.

    Parameters
    ----------
    key : uint32 array of shape (2,)
    data : int or integer array; the low 32 bits count

    Returns
    -------
    uint32 array of shape (2,)
    """
    word = np.uint32(operator.index(data) & 0xFFFFFFFF) if isinstance(data, int) else cast(data, dtype="uint32")
    return np.stack(_threefry(_checked(key), word, np.uint32(_FOLD)))


def _shape_of(shape: Shape) -> tuple[int, ...]:
    return tuple(map(operator.index, shape)) if isinstance(shape, tuple | list) else (operator.index(shape),)


def _or_that_of(shape: Shape | None, *xs: Any) -> tuple[int, ...]:
    return np.broadcast_shapes(*[np.shape(x) for x in xs]) if shape is None else _shape_of(shape)


def bits(key: Any, shape: Shape = ()) -> Any:
    """Draw random 32-bit words.

    Parameters
    ----------
    key : uint32 array of shape (2,)
    shape : int or tuple of int

    Returns
    -------
    uint32 array of `shape`
    """
    shape = _shape_of(shape)
    return reshape(_blocks(key, math.prod(shape))[0], shape=shape)


def _unit(key: Any, shape: tuple[int, ...], dtype: Any, inside: bool = False) -> Any:
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


# -- distributions -----------------------------------------------------------------------------------------------
def uniform(key: Any, shape: Shape = (), dtype: Any = np.float64, minval: Any = 0.0, maxval: Any = 1.0) -> Any:
    """Draw numbers uniformly from [minval, maxval).

    Parameters
    ----------
    key : uint32 array of shape (2,)
    shape : int or tuple of int
    dtype : float64 (default) or float32
    minval, maxval : float or array

    Returns
    -------
    array of `shape` and `dtype`
    """
    return minval + (maxval - minval) * _unit(key, _shape_of(shape), dtype)


def normal(key: Any, shape: Shape = (), dtype: Any = np.float64) -> Any:
    """Draw standard normal numbers (Box-Muller transform).

    Parameters
    ----------
    key : uint32 array of shape (2,)
    shape : int or tuple of int
    dtype : float64 (default) or float32

    Returns
    -------
    array of `shape` and `dtype`

    References
    ----------
    G. E. P. Box and M. E. Muller, "A note on the generation of random normal deviates", Ann. Math. Statist. 29 (1958).
    """
    shape = _shape_of(shape)
    count = math.prod(shape)
    pairs = (count + 1) // 2
    u = _unit(key, (2, pairs), dtype, inside=True)
    radius, angle = np.sqrt(-2.0 * np.log(u[0])), (2 * math.pi) * u[1]
    z = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])
    return reshape(z[:count], shape=shape)


def exponential(key: Any, shape: Shape = (), dtype: Any = np.float64) -> Any:
    """Draw an array of numbers from the exponential distribution of rate 1.

    Parameters
    ----------
    key : uint32 array of shape (2,)
    shape : int or tuple of int
    dtype : float64 (default) or float32
    """
    return -np.log(_unit(key, _shape_of(shape), dtype, inside=True))


def gumbel(key: Any, shape: Shape = (), dtype: Any = np.float64) -> Any:
    """Draw an array of numbers from the Gumbel distribution.

    Parameters
    ----------
    key : uint32 array of shape (2,)
    shape : int or tuple of int
    dtype : float64 (default) or float32
    """
    return -np.log(exponential(key, shape, dtype))


def laplace(key: Any, shape: Shape = (), dtype: Any = np.float64) -> Any:
    """Draw an array of numbers from the Laplace distribution.

    Parameters
    ----------
    key : uint32 array of shape (2,)
    shape : int or tuple of int
    dtype : float64 (default) or float32
    """
    u = _unit(key, _shape_of(shape), dtype, inside=True)
    size = -np.log(2.0 * np.minimum(u, 1.0 - u))
    return np.where(u < 0.5, -size, size)


def logistic(key: Any, shape: Shape = (), dtype: Any = np.float64) -> Any:
    """Draw an array of numbers from the logistic distribution.

    Parameters
    ----------
    key : uint32 array of shape (2,)
    shape : int or tuple of int
    dtype : float64 (default) or float32
    """
    u = _unit(key, _shape_of(shape), dtype, inside=True)
    return np.log(u) - np.log1p(-u)


def cauchy(key: Any, shape: Shape = (), dtype: Any = np.float64) -> Any:
    """Draw an array of numbers from the Cauchy distribution.

    Parameters
    ----------
    key : uint32 array of shape (2,)
    shape : int or tuple of int
    dtype : float64 (default) or float32
    """
    return np.tan(math.pi * (_unit(key, _shape_of(shape), dtype, inside=True) - 0.5))


def truncated_normal(key: Any, lower: Any, upper: Any, shape: Shape | None = None, dtype: Any = np.float64) -> Any:
    """Draw standard normal numbers between `lower` and `upper`, with derivatives in both.

    Parameters
    ----------
    key : uint32 array of shape (2,)
    lower, upper : float or array
    shape : int or tuple of int, optional; default: the broadcast shape of the parameters
    dtype : float64 (default) or float32

    Returns
    -------
    array of `shape` and `dtype`
    """
    u = _unit(key, _or_that_of(shape, lower, upper), dtype, inside=True)
    low, high = call("ndtr", lower), call("ndtr", upper)
    return np.clip(call("ndtri", low + (high - low) * u), lower, upper)


def gamma(key: Any, a: Any, shape: Shape | None = None, dtype: Any = np.float64) -> Any:
    """Draw numbers from the gamma distribution of shape `a`, with derivatives in `a`: quantiles of uniform numbers.

    Parameters
    ----------
    key : uint32 array of shape (2,)
    a : float or array
    shape : int or tuple of int, optional; default: the broadcast shape of the parameters
    dtype : float64 (default) or float32

    Returns
    -------
    array of `shape` and `dtype`
    """
    return call("gammaincinv", a, _unit(key, _or_that_of(shape, a), dtype, inside=True))


def beta(key: Any, a: Any, b: Any, shape: Shape | None = None, dtype: Any = np.float64) -> Any:
    """Draw numbers from the beta distribution, with derivatives in `a` and `b`: quantiles of uniform numbers.

    Parameters
    ----------
    key : uint32 array of shape (2,)
    a, b : float or array
    shape : int or tuple of int, optional; default: the broadcast shape of the parameters
    dtype : float64 (default) or float32

    Returns
    -------
    array of `shape` and `dtype`
    """
    return call("betaincinv", a, b, _unit(key, _or_that_of(shape, a, b), dtype, inside=True))


def t(key: Any, df: Any, shape: Shape | None = None, dtype: Any = np.float64) -> Any:
    """Draw numbers from Student's t distribution, with derivatives in `df`.

    Parameters
    ----------
    key : uint32 array of shape (2,)
    df : float or array; degrees of freedom
    shape : int or tuple of int, optional; default: the broadcast shape of the parameters
    dtype : float64 (default) or float32

    Returns
    -------
    array of `shape` and `dtype`
    """
    above, below = split(key)
    half, shape = 0.5 * df, _or_that_of(shape, df)
    return normal(above, shape, dtype) * np.sqrt(half / gamma(below, half, shape, dtype))


def dirichlet(key: Any, alpha: Any, shape: Shape = (), dtype: Any = np.float64) -> Any:
    """Draw points of the simplex from the Dirichlet distribution.

    Parameters
    ----------
    key : uint32 array of shape (2,)
    alpha : array of shape (n,)
    shape : int or tuple of int
    dtype : float64 (default) or float32

    Returns
    -------
    array of shape (*shape, n)
        Points along the last axis.
    """
    parts = gamma(key, alpha, (*_shape_of(shape), *np.shape(alpha)), dtype)
    return parts / np.sum(parts, axis=-1, keepdims=True)


def multivariate_normal(key: Any, mean: Any, cov: Any, shape: Shape = (), dtype: Any = np.float64) -> Any:
    """Draw normal vectors, with derivatives in mean and covariance (Cholesky factor).

    Parameters
    ----------
    key : uint32 array of shape (2,)
    mean : array of shape (n,)
    cov : array of shape (n, n)
    shape : int or tuple of int
    dtype : float64 (default) or float32

    Returns
    -------
    array of shape (*shape, n)
    """
    z = normal(key, (*_shape_of(shape), np.shape(mean)[-1]), dtype)
    return mean + z @ np.linalg.cholesky(cov).T


# -- integers, booleans, and selection ---------------------------------------------------------------------------
def bernoulli(key: Any, p: Any = 0.5, shape: Shape | None = None) -> Any:
    """Draw booleans that are True with probability `p`.

    Parameters
    ----------
    key : uint32 array of shape (2,)
    p : float or array
    shape : int or tuple of int, optional; default: the broadcast shape of the parameters

    Returns
    -------
    boolean array of `shape`
    """
    return _unit(key, _or_that_of(shape, p), np.float64) < p


def rademacher(key: Any, shape: Shape = (), dtype: Any = np.int64) -> Any:
    """Draw an array of -1 and 1 with equal probabilities.

    Parameters
    ----------
    key : uint32 array of shape (2,)
    shape : int or tuple of int
    dtype : dtype, default int64
    """
    return cast(np.where(_unit(key, _shape_of(shape), np.float64) < 0.5, -1, 1), dtype=np.dtype(dtype).name)


def randint(key: Any, shape: Shape, minval: Any, maxval: Any, dtype: Any = np.int64) -> Any:
    """Draw integers from [minval, maxval), a range of at most 2**32.

    Parameters
    ----------
    key : uint32 array of shape (2,)
    shape : int or tuple of int
    minval, maxval : int or integer array
    dtype : dtype, default int64

    Returns
    -------
    array of `shape` and `dtype`
    """
    u = _unit(key, _shape_of(shape), np.float64)
    return cast(np.floor(u * (maxval - minval)), dtype=np.dtype(dtype).name) + minval


def categorical(key: Any, logits: Any, axis: int = -1, shape: Shape | None = None) -> Any:
    """Draw indices along `axis`, with probabilities proportional to exp(logits).

    Parameters
    ----------
    key : uint32 array of shape (2,)
    logits : array
    axis : int
    shape : int or tuple of int, optional; more axes in front

    Returns
    -------
    int64 array
    """
    whole = np.shape(logits) if shape is None else (*_shape_of(shape), *np.shape(logits))
    return np.argmax(logits + gumbel(key, whole), axis=axis)


def permutation(key: Any, x: Any, axis: int = 0) -> Any:
    """Permute an array along `axis`, or the integers below `x`.

    Parameters
    ----------
    key : uint32 array of shape (2,)
    x : array or int
    axis : int

    Returns
    -------
    array of the shape of `x`, or of shape (x,)
    """
    count = x if isinstance(x, int) else np.shape(x)[axis]
    order = np.argsort(_unit(key, (count,), np.float64))
    return order if isinstance(x, int) else np.take(x, order, axis=axis)


def choice(key: Any, a: Any, shape: Shape = (), replace: bool = True, p: Any = None, axis: int = 0) -> Any:
    """Choose elements of an array along `axis`, or integers below `a`.

    Parameters
    ----------
    key : uint32 array of shape (2,)
    a : array or int
    shape : int or tuple of int
    replace : bool; whether an element may be chosen more than once
    p : array, optional; probabilities, by default equal
    axis : int

    Returns
    -------
    array

    Raises
    ------
    ValueError
        If more elements are wanted than there are, without `replace`.
    """
    shape, count = _shape_of(shape), a if isinstance(a, int) else np.shape(a)[axis]
    wanted = math.prod(shape)
    if not replace and wanted > count:
        raise ValueError(f"choice of {wanted} out of {count} without replacement")
    if replace:
        index = randint(key, shape, 0, count) if p is None else categorical(key, np.log(p), shape=shape)
    else:
        rank = _unit(key, (count,), np.float64) if p is None else -np.log(p) - gumbel(key, (count,))
        index = reshape(np.argsort(rank)[:wanted], shape=shape)
    return index if isinstance(a, int) else np.take(a, index, axis=axis)
