"""Which loops are too short to be rolled: their unrolled code is faster, and small."""

__all__ = ["FEWEST_NODES", "FEWEST_TURNS"]

FEWEST_TURNS = 8
FEWEST_NODES = 100
