"""Rewrite call sites of built-in names, so that only calls of a name see its replacement.

`float` is a function of numbers and also a class that code compares, passes on and stores. Only calls of it may be
replaced in traced code. Since Python 3.11, the instruction that loads a name says whether it is called. In the code of
shadows that instruction loads `float()`, a name that `shadow.Globals` knows.

>>> marked((lambda x: (float(x), float)).__code__).co_names
('float', 'float()')

Every other called global name is rewritten too, because it may be an alias: `Scalar = np.float64`. NumPy's scalar types
and ufuncs are rewritten as attributes of `np` that are called, or whose method is read. The number classes are
rewritten if one of their methods is read:

>>> marked((lambda x: (np.float64(x), np.float64)).__code__).co_names
('np', 'float64', 'float64()')
>>> marked((lambda x, y: float.__mul__(x, y)).__code__).co_names
('float', '__mul__', 'float()')

Callees in local variables, attributes and items are looked up at the call
(`tracegrad.trace.rewriting.callee_lookup`). `range`, `zip`, `enumerate` and `reversed` have replacements in `for`
statements (`tracegrad.trace.loops.array_iteration`). `is True` evaluates traced booleans
(`tracegrad.trace.rewriting.constant_identity`).
"""

from __future__ import annotations

import dis
import functools
import itertools
import types
from collections.abc import Callable
from types import CodeType

import numpy as np

from tracegrad.cpython.instruction_set import EXTENDED_ARG, HAS_METHOD_BIT, LOADS_ATTRIBUTE, span_of
from tracegrad.trace.bytecode.instructions import decoded
from tracegrad.trace.rewriting.callee_lookup import looking_up, without_lookups
from tracegrad.trace.rewriting.constant_identity import asking, plain
from tracegrad.trace.rewriting.loop_entry import entering, without_entrances
from tracegrad.trace.rewriting.ufunc_wrappers import LISTED, METHODS, NAMES
from tracegrad.trace.values.number_builtins import CALLED, CLASSES
from tracegrad.trace.values.text_conversions import PARSERS, parser_of

MARK = "()"
_LOAD = dis.opmap["LOAD_GLOBAL"]
_CALLED = {id(theirs): ours for theirs, ours in (*CALLED.items(), *LISTED.items(), *CLASSES.items())}
_KINDS = frozenset([name for name, x in vars(np).items() if isinstance(x, type) and x in CALLED])  # and `double`
_NAMES = frozenset([f.__name__ for f in CALLED]) | _KINDS | NAMES | PARSERS.keys()
_MODULES = ("np", "numpy", *PARSERS.values())
LOOPED = frozenset(["enumerate", "range", "reversed", "zip"])
_OF_NUMBERS = frozenset(["complex", "float", "int"])
# C code receives the results of these methods, and accepts no traced numbers.
_FOR_PYTHON = frozenset(["__bool__", "__complex__", "__float__", "__hash__", "__index__", "__int__", "__len__"])


def callee(x: object) -> object:
    """The function that traced code calls instead of `x`, a built-in function, a NumPy class or a ufunc."""
    result = _CALLED.get(id(x))
    return parser_of(x) if result is None else result


def lookup(x: object) -> object:
    """As `callee`, for callees from local variables, attributes and items."""
    if type(x) in _NEVER:
        return x
    result = _CALLED.get(id(x))
    return result if result is not None else parser_of(x)


_NEVER = frozenset([types.FunctionType, types.MethodType])


def marked(code: CodeType) -> CodeType:
    """The code with marked names where built-in functions are called, nested functions included, and with the other
    rewrites of traced code."""
    return _marked(code, code.co_filename)


@functools.lru_cache(maxsize=4096)
def _marked(code: CodeType, filename: str) -> CodeType:
    """The marked code; the file is part of the key, because equal code may come from different files."""
    called = _NAMES | {name for name, _, _ in _calling(code)}
    result = [] if code.co_name in _FOR_PYTHON else [name for name in code.co_names if name in called]
    if code.co_name not in _FOR_PYTHON:  # last, because an instruction can only address the first names
        result += [name for name in _globals_called(code) if name not in result]
    names = (*code.co_names, *[name + MARK for name in result])
    renames = {names.index(name): names.index(name + MARK) for name in result}
    output = _renamed(code, names, renames, marked)
    output = entering(asking(output if code.co_name in _FOR_PYTHON else looking_up(output, lookup)))
    return output if output.co_filename == filename else output.replace(co_filename=filename)


def unmarked(code: CodeType) -> CodeType:
    """The original code of a marked one."""
    code = without_lookups(plain(without_entrances(code)))
    names = tuple([name for name in code.co_names if not name.endswith(MARK)])
    renames = {k: names.index(name[: -len(MARK)]) for k, name in enumerate(code.co_names) if name.endswith(MARK)}
    return _renamed(code, names, renames, unmarked)


def _renamed(
    code: CodeType, names: tuple[str, ...], renames: dict[int, int], inner: Callable[[CodeType], CodeType]
) -> CodeType:
    """The code with other names, which the calls at `renames` use."""
    consts = tuple([inner(x) if isinstance(x, CodeType) else x for x in code.co_consts])
    if not renames:
        return code if all(map(_is, consts, code.co_consts)) else code.replace(co_consts=consts)
    bytecode, loads = bytearray(code.co_code), {load for _, load, _ in _calling(code)}
    methods, classes = _methods(code), _classes(code)
    for k in range(0, len(bytecode), 2):
        name_index, called = divmod(bytecode[k + 1], 2)
        long = k and bytecode[k - 2] == EXTENDED_ARG
        name, bit = divmod(methods.get(k, 0), 2) if HAS_METHOD_BIT else (methods.get(k, 0), 0)
        if k in methods and not long and renames.get(name, 128) < 128:
            bytecode[k + 1] = 2 * renames[name] + bit if HAS_METHOD_BIT else renames[name]
        if k in classes and not long and renames.get(name_index, 128) < 128:
            bytecode[k + 1] = 2 * renames[name_index]
        known = bytecode[k] == _LOAD and called and not long and renames.get(name_index, 128) < 128
        if known and (k in loads or code.co_names[name_index] not in LOOPED):
            bytecode[k + 1] = 2 * renames[name_index] + 1
    return code.replace(co_code=bytes(bytecode), co_names=names, co_consts=consts)


