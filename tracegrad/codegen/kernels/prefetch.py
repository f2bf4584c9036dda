"""What is fetched ahead, because the CPU does not, in kernels that compute for long.

A CPU fetches ahead what lies side by side, and starts each row that lies apart from anew. In between, what it can look
ahead is what it computes with a few vectors; so where that is dear, it waits for the memory at the beginning of each
row. And of what lies side by side it does not fetch enough where much is computed with few numbers: with a prefetch, a
sum of tanh and exp of three arrays that no cache holds takes 0.7 of the time. An instruction that asks for memory and
does not wait is never wrong: where there is none, nothing happens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracegrad.avals import dtype_named
from tracegrad.codegen.instr.scalar import I64
from tracegrad.codegen.kernels.vectorize import LIGHTEST
from tracegrad.codegen.loopir.kernel import Kernel, Load
from tracegrad.codegen.target.cache_lines import LINE
from tracegrad.codegen.vecmath.lanes import prefetch

if TYPE_CHECKING:
    from tracegrad.codegen.kernels.vector_kernel import VectorLoop

__all__ = ["computes_much", "fetch_ahead"]

ROWS = 4  # ahead: of a few vectors each, they take as long as memory does
LINES = 8  # ahead, where they lie side by side; twice or half as many do as well
MUCH = 16  # cost for each element that is read


def computes_much(kernel: Kernel) -> bool:
    """Whether a kernel computes much with each element that it reads."""
    return kernel.cost >= MUCH * sum([isinstance(x, Load) for x in kernel.body])


def fetch_ahead(loop: VectorLoop, x: Load, pointer: Any, copy: int) -> None:
    """Ask for what lies some rows behind `pointer`, where rows lie apart, or else some lines."""
    if loop.kernel.cost <= LIGHTEST:
        return
    bytes_ = dtype_named(x.out.dtype).itemsize
    *outer, inner = loop.kernel.loops
    apart = x.address.coefficient(outer[-1].var) if outer else inner.extent
    if apart == inner.extent:
        if loop.computes_much:
            prefetch(loop.b, loop.b.gep(pointer, [I64(LINES * LINE // bytes_)]))
        return
    near = apart.value is not None and abs(apart.value) * bytes_ < LINE
    if not near and not apart.symbols & (loop.varying | {outer[-1].var}):
        prefetch(loop.b, loop.b.gep(pointer, [loop.scalar(apart * ROWS, copy)]), locality=2)
