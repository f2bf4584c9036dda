"""Indexing: gather, scatter, diagonals, and dynamic slices."""
