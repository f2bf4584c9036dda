"""Thresholds of rerolling: shorter loops stay unrolled, because their code is small and faster."""

__all__ = ["FEWEST_ITERATIONS", "FEWEST_NODES"]

FEWEST_ITERATIONS = 8
FEWEST_NODES = 100
