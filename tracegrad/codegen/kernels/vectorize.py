"""Which kernels are emitted as vectors, of how many lanes: this follows from their text and from the machine alone.

The innermost loop is made of vectors where its accesses run along memory or stay in one place, and nothing in it may
end it. What does not vary with it is computed before it. All other kernels are emitted as scalar loops, which LLVM's
vectoriser may make vectors of.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from typing import Any, NamedTuple

from tracegrad.avals import dtype_named
from tracegrad.codegen.kernels.interleaved_access import Woven
from tracegrad.codegen.kernels.loop_order import is_serial
from tracegrad.codegen.loopir.kernel import (
    Check,
    Compute,
    Guard,
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
from tracegrad.codegen.target.cpu import cpu_name, features, has_masks_of_bytes

__all__ = [
    "Vectors", "dear_bytes", "dependent", "is_across", "narrowest_bytes", "rounded_up", "step_of", "stride_of",
    "vector_bytes", "vectors_of", "vectors_to_look_at",
]  # fmt: skip

LIGHTEST = 12  # up to this cost, a turn of the loop computes several vectors
STRIDES = (2, 3, 4, -2, -3, -4)  # of loads that are whole vectors, of which some lanes are taken
NEAR = 8  # elements from one to the next, up to which LLVM takes them of whole vectors
SHORT = 32  # bytes of the vectors of a loop that waits for memory: longer ones lie in two lines of the cache each
DEAR = 35  # from here on, the loop exists with masks alone: these are nothing to what it computes
# So many elementary functions wait for each other longer than a processor looks ahead: two vectors side by side do not.
# From four on that is quicker, by a tenth; but LLVM takes half as long again for such a kernel.
LONG = 6
FEWEST = 3  # elements of rows that are worth an access each
MOST_ROWS = 8  # in a vector: each that lies apart is a load
# What LLVM would compute lane by lane.
_SCALAR = frozenset({"remainder", "floor_divide"})
# The cost that one element should have for each that is gathered: by scalar loads, light loops are faster.
_PER_GATHER = 15


class Vectors(NamedTuple):
    """How a kernel is made of vectors."""

    lanes: int
    at_once: int  # vectors in a turn of the loop without masks; 0 if there is none: the one with masks does all
    least: int  # the size in bytes of the smallest elements that are loaded or stored
    varying: frozenset[str]  # values and variables that are not the same in all lanes
    rows: int = 0  # of the loop around that share a vector; 0 if each has vectors of its own


@cache
def vector_bytes() -> int:
    """How wide vectors with masks are on this machine; 0 if they are not to be used."""
    if "avx2" not in features():
        return 0
    # Others are slower for a while after wide ones; LLVM does not use them there of itself.
    return 64 if has_masks_of_bytes() and cpu_name().startswith("znver") else 32


@cache
def dear_bytes() -> int:
    """How wide they are in long loops that do not wait for memory.

    Intel's latest are as fast after wide ones as before: on Emerald Rapids elementary functions take 0.6 to 0.85 of the
    time, comparisons 0.75. But rows of 10 elements, of which there is less than one vector or little more, take up to
    1.4 of it.
    """
    wide = has_masks_of_bytes() and cpu_name().startswith(("sapphirerapids", "emeraldrapids", "graniterapids"))
    return 64 if wide else vector_bytes()


@cache
def narrowest_bytes() -> int:
    """The size of the smallest elements that are read and written with masks.

    AVX2 has such instructions for words of 4 and 8 bytes: a vector of these and its mask take LLVM three quarters of
    the time of a scalar loop, and run as fast or, where a turn is dear, 1.2 to 1.6 times as fast. Lanes that are
    shorter it would ask one by one; comparisons, whose truths are bytes, would take 1.3 times as long.
    """
    return 1 if has_masks_of_bytes() else 4


def vectors_of(kernel: Kernel) -> Vectors | None:
    """How `kernel` is made of vectors, or None if it is not."""
    if not vector_bytes() or not kernel.loops or is_serial(kernel):
        return None
    least = _least(kernel)
    if least < narrowest_bytes():
        return _of_truths(kernel)
    var = kernel.loops[-1].var
    if (size := kernel.loops[-1].extent.value) is not None:
        return _of_few(kernel, size, least) if size else None
    varying, pairs = dependent(kernel.body, var), Woven(kernel.body, var).stores
    if not all(_fits(x, var, varying, False, pairs) for x in kernel.body):
        return None
    if _gathers(kernel.body, var, varying) * _PER_GATHER > kernel.cost:
        return None
    reductions = [x for x in kernel.body if isinstance(x, Reduce) and x.over]
    light = kernel.cost <= LIGHTEST and not reductions
    narrow = light and _is_narrow_on_one_side(kernel.body)
    waits = light and not narrow
    width = dear_bytes() if (kernel.cost > LIGHTEST or narrow) and len(kernel.loops) == 1 else vector_bytes()
    width = min(width, SHORT) if waits else width
    lanes = width // max(_sizes(kernel.body, varying), default=8)
    at_once = int(kernel.cost <= DEAR or not all(var in x.over for x in reductions))
    if kernel.cost <= LIGHTEST and reductions and all(var in x.over for x in reductions):
        at_once = 4
    elif narrow or (kernel.cost <= DEAR and _is_stencil(kernel)) or _is_long(kernel):
        at_once = 2
    # Without a mask a guard would have one whose bits are not known to be of lanes alone.
    guarded = lanes * least < 16 and any(isinstance(x, Guard) for x in kernel.body)
    return Vectors(lanes, 0 if guarded else at_once, least, varying)


def _of_truths(kernel: Kernel) -> Vectors | None:
    """How a kernel is made of vectors, where there are no masks of bytes, that stores truths alone of what is longer:
    so many at a time that these are a vector. The rest, of which each lane is asked whether it is there, comes once."""
    body, var = kernel.body, kernel.loops[-1].var
    truths = all(not isinstance(x, Store) or x.value.dtype == "bool" for x in body)
    plain = truths and all(isinstance(x, Load | Store | Compute) for x in body) and len(kernel.loops) == 1
    if not plain or min([_size(x) for x in body if isinstance(x, Load)], default=0) < narrowest_bytes():
        return None
    varying = dependent(body, var)
    fits = all(_fits(x, var, varying, False) for x in body) and not _gathers(body, var, varying)
    return Vectors(vector_bytes(), 1, 1, varying) if fits and kernel.cost <= LIGHTEST else None


def vectors_to_look_at(kernel: Kernel) -> Vectors | None:
    """How a kernel that looks for something is made of vectors if its elements are too short for masks: one at a time,
    which goes quickly where nothing is found. Of the lanes behind the last whole vector each is asked whether it is
    there."""
    if not vector_bytes() or not kernel.loops or is_serial(kernel) or kernel.loops[-1].extent.value is not None:
        return None
    var = kernel.loops[-1].var
    varying = dependent(kernel.body, var)
    if not all(_fits(x, var, varying, False) for x in kernel.body) or _gathers(kernel.body, var, varying):
        return None
    return Vectors(vector_bytes() // max(_sizes(kernel.body, varying), default=8), 1, _least(kernel), varying)


def _least(kernel: Kernel) -> int:
    """The size of the smallest elements in memory. What is reduced along the innermost loop lies in a register."""
    var = kernel.loops[-1].var
    return min([_size(x) for x in accesses(kernel.body) if not isinstance(x, Reduce) or var not in x.over], default=8)


def _is_narrow_on_one_side(body: list[Any]) -> bool:
    """Whether truths are made of numbers, or numbers of truths alone: of short vectors these would be a few bytes."""
    every = accesses(body)
    read = max([_size(x) for x in every if isinstance(x, Load)], default=0)
    written = max([_size(x) for x in every if not isinstance(x, Load)], default=0)
    return 0 < 4 * min(read, written) <= max(read, written)


def rounded_up(size: int) -> int:
    """The next power of two."""
    return 1 << (size - 1).bit_length()


def _of_few(kernel: Kernel, size: int, least: int) -> Vectors | None:
    """How a kernel is made of vectors whose innermost loop has a fixed, small size."""
    if kernel.chunked == len(kernel.loops) - 1 or all(loop.extent.value is not None for loop in kernel.loops):
        return None
    row, var = kernel.loops[-2].var, kernel.loops[-1].var
    both = dependent(kernel.body, row) | dependent(kernel.body, var)
    widest = vector_bytes() // max(_sizes(kernel.body, both), default=8)
    lanes = max(widest, 2 * widest, key=lambda lanes: (lanes // size * size / lanes, min(lanes // size, 2)))
    rows = min(lanes // size, MOST_ROWS, kernel.loops[-2].extent.value or MOST_ROWS)
    if size < FEWEST and (size < 2 or _lies_apart(kernel.body, row, size)):
        return None
    fits = rows > 1 and all(_fits_rows(x, row, var, both, size) for x in kernel.body)
    if fits and _gathers_of_rows(kernel.body, row, var, both) * _PER_GATHER <= kernel.cost:
        at_once = 4 if kernel.cost <= LIGHTEST and any(isinstance(x, Reduce) for x in kernel.body) else 1
        return Vectors(rounded_up(rows * size), at_once, least, both, rows)
    varying = dependent(kernel.body, var)
    along = any(isinstance(x, Reduce) and var in x.over for x in kernel.body)
    if along or not all(_fits(x, var, varying, False) for x in kernel.body):
        return None
    if _gathers(kernel.body, var, varying) or size < FEWEST:
        return None
    return Vectors(min(widest, rounded_up(size)), 1, least, varying)


def _lies_apart(body: list[Any], row: str, size: int) -> bool:
    """Whether there is something between the rows of an access."""
    steps = [x.address.coefficient(row) for x in flattened(body) if isinstance(x, Load | Store)]
    return any(step not in (0, 1, size) for step in steps)


def _fits_rows(x: Any, row: str, var: str, varying: frozenset[str], size: int) -> bool:
    """Whether an instruction can be done for several rows at a time."""
    match x:
        case Reduce() if var in x.over:
            return row in x.over
        case Store() | Reduce():
            apart = x.address.symbols & (varying - {row, var}) or x.address.coefficient(row).symbols & varying
            return not apart and x.address.coefficient(var) == 1
        case Check():
            return x.out.name not in varying
        case Guard() if x.out.name in varying:
            plain = all(step == 1 for _, _, _, step in x.ranges)
            return plain and all(_fits_rows(y, row, var, varying, size) for y in x.body)
        case Compute():
            return x.out.name not in varying or x.op not in _SCALAR
    return isinstance(x, Index | Guard | Load)


def is_across(kernel: Kernel) -> bool:
    """Whether the innermost loop only moves short elements that lie far apart. LLVM would put vectors of them together
    lane by lane, which takes 1.7 times as long as to move each; those that lie near it takes of whole vectors."""
    var = kernel.loops[-1].var
    if not all(isinstance(x, Load | Store) and _size(x) < 4 for x in kernel.body):
        return False
    steps = [x.address.coefficient(var).value for x in accesses(kernel.body)]
    return any(step is None or abs(step) > NEAR for step in steps)


def _gathers_of_rows(body: list[Any], row: str, var: str, varying: frozenset[str]) -> int:
    """How many loads are of places that no shuffle brings together."""
    found = 0
    for x in body:
        if isinstance(x, Guard):
            found += _gathers_of_rows(x.body, row, var, varying)
        elif isinstance(x, Load) and x.out.name in varying:
            apart = x.address.symbols & (varying - {row, var}) or x.address.coefficient(row).symbols & varying
            found += bool(apart) or x.address.coefficient(var) not in (0, 1)
    return found


def _is_stencil(kernel: Kernel) -> bool:
    """Whether a turn waits for masks of its own, and stores nothing that is read again soon."""
    body = flattened(kernel.body)
    loaded = {x.buffer for x in body if isinstance(x, Load)}
    guarded = any(isinstance(x, Guard) and any(isinstance(y, Load) for y in x.body) for x in body)
    return guarded and not any(isinstance(x, Reduce) or (isinstance(x, Store) and x.buffer in loaded) for x in body)


def _is_long(kernel: Kernel) -> bool:
    """Whether a turn waits for one function after the other; iterations do not wait for each other."""
    called = [x.op for x in flattened(kernel.body) if isinstance(x, Compute) and COST.get(x.op, 0) >= COST["exp"]]
    return len(called) >= LONG and "power" not in called  # which fills the registers alone


def dependent(body: list[Any], var: str) -> frozenset[str]:
    """`var`, and the values that are computed from it."""
    found = {var}
    _follow(body, found)
    return frozenset(found)


def _follow(body: list[Any], found: set[str]) -> None:
    for x in body:
        if isinstance(x, Guard):
            _follow(x.body, found)
            if x.result.name in found:
                found.add(x.out.name)
        if hasattr(x, "out") and used(x) & found:
            found.add(x.out.name)


def step_of(address: Poly, var: str, varying: frozenset[str]) -> int | None:
    """By how much `address` grows from lane to lane; None if that is not known to be -1, 0 or 1."""
    if (address.symbols & varying) - {var}:
        return None
    step = address.coefficient(var).value
    return step if step in (-1, 0, 1) else None


def stride_of(address: Poly, var: str, varying: frozenset[str]) -> int | None:
    """By how much `address` grows from lane to lane, where whole vectors have a part of what is wanted."""
    if (address.symbols & varying) - {var}:
        return None
    step = address.coefficient(var).value
    return step if step in STRIDES else None


def _is_near(address: Poly, var: str, varying: frozenset[str]) -> bool:
    return step_of(address, var, varying) is not None or stride_of(address, var, varying) is not None


def _fits(x: Any, var: str, varying: frozenset[str], guarded: bool, pairs: Collection[Any] = ()) -> bool:
    """Whether an instruction can be done for all lanes at a time; stores to `pairs` are woven."""
    match x:
        case Store() if (x.buffer, x.address) in pairs:
            return stride_of(x.address, var, varying) == 2
        case Store():
            return step_of(x.address, var, varying) == 1
        case Reduce():
            return var in x.over or step_of(x.address, var, varying) == 1
        case Check():
            return x.out.name not in varying and not guarded
        case Load():
            return x.out.name in varying or not guarded
        case Guard() if x.out.name in varying:
            plain = all(step == 1 for _, _, _, step in x.ranges)
            return plain and all(_fits(y, var, varying, True) for y in x.body)
        case Compute():
            return x.out.name not in varying or x.op not in _SCALAR
    return isinstance(x, Index | Guard)


def _gathers(body: list[Any], var: str, varying: frozenset[str]) -> int:
    """How many loads are neither along memory nor of one place."""
    return sum(
        _gathers(x.body, var, varying)
        if isinstance(x, Guard)
        else isinstance(x, Load) and x.out.name in varying and not _is_near(x.address, var, varying)
        for x in body
    )


def _sizes(body: list[Any], varying: frozenset[str]) -> set[int]:
    """The sizes of the values that vary or are stored, but for what stands for an index."""
    found: set[int] = set()
    for x in body:
        if isinstance(x, Guard):
            found |= _sizes(x.body, varying)
        if isinstance(x, Store | Reduce):
            found.add(_size(x))
        elif not isinstance(x, Index) and x.out.name in varying:
            found.add(dtype_named(x.out.dtype).itemsize)
    return found


def _size(x: Load | Store | Reduce) -> int:
    """The bytes of what it reads or writes."""
    return dtype_named((x.out if isinstance(x, Load) else x.value).dtype).itemsize
