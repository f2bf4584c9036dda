"""Emit software prefetches in kernels whose arithmetic is too long for the CPU's own prefetcher.

A hardware prefetcher follows contiguous memory, and starts anew at each strided row. With expensive arithmetic between
the rows, the CPU waits for memory at the beginning of each row. In contiguous memory it does not prefetch far enough
if much is computed with few loads. A prefetch of an address without memory has no effect, so it is always valid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracegrad.avals import dtype_named
from tracegrad.codegen.instr.scalar import I64
from tracegrad.codegen.kernels.vectorize import LIGHTEST
from tracegrad.codegen.loopir.kernel import Kernel, Load
from tracegrad.codegen.vecmath.lanes import prefetch
from tracegrad.target.cache_lines import LINE
from tracegrad.target.tuning import TUNING

if TYPE_CHECKING:
    from tracegrad import llvmir as ir
    from tracegrad.codegen.kernels.vector_kernel import VectorLoop

PREFETCH_ROWS = TUNING.prefetching.rows
LINES = TUNING.prefetching.lines
MIN_COST_PER_LOAD = TUNING.prefetching.min_cost_per_load


def is_compute_bound(kernel: Kernel) -> bool:
    """Whether a kernel has a high arithmetic cost per loaded element."""
    return kernel.cost >= MIN_COST_PER_LOAD * sum([isinstance(x, Load) for x in kernel.body])


def fetch_ahead(loop: VectorLoop, x: Load, pointer: ir.IRValue, copy: int) -> None:
    """Prefetch some rows after `pointer` if rows are strided, or else some lines."""
    if loop.kernel.cost <= LIGHTEST or "prefetch" in loop.kernel.disabled:
        return
    bytes_ = dtype_named(x.out.dtype).itemsize
    *outer, inner = loop.kernel.loops
    row_stride = x.address.coefficient(outer[-1].var) if outer else inner.extent
    if row_stride == inner.extent:
        if loop.is_compute_bound:
            prefetch(loop.b, loop.b.gep(pointer, [I64(LINES * LINE // bytes_)]))
        return
    near = row_stride.value is not None and abs(row_stride.value) * bytes_ < LINE
    if not near and not row_stride.symbols & (loop.varying | {outer[-1].var}):
        prefetch(loop.b, loop.b.gep(pointer, [loop.scalar(row_stride * PREFETCH_ROWS, copy)]), locality=2)
