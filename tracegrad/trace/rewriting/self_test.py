"""Check what the tracer assumes of the running CPython: bytecode, frames, and reference counts.

Each check runs code of a few lines, and compares what the fenced modules say with what Python did. All take some
milliseconds together. `tests/cpython` checks the same assumptions more closely.

>>> failed_checks()
()
"""

from __future__ import annotations

import builtins
import types
import weakref
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from tracegrad.cpython.frames import (
    formats_text,
    frame_at,
    instruction_of,
    is_raised_by_statement,
    loads_attribute,
    reads_item,
    traceback_of,
)
from tracegrad.cpython.references import (
    COUNT_IN_GET,
    COUNT_OF_ATTRIBUTE,
    COUNT_OF_LOOP_ITEM,
    is_lent,
    other_references,
    reference_count,
)
from tracegrad.trace.bytecode.exception_regions import Namespace, within_try
from tracegrad.trace.bytecode.frame_locals import set_variables, variables
from tracegrad.trace.bytecode.instructions import arranged, instructions_of, line_of
from tracegrad.trace.bytecode.jumps import elements_read, jumps_of
from tracegrad.trace.rewriting.call_sites import counted_loops, marked, unmarked


def failed_checks() -> tuple[str, ...]:
    """What of this Python is not as the tracer assumes; nothing if all is."""
    failed = []
    for name, check in _CHECKS.items():
        try:
            holds = check()
        except Exception:
            holds = False
        if not holds:
            failed.append(name)
    return tuple(failed)


# -- code that is rewritten ------------------------------------------------------------------------------
def _sample(xs: Any, n: Any) -> Any:
    seen: list[Any] = []
    total, convert = 0.0, float
    for k, x in enumerate(xs):
        if x is None or (k == 1) is True:
            continue
        total += convert(x) * 2
    while n > 0 and total < 1e3:
        n -= 1
        try:
            total = total * 2 if seen[n] else total
        except IndexError as error:
            seen.append(str(error)[:4])
            continue
        if n % 5 == 4:
            break
    return total, n, [y for y in seen if y], 1 // len(xs)


_ARGUMENTS: list[Any] = [([1, None, 2], 3), ([0, 1, 5], 12), ([], 0)]


def _outcomes(code: CodeType) -> list[Any]:
    """What a function with this code returns, or the line at which it ends."""
    names = {name: getattr(builtins, name.removesuffix("()"), None) for name in code.co_names}
    f, results = types.FunctionType(code, names), []
    for args in _ARGUMENTS:
        try:
            results.append(f(*args))
        except ZeroDivisionError as error:
            *_, (frame, instruction) = traceback_of(error)
            results.append((line_of(frame.f_code, instruction), is_raised_by_statement(frame.f_code, instruction)))
    return results


def _is_assembled() -> bool:
    code = _sample.__code__
    again = arranged(code, instructions_of(code))
    return _outcomes(again) == _outcomes(code) and _lines(again) == _lines(code)


def _lines(code: CodeType) -> list[Any]:
    return [(x.name, x.lines) for x in instructions_of(code)]


def _is_rewritten() -> bool:
    code = _sample.__code__
    return _outcomes(marked(code)) == _outcomes(code) and unmarked(marked(code)) == code


# -- frames ------------------------------------------------------------------------------------------------
class _Spy:
    """An object that tells what the frame that uses it does."""

    def __init__(self, told: list[Any], ask: Callable[[FrameType], Any]):
        self.told, self.ask = told, ask

    def _tell(self, result: Any = 0) -> Any:
        self.told.append(self.ask(frame_at(2)))
        return result

    @property
    def attribute(self) -> Any:
        return self._tell()

    def __getitem__(self, key: Any) -> Any:
        return self._tell()

    def __mod__(self, other: Any) -> Any:
        return self._tell()

    def __add__(self, other: Any) -> Any:
        return self._tell()

    def __bool__(self) -> bool:
        return bool(self._tell(len(self.told) < _TIMES))

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        if self._tell(len(self.told) >= _TIMES):
            raise StopIteration
        return 1


_TIMES = 20  # Python specializes code that runs often


def _uses(x: Any) -> None:
    for _ in range(_TIMES):
        _ = x.attribute, x[0], x % 1, x + 1


def _what_a_frame_does_is_known() -> bool:
    told: list[Any] = []
    _uses(_Spy(told, lambda frame: (loads_attribute(frame), reads_item(frame, frozenset()), formats_text(frame))))
    each = [(True, False, False), (False, True, False), (False, False, True), (False, False, False)]
    return told == each * _TIMES


def _asks(x: Any) -> None:
    while x:
        pass


def _counts(x: Any) -> None:
    for _ in x:
        pass


def _reads(x: Any) -> None:
    for k in range(_TIMES):
        _ = x[k]


def _loops_are_known() -> bool:
    asked, counted, read = list[Any](), list[Any](), list[Any]()
    _marked(_asks)(_Spy(asked, lambda frame: instruction_of(frame) in jumps_of(frame.f_code).asking))
    _marked(_counts)(_Spy(counted, lambda frame: instruction_of(frame) in jumps_of(frame.f_code).counting))
    _marked(_reads)(_Spy(read, lambda frame: elements_read(frame.f_code).get(instruction_of(frame))))
    return (
        # the test before the loop is in no loop
        asked[1:] == [True] * _TIMES
        and counted == [True] * (_TIMES + 1)
        and read == ["x"] * _TIMES
        and len(counted_loops(_reads.__code__)) == 1
    )


def _marked(f: Any) -> Any:
    return types.FunctionType(marked(f.__code__), Namespace({"range()": range, "_TIMES": _TIMES}))


def _tries(x: Any) -> None:
    _ = x.attribute
    try:
        _ = x.attribute
    except ValueError:
        _ = x.attribute


def _handlers_are_known() -> bool:
    told: list[Any] = []
    _marked(_tries)(_Spy(told, lambda frame: within_try()))
    return told == [False, True]


class _Value:
    item: Any = None


def _variables_are_set() -> bool:
    x: Any = _Value()
    y, ended = 1, weakref.ref(x)

    def inner() -> Any:
        return y

    set_variables(frame_at(0), {"x": 2, "y": 3})
    return bool((x, inner(), variables(frame_at(0))["y"]) == (2, 3, 3) and ended() is None)


# -- reference counts ------------------------------------------------------------------------------------
class _IsTemporary:
    def __get__(self, instance: object, owner: type) -> bool:
        return reference_count(instance) <= COUNT_IN_GET and not is_lent(frame_at(1))


class _Model:
    is_temporary = _IsTemporary()


def _references_are_counted() -> bool:
    x, holder = object(), _Value()
    holders = [x, (x,)]
    holder.item = object()
    for item in [object(), object()]:
        if reference_count(item) != COUNT_OF_LOOP_ITEM:
            return False
    model = _Model()
    temporary, held = _Model().is_temporary, model.is_temporary
    return (other_references(x), reference_count(holder.item), temporary, held, len(holders)) == (
        (2, COUNT_OF_ATTRIBUTE, True, False, 2)
    )


_CHECKS: dict[str, Callable[[], bool]] = {
    "code is assembled as it was": _is_assembled,
    "rewritten code does what it did": _is_rewritten,
    "frames tell the instruction that they run": _what_a_frame_does_is_known,
    "loops are found in code": _loops_are_known,
    "exception handlers are found": _handlers_are_known,
    "variables of a frame are set": _variables_are_set,
    "references are counted": _references_are_counted,
}
