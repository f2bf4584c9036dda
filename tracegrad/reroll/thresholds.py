"""Thresholds of rerolling: shorter loops stay unrolled, because their code is small and faster."""

from tracegrad.target.tuning import TUNING

MIN_ITERATIONS = TUNING.loops.min_iterations
MIN_NODES = TUNING.loops.min_nodes
