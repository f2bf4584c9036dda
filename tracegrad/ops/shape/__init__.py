"""Data movement ops: shapes, fills, stacks, and batches."""
