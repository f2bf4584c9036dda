"""Trace arrays whose sizes are numbers of a loop, as padded arrays with a valid part (ragged arrays).

`A[i, :j]` in the body of a loop has another size in each iteration. A span holds a tracer of the maximal size, and the
valid part of each axis; its `shape` contains a traced number. `tracegrad.ops.ragged.masked_semantics` defines ops on
spans. No other op sees the tracer. An op without a definition reads the sizes, which is an error in a region and a
guard elsewhere. An array that is combined with a span must have the same size.

The selection of a mask (`x[mask]`) is also a span: all of `x`, with the masked elements valid. It is a copy. Computing
with it, reducing it, and assigning it under the same mask leave no guard.

A span that is a view knows its base array and its index. It is read again after the base is updated, and an update of
the span writes to the base.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tracegrad.avals import is_literal
from tracegrad.errors import UnsupportedError, located
from tracegrad.numpy_api.array_methods import ArrayMethods
from tracegrad.numpy_api.boolean_mask import MaskEntry, count_true, indices, mask_in, over
from tracegrad.numpy_api.indexing import plan, setitem
from tracegrad.numpy_api.operands import assigned
from tracegrad.ops import Carrier, DispatchLevel, Op
from tracegrad.ops.core.elementwise_op import Elementwise
from tracegrad.ops.elementwise import table as ops
from tracegrad.ops.elementwise.table import where
from tracegrad.ops.indexing.gather_scatter import gather
from tracegrad.ops.linalg.contraction import matmul
from tracegrad.ops.ragged.masked_semantics import NoMaskedSemantics, PaddedValue, ValidExtent, applied, clamped, whole
from tracegrad.ops.reduce.reductions import argmax, argmin, reduce_max, reduce_min
from tracegrad.ops.reduce.scans import cumsum
from tracegrad.ops.shape.linear import broadcast_to, full, inverse_permutation, reshape, slice, transpose
from tracegrad.trace.ragged.dynamic_slice import SliceSelection, cut_of, fitted, is_cut, read, replaced
from tracegrad.trace.ragged.symbolic_size import MaskSize, between, form_of, required
from tracegrad.trace.values.python_arithmetic import bounds, holds
from tracegrad.trace.values.tracer import Tracer
from tracegrad.typing import DType, NDArray

_ALL = np.s_[:]


class RaggedOrigin:
    """The origin of a view: its base array, the function that reads it from the base's value, and the selection if it
    is one."""

    __slots__ = ("base", "base_state", "cut", "reads")

    def __init__(self, base: Any, reads: Callable[[PaddedValue], PaddedValue], cut: SliceSelection | None = None):
        self.base, self.reads, self.cut, self.base_state = base, reads, cut, _state(base)


def _state(base: Any) -> Any:
    """A key that changes with each update of an object."""
    return base.held if isinstance(base, Span) else base.node


class Span(ArrayMethods, Carrier):
    """An array with a symbolic size."""

    __slots__ = ("_held", "dtype", "origin")
    level = DispatchLevel.SPAN
    accepts_unconformed = True

    def __init__(self, held: PaddedValue, origin: RaggedOrigin | None = None):
        self._held, self.origin = held, origin
        self.dtype = held.value.dtype

    @property
    def held(self) -> PaddedValue:
        """The value of the maximal size, and its valid parts."""
        origin = self.origin
        if origin is None or _state(origin.base) is origin.base_state:
            return self._held
        held = origin.reads(_parted(origin.base))
        if held.value.builder is self._held.value.builder:
            self._held, origin.base_state = held, _state(origin.base)
            if not _is_parted(held) and isinstance(origin.base, Span) and origin.base._has_exact_size():
                self.origin = None  # now it is a view of the exact array of the base
        return held

    @property
    def shape(self) -> tuple[Any, ...]:
        held = self._held
        return tuple([n if p is None else p.count for n, p in zip(held.value.shape, held.extents)])

    def exact(self) -> Tracer:
        """The array with its size in the call being traced; leaves guards. An error in a region."""
        held = self.held
        if held.extents.count(None) == len(held.extents):
            return held.value  # type: ignore[no-any-return]
        if _has_mask(held):
            return _chosen(held)
        sizes = [n if p is None else p.count.guarded_value() for n, p in zip(held.value.shape, held.extents)]
        start = tuple(
            [n - m if p is not None and p.last else 0 for n, m, p in zip(held.value.shape, sizes, held.extents)]
        )
        stop = tuple([a + m for a, m in zip(start, sizes)])
        tracer: Any = slice(held.value, start=start, stop=stop, step=(1,) * len(start))
        tracer.frozen = "a view of an array whose size is a number of a loop"
        return tracer  # type: ignore[no-any-return]

    # -- ops -----------------------------------------------------------------------------------------
    def bind(self, op: Op, operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
        if self._has_exact_size():
            return _of_exact(op, operands, params)
        try:
            result = _result(op, operands, params)
        except NoMaskedSemantics:
            return _of_exact(op, operands, params)
        return _viewed(result, self, op, params) if op.aliases else _value(result)

    def concrete(self, query: str) -> NDArray:
        return self.exact().concrete(query)

    def _lift(self, x: object) -> Any:
        if isinstance(x, Carrier):
            return x
        return self.held.value.builder.innermost().lift(x)

    def _alias(self) -> Any:
        held = self.held
        return Span(PaddedValue(held.value._alias(), held.extents))

    def _in_memory_order(self, order: object, *like: object) -> Any:
        return self._alias()

    def _as_exact(self, updated: bool = False) -> Tracer:
        """The array with its exact size; a mask selection becomes this array from now on."""
        if not _has_mask(self._held):
            return self.exact()
        origin = self.origin
        if origin is None:
            result = self.exact()
        elif isinstance(origin.base, Span):  # a view, as in NumPy
            result = origin.reads(whole(origin.base._as_exact())).value
        else:
            return self.exact()
        if updated or result.builder is self._held.value.builder:
            self._held, self.origin = whole(result), None
        return result

    def _has_exact_size(self) -> bool:
        return self.origin is None and not _is_parted(self._held)

    def __repr__(self) -> str:
        return f"Span({', '.join([str(n) for n in self.shape])}: {self.dtype})"

    def __array__(self, dtype: object = None, copy: object = None) -> Any:
        return self.exact().__array__(dtype, copy)

    # -- indices -------------------------------------------------------------------------------------
    def __getitem__(self, index: object) -> Any:
        try:
            return _item(self, index)
        except NoMaskedSemantics:
            return self._as_exact()[index]

    def __setitem__(self, index: object, value: object) -> None:
        if self._has_exact_size():
            self._held.value[index] = value
            return
        try:
            held = self.held
            new = replaced(held, cut_of(held, index), _new(value, self.dtype))
            self._write(PaddedValue(clamped(new, held.extents), held.extents))
        except NoMaskedSemantics:
            self._as_exact(updated=True)[index] = value

    def _assign(self, new: object) -> None:
        if self._has_exact_size():
            self._held.value._assign(new)
            return
        held = self.held
        try:
            args = _new(new, self.dtype)
            value = broadcast_to(args.value, shape=held.value.shape) if not args.extents else None
            value = fitted(args, held.value.shape, held.extents) if value is None else value
        except NoMaskedSemantics:
            self._as_exact(updated=True)._assign(new)
        else:
            self._write(PaddedValue(value, held.extents))

    def _write(self, held: PaddedValue) -> None:
        """Store a new value, and write it to the base of this view."""
        origin = self.origin
        if origin is None:
            self._held = held
            return
        base = origin.base
        if origin.cut is None:
            if not isinstance(base, Span) or base.origin is not None or not _has_mask(held):
                message = "in-place update of a view of an array whose size is a number of a loop"
                raise UnsupportedError(located(message))
            self._as_exact(updated=True)._assign(_chosen(held))
            return
        base._assign(_as_of(base, replaced(_parted(base), origin.cut, held)))


def _parted(x: Any) -> PaddedValue:
    return x.held if isinstance(x, Span) else PaddedValue(x) if is_literal(x) else whole(x)


def _is_parted(held: PaddedValue) -> bool:
    return any(p is not None for p in held.extents)


def _has_mask(held: PaddedValue) -> bool:
    return any(p is not None and p.mask is not None for p in held.extents)


def _chosen(held: PaddedValue) -> Tracer:
    """The selection of masks, along the axes that have one."""
    result: Any = held.value
    for axis, extent in enumerate(held.extents):
        if extent is not None and extent.mask is not None:
            order = (axis, *[a for a in range(len(held.extents)) if a != axis])
            if result.dtype.kind in "fc":  # unselected elements have derivative 0, even inf and nan
                result = where(over(extent.mask, result.shape, axis), result, 0.0)
            result = transpose(gather(result, *indices(extent.mask), axes=(axis,)), perm=inverse_permutation(order))
        elif extent is not None:
            raise UnsupportedError(located("a mask beside an axis whose size is a number of a loop"))
    tracer: Tracer = result._alias()
    return tracer


def _value(result: PaddedValue) -> Any:
    """The tracer, or the span, of this value."""
    return Span(result) if _is_parted(result) else result.value


def _as_of(base: object, value: object) -> object:
    """A new value of the maximal size of `base`, assignable to it."""
    return Span(PaddedValue(value, base.held.extents)) if isinstance(base, Span) else value


def _new(value: Any, dtype: DType) -> PaddedValue:
    """The value to assign to elements of this dtype."""
    if not isinstance(value, Span | Tracer) and not is_literal(value):
        if isinstance(value, Carrier):
            raise NoMaskedSemantics("another carrier")
        value = np.asarray(value)
    return _parted(assigned(value, dtype))


# -- reading and replacing -----------------------------------------------------------------------------------------
def item(x: Tracer, index: object) -> Any:
    """`x[index]`, if a bound in the index is symbolic and the index needs no values; else None."""
    if not is_cut(index):
        mask_index = mask_in(x, index)
        return None if mask_index is None else _masked(x, mask_index)
    try:
        return _item(x, index)
    except NoMaskedSemantics:
        return None


def _item(x: Any, index: object) -> Any:
    held = _parted(x)
    cut = cut_of(held, index)
    item = read(held, cut)
    if _is_parted(item):
        sized = not _is_parted(held)

        def again(base: PaddedValue) -> PaddedValue:
            return read(base, cut) if sized or _is_parted(base) else _parted(base.value[index])

        return Span(item, RaggedOrigin(x, again, cut))
    if isinstance(x, Span):
        x = x.held.value
    result = item.value
    if not cut.axes:
        return result._alias()
    if result is x:
        result = x._alias()
    return x._viewed(result, lambda base, new: replaced(whole(base), cut, whole(new)))


def _masked(x: Tracer, mask_index: MaskEntry) -> Span:
    """The selection of the mask in an index."""
    selected = x if all(e == _ALL for e in mask_index.rest) else x[mask_index.rest]
    mask_row, shape = mask_index.flat_mask._alias(), selected.shape
    (n,), axis = mask_row.shape, mask_index.axis
    end_axis = axis + len(mask_index.mask.shape)
    flat: Any = reshape(selected, shape=(*shape[:axis], n, *shape[end_axis:]))
    value = flat._alias()
    count = between(count_true(mask_row), 0, n)
    size = MaskSize(count.builder, count.node, mask_row)
    extents = [None] * axis, [ValidExtent(size, False, form_of(size), 0, mask_row)], [None] * (len(shape) - end_axis)
    return Span(PaddedValue(value, tuple(itertools.chain(*extents))))


def _with_masked(x: Tracer, mask_index: MaskEntry, value: Span) -> Any:
    """`x` with a span assigned whose mask is the mask of the index. Raises `NoMaskedSemantics`."""
    index_plan = plan(x, mask_index.rest)
    selected, like = index_plan.read(x), _masked(x, mask_index).held
    new = reshape(fitted(_new(value, x.dtype), like.value.shape, like.extents), shape=selected.shape)
    inside = over(mask_index.mask, selected.shape, mask_index.axis)
    return setitem(x, mask_index.rest, where(inside, new, selected))


def with_item(x: Tracer, index: object, value: object) -> Any:
    """The array after `x[index] = value`, if a size is symbolic and the value is known to fit; else None."""
    if not isinstance(value, Span) and not is_cut(index):
        return None
    try:
        held = _parted(x)
        mask_index = mask_in(x, index)
        if mask_index is not None and isinstance(value, Span):
            return _with_masked(x, mask_index, value)
        cut = cut_of(held, index)
        if isinstance(value, Span) and value.origin is not None:
            origin = value.origin
            if origin.base is x and origin.cut is not None and origin.cut.equals(cut):
                return x._alias()  # `x[index] += y` has already written it
        return replaced(held, cut, _new(value, x.dtype))
    except NoMaskedSemantics:
        return None


# -- ops -------------------------------------------------------------------------------------------------------
def _result(op: Op, operands: Sequence[Any], params: dict[str, Any]) -> PaddedValue:
    """The result of `op` on spans and other operands. Raises `NoMaskedSemantics`."""
    if not all(is_literal(x) or isinstance(x, Span | Tracer | np.ndarray) for x in operands):
        raise NoMaskedSemantics("another carrier")
    args = [_parted(x) for x in operands]
    shape: tuple[Any, ...] = ()
    if isinstance(op, Elementwise):
        args, shape = _together(args)
    elif op is matmul:
        args = _contracted(*args)
    elif op in (argmax, argmin, cumsum):
        args = [_first(args[0], params["axis"])]
    if op in (argmax, argmin, reduce_max, reduce_min):
        args = [_something(args[0], params["axes"] if "axes" in params else (params["axis"],))]
    elif "shape" in params:
        shape = tuple([_greatest(n, args) for n in params["shape"]])
    result = applied(op, params, args, shape)
    return _checked(result, params["shape"]) if "shape" in params else result


def _together(operands: Sequence[PaddedValue]) -> tuple[list[PaddedValue], tuple[int, ...]]:
    """Operands of one shape, with a common part along each axis; scalars are unchanged."""
    arrays = [x for x in operands if x.extents]
    rank = max([len(x.extents) for x in arrays])
    sizes, extents = [], []
    for axis in range(-rank, 0):
        axis_extents = [(x.value.shape[axis], x.extents[axis]) for x in arrays if len(x.extents) >= -axis]
        ragged = [(n, p) for n, p in axis_extents if p is not None]
        known = [n for n, p in axis_extents if p is None and n != 1]
        size, extent = (known[0], None) if known else min(ragged, key=lambda each: each[0]) if ragged else (1, None)
        sizes.append(size)
        extents.append(extent)
    shape = tuple(sizes)
    return [PaddedValue(fitted(x, shape, extents), tuple(extents)) if x.extents else x for x in operands], shape


def _contracted(x: PaddedValue, y: PaddedValue) -> list[PaddedValue]:
    """The operands of a matrix product, with a common part along the contracted axis."""
    extent, other_extent = x.extents[-1], y.extents[-2]
    if len(x.extents) != len(y.extents):
        raise NoMaskedSemantics("arrays of other sizes")
    if extent is None and other_extent is not None:
        x = PaddedValue(
            fitted(x, (*x.value.shape[:-1], y.value.shape[-2]), (*x.extents[:-1], other_extent)),
            (*x.extents[:-1], other_extent),
        )
    elif extent is not None:
        extents = (*y.extents[:-2], extent, y.extents[-1])
        y = PaddedValue(fitted(y, (*y.value.shape[:-2], x.value.shape[-1], y.value.shape[-1]), extents), extents)
    return [x, y]


def _first(x: PaddedValue, axis: int) -> PaddedValue:
    """The value with the valid part of the axis moved to its beginning."""
    extent = x.extents[axis]
    if extent is None or not extent.last:
        return x
    extents = (*x.extents[:axis], extent.reversed, *x.extents[axis + 1 :])
    return PaddedValue(fitted(x, x.value.shape, extents), extents)


def _something(x: PaddedValue, axes: Sequence[int]) -> PaddedValue:
    """The value with parts that are required to be nonempty along the axes."""
    extents = list(x.extents)
    for axis in axes:
        extent = extents[axis]
        if extent is not None and extent.mask is not None:
            extents[axis] = _someone(extent)
        elif extent is not None and not extent.least:
            count = ops.add(extent.count, required(ops.greater(extent.count, 0)))
            extents[axis] = replace(extent, count=between(count, 1, x.value.shape[axis]), least=1)
    return PaddedValue(x.value, tuple(extents))


def _someone(extent: ValidExtent) -> ValidExtent:
    """The part of a mask that is required to select an element. Raises `NoMaskedSemantics` if it selects none."""
    count = extent.count
    if count.builder.innermost().outer is not None:
        count = between(ops.add(count, required(ops.greater(count, 0))), 1, bounds(count)[1])
    elif not holds(ops.greater(count, 0)):
        raise NoMaskedSemantics("an extremum of nothing")
    return replace(extent, count=count, least=1)


def _greatest(n: Any, operands: Sequence[PaddedValue]) -> int:
    """The maximal value of a size in a parameter."""
    if not isinstance(n, Tracer):
        return int(n)
    key = form_of(n)
    for x in operands:
        for size, extent in zip(x.value.shape if x.extents else (), x.extents):
            if extent is not None and extent.key == key:
                return int(size)
    raise NoMaskedSemantics("a size that no operand has")


def _checked(result: PaddedValue, wanted: Sequence[Any]) -> PaddedValue:
    """The result, checked to have the wanted symbolic shape. Raises `NoMaskedSemantics` if it has another one."""
    extents: list[ValidExtent | None] = []
    for n, extent in zip(wanted, result.extents):
        if isinstance(n, Tracer):
            key = form_of(n)
            if extent is not None and extent.key != key:
                raise NoMaskedSemantics("another size")
            extent = extent or ValidExtent(n, False, key, bounds(n)[0], getattr(n, "mask", None))
        elif extent is not None:
            raise NoMaskedSemantics("another size")
        extents.append(extent)
    return PaddedValue(result.value, tuple(extents))


def _viewed(result: PaddedValue, x: object, op: Op, params: dict[str, Any]) -> Any:
    """The result of an op on its one operand `x`, as a view of `x` if NumPy makes one."""
    if not _is_parted(result):
        result.value.frozen = "a view of an array whose size is a number of a loop"
        return result.value

    def again(base: PaddedValue) -> PaddedValue:
        if not _is_parted(base):  # its size is known now
            return whole(_of_exact(op, [base.value], params))
        return _result(op, [Span(base)], params)

    return Span(result, RaggedOrigin(x, again))


def _of_exact(op: Op, operands: Sequence[Any], params: dict[str, Any]) -> Any:
    """The result of `op` on arrays with their sizes in the call being traced."""
    args = [(x._as_exact() if op.aliases else x.exact()) if isinstance(x, Span) else x for x in operands]
    return op(
        *args, **{k: tuple(map(_concrete, v)) if isinstance(v, tuple) else _concrete(v) for k, v in params.items()}
    )


def _concrete(x: object) -> Any:
    """A parameter, with a traced size read as a number."""
    return int(x) if isinstance(x, Tracer) else x


def of_size(op: Op, operands: Sequence[Any], params: dict[str, Any]) -> Any:
    """The result of an op on tracers alone, if a size in `params` is symbolic, or the sizes are a Tensor's."""
    sizes = params["shape"] if op is full else ()
    if not any(isinstance(n, Tracer) for n in sizes):
        return _of_exact(op, operands, params)
    value = full(**{**params, "shape": tuple([bounds(n)[1] if isinstance(n, Tracer) else n for n in sizes])})
    return _value(_checked(whole(value), sizes))
