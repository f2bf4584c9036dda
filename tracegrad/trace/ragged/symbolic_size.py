"""Compute symbolic sizes: bounds of slices that depend on loop counters, and what is known about them.

A slice bound in the body of a loop may vary between iterations. `normalized_bound` normalizes it as Python does:
negative bounds count from the end, and bounds are clamped to the axis. It records only the operations that the interval
of the bound (`tracegrad.trace.values.python_arithmetic`) requires. Two sizes are equal if their affine forms are equal;
`form_of` writes a size as a sum of nodes with integer factors.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from tracegrad.analysis.affine import AffineForm, combined
from tracegrad.analysis.intervals import ANY, Interval, meet, scaled
from tracegrad.avals import is_literal
from tracegrad.ir import GraphNode
from tracegrad.numpy_api.boolean_mask import COUNT_QUERY
from tracegrad.ops.core.dispatch import Operand, TensorCarrier
from tracegrad.ops.elementwise import table as ops
from tracegrad.ops.indexing.dynamic_slice import counted
from tracegrad.ops.shape.linear import cast
from tracegrad.trace.builder.builder import TraceBuilder
from tracegrad.trace.values.number import Number
from tracegrad.trace.values.python_arithmetic import bounded, bounds
from tracegrad.trace.values.tracer import Tracer

# Depth limit, in nodes, of the arithmetic of a size.
_DEEP = 24


class SymbolicSize(Number):
    """Symbolic size of an axis. A comparison with another size returns the proven result; otherwise the sizes are
    read."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int | Tracer):
            known = difference(self, other)
            if known is not None:
                return known == 0
            (a, b), (c, d) = bounds(self), limits(other)
            if b < c or d < a:
                return False
        return self.guarded_value() == (other.guarded_value() if isinstance(other, SymbolicSize) else other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        # Ops look up results by their parameters, and an unknown size is no key.
        return hash(self.guarded_value()) if self.builder.outer is not None else self._abort()

    def _abort(self) -> int:
        raise self.builder.abort("a size that is a number of a loop is looked up")

    def guarded_value(self) -> int:
        """The size in the call being traced, with a guard; an error in a region."""
        return int(self.concrete("the size of an array").item())

    def __index__(self) -> int:
        return self.guarded_value()


class MaskSize(SymbolicSize):
    """Number of selected elements of a mask, a row of booleans."""

    __slots__ = ("mask",)

    def __init__(self, builder: TraceBuilder, node: GraphNode, mask: Tracer) -> None:
        super().__init__(builder, node)
        self.mask = mask

    def guarded_value(self) -> int:
        return int(self.concrete(COUNT_QUERY).item())

    def __hash__(self) -> int:
        return hash(self.guarded_value())


def is_of_a_loop(x: object) -> bool:
    """Whether a traced number may vary between iterations of a loop being recorded."""
    if not isinstance(x, Tracer):
        return False
    builder: Any = x.builder
    if builder.outer is None:
        return bool(builder.loops.varying) and _depends(x.node, builder.loops.varying)
    known = builder.known_outside(x.node)
    return known is None or is_of_a_loop(known)


def _depends(wanted: GraphNode, nodes: set[GraphNode]) -> bool:
    """Whether a node depends on any of `nodes`; the result of a finished loop is an ordinary number."""
    visited, stack = {wanted}, [wanted]
    while stack:
        node = stack.pop()
        if node in nodes:
            return True
        if not node.regions:
            fresh_ones = set(node.operands) - visited
            visited |= fresh_ones
            stack.extend(fresh_ones)
    return False


# -- bounds of slices --------------------------------------------------------------------------------------------
def limits(x: object) -> tuple[int, int]:
    """The bounds of an integer, traced or not, or of an array."""
    if isinstance(x, Tracer) and not x.weak:
        info = np.iinfo(x.dtype) if x.dtype.kind in "iu" else np.iinfo("int64")
        return int(info.min), int(info.max)
    return bounds(x)


def between(x: Any, low: int, high: int) -> Any:
    """The traced integer with these bounds."""
    number = Number(x.builder, x.node)
    number.builder.bounds[number.node] = meet(number.builder.bounds.get(number.node, (low, high)), (low, high))
    return number


def counting(x: object, low: int, high: int) -> Any:
    """A loop counter with these bounds, valid while the body of its loop is recorded."""
    if isinstance(x, Tracer) and x.weak and low <= high:
        bounded(x, low, high)
    return x


def normalized_bound(bound: object, n: int) -> Operand:
    """A slice bound of an axis of `n` elements, normalized to the range from 0 to `n`."""
    if not isinstance(bound, Tracer):
        start, _, _ = slice(bound, None).indices(n)
        return start
    low, high = limits(bound)
    x = bound if bound.dtype == np.int64 else cast(bound, dtype="int64")
    if low < 0:
        x = ops.where(ops.less(x, 0), ops.add(x, n), x)
        low, high = (low + n, high + n) if high < 0 else (min(low + n, 0), max(high, n - 1))
    if low < 0:
        x = ops.maximum(x, 0)
    if high > n:
        x = ops.minimum(x, n)
    low, high = min(max(low, 0), n), min(max(high, 0), n)
    return low if low == high else between(x, low, high)


def within(bound: Any, count: Any) -> Any:
    """A slice bound of an axis with a symbolic number of elements `count`, normalized to the range from 0 to `count`.
    None if it is unknown."""
    least, max_count = bounds(count)
    if bound is None or not isinstance(bound, Tracer):
        known = 0 if bound is None else int(bound)
        if abs(known) <= least:
            return known if known >= 0 else between(ops.add(count, known), least + known, max_count + known)
        x = ops.minimum(count, known) if known >= 0 else ops.maximum(ops.add(count, known), 0)
        return between(x, 0, min(max_count, known) if known >= 0 else max(max_count + known, 0))
    low, high = limits(bound)
    if low < 0:
        return None
    remaining = difference(count, bound)
    if (remaining is not None and remaining >= 0) or high <= least:
        return between(bound, low, min(high, max_count))
    return between(ops.minimum(bound, count), 0, max_count)


def required(condition: Any) -> Any:
    """The number 0, which raises if the condition is false; the call then runs as plain Python."""
    return counted(ops.where(condition, 0, 2), length=2, axis=0)


# -- affine forms ------------------------------------------------------------------------------------------------
Symbol = Hashable  # a node; or an op, parameters, and the forms of the operands
SizeForm = AffineForm[Symbol]


def form_of(x: Any) -> SizeForm:
    """The affine form of a size."""
    return _of(x.builder, x.node, 0) if isinstance(x, Tracer) else AffineForm(int(x))


def difference(x: object, y: object) -> int | None:
    """`x - y` if it is a constant."""
    return form_of(x).minus(form_of(y))


def difference_bounds(x: object, y: object) -> tuple[Interval, list[GraphNode]]:
    """The bounds of `x - y`, and the nodes that it depends on."""
    form = form_of(x).plus(form_of(y), -1)
    known: Mapping[Any, Interval] = next((v.builder.bounds for v in (x, y) if isinstance(v, Tracer)), {})
    ends = [scaled(known.get(symbol, ANY), k) for symbol, k in form.terms.items()]
    low, high = (form.constant + sum(side) for side in zip((0, 0), *ends))
    return (low, high), [x for symbol in form.terms for x in _nodes(symbol)]


def _nodes(symbol: Any) -> list[GraphNode]:
    """The nodes in a symbol."""
    if isinstance(symbol, GraphNode):
        return [symbol]
    return [x for form in symbol[-1] for factor in form.terms for x in _nodes(factor)] if len(symbol) == 3 else []


def _of(builder: TraceBuilder, node: GraphNode, depth: int) -> SizeForm:
    if node.op is None:
        return _outside(builder, node, depth)
    inside = node not in builder.loops.varying and _is_of_this_iteration(builder, node)
    if depth > _DEEP or not inside or node.aval.dtype != np.int64 or node.is_multi_result:
        return AffineForm.symbol(node)
    forms = [_operand_form(builder, x, depth + 1) for x in node.inputs]
    result = combined(node.op, forms)
    if result is None:
        result = AffineForm.symbol((node.op, node.params, tuple(forms)) if node.inputs else node)
    return result


def _is_of_this_iteration(builder: TraceBuilder, node: GraphNode) -> bool:
    """Whether each iteration of a current loop computes the node: it was recorded after the iteration began."""
    return not builder.loops.iteration_began or any(x is node for x in builder.nodes[builder.loops.iteration_began :])


def _operand_form(builder: TraceBuilder, x: Any, depth: int) -> SizeForm:
    if is_literal(x):
        return AffineForm(x) if type(x) is int else AffineForm.symbol((type(x), repr(x)))
    return _of(builder, x, depth)


def _outside(builder: Any, node: GraphNode, depth: int) -> SizeForm:
    """An input of a region, as the outside value it captures if there is one."""
    if builder.outer is not None:
        for value, parameter in builder.captured.values():
            if parameter is node and not isinstance(value, TensorCarrier):
                return _of(value.builder, value.node, depth)
    return AffineForm.symbol(node)
