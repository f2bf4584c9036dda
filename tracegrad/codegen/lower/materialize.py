"""Decide which values are materialized in a buffer; all others are computed where they are read.

A value is *stored* when a consumer needs it whole: an output, a reduction, an operand of BLAS or of a called op. It is
also stored when computing it at every read would cost more. Views are index maps and cost little. A reshape of a
stored value shares its buffer. If a node has several results, each used result is stored.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from tracegrad.codegen.lower.form_rules import HANDLERS, Handler, checks_indices, is_view, same_block
from tracegrad.codegen.lower.matmul_layout import transposable_products, transposed_products
from tracegrad.ir import Graph, GraphNode
from tracegrad.settings import disabled
from tracegrad.target.tuning import TUNING

EARLY = "read before a part is written over"  # the reason of a value that must not be computed later

DEEPEST = TUNING.fusion.max_depth
HEAVIEST = TUNING.fusion.max_inlined_cost
MAX_SCALAR_COST = TUNING.fusion.max_scalar_cost
MIN_STORED_COST = TUNING.fusion.min_stored_cost


class _Facts:
    """Facts about a graph that do not depend on the stored values."""

    def __init__(self, graph: Graph):
        self.inputs = set(graph.inputs)
        self.uses = Counter([x for node in graph.nodes for x in node.operands])
        self.handlers = {node: HANDLERS[type(node.form)] for node in graph.nodes}
        self.called = {node for node, form in self.handlers.items() if not node.regions and form.called(node)}
        one = [node for node in graph.nodes if not node.is_multi_result and node.result_index is None]
        # The cost of an element without its operands, and whether operands are read repeatedly.
        self.costs = [(node, form := self.handlers[node], form.cost(node), form.repeats(node)) for node in one]
        self.multi_result_nodes = [node for node in graph.nodes if node.is_multi_result]
        self.deciding = [node for node, form in self.handlers.items() if self._decides(node, form)]
        self.indexed = any([form.indexed for form in self.handlers.values()])  # noqa: C419 (all of them, quickly)
        self.transposable = transposable_products(graph)
        self.users = graph.users()

    def _decides(self, node: GraphNode, form: Handler) -> bool:
        """Whether the form of a node determines storage, independent of costs."""
        return node in self.called or bool(node.regions) or type(form).store is not Handler.store


class _Computed(NamedTuple):
    """A value computed where it is read: its operands that are not stored, and the values computed at the same index
    with their cost; `depth` is the length of the dependence chain."""

    operands: list[GraphNode]
    together: dict[GraphNode, int]
    weight: int
    depth: int


class Storage:
    """The stored values, each with a reason; `also` are values that were too expensive in the attempt `before`."""

    def __init__(self, graph: Graph, also: dict[GraphNode, str] | None = None, before: Storage | None = None):
        self.graph, self._before = graph, before
        self.facts: _Facts = _Facts(graph) if before is None else before.facts
        facts = self.facts
        self.inputs, self.uses, self.users = facts.inputs, facts.uses, facts.users
        self.handlers, self.called = facts.handlers, facts.called
        self.results: dict[GraphNode, list[GraphNode]] = {node: [] for node in facts.multi_result_nodes}  # used results
        self.reason: dict[GraphNode, str] = dict(also or {})
        self.weight: dict[GraphNode, int] = {}
        self._computed: dict[GraphNode, _Computed] = {}
        self.formed: dict[GraphNode, str] = {}
        self._inlines = not disabled("inlining")
        self._by_forms(set(self.reason))
        for node, form, cost, repeats in facts.costs:
            self._by_cost(node, form, cost, repeats)
        if facts.indexed:
            self._by_checks()
        transposed = transposed_products(self)
        self.transposed = {
            product: node for node, product in transposed.items()
        }  # products written in transposed order
        self.root_of = self._aliases()
        for node, product in transposed.items():
            for alias, base in self.root_of.items():
                if base is node:
                    self.root_of[alias] = product
            self.root_of[node] = product
        self._before = None

    def stored(self, node: GraphNode) -> bool:
        return node in self.inputs or node in self.reason

    def inlined(self, node: GraphNode) -> bool:
        return not self.stored(node)

    def store(self, node: GraphNode, reason: str) -> None:
        """Store `node`, with this reason unless it has one."""
        if node not in self.inputs:
            self.reason.setdefault(node, reason)

    def store_base(self, node: GraphNode, reason: str) -> None:
        """Store the base of a reshape `node`, so that `node` can be read as one block of memory."""
        while same_block(node) and node not in self.reason:
            node = node.inputs[0]
        self.store(node, reason)

    def _by_forms(self, also: set[GraphNode]) -> None:
        """Store the values required by op forms, whatever their cost; reused from `before` if the values in `also` are
        no views."""
        before = self._before
        if before is not None and all(x in before.formed or not is_view(x) for x in also):
            self.reason = {**self.reason, **{x: why for x, why in before.formed.items() if x not in also}}
            self.results = {node: list(result) for node, result in before.results.items()}
        else:
            for node in self.graph.outputs:
                if node not in self.inputs:
                    self.store(node, "output")
            for node in self.facts.deciding:
                self._by_form(node, self.handlers[node])
        self.formed = dict(self.reason)

    def _by_form(self, node: GraphNode, form: Handler) -> None:
        if node not in self.called and not node.regions:
            form.store(self, node)
            return
        why = "is called in NumPy" if node in self.called else "runs regions"
        if not node.is_multi_result:
            self.store(node, f"{node.name} {why}")
        for x in node.operands:
            self.store_base(x, f"operand of {node.name}, which {why}")

    def _by_cost(self, node: GraphNode, form: Handler, cost: int, repeats: bool) -> None:
        inputs, reason = self.inputs, self.reason
        operands = [x for x in node.operands if x not in inputs and x not in reason]
        if operands and repeats:
            for x in operands:
                self._expanded(node, x)
            operands = [x for x in operands if x not in reason]
        result = self._as_before(node, operands)
        if result is None:
            result = self._inlined_cost(node, form, cost, operands)
        self._computed[node] = result
        self.weight[node] = result.weight
        if result.depth > DEEPEST or result.weight > HEAVIEST:
            self.store(node, "a long chain, cut here")
        elif cost and form.pointwise and not self._inlines:
            self.store(node, "inlining is left out")

    def _inlined_cost(self, node: GraphNode, form: Handler, cost: int, operands: list[GraphNode]) -> _Computed:
        together, depth = {node: cost}, 0
        for x in operands:
            computed = self._computed[x]
            depth = max(depth, computed.depth)
            if form.pointwise:
                together |= computed.together
            else:
                together[node] += computed.weight
        return _Computed(operands, together, sum(together.values()), 1 + depth)

    def _as_before(self, node: GraphNode, operands: list[GraphNode]) -> _Computed | None:
        """The cost of `node` in the attempt before, if its operands are unchanged."""
        if self._before is None:
            return None
        before, now = self._before._computed, self._computed
        result = before[node]
        if result.operands != operands:
            return None
        for x in operands:
            if now[x] is not before[x]:
                return None
        return result

    def _by_checks(self) -> None:
        """Store a gather that is only read in part, because NumPy checks all of its indices."""
        whole: set[GraphNode] = set()
        for node, form in reversed(self.handlers.items()):
            if form.indexed and node not in whole and checks_indices(node):
                self.store(node, "read in part, and every index is to be checked")
            if (node in whole or node in self.reason) and (node.is_multi_result or 0 not in node.aval.shape):
                whole.update(form.whole(node))

    def _expanded(self, node: GraphNode, x: GraphNode) -> None:
        while same_block(x) and self.inlined(x):
            x = x.inputs[0]
        if self.stored(x) or node.aval.size <= x.aval.size:
            return
        weight = self.weight.get(x, 0)
        if weight >= (MAX_SCALAR_COST if x.aval.size == 1 else 2):
            self.store(x, f"computed once, read many times by {node.name}")

    def _aliases(self) -> dict[GraphNode, GraphNode]:
        """Map a stored reshape to the stored value that it aliases."""
        aliased = set(self.graph.outputs)
        aliases: dict[GraphNode, GraphNode] = {}
        for node in self.graph.outputs:
            base = node
            while same_block(base) and (base is node or base not in self.reason):
                base = base.inputs[0]
            if same_block(node) and node not in aliases and base in self.reason and base not in aliased:
                aliased.add(base)
                aliases[node] = base
        return aliases
