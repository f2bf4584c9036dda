"""Invert loops: the test of a `while` is repeated at the end of the body, as compilers do (loop inversion).

CPython does so up to Python 3.13; since 3.14 iterations jump back to the one test. Loops are recognized between equal
states of a frame, so that a loop may begin at its entry (`tracegrad.trace.rewriting.loop_entry`): behind the test
before the loop, and at the test at the end of the iteration.

>>> def f(x):
...     while x < 3:
...         x = x * 2
...     return x
>>> from tracegrad.trace.bytecode.instructions import instructions_of
>>> names = [x.name for x in inverted(f.__code__, instructions_of(f.__code__))]
>>> names.count("COMPARE_OP")
2
"""

from __future__ import annotations

from copy import copy
from types import CodeType

from tracegrad.cpython.instruction_set import TESTING_JUMPS, TESTS_LOOPS_TWICE
from tracegrad.trace.bytecode.exception_regions import handlers
from tracegrad.trace.bytecode.instructions import BytecodeInstruction


def inverted(code: CodeType, instructions: list[BytecodeInstruction]) -> list[BytecodeInstruction]:
    """The instructions of the code with each loop inverted that begins with a test."""
    if TESTS_LOOPS_TWICE:
        return instructions
    backs: dict[BytecodeInstruction, list[BytecodeInstruction]] = {}
    for x in instructions:
        if x.name == "JUMP_BACKWARD" and x.target is not None:
            backs.setdefault(x.target, []).insert(0, x)
    for head, candidates in backs.items():
        # The last jump that is not behind the loop, as those of exception handlers are.
        alike = [x for x in candidates if _handlers_at(code, x) == _handlers_at(code, head)]
        end = next(((x, size) for x in alike if (size := _test_size(instructions, head, x))), None)
        if end is not None:
            instructions = _inverted(instructions, head, *end)
    return instructions


def _inverted(
    instructions: list[BytecodeInstruction], head: BytecodeInstruction, back: BytecodeInstruction, size: int
) -> list[BytecodeInstruction]:
    """The instructions with the test at the head of this loop, of `size` instructions, repeated at its end."""
    first, last = instructions.index(head), instructions.index(back)
    test, body = instructions[first : first + size], instructions[first + size]
    copies = {x: copy(x) for x in test}
    for x, new in copies.items():
        new.start = -1
        if x.target is not None:  # no conditional jump leads back
            new.target = back if x.target is body else copies.get(x.target, x.target)
    # What jumped to the end of the body still evaluates the test.
    for x in instructions:
        if x.target is back:
            x.target = copies[head]
    copies[head].start, back.start, back.target = back.start, -1, copies[head] if body is back else body
    return [*instructions[:last], *copies.values(), *instructions[last:]]


def _test_size(instructions: list[BytecodeInstruction], head: BytecodeInstruction, back: BytecodeInstruction) -> int:
    """The number of instructions of the test that a loop begins with: up to the last jump that leaves the loop before
    anything is stored; 0 if there is none."""
    loop = instructions[instructions.index(head) : instructions.index(back)]
    inside, size = {*loop, back}, 0
    for k, x in enumerate(loop):
        tests = x.name in TESTING_JUMPS or (k > 0 and loop[k - 1].name in TESTING_JUMPS and x.target not in inside)
        assigns = x.name.startswith("STORE") and (k == 0 or loop[k - 1].name != "COPY")  # but for `:=`
        if assigns or x.name.startswith(_NOT_IN_A_TEST) or not (tests or x.target is None):
            break
        if x.target is not None and x.target not in inside:
            size = k + 1
    return size


_NOT_IN_A_TEST = ("DELETE", "RETURN", "RAISE", "YIELD", "IMPORT", "GET_ITER", "FOR_ITER", "SEND")


def _handlers_at(code: CodeType, x: BytecodeInstruction) -> list[int]:
    return [handler for block, handler in handlers(code) if x.start in block]
