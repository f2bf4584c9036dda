"""Explanation of a call, `f.explain(*args)`: guards, graphs, fusion groups, kernels, memory, cache and times."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tracegrad.codegen.plan.region_steps import regions_of
from tracegrad.ir import Graph, GraphNode, to_text
from tracegrad.ir.printer import names_of
from tracegrad.ops.core.forms import Repeat, While
from tracegrad.runtime.dispatch.dispatcher import Dispatcher
from tracegrad.runtime.dispatch.retrace_reasons import show_key
from tracegrad.runtime.execution.strided_inputs import InputLayouts
from tracegrad.trace.driver.trace import Trace
from tracegrad.trace.random.draws import rewind
from tracegrad.trace.sources.describe import describe
from tracegrad.utils.lazy_dataclass import record

if TYPE_CHECKING:
    from tracegrad.codegen.plan.memory_report import MemoryReport
    from tracegrad.codegen.plan.program_plan import Plan

__all__ = ["Explanation", "explain"]

OFTEN = 8  # minimum guarded conditions at one line that are reported as an unrolled loop


@record(frozen=True, eq=False)
class Explanation:
    """Explanation of one call: `str` is text for readers, the attributes are for programs."""

    name: str
    where: str
    entry_guards: tuple[str, ...]
    world_guards: tuple[str, ...]
    value_guards: tuple[str, ...]
    loops: tuple[str, ...]
    graph: Graph
    optimized: Graph | None
    groups: tuple[str, ...]
    kernels: tuple[str, ...]
    memory: MemoryReport | None
    cache: str
    pieces: tuple[str, ...]
    seconds: dict[str, float]
    plain: str = ""

    def __str__(self) -> str:
        return "\n".join(self._lines())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from tracegrad.utils.html import block, note, object_html

        parts = [note(f"runs as plain Python, uncompiled: {self.plain}")] if self.plain else []
        parts += [block(title, lines) for title, lines in self._sections()]
        return object_html(self.name, f"({self.where})" if self.where else "", parts)

    def _lines(self) -> Iterator[str]:
        yield f"{self.name} ({self.where})" if self.where else self.name
        if self.plain:
            yield f"runs as plain Python, uncompiled: {self.plain}"
        for title, lines in self._sections():
            yield from ("", f"{title}:")
            yield from (f"  {line}" for line in (lines or ["none"]))

    def _sections(self) -> Iterator[tuple[str, Sequence[str]]]:
        yield "entry guards", self.entry_guards
        yield "captured variables", self.world_guards
        yield "value guards", self.value_guards
        yield "loops", self.loops
        yield f"graph, {len(self.graph.nodes)} nodes", to_text(self.graph, locations=True).splitlines()
        if self.optimized is not None:
            yield f"graph after the passes, {len(self.optimized.nodes)} nodes", to_text(self.optimized).splitlines()
        yield "fusion groups", self.groups
        yield "kernels", [line for text in self.kernels for line in text.splitlines()]
        if self.memory is not None:
            yield "memory", list(self.memory.lines())
        yield "cache", [self.cache]
        yield "machine code", self.pieces
        yield "times", [f"{stage}: {1e3 * s:.2f} ms" for stage, s in self.seconds.items()]


def explain(fun: Dispatcher, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Explanation:
    """Explain a call of `fun`, which is traced and compiled if it has not been."""
    from tracegrad.codegen.plan.memory_report import memory_of

    call = fun.binder.bind_checked(args, kwargs)
    waited, plain = fun.waiting(call), fun.why_limited(call)
    path, _, captured = fun.find(call)
    rewind(call)
    program, layouts = path.program_and_layouts([*call.leaves, *captured])
    if program is not None and program.tier is not None:
        program.compile()
    restored = getattr(path.program, "restored", False)  # a restored graph has no source lines
    trace = fun.find_in_full(call)[0].trace if restored else path.trace
    report = getattr(program, "report", None)
    result = getattr(report, "plan", None)
    names = trace.input_names(fun.binder.leaf_names(call))
    graph, optimized = trace.graph.named(names), getattr(report, "optimized", None)
    return Explanation(
        name=fun.name,
        where=describe(fun.fun).location,
        entry_guards=tuple(_entry_guards(show_key(fun.binder, call.key), layouts)),
        world_guards=tuple(_world_guards(trace, names_of(graph))),
        value_guards=tuple(_value_guards(trace, names_of(graph))),
        loops=tuple(_loops(trace, graph)),
        graph=graph,
        optimized=None if optimized is None else optimized.named(names),
        groups=tuple(_groups(result, graph.names)) if result is not None else (),
        kernels=tuple(step.text() for step in result.steps) if result is not None else (),
        memory=None if result is None else memory_of(result, graph.names),
        cache=("trace from disk, " if restored else "")
        + f"program from {getattr(report, 'cache', 'the interpreter')}, key {getattr(report, 'key', 'none')}"
        + (", until now answered op by op" if path in waited else ""),
        pieces=tuple(_compilation_units(report)) if report is not None else (),
        seconds={"trace": path.seconds["trace"], **getattr(report, "seconds", {"program": path.seconds["program"]})},
        plain=trace.raised or plain,
    )


def _entry_guards(lines: Sequence[str], layouts: InputLayouts) -> Iterator[str]:
    """Yield the guards on the leaves; for arrays not in row-major order, also how they are read."""
    for line, layout in itertools.zip_longest(lines, layouts[: len(lines)]):
        if layout is None:
            yield line
        elif layout.strides is None:
            yield f"{line}, copied into row-major order"
        else:
            yield f"{line}, read where it lies, by strides {layout.strides}"


def _world_guards(trace: Trace, names: dict[GraphNode, str]) -> Iterator[str]:
    for guard in trace.world.guards:
        if not guard.implied:
            yield str(guard)
    for capture in trace.captures:
        source = capture.source or "an array that no variable leads to"
        name, text = names[capture.node], str(source)
        known = "" if text.endswith(f" {name}") else f"{name} is "
        yield f"{known}{text}: {capture.node.aval}, read at each call"


def _value_guards(trace: Trace, names: dict[GraphNode, str]) -> Iterator[str]:
    for guard in trace.guards:
        seen = guard.value.item() if guard.value.ndim == 0 else f"an array of shape {guard.value.shape}"
        result = "it did not" if guard.unless_raises else f"{names[guard.node]} was {seen}"
        yield f"{guard.query} at {guard.location}: {result}"


def _loops(trace: Trace, graph: Graph) -> Iterator[str]:
    """Yield the loops of the graph, and the user's loops that were unrolled as recorded."""
    for node in graph.everywhere():
        if isinstance(node.op.form, Repeat | While):  # type: ignore[union-attr]
            iterations = (
                f"{length} iterations" if (length := dict(node.params).get("length")) else "iterations of a while loop"
            )
            size = sum(len(region.nodes) for region in node.regions)
            yield f"{node.name} of {iterations} of {size} nodes" + (f" at {node.location}" if node.location else "")
    yield from (f"in segments at {location}: {why}" for location, why in trace.divided)
    reasons = dict(trace.unrolled)
    for location, count in Counter(x.location for x in trace.guards if x.query == "bool()").items():
        if count >= OFTEN:
            closed = "a range, arrays or lists that are alike are closed, and while"
            reasons.setdefault(location, f"{count} questions, a guard each: only loops over {closed}")
    yield from (f"unrolled at {location}: {why}" for location, why in reasons.items())


