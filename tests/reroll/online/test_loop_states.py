"""The states of loop capture: their diagram, their modules, and the log of their decisions."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.reroll.online.loop_states import TRANSITIONS, LoopState
from tracegrad.reroll.online.record import LoopMachine

README = Path(inspect.getfile(tg)).parent / "trace" / "loops" / "README.md"


def test_the_readme_shows_the_transitions_of_the_code() -> None:
    shown = re.findall(r"^(\w+) +--> (\w+) +(.+)$", README.read_text("utf-8"), re.M)
    assert shown == [(a.value, b.value, why) for (a, b), why in TRANSITIONS.items()]


@pytest.mark.parametrize("state", LoopState, ids=lambda state: state.value)
def test_each_state_has_a_module_of_its_name(state: LoopState) -> None:
    module = importlib.import_module(f"tracegrad.reroll.online.{state.value}")
    assert f"(state {state.name})" in (module.__doc__ or "").splitlines()[0]


def test_no_state_is_left_in_another_way() -> None:
    machine: Any = LoopMachine.__new__(LoopMachine)
    machine.state = LoopState.RECORD
    with pytest.raises(KeyError):
        machine.move(LoopState.CLOSE)


def _appends(x: Any) -> Any:
    seen, steps = [], 0
    while np.sum(x * x) > 1e-2:
        x = x * 0.8
        steps += 1
        seen.append(x)
    return np.stack(seen) + steps


def _counts(x: Any) -> Any:
    steps = 0
    while np.sum(x) > 1e-3:
        x = x * 0.75
        steps += 1
    return x + steps


def _draws(x: Any) -> Any:
    rng = np.random.default_rng(3)
    while np.sum(x) > 1e-3:
        x = x * rng.random(2)
    return x


def _branches(x: Any) -> Any:
    table = {}
    for k in range(2000):
        table[k % 5] = x = x + np.sin(x) / (k + 10)
    return x + table[1]


def _iterates(x: Any) -> Any:
    while np.sum(x) > 1e-3:
        for step in iter([0.5]):
            x = x * step
    return x


def _logged(f: Any, capsys: Any, **options: Any) -> list[str]:
    x = np.array([0.6, 0.3])
    with tg.settings.override(log="loops", **options):
        result = tg.trace(f)(x)
    np.testing.assert_allclose(result, f(x))
    lines: list[str] = capsys.readouterr().err.splitlines()
    return lines


def test_the_log_tells_each_decision_with_the_line(capsys: pytest.CaptureFixture[str]) -> None:
    lines = _logged(_appends, capsys)
    line = inspect.getsourcelines(_appends)[1] + 2
    loop = f"tracegrad.loops: {__file__}:{line}: "
    assert f"{loop}widen -> restart: a list or a scalar that iterations change is traced in the loop" in lines
    assert f"{loop}widen -> record: numbers that differ are traced now" in lines
    assert f"{loop}close -> restart: a loop begins with its first iteration" in lines
    assert lines[-1] == f"{loop}close -> record: the iterations are a loop; paths: 1"
    again = [x for x in lines if "traced again" in x]
    assert re.search(
        rf"the list seen is an array with room for \d+ elements \(loop at {re.escape(__file__)}:\d+\)", again[0]
    )
    assert all(x.startswith(loop) for x in again)


def test_every_transition_happens(capsys: pytest.CaptureFixture[str]) -> None:
    seen = set[tuple[str, str]]()
    for f in (_appends, _counts, _draws, _branches, _iterates):
        seen.update(re.findall(r": (\w+) -> (\w+): ", "\n".join(_logged(f, capsys))))
    assert seen | {("restart", "record")} == {(a.value, b.value) for a, b in TRANSITIONS}


@pytest.mark.parametrize("f", [_appends, _counts], ids=lambda f: f.__name__)
def test_loop_capture_can_be_left_out(f: Any, capsys: pytest.CaptureFixture[str]) -> None:
    lines = _logged(f, capsys, disable="loop-capture")
    assert not [line for line in lines if re.search(r": \w+ -> \w+: |traced again", line)]
