"""Random NumPy programs, a few of those that `python -m tests.fuzz` runs, and all that once failed."""

from __future__ import annotations

from collections import Counter

import pytest
from fuzz.checking import Mismatch, check
from fuzz.kept import kept
from fuzz.shrinking import shrunk
from fuzz.writer import Program, write

KEPT = kept()


@pytest.mark.parametrize("seed", KEPT)
def test_programs_that_failed_once(seed: str) -> None:
    counts: Counter[str] = Counter()
    check(KEPT[seed], counts=counts)
    assert counts["values: compared"] == 1


@pytest.mark.parametrize("first", range(0, 100, 20))
def test_random_programs(first: int) -> None:
    counts: Counter[str] = Counter()
    for seed in range(first, first + 20):
        check(write(seed), counts=counts)
    assert counts["values: compared"] >= 18
    assert counts["first derivative: compared"] >= 8
    assert counts["second derivative: compared"] >= 16


@pytest.mark.parametrize("seed", [500, 501])
def test_random_programs_compiled(seed: int) -> None:
    check(write(seed), compiled=True)


def test_a_wrong_gradient_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    import tracegrad as tg

    program = Program(("v0 = np.sin(x)",), ((3,), (3,)))
    check(program)
    right = tg.value_and_grad

    def wrong(*args, **kwargs):
        result = right(*args, **kwargs)

        def call(*given):
            value, gradients = result(*given)
            return value, tuple(g * 1.001 for g in gradients)

        return call

    monkeypatch.setattr(tg, "value_and_grad", wrong)
    with pytest.raises(Mismatch, match="forward against reverse"):
        check(program)


def test_a_failing_program_is_shrunk_to_the_lines_that_fail() -> None:
    lines = ("v0 = x * 1.0", "v1 = np.sin(v0)", "v2 = v0 + 1.0", "v3 = v1 * 2.0")

    def failure(program: Program) -> str | None:
        try:
            program.function()(*program.arguments())
        except NameError:
            return "another"
        return "found" if any("np.sin" in line for line in program.lines) else None

    result = shrunk(Program(lines, ((3,), (3,)), layout="strided"), failure, layout="C")
    assert result == Program(("v0 = x * 1.0", "v1 = np.sin(v0)"), ((3,), (3,)))
