"""The memory of a program: each buffer with its size and the steps that use it, and what a call takes at most."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tracegrad.codegen.plan.planner import Plan
from tracegrad.ir.printer import names_of
from tracegrad.utils.formatting import amount
from tracegrad.utils.lazy_dataclass import record

__all__ = ["Memory", "Used", "memory_of"]


@record(frozen=True)
class Used:
    """A buffer: its name, the largest value that is in it, its bytes, what it is ("input", "result" or "temporary"),
    and the first and last step that use it."""

    name: str
    value: str
    bytes: int
    kind: str
    first: int
    last: int


@record(frozen=True)
class Memory:
    """The buffers of a program, the largest first; bytes of inputs, which are the caller's, of results, and of the
    arena, in which temporaries have their places, with partial results and what loops need for themselves; or a strip,
    for one thread."""

    buffers: tuple[Used, ...]
    inputs: int
    results: int
    arena: int

    @property
    def peak(self) -> int:
        """The bytes that a call needs at most besides its inputs."""
        return self.results + self.arena

    def lines(self) -> Iterator[str]:
        """The peak, then each buffer; temporaries whose lives do not overlap have the same places in the arena."""
        own = f"{amount(self.results, 'B')} of results, {amount(self.arena, 'B')} for temporary values"
        yield f"at most {amount(self.peak, 'B')}: {own}; besides {amount(self.inputs, 'B')} of inputs"
        for used in self.buffers:
            steps = f"step {used.first}" if used.first == used.last else f"steps {used.first} to {used.last}"
            yield f"{used.name} {used.value}: {amount(used.bytes, 'B')}, {used.kind}, {steps}"


def memory_of(made: Plan, inputs: Sequence[str] = ()) -> Memory:
    """The memory of the program with this plan; `inputs` are what the user calls them."""
    names = names_of(made.graph.named(tuple(inputs)))
    users = made.users()
    strips = {name: row * band.strip for band in made.bands for name, row in band.local.items()}
    found: dict[str, Used] = {}
    for node, name in made.buffers.items():
        kind = made.memory[name].partition(" ")[0]
        size = strips.get(name, node.aval.nbytes)
        if name not in found or found[name].bytes < size:
            steps = users[name] or [0]
            told = {"input": "input", "output": "result"}.get(kind, "temporary")
            value = " ".join(filter(None, [names.get(node, ""), node.name if node.op else "", str(node.aval)]))
            found[name] = Used(name, value, size, told, min(steps), max(steps))
    buffers = sorted(found.values(), key=lambda used: -used.bytes)
    whole = {kind: sum(used.bytes for used in buffers if used.kind == kind) for kind in ("input", "result")}
    arena = made.arena_bytes + max((band.bytes for band in made.bands), default=0)
    return Memory(tuple(buffers), whole["input"], whole["result"], arena)
