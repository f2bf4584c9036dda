"""Benchmarks: one question a file, one harness for all; ``python -m benchmarks`` prints the tables."""
