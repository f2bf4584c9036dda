"""Elementwise iteration and index objects: `vectorize`, `nditer`, `ndenumerate`, `r_`, `mgrid` and others.

NumPy's own versions would convert their arguments to ndarrays, so traced code receives the ones of this module.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tracegrad.avals import is_literal
from tracegrad.errors import ShapeError, located
from tracegrad.numpy_api import creation
from tracegrad.numpy_api.joining import concatenate, stack
from tracegrad.numpy_api.operands import array, arrays, broadcast_shapes, peer_of, to_dtype
from tracegrad.numpy_api.registry import refuse
from tracegrad.numpy_api.shapes import broadcast_to
from tracegrad.ops.core.op import Carrier
from tracegrad.ops.shape.linear import reshape, transpose
from tracegrad.typing import Array, ArrayLike, DTypeLike, Number


# -- vectorize -------------------------------------------------------------------------------------------------------
class Vectorized:
    """`np.vectorize`: makes a function of arrays that calls a function of numbers for each element, as in NumPy."""

    def __init__(
        self,
        pyfunc: Any = None,
        otypes: Any = None,
        doc: Any = None,
        excluded: Any = None,
        cache: bool = False,
        signature: str | None = None,
    ):
        self.pyfunc, self.excluded, self.signature = pyfunc, set(excluded or ()), signature
        self.otypes = None if otypes is None else [np.dtype(t) for t in otypes]
        self.__doc__ = pyfunc.__doc__ if doc is None else doc
        self.__name__ = getattr(pyfunc, "__name__", "vectorize")

    def __call__(self, *args: Any, **kwargs: object) -> Any:
        if self.pyfunc is None:  # used as a decorator with arguments
            return Vectorized(args[0], self.otypes, None, self.excluded, False, self.signature)
        keys = [*range(len(args)), *kwargs]
        options: dict[Any, Any] = dict(zip(keys, (*args, *kwargs.values())))
        varied = [key for key in keys if key not in self.excluded]
        xs = dict(zip(varied, arrays(*(options[key] for key in varied))))
        cores = self._cores(len(varied))
        batch_shape = broadcast_shapes("vectorize", *(x.shape[: len(x.shape) - c] for x, c in zip(xs.values(), cores)))
        xs = {
            key: broadcast_to(x, (*batch_shape, *x.shape[len(x.shape) - c :])) if c or x.shape != batch_shape else x
            for (key, x), c in zip(xs.items(), cores)
        }
        results = []
        for index in np.ndindex(batch_shape):
            scalars = options | {key: x[index] for key, x in xs.items()}
            results.append(self.pyfunc(*(scalars[k] for k in range(len(args))), **{k: scalars[k] for k in kwargs}))
        if not results:
            raise ValueError(located("cannot call `vectorize` on size 0 inputs"))
        if not isinstance(results[0], tuple):
            return self._gathered(results, batch_shape, 0)
        return tuple(self._gathered(list(each), batch_shape, k) for k, each in enumerate(zip(*results)))

    def _cores(self, count: int) -> list[int]:
        """Return the number of core axes of each argument of the function."""
        if self.signature is None:
            return [0] * count
        inputs = re.findall(r"\(([^)]*)\)", self.signature.partition("->")[0])
        if len(inputs) != count:
            raise TypeError(located(f"wrong number of positional arguments: expected {len(inputs)}, got {count}"))
        return [len([name for name in each.split(",") if name.strip()]) for each in inputs]

    def _gathered(self, results: Sequence[ArrayLike], batch_shape: tuple[int, ...], number: int) -> Array:
        values = arrays(*results)
        dtype = values[0].dtype if self.otypes is None else self.otypes[number]
        values = [to_dtype(x, dtype) for x in values]
        return reshape(stack(values, 0), shape=(*batch_shape, *values[0].shape)) if batch_shape else values[0]


def frompyfunc(func: Callable[..., object], /, nin: int, nout: int, **kwargs: object) -> Callable[..., object]:
    """`np.frompyfunc`; results for traced arrays are arrays of numbers, not of Python objects."""
    of_numpy: Any = np.frompyfunc(func, nin, nout, **kwargs)
    traced = Vectorized(func)

    def call(*args: ArrayLike, **kwargs: object) -> object:
        return of_numpy(*args, **kwargs) if peer_of(*args) is None else traced(*args, **kwargs)

    return call


# -- nditer and ndenumerate ------------------------------------------------------------------------------------------
def _of_known_sizes(*values: ArrayLike) -> tuple[Array, ...]:
    """Return the arrays; for a masked selection, the selected elements."""
    return tuple([x._as_exact() if hasattr(x, "_as_exact") else x for x in arrays(*values)])


class NDEnumerate:
    """`np.ndenumerate`: indices and elements."""

    def __init__(self, arr: Array):
        (self._array,) = _of_known_sizes(arr)
        self._indices = iter(np.ndindex(self._array.shape))

    def __iter__(self) -> NDEnumerate:
        return self

    def __next__(self) -> tuple[tuple[int, ...], Array]:
        index = next(self._indices)
        return index, self._array[index]


_FLAGS = {"multi_index", "c_index", "refs_ok", "zerosize_ok", "common_dtype", "copy_if_overlap", "grow_inner"}


class NDIter:
    """`np.nditer`: tuples of elements of arrays, in memory order, as arrays without axes."""

    def __init__(
        self,
        op: Array | Number,
        flags: Sequence[str] | None = None,
        op_flags: Sequence[str] | None = None,
        op_dtypes: object = None,
        order: str = "K",
        casting: str = "safe",
        **others: object,
    ):
        unknown = sorted({*(flags or ()), *others} - _FLAGS)
        if unknown or op_dtypes is not None:
            raise refuse(f"np.nditer with {(unknown or ['op_dtypes'])[0]}", "loop over np.ndindex(x.shape)")
        args = list(op) if isinstance(op, list | tuple) else [op]
        if any(x is None for x in args):
            raise refuse("np.nditer that makes its outputs", "make them by np.empty, and loop over np.ndindex(x.shape)")
        self.operands = _of_known_sizes(*args)
        self.nop, self._is_multiple = len(args), isinstance(op, list | tuple) and len(args) > 1
        self.shape = broadcast_shapes("nditer", *(x.shape for x in self.operands))
        self._indices = self._ordered(order)
        self.itersize, self._at = len(self._indices), 0
        if not self.itersize and "zerosize_ok" not in (flags or ()):
            raise ValueError(located("Iteration of zero-sized operands is not enabled"))
        self._started = False

    def _ordered(self, order: str) -> list[tuple[int, ...]]:
        # NumPy's own iterator gives the order for arrays with the same memory layout.
        layouts = [np.empty_like(x._visible_layouts(x)[0] if isinstance(x, Carrier) else x) for x in self.operands]  # type: ignore[attr-defined]
        it: Any = np.nditer(layouts, flags=["multi_index", "zerosize_ok"], order=order)  # type: ignore[call-overload]
        return [it.multi_index for _ in it]

    def _element(self, x: Array) -> Array:
        index = self.multi_index[len(self.shape) - len(x.shape) :]
        return x[(*(0 if n == 1 else k for k, n in zip(index, x.shape)), ...)]

    @property
    def multi_index(self) -> tuple[int, ...]:
        """Return the index of the elements."""
        return self._indices[self._at]

    @property
    def index(self) -> int:
        """Return the flat index of the elements, in row-major order."""
        return int(np.ravel_multi_index(self.multi_index, self.shape)) if self.shape else 0

    iterindex = property(lambda self: self._at, doc="How many elements came before.")
    finished = property(lambda self: self._at >= self.itersize, doc="Whether there are no more elements.")

    @property
    def value(self) -> Array | tuple[Array, ...]:
        """Return the elements."""
        results = tuple(map(self._element, self.operands))
        return results if self._is_multiple else results[0]

    def __getitem__(self, number: int) -> Array:
        return self._element(self.operands[number])

    def __setitem__(self, number: int, value: ArrayLike) -> None:
        element: Any = self._element(self.operands[number])
        element[...] = value

    def __len__(self) -> int:
        return self.itersize

    def iternext(self) -> bool:
        """Go on to the next elements; False if there are none."""
        self._at += 1
        return not self.finished

    def reset(self) -> None:
        """Begin again."""
        self._at, self._started = 0, False

    def __iter__(self) -> NDIter:
        return self

    def __next__(self) -> Array | tuple[Array, ...]:
        if self._started:
            self._at += 1
        self._started = True
        if self.finished:
            raise StopIteration
        return self.value

    def close(self) -> None:
        """Do nothing: writes take effect at once."""

    def __enter__(self) -> NDIter:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Broadcast:
    """`np.broadcast`: the common shape of arrays, and tuples of their elements."""

    def __init__(self, *args: ArrayLike):
        self._arrays = arrays(*args)
        self.shape = broadcast_shapes("broadcast", *(x.shape for x in self._arrays))
        self.ndim = self.nd = len(self.shape)
        self.size, self.numiter = int(np.prod(self.shape)), len(args)

    def __iter__(self) -> Iterator[tuple[Array, ...]]:
        expanded = [broadcast_to(x, self.shape) for x in self._arrays]
        return (tuple(x[index] for x in expanded) for index in np.ndindex(self.shape))


# -- arrays from iterators -------------------------------------------------------------------------------------------
def fromiter(iter: Iterable[ArrayLike], dtype: DTypeLike, count: int = -1, *, like: Array | None = None) -> Array:
    """`np.fromiter`."""
    elements = list(iter if count < 0 else itertools.islice(iter, count))
    if len(elements) < count:
        raise ValueError(located(f"iterator too short: Expected {count} but iterator had only {len(elements)} items."))
    return creation.array(elements, dtype)


def asarray_chkfinite(a: ArrayLike, dtype: DTypeLike = None, order: str | None = None) -> Array:
    """`np.asarray_chkfinite`; whether all elements are finite is a query, which leaves a guard."""
    result = creation.asarray(a, dtype, order)
    if result.dtype.kind in "fc" and not bool(np.all(np.isfinite(result))):
        raise ValueError(located("array must not contain infs or NaNs"))
    return result


# -- r_ and c_ -------------------------------------------------------------------------------------------------------
def joined(key: Any, axis: int, ndmin: int, trans1d: int) -> Array:
    """`np.r_[key]` with axis 0, at least 1 axis and -1; `np.c_[key]` with -1, 2 and 0."""
    parts = list(key) if isinstance(key, tuple) else [key]
    if parts and isinstance(parts[0], str):
        text = parts.pop(0)
        if text in ("r", "c"):
            raise refuse(f"np.r_[{text!r}, ...], which gives a matrix", "use np.concatenate or np.column_stack")
        axis, ndmin, trans1d = (*map(int, text.split(",")), *(axis, ndmin, trans1d)[text.count(",") + 1 :])
    peer = peer_of(*(x for x in parts if not isinstance(x, slice)))
    results = [_as_operand(x, peer, ndmin, trans1d) for x in parts]
    scalars = [is_literal(x) for x in parts]
    rest = [x for x, plain in zip(results, scalars) if not plain]
    kinds = [*(x.dtype for x in rest), *(x for x, plain in zip(parts, scalars) if plain)]
    return concatenate([to_dtype(x, np.result_type(*kinds)) for x in results], axis)


def _as_operand(x: ArrayLike, peer: Carrier | None, ndmin: int, trans1d: int) -> Array:
    if isinstance(x, slice):
        result, rank = _range(x), 1
    else:
        result = array(x, peer)
        rank = len(result.shape)
    result = reshape(result, shape=(*(1,) * (ndmin - rank), *result.shape)) if rank < ndmin else result
    if trans1d == -1 or rank >= ndmin:
        return result
    # The axes of the operand begin at axis `trans1d`.
    at = ndmin - rank + 1 + trans1d if trans1d < 0 else trans1d
    new = list(range(ndmin - rank))
    perm = (*new[:at], *range(ndmin - rank, ndmin), *new[at:])
    return transpose(result, perm=perm)


def grid(key: slice | tuple[slice, ...], sparse: bool) -> Array | tuple[Array, ...]:
    """`np.mgrid[key]`, or `np.ogrid[key]`, which is `sparse`."""
    if isinstance(key, slice):
        return _range(key)
    lines = arrays(*map(_range, key))
    common = np.result_type(*[x.dtype for x in lines])
    lines = [to_dtype(x, common) for x in lines]
    shape = tuple([x.shape[0] for x in lines])
    open_ = [reshape(x, shape=(*(1,) * k, x.shape[0], *(1,) * (len(lines) - k - 1))) for k, x in enumerate(lines)]
    return tuple(open_) if sparse else stack([broadcast_to(x, shape) for x in open_])


def _range(x: slice) -> Array:
    start = 0 if x.start is None else x.start
    if isinstance(x.step, complex):
        samples: Array = creation.linspace(start, x.stop, int(abs(x.step)))
        return samples
    if x.stop is None:
        raise ShapeError(located("np.r_: a slice needs an end"))
    return creation.arange(start, x.stop, 1 if x.step is None else x.step)
