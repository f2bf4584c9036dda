"""Describe the target CPU: its name, its features, and the capabilities derived from them."""

from __future__ import annotations

import os
from functools import cache

import llvmlite.binding as ll


def cpu_name() -> str:
    return os.environ.get("NUMBA_CPU_NAME") or str(ll.get_host_cpu_name())


@cache
def features() -> set[str]:
    """The features of the target CPU."""
    operands = os.environ.get("NUMBA_CPU_FEATURES")
    if operands is not None:
        return {x[1:] for x in operands.split(",") if x.startswith("+")}
    results = {name for name, is_supported in ll.get_host_cpu_features().items() if is_supported}
    if os.environ.get("NUMBA_ENABLE_AVX", "1") == "0":
        results = {name for name in results if not name.startswith("avx")}
    return results


def has_masks_of_bytes() -> bool:
    return {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= features()


@cache
def stores_slowly_with_masks() -> bool:
    """Whether masked vector stores are slow, as on AMD CPUs without AVX-512."""
    return is_zen() and not has_masks_of_bytes()


def is_zen() -> bool:
    """Whether the CPU is an AMD Zen."""
    return cpu_name().startswith("znver")


def is_sapphire_rapids() -> bool:
    """Whether the CPU is an Intel Sapphire Rapids or one of its successors, which do not slow down after 64-byte
    vectors."""
    return cpu_name().startswith(("sapphirerapids", "emeraldrapids", "graniterapids"))


def converts_halves() -> bool:
    """Whether instructions convert between half and single precision; else LLVM calls functions that no module defines.

    The x86 instructions are VEX-encoded, so they need AVX. All 64-bit ARM CPUs have them.
    """
    if ll.get_process_triple().startswith(("aarch64", "arm64")):
        return True
    return {"avx", "f16c"} <= features()
