"""Methods of ufuncs without a special rule: `reduce`, `accumulate`, `reduceat`, `outer`, `at`.

A method that equals a sum, a product or an extremum is computed as that. Other associative functions combine halves, so
n elements take log(n) steps. Functions that are not associative run element by element, up to a limit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tracegrad.errors import located
from tracegrad.numpy_api import reductions
from tracegrad.numpy_api.duplicate_indices import is_known
from tracegrad.numpy_api.joining import along, concatenate
from tracegrad.numpy_api.lazy.nanfunctions import nanmax, nanmin
from tracegrad.numpy_api.operands import alias, array, arrays, peer_of, to_dtype
from tracegrad.numpy_api.registry import NO_VALUE, UFUNC_METHODS, public_ufunc, refuse, write
from tracegrad.numpy_api.shapes import broadcast_to, moveaxis
from tracegrad.ops.core.op import normalize_axes, normalize_axis
from tracegrad.ops.elementwise.table import negative, remainder, sqrt, square, where
from tracegrad.ops.reduce import partition, scans
from tracegrad.ops.reduce import reductions as reduction
from tracegrad.ops.shape.linear import keep_axes, reshape
from tracegrad.typing import Array, ArrayLike, Axes, DTypeLike, NDArray

ASSOCIATIVE = {
    "add",
    "multiply",
    "maximum",
    "minimum",
    "fmax",
    "fmin",
    "logaddexp",
    "logaddexp2",
    "hypot",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "logical_and",
    "logical_or",
    "logical_xor",
    "gcd",
    "lcm",
}
# The most elements along the axis of a function that is not associative.
MAX_STEPS = 512

Ufunc = Any


def _checked(function: Ufunc, method: str) -> str:
    if function.nin != 2 or function.nout != 1 or function.signature:
        raise ValueError(located(f"{method} only supported for binary functions returning a single value"))
    name: str = function.__name__
    if all(t.endswith("->?") for t in function.types if "O" not in t) and name not in ASSOCIATIVE:
        raise refuse(f"{public_ufunc(function)}.{method}", "compare all, and reduce that by np.logical_and")
    return name


def _written(function: Ufunc, method: str, out: Array | None, result: Array) -> Array:
    target = (out if isinstance(out, tuple) else (out,)) if out is not None else (None,)
    return result if target[0] is None else write(f"{public_ufunc(function)}.{method}", target, result)


# -- reduce ------------------------------------------------------------------------------------------------------------
def _in_halves(function: Ufunc, x: Array, axis: int) -> Array:
    """Combine all elements along the axis by an associative function."""
    while (n := x.shape[axis]) > 1:
        half, rest = n // 2, along(x, axis, n - n % 2, n)
        x = function(along(x, axis, 0, half), along(x, axis, half, 2 * half))
        x = concatenate([x, rest], axis) if n % 2 else x
    return x


def _accumulated(function: Ufunc, x: Array, axis: int, method: str) -> list[Array]:
    """Accumulate element by element along the axis."""
    n = x.shape[axis]
    if n > MAX_STEPS:
        text = f"{public_ufunc(function)}.{method} of {n} elements in a row"
        raise refuse(text, "the function is not associative; write the loop as tg.scan")
    return list(_chain(function, [along(x, axis, k, k + 1) for k in range(n)]))


def _chain(function: Ufunc, parts: list[Array]) -> Iterator[Array]:
    result = parts[0]
    yield result
    for part in parts[1:]:
        result = function(result, part)
        yield result


def _invert_tail(x: Array, axis: int, iteration: Callable[[Array], Array]) -> Array:
    """Apply the inverse operation to all but the first elements of `x` along the axis."""
    n = x.shape[axis]
    return concatenate([along(x, axis, 0, 1), iteration(along(x, axis, 1, n))], axis) if n > 1 else x


def _hypotenuse(x: Array, axes: Axes) -> Array:
    total = reductions.sum(square(x), axes)
    zero = total == 0
    return where(zero, 0.0, sqrt(where(zero, 1.0, total)))


# Reductions of floats along some axes that have a rule of their own.
_REDUCED: dict[str, Callable[[Array, tuple[int, ...]], Array]] = {
    "fmax": nanmax,
    "fmin": nanmin,
    "logaddexp": lambda x, axes: reduction.logsumexp(x, axes=axes),
    "hypot": _hypotenuse,
}


def _reduced(function: Ufunc, x: Array, axes: tuple[int, ...]) -> Array:
    name = function.__name__
    if name == "logical_xor":
        return to_dtype(remainder(reductions.sum(to_dtype(x, bool), axes), 2), bool)
    if name in _REDUCED and x.dtype.kind == "f":
        return _REDUCED[name](x, axes)
    if not axes:
        return x
    if name not in ASSOCIATIVE and len(axes) != 1:
        raise ValueError(located(f"reduction operation '{name}' is not reorderable: it takes one axis"))
    for k in sorted(axes, reverse=True):
        x = _reduced_along(function, x, k)
    return x


def _reduced_along(function: Ufunc, x: Array, axis: int) -> Array:
    rest = (*x.shape[:axis], *x.shape[axis + 1 :])
    if function is np.subtract:
        return reductions.sum(_invert_tail(x, axis, negative), axis, x.dtype)
    if function.__name__ in ASSOCIATIVE:
        result = _in_halves(function, x, axis)
    else:
        result = _accumulated(function, x, axis, "reduce")[-1]
    return reshape(result, shape=rest)


def _identity(function: Ufunc, x: Array) -> Any:
    """Return the identity element in the dtype of `x`, or None."""
    return None if function.identity is None else np.asarray(function.identity).astype(x.dtype).item()


def _masked(function: Ufunc, x: Array, mask: ArrayLike, initial: float) -> Array:
    """Replace the elements of `x` where `where=` is false by the identity element."""
    neutral = _identity(function, x)
    if initial is None:
        text = f"reduction operation '{function.__name__}' does not have an identity, so to use a where mask one has to"
        raise ValueError(located(f"{text} specify 'initial'"))
    if function in (np.fmax, np.fmin):
        neutral = initial
    if neutral is None:
        raise refuse(f"the argument where= of {public_ufunc(function)}.reduce", "use np.where before")
    return where(to_dtype(arrays(mask)[0], bool), x, neutral)


def reduce(
    function: Ufunc,
    a: Array,
    axis: Axes = 0,
    dtype: DTypeLike = None,
    out: Array | None = None,
    keepdims: bool = False,
    initial: Any = NO_VALUE,
    where: ArrayLike = True,
) -> Array:
    """`ufunc.reduce`."""
    name = _checked(function, "reduce")
    x = to_dtype(arrays(a)[0], dtype)
    if where is not True:
        initial = _identity(function, x) if initial is NO_VALUE else initial
        x = _masked(function, x, where, initial)
    axes = normalize_axes(name, axis, len(x.shape))
    if initial is NO_VALUE or initial is None:
        initial = function.identity if any(x.shape[k] == 0 for k in axes) else None
        if initial is None and 0 in [x.shape[k] for k in axes]:
            raise ValueError(located(f"zero-size array to reduction operation {name} which has no identity"))
    if 0 in x.shape:
        shape = tuple(n for k, n in enumerate(x.shape) if k not in axes)
        result = array(np.full(shape, initial, x.dtype), peer_of(x))
    else:
        result = _reduced(function, x, axes)
        if all(x.shape[k] == 1 for k in axes):
            result = alias(result)
        result = result if initial is None else function(initial, result)
    result = keep_axes(result, x.shape, axes) if keepdims else result
    return _written(function, "reduce", out, result)


# -- accumulate --------------------------------------------------------------------------------------------------------
def _doubled(function: Ufunc, x: Array, axis: int) -> Array:
    """Combine each element with all before it by an associative function; the reach doubles in every step."""
    n, reach = x.shape[axis], 1
    while reach < n:
        later = function(along(x, axis, 0, n - reach), along(x, axis, reach, n))
        x = concatenate([along(x, axis, 0, reach), later], axis)
        reach *= 2
    return x


_ACCUMULATED: dict[str, Callable[[Array, int], Array]] = {
    "subtract": lambda x, axis: scans.cumsum(_invert_tail(x, axis, negative), axis=axis),
    "multiply": lambda x, axis: reductions.cumprod(x, axis),
    "maximum": lambda x, axis: _doubled(np.maximum, x, axis) if x.dtype.kind == "c" else partition.cummax(x, axis=axis),
    "minimum": lambda x, axis: _doubled(np.minimum, x, axis) if x.dtype.kind == "c" else partition.cummin(x, axis=axis),
    "logaddexp": lambda x, axis: scans.logcumsumexp(x, axis=axis),
}


def accumulate(function: Ufunc, a: Array, axis: int = 0, dtype: DTypeLike = None, out: Array | None = None) -> Array:
    """`ufunc.accumulate`."""
    name = _checked(function, "accumulate")
    x = to_dtype(arrays(a)[0], dtype)
    if not x.shape:
        raise TypeError(located("cannot accumulate on a scalar"))
    if name == "divide" and x.dtype.kind != "f":
        x = to_dtype(x, float)
    if name.startswith("logical"):
        x = to_dtype(x, bool)
    k = normalize_axis(name, axis, len(x.shape))
    if x.shape[k] < 2:
        result = alias(x)
    elif name in _ACCUMULATED:
        result = _ACCUMULATED[name](x, k)
    elif name in ASSOCIATIVE:
        result = _doubled(function, x, k)
    else:
        result = concatenate(_accumulated(function, x, k, "accumulate"), k)
    return _written(function, "accumulate", out, result)


# -- reduceat ----------------------------------------------------------------------------------------------------------
def reduceat(
    function: Ufunc, a: Array, indices: Array, axis: int = 0, dtype: DTypeLike = None, out: Array | None = None
) -> Array:
    """`ufunc.reduceat`: indices are known, or queried, which leaves a guard."""
    name = _checked(function, "reduceat")
    x = to_dtype(arrays(a)[0], dtype)
    k = normalize_axis(name, axis, len(x.shape))
    n = x.shape[k]
    starts = [int(i) for i in indices]
    if any(not 0 <= i < n for i in starts):
        raise IndexError(located(f"an index of {public_ufunc(function)}.reduceat is out of bounds in [0, {n})"))
    parts = []
    for start, stop in zip(starts, [*starts[1:], n]):
        part = along(x, k, start, stop if stop > start else start + 1)
        parts.append(function.reduce(part, axis=k, keepdims=True))
    return _written(function, "reduceat", out, concatenate(parts, k))


# -- outer -------------------------------------------------------------------------------------------------------------
def outer(function: Ufunc, a: ArrayLike, b: ArrayLike, /, **kwargs: object) -> Any:
    """`ufunc.outer`."""
    if function.nin != 2 or function.signature:
        raise ValueError(located("outer product only supported for binary functions"))
    x, y = arrays(a, b)
    return function(reshape(x, shape=(*x.shape, *(1,) * len(y.shape))), y, **kwargs)


# -- at ----------------------------------------------------------------------------------------------------------------
def at(function: Ufunc, a: Any, indices: Sequence[int], b: Any = None, /) -> None:
    """`ufunc.at`: unbuffered, so equal indices are updated one after the other; traced ones run step by step."""
    if not hasattr(a, "_assign"):
        raise refuse(f"{public_ufunc(function)}.at on an ndarray that the traced function did not make")
    entries = indices if isinstance(indices, tuple) else (indices,)
    if not all(map(_is_known, entries)):
        _at_traced(function, a, entries, b)
        return
    offsets = np.arange(math.prod(a.shape)).reshape(a.shape)[tuple(map(_plain, entries))]
    spots = offsets.reshape(-1)
    if function.nin == 2:
        values = broadcast_to(array(b, peer_of(a, b)), offsets.shape).reshape(-1)
    for iteration in _iterations(spots):
        also = (values[iteration],) if function.nin == 2 else ()
        a.flat[spots[iteration]] = function(a.flat[spots[iteration]], *also)


def _at_traced(function: Ufunc, a: Any, entries: tuple[Any, ...], b: ArrayLike) -> None:
    """Apply the updates at positions that are arrays of traced integers."""
    if _has_slices(entries) or any(x.dtype.kind not in "iu" for x in arrays(*entries)):
        raise refuse(
            f"{public_ufunc(function)}.at with a traced mask or slice", "use indices, or where= of the function"
        )
    index_arrays = np.broadcast_arrays(*arrays(*entries))
    shape = (*index_arrays[0].shape, *a.shape[len(index_arrays) :])
    n = math.prod(index_arrays[0].shape)
    if n > MAX_STEPS:
        text = f"{public_ufunc(function)}.at with {n} traced indices"
        raise refuse(text, "use np.add.at, or indices that are computed without the arguments")
    if function.nin == 2:
        values = broadcast_to(array(b, peer_of(a, b)), shape).reshape(n, *shape[len(index_arrays[0].shape) :])
    flat_indices = [x.reshape(n) for x in index_arrays]
    for k in range(n):
        index = tuple([each[k] for each in flat_indices])
        a[index] = function(a[index], *((values[k],) if function.nin == 2 else ()))


def _has_slices(entries: tuple[object, ...]) -> bool:
    return any(isinstance(x, slice) or x is None or x is Ellipsis for x in entries)


def _is_known(entry: object) -> bool:
    if isinstance(entry, list | tuple):
        return all(map(_is_known, entry))
    return is_known(entry)


def _plain(entry: Sequence[int]) -> Any:
    return entry.concrete("an index") if hasattr(entry, "concrete") else entry


def _iterations(spots: NDArray) -> list[NDArray]:
    """Return the numbers of the updates, in rounds in which no position is updated twice."""
    count: dict[int, int] = {}
    iterations: list[list[int]] = []
    for number, spot in enumerate(spots.tolist()):
        iteration = count[spot] = count.get(spot, -1) + 1
        if iteration == len(iterations):
            iterations.append([])
        iterations[iteration].append(number)
    return [np.array(iteration) for iteration in iterations]


# -- axes=, keepdims= --------------------------------------------------------------------------------------------------
def axes(function: Ufunc, inputs: tuple[Array, ...], kwargs: dict[str, object]) -> Array:
    """Apply a function of vectors and matrices along other axes than the last ones."""
    axes_arg, saved = kwargs.pop("axes", None), kwargs.pop("keepdims", False)
    cores = [
        [name.strip() for name in group.split(",") if name.strip()]
        for group in re.findall(r"\(([^)]*)\)", function.signature)
    ]
    args = arrays(*inputs)
    if axes_arg is None:
        axis = kwargs.pop("axis", -1)
        axes_arg = [(axis,) if core else () for core in cores]
    if not isinstance(axes_arg, list) or len(axes_arg) not in (len(args), len(cores)):
        raise ValueError(located("axes should be a list with an entry for all inputs and outputs"))
    operand_axes = [(each,) if isinstance(each, int) else tuple(each) for each in axes_arg]
    moved = [moveaxis(x, axes_of_x, tuple(range(-len(axes_of_x), 0))) for x, axes_of_x in zip(args, operand_axes)]
    result = function(*moved, **kwargs)
    target = operand_axes[len(args)] if len(operand_axes) > len(args) else ()
    if saved:  # an axis of size 1 replaces the reduced vectors at their axis of the first input
        target = operand_axes[0]
        result = reshape(result, shape=(*result.shape, *(1,) * len(target)))
    return moveaxis(result, tuple(range(-len(target), 0)), target) if target else result


for _function in (reduce, accumulate, reduceat, outer, at, axes):
    UFUNC_METHODS["", _function.__name__] = _function
