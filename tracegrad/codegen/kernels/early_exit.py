"""Reductions that are done as soon as something is found: whether any, or all, and the first index where something is.

The smallest of `where(found, index, missing)` is the first index along a loop at which `found` holds, if `missing` is
not below the indices: what lies before it does not matter, nor what lies behind. In `where(found, missing, index)` it
is the first at which it does not. So the loop asks several vectors at a
time whether there is one, and computes with those alone in which there is.
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

__all__ = ["Count", "First", "Search", "first_of", "search_of", "searching", "stop_early"]

COUNTED = 4  # vectors of truths in a turn
LONG = 256  # elements of rows that are left when it is known what they are reduced to: vectors of a turn


class Search(NamedTuple):
    """What the innermost loop of a kernel looks for: a lane in which `wanted` is true, or false if it looks for `all`
    of them; the `place` that it asks for, what is `missing` where there is none, and numbers that are equal or of which
    one is nan where `wanted` is true: one comparison says that there is nothing."""

    wanted: Operand
    all: bool = False
    place: Poly | None = None
    missing: Operand | None = None
    alike: tuple[Operand, Operand] | None = None


class First(NamedTuple):
    """What it looks for is the first extremum of all: the reduction that says so."""

    found: Reduce


class Count(NamedTuple):
    """It looks for all lanes in which `wanted` is true, and counts them."""

    wanted: Operand


def searching(kernel: Kernel, vectors: Vectors | None) -> tuple[Vectors | None, Search | First | Count | None]:
    """The vectors of `kernel` and what it looks for. Vectors are as long as what is looked at, not as its places."""
    if kernel.body and isinstance(kernel.body[-1], Reduce) and kernel.body[-1].combiner in FIRST:
        return vectors, First(kernel.body[-1])
    short = vectors_to_look_at(kernel) if vectors is None else None
    search = search_of(kernel, vectors or short)
    if search is None:
        return _counting(kernel) if vectors is None and len(kernel.loops) == 1 else (vectors, None)
    made = vectors or short
    assert made is not None
    seen = [x.out for x in kernel.body if isinstance(x, Load) and x.out.name in made.varying]
    widest = max([dtype_named(x.dtype).itemsize for x in seen], default=8)
    if short is not None or search.place is not None:
        made = made._replace(lanes=max(made.lanes, vector_bytes() // widest))
    return made, search


def _counting(kernel: Kernel) -> tuple[Vectors | None, Count | None]:
    """The same of one that counts truths, of elements that are too short for masks: these are as many bits."""
    if len(kernel.body) < 2 or not isinstance(kernel.body[-1], Reduce):
        return None, None
    *looks, truth, total = kernel.body
    counts = total.combiner == "add" and total.over and isinstance(truth, Compute) and truth.op == "cast"
    if not counts or truth.out != total.value or total.value.dtype[0] != "i" or truth.args[0].dtype != "bool":
        return None, None
    short = vectors_to_look_at(replace(kernel, body=looks))
    wanted = truth.args[0]
    if short is None or wanted.name not in short.varying or any(isinstance(x, Guard | Reduce | Store) for x in looks):
        return None, None
    return short._replace(at_once=COUNTED, varying=short.varying | {truth.out.name}), Count(wanted)


def stop_early(steps: Sequence[Any], sizes: dict[str, int]) -> None:
    """Let kernels that ask of long rows whether any or all of their elements are true leave a row when they know."""
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
    """What `kernel`, which is made of these vectors, looks for, if that is all it does."""
    if vectors is None or not vectors.at_once or vectors.rows or kernel.loops[-1].extent.value is not None:
        return None
    if any(isinstance(x, Guard) for x in kernel.body):
        return None
    roots = [x for x in kernel.body if isinstance(x, Reduce | Store)]
    if len(roots) != 1 or not isinstance(roots[0], Reduce) or kernel.loops[-1].var not in roots[0].over:
        return None
    value, combiner = roots[0].value, roots[0].combiner
    if value.dtype == "bool":
        # Of short rows, several are reduced at a time.
        stops = combiner in STOPS or (len(kernel.loops) == 1 and combiner in (*ANY, *ALL))
        return Search(value, combiner in ALL) if stops and value.name in vectors.varying else None
    return first_of(kernel, value, vectors.varying) if combiner == "minimum" else None


def first_of(kernel: Kernel, value: Operand, varying: Collection[str]) -> Search | None:
    """What `kernel`, whose result is the least `value`, looks for, if that is the first place of something."""
    made: dict[str, Any] = {x.out.name: x for x in kernel.body if hasattr(x, "out")}
    chosen = made.get(value.name)
    if not isinstance(chosen, Compute) or chosen.op != "where":
        return None
    wanted, index, missing = chosen.args
    if false := not isinstance(made.get(index.name), Index):
        index, missing = missing, index
    place = made.get(index.name)
    if not isinstance(place, Index) or wanted.name not in varying or missing.name in varying:
        return None
    var = kernel.loops[-1].var
    along = place.value.coefficient(var) == 1 and not place.value.symbols.intersection(varying) - {var}
    if not along or missing.dtype != "i64":
        return None
    return Search(wanted, false, place.value, missing, None if false else _alike(made, wanted))


def _alike(made: dict[str, Any], wanted: Operand) -> tuple[Operand, Operand] | None:
    """The numbers of which `wanted` says that they are equal, or the first is nan."""

    def parts(x: Operand, op: str) -> tuple[Operand, ...]:
        found = made.get(x.name)
        return found.args if isinstance(found, Compute) and found.op == op else ()

    for one, other in itertools.permutations(parts(wanted, "logical_or"), 2):
        equal, unordered = parts(one, "eq"), parts(other, "ne")
        if equal and unordered and unordered[0] == unordered[1] and unordered[0] in equal and equal[0].dtype[0] == "f":
            return equal[0], equal[1]
    return None
