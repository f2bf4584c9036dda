"""Optimize graphs: the pass pipeline. No pass changes the meaning of a graph.

`PIPELINE` is the order of the passes, with a reason for each; `optimize` runs it.
"""

from __future__ import annotations

from collections.abc import Callable

from tracegrad.ir import Graph
from tracegrad.ir import verify as check
from tracegrad.passes.algebra.decompose import decompose
from tracegrad.passes.dtypes.legalize import without_complex, without_half
from tracegrad.passes.linalg.share_factorizations import factor_once
from tracegrad.passes.linalg.small_matmul import Thresholds, unroll_small_contractions
from tracegrad.passes.loops.batch_matmuls import join_products_of_iterations
from tracegrad.passes.loops.eliminate_residuals import read_what_is_left
from tracegrad.passes.loops.fuse_segments import join_segments
from tracegrad.passes.loops.fusion import share_loops
from tracegrad.passes.loops.tiling import run_in_blocks
from tracegrad.passes.simplify.simplify import simplify
from tracegrad.settings import disabled, settings

__all__ = [
    "OPTIONAL",
    "PIPELINE",
    "Thresholds",
    "decompose",
    "factor_once",
    "join_products_of_iterations",
    "join_segments",
    "optimize",
    "read_what_is_left",
    "run_in_blocks",
    "simplify",
    "unroll_small_contractions",
    "without_complex",
    "without_half",
]

Pass = Callable[[Graph], Graph]

PIPELINE: tuple[tuple[Pass, str], ...] = (
    (join_segments, "first, because other passes may rewrite a loop and its segments differently"),
    (decompose, "before fusion and the rules, which need the parts of composite ops"),
    (unroll_small_contractions, "before `simplify`, which removes its redundant shape ops"),
    (
        join_products_of_iterations,
        "after small products are unrolled, before `simplify` replaces `accumulate` by `add`",
    ),
    (simplify, "before the passes that compare nodes; its normal form is the input of scheduler and cache"),
    (factor_once, "after `simplify`, which finds the triangular systems"),
    (share_loops, "after `simplify`, because equal loops then have equal text; simplifies fused loops again"),
    (read_what_is_left, "after loop fusion, because only a fused loop both saves windows and returns their array"),
    (run_in_blocks, "last, because it looks for loops that still save rows for each other"),
)

# The names in `settings.disable` of the passes that may be left out. The others are `tracegrad.optimizations.REQUIRED`.
OPTIONAL: dict[Pass, str] = {
    join_segments: "segment-fusion",
    join_products_of_iterations: "batched-products",
    simplify: "simplification",
    factor_once: "shared-factorizations",
    share_loops: "loop-fusion",
    read_what_is_left: "residual-elimination",
    run_in_blocks: "loop-tiling",
}


def optimize(graph: Graph, verify: bool = False, record: list[tuple[str, Graph]] | None = None) -> Graph:
    """`graph` after every pass of `PIPELINE`; inputs and outputs keep their order, shapes and dtypes.

    `settings.disable` can leave out the passes of `OPTIONAL`.

    With `verify`, or when TRACEGRAD_VERIFY is set, the verifier checks the graph after every pass. `record` receives
    the name of each pass with the graph it returned.

    >>> from tracegrad.ir import parse
    >>> stages = []
    >>> text = "graph(%0: f64[4]) {\\n  %1 = mean(%0) {axes=(0,)} : f64[]\\n  return %1\\n}"
    >>> print(optimize(parse(text), record=stages))
    graph(%0: f64[4]) {
      %1 = reduce_sum(%0) {axes=(0,)} : f64[]
      %2 = multiply(%1, 0.25) : f64[]
      return %2
    }
    >>> [name for name, _ in stages][:5]
    ['join_segments', 'decompose', 'unroll_small_contractions', 'join_products_of_iterations', 'simplify']
    """
    checked: Graph | None = None
    for run, _reason in PIPELINE:
        if disabled(OPTIONAL.get(run, "")):
            continue
        graph = run(graph)
        if graph is not checked and (verify or settings.verify):
            checked = check(graph)
        if record is not None:
            record.append((run.__name__, graph))
    return graph
