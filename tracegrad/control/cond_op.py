"""The op `cond`: run one of several regions, chosen by an index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracegrad.avals import Aval, aval_of
from tracegrad.control.region_ops import require, run_region
from tracegrad.errors import ShapeError
from tracegrad.ir import Graph, GraphValue, build
from tracegrad.ir.batch import batched
from tracegrad.ops.core.forms import Branch
from tracegrad.ops.core.op import AS_WRITTEN, ResultAvals, multi_result
from tracegrad.ops.core.samples import uniform
from tracegrad.ops.elementwise.table import add, exp, less_equal, multiply, sin, where
from tracegrad.ops.shape.linear import reshape, zeros_like
from tracegrad.transforms.jvp_graph import pushed
from tracegrad.transforms.vjp_graph import joint
from tracegrad.typing import NDArray


@multi_result(Branch(), on_complex=AS_WRITTEN)
def cond(*operands: NDArray, branches: tuple[Graph, ...]) -> tuple[NDArray, ...]:
    """The outputs of the branch that the first operand selects, applied to the others; an index out of range is
    clamped.

    Only that branch runs.
    """
    number = min(max(int(operands[0]), 0), len(branches) - 1)
    return tuple(run_region(branches[number], operands[1:]))


@cond.def_aval
def _(*operands: Aval, branches: tuple[Graph, ...]) -> ResultAvals:
    if operands[0] != Aval((), np.dtype(np.int64)):
        raise ShapeError(f"cond: the branch is named by an int64[], got {operands[0]}")
    for branch in branches:
        require("cond: a branch takes", branch.avals, operands[1:])
        require("cond: a branch gives", branch.results, branches[0].results)
    return ResultAvals(branches[0].results)


@cond.def_vjp_all
def _(
    wanted: Sequence[int], cts: tuple[object, ...], ans: Any, *operands: Any, branches: tuple[Graph, ...]
) -> list[Any]:
    # The backward branch recomputes the values that it needs from the forward branch.
    seeded = [k for k, ct in enumerate(cts) if ct is not None]
    wrt = [i - 1 for i in wanted if i and aval_of(operands[i]).is_inexact]
    passes = [joint(branch, wrt, seeded) for branch in branches]
    reached_inputs = sorted({i for _, reached in passes for i in reached})
    if not reached_inputs:
        return [None for _ in wanted]

    def backwards(both: Graph, reached: Sequence[int]) -> Graph:
        def fn(*args: GraphValue) -> list[Any]:
            pulled = dict(zip(reached, run_region(both, args)[len(ans) :]))
            return [pulled[i] if i in pulled else zeros_like(args[i]) for i in reached_inputs]

        return build(fn, both.avals)

    inputs = [*operands, *(cts[k] for k in seeded)]
    results = cond(*inputs, branches=tuple([backwards(*each) for each in passes]))
    pulled = {i + 1: ct for i, ct in zip(reached_inputs, results)}
    return [pulled.get(i) for i in wanted]


@cond.def_jvp
def _(tangents: Sequence[object], ans: Any, *operands: Any, branches: tuple[Graph, ...]) -> tuple[Any, ...]:
    moving = [i - 1 for i, t in enumerate(tangents) if t is not None]
    passes = [pushed(branch, moving) for branch in branches]
    reached_outputs = sorted({k for _, reached in passes for k in reached})
    if not reached_outputs:
        return tuple([None for _ in ans])

    def forwards(both: Graph, reached: Sequence[int]) -> Graph:
        def fn(*args: GraphValue) -> list[Any]:
            out = run_region(both, args)
            ts = dict(zip(reached, out[len(ans) :]))
            return [ts[k] if k in ts else zeros_like(out[k]) for k in reached_outputs]

        return build(fn, both.avals)

    inputs = [*operands, *(t for t in tangents if t is not None)]
    results = dict(zip(reached_outputs, cond(*inputs, branches=tuple([forwards(*each) for each in passes]))))
    return tuple([results.get(k) for k in range(len(ans))])


@cond.def_batch
def _(size: int, flags: tuple[bool, ...], *operands: Any, branches: tuple[Graph, ...]) -> tuple[Any, ...]:
    all_of_them = [True] * len(branches[0].outputs)
    batched_branches = tuple([batched(branch, size, flags[1:], all_of_them)[0] for branch in branches])
    if not flags[0]:
        return tuple(cond(*operands, branches=batched_branches))
    # Each example may select another branch, so all branches run.
    selected = list(run_region(batched_branches[-1], operands[1:]))
    for number in reversed(range(len(branches) - 1)):
        chosen = less_equal(operands[0], number)
        for k, x in enumerate(run_region(batched_branches[number], operands[1:])):
            mask = reshape(chosen, shape=(size, *(1 for _ in x.shape[1:])))
            selected[k] = where(mask, x, selected[k])
    return tuple(selected)


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
