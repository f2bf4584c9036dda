"""Loops in segments: how a scan is divided whose turns would keep too much for its derivative.

A derivative reads values of each turn, from the last turn to the first. To keep them all takes memory for every turn.
Of a loop in segments, the carries at the beginning of each segment are kept, and the turns of one segment at a time:
the segment is run again when the derivative comes to it. With s segments of k turns that is s times the carries and k
times what a turn keeps, some 2 sqrt(n) of these instead of n, for one more run of the loop. A segment may be divided in
its turn (Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracegrad.avals import aval_of
from tracegrad.control.region_ops import row_of
from tracegrad.control.scan_op import scan
from tracegrad.ir import Graph, Node, build, recorder
from tracegrad.ops.shape.linear import concatenate, reshape, slice
from tracegrad.settings import settings
from tracegrad.trace.builder.builder import TraceBuilder
from tracegrad.trace.sources.sources import Fixed, Item
from tracegrad.utils.lazy_dataclass import record
from tracegrad.utils.log import log

__all__ = ["Sizes", "division", "in_blocks", "joined", "run_in_segments", "segmented"]

# A loop is divided so often at most: each time its turns are run once more.
MOST_LEVELS = 3


# -- how long the segments are -----------------------------------------------------------------------------------------
@record(frozen=True)
class Sizes:
    """Bytes that a loop keeps: of the carries where a segment begins, and of each turn."""

    start: int
    turn: int

    def segment(self, length: int, levels: int) -> int:
        """How many turns a segment has where the loop is divided so often: as many as take the least memory, or so
        that no turn is left over, if that takes not much more; all turns if that is better than to divide them.

        >>> Sizes(8, 8).segment(10_000, 1), Sizes(8, 800).segment(10_000, 1), Sizes(8, 8).segment(10_007, 1)
        (100, 10, 100)
        """
        if not levels or length < 2:
            return length
        count = (length * self.turn / max(self.start, 1)) ** (1 / (levels + 1))
        best = length / min(max(count, 1), length)
        whole = [k for k in range(max(round(best / 2), 1), min(round(best * 2), length) + 1) if length % k == 0]
        return min(whole, key=lambda k: max(k / best, best / k), default=max(round(best), 1))

    def memory(self, length: int, levels: int) -> int:
        """What the loop keeps at most, divided so often.

        >>> Sizes(8, 8).memory(10_000, 0), Sizes(8, 8).memory(10_000, 1), Sizes(8, 8).memory(10_000, 2)
        (80000, 1600, 520)
        """
        turns = self.segment(length, levels)
        if turns == length:
            return length * self.turn
        return length // turns * self.start + self.memory(turns, levels - 1)

    def levels(self, length: int, bound: int) -> int:
        """How often to divide the loop: until it keeps within the bound. If it never does, as often as helps, which
        is to halve what is kept."""
        found = [self.memory(length, levels) for levels in range(MOST_LEVELS + 1)]
        least = min(found)
        within = [levels for levels, size in enumerate(found) if size <= bound]
        if within:
            return within[0]
        return found.index(least) if 2 * least <= found[0] else 0


def division(
    body: Graph, forward: Graph, carries: int, length: int, most: int = MOST_LEVELS, what: str = ""
) -> tuple[Sizes, int]:
    """What a loop of this body keeps for its derivative, `forward` giving what each turn keeps as further results; and
    how often it is divided because of that, at `most`. Messages call its turns `what`."""
    kept = forward.outputs[len(body.outputs) :]
    sizes = Sizes(_bytes(forward.inputs[k] for k in _carried(forward, kept, carries)), _bytes(kept))
    bound = _bound()
    if bound is None or length * sizes.turn <= bound:
        return sizes, 0
    levels = min(sizes.levels(length, bound), most)
    what = what or f"{length} turns"
    where = next((node.location for node in reversed(body.nodes) if node.location), "") or "an unknown line"
    if levels:
        _note(where, f"{what} would keep {_told(length * sizes.turn)} for the derivative, segments of "
              f"{sizes.segment(length, levels)} turns keep {_told(sizes.memory(length, levels))}")  # fmt: skip
        log(
            "loops", "%s at %s would keep %s for the derivative, more than loop_memory (%s): in segments of %d "
            "turns%s they keep %s",
            what, where, _told(length * sizes.turn), _told(bound), sizes.segment(length, levels),
            f", divided {levels} times," if levels > 1 else "", _told(sizes.memory(length, levels)),
        )  # fmt: skip
    else:
        log(
            "loops", "%s at %s keep %s for the derivative, more than loop_memory (%s): segments of them would "
            "begin with as much", what, where, _told(length * sizes.turn), _told(bound),
        )  # fmt: skip
    return sizes, levels


def _bound() -> int | None:
    """`settings.loop_memory`, of a batch what it is for each example. When it changes, the function that is traced is
    traced again."""
    found, examples, bound = recorder(), 1, settings.loop_memory
    while found is not None:
        examples *= found.examples
        if isinstance(found, TraceBuilder) and found.world.open:
            found.world.assume(Item(Fixed(vars(settings), "tracegrad.settings"), "loop_memory"), "equals", bound)
        found = found.around
    return bound if bound is None else bound // max(examples, 1)


def _note(where: str, what: str) -> None:
    """Tell the trace around of a loop that is divided."""
    found, outermost = recorder(), None
    while found is not None:
        outermost = found if isinstance(found, TraceBuilder) else outermost
        found = found.around
    if outermost is not None:
        outermost.divided[where] = what


def _carried(graph: Graph, wanted: Sequence[Node], carries: int) -> list[int]:
    """The carries that the values `wanted` of some turn are computed from."""
    needed = set(wanted)
    while True:
        for node in reversed(graph.nodes):
            if node in needed:
                needed.update(node.operands)
        found = [k for k in range(carries) if graph.inputs[k] in needed]
        more = {graph.outputs[k] for k in found} - needed
        if not more:
            return found
        needed |= more


def _bytes(nodes: Any) -> int:
    return sum(node.aval.nbytes for node in nodes)


def _told(size: int) -> str:
    power = max(size.bit_length() - 1, 0) // 10
    return f"{size / 1024**power:.4g} {('bytes', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB')[power]}"


# -- the loop ----------------------------------------------------------------------------------------------------------
def segmented(
    operands: Sequence[Any], turns: int, *, body: Graph, carries: int, xs: int, length: int, reverse: bool
) -> tuple[list[Any], list[Any]]:
    """The whole segments of a scan: its results so far, in order of turns, and the carries at the beginning of each
    segment. The turns that are left over come last."""
    carry, seqs, consts = operands[:carries], operands[carries : carries + xs], operands[carries + xs :]
    count = length // turns

    def segment(*args: Any) -> list[Any]:
        found = scan(*args, body=body, carries=carries, xs=xs, length=turns, reverse=reverse)
        return [*found, *args[:carries]]

    blocks = [in_blocks(x, turns, reverse)[0] for x in seqs]
    avals = [*map(aval_of, carry), *map(row_of, blocks), *map(aval_of, consts)]
    found = scan(
        *carry, *blocks, *consts, body=build(segment, avals), carries=carries, xs=xs, length=count, reverse=reverse
    )
    ys = [_merged(y) for y in found[carries : len(body.outputs)]]
    return [*found[:carries], *ys], list(found[len(body.outputs) :])


def run_in_segments(operands: Sequence[Any], turns: int, **params: Any) -> tuple[Any, ...]:
    """The results of a scan with these parameters, run in segments of so many turns."""
    carries, xs, rest, reverse = params["carries"], params["xs"], params["length"] % turns, params["reverse"]
    found, _ = segmented(operands, turns, **params)
    if not rest:
        return tuple(found)
    tails = [in_blocks(x, turns, reverse)[1] for x in operands[carries : carries + xs]]
    last = scan(*found[:carries], *tails, *operands[carries + xs :], **{**params, "length": rest})
    return (*last[:carries], *(joined(a, b, reverse) for a, b in zip(found[carries:], last[carries:])))


def in_blocks(x: Any, turns: int, reverse: bool) -> tuple[Any, Any]:
    """The rows of `x` segment by segment, and those that are left over: the first ones of a loop in reverse."""
    length, *shape = x.shape
    count, rest = divmod(length, turns)
    if not rest:
        return reshape(x, shape=(count, turns, *shape)), _rows(x, 0, 0)
    first = rest if reverse else 0
    whole = _rows(x, first, first + count * turns)
    tail = _rows(x, 0, rest) if reverse else _rows(x, length - rest, length)
    return reshape(whole, shape=(count, turns, *shape)), tail


def joined(whole: Any, tail: Any, reverse: bool) -> Any:
    """The rows of the segments and of what was left over, in order."""
    return concatenate(*((tail, whole) if reverse else (whole, tail)), axis=0)


def _merged(x: Any) -> Any:
    """The rows of segments as rows."""
    count, turns, *shape = x.shape
    return reshape(x, shape=(count * turns, *shape))


def _rows(x: Any, start: int, stop: int) -> Any:
    rest: tuple[int, ...] = x.shape[1:]
    return slice(x, start=(start, *(0 for _ in rest)), stop=(stop, *rest), step=(1,) * len(x.shape))
