"""Optimize plans: the pass pipeline over steps and buffers.

`PLAN_PIPELINE` is the order of the passes, with a reason for each; `optimize_plan` runs those of a program, or of a
region. A pass changes a plan and returns nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tracegrad.codegen.kernels.early_exit import stop_early
from tracegrad.codegen.loopir.blocking import WAVEFRONTS
from tracegrad.codegen.plan.allocate import allocate, move_to_stack
from tracegrad.codegen.plan.buffer_reuse import remove_dead_stores, reuse_dying_buffers
from tracegrad.codegen.plan.donation import donate
from tracegrad.codegen.plan.fused_arg_reduction import fuse_arg_reductions
from tracegrad.codegen.plan.gemm_accumulate import accumulate_products
from tracegrad.codegen.plan.in_place import update_in_place, write_in_place
from tracegrad.codegen.plan.inline_one_hot_scatter import inline_one_hot_scatters
from tracegrad.codegen.plan.iteration_blocking import blocking_of
from tracegrad.codegen.plan.loop_splitting import split_kernels
from tracegrad.codegen.plan.partition import partition
from tracegrad.codegen.plan.program_plan import Plan
from tracegrad.codegen.plan.scatter_accumulate import accumulate_scatters
from tracegrad.codegen.plan.strip_fusion import fuse_strips
from tracegrad.settings import disabled, settings

Snapshots = list[tuple[str, str]]  # names of passes, and the text of the plan after each


class PlanPass(NamedTuple):
    """A pass over plans: its name in `settings.disable` ("" if none), the reason for its place, and whether it is for
    regions (True), for programs (False), or for both."""

    run: Callable[[Plan], None]
    optimization: str
    reason: str
    regions: bool | None = None


def exit_early(plan: Plan) -> None:
    """Make searches of long rows stop as soon as the result is known."""
    stop_early(plan.steps, plan.arguments.sizes)


def split_region_kernels(plan: Plan) -> None:
    """Split the kernels of a region, unless it runs in wavefronts."""
    if blocking_of(plan).strategy != WAVEFRONTS:
        split_kernels(plan)


def block_iterations(plan: Plan) -> None:
    """Block the iterations of a scan body."""
    plan.blocking = blocking_of(plan)


PLAN_PIPELINE = (
    PlanPass(remove_dead_stores, "dead-store-elimination", "first, so that no pass finds a place for unread buffers"),
    PlanPass(
        fuse_arg_reductions,
        "fused-arg-reduction",
        "before early exits, which would give the search of a pair a loop of its own",
    ),
    PlanPass(exit_early, "early-exit", "on the kernels as lowered: later passes rename buffers and split loops"),
    PlanPass(write_in_place, "in-place-updates", "before carries, because a partial update may be that of a carry"),
    PlanPass(
        update_in_place,
        "in-place-updates",
        "before products, which may then accumulate into a carry",
        regions=True,
    ),
    PlanPass(donate, "input-donation", "before products, which may then accumulate into an input", regions=False),
    PlanPass(
        accumulate_products,
        "gemm-accumulation",
        "before scatters: a kernel that only adds a product goes away",
    ),
    PlanPass(
        accumulate_scatters,
        "scatter-accumulation",
        "before one-hot rows, because a scatter into a sum costs its readers nothing",
        regions=False,
    ),
    PlanPass(
        inline_one_hot_scatters,
        "one-hot-inlining",
        "before splitting, which takes kernels apart that read the rows",
        regions=False,
    ),
    PlanPass(split_kernels, "loop-splitting", "before buffers are reused: parts read and write less", regions=False),
    PlanPass(
        split_region_kernels,
        "loop-splitting",
        "before iterations are blocked: parts may be blocked that the whole could not",
        regions=True,
    ),
    PlanPass(move_to_stack, "", "after all passes that merge or remove temporaries", regions=True),
    PlanPass(block_iterations, "", "after buffers have their places: it needs the final kernels", regions=True),
    PlanPass(
        reuse_dying_buffers,
        "buffer-reuse",
        "before strip fusions, whose local buffers need no memory to reuse",
        regions=False,
    ),
    PlanPass(fuse_strips, "strip-fusion", "the last pass that reorders steps", regions=False),
    PlanPass(partition, "", "after strip fusions, whose steps have common chunks"),
    PlanPass(allocate, "", "last, because it needs the order of the steps and their chunks"),
)


def optimize_plan(plan: Plan, snapshots: Snapshots | None = None) -> None:
    """Run the passes on a plan.

    If TRACEGRAD_VERIFY is set, the verifier checks the plan before the first pass and after each. `snapshots` receives
    the name of each pass with the text of the plan after it, and its fusions.
    """
    observers = _observers(plan, snapshots)
    for observe in observers:
        observe("lower")
    for each in PLAN_PIPELINE:
        if each.regions in (None, plan.is_region) and not disabled(each.optimization):
            each.run(plan)
            for observe in observers:
                observe(each.run.__name__)


def _observers(plan: Plan, snapshots: Snapshots | None) -> list[Callable[[str], None]]:
    """Functions to call after each pass with its name."""
    observers: list[Callable[[str], None]] = []
    if settings.verify:
        from tracegrad.codegen.plan.verify_plan import VerifiedKernels, verify_plan

        kernels = VerifiedKernels()
        observers.append(lambda name: verify_plan(plan, name, kernels))
    if snapshots is not None:
        observers.append(lambda name: snapshots.append((name, "\n".join([plan.text(), *map(str, plan.strip_fusions)]))))
    return observers
