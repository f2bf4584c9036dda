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
from tracegrad.codegen.kernels.vectorize import Vectors, vector_bytes, vectors_to_look_at
from tracegrad.codegen.loopir.kernel import (
    ALL,
    ANY,
    FIRST,
    STOPS,
    Compute,
    Guard,
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

__all__ = ["Count", "First", "Search", "first_of", "search_of", "searching", "stop_early"]

COUNTED = TUNING.vectorization.counted_vectors
LONG = TUNING.vectorization.min_early_exit


class Search(NamedTuple):
    """A search of the innermost loop: for a lane in which `wanted` is true, or false if it tests `all` lanes. It may
    return the index `place`, or `missing` without a match. `alike` are two numbers; if `wanted` is true, they are equal
    or one is nan, so one comparison proves that no lane matches."""

    wanted: Operand
    all: bool = False
    place: Poly | None = None
    missing: Operand | None = None
    alike: tuple[Operand, Operand] | None = None


class First(NamedTuple):
    """A search for the first extremum of all: the reduction that computes its index."""

    found: Reduce


class Count(NamedTuple):
    """A search for all lanes in which `wanted` is true, which are counted."""

    wanted: Operand


def searching(kernel: Kernel, vectors: Vectors | None) -> tuple[Vectors | None, Search | First | Count | None]:
    """The vectors of `kernel` and its search. The vectors have the width of the searched elements, not of indices."""
    if kernel.body and isinstance(kernel.body[-1], Reduce) and kernel.body[-1].combiner in FIRST:
        return vectors, First(kernel.body[-1])
    if "early-exit" in kernel.disabled:
        return vectors, None
    short = vectors_to_look_at(kernel) if vectors is None else None
    search = search_of(kernel, vectors or short)
    if search is None:
        return _counting(kernel) if vectors is None and len(kernel.loops) == 1 else (vectors, None)
    result = vectors or short
    assert result is not None
    seen = [x.out for x in kernel.body if isinstance(x, Load) and x.out.name in result.varying]
    widest = max([dtype_named(x.dtype).itemsize for x in seen], default=8)
    if short is not None or search.place is not None:
        result = result._replace(lanes=max(result.lanes, vector_bytes() // widest))
    return result, search


def _counting(kernel: Kernel) -> tuple[Vectors | None, Count | None]:
    """`searching` for a kernel that counts booleans of elements too short for masks; the booleans are bits."""
    if len(kernel.body) < 2 or not isinstance(kernel.body[-1], Reduce):
        return None, None
    *looks, boolean, total = kernel.body
    counts = total.combiner == "add" and total.over and isinstance(boolean, Compute) and boolean.op == "cast"
    if not counts or boolean.out != total.value or total.value.dtype[0] != "i" or boolean.args[0].dtype != "bool":
        return None, None
    short = vectors_to_look_at(replace(kernel, body=looks))
    wanted = boolean.args[0]
    if short is None or wanted.name not in short.varying or any(isinstance(x, Guard | Reduce | Store) for x in looks):
        return None, None
    return short._replace(at_once=COUNTED, varying=short.varying | {boolean.out.name}), Count(wanted)


def stop_early(steps: Sequence[Any], sizes: dict[str, int]) -> None:
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


def search_of(kernel: Kernel, vectors: Vectors | None) -> Search | None:
    """The search of a vectorized `kernel`, if a search is all it does."""
    if vectors is None or not vectors.at_once or vectors.rows or kernel.loops[-1].extent.value is not None:
        return None
    if any(isinstance(x, Guard) for x in kernel.body):
        return None
    roots = [x for x in kernel.body if isinstance(x, Reduce | Store)]
    if len(roots) != 1 or not isinstance(roots[0], Reduce) or kernel.loops[-1].var not in roots[0].over:
        return None
    value, combiner = roots[0].value, roots[0].combiner
    if value.dtype == "bool":
        # Short rows are reduced several at a time.
        stops = combiner in STOPS or (len(kernel.loops) == 1 and combiner in (*ANY, *ALL))
        return Search(value, combiner in ALL) if stops and value.name in vectors.varying else None
    return first_of(kernel, value, vectors.varying) if combiner == "minimum" else None


def first_of(kernel: Kernel, value: Operand, varying: Collection[str]) -> Search | None:
    """The search of a `kernel` whose result is the minimum `value`, if that is a first index."""
    table: dict[str, Any] = {x.out.name: x for x in kernel.body if hasattr(x, "out")}
    chosen = table.get(value.name)
    if not isinstance(chosen, Compute) or chosen.op != "where":
        return None
    wanted, index, missing = chosen.args
    if false := not isinstance(table.get(index.name), Index):
        index, missing = missing, index
    place = table.get(index.name)
    if not isinstance(place, Index) or wanted.name not in varying or missing.name in varying:
        return None
    var = kernel.loops[-1].var
    along = place.value.coefficient(var) == 1 and not place.value.symbols.intersection(varying) - {var}
    if not along or missing.dtype != "i64":
        return None
    return Search(wanted, false, place.value, missing, None if false else _alike(table, wanted))


def _alike(table: dict[str, Any], wanted: Operand) -> tuple[Operand, Operand] | None:
    """The two numbers whose equality, or a nan in the first, `wanted` tests."""

    def parts(x: Operand, op: str) -> tuple[Operand, ...]:
        result = table.get(x.name)
        return result.args if isinstance(result, Compute) and result.op == op else ()

    for one, other in itertools.permutations(parts(wanted, "logical_or"), 2):
        equal, unordered = parts(one, "eq"), parts(other, "ne")
        if equal and unordered and unordered[0] == unordered[1] and unordered[0] in equal and equal[0].dtype[0] == "f":
            return equal[0], equal[1]
    return None
