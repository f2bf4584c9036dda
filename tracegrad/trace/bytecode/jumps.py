"""Analyze the control-flow graph of bytecode: natural loops, and the conditional jumps in them.

At a conditional jump, the stack of the frame holds only the condition and the iterators of the enclosing loops.
"""

from __future__ import annotations

import dis
import functools
import itertools
from collections.abc import Sequence
from types import CodeType
from typing import NamedTuple

from tracegrad.cpython.instruction_set import ITERATOR_SIZE, boolean_of, span_of
from tracegrad.trace.bytecode.instructions import decoded
from tracegrad.trace.bytecode.variable_uses import (
    APPEND,
    ELEMENT,
    LENGTH,
    element_read,
    live_variables,
    successors,
    uses_of_variables,
)


class Jump(NamedTuple):
    """Analysis of a conditional jump: the branch outcomes that may lead back to it, with their targets; the loop heads
    of the enclosing counted loops; the dead local variables; the instructions of the innermost loop; and the local
    variables that the loop only appends to and indexes, that it indexes at all, and that it only indexes and
    measures."""

    back: frozenset[bool]
    ends: dict[bool, int]
    counted: tuple[int, ...]
    dead: frozenset[str]
    within: frozenset[int]
    appended: frozenset[str]
    read: frozenset[str]
    only_read: frozenset[str]


class Jumps(NamedTuple):
    """The analysis of a code object, by instruction: conditional jumps, and loop heads of counted loops."""

    asking: dict[int, Jump]
    counting: dict[int, Jump]


@functools.lru_cache(maxsize=4096)
def jumps_of(code: CodeType) -> Jumps:
    """The conditional jumps in loops that test a stack value, and the instructions that begin iterations."""
    instructions = decoded(code)
    follows = {a.offset: b.offset for a, b in itertools.pairwise(instructions)}
    next_instruction = {
        a.offset: b for a, b in itertools.pairwise([x for x in instructions if x.opname != "EXTENDED_ARG"])
    }
    depth, edges = _flow(instructions, follows)
    loops = _loops([range(y, x + 1) for x, ys in edges.items() for y in ys if y <= x])
    iterations = {
        x.offset: range(_first(instructions, k), x.argval) for k, x in enumerate(instructions) if x.opname == "FOR_ITER"
    }
    live = live_variables(code, instructions, follows)

    def dead(offset: int) -> frozenset[str]:
        return frozenset(code.co_varnames).difference(live[offset], code.co_cellvars)

    # The loop of a comprehension is excluded, because iterations append to its list, which is on the stack too.
    bare = [
        at
        for at in iterations
        if depth.get(at) == ITERATOR_SIZE * sum(at in iteration for iteration in iterations.values())
    ]
    uses_of = uses_of_variables(code, instructions)

    def jump(at: int, back: list[bool], ends: dict[bool, int], counted: tuple[int, ...], inside: range) -> Jump:
        within = _cycle(edges, at, inside)
        uses = {name: {use for at, use in used.items() if at in within} for name, used in uses_of.items()}
        appended = [name for name, table in uses.items() if APPEND in table and table <= {APPEND, ELEMENT}]
        read = [name for name, table in uses.items() if ELEMENT in table]
        only = [name for name, table in uses.items() if ELEMENT in table and table <= {ELEMENT, LENGTH}]
        return Jump(
            frozenset(back), ends, counted, dead(at), within, frozenset(appended), frozenset(read), frozenset(only)
        )

    counting = {
        at: jump(at, [True], {True: follows[at], False: iterations[at].stop}, (at,), iterations[at]) for at in bare
    }
    table = {}
    for instruction in instructions:
        jumps = instruction if instruction.opname.startswith("POP_JUMP") else next_instruction.get(instruction.offset)
        tested = boolean_of(instruction.opname, instruction.arg or 0)
        around = [loop for loop in loops if instruction.offset in loop]
        within = tuple([at for at in iterations if instruction.offset in iterations[at]])
        if (
            not tested
            or jumps is None
            or not around
            or depth.get(instruction.offset) != tested + ITERATOR_SIZE * len(within)
        ):
            continue
        if not jumps.opname.startswith("POP_JUMP") or "NONE" in jumps.opname:
            continue  # the boolean is for `not`, or a value
        if_jumps = "TRUE" in jumps.opname
        ends = {if_jumps: jumps.argval, not if_jumps: follows[jumps.offset]}
        inside = min(around, key=len)
        back = [condition for condition, start in ends.items() if instruction.offset in _reached(edges, start, inside)]
        if back:
            table[instruction.offset] = jump(instruction.offset, back, ends, within, inside)
    return Jumps(table, counting)


