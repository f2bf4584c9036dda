"""Report the memory of a plan: each buffer with its size and its steps, and the peak of a call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tracegrad.codegen.plan.places_and_values import BufferPlace, InputPlace, OutputPlace
from tracegrad.codegen.plan.program_plan import Plan
from tracegrad.ir.printer import names_of
from tracegrad.utils.formatting import amount
from tracegrad.utils.lazy_dataclass import record

_KINDS: dict[type[BufferPlace], str] = {InputPlace: "input", OutputPlace: "result"}


@record(frozen=True)
class Used:
    """A buffer: its name, its largest value, its bytes, its kind ("input", "result" or "temporary"), and the first and
    last step that use it."""

    name: str
    value: str
    bytes: int
    kind: str
    first: int
    last: int


@record(frozen=True)
class MemoryReport:
    """The buffers of a program, the largest first, and the bytes of inputs (owned by the caller), of results, and of
    the arena. The arena has the temporaries (or a strip of them, for one thread), partial results and memory of loops.
    """

    buffers: tuple[Used, ...]
    inputs: int
    results: int
    arena: int

    @property
    def peak(self) -> int:
        """The peak memory of a call, in bytes, without its inputs."""
        return self.results + self.arena

    def lines(self) -> Iterator[str]:
        """The text of the report: the peak, then each buffer. Temporaries with disjoint lives share offsets."""
        owned = f"{amount(self.results, 'B')} of results, {amount(self.arena, 'B')} for temporary values"
        yield f"at most {amount(self.peak, 'B')}: {owned}; besides {amount(self.inputs, 'B')} of inputs"
        for used in self.buffers:
            steps = f"step {used.first}" if used.first == used.last else f"steps {used.first} to {used.last}"
            yield f"{used.name} {used.value}: {amount(used.bytes, 'B')}, {used.kind}, {steps}"


def memory_of(plan: Plan, inputs: Sequence[str] = ()) -> MemoryReport:
    """Report the memory of the program with this plan; `inputs` are the user's names."""
    names = names_of(plan.graph.named(tuple(inputs)))
    users = plan.users()
    strips = {
        name: row_bytes * fusion.strip for fusion in plan.strip_fusions for name, row_bytes in fusion.local.items()
    }
    table: dict[str, Used] = {}
    for node, name in plan.buffers.items():
        size = strips.get(name, node.aval.nbytes)
        if name not in table or table[name].bytes < size:
            steps = users[name] or [0]
            kind = _KINDS.get(type(plan.memory[name]), "temporary")
            value = " ".join(filter(None, [names.get(node, ""), node.name if node.op else "", str(node.aval)]))
            table[name] = Used(name, value, size, kind, min(steps), max(steps))
    buffers = sorted(table.values(), key=lambda used: -used.bytes)
    whole = {kind: sum(used.bytes for used in buffers if used.kind == kind) for kind in ("input", "result")}
    arena = plan.arena_bytes + max((fusion.bytes for fusion in plan.strip_fusions), default=0)
    return MemoryReport(tuple(buffers), whole["input"], whole["result"], arena)
