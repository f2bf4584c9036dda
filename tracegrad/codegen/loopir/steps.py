"""Define the plan steps without regions: kernel launch, matrix product by BLAS, call of NumPy.

A step knows its fusion group and the names of the buffers that it reads and writes; `rename` replaces a name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from tracegrad.codegen.loopir.blocking import LoopBlocks
from tracegrad.codegen.loopir.kernel import Kernel, Reduce, Substitution
from tracegrad.codegen.loopir.polynomial import ZERO, Poly
from tracegrad.codegen.loopir.random_draws import Native
from tracegrad.ir import GraphNode
from tracegrad.utils.lazy_dataclass import record


@record(eq=False)
class FusionGroup:
    """One kernel or call: the values it stores and the steps it depends on."""

    kind: str  # "kernel", "matmul", "call" or "nested"
    domain: tuple[Poly, ...]
    roots: list[GraphNode]  # the values it stores; the used results of a multi-result node
    number: int
    deps: set[FusionGroup] = field(default_factory=set, repr=False)  # transitive
    weight: int = 0
    needs_own_loops: bool = False  # whether it never shares its loops
    before: int = 0  # bitmask of all predecessors


@record(eq=False)
class Launch:
    """A kernel launch and the partition of its chunked loop, which depends on the sizes only.

    With `base`, the kernel writes a part of its result, which is initialized with the `bytes` of that buffer, unless it
    is that buffer itself.
    """

    group: FusionGroup
    kernel: Kernel
    serial: bool
    partials: dict[str, Poly]  # buffers reduced across chunks -> size of the result
    base: str = ""
    bytes: Poly = ZERO
    blocks: LoopBlocks = LoopBlocks()  # the chunks of its rows

    @property
    def buffers(self) -> list[str]:
        return [*self.kernel.buffers, self.base] if self.base else list(self.kernel.buffers)

    @property
    def writes(self) -> set[str]:
        return {name for name, (_, use) in self.kernel.buffers.items() if use == "out"}

    @property
    def copies(self) -> bool:
        """Whether the result is initialized with a copy."""
        return bool(self.base) and self.base not in self.writes

    @property
    def is_separate_function(self) -> bool:
        """Whether the kernel may run in chunks, and is therefore a separate function that programs share."""
        return not self.serial and any(x.extent.value is None for x in self.kernel.loops)

    @property
    def fills(self) -> list[tuple[str, str, str, Poly]]:
        """The accumulators to initialize before the kernel runs: buffer, dtype, combiner, size."""
        reductions = [x for x in self.kernel.body if type(x) is Reduce and _is_filled(self.kernel, x)]
        return [(x.buffer, x.value.dtype, x.combiner, x.size) for x in reductions] if reductions else []

    def rename(self, old: str, new: str) -> None:
        self.base = new if self.base == old else self.base
        self.partials = {new if b == old else b: size for b, size in self.partials.items()}
        buffers, written = self.kernel.buffers, new in self.writes
        if old in buffers:
            dtype, use = buffers.pop(old)
            buffers[new] = (dtype, "out" if written else use)
            self.kernel.body[:] = Substitution(buffers={old: new}).body(self.kernel.body)

    def text(self) -> str:
        notes = [f"fill {b}: {dtype} of {size} for {combiner}" for b, dtype, combiner, size in self.fills]
        notes += ["serial"] * self.serial + [f"partial {b} of {size}" for b, size in self.partials.items()]
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


@record(frozen=True)
class MatrixStrides:
    """The layout of the matrices of a batch in a buffer: strides in elements. `leading` is the stride of rows, or of
    columns in a transposed matrix. `outer` is the stride between runs of products, and `inner` the stride within a
    run."""

    leading: Poly
    outer: Poly
    inner: Poly

    def text(self) -> str:
        return f"{self.leading}/{self.outer}/{self.inner}"


@record(eq=False)
class Matmul:
    """out[batch, m, n] = x[batch, m, k] @ y[batch, k, n] by BLAS; a flag says that an operand is stored transposed.

    `strides` are the layouts of x, y and out; a run has `within` products. With `adds`, 1 or -1, the product is added
    to memory, or subtracted from it. Without `tiles`, OpenBLAS computes each product in one call.
    """

    group: FusionGroup
    dtype: str
    out: str
    x: tuple[str, bool]
    y: tuple[str, bool]
    sizes: tuple[Poly, Poly, Poly, Poly]
    strides: tuple[MatrixStrides, MatrixStrides, MatrixStrides]
    within: Poly
    node: GraphNode
    adds: int = 0
    tiles: bool = True

    @property
    def routine(self) -> str:
        """The name of the function that computes a product."""
        return f"tg_{'' if self.tiles else 'blas_'}{'d' if self.dtype == 'f64' else 's'}gemm"

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
        text += "" if self.tiles else " without tiles"
        if self.strides == self._close():
            return text
        return f"{text}, lying {', '.join(strides.text() for strides in self.strides)}, {self.within} a run"

    def _close(self) -> tuple[MatrixStrides, ...]:
        """The layouts of contiguous matrices, one after the other."""
        batch, m, n, k = self.sizes
        leading = (m if self.x[1] else k, k if self.y[1] else n, n)
        return tuple(
            [MatrixStrides(a, ZERO if batch == 1 else size, ZERO) for a, size in zip(leading, (m * k, k * n, m * n))]
        )


@record(eq=False)
class CallStep:
    """A call of the NumPy implementation of an op without lowering rules, or a compiled draw of random numbers; `outs`
    has "" for an unused result."""

    group: FusionGroup
    number: int
    node: GraphNode
    outs: tuple[str, ...]
    operands: tuple[str, ...]
    native: Native | None = None

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
        name = self.native or "f"
        return f"call {self.number}: {', '.join(b or '_' for b in self.outs)} = {name}({', '.join(self.operands)})"


def number_call_steps(steps: Sequence[object]) -> None:
    """Number the calls among `steps` in their order."""
    for count, call in enumerate([x for x in steps if isinstance(x, CallStep)]):
        call.number = count


def near_order(numbers: Sequence[int], before: Sequence[int]) -> list[int]:
    """Order the steps with the numbers `numbers` by their dependencies, and change the order as little as possible.

    Returns positions in `numbers`; `before` has the bitmask of the predecessors for each position."""
    results: list[int] = []
    done = 0
    for last, number in enumerate(numbers):
        if done >> number & 1:
            continue
        missing = before[last] & ~done
        if missing:
            early = [i for i, n in enumerate(numbers) if missing >> n & 1]
            results += sorted(early, key=lambda i: before[i].bit_count())
        results.append(last)
        done |= before[last] | 1 << number
    return results
