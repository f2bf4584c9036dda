"""Execution of a compiled program: entry callables, tiers, strided inputs, and images."""
