"""Code with entrances of its loops does what it did, and says the same of its lines."""

from __future__ import annotations

import dis
import sys
import traceback
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from tracegrad.cpython.instruction_set import decode
from tracegrad.trace.bytecode.instructions import arranged, instructions_of
from tracegrad.trace.rewriting import loop_entry
from tracegrad.trace.rewriting.loop_entry import Entrance, entering, without_entrances
from tracegrad.trace.rewriting.loop_inversion import inverted


def several_questions(end: Any, n: int) -> Any:
    t, k = 0.0, 0
    while t < end and k < n:
        k += 1
        if k % 3 == 1:
            t += 0.125
            continue
        t = t + 0.25
    return t, k


def handled(end: Any, n: int) -> Any:
    results: list[Any] = []
    for t in range(n):
        try:
            while not t > end:
                t += 1
                if t == 5:
                    raise ValueError(t)
                while True:
                    if results:
                        break
                    results.append(1)
        except ValueError as error:
            results.append((str(error), traceback.extract_tb(error.__traceback__)[-1].lineno))
        finally:
            results.append(t)
    return results


def one_or_another(a: Any, n: int) -> Any:
    while a or n > 3:
        a, n = False, n - 1
    else:
        n += 10
    return n


def raised(end: Any, n: int) -> Any:
    t = 0
    while t < end:
        with open(__file__) as file:
            t += 1 + n // (7 - t)
            while t < 0 and file:
                t += 1
    return t


LONG = """
def long(end, n):
    t = 0
    for k in range(2):
        while t < end * (k + 1):
            turn
            t += 1
            if n % 2:
                continue
            t += n // (end - 7)
    return t, n
"""


def long_iterations(lines: int) -> Any:
    """A function whose jumps get longer than their instructions were."""
    table: dict[str, Any] = {}
    iteration = "n = n + t * 2 - n ** 2 % 7; " * lines
    exec(compile(LONG.replace("turn", iteration), "long.py", "exec"), table)
    return table["long"]


WRITTEN = [several_questions, handled, one_or_another, raised, *[long_iterations(n) for n in (1, *range(6, 14), 60)]]


def outcome(fun: Any, args: Any) -> Any:
    try:
        return fun(*args)
    except ArithmeticError as error:
        return repr(error), [(x.lineno, x.colno, x.end_colno) for x in traceback.extract_tb(error.__traceback__)[1:]]


