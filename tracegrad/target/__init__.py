"""Describe the target of generated code: the CPU, and the tuning constants for it."""
