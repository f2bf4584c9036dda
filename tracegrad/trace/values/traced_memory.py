"""Memory of traced arrays: views, updates in place, and memory layout.

An in-place update puts another node into the box, so all references to the array see it. A view (from basic indexing,
`reshape`, `.T`, ...) knows its base: an update of a view writes through to the base, and an update of the base
recomputes its live views. NumPy decides between view and copy by the memory layout, which each tracer knows
(`tracegrad.trace.builder.layout`).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np

from tracegrad.avals import is_literal
from tracegrad.errors import READ_ONLY, ShapeError, UnsupportedError, located
from tracegrad.ir import GraphNode
from tracegrad.numpy_api.array_methods import ArrayMethods
from tracegrad.numpy_api.memory_layout import Flags
from tracegrad.ops import Op
from tracegrad.ops.core.forms import Reshape
from tracegrad.ops.core.memory_order import StandIn, arranged, has_order, is_row_major, result_strides, view_by
from tracegrad.ops.shape.linear import broadcast_to, cast, transpose
from tracegrad.trace.values.differentiated_keys import TracedKey
from tracegrad.trace.values.text_conversions import Spelling
from tracegrad.trace.values.traced_value import TracedValue
from tracegrad.trace.values.views import ViewOrigin, itself, replayed, require_not_separated, require_whole, set_shape


class TracedMemory(TracedKey, Spelling, ArrayMethods, TracedValue):
    """A traced array as memory: the base of `Tracer`."""

    __slots__ = ()
    _tracks_views = True

    shape = property(attrgetter("node.aval.shape"), set_shape, doc="The shape; an assignment changes it in place.")

    # -- views and updates in place --------------------------------------------------------------
    @property
    def _immutable_scalars(self) -> bool:  # type: ignore[override]
        return not self.is_array

    def join(self) -> Any:
        """This array as an array of the graph (see `tracegrad.trace.values.constant_array`)."""
        return self

    def zero_d(self) -> Any:
        if self.is_array or self.shape:
            return self
        out = self if self.origin is not None else TracedMemory.copied(self)
        out.is_array = True
        return out

    def preserve_kind(self, result: Any) -> Any:
        return result.zero_d() if (self.shape or self.is_array) and not result.shape else result

    def copied(self) -> Any:
        """A copy of the same kind."""
        out = self._alias()
        out.is_array = self.is_array
        return out

    def _alias(self) -> TracedMemory:
        """The same value as another array with the same memory layout."""
        builder = self.builder.innermost()
        tracer: TracedMemory
        if builder is not self.builder:
            tracer = builder.make(builder, builder.lift(self).node)
            return tracer
        tracer = builder.make(builder, self.node)
        tracer._arrange("K", self)
        return tracer

    def _arrange(self, order: object, *like: TracedMemory) -> None:
        """Set the memory order of this new array (see `tracegrad.ops.core.memory_order.arranged`)."""
        if order == "C" or len(self.shape) < 2:
            return
        for x in like if order != "F" else ():
            self.layout_inputs |= x.layout_inputs
        if isinstance(order, tuple) or order == "F" or not like[0]._is_plain():
            strides = arranged(order, self.shape, self.dtype, *[x._layout() for x in like])
            self.stand_in = None if strides is None else self.builder.memory.allocate(self.shape, self.dtype, strides)

    def _aliased(self, op: Op, params: dict[str, Any], result: Any) -> Any:
        """The result of an op, or its several results, as views of this array if NumPy makes views."""
        if self.builder.inner is not None:
            local: TracedMemory = self.builder.innermost().lift(self)
            return local._aliased(op, params, result)
        if not self.shape and not self.is_array and isinstance(op.form, Reshape):
            return result  # a scalar becomes a new array
        is_multi_result = type(result) is tuple
        layout_inputs = self.layout_inputs if isinstance(op.form, Reshape) else 0
        whole = self.stand_in is None and (self.origin is None or not self.origin.shared)
        if whole and (op.view_update is None or isinstance(op.form, Reshape)):
            layouts: Any = None  # computed on demand
        else:
            layouts = view_by(op, params, self._layout())
            if layouts is None:
                return self._registered(result, None, layout_inputs, shared=False)
        if is_multi_result:
            puts = [op.view_update and partial(op.view_update, **params, number=k) for k in range(len(result))]
            layouts = layouts or [None] * len(result)
            return tuple(
                [
                    self._registered(x, view_update, layout_inputs, at)
                    for x, view_update, at in zip(result, puts, layouts)
                ]
            )
        return self._registered(result, op.view_update and partial(op.view_update, **params), layout_inputs, layouts)

    def _viewed(self, result: Any, view_update: Callable[[Any, Any], Any] | None, layout_of_view: Any = None) -> Any:
        """`result` as a view of this array; `put(base, new)` is this array with the view replaced by `new`.
        `layout_of_view` maps this array's layout to the layout of the view."""
        if self.builder.inner is not None:
            local: TracedMemory = self.builder.innermost().lift(self)
            return local._viewed(result, view_update, layout_of_view)
        if not self.shape and not self.is_array:
            return result
        origin, layout = result.origin, None
        if layout_of_view:
            layout = layout_of_view(self._layout())
        elif result.stand_in is not None or origin is None or origin.base is not self or origin.view_update is None:
            layout = (self if origin is None and not result.starts else result)._layout()[...]
        root = result._root()  # None: the layout of a reshape is computed on demand
        starts = root.starts if root is not self._root() else ()
        return self._registered(self.builder.make(self.builder, result.node), view_update, 0, layout, starts=starts)

    def _windowed(self, result: Any, starts: tuple[Any, ...], step: tuple[int, ...]) -> Any:
        """`result`, elements of this array from `starts` on, as a view with the layout of a window at the origin;
        `moves` has the computed offsets."""
        if self.builder.inner is not None:
            return result
        known = [0 if isinstance(a, TracedMemory) else a for a in starts]
        ends = [a + (n - 1) * s + 1 if n else a for a, n, s in zip(known, result.shape, step)]
        whole: Any = tuple(map(slice, known, ends, step))
        result.stand_in = self._layout()[whole]
        strides = self._layout().strides
        result.starts = tuple([(a, size) for a, size in zip(starts, strides) if isinstance(a, TracedMemory)])
        return result

    def moves(self) -> list[tuple[TracedMemory, int]]:
        """The computed positions on the path from the base of this view. Each has the number of bytes by which one step
        moves the view from its assumed layout."""
        results: list[tuple[TracedMemory, int]] = []
        x = self
        while x.origin is not None and x.origin.shared:
            results += x.origin.starts
            x = x.origin.base
        return results

    def _registered(
        self,
        view: TracedMemory,
        view_update: Any,
        layout_inputs: int,
        layout: StandIn | None = None,
        shared: bool = True,
        starts: tuple[tuple[TracedMemory, int], ...] = (),
    ) -> Any:
        """`view`, registered with this array as its origin, at this layout."""
        if shared or layout_inputs:
            view.origin = ViewOrigin(self, view_update, self.node, view.node, layout_inputs, shared, starts)
            self._add_view(view)
        view.frozen = self.frozen if shared else ""
        view.stand_in, view.layout_inputs = (layout if shared else view.stand_in), self.layout_inputs
        return view

    def _add_view(self, view: TracedMemory) -> None:
        known = self.views
        if not known:
            self.views = [weakref.ref(view)]
            return
        if len(known) & (len(known) - 1) == 0:  # at powers of 2, so that many live views do not cost quadratic time
            known[:] = [r for r in known if r() is not None]
        known.append(weakref.ref(view))

    # -- memory layout -----------------------------------------------------------------------------
    def share_layout(self, other: TracedMemory) -> None:
        """Become another reference to the value and memory of `other`."""
        self.layout_inputs = other.layout_inputs
        self.stand_in = other.stand_in if other.origin is None else other._layout()

    def _layout(self) -> StandIn:
        """The layout stand-in of this array."""
        if self.stand_in is None:
            origin = self.origin
            if origin is None or not origin.shared:
                self.stand_in = self.builder.memory.allocate(self.shape, self.dtype)
            elif origin.view_update is None:
                self.stand_in = np.broadcast_to(origin.base._layout(), self.shape)
            else:
                self.stand_in = origin.base._layout().reshape(self.shape)
        return self.stand_in

    def _is_plain(self) -> bool:
        """Whether the array is plainly row-major, without repeated elements."""
        return self.stand_in is None and (
            self.origin is None or not self.origin.shared or self.origin.view_update is not None
        )

    def _lay_out(self, op: Op, operands: tuple[object, ...], params: dict[str, object], result: object) -> None:
        """Give the result of the op, or its several results, NumPy's memory layout."""
        known = [x for x in operands if isinstance(x, TracedMemory)]
        if op.order == "picked":  # the layout of the first, which may repeat elements
            known = known[:1] if known[0] is operands[0] else []
            if not known or known[0]._is_plain():
                return
        elif all(x._is_plain() or (op.order != "joined" and is_row_major(x._layout())) for x in known):
            return
        for each in result if type(result) is tuple else (result,):
            strides = result_strides(op.order, [x._layout() for x in known], params, each.aval)
            each.stand_in = strides and self.builder.memory.allocate(each.shape, each.dtype, strides)

    def _in_memory_order(self, order: object, *like: object) -> Any:
        builder = self.builder.innermost()
        tracer = builder.make(builder, self.node if builder is self.builder else builder.lift(self).node)
        tracer.is_array = self.is_array
        tracer._arrange(order, *like)
        return tracer

    def _in_order(self, order: str) -> object:
        """This array if its elements have this order in memory, else a copy; this may depend on input layouts."""
        if not self.layout_inputs or self.builder.inner is not None:
            return self if has_order(self._layout(), order) else self._in_memory_order(order, self)
        if has_order(self._layout(), order):
            same = self.builder.make(self.builder, self.node)
            same.is_array = self.is_array
            return self._registered(same, itself, self.layout_inputs, self._layout()[...])
        return self._registered(self._in_memory_order(order, self), None, self.layout_inputs, None, shared=False)

    def in_memory(self, order: tuple[int, ...]) -> Any:
        """This array with its axes in memory order, possibly the base of this view."""
        base = None if self.origin is None or not self.origin.shared else self.origin.base
        if base is not None and base.shape == tuple([self.shape[k] for k in order]):
            base_layout, layout = base._layout(), self._layout()
            if base_layout.flags.c_contiguous and base_layout.ctypes.data == layout.ctypes.data:
                return base
        return transpose(self.builder.lift(self), perm=order)

    def _sealed(self) -> object:
        self.stand_in = self._layout()[...]
        self.stand_in.flags.writeable = False
        return self

    def _root(self) -> TracedMemory:
        """The base of this view, or the array itself."""
        result = self
        while result.origin is not None and result.origin.shared:
            result = result.origin.base
        return result

    def _compares(self) -> None:
        self.builder.world.compares()

    def _visible_layouts(self, *xs: Any) -> list[StandIn]:
        roots = {id(x): x for x in (y._root() for y in xs)}
        if sum(x.outside for x in roots.values()) > 1:
            raise UnsupportedError(located("whether two arrays from outside share memory is not known while tracing"))
        if len(xs) > 1 and any(x.moves() for x in xs):
            raise UnsupportedError(
                located("whether arrays share memory is not known where a traced number is an index")
            )
        for x in xs:
            require_whole(x)
            self.builder.memory.guard(x.layout_inputs)
        return self._layouts(*xs)

    def _layouts(self, *xs: Any) -> list[StandIn]:
        return [x._layout() for x in xs]

    @property
    def strides(self) -> tuple[int, ...]:
        """The bytes from one element to the next along each axis."""
        return self._visible_layouts(self)[0].strides

    @property
    def flags(self) -> Any:
        """The memory flags of the array, as in NumPy."""
        root = self._root()
        return Flags(self._visible_layouts(self)[0], root is self, root.outside, self)

    @property
    def base(self) -> Any:
        """The base of this view, or None."""
        root = self._visible_layouts(self) and self._root()
        if root is self and self.outside:
            raise UnsupportedError(located("the base of an array from outside is not known while tracing"))
        return None if root is self else root

    def _assign(self, new: Any) -> None:
        """Become `new`, as by an in-place update."""
        if self.builder.inner is not None:
            self.builder.innermost().lift(self)._assign(new)  # raises
        odd = self.stand_in is not None or self.origin is not None
        if self.frozen is READ_ONLY or (odd and not self._layout().flags.writeable):
            raise ValueError(READ_ONLY)
        if self.frozen:
            how = "x = x.copy(), of a Tensor x = x.clone()"
            raise UnsupportedError(located(f"in-place update of {self.frozen}; copy it first ({how})"))
        new = self.builder.lift(np.asarray(new)[()] if is_literal(new) else new)
        if new.dtype != self.dtype:
            new = cast(new, dtype=self.dtype.name)
        if new.shape != self.shape:
            try:
                new = broadcast_to(new, shape=self.shape)
            except ShapeError as error:
                raise ShapeError(located(f"in-place update of an array of shape {self.shape}: {error}")) from None
        self._become(new.node, None)

    def _become(self, node: GraphNode, writer: TracedMemory | None) -> None:
        """Store `node`, and update the base and the live views; not `writer`, which has it already."""
        require_not_separated(self)
        self.node = node
        for reference in self.views:
            view = reference()
            if view is not None and view is not writer:
                view._become_again()
        if self.origin is not None:
            base = self.origin.base
            self.builder.memory.guard(self.origin.layout_inputs)
            if self.origin.shared:
                assert self.origin.view_update is not None
                base._become(self.origin.view_update(base, self).node, self)

    def _become_again(self) -> None:
        """Recompute the view from its updated base, and its own views."""
        assert self.origin is not None
        self.builder.memory.guard(self.origin.layout_inputs)
        if not self.origin.shared:
            return
        self.node = replayed(self.builder, self.origin.result, self.origin.node, self.origin.base.node)
        for reference in self.views:
            view = reference()
            if view is not None:
                view._become_again()
