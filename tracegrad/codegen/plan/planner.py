"""Plan a program: everything that the code of a scheduled graph, and one call of it, needs.

The plan separates shape-dependent values from the rest. `text()` shows everything that determines the machine code.
Sizes, offsets, constants and the chunking of loops are *values*: int64 numbers that the program reads at run time. Two
graphs with one text share their machine code.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from tracegrad.codegen.kernels.early_exit import stop_early
from tracegrad.codegen.kernels.loop_order import arrange, is_serial
from tracegrad.codegen.loopir.kernel import Compute, Kernel, Reduce, Store, accesses, flattened
from tracegrad.codegen.loopir.polynomial import ONE, Poly
from tracegrad.codegen.loopir.random_draws import native_of
from tracegrad.codegen.loopir.steps import CallStep, Launch, Matmul, number_call_steps
from tracegrad.codegen.lower import kernel_cache
from tracegrad.codegen.lower.form_rules import handler, same_block
from tracegrad.codegen.lower.lower import Lowering, RuntimeArguments
from tracegrad.codegen.lower.materialize import Storage
from tracegrad.codegen.lower.matmul_layout import factors_of, layout_of
from tracegrad.codegen.lower.schedule import FusionGroup, Schedule, expensive_values, schedule, shared_by_groups
from tracegrad.codegen.lower.symbolic_shapes import Dims
from tracegrad.codegen.plan.arena import Arena
from tracegrad.codegen.plan.buffer_places import ARENA, CHECK, BufferPlace, InputPlace, OutputPlace, StackPlace
from tracegrad.codegen.plan.buffer_reuse import reuse_dying_buffers
from tracegrad.codegen.plan.donation import donate, fails_late
from tracegrad.codegen.plan.fused_arg_reduction import fuse_arg_reductions
from tracegrad.codegen.plan.gemm_accumulate import accumulate_products
from tracegrad.codegen.plan.in_place import read_too_late, update_in_place, write_in_place
from tracegrad.codegen.plan.inline_one_hot_scatter import inline_one_hot_scatters
from tracegrad.codegen.plan.loop_splitting import split_kernels
from tracegrad.codegen.plan.partition import chunked_loop, cut
from tracegrad.codegen.plan.region_steps import (
    Looping,
    Nested,
    RegionContext,
    WhileStep,
    bytes_of,
    nested_step,
    on_stack,
    regions_of,
)
from tracegrad.codegen.plan.scan_strip_mining import Strips, strips_of
from tracegrad.codegen.plan.scatter_accumulate import accumulate_scatters
from tracegrad.codegen.plan.strip_fusion import Band, allocate_locals, bands_of
from tracegrad.codegen.plan.wavefront import WavefrontTiling, waves_of
from tracegrad.codegen.plan.word_name import WordName, offset_word, partial_word
from tracegrad.codegen.vecmath import RARE
from tracegrad.ir import Graph, GraphNode
from tracegrad.ops.shape.linear import fresh
from tracegrad.settings import disabled
from tracegrad.target.tuning import TUNING
from tracegrad.utils.lazy_dataclass import record

__all__ = ["Plan", "calls_of", "functions_of", "plan", "plans_of", "rare_functions"]

RELEASE_GIL_COST = TUNING.threads.release_gil_cost


@record()
class Plan:
    """The steps in order, the buffers, and the run-time values by name."""

    graph: Graph
    schedule: Schedule
    arguments: RuntimeArguments
    steps: list[Launch | Matmul | CallStep | Nested] = field(default_factory=list)
    buffers: dict[GraphNode, str] = field(default_factory=dict)
    memory: dict[str, BufferPlace] = field(default_factory=dict)
    fills: dict[int, list[tuple[str, str, str, Poly]]] = field(default_factory=dict)
    values: dict[WordName, int] = field(default_factory=dict)
    check: int = -1  # the arena offset of the check (the last output; the program fails if false); or -1
    carries: int = 0  # the number of carries of a region, which are its first inputs
    strips: Strips | None = None  # strip-mining of a loop body
    waves: WavefrontTiling | None = None  # wavefront tiling of a loop body
    bands: list[Band] = field(default_factory=list)  # steps that run together, strip by strip
    donors: dict[int, int] = field(default_factory=dict)  # output -> the donated input whose memory it reuses
    in_place: set[int] = field(default_factory=set)  # carries of a region that are updated in place
    arena_bytes: int = 0
    cost: int = 0

    def text(self) -> str:
        """The text on which the machine code depends."""
        lines = [f"{name}: {place}" for name, place in self.memory.items()]
        lines += ["in strips"] if self.strips else ["in waves"] if self.waves else []
        lines += [f"in place: {', '.join(map(str, sorted(self.in_place)))}"] if self.in_place else []
        lines.append(f"values: {', '.join(map(str, self.values))}")
        for i, step in enumerate(self.steps):
            lines += [f"fill {b}: {dtype} of {size} for {c}" for b, dtype, c, size in self.fills.get(i, [])]
            lines.append(step.text())
        return "\n".join(lines)

    def is_temporary(self, name: str) -> bool:
        """Whether a buffer is memory of the arena."""
        return self.memory[name] is ARENA

    def users(self) -> dict[str, list[int]]:
        """The positions of the steps that read or write each buffer."""
        table: dict[str, list[int]] = {name: [] for name in self.memory}
        for i, step in enumerate(self.steps):
            for name in dict.fromkeys(step.buffers):
                table[name].append(i)
        return table

    def elements(self, names: Collection[str]) -> set[Poly]:
        """The numbers of elements of these buffers."""
        return self.sizes([node for node, name in self.buffers.items() if name in names])

    def sizes(self, nodes: Iterable[GraphNode]) -> set[Poly]:
        """The numbers of elements of these values."""
        return {math.prod(self.schedule.dims.shape(node), start=ONE) for node in nodes}

    def move(self, first: int, last: int) -> None:
        """Move a step from position `first` to `last`."""
        for steps in (self.steps, self.schedule.groups):
            steps.insert(last, steps.pop(first))  # type: ignore[arg-type]

    def reorder(self, order: Sequence[int]) -> None:
        """Reorder the steps by their positions in `order`."""
        self.steps[:] = [self.steps[i] for i in order]
        self.schedule.groups[:] = [self.schedule.groups[i] for i in order]
        number_call_steps(self.steps)


def plan(graph: Graph, checked: bool = False, donated: Collection[int] = ()) -> Plan:
    """Plan `graph`: schedule it, lower every step, allocate the buffers and compute the run-time values. If `checked`,
    the last output is a check: the program fails if it is False. Inputs that are `donated` may be overwritten."""
    result = _ProgramPlanner(donated).plan(graph)
    if donated and fails_late(result, checked):
        result = _ProgramPlanner().plan(graph)
    if checked:
        result.memory[result.buffers[result.graph.outputs[-1]]] = CHECK
        result.check, result.arena_bytes = result.arena_bytes, result.arena_bytes + 64
    return result


class _ProgramPlanner:
    """Planner of a graph and its regions; equal regions share one plan."""

    def __init__(self, donated: Collection[int] = ()) -> None:
        self._regions: dict[tuple[Graph, int], Plan] = {}
        self._donated = donated

    def plan(self, graph: Graph, carries: int = -1) -> Plan:
        """Plan a graph, or a region with this number of `carries`, inputs that outputs replace."""
        nested = carries >= 0
        graph = with_distinct_outputs(graph)
        dims = Dims(graph, max(carries, 0))
        also: dict[GraphNode, str] = {}
        while True:
            result = _attempt(graph, dims, also, self)
            result.carries = max(carries, 0)
            expensive = _recomputed(result) or read_too_late(result)
            if not expensive:
                break
            also |= expensive
        _forget_unread(result)
        fuse_arg_reductions(result)
        stop_early(result.steps, result.arguments.sizes)
        write_in_place(result)
        if nested:
            update_in_place(result, dims)
        else:
            donate(result, self._donated)
        accumulate_products(result)
        if nested:
            if strips_of(result) is not None or waves_of(result) is None:  # waves need whole rows
                split_kernels(result)
            _to_stack(result, dims)
            result.strips = strips_of(result)
            result.waves = None if result.strips else waves_of(result)
        else:
            accumulate_scatters(result)
            inline_one_hot_scatters(result)
            split_kernels(result)
            reuse_dying_buffers(result)
            result.bands = bands_of(result)
        cut(result)
        _allocate(result, nested)
        return result

    def region(self, graph: Graph, carries: int) -> Plan:
        """The plan of a region."""
        if (graph, carries) not in self._regions:
            self._regions[graph, carries] = self.plan(graph, carries)
        return self._regions[graph, carries]


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


def _forget_unread(result: Plan) -> None:
    """Remove the stores of temporaries that are only used in the kernel that computes them (dead store elimination)."""
    if disabled("dead-store-elimination"):
        return
    unread: dict[str, int] = {}
    for name, users in result.users().items():
        step = result.steps[users[0]] if len(users) == 1 and result.is_temporary(name) else None
        if not isinstance(step, Launch) or step.base:
            continue
        if all(isinstance(x, Store) for x in accesses(step.kernel.body) if x.buffer == name):
            unread[name] = users[0]
    for name, i in unread.items():
        step, planned = result.steps[i], result.schedule.groups[i]
        assert isinstance(step, Launch)
        kernel = step.kernel
        kernel.body[:] = [x for x in kernel.body if not (isinstance(x, Store) and x.buffer == name)]
        del kernel.buffers[name], result.memory[name]
        kernel.cost -= 1
        removed = [x for x, buffer in result.buffers.items() if buffer == name]
        planned.roots = step.roots = [x for x in planned.roots if x not in removed]
        for x in removed:
            del result.buffers[x]


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


def _lowered(
    result: Plan, group: FusionGroup, storage: Storage, dims: Dims, planner: _ProgramPlanner
) -> Launch | Matmul | CallStep | Nested:
    if group.kind == "matmul":
        return _matmul(result, group.roots[0], storage, dims)
    if group.kind == "call":
        number = sum(isinstance(s, CallStep) for s in result.steps)
        node, outs = _outs(result, group.roots)
        native = None if disabled("native-draws") else native_of(node)
        return CallStep(number, node, outs, tuple(_block_of(result, x) for x in node.operands), native)
    if group.kind == "nested":
        node, outs = _outs(result, group.roots)
        operands = list(node.operands)
        return nested_step(
            RegionContext(operands, [_block_of(result, x) for x in operands], outs, dims, node, planner.region)
        )
    kernel, serial = _kernel(result, group.roots, storage, dims)
    partials = {
        x.buffer: x.size for x in kernel.body if type(x) is Reduce and not x.scatters and kernel.across_chunks in x.over
    }
    launch = Launch(kernel, group.roots, serial, partials)
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


def _matmul(result: Plan, node: GraphNode, storage: Storage, dims: Dims) -> Matmul:
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
    return Matmul(dtype, out, x, y, sizes, layout[:3], layout.within, node, tiles=tiles)


def _recomputed(result: Plan) -> dict[GraphNode, str]:
    """The values that kernels compute at several indices and that are too expensive for that."""
    return expensive_values(result.schedule, result.schedule.counts)


# -- run-time values -----------------------------------------------------------------------------------
def _to_stack(result: Plan, dims: Dims) -> None:
    """Put the small temporaries of a region on the stack, where LLVM promotes them to registers."""
    for node, name in result.buffers.items():
        if result.is_temporary(name) and on_stack(dims.shape(node), node.aval):
            result.memory[name] = StackPlace(node.aval.nbytes)


_FIRST_CALL = WordName("calls")  # the program-wide number of the first call of a region


def _allocate(result: Plan, nested: bool) -> None:
    """Allocate temporaries and partial results in the arena; buffers with disjoint live intervals share memory."""
    arena = Arena()
    values = _offsets(result, arena)
    values |= arena.improve()
    for band in result.bands:
        allocate_locals(result, band)
    result.arena_bytes = arena.top
    constants = {name: _bits(dtype, value) for name, (dtype, value) in result.arguments.constants.items()}
    symbols = {**result.arguments.sizes, **constants}
    result.values = {WordName(name): value for name, value in symbols.items()} | values
    result.values |= {
        WordName(name): 0 for i, step in enumerate(result.steps) for name in functions_of(step, result.fills.get(i, ()))
    }
    if nested and any(isinstance(step, CallStep) for step in result.steps):
        result.values[_FIRST_CALL] = 0
    _add_region_values(result)


def _offsets(result: Plan, arena: Arena) -> dict[WordName, int]:
    """The words of steps and buffers: arena offsets of temporaries and partial results, and the partition of steps."""
    needed = {name: n.aval.nbytes for n, name in result.buffers.items() if result.is_temporary(name)}
    ends = {i: band.last for band in result.bands for i in band.steps}  # all steps of a band end together
    temps = [[n for n in step.buffers if n in needed] for step in result.steps]
    ending: dict[int, list[WordName]] = {}
    for name, i in {name: ends.get(i, i) for i, names in enumerate(temps) for name in names}.items():
        ending.setdefault(i, []).append(offset_word(name))
    local = {name for band in result.bands for name in band.local}
    allocated = set[str]()
    values: dict[WordName, int] = {}
    reuses = not disabled("arena-reuse")
    for i, step in enumerate(result.steps):
        for name in sorted({n for n in temps[i] if n not in allocated}):
            value_name = offset_word(name)
            values[value_name] = 0 if name in local else arena.allocate(value_name, needed[name])
        allocated.update(temps[i])
        if isinstance(step, Launch):
            values |= _chunk_values(result, i, step, arena)
            if step.partials:
                ending.setdefault(ends.get(i, i), []).extend([partial_word(i, name) for name in step.partials])
        elif isinstance(step, Nested):
            values |= _nested_values(result, i, step, arena)
        if i in ending and reuses:
            arena.free_all(ending[i])
    return values


def _nested_values(result: Plan, i: int, step: Nested, arena: Arena) -> dict[WordName, int]:
    """The run-time values of step `i` itself, and the offsets of its memory while it runs."""
    values = {WordName(name, i): value for name, value in step.runtime_values().items()}
    scratch = {WordName(name, i): size.evaluate(result.arguments.sizes) for name, size in step.scratch().items()}
    scratch[WordName("arena", i)] = step.arena_bytes
    for name, size in scratch.items():
        values[name] = arena.allocate(name, size)
    for name in scratch:
        arena.free(name)
    return values


def _add_region_values(result: Plan) -> None:
    """Append the run-time values of each region as a block."""
    calls = sum(isinstance(step, CallStep) for step in result.steps)
    for i, step in enumerate(result.steps):
        for region, inner in regions_of(step):
            for name, value in inner.values.items():
                first_call = calls if name.field == _FIRST_CALL.field else 0
                result.values[name.within(i, region)] = value + first_call
            calls += len(calls_of(inner))


def plans_of(result: Plan) -> Iterator[Plan]:
    """`result` and the plans of all regions in it."""
    yield result
    for step in result.steps:
        for _, region in regions_of(step):
            yield from plans_of(region)


def calls_of(result: Plan) -> list[CallStep]:
    """The calls of a plan and of its regions, in the order of their numbers."""
    return [step for each in plans_of(result) for step in each.steps if isinstance(step, CallStep)]


def functions_of(step: Any, fills: Sequence[Any]) -> list[str]:
    """The functions whose addresses are run-time values of a step (`tracegrad.codegen.instr.support`)."""
    names: list[str] = []
    if isinstance(step, CallStep) or (isinstance(step, WhileStep) and step.stacked):
        names.append("callback")
    if isinstance(step, Looping):
        names += step.functions
    elif isinstance(step, Launch):
        names += [f"tg_fill.{dtype}" for _, dtype, _, _ in fills]
        if step.kernel.loops and not step.serial:
            names += ["tg_chunks", "tg_parallel_for"]
            reductions = [x for x in step.kernel.body if isinstance(x, Reduce) and x.buffer in step.partials]
            names += [f"tg_combine.{x.combiner}.{x.value.dtype}" for x in reductions]
    return names


def _chunk_values(result: Plan, i: int, step: Launch, arena: Arena) -> dict[WordName, int]:
    """The partition of step `i`, and the offsets of its partial results, which live until the step, or its band, has
    run."""
    partition = {"rows": step.chunk_rows, "chunks": step.chunks, "parallel": int(step.parallel)}
    values = {WordName(name, i): value for name, value in partition.items()}
    for name, size in step.partials.items():
        needed = step.chunks * size.evaluate(result.arguments.sizes) * 8 if step.chunks > 1 else 0
        value_name = partial_word(i, name)
        values[value_name] = arena.allocate(value_name, needed)
    return values


def _bits(dtype: str, value: Any) -> int:
    if dtype == "f32":
        value = float(np.float32(value))
    bits = struct.pack("<d", value) if dtype[0] == "f" else struct.pack("<Q", int(value) % 2**64)
    word: int = struct.unpack("<q", bits)[0]
    return word


def rare_functions(result: Plan) -> set[str]:
    """The symbols of the out-of-line functions of the kernels (`vecmath.rare_module`)."""
    steps = [s for each in plans_of(result) for s in each.steps]
    instructions = [x for s in steps if isinstance(s, Launch) for x in flattened(s.kernel.body)]
    return {f"tg.rare_{x.op}.{x.out.dtype}" for x in instructions if isinstance(x, Compute) and x.op in RARE}
