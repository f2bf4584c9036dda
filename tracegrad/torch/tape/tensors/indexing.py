"""Indexing of recorded arrays: `x[index]` and `x[index] = value`.

Integers, slices, None and the ellipsis make a view, one operation on the tape. Other indices use NumPy's indexing over
the ops, as one node.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.errors import located
from tracegrad.numpy_api import indexing
from tracegrad.numpy_api.operands import to_dtype
from tracegrad.ops.core.dispatch import TensorCarrier
from tracegrad.ops.core.op import Carrier, named, one_node
from tracegrad.torch.functions.core.dims import not_real
from tracegrad.torch.modes import STATE
from tracegrad.torch.tape.backward import dual
from tracegrad.torch.tape.recording.node import MaskedCotangent, Node, next_number
from tracegrad.torch.tape.tensors import aliasing

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Holder
    from tracegrad.torch.tape.recording.recorded_array import Recorded
    from tracegrad.typing import Array


_ndarray = np.ndarray
_new = object.__new__


class IndexNode(Node):
    """Node of a view by indexing an array of `shape`: the cotangent is stored at the index in an array of zeros."""

    __slots__ = ("dtype", "index", "shape")
    batches = True
    index: tuple[Any, ...]
    shape: tuple[int, ...]
    dtype: Any

    def pull(self, ct: Any, recording: bool) -> Sequence[Any]:
        if isinstance(ct, np.ndarray | np.generic):
            out = np.zeros(self.shape, self.dtype)
            out[self.index] = ct
            return (out,)
        if ct.__class__ is MaskedCotangent:
            (result,) = self.pull(ct.ct, recording)
            (mask,) = self.pull(ct.mask, recording)
            return (MaskedCotangent(result, mask.astype(np.bool_) if isinstance(mask, np.ndarray) else mask),)
        return (self._spread(ct),)

    def _by_axis(self) -> list[tuple[int, Any]]:
        """Return the entries of the index with their axes."""
        entries = [e for e in self.index if e is not None]
        dots = _dots(entries)
        after_dots = entries[dots + 1 :]
        first = len(self.shape) - len(after_dots)
        return [*enumerate(entries[:dots]), *enumerate(after_dots, first)]

    def _spread(self, ct: Any) -> Array:
        probe = np.broadcast_to(np.zeros((), self.dtype), self.shape)
        return indexing.plan(probe, self.index).spread(ct)


class SliceBackward0(IndexNode):
    """Node of a view by slices; its attributes describe the last slice."""

    __slots__ = ()

    def _last(self) -> tuple[int, slice]:
        return [(k, e) for k, e in self._by_axis() if isinstance(e, slice)][-1]

    @property
    def _saved_dim(self) -> int:
        return self._last()[0]

    @property
    def _saved_start(self) -> int:
        dim, entry = self._last()
        return entry.indices(self.shape[dim])[0]

    @property
    def _saved_end(self) -> int:
        dim, entry = self._last()
        return entry.indices(self.shape[dim])[1]

    @property
    def _saved_step(self) -> int:
        return self._last()[1].step or 1


class SelectBackward0(IndexNode):
    """Node of a view that drops an axis; its attributes describe the last one."""

    __slots__ = ()

    def _last(self) -> tuple[int, int]:
        return [(k, e) for k, e in self._by_axis() if e.__class__ is int][-1]

    @property
    def _saved_dim(self) -> int:
        return self._last()[0]

    @property
    def _saved_index(self) -> int:
        return self._last()[1]


class UnsqueezeBackward0(IndexNode):
    """Node of a view of all elements, with new axes."""

    __slots__ = ()


class AliasBackward0(IndexNode):
    """Node of a view of all elements."""

    __slots__ = ()


def _dots(entries: Sequence[object]) -> int:
    """Return the position of the ellipsis, without comparing the user's entries."""
    return next(i for i, e in enumerate(entries) if e is Ellipsis)


def _entries(index: object) -> tuple[object, ...]:
    return index if index.__class__ is tuple else (index,)


def _as_tuple_index(index: object, x: Recorded) -> object:
    """Convert the index of a Tensor: a list with entries other than numbers is a tuple, as in PyTorch."""
    if index.__class__ is not list or not isinstance(x, TensorCarrier) or not any(map(_is_no_number, index)):
        return index
    text = (
        "Using a non-tuple sequence for multidimensional indexing is deprecated; use x[tuple(seq)] instead of x[seq]."
    )
    warnings.warn(located(text), UserWarning, stacklevel=2)
    return tuple(index)


def _is_no_number(entry: object) -> bool:
    return entry is None or entry is Ellipsis or isinstance(entry, slice | list | tuple | Carrier | np.ndarray)


def _basic(index: object) -> tuple[tuple[Any, ...], type[IndexNode]] | None:
    """Return the index as a tuple with an ellipsis, and the class of the node; None for an index of arrays."""
    entries = _entries(index)
    cls: type[IndexNode] = AliasBackward0
    dots = False
    for e in entries:
        kind = e.__class__
        if kind is int:
            cls = SelectBackward0
        elif kind is slice:
            cls = SliceBackward0
        elif e is None:
            cls = UnsqueezeBackward0
        elif e is Ellipsis:
            dots = True
        else:
            return None
    return (entries if dots else (*entries, Ellipsis)), cls


