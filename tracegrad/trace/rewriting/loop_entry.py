"""Insert loop-entry probes into bytecode (loop preheader markers).

The test of a `while` is in the code twice: before the loop and at the end of the body. CPython compiles it so up to
Python 3.13, and since 3.14 `tracegrad.trace.rewriting.loop_inversion` repeats it. The tracer sees a conditional jump of
a loop only at the end of an iteration. Without probes, a loop could begin only after its first iteration. An *entrance*
follows the test before the loop: a constant that is negated, and thereby called. The state there equals the state after
a test that continues the loop (`tracegrad.reroll.online.loop_detector`).

A `for` loop has an entrance too, which receives the iterable; lists cannot be recognized in another way.

>>> def f(x):
...     while x < 3:
...         x = x * 2
...     return x
>>> [x for x in entering(f.__code__).co_consts if isinstance(x, Entrance)]
[the entrance of a loop]
"""

from __future__ import annotations

import dis
import functools
import sys
from collections.abc import Iterator
from types import CodeType
from typing import Any

from tracegrad.cpython.instruction_set import (
    CACHE,
    CALL_OPCODES,
    CERTAIN_JUMPS,
    EXTENDED_ARG,
    LOOP_OPCODES,
    TESTING_JUMPS,
    boolean_of,
)
from tracegrad.trace.builder.builder import current_trace
from tracegrad.trace.builder.hooks import HOOKS
from tracegrad.trace.bytecode.instructions import BytecodeInstruction, arranged, instructions_of
from tracegrad.trace.rewriting.loop_inversion import inverted
from tracegrad.trace.values.container_proxies import ListProxy


class Entrance:
    """The constant that is negated at loop entries and indexed with the iterables of `for` loops. `tests` maps the
    offset of the negation to the jump at the end of the iterations, and `code` is the original code."""

    __slots__ = ("code", "tests")

    def __init__(self, code: CodeType, tests: dict[int, int]):
        self.code, self.tests = code, tests

    def __neg__(self) -> None:
        builder = current_trace()
        if builder is None or not builder.open or builder.outer is not None or builder.inner is not None:
            return
        if builder.loops.may_close:
            frame = sys._getframe(1)
            HOOKS.loop_detector(builder, within=True).enter(frame, self.tests[frame.f_lasti])

    def __getitem__(self, x: object) -> Any:
        return HOOKS.iterable_of(x) if type(x) in (list, tuple, ListProxy) else x

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Entrance) and other.code == self.code

    def __hash__(self) -> int:
        return hash(self.code)

    def __repr__(self) -> str:
        return "the entrance of a loop"


@functools.lru_cache(maxsize=4096)
def entering(code: CodeType) -> CodeType:
    """The code with loop-entry probes; the code itself if it needs none."""
    if LOOP_OPCODES.isdisjoint(ops := code.co_code[::2]) and not _may_iterate(ops):
        return code
    instructions = inverted(code, instructions_of(code))
    tests = _Tests(instructions)
    tests.continue_at_the_end()
    result, through = tests.entrances(), _iterator_loads(instructions)
    return _with_entrances(code, instructions, result, through) if result or through else code


def without_entrances(code: CodeType) -> CodeType:
    """The original code of a rewritten one."""
    return next((x.code for x in code.co_consts if isinstance(x, Entrance)), code)


_ITER, _FOR_ITER = dis.opmap["GET_ITER"], dis.opmap["FOR_ITER"]


