"""Random Python programs, a few of those that `python -m tests.fuzz_python` runs, and all that once failed."""

from __future__ import annotations

import dataclasses
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest
from fuzz.shrinking import shrunk
from fuzz_python.checking import Different, Invalid, check
from fuzz_python.kept import kept
from fuzz_python.writer import WAYS, Program, write

import tracegrad as tg

KEPT = kept()
SEEDS = range(100_000, 100_030)
# Programs that differ still, and why: each is taken out once it does no more.
FAULTS: dict[Any, str] = {}


def _params(which: Any) -> list[Any]:
    marks = {k: [pytest.mark.xfail(strict=True, raises=AssertionError, reason=why)] for k, why in FAULTS.items()}
    return [pytest.param(k, marks=marks.get(k, [])) for k in which]


@pytest.mark.parametrize("name", _params(KEPT))
def test_programs_that_failed_once(name: str) -> None:
    counts: Counter[str] = Counter()
    check(KEPT[name], counts=counts)
    assert counts["traced: compared"] + counts["traced: refused"] == 1


@pytest.mark.parametrize("seed", _params(SEEDS))
def test_random_programs(seed: int) -> None:
    with suppress(Invalid):
        check(write(seed))


def test_random_programs_are_compared() -> None:
    counts: Counter[str] = Counter()
    for seed in SEEDS[:8]:
        check(dataclasses.replace(write(seed), ways=WAYS), counts=counts)
    assert counts["traced: compared"] >= 7
    assert counts["grad: derivatives compared"] >= 20
    assert counts["eager: derivatives compared"] >= 20
    assert counts["jvp: derivatives compared"] >= 20
    assert counts["second: derivatives compared"] >= 15


WORLD = ("world", "GAIN = 2.0"), ("state", "GAIN"), ("body", "v0 = x * GAIN")


def test_most_programs_are_programs_and_all_pieces_are_used() -> None:
    programs = [write(seed) for seed in range(300)]
    text = "\n".join(program.text for program in programs)
    parts = ("__setattr__", "__new__", "__init_subclass__", "__get__", "metaclass=", "match ", "except ", "nonlocal ")
    for part in parts:
        assert part in text
    assert sum(program.installed for program in programs) > 100


def test_a_compiled_program_is_compared_too() -> None:
    check(Program((*WORLD, ("change 0", "GAIN = 3.0"))), compiled=True)


def test_what_python_does_not_run_is_no_program() -> None:
    with pytest.raises(Invalid, match="NameError"):
        check(Program(WORLD[1:]))


@pytest.mark.parametrize("what", ["result", "effects", "derivative"])
def test_what_differs_is_noticed(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    right = tg.value_and_grad

    def wrong(*args: Any, **kwargs: Any) -> Any:
        derivative = right(*args, **kwargs)

        def call(x: Any, n: int) -> Any:
            (value, (arrays, facts)), gradient = derivative(x, n)
            if what == "effects":
                x += 1.0
            if what == "result":
                arrays = [a * 1.001 for a in arrays]
            return (value, (arrays, facts)), gradient * (1.001 if what == "derivative" else 1.0)

        return call

    program = Program(WORLD)
    check(program)
    monkeypatch.setattr(tg, "value_and_grad", wrong)
    with pytest.raises(Different if what == "derivative" else AssertionError, match=what):
        check(program)


def test_a_failing_program_is_shrunk_to_the_lines_that_fail() -> None:
    def failure(program: Program) -> str | None:
        try:
            check(program)
        except Invalid:
            return "no program"
        return "about GAIN" if "v0 = x * GAIN" in program.text else None

    whole = Program((*WORLD, ("body", "v1 = v0 + 1.0"), ("change 1", "GAIN = 0.1")), installed=True)
    assert shrunk(whole, failure, installed=False) == Program((WORLD[0], WORLD[2]))
