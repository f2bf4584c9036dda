"""Select the tuning constants of the target CPU: one frozen record per kind of CPU.

`TUNING` is the record of this machine. `python -m tracegrad info --tuning` prints it. The record follows from the CPU's
name and features, and from the source of this package; all three are parts of the key of machine code.
"""

from __future__ import annotations

from dataclasses import field, replace

from tracegrad.target.cpu import has_masks_of_bytes, is_sapphire_rapids, is_zen
from tracegrad.target.graphs import GraphRewriting, LoopRolling, Tracing
from tracegrad.target.kernels import Prefetching, ScalarCosts, Transposition, Unrolling, Vectorization
from tracegrad.target.libraries import BlasTiling, Factorization, GemmBlocking, NativeRoutines
from tracegrad.target.plans import Fusion, MemoryLayout, StripMining, Threading
from tracegrad.target.programs import CacheLimits, Diagnostics, Dispatch, FirstCall, PlainPython
from tracegrad.utils.lazy_dataclass import record


@record(frozen=True)
class Tuning:
    """The tuning constants of one target."""

    name: str = "generic"
    costs: ScalarCosts = field(default=ScalarCosts())
    vectorization: Vectorization = field(default=Vectorization())
    unrolling: Unrolling = field(default=Unrolling())
    prefetching: Prefetching = field(default=Prefetching())
    transposition: Transposition = field(default=Transposition())
    gemm: GemmBlocking = field(default=GemmBlocking())
    blas: BlasTiling = field(default=BlasTiling())
    factorization: Factorization = field(default=Factorization())
    routines: NativeRoutines = field(default=NativeRoutines())
    fusion: Fusion = field(default=Fusion())
    threads: Threading = field(default=Threading())
    strips: StripMining = field(default=StripMining())
    memory: MemoryLayout = field(default=MemoryLayout())
    first_call: FirstCall = field(default=FirstCall())
    dispatch: Dispatch = field(default=Dispatch())
    plain_python: PlainPython = field(default=PlainPython())
    caches: CacheLimits = field(default=CacheLimits())
    diagnostics: Diagnostics = field(default=Diagnostics())
    passes: GraphRewriting = field(default=GraphRewriting())
    loops: LoopRolling = field(default=LoopRolling())
    tracing: Tracing = field(default=Tracing())


GENERIC = Tuning()
# OpenBLAS's kernels for small matrices are faster here whatever the size of A.
ZEN = replace(
    GENERIC,
    name="AMD Zen",
    blas=replace(GENERIC.blas, max_unpacked_work=1 << 62, serial_work_of_doubles=1 << 20),
)
# 64-byte vectors do not reduce the frequency of these CPUs.
ZEN_AVX512 = replace(
    ZEN,
    name="AMD Zen with AVX-512",
    vectorization=replace(ZEN.vectorization, vector_bytes=64, compute_vector_bytes=64),
)
# Neither do they reduce that of these CPUs, but short rows are slower with them.
SAPPHIRE_RAPIDS = replace(
    GENERIC,
    name="Intel Sapphire Rapids",
    vectorization=replace(GENERIC.vectorization, compute_vector_bytes=64),
)


def tuning() -> Tuning:
    """The record of the target CPU."""
    if is_zen():
        return ZEN_AVX512 if has_masks_of_bytes() else ZEN
    return SAPPHIRE_RAPIDS if is_sapphire_rapids() and has_masks_of_bytes() else GENERIC


TUNING = tuning()
