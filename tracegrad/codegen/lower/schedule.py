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
from tracegrad.codegen.lower.materialize import DEAR, EARLY, Storage
from tracegrad.codegen.lower.packing_heuristic import is_worth_a_copy
from tracegrad.codegen.lower.symbolic_shapes import Dims
from tracegrad.ir import Graph, Node
from tracegrad.ops.shape.linear import broadcast_to
from tracegrad.settings import disabled
from tracegrad.target.tuning import TUNING
from tracegrad.utils.lazy_dataclass import record

__all__ = ["Edge", "Schedule", "Step", "dear_values", "schedule", "shared_by_steps"]

HEAVIEST_GROUP = TUNING.fusion.max_group_cost
LARGEST_GROUP = TUNING.fusion.max_group_values
LEFT_OUT = "kernel-fusion is left out"
SPACES_DIFFER = "iteration spaces differ"
GAPS = "lies apart, and is read several times"


@record(eq=False)
class Step:
    """One kernel or call: the values it stores and the steps it depends on."""

    kind: str  # "kernel", "matmul", "call" or "nested"
    domain: tuple[Poly, ...]
    roots: list[Node]  # the values it stores; the used results of a multi-result node
    number: int
    deps: set[Step] = field(default_factory=set, repr=False)  # transitive
    weight: int = 0
    alone: bool = False  # whether it never shares its loops
    before: int = 0  # bitmask of all predecessors


@record(frozen=True)
class Edge:
    """A stored value read by another step, and why the two were not fused."""

    producer: Node
    consumer: Node
    reason: str


class _Unfused(NamedTuple):
    """An edge between unfused steps; its explanation is formatted on demand."""

    producer: Node
    consumer: Node
    reason: str
    domains: tuple[tuple[Poly, ...], tuple[Poly, ...]]
    fits: bool  # whether a fused kernel would have been short enough

    def explained(self) -> Edge:
        reason = self.reason
        if reason == SPACES_DIFFER:
            reason = f"{reason}: {_space(self.domains[0])} and {_space(self.domains[1])}"
        if not reason and not self.fits:
            reason = "the kernel would be too long"
        return Edge(self.producer, self.consumer, reason or "needs a step that needs this one")


@record()
class Schedule:
    graph: Graph
    storage: Storage
    dims: Dims
    steps: list[Step]
    unfused: list[tuple[Any, ...]]  # arguments of `_Unfused`, created on demand
    crowded: bool  # whether some steps are unfused only because the kernel would be too long
    # Filled by lowering: the kernels and indices at which a value is computed.
    counts: dict[Node, set[Any]] = field(default_factory=lambda: defaultdict(set))

    @property
    def edges(self) -> list[Edge]:
        """The stored values read by other steps, with the reasons."""
        return [_Unfused(*x).explained() for x in self.unfused]


def schedule(graph: Graph, storage: Storage, dims: Dims) -> Schedule:
    """Group the stored values of `graph` into steps, in an order that respects their dependencies."""
    planner = _Planner(storage, dims)
    for node in graph.nodes:
        if storage.results.get(node) or (node in storage.reason and node not in storage.root_of and node.picks is None):
            planner.place(node)
    return Schedule(graph, storage, dims, _ordered(planner.steps), planner.unfused, planner.crowded)


