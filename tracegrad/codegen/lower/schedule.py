"""Group the stored values of a graph into fusion groups, and order the groups (fusion and scheduling).

A kernel is one loop nest over an *iteration space*. Values stored by one kernel have the same iteration space: an
elementwise value its own shape, a reduction the shape of its operand. A value may use values of the same kernel only at
the same index. Contractions are calls of BLAS, and ops without lowering rules are calls of
NumPy. Every edge between two steps has a reason why it was not fused.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Set
from dataclasses import field
from operator import attrgetter
from typing import Any, NamedTuple

from tracegrad.codegen.loopir.polynomial import Poly
from tracegrad.codegen.loopir.steps import FusionGroup
from tracegrad.codegen.lower.materialize import EARLY, MIN_STORED_COST, Storage
from tracegrad.codegen.lower.packing_heuristic import is_packing_profitable
from tracegrad.codegen.lower.symbolic_shapes import Dims
from tracegrad.ir import Graph, GraphNode
from tracegrad.ops.shape.linear import broadcast_to
from tracegrad.settings import disabled
from tracegrad.target.tuning import TUNING
from tracegrad.utils.lazy_dataclass import record

HEAVIEST_GROUP = TUNING.fusion.max_group_cost
LARGEST_GROUP = TUNING.fusion.max_group_values
FUSION_DISABLED = "kernel-fusion is left out"
SPACES_DIFFER = "iteration spaces differ"
STRIDED_REREADS = "lies apart, and is read several times"


@record(frozen=True)
class FusionEdge:
    """A stored value read by another step, and why the two were not fused."""

    producer: GraphNode
    consumer: GraphNode
    reason: str


class _Unfused(NamedTuple):
    """An edge between unfused steps; its explanation is formatted on demand."""

    producer: GraphNode
    consumer: GraphNode
    reason: str
    domains: tuple[tuple[Poly, ...], tuple[Poly, ...]]
    fits: bool  # whether a fused kernel would have been short enough

    def explained(self) -> FusionEdge:
        reason = self.reason
        if reason == SPACES_DIFFER:
            reason = f"{reason}: {_space(self.domains[0])} and {_space(self.domains[1])}"
        if not reason and not self.fits:
            reason = "the kernel would be too long"
        return FusionEdge(self.producer, self.consumer, reason or "needs a step that needs this one")


@record()
class Schedule:
    graph: Graph
    storage: Storage
    dims: Dims
    groups: list[FusionGroup]
    unfused: list[tuple[Any, ...]]  # arguments of `_Unfused`, created on demand
    crowded: bool  # whether some steps are unfused only because the kernel would be too long
    # Filled by lowering: the kernels and indices at which a value is computed.
    counts: dict[GraphNode, set[Any]] = field(default_factory=lambda: defaultdict(set))

    @property
    def edges(self) -> list[FusionEdge]:
        """The stored values read by other steps, with the reasons."""
        return [_Unfused(*x).explained() for x in self.unfused]


def schedule(graph: Graph, storage: Storage, dims: Dims) -> Schedule:
    """Group the stored values of `graph` into steps, in an order that respects their dependencies."""
    planner = _GroupScheduler(storage, dims)
    for node in graph.nodes:
        if storage.results.get(node) or (
            node in storage.reason and node not in storage.root_of and node.result_index is None
        ):
            planner.add(node)
    return Schedule(graph, storage, dims, _ordered(planner.groups), planner.unfused, planner.crowded)


class _GroupScheduler:
    def __init__(self, storage: Storage, dims: Dims):
        self.storage, self.dims = storage, dims
        self._handlers, self._stored = storage.handlers, storage.inputs.union(storage.reason)
        self.groups: list[FusionGroup] = []
        self.unfused: list[tuple[Any, ...]] = []
        self.crowded = False
        self._fuses = not disabled("kernel-fusion")
        self._open: dict[tuple[Poly, ...], list[FusionGroup]] = {}  # steps that others may join, by iteration space
        self._leaders = 0  # bitmask of steps that others depend on
        self._group_of: dict[GraphNode, FusionGroup] = {}
        self._reads: dict[GraphNode, dict[GraphNode, bool]] = {}

    def add(self, node: GraphNode) -> None:
        inputs = self.storage.inputs
        reads = {x: aligned for x, aligned in self._stored_reads(node).items() if x not in inputs}
        weight = self.storage.weight.get(node, 0)
        roots = self.storage.results.get(node) or [node]
        needs_own_loops = self._handlers[node].needs_own_loops or self.storage.reason.get(node) == EARLY
        group = FusionGroup(
            self._kind(node),
            self._domain(node),
            list(roots),
            len(self.groups),
            weight=weight,
            needs_own_loops=needs_own_loops,
        )
        obstacles = self._obstacles(group, reads)
        joined = self._join(group, obstacles)
        for x in reads:
            producer = self._group_of[x]
            if producer is not joined:
                self._order(producer, joined)
                reason = obstacles[producer] or ("" if joined is group else "fused with a later kernel instead")
                fits = bool(reason) or _fits(group, producer)
                self.unfused.append((x, roots[0], reason, (producer.domain, group.domain), fits))
        for root in roots:
            self._group_of[root] = joined

    def _kind(self, node: GraphNode) -> str:
        if node.regions:
            return "nested"
        return "call" if node in self.storage.called else self._handlers[node].step_kind

    def _domain(self, node: GraphNode) -> tuple[Poly, ...]:
        if node.is_multi_result:
            return ()
        return self.dims.space(self._handlers[node].space(node))

    def _stored_reads(self, node: GraphNode) -> dict[GraphNode, bool]:
        """The stored values that computing `node` reads; True if only at the same index."""
        aligned_op, stored, root_of = self._handlers[node].aligned, self._stored, self.storage.root_of
        table: dict[GraphNode, bool] = {}
        for x in node.operands:
            if x in stored:
                base = root_of.get(x, x)
                table[base] = aligned_op and base is x and table.get(base, True)
                continue
            reads = self._reads.get(x)
            if reads is None:
                reads = self._reads[x] = self._stored_reads(x)
            for y, aligned in reads.items():
                table[y] = aligned_op and aligned and table.get(y, True)
        return table

    def _join(self, group: FusionGroup, obstacles: dict[FusionGroup, str]) -> FusionGroup:
        """Fuse `group` into the latest step that can compute it, or return it as a new one."""
        joinable = self._fuses and _joinable(group)
        needed = 0
        for producer in obstacles:
            needed |= producer.before
        for candidate in reversed(self._open.get(group.domain, [])) if joinable else ():
            if obstacles.get(candidate) or needed >> candidate.number & 1:
                continue  # `group` depends on a step that must run after the one to join
            if _fits(group, candidate):
                candidate.roots += group.roots
                candidate.weight += group.weight
                return candidate
            self.crowded = True
        self.groups.append(group)
        if joinable:
            self._open.setdefault(group.domain, []).append(group)
        return group

    def _order(self, first: FusionGroup, then: FusionGroup) -> None:
        """Add a dependence: `first` must run before `then`, and before everything that depends on `then`."""
        then.deps.add(first)
        new = first.before | 1 << first.number
        self._leaders |= 1 << first.number
        if new & ~then.before:
            followed = self._leaders >> then.number & 1
            for group in self.groups if followed else ():
                if group.before >> then.number & 1:
                    group.before |= new
            then.before |= new

    def _obstacles(self, group: FusionGroup, reads: dict[GraphNode, bool]) -> dict[FusionGroup, str]:
        """For each step that `group` reads a result of: why the two cannot be fused; "" if they can."""
        table: dict[FusionGroup, str] = {}
        for x, aligned in reads.items():
            producer = self._group_of[x]
            table[producer] = table.get(producer) or self._obstacle(group, x, producer, aligned)
        return table

    def _obstacle(self, group: FusionGroup, x: GraphNode, producer: FusionGroup, aligned: bool) -> str:
        if group.kind != "kernel" or producer.kind != "kernel":
            return _between_kinds((group.kind, producer.kind))
        if group.needs_own_loops or producer.needs_own_loops:
            return "has a loop of its own"
        if self._handlers[x].late:
            return "needs the complete reduction"
        if not aligned:
            return "reads it at another index"
        if not self._fuses:
            return FUSION_DISABLED
        return SPACES_DIFFER if group.domain != producer.domain else ""


def _between_kinds(kinds: tuple[str, str]) -> str:
    """Why two steps cannot be fused if one of them is no kernel."""
    if "matmul" in kinds:
        return "BLAS computes whole matrices"
    return "NumPy is called for one of them" if "call" in kinds else "one of them runs regions"


def _fits(group: FusionGroup, candidate: FusionGroup) -> bool:
    return group.weight + candidate.weight <= HEAVIEST_GROUP and len(candidate.roots) < LARGEST_GROUP


def _joinable(group: FusionGroup) -> bool:
    """Whether a step may share its loops."""
    return group.kind == "kernel" and not group.needs_own_loops


def shared_by_groups(scheduled: Schedule) -> dict[GraphNode, str]:
    """The values to store because several steps would recompute them: they are expensive, or read many arrays. If there
    are none: the strided values that several steps would read."""
    storage = scheduled.storage
    stored = storage.inputs.union(storage.reason)
    group_masks: dict[GraphNode, int] = {}  # bitmask of the steps that compute a value
    for group in scheduled.groups:
        for root in group.roots:
            group_masks[root] = 1 << group.number
    shared: dict[GraphNode, int] = {}
    for node in reversed(scheduled.graph.nodes):
        bits = group_masks.get(node, 0)
        if bits:
            if bits & (bits - 1):
                shared[node] = bits
            for x in node.operands:
                if x not in stored:
                    group_masks[x] = group_masks.get(x, 0) | bits
    weight = storage.weight
    values, spared = ({}, {}) if scheduled.crowded else _many_operand_values(storage, stored, shared)
    expensive = [node for node in shared if weight.get(node, 0) - spared.get(node, 0) >= MIN_STORED_COST]
    values |= expensive_values(scheduled, {node: _numbers(shared[node]) for node in expensive})
    return values or {
        node: STRIDED_REREADS for node, bits in shared.items() if is_packing_profitable(node, bits.bit_count())
    }


def _many_operand_values(
    storage: Storage, stored: Set[GraphNode], shared: dict[GraphNode, int]
) -> tuple[dict[GraphNode, str], dict[GraphNode, int]]:
    """The values in `shared`, recomputed by several steps, to store because of their many operands; and the reads that
    their consumers save.

    All steps except the first then read one array instead of several; one array is written, which costs as much as two
    reads. A layer of a residual network therefore adds to the stored sum, and not to each term of all earlier layers.
    All layers then have the same kernels, whatever their number.
    """
    users, weight = storage.users, storage.weight
    table: dict[GraphNode, str] = {}
    spared: dict[GraphNode, int] = {}
    read: dict[GraphNode, set[GraphNode]] = {}  # the arrays of a value's size that it is computed from
    for node in reversed(shared):
        group_mask = shared[node]
        size, times = node.aval.size, group_mask.bit_count()
        arrays = read[node] = set[GraphNode]()
        for x in node.operands:
            if x.aval.size == size:
                arrays |= {x} if x in stored or x in table else read.get(x, set())
        if saved := [weight[x] for x in arrays if x in table]:
            spared[node] = max(saved)
        if (times - 1) * (len(arrays) - 1) > 3 and size > 1 and all(shared.get(x) != group_mask for x in users[node]):
            table[node] = f"{times} kernels would read {len(arrays)} arrays for it"
    return table, spared


def _numbers(bits: int) -> set[int]:
    result = set[int]()
    while bits:
        last = bits & -bits
        result.add(last.bit_length() - 1)
        bits ^= last
    return result


def expensive_values(scheduled: Schedule, indices: Mapping[GraphNode, set[int]]) -> dict[GraphNode, str]:
    """The values to store because they are recomputed at several indices; only the last value of a chain."""
    storage = scheduled.storage
    expensive = {
        n: p
        for n, p in indices.items()
        if len(p) > 1
        and storage.weight.get(n, 0) >= MIN_STORED_COST
        and n.aval.size > 1
        and not storage.stored(n)
        and n.op is not broadcast_to  # a materialized broadcast takes more memory than it saves
    }
    users = storage.users
    saved = [n for n, p in expensive.items() if not any(u in expensive and expensive[u] >= p for u in users[n])]
    return {n: f"used at {len(expensive[n])} places and dear to compute" for n in saved}


def _space(domain: tuple[Poly, ...]) -> str:
    return f"[{', '.join(map(str, domain))}]"


def _ordered(groups: list[FusionGroup]) -> list[FusionGroup]:
    order: list[FusionGroup] = []
    done: set[FusionGroup] = set()
    number = attrgetter("number")

    def visit(group: FusionGroup) -> None:
        stack = [(group, iter(sorted(group.deps, key=number)))]
        entered = {group}
        while stack:
            current, rest = stack[-1]
            for d in rest:
                if d not in done and d not in entered:
                    entered.add(d)
                    stack.append((d, iter(sorted(d.deps, key=number))))
                    break
            else:
                stack.pop()
                done.add(current)
                order.append(current)

    for group in groups:
        if group not in done:
            visit(group)
    return order
