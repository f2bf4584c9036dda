"""Read the plan of the program that a call of a traced function runs."""

from __future__ import annotations

from typing import Any

from tracegrad.codegen.plan.planner import Plan


def plan_of(fun: Any, *args: Any) -> Plan:
    """The plan of the program that a call runs."""
    call = fun.binder.take_apart(args, {})
    path, *_ = fun.find(call)
    plan: Plan = path.program.report.plan
    return plan
