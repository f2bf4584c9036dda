"""Define the plan of a program: everything that the code of a scheduled graph, and one call of it, needs.

The plan separates shape-dependent values from the rest. `text()` shows everything that determines the machine code.
Sizes, offsets, constants and the chunking of loops are *values*: int64 numbers that the program reads at run time. Two
graphs with one text share their machine code.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import field

from tracegrad.codegen.loopir.blocking import SERIAL, SHARES, IterationBlocking
from tracegrad.codegen.loopir.kernel import Compute, Reduce, flattened
from tracegrad.codegen.loopir.polynomial import ONE, Poly
from tracegrad.codegen.loopir.steps import CallStep, Launch, Matmul, number_call_steps
from tracegrad.codegen.lower.lower import RuntimeArguments
from tracegrad.codegen.lower.schedule import Schedule
from tracegrad.codegen.plan.places_and_values import ARENA, BufferPlace, ValueName
from tracegrad.codegen.plan.region_steps import Looping, Nested, WhileStep, regions_of
from tracegrad.codegen.plan.strip_fusion import StripFusion
from tracegrad.codegen.vecmath import RARE
from tracegrad.ir import Graph, GraphNode
from tracegrad.utils.lazy_dataclass import record

PlanStep = Launch | Matmul | CallStep | Nested


@record()
class Plan:
    """The steps in order, the buffers, and the run-time values by name."""

    graph: Graph
    schedule: Schedule
    arguments: RuntimeArguments
    steps: list[PlanStep] = field(default_factory=list)
    buffers: dict[GraphNode, str] = field(default_factory=dict)
    memory: dict[str, BufferPlace] = field(default_factory=dict)
    values: dict[ValueName, int] = field(default_factory=dict)
    check: int = -1  # the arena offset of the check (the last output; the program fails if false); or -1
    is_region: bool = False
    is_scanned: bool = False  # whether it is the body of a scan, whose iterations may run in blocks
    carries: int = 0  # the number of carries of a region, which are its first inputs
    donated: Collection[int] = ()  # the inputs that may be overwritten
    blocking: IterationBlocking = SERIAL  # of a scan body
    strip_fusions: list[StripFusion] = field(default_factory=list)  # steps that run together, strip by strip
    donors: dict[int, int] = field(default_factory=dict)  # output -> the donated input whose memory it reuses
    in_place: set[int] = field(default_factory=set)  # carries of a region that are updated in place
    arena_bytes: int = 0
    cost: int = 0

    def text(self) -> str:
        """The text on which the machine code depends."""
        lines = [f"{name}: {place}" for name, place in self.memory.items()]
        lines += [f"in {self.blocking.strategy}"] if self.blocking.strategy not in ("", SHARES) else []
        lines += [f"in place: {', '.join(map(str, sorted(self.in_place)))}"] if self.in_place else []
        lines.append(f"values: {', '.join(map(str, self.values))}")
        return "\n".join([*lines, *(step.text() for step in self.steps)])

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

    def sizes(self, nodes: Iterable[GraphNode]) -> set[Poly]:
        """The numbers of elements of these values."""
        return {math.prod(self.schedule.dims.shape(node), start=ONE) for node in nodes}

    def move(self, first: int, last: int) -> None:
        """Move a step from position `first` to `last`."""
        self.steps.insert(last, self.steps.pop(first))

    def reorder(self, order: Sequence[int]) -> None:
        """Reorder the steps by their positions in `order`."""
        self.steps[:] = [self.steps[i] for i in order]
        number_call_steps(self.steps)


def plans_of(result: Plan) -> Iterator[Plan]:
    """`result` and the plans of all regions in it."""
    yield result
    for step in result.steps:
        for _, region in regions_of(step):
            yield from plans_of(region)


def calls_of(result: Plan) -> list[CallStep]:
    """The calls of a plan and of its regions, in the order of their numbers."""
    return [step for each in plans_of(result) for step in each.steps if isinstance(step, CallStep)]


def functions_of(step: PlanStep) -> list[str]:
    """The functions whose addresses are run-time values of a step (`tracegrad.codegen.instr.support`)."""
    names: list[str] = []
    if isinstance(step, CallStep) or (isinstance(step, WhileStep) and step.stacked):
        names.append("callback")
    if isinstance(step, Looping):
        names += step.functions
    elif isinstance(step, Launch):
        names += [f"tg_fill.{dtype}" for _, dtype, _, _ in step.fills]
        if step.kernel.loops and not step.serial:
            names += ["tg_chunks", "tg_parallel_for"]
            reductions = [x for x in step.kernel.body if isinstance(x, Reduce) and x.buffer in step.partials]
            names += [f"tg_combine.{x.combiner}.{x.value.dtype}" for x in reductions]
    return names


def rare_functions(result: Plan) -> set[str]:
    """The symbols of the out-of-line functions of the kernels (`vecmath.rare_module`)."""
    steps = [s for each in plans_of(result) for s in each.steps]
    instructions = [x for s in steps if isinstance(s, Launch) for x in flattened(s.kernel.body)]
    return {f"tg.rare_{x.op}.{x.out.dtype}" for x in instructions if isinstance(x, Compute) and x.op in RARE}
