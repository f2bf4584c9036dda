"""What is assumed of the instructions of CPython: what they do, and how this version writes them."""

from __future__ import annotations

import dis
import types
from collections.abc import Callable
from typing import Any

import pytest

from tracegrad.cpython.instruction_set import (
    ITERATOR_SIZE,
    TESTS_LOOPS_TWICE,
    boolean_of,
    caches_of,
    decode,
    is_remainder,
    is_subscript,
    written,
)


def names(function: Callable[..., Any]) -> list[str]:
    return [x.opname for x in decode(function.__code__)]


def _items(table: Any, key: Any) -> Any:
    table[key] = key
    return table[key]


def _pairs(a: Any, b: Any) -> Any:
    b, a = a, b
    return a + b + (a and 1)


def test_local_variables_are_loaded_and_stored_one_by_one() -> None:
    loads = [x.argval for x in decode(_items.__code__) if x.opname == "LOAD_FAST"]
    assert loads == ["key", "table", "key", "table", "key"]
    assert {x.argval for x in decode(_pairs.__code__) if x.opname == "STORE_FAST"} == {"a", "b"}


def test_instructions_are_in_the_order_of_their_offsets() -> None:
    for f in (_items, _pairs, test_local_variables_are_loaded_and_stored_one_by_one):
        offsets = [x.offset for x in decode(f.__code__)]
        assert offsets == sorted(set(offsets))


@pytest.mark.parametrize("value", [0, 1, 255, 256, -1, 1.5, None, True, "text", (1, 2)])
def test_constants_are_loaded_by_one_instruction(value: object) -> None:
    table: dict[str, Any] = {}
    exec(f"def f():\n    return g({value!r})", table)
    assert [x.argval for x in decode(table["f"].__code__) if x.opname == "LOAD_CONST"] == [value]


def test_items_are_read_by_one_instruction() -> None:
    assert "BINARY_SUBSCR" in names(_items)
    assert "BINARY_SUBSCR" not in names(_pairs)


def test_an_instruction_of_the_vocabulary_runs() -> None:
    def f(x: Any, y: Any) -> Any:
        return x + y

    [add] = [x for x in decode(f.__code__) if x.opname == "BINARY_OP"]
    opcode, arg = written("BINARY_SUBSCR", 0)
    new = bytes([opcode, arg]) + bytes(2 * caches_of(opcode))
    after = add.offset + 2 * (1 + caches_of(add.opcode))
    bytecode = f.__code__.co_code
    f.__code__ = f.__code__.replace(co_code=bytecode[: add.offset] + new + bytecode[after:])
    assert f("abc", 1) == "b"


def test_inline_caches_are_behind_their_instruction() -> None:
    for f in (_items, _pairs, names, test_an_instruction_of_the_vocabulary_runs):
        code = f.__code__  # type: ignore[attr-defined]
        for x in dis.get_instructions(code):
            behind = code.co_code[x.offset + 2 : x.offset + 2 + 2 * caches_of(x.opcode)]
            assert set(behind[::2]) <= {dis.opmap["CACHE"]}
        assert len(code.co_code) == sum(2 + 2 * caches_of(x.opcode) for x in dis.get_instructions(code))


def test_operators_are_told_apart() -> None:
    table: dict[str, tuple[int, int]] = {}
    for source in ("x[y]", "x % y", "x + y"):
        code = compile(source, "", "eval")
        table[source] = next((x.opcode, x.arg or 0) for x in decode(code) if x.opname.startswith("BINARY"))
    assert [is_subscript(*x) for x in table.values()] == [True, False, False]
    assert [is_remainder(*x) for x in table.values()] == [False, True, False]


def _sums(xs: Any) -> Any:
    total = 0
    for x in xs:
        if x > 0:
            total += 1
        while not total:
            total += x
    return total


_LINE = _sums.__code__.co_firstlineno


def test_what_a_jump_tests_is_found() -> None:
    tested = [boolean_of(x.opname, x.arg or 0) for x in decode(_sums.__code__)]
    assert any(tested)
    assert set(tested) <= {0, 1, 2}


def test_the_test_of_a_while_is_compiled_once_or_twice() -> None:
    tests = [x for x in decode(_sums.__code__) if x.opname.startswith("POP_JUMP") and x.positions.lineno == _LINE + 5]
    assert len(tests) == 1 + TESTS_LOOPS_TWICE


def test_a_for_loop_keeps_its_iterator_on_the_stack() -> None:
    code: types.CodeType = _sums.__code__
    depth, depths = 0, []
    for x in decode(code):
        if x.opname == "FOR_ITER":
            depths.append(depth)
            break
        depth += dis.stack_effect(x.opcode, x.arg, jump=False)
    assert depths == [ITERATOR_SIZE]
