"""Decide unroll-and-jam: whether to unroll the second-innermost loop and fuse the copies in the innermost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tracegrad.avals import dtype_named
from tracegrad.codegen.kernels.loop_order import is_serial
from tracegrad.codegen.kernels.vectorize import LIGHTEST, Vectors
from tracegrad.codegen.loopir.kernel import Compute, Index, Kernel, Load, Reduce, Store
from tracegrad.target.tuning import TUNING

JAM_FACTOR = TUNING.unrolling.jam_factor
MAX_JAM_INSTRUCTIONS = TUNING.unrolling.max_jam_instructions
WRITTEN_OUT = TUNING.unrolling.max_constant_bytes
MAX_JAM_ROW_BYTES = TUNING.unrolling.max_jam_row_bytes


class UnrollAndJam(NamedTuple):
    """The unroll factor `copies`. If `brief`, only loops of at most that many elements are jammed."""

    copies: int
    brief: int = 0


def _is_brief(kernel: Kernel) -> bool:
    """Whether the innermost loop is so short that LLVM unrolls it, and vectorizes the loop around it."""
    size = kernel.loops[-1].extent.value
    widest = max([dtype_named(x.out.dtype).itemsize for x in kernel.body if isinstance(x, Load)], default=8)
    return size is not None and size * widest <= WRITTEN_OUT


def unroll_and_jam_of(kernel: Kernel, vectors: Vectors | None, depths: Sequence[int]) -> UnrollAndJam | None:
    """Decide the unroll-and-jam of `kernel`; `depths` says from which loop on each reduction has a register.

    Iterations are jammed if each would load and store an accumulator in memory. If each reduces into its own register,
    they are jammed if they share a load, or would only wait for additions.
    """
    outer = len(kernel.loops) - 2
    plain = all(isinstance(x, Compute | Load | Index | Store | Reduce) for x in kernel.body)
    if outer < 0 or not plain or len(kernel.body) > MAX_JAM_INSTRUCTIONS or is_serial(kernel):
        return None
    if "unroll-and-jam" in kernel.disabled:
        return None
    reductions = [x for x in kernel.body if isinstance(x, Reduce)]
    if not reductions or (vectors is not None and vectors.rows):
        return None
    var = kernel.loops[outer].var
    if all(depth == outer + 2 and var in x.over for x, depth in zip(reductions, depths, strict=True)):
        # A larger factor if masked stores are soon loaded again, which is slow.
        return UnrollAndJam(2 * JAM_FACTOR if vectors and len(kernel.body) <= MAX_JAM_INSTRUCTIONS // 2 else JAM_FACTOR)
    if any(depth != outer + 1 for depth in depths) or _is_brief(kernel):
        return None
    if any(isinstance(x, Load) and var not in x.address.symbols for x in kernel.body):
        return UnrollAndJam(JAM_FACTOR)
    waiting = vectors is not None and kernel.cost <= LIGHTEST
    return UnrollAndJam(JAM_FACTOR, MAX_JAM_ROW_BYTES // vectors.least) if waiting else None  # type: ignore[union-attr]
