"""Choose how matrix products are computed: by the generated GEMM or by OpenBLAS, whole or in tiles.

The choice follows from the CPU, from the kernels that OpenBLAS uses (its "core"), and from the precision, never from
the number of threads. `tracegrad.runtime.blas` writes it into the code of a product.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal

import llvmlite.binding as ll

from tracegrad.target.cpu import features, has_masks_of_bytes, is_zen
from tracegrad.target.tuning import tuning
from tracegrad.utils.lazy_dataclass import record

Generated = Literal["none", "small_or_slim", "packed_otherwise"]


@record(frozen=True)
class OpenBlasKernels:
    """The kernels that OpenBLAS has for a kind of CPU."""

    unpacked_work: int | None = None  # multiply-adds of a product up to which some of them do not pack
    joins_tiles: bool = False  # an uncut product has the bits of its tiles, so that one thread need not cut it


_AVX512 = OpenBlasKernels(unpacked_work=1_000_000)  # dgemm_small_kernel_permit
_AVX2 = OpenBlasKernels(joins_tiles=True)
_KERNELS = {"SkylakeX": _AVX512, "Cooperlake": _AVX512, "SapphireRapids": _AVX512, "Haswell": _AVX2, "Zen": _AVX2}


@record(frozen=True)
class GemmPolicy:
    """The routines and the tiles of products of one precision, as `tiles.ll` of `tracegrad.runtime.blas` uses them."""

    kernels: OpenBlasKernels
    generated: Generated  # the products of the generated GEMM
    selection: Mapping[str, int]  # sizes at which it begins or ends to be faster: fields of `generated_*.ll`
    max_unpacked_work: int  # of a product that OpenBLAS does not pack whatever A is
    max_small_a: int  # elements of A in a larger product that it does not pack
    serial_work: int  # a smaller product runs in the calling thread
    joins_rows: bool  # kernels that join tiles do so whatever the number of rows
    tiles: int  # into so many a product is cut, if they are not too small
    narrow_columns: int  # a product of so many is cut into rows only
    min_tile_columns: int
    column_step: int  # the columns of a tile are a multiple of it
    packed_columns: int  # of A that are packed at once


def gemm_policy(single: bool, core: str) -> GemmPolicy:
    """The policy for products of single or double precision, if OpenBLAS uses the kernels of `core`."""
    kernels = _KERNELS.get(core, OpenBlasKernels())
    joins_columns = single and kernels.joins_tiles
    generated, limits = _generated(kernels), tuning().blas
    doubles = limits.serial_work_of_joined_doubles if kernels.joins_tiles else limits.serial_work_of_doubles
    return GemmPolicy(
        kernels=kernels,
        generated=generated,
        selection=_selection(generated, kernels, single),
        max_unpacked_work=limits.max_unpacked_work,
        max_small_a=limits.max_small_a,
        serial_work=limits.serial_work if single else doubles,
        joins_rows=not single,
        tiles=min(4, 1 << ((os.cpu_count() or 4) - 1).bit_length()),
        narrow_columns=128 if single and not joins_columns else 64,
        min_tile_columns=32 if joins_columns else 128 if single else 64,
        column_step=12 if joins_columns else 16,
        packed_columns=limits.packed_columns,
    )


def _generated(kernels: OpenBlasKernels) -> Generated:
    """The products of the generated GEMM: with AVX2 without longer vectors, and on the AVX-512 CPUs where it is known
    to be faster."""
    if {"avx2", "fma"} <= features() and "avx512f" not in features():
        return "small_or_slim"
    return "packed_otherwise" if has_small_kernels() and kernels.unpacked_work is not None else "none"


def _selection(generated: Generated, kernels: OpenBlasKernels, single: bool) -> dict[str, int]:
    if generated == "small_or_slim":
        return {
            "max_transposed_work": 1 << (19 if single else 21),
            "max_rows": 16 if single else 32,
            "max_columns": 64 if single else 0,
        }
    if generated == "packed_otherwise":
        return {
            "unpacked_work": kernels.unpacked_work or 0,
            "min_far_columns": 16 if single else 64,
            "max_slow_rows": 2 if single else 0,
        }
    return {}


def has_small_kernels() -> bool:
    """Whether OpenBLAS has kernels for small products that are faster than the generated GEMM, except if only the first
    factor is transposed. OpenBLAS has them for all CPUs with AVX-512, but uses them on AMD only."""
    return is_zen() and has_masks_of_bytes()


def preferred_core() -> str | None:
    """The OpenBLAS kernels for this CPU, or None to let OpenBLAS choose, which knows CPUs by name and gives an unknown
    one kernels without AVX-512."""
    if ll.get_process_triple().split("-", 1)[0] != "x86_64":
        return None
    try:
        features_of_host = ll.get_host_cpu_features()
    except RuntimeError:
        return None
    needed = ("avx512f", "avx512dq", "avx512bw", "avx512vl")
    return "SkylakeX" if all(features_of_host.get(feature) for feature in needed) else None
