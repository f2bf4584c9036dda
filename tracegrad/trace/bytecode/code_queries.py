"""Answer questions about code objects from their instructions: names, identity tests, sets, calls of `__new__`.

The answers are about one code object, without its nested functions, unless the name of a function says otherwise.
"""

from __future__ import annotations

import dis
import functools
import itertools
from collections.abc import Collection, Iterator
from types import CodeType
from typing import NamedTuple

from tracegrad.cpython.instruction_set import LOADS_ATTRIBUTE, opcodes
from tracegrad.trace.bytecode.instructions import decoded

_LOADS_ATTRIBUTE = LOADS_ATTRIBUTE | {"LOAD_SUPER_ATTR"}
_LOADS_GLOBAL = ("LOAD_GLOBAL", "LOAD_NAME")
_STORES = {"STORE_GLOBAL": "global", "DELETE_GLOBAL": "global", "STORE_DEREF": "cell", "DELETE_DEREF": "cell"}


def bytes_of(code: CodeType) -> tuple[bytes, bytes]:
    """The instructions and the exception table of the code."""
    return code.co_code, code.co_exceptiontable


def _contains(code: CodeType, *names: str) -> bool:
    """Whether the code has one of these instructions; a cheap test."""
    return not opcodes(*names).isdisjoint(code.co_code[::2])


# -- names -----------------------------------------------------------------------------------------
def loaded_globals(code: CodeType) -> set[str]:
    """The global names that the code loads.

    >>> sorted(loaded_globals((lambda x: print(x, dis)).__code__))
    ['dis', 'print']
    """
    return {x.argval for x in decoded(code) if x.opname in _LOADS_GLOBAL}


def assigned_variables(code: CodeType) -> Iterator[tuple[str, str]]:
    """The outside variables that the code assigns or deletes: "global" or "cell", and the name."""
    for x in decoded(code):
        kind = _STORES.get(x.opname)
        if kind is not None and (kind == "global" or x.argval in code.co_freevars):
            yield kind, x.argval


def changes_variables(code: CodeType) -> bool:
    """Whether the code imports a module, or assigns variables that other code may see."""
    return any(x.opname in _STORES or x.opname == "IMPORT_NAME" for x in decoded(code))


@functools.lru_cache(maxsize=4096)
def owners_of(code: CodeType, attribute: str) -> frozenset[object]:
    """The names and constants that are loaded last before an attribute is read of the value.

    >>> owners_of((lambda self, x: (self.__dict__, x.__dict__)).__code__, "__dict__") == {"self", "x"}
    True
    """
    pairs = itertools.pairwise(decoded(code))
    return frozenset([x.argval for x, y in pairs if y.argval == attribute and y.opname in _LOADS_ATTRIBUTE])


def names_attribute(code: CodeType, owners: Collection[object], attributes: Collection[object]) -> bool:
    """Whether the code reads one of these attributes of a variable or an attribute with one of these names.

    >>> names_attribute((lambda xs: list.append(xs, 1)).__code__, ["list"], ["append"])
    True
    """
    pairs = itertools.pairwise(decoded(code))
    return any(y.opname in _LOADS_ATTRIBUTE and y.argval in attributes and x.argval in owners for x, y in pairs)


def loaded_before(code: CodeType, instruction: int) -> list[object]:
    """The names and constants that are loaded by this instruction and those before it in the code."""
    return [x.argval for x in decoded(code) if x.offset <= instruction and x.opname.startswith("LOAD")]


@functools.lru_cache(maxsize=4096)
def assigned_items(code: CodeType) -> frozenset[tuple[str, str]]:
    """The containers for which the code assigns an item by a variable, each with the variable.

    >>> def f(table, key):
    ...     table[key] = 1
    >>> assigned_items(f.__code__)
    frozenset({('table', 'key')})
    """
    instructions = [(x.opname, x.argval) for x in decoded(code)]
    return frozenset(
        [
            (x, y)
            for (loads_x, x), (loads_y, y), (stores, _) in zip(instructions, instructions[1:], instructions[2:])
            if stores == "STORE_SUBSCR"
            and loads_x.startswith("LOAD")
            and loads_y.startswith("LOAD")
            and isinstance(x, str)
            and isinstance(y, str)
        ]
    )