def _first(instructions: Sequence[dis.Instruction], k: int) -> int:
    """The start of an instruction that is a jump target, including its EXTENDED_ARG prefixes."""
    while k and instructions[k - 1].opname == "EXTENDED_ARG":
        k -= 1
    return int(instructions[k].offset)


def _flow(
    instructions: Sequence[dis.Instruction], follows: dict[int, int]
) -> tuple[dict[int, int], dict[int, list[int]]]:
    """The stack depth at each instruction, and its successors, without exception handlers."""
    known = {instruction.offset: instruction for instruction in instructions}
    depth, edges, waiting = {0: 0}, dict[int, list[int]](), [0]
    while waiting:
        instruction = known[waiting.pop()]
        targets = successors(instruction, follows)
        edges[instruction.offset] = [offset for offset, _ in targets]
        for offset, effect in targets:
            if offset not in depth:
                depth[offset] = depth[instruction.offset] + effect
                waiting.append(offset)
    return depth, edges


def _loops(cycles: list[range]) -> list[range]:
    """The loop ranges; ranges that begin together or overlap without nesting are merged."""
    results: list[range] = []
    ends = {x.start: x.stop for x in sorted(cycles, key=len)}
    for new in sorted([range(*each) for each in ends.items()], key=len):
        for old in [x for x in results if _overlap(x, new) or _overlap(new, x)]:
            results.remove(old)
            new = range(min(old.start, new.start), max(old.stop, new.stop))
        results.append(new)
    return results


def _overlap(x: range, y: range) -> bool:
    return x.start < y.start < x.stop < y.stop


@functools.lru_cache(maxsize=4096)
def elements_read(code: CodeType) -> dict[int, str]:
    """The instructions that read an element of a local variable in a loop with no other use of it, each with the
    variable.

    >>> def f(x, xs, ys):
    ...     for k in range(3):
    ...         x = x + xs[k] + ys[k]
    ...         ys[k] = x
    >>> set(elements_read(f.__code__).values())
    {'xs'}
    """
    instructions, jumps = decoded(code), jumps_of(code)
    loops = [x for x in (*jumps.asking.values(), *jumps.counting.values()) if x.only_read]
    table = {}
    for k, instruction in enumerate(instructions):
        read = element_read(instructions[k + 1 :]) if instruction.opname == "LOAD_FAST" else None
        name = instruction.argval
        if read is not None and any(read.offset in loop.within and name in loop.only_read for loop in loops):
            table.update(dict.fromkeys(span_of(read), name))
    return table


def _cycle(edges: dict[int, list[int]], at: int, inside: range) -> frozenset[int]:
    """The instructions of a range that are reachable from an instruction and reach it (a cycle)."""
    reached = _reached(edges, at, inside)
    back: dict[int, list[int]] = {}
    for x in reached:
        for y in edges.get(x, ()):
            back.setdefault(y, []).append(x)
    return frozenset(_reached(back, at, inside))


def _reached(edges: dict[int, list[int]], start: int, inside: range) -> set[int]:
    """The instructions of a range that are reachable from an instruction without leaving the range."""
    result, waiting = set[int](), [start]
    while waiting:
        at = waiting.pop()
        if at in inside and at not in result:
            result.add(at)
            waiting += edges.get(at, [])
    return result
