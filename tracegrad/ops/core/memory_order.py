"""Model NumPy's memory order: which results are views, and in which order a new array stores its elements.

A *stand-in* is an ndarray with meaningful shape, dtype, strides, address and flags, but no elements: its memory does
not exist and must never be read. NumPy, applied to a stand-in, returns the layout of a view, or shows that there
is no view. The memory order of a new array is a trait of ops (`Op.order`):

- "C": row-major;
- "K": the order of the operands, by falling strides; if operands differ, row-major wins;
- "joined": the same, as computed by `np.concatenate`;
- "A": column-major if the operand is column-major and not row-major, else row-major;
- "picked": the axes of the indices first, in row-major order, then the others in the order of the operand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import Aval
from tracegrad.ops.core.forms import Reshape

if TYPE_CHECKING:
    from tracegrad.ops.core.op import Op
    from tracegrad.typing import Array, DType, NDArray


# Bit of a query for the memory order of a traced value: the order is not known, for example of region arguments.
UNKNOWN = 1

StandIn = np.ndarray[Any, Any]
Strides = tuple[int, ...]


class _ArrayInterface:
    """Array interface from which NumPy makes a stand-in."""

    __slots__ = ("__array_interface__", "owner")

    def __init__(self, interface: dict[str, Any], owner: Any):
        self.__array_interface__, self.owner = interface, owner


def stand_in(
    shape: tuple[int, ...], dtype: DType, strides: Strides | None, address: int, owner: object = None
) -> StandIn:
    """An ndarray without elements, which must not be read unless an `owner` has the memory; `strides` are None for
    row-major order."""
    interface = {"shape": shape, "typestr": dtype.str, "strides": strides, "data": (address, False), "version": 3}
    return np.asarray(_ArrayInterface(interface, owner))


def view_by(op: Op, params: dict[str, Any], x: StandIn) -> Any:
    """The op applied to a stand-in, if the result is a view (of an op with several results: views); None if NumPy
    copies."""
    if isinstance(op.form, Reshape):
        return _reshaped(x, params["shape"])
    return op.view(x, **params)


def _reshaped(x: StandIn, shape: tuple[int, ...]) -> StandIn | None:
    try:
        return x.reshape(shape, copy=False)
    except ValueError:
        return None


def is_row_major(x: StandIn) -> bool:
    """Whether the strides of the axes fall, so that a result in the order of `x` is row-major."""
    before = None
    for n, s in zip(x.shape, x.strides):
        if n == 1 or s == 0:
            continue
        s = abs(s)
        if before is not None and s > before:
            return False
        before = s
    return True


def order_of(strides: Sequence[Strides], ndim: int) -> list[int]:
    """The axes in memory order, outermost first, as NumPy's iterator orders them for operands with these strides (0 for
    a repeated operand): `npyiter_find_best_axis_ordering`."""
    order: list[int] = []  # from the innermost to the outermost
    for axis in reversed(range(ndim)):
        position = len(order)
        for k in range(len(order) - 1, -1, -1):
            swap = _is_inner_axis([(abs(s[axis]), abs(s[order[k]])) for s in strides])
            if swap is None:
                continue
            if not swap:
                break
            position = k
        order.insert(position, axis)
    return order[::-1]


def _is_inner_axis(pairs: Sequence[tuple[int, int]]) -> bool | None:
    """Whether the axis with the first strides is inside of the axis with the second; None if undetermined."""
    result = None
    for s, other in pairs:
        if s and other:
            if other <= s:
                return False
            result = True
    return result


def in_order(order: Sequence[int], shape: Sequence[int], itemsize: int) -> Strides:
    """The strides of a new array with the axes `order` from the outermost to the innermost."""
    strides, stride = [0] * len(shape), itemsize
    for axis in reversed(order):
        strides[axis] = stride
        stride *= shape[axis]
    return tuple(strides)


def spread(x: StandIn) -> Strides:
    """The strides, with 0 along unit axes."""
    return tuple([0 if n == 1 else s for n, s in zip(x.shape, x.strides)])


def result_strides(order: str, operands: Sequence[StandIn], params: dict[str, Any], aval: Aval) -> Strides | None:
    """The strides of a new array of this aval, made by an op of this `order`; None for row-major order."""
    ndim = len(aval.shape)
    if order == "picked":
        axes = _picked(operands[0], params["axes"], ndim)
    elif order == "K":
        args = [y for x in operands if (y := _along(x, params, ndim)) is not None]
        axes = order_of(args, ndim) if args else list(range(ndim))
    elif order == "joined":
        axes = _joined_order([_among(x, params["axis"], ndim) for x in operands], ndim)
    elif order == "F" or (order == "A" and operands[0].flags.fnc):
        axes = list(range(ndim))[::-1]
    else:
        return None
    return None if axes == sorted(axes) else in_order(axes, aval.shape, aval.dtype.itemsize)


def _along(x: StandIn, params: dict[str, Any], ndim: int) -> Strides | None:
    """The strides of an operand along the result axes, without reduced axes."""
    strides = spread(x)
    if x.ndim == ndim:
        return strides
    return tuple([s for k, s in enumerate(strides) if k not in params["axes"]]) if "axes" in params else None


def _among(x: StandIn, axis: int, ndim: int) -> tuple[int | None, ...]:
    """The strides of an operand along the result axes, None for unit axes; `axis` may be new."""
    strides = tuple([None if n == 1 else abs(s) for n, s in zip(x.shape, x.strides)])
    return strides if x.ndim == ndim else (*strides[:axis], None, *strides[axis:])


def _joined_order(strides: Sequence[tuple[int | None, ...]], ndim: int) -> list[int]:
    """The axes of a concatenation in memory order: `PyArray_CreateMultiSortedStridePerm`."""
    order: list[int] = []
    for axis in range(ndim):
        position = len(order)
        for k in range(len(order) - 1, -1, -1):
            pairs = [(s[axis], s[order[k]]) for s in strides]
            known = [(a, b) for a, b in pairs if a is not None and b is not None]
            if not known:
                continue
            if any(a <= b for a, b in known):
                break
            position = k
        order.insert(position, axis)
    return order


def _picked(x: StandIn, axes: Sequence[int], ndim: int) -> list[int]:
    rest = [-abs(s) for k, s in enumerate(spread(x)) if k not in axes]
    depth = ndim - len(rest)
    return [*range(depth), *(depth + k for k in sorted(range(len(rest)), key=rest.__getitem__))]


def arranged(order: Any, shape: tuple[int, ...], dtype: np.dtype[Any], *like: StandIn) -> Strides | None:
    """The strides of a new array in this order, "C", "F" or the order of `like` ("K", "A"), or with these axes from the
    outermost to the innermost; None for row-major order."""
    if isinstance(order, tuple):
        return None if list(order) == sorted(order) else in_order(order, shape, dtype.itemsize)
    if order == "C":
        return None
    # The array is never read or written, so only its addresses are reserved.
    result = np.empty(shape, dtype, order) if order == "F" else np.empty_like(like[0], dtype, order, shape=shape)
    return None if result.flags.c_contiguous else result.strides


def axes_in_memory(x: StandIn) -> list[int]:
    """The axes in the order of `np.ravel(x, "K")`, from the outermost to the innermost."""
    axes = sorted(range(x.ndim), key=lambda k: (-abs(x.strides[k]), k))
    return axes if x.transpose(axes).flags.c_contiguous else order_of([spread(x)], x.ndim)


def has_order(x: StandIn, order: str) -> bool:
    """Whether the elements have this memory order: "C", "F", or "A" for either."""
    if order == "F":
        return x.flags.f_contiguous
    return x.flags.c_contiguous or (order == "A" and x.flags.f_contiguous)


def relaid(x: NDArray, strides: Strides | None) -> Array:
    """The array, or a copy of it with these strides if it has others."""
    if x.flags.owndata and (x.flags.c_contiguous if strides is None else x.strides == strides):
        return x
    if strides is None:
        return x.copy("C")
    axes = sorted(range(x.ndim), key=lambda k: (-strides[k], k))
    return x.transpose(axes).copy("C").transpose(np.argsort(axes))


def with_strides_of(x: NDArray) -> NDArray:
    """A copy in its own memory with the same strides."""
    copied = x.copy("K")
    if copied.strides == x.strides:
        return copied
    ends = [(n - 1) * s for n, s in zip(x.shape, x.strides) if n]
    room = np.empty(sum(map(abs, ends)) + x.itemsize, np.uint8)
    copied = np.ndarray(x.shape, x.dtype, room, -sum(e for e in ends if e < 0), x.strides)
    copied[...] = x
    return copied
