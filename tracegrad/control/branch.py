"""`cond`: one of several regions, chosen by an index."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracegrad.avals import Aval
from tracegrad.control.regions import require, run_region
from tracegrad.errors import ShapeError
from tracegrad.ir import Graph, build
from tracegrad.ops.elementwise import add, exp, multiply, sin
from tracegrad.ops.op import Several, primitive
from tracegrad.ops.samples import uniform

__all__ = ["cond"]


@primitive()
def cond(*operands: Any, branches: tuple[Graph, ...]) -> Any:
    """The outputs of the branch that the first operand names, for the others; a number out of range means the nearest.

    Only that branch runs.
    """
    number = min(max(int(operands[0]), 0), len(branches) - 1)
    return tuple(run_region(branches[number], operands[1:]))


@cond.def_aval
def _(*operands: Aval, branches: tuple[Graph, ...]) -> Several:  # type: ignore[misc]
    if operands[0] != Aval((), np.dtype(np.int64)):
        raise ShapeError(f"cond: the branch is named by an int64[], got {operands[0]}")
    for branch in branches:
        require("cond: a branch takes", branch.avals, operands[1:])
        require("cond: a branch gives", branch.results, branches[0].results)
    return Several(branches[0].results)


@cond.def_samples
def _() -> Any:
    for dtype in ("float64", "float32"):
        avals = [Aval((3,), np.dtype(dtype)), Aval((3,), np.dtype(dtype))]
        branches = (
            build(lambda x, y: [multiply(x, y), x], avals),
            build(lambda x, y: [sin(x), exp(y)], avals),
            build(lambda x, y: [add(x, 1.0), x], avals),
        )
        for number in (1, 7):
            operands = (np.array(number), uniform((3,), dtype=dtype), uniform((3,), seed=1, dtype=dtype))
            yield operands, {"branches": branches}
