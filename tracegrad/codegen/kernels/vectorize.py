"""Decide which kernels are vectorized, and with how many lanes, from their text and the target alone.

The innermost loop is vectorized if its accesses are contiguous or loop-invariant, and it cannot exit early.
Loop-invariant values are computed before the loop. All other kernels are emitted as scalar loops, which LLVM's
vectorizer may vectorize.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cache
from typing import Any, NamedTuple

from tracegrad.avals import dtype_named
from tracegrad.codegen.kernels.interleaved_access import InterleavedAccesses
from tracegrad.codegen.kernels.loop_order import is_serial
from tracegrad.codegen.loopir.kernel import (
    BoundsCheck,
    Compute,
    GuardBlock,
    Index,
    Kernel,
    Load,
    Reduce,
    Store,
    accesses,
    flattened,
    used,
)
from tracegrad.codegen.loopir.polynomial import Poly
from tracegrad.codegen.loopir.scalar_templates import COST
from tracegrad.target.cpu import features, has_masks_of_bytes
from tracegrad.target.tuning import TUNING, tuning

LIGHTEST = TUNING.vectorization.max_cheap_cost
STRIDES = (2, 3, 4, -2, -3, -4)  # strides of loads by whole vectors and shuffles
NEAR = TUNING.vectorization.max_shuffled_stride
SHORT = TUNING.vectorization.memory_vector_bytes
MAX_UNMASKED_COST = TUNING.vectorization.max_unmasked_cost
LONG = TUNING.vectorization.min_interleaved_calls
MIN_ROW_ELEMENTS = TUNING.vectorization.min_row_elements
MAX_VECTOR_ROWS = TUNING.vectorization.max_rows
# Operations that LLVM computes lane by lane.
_SCALAR = frozenset({"remainder", "floor_divide"})
_PER_GATHER = TUNING.vectorization.cost_per_gather


class Vectors(NamedTuple):
    """The vectorization of a kernel."""

    lanes: int
    at_once: int  # vectors per iteration of the unmasked loop; 0 if there is only a masked loop
    least: int  # the size in bytes of the smallest elements that are loaded or stored
    varying: frozenset[str]  # values and variables that differ between lanes
    rows: int = 0  # rows that share a vector; 0 if each row has its own vectors


@cache
def vector_bytes() -> int:
    """The width of masked vectors on this target; 0 if it does not use them."""
    return tuning().vectorization.vector_bytes if "avx2" in features() else 0


@cache
def compute_vector_bytes() -> int:
    """The width of vectors in expensive loops that do not wait for memory."""
    return tuning().vectorization.compute_vector_bytes if vector_bytes() else 0


@cache
def narrowest_bytes() -> int:
    """The size of the smallest elements that are loaded and stored with masks.

    AVX2 has masked instructions for words of 4 and 8 bytes only. Shorter lanes would be tested one by one, and
    comparisons, whose booleans are bytes, would be slower than scalar code.
    """
    return 1 if has_masks_of_bytes() else 4


def vectors_of(kernel: Kernel) -> Vectors | None:
    """The vectorization of `kernel`, or None for a scalar loop."""
    if not _may_be_vectors(kernel):
        return None
    least = _least(kernel)
    if least < narrowest_bytes():
        return _boolean_vectors(kernel)
    var = kernel.loops[-1].var
    if (size := kernel.loops[-1].extent.value) is not None:
        return _short_row_vectors(kernel, size, least) if size else None
    varying, pairs = dependent(kernel.body, var), InterleavedAccesses(kernel, var).stores
    if not all(_fits(x, var, varying, False, pairs) for x in kernel.body):
        return None
    if _gathers(kernel.body, var, varying) * _PER_GATHER > kernel.cost:
        return None
    reductions = [x for x in kernel.body if isinstance(x, Reduce) and x.over]
    is_cheap = kernel.cost <= LIGHTEST and not reductions
    mixed_width = is_cheap and _is_mixed_width(kernel.body)
    waits = is_cheap and not mixed_width
    width = (
        compute_vector_bytes() if (kernel.cost > LIGHTEST or mixed_width) and len(kernel.loops) == 1 else vector_bytes()
    )
    width = min(width, SHORT) if waits else width
    lanes = width // max(_sizes(kernel.body, varying), default=8)
    at_once = int(kernel.cost <= MAX_UNMASKED_COST or not all(var in x.over for x in reductions))
    if kernel.cost <= LIGHTEST and reductions and all(var in x.over for x in reductions):
        at_once = 4
    elif mixed_width or (kernel.cost <= MAX_UNMASKED_COST and _is_stencil(kernel)) or _is_long(kernel):
        at_once = 2
    # An unmasked loop would have a guard mask with more bits than lanes.
    guarded = lanes * least < 16 and any(isinstance(x, GuardBlock) for x in kernel.body)
    return Vectors(lanes, 0 if guarded else at_once, least, varying)


def _may_be_vectors(kernel: Kernel) -> bool:
    if not vector_bytes() or "vectorization" in kernel.disabled:
        return False
    return bool(kernel.loops) and not is_serial(kernel)


def _boolean_vectors(kernel: Kernel) -> Vectors | None:
    """The vectorization of a kernel that stores only booleans of wider elements on a target without byte masks: enough
    elements at a time for a vector of booleans. The lanes of the remainder are tested one by one, once."""
    body, var = kernel.body, kernel.loops[-1].var
    booleans = all(not isinstance(x, Store) or x.value.dtype == "bool" for x in body)
    plain = booleans and all(isinstance(x, Load | Store | Compute) for x in body) and len(kernel.loops) == 1
    if not plain or min([_size(x) for x in body if isinstance(x, Load)], default=0) < narrowest_bytes():
        return None
    varying = dependent(body, var)
    fits = all(_fits(x, var, varying, False) for x in body) and not _gathers(body, var, varying)
    return Vectors(vector_bytes(), 1, 1, varying) if fits and kernel.cost <= LIGHTEST else None


def search_vectors_of(kernel: Kernel) -> Vectors | None:
    """The vectorization of a search over elements too short for masks: one vector at a time, which is fast without a
    match. The lanes after the last whole vector are tested one by one."""
    if not _may_be_vectors(kernel) or kernel.loops[-1].extent.value is not None:
        return None
    var = kernel.loops[-1].var
    varying = dependent(kernel.body, var)
    if not all(_fits(x, var, varying, False) for x in kernel.body) or _gathers(kernel.body, var, varying):
        return None
    return Vectors(vector_bytes() // max(_sizes(kernel.body, varying), default=8), 1, _least(kernel), varying)


def _least(kernel: Kernel) -> int:
    """The size of the smallest elements in memory. Reductions along the innermost loop are in registers."""
    var = kernel.loops[-1].var
    return min([_size(x) for x in accesses(kernel.body) if not isinstance(x, Reduce) or var not in x.over], default=8)


def _is_mixed_width(body: list[Any]) -> bool:
    """Whether the loaded elements are much wider than the stored ones, or the reverse: short vectors of booleans would
    be a few bytes."""
    every = accesses(body)
    read = max([_size(x) for x in every if isinstance(x, Load)], default=0)
    written = max([_size(x) for x in every if not isinstance(x, Load)], default=0)
    return 0 < 4 * min(read, written) <= max(read, written)


def rounded_up(size: int) -> int:
    """The next power of two."""
    return 1 << (size - 1).bit_length()


def _short_row_vectors(kernel: Kernel, size: int, least: int) -> Vectors | None:
    """The vectorization of a kernel whose innermost loop has a small constant extent."""
    if kernel.chunked == len(kernel.loops) - 1 or all(loop.extent.value is not None for loop in kernel.loops):
        return None
    row, var = kernel.loops[-2].var, kernel.loops[-1].var
    both = dependent(kernel.body, row) | dependent(kernel.body, var)
    widest = vector_bytes() // max(_sizes(kernel.body, both), default=8)
    lanes = max(widest, 2 * widest, key=lambda lanes: (lanes // size * size / lanes, min(lanes // size, 2)))
    rows = min(lanes // size, MAX_VECTOR_ROWS, kernel.loops[-2].extent.value or MAX_VECTOR_ROWS)
    if size < MIN_ROW_ELEMENTS and (size < 2 or _has_row_gaps(kernel.body, row, size)):
        return None
    fits = rows > 1 and "multi-row-vectors" not in kernel.disabled
    fits = fits and all(_fits_rows(x, row, var, both, size) for x in kernel.body)
    if fits and _gathers_of_rows(kernel.body, row, var, both) * _PER_GATHER <= kernel.cost:
        at_once = 4 if kernel.cost <= LIGHTEST and any(isinstance(x, Reduce) for x in kernel.body) else 1
        return Vectors(rounded_up(rows * size), at_once, least, both, rows)
    varying = dependent(kernel.body, var)
    along = any(isinstance(x, Reduce) and var in x.over for x in kernel.body)
    if along or not all(_fits(x, var, varying, False) for x in kernel.body):
        return None
    if _gathers(kernel.body, var, varying) or size < MIN_ROW_ELEMENTS:
        return None
    return Vectors(min(widest, rounded_up(size)), 1, least, varying)


def _has_row_gaps(body: list[Any], row: str, size: int) -> bool:
    """Whether the rows of an access have gaps."""
    strides = [x.address.coefficient(row) for x in flattened(body) if isinstance(x, Load | Store)]
    return any(stride not in (0, 1, size) for stride in strides)


def _fits_rows(x: Any, row: str, var: str, varying: frozenset[str], size: int) -> bool:
    """Whether an instruction can be vectorized over several rows."""
    match x:
        case Reduce() if var in x.over:
            return row in x.over
        case Store() | Reduce():
            irregular = x.address.symbols & (varying - {row, var}) or x.address.coefficient(row).symbols & varying
            return not irregular and x.address.coefficient(var) == 1
        case BoundsCheck():
            return x.out.name not in varying
        case GuardBlock() if x.out.name in varying:
            plain = all(step == 1 for _, _, _, step in x.ranges)
            return plain and all(_fits_rows(y, row, var, varying, size) for y in x.body)
        case Compute():
            return x.out.name not in varying or x.op not in _SCALAR
    return isinstance(x, Index | GuardBlock | Load)


def is_across(kernel: Kernel) -> bool:
    """Whether the innermost loop only moves short elements with a large stride. LLVM would build vectors of them lane
    by lane, which is slower than scalar moves; for a small stride it shuffles whole vectors."""
    var = kernel.loops[-1].var
    if not all(isinstance(x, Load | Store) and _size(x) < 4 for x in kernel.body):
        return False
    strides = [x.address.coefficient(var).value for x in accesses(kernel.body)]
    return any(stride is None or abs(stride) > NEAR for stride in strides)


def _gathers_of_rows(body: Sequence[object], row: str, var: str, varying: frozenset[str]) -> int:
    """The number of loads that need a gather, because no shuffle joins their elements."""
    result = 0
    for x in body:
        if isinstance(x, GuardBlock):
            result += _gathers_of_rows(x.body, row, var, varying)
        elif isinstance(x, Load) and x.out.name in varying:
            irregular = x.address.symbols & (varying - {row, var}) or x.address.coefficient(row).symbols & varying
            result += bool(irregular) or x.address.coefficient(var) not in (0, 1)
    return result


def _is_stencil(kernel: Kernel) -> bool:
    """Whether an iteration computes its own masks, and stores no value that is soon read again."""
    body = flattened(kernel.body)
    loaded = {x.buffer for x in body if isinstance(x, Load)}
    guarded = any(isinstance(x, GuardBlock) and any(isinstance(y, Load) for y in x.body) for x in body)
    return guarded and not any(isinstance(x, Reduce) or (isinstance(x, Store) and x.buffer in loaded) for x in body)


def _is_long(kernel: Kernel) -> bool:
    """Whether an iteration is a dependent chain of expensive functions; iterations do not depend on each other."""
    called = [x.op for x in flattened(kernel.body) if isinstance(x, Compute) and COST.get(x.op, 0) >= COST["exp"]]
    return len(called) >= LONG and "power" not in called  # `power` alone fills the registers


def dependent(body: list[Any], var: str) -> frozenset[str]:
    """`var`, and the values computed from it."""
    results = {var}
    _follow(body, results)
    return frozenset(results)


def _follow(body: list[Any], names: set[str]) -> None:
    for x in body:
        if isinstance(x, GuardBlock):
            _follow(x.body, names)
            if x.result.name in names:
                names.add(x.out.name)
        if hasattr(x, "out") and used(x) & names:
            names.add(x.out.name)


def unit_stride_of(address: Poly, var: str, varying: frozenset[str]) -> int | None:
    """The stride of `address` between lanes; None if it is not known to be -1, 0 or 1."""
    if (address.symbols & varying) - {var}:
        return None
    stride = address.coefficient(var).value
    return stride if stride in (-1, 0, 1) else None


def stride_of(address: Poly, var: str, varying: frozenset[str]) -> int | None:
    """The stride of `address` between lanes, if strided loads by whole vectors support it."""
    if (address.symbols & varying) - {var}:
        return None
    stride = address.coefficient(var).value
    return stride if stride in STRIDES else None


def _is_near(address: Poly, var: str, varying: frozenset[str]) -> bool:
    return unit_stride_of(address, var, varying) is not None or stride_of(address, var, varying) is not None


def _fits(x: object, var: str, varying: frozenset[str], guarded: bool, pairs: Collection[object] = ()) -> bool:
    """Whether an instruction can be vectorized; stores to `pairs` are interleaved."""
    match x:
        case Store() if (x.buffer, x.address) in pairs:
            return stride_of(x.address, var, varying) == 2
        case Store():
            return unit_stride_of(x.address, var, varying) == 1
        case Reduce():
            return var in x.over or unit_stride_of(x.address, var, varying) == 1
        case BoundsCheck():
            return x.out.name not in varying and not guarded
        case Load():
            return x.out.name in varying or not guarded
        case GuardBlock() if x.out.name in varying:
            plain = all(step == 1 for _, _, _, step in x.ranges)
            return plain and all(_fits(y, var, varying, True) for y in x.body)
        case Compute():
            return x.out.name not in varying or x.op not in _SCALAR
    return isinstance(x, Index | GuardBlock)


def _gathers(body: Sequence[object], var: str, varying: frozenset[str]) -> int:
    """The number of loads that are neither contiguous nor loop-invariant."""
    return sum(
        _gathers(x.body, var, varying)
        if isinstance(x, GuardBlock)
        else isinstance(x, Load) and x.out.name in varying and not _is_near(x.address, var, varying)
        for x in body
    )


def _sizes(body: list[Any], varying: frozenset[str]) -> set[int]:
    """The sizes of the varying or stored values, except values used as an index."""
    results: set[int] = set()
    for x in body:
        if isinstance(x, GuardBlock):
            results |= _sizes(x.body, varying)
        if isinstance(x, Store | Reduce):
            results.add(_size(x))
        elif not isinstance(x, Index) and x.out.name in varying:
            results.add(dtype_named(x.out.dtype).itemsize)
    return results


def _size(x: Load | Store | Reduce) -> int:
    """The size in bytes of the accessed element."""
    return dtype_named((x.out if isinstance(x, Load) else x.value).dtype).itemsize
