"""The pipeline of plans: what each pass changes, as text, and what the verifier refuses."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from conftest import Golden
from plan_programs import PLAN_PROGRAMS

from tracegrad import passes
from tracegrad.codegen.loopir.steps import Launch
from tracegrad.codegen.plan.pipeline import PLAN_PIPELINE, Snapshots
from tracegrad.codegen.plan.places_and_values import ARENA, InputPlace
from tracegrad.codegen.plan.planner import plan
from tracegrad.codegen.plan.program_plan import Plan
from tracegrad.codegen.plan.strip_fusion import StripFusion
from tracegrad.codegen.plan.verify_plan import verify_plan
from tracegrad.errors import VerifyError
from tracegrad.ir import parse
from tracegrad.optimizations import OPTIMIZATIONS
from tracegrad.settings import settings

UNCHANGED = {"partition"}  # its results are values, which the text does not show


def snapshots_of(name: str) -> Snapshots:
    snapshots: Snapshots = []
    donated = [0] if name == "donate" else []
    plan(passes.optimize(parse(PLAN_PROGRAMS[name])), donated=donated, snapshots=snapshots)
    return snapshots


@pytest.mark.parametrize("name", PLAN_PROGRAMS)
def test_text_before_and_after(name: str, golden: Golden) -> None:
    snapshots = itertools.pairwise(snapshots_of(name))
    before, after = next((x, y) for (_, x), (each, y) in snapshots if each == name and x != y)
    assert f"before:\n{before}\n\nafter:\n{after}" == golden


def test_every_pass_has_a_program_that_it_changes_and_a_reason() -> None:
    names = [each.run.__name__ for each in PLAN_PIPELINE]
    assert {*names} - UNCHANGED == PLAN_PROGRAMS.keys()
    assert all(each.reason for each in PLAN_PIPELINE)
    assert all(each.optimization in OPTIMIZATIONS for each in PLAN_PIPELINE if each.optimization)


@pytest.mark.parametrize("each", [x for x in PLAN_PIPELINE if x.optimization], ids=lambda x: x.run.__name__)
def test_a_pass_that_is_left_out_does_not_run(each: object) -> None:
    pass_name, optimization = each.run.__name__, each.optimization  # type: ignore[attr-defined]
    with settings.override(disable=optimization):
        assert pass_name not in dict(snapshots_of(pass_name))


# -- the verifier ----------------------------------------------------------------------------------------------------
def planned() -> Plan:
    text = "graph(%0: f64[30,30]) {\n  %1 = matmul(%0, %0) : f64[30,30]\n  %2 = exp(%1) : f64[30,30]\n  return %2\n}"
    with settings.override(disable="buffer-reuse"):
        return plan(parse(text))


def reversed_steps(plan: Plan) -> None:
    plan.steps.reverse()


def without_place(plan: Plan) -> None:
    del plan.memory[next(filter(plan.is_temporary, plan.memory))]


def unused_place(plan: Plan) -> None:
    plan.memory["b9"] = ARENA


def overwritten_input(plan: Plan) -> None:
    plan.memory[plan.buffers[plan.graph.outputs[0]]] = InputPlace(0)


def without_result(plan: Plan) -> None:
    del plan.steps[-1]


def fusion_of_other_steps(plan: Plan) -> None:
    plan.strip_fusions = [StripFusion(0, 1, 30, 2, [1, 1], {})]


def undefined_value(plan: Plan) -> None:
    assert isinstance(plan.steps[-1], Launch)
    del plan.steps[-1].kernel.body[0]


BROKEN: dict[str, Callable[[Plan], None]] = {
    "step 0 reads buffer b1, which no step has written": reversed_steps,
    "buffer b1 of step 0 has no place": without_place,
    "no step uses buffer b9": unused_place,
    "step 1 overwrites buffer b2, input 0": overwritten_input,
    "no step writes output 0": without_result,
    "steps 0 to 1 are not all kernels": fusion_of_other_steps,
    "v0 used before definition": undefined_value,
}


@pytest.mark.parametrize(("problem", "break_rule"), BROKEN.items(), ids=BROKEN)
def test_the_verifier_names_the_broken_rule(problem: str, break_rule: Callable[[Plan], None]) -> None:
    result = planned()
    verify_plan(result, "a pass")
    break_rule(result)
    with pytest.raises(VerifyError, match=problem):
        verify_plan(result, "a pass")


def test_the_verifier_names_the_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = PLAN_PIPELINE[0]._replace(run=unused_place)
    monkeypatch.setattr("tracegrad.codegen.plan.pipeline.PLAN_PIPELINE", (broken,))
    with pytest.raises(VerifyError, match="plan after unused_place: no step uses buffer b9"):
        planned()


def test_buffers_that_live_at_one_time_may_not_overlap() -> None:
    text = (
        "graph(%0: f64[30,30]) {\n  %1 = matmul(%0, %0) : f64[30,30]\n  %2 = matmul(%0, %1) : f64[30,30]\n"
        "  %3 = matmul(%1, %2) : f64[30,30]\n  return %3\n}"
    )
    result = plan(parse(text))
    verify_plan(result, "allocate")
    result.values |= {word: 0 for word in result.values if word.field == "offset"}
    with pytest.raises(VerifyError, match="buffers b1 and b2 overlap"):
        verify_plan(result, "allocate")
