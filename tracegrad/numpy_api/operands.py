"""Operand coercion for NumPy functions: the carrier of the highest level determines the kind.

A function of this package first calls `operands` (Python scalars stay literals) or `arrays` (they become arrays without
axes) on all its array arguments. The leading carrier lifts arguments of other kinds (ndarrays, NumPy scalars, lists
that contain carriers, carriers of a lower level) before any op sees them, so that no computation escapes a trace.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, overload

import numpy as np

from tracegrad.avals import LITERALS, is_literal, name_of, supported, weak_dtype
from tracegrad.errors import DTypeError, ShapeError, located
from tracegrad.numpy_api.protocols import as_operand, defers_to, is_sequence, is_unknown, of_objects, of_protocol
from tracegrad.ops.core.half_rounding import HALF
from tracegrad.ops.core.op import Carrier, dispatch_operand, normalize_axis
from tracegrad.ops.indexing.dynamic_slice import counted, dynamic_slice
from tracegrad.ops.shape.linear import broadcast_to, cast, full, reshape
from tracegrad.ops.shape.stack_split import stack
from tracegrad.typing import Array, ArrayLike, Casting, DType, DTypeLike, NDArray, Number, Shape


def peer_of(*xs: object) -> Carrier | None:
    """Return the carrier of the highest level among `xs`, also in lists and tuples; None if there is none."""
    return dispatch_operand(xs)


def operand(x: Any, peer: Carrier | None) -> Array | Number:
    """Convert `x` to an operand of ops together with `peer`: a literal, or a value of the peer's kind."""
    if type(x) in LITERALS:
        return x  # type: ignore[no-any-return]
    if isinstance(x, np.generic) and peer is not None and peer.common_dtype is not None:
        number = x.item()  # together with Tensors, NumPy scalars count as Python numbers
        if type(number) in LITERALS:
            return number  # type: ignore[no-any-return]
    value = _array_of(x, peer)
    return _number(x) if value is None else value


def _number(x: Any) -> Number:
    """Convert a number of a subclass, such as the member of an IntEnum."""
    number: Number = next(cls for cls in LITERALS if isinstance(x, cls))(x)
    return number


def _array_of(x: Any, peer: Any) -> Array | None:
    """Convert an array, or what stands for one, to the peer's kind; None for a number of a subclass."""
    if isinstance(x, Carrier):
        return x if peer is None or x.level == peer.level else peer._lift(x)  # type: ignore[return-value]
    if isinstance(x, np.ndarray | np.generic):
        supported(x.dtype)
        plain: NDArray = as_operand(x, peer)
        return plain if peer is None else peer._lift(plain)
    if isinstance(x, list | tuple):
        return from_sequence(x, peer)
    return None if isinstance(x, int | float | complex) else _array_of(of_protocol(x), peer)


def second_operand(x: Any, other: Any) -> Any:
    """Convert `other` to the second operand of an operator of the carrier `x`.

    The result is NotImplemented if `other` defines the operator, and UFUNC if it defines the ufunc.
    """
    kind = type(other)
    if kind in LITERALS or kind is type(x):
        return other
    if isinstance(other, Carrier):
        return NotImplemented if other.level > x.level else operand(other, x)
    if isinstance(other, _OPERANDS):
        return operand(other, x)
    defers = defers_to(other)
    if defers and x.common_dtype is None and not getattr(x, "weak", False) and is_unknown(other):
        if is_sequence(other):
            return operand([*other], x)
        if x.shape:
            raise of_objects(x, kind)
    return operand(other, x) if defers is False else NotImplemented if defers else UFUNC


UFUNC = object()
_OPERANDS = (np.ndarray, np.generic, list, tuple, int, float, complex)


def operands(*xs: object) -> list[Array | Number]:
    """Convert all of `xs` to operands of the kind of the carriers among them."""
    peer = peer_of(*xs)
    return [operand(x, peer) for x in xs]


def array(x: object, peer: Carrier | None) -> Array:
    """Convert as `operand`, and a Python scalar to an array without axes, of NumPy's default dtype."""
    if type(x) in LITERALS:
        return constant(full(shape=(), value=x, dtype=np.asarray(x).dtype.name), peer)
    value = _array_of(x, peer)
    return array(_number(x), peer) if value is None else value


