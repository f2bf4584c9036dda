"""Exit a reduction early once its result is known: any, all, and the first index that matches.

The minimum of `where(match, index, missing)` is the first index along a loop at which `match` holds, if `missing` is
not below the indices. Later elements do not matter. In `where(match, missing, index)` it is the first index at which
`match` does not hold. The loop tests several vectors at a time, and evaluates only the vectors that contain a match.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from tracegrad.avals import dtype_named
from tracegrad.codegen.kernels.vectorize import Vectors, search_vectors_of, vector_bytes
from tracegrad.codegen.loopir.kernel import (
    ALL,
    ANY,
    FIRST,
    STOPS,
    Compute,
    GuardBlock,
    Index,
    Kernel,
    Load,
    Operand,
    Reduce,
    Store,
)
from tracegrad.codegen.loopir.polynomial import Poly
from tracegrad.codegen.loopir.steps import Launch
from tracegrad.settings import disabled
from tracegrad.target.tuning import TUNING

COUNTED = TUNING.vectorization.counted_vectors
LONG = TUNING.vectorization.min_early_exit


class LaneSearch(NamedTuple):
    """A search of the innermost loop: for a lane in which `wanted` is true, or false if it tests `all` lanes. It may
    return the index `match_index`, or `missing` without a match. `alike` are two numbers; if `wanted` is true, they are
    equal or one is nan, so one comparison proves that no lane matches."""

    wanted: Operand
    all: bool = False
    match_index: Poly | None = None
    missing: Operand | None = None
    alike: tuple[Operand, Operand] | None = None


class FirstExtremum(NamedTuple):
    """A search for the first extremum of all: the reduction that computes its index."""

    reduction: Reduce


class LaneCount(NamedTuple):
    """A search for all lanes in which `wanted` is true, which are counted."""

    wanted: Operand


def searching(
    kernel: Kernel, vectors: Vectors | None
) -> tuple[Vectors | None, LaneSearch | FirstExtremum | LaneCount | None]:
    """The vectors of `kernel` and its search. The vectors have the width of the searched elements, not of indices."""
    if kernel.body and isinstance(kernel.body[-1], Reduce) and kernel.body[-1].combiner in FIRST:
        return vectors, FirstExtremum(kernel.body[-1])
    if "early-exit" in kernel.disabled:
        return vectors, None
    short = search_vectors_of(kernel) if vectors is None else None
    search = search_of(kernel, vectors or short)
    if search is None:
        return _counting(kernel) if vectors is None and len(kernel.loops) == 1 else (vectors, None)
    result = vectors or short
    assert result is not None
    loaded = [x.out for x in kernel.body if isinstance(x, Load) and x.out.name in result.varying]
    widest = max([dtype_named(x.dtype).itemsize for x in loaded], default=8)
    if short is not None or search.match_index is not None:
        result = result._replace(lanes=max(result.lanes, vector_bytes() // widest))
    return result, search


def _counting(kernel: Kernel) -> tuple[Vectors | None, LaneCount | None]:
    """`searching` for a kernel that counts booleans of elements too short for masks; the booleans are bits."""
    if len(kernel.body) < 2:
        return None, None
    *prefix, boolean, total = kernel.body
    if not isinstance(total, Reduce) or not isinstance(boolean, Compute):
        return None, None
    counts = total.combiner == "add" and total.over and boolean.op == "cast"
    if not counts or boolean.out != total.value or total.value.dtype[0] != "i" or boolean.args[0].dtype != "bool":
        return None, None
    short = search_vectors_of(replace(kernel, body=prefix))
    wanted = boolean.args[0]
    if (
        short is None
        or wanted.name not in short.varying
        or any(isinstance(x, GuardBlock | Reduce | Store) for x in prefix)
    ):
        return None, None
    return short._replace(at_once=COUNTED, varying=short.varying | {boolean.out.name}), LaneCount(wanted)


def stop_early(steps: Sequence[object], sizes: dict[str, int]) -> None:
    """Make kernels that reduce long rows by any or all exit a row as soon as its result is known."""
    if disabled("early-exit"):
        return
    for step in steps:
        if not isinstance(step, Launch) or not step.kernel.body or len(step.kernel.loops) < 2:
            continue
        kernel = step.kernel
        (*before, last), (var, extent) = kernel.body, kernel.loops[-1]
        if not isinstance(last, Reduce) or last.value.dtype != "bool" or last.over != (var,):
            continue
        if last.combiner in (*ANY, *ALL) and extent.evaluate(sizes) >= LONG:
            combiner = "any" if last.combiner in ANY else "all"
            last = Reduce(last.buffer, last.address, combiner, last.value, last.over, last.size)
            step.kernel = replace(kernel, body=[*before, last])


def search_of(kernel: Kernel, vectors: Vectors | None) -> LaneSearch | None:
    """The search of a vectorized `kernel`, if a search is all it does."""
    if vectors is None or not vectors.at_once or vectors.rows or kernel.loops[-1].extent.value is not None:
        return None
    if any(isinstance(x, GuardBlock) for x in kernel.body):
        return None
    roots = [x for x in kernel.body if isinstance(x, Reduce | Store)]
    if len(roots) != 1 or not isinstance(roots[0], Reduce) or kernel.loops[-1].var not in roots[0].over:
        return None
    value, combiner = roots[0].value, roots[0].combiner
    if value.dtype == "bool":
        # Short rows are reduced several at a time.
        stops = combiner in STOPS or (len(kernel.loops) == 1 and combiner in (*ANY, *ALL))
        return LaneSearch(value, combiner in ALL) if stops and value.name in vectors.varying else None
    return first_of(kernel, value, vectors.varying) if combiner == "minimum" else None


def first_of(kernel: Kernel, value: Operand, varying: Collection[str]) -> LaneSearch | None:
    """The search of a `kernel` whose result is the minimum `value`, if that is a first index."""
    table: dict[str, Any] = {x.out.name: x for x in kernel.body if hasattr(x, "out")}
    chosen = table.get(value.name)
    if not isinstance(chosen, Compute) or chosen.op != "where":
        return None
    wanted, index, missing = chosen.args
    if false := not isinstance(table.get(index.name), Index):
        index, missing = missing, index
    index_instr = table.get(index.name)
    if not isinstance(index_instr, Index) or wanted.name not in varying or missing.name in varying:
        return None
    var = kernel.loops[-1].var
    along = index_instr.value.coefficient(var) == 1 and not index_instr.value.symbols.intersection(varying) - {var}
    if not along or missing.dtype != "i64":
        return None
    return LaneSearch(wanted, false, index_instr.value, missing, None if false else _alike(table, wanted))


def _alike(table: dict[str, Compute | Index | Load], wanted: Operand) -> tuple[Operand, Operand] | None:
    """The two numbers whose equality, or a nan in the first, `wanted` tests."""

    def args_of(x: Operand, op: str) -> tuple[Operand, ...]:
        result = table.get(x.name)
        return result.args if isinstance(result, Compute) and result.op == op else ()

    for one, other in itertools.permutations(args_of(wanted, "logical_or"), 2):
        equal, unordered = args_of(one, "eq"), args_of(other, "ne")
        if equal and unordered and unordered[0] == unordered[1] and unordered[0] in equal and equal[0].dtype[0] == "f":
            return equal[0], equal[1]
    return None
