"""Analyze intervals of the integers of an iteration (interval analysis)."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping
from typing import Any

from tracegrad.avals import is_literal
from tracegrad.ir import GraphNode
from tracegrad.ops.elementwise import table as ops
from tracegrad.ops.shape.linear import fresh, full, reshape

__all__ = ["is_sure"]

Interval = tuple[int, int]


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
    return x is not None and y is not None and _COMPARISONS[comparison.op](x, y)


def _interval(x: Any, changing: Collection[GraphNode], bounds: Mapping[GraphNode, Interval]) -> Interval | None:
    if is_literal(x):
        return (x, x) if isinstance(x, int) else None
    known = bounds.get(x)
    if x in changing or x.op is None or x.is_multi_result or x.aval.dtype.kind != "i":
        return known
    results = None
    if x.op is full:
        value = dict(x.params)["value"]
        results = int(value), int(value)
    elif x.op in (fresh, reshape):
        results = _interval(x.inputs[0], changing, bounds)
    elif x.op in _ARITHMETIC:
        left, right = [_interval(y, changing, bounds) for y in x.inputs]
        if left is not None and right is not None:
            ends = [_ARITHMETIC[x.op](a, b) for a in left for b in right]
            results = min(ends), max(ends)
    if results is None or known is None:
        return results or known
    return max(results[0], known[0]), min(results[1], known[1])


def _is_equality_sure(x: Interval, y: Interval) -> bool:
    return x[1] < y[0] or y[1] < x[0] or x[0] == x[1] == y[0] == y[1]


def _ordered(x: Interval, y: Interval) -> bool:
    return x[1] < y[0] or x[0] >= y[1]


_COMPARISONS: dict[Any, Callable[[Interval, Interval], bool]] = {
    ops.equal: _is_equality_sure,
    ops.not_equal: _is_equality_sure,
    ops.less: _ordered,
    ops.greater_equal: _ordered,
    ops.greater: lambda x, y: _ordered(y, x),
    ops.less_equal: lambda x, y: _ordered(y, x),
}
_ARITHMETIC: dict[Any, Callable[[int, int], int]] = {
    ops.add: operator.add,
    ops.subtract: operator.sub,
    ops.multiply: operator.mul,
}
