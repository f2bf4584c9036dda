"""Estimate the work of a plan step: bytes of memory traffic and floating-point operations (roofline).

Both numbers are counted from the plan and its sizes, not measured. `bytes` counts each location once, for reads and for
writes: the traffic if no data is in a cache. `flops` counts floating-point operations; an elementary function counts
about as many as its code has (`scalar_templates.COST`). A value that depends on some loops only is counted once per
iteration of the loops it depends on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from tracegrad.avals import dtype_named
from tracegrad.codegen.libs.linear_algebra import is_native
from tracegrad.codegen.loopir.kernel import BoundsCheck, Compute, GuardBlock, Index, Kernel, Load, Reduce, Store
from tracegrad.codegen.loopir.scalar_templates import COST
from tracegrad.codegen.loopir.steps import CallStep, Launch, Matmul
from tracegrad.codegen.plan.program_plan import Plan
from tracegrad.codegen.plan.region_steps import Nested, RunStep, ScanStep
from tracegrad.ir import GraphNode
from tracegrad.ops.linalg.factorizations import cholesky, cholesky_pullback
from tracegrad.ops.linalg.solve import lu, solve, solve_triangular
from tracegrad.utils.lazy_dataclass import record

_THIRDS = {cholesky: 1, cholesky_pullback: 2, lu: 2}  # the operations of a factorization, as multiples of n^3 / 3
# Functions that count as one operation; others outside `COST` only move or compare values.
_ARITHMETIC = {"add", "sub", "mul", "div", "sqrt", "maximum", "minimum", "floor", "ceil", "trunc", "rint"}

_CONVERSIONS = {"half_value", "round_to_half"}


@record(frozen=True)
class Work:
    """The work of one or several steps: the bytes read and written of each buffer, and `flops`, None if unknown, as in
    a NumPy function."""

    read: dict[str, int]
    written: dict[str, int]
    flops: int | None
    dtype: str = "f64"  # of most of its arithmetic: "f64" or "f32"

    @property
    def bytes(self) -> int:
        """All bytes that are read and written."""
        return sum(self.read.values()) + sum(self.written.values())


def work_together(plan: Plan, numbers: Sequence[int]) -> Work:
    """The work of fused steps: temporaries that only they use cause no memory traffic, nor do reads after a write in
    the group."""
    work = {i: work_of(plan, plan.steps[i]) for i in numbers}
    others = {b for i, step in enumerate(plan.steps) if i not in work for b in step.buffers}
    inner = {b for b in plan.memory if plan.is_temporary(b) and b not in others} if len(work) > 1 else set()
    read: dict[str, int] = {}
    written: dict[str, int] = {}
    for w in work.values():
        table = {b: n for b, n in w.read.items() if b not in inner and n > written.get(b, 0)}
        read |= {b: max(n, read.get(b, 0)) for b, n in table.items()}
        written |= {b: max(n, written.get(b, 0)) for b, n in w.written.items() if b not in inner}
    flops = None if any(w.flops is None for w in work.values()) else sum(w.flops or 0 for w in work.values())
    dominant = max(work.values(), key=lambda w: w.flops or 0, default=None)
    return Work(read, written, flops, "f64" if dominant is None else dominant.dtype)


def work_of(plan: Plan, step: object) -> Work:
    """The work of a step, over all iterations if it is a loop."""
    if isinstance(step, Launch):
        return _of_kernel(plan, step)
    if isinstance(step, Matmul):
        batch, m, n, k = (p.evaluate(plan.arguments.sizes) for p in step.sizes)
        return Work(*_of_buffers(plan, step), 2 * batch * m * n * k, step.dtype)
    if isinstance(step, Nested):
        return Work(*_of_buffers(plan, step), *_of_regions(step))
    return Work(*_of_buffers(plan, step), _call_flops(step.node) if isinstance(step, CallStep) else 0)


def _call_flops(node: GraphNode) -> int | None:
    """The operations of a factorization, or of a solve with all of its right-hand sides."""
    if not is_native(node):
        return None
    matrix = node.operands[0].aval
    n = matrix.shape[-1]
    count = matrix.size // n**2
    if node.op in _THIRDS:
        return count * _THIRDS[node.op] * n**3 // 3
    sides = node.aval.size  # of all right-hand sides together
    return (count * 2 * n**3 // 3 if node.op is solve else 0) + (1 if node.op is solve_triangular else 2) * sides * n


def _sizes(plan: Plan) -> dict[str, int]:
    """The size of each buffer of a plan."""
    return {name: x.aval.nbytes for x, name in plan.buffers.items()}


def _of_buffers(plan: Plan, step: Any) -> tuple[dict[str, int], dict[str, int]]:
    """The traffic of a step that accesses its buffers whole."""
    sizes, written = _sizes(plan), step.writes
    read = {b: sizes.get(b, 0) for b in step.buffers if b not in written}
    return read, {b: sizes.get(b, 0) for b in written}


# -- kernels ---------------------------------------------------------------------------------------------------
def _of_kernel(plan: Plan, step: Launch) -> Work:
    kernel, sizes = step.kernel, plan.arguments.sizes
    extents = {loop.var: loop.extent.evaluate(sizes) for loop in kernel.loops}
    iterations = _OperationCounter(extents)
    iterations.visit(kernel.body)
    whole = _sizes(plan)
    read, written = (
        {b: min(n, whole.get(b, n)) for b, n in uses.items()} for uses in (iterations.read, iterations.written)
    )
    if step.copies:
        (result,) = step.writes
        read[step.base] = written[result] = step.bytes.evaluate(sizes)
    return Work(read, written, iterations.flops, _width(kernel))


def _width(kernel: Kernel) -> str:
    floats = [dtype for dtype, _ in kernel.buffers.values() if dtype[0] == "f"]
    return "f32" if floats and all(dtype == "f32" for dtype in floats) else "f64"


class _OperationCounter:
    """Counter of operations: each instruction counts once per iteration of the loops it depends on."""

    def __init__(self, extents: dict[str, int]):
        self.extents = extents
        self.flops = 0
        self.read: dict[str, int] = {}
        self.written: dict[str, int] = {}
        self._loops: dict[str, frozenset[str]] = {}  # the loops that a value depends on

    def visit(self, body: Sequence[object]) -> None:
        for x in body:
            match x:
                case Compute():
                    loops = self._of(arg.name for arg in x.args)
                    self.flops += self._count(loops) * _flops(x)
                case Load():
                    loops = self._of(x.address.symbols)
                    self._touch(self.read, x.buffer, loops, x.out.dtype)
                case Index():
                    loops = self._of(x.value.symbols)
                case BoundsCheck():
                    loops = self._of([x.value.name])
                case GuardBlock():
                    self.visit(x.body)
                    tests = [p.symbols for r in x.ranges for p in r]
                    loops = self._of([x.result.name, x.fill.name]).union(*map(self._of, tests))
                case Store():
                    self._touch(self.written, x.buffer, self._of(x.address.symbols), x.value.dtype)
                    continue
                case Reduce():
                    self._touch(self.written, x.buffer, self._of(x.address.symbols), x.value.dtype)
                    if x.value.dtype[0] == "f":
                        self.flops += self._count(frozenset(self.extents))
                    continue
                case _:
                    continue
            self._loops[x.out.name] = loops

    def _of(self, names: Any) -> frozenset[str]:
        results = [frozenset([n]) if n in self.extents else self._loops.get(n, frozenset()) for n in names]
        return frozenset[str]().union(*results)

    def _count(self, loops: frozenset[str]) -> int:
        return math.prod(self.extents[each] for each in loops)

    def _touch(self, uses: dict[str, int], buffer: str, loops: frozenset[str], dtype: str) -> None:
        uses[buffer] = uses.get(buffer, 0) + self._count(loops) * dtype_named(dtype).itemsize


def _flops(x: Compute) -> int:
    if x.out.dtype[0] != "f" or x.op in _CONVERSIONS:
        return 0
    return 1 if x.op in _ARITHMETIC else COST.get(x.op, 0)


# -- regions ---------------------------------------------------------------------------------------------------
def _of_regions(step: Nested) -> tuple[int | None, str]:
    """The operations of all iterations; None if their number, or the branch, is known only at run time."""
    dtypes = [dtype for region in step.regions.values() for _, dtype in _inside(region)]
    dtype = "f32" if dtypes and all(x == "f32" for x in dtypes) else "f64"
    iterations = step.length if isinstance(step, ScanStep) else 1 if isinstance(step, RunStep) else None
    each = [flops for region in step.regions.values() for flops, _ in _inside(region)]
    if iterations is None or None in each:
        return None, dtype
    return iterations * sum(flops or 0 for flops in each), dtype


def _inside(region: Plan) -> Iterator[tuple[int | None, str]]:
    for step in region.steps:
        work = work_of(region, step)
        yield work.flops, work.dtype
