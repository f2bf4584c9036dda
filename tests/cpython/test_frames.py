"""What is assumed of frames and of the instructions that they run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from tracegrad.cpython.frames import (
    formats_text,
    frame_at,
    instruction_of,
    is_raised_by_statement,
    loads_attribute,
    local_variables,
    reads_item,
    traceback_of,
)


def test_the_first_frame_is_the_caller() -> None:
    assert frame_at(0) is sys._getframe()
    local = object()
    assert local_variables(frame_at(0))["local"] is local


class _Spy:
    """An object that calls a function of the frame that uses it."""

    def __init__(self, function: Callable[[FrameType], Any]):
        self._function = function

    @property
    def attribute(self) -> Any:
        return self._function(frame_at(1))

    def __getitem__(self, key: Any) -> Any:
        return self._function(frame_at(1))

    def __mod__(self, other: Any) -> Any:
        return self._function(frame_at(1))

    def __add__(self, other: Any) -> Any:
        return self._function(frame_at(1))

    def get(self) -> Any:
        return self._function(frame_at(1))


@pytest.mark.parametrize("again", [1, 100])  # Python specializes code that runs often
def test_the_instruction_of_a_frame_says_what_it_does(again: int) -> None:
    def each(function: Callable[[FrameType], Any]) -> list[Any]:
        x = _Spy(function)
        return [(x.attribute, x[0], x % 1, x + 1, x.get()) for _ in range(again)][-1:][0]  # type: ignore[return-value]

    assert each(loads_attribute) == (True, False, False, False, False)
    assert each(formats_text) == (False, False, True, False, False)
    assert each(lambda frame: reads_item(frame, frozenset(["get"]))) == (False, True, False, False, True)
    assert each(lambda frame: reads_item(frame, frozenset(["pop"]))) == (False, True, False, False, False)


def test_instructions_are_numbered_in_the_order_of_the_code() -> None:
    x = _Spy(instruction_of)
    first, second = x.attribute, x.attribute
    assert 0 <= first < second
    assert first % 2 == second % 2 == 0


def _states() -> None:
    raise ValueError("stated")


def _asserts(x: Any = ()) -> None:
    assert x, "stated"


def _operates(x: Any = ()) -> None:
    x[0]


def _calls() -> None:
    int("one")


@pytest.mark.parametrize(("f", "stated"), [(_states, True), (_asserts, True), (_operates, False), (_calls, False)])
def test_a_traceback_says_whether_a_statement_raised(f: Callable[[], None], stated: bool) -> None:
    try:
        f()
    except Exception as error:
        *outer, (frame, instruction) = traceback_of(error)
        assert [each.f_code for each, _ in outer] == [frame_at(0).f_code]
        assert frame.f_code is f.__code__
        assert is_raised_by_statement(frame.f_code, instruction) is stated
