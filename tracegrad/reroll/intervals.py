"""Decide comparisons of an iteration by the intervals of its integers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from tracegrad.analysis.intervals import ANY, Interval, meet, step_range
from tracegrad.avals import Literal
from tracegrad.ir import GraphNode
from tracegrad.ops.core.op import Op
from tracegrad.ops.elementwise import table as ops


def is_sure(comparison: GraphNode, changing: Collection[GraphNode], bounds: Mapping[GraphNode, Interval]) -> bool:
    """Whether a comparison has the same result for all values of the `changing` nodes within the `bounds`.

    >>> import numpy as np
    >>> from tracegrad.avals import Aval
    >>> k = GraphNode(None, (), (), Aval((), np.dtype(np.int64)))
    >>> less = GraphNode(ops.less, (k, 5), (), Aval((), np.dtype(bool)))
    >>> is_sure(less, [k], {k: (0, 4)}), is_sure(less, [k], {k: (0, 5)})
    (True, False)
    """
    if comparison.op not in _COMPARISONS:
        return False
    x, y = [_interval(x, changing, bounds) for x in comparison.inputs]
    return _COMPARISONS[comparison.op](x, y)


def _interval(
    x: GraphNode | Literal, changing: Collection[GraphNode], bounds: Mapping[GraphNode, Interval]
) -> Interval:
    known = bounds.get(x, ANY) if isinstance(x, GraphNode) else ANY
    return known if x in changing else meet(known, step_range(x, lambda y: _interval(y, changing, bounds)))


def _is_equality_sure(x: Interval, y: Interval) -> bool:
    return x[1] < y[0] or y[1] < x[0] or x[0] == x[1] == y[0] == y[1]


def _ordered(x: Interval, y: Interval) -> bool:
    return x[1] < y[0] or x[0] >= y[1]


_COMPARISONS: dict[Op | None, Callable[[Interval, Interval], bool]] = {
    ops.equal: _is_equality_sure,
    ops.not_equal: _is_equality_sure,
    ops.less: _ordered,
    ops.greater_equal: _ordered,
    ops.greater: lambda x, y: _ordered(y, x),
    ops.less_equal: lambda x, y: _ordered(y, x),
}
