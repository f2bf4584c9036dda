"""The instructions of this version of CPython, under one name for each thing that they do.

Each version renames, fuses and splits instructions. The package reads all of them by the names of one vocabulary, which
this module translates: `decode` reads, and `written` gives the instruction of this version for a name. A new version is
supported by changes here, and by what `tests/cpython` finds.

>>> [x.opname for x in decode((lambda x, y: x[y]).__code__)][-4:]
['LOAD_FAST', 'LOAD_FAST', 'BINARY_SUBSCR', 'RETURN_VALUE']
"""

from __future__ import annotations

import dis
import functools
import itertools
import opcode
import sys
from collections.abc import Iterator
from types import CodeType


def opcodes(*names: str) -> frozenset[int]:
    """The numbers of these instructions, as far as this version of Python has them."""
    return frozenset([dis.opmap[name] for name in names if name in dis.opmap])


# -- the vocabulary -------------------------------------------------------------------------------------
# Instructions that do what another one does: 3.14 lends a local variable to the stack, and has constants of its own.
_SAME_AS = {
    "LOAD_FAST_BORROW": "LOAD_FAST",  # since 3.14
    "LOAD_SMALL_INT": "LOAD_CONST",  # since 3.14
    "LOAD_COMMON_CONSTANT": "LOAD_CONST",  # since 3.14
}
# Since 3.13, one superinstruction replaces two instructions on local variables with low numbers.
_PAIRS = {
    "_".join(pair): pair
    for pair in itertools.product(("LOAD_FAST", "LOAD_FAST_BORROW", "STORE_FAST"), repeat=2)
    if "_".join(pair) in dis.opmap
}
_LENDS = opcodes("LOAD_FAST_BORROW", "LOAD_FAST_BORROW_LOAD_FAST_BORROW")
# Instructions that do nothing; since 3.14 one follows each conditional jump, for tools that count branches.
_IDLE = frozenset(["NOT_TAKEN"])
# Since 3.14, `x[y]` is one of the binary operators.
_OPERATORS: list[tuple[str, str]] = opcode._nb_ops  # type: ignore[attr-defined]
_SUBSCRIPT = next((k for k, (name, _) in enumerate(_OPERATORS) if name == "NB_SUBSCR"), -1)
_WRITTEN = {} if "BINARY_SUBSCR" in dis.opmap else {"BINARY_SUBSCR": ("BINARY_OP", _SUBSCRIPT)}

# The first version of Python whose instructions this table has not been compared with.
FIRST_UNKNOWN = (3, 16)

# -- facts of this version ------------------------------------------------------------------------------
# Whether the last bit of the argument of `LOAD_ATTR` marks the call of a method.
HAS_METHOD_BIT = sys.version_info >= (3, 12)
# Whether a null follows the callee on the stack.
HAS_NULL_AFTER_CALLEE = sys.version_info >= (3, 13)
# The bit of `COMPARE_OP` for a result that only a jump tests; 0 where the jump itself converts to a boolean.
_BOOLEAN_BIT = 16 if sys.version_info >= (3, 13) else 0
# Whether the test of a `while` is compiled twice, before the loop and at the end of its body.
TESTS_LOOPS_TWICE = sys.version_info < (3, 14)
# Whether the block of a `with` begins when `__enter__` has returned, before a signal handler can raise.
ENTERS_BLOCKS_AT_ONCE = "BEFORE_WITH" in dis.opmap
# The number of stack values that a `for` loop keeps for its iterator.
ITERATOR_SIZE = 1 + dis.stack_effect(dis.opmap["GET_ITER"], 0 if dis.opmap["GET_ITER"] >= dis.HAVE_ARGUMENT else None)
_CACHES = opcode._inline_cache_entries  # type: ignore[attr-defined]  # by name since 3.13, by number before
EXTENDED_ARG = dis.opmap["EXTENDED_ARG"]
CACHE = dis.opmap["CACHE"]
LOADS_ATTRIBUTE = frozenset(["LOAD_ATTR", "LOAD_METHOD"])
ATTRIBUTE_OPCODES = opcodes(*LOADS_ATTRIBUTE)
CALL_OPCODES = opcodes("CALL", "CALL_KW")
RAISE_OPCODES = opcodes("RAISE_VARARGS")
# Conditional and unconditional jumps. In Python 3.11 some conditional jumps lead back; in later versions a conditional
# jump that is to lead back precedes an unconditional one.
TESTING_JUMPS = frozenset([x for x in dis.opmap if x.startswith("POP_JUMP") and x.endswith(("TRUE", "FALSE"))])
CERTAIN_JUMPS = frozenset(["JUMP_BACKWARD", "JUMP_FORWARD"])
# Code without these instructions evaluates no condition at the end of an iteration.
LOOP_OPCODES = opcodes(*([x for x in TESTING_JUMPS if "BACK" in x] or ["JUMP_BACKWARD"]))


