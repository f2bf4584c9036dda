"""Calls of functions that are ops: custom rules, failures, and random streams."""