class _Tests:
    """The loop tests that occur twice in the code."""

    def __init__(self, instructions: list[BytecodeInstruction]):
        self.instructions = instructions
        self._numbers = {x: k for k, x in enumerate(instructions)}

    def entrances(self) -> dict[int, tuple[int, int]]:
        """Loop entries: by the instruction before which a loop is entered, the jump that leads there and the equal jump
        at the end of the iterations.

        A test of several conditions has one entrance after each condition: only the remaining conditions precede the
        body.
        """
        table: dict[int, tuple[int, int]] = {}
        for body, last in self._ends():
            position = body
            for first, end in self._together(body, last):
                if self.instructions[first].name in TESTING_JUMPS:
                    table.setdefault(position, (first, end))
                position = first
        return table

    def continue_at_the_end(self) -> None:
        """Redirect each `continue` to the test at the end of the iteration, instead of the one before the loop.

        All iterations then end with the same condition.
        """
        for body, last in list(self._ends()):
            if self._leads(self._before(body)) == self._leads(last):
                at_the_end = {self.instructions[k]: self.instructions[end] for k, end in self._together(body, last)}
                for x in self.instructions[body:last]:
                    if "BACK" in x.name and x.target in at_the_end:
                        x.target = at_the_end[x.target]
                        x.become("JUMP_FORWARD" if x.name == "JUMP_BACKWARD" else x.name.replace("BACK", "FOR"))

    def _ends(self) -> Iterator[tuple[int, int]]:
        """The first instructions of loop bodies, each with a jump at the end of the iterations. A jump before the loop
        leads to the body under the same condition."""
        for last, instruction in enumerate(self.instructions):
            for condition, target in self._leads(last).items() if instruction.name in TESTING_JUMPS else ():
                body = self._numbers[target]
                first = self._before(body) if body <= last else -1
                if (
                    first >= 0
                    and self.instructions[first].name in TESTING_JUMPS
                    and self._leads(first)[condition] is target
                ):
                    yield body, last

    def _together(self, body: int, last: int) -> Iterator[tuple[int, int]]:
        """The pairs of equal instructions before a loop and at the end of its iterations, backwards from the last."""
        first = self._before(body)
        yield first, last
        while first > 0:
            ahead = self.instructions[first], self.instructions[last]
            first, last = self._before(first), self._before(last)
            if not self._is_same(first, last, ahead):
                return
            yield first, last

    def _is_same(self, first: int, last: int, ahead: tuple[BytecodeInstruction, BytecodeInstruction]) -> bool:
        """Whether two instructions are equal, if their successors are."""
        x, y = self.instructions[first], self.instructions[last]
        if x.name in TESTING_JUMPS and y.name in TESTING_JUMPS:
            ends = self._leads(last)
            return all(
                end is ends[condition] or (end, ends[condition]) == ahead
                for condition, end in self._leads(first).items()
            )
        return (x.opcode, x.arg) == (y.opcode, y.arg) and x.target is None and y.target is None

    def _before(self, k: int) -> int:
        """The number of the instruction that precedes this one in control flow; -1 if there is none."""
        skips = (
            k > 1
            and self.instructions[k - 1].name in CERTAIN_JUMPS
            and self.instructions[k - 2].target is self.instructions[k]
        )
        return k - 2 if skips and self.instructions[k - 2].name in TESTING_JUMPS else k - 1

    def _leads(self, k: int) -> dict[bool, BytecodeInstruction]:
        """The targets of a conditional jump by condition, or of an unconditional jump."""
        instruction = self.instructions[k]
        ends = {
            instruction.name.endswith("TRUE"): instruction.target,
            instruction.name.endswith("FALSE"): self.instructions[k + 1],
        }
        return {
            condition: x.target or x if x.name in CERTAIN_JUMPS else x for condition, x in ends.items() if x is not None
        }


def _may_iterate(ops: bytes) -> bool:
    """Whether the code may contain an instruction for `_iterator_loads`; a cheap test."""
    at = ops.find(_ITER)
    while at > 0:
        before = ops[:at].rstrip(bytes([CACHE]))
        if ops[at + 1 :].lstrip(bytes([CACHE]))[0] in (EXTENDED_ARG, _FOR_ITER) and before[-1] not in CALL_OPCODES:
            return True
        at = ops.find(_ITER, at + 1)
    return False


def _iterator_loads(instructions: list[BytecodeInstruction]) -> set[int]:
    """The numbers of the instructions that get the iterator of a `for` loop, except over the result of a call."""
    return {
        k
        for k in range(1, len(instructions) - 1)
        if instructions[k].name == "GET_ITER"
        and instructions[k + 1].name == "FOR_ITER"
        and instructions[k - 1].opcode not in CALL_OPCODES
    }


def _with_entrances(
    code: CodeType, instructions: list[BytecodeInstruction], entrances: dict[int, tuple[int, int]], through: set[int]
) -> CodeType:
    entrance, number = Entrance(code, {}), len(code.co_consts)
    results: list[BytecodeInstruction] = []
    tests: list[tuple[BytecodeInstruction, BytecodeInstruction]] = []
    for k, instruction in enumerate(instructions):
        if k in entrances:
            first, last = instructions[entrances[k][0]], entrances[k][1]
            new = [
                BytecodeInstruction(*x, first.lines)
                for x in (("LOAD_CONST", number), ("UNARY_NEGATIVE", 0), ("POP_TOP", 0))
            ]
            if first.target is instruction:
                first.target = new[0]
            results += new
            tests.append((new[1], _asker(instructions, last)))
        if k in through:
            results += [
                BytecodeInstruction(*x, instruction.lines)
                for x in (("LOAD_CONST", number), ("SWAP", 2), ("BINARY_SUBSCR", 0))
            ]
        results.append(instruction)
    changed = arranged(code, results, co_consts=(*code.co_consts, entrance), co_stacksize=code.co_stacksize + 1)
    entrance.tests.update({new.frame_offset: asker.frame_offset for new, asker in tests})
    return changed


def _asker(instructions: list[BytecodeInstruction], jump: int) -> BytecodeInstruction:
    """The instruction that evaluates the condition of a jump."""
    before = instructions[jump - 1]
    return before if boolean_of(before.name, before.arg) else instructions[jump]