def _compilation_units(report: Any) -> Iterator[str]:
    """Yield the compilation units: the numbers of their steps, the origin of the code, and its compile time."""
    for steps, origin in report.units:
        result = {"memory": "from memory", "disk": "from disk", "compiled": "new"}[origin.source]
        took = f", {1e3 * origin.seconds:.2f} ms" if origin.seconds else ""
        yield f"{', '.join(map(str, steps))}: {result}{took}"


def _groups(result: Plan, inputs: tuple[str, ...] = ()) -> Iterator[str]:
    names = names_of(result.graph.named(inputs))
    reasons = result.schedule.storage.reason
    for i, step in enumerate(result.steps):
        group = step.group
        called = (
            f"of {group.roots[0].operands[0].name}" if group.roots[0].result_index is not None else "over one element"
        )
        yield f"{i}: {group.kind} " + (f"over {' x '.join(map(str, group.domain))}" if group.domain else called)
        for root in group.roots:
            yield f"   stores {names.get(root, '?')} {root.name} {root.aval}: {reasons.get(root, 'an output')}"
        for name, region in regions_of(step):
            yield from (f"   {line}" for line in (f"{name}:", *(f"   {inner}" for inner in _groups(region))))
    for fusion in result.strip_fusions:
        local = ", ".join(names.get(x, "?") for x, buffer in result.buffers.items() if buffer in fusion.local)
        yield f"steps {fusion.first} to {fusion.last} run together, {fusion.strip} of {fusion.rows} rows at a time" + (
            f"; of {local} there are no more" if local else ""
        )
    for edge in result.schedule.edges:
        yield f"{names.get(edge.producer, '?')} -> {names.get(edge.consumer, '?')} not fused: {edge.reason}"