def arrays(*xs: object) -> list[Array]:
    """Convert all of `xs` to arrays of the kind of the carriers among them."""
    peer = peer_of(*xs)
    return [array(x, peer) for x in xs]


def constant(x: Array, peer: Any) -> Array:
    """Convert `x`, an ndarray without other references or a carrier, to a value of the peer's kind."""
    if isinstance(x, Carrier):
        return x if peer is None or x.level == peer.level else peer._lift(x)
    return x if peer is None else peer._constant(x)


def from_sequence(xs: Sequence[ArrayLike], peer: Carrier | None) -> Array:
    """Convert the nested sequence `xs` to an array, as `np.array(xs)` does."""
    if peer_of(*xs) is None:
        plain = np.array(xs)
        supported(plain.dtype, "an array made of a sequence")
        return constant(plain, peer)
    known = whole(xs)
    if known is not None:
        return known
    parts = promoted([array(x, peer) for x in xs])
    if len({x.shape for x in parts}) != 1:
        shapes = ", ".join(str(x.shape) for x in parts)
        raise ShapeError(located(f"array: elements of one sequence have different shapes: {shapes}"))
    joined: Any = stack(*parts, axis=0)
    return joined if isinstance(joined, np.ndarray) else joined._in_memory_order("C")


def has_value(x: object) -> bool:
    """Whether the value of `x` can be queried: values do not exist in a region while it is recorded."""
    traced = getattr(x, "array", x)
    builder = getattr(traced, "builder", None)
    return builder is None or bool(builder.innermost().knows(traced))


def whole(xs: Sequence[ArrayLike]) -> Array | None:
    """Return the array whose rows are known to be `xs`, or None."""
    return xs[0].whole(xs) if isinstance(xs[0], Carrier) else None


def to_dtype(x: Array, dtype: DTypeLike) -> Array:
    """`x` with `dtype` (anything that names a dtype; None keeps it)."""
    if dtype is None:
        return x
    dtype = supported(dtype, "dtype=")
    return x if x.dtype == dtype else cast(x, dtype=name_of(dtype))


@overload
def to_inexact(x: Array) -> Array: ...


@overload
def to_inexact(x: Array | Number) -> Array | Number: ...


def to_inexact(x: Array | Number) -> Array | Number:
    """`x` in the floating dtype in which ufuncs compute: float16 for the smallest integers."""
    if is_literal(x) or x.dtype.kind in "fc":
        return to_float(x)
    return cast(x, dtype=np.result_type(x.dtype, HALF).name)


def rounded_once(compute: Callable[..., Array], *xs: Array | Number) -> Array:
    """Apply `compute` to `xs`; float16 is computed in float32, so that several ops round once."""
    if not any(not is_literal(x) and x.dtype == HALF for x in xs):
        return compute(*xs)
    return cast(
        compute(*[x if is_literal(x) or x.dtype != HALF else cast(x, dtype="float32") for x in xs]), dtype=HALF.name
    )


def assigned(x: Array | Number | str | bytes, dtype: DType) -> Array | Number:
    """Convert `x` for assignment to an element of this dtype: a literal stays a literal."""
    beyond = x.beyond(dtype) if isinstance(x, Carrier) and x.weak else None
    if isinstance(x, Carrier) and beyond is None:
        return to_dtype(x, dtype)
    if isinstance(x, np.ndarray) and x.ndim:
        return x.astype(dtype)
    x = x if beyond is None else beyond
    element = np.zeros((), dtype)
    element[()] = x  # NumPy raises its own error if `x` does not fit
    number: Number = element.item()
    return number


def together(*xs: Array | Number) -> tuple[DType, list[Array | Number]]:
    """Convert `xs` to their common dtype, as for `np.where`; Python numbers wrap around as in NumPy."""
    dtype = supported(_common_dtype(xs))
    return dtype, [np.asarray(x).astype(dtype).item() if is_literal(x) else to_dtype(x, dtype) for x in xs]


def _common_dtype(xs: Sequence[Array | Number]) -> DType:
    """Return the common dtype of values and numbers, by NumPy's promotion or by the rule of a carrier among them."""
    rule = getattr(dispatch_operand(xs), "common_dtype", None)
    if rule is not None:
        dtype: DType = rule([(weak_dtype(x), 0 if is_literal(x) else len(x.shape)) for x in xs])
        return dtype
    args = [weak_dtype(x) if isinstance(x, Carrier) else x for x in xs]
    return np.result_type(*(x(0) if isinstance(x, type) and x in LITERALS else x for x in args))


