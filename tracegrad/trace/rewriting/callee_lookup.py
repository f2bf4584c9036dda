"""Rewrite calls of computed callees (variables, attributes, items, calls), so that each callee is looked up.

No global name identifies the callee, so the object itself is looked up before the arguments are evaluated. The
rewritten code indexes a constant with the callee.

>>> def f(x):
...     scalar = np.float64
...     return scalar(x)
>>> looking_up(f.__code__, type).co_consts[-1]
what is called
>>> without_lookups(looking_up(f.__code__, type)) == f.__code__
True
"""

from __future__ import annotations

import dis
import functools
from collections.abc import Callable
from types import CodeType
from typing import Any

import numpy as np

from tracegrad.cpython.instruction_set import HAS_METHOD_BIT, HAS_NULL_AFTER_CALLEE, LOADS_ATTRIBUTE, opcodes
from tracegrad.trace.bytecode.instructions import BytecodeInstruction, arranged, instructions_of


class _CalleeTable:
    """The constant that is indexed with the callee, in the code that `looking_up` makes of `code`."""

    __slots__ = ("code", "find")

    def __init__(self, code: CodeType, find: Callable[[Any], Any]):
        self.code, self.find = code, find

    def __getitem__(self, x: object) -> Any:
        return self.find(x)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _CalleeTable) and other.code == self.code

    def __hash__(self) -> int:
        return hash(self.code)

    def __repr__(self) -> str:
        return "what is called"


_PUSHES_CALLEE = frozenset(
    [
        "BINARY_SUBSCR",
        "CALL",
        "LOAD_ATTR",
        "LOAD_CLASSDEREF",
        "LOAD_DEREF",
        "LOAD_FAST",
        "LOAD_FAST_CHECK",
        "LOAD_METHOD",
    ]
)
_VARIABLES = ("LOAD_CLASSDEREF", "LOAD_DEREF", "LOAD_FAST", "LOAD_FAST_CHECK")
# Attributes with these names are methods, and never number classes.
_OF_OBJECTS = (np.ndarray, np.ufunc, list, dict, set, str)
_METHODS = frozenset([name for cls in _OF_OBJECTS for name in dir(cls) if callable(getattr(cls, name, None))])
_ANY = opcodes("PUSH_NULL", *LOADS_ATTRIBUTE)


@functools.lru_cache(maxsize=4096)
def looking_up(code: CodeType, find: Callable[..., object]) -> CodeType:
    """The code in which `find` replaces each callee that is no global name."""
    if _ANY.isdisjoint(code.co_code[::2]):
        return code
    instructions, result = instructions_of(code), list[BytecodeInstruction]()
    callees = _before_nulls(instructions) if HAS_NULL_AFTER_CALLEE else _before_arguments(instructions)
    if not callees:
        return code
    jumps = [x for x in instructions if x.target is not None]
    for k, instruction in enumerate(instructions):
        result.append(instruction)
        if k not in callees:
            continue
        new = [
            BytecodeInstruction(*x, instruction.lines)
            for x in (("LOAD_CONST", len(code.co_consts)), ("SWAP", 2), ("BINARY_SUBSCR", 0))
        ]
        for jump in jumps:  # the callee is a conditional expression
            if jump.target is instructions[k + 1]:
                jump.target = new[0]
        result += new
        if HAS_NULL_AFTER_CALLEE and instruction.name == "LOAD_ATTR" and instruction.arg & 1:
            instruction.arg -= 1
            result.append(BytecodeInstruction("PUSH_NULL", 0, instruction.lines))
    called = _CalleeTable(code, find)
    return arranged(code, result, co_consts=(*code.co_consts, called), co_stacksize=code.co_stacksize + 1)


def without_lookups(code: CodeType) -> CodeType:
    """The original code of a rewritten one."""
    return next((x.code for x in code.co_consts if isinstance(x, _CalleeTable)), code)


def _may_push_callee(instruction: BytecodeInstruction) -> bool:
    """Whether an instruction may push a number class that no global name denotes. A conditional expression may load the
    callee by a global name without a null."""
    if instruction.name == "LOAD_GLOBAL":
        return not instruction.arg & 1
    of_attribute = instruction.name in LOADS_ATTRIBUTE
    return instruction.name in _PUSHES_CALLEE and not (
        of_attribute and (instruction.value in _METHODS or instruction.value.endswith("()"))
    )


def _before_nulls(instructions: list[BytecodeInstruction]) -> set[int]:
    results = {
        k - 1
        for k, instruction in enumerate(instructions)
        if instruction.name == "PUSH_NULL" and k and _may_push_callee(instructions[k - 1])
    }
    return results | {
        k for k, x in enumerate(instructions) if x.name == "LOAD_ATTR" and x.arg & 1 and _may_push_callee(x)
    }


def _before_arguments(instructions: list[BytecodeInstruction]) -> set[int]:
    """The numbers of the instructions that push the callee, or the object whose method is called."""
    results = {k for k, x in enumerate(instructions) if x.name == "LOAD_METHOD" and _may_push_callee(x)}
    results |= {
        k
        for k, x in enumerate(instructions)
        if HAS_METHOD_BIT and x.name == "LOAD_ATTR" and x.arg & 1 and _may_push_callee(x)
    }
    for k, instruction in enumerate(instructions):
        variable = instruction.name == "PUSH_NULL" and instructions[k + 1].name in _VARIABLES
        if variable and instructions[k + 2].name not in (*LOADS_ATTRIBUTE, "BINARY_SUBSCR"):
            results.add(k + 1)
        if instruction.name in ("CALL", "CALL_FUNCTION_EX"):
            wanted = instruction.arg if instruction.name == "CALL" else 1 + (instruction.arg & 1)
            args = _before(instructions, k, wanted)
            if args is not None and _may_push_callee(instructions[args]):
                results.add(args)
    return results


def _before(instructions: list[BytecodeInstruction], call: int, wanted: int) -> int | None:
    """The number of the instruction before the arguments of a call, if the arguments contain no jumps."""
    k = call - 1
    while k > 0 and instructions[k].name in ("PRECALL", "KW_NAMES"):
        k -= 1
    while k > 0 and wanted > 0:
        if instructions[k].target is not None:
            return None
        wanted -= dis.stack_effect(
            instructions[k].opcode, instructions[k].arg if _has_argument(instructions[k]) else None
        )
        k -= 1
    return k if wanted == 0 and k >= 0 else None


def _has_argument(instruction: BytecodeInstruction) -> bool:
    return instruction.opcode >= dis.HAVE_ARGUMENT
