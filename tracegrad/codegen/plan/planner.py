"""Plan a program: schedule a graph, lower every fusion group to a step, and optimize the plan.

If a kernel would compute expensive values several times, or read a base after its update, these values are stored, and
the graph is scheduled again.
"""

from __future__ import annotations

import math
from collections.abc import Collection

import numpy as np

from tracegrad.codegen.kernels.loop_order import arrange, is_serial
from tracegrad.codegen.loopir.kernel import Kernel, Reduce
from tracegrad.codegen.loopir.polynomial import ONE
from tracegrad.codegen.loopir.random_draws import native_of
from tracegrad.codegen.loopir.steps import CallStep, FusionGroup, Launch, Matmul
from tracegrad.codegen.lower import kernel_cache
from tracegrad.codegen.lower.form_rules import handler, same_block
from tracegrad.codegen.lower.lower import Lowering, RuntimeArguments
from tracegrad.codegen.lower.materialize import Storage
from tracegrad.codegen.lower.matmul_layout import factors_of, layout_of
from tracegrad.codegen.lower.schedule import expensive_values, schedule, shared_by_groups
from tracegrad.codegen.lower.symbolic_shapes import Dims
from tracegrad.codegen.plan.donation import fails_late
from tracegrad.codegen.plan.in_place import read_too_late
from tracegrad.codegen.plan.partition import chunked_loop
from tracegrad.codegen.plan.pipeline import Snapshots, optimize_plan
from tracegrad.codegen.plan.places_and_values import ARENA, CHECK, InputPlace, OutputPlace
from tracegrad.codegen.plan.program_plan import Plan, PlanStep
from tracegrad.codegen.plan.region_steps import (
    RegionContext,
    bytes_of,
    nested_step,
)
from tracegrad.ir import Graph, GraphNode
from tracegrad.ops.shape.linear import fresh
from tracegrad.settings import disabled
from tracegrad.target.tuning import TUNING

RELEASE_GIL_COST = TUNING.threads.release_gil_cost


def plan(
    graph: Graph, checked: bool = False, donated: Collection[int] = (), snapshots: Snapshots | None = None
) -> Plan:
    """Plan `graph`: schedule it, lower every step, allocate the buffers and compute the run-time values. If `checked`,
    the last output is a check: the program fails if it is False. Inputs that are `donated` may be overwritten.
    `snapshots` receives the texts of the plan, and of its regions before it, after each pass."""
    result = _ProgramPlanner(donated, snapshots).plan(graph)
    if donated and fails_late(result, checked):
        result = _ProgramPlanner(snapshots=snapshots).plan(graph)
    if checked:
        result.memory[result.buffers[result.graph.outputs[-1]]] = CHECK
        result.check, result.arena_bytes = result.arena_bytes, result.arena_bytes + 64
    return result


class _ProgramPlanner:
    """Planner of a graph and its regions; equal regions share one plan."""

    def __init__(self, donated: Collection[int] = (), snapshots: Snapshots | None = None) -> None:
        self._regions: dict[tuple[Graph, int, bool], Plan] = {}
        self._donated, self._snapshots = donated, snapshots

    def plan(self, graph: Graph, carries: int = -1, is_scanned: bool = False) -> Plan:
        """Plan a graph, or a region with this number of `carries`, inputs that outputs replace; `is_scanned` says
        whether it is the body of a scan."""
        graph = with_distinct_outputs(graph)
        dims = Dims(graph, max(carries, 0))
        also: dict[GraphNode, str] = {}
        while True:
            result = _attempt(graph, dims, also, self)
            result.is_region, result.is_scanned = carries >= 0, is_scanned
            result.carries, result.donated = max(carries, 0), self._donated
            expensive = _recomputed(result) or read_too_late(result)
            if not expensive:
                break
            also |= expensive
        optimize_plan(result, self._snapshots)
        return result

    def region(self, graph: Graph, carries: int, is_scanned: bool) -> Plan:
        """The plan of a region."""
        key = graph, carries, is_scanned
        if key not in self._regions:
            self._regions[key] = self.plan(*key)
        return self._regions[key]


def with_distinct_outputs(graph: Graph) -> Graph:
    """Copy every output that is an input or an earlier output, because results never share memory."""
    seen = set(graph.inputs)
    nodes, outputs = list(graph.nodes), []
    for i, x in enumerate(graph.outputs):
        if x in seen:
            x = GraphNode(fresh, (x,), (("tag", i),), x.aval)
            nodes.append(x)
        seen.add(x)
        outputs.append(x)
    return Graph(graph.inputs, tuple(nodes), tuple(outputs))