class _Planner:
    def __init__(self, storage: Storage, dims: Dims):
        self.storage, self.dims = storage, dims
        self._handlers, self._stored = storage.handlers, storage.inputs.union(storage.reason)
        self.steps: list[Step] = []
        self.unfused: list[tuple[Any, ...]] = []
        self.crowded = False
        self._fuses = not disabled("kernel-fusion")
        self._open: dict[tuple[Poly, ...], list[Step]] = {}  # steps that others may join, by iteration space
        self._leaders = 0  # bitmask of steps that others depend on
        self._step_of: dict[Node, Step] = {}
        self._reads: dict[Node, dict[Node, bool]] = {}

    def place(self, node: Node) -> None:
        inputs = self.storage.inputs
        reads = {x: aligned for x, aligned in self._stored_reads(node).items() if x not in inputs}
        weight = self.storage.weight.get(node, 0)
        roots = self.storage.results.get(node) or [node]
        alone = self._handlers[node].alone or self.storage.reason.get(node) == EARLY
        step = Step(self._kind(node), self._domain(node), list(roots), len(self.steps), weight=weight, alone=alone)
        obstacles = self._obstacles(step, reads)
        joined = self._join(step, obstacles)
        for x in reads:
            producer = self._step_of[x]
            if producer is not joined:
                self._order(producer, joined)
                reason = obstacles[producer] or ("" if joined is step else "fused with a later kernel instead")
                fits = bool(reason) or _fits(step, producer)
                self.unfused.append((x, roots[0], reason, (producer.domain, step.domain), fits))
        for root in roots:
            self._step_of[root] = joined

    def _kind(self, node: Node) -> str:
        if node.regions:
            return "nested"
        return "call" if node in self.storage.called else self._handlers[node].step

    def _domain(self, node: Node) -> tuple[Poly, ...]:
        if node.several:
            return ()
        return self.dims.space(self._handlers[node].space(node))

    def _stored_reads(self, node: Node) -> dict[Node, bool]:
        """The stored values that computing `node` reads; True if only at the same index."""
        aligned_op, stored, root_of = self._handlers[node].aligned, self._stored, self.storage.root_of
        table: dict[Node, bool] = {}
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

    def _join(self, step: Step, obstacles: dict[Step, str]) -> Step:
        """Fuse `step` into the latest step that can compute it, or return it as a new one."""
        joinable = self._fuses and _joinable(step)
        needed = 0
        for producer in obstacles:
            needed |= producer.before
        for candidate in reversed(self._open.get(step.domain, [])) if joinable else ():
            if obstacles.get(candidate) or needed >> candidate.number & 1:
                continue  # `step` depends on a step that must run after the one to join
            if _fits(step, candidate):
                candidate.roots += step.roots
                candidate.weight += step.weight
                return candidate
            self.crowded = True
        self.steps.append(step)
        if joinable:
            self._open.setdefault(step.domain, []).append(step)
        return step

    def _order(self, first: Step, then: Step) -> None:
        """Add a dependence: `first` must run before `then`, and before everything that depends on `then`."""
        then.deps.add(first)
        new = first.before | 1 << first.number
        self._leaders |= 1 << first.number
        if new & ~then.before:
            followed = self._leaders >> then.number & 1
            for step in self.steps if followed else ():
                if step.before >> then.number & 1:
                    step.before |= new
            then.before |= new

    def _obstacles(self, step: Step, reads: dict[Node, bool]) -> dict[Step, str]:
        """For each step that `step` reads a result of: why the two cannot be fused; "" if they can."""
        table: dict[Step, str] = {}
        for x, aligned in reads.items():
            producer = self._step_of[x]
            table[producer] = table.get(producer) or self._obstacle(step, x, producer, aligned)
        return table

    def _obstacle(self, step: Step, x: Node, producer: Step, aligned: bool) -> str:
        if step.kind != "kernel" or producer.kind != "kernel":
            return _between_kinds((step.kind, producer.kind))
        if step.alone or producer.alone:
            return "has a loop of its own"
        if self._handlers[x].late:
            return "needs the complete reduction"
        if not aligned:
            return "reads it at another index"
        if not self._fuses:
            return LEFT_OUT
        return SPACES_DIFFER if step.domain != producer.domain else ""


def _between_kinds(kinds: tuple[str, str]) -> str:
    """Why two steps cannot be fused if one of them is no kernel."""
    if "matmul" in kinds:
        return "BLAS computes whole matrices"
    return "NumPy is called for one of them" if "call" in kinds else "one of them runs regions"


def _fits(step: Step, candidate: Step) -> bool:
    return step.weight + candidate.weight <= HEAVIEST_GROUP and len(candidate.roots) < LARGEST_GROUP


