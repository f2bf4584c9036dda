"""The blocking of the iterations of a loop: what is legal, and why the other strategies are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.codegen.loopir.blocking import SERIAL, SHARES, STRIPS, WAVEFRONTS, IterationBlocking
from tracegrad.codegen.plan.planner import plan
from tracegrad.codegen.plan.program_plan import plans_of
from tracegrad.codegen.plan.region_steps import ScanStep
from tracegrad.settings import settings


def blockings_of(body: Any, *carries: np.ndarray) -> list[IterationBlocking]:
    """The blockings of the loops of `body`, repeated for the carries."""
    graph = tg.trace(lambda *xs: tg.scan(lambda s, _: (body(*s), None), xs, None, length=5)[0]).graph(*carries)
    return [step.blocking for step in plan(graph).steps if isinstance(step, ScanStep)]


def smoothed(u: Any) -> Any:
    return np.pad(u[2:] + u[:-2], 1) * 0.4


MATRIX, VECTOR = np.ones((300, 40)), np.ones(5000)
ROWS = "a row depends on other rows of "
PREVIOUS = f"{ROWS}the previous iteration"
FAR = "a row depends on rows of the previous iteration at an unknown distance"
BODIES = [
    (STRIPS, {}, lambda u: (np.sin(u) * 0.5,), MATRIX),
    (WAVEFRONTS, {STRIPS: PREVIOUS}, lambda u: (np.pad(u[2:] + u[:-2], ((1, 1), (0, 0))),), MATRIX),
    ("", {STRIPS: PREVIOUS, WAVEFRONTS: FAR}, lambda u: (u[::-1] * 0.5,), VECTOR),
    ("", {STRIPS: "a kernel reduces rows, or computes them in order"}, lambda u: (u / (1.0 + np.sum(u)),), VECTOR),
    ("", {STRIPS: "a step is no kernel"}, lambda u: (u @ u * 0.01,), np.ones((30, 30))),
    ("", {STRIPS: "no kernel has rows"}, lambda u: (u * 0.5,), np.ones(3)),
    ("", {STRIPS: f"{ROWS}its iteration"}, lambda u, v: (np.sin(v), smoothed(np.exp(u))), VECTOR, VECTOR),
    (SHARES, {STRIPS: "no kernel has rows", WAVEFRONTS: "no kernel has rows"}, lambda k: (k + 2,), np.array(3)),
]


@pytest.mark.parametrize("case", BODIES, ids=lambda case: f"{case[0]} {case[1]}")
def test_the_first_legal_strategy_is_chosen_and_the_others_have_reasons(case: Any) -> None:
    strategy, reasons, body, *carries = case
    (blocking,) = blockings_of(body, *carries)
    assert blocking.strategy == strategy
    assert blocking.reasons.items() >= reasons.items()


def test_a_disabled_strategy_is_not_chosen() -> None:
    with settings.override(disable="strip-mining"):
        (blocking,) = blockings_of(lambda u: (np.sin(u) * 0.5,), MATRIX)
    assert blocking.strategy != STRIPS
    assert blocking.reasons[STRIPS] == "it is disabled"


def test_branches_and_bodies_of_while_loops_have_no_blocking() -> None:
    def f(u: Any) -> Any:
        v = tg.cond(np.sum(u) > 1.0, lambda x: np.sin(x) * 2.0, np.cos, u)
        return tg.while_loop(lambda x: np.sum(x) > 1.0, lambda x: x * 0.5, v)

    _, *regions = plans_of(plan(tg.trace(f).graph(VECTOR)))
    assert len(regions) == 4
    assert all(region.blocking is SERIAL for region in regions)
