"""The CPU that code is made for: its name, its features, and what follows from these."""

from __future__ import annotations

import os
from functools import cache

import llvmlite.binding as ll

__all__ = [
    "converts_halves", "cpu_name", "features", "has_masks_of_bytes", "has_small_kernels", "is_zen",
    "stores_slowly_with_masks",
]  # fmt: skip


def cpu_name() -> str:
    return os.environ.get("NUMBA_CPU_NAME") or str(ll.get_host_cpu_name())


@cache
def features() -> set[str]:
    """The features of the CPU that code is made for."""
    given = os.environ.get("NUMBA_CPU_FEATURES")
    if given is not None:
        return {x[1:] for x in given.split(",") if x.startswith("+")}
    found = {name for name, is_there in ll.get_host_cpu_features().items() if is_there}
    if os.environ.get("NUMBA_ENABLE_AVX", "1") == "0":
        found = {name for name in found if not name.startswith("avx")}
    return found


def has_masks_of_bytes() -> bool:
    return {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= features()


@cache
def stores_slowly_with_masks() -> bool:
    """Whether a vector that is stored with a mask takes a dozen cycles, as on AMD's CPUs before those with AVX-512."""
    return is_zen() and not has_masks_of_bytes()


def is_zen() -> bool:
    """Whether the CPU is one of AMD's, from 2017 on."""
    return cpu_name().startswith("znver")


def has_small_kernels() -> bool:
    """Whether OpenBLAS computes small products at once, and faster than `gemm`, but for those with only the first
    factor transposed. It has such kernels for all CPUs with AVX-512; on others than AMD's that was not measured."""
    return is_zen() and has_masks_of_bytes()


def converts_halves() -> bool:
    """Whether there are instructions between half and single precision; else LLVM calls functions that no module has.

    Those of x86 are encoded as AVX is. All ARM of 64 bits have them.
    """
    if ll.get_process_triple().startswith(("aarch64", "arm64")):
        return True
    return {"avx", "f16c"} <= features()
