"""Random programs with state mean the same plainly and traced: a few of those that are run by hand."""

from __future__ import annotations

import pytest
from random_state import Replayed, difference

import tracegrad as tg
from tracegrad.runtime.dispatch import dispatcher

COUNT = 80


def test_random_programs_mean_the_same_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "compile_program", Replayed)
    results = [difference(seed, tg.trace) for seed in range(COUNT)]
    assert [x for x in results if x] == []