# -- identity --------------------------------------------------------------------------------------
class IdentityTest(NamedTuple):
    """An `is` or `is not`: its instruction, and the name or constant that is loaded last before it."""

    instruction: int
    operand: object
    is_constant: bool
    is_global: bool


def has_identity(code: CodeType) -> bool:
    """Whether the code may contain `is`; a cheap test before the comparison itself is analyzed.

    >>> has_identity((lambda x, y: x is y).__code__), has_identity((lambda x, y: x == y).__code__)
    (True, False)
    """
    return _contains(code, "IS_OP")


@functools.lru_cache(maxsize=4096)
def identity_tests(code: CodeType) -> tuple[IdentityTest, ...]:
    """The comparisons of objects by identity.

    >>> [(x.operand, x.is_constant) for x in identity_tests((lambda x, y: x is None or x is y).__code__)]
    [(None, True), ('y', False)]
    """
    return tuple(
        [
            IdentityTest(y.offset, x.argval, x.opname == "LOAD_CONST", x.opname == "LOAD_GLOBAL")
            for x, y in itertools.pairwise(decoded(code) if has_identity(code) else ())
            if y.opname == "IS_OP"
        ]
    )


@functools.lru_cache(maxsize=4096)
def compares_by_identity(code: CodeType) -> bool:
    """Whether the code may compare objects by identity, which distinguishes an element from its stand-in.

    >>> compares_by_identity((lambda x, y: x is y).__code__), compares_by_identity((lambda x, y: x is None).__code__)
    (True, False)
    """
    return "id" in code.co_names or not all(x.is_constant for x in identity_tests(code))


# -- sets, patterns, classes -----------------------------------------------------------------------
def makes_sets(code: CodeType) -> bool:
    """Whether the code makes a set by a display or a comprehension."""
    return _contains(code, "BUILD_SET", "SET_ADD", "SET_UPDATE")


def uses_constant_sets(code: CodeType) -> bool:
    """Whether the code uses a constant set for more than membership tests."""
    if frozenset not in map(type, code.co_consts):
        return False
    pairs = itertools.pairwise(decoded(code))
    return any(type(x.argval) is frozenset and y.opname != "CONTAINS_OP" for x, y in pairs)


def uses_operators(code: CodeType, operators: Collection[str]) -> bool:
    """Whether the code uses one of these binary operators, as `"&"` or `"&="`."""
    return any(x.argrepr in operators for x in decoded(code))


@functools.lru_cache(maxsize=4096)
def matches_classes(code: CodeType) -> bool:
    """Whether the code has a class pattern of a `match` statement."""
    return _contains(code, "MATCH_CLASS")


@functools.lru_cache(maxsize=4096)
def calls_of_new(code: CodeType) -> frozenset[int] | None:
    """The instructions that call a method `__new__`; None if they cannot be distinguished from calls of classes."""
    if "__new__" not in (*code.co_names, *code.co_consts):
        return frozenset()
    if "__new__" in code.co_consts:
        return None
    results: set[int] = set()
    depth = None  # the stack depth, relative to the point at which a `__new__` was loaded
    for x, following in itertools.pairwise(decoded(code)):
        loads = x.argval == "__new__" and x.opname in _LOADS_ATTRIBUTE
        if depth is not None:
            depth += dis.stack_effect(x.opcode, x.arg, jump=False)
            if loads or x.opcode in dis.hasjrel:
                return None
            if depth < (x.opname == "PRECALL"):  # the first half of a call
                results.update(range(x.offset, following.offset, 2))  # a frame may be at the inline cache of a call
            if depth < 0:
                if not x.opname.startswith("CALL"):
                    return None
                depth = None
        depth = 0 if loads else depth
    return frozenset(results)
