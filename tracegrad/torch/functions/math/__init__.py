"""Elementwise functions, reductions, and statistics."""