# -- reading and writing --------------------------------------------------------------------------------
def decode(code: CodeType) -> Iterator[dis.Instruction]:
    """The instructions of the code, with names of the vocabulary and with the opcodes and arguments of this version.

    The second half of a superinstruction has an odd offset, behind the first. Instructions that do nothing are left
    out.
    """
    for x in dis.get_instructions(code):
        name = x.opname
        if name in _PAIRS:
            numbers = divmod(x.arg or 0, 16)
            for k, (half, number, value) in enumerate(zip(_PAIRS[name], numbers, x.argval)):
                yield x._replace(
                    opname=_SAME_AS.get(half, half),
                    opcode=dis.opmap[half],
                    arg=number,
                    argval=value,
                    argrepr=value,
                    offset=x.offset + k,
                )
        elif name == "BINARY_OP" and x.arg == _SUBSCRIPT:
            yield x._replace(opname="BINARY_SUBSCR")
        elif name not in _IDLE:
            yield x._replace(opname=_SAME_AS[name]) if name in _SAME_AS else x


def written(name: str, arg: int) -> tuple[int, int]:
    """The opcode and the argument of this version for an instruction of the vocabulary."""
    name, arg = _WRITTEN.get(name, (name, arg))
    return dis.opmap[name], arg


def caches_of(number: int) -> int:
    """The number of inline cache entries that follow an instruction."""
    return int(_CACHES[number] if isinstance(_CACHES, list) else _CACHES.get(dis.opname[number], 0))


def span_of(x: dis.Instruction) -> range:
    """The offsets of an instruction and its inline caches: in Python 3.11 and 3.12, a frame that has called a Python
    function is at the last cache."""
    return range(x.offset, x.offset + 2 * (1 + caches_of(x.opcode)), 2)


def boolean_of(name: str, arg: int) -> int:
    """The number of stack values that an instruction tests or compares for a jump; 0 if it tests none. Since Python
    3.13 the jump is a separate instruction."""
    if name == "COMPARE_OP" and _BOOLEAN_BIT:
        return 2 if arg & _BOOLEAN_BIT else 0
    return int(name.startswith(("POP_JUMP", "TO_BOOL")))


@functools.lru_cache(maxsize=4096)
def attributes_of_lent(code: CodeType) -> frozenset[int]:
    """The instructions that load an attribute of a local variable, where the variable lends its reference to them."""
    if not _LENDS.intersection(code.co_code[::2]):
        return frozenset()
    pairs = itertools.pairwise(decode(code))
    return frozenset([y.offset for x, y in pairs if x.opcode in _LENDS and y.opcode in ATTRIBUTE_OPCODES])


def is_subscript(number: int, arg: int) -> bool:
    """Whether an instruction is `x[y]`."""
    name = dis.opname[number]
    return name == "BINARY_SUBSCR" or (name == "BINARY_OP" and arg == _SUBSCRIPT)


def is_remainder(number: int, arg: int) -> bool:
    """Whether an instruction is `x % y` or `x %= y`."""
    return dis.opname[number] == "BINARY_OP" and "REMAINDER" in _OPERATORS[arg][0]
