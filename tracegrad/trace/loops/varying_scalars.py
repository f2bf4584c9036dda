"""Promote constant NumPy scalars that vary between iterations of a loop to traced values (widening)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from tracegrad.ir.builder import node_of
from tracegrad.ops.shape.linear import fresh, full
from tracegrad.trace.builder.builder import TraceBuilder
from tracegrad.trace.builder.facts import Fact, Variation
from tracegrad.trace.bytecode.frame_locals import set_variables, variables
from tracegrad.trace.loops.control_flow import LoopJump
from tracegrad.trace.values.tracer import Tracer


def scalars_differ(before: Any, now: Any) -> set[Fact]:
    """The facts about local variables that differ between two states and hold a NumPy scalar in one."""
    results: set[Fact] = set()
    if before.size == now.size:
        for k, (x, y) in enumerate(zip(before.tokens[: before.size], now.tokens)):
            if x != y and k - 1 in now.names and (_is_scalar(x) or _is_scalar(y)):
                results.add(now.fact(Variation.SCALAR, now.names[k - 1][0]))
    facts: set[Fact] = now.builder.world.facts
    return results - facts


def _is_scalar(word: object) -> bool:
    return type(word) is tuple and len(word) == 2 and type(word[0]) is type and issubclass(word[0], np.generic)


def trace_scalars(builder: TraceBuilder, jump: LoopJump, names: Collection[str]) -> None:
    """Convert the scalars in these local variables to traced values."""
    new = {}
    for name, x in variables(jump.frame).items() if names else ():
        if name in names and isinstance(x, np.generic) and x.dtype.kind in "biuf":
            value = full(shape=(), value=x.item(), dtype=x.dtype.name)
            new[name] = Tracer(builder, node_of(fresh(value, tag=builder.new_tag())))
    if new:
        set_variables(jump.frame, new)
