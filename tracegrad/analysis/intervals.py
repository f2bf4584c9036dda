"""Compute intervals of integers (interval analysis).

An interval is the least and the greatest value. Python's arithmetic in a trace, loops and kernels use the same rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np

from tracegrad.avals import Literal, is_literal
from tracegrad.ir import GraphNode, GraphValue
from tracegrad.ops.core.op import Op
from tracegrad.ops.elementwise import table as ew
from tracegrad.ops.indexing.dynamic_slice import counted, dynamic_slice
from tracegrad.ops.indexing.gather_scatter import gather
from tracegrad.ops.shape.fill import arange
from tracegrad.ops.shape.linear import broadcast_to, fresh, full, reshape, slice

N = TypeVar("N", int, float)

Interval = tuple[float, float]
Integers = tuple[int, int]  # a finite interval of exact integers
Operand = GraphNode | GraphValue | np.ndarray | np.generic | Literal  # of a loop that is recorded, or of a node

ANY: Interval = (-np.inf, np.inf)
DEEPEST = 30  # maximum depth of nodes in the analysis
WRAPPING = 2**62  # a value beyond may overflow 64 bits, and wrap


def meet(x: tuple[N, N], y: tuple[N, N]) -> tuple[N, N]:
    """The interval of a value that is in both intervals."""
    return max(x[0], y[0]), min(x[1], y[1])


def scaled(x: tuple[N, N], factor: int) -> tuple[N, N]:
    """The interval of a multiple; a multiple with factor 0 is 0."""
    low, high = x if factor >= 0 else (x[1], x[0])
    return (factor * low, factor * high) if factor else (0, 0)


# -- rules of operations ---------------------------------------------------------------------------------------
def corners(f: Callable[[int, int], int]) -> Callable[[Integers, Integers], Integers]:
    """The rule of a function that is monotonic in each operand."""

    def range_of_result(x: Integers, y: Integers) -> Integers:
        results = [f(a, b) for a in x for b in y]
        return min(results), max(results)

    return range_of_result


def quotients(x: Integers, y: Integers) -> Integers:
    """The rule of the floor division by a divisor that is not 0."""
    max_size = max(map(abs, x)) if y[0] < 0 else 0
    return min(x[0], 0, -max_size), max(x[1], 0, max_size)


def powers(x: Integers, y: Integers) -> Integers:
    """The rule of powers with an exponent that is not negative."""
    size, max_exponent = max(map(abs, x)), max(y[1], 0)
    if size < 2:
        return (-1, 1) if x[0] < 0 else (0, 1)
    largest = size**max_exponent if max_exponent < 64 else 2**64
    return -largest if x[0] < 0 else 0, largest


def _products(x: Interval, y: Interval) -> Interval:
    ends = [a * b if a and b else 0 for a in x for b in y]
    return min(ends), max(ends)


_RULES: dict[Op | None, Callable[[Interval, Interval], Interval]] = {
    ew.add: lambda x, y: (x[0] + y[0], x[1] + y[1]),
    ew.subtract: lambda x, y: (x[0] - y[1], x[1] - y[0]),
    ew.multiply: _products,
    ew.maximum: lambda x, y: (max(x[0], y[0]), max(x[1], y[1])),
    ew.minimum: lambda x, y: (min(x[0], y[0]), min(x[1], y[1])),
}
_READS = (reshape, broadcast_to, slice, gather, dynamic_slice, fresh)


def step_range(x: GraphNode | Literal, of: Callable[[GraphNode | Literal], Interval]) -> Interval:
    """The interval of the elements of an integer node or literal, if `of` gives those of its operands."""
    if is_literal(x):
        return (int(x), int(x)) if isinstance(x, int) else ANY
    assert isinstance(x, GraphNode)
    if x.is_multi_result or x.aval.dtype.kind != "i":
        return ANY
    params = dict(x.params)
    if x.op is full:
        return params["value"], params["value"]
    if x.op is arange:
        ends = params["start"], params["start"] + params["step"] * (params["length"] - 1)
        return min(ends), max(ends)
    if x.op in _READS:
        return of(x.inputs[0])
    if x.op is counted:
        return 0, params["length"] - 1
    if x.op not in _RULES:
        return ANY
    low, high = _RULES[x.op](of(x.inputs[0]), of(x.inputs[1]))
    return (low, high) if -WRAPPING < low <= high < WRAPPING else ANY


def range_of(x: Operand, known: Mapping[GraphNode, Interval] | None = None, deep: int = 0) -> Interval:
    """The interval of the elements of `x`, an operand or a node; `known` are the intervals of inputs."""
    bounds = {} if known is None else known
    if isinstance(x, GraphValue):
        bounds, x = getattr(x.builder, "bounds", bounds), x.node
    if isinstance(x, np.ndarray | np.generic):
        return (int(x.min()), int(x.max())) if x.dtype.kind == "i" and x.size else ANY
    if isinstance(x, GraphNode):
        if x in bounds:
            return bounds[x]
        if deep == DEEPEST:
            return ANY
    return step_range(x, lambda y: range_of(y, bounds, deep + 1)) if isinstance(x, GraphNode) or is_literal(x) else ANY
