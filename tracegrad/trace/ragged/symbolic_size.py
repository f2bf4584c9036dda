"""Compute symbolic sizes: bounds of slices that depend on loop counters, and what is known about them.

A slice bound in the body of a loop may vary between iterations. `normalized_bound` normalizes it as Python does:
negative bounds count from the end, and bounds are clamped to the axis. It records only the operations that the interval
of the bound (`tracegrad.trace.values.python_arithmetic`) requires. Two sizes are equal if their affine forms are equal;
`form_of` writes a size as a sum of nodes with integer factors.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

import numpy as np

from tracegrad.avals import is_literal
from tracegrad.ir import GraphNode
from tracegrad.numpy_api.boolean_mask import COUNT_QUERY
from tracegrad.ops.core.dispatch import TensorCarrier
from tracegrad.ops.elementwise import table as ops
from tracegrad.ops.indexing.dynamic_slice import counted
from tracegrad.ops.shape.linear import cast, fresh, stop_gradient
from tracegrad.trace.builder.builder import TraceBuilder
from tracegrad.trace.values.number import Number
from tracegrad.trace.values.python_arithmetic import bounded, bounds
from tracegrad.trace.values.tracer import Tracer

__all__ = [
    "MaskSize",
    "SymbolicSize",
    "between",
    "counting",
    "difference",
    "difference_bounds",
    "form_of",
    "is_of_a_loop",
    "limits",
    "normalized_bound",
    "required",
    "within",
]

# Depth limit, in nodes, of the arithmetic of a size.
_DEEP = 24


class SymbolicSize(Number):
    """Symbolic size of an axis. A comparison with another size returns the proven result; otherwise the sizes are
    read."""

    __slots__ = ()

    def __eq__(self, other: Any) -> bool:
        if isinstance(other, int | Tracer):
            known = difference(self, other)
            if known is not None:
                return known == 0
            (a, b), (c, d) = bounds(self), limits(other)
            if b < c or d < a:
                return False
        return self.guarded_value() == (other.guarded_value() if isinstance(other, SymbolicSize) else other)

    def __ne__(self, other: Any) -> bool:
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


def is_of_a_loop(x: Any) -> bool:
    """Whether a traced number may vary between iterations of a loop being recorded."""
    if not isinstance(x, Tracer):
        return False
    builder: Any = x.builder
    if builder.outer is None:
        return bool(builder.of_loops) and _depends(x.node, builder.of_loops)
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
def limits(x: Any) -> tuple[int, int]:
    """The bounds of an integer, traced or not, or of an array."""
    if isinstance(x, Tracer) and not x.weak:
        info = np.iinfo(x.dtype) if x.dtype.kind in "iu" else np.iinfo("int64")
        return int(info.min), int(info.max)
    return bounds(x)


def between(x: Any, low: int, high: int) -> Any:
    """The traced integer with these bounds."""
    number = Number(x.builder, x.node)
    a, b = number.builder.bounds.get(number.node, (low, high))
    number.builder.bounds[number.node] = max(a, low), min(b, high)
    return number


def counting(x: Any, low: int, high: int) -> Any:
    """A loop counter with these bounds, valid while the body of its loop is recorded."""
    if isinstance(x, Tracer) and x.weak and low <= high:
        bounded(x, low, high)
    return x


def normalized_bound(bound: Any, n: int) -> Any:
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
class AffineForm(NamedTuple):
    """Affine form: a constant, and nodes with their factors."""

    constant: int
    terms: frozenset[tuple[Hashable, int]]


def form_of(x: Any) -> AffineForm:
    """The affine form of a size."""
    return _of(x.builder, x.node, 0) if isinstance(x, Tracer) else AffineForm(int(x), frozenset())


def difference(x: Any, y: Any) -> int | None:
    """`x - y` if it is a constant."""
    result = _sum(form_of(x), form_of(y), -1)
    return None if result.terms else result.constant


def difference_bounds(x: Any, y: Any) -> tuple[tuple[float, float], list[GraphNode]]:
    """The bounds of `x - y`, and the nodes that it depends on."""
    result = _sum(form_of(x), form_of(y), -1)
    known: dict[Any, Any] = next((v.builder.bounds for v in (x, y) if isinstance(v, Tracer)), {})
    low: float = result.constant
    high: float = result.constant
    for symbol, k in result.terms:
        ends = [k * end for end in known.get(symbol, _ANY)]
        low, high = low + min(ends), high + max(ends)
    return (low, high), [x for symbol, _ in result.terms for x in _nodes(symbol)]


def _nodes(symbol: Any) -> list[GraphNode]:
    """The nodes in a symbol."""
    if isinstance(symbol, GraphNode):
        return [symbol]
    return [x for form in symbol[-1] for factor, _ in form.terms for x in _nodes(factor)] if len(symbol) == 3 else []


def _sum(x: AffineForm, y: AffineForm, factor: int) -> AffineForm:
    terms = dict(x.terms)
    for symbol, k in y.terms:
        terms[symbol] = terms.get(symbol, 0) + factor * k
    return AffineForm(x.constant + factor * y.constant, frozenset([(s, k) for s, k in terms.items() if k]))


def _symbol(x: Hashable) -> AffineForm:
    return AffineForm(0, frozenset([(x, 1)]))


_NONE = AffineForm(0, frozenset())
_ANY = (-np.inf, np.inf)


def _of(builder: TraceBuilder, node: GraphNode, depth: int) -> AffineForm:
    if node.op is None:
        return _outside(builder, node, depth)
    inside = node not in builder.of_loops and _is_of_this_iteration(builder, node)
    if depth > _DEEP or not inside or node.aval.dtype != np.int64 or node.is_multi_result:
        return _symbol(node)
    forms = [_operand_form(builder, x, depth + 1) for x in node.inputs]
    if node.op in (ops.add, ops.subtract):
        return _sum(forms[0], forms[1], 1 if node.op is ops.add else -1)
    if node.op is ops.negative:
        return _sum(_NONE, forms[0], -1)
    if node.op is ops.multiply and not all(x.terms for x in forms):
        x, y = forms if not forms[1].terms else reversed(forms)
        return _sum(_NONE, x, y.constant)
    if node.op in (fresh, stop_gradient):
        return forms[0]
    return _symbol((node.op, node.params, tuple(forms))) if node.inputs else _symbol(node)


def _is_of_this_iteration(builder: TraceBuilder, node: GraphNode) -> bool:
    """Whether each iteration of a current loop computes the node: it was recorded after the iteration began."""
    return not builder.iteration_began or any(x is node for x in builder.nodes[builder.iteration_began :])


def _operand_form(builder: TraceBuilder, x: Any, depth: int) -> AffineForm:
    if is_literal(x):
        return AffineForm(x, frozenset()) if type(x) is int else _symbol((type(x), repr(x)))
    return _of(builder, x, depth)


def _outside(builder: Any, node: GraphNode, depth: int) -> AffineForm:
    """An input of a region, as the outside value it captures if there is one."""
    if builder.outer is not None:
        for value, parameter in builder.captured.values():
            if parameter is node and not isinstance(value, TensorCarrier):
                return _of(value.builder, value.node, depth)
    return _symbol(node)
