"""Analyze the local variables in bytecode: where they are live, and how their values are used."""

from __future__ import annotations

import dis
from collections.abc import Sequence
from types import CodeType

from tracegrad.cpython.instruction_set import LOADS_ATTRIBUTE
from tracegrad.trace.bytecode.code_queries import compares_by_identity
from tracegrad.trace.bytecode.exception_regions import handlers

# Instructions that never continue at the next instruction.
_ENDS = ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_NO_INTERRUPT", "RETURN", "RAISE", "RERAISE")


def successors(instruction: dis.Instruction, follows: dict[int, int]) -> list[tuple[int, int]]:
    """The possible successors of an instruction, each with the change of the stack depth."""
    results = []
    if instruction.opcode in dis.hasjrel or instruction.opcode in dis.hasjabs:
        results.append((instruction.argval, dis.stack_effect(instruction.opcode, instruction.arg, jump=True)))
    if not instruction.opname.startswith(_ENDS):
        results.append((follows[instruction.offset], dis.stack_effect(instruction.opcode, instruction.arg, jump=False)))
    return results


# Names of functions that read local variables without an instruction that shows it.
_FRAME_READERS = frozenset({"locals", "vars", "dir", "eval", "exec", "globals", "_getframe", "currentframe", "super"})


def live_variables(
    code: CodeType, instructions: Sequence[dis.Instruction], follows: dict[int, int]
) -> dict[int, set[str]]:
    """The local variables that are live at each instruction, exception handlers included (liveness)."""
    if not _FRAME_READERS.isdisjoint(code.co_names):
        return {instruction.offset: set(code.co_varnames) for instruction in instructions}
    live: dict[int, set[str]] = {instruction.offset: set() for instruction in instructions}
    targets = {instruction.offset: [at for at, _ in successors(instruction, follows)] for instruction in instructions}
    handled = handlers(code)
    changed = True
    while changed:
        changed = False
        for instruction in reversed(instructions):
            now = set().union(*[live[x] for x in targets[instruction.offset]])
            if "_FAST" in instruction.opname:
                name = {instruction.argval}
                now = now - name if instruction.opname == "STORE_FAST" else now | name
            now = now.union(*[live[handler] for block, handler in handled if instruction.offset in block])
            if now != live[instruction.offset]:
                live[instruction.offset], changed = now, True
    return live


# The uses of a value that are distinguished: its method `append` is called, an element or the length is read.
APPEND, ELEMENT, LENGTH = "append", "element", "length"
Uses = dict[str, dict[int, str | None]]


def uses_of_variables(code: CodeType, instructions: Sequence[dis.Instruction]) -> Uses:
    """The uses of each local variable's value by instruction, None for any other use. Empty if objects are compared by
    identity."""
    if not _FRAME_READERS.isdisjoint(code.co_names) or compares_by_identity(code):
        return {}
    table: Uses = {}
    for k, instruction in enumerate(instructions):
        if "_FAST" in instruction.opname:
            use = _use(instructions[k - 1 :]) if k and instruction.opname == "LOAD_FAST" else None
            table.setdefault(instruction.argval, {})[instruction.offset] = use
    return {name: x for name, x in table.items() if set(x.values()) != {None} and name not in code.co_cellvars}


# The number of stack values that each instruction of an index expression pops.
_STACK_POPS = {"LOAD_FAST": 0, "LOAD_CONST": 0, "LOAD_GLOBAL": 0, "LOAD_DEREF": 0, "UNARY_NEGATIVE": 1, "BINARY_OP": 2}


def _use(instructions: Sequence[dis.Instruction]) -> str | None:
    """The use of the value that the second of the instructions loads."""
    before, _, *instructions = instructions
    if before.opname == "LOAD_GLOBAL" and before.argval.removesuffix("()") == "len":
        called = [x for x in instructions[:2] if x.opname != "PRECALL"]
        return LENGTH if called[0].opname == "CALL" and called[0].arg == 1 else None
    if instructions[0].opname in LOADS_ATTRIBUTE:
        return APPEND if instructions[0].argval == "append" else None
    return None if element_read(instructions) is None else ELEMENT


def element_read(instructions: Sequence[dis.Instruction]) -> dis.Instruction | None:
    """The instruction that reads an element of the value on the stack, if that is its use."""
    above = 0
    for instruction in instructions:
        if above == 1 and instruction.opname == "BINARY_SUBSCR":
            return instruction
        popped = _STACK_POPS.get(instruction.opname, above + 1)
        if popped > above or instruction.is_jump_target:
            return None
        above += 1 - popped
    return None
