"""Array creation: `np.array`, `np.zeros`, `np.arange` and others inside a traced function.

NumPy's own functions do not dispatch on their arguments, so traced code receives these instead. In a trace they return
values of the trace, otherwise ndarrays; carriers in nested lists are stacked.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from tracegrad.avals import is_literal, supported
from tracegrad.errors import located
from tracegrad.numpy_api import selection, shapes
from tracegrad.numpy_api.memory_layout import in_memory_order, in_new_memory, with_order
from tracegrad.numpy_api.operands import array as _array
from tracegrad.numpy_api.operands import peer_of, to_dtype, together
from tracegrad.numpy_api.protocols import of_protocol
from tracegrad.numpy_api.registry import REPLACED, refuse
from tracegrad.ops.core.op import Carrier
from tracegrad.ops.core.recorders import active_recorder
from tracegrad.ops.elementwise import table as elementwise
from tracegrad.ops.elementwise.table import add, divide, equal, multiply, power, subtract
from tracegrad.ops.shape import linear
from tracegrad.ops.shape.linear import reshape
from tracegrad.typing import Array, ArrayLike, DType, DTypeLike, NDArray, Number

# The values of `copy` that packages for several versions of NumPy pass, and their meaning.
_COPIES = {
    x: y
    for name, y in (("ALWAYS", True), ("NEVER", False), ("IF_NEEDED", None))
    if (x := getattr(getattr(np, "_CopyMode", None), name, None)) is not None
}


def _no_like(like: ArrayLike | None) -> None:
    if like is not None:
        raise refuse("the argument like= of array creation")


# -- from existing values -------------------------------------------------------------------------------------------
def array(
    object: Any,
    dtype: DTypeLike = None,
    *,
    copy: bool | None = True,
    order: str = "K",
    subok: bool = False,
    ndmin: int = 0,
    like: ArrayLike | None = None,
) -> Array:
    """`np.array`."""
    _no_like(like)
    copy = _COPIES.get(copy, copy) if isinstance(copy, enum.Enum) else copy
    peer = peer_of(object) if not isinstance(object, Carrier) else object
    peer = active_recorder() if peer is None else peer
    if peer is None:
        plain: NDArray = cast(Any, np.array)(object, dtype, copy=copy, order=order, subok=subok, ndmin=ndmin)
        return plain
    args: Any = object
    if isinstance(object, np.ndarray) and not subok:
        object = np.asarray(object)  # the elements, without the methods and rules of a subclass
    if not isinstance(object, Carrier | np.ndarray | np.generic | list | tuple) and not is_literal(object):
        object = of_protocol(object) if hasattr(object, "__array__") else np.asarray(object)
    out = to_dtype(_array(object, peer), dtype)
    if out is args or (copy and isinstance(args, np.ndarray)):
        out = in_new_memory(out, order) if copy else with_order(out, "K" if order == "A" else order)
        if copy is False and out is not args:
            raise ValueError(located("Unable to avoid copy while creating an array as requested."))
    elif order not in (None, "K"):
        source: Any = args if isinstance(args, Carrier) else out
        out = in_memory_order(out, order, source)
    if len(out.shape) < ndmin:
        out = reshape(out, shape=(*(1,) * (ndmin - len(out.shape)), *out.shape))
    return _as_zero_d(out)


def _as_zero_d(x: Array) -> Array:
    carried: Any = x
    result: Array = carried.zero_d() if isinstance(x, Carrier) else x
    return result


def asarray(
    a: ArrayLike,
    dtype: DTypeLike = None,
    order: str | None = None,
    *,
    device: str | None = None,
    copy: bool | None = None,
    like: ArrayLike | None = None,
) -> Array:
    """`np.asarray`, and `np.asanyarray`: a carrier of the right dtype is returned unchanged."""
    return array(a, dtype, copy=copy, order=order or "K", like=like)


def ascontiguousarray(a: ArrayLike, dtype: DTypeLike = None, *, like: ArrayLike | None = None) -> Array:
    """`np.ascontiguousarray`: at least one axis."""
    return array(a, dtype, copy=None, order="C", ndmin=1, like=like)


def asfortranarray(a: ArrayLike, dtype: DTypeLike = None, *, like: ArrayLike | None = None) -> Array:
    """`np.asfortranarray`: at least one axis."""
    return array(a, dtype, copy=None, order="F", ndmin=1, like=like)


def require(
    a: ArrayLike,
    dtype: DTypeLike = None,
    requirements: str | Sequence[str] | None = None,
    *,
    like: ArrayLike | None = None,
) -> Array:
    """`np.require`: arrays of a trace are always aligned."""
    wanted = {r.upper() for r in ([requirements] if isinstance(requirements, str) else requirements or ())}
    fortran = wanted & {"F", "FORTRAN", "F_CONTIGUOUS"}
    row_major = wanted & {"C", "CONTIGUOUS", "C_CONTIGUOUS"}
    if fortran and row_major:
        raise ValueError(located('Cannot specify both "C" and "F" order'))
    out = array(a, dtype, copy=None, order="F" if fortran else "C" if row_major else "K", like=like)
    carried: Any = out
    owned = not wanted & {"O", "OWNDATA"} or carried.flags.owndata
    if not owned or (wanted & {"W", "WRITEABLE"} and not carried.flags.writeable):
        return in_new_memory(out, "F" if fortran else "C" if row_major else "K")
    return out


# -- constants --------------------------------------------------------------------------------------------------------
def _constant(shape: int | Sequence[int], value: ArrayLike, dtype: DTypeLike, order: str) -> Array:
    kind = supported(np.float64 if dtype is None else dtype, "dtype=")
    value = np.asarray(value).astype(kind).item()
    out = _as_zero_d(linear.full(shape=shapes.as_shape(shape), value=value, dtype=kind.name))
    return out if order == "C" else in_memory_order(out, order)


def zeros(
    shape: int | Sequence[int],
    dtype: DTypeLike = None,
    order: str = "C",
    *,
    device: str | None = None,
    like: ArrayLike | None = None,
) -> Array:
    """`np.zeros`."""
    _no_like(like)
    return _constant(shape, 0, dtype, order)


def ones(
    shape: int | Sequence[int],
    dtype: DTypeLike = None,
    order: str = "C",
    *,
    device: str | None = None,
    like: ArrayLike | None = None,
) -> Array:
    """`np.ones`."""
    _no_like(like)
    return _constant(shape, 1, dtype, order)


def empty(
    shape: int | Sequence[int],
    dtype: DTypeLike = None,
    order: str = "C",
    *,
    device: str | None = None,
    like: ArrayLike | None = None,
) -> Array:
    """`np.empty`: zeros."""
    _no_like(like)
    return _constant(shape, 0, dtype, order)


def full(
    shape: int | Sequence[int],
    fill_value: Any,
    dtype: DTypeLike = None,
    order: str = "C",
    *,
    device: str | None = None,
    like: ArrayLike | None = None,
) -> Array:
    """`np.full`."""
    _no_like(like)
    if is_literal(fill_value) and not isinstance(fill_value, Carrier):
        return _constant(shape, fill_value, np.asarray(fill_value).dtype if dtype is None else dtype, order)
    value = array(fill_value, dtype)
    return _as_zero_d(in_memory_order(linear.broadcast_to(value, shape=shapes.as_shape(shape)), order))


# -- ranges -----------------------------------------------------------------------------------------------------------
def _number(x: Array | float) -> float:
    """Convert the argument of a range to a Python number; a traced one is queried, which leaves a guard."""
    if is_literal(x):
        return x
    if isinstance(x, Carrier):
        value: Any = x
        return int(value) if x.aval.dtype.kind in "iub" else float(value)
    number: float = np.asarray(x).item()
    return number


def arange(
    start: float,
    stop: float | None = None,
    step: float | None = None,
    dtype: DTypeLike = None,
    *,
    device: str | None = None,
    like: ArrayLike | None = None,
) -> Array:
    """`np.arange`."""
    _no_like(like)
    if stop is None:
        start, stop = 0, start
    args = [x for x in (start, stop, step) if x is not None]
    kinds = [getattr(x, "dtype", None) or np.asarray(x).dtype for x in args]
    kind = supported(np.result_type(*kinds, np.int64) if dtype is None else dtype, "arange")
    step = 1 if step is None else step
    if kind.kind == "f" and any(isinstance(x, Carrier) and x.aval.dtype.kind == "f" for x in args):
        return _range_of_values(start, stop, step, kind)
    begin, end, by = _number(start), _number(stop), _number(step)
    if by == 0:
        raise ZeroDivisionError(located("arange: the step is zero"))
    length = max(math.ceil((end - begin) / by), 0)
    if kind.kind in "iu" and all(isinstance(v, int) for v in (begin, by)):
        return linear.arange(start=int(begin), step=int(by), length=length, dtype=kind.name)
    # NumPy's step is the difference of the first two elements, computed in the result's dtype.
    first, second = kind.type(begin), kind.type(begin + by)
    return linear.arange(start=first.item(), step=(second - first).item(), length=length, dtype=kind.name)


def _range_of_values(start: Array | Number, stop: Array | Number, step: Array | Number, kind: DType) -> Array:
    """Make a range between traced numbers; only its length is queried."""
    _, (begin, end, by) = together(start, stop, step)
    if bool(equal(by, 0)):
        if isinstance(step, Carrier) and not step.weak:
            raise ValueError(located("arange: the step is zero"))
        raise ZeroDivisionError(located("arange: the step is zero"))
    iterations = elementwise.ceil(divide(subtract(end, begin), by))
    length = max(int(linear.stop_gradient(iterations)), 0)
    first, second = (array(x, kind) for x in (begin, add(begin, by)))
    numbers = to_dtype(linear.arange(start=0, step=1, length=length, dtype="int64"), kind)
    return add(first, multiply(numbers, subtract(second, first)))


def linspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: DTypeLike = None,
    axis: int = 0,
    *,
    device: str | None = None,
) -> Any:
    """`np.linspace`; start and stop may be traced."""
    count = num.__index__()
    if count < 0:
        raise ValueError(located(f"Number of samples, {count}, must be non-negative."))
    peer = peer_of(start, stop)
    ends: list[Any] = [start, stop]
    args = [_array(v, peer if peer is not None else active_recorder()) if np.iterable(v) else v for v in ends]
    common, (first, last, _) = together(*args, 0.0)
    first, last = [to_dtype(_array(v, peer if peer is not None else active_recorder()), common) for v in (first, last)]
    span = subtract(last, first)
    intervals = max(count - 1 if endpoint else count, 0)
    steps = to_dtype(linear.arange(start=0, step=1, length=count, dtype="int64"), span.dtype)
    column = reshape(steps, shape=(count, *(1,) * len(span.shape)))
    step = divide(span, float(intervals)) if intervals else span
    out = add(multiply(column, step), first)
    if endpoint and count > 1:
        final = equal(column, float(count - 1))
        out = elementwise.where(final, last, out)
    if axis:
        out = shapes.moveaxis(out, 0, axis)
    if dtype is not None:
        integer = np.dtype(dtype).kind in "iu"
        out = to_dtype(elementwise.floor(out) if integer else out, dtype)
    return (out, step if intervals else math.nan) if retstep else out


def logspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    base: float = 10.0,
    dtype: DTypeLike = None,
    axis: int = 0,
) -> Array:
    """`np.logspace`."""
    return to_dtype(power(base, linspace(start, stop, num, endpoint, False, None, axis)), dtype)


# -- matrices ---------------------------------------------------------------------------------------------------------
def eye(
    N: int,
    M: int | None = None,
    k: int = 0,
    dtype: DTypeLike = float,
    order: str = "C",
    *,
    device: str | None = None,
    like: ArrayLike | None = None,
) -> Array:
    """`np.eye`."""
    _no_like(like)
    rows, columns = N.__index__(), (N if M is None else M).__index__()
    down = reshape(selection.positions(rows, k), shape=(rows, 1))
    across = reshape(selection.positions(columns), shape=(1, columns))
    out = to_dtype(equal(down, across), np.float64 if dtype is None else dtype)
    return out if order == "C" else in_memory_order(out, order)


def identity(n: int, dtype: DTypeLike = None, *, like: Array | None = None) -> Array:
    """`np.identity`."""
    return eye(n, dtype=dtype, like=like)


def tri(N: int, M: int | None = None, k: int = 0, dtype: DTypeLike = float, *, like: ArrayLike | None = None) -> Array:
    """`np.tri`."""
    _no_like(like)
    return to_dtype(selection.band(N.__index__(), (N if M is None else M).__index__(), k), dtype)


REPLACEMENTS: dict[str, Callable[..., Any]] = {
    "array": array,
    "asarray": asarray,
    "asanyarray": asarray,
    "ascontiguousarray": ascontiguousarray,
    "asfortranarray": asfortranarray,
    "require": require,
    "zeros": zeros,
    "ones": ones,
    "empty": empty,
    "full": full,
    "arange": arange,
    "linspace": linspace,
    "logspace": logspace,
    "eye": eye,
    "identity": identity,
    "tri": tri,
}
REPLACED.update(f"np.{name}" for name in REPLACEMENTS)
