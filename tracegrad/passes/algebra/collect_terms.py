"""Collect like terms in sums of cotangents.

The sums of a user are not reordered, because a program may depend on the order. The sums of cotangents in a sweep
(`accumulate`) have no order: they are linear combinations of values. A sum with like terms is rewritten as

    factor * (c1 * x1 + c2 * x2 + ...) + (x3 - x3) + constant

if that takes fewer nodes. The rewritten sum has the following properties:

- Coefficients are integers: x + x + x is 3 * x, rounded once. 0.1 * x and 0.2 * x are separate terms, not 0.3 * x.
- nan and inf are preserved. Terms that cancel become x - x, which is 0 for finite x and nan otherwise.
- It rounds, and it overflows, as some order of its terms may. The sign of a sum of 0 may differ.
"""

from __future__ import annotations

import functools
import math
import operator
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracegrad.ir import Graph, GraphNode
from tracegrad.ops.elementwise.table import add, multiply, negative, subtract
from tracegrad.passes.core.rewriter import Hook, Rewriter
from tracegrad.target.tuning import TUNING

if TYPE_CHECKING:
    from tracegrad.typing import DType


MAX_COLLECTED_TERMS = TUNING.passes.max_terms


class Sum(NamedTuple):
    """A linear combination: integer coefficients, the values that occur with both signs, and the constants."""

    terms: dict[GraphNode, int]
    cancelled: frozenset[GraphNode] = frozenset()
    constants: tuple[float, ...] = ()

    def scaled(self, k: int) -> Sum:
        return Sum({x: k * c for x, c in self.terms.items()}, self.cancelled, tuple([k * c for c in self.constants]))

    def plus(self, other: Sum) -> Sum:
        terms, cancelled = dict(self.terms), self.cancelled | other.cancelled
        for x, c in other.terms.items():
            before = terms.get(x, 0)
            if before * c < 0:
                cancelled |= {x}
            terms[x] = before + c
        remaining = terms if all(terms.values()) else {x: c for x, c in terms.items() if c}
        return Sum(remaining, cancelled, (*self.constants, *other.constants))

    def fits(self, dtype: DType) -> bool:
        """Whether it is short, and its coefficients are exact in `dtype`."""
        if len(self.terms) + len(self.cancelled) + len(self.constants) > MAX_COLLECTED_TERMS:
            return False
        whole, largest = _limits(dtype)
        return max(map(abs, self.terms.values()), default=0) <= whole and sum(map(abs, self.constants)) <= largest

    @property
    def factor(self) -> int:
        """The common factor of the coefficients."""
        return math.gcd(*self.terms.values())

    @property
    def cost(self) -> int:
        """The number of nodes of the written sum."""
        factor = self.factor
        products = sum(abs(c) != factor for c in self.terms.values()) + (factor > 1)
        signs = factor == 1 and all(c < 0 for c in self.terms.values())
        n_addends = len(self.terms) + len(self.cancelled) + bool(self.constants)
        return n_addends - 1 + products + signs + len(self.cancelled)


@functools.cache
def _limits(dtype: DType) -> tuple[int, Any]:
    """The largest range of exact integers of `dtype`, and its largest number."""
    result = np.finfo(dtype)
    return 2**result.nmant, result.max


def collect(graph: Graph, free: set[GraphNode], hook: Hook) -> Graph:
    """`graph` with like terms collected in the sums `free`, whose order is free; the same graph if there are none.

    `hook` is applied to the rewritten sums, and to every other application again.
    """
    chosen = _chosen(graph, free) if _may_shrink(free) else None
    if not chosen:
        return graph
    collected = _Collector(graph, hook, chosen).run(graph)
    return collected if len(collected.nodes) < len(graph.nodes) else graph


def _may_shrink(free: set[GraphNode]) -> bool:
    """Whether any sum could take fewer nodes; a cheap test that excludes most graphs.

    A sum can only shrink if a value occurs twice in the sums, or there are two constants, or a sum has two multiples, a
    multiple of another sum, or a multiple by -1. Otherwise every sum has a term with the coefficient 1 or -1, so there
    is no common factor. The rewritten sum then takes as many additions and multiplications as before.
    """
    visited: set[GraphNode] = set()
    literals = 0
    for node in free:
        multiples = 0
        literals += len(node.inputs) - len(node.operands)
        for x in node.operands:
            factor = _factor(x)
            if factor is not None:
                multiples += 1
                base = x.operands[0]
                if multiples > 1 or abs(factor) == 1 or base in free or base in visited or _factor(base) is not None:
                    return True
                visited.add(base)
            if x in visited:
                return True
            visited.add(x)
    return literals > 1


