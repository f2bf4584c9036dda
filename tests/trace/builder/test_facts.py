"""What an attempt to trace a call learns for the next attempt."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.trace.builder.abort import Attempts, Restarts
from tracegrad.trace.builder.facts import (
    AppendedListFact,
    Fact,
    IndexedListFact,
    LeafSchema,
    LoopFact,
    LoopFactKind,
    NumberFact,
    TraceFact,
    VariableFact,
    Variation,
    ViewFact,
)

CODE = (lambda: None).__code__
EACH: list[Fact] = [
    LoopFact(LoopFactKind.FOLDED, CODE, 4),
    VariableFact(Variation.NUMBER, CODE, 4, "k", 0, 9),
    AppendedListFact(CODE, 4, "seen", False, LeafSchema("array", "float64", (3,)), 64),
    IndexedListFact(CODE, "table"),
    NumberFact(("rate",)),
    ViewFact(("rate",)),
]


def test_facts_are_frozen_records_and_those_of_two_kinds_differ() -> None:
    for fact in EACH:
        assert not isinstance(fact, TraceFact)
        assert dataclasses.replace(fact) == fact
        assert hash(dataclasses.replace(fact)) == hash(fact)
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(fact, dataclasses.fields(fact)[0].name, None)
    assert len({*EACH, *TraceFact}) == len(EACH) + len(TraceFact)


def _appends(x: Any) -> Any:
    seen = []
    while np.sum(x * x) > 1e-2:
        x = x * 0.8
        seen.append(x)
    return np.stack(seen)


def _counts(x: Any) -> Any:
    steps = 0
    while np.sum(x) > 1e-3:
        x = x * 0.75
        steps += 1
    return x + steps


def _folds(x: Any) -> Any:
    for k in range(2000):
        x = x + np.sin(x) / (k + 10)
    return x


def _indexes(x: Any) -> Any:
    rows, k = [np.cos(x * n) for n in range(9)], 0
    while k < 9 and np.sum(x) < 30.0:
        x = x + rows[k]
        k = k + 1
    return x


CASES = {
    _appends: (AppendedListFact, {"variable": "seen", "reads": False, "schema": LeafSchema("array", "float64", (2,))}),
    _counts: (VariableFact, {"kind": Variation.NUMBER, "variable": "steps", "high": 2**63 - 1}),
    _folds: (LoopFact, {"kind": LoopFactKind.FOLDED}),
    _indexes: (IndexedListFact, {"variable": "rows"}),
}


@pytest.mark.parametrize("f", CASES, ids=lambda f: f.__name__)
def test_a_restart_names_the_variable_or_the_loop(f: Any, monkeypatch: Any) -> None:
    facts, again = set[Fact](), Attempts.again

    def recorded(self: Attempts, restart: Restarts, before: frozenset[Fact], known: set[Fact]) -> Any:
        result = again(self, restart, before, known)
        facts.update(known)
        return result

    monkeypatch.setattr(Attempts, "again", recorded)
    x = np.array([0.6, 0.3])
    np.testing.assert_allclose(tg.trace(f)(x), f(x))
    cls, fields = CASES[f]
    alike = [fact for fact in facts if isinstance(fact, cls) and fields.items() <= _fields(fact).items()]
    assert alike, facts
    assert all(_fields(fact)["code"].co_name == f.__name__ for fact in alike)


def _fields(fact: Any) -> dict[str, Any]:
    return {x.name: getattr(fact, x.name) for x in dataclasses.fields(fact)}
