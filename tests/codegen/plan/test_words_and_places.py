"""Where buffers live, and the names of run-time words: their texts, and which pointer or step they belong to."""

from __future__ import annotations

import numpy as np
from plans import plan_of

import tracegrad as tg
from tracegrad.codegen.plan.places_and_words import (
    ARENA,
    CHECK,
    InputPlace,
    OutputPlace,
    StackPlace,
    WordName,
    location_words,
    offset_word,
    partial_word,
)


def test_places_have_the_texts_of_plans() -> None:
    places = [InputPlace(2), OutputPlace(1), StackPlace(24), ARENA, CHECK]
    assert [*map(str, places)] == ["input 2", "output 1", "stack 24", "temp", "check"]
    assert InputPlace(1) != OutputPlace(1)


def test_pointers_to_outputs_follow_those_to_inputs() -> None:
    assert (InputPlace(2).pointer(3), OutputPlace(2).pointer(3)) == (2, 5)


def test_a_word_of_a_region_has_the_path_to_it() -> None:
    inner = WordName("rows", 2).within(4, "body").within(1, "branch 0")
    assert str(inner) == "1.branch 0/4.body/rows.2"
    assert (inner.field, inner.step, inner.outer_step) == ("rows", 2, 1)
    assert str(inner.counted_from(1)) == "0.branch 0/4.body/rows.2"
    assert str(partial_word(3, "b7").counted_from(2)) == "partial.1.b7"


def test_words_of_no_step() -> None:
    words = [WordName("s0"), WordName("tg_fill.f64"), offset_word("b7"), *location_words("b7")]
    assert [*map(str, words)] == ["s0", "tg_fill.f64", "offset.b7", "place.b7", "behind.b7"]
    assert {word.outer_step for word in words} == {-1}


def test_words_of_a_region_follow_those_of_the_plan() -> None:
    def smoothed(x: np.ndarray) -> np.ndarray:
        for _ in range(50):
            x = np.tanh(x * 0.5) + np.sum(x)
        return x

    plan = plan_of(tg.trace(smoothed), np.ones(1000))
    (step,) = [i for i, x in enumerate(plan.steps) if hasattr(x, "regions")]
    outer = [word for word in plan.values if not word.regions]
    inner = [word for word in plan.values if word.regions]
    assert [*plan.values] == [*outer, *inner]
    assert {word.regions[0] for word in inner} == {(step, "body")}
    assert [word._replace(regions=word.regions[1:]) for word in inner] == [*plan.steps[step].regions["body"].values]  # type: ignore[union-attr]
