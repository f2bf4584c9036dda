"""Thresholds of rerolling: shorter loops stay unrolled, because their code is small and faster."""

from tracegrad.target.tuning import TUNING

__all__ = ["FEWEST_ITERATIONS", "FEWEST_NODES"]

FEWEST_ITERATIONS = TUNING.loops.min_iterations
FEWEST_NODES = TUNING.loops.min_nodes
