"""Rewrite identity comparisons with constants (`x is True`), so that traced numbers are evaluated.

The operator `is` cannot be overloaded. `x in c` has the same operands and result, and the constant `c` implements
the comparison. Code is rewritten only if no jump enters between the two instructions. `match` compares booleans with
the same instructions. `x is y` without a constant becomes `(x, y) in c`, because both may be booleans.

>>> def f(x):
...     return x is True
>>> asking(f.__code__).co_consts[-1]
is True
>>> plain(asking(f.__code__)) == f.__code__
True
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from types import CodeType
from typing import Any

import numpy as np

from tracegrad.trace.bytecode.code_queries import has_identity
from tracegrad.trace.bytecode.instructions import BytecodeInstruction, arranged, instructions_of
from tracegrad.trace.values.tracer import Tracer


class _ConstantSet:
    """Constant that contains exactly one object, in the code that `asking` makes of `code`."""

    __slots__ = ("code", "value")

    def __init__(self, value: Any, code: CodeType):
        self.value, self.code = value, code

    def __contains__(self, x: object) -> bool:
        if isinstance(x, Tracer) and x.weak:
            if x.dtype.kind == "b" and type(self.value) is bool:
                x = bool(x)
            elif x.dtype.kind == "i" and type(self.value) is int:
                x = x._plain("int()")
        return x is self.value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ConstantSet) and other._key() == self._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[Any, ...]:
        return type(self.value), self.value, self.code

    def __repr__(self) -> str:
        return f"is {self.value!r}"


class _IdenticalPairs:
    """Constant that contains the pairs of identical objects, in the code that `asking` makes of `code`."""

    __slots__ = ("code",)

    def __init__(self, code: CodeType):
        self.code = code

    def __contains__(self, pair: tuple[object, object]) -> bool:
        return is_same(*pair)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _IdenticalPairs) and other.code == self.code

    def __hash__(self) -> int:
        return hash(self.code)


def is_same(x: object, y: object) -> bool:
    """`x is y`, with traced booleans evaluated: Python and NumPy each have two boolean objects."""
    if x is not y and all(isinstance(v, bool | np.bool_) or _is_boolean(v) for v in (x, y)):
        x, y = (_evaluated(v) if isinstance(v, Tracer) else v for v in (x, y))
    return x is y


def _is_boolean(x: object) -> bool:
    return isinstance(x, Tracer) and x.dtype.kind == "b" and not (x.shape or (x.is_array and not x.weak))


def _evaluated(x: Tracer) -> object:
    return bool(x) if x.weak else np.bool_(bool(x))


@functools.lru_cache(maxsize=4096)
def comparisons(code: CodeType) -> frozenset[int]:
    """The identity comparisons with a boolean or an integer constant that can be rewritten."""
    return frozenset([x.start for _, x in _pairs(instructions_of(code))] if has_identity(code) else ())


def _pairs(instructions: list[BytecodeInstruction]) -> Iterator[tuple[BytecodeInstruction, BytecodeInstruction]]:
    """The instructions that load a boolean or integer constant, with the instructions that compare with it."""
    targets = {x.target for x in instructions}
    for load, instruction in itertools.pairwise(instructions):
        known = instruction.name == "IS_OP" and load.name == "LOAD_CONST" and instruction not in targets
        if known and type(load.value) in (bool, int):
            yield load, instruction


@functools.lru_cache(maxsize=4096)
def asking(code: CodeType) -> CodeType:
    """The code in which traced numbers are evaluated when they are compared by `is`."""
    if not has_identity(code):
        return code
    instructions, consts = instructions_of(code), list(code.co_consts)
    for load, comparison in _pairs(instructions):
        result = _ConstantSet(load.value, code)
        if result not in consts:
            consts.append(result)
        load.become("LOAD_CONST", consts.index(result))
        comparison.become("CONTAINS_OP")
    of_pairs = _of_pairs(instructions, len(consts))
    if len(of_pairs) > len(instructions):
        instructions = of_pairs
        consts.append(_IdenticalPairs(code))
    return arranged(code, instructions, co_consts=tuple(consts)) if len(consts) > len(code.co_consts) else code


def _of_pairs(instructions: list[BytecodeInstruction], const: int) -> list[BytecodeInstruction]:
    """The instructions with `is` between two computed objects rewritten to a membership test of their pair in this
    constant."""
    targets, result = {x.target for x in instructions}, list[BytecodeInstruction]()
    for instruction in instructions:
        is_pair = instruction.name == "IS_OP" and (result[-1].name != "LOAD_CONST" or instruction in targets)
        result.append(instruction)
        if is_pair:
            result += [
                BytecodeInstruction("LOAD_CONST", const, instruction.lines),
                BytecodeInstruction("CONTAINS_OP", instruction.arg, instruction.lines),
            ]
            instruction.become("BUILD_TUPLE", 2)
    return result


def plain(code: CodeType) -> CodeType:
    """The original code of a rewritten one."""
    return next((x.code for x in code.co_consts if isinstance(x, _ConstantSet | _IdenticalPairs)), code)
