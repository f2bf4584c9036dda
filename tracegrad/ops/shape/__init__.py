"""Ops that move data: shapes, fills, stacks, and batches."""
