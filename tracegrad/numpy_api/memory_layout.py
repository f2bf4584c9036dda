"""Memory attributes of arrays: flags, strides, the base of a view, and shared memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracegrad.avals import supported
from tracegrad.errors import OVERLAPPING, READ_ONLY, lost
from tracegrad.numpy_api.operands import arrays, operand, peer_of
from tracegrad.numpy_api.registry import implements, refuse
from tracegrad.ops.core.memory_order import arranged, order_of, relaid, spread, stand_in
from tracegrad.typing import Array, ArrayLike, DType, NDArray


def positions(shape: Sequence[int], steps: Sequence[int], start: int = 0) -> NDArray:
    """Return the positions in memory, in elements, of a view by strides `steps` whose first element is at `start`."""
    result: Any = np.array(start)
    for k, (n, step) in enumerate(zip(shape, steps)):
        result = result + (np.arange(n) * step).reshape((-1,) + (1,) * (len(shape) - 1 - k))
    return np.ascontiguousarray(np.broadcast_to(result, tuple(shape)))


class RowMajorLayout:
    """Memory attributes that NumPy's functions read, for carriers without memory."""

    __slots__ = ()

    def _in_memory_order(self, order: str | tuple[int, ...], *like: Array) -> Any:
        """Return this new array with this order of elements in memory (`ops.core.memory_order.arranged`)."""
        return self

    def _in_order(self, order: str) -> Any:
        """Return this array if its elements have this order in memory, else a copy."""
        return self

    def _sealed(self) -> Any:
        """Return this view, which must not be updated from now on."""
        return self

    def _layouts(self, *xs: Array) -> list[NDArray]:
        """Return ndarrays with the memory layout of the arrays `xs`, which must not be read."""
        return [stand_in(x.shape, x.dtype, None, 64) for x in xs]  # NumPy does not accept the address 0

    def _compares(self) -> None:
        """Record that the memory positions of this and other arrays are compared."""

    def _visible_layouts(self, *xs: Array) -> list[NDArray]:
        """Return the result of `_layouts`, for a result that users see."""
        return self._layouts(*xs)


def in_memory_order(x: Any, order: str | tuple[int, ...], *like: Array) -> Array:
    """Return the new array `x` with this order of elements in memory.

    The order is "C", "F", "K" or "A", where the last two mean the order of `like`, or the axes from the outermost to
    the innermost.
    """
    if isinstance(x, np.ndarray):
        plain: Any = like
        return relaid(x, arranged(order, x.shape, x.dtype, *plain))
    ordered: Array = x._in_memory_order(order, *[operand(y, x) for y in like])
    return ordered


def in_new_memory(x: Any, order: str) -> Array:
    """Copy `x` to new memory, in this order."""
    copied: Array = x.copied() if hasattr(x, "copied") else x._alias()
    return copied if order == "K" or len(x.shape) < 2 else in_memory_order(copied, order, x)


def recomputed(x: Any) -> Array:
    """Copy `x` as a ufunc does: along axes with one repeated element, neighbours become separate."""
    copied: Array = x._alias()
    if len(x.shape) < 2:
        return copied
    (layout,) = x._layouts(x)
    return in_memory_order(copied, tuple(order_of([spread(layout)], layout.ndim)), x)


def with_order(x: Any, order: str | None) -> Array:
    """Return `x` if its elements have this order in memory, else a copy, as `np.asarray` does."""
    ordered: Array = x if order is None or order == "K" else x._in_order(order)
    return ordered


def dtype_of_view(x: Any, *args: object) -> DType:
    """Return the dtype for `ndarray.view`: one of the same size, or that of the parts of complex numbers."""
    args = () if len(args) == 1 and args[0] == np.ndarray else args
    if len(args) > 1 or (args and isinstance(args[0], type) and issubclass(args[0], np.ndarray)):
        text = "ndarray.view of another class is not supported on traced arrays and Tensors; use the array itself"
        raise x.refusal(text)
    kind: DType = supported(args[0], "view") if args else x.dtype
    is_complex_view = {kind, x.dtype} in ({np.dtype("f8"), np.dtype("c16")}, {np.dtype("f4"), np.dtype("c8")})
    if kind.itemsize != x.dtype.itemsize and not (is_complex_view and x.shape):
        raise refuse("ndarray.view of a dtype of another size", "use astype()")
    return kind


class Flags:
    """Memory flags, `ndarray.flags`, of an array with the layout of `stand_in`."""

    def __init__(self, layout: np.ndarray[Any, Any], owner: bool, outside: bool, array: Any):
        self._of, self._owner, self._outside, self._array = layout.flags, owner, outside, array

    @property
    def owndata(self) -> bool:
        """Whether the array is no view."""
        if self._outside and self._owner:
            raise refuse("flags.owndata of an array from outside")
        return self._owner

    @property
    def writeable(self) -> bool:
        """Whether the array may be updated."""
        if self._outside:
            raise refuse("flags.writeable of an array from outside")
        return self._of.writeable and self._array.frozen in ("", OVERLAPPING)

    @writeable.setter
    def writeable(self, value: bool) -> None:
        if value or self._array.outside:
            raise self._array.refusal("flags.writeable = True, or = False of an array from outside, is not supported")
        self._array.frozen = READ_ONLY

    def __setitem__(self, name: str, value: bool) -> None:
        if name not in ("W", "WRITEABLE"):
            raise KeyError("Unknown flag")
        self.writeable = value

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of, name)

    def __getitem__(self, name: str) -> bool:
        if name in ("O", "OWNDATA", "W", "WRITEABLE"):
            return self.owndata if name.startswith("O") else self.writeable
        flag: bool = self._of[name]  # type: ignore[index]
        return flag

    def __repr__(self) -> str:
        return repr(self._of).replace("OWNDATA : False", f"OWNDATA : {self._owner}")


@implements(np.shares_memory)
def shares_memory(a: ArrayLike, b: ArrayLike, /, max_work: Any = None) -> bool:
    """`np.shares_memory`."""
    u, v = _compared(a, b)
    return np.shares_memory(u, v, max_work=max_work)


@implements(np.may_share_memory)
def may_share_memory(a: ArrayLike, b: ArrayLike, /, max_work: Any = None) -> bool:
    """`np.may_share_memory`."""
    u, v = _compared(a, b)
    return np.may_share_memory(u, v, max_work=max_work)


def _compared(a: ArrayLike, b: ArrayLike) -> list[NDArray]:
    x, y = arrays(a, b)
    leader: Any = peer_of(x, y)
    leader._compares()
    layouts: list[NDArray] = leader._visible_layouts(x, y)
    return layouts


@implements(np.isfortran)
def isfortran(a: Any) -> bool:
    """`np.isfortran`."""
    return bool(a._visible_layouts(a)[0].flags.fnc)


class MemoryMethods:
    """Methods and attributes of an ndarray that expose its memory."""

    __slots__ = ()
    device = "cpu"

    def tobytes(self, order: Any = "C") -> bytes:
        """`ndarray.tobytes`: the elements as bytes, for example as a key."""
        x: Any = self
        if x._is_differentiated() or x._depends_on_differentiated():
            raise lost("tobytes()", "takes the elements of a value that is being differentiated, without a derivative")
        if order not in (None, "C", "F"):
            raise refuse(f"ndarray.tobytes(order={order!r})", "say in which order, C or F")
        return np.asarray(x.concrete("tobytes()")).tobytes(order)

    @property
    def ctypes(self) -> Array:
        raise refuse("ndarray.ctypes")

    @property
    def data(self) -> Array:
        raise refuse("ndarray.data")
