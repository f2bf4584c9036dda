"""The schedule of a graph: which stored values are computed by one kernel, and in which order.

A kernel is one loop nest over an *iteration space*. Values stored by one kernel have the same iteration space (an
elementwise value its own shape, a reduction the shape of its operand) and none needs another whole: a value may use
what the same kernel computes at the same index, nothing else. Contractions are calls of BLAS, ops without codegen data
are calls of NumPy. Every edge between two steps has a reason why it was not fused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tracegrad.codegen.dims import Dims
from tracegrad.codegen.materialize import DEAR, Storage
from tracegrad.codegen.poly import Poly
from tracegrad.ir import Graph, Node

__all__ = ["Edge", "Schedule", "Step", "dear_values", "schedule", "shared_by_steps"]

HEAVIEST_GROUP = 4000
SPACES_DIFFER = "iteration spaces differ"
ALONE = ("scatter", "cumsum", "argreduce")


@dataclass(eq=False)
class Step:
    """One kernel or call: what it stores and which steps must come before."""

    kind: str  # "kernel", "matmul" or "call"
    domain: tuple[Poly, ...]
    roots: list[Node]
    deps: set[Step] = field(default_factory=set)
    weight: int = 0

    def before(self) -> set[Step]:
        """All steps that must run before this one."""
        found: set[Step] = set()
        stack = list(self.deps)
        while stack:
            step = stack.pop()
            if step not in found:
                found.add(step)
                stack.extend(step.deps)
        return found


@dataclass(frozen=True)
class Edge:
    """A stored value read by another step, and why the two were not fused."""

    producer: Node
    consumer: Node
    reason: str


@dataclass
class Schedule:
    graph: Graph
    storage: Storage
    dims: Dims
    steps: list[Step]
    edges: list[Edge]
    counts: dict[Node, set[Any]] = field(default_factory=dict)  # filled by lowering: where a value is computed


def schedule(graph: Graph, storage: Storage, dims: Dims) -> Schedule:
    """Group the stored values of `graph` into steps, in an order that respects their dependencies."""
    planner = _Planner(storage, dims)
    for node in graph.nodes:
        if node in storage.reason and node not in storage.root_of:
            planner.place(node)
    return Schedule(graph, storage, dims, _ordered(planner.steps), planner.edges)


class _Planner:
    def __init__(self, storage: Storage, dims: Dims):
        self.storage, self.dims = storage, dims
        self.steps: list[Step] = []
        self.edges: list[Edge] = []
        self._step_of: dict[Node, Step] = {}
        self._reads: dict[Node, dict[Node, bool]] = {}

    def place(self, node: Node) -> None:
        reads = self._stored_reads(node)
        step = Step(self._kind(node), self._domain(node), [node], weight=self.storage.weight.get(node, 0))
        joined, reasons = self._join(step, node, reads)
        for x in reads:
            if x in self.storage.inputs:
                continue
            producer = self._step_of[x]
            if producer is not joined:
                joined.deps.add(producer)
                self.edges.append(Edge(x, node, self._explained(reasons[producer], producer, step)))
        self._step_of[node] = joined

    def _kind(self, node: Node) -> str:
        assert node.op is not None
        return "call" if node in self.storage.called else "matmul" if node.op.kind == "matmul" else "kernel"

    def _domain(self, node: Node) -> tuple[Poly, ...]:
        assert node.op is not None
        source = node.inputs[0] if node.op.kind in ("reduction", "argreduce", "scatter") else node
        return tuple(d for d in self.dims.shape(source) if d != 1)

    def _stored_reads(self, node: Node) -> dict[Node, bool]:
        """Stored values that computing `node` reads; True where only at the same index."""
        assert node.op is not None
        aligned_op = node.op.kind in ("elementwise", "cast", "reduction") or node.name in (
            "fresh",
            "stop_gradient",
        )
        found: dict[Node, bool] = {}
        for x in node.operands:
            if self.storage.stored(x):
                base = self.storage.root_of.get(x, x)
                found[base] = found.get(base, True) and aligned_op and base is x
                continue
            if x not in self._reads:
                self._reads[x] = self._stored_reads(x)
            for y, aligned in self._reads[x].items():
                found[y] = found.get(y, True) and aligned and aligned_op
        return found

    def _join(self, step: Step, node: Node, reads: dict[Node, bool]) -> tuple[Step, dict[Step, str]]:
        reasons = {self._step_of[x]: self._obstacle(step, node, self._step_of[x], reads)
                   for x in reads if x not in self.storage.inputs}  # fmt: skip
        for candidate in reversed(self.steps):
            if not (reasons.get(candidate) or self._obstacle(step, node, candidate, reads)):
                candidate.roots.append(node)
                candidate.weight += step.weight
                return candidate, reasons
        self.steps.append(step)
        return step, reasons

    def _obstacle(self, step: Step, node: Node, other: Step, reads: dict[Node, bool]) -> str:
        """Why `node` cannot be computed by `other`; empty if it can."""
        for kind, reason in (
            ("matmul", "BLAS computes whole matrices"),
            ("call", "NumPy is called for one of them"),
        ):
            if kind in (step.kind, other.kind):
                return reason
        if node.op.kind in ALONE or other.roots[0].op.kind in ALONE:  # type: ignore[union-attr]
            return "has a loop of its own"
        if obstacle := self._data_obstacle(other, reads):
            return obstacle
        if step.domain != other.domain:
            return SPACES_DIFFER
        if step.weight + other.weight > HEAVIEST_GROUP:
            return "the kernel would be too long"
        producers = {self._step_of[x] for x in reads if x not in self.storage.inputs} - {other}
        if any(other in p.before() for p in producers):
            return "needs a step that needs this one"
        return ""

    @staticmethod
    def _explained(reason: str, producer: Step, step: Step) -> str:
        if reason == SPACES_DIFFER:
            return f"{reason}: {_space(producer.domain)} and {_space(step.domain)}"
        return reason or "another kernel computes it already"

    def _data_obstacle(self, other: Step, reads: dict[Node, bool]) -> str:
        for x, aligned in reads.items():
            if x in self.storage.inputs or self._step_of[x] is not other:
                continue
            if x.op.kind == "reduction":  # type: ignore[union-attr]
                return "needs the complete reduction"
            if not aligned:
                return "reads it at another index"
        return ""


def shared_by_steps(found: Schedule) -> dict[Node, str]:
    """Values that are not stored, that several steps would compute, and that are too dear for that."""
    storage = found.storage
    steps: dict[Node, set[Step]] = {}
    for step in found.steps:
        stack = [x for root in step.roots for x in root.operands]
        while stack:
            node = stack.pop()
            users = steps.setdefault(node, set())
            if step not in users and not storage.stored(node):
                users.add(step)
                stack.extend(node.operands)
    return dear_values(found, steps)


def dear_values(found: Schedule, places: Mapping[Node, set[Any]]) -> dict[Node, str]:
    """Of the values computed at several of `places`, those worth storing; of a chain of such, the last."""
    storage = found.storage
    dear = {
        n: p for n, p in places.items()
        if len(p) > 1 and n.aval.size > 1 and storage.weight.get(n, 0) >= DEAR and not storage.stored(n)
    }  # fmt: skip
    users = found.graph.users() if dear else {}
    kept = [n for n, p in dear.items() if not any(u in dear and dear[u] >= p for u in users[n])]
    return {n: f"used at {len(dear[n])} places and dear to compute" for n in kept}


def _space(domain: tuple[Poly, ...]) -> str:
    return f"[{', '.join(map(str, domain))}]"


def _ordered(steps: list[Step]) -> list[Step]:
    order: list[Step] = []
    done: set[Step] = set()

    def visit(step: Step) -> None:
        stack = [(step, iter(sorted(step.deps, key=steps.index)))]
        entered = {step}
        while stack:
            current, rest = stack[-1]
            for d in rest:
                if d not in done and d not in entered:
                    entered.add(d)
                    stack.append((d, iter(sorted(d.deps, key=steps.index))))
                    break
            else:
                stack.pop()
                done.add(current)
                order.append(current)

    for step in steps:
        if step not in done:
            visit(step)
    return order