@pytest.mark.parametrize("fun", WRITTEN, ids=lambda f: f.__name__)
def test_code_does_what_it_did(fun: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    entered = []
    monkeypatch.setattr(Entrance, "__neg__", lambda self: entered.append(sys._getframe(1).f_lasti in self.tests))
    code = entering(fun.__code__)
    result = types.FunctionType(code, fun.__globals__, fun.__name__, fun.__defaults__)
    for args in [(0, 0), (2, 3), (3, 20), (7, 4), (9, 8), (0, 8), (True, 2)]:
        assert outcome(result, args) == outcome(fun, args)
    assert entered
    assert all(entered)
    assert without_entrances(code) == fun.__code__
    assert entering(fun.__code__) == code


def walrus(end: Any, n: int) -> Any:
    k = 0
    while (left := n - k) > 0 and left != end:
        k += 1
    return k, left


def negated(end: Any, n: int) -> Any:
    results = []
    while not (end > n or (n > 20 and end)):
        n -= 1
        while n % 3 and (n % 2 or not end):
            n -= 1
            results.append(n)
    return results


def without_body(end: Any, n: int) -> Any:
    results = list(range(n))
    while results and results.pop() > end:
        pass
    return results


@pytest.mark.parametrize("fun", [*WRITTEN, walrus, negated, without_body], ids=lambda f: f.__name__)
def test_each_loop_tests_before_and_behind_its_body(fun: Callable[..., Any]) -> None:
    instructions = inverted(fun.__code__, instructions_of(fun.__code__))
    assert loop_entry._Tests(instructions).entrances()
    code = arranged(fun.__code__, instructions)
    result = types.FunctionType(code, fun.__globals__, fun.__name__, fun.__defaults__)
    for args in [(0, 0), (2, 3), (3, 20), (7, 4), (9, 8), (0, 8), (True, 2)]:
        assert outcome(result, args) == outcome(fun, args)


@pytest.mark.parametrize("fun", WRITTEN, ids=lambda f: f.__name__)
def test_code_that_is_assembled_again_does_what_it_did(fun: Callable[..., Any]) -> None:
    code = arranged(fun.__code__, instructions_of(fun.__code__))
    result = types.FunctionType(code, fun.__globals__, fun.__name__, fun.__defaults__)
    for args in [(0, 0), (2, 3), (3, 20), (7, 4), (9, 8), (0, 8), (True, 2)]:
        assert outcome(result, args) == outcome(fun, args)
    assert [(x.opname, x.argval) for x in steps(code) if not x.jumps] == [
        (x.opname, x.argval) for x in steps(fun.__code__) if not x.jumps
    ]


@pytest.mark.parametrize("fun", WRITTEN, ids=lambda f: f.__name__)
def test_entrances_alone_are_added(fun: Callable[..., Any]) -> None:
    code = fun.__code__
    before, after = steps(arranged(code, inverted(code, instructions_of(code)))), steps(entering(code))
    new = [k for k, x in enumerate(after) if isinstance(x.argval, Entrance)]
    assert new
    for k in reversed(new):
        assert [x.opname for x in after[k : k + 3]] == ["LOAD_CONST", "UNARY_NEGATIVE", "POP_TOP"]
        assert {x.positions for x in after[k : k + 3]} == {after[k - 1].positions}
        del after[k : k + 3]
    assert [x.positions for x in before] == [x.positions for x in after]
    numbers = [{x.offset: k for k, x in enumerate(those)} for those in (before, after)]
    for x, y in zip(before, after):
        if x.opname != y.opname:
            # A `continue` leads to the same test, at the end of the turn.
            assert (x.opname, y.opname) == ("JUMP_BACKWARD", "JUMP_FORWARD")
            assert question_at(before, target(numbers[0], x.argval)) == question_at(
                before, target(numbers[1], y.argval)
            )
        elif x.jumps:
            assert target(numbers[0], x.argval) == target(numbers[1], y.argval)
        else:
            assert x.argval == y.argval


class Read(NamedTuple):
    """What an instruction does, and where it is."""

    opname: str
    argval: Any
    positions: Any
    offset: int
    jumps: bool


def steps(code: types.CodeType) -> list[Read]:
    """The instructions, those of two variables (since Python 3.13) as two."""
    lines = list(code.co_positions())
    return [
        Read(x.opname, x.argval, lines[x.offset // 2], x.offset, x.opcode in dis.hasjrel)
        for x in decode(code)
        if x.opname != "EXTENDED_ARG"
    ]


def question_at(steps: list[Any], number: int) -> list[Any]:
    """The first instructions from one on, up to the first jump that asks."""
    results = []
    for x in steps[number:]:
        if x.opname.startswith("POP_JUMP"):
            break
        results.append((x.opname, x.argval, x.positions))
    return results


def continued(end: Any, n: int) -> Any:
    results = []
    for k in range(2):
        while k < end or n > 5:
            k += 1
            n -= 1
            if n % 3 == 1:
                continue
            while n % 4 == 2 and k != 3:
                n -= 1
                if n % 2:
                    continue
                results.append(n)
            if not n % 5:
                continue
            results.append(k)
        else:
            results.append((k, n))
    return results


@pytest.mark.parametrize("fun", [several_questions, continued], ids=lambda f: f.__name__)
def test_iterations_that_are_continued_end_with_the_question_of_the_others(fun: Callable[..., Any]) -> None:
    assert "JUMP_FORWARD" not in {x.opname for x in dis.get_instructions(fun.__code__)}
    result = types.FunctionType(entering(fun.__code__), fun.__globals__)
    assert "JUMP_FORWARD" in {x.opname for x in dis.get_instructions(result)}
    for end in range(8):
        for n in range(-3, 14):
            assert outcome(result, (end, n)) == outcome(fun, (end, n))


def target(numbers: dict[int, int], offset: int) -> int:
    """The number of the instruction to which a jump leads, or to what makes its argument longer."""
    return min(k for at, k in numbers.items() if at >= offset)


def test_code_without_loops_is_not_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def fun(xs: Any) -> Any:
        return xs[-1] if xs and xs[0] > 0 else None

    monkeypatch.delattr(dis, "get_instructions")
    assert entering(fun.__code__) is fun.__code__


def test_each_question_of_a_test_has_an_entrance() -> None:
    code = several_questions.__code__
    assert len(loop_entry._Tests(inverted(code, instructions_of(code))).entrances()) == 2
    assert not loop_entry._Tests(instructions_of(outcome.__code__)).entrances()