def _joinable(step: Step) -> bool:
    """Whether a step may share its loops."""
    return step.kind == "kernel" and not step.alone


def shared_by_steps(found: Schedule) -> dict[Node, str]:
    """The values to store because several steps would recompute them: they are expensive, or read many arrays. If there
    are none: the strided values that several steps would read."""
    storage = found.storage
    stored = storage.inputs.union(storage.reason)
    steps: dict[Node, int] = {}  # bitmask of the steps that compute a value
    for step in found.steps:
        for root in step.roots:
            steps[root] = 1 << step.number
    shared: dict[Node, int] = {}
    for node in reversed(found.graph.nodes):
        bits = steps.get(node, 0)
        if bits:
            if bits & (bits - 1):
                shared[node] = bits
            for x in node.operands:
                if x not in stored:
                    steps[x] = steps.get(x, 0) | bits
    weight = storage.weight
    values, spared = ({}, {}) if found.crowded else _of_many(storage, stored, shared)
    dear = [node for node in shared if weight.get(node, 0) - spared.get(node, 0) >= DEAR]
    values |= dear_values(found, {node: _numbers(shared[node]) for node in dear})
    return values or {node: GAPS for node, bits in shared.items() if is_worth_a_copy(node, bits.bit_count())}


def _of_many(storage: Storage, stored: Set[Node], shared: dict[Node, int]) -> tuple[dict[Node, str], dict[Node, int]]:
    """The values in `shared`, recomputed by several steps, to store because of their many operands; and the reads that
    their consumers save.

    All steps except the first then read one array instead of several; one array is written, which costs as much as two
    reads. A layer of a residual network therefore adds to the stored sum, and not to each term of all earlier layers.
    All layers then have the same kernels, whatever their number.
    """
    users, weight = storage.users, storage.weight
    table: dict[Node, str] = {}
    spared: dict[Node, int] = {}
    read: dict[Node, set[Node]] = {}  # the arrays of a value's size that it is computed from
    for node in reversed(shared):
        steps = shared[node]
        size, times = node.aval.size, steps.bit_count()
        arrays = read[node] = set[Node]()
        for x in node.operands:
            if x.aval.size == size:
                arrays |= {x} if x in stored or x in table else read.get(x, set())
        if saved := [weight[x] for x in arrays if x in table]:
            spared[node] = max(saved)
        if (times - 1) * (len(arrays) - 1) > 3 and size > 1 and all(shared.get(x) != steps for x in users[node]):
            table[node] = f"{times} kernels would read {len(arrays)} arrays for it"
    return table, spared


def _numbers(bits: int) -> set[int]:
    result = set[int]()
    while bits:
        last = bits & -bits
        result.add(last.bit_length() - 1)
        bits ^= last
    return result


def dear_values(found: Schedule, places: Mapping[Node, set[Any]]) -> dict[Node, str]:
    """The values to store because they are recomputed at several indices; only the last value of a chain."""
    storage = found.storage
    dear = {
        n: p for n, p in places.items()
        if len(p) > 1 and storage.weight.get(n, 0) >= DEAR and n.aval.size > 1 and not storage.stored(n)
        and n.op is not broadcast_to  # a materialized broadcast takes more memory than it saves
    }  # fmt: skip
    users = storage.users
    saved = [n for n, p in dear.items() if not any(u in dear and dear[u] >= p for u in users[n])]
    return {n: f"used at {len(dear[n])} places and dear to compute" for n in saved}


def _space(domain: tuple[Poly, ...]) -> str:
    return f"[{', '.join(map(str, domain))}]"


def _ordered(steps: list[Step]) -> list[Step]:
    order: list[Step] = []
    done: set[Step] = set()
    number = attrgetter("number")

    def visit(step: Step) -> None:
        stack = [(step, iter(sorted(step.deps, key=number)))]
        entered = {step}
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

    for step in steps:
        if step not in done:
            visit(step)
    return order
