"""The steps of a plan that run no regions: kernels, matrix products by BLAS, calls of NumPy.

A step knows the buffers that it reads and writes, by name; `rename` gives one another name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tracegrad.codegen.loopir.kernel import ACCESSES, Guard, Kernel, Reduce
from tracegrad.codegen.loopir.polynomial import ZERO, Poly
from tracegrad.codegen.loopir.random_draws import native_of
from tracegrad.ir import Node
from tracegrad.utils.lazy_dataclass import record

__all__ = ["Call", "Launch", "Lie", "Matmul", "near_order", "number_calls"]


@record(eq=False)
class Launch:
    """One kernel and how its chunked loop is cut; the cut depends on the sizes only.

    With `base`, the kernel writes a part of its result, which begins as a copy of the `bytes` of that buffer, if it is
    not that buffer itself."""

    kernel: Kernel
    roots: list[Node]
    serial: bool
    partials: dict[str, Poly]  # buffers reduced across chunks -> size of the result
    base: str = ""
    bytes: Poly = ZERO
    rows: int = 0
    chunks: int = 1
    parallel: bool = False

    @property
    def buffers(self) -> list[str]:
        return [*self.kernel.buffers, self.base] if self.base else list(self.kernel.buffers)

    @property
    def writes(self) -> set[str]:
        return {name for name, (_, use) in self.kernel.buffers.items() if use == "out"}

    @property
    def copies(self) -> bool:
        """Whether the result begins as a copy."""
        return bool(self.base) and self.base not in self.writes

    @property
    def stands_alone(self) -> bool:
        """Whether it may be worth chunks: then its kernel is a function that other programs call too."""
        return not self.serial and any(x.extent.value is None for x in self.kernel.loops)

    @property
    def fills(self) -> list[tuple[str, str, str, Poly]]:
        """The accumulators that must be started before the kernel runs: buffer, dtype, combiner, size."""
        reductions = [x for x in self.kernel.body if type(x) is Reduce]
        return [(x.buffer, x.value.dtype, x.combiner, x.size) for x in reductions if _is_filled(self.kernel, x)]

    def rename(self, old: str, new: str) -> None:
        self.base = new if self.base == old else self.base
        self.partials = {new if b == old else b: size for b, size in self.partials.items()}
        buffers, written = self.kernel.buffers, new in self.writes
        if old in buffers:
            dtype, use = buffers.pop(old)
            buffers[new] = (dtype, "out" if written else use)
            self.kernel.body[:] = _renamed(self.kernel.body, old, new)

    def text(self) -> str:
        notes = ["serial"] * self.serial + [f"partial {b} of {size}" for b, size in self.partials.items()]
        notes += [f"copy {self.base}: {self.bytes} bytes"] * self.copies
        return "\n".join([*notes, self.kernel.text()])


def _is_filled(kernel: Kernel, x: Reduce) -> bool:
    over = [loop.var in x.over for loop in kernel.loops]
    if x.scatters or not any(over) or over[kernel.chunked]:
        return False
    inner = len(over)
    while inner and over[inner - 1]:
        inner -= 1
    return any(over[:inner]) or inner == len(over)


def _renamed(body: list[Any], old: str, new: str) -> list[Any]:
    found = []
    for x in body:
        kind = type(x)
        if kind is Guard:
            x = replace(x, body=_renamed(x.body, old, new))
        elif kind in ACCESSES and x.buffer == old:
            x = replace(x, buffer=new)
        found.append(x)
    return found


@record(frozen=True)
class Lie:
    """How the matrices of a stack lie in a buffer, in elements: the distance of their rows (of their columns, if they
    are stored transposed), of each run of products from the next one, and of the products of a run."""

    leading: Poly
    outer: Poly
    inner: Poly

    def text(self) -> str:
        return f"{self.leading}/{self.outer}/{self.inner}"


@record(eq=False)
class Matmul:
    """out[batch, m, n] = x[batch, m, k] @ y[batch, k, n] by BLAS; a flag says that an operand is stored transposed.

    `lies` are those of x, y and out; `within` products are a run. With `adds`, 1 or -1, the product is added to what is
    there, or subtracted from it."""

    dtype: str
    out: str
    x: tuple[str, bool]
    y: tuple[str, bool]
    sizes: tuple[Poly, Poly, Poly, Poly]
    lies: tuple[Lie, Lie, Lie]
    within: Poly
    node: Node
    adds: int = 0

    @property
    def buffers(self) -> list[str]:
        return [self.out, self.x[0], self.y[0]]

    @property
    def writes(self) -> set[str]:
        return {self.out}

    def rename(self, old: str, new: str) -> None:
        self.out = new if self.out == old else self.out
        self.x, self.y = [(new if b == old else b, flipped) for b, flipped in (self.x, self.y)]

    def text(self) -> str:
        x, y = (f"{b}{'.T' if flipped else ''}" for b, flipped in (self.x, self.y))
        batch, m, n, k = self.sizes
        text = f"matmul {self.out} {('', '+', '-')[self.adds]}= {x} @ {y} : {self.dtype} batch {batch}, {m} x {k} x {n}"
        if self.lies == self._close():
            return text
        return f"{text}, lying {', '.join(lie.text() for lie in self.lies)}, {self.within} a run"

    def _close(self) -> tuple[Lie, ...]:
        """How the matrices lie if each is a block of its own behind the one before."""
        batch, m, n, k = self.sizes
        rows = (m if self.x[1] else k, k if self.y[1] else n, n)
        return tuple([Lie(a, ZERO if batch == 1 else size, ZERO) for a, size in zip(rows, (m * k, k * n, m * n))])


@record(eq=False)
class Call:
    """An op without codegen data: its NumPy meaning is called; `outs` has "" for a result that nothing uses."""

    number: int
    node: Node
    outs: tuple[str, ...]
    operands: tuple[str, ...]

    @property
    def buffers(self) -> list[str]:
        return [*filter(None, self.outs), *self.operands]

    @property
    def writes(self) -> set[str]:
        return set(filter(None, self.outs))

    def rename(self, old: str, new: str) -> None:
        self.outs, self.operands = (
            tuple(new if b == old else b for b in names) for names in (self.outs, self.operands)
        )

    def text(self) -> str:
        name = native_of(self.node) or "f"
        return f"call {self.number}: {', '.join(b or '_' for b in self.outs)} = {name}({', '.join(self.operands)})"


def number_calls(steps: Sequence[Any]) -> None:
    """Number the calls among `steps` in their order."""
    for count, call in enumerate([x for x in steps if isinstance(x, Call)]):
        call.number = count


def near_order(numbers: Sequence[int], before: Sequence[int]) -> list[int]:
    """The places of what has these numbers, in an order near to theirs, but each behind all that must come before it:
    `before` has a bit for the number of each of those."""
    found: list[int] = []
    done = 0
    for last, number in enumerate(numbers):
        if done >> number & 1:
            continue
        missing = before[last] & ~done
        if missing:
            early = [i for i, n in enumerate(numbers) if missing >> n & 1]
            found += sorted(early, key=lambda i: before[i].bit_count())
        found.append(last)
        done |= before[last] | 1 << number
    return found
