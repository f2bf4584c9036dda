"""Read exception tables of bytecode: whether traced code is inside a `try` or a `with` of its own."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from types import CodeType
from typing import Any

from tracegrad.cpython.instruction_set import opcodes


class Namespace(dict[str, Any]):
    """The globals of a traced function, which identify its frames."""

    __slots__ = ()


def within_try() -> bool:
    """Whether any function of the traced code, from the innermost outwards, is inside a `try` or a `with`.

    >>> within_try()  # this is no traced code
    False
    """
    frame: Any = sys._getframe(1)
    while frame is not None:
        if isinstance(frame.f_globals, Namespace) and any(frame.f_lasti in block for block in _blocks(frame.f_code)):
            return True
        frame = frame.f_back
    return False


@functools.lru_cache(maxsize=4096)
def _blocks(code: CodeType) -> tuple[range, ...]:
    """The ranges of instructions whose exceptions might be caught."""
    return tuple([block for block, at in handlers(code) if _catches(code, at)])


def _catches(code: CodeType, handler: int) -> bool:
    """Whether the handler, or an enclosing one, might catch an exception."""
    around = [at for block, at in handlers(code) if handler in block]
    return code.co_code[handler] not in _CATCH_NOTHING or any(_catches(code, at) for at in around)


# Since Python 3.12, comprehensions have handlers that restore local variables. Generators have one for `StopIteration`.
_CATCH_NOTHING = opcodes("SWAP", "CALL_INTRINSIC_1")


@functools.lru_cache(maxsize=4096)
def handlers(code: CodeType) -> tuple[tuple[range, int], ...]:
    """The instruction ranges with an entry in the exception table of the code, each with its handler's first
    instruction."""
    numbers = numbers_of(code.co_exceptiontable)
    return tuple([(range(2 * start, 2 * (start + size)), 2 * at) for start, size, at, _ in zip(*[numbers] * 4)])


def numbers_of(table: bytes) -> Iterator[int]:
    """The numbers of an exception table: six bits a byte, the highest first; bit 6 says that another byte follows."""
    number = 0
    for byte in table:
        number = number << 6 | byte & 63
        if not byte & 64:
            yield number
            number = 0
