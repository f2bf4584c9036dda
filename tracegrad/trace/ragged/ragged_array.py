"""Spans: what traced code computes with in the place of an array whose size is a number of a loop.

`A[i, :j]` in the body of a loop has another size in each turn. A span holds a tracer of the greatest size, and says for
each axis which part of it is meant; its `shape` has a traced number there. An op applied to spans is what
`tracegrad.ops.ragged.masked_semantics` says of it: no other op sees the tracer, and where nothing is said of one, the
sizes are asked for, which is an error in a region and a guard elsewhere. Arrays beside a span must be known to have its
size.

What a mask chooses (`x[mask]`) is a span too: all of `x`, of which those elements are meant for which the mask is true.
It is a copy, and nothing is asked to compute with it, to reduce it, or to write it where the same mask is true.

A span that is a view knows the array it is of, and how it was read: it is read again where that has been updated, and
an update of the span writes to that.
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
    """Of a view: the array that it is of, how it is read from what that holds, and the cut if that is one."""

    __slots__ = ("base", "cut", "reads", "seen")

    def __init__(self, base: Any, reads: Callable[[Parted], Parted], cut: Cut | None = None):
        self.base, self.reads, self.cut, self.seen = base, reads, cut, _state(base)


def _state(base: Any) -> Any:
    """What is another object after an update."""
    return base.held if isinstance(base, Span) else base.node


class Span(ArrayMethods, Carrier):
    """An array whose size is a number of a loop."""

    __slots__ = ("_held", "dtype", "origin")
    level = Level.SPAN
    takes_any = True

    def __init__(self, held: Parted, origin: Origin | None = None):
        self._held, self.origin = held, origin
        self.dtype = held.value.dtype

    @property
    def held(self) -> Parted:
        """The value of the greatest size, and the parts of it."""
        origin = self.origin
        if origin is None or _state(origin.base) is origin.seen:
            return self._held
        held = origin.reads(_parted(origin.base))
        if held.value.builder is self._held.value.builder:
            self._held, origin.seen = held, _state(origin.base)
            if not _is_parted(held) and isinstance(origin.base, Span) and origin.base._is_settled():
                self.origin = None  # a view of the array that the base stands for by now
        return held

    @property
    def shape(self) -> tuple[Any, ...]:
        held = self._held
        return tuple([n if p is None else p.count for n, p in zip(held.value.shape, held.parts)])

    @property
    def aval(self) -> Aval:
        return Aval(self.shape, self.dtype)

    def exact(self) -> Tracer:
        """The array, of the size that it has in the call being traced; leaves guards. In a region, an error."""
        held = self.held
        if held.parts.count(None) == len(held.parts):
            return held.value  # type: ignore[no-any-return]
        if _has_mask(held):
            return _chosen(held)
        sizes = [n if p is None else p.count.asked() for n, p in zip(held.value.shape, held.parts)]
        start = tuple([n - m if p is not None and p.last else 0
                       for n, m, p in zip(held.value.shape, sizes, held.parts)])  # fmt: skip
        stop = tuple([a + m for a, m in zip(start, sizes)])
        found: Tracer = slice(held.value, start=start, stop=stop, step=(1,) * len(start))
        found.frozen = "a view of an array whose size is a number of a loop"
        return found

    # -- ops -----------------------------------------------------------------------------------------
    def bind(self, op: Op, operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
        if self._is_settled():
            return _of_exact(op, operands, params)
        try:
            found = _result(op, operands, params)
        except Unknown:
            return _of_exact(op, operands, params)
        return _viewed(found, self, op, params) if op.aliases else _value(found)

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
        """The array of the size that it has, which this stands for from now on if it is what a mask chooses."""
        if not _has_mask(self._held):
            return self.exact()
        origin = self.origin
        if origin is None:
            found = self.exact()
        elif isinstance(origin.base, Span):  # a view, as NumPy has it
            found = origin.reads(whole(origin.base._settled())).value
        else:
            return self.exact()
        if updated or found.builder is self._held.value.builder:
            self._held, self.origin = whole(found), None
        return found

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
            given = _new(new, self.dtype)
            value = broadcast_to(given.value, shape=held.value.shape) if not given.parts else None
            value = fitted(given, held.value.shape, held.parts) if value is None else value
        except Unknown:
            self._settled(updated=True)._assign(new)
        else:
            self._put(Parted(value, held.parts))

    def _put(self, held: Parted) -> None:
        """Hold this from now on, and bring it to the array that this is a view of."""
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
    """What masks choose, along the axes that have one."""
    found: Any = held.value
    for axis, part in enumerate(held.parts):
        if part is not None and part.mask is not None:
            order = (axis, *[a for a in range(len(held.parts)) if a != axis])
            if found.dtype.kind in "fc":  # what is not chosen adds nothing to a derivative, be its own inf or nan
                found = where(over(part.mask, found.shape, axis), found, 0.0)
            found = transpose(gather(found, *indices(part.mask), axes=(axis,)), perm=inverse_permutation(order))
        elif part is not None:
            raise UnsupportedError(located("a mask beside an axis whose size is a number of a loop"))
    made: Tracer = found._alias()
    return made


def _value(found: Parted) -> Any:
    """The tracer, or the span, that stands for this."""
    return Span(found) if _is_parted(found) else found.value


def _as_of(base: Any, value: Any) -> Any:
    """A new value of the greatest size of `base`, as one that can be assigned to it."""
    return Span(Parted(value, base.held.parts)) if isinstance(base, Span) else value


def _new(value: Any, dtype: Any) -> Parted:
    """What is assigned to elements of this dtype."""
    if not isinstance(value, Span | Tracer) and not is_literal(value):
        if isinstance(value, Carrier):
            raise Unknown("another carrier")
        value = np.asarray(value)
    return _parted(assigned(value, dtype))


# -- reading and replacing -----------------------------------------------------------------------------------------
def item(x: Tracer, index: Any) -> Any:
    """`x[index]`, if a bound in the index is a number of a loop and no more has to be known than that; else None."""
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
    found = read(held, cut)
    if _is_parted(found):
        sized = not _is_parted(held)

        def again(base: Parted) -> Parted:
            return read(base, cut) if sized or _is_parted(base) else _parted(base.value[index])

        return Span(found, Origin(x, again, cut))
    if isinstance(x, Span):
        x = x.held.value
    result = found.value
    if not cut.axes:
        return result._alias()
    if result is x:
        result = x._alias()
    return x._viewed(result, lambda base, new: replaced(whole(base), cut, whole(new)))


def _masked(x: Tracer, place: Place) -> Span:
    """What the mask in an index chooses."""
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
    """`x` with a span, of which the mask in an index is that. Raises `Unknown`."""
    steps = plan(x, place.rest)
    part, like = steps.read(x), _masked(x, place).held
    new = reshape(fitted(_new(value, x.dtype), like.value.shape, like.parts), shape=part.shape)
    inside = over(place.mask, part.shape, place.axis)
    return setitem(x, place.rest, where(inside, new, part))


def with_item(x: Tracer, index: Any, value: Any) -> Any:
    """The array after `x[index] = value`, if a size in that is a number of a loop and it is known what fits; else
    None."""
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
                return x._alias()  # what `x[index] += y` has brought there by now
        return replaced(held, cut, _new(value, x.dtype))
    except Unknown:
        return None


# -- ops -------------------------------------------------------------------------------------------------------
def _result(op: Op, operands: Sequence[Any], params: dict[str, Any]) -> Parted:
    """What `op` makes of spans and what stands beside them. Raises `Unknown`."""
    if not all(is_literal(x) or isinstance(x, Span | Tracer | np.ndarray) for x in operands):
        raise Unknown("another carrier")
    given = [_parted(x) for x in operands]
    shape: tuple[Any, ...] = ()
    if isinstance(op, Elementwise):
        given, shape = _together(given)
    elif op is matmul:
        given = _contracted(*given)
    elif op in (argmax, argmin, cumsum):
        given = [_first(given[0], params["axis"])]
    if op in (argmax, argmin, reduce_max, reduce_min):
        given = [_something(given[0], params["axes"] if "axes" in params else (params["axis"],))]
    elif "shape" in params:
        shape = tuple([_greatest(n, given) for n in params["shape"]])
    found = applied(op, params, given, shape)
    return _checked(found, params["shape"]) if "shape" in params else found


def _together(given: Sequence[Parted]) -> tuple[list[Parted], tuple[int, ...]]:
    """Operands of one shape, with one part along each axis; what has no axes stays as it is."""
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
    """The operands of a product of matrices, with one part along the axis that is summed up."""
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
    """With the part of the axis at its beginning."""
    part = x.parts[axis]
    if part is None or not part.last:
        return x
    parts = (*x.parts[:axis], part.reversed, *x.parts[axis + 1 :])
    return Parted(fitted(x, x.value.shape, parts), parts)


def _something(x: Parted, axes: Sequence[int]) -> Parted:
    """With parts of the axes that have an element."""
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
    """Of a mask that chooses something. Raises `Unknown` where it does not."""
    count = part.count
    if count.builder.here().outer is not None:
        count = between(ops.add(count, required(ops.greater(count, 0))), 1, bounds(count)[1])
    elif not holds(ops.greater(count, 0)):
        raise Unknown("an extremum of nothing")
    return replace(part, count=count, least=1)


def _greatest(n: Any, given: Sequence[Parted]) -> int:
    """The greatest value of a size in a parameter."""
    if not isinstance(n, Tracer):
        return int(n)
    key = form_of(n)
    for x in given:
        for size, part in zip(x.value.shape if x.parts else (), x.parts):
            if part is not None and part.key == key:
                return int(size)
    raise Unknown("a size that no operand has")


def _checked(found: Parted, wanted: Sequence[Any]) -> Parted:
    """What has the shape that was wanted, whatever the numbers are."""
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
    """The result of an op that makes a view of `x`, its one operand, where NumPy does."""
    if not _is_parted(found):
        found.value.frozen = "a view of an array whose size is a number of a loop"
        return found.value

    def again(base: Parted) -> Parted:
        if not _is_parted(base):  # its size is known by now
            return whole(_of_exact(op, [base.value], params))
        return _result(op, [Span(base)], params)

    return Span(found, Origin(x, again))


def _of_exact(op: Op, operands: Sequence[Any], params: dict[str, Any]) -> Any:
    """What `op` makes of the arrays of the sizes that they have in the call being traced."""
    given = [(x._settled() if op.aliases else x.exact()) if isinstance(x, Span) else x for x in operands]
    return op(*given, **{k: tuple(map(_asked, v)) if isinstance(v, tuple) else _asked(v) for k, v in params.items()})


def _asked(x: Any) -> Any:
    """A parameter, as a number if it is a traced size."""
    return int(x) if isinstance(x, Tracer) else x


def of_size(op: Op, operands: Sequence[Any], params: dict[str, Any]) -> Any:
    """What an op makes of tracers alone, where a size in `params` is a number of a loop, or sizes are a Tensor's."""
    sizes = params["shape"] if op is full else ()
    if not any(isinstance(n, Tracer) for n in sizes):
        return _of_exact(op, operands, params)
    value = full(**{**params, "shape": tuple([bounds(n)[1] if isinstance(n, Tracer) else n for n in sizes])})
    return _value(_checked(whole(value), sizes))
