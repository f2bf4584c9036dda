"""Benchmarks: one question per file, and one harness for all; ``python -m benchmarks`` prints the tables."""
