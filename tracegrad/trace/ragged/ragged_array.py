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

from tracegrad.avals import Aval, is_literal
from tracegrad.errors import UnsupportedError, located
from tracegrad.numpy_api.array_methods import ArrayMethods
from tracegrad.numpy_api.boolean_mask import Place, how_many, indices, mask_in, over
from tracegrad.numpy_api.indexing import plan, setitem
from tracegrad.numpy_api.operands import assigned
from tracegrad.ops import Carrier, Level, Op
from tracegrad.ops.core.elementwise_op import Elementwise
from tracegrad.ops.elementwise import table as ops
from tracegrad.ops.elementwise.table import where
from tracegrad.ops.indexing.gather_scatter import gather
from tracegrad.ops.linalg.contraction import matmul
from tracegrad.ops.ragged.masked_semantics import Part, Parted, Unknown, applied, clamped, whole
from tracegrad.ops.reduce.reductions import argmax, argmin, reduce_max, reduce_min
from tracegrad.ops.reduce.scans import cumsum
from tracegrad.ops.shape.linear import broadcast_to, full, inverse_permutation, reshape, slice, transpose
from tracegrad.trace.ragged.dynamic_slice import Cut, cut_of, fitted, is_cut, read, replaced
from tracegrad.trace.ragged.symbolic_size import MaskSize, between, form_of, required
from tracegrad.trace.values.python_arithmetic import bounds, holds
from tracegrad.trace.values.tracer import Tracer

__all__ = ["Span", "item", "of_size", "with_item"]


_ALL = np.s_[:]


class Origin:
    """The origin of a view: its base array, the function that reads it from the base's value, and the selection if it
    is one."""

    __slots__ = ("base", "cut", "reads", "seen")

    def __init__(self, base: Any, reads: Callable[[Parted], Parted], cut: Cut | None = None):
        self.base, self.reads, self.cut, self.seen = base, reads, cut, _state(base)


def _state(base: Any) -> Any:
    """A key that changes with each update of an object."""
    return base.held if isinstance(base, Span) else base.node


