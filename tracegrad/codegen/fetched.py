"""Rows that are fetched ahead, because the CPU does not: those that lie apart, in kernels that compute for long.

A CPU fetches ahead what lies side by side, and starts each new row from anew. In between, what it can look ahead is
what it computes with a few vectors; so where that is dear, it waits for the memory at the beginning of each row. An
instruction that asks for memory and does not wait is never wrong: where there is none, nothing happens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracegrad.avals import dtype_named
from tracegrad.codegen.lanes import prefetch
from tracegrad.codegen.loops import Load
from tracegrad.codegen.vectors import LIGHTEST

if TYPE_CHECKING:
    from tracegrad.codegen.vector_llvm import VectorLoop

__all__ = ["fetch_ahead"]

ROWS = 4  # ahead: of a few vectors each, they take as long as memory does
LINE = 64  # bytes that come together


def fetch_ahead(loop: VectorLoop, x: Load, pointer: Any, copy: int) -> None:
    """Ask for what lies some rows behind `pointer`, where rows lie apart."""
    if loop.kernel.cost <= LIGHTEST or len(loop.kernel.loops) < 2:
        return
    around, length = loop.kernel.loops[-2].var, loop.kernel.loops[-1].extent
    apart = x.address.coefficient(around)
    near = apart.value is not None and abs(apart.value) * dtype_named(x.out.dtype).itemsize < LINE
    if near or apart == length or apart.symbols & (loop.varying | {around}):
        return
    prefetch(loop.b, loop.b.gep(pointer, [loop.scalar(apart * ROWS, copy)]), locality=2)
