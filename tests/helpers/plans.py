"""Read the plan of a program, and where its pieces of machine code come from."""

from __future__ import annotations

from typing import Any

from tracegrad.codegen.plan.program_plan import Plan
from tracegrad.runtime.execution.program import Program


def plan_of(fun: Any, *args: Any) -> Plan:
    """The plan of the program that a call runs."""
    call = fun.binder.bind(args, {})
    path, *_ = fun.find(call)
    plan: Plan = path.program.report.plan
    return plan


def sources(program: Program) -> list[str]:
    """Where the pieces of a program were found."""
    return [origin.source for _, origin in program.report.units]