@functools.lru_cache(maxsize=4096)
def _methods(code: CodeType) -> dict[int, int]:
    """The instructions that load functions of NumPy to call them, and the positions of their names."""
    if not any(name in code.co_names for name in _MODULES):
        return {}
    result, instructions = {}, _instructions(code)
    for x, y, z in zip(instructions, instructions[1:], instructions[2:]):
        if x.opcode == _LOAD and x.argval in _MODULES and y.opname in LOADS_ATTRIBUTE and y.arg is not None:
            followed = z.opname in LOADS_ATTRIBUTE
            if z.argval in METHODS or y.argval in _KINDS if followed else _is_called(x, y, z):
                result[y.offset] = y.arg
    return result


@functools.lru_cache(maxsize=4096)
def _classes(code: CodeType) -> frozenset[int]:
    """The instructions that load Python's number classes to read a method."""
    if _OF_NUMBERS.isdisjoint([name.removesuffix(MARK) for name in code.co_names]):
        return frozenset()
    pairs = itertools.pairwise(_instructions(code))
    return frozenset(
        [
            x.offset
            for x, y in pairs
            if x.opcode == _LOAD and x.argval.removesuffix(MARK) in _OF_NUMBERS and y.opname in LOADS_ATTRIBUTE
        ]
    )


@functools.lru_cache(maxsize=4096)
def _globals_called(code: CodeType) -> tuple[str, ...]:
    """The global names that the code calls, except names whose replacements only loops see."""
    pairs = itertools.pairwise(_instructions(code))
    names = [x.argval for x, y in pairs if x.opcode == _LOAD and (x.arg or 0) & 1 and y.opname not in LOADS_ATTRIBUTE]
    return tuple(dict.fromkeys([name for name in names if name not in LOOPED and not name.endswith(MARK)]))


def _is_called(x: dis.Instruction, y: dis.Instruction, z: dis.Instruction) -> bool:
    """Whether the attribute `y` of the global `x` is loaded to be called, whatever jumps precede the call."""
    method = (y.arg or 0) & 1 if HAS_METHOD_BIT else y.opname == "LOAD_METHOD"
    return bool(method or (x.arg or 0) & 1 or (z.opname == "PUSH_NULL" and not z.is_jump_target))


def _is(x: object, y: object) -> bool:
    return x is y


def counted_loops(code: CodeType) -> tuple[int, ...]:
    """The instructions that begin the iterations of `for` loops over a `range` call.

    >>> def f(n):
    ...     for _ in range(n):
    ...         list(range(n))
    >>> len(counted_loops(f.__code__))
    1
    """
    return tuple([iterations for name, _, iterations in _calling(code) if name == "range"])


def _instructions(code: CodeType) -> list[dis.Instruction]:
    """The instructions with their whole arguments: a `FOR_ITER` over a long body takes two."""
    return [x for x in decoded(code) if x.opcode != EXTENDED_ARG]


@functools.lru_cache(maxsize=4096)
def _calling(code: CodeType) -> tuple[tuple[str, int, int], ...]:
    """The `for` loops over a call of a name in `LOOPED`: the name, the instruction that loads it, and the instruction
    that begins each iteration."""
    if LOOPED.isdisjoint([name.removesuffix(MARK) for name in code.co_names]):
        return ()
    instructions = _instructions(code)
    results = []
    for k, instruction in enumerate(instructions):
        if instruction.opname == "FOR_ITER" and [x.opname for x in instructions[k - 2 : k]] == ["CALL", "GET_ITER"]:
            load = _loaded(instructions, k - 3 if instructions[k - 3].opname == "PRECALL" else k - 2)
            if load is not None:
                results.append((load.argval.removesuffix(MARK), load.offset, instruction.offset))
    return tuple(results)


@functools.lru_cache(maxsize=4096)
def iterated(code: CodeType) -> dict[int, int]:
    """The instructions that get the iterator of a `for` loop not in `counted_loops`, and the instructions that begin
    its iterations."""
    counted = counted_loops(code)
    pairs = itertools.pairwise(_instructions(code))
    return {
        at: y.offset
        for x, y in pairs
        if x.opname == "GET_ITER" and y.opname == "FOR_ITER" and y.offset not in counted
        for at in span_of(x)
    }


def _loaded(instructions: list[dis.Instruction], call: int) -> dis.Instruction | None:
    """The instruction that loads the callee of this call, if its name is in `LOOPED` and its arguments contain no
    jumps."""
    wanted = (instructions[call].arg or 0) + 2
    for instruction in reversed(instructions[:call]):
        if instruction.opcode in dis.hasjrel or instruction.opcode in dis.hasjabs:
            return None
        wanted -= dis.stack_effect(instruction.opcode, instruction.arg)
        if wanted <= 0:
            known = wanted == 0 and instruction.opcode == _LOAD and instruction.argval.removesuffix(MARK) in LOOPED
            return instruction if known else None
    return None
