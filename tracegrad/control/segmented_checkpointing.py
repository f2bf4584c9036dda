"""Divide scans into segments whose iterations are recomputed in the backward pass (segmented checkpointing).

A derivative reads values of each iteration, from the last to the first. Saving all of them takes memory for every
iteration. A segmented loop saves the carries at the beginning of each segment, and the residuals of only one segment. A
segment is rerun when the derivative reaches it. With s segments of k iterations this takes s times the carries and k
times the residuals of an iteration. The sum is about 2 sqrt(n) instead of n, for one more run of the loop. A segment
may be divided again (Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracegrad.avals import aval_of
from tracegrad.ir import Graph, GraphValue, build, recorder
from tracegrad.ir.loop_view import LoopView, live_values
from tracegrad.ops.shape.linear import concatenate, reshape, slice
from tracegrad.settings import disabled, settings
from tracegrad.target.tuning import TUNING
from tracegrad.trace.builder.builder import TraceBuilder
from tracegrad.trace.sources.sources import Fixed, Item
from tracegrad.utils.lazy_dataclass import record
from tracegrad.utils.log import log

MAX_LEVELS = TUNING.loops.max_checkpoint_levels


# -- lengths of segments -----------------------------------------------------------------------------------------------
@record(frozen=True)
class ResidualSizes:
    """Sizes in bytes of loop residuals: of the carries at the beginning of a segment, and of each iteration."""

    start: int
    iteration: int

    def segment(self, length: int, levels: int) -> int:
        """The number of iterations per segment if the loop is divided `levels` times: the number with the least memory,
        or a number near it without a remainder. All iterations if a division does not help.

        >>> equal, larger = ResidualSizes(8, 8), ResidualSizes(8, 800)
        >>> equal.segment(10_000, 1), larger.segment(10_000, 1), equal.segment(10_007, 1)
        (100, 10, 100)
        """
        if not levels or length < 2:
            return length
        count = (length * self.iteration / max(self.start, 1)) ** (1 / (levels + 1))
        best = length / min(max(count, 1), length)
        whole = [k for k in range(max(round(best / 2), 1), min(round(best * 2), length) + 1) if length % k == 0]
        return min(whole, key=lambda k: max(k / best, best / k), default=max(round(best), 1))

    def memory(self, length: int, levels: int) -> int:
        """The maximal memory of the loop's residuals, divided `levels` times.

        >>> sizes = ResidualSizes(8, 8)
        >>> sizes.memory(10_000, 0), sizes.memory(10_000, 1), sizes.memory(10_000, 2)
        (80000, 1600, 520)
        """
        iterations = self.segment(length, levels)
        if iterations == length:
            return length * self.iteration
        return length // iterations * self.start + self.memory(iterations, levels - 1)

    def levels(self, length: int, bound: int) -> int:
        """The number of divisions after which the residuals of the loop fit the bound. If they never fit: the number
        with the least memory if it at least halves the residuals, else 0."""
        results = [self.memory(length, levels) for levels in range(MAX_LEVELS + 1)]
        least = min(results)
        within = [levels for levels, size in enumerate(results) if size <= bound]
        if within:
            return within[0]
        return results.index(least) if 2 * least <= results[0] else 0


def division(
    loop: LoopView, forward: Graph, max_levels: int = MAX_LEVELS, label: str = ""
) -> tuple[ResidualSizes, int]:
    """The residual sizes of a loop, and the number of times to divide it, at `max_levels`. `forward`
    returns the residuals of each iteration as further results. Messages call the iterations `label`."""
    length, saved = loop.length, forward.outputs[len(loop.body.outputs) :]
    _, read = live_values(forward, range(len(loop.body.outputs), len(forward.outputs)), loop.carries)
    sizes = ResidualSizes(_bytes(x for k, x in enumerate(loop.initial(forward.inputs)) if k in read), _bytes(saved))
    bound = _bound()
    if bound is None or length * sizes.iteration <= bound or disabled("checkpointing"):
        return sizes, 0
    levels = min(sizes.levels(length, bound), max_levels)
    label = label or f"{length} iterations"
    location = next((node.location for node in reversed(loop.body.nodes) if node.location), "") or "an unknown line"
    if levels:
        _note(
            location,
            f"{label} would keep {_format_bytes(length * sizes.iteration)} for the derivative, segments of "
            f"{sizes.segment(length, levels)} iterations keep {_format_bytes(sizes.memory(length, levels))}",
        )
        log(
            "loops",
            "%s at %s would keep %s for the derivative, more than loop_memory (%s): in segments of %d "
            "iterations%s they keep %s",
            label,
            location,
            _format_bytes(length * sizes.iteration),
            _format_bytes(bound),
            sizes.segment(length, levels),
            f", divided {levels} times," if levels > 1 else "",
            _format_bytes(sizes.memory(length, levels)),
        )
    else:
        log(
            "loops",
            "%s at %s keep %s for the derivative, more than loop_memory (%s): segments of them would "
            "begin with as much",
            label,
            location,
            _format_bytes(length * sizes.iteration),
            _format_bytes(bound),
        )
    return sizes, levels


def _bound() -> int | None:
    """`settings.loop_memory` per example of a batch. A change of the setting retraces the traced function."""
    result, examples, bound = recorder(), 1, settings.loop_memory
    while result is not None:
        examples *= result.examples
        if isinstance(result, TraceBuilder) and result.world.open:
            result.world.assume(Item(Fixed(vars(settings), "tracegrad.settings"), "loop_memory"), "equals", bound)
        result = result.around
    return bound if bound is None else bound // max(examples, 1)


def _note(location: str, label: str) -> None:
    """Report a divided loop to the enclosing trace."""
    result, outermost = recorder(), None
    while result is not None:
        outermost = result if isinstance(result, TraceBuilder) else outermost
        result = result.around
    if outermost is not None:
        outermost.loops.divided[location] = label


def _bytes(nodes: Any) -> int:
    return sum(node.aval.nbytes for node in nodes)


def _format_bytes(size: int) -> str:
    power = max(size.bit_length() - 1, 0) // 10
    return f"{size / 1024**power:.4g} {('bytes', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB')[power]}"


# -- the loop ----------------------------------------------------------------------------------------------------------
def segmented(loop: LoopView, operands: Sequence[Any], iterations: int) -> tuple[list[Any], list[Any]]:
    """The whole segments of a scan: its results so far, in iteration order, and the carries at the beginning of each
    segment. The remaining iterations come last."""
    inner, n_outputs = loop._replace(length=iterations), len(loop.body.outputs)

    def segment(*args: GraphValue) -> list[Any]:
        return [*inner.applied(args), *loop.initial(args)]

    blocks = [in_blocks(x, iterations, loop.reverse)[0] for x in loop.scanned(operands)]
    flat = [*loop.initial(operands), *blocks, *loop.constants(operands)]
    body = build(segment, loop.input_avals(list(map(aval_of, flat))))
    result = loop._replace(body=body, length=loop.length // iterations).applied(flat)
    ys = [_merged(y) for y in result[loop.carries : n_outputs]]
    return [*loop.initial(result), *ys], list(result[n_outputs:])


def run_in_segments(loop: LoopView, operands: Sequence[Any], iterations: int) -> tuple[object, ...]:
    """The results of a scan, run in segments of `iterations` iterations."""
    rest, reverse, n = loop.length % iterations, loop.reverse, loop.carries
    result, _ = segmented(loop, operands, iterations)
    if not rest:
        return tuple(result)
    tails = [in_blocks(x, iterations, reverse)[1] for x in loop.scanned(operands)]
    last = loop._replace(length=rest).applied([*result[:n], *tails, *loop.constants(operands)])
    return (*last[:n], *(joined(a, b, reverse) for a, b in zip(result[n:], last[n:])))


def in_blocks(x: Any, iterations: int, reverse: bool) -> tuple[Any, Any]:
    """The rows of `x` segment by segment, and the remaining rows: the first rows of a reverse loop."""
    length, *shape = x.shape
    count, rest = divmod(length, iterations)
    if not rest:
        return reshape(x, shape=(count, iterations, *shape)), _row_slice(x, 0, 0)
    first = rest if reverse else 0
    whole = _row_slice(x, first, first + count * iterations)
    tail = _row_slice(x, 0, rest) if reverse else _row_slice(x, length - rest, length)
    return reshape(whole, shape=(count, iterations, *shape)), tail


def joined(whole: Any, tail: Any, reverse: bool) -> Any:
    """The rows of the segments and the remaining rows, in order."""
    return concatenate(*((tail, whole) if reverse else (whole, tail)), axis=0)


def _merged(x: Any) -> Any:
    """The rows of all segments along one axis."""
    count, iterations, *shape = x.shape
    return reshape(x, shape=(count * iterations, *shape))


def _row_slice(x: Any, start: int, stop: int) -> Any:
    rest: tuple[int, ...] = x.shape[1:]
    return slice(x, start=(start, *(0 for _ in rest)), stop=(stop, *rest), step=(1,) * len(x.shape))
