"""Fuse kernels by strip-mining: run several kernels over one strip of rows, then over the next (a strip fusion).

A reduction of rows must finish before its result is used, so softmax, its derivative, and layer norm are several
kernels. Kernels over long arrays may also have been split for their size. Run one after the other, each would stream
all rows through memory. In a strip fusion, all of them run for one strip of rows at a time, so the rows remain in the
cache. Temporaries that no other step reads need memory for one strip only: they are *local*.

The kernels are the same, alone or in a strip fusion. A fusion only changes how they are called, so no machine code
depends on it. It is legal if a row that one kernel writes is read by the others at the same row only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import field
from typing import TYPE_CHECKING, Any

from tracegrad.codegen.loopir.blocking import LoopBlocks, block_size
from tracegrad.codegen.loopir.footprints import Footprint, footprints
from tracegrad.codegen.loopir.kernel import Kernel
from tracegrad.codegen.loopir.steps import Launch, near_order
from tracegrad.codegen.plan.arena import Arena
from tracegrad.target.tuning import TUNING
from tracegrad.utils.lazy_dataclass import record

if TYPE_CHECKING:
    from tracegrad.codegen.plan.program_plan import Plan

MIN_FUSED_ROWS = TUNING.strips.min_fused_rows
MIN_FUSED_BYTES = TUNING.strips.min_fused_bytes
STRIP = TUNING.strips.fused_strip_bytes
SHORTEST = TUNING.strips.min_fused_strip
LARGEST = TUNING.strips.max_fused_strip_bytes


@record(eq=False)
class StripFusion:
    """Steps `first` to `last` of a plan, fused by strips: they run for `strip` of all `rows` at a time.

    `units` has, for each step, the iterations of its chunked loop per row. `local` has the buffers that need memory for
    one strip only, with the bytes of a row.
    """

    first: int
    last: int
    rows: int
    strip: int
    units: list[int]
    local: dict[str, int]
    blocks: LoopBlocks = LoopBlocks()  # the chunks of its rows; each is some strips
    offsets: dict[str, int] = field(default_factory=dict)  # of local buffers and partial results in a strip's memory
    bytes: int = 0  # bytes of a strip's memory

    @property
    def steps(self) -> range:
        return range(self.first, self.last + 1)

    def __str__(self) -> str:
        local = ", ".join(f"{name} of {size} bytes a row" for name, size in self.local.items())
        return f"steps {self.first} to {self.last} by {self.strip} of {self.rows} rows; local: {local or 'none'}"


def fuse_strips(plan: Plan) -> None:
    """Find the strip fusions of a plan, and order the steps so that those of a fusion are consecutive."""
    grouping = _Grouping(plan)
    if sum(rows >= MIN_FUSED_ROWS for rows in grouping.rows) < 2:
        return
    groups = grouping.run()
    groups = [groups[i] for i in near_order(range(len(groups)), [group.before for group in groups])]
    fusions = {id(group): fusion for group in groups if (fusion := grouping.fusion(group)) is not None}
    if not fusions:
        return
    order = [i for group in groups for i in group.steps]
    plan.reorder(order)
    first = 0
    for group in groups:
        if (fusion := fusions.get(id(group))) is not None:
            fusion.first, fusion.last = first, first + len(group.steps) - 1
        first += len(group.steps)
    plan.strip_fusions = list(fusions.values())


@record(eq=False)
class _StepGroup:
    """Steps with common rows, or a single step; `before` is a bitmask of its predecessors."""

    number: int
    steps: list[int]
    rows: int
    before: int = 0
    users: dict[str, list[int]] = field(default_factory=dict)  # the steps that read or write a buffer
    written: set[str] = field(default_factory=set)


class _Grouping:
    """Search for steps that may run together."""

    def __init__(self, plan: Plan):
        self.plan, self.sizes = plan, plan.arguments.sizes
        self.steps: list[Any] = list(plan.steps)
        self._buffers = [step.buffers for step in plan.steps]
        self._writes = [step.writes for step in plan.steps]
        self.rows = [self._rows_of(step) for step in plan.steps]
        self.groups: list[_StepGroup] = []
        self._known_strides: dict[int, dict[str, int]] = {}
        self._fills: dict[int, set[str]] = {}
        self._bytes = {name: x.aval.dtype.itemsize for x, name in plan.buffers.items()}
        self._users: dict[str, set[int]] = {}
        for i, names in enumerate(self._buffers):
            for name in names:
                self._users.setdefault(name, set()).add(i)

    def _rows_of(self, step: object) -> int:
        """The iterations of the chunked loop of a kernel that may run in chunks of any size; 0 for any other step."""
        if not isinstance(step, Launch) or step.base or not step.is_separate_function:
            return 0
        return step.kernel.loops[step.kernel.chunked].extent.evaluate(self.sizes)

    def run(self) -> list[_StepGroup]:
        """Group the steps."""
        results: list[_StepGroup] = []
        users: dict[str, set[int]] = defaultdict(set)  # the steps until now that read or write a buffer
        writers: dict[str, set[int]] = defaultdict(set)
        for i, (names, writes) in enumerate(zip(self._buffers, self._writes)):
            related, earlier = set[int](), set[int]()  # steps that share a buffer, and steps that must run before
            for name in names:
                related |= users[name]
                earlier |= users[name] if name in writes else writers[name]
                users[name].add(i)
            for name in writes:
                writers[name].add(i)
            related.discard(i)
            earlier.discard(i)
            near = [results[k] for k in sorted(related, reverse=True)] if self.rows[i] >= MIN_FUSED_ROWS else []
            results.append(self._joined(i, {results[k] for k in earlier}, dict.fromkeys(near)))
        return self.groups

    def _joined(self, i: int, earlier: Collection[_StepGroup], near: Iterable[_StepGroup]) -> _StepGroup:
        """The first of the groups `near` that step `i` may join, which must run after the `earlier` ones; or a new
        group."""
        needed = 0  # the transitive predecessors of this step's predecessors
        for x in earlier:
            needed |= x.before
        for group in near:
            if group.rows and not needed >> group.number & 1 and (rows := self._common(group, i)):
                group.rows = rows
                break
        else:
            group = _StepGroup(len(self.groups), [], self.rows[i] if self.rows[i] >= MIN_FUSED_ROWS else 0)
            self.groups.append(group)
        group.steps.append(i)
        group.written |= self._writes[i]
        for name in self._buffers[i]:
            group.users.setdefault(name, []).append(i)
        new = 0
        for x in earlier:
            if x is not group:
                new |= x.before | 1 << x.number
        if new & ~group.before:
            group.before |= new
            for other in self.groups if len(group.steps) > 1 else ():
                if other.before >> group.number & 1:
                    other.before |= new
        return group

    def _common(self, group: _StepGroup, i: int) -> int:
        """The number of rows for which step `i` can run with a group; 0 if it cannot."""
        names, users = self._buffers[i], group.users
        shared = [name for name in names if name in users]
        rows = min(group.rows, self.rows[i])
        if group.rows % rows or self.rows[i] % rows:
            return 0
        for name in shared if rows == group.rows else {*users, *names}:
            if name in group.written or name in self._writes[i]:
                using = self._using(name, group, i)
                if len(using) > 1 and not self.row_elements(name, using, rows):
                    return 0
        alike = rows == group.rows == self.rows[i]
        if not alike and not any(self.row_elements(x, self._using(x, group, i), rows) for x in shared):
            return 0  # longer rows, without reuse in the cache
        return 0 if self._filled(i).intersection(shared) else rows

    def _using(self, name: str, group: _StepGroup, i: int) -> list[int]:
        """The steps of a group, and step `i`, that read or write a buffer."""
        return [*group.users.get(name, ()), *([i] if name in self._buffers[i] else ())]

    def row_elements(self, name: str, users: list[int], rows: int) -> int:
        """The elements per row of a buffer, if all `users` access it by the same rows; else 0."""
        result = 0
        for k in users:
            stride = self._strides(k).get(name)
            if stride is None:
                continue
            size = stride * (self.rows[k] // rows)
            if not size or (result and size != result):
                return 0
            result = size
        return result

    def _strides(self, i: int) -> dict[str, int]:
        """The elements per iteration of each buffer that a kernel accesses; 0 if some are not accessed by iteration."""
        table = self._known_strides.get(i)
        if table is None:
            step = self.steps[i]
            table = self._known_strides[i] = {
                name: 0 if name in step.partials else _stride(accesses)
                for name, accesses in footprints(step.kernel, self.sizes).items()
                if accesses
            }
        return table

    def _filled(self, i: int) -> set[str]:
        """The buffers to initialize before a step."""
        if i not in self._fills:
            self._fills[i] = {name for name, *_ in self.steps[i].fills}
        return self._fills[i]

    def fusion(self, group: _StepGroup) -> StripFusion | None:
        """The fusion of a group of steps, if it is profitable; else None."""
        if len(group.steps) < 2:
            return None
        steps, rows, plan = self.steps, group.rows, self.plan
        local, width, reused_bytes = {}, 0, 0
        filled = set().union(*map(self._filled, group.steps))
        for name, users in group.users.items():
            row_bytes = self._bytes[name] * self.row_elements(name, users, rows)
            width += row_bytes
            reused_bytes += row_bytes * (len(users) > 1)
            if row_bytes and plan.is_temporary(name) and name not in filled and len(users) == len(self._users[name]):
                local[name] = row_bytes
        units = [self.rows[k] // rows for k in group.steps]
        elements = max(self._elements(steps[k].kernel) for k in group.steps) // rows
        strip = block_size(STRIP, width, -(-SHORTEST // max(elements, 1)))
        if rows * reused_bytes < MIN_FUSED_BYTES or width * strip > LARGEST or 2 * strip > rows:
            return None
        return StripFusion(0, 0, rows, strip, units, local)

    def _elements(self, kernel: Kernel) -> int:
        total = 1
        for loop in kernel.loops:
            total *= loop.extent.evaluate(self.sizes)
        return total


def _stride(accesses: list[Footprint | None]) -> int:
    """The common stride of an iteration, if no access reaches into another iteration; else 0."""
    result = 0
    for access in accesses:
        if access is None or access.low < 0 or access.high >= access.stride or result not in (0, access.stride):
            return 0
        result = access.stride
    return result


def allocate_locals(plan: Plan, fusion: StripFusion) -> None:
    """Allocate local buffers, and the partial results of a strip, in the memory of a strip."""
    steps: list[Any] = plan.steps
    arena = Arena()
    ends = {name: i for i in fusion.steps for name in steps[i].buffers}
    for i in fusion.steps:
        for name in steps[i].buffers:
            if name in fusion.local and name not in fusion.offsets:
                fusion.offsets[name] = arena.allocate(name, fusion.local[name] * fusion.strip)
        for name, size in steps[i].partials.items():
            fusion.offsets[name] = arena.allocate(name, size.evaluate(plan.arguments.sizes) * 8)
        for name in steps[i].buffers:
            if ends[name] == i:
                arena.free(name)
    fusion.bytes = arena.top