def _attempt(graph: Graph, dims: Dims, also: dict[GraphNode, str], planner: _ProgramPlanner) -> Plan:
    storage = Storage(graph, also)
    result = schedule(graph, storage, dims)
    while shared := shared_by_groups(result):
        also |= shared
        storage = Storage(graph, also, storage)
        result = schedule(graph, storage, dims)
    output = Plan(graph, result, RuntimeArguments(dims.values))
    _name_buffers(output, storage)
    for group in output.schedule.groups:
        output.steps.append(_lowered(output, group, storage, dims, planner))
    return output


def _name_buffers(result: Plan, storage: Storage) -> None:
    graph = result.graph
    for i, x in enumerate(graph.inputs):
        result.buffers[x], result.memory[f"b{i}"] = f"b{i}", InputPlace(i)
    owners = {
        storage.root_of.get(x, x): i for i, x in reversed(list(enumerate(graph.outputs))) if x not in storage.inputs
    }
    for node in graph.nodes:
        if node in storage.reason and node not in storage.root_of:
            name = f"b{len(result.memory)}"
            result.buffers[node] = name
            result.memory[name] = OutputPlace(owners[node]) if node in owners else ARENA
    for alias, base in storage.root_of.items():
        result.buffers[alias] = result.buffers[base]


def _lowered(result: Plan, group: FusionGroup, storage: Storage, dims: Dims, planner: _ProgramPlanner) -> PlanStep:
    if group.kind == "matmul":
        return _matmul(result, group, storage, dims)
    if group.kind == "call":
        number = sum(isinstance(s, CallStep) for s in result.steps)
        node, outs = _outs(result, group.roots)
        native = None if disabled("native-draws") else native_of(node)
        return CallStep(group, number, node, outs, tuple(_block_of(result, x) for x in node.operands), native)
    if group.kind == "nested":
        node, outs = _outs(result, group.roots)
        operands = list(node.operands)
        return nested_step(
            RegionContext(group, operands, [_block_of(result, x) for x in operands], outs, dims, node, planner.region)
        )
    kernel, serial = _kernel(result, group.roots, storage, dims)
    partials = {
        x.buffer: x.size for x in kernel.body if type(x) is Reduce and not x.scatters and kernel.across_chunks in x.over
    }
    launch = Launch(group, kernel, serial, partials)
    if (base := handler(group.roots[0]).initialized_from(group.roots[0])) is not None:
        launch.base, launch.bytes = _block_of(result, base), bytes_of(dims.shape(base), base.aval)
    return launch


def _kernel(result: Plan, roots: list[GraphNode], storage: Storage, dims: Dims) -> tuple[Kernel, bool]:
    """The kernel that stores `roots`, and whether it is serial."""
    arguments, counts = result.arguments, result.schedule.counts
    arguments.requested.clear()
    pattern = kernel_cache.Pattern(roots, storage, dims, result.buffers)
    results = kernel_cache.known(pattern, arguments, counts)
    if results is None:
        lowering = Lowering(storage, dims, result.buffers, arguments, counts)
        kernel = arrange(lowering.lower_kernel(roots))
        kernel.chunked = chunked_loop(kernel, arguments.sizes)
        results = kernel, bool(kernel.loops) and is_serial(kernel)
        kernel_cache.note(pattern, lowering, results[1])
    return results


def _outs(result: Plan, roots: list[GraphNode]) -> tuple[GraphNode, tuple[str, ...]]:
    """The node with the results `roots`, and their buffers; "" for an unused result."""
    if roots[0].result_index is None:
        return roots[0], (result.buffers[roots[0]],)
    node = roots[0].operands[0]
    named = {root.result_index: result.buffers[root] for root in roots}
    return node, tuple([named.get(i, "") for i in range(len(node.results))])


def _block_of(result: Plan, node: GraphNode) -> str:
    while node not in result.buffers:
        assert same_block(node), node.name
        node = node.inputs[0]
    return result.buffers[node]


def _matmul(result: Plan, group: FusionGroup, storage: Storage, dims: Dims) -> Matmul:
    (node,) = group.roots
    factors = factors_of(storage, node)
    layout, flipped = layout_of(node, factors, storage.transposed.get(node), dims)
    x, y = [(_block_of(result, view.block), view.flipped) for view in factors]
    *batch_sizes, m, n = dims.shape(node)
    k = dims.shape(node.inputs[0])[-1]
    if flipped:  # (x y)' = y' x'
        x, y, m, n = (y[0], not y[1]), (x[0], not x[1]), n, m
    dtype = "f64" if node.aval.dtype == np.float64 else "f32"
    sizes = (math.prod(batch_sizes, start=ONE), m, n, k)
    out, tiles = result.buffers[node], not disabled("native-gemm")
    return Matmul(group, dtype, out, x, y, sizes, layout[:3], layout.within, node, tiles=tiles)


def _recomputed(result: Plan) -> dict[GraphNode, str]:
    """The values that kernels compute at several indices and that are too expensive for that."""
    return expensive_values(result.schedule, result.schedule.counts)