def get_item(x: Any, index: object) -> Any:
    """`x[index]`."""
    result = _basic(index)
    if result is None:
        index = _as_tuple_index(index, x)
        plain = _plain(index)
        result = _basic(plain) if plain is not None else None
        if result is None:
            return named("IndexBackward0", _picked(x, _mapped(index, x)))
    entries, cls = result
    array = x.array
    try:
        picked = array[entries]
    except IndexError as error:
        raise IndexError(located(str(error))) from None
    if picked.ndim == 0 and x._immutable_scalars and not any(e is Ellipsis for e in _entries(index)):
        out = x._like(picked.copy())  # NumPy returns a scalar, not a view
    else:
        out = x._like(picked)
        aliasing.register(out, x, partial(_again, entries))
    node = None
    if x._requires and STATE.enabled and not STATE.inference:
        node = _new(cls)
        node.index, node.shape, node.dtype = entries, array.shape, array.dtype
        node.edges, node.hooks, node.number = (x._edge or x._source(),), None, next_number()
        out._requires, out._edge = True, node
    if STATE.unusual:
        x._unusually(out, node)
        if STATE.level is not None:
            dual.mapped(x, [out], [partial(_again, entries)])
    return out


def _again(entries: Any, x: Any) -> Any:
    return x[entries]


def _plain(index: Any) -> Any:
    """Convert an index of integer-like objects to integers; None for others."""
    entries = index if index.__class__ is tuple else (index,)
    plain: list[Any] = []
    for e in entries:
        if e is None or e is Ellipsis:
            plain.append(e)
        elif isinstance(e, slice):
            plain.append(e if indexing.bounds_move(e) else slice(*(_bound(v) for v in (e.start, e.stop, e.step))))
        elif isinstance(e, bool | np.bool_ | list | tuple | np.ndarray):
            return None
        elif isinstance(e, Carrier):
            if e.dtype.kind not in "iu" or e.shape or e.dtype == np.uint8:
                return None
            plain.append(e.item() if _is_traced(e) else e.__index__())  # type: ignore[attr-defined]
        elif hasattr(e, "__index__"):
            plain.append(e.__index__())
        else:
            return None
    return tuple(plain)


def _bound(x: Any) -> int | None:
    return None if x is None else x.__index__()


def _is_traced(x: object) -> bool:
    """Whether an array or a Tensor may have another value at each call of the function that is being traced."""
    return isinstance(getattr(x, "array", x), Carrier)


def _mapped(index: object, x: Recorded) -> object:
    """Convert arrays of uint8 in the index of a Tensor to masks."""
    if not isinstance(x, TensorCarrier):
        return index
    if index.__class__ is tuple:
        return tuple([_mask(e) for e in index])
    return _mask(index)


def _mask(entry: Any) -> object:
    if getattr(entry, "dtype", None) != np.uint8:
        return entry
    warnings.warn(
        located("indexing with dtype uint8 is now deprecated, please use a dtype bool instead."), stacklevel=2
    )
    return to_dtype(entry, bool)


@one_node("IndexBackward0")
def _picked(x: Any, index: Any) -> Any:
    return indexing.getitem(x, index)


@one_node("IndexPutBackward0")
def _index_put(x: Holder, value: Array, index: object) -> Array:
    result: Array = indexing.setitem(x, index, value)
    return result


def set_item(x: Any, index: object, value: Any) -> None:
    """`x[index] = value`."""
    if type(value) is complex and x.dtype.kind != "c":
        raise not_real(x.dtype.name)
    result = _basic(index)
    if result is None:
        index = _as_tuple_index(index, x)
        plain = _plain(index)
        result = _basic(plain) if plain is not None else None
    if result is None:
        value = value if isinstance(value, Carrier) else x._lift(np.asarray(value))
        x._become(_index_put(x, value, _mapped(index, x)))
        return
    if not x.shape and any(isinstance(e, slice) for e in result[0]) and isinstance(x, TensorCarrier):
        raise IndexError(located("slice() cannot be applied to a 0-dim tensor."))
    view = x if _is_all(x, result[0]) else get_item(x, index)
    value = value if isinstance(value, Carrier) else np.asarray(value)
    if len(value.shape) > len(view.shape):
        value = _without_leading_ones(value, len(view.shape))
    view.copy_(value)


def _is_all(x: Array, entries: tuple[object, ...]) -> bool:
    """Whether an index selects everything unchanged."""
    lengths = iter(x.shape)
    for e in entries:
        if e is Ellipsis:
            break
        if not isinstance(e, slice) or indexing.bounds_move(e) or e.indices(n := next(lengths, 0)) != (0, n, 1):
            return False
    return all(e is Ellipsis or (isinstance(e, slice) and e == slice(None)) for e in entries[_dots(entries) :])


def _without_leading_ones(value: Any, rank: int) -> Array:
    shape = value.shape
    while len(shape) > rank and shape[0] == 1:
        shape = shape[1:]
    result: Array = value.reshape(shape)
    return result