@overload
def to_float(x: Array) -> Array: ...


@overload
def to_float(x: Array | Number) -> Array | Number: ...


def to_float(x: Any) -> Any:
    """Convert integers and booleans to float64, those of Tensors to the default dtype; complex numbers stay."""
    if type(x) in LITERALS:
        return x if isinstance(x, complex) else float(x)
    if x.dtype.kind in "fc":
        return x
    rule = getattr(x, "common_dtype", None)
    return cast(x, dtype="float64" if rule is None else rule([(float, 0)]).name)


def promoted(xs: Sequence[Array], dtype: DTypeLike = None, casting: Casting = "same_kind") -> list[Array]:
    """Arrays in their common dtype, or in `dtype` where `casting` allows it."""
    if dtype is None and all(x.dtype is xs[0].dtype for x in xs):
        return list(xs)
    common = supported(_common_dtype(xs) if dtype is None else dtype)
    for x in xs:
        if not np.can_cast(x.dtype, common, casting):
            raise DTypeError(located(f"cannot cast from {x.dtype} to {common} by the casting rule {casting!r}"))
    return [x if x.dtype == common else cast(x, dtype=common.name) for x in xs]


def broadcast_shapes(name: str, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that `shapes` broadcast to, or a `ShapeError`."""
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        listed = ", ".join(map(str, shapes))
        raise ShapeError(located(f"{name}: shapes cannot be broadcast together: {listed}")) from None


def broadcast_arrays(name: str, xs: Sequence[Array], shape: Shape | None = None) -> list[Array]:
    """Arrays broadcast to `shape`, or to one shape."""
    wanted = broadcast_shapes(name, *(x.shape for x in xs)) if shape is None else shape
    return [x if x.shape == wanted else broadcast_to(x, shape=wanted) for x in xs]


def size_of(x: Array) -> int:
    """Return the number of elements."""
    return math.prod(x.shape)


def raveled(x: Array) -> Array:
    """Flatten an array."""
    return reshape(x, shape=(size_of(x),))


def along_axis(name: str, a: ArrayLike, axis: int | None) -> tuple[Array, int]:
    """Return the array and the normalized axis; for None, the flattened array."""
    (x,) = arrays(a)
    return (raveled(x), 0) if axis is None else (x, normalize_axis(name, axis, len(x.shape)))


def alias(x: Array) -> Array:
    """Return another object for the same value: assigning to one does not change the other."""
    carried: Any = x
    result: Array = carried._alias() if hasattr(x, "_alias") else carried.copy()
    return result


def viewed(x: Any, result: Array, view_update: Callable[[Array, Array], Array]) -> Array:
    """Register `result` as a view of `x`, as in NumPy; `put(base, new)` is `base` with `new` stored at the view."""
    return x._viewed(result, view_update) if getattr(x, "_tracks_views", False) else result


def read_only(x: Any, result: Array, view_layout: Callable[[NDArray], NDArray]) -> Array:
    """Register `result` as a read-only view of `x`, as in NumPy; `view_layout` maps an ndarray to the same view of
    it."""

    def sealed(base_layout: NDArray) -> NDArray:
        layout = view_layout(base_layout)
        layout.flags.writeable = False
        return layout

    return x._viewed(result, None, sealed) if getattr(x, "_tracks_views", False) else result


def window(x: Any, starts: tuple[Array | Number, ...], sizes: Shape, step: Shape) -> Array:
    """Return the window of `x` at dynamic starts; for a tracer, with the memory layout of a view of `x`."""
    result = dynamic_slice(x, *starts, sizes=sizes, step=step)
    return x._windowed(result, starts, step) if getattr(x, "_tracks_views", False) else result


def normalized_index(index: ArrayLike, peer: Carrier | None, length: int, axis: int) -> Array:
    """Normalize an integer index of an axis of this length to count from the front."""
    position = to_dtype(array(index, peer), "int64")
    known = isinstance(index, Carrier) and index.is_valid_index(length)
    return position if known else counted(position, length=length, axis=axis)
