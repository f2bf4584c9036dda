"""Random expressions of Python numbers and NumPy scalars: a few of those that are run by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from random_numbers import calls, described, program
from replayed import Replayed

import tracegrad as tg
from tracegrad.runtime.dispatch import dispatcher


def check(seed: int) -> None:
    """Compare an expression with Python, for several values of each of some types, twice."""
    text = program(seed)
    f: Any = eval(f"lambda a, b, c: {text}", {"math": math, "np": np})
    traced = tg.trace(f)
    for args in calls(seed):
        expected = described(f, args)
        for _ in range(2):
            assert described(traced, args) == expected, f"seed {seed}: {text} of {args}"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("first", range(0, 60, 10))
def test_random_expressions_of_numbers_are_pythons(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "compile_program", Replayed)
    with np.errstate(all="ignore"):
        for seed in range(first, first + 10):
            check(seed)


def test_random_expressions_have_many_forms() -> None:
    text = "\n".join(map(program, range(400)))
    for part in ("//", "%", "**", "<<", "round(", "max(", "math.trunc(", "divmod(", "float(", "int(", "key=abs"):
        assert part in text
