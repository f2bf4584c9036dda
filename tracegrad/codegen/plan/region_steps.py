"""Define the plan steps with regions (scan, while, cond), each with the plans of its regions.

The plan of a region is a plan like any other. Its function takes pointers to its inputs, outputs and arena, and its own
run-time values. Its arena and its values are blocks of the arena and the values of the enclosing program. A step says
which memory holds the inputs and outputs of the region in each iteration:

- constants, and the operands of a branch, are buffers of the program;
- xs and ys are rows of buffers of the program, which the region reads and writes in place;
- a carry of a small constant size (at most `STACK_BYTES`) is on the stack, where LLVM promotes it to registers.
  Another carry is updated in place (`tracegrad.codegen.plan.in_place`), or alternates between two blocks of memory
  (double buffering): the buffer of the result and one more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from tracegrad.avals import Aval
from tracegrad.codegen.instr.safepoints import iterations_between_polls
from tracegrad.codegen.instr.support import EACH_CHUNK, THREADS
from tracegrad.codegen.loopir.blocking import SHARES, STRIPS, WAVEFRONTS, IterationBlocking, LoopBlocks
from tracegrad.codegen.loopir.polynomial import ONE, Poly
from tracegrad.codegen.loopir.steps import FusionGroup
from tracegrad.ir import Graph, GraphNode
from tracegrad.ops.core import forms
from tracegrad.target.tuning import TUNING
from tracegrad.utils.lazy_dataclass import record

if TYPE_CHECKING:
    from tracegrad.codegen.lower.symbolic_shapes import Dims
    from tracegrad.codegen.plan.program_plan import Plan

_FUNCTIONS = {"": (), STRIPS: EACH_CHUNK, WAVEFRONTS: (THREADS,), SHARES: EACH_CHUNK}  # called by each strategy
STACK_BYTES = TUNING.memory.max_stack_carry
TYPICAL_ITERATIONS = TUNING.threads.typical_iterations


@record(frozen=True)
class RegionBuffer:
    """Memory that a region reads or writes: a buffer ("" for an unused result), and the bytes that one iteration uses.
    They are all of the buffer, or one row."""

    buffer: str
    bytes: Poly

    @property
    def on_stack(self) -> bool:
        """Whether it has a small constant size."""
        return _is_small(self.bytes)

    def __str__(self) -> str:
        return f"{self.buffer or '_'} of {self.bytes}"


@record(eq=False)
class Nested:
    """A plan step with regions."""

    group: FusionGroup
    node: GraphNode
    regions: dict[str, Plan]
    consts: list[RegionBuffer]

    @property
    def operands(self) -> list[RegionBuffer]:
        return self.consts

    @property
    def results(self) -> list[RegionBuffer]:
        raise NotImplementedError

    @property
    def buffers(self) -> list[str]:
        """The buffers that the step reads and writes."""
        return [x.buffer for x in (*self.operands, *self.results) if x.buffer]

    @property
    def writes(self) -> set[str]:
        return {x.buffer for x in self.results if x.buffer}

    def rename(self, old: str, new: str) -> None:
        """Rename a buffer."""

        def renamed(x: object) -> Any:
            if isinstance(x, RegionBuffer):
                return RegionBuffer(new, x.bytes) if x.buffer == old else x
            return list(map(renamed, x)) if isinstance(x, list) else x

        for each in fields(self):
            setattr(self, each.name, renamed(getattr(self, each.name)))

    def cost(self) -> int:
        """The cost of one run."""
        return sum(result.cost for result in self.regions.values())

    def runtime_values(self) -> dict[str, int]:
        """The run-time values of the step, without the sizes."""
        return {}

    def scratch(self) -> dict[str, Poly]:
        """The bytes that the step needs while it runs, without its regions: the memory of unused results."""
        return {f"result {k}": x.bytes for k, x in enumerate(self.results) if not x.buffer}

    @property
    def arena_bytes(self) -> int:
        """The memory that the regions need while they run."""
        return max(result.arena_bytes for result in self.regions.values())

    def head(self) -> str:
        raise NotImplementedError

    def text(self) -> str:
        lines = [f"{self.head()} {{"]
        for name, result in self.regions.items():
            lines += [f"  {name} {{", *(f"    {line}" for line in result.text().splitlines()), "  }"]
        return "\n".join([*lines, "}"])


@record(eq=False)
class Looping(Nested):
    """A plan step that repeats a region (loop)."""

    inits: list[RegionBuffer]
    carried: list[RegionBuffer]
    stacked: list[RegionBuffer]

    @property
    def operands(self) -> list[RegionBuffer]:
        return [*self.inits, *self.consts]

    @property
    def results(self) -> list[RegionBuffer]:
        return [*self.carried, *self.stacked]

    def scratch(self) -> dict[str, Poly]:
        others = {f"carry {k}": x.bytes for k, x in enumerate(self.carried) if not x.on_stack and not self.in_place(k)}
        return super().scratch() | others

    def runtime_values(self) -> dict[str, int]:
        return {"look": iterations_between_polls(sum(result.cost for result in self.regions.values()))}

    @property
    def functions(self) -> list[str]:
        """The functions that its code calls: see `tracegrad.codegen.instr.support`."""
        return ["tg_poll"]

    def in_place(self, k: int) -> bool:
        """Whether the body updates carry `k` in place."""
        return k in self.regions["body"].in_place


@record(eq=False)
class ScanStep(Looping):
    """A loop with a known number of iterations (scan)."""

    xs: list[RegionBuffer]
    length: int
    reverse: bool

    @property
    def operands(self) -> list[RegionBuffer]:
        return [*self.inits, *self.xs, *self.consts]

    def cost(self) -> int:
        return self.length * super().cost()

    @property
    def blocking(self) -> IterationBlocking:
        return self.regions["body"].blocking

    @property
    def blocks(self) -> LoopBlocks:
        """The strips, chunks of wavefronts, or shares of iterations."""
        return self.blocking.blocks(self.length, self.regions["body"].cost, self._room)

    def runtime_values(self) -> dict[str, int]:
        blocking, blocks = self.blocking, self.blocks
        values = {} if blocking.strategy == STRIPS else super().runtime_values()
        values["length"] = self.length
        if blocking.strategy == SHARES:
            values["room"] = self._room
        if blocking.strategy:
            extent = self.length if blocking.strategy == SHARES else blocking.rows
            values |= zip(blocking.value_names, (extent, blocks.size, blocks.number))
            values |= (
                {"depth": blocking.depth} if blocking.strategy == WAVEFRONTS else {"parallel": int(blocks.parallel)}
            )
        return values

    @property
    def functions(self) -> list[str]:
        strategy = self.blocking.strategy
        return [*([] if strategy == STRIPS else super().functions), *_FUNCTIONS[strategy]]

    @property
    def _room(self) -> int:
        """The memory of one share of iterations, in bytes."""
        return -(-self.regions["body"].arena_bytes // 64) * 64

    @property
    def arena_bytes(self) -> int:
        return self._room * self.blocks.number if self.blocking.strategy == SHARES else super().arena_bytes

    def head(self) -> str:
        parts = [_shown("carried", self.inits), _shown("rows", self.xs), _shown("constant", self.consts)]
        notes = " reverse" * self.reverse + (f" by threads{self.blocking}" if self.blocking.strategy == SHARES else "")
        return f"repeat {_shown('', self.results)} = body({'; '.join(parts)}){notes}"


@record(eq=False)
class WhileStep(Looping):
    """A while loop; up to `capacity` iterations if it stacks rows."""

    count: RegionBuffer
    capacity: int

    @property
    def results(self) -> list[RegionBuffer]:
        return [*self.carried, self.count, *self.stacked]

    def cost(self) -> int:
        return TYPICAL_ITERATIONS * super().cost()

    def runtime_values(self) -> dict[str, int]:
        return {**super().runtime_values(), "capacity": self.capacity}

    def head(self) -> str:
        parts = [_shown("carried", self.inits), _shown("constant", self.consts)]
        return f"while {_shown('', self.results)} = body({'; '.join(parts)})"


@record(eq=False)
class BranchStep(Nested):
    """A plan step that runs one of several regions (cond)."""

    index: RegionBuffer
    outs: list[RegionBuffer]

    @property
    def operands(self) -> list[RegionBuffer]:
        return [self.index, *self.consts]

    @property
    def results(self) -> list[RegionBuffer]:
        return self.outs

    def cost(self) -> int:
        return max(result.cost for result in self.regions.values())

    def head(self) -> str:
        return f"branch {_shown('', self.outs)} = {self.index.buffer}({_shown('', self.consts)})"


@record(eq=False)
class RunStep(Nested):
    """A plan step that runs one region once, separately: its values are not shared with other steps."""

    outs: list[RegionBuffer]

    @property
    def results(self) -> list[RegionBuffer]:
        return self.outs

    def head(self) -> str:
        return f"once {_shown('', self.outs)} = body({_shown('', self.consts)})"


def _shown(label: str, blocks: list[RegionBuffer]) -> str:
    return f"{label} {', '.join(map(str, blocks))}".strip()


# -- from nodes to steps ---------------------------------------------------------------------------------
@record()
class RegionContext:
    """The context of a rule for a node: buffers and sizes of its operands and results, and the planner of regions."""

    group: FusionGroup
    operands: list[GraphNode]
    operand_buffers: list[str]
    result_buffers: tuple[str, ...]
    dims: Dims
    node: GraphNode
    plan_region: Callable[[Graph, int, bool], Plan]  # plans a region with this number of carries, scanned or not

    def operand(self, k: int, rows: bool = False) -> RegionBuffer:
        x = self.operands[k]
        return RegionBuffer(self.operand_buffers[k], bytes_of(self.dims.shape(x)[rows:], x.aval))

    def result(self, k: int, rows: bool = False) -> RegionBuffer:
        shape, aval = self.dims.result_shape(self.node, k), self.node.aval[k]  # type: ignore[index]
        return RegionBuffer(self.result_buffers[k], bytes_of(shape[rows:], aval))


def _is_small(size: Poly) -> bool:
    return size.value is not None and size.value <= STACK_BYTES


def on_stack(shape: tuple[Poly, ...], aval: Aval) -> bool:
    """Whether a region puts a value of this shape on the stack."""
    return _is_small(bytes_of(shape, aval))


def bytes_of(shape: tuple[Poly, ...], aval: Aval) -> Poly:
    """The bytes of a value, whose axes (or some of them) have the sizes `shape`."""
    return math.prod(shape, start=ONE) * aval.dtype.itemsize


def nested_step(at: RegionContext) -> Nested:
    """Create the step of a node with regions."""
    assert at.node.op is not None
    return _STEPS[type(at.node.op.form)](at, **dict(at.node.params))


def _repeat(at: RegionContext, body: Graph, carries: int, xs: int, length: int, reverse: bool) -> Nested:
    count = len(at.operands)
    return ScanStep(
        at.group,
        at.node,
        {"body": at.plan_region(body, carries, True)},
        consts=[at.operand(k) for k in range(carries + xs, count)],
        inits=[at.operand(k) for k in range(carries)],
        carried=[at.result(k) for k in range(carries)],
        stacked=[at.result(k, rows=True) for k in range(carries, len(at.result_buffers))],
        xs=[at.operand(k, rows=True) for k in range(carries, carries + xs)],
        length=length,
        reverse=reverse,
    )


def _while(at: RegionContext, cond: Graph, body: Graph, carries: int, capacity: int) -> Nested:
    return WhileStep(
        at.group,
        at.node,
        {"cond": at.plan_region(cond, 0, False), "body": at.plan_region(body, carries, False)},
        consts=[at.operand(k) for k in range(carries, len(at.operands))],
        inits=[at.operand(k) for k in range(carries)],
        carried=[at.result(k) for k in range(carries)],
        stacked=[at.result(k, rows=True) for k in range(carries + 1, len(at.result_buffers))],
        count=at.result(carries),
        capacity=capacity,
    )


def _branch(at: RegionContext, branches: tuple[Graph, ...]) -> Nested:
    return BranchStep(
        at.group,
        at.node,
        {f"branch {k}": at.plan_region(branch, 0, False) for k, branch in enumerate(branches)},
        consts=[at.operand(k) for k in range(1, len(at.operands))],
        index=at.operand(0),
        outs=[at.result(k) for k in range(len(at.result_buffers))],
    )


def _once(at: RegionContext, body: Graph, **_: tuple[object, ...] | bool) -> Nested:
    operands = [at.operand(k) for k in range(len(at.operands))]
    outs = [at.result(k) for k in range(len(at.result_buffers))]
    return RunStep(at.group, at.node, {"body": at.plan_region(body, 0, False)}, consts=operands, outs=outs)


_STEPS: dict[type[forms.Form], Callable[..., Nested]] = {
    forms.Repeat: _repeat,
    forms.While: _while,
    forms.Branch: _branch,
    forms.Run: _once,
}


def regions_of(step: object) -> Iterator[tuple[str, Plan]]:
    """The plans of the regions of a step, with their names; none for a step without regions."""
    yield from step.regions.items() if isinstance(step, Nested) else ()
