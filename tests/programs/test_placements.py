"""The placements of the programs of the meaning tests are what they are said to be, and show what goes wrong there."""

from __future__ import annotations

import inspect
import types
from typing import Any

import numpy as np
import pytest
from meaning import compare, program
from placements import FAULTS, PLACEMENTS, chosen, placed

import tracegrad as tg

X = np.array([1.0, -2.0, 3.0])


@program
def test_a_program(trace: Any) -> Any:
    f = trace(lambda x: x * 2.0)
    yield f(X), f(X + 1)


@program
def differing(trace: Any) -> Any:
    """A program that is another one when it is traced."""
    f = trace(lambda x: x)
    yield f(X) if isinstance(f, types.FunctionType) else f(X) * 2.0


def test_an_installed_program_lies_in_site_packages_with_what_its_module_holds() -> None:
    there = placed(test_a_program.script, "installed", lambda f: f).script
    assert there is not test_a_program.script
    assert "site-packages" in there.__code__.co_filename
    assert there.__globals__["X"] is not X
    assert inspect.getsource(there) == inspect.getsource(test_a_program.script)


@pytest.mark.parametrize("where", ["decorated", "wrapped", "plain path"])
def test_an_installed_decorator_stands_between(where: str) -> None:
    def f(x: Any) -> Any:
        return x * 2.0

    between = placed(test_a_program.script, where, lambda f: f).plain(f)
    assert "site-packages" in between.__code__.co_filename
    assert hasattr(between, "__wrapped__") == (where != "decorated")


def test_on_the_plain_path_calls_run_as_plain_python() -> None:
    def f(x: Any) -> Any:
        return x * 2.0

    with pytest.warns(tg.PerformanceWarning, match="runs as plain Python.*LOCK"):
        placed(test_a_program.script, "plain path", lambda f: f).traced(f)(X)


@pytest.mark.parametrize("where", PLACEMENTS)
def test_what_differs_in_a_placement_is_noticed(where: str) -> None:
    with pytest.raises(AssertionError, match="yield 0"):
        compare(differing.script, where)


def test_each_placement_is_chosen_about_as_often() -> None:
    names = [f"test_{k}" for k in range(400)]
    counts = [sum(chosen(name) == where for name in names) for where in PLACEMENTS]
    assert min(counts) > 60


def test_reasons_name_placements_that_there_are() -> None:
    assert all(where in PLACEMENTS and reason for (_, where), reason in FAULTS.items())
