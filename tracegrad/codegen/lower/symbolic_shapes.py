"""Unify the sizes of a graph into symbols (symbolic shapes): kernels take large sizes at run time.

Every axis of every value has a polynomial. Sizes up to `SMALL` are constants, so loops over them unroll. Axes that are
always outside a large axis are excepted, for example the axis of a batch of images. Each other size is a symbol: one
symbol per class of axes that the data flow forces to be equal. Two axes whose sizes are equal by chance have separate
symbols, so a kernel compiled for one batch size serves every other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracegrad.codegen.loopir.polynomial import ONE, Poly
from tracegrad.codegen.lower.form_rules import HANDLERS
from tracegrad.ir import Graph, GraphNode
from tracegrad.ops.core.forms import FoldForm, Reshape
from tracegrad.target.tuning import TUNING

SMALL = TUNING.fusion.max_constant_size


class Dims:
    """The sizes of all axes of a graph as polynomials, and the values of their symbols.

    The first `carries` outputs of a region become its first inputs, so they have one shape.
    """

    def __init__(self, graph: Graph, carries: int = 0):
        self._parent: list[int] = []
        self._value: list[int] = []
        self._axes: dict[GraphNode, Any] = {}  # for a multi-result node, the axes of each result
        for x in graph.inputs:
            self._axes[x] = self.fresh(x.aval.shape)
        for node in graph.nodes:
            self._axes[node] = self._infer(node)
        for x, y in zip(graph.inputs[:carries], graph.outputs):
            self.joined([self._axes[x], self._axes[y]])
        self._outer = self._outer_sizes(graph)
        self._names: dict[int, Poly] = {}
        self._polys: dict[tuple[int, ...], tuple[Poly, ...]] = {}
        self.values: dict[str, int] = {}
        self._shapes: dict[GraphNode, tuple[Poly, ...]] = {}
        self._spaces: dict[GraphNode, tuple[Poly, ...]] = {}
        for x in (*graph.inputs, *graph.nodes):
            if x.regions:  # unused results have sizes, too
                for axes in self._axes[x]:
                    self._named(axes)
            elif not x.is_multi_result:
                self._shapes[x] = self._named(self._axes[x])

    def shape(self, node: GraphNode) -> tuple[Poly, ...]:
        """The shape of a value, as polynomials."""
        return self._shapes[node]

    def space(self, node: GraphNode) -> tuple[Poly, ...]:
        """The sizes of a value that are not one: its iteration space."""
        results = self._spaces.get(node)
        if results is None:
            results = self._spaces[node] = tuple([d for d in self._shapes[node] if d is not ONE])
        return results

    def result_shape(self, node: GraphNode, k: int) -> tuple[Poly, ...]:
        """The shape of result `k` of a node with several results."""
        return self._named(self._axes[node][k])

    # -- classes ---------------------------------------------------------------------------------
    def fresh(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """New axes of these sizes."""
        first = len(self._parent)
        self._parent.extend(range(first, first + len(shape)))
        self._value.extend(shape)
        return tuple(range(first, first + len(shape)))

    def _find(self, a: int) -> int:
        while self._parent[a] != a:
            self._parent[a] = self._parent[self._parent[a]]
            a = self._parent[a]
        return a

    def _named(self, axes: tuple[int, ...]) -> tuple[Poly, ...]:
        results = self._polys.get(axes)
        if results is None:
            results = self._polys[axes] = tuple([self._name(a) for a in axes])
        return results

    def _name(self, axis: int) -> Poly:
        root = self._find(axis)
        if root not in self._names:
            value = self._value[root]
            if value <= SMALL and root not in self._outer:
                self._names[root] = Poly.constant(value)
            else:
                name = f"s{len(self.values)}"
                self.values[name] = value
                self._names[root] = Poly.symbol(name)
        return self._names[root]

    def _outer_sizes(self, graph: Graph) -> set[int]:
        """The small sizes that become symbols: every axis is outside a large one, is reduced only together with a large
        one, and divides no index."""
        values = (*graph.inputs, *graph.nodes)
        parent, value = self._parent, self._value
        for a, p in enumerate(parent):  # the parent `p` precedes `a`, so it is already a root
            parent[a] = parent[p]
        results = {a for a, p in enumerate(parent) if p == a and 1 < value[a] <= SMALL}
        for x in values if results else ():
            for axes in self._axes[x] if x.is_multi_result else [self._axes[x]]:
                for a in reversed(axes):
                    root = parent[a]
                    if value[root] > SMALL:
                        break
                    results.discard(root)
            match x.form:
                case FoldForm():
                    before = self._roots(self._axes[x.operands[0]])
                    reduced = {before[i] for i in dict(x.params)["axes"]}
                    results -= reduced if max([value[a] for a in reduced], default=0) <= SMALL else set()
                case Reshape():
                    before, after = self._roots(self._axes[x.operands[0]]), self._roots(self._axes[x])
                    results -= ({*before[1:]} - {*after}) | ({*after[1:]} - {*before})
        return results

    def _roots(self, axes: tuple[int, ...]) -> list[int]:
        return [self._find(a) for a in axes]

    # -- equalities of each op form ------------------------------------------------------------------
    def _infer(self, node: GraphNode) -> list[tuple[int, ...]] | tuple[tuple[int, ...] | int, ...]:
        result = HANDLERS[type(node.form)].axes(self, node, [self._axes[x] for x in node.operands])
        if result is not None:
            return result
        return tuple([self.fresh(a.shape) for a in node.aval]) if node.is_multi_result else self.fresh(node.aval.shape)  # type: ignore[attr-defined]

    def join(self, *axes: int) -> int:
        """Unify axes whose sizes are always equal."""
        first = self._find(axes[0])
        for a in axes[1:]:
            a = self._find(a)
            self._parent[max(first, a)] = first = min(first, a)
        return axes[0]

    def joined(self, groups: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        """Unify groups of axes elementwise."""
        first = groups[0]
        for group in groups[1:]:
            if group is not first:
                for a, b in zip(first, group):
                    if a != b:
                        self.join(a, b)
        return first

    def new(self, size: int) -> int:
        """A new axis."""
        return self.fresh((size,))[0]