class Span(ArrayMethods, Carrier):
    """An array with a symbolic size."""

    __slots__ = ("_held", "dtype", "origin")
    level = Level.SPAN
    takes_any = True

    def __init__(self, held: Parted, origin: Origin | None = None):
        self._held, self.origin = held, origin
        self.dtype = held.value.dtype

    @property
    def held(self) -> Parted:
        """The value of the maximal size, and its valid parts."""
        origin = self.origin
        if origin is None or _state(origin.base) is origin.seen:
            return self._held
        held = origin.reads(_parted(origin.base))
        if held.value.builder is self._held.value.builder:
            self._held, origin.seen = held, _state(origin.base)
            if not _is_parted(held) and isinstance(origin.base, Span) and origin.base._is_settled():
                self.origin = None  # now it is a view of the exact array of the base
        return held

    @property
    def shape(self) -> tuple[Any, ...]:
        held = self._held
        return tuple([n if p is None else p.count for n, p in zip(held.value.shape, held.parts)])

    @property
    def aval(self) -> Aval:
        return Aval(self.shape, self.dtype)

    def exact(self) -> Tracer:
        """The array with its size in the call being traced; leaves guards. An error in a region."""
        held = self.held
        if held.parts.count(None) == len(held.parts):
            return held.value  # type: ignore[no-any-return]
        if _has_mask(held):
            return _chosen(held)
        sizes = [n if p is None else p.count.asked() for n, p in zip(held.value.shape, held.parts)]
        start = tuple([n - m if p is not None and p.last else 0
                       for n, m, p in zip(held.value.shape, sizes, held.parts)])  # fmt: skip
        stop = tuple([a + m for a, m in zip(start, sizes)])
        tracer: Tracer = slice(held.value, start=start, stop=stop, step=(1,) * len(start))
        tracer.frozen = "a view of an array whose size is a number of a loop"
        return tracer

    # -- ops -----------------------------------------------------------------------------------------
    def bind(self, op: Op, operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
        if self._is_settled():
            return _of_exact(op, operands, params)
        try:
            result = _result(op, operands, params)
        except Unknown:
            return _of_exact(op, operands, params)
        return _viewed(result, self, op, params) if op.aliases else _value(result)

    def concrete(self, asked: str) -> np.ndarray[Any, Any]:
        return self.exact().concrete(asked)

    def _lift(self, x: Any) -> Any:
        if isinstance(x, Carrier):
            return x
        return self.held.value.builder.here().lift(x)

    def _alias(self) -> Any:
        held = self.held
        return Span(Parted(held.value._alias(), held.parts))

    def _laid(self, order: Any, *like: Any) -> Any:
        return self._alias()

    def _settled(self, updated: bool = False) -> Tracer:
        """The array with its exact size; a mask selection becomes this array from now on."""
        if not _has_mask(self._held):
            return self.exact()
        origin = self.origin
        if origin is None:
            result = self.exact()
        elif isinstance(origin.base, Span):  # a view, as in NumPy
            result = origin.reads(whole(origin.base._settled())).value
        else:
            return self.exact()
        if updated or result.builder is self._held.value.builder:
            self._held, self.origin = whole(result), None
        return result

    def _is_settled(self) -> bool:
        return self.origin is None and not _is_parted(self._held)

    def __repr__(self) -> str:
        return f"Span({', '.join([str(n) for n in self.shape])}: {self.dtype})"

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.exact().__array__(dtype, copy)

    # -- indices -------------------------------------------------------------------------------------
    def __getitem__(self, index: Any) -> Any:
        try:
            return _item(self, index)
        except Unknown:
            return self._settled()[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        if self._is_settled():
            self._held.value[index] = value
            return
        try:
            held = self.held
            new = replaced(held, cut_of(held, index), _new(value, self.dtype))
            self._put(Parted(clamped(new, held.parts), held.parts))
        except Unknown:
            self._settled(updated=True)[index] = value

    def _assign(self, new: Any) -> None:
        if self._is_settled():
            self._held.value._assign(new)
            return
        held = self.held
        try:
            args = _new(new, self.dtype)
            value = broadcast_to(args.value, shape=held.value.shape) if not args.parts else None
            value = fitted(args, held.value.shape, held.parts) if value is None else value
        except Unknown:
            self._settled(updated=True)._assign(new)
        else:
            self._put(Parted(value, held.parts))

    def _put(self, held: Parted) -> None:
        """Store a new value, and write it to the base of this view."""
        origin = self.origin
        if origin is None:
            self._held = held
            return
        base = origin.base
        if origin.cut is None:
            if not isinstance(base, Span) or base.origin is not None or not _has_mask(held):
                told = "in-place update of a view of an array whose size is a number of a loop"
                raise UnsupportedError(located(told))
            self._settled(updated=True)._assign(_chosen(held))
            return
        base._assign(_as_of(base, replaced(_parted(base), origin.cut, held)))


def _parted(x: Any) -> Parted:
    return x.held if isinstance(x, Span) else Parted(x) if is_literal(x) else whole(x)


def _is_parted(held: Parted) -> bool:
    return any(p is not None for p in held.parts)


def _has_mask(held: Parted) -> bool:
    return any(p is not None and p.mask is not None for p in held.parts)


def _chosen(held: Parted) -> Tracer:
    """The selection of masks, along the axes that have one."""
    result: Any = held.value
    for axis, part in enumerate(held.parts):
        if part is not None and part.mask is not None:
            order = (axis, *[a for a in range(len(held.parts)) if a != axis])
            if result.dtype.kind in "fc":  # unselected elements have derivative 0, even inf and nan
                result = where(over(part.mask, result.shape, axis), result, 0.0)
            result = transpose(gather(result, *indices(part.mask), axes=(axis,)), perm=inverse_permutation(order))
        elif part is not None:
            raise UnsupportedError(located("a mask beside an axis whose size is a number of a loop"))
    tracer: Tracer = result._alias()
    return tracer


def _value(found: Parted) -> Any:
    """The tracer, or the span, of this value."""
    return Span(found) if _is_parted(found) else found.value


def _as_of(base: Any, value: Any) -> Any:
    """A new value of the maximal size of `base`, assignable to it."""
    return Span(Parted(value, base.held.parts)) if isinstance(base, Span) else value


def _new(value: Any, dtype: Any) -> Parted:
    """The value to assign to elements of this dtype."""
    if not isinstance(value, Span | Tracer) and not is_literal(value):
        if isinstance(value, Carrier):
            raise Unknown("another carrier")
        value = np.asarray(value)
    return _parted(assigned(value, dtype))


# -- reading and replacing -----------------------------------------------------------------------------------------
def item(x: Tracer, index: Any) -> Any:
    """`x[index]`, if a bound in the index is symbolic and the index needs no values; else None."""
    if not is_cut(index):
        place = mask_in(x, index)
        return None if place is None else _masked(x, place)
    try:
        return _item(x, index)
    except Unknown:
        return None


def _item(x: Any, index: Any) -> Any:
    held = _parted(x)
    cut = cut_of(held, index)
    item = read(held, cut)
    if _is_parted(item):
        sized = not _is_parted(held)

        def again(base: Parted) -> Parted:
            return read(base, cut) if sized or _is_parted(base) else _parted(base.value[index])

        return Span(item, Origin(x, again, cut))
    if isinstance(x, Span):
        x = x.held.value
    result = item.value
    if not cut.axes:
        return result._alias()
    if result is x:
        result = x._alias()
    return x._viewed(result, lambda base, new: replaced(whole(base), cut, whole(new)))


def _masked(x: Tracer, place: Place) -> Span:
    """The selection of the mask in an index."""
    part = x if all(e == _ALL for e in place.rest) else x[place.rest]
    row, shape = place.row._alias(), part.shape
    (n,), axis = row.shape, place.axis
    behind = axis + len(place.mask.shape)
    value = reshape(part, shape=(*shape[:axis], n, *shape[behind:]))._alias()
    count = between(how_many(row), 0, n)
    size = MaskSize(count.builder, count.node, row)
    parts = [None] * axis, [Part(size, False, form_of(size), 0, row)], [None] * (len(shape) - behind)
    return Span(Parted(value, tuple(itertools.chain(*parts))))


def _with_masked(x: Tracer, place: Place, value: Span) -> Any:
    """`x` with a span assigned whose mask is the mask of the index. Raises `Unknown`."""
    steps = plan(x, place.rest)
    part, like = steps.read(x), _masked(x, place).held
    new = reshape(fitted(_new(value, x.dtype), like.value.shape, like.parts), shape=part.shape)
    inside = over(place.mask, part.shape, place.axis)
    return setitem(x, place.rest, where(inside, new, part))


def with_item(x: Tracer, index: Any, value: Any) -> Any:
    """The array after `x[index] = value`, if a size is symbolic and the value is known to fit; else None."""
    if not isinstance(value, Span) and not is_cut(index):
        return None
    try:
        held = _parted(x)
        place = mask_in(x, index)
        if place is not None and isinstance(value, Span):
            return _with_masked(x, place, value)
        cut = cut_of(held, index)
        if isinstance(value, Span) and value.origin is not None:
            origin = value.origin
            if origin.base is x and origin.cut is not None and origin.cut.equals(cut):
                return x._alias()  # `x[index] += y` has already written it
        return replaced(held, cut, _new(value, x.dtype))
    except Unknown:
        return None


# -- ops -------------------------------------------------------------------------------------------------------
def _result(op: Op, operands: Sequence[Any], params: dict[str, Any]) -> Parted:
    """The result of `op` on spans and other operands. Raises `Unknown`."""
    if not all(is_literal(x) or isinstance(x, Span | Tracer | np.ndarray) for x in operands):
        raise Unknown("another carrier")
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


def _together(given: Sequence[Parted]) -> tuple[list[Parted], tuple[int, ...]]:
    """Operands of one shape, with a common part along each axis; scalars are unchanged."""
    arrays = [x for x in given if x.parts]
    rank = max([len(x.parts) for x in arrays])
    sizes, parts = [], []
    for axis in range(-rank, 0):
        here = [(x.value.shape[axis], x.parts[axis]) for x in arrays if len(x.parts) >= -axis]
        own = [(n, p) for n, p in here if p is not None]
        known = [n for n, p in here if p is None and n != 1]
        size, part = (known[0], None) if known else min(own, key=lambda each: each[0]) if own else (1, None)
        sizes.append(size)
        parts.append(part)
    shape = tuple(sizes)
    return [Parted(fitted(x, shape, parts), tuple(parts)) if x.parts else x for x in given], shape


def _contracted(x: Parted, y: Parted) -> list[Parted]:
    """The operands of a matrix product, with a common part along the contracted axis."""
    part, own = x.parts[-1], y.parts[-2]
    if len(x.parts) != len(y.parts):
        raise Unknown("arrays of other sizes")
    if part is None and own is not None:
        x = Parted(fitted(x, (*x.value.shape[:-1], y.value.shape[-2]), (*x.parts[:-1], own)), (*x.parts[:-1], own))
    elif part is not None:
        parts = (*y.parts[:-2], part, y.parts[-1])
        y = Parted(fitted(y, (*y.value.shape[:-2], x.value.shape[-1], y.value.shape[-1]), parts), parts)
    return [x, y]


def _first(x: Parted, axis: int) -> Parted:
    """The value with the valid part of the axis moved to its beginning."""
    part = x.parts[axis]
    if part is None or not part.last:
        return x
    parts = (*x.parts[:axis], part.reversed, *x.parts[axis + 1 :])
    return Parted(fitted(x, x.value.shape, parts), parts)


def _something(x: Parted, axes: Sequence[int]) -> Parted:
    """The value with parts that are required to be nonempty along the axes."""
    parts = list(x.parts)
    for axis in axes:
        part = parts[axis]
        if part is not None and part.mask is not None:
            parts[axis] = _someone(part)
        elif part is not None and not part.least:
            count = ops.add(part.count, required(ops.greater(part.count, 0)))
            parts[axis] = replace(part, count=between(count, 1, x.value.shape[axis]), least=1)
    return Parted(x.value, tuple(parts))


def _someone(part: Part) -> Part:
    """The part of a mask that is required to select an element. Raises `Unknown` if it selects none."""
    count = part.count
    if count.builder.here().outer is not None:
        count = between(ops.add(count, required(ops.greater(count, 0))), 1, bounds(count)[1])
    elif not holds(ops.greater(count, 0)):
        raise Unknown("an extremum of nothing")
    return replace(part, count=count, least=1)


def _greatest(n: Any, given: Sequence[Parted]) -> int:
    """The maximal value of a size in a parameter."""
    if not isinstance(n, Tracer):
        return int(n)
    key = form_of(n)
    for x in given:
        for size, part in zip(x.value.shape if x.parts else (), x.parts):
            if part is not None and part.key == key:
                return int(size)
    raise Unknown("a size that no operand has")


def _checked(found: Parted, wanted: Sequence[Any]) -> Parted:
    """The result, checked to have the wanted symbolic shape. Raises `Unknown` if it has another one."""
    parts: list[Part | None] = []
    for n, part in zip(wanted, found.parts):
        if isinstance(n, Tracer):
            key = form_of(n)
            if part is not None and part.key != key:
                raise Unknown("another size")
            part = part or Part(n, False, key, bounds(n)[0], getattr(n, "mask", None))
        elif part is not None:
            raise Unknown("another size")
        parts.append(part)
    return Parted(found.value, tuple(parts))


def _viewed(found: Parted, x: Any, op: Op, params: dict[str, Any]) -> Any:
    """The result of an op on its one operand `x`, as a view of `x` if NumPy makes one."""
    if not _is_parted(found):
        found.value.frozen = "a view of an array whose size is a number of a loop"
        return found.value

    def again(base: Parted) -> Parted:
        if not _is_parted(base):  # its size is known now
            return whole(_of_exact(op, [base.value], params))
        return _result(op, [Span(base)], params)

    return Span(found, Origin(x, again))


def _of_exact(op: Op, operands: Sequence[Any], params: dict[str, Any]) -> Any:
    """The result of `op` on arrays with their sizes in the call being traced."""
    args = [(x._settled() if op.aliases else x.exact()) if isinstance(x, Span) else x for x in operands]
    return op(*args, **{k: tuple(map(_asked, v)) if isinstance(v, tuple) else _asked(v) for k, v in params.items()})


def _asked(x: Any) -> Any:
    """A parameter, with a traced size read as a number."""
    return int(x) if isinstance(x, Tracer) else x


def of_size(op: Op, operands: Sequence[Any], params: dict[str, Any]) -> Any:
    """The result of an op on tracers alone, if a size in `params` is symbolic, or the sizes are a Tensor's."""
    sizes = params["shape"] if op is full else ()
    if not any(isinstance(n, Tracer) for n in sizes):
        return _of_exact(op, operands, params)
    value = full(**{**params, "shape": tuple([bounds(n)[1] if isinstance(n, Tracer) else n for n in sizes])})
    return _value(_checked(whole(value), sizes))
