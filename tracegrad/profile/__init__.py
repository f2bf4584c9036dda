"""Profile of a call of a traced function, `f.profile(*args)`: the time of each step of the program.

The compiled program runs repeatedly with a clock between its steps (`tracegrad.runtime.diagnostics.step_timer`). The
bytes and operations of the steps are counted (`tracegrad.codegen.plan.work_estimate`), and compared with the peaks of
the machine (`tracegrad.runtime.diagnostics.machine_peaks`). Steps have the numbers of `explain`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tracegrad.codegen.libs.linear_algebra import is_native
from tracegrad.codegen.loopir.steps import CallStep, Launch, Matmul
from tracegrad.codegen.plan.program_plan import Plan
from tracegrad.codegen.plan.region_steps import Nested, ScanStep, WhileStep
from tracegrad.codegen.plan.work_estimate import work_together
from tracegrad.errors import UnsupportedError, located
from tracegrad.ir import GraphNode
from tracegrad.profile.chart import bars
from tracegrad.profile.table import lines_of
from tracegrad.runtime.diagnostics.machine_peaks import Machine, machine
from tracegrad.runtime.diagnostics.step_timer import timed
from tracegrad.runtime.dispatch.dispatcher import Dispatcher
from tracegrad.trace.sources.describe import describe
from tracegrad.utils.lazy_dataclass import record

__all__ = ["Profile", "ProfileStep", "profile"]

MAX_NAMES = 3  # names of ops in the description of a step


@record(frozen=True)
class ProfileStep:
    """Part of a program that is measured as one: a kernel, a matrix product, a NumPy call, a loop.

    `numbers` are the step numbers of `explain`. `seconds` is the median for one call of the function, `share` the part
    of the time of all steps. `bytes` are read or written, each address once. `flops` are floating-point operations,
    about 20 for an elementary function, None if unknown. `lines` are the user's, "file:line", in order. `iterations`
    is the number of iterations of a loop, None for other steps, and for loops with a condition.
    """

    numbers: tuple[int, ...]
    kind: str  # "kernel", "product", "LAPACK", "NumPy", "loop" or "check"
    what: str
    lines: tuple[str, ...]
    seconds: float
    share: float
    bytes: int
    flops: int | None
    dtype: str  # of its arithmetic, "f64" or "f32"
    iterations: int | None
    machine: Machine

    @property
    def bandwidth(self) -> float:
        """Bytes in a second."""
        return self.bytes / self.seconds if self.seconds else 0.0

    @property
    def of_bandwidth(self) -> float:
        """Return the share of the memory bandwidth; more than 1 means that the data were in a cache."""
        return self.bandwidth / self.machine.bandwidth

    @property
    def speed(self) -> float | None:
        """Operations in a second."""
        return None if self.flops is None else self.flops / self.seconds if self.seconds else 0.0

    @property
    def of_peak(self) -> float | None:
        """Return the share of the speed of a large matrix product."""
        return None if self.speed is None else self.speed / self.machine.peaks[self.dtype]


@record(frozen=True)
class Profile:
    """Steps of a call, in the order in which they run; print it, sort them, or display it in a notebook.

    `seconds` is the time of all steps, `call_seconds` the time of the compiled program with its results and its entry:
    medians of `runs`.
    """

    name: str
    where: str
    steps: tuple[ProfileStep, ...]
    seconds: float
    call_seconds: float
    runs: int
    machine: Machine

    def __str__(self) -> str:
        return "\n".join(lines_of(self))

    __repr__ = __str__

    def _repr_svg_(self) -> str:
        return bars(self)

    def _repr_html_(self) -> str:
        from tracegrad.utils.html import code, fold, object_html

        first, *lines = lines_of(self)
        return object_html(first, "", [bars(self), fold("steps", code(lines))])


def profile(fun: Dispatcher, args: tuple[Any, ...], kwargs: dict[str, Any], seconds: float = 0.5) -> Profile:
    """Profile a call of `fun`, which is traced and compiled if it has not been; see `Traced.profile`."""
    call = fun.binder.bind_checked(args, kwargs)
    path, outputs, captured = fun.find_in_full(call)
    inputs = [*call.leaves, *captured]
    program, layouts = path.program_and_layouts(inputs)
    report = getattr(program, "report", None)
    if report is None or outputs is None:
        why = "no program computes this call, which runs as plain Python"
        raise UnsupportedError(located(f"{fun.name}: {why}; `explain` tells more, Python's own profilers its times"))
    this_machine, timing = machine(), timed(program, inputs, seconds, layouts)
    whole = sum(spent for _, spent in timing.steps)
    steps = [
        _profile_step(report.plan, numbers, spent, spent / whole if whole else 0.0, this_machine)
        for numbers, spent in timing.steps
    ]
    where = describe(fun.fun).location
    return Profile(fun.name, where, tuple(steps), whole, timing.call, timing.runs, this_machine)


def _profile_step(plan: Plan, numbers: range, seconds: float, share: float, this_machine: Machine) -> ProfileStep:
    steps = [plan.steps[i] for i in numbers]
    work = work_together(plan, numbers)
    loops = [step for step in steps if isinstance(step, Nested)]
    iterations = loops[0].length if len(loops) == 1 and isinstance(loops[0], ScanStep) else None
    return ProfileStep(
        numbers=tuple(numbers),
        kind=_kind(steps),
        what=_describe(plan, steps),
        lines=tuple(_lines(plan, numbers)),
        seconds=seconds,
        share=share,
        bytes=work.bytes,
        flops=work.flops,
        dtype=work.dtype,
        iterations=iterations,
        machine=this_machine,
    )


def _kind(steps: list[Any]) -> str:
    if not steps:
        return "check"
    if any(isinstance(step, CallStep) and is_native(step.node) for step in steps):
        return "LAPACK"
    kinds: list[tuple[type, str]] = [(Nested, "loop"), (Matmul, "product"), (CallStep, "NumPy")]
    return next((kind for cls, kind in kinds if any(isinstance(step, cls) for step in steps)), "kernel")


def _describe(plan: Plan, steps: list[Any]) -> str:
    """Describe a step in a few words."""
    if not steps:
        return "what has been assumed"
    nested = [step for step in steps if isinstance(step, Nested)]
    kernel_count = f", {len(steps) - len(nested)} kernels" if len(steps) > len(nested) > 0 else ""
    if nested:
        return " and ".join(map(_region_text, nested)) + kernel_count
    if isinstance(steps[0], Matmul):
        batch, m, n, k = (p.evaluate(plan.arguments.sizes) for p in steps[0].sizes)
        return ("" if batch == 1 else f"{batch} times ") + f"{m} x {k} x {n}"
    if isinstance(steps[0], CallStep):
        return steps[0].node.name
    names = dict.fromkeys(root.name for step in steps for root in getattr(step, "roots", ()))
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    loops = [loop for step in steps[:1] if isinstance(step, Launch) for loop in step.kernel.loops]
    sizes = [loop.extent.evaluate(plan.arguments.sizes) for loop in loops]
    return ", ".join(list(names)[:MAX_NAMES]) + more + (f" over {' x '.join(map(str, sizes))}" if sizes else "")


def _region_text(step: Nested) -> str:
    if isinstance(step, ScanStep):
        return f"{step.length} iterations"
    return "iterations of a while loop" if isinstance(step, WhileStep) else step.node.name


def _lines(plan: Plan, numbers: range) -> Iterator[str]:
    """Return the user's lines that the steps compute, files in order of first use."""
    nodes = [node for i in numbers for node in _computed(plan, i)]
    results = {node.location for node in nodes if node.location}
    return iter(sorted(results, key=_file_and_line))


def _file_and_line(location: str) -> tuple[str, int]:
    file, _, line = location.rpartition(":")
    return file, int(line) if line.isdigit() else 0


def _computed(plan: Plan, i: int) -> Iterator[GraphNode]:
    """Return the nodes that step `i` computes: stored ones, intermediate ones, and those of its regions."""
    stored = plan.schedule.storage.stored
    stack, seen = list(plan.steps[i].group.roots), set[GraphNode]()
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        yield node
        for region in node.regions:
            yield from region.everywhere()
        stack.extend(x for x in node.operands if not stored(x) or x.is_multi_result)
