"""Loops that run in waves: turns that read what is near, several of them on some rows after the other.

Where the body of a loop is a stencil, a row of what it carries is made of a few rows of the turn before. So a turn may
begin before that has ended: in wave w, turn t computes chunk w - t of the rows. What it reads lies in the chunks beside
that at the most, which turn t - 1 has computed in this wave and those before; and what it overwrites, which turn t - 2
left, nobody reads any more. Arrays that are larger than the cache are so gone through once for several turns. The order
in which elements are computed is all that changes.

That is for one thread. Several share the rows of each turn, each in a cache of its own.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tracegrad.avals import dtype_named
from tracegrad.codegen.loopir.kernel import Kernel, accesses
from tracegrad.codegen.loopir.polynomial import ONE, Poly
from tracegrad.codegen.loopir.steps import Launch
from tracegrad.codegen.plan.scan_strip_mining import SHARE, is_plain, own_place
from tracegrad.utils.lazy_dataclass import record

if TYPE_CHECKING:
    from tracegrad.codegen.plan.planner import Plan

__all__ = ["THREADS", "Waves", "waves_of"]

THREADS = "tg_threads"  # the function that tells how many threads there are: i64 ()

WORTH = 1 << 20  # bytes that all turns go through, from which on they may not stay in a second-level cache
CHUNK = 1 << 16  # bytes of a chunk, in all arrays
CACHE = 3 << 18  # bytes of the chunks of a wave, which do stay there
DEAR = 48  # the cost of an element from which on a turn takes longer than memory
MOST = 8  # turns at a time: with more, chunks that are not complete at the ends cost more than is won


@record(frozen=True)
class Waves:
    """How a body runs: all its rows, those of a chunk, and for how many turns at a time; 1 if that is not worth it."""

    rows: int
    chunk: int
    depth: int

    @property
    def chunks(self) -> int:
        return -(-self.rows // self.chunk)


def waves_of(made: Plan) -> Waves | None:
    """How the body `made` of a loop runs in waves, or None if it cannot, whatever the sizes.

    Kernels over no rows run for each chunk again, so none may read or write what the others do.
    """
    launches = [step for step in made.steps if isinstance(step, Launch)]
    wide = [step.kernel for step in launches if step.stands_alone]
    narrow = [step.kernel for step in launches if not step.stands_alone]
    if len(launches) < len(made.steps) or any(step.base for step in launches) or made.in_place:
        return None
    if not made.carries or not wide or not all(is_plain(kernel) and kernel.cost < DEAR for kernel in wide):
        return None
    spaces = {(kernel.loops[0].extent, math.prod((x.extent for x in kernel.loops[1:]), start=ONE)) for kernel in wide}
    written = {name for step in launches if step.stands_alone for name in step.writes}
    carried = {made.buffers[x] for x in made.graph.inputs[: made.carries]}
    if len(spaces) > 1 or not all(made.buffers[y] in written for y in made.graph.outputs[: made.carries]):
        return None
    if any(not (written | carried).isdisjoint(kernel.buffers) for kernel in narrow):
        return None
    reach = _reach(wide, written, carried, made.arguments.sizes)
    if reach is None:
        return None
    ((rows, row),) = spaces
    return _sized(made, rows, row, reach, wide, narrow)


def _reach(wide: list[Kernel], written: set[str], carried: set[str], sizes: dict[str, int]) -> int | None:
    """How many elements lie at the most between one that is computed and what is read of the turn before for it; None
    if that is not known, or if other arrays that are written are accessed at another place."""
    found = 0
    for kernel in wide:
        place = own_place(kernel)
        for x in accesses(kernel.body):
            if x.buffer in written or x.buffer in carried:
                distance = x.address - place
                if not distance.symbols <= sizes.keys() or (distance.terms and x.buffer in written):
                    return None
                found = max(found, abs(distance.evaluate(sizes)))
    return found


def _sized(made: Plan, rows: Poly, row: Poly, reach: int, wide: list[Kernel], narrow: list[Kernel]) -> Waves:
    sizes = made.arguments.sizes
    count, each = rows.evaluate(sizes), max(row.evaluate(sizes), 1)
    itemsizes = {name: dtype_named(dtype).itemsize for k in wide for name, (dtype, _) in k.buffers.items()}
    row_bytes = each * sum(itemsizes.values())
    again = sum(kernel.cost * math.prod(x.extent.value or 0 for x in kernel.loops) for kernel in narrow)
    enough = SHARE * again // max(each * sum(kernel.cost for kernel in wide), 1)
    chunk = min(max(CHUNK // row_bytes, -(-reach // each), enough, 1), max(count, 1))
    depth = min(MOST, CACHE // (chunk * row_bytes) - 1) if count * row_bytes >= WORTH else 1
    return Waves(count, chunk, max(depth, 1))