def _chosen(graph: Graph, free: set[GraphNode]) -> dict[GraphNode, Sum]:
    """The sums to rewrite: sums that become shorter, and sums that equal an earlier one."""
    sums = _sums(graph, free)
    needed = set(graph.outputs)
    for node in reversed(graph.nodes):
        if node not in sums or (node in needed and node not in free):
            needed.update(node.operands)
    removable = {node: _removable_nodes(node, sums, needed) for node in sums if node in free and node in needed}
    users = Counter(x for result in removable.values() for x in result)
    seen: set[Any] = set()
    chosen = {}
    for node, result in removable.items():
        total = sums[node]
        key = (frozenset(total.terms.items()), total.cancelled, total.constants)
        cost = total.cost
        if key in seen or (cost < len(result) and _is_cheaper(cost, [users[x] for x in result])):
            chosen[node] = total
        seen.add(key)
    return chosen


def _is_cheaper(cost: int, users: list[int]) -> bool:
    """Whether `cost` is less than the share of a sum in its nodes, which have these numbers of `users` (exact)."""
    whole = math.lcm(*users)
    return cost * whole < sum([whole // n for n in users])


def _sums(graph: Graph, free: set[GraphNode]) -> dict[GraphNode, Sum]:
    """The sums of `free` and their multiples as linear combinations of other values."""
    sums: dict[GraphNode, Sum] = {}

    def as_sum(x: GraphNode | float) -> Sum:
        return Sum({}, constants=(x,)) if isinstance(x, bool | int | float) else sums.get(x) or Sum({x: 1})

    for node in graph.nodes:
        if node in free:
            x, y = map(as_sum, node.inputs)
            result = x.plus(y if node.op is add else y.scaled(-1))
        elif (factor := _factor(node)) is not None:
            result = as_sum(node.inputs[0]).scaled(factor)
        else:
            continue
        if result.fits(node.aval.dtype):
            sums[node] = result
    return sums


def _factor(node: GraphNode) -> int | None:
    """The integer by which `node` multiplies its first operand, if it does."""
    if (node.op is not multiply and node.op is not negative) or node.aval.dtype.kind != "f":
        return None
    c = node.inputs[1] if node.op is multiply else -1.0
    return int(c) if type(c) is float and c and c.is_integer() else None


def _removable_nodes(root: GraphNode, sums: dict[GraphNode, Sum], needed: set[GraphNode]) -> set[GraphNode]:
    """`root` and the sums and multiples below it that only serve sums: the nodes that a rewrite removes."""
    result, stack = {root}, [root]
    while stack:
        inner = [x for x in stack.pop().operands if x in sums and x not in needed and x not in result]
        result.update(inner)
        stack += inner
    return result


class _Collector(Rewriter):
    """Rewriter that writes chosen sums as linear combinations."""

    def __init__(self, graph: Graph, hook: Hook, chosen: dict[GraphNode, Sum]):
        super().__init__(graph, hook)
        self.chosen = chosen
        self.position = {x: i for i, x in enumerate((*graph.inputs, *graph.nodes))}

    def move(self, node: GraphNode) -> None:
        if node not in self.chosen:
            super().move(node)
            return
        self.location = node.location
        self.record_replacement(node, self.written(self.chosen[node]).node)

    def written(self, total: Sum) -> Any:
        """The value of a linear combination."""
        addends = [*self.scaled(total), *(subtract(x, x) for x in self.values(total.cancelled))]
        value = functools.reduce(add, addends)
        return add(value, functools.reduce(operator.add, total.constants)) if total.constants else value

    def scaled(self, total: Sum) -> Iterator[Any]:
        """The sum of the terms as one value; None if there are none."""
        if not total.terms:
            return
        factor = total.factor
        nodes = sorted(total.terms, key=self.position.__getitem__)
        if factor == 1:
            nodes.sort(key=lambda x: total.terms[x] < 0)
        elif total.terms[nodes[0]] < 0:
            factor = -factor
        value: Any = None
        for node, x in zip(nodes, self.values(nodes)):
            c = total.terms[node] // factor
            term = x if abs(c) == 1 else multiply(x, float(abs(c)))
            if value is None:
                value = term if c > 0 else negative(term)
            else:
                value = add(value, term) if c > 0 else subtract(value, term)
        yield value if factor == 1 else multiply(value, float(factor))

    def values(self, nodes: Iterable[GraphNode]) -> list[Any]:
        """The new values of nodes of the graph, in its order."""
        return [self.value(self.moved.get(x, x)) for x in nodes]
