"""Where buffers live, and the names of run-time values: their texts, and which pointer or step they belong to."""

from __future__ import annotations

import numpy as np
from plans import plan_of

import tracegrad as tg
from tracegrad.codegen.plan.places_and_values import (
    ARENA,
    CHECK,
    InputPlace,
    OutputPlace,
    StackPlace,
    ValueName,
    location_names,
    offset_name,
    partial_name,
)


def test_places_have_the_texts_of_plans() -> None:
    places = [InputPlace(2), OutputPlace(1), StackPlace(24), ARENA, CHECK]
    assert [*map(str, places)] == ["input 2", "output 1", "stack 24", "temp", "check"]
    assert InputPlace(1) != OutputPlace(1)


def test_pointers_to_outputs_follow_those_to_inputs() -> None:
    assert (InputPlace(2).pointer(3), OutputPlace(2).pointer(3)) == (2, 5)


def test_a_value_of_a_region_has_the_path_to_it() -> None:
    inner = ValueName("rows", 2).within(4, "body").within(1, "branch 0")
    assert str(inner) == "1.branch 0/4.body/rows.2"
    assert (inner.field, inner.step, inner.outer_step) == ("rows", 2, 1)
    assert str(inner.counted_from(1)) == "0.branch 0/4.body/rows.2"
    assert str(partial_name(3, "b7").counted_from(2)) == "partial.1.b7"


def test_values_of_no_step() -> None:
    values = [ValueName("s0"), ValueName("tg_fill.f64"), offset_name("b7"), *location_names("b7")]
    assert [*map(str, values)] == ["s0", "tg_fill.f64", "offset.b7", "place.b7", "behind.b7"]
    assert {name.outer_step for name in values} == {-1}


def test_values_of_a_region_follow_those_of_the_plan() -> None:
    def smoothed(x: np.ndarray) -> np.ndarray:
        for _ in range(50):
            x = np.tanh(x * 0.5) + np.sum(x)
        return x

    plan = plan_of(tg.trace(smoothed), np.ones(1000))
    (step,) = [i for i, x in enumerate(plan.steps) if hasattr(x, "regions")]
    outer = [name for name in plan.values if not name.regions]
    inner = [name for name in plan.values if name.regions]
    assert [*plan.values] == [*outer, *inner]
    assert {name.regions[0] for name in inner} == {(step, "body")}
    assert [name._replace(regions=name.regions[1:]) for name in inner] == [*plan.steps[step].regions["body"].values]  # type: ignore[union-attr]
